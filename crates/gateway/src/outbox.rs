//! Send queue of a connection: a bounded queue between all producers of events and one socket.
//!
//! Producers never wait. A slow client first misses dispensable events; beyond the limit it loses the connection. Runs
//! are not affected. An event gets its sequence number when it is enqueued, and everything enqueued is sent, so the
//! numbers that a client sees have no gaps.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::extract::ws::{CloseFrame, Message};
use bytes::Bytes;
use homard_proto::{Generation, frame::Response};
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Size of an event frame beyond its payload.
const ENVELOPE: usize = 64;

/// Maximum length of a close reason in bytes. The protocol allows three more; clients expect the cut here.
const REASON: usize = 120;

/// Maximum number of queued bytes before a client counts as too slow.
pub(crate) fn limit(generation: Generation) -> usize {
    match generation {
        Generation::Three => 1_572_864,
        // OpenClaw allows 50 MiB, which is too much memory for a reader that has stopped.
        Generation::Four => 4_194_304,
    }
}

/// A close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Farewell {
    code: u16,
    reason: String,
}

impl Farewell {
    /// Creates a close frame; a long reason is truncated.
    pub(crate) fn new(code: u16, reason: &str) -> Self {
        Self { code, reason: reason[..reason.floor_char_boundary(REASON)].to_owned() }
    }

    fn into_message(self) -> Message {
        Message::Close(Some(CloseFrame { code: self.code, reason: self.reason.into() }))
    }
}

/// Version of the gateway state that an event describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct StateVersion {
    /// Number of changes of the presence list.
    pub(crate) presence: u64,
    /// Constant: health is computed anew for each event.
    pub(crate) health: u64,
}

/// A queued frame.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// A complete text frame.
    Whole(String),
    /// An event; its payload is shared by all recipients.
    Event { name: &'static str, payload: Arc<str>, seq: u64, state: Option<StateVersion> },
    /// A WebSocket ping.
    Ping,
    /// A short pause in sending.
    Pause,
}

impl Frame {
    fn size(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Event { payload, .. } => payload.len() + ENVELOPE,
            Self::Ping | Self::Pause => 0,
        }
    }

    fn into_next(self) -> Next {
        let size = self.size();
        let message = match self {
            Self::Whole(text) => Message::Text(text.into()),
            Self::Event { name, payload, seq, state } => Message::Text(numbered(name, &payload, seq, state).into()),
            Self::Ping => Message::Ping(Bytes::new()),
            Self::Pause => return Next::Pause,
        };
        Next::Send(message, size)
    }
}

/// Formats an event frame around a payload that is JSON already.
fn numbered(name: &str, payload: &str, seq: u64, state: Option<StateVersion>) -> String {
    match state {
        None => format!(r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq}}}"#),
        Some(StateVersion { presence, health }) => format!(
            r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq},"stateVersion":{{"presence":{presence},"health":{health}}}}}"#
        ),
    }
}

/// Send queue of one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    news: Notify,
    /// Notified when queued bytes were sent.
    taken: Notify,
    lost: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    queue: VecDeque<Frame>,
    /// Bytes that are enqueued and not yet flushed to the socket.
    waiting: usize,
    limit: usize,
    seq: u64,
    farewell: Option<Farewell>,
}

/// What happens to a frame when the queue is full.
#[derive(Debug, Clone, Copy)]
enum Room {
    /// It is enqueued regardless.
    Always,
    /// It is skipped if it does not fit within the limit.
    OrSkip,
    /// The connection is closed.
    OrGiveUp,
}

/// Next action of the writer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this message of this size in bytes.
    Send(Message, usize),
    /// The queue is empty: flush what was sent.
    Flush,
    /// Flush, then send nothing for a short time.
    Pause,
    /// Send this message and stop.
    End(Message),
}

impl Outbox {
    /// Creates an empty queue with the smaller limit, which applies until the protocol version is known.
    pub(crate) fn new() -> Self {
        let inner =
            Inner { queue: VecDeque::new(), waiting: 0, limit: limit(Generation::Three), seq: 0, farewell: None };
        Self { inner: Mutex::new(inner), news: Notify::new(), taken: Notify::new(), lost: CancellationToken::new() }
    }

    /// Sets the limit once the protocol version is known.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Enqueues a response. Responses are never dropped, since the client requested them; instead the connection reads
    /// no further requests until there is [`room`](Self::room).
    pub(crate) fn respond(&self, response: &Response) {
        match serde_json::to_string(response) {
            Ok(text) => {
                self.push(Room::Always, |_| Frame::Whole(text));
            }
            Err(error) => tracing::error!(%error, "a response could not be written"),
        }
    }

