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
const FRAME_OVERHEAD: usize = 64;

/// Maximum length of a close reason in bytes. The protocol allows three more; clients expect the cut here.
const MAX_REASON_BYTES: usize = 120;

/// Maximum number of queued bytes before a client counts as too slow, by protocol version.
pub(crate) fn queue_limit(generation: Generation) -> usize {
    match generation {
        Generation::Three => 1_572_864,
        // OpenClaw allows 50 MiB, which is too much memory for a reader that has stopped.
        Generation::Four => 4_194_304,
    }
}

/// A close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloseReason {
    code: u16,
    reason: String,
}

impl CloseReason {
    /// Creates a close frame; a long reason is truncated.
    pub(crate) fn new(code: u16, reason: &str) -> Self {
        Self { code, reason: reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned() }
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
enum QueuedFrame {
    /// A complete text frame.
    Whole(String),
    /// An event; its payload is shared by all recipients.
    Event { name: &'static str, payload: Arc<str>, seq: u64, state: Option<StateVersion> },
    /// A WebSocket ping.
    Ping,
    /// A short pause in sending.
    Pause,
}

impl QueuedFrame {
    fn size(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Event { payload, .. } => payload.len() + FRAME_OVERHEAD,
            Self::Ping | Self::Pause => 0,
        }
    }

    fn into_next(self) -> WriterAction {
        let size = self.size();
        let message = match self {
            Self::Whole(text) => Message::Text(text.into()),
            Self::Event { name, payload, seq, state } => Message::Text(event_frame(name, &payload, seq, state).into()),
            Self::Ping => Message::Ping(Bytes::new()),
            Self::Pause => return WriterAction::Pause,
        };
        WriterAction::Send(message, size)
    }
}

/// Formats an event frame around a payload that is JSON already.
fn event_frame(name: &str, payload: &str, seq: u64, state: Option<StateVersion>) -> String {
    match state {
        None => format!(r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq}}}"#),
        Some(StateVersion { presence, health }) => format!(
            r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq},"stateVersion":{{"presence":{presence},"health":{health}}}}}"#
        ),
    }
}

/// Send queue of one connection.
#[derive(Debug)]
pub(crate) struct SendQueue {
    inner: Mutex<SendQueueInner>,
    queued: Notify,
    /// Notified when queued bytes were sent.
    drained: Notify,
    abandoned: CancellationToken,
}

#[derive(Debug)]
struct SendQueueInner {
    queue: VecDeque<QueuedFrame>,
    /// Bytes that are enqueued and not yet flushed to the socket.
    queued_bytes: usize,
    limit: usize,
    seq: u64,
    close: Option<CloseReason>,
}

/// What happens to a frame when the queue is full.
#[derive(Debug, Clone, Copy)]
enum Backpressure {
    /// It is enqueued regardless.
    Always,
    /// It is skipped if it does not fit within the limit.
    Skip,
    /// The connection is closed.
    Disconnect,
}

/// Next action of the writer.
#[derive(Debug)]
pub(crate) enum WriterAction {
    /// Send this message of this size in bytes.
    Send(Message, usize),
    /// The queue is empty: flush what was sent.
    Flush,
    /// Flush, then send nothing for a short time.
    Pause,
    /// Send this message and stop.
    End(Message),
}

impl SendQueue {
    /// Creates an empty queue with the smaller limit, which applies until the protocol version is known.
    pub(crate) fn new() -> Self {
        let inner = SendQueueInner {
            queue: VecDeque::new(),
            queued_bytes: 0,
            limit: queue_limit(Generation::Three),
            seq: 0,
            close: None,
        };
        Self {
            inner: Mutex::new(inner),
            queued: Notify::new(),
            drained: Notify::new(),
            abandoned: CancellationToken::new(),
        }
    }

    /// Sets the limit once the protocol version is known.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Enqueues a response. Responses are never dropped, since the client requested them; instead the connection reads
    /// no further requests until there is space ([`wait_for_space`](Self::wait_for_space)).
    pub(crate) fn respond(&self, response: &Response) {
        match serde_json::to_string(response) {
            Ok(text) => {
                self.push(Backpressure::Always, |_| QueuedFrame::Whole(text));
            }
            Err(error) => tracing::error!(%error, "failed to serialize a response"),
        }
    }

