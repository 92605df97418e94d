//! Tape: the ordered events of one run, for any number of readers.
//!
//! Streamed text is one growing element per assistant message, not one event per token: a slow reader finds more text at
//! its next read. An event with a record becomes visible once its commit is on disk; later events wait behind it.

mod accept;
mod commit;
pub(crate) mod stored;

use std::{
    collections::VecDeque,
    mem::discriminant,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homard_proto::{CallId, RunId, SessionId, SessionKey};
use homard_queue::inbox::Disposition;
use tokio::sync::{Notify, mpsc};

use crate::{
    event::{LiveEvent, QueueEvent, ReplyEvent, RunEnd, RunEvent, StoredEvent, TapeEvent, ToolEvent},
    hub::HubEvent,
};

pub(crate) use accept::Acceptance;
pub(crate) use commit::{Commit, StagedEvents};
pub(crate) use stored::StoredValue;

/// Events of one run.
#[derive(Debug)]
pub struct Tape {
    run: RunId,
    key: SessionKey,
    accepted_at: u64,
    inner: Mutex<TapeInner>,
    /// Queue disposition of its message, as last reported to its sender.
    disposition: Mutex<Option<Disposition>>,
    changed: Notify,
    feed: mpsc::UnboundedSender<HubEvent>,
}

#[derive(Debug, Default)]
struct TapeInner {
    elements: Vec<TapeElement>,
    /// Elements of staged events whose commit is not on disk yet, oldest first.
    staged: VecDeque<usize>,
    /// Set when this process will not finish the run, because a commit failed, its lane panicked or the process stops:
    /// the tape stops, and no end is published that may be untrue.
    broken: Option<String>,
    /// True if the commit with the run's end is on disk.
    is_end_stored: bool,
    /// Set when the message was not accepted.
    rejected: bool,
    /// True if the feed already contains this tape.
    is_in_feed: bool,
}

#[derive(Debug)]
struct TapeElement {
    at: u64,
    kind: ElementKind,
}

#[derive(Debug)]
enum ElementKind {
    Text {
        message: u32,
        text: String,
    },
    Thinking {
        message: u32,
        text: String,
    },
    Event(RunEvent),
    /// Progress of a tool that was superseded by newer progress.
    Superseded,
}

/// Position of a reader: an element, and how much of its text was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    element: usize,
    offset: usize,
}

/// State of a tape's run.
#[derive(Debug, Clone, PartialEq)]
pub enum TapeState {
    /// Queued.
    Queued,
    /// Active.
    Running,
    /// Ended.
    Ended(Arc<RunEnd>),
    /// This process will not finish the run; the text says why.
    Broken(String),
    /// The message was not accepted, so there is no such run. The store may have another one with the same id.
    Rejected,
}

impl Tape {
    pub(crate) fn new(
        run: RunId,
        key: SessionKey,
        accepted_at: u64,
        feed: mpsc::UnboundedSender<HubEvent>,
    ) -> Arc<Self> {
        let inner = Mutex::default();
        Arc::new(Self { run, key, accepted_at, inner, disposition: Mutex::default(), changed: Notify::new(), feed })
    }

    /// Id of the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Key of the session.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// When the run was accepted, in milliseconds since the epoch.
    pub fn accepted_at(&self) -> u64 {
        self.accepted_at
    }

    /// Queue disposition of its message, as last reported to its sender; `Started` if it was never queued.
    pub fn disposition(&self) -> Disposition {
        self.disposition.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(Disposition::Started)
    }

    /// Sets the disposition of the message at its arrival. Later calls have no effect.
    pub(crate) fn set_disposition(&self, disposition: Disposition) {
        self.disposition.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(disposition);
    }

    /// Updates the disposition of the message. Emits an event if its kind changed; a new position in the queue is not
    /// reported.
    pub(crate) fn update_disposition(self: &Arc<Self>, at: u64, disposition: Disposition) {
        let previous = self.disposition.lock().unwrap_or_else(PoisonError::into_inner).replace(disposition);
        if previous.is_some_and(|previous| discriminant(&previous) != discriminant(&disposition)) {
            self.emit(at, QueueEvent::DispositionChanged(disposition));
        }
    }

    /// True if its run started in this transcript.
    pub(crate) fn started_in(&self, transcript: &SessionId) -> bool {
        let is_start = |element: &TapeElement| matches!(&element.kind, ElementKind::Event(RunEvent::Stored(StoredEvent::Started { session })) if session == transcript);
        self.lock().elements.iter().any(is_start)
    }

    /// Time of the last event, in milliseconds since the epoch.
    pub fn last_at(&self) -> u64 {
        self.lock().elements.last().map_or(self.accepted_at, |element| element.at)
    }