    /// Enqueues an event without a sequence number.
    pub(crate) fn tell_unnumbered(&self, name: &str, payload: &str) {
        let text = format!(r#"{{"type":"event","event":"{name}","payload":{payload}}}"#);
        self.push(Room::OrGiveUp, |_| Frame::Whole(text));
    }

    /// Enqueues an event that must arrive.
    pub(crate) fn tell(&self, name: &'static str, payload: Arc<str>) {
        self.push(Room::OrGiveUp, |seq| Frame::Event { name, payload, seq: next(seq), state: None });
    }

    /// Enqueues an event that a slow client can miss; returns true if it was enqueued.
    pub(crate) fn tell_if_room(&self, name: &'static str, payload: Arc<str>) -> bool {
        self.push(Room::OrSkip, |seq| Frame::Event { name, payload, seq: next(seq), state: None })
    }

    /// Like [`tell_if_room`](Self::tell_if_room), for an event that carries a state version.
    pub(crate) fn tell_state_if_room(&self, name: &'static str, payload: Arc<str>, state: StateVersion) -> bool {
        self.push(Room::OrSkip, |seq| Frame::Event { name, payload, seq: next(seq), state: Some(state) })
    }

    /// Enqueues a ping.
    pub(crate) fn ping(&self) {
        self.push(Room::OrSkip, |_| Frame::Ping);
    }

    /// Enqueues a pause, so that the client can process what it was sent.
    pub(crate) fn pause(&self) {
        self.push(Room::OrSkip, |_| Frame::Pause);
    }

    /// Closes the connection after everything enqueued has been sent.
    pub(crate) fn close(&self, farewell: Farewell) {
        self.lock().farewell.get_or_insert(farewell);
        self.news.notify_one();
    }

    /// Drops the queue: the client does not read, or has disconnected.
    pub(crate) fn give_up(&self, farewell: Farewell) {
        let mut inner = self.lock();
        inner.queue.clear();
        inner.farewell.get_or_insert(farewell);
        drop(inner);
        self.news.notify_one();
        self.lost.cancel();
    }

    /// Waits until the queue was dropped by [`give_up`](Self::give_up).
    pub(crate) fn lost(&self) -> WaitForCancellationFuture<'_> {
        self.lost.cancelled()
    }

    /// Returns the next action; there is one writer. `unflushed` is true if something was sent and not flushed.
    pub(crate) async fn next(&self, unflushed: bool) -> Next {
        loop {
            if let Some(next) = self.lock().next() {
                return next;
            }
            if unflushed {
                return Next::Flush;
            }
            self.news.notified().await;
        }
    }

    /// Waits until the queue is below its limit. Cancel safe.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.lock().is_full() {
                return;
            }
            taken.await;
        }
    }

    /// Releases bytes that were flushed.
    pub(crate) fn sent(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.waiting = inner.waiting.saturating_sub(bytes);
        drop(inner);
        self.taken.notify_one();
    }

    /// Enqueues a frame or applies the policy for a full queue; returns true if it was enqueued.
    fn push(&self, room: Room, frame: impl FnOnce(&mut u64) -> Frame) -> bool {
        let mut inner = self.lock();
        if inner.farewell.is_some() {
            return false;
        }
        let mut seq = inner.seq;
        let frame = frame(&mut seq);
        match room {
            Room::OrSkip if inner.waiting + frame.size() > inner.limit => return false,
            Room::OrGiveUp if inner.is_full() => {
                drop(inner);
                tracing::warn!("a client did not read what it was sent and was disconnected");
                self.give_up(Farewell::new(1008, "slow consumer"));
                return false;
            }
            Room::Always | Room::OrSkip | Room::OrGiveUp => {}
        }
        inner.seq = seq;
        inner.waiting += frame.size();
        inner.queue.push_back(frame);
        drop(inner);
        self.news.notify_one();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Depends on what is queued, not on the new frame: a single frame above the limit still passes, if it must.
    fn is_full(&self) -> bool {
        self.waiting > self.limit
    }

    fn next(&mut self) -> Option<Next> {
        let frame = self.queue.pop_front().map(Frame::into_next);
        frame.or_else(|| self.farewell.clone().map(|farewell| Next::End(farewell.into_message())))
    }
}