    /// Enqueues an event without a sequence number.
    pub(crate) fn send_unnumbered(&self, name: &str, payload: &str) {
        let text = format!(r#"{{"type":"event","event":"{name}","payload":{payload}}}"#);
        self.push(Backpressure::Disconnect, |_| QueuedFrame::Whole(text));
    }

    /// Enqueues an event that must arrive.
    pub(crate) fn send(&self, name: &'static str, payload: Arc<str>) {
        self.push(Backpressure::Disconnect, |seq| QueuedFrame::Event { name, payload, seq: next(seq), state: None });
    }

    /// Enqueues an event that a slow client can miss; returns true if it was enqueued.
    pub(crate) fn try_send(&self, name: &'static str, payload: Arc<str>) -> bool {
        self.push(Backpressure::Skip, |seq| QueuedFrame::Event { name, payload, seq: next(seq), state: None })
    }

    /// Like [`try_send`](Self::try_send), for an event that carries a state version.
    pub(crate) fn try_send_state(&self, name: &'static str, payload: Arc<str>, state: StateVersion) -> bool {
        self.push(Backpressure::Skip, |seq| QueuedFrame::Event { name, payload, seq: next(seq), state: Some(state) })
    }

    /// Enqueues a ping.
    pub(crate) fn ping(&self) {
        self.push(Backpressure::Skip, |_| QueuedFrame::Ping);
    }

    /// Enqueues a pause, so that the client can process what it was sent.
    pub(crate) fn pause(&self) {
        self.push(Backpressure::Skip, |_| QueuedFrame::Pause);
    }

    /// Closes the connection after everything enqueued has been sent.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.lock().close.get_or_insert(reason);
        self.queued.notify_one();
    }

    /// Drops the queue: the client does not read, or has disconnected.
    pub(crate) fn abandon(&self, reason: CloseReason) {
        let mut inner = self.lock();
        inner.queue.clear();
        inner.close.get_or_insert(reason);
        drop(inner);
        self.queued.notify_one();
        self.abandoned.cancel();
    }

