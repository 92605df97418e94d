//! `session.message`: each message that is stored in a session, for the clients that subscribed to it.
//!
//! A run's events report that something was stored, but not its position in the transcript, and a tool result is known
//! before its entry is written if an earlier call is still open. Therefore an event only marks its transcript as
//! changed. One task reads the changed transcripts and publishes every entry after the last published one. Nothing is
//! queued per message: memory is bounded by the number of transcripts, and no message can be dropped because the queue
//! is full.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{Hub, RunEvent, StoredEvent, hub::HistoryEntries};
use homard_proto::{
    EntryId, ErrorShape, Generation, SessionId, SessionKey,
    message::{Message, ToolResult},
    session::Record,
};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    methods::{
        chat::history::{DisplayedMessage, displayed_entries},
        unavailable,
    },
    projector::Projector,
    session_changes::ActiveRuns,
};

/// Time to collect further messages before reading.
const COLLECT_DELAY: Duration = Duration::from_millis(50);

/// Factor by which the pause before the next read exceeds the duration of the last one, so that long transcripts are
/// read less often.
const PAUSE_FACTOR: u32 = 9;

/// Delay before a transcript that could not be read is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Number of messages handed to the projector before waiting until they are in the clients' send queues.
const BATCH: usize = 32;

/// Members of a session's row that are repeated beside it.
const ROUTE_FIELDS: [&str; 3] = ["lastChannel", "lastTo", "lastAccountId"];

/// A session and one of its present or former transcripts.
type Transcript = (SessionKey, SessionId);

/// The transcripts with subscribers and how far each was published. Clones share the feed.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageFeed(Arc<MessageFeedInner>);

#[derive(Debug, Default)]
struct MessageFeedInner {
    transcripts: Mutex<BTreeMap<Transcript, Progress>>,
    changed: Notify,
}

/// How far a transcript was published.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// Last published entry; `None` if the transcript was not read yet.
    published: Option<EntryId>,
    /// First message stored since the transcript was last read, if any.
    first: Option<StoredMessage>,
    /// When to read again after a failure.
    retry_at: Option<Instant>,
}

/// A message that was stored, as far as an event identifies it.
#[derive(Debug, Clone)]
pub(crate) enum StoredMessage {
    /// The message itself.
    Message(Arc<Message>),
    /// The id of its entry.
    Entry(EntryId),
    /// A tool result, whose entry may be written later.
    Result(Arc<ToolResult>),
}

impl StoredMessage {
    /// Returns the message that an event reports as stored, if it does.
    pub(crate) fn of(event: &RunEvent) -> Option<Self> {
        match event {
            RunEvent::Stored(StoredEvent::Input(message)) => Some(Self::Message(message.clone())),
            RunEvent::Stored(StoredEvent::Assistant { entry, .. }) => Some(Self::Entry(entry.clone())),
            RunEvent::Stored(StoredEvent::ToolEnded { result, .. }) => Some(Self::Result(result.clone())),
            RunEvent::Stored(StoredEvent::Started { .. } | StoredEvent::Compacted { .. } | StoredEvent::Ended(_))
            | RunEvent::Queue(_)
            | RunEvent::Model(_)
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Tool(_)
            | RunEvent::HookDecision(_)
            | RunEvent::Reply(_)
            | RunEvent::Compaction(_) => None,
        }
    }

    fn is_on(&self, id: &EntryId, message: &Arc<Message>) -> bool {
        match self {
            Self::Message(stored) => stored == message,
            Self::Entry(line) => line == id,
            Self::Result(stored) => matches!(&**message, Message::ToolResult(result) if *result == **stored),
        }
    }
}

impl MessageFeed {
    /// Records that a message was stored in a transcript that has subscribers.
    pub(crate) fn changed(&self, key: &SessionKey, session: &SessionId, first: StoredMessage) {
        let mut transcripts = self.lock();
        transcripts.entry((key.clone(), session.clone())).or_default().first.get_or_insert(first);
        drop(transcripts);
        self.0.changed.notify_one();
    }