fn next(seq: &mut u64) -> u64 {
    *seq += 1;
    *seq
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Takes one frame, as the writer would.
    fn take(outbox: &Outbox) -> Option<Message> {
        match outbox.next(false).now_or_never()? {
            Next::Send(message, size) => {
                outbox.sent(size);
                Some(message)
            }
            Next::End(message) => Some(message),
            Next::Flush | Next::Pause => None,
        }
    }

    fn seq(message: &Message) -> Option<u64> {
        serde_json::from_str::<Value>(message.to_text().ok()?).ok()?["seq"].as_u64()
    }

    #[test]
    fn an_event_is_one_line_of_json_around_its_payload() {
        let outbox = Outbox::new();
        outbox.tell_unnumbered("connect.challenge", r#"{"ts":1}"#);
        outbox.tell("tick", r#"{"ts":2}"#.into());
        let text = |message: Option<Message>| message.unwrap().into_text().unwrap().to_string();
        assert_eq!(text(take(&outbox)), r#"{"type":"event","event":"connect.challenge","payload":{"ts":1}}"#);
        assert_eq!(text(take(&outbox)), r#"{"type":"event","event":"tick","payload":{"ts":2},"seq":1}"#);
        outbox.tell_state_if_room("presence", "{}".into(), StateVersion { presence: 7, health: 0 });
        let state = r#""stateVersion":{"presence":7,"health":0}"#;
        assert_eq!(
            text(take(&outbox)),
            format!(r#"{{"type":"event","event":"presence","payload":{{}},"seq":2,{state}}}"#)
        );
        assert_eq!(take(&outbox), None);
    }

    #[test]
    fn what_was_said_before_the_farewell_is_sent_before_it() {
        let outbox = Outbox::new();
        outbox.tell("tick", "{}".into());
        outbox.close(Farewell::new(1012, "service restart"));
        outbox.tell("tick", "{}".into());
        assert_eq!(seq(&take(&outbox).unwrap()), Some(1));
        assert_eq!(take(&outbox), Some(Farewell::new(1012, "service restart").into_message()));
    }

    #[test]
    fn a_slow_client_loses_what_does_not_matter_and_then_its_connection() {
        let outbox = Outbox::new();
        outbox.set_limit(1000);
        let large: Arc<str> = "1".repeat(1000).into();
        outbox.tell("agent", large.clone());
        outbox.tell_if_room("tick", "{}".into());
        assert_eq!(outbox.lock().queue.len(), 1);
        assert!(!outbox.lost.is_cancelled());
        outbox.tell("agent", large);
        assert!(outbox.lost.is_cancelled());
        assert_eq!(take(&outbox), Some(Farewell::new(1008, "slow consumer").into_message()));
    }

    #[test]
    fn close_reasons_are_cut_between_characters() {
        assert_eq!(Farewell::new(1008, &"ab".repeat(100)).reason, "ab".repeat(60));
        assert_eq!(Farewell::new(1008, &format!("a{}", "é".repeat(100))).reason, format!("a{}", "é".repeat(59)));
        assert_eq!(Farewell::new(1008, "short").reason, "short");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Tell(usize),
        TellIfRoom(usize),
        Respond(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..400usize).prop_map(Step::Tell),
            (0..400usize).prop_map(Step::TellIfRoom),
            (0..400usize).prop_map(Step::Respond),
            Just(Step::Take),
            Just(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn a_client_sees_numbers_without_holes_and_the_queue_is_bounded(steps in prop::collection::vec(step(), 0..80)) {
            let outbox = Outbox::new();
            outbox.set_limit(1000);
            let mut seen = 0;
            let mut hear = |message: Message| -> Result<(), TestCaseError> {
                if let Some(seq) = seq(&message) {
                    prop_assert_eq!(seq, seen + 1);
                    seen = seq;
                }
                Ok(())
            };
            for step in steps {
                match step {
                    Step::Tell(size) => outbox.tell("agent", format!("\"{}\"", "x".repeat(size)).into()),
                    Step::TellIfRoom(size) => {
                        let before = outbox.lock().seq;
                        let is_taken = outbox.tell_if_room("tick", format!("\"{}\"", "x".repeat(size)).into());
                        prop_assert_eq!(outbox.lock().seq, before + u64::from(is_taken));
                    }
                    // A connection reads no requests while its client is slow.
                    Step::Respond(_) if outbox.room().now_or_never().is_none() => {}
                    Step::Respond(size) => outbox.respond(&Response::ok("1", "x".repeat(size).into())),
                    Step::Take => if let Some(message) = take(&outbox) { hear(message)? },
                }
                let inner = outbox.lock();
                prop_assert!(inner.waiting <= 1000 + 400 + 2 * ENVELOPE);
                if !outbox.lost.is_cancelled() {
                    prop_assert_eq!(inner.waiting, inner.queue.iter().map(Frame::size).sum::<usize>());
                }
            }
            if outbox.lost.is_cancelled() {
                prop_assert_eq!(take(&outbox), Some(Farewell::new(1008, "slow consumer").into_message()));
            } else {
                while let Some(message) = take(&outbox) { hear(message)?; }
                prop_assert_eq!(outbox.lock().waiting, 0);
                prop_assert_eq!(outbox.lock().seq, seen);
            }
        }
    }
}