    /// Waits until the queue was dropped by [`abandon`](Self::abandon).
    pub(crate) fn abandoned(&self) -> WaitForCancellationFuture<'_> {
        self.abandoned.cancelled()
    }

    /// Returns the next action; there is one writer. `unflushed` is true if something was sent and not flushed.
    pub(crate) async fn next(&self, unflushed: bool) -> WriterAction {
        loop {
            if let Some(next) = self.lock().next() {
                return next;
            }
            if unflushed {
                return WriterAction::Flush;
            }
            self.queued.notified().await;
        }
    }

    /// Waits until the queue is below its limit. Cancel safe.
    pub(crate) async fn wait_for_space(&self) {
        loop {
            let drained = self.drained.notified();
            if !self.lock().is_full() {
                return;
            }
            drained.await;
        }
    }

    /// Releases bytes that were flushed.
    pub(crate) fn release(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.queued_bytes = inner.queued_bytes.saturating_sub(bytes);
        drop(inner);
        self.drained.notify_one();
    }

    /// Enqueues a frame or applies the policy for a full queue; returns true if it was enqueued.
    fn push(&self, backpressure: Backpressure, frame: impl FnOnce(&mut u64) -> QueuedFrame) -> bool {
        let mut inner = self.lock();
        if inner.close.is_some() {
            return false;
        }
        let mut seq = inner.seq;
        let frame = frame(&mut seq);
        match backpressure {
            Backpressure::Skip if inner.queued_bytes + frame.size() > inner.limit => return false,
            Backpressure::Disconnect if inner.is_full() => {
                drop(inner);
                tracing::warn!("disconnecting a slow client: its send queue is full");
                self.abandon(CloseReason::new(1008, "slow consumer"));
                return false;
            }
            Backpressure::Always | Backpressure::Skip | Backpressure::Disconnect => {}
        }
        inner.seq = seq;
        inner.queued_bytes += frame.size();
        inner.queue.push_back(frame);
        drop(inner);
        self.queued.notify_one();
        true
    }

    fn lock(&self) -> MutexGuard<'_, SendQueueInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendQueueInner {
    /// Depends on what is queued, not on the new frame: a single frame above the limit still passes, if it must.
    fn is_full(&self) -> bool {
        self.queued_bytes > self.limit
    }

    fn next(&mut self) -> Option<WriterAction> {
        let frame = self.queue.pop_front().map(QueuedFrame::into_next);
        frame.or_else(|| self.close.clone().map(|reason| WriterAction::End(reason.into_message())))
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
    fn take(queue: &SendQueue) -> Option<Message> {
        match queue.next(false).now_or_never()? {
            WriterAction::Send(message, size) => {
                queue.release(size);
                Some(message)
            }
            WriterAction::End(message) => Some(message),
            WriterAction::Flush | WriterAction::Pause => None,
        }
    }

    fn seq(message: &Message) -> Option<u64> {
        serde_json::from_str::<Value>(message.to_text().ok()?).ok()?["seq"].as_u64()
    }

    #[test]
    fn an_event_is_one_line_of_json_around_its_payload() {
        let queue = SendQueue::new();
        queue.send_unnumbered("connect.challenge", r#"{"ts":1}"#);
        queue.send("tick", r#"{"ts":2}"#.into());
        let text = |message: Option<Message>| message.unwrap().into_text().unwrap().to_string();
        assert_eq!(text(take(&queue)), r#"{"type":"event","event":"connect.challenge","payload":{"ts":1}}"#);
        assert_eq!(text(take(&queue)), r#"{"type":"event","event":"tick","payload":{"ts":2},"seq":1}"#);
        queue.try_send_state("presence", "{}".into(), StateVersion { presence: 7, health: 0 });
        let state = r#""stateVersion":{"presence":7,"health":0}"#;
        assert_eq!(
            text(take(&queue)),
            format!(r#"{{"type":"event","event":"presence","payload":{{}},"seq":2,{state}}}"#)
        );
        assert_eq!(take(&queue), None);
    }

    #[test]
    fn queued_frames_are_sent_before_the_close_frame() {
        let queue = SendQueue::new();
        queue.send("tick", "{}".into());
        queue.close(CloseReason::new(1012, "service restart"));
        queue.send("tick", "{}".into());
        assert_eq!(seq(&take(&queue).unwrap()), Some(1));
        assert_eq!(take(&queue), Some(CloseReason::new(1012, "service restart").into_message()));
    }

    #[test]
    fn a_slow_client_loses_optional_events_and_then_its_connection() {
        let queue = SendQueue::new();
        queue.set_limit(1000);
        let large: Arc<str> = "1".repeat(1000).into();
        queue.send("agent", large.clone());
        queue.try_send("tick", "{}".into());
        assert_eq!(queue.lock().queue.len(), 1);
        assert!(!queue.abandoned.is_cancelled());
        queue.send("agent", large);
        assert!(queue.abandoned.is_cancelled());
        assert_eq!(take(&queue), Some(CloseReason::new(1008, "slow consumer").into_message()));
    }

    #[test]
    fn close_reasons_are_truncated_at_character_boundaries() {
        assert_eq!(CloseReason::new(1008, &"ab".repeat(100)).reason, "ab".repeat(60));
        assert_eq!(CloseReason::new(1008, &format!("a{}", "é".repeat(100))).reason, format!("a{}", "é".repeat(59)));
        assert_eq!(CloseReason::new(1008, "short").reason, "short");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Send(usize),
        TrySend(usize),
        Respond(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..400usize).prop_map(Step::Send),
            (0..400usize).prop_map(Step::TrySend),
            (0..400usize).prop_map(Step::Respond),
            Just(Step::Take),
            Just(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn sequence_numbers_have_no_gaps_and_the_queue_is_bounded(steps in prop::collection::vec(step(), 0..80)) {
            let queue = SendQueue::new();
            queue.set_limit(1000);
            let mut last_seq = 0;
            let mut check_seq = |message: Message| -> Result<(), TestCaseError> {
                if let Some(seq) = seq(&message) {
                    prop_assert_eq!(seq, last_seq + 1);
                    last_seq = seq;
                }
                Ok(())
            };
            for step in steps {
                match step {
                    Step::Send(size) => queue.send("agent", format!("\"{}\"", "x".repeat(size)).into()),
                    Step::TrySend(size) => {
                        let before = queue.lock().seq;
                        let is_sent = queue.try_send("tick", format!("\"{}\"", "x".repeat(size)).into());
                        prop_assert_eq!(queue.lock().seq, before + u64::from(is_sent));
                    }
                    // A connection reads no requests while its client is slow.
                    Step::Respond(_) if queue.wait_for_space().now_or_never().is_none() => {}
                    Step::Respond(size) => queue.respond(&Response::ok("1", "x".repeat(size).into())),
                    Step::Take => if let Some(message) = take(&queue) { check_seq(message)? },
                }
                let inner = queue.lock();
                prop_assert!(inner.queued_bytes <= 1000 + 400 + 2 * FRAME_OVERHEAD);
                if !queue.abandoned.is_cancelled() {
                    prop_assert_eq!(inner.queued_bytes, inner.queue.iter().map(QueuedFrame::size).sum::<usize>());
                }
            }
            if queue.abandoned.is_cancelled() {
                prop_assert_eq!(take(&queue), Some(CloseReason::new(1008, "slow consumer").into_message()));
            } else {
                while let Some(message) = take(&queue) { check_seq(message)?; }
                prop_assert_eq!(queue.lock().queued_bytes, 0);
                prop_assert_eq!(queue.lock().seq, last_seq);
            }
        }
    }
}