    /// Records that a message was stored in a transcript without subscribers: later subscribers get neither it nor
    /// anything before it.
    pub(crate) fn skipped(&self, key: &SessionKey, session: &SessionId) {
        let mut transcripts = self.lock();
        if !transcripts.is_empty() {
            transcripts.remove(&(key.clone(), session.clone()));
        }
    }

    /// Publishes stored messages to subscribers until the handle is dropped.
    pub(crate) fn publish(self, hub: Hub, projector: Projector) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(task::spawn("message feed", async move {
            let mut delay = COLLECT_DELAY;
            loop {
                let retry_at = self.retry_at();
                tokio::select! {
                    biased;
                    () = self.0.changed.notified() => {}
                    () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {}
                }
                tokio::time::sleep(delay).await;
                let started_at = Instant::now();
                for (transcript, progress) in self.due(started_at) {
                    match read(&hub, &projector, &transcript.0, &transcript.1, &progress).await {
                        Ok(published) => self.published(transcript, published),
                        Err(error) => {
                            tracing::warn!(error = error.message, session = %transcript.0, "cannot read new messages; trying again");
                            self.postpone(&transcript, progress);
                        }
                    }
                }
                delay = COLLECT_DELAY.max(started_at.elapsed() * PAUSE_FACTOR);
            }
        }))
    }

    /// Takes the transcripts that changed since they were last read and marks them as read.
    fn due(&self, now: Instant) -> Vec<(Transcript, Progress)> {
        let mut transcripts = self.lock();
        let is_retry_due = |progress: &Progress| progress.retry_at.is_none_or(|at| at <= now);
        let due = transcripts.iter_mut().filter(|(_, progress)| progress.first.is_some() && is_retry_due(progress));
        let take_progress = |(transcript, progress): (&Transcript, &mut Progress)| {
            let published = progress.published.clone();
            let due = std::mem::replace(progress, Progress { published, ..Progress::default() });
            (transcript.clone(), due)
        };
        due.map(take_progress).collect()
    }

    /// Time of the earliest retry, if any.
    fn retry_at(&self) -> Option<Instant> {
        self.lock().values().filter_map(|progress| progress.retry_at).min()
    }

    /// Records that a transcript was published up to this entry; `None` removes a transcript that no longer exists.
    fn published(&self, transcript: Transcript, line: Option<EntryId>) {
        // A transcript that was removed meanwhile has no subscribers.
        let mut transcripts = self.lock();
        let Entry::Occupied(mut found) = transcripts.entry(transcript) else { return };
        match line {
            Some(line) => found.get_mut().published = Some(line),
            None => drop(found.remove()),
        }
    }

    /// Schedules a retry for a transcript that could not be read.
    fn postpone(&self, transcript: &Transcript, progress: Progress) {
        if let Some(found) = self.lock().get_mut(transcript) {
            *found = Progress { retry_at: Some(Instant::now() + RETRY_DELAY), ..progress };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Transcript, Progress>> {
        self.0.transcripts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes the new entries of a transcript; returns the last one.
async fn read(
    hub: &Hub,
    projector: &Projector,
    key: &SessionKey,
    session: &SessionId,
    progress: &Progress,
) -> Result<Option<EntryId>, ErrorShape> {
    // A session that was deleted meanwhile has nothing to publish.
    let Some(record) = hub.sessions().get(key).await.map_err(unavailable)? else { return Ok(None) };
    let Some(lines) = hub.sessions().transcript_entries(key, session).await.map_err(unavailable)? else {
        return Ok(None);
    };
    let row = ActiveRuns::now(hub).row(key, &record, Generation::Four);
    for (count, message) in (1..).zip(displayed_entries(&lines, progress.first_unpublished(&lines))) {
        projector.publish_message(key.clone(), &payload(key, session, message, &record, &row));
        if count % BATCH == 0 {
            projector.drain().await;
        }
    }
    projector.drain().await;
    Ok(lines.last().map(|(id, _)| id.clone()))
}

impl Progress {
    /// Returns the index of the first entry that was not published.
    fn first_unpublished(&self, lines: &HistoryEntries) -> usize {
        let published = self.published.as_ref().and_then(|last| lines.iter().rposition(|(id, _)| id == last));
        if let Some(last) = published {
            return last + 1;
        }
        // The transcript was never read, or was rewound to before the last published entry. Then the first message that
        // was reported decides. If it has no entry yet, all entries are older than it.
        let is_first =
            |(id, message): &(EntryId, Arc<Message>)| self.first.as_ref().is_some_and(|first| first.is_on(id, message));
        let Some(at) = lines.iter().rposition(is_first) else { return lines.len() };
        // Results are reported in the order in which they arrive, but stored in the order of the calls. So the results
        // before this one in the same turn may not have been published either.
        let is_result = |(_, message): &&(EntryId, Arc<Message>)| matches!(**message, Message::ToolResult(_));
        match lines.get(at).as_ref().is_some_and(is_result) {
            true => at - lines.iter().take(at).rev().take_while(is_result).count(),
            false => at,
        }
    }
}

fn payload(key: &SessionKey, session: &SessionId, message: DisplayedMessage, record: &Record, row: &Value) -> Value {
    let mut payload = json!({
        "sessionKey": key, "agentId": key.agent(), "message": message.message, "messageId": message.id,
        "messageSeq": message.seq, "sessionId": session, "updatedAt": record.updated_at, "session": row,
    });
    if let Some(run) = message.run {
        payload["runId"] = run.into();
    }
    for name in ROUTE_FIELDS {
        if !row[name].is_null() {
            payload[name] = row[name].clone();
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, User};

    use super::*;

    fn line(id: &str, message: Message) -> (EntryId, Arc<Message>) {
        (EntryId::parse(id).unwrap(), Arc::new(message))
    }

    fn result(call: &str) -> ToolResult {
        serde_json::from_value(json!({"toolCallId": call, "toolName": "t", "content": [], "timestamp": 1})).unwrap()
    }

    fn lines() -> HistoryEntries {
        vec![
            line("a", Message::User(User::text("go", 1))),
            line("b", Message::Assistant(Assistant::default())),
            line("c", Message::ToolResult(result("1"))),
            line("d", Message::ToolResult(result("2"))),
            line("e", Message::Assistant(Assistant::default())),
        ]
    }

    fn first_unpublished(published: Option<&str>, first: StoredMessage) -> usize {
        let published = published.map(|id| EntryId::parse(id).unwrap());
        Progress { published, first: Some(first), retry_at: None }.first_unpublished(&lines())
    }

    #[test]
    fn entries_after_the_last_published_one_are_new() {
        let second_result = || StoredMessage::Result(Arc::new(result("2")));
        assert_eq!(first_unpublished(Some("b"), second_result()), 2);
        assert_eq!(first_unpublished(Some("e"), second_result()), 5);
        // An unknown published entry is ignored.
        assert_eq!(first_unpublished(Some("x"), StoredMessage::Entry(EntryId::parse("e").unwrap())), 4);
    }

    #[test]
    fn an_unread_transcript_starts_at_its_first_stored_message() {
        assert_eq!(first_unpublished(None, StoredMessage::Message(Arc::new(Message::User(User::text("go", 1))))), 0);
        assert_eq!(first_unpublished(None, StoredMessage::Entry(EntryId::parse("b").unwrap())), 1);
        // The result of an earlier call may have come later.
        assert_eq!(first_unpublished(None, StoredMessage::Result(Arc::new(result("2")))), 2);
        // A result without an entry comes after all entries.
        assert_eq!(first_unpublished(None, StoredMessage::Result(Arc::new(result("3")))), 5);
    }

    #[test]
    fn a_transcript_without_subscribers_is_forgotten() {
        let feed = MessageFeed::default();
        let (key, session) = (homard_proto::AgentId::main().main_session(), SessionId::parse("s").unwrap());
        let stored = || StoredMessage::Entry(EntryId::parse("a").unwrap());
        feed.changed(&key, &session, stored());
        let due = feed.due(Instant::now());
        assert_eq!(due.len(), 1);
        assert!(feed.due(Instant::now()).is_empty());
        feed.published((key.clone(), session.clone()), Some(EntryId::parse("a").unwrap()));
        feed.skipped(&key, &session);
        feed.changed(&key, &session, stored());
        assert!(feed.due(Instant::now()).iter().all(|(_, progress)| progress.published.is_none()));
    }
}