    /// Reads the events after the cursor and advances it.
    pub fn read(&self, cursor: &mut Cursor) -> Vec<TapeEvent> {
        let mut inner = self.lock();
        inner.is_in_feed = false;
        let visible = inner.visible();
        let mut events = Vec::new();
        while cursor.element < visible {
            let element = &inner.elements[cursor.element];
            let kind = match &element.kind {
                ElementKind::Event(event) => Some(event.clone()),
                ElementKind::Superseded => None,
                ElementKind::Text { message, text } => {
                    new_part(text, cursor.offset).map(|delta| RunEvent::Text { message: *message, delta })
                }
                ElementKind::Thinking { message, text } => {
                    new_part(text, cursor.offset).map(|delta| RunEvent::Thinking { message: *message, delta })
                }
            };
            events.extend(kind.map(|kind| TapeEvent { at: element.at, kind }));
            match &element.kind {
                ElementKind::Text { text, .. } | ElementKind::Thinking { text, .. }
                    if cursor.element + 1 == inner.elements.len() =>
                {
                    // The text may still grow: keep the element and remember the offset.
                    cursor.offset = text.len();
                    break;
                }
                ElementKind::Text { .. }
                | ElementKind::Thinking { .. }
                | ElementKind::Event(_)
                | ElementKind::Superseded => {
                    *cursor = Cursor { element: cursor.element + 1, offset: 0 };
                }
            }
        }
        events
    }

    /// Returns the visible state of the run.
    pub fn state(&self) -> TapeState {
        let inner = self.lock();
        if inner.rejected {
            return TapeState::Rejected;
        }
        if let Some(why) = &inner.broken {
            return TapeState::Broken(why.clone());
        }
        match inner.visible().checked_sub(1).map(|last| &inner.elements[last].kind) {
            None
            | Some(ElementKind::Event(RunEvent::Queue(
                QueueEvent::SlotWaited(_) | QueueEvent::DispositionChanged(_) | QueueEvent::Busy(_),
            ))) => TapeState::Queued,
            Some(ElementKind::Event(RunEvent::Stored(StoredEvent::Ended(end)))) => TapeState::Ended(end.clone()),
            Some(
                ElementKind::Text { .. }
                | ElementKind::Thinking { .. }
                | ElementKind::Event(_)
                | ElementKind::Superseded,
            ) => TapeState::Running,
        }
    }

    /// Returns all events without text and progress; of a broken tape, without those whose records are
    /// not on disk.
    pub(crate) fn events(&self) -> Vec<TapeEvent> {
        let event_of_element = |element: &TapeElement| match &element.kind {
            ElementKind::Event(RunEvent::Tool(ToolEvent::Progress { .. })) => None,
            ElementKind::Event(event) => Some(TapeEvent { at: element.at, kind: event.clone() }),
            ElementKind::Text { .. } | ElementKind::Thinking { .. } | ElementKind::Superseded => None,
        };
        let inner = self.lock();
        let is_missing = |index| inner.broken.is_some() && inner.staged.contains(&index);
        let elements = inner.elements.iter().enumerate().filter(|(index, _)| !is_missing(*index));
        elements.filter_map(|(_, element)| event_of_element(element)).collect()
    }

    /// Returns the text of an incomplete assistant message.
    pub(crate) fn unfinished_text(&self) -> String {
        let inner = self.lock();
        // Blocks are emitted while their message is streamed.
        let complete = inner
            .elements
            .iter()
            .rposition(|element| matches!(&element.kind, ElementKind::Event(event) if !matches!(event, RunEvent::Reply(ReplyEvent::Block(_)))));
        let open = &inner.elements[complete.map_or(0, |last| last + 1)..];
        let text = open.iter().map(|element| match &element.kind {
            ElementKind::Text { text, .. } => text.as_str(),
            ElementKind::Thinking { .. } | ElementKind::Event(_) | ElementKind::Superseded => "",
        });
        text.collect()
    }

    /// Appends a text delta of an assistant message.
    pub(crate) fn text(self: &Arc<Self>, at: u64, message: u32, delta: &str) {
        let mut inner = self.lock();
        match inner.elements.last_mut() {
            Some(TapeElement { at: last_at, kind: ElementKind::Text { message: open, text } }) if *open == message => {
                *last_at = at;
                text.push_str(delta);
            }
            _ => inner.elements.push(TapeElement { at, kind: ElementKind::Text { message, text: delta.to_owned() } }),
        }
        self.wake_readers(inner);
    }

