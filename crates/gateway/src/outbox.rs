//! What a connection is about to be told: a bounded queue between everybody who has news and one socket.
//!
//! Nobody waits here. A client that does not read loses what does not matter, and past the limit its connection; the
//! run that it follows never notices. An event gets its number when it is taken in, and whatever is taken in is sent,
//! so the numbers that a client sees have no holes.

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

/// What a frame costs beside its payload.
const ENVELOPE: usize = 64;

/// How long a close reason may be, in bytes. The wire allows three more; clients know it cut here.
const REASON: usize = 120;

/// How many bytes may wait for a client before it counts as too slow.
pub(crate) fn limit(generation: Generation) -> usize {
    match generation {
        Generation::Three => 1_572_864,
        // OpenClaw allows 50 MiB; a stopped reader shall not cost that much.
        Generation::Four => 4_194_304,
    }
}

/// A connection's last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Farewell {
    code: u16,
    reason: String,
}

impl Farewell {
    /// A close code and why; a long reason is cut.
    pub(crate) fn new(code: u16, reason: &str) -> Self {
        Self { code, reason: reason[..reason.floor_char_boundary(REASON)].to_owned() }
    }

    fn into_message(self) -> Message {
        Message::Close(Some(CloseFrame { code: self.code, reason: self.reason.into() }))
    }
}

/// Which state of the house an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct StateVersion {
    /// How often the list of who is here has changed.
    pub(crate) presence: u64,
    /// Always the same: health is looked at anew whenever it is told.
    pub(crate) health: u64,
}

/// Something on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// A whole frame.
    Whole(String),
    /// An event; its payload is shared by all who are told.
    Event { name: &'static str, payload: Arc<str>, seq: u64, state: Option<StateVersion> },
    /// A sign of life.
    Ping,
    /// Nothing for a moment.
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

/// An event's frame around a payload that is JSON already.
fn numbered(name: &str, payload: &str, seq: u64, state: Option<StateVersion>) -> String {
    match state {
        None => format!(r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq}}}"#),
        Some(StateVersion { presence, health }) => format!(
            r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq},"stateVersion":{{"presence":{presence},"health":{health}}}}}"#
        ),
    }
}

/// The queue of one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    news: Notify,
    /// Rung when the client has taken something.
    taken: Notify,
    lost: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    queue: VecDeque<Frame>,
    /// Bytes that were taken in and are not with the peer's kernel yet.
    waiting: usize,
    limit: usize,
    seq: u64,
    farewell: Option<Farewell>,
}

/// Whether a frame needs room.
#[derive(Debug, Clone, Copy)]
enum Room {
    /// It is taken in whatever waits.
    Always,
    /// A slow client can do without it, and it makes no client slow: it has to fit.
    OrSkip,
    /// A client that is too slow for it loses the connection.
    OrGiveUp,
}

/// What the writer does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this, so many bytes.
    Send(Message, usize),
    /// Everything was handed over: see to it that it is sent.
    Flush,
    /// See to it that everything before is sent, and send nothing for a moment.
    Pause,
    /// Send this and stop.
    End(Message),
}

impl Outbox {
    /// An empty queue with the smaller limit, until it is known who is at the other end.
    pub(crate) fn new() -> Self {
        let inner =
            Inner { queue: VecDeque::new(), waiting: 0, limit: limit(Generation::Three), seq: 0, farewell: None };
        Self { inner: Mutex::new(inner), news: Notify::new(), taken: Notify::new(), lost: CancellationToken::new() }
    }

    /// Sets the limit, now that it is known who is at the other end.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Answers a request. It is what the client asked for, so it never makes a client too slow; but a connection hears no
    /// more questions while there is no [`room`](Self::room).
    pub(crate) fn respond(&self, response: &Response) {
        match serde_json::to_string(response) {
            Ok(text) => {
                self.push(Room::Always, |_| Frame::Whole(text));
            }
            Err(error) => tracing::error!(%error, "a response could not be written"),
        }
    }

    /// Tells an event that does not count: it has no number.
    pub(crate) fn tell_unnumbered(&self, name: &str, payload: &str) {
        let text = format!(r#"{{"type":"event","event":"{name}","payload":{payload}}}"#);
        self.push(Room::OrGiveUp, |_| Frame::Whole(text));
    }

    /// Tells an event that must arrive.
    pub(crate) fn tell(&self, name: &'static str, payload: Arc<str>) {
        self.push(Room::OrGiveUp, |seq| Frame::Event { name, payload, seq: next(seq), state: None });
    }

    /// Tells an event that a slow client can do without; says whether it was taken in.
    pub(crate) fn tell_if_room(&self, name: &'static str, payload: Arc<str>) -> bool {
        self.push(Room::OrSkip, |seq| Frame::Event { name, payload, seq: next(seq), state: None })
    }

    /// The same, for an event that tells how things are.
    pub(crate) fn tell_state_if_room(&self, name: &'static str, payload: Arc<str>, state: StateVersion) -> bool {
        self.push(Room::OrSkip, |seq| Frame::Event { name, payload, seq: next(seq), state: Some(state) })
    }

    /// Sends a sign of life.
    pub(crate) fn ping(&self) {
        self.push(Room::OrSkip, |_| Frame::Ping);
    }

    /// Lets the client take in what it was sent, before it is sent more.
    pub(crate) fn pause(&self) {
        self.push(Room::OrSkip, |_| Frame::Pause);
    }

    /// Ends the connection once everything before has been sent.
    pub(crate) fn close(&self, farewell: Farewell) {
        self.lock().farewell.get_or_insert(farewell);
        self.news.notify_one();
    }

    /// Nothing can be delivered any more: the client does not read, or is gone.
    pub(crate) fn give_up(&self, farewell: Farewell) {
        let mut inner = self.lock();
        inner.queue.clear();
        inner.farewell.get_or_insert(farewell);
        drop(inner);
        self.news.notify_one();
        self.lost.cancel();
    }

    /// Waits until nothing can be delivered any more.
    pub(crate) fn lost(&self) -> WaitForCancellationFuture<'_> {
        self.lost.cancelled()
    }

    /// The next thing to send; one writer asks. `unflushed` says whether something was handed over and not flushed.
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

    /// Waits until the client has taken enough of what it was sent. Cancel safe.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.lock().is_full() {
                return;
            }
            taken.await;
        }
    }

    /// So many bytes have left.
    pub(crate) fn sent(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.waiting = inner.waiting.saturating_sub(bytes);
        drop(inner);
        self.taken.notify_one();
    }

    /// Takes a frame in, or does what is to be done when the client is too slow for it; says whether it was taken in.
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
    /// What is waiting decides, not what comes: one frame larger than the limit still gets through, if it must.
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

    /// Takes one frame out, as the writer would.
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
                    // A connection hears no more questions while its client is slow.
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