    /// Appends a reasoning delta of an assistant message.
    pub(crate) fn thinking(self: &Arc<Self>, at: u64, message: u32, delta: &str) {
        let mut inner = self.lock();
        match inner.elements.last_mut() {
            Some(TapeElement { at: last_at, kind: ElementKind::Thinking { message: open, text } })
                if *open == message =>
            {
                *last_at = at;
                text.push_str(delta);
            }
            _ => {
                inner.elements.push(TapeElement { at, kind: ElementKind::Thinking { message, text: delta.to_owned() } })
            }
        }
        self.wake_readers(inner);
    }

    /// Emits an event without a record. Only the newest progress of each tool call is kept.
    pub(crate) fn emit(self: &Arc<Self>, at: u64, event: impl LiveEvent) {
        self.append(at, event.into());
    }

    /// Emits an event whose record was read from the store: an earlier process or the commit of another run stored it.
    ///
    /// For entries that a resumed run reads from its transcript, the end of an absorbed message (in the commit of its
    /// host run), and a compaction that is found after a restart. Everything else uses [`Commit::stored_event`].
    pub(crate) fn emit_stored(self: &Arc<Self>, at: u64, event: StoredValue<StoredEvent>) {
        self.append(at, event.into_inner().into());
    }

    fn append(self: &Arc<Self>, at: u64, event: RunEvent) {
        let mut inner = self.lock();
        if let RunEvent::Tool(ToolEvent::Progress { call, .. }) = &event {
            inner.drop_progress(call);
        }
        inner.elements.push(TapeElement { at, kind: ElementKind::Event(event) });
        self.wake_readers(inner);
    }

    /// Emits an event without waking readers.
    pub(crate) fn emit_silent(&self, at: u64, event: impl LiveEvent) {
        self.lock().elements.push(TapeElement { at, kind: ElementKind::Event(event.into()) });
    }

    /// Stages an event with a record; [`publish`](Self::publish) makes it visible once it is on disk.
    fn stage(&self, at: u64, event: RunEvent) {
        let mut inner = self.lock();
        let index = inner.elements.len();
        inner.elements.push(TapeElement { at, kind: ElementKind::Event(event) });
        inner.staged.push_back(index);
    }

    /// Publishes the oldest `count` staged events, whose records are on disk. Their elements remain; only the marks that
    /// hide them from readers are removed.
    fn publish(self: &Arc<Self>, count: usize) {
        let mut inner = self.lock();
        if inner.broken.is_none() {
            let count = count.min(inner.staged.len());
            inner.staged.drain(..count);
        }
        self.wake_readers(inner);
    }

    /// Marks the tape as broken, because the run's records could not be stored.
    pub(crate) fn mark_broken(self: &Arc<Self>, why: &str) {
        let mut inner = self.lock();
        inner.broken.get_or_insert_with(|| why.to_owned());
        self.wake_readers(inner);
    }

    /// Records that the commit with the run's end is on disk.
    fn mark_end_stored(&self) {
        self.lock().is_end_stored = true;
    }

    /// True if the commit with the run's end is on disk.
    pub(crate) fn is_end_stored(&self) -> bool {
        self.lock().is_end_stored
    }

    /// Marks the message as not accepted.
    pub(crate) fn mark_rejected(&self) {
        self.lock().rejected = true;
        self.changed.notify_waiters();
    }

    /// Returns why the run's records could not be stored, if so.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    fn wake_readers(self: &Arc<Self>, mut inner: MutexGuard<'_, TapeInner>) {
        if !std::mem::replace(&mut inner.is_in_feed, true) {
            // Without a gateway there is no subscriber of all runs; the send error is ignored.
            self.feed.send(HubEvent::Run(self.clone())).ok();
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, TapeInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TapeInner {
    /// Removes the previous progress of a running call. It is near the end: running calls belong to one message.
    fn drop_progress(&mut self, running: &CallId) {
        for element in self.elements.iter_mut().rev() {
            match &element.kind {
                ElementKind::Event(RunEvent::Tool(ToolEvent::Progress { call, .. })) if call == running => {
                    element.kind = ElementKind::Superseded;
                    return;
                }
                ElementKind::Event(RunEvent::Tool(ToolEvent::Progress { .. })) | ElementKind::Superseded => {}
                ElementKind::Event(_) | ElementKind::Text { .. } | ElementKind::Thinking { .. } => return,
            }
        }
    }

    fn visible(&self) -> usize {
        self.staged.front().copied().unwrap_or(self.elements.len())
    }
}

fn new_part(text: &str, offset: usize) -> Option<String> {
    text.get(offset..).filter(|part| !part.is_empty()).map(str::to_owned)
}

/// A subscriber of one tape that waits for new events.
#[derive(Debug)]
pub struct Subscriber {
    tape: Arc<Tape>,
    cursor: Cursor,
}

impl Subscriber {
    /// Subscribes to a tape from its beginning.
    pub fn new(tape: Arc<Tape>) -> Self {
        Self { tape, cursor: Cursor::default() }
    }

    /// The tape.
    pub fn tape(&self) -> &Arc<Tape> {
        &self.tape
    }

    /// Waits for the next events; `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<TapeEvent>> {
        loop {
            let changed = self.tape.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let events = self.tape.read(&mut self.cursor);
            if !events.is_empty() {
                return Some(events);
            }
            if matches!(self.tape.state(), TapeState::Ended(_) | TapeState::Broken(_) | TapeState::Rejected) {
                return None;
            }
            changed.await;
        }
    }

    /// Waits until the run is over. Cancel safe.
    pub async fn end(self) -> TapeState {
        loop {
            let changed = self.tape.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.tape.state() {
                TapeState::Queued | TapeState::Running => changed.await,
                state @ (TapeState::Ended(_) | TapeState::Broken(_) | TapeState::Rejected) => return state,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, message::Message};
    use proptest::prelude::*;

    use super::*;

    fn tape() -> Arc<Tape> {
        let (feed, _) = mpsc::unbounded_channel();
        Tape::new(RunId::parse("r").unwrap(), AgentId::main().main_session(), 0, feed)
    }

    fn input(n: usize) -> RunEvent {
        let user = homard_proto::message::User::text(n.to_string(), 0);
        RunEvent::Stored(StoredEvent::Input(Arc::new(Message::User(user))))
    }

    /// Joins adjacent text, so that readers that read at different times can be compared.
    fn joined(events: Vec<TapeEvent>) -> Vec<RunEvent> {
        let mut joined: Vec<RunEvent> = Vec::new();
        for event in events {
            match (joined.last_mut(), event.kind) {
                (Some(RunEvent::Text { message: a, delta }), RunEvent::Text { message: b, delta: more }) if *a == b => {
                    delta.push_str(&more);
                }
                (_, kind) => joined.push(kind),
            }
        }
        joined
    }

    #[test]
    fn a_staged_event_and_all_later_ones_wait_for_the_commit() {
        let tape = tape();
        let mut cursor = Cursor::default();
        tape.stage(1, input(1));
        tape.text(2, 0, "hi");
        assert_eq!(tape.read(&mut cursor), []);
        assert_eq!(tape.state(), TapeState::Queued);
        tape.publish(1);
        let kinds: Vec<_> = tape.read(&mut cursor).into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [input(1), RunEvent::Text { message: 0, delta: "hi".to_owned() }]);
    }

    #[test]
    fn growing_text_is_published_once_until_it_is_read() {
        let (feed, mut receiver) = mpsc::unbounded_channel();
        let tape = Tape::new(RunId::parse("r").unwrap(), AgentId::main().main_session(), 0, feed);
        for _ in 0..100 {
            tape.text(0, 0, "é");
        }
        assert!(receiver.try_recv().is_ok());
        assert!(receiver.try_recv().is_err());
        assert_eq!(tape.read(&mut Cursor::default()).len(), 1);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Text(u32, String),
        Pass,
        Hold,
        Publish,
        Look(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..3u32, "\\PC{0,3}").prop_map(|(message, text)| Act::Text(message, text)),
            Just(Act::Pass),
            Just(Act::Hold),
            Just(Act::Publish),
            (0..2usize).prop_map(Act::Look),
        ]
    }

    proptest! {
        #[test]
        fn readers_at_different_times_read_the_same_events(acts in proptest::collection::vec(act(), 0..60)) {
            let tape = tape();
            let mut readers = [(Cursor::default(), Vec::new()), (Cursor::default(), Vec::new())];
            let mut staged = 0;
            for (n, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Text(message, text) => tape.text(0, message, &text),
                    Act::Pass => tape.append(0, input(n)),
                    Act::Hold => { tape.stage(0, input(n)); staged += 1; }
                    Act::Publish => { tape.publish(1); staged = usize::saturating_sub(staged, 1); }
                    Act::Look(reader) => {
                        let (cursor, read) = &mut readers[reader];
                        read.extend(tape.read(cursor));
                    }
                }
            }
            tape.publish(staged);
            for (cursor, read) in &mut readers {
                read.extend(tape.read(cursor));
            }
            let [(_, one), (_, two)] = readers;
            let fresh = joined(tape.read(&mut Cursor::default()));
            prop_assert_eq!(&joined(one), &fresh);
            prop_assert_eq!(&joined(two), &fresh);
        }
    }
}
