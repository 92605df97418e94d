//! `session.message`: each message that is stored in a session, for the clients that subscribed to it.
//!
//! A run's events say that something was stored, but not where it stands in the transcript, and the result of a tool is
//! known before its line is written if an earlier call is still open. So an event only marks its transcript as changed. One
//! task reads the changed transcripts and publishes every line behind the last one that it published. Nothing is queued
//! per message: memory is bounded by the number of transcripts, and no message can be dropped because many wait.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{Hub, RunEvent, hub::SaidLines, task};
use homard_proto::{
    EntryId, ErrorShape, Generation, SessionId, SessionKey,
    message::{Message, ToolResult},
    session::Record,
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    changes::AtWork,
    methods::{
        chat::history::{Shown, show_lines},
        unavailable,
    },
    projector::Projector,
};

/// How long the task waits for more messages before it reads.
const MOMENT: Duration = Duration::from_millis(50);

/// How much longer than the last reading took the task waits before the next one: long transcripts are read less often,
/// not at a higher price.
const REST: u32 = 9;

/// How long a transcript that could not be read is left alone.
const RETRY: Duration = Duration::from_secs(5);

/// How many messages are handed to the projector before the task waits until they are in the clients' outboxes.
const HANDFUL: usize = 32;

/// Members of a session's row that are repeated beside it.
const ADDRESS: [&str; 3] = ["lastChannel", "lastTo", "lastAccountId"];

/// A session, and one of the transcripts that it has or had.
type Transcript = (SessionKey, SessionId);

/// The transcripts with subscribers, and how far each was published. Clones are the same feed.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageFeed(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    transcripts: Mutex<BTreeMap<Transcript, Progress>>,
    changed: Notify,
}

/// How far a transcript was published.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// The last line that was published; `None` if the transcript was not read yet.
    published: Option<EntryId>,
    /// The first message that was stored since the transcript was read, if any was.
    first: Option<StoredMessage>,
    /// When it is read again, if it could not be read.
    retry_at: Option<Instant>,
}

/// A message that was stored, as far as an event identifies it.
#[derive(Debug, Clone)]
pub(crate) enum StoredMessage {
    /// By the message itself.
    Message(Arc<Message>),
    /// By its line.
    Line(EntryId),
    /// By the result of a tool, whose line may follow later.
    Result(Arc<ToolResult>),
}

impl StoredMessage {
    /// The message that an event says was stored, if it does.
    pub(crate) fn of(event: &RunEvent) -> Option<Self> {
        match event {
            RunEvent::Input(message) => Some(Self::Message(message.clone())),
            RunEvent::Assistant { entry, .. } => Some(Self::Line(entry.clone())),
            RunEvent::ToolEnded { result, .. } => Some(Self::Result(result.clone())),
            RunEvent::Started { .. }
            | RunEvent::Waited(_)
            | RunEvent::Placed(_)
            | RunEvent::Busy(_)
            | RunEvent::Summarized(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::Asking(_)
            | RunEvent::Heard
            | RunEvent::Discarded { .. }
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::Switched { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Hooked(_)
            | RunEvent::Withheld(_)
            | RunEvent::Compacting
            | RunEvent::Compacted { .. }
            | RunEvent::NotCompacted { .. }
            | RunEvent::Block(_)
            | RunEvent::Ended(_) => None,
        }
    }

    fn is_on(&self, (id, message): &(EntryId, Arc<Message>)) -> bool {
        match self {
            Self::Message(stored) => stored == message,
            Self::Line(line) => line == id,
            Self::Result(stored) => matches!(&**message, Message::ToolResult(result) if *result == **stored),
        }
    }
}

impl MessageFeed {
    /// Notes that a message was stored in a transcript that has subscribers.
    pub(crate) fn changed(&self, key: &SessionKey, session: &SessionId, first: StoredMessage) {
        let mut transcripts = self.lock();
        transcripts.entry((key.clone(), session.clone())).or_default().first.get_or_insert(first);
        drop(transcripts);
        self.0.changed.notify_one();
    }

    /// Notes that a message was stored in a transcript without subscribers: whoever subscribes later does not get it, nor
    /// what came before.
    pub(crate) fn passed(&self, key: &SessionKey, session: &SessionId) {
        let mut transcripts = self.lock();
        if !transcripts.is_empty() {
            transcripts.remove(&(key.clone(), session.clone()));
        }
    }

    /// Publishes what is stored to those who subscribed, for as long as the handle lives.
    pub(crate) fn publish(self, hub: Hub, projector: Projector) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(task::spawn("message feed", async move {
            let mut rest = MOMENT;
            loop {
                let retry_at = self.retry_at();
                tokio::select! {
                    biased;
                    () = self.0.changed.notified() => {}
                    () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {}
                }
                tokio::time::sleep(rest).await;
                let begun = Instant::now();
                for (transcript, progress) in self.due(begun) {
                    match read(&hub, &projector, &transcript, &progress).await {
                        Ok(published) => self.published(transcript, published),
                        Err(error) => {
                            tracing::warn!(error = error.message, session = %transcript.0, "cannot read new messages; trying again");
                            self.postpone(&transcript, progress);
                        }
                    }
                }
                rest = MOMENT.max(begun.elapsed() * REST);
            }
        }))
    }

    /// The transcripts that changed since they were read, which from here on count as read.
    fn due(&self, now: Instant) -> Vec<(Transcript, Progress)> {
        let mut transcripts = self.lock();
        let may_read = |progress: &Progress| progress.retry_at.is_none_or(|at| at <= now);
        let due = transcripts.iter_mut().filter(|(_, progress)| progress.first.is_some() && may_read(progress));
        let take = |(transcript, progress): (&Transcript, &mut Progress)| {
            let published = progress.published.clone();
            let due = std::mem::replace(progress, Progress { published, ..Progress::default() });
            (transcript.clone(), due)
        };
        due.map(take).collect()
    }

    /// When a transcript is to be read again that could not be read.
    fn retry_at(&self) -> Option<Instant> {
        self.lock().values().filter_map(|progress| progress.retry_at).min()
    }

    /// A transcript was published up to this line; `None` if it is not there any more.
    fn published(&self, transcript: Transcript, line: Option<EntryId>) {
        // One that was taken off the list meanwhile has no subscribers.
        let mut transcripts = self.lock();
        let Entry::Occupied(mut found) = transcripts.entry(transcript) else { return };
        match line {
            Some(line) => found.get_mut().published = Some(line),
            None => drop(found.remove()),
        }
    }

    /// A transcript could not be read, and is due again later.
    fn postpone(&self, transcript: &Transcript, progress: Progress) {
        if let Some(found) = self.lock().get_mut(transcript) {
            *found = Progress { retry_at: Some(Instant::now() + RETRY), ..progress };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Transcript, Progress>> {
        self.0.transcripts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes the new lines of a transcript; returns the last one.
async fn read(
    hub: &Hub,
    projector: &Projector,
    (key, session): &Transcript,
    progress: &Progress,
) -> Result<Option<EntryId>, ErrorShape> {
    // A session that was deleted meanwhile has nothing to publish.
    let Some(record) = hub.session(key).await.map_err(unavailable)? else { return Ok(None) };
    let Some(lines) = hub.transcript_lines(key, session).await.map_err(unavailable)? else { return Ok(None) };
    let row = AtWork::now(hub).row(key, &record, Generation::Four);
    for (count, shown) in (1..).zip(show_lines(&lines, progress.next(&lines))) {
        projector.tell_said(key.clone(), &payload((key, session), shown, (&record, &row)));
        if count % HANDFUL == 0 {
            projector.drain().await;
        }
    }
    projector.drain().await;
    Ok(lines.last().map(|(id, _)| id.clone()))
}

impl Progress {
    /// Where the lines begin that were not published.
    fn next(&self, lines: &SaidLines) -> usize {
        let published = self.published.as_ref().and_then(|last| lines.iter().rposition(|(id, _)| id == last));
        if let Some(last) = published {
            return last + 1;
        }
        // The transcript was never read, or went back behind what was published. If the first message has no line yet, all
        // lines are older than it.
        let is_first = |line: &(EntryId, Arc<Message>)| self.first.as_ref().is_some_and(|first| first.is_on(line));
        let Some(at) = lines.iter().rposition(is_first) else { return lines.len() };
        // Results are written in the order of the calls, so those of the same turn may be as new.
        let is_result = |(_, message): &&(EntryId, Arc<Message>)| matches!(**message, Message::ToolResult(_));
        match lines.get(at).as_ref().is_some_and(is_result) {
            true => at - lines.iter().take(at).rev().take_while(is_result).count(),
            false => at,
        }
    }
}

fn payload((key, session): (&SessionKey, &SessionId), shown: Shown, (record, row): (&Record, &Value)) -> Value {
    let mut payload = json!({
        "sessionKey": key, "agentId": key.agent(), "message": shown.message, "messageId": shown.id,
        "messageSeq": shown.seq, "sessionId": session, "updatedAt": record.updated_at, "session": row,
    });
    if let Some(run) = shown.run {
        payload["runId"] = run.into();
    }
    for name in ADDRESS {
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

    fn lines() -> SaidLines {
        vec![
            line("a", Message::User(User::text("go", 1))),
            line("b", Message::Assistant(Assistant::default())),
            line("c", Message::ToolResult(result("1"))),
            line("d", Message::ToolResult(result("2"))),
            line("e", Message::Assistant(Assistant::default())),
        ]
    }

    fn next(published: Option<&str>, first: StoredMessage) -> usize {
        let published = published.map(|id| EntryId::parse(id).unwrap());
        Progress { published, first: Some(first), retry_at: None }.next(&lines())
    }

    #[test]
    fn what_follows_the_last_published_line_is_new() {
        let late = || StoredMessage::Result(Arc::new(result("2")));
        assert_eq!(next(Some("b"), late()), 2);
        assert_eq!(next(Some("e"), late()), 5);
        // A line that is not there any more says nothing.
        assert_eq!(next(Some("x"), StoredMessage::Line(EntryId::parse("e").unwrap())), 4);
    }

    #[test]
    fn a_transcript_that_was_not_read_yet_begins_with_the_first_message_that_was_stored() {
        assert_eq!(next(None, StoredMessage::Message(Arc::new(Message::User(User::text("go", 1))))), 0);
        assert_eq!(next(None, StoredMessage::Line(EntryId::parse("b").unwrap())), 1);
        // The result of an earlier call may have come later.
        assert_eq!(next(None, StoredMessage::Result(Arc::new(result("2")))), 2);
        // One that has no line yet comes behind all of them.
        assert_eq!(next(None, StoredMessage::Result(Arc::new(result("3")))), 5);
    }

    #[test]
    fn a_transcript_without_subscribers_is_forgotten() {
        let feed = MessageFeed::default();
        let (key, session) = (homard_proto::AgentId::main().main_session(), SessionId::parse("s").unwrap());
        let stored = || StoredMessage::Line(EntryId::parse("a").unwrap());
        feed.changed(&key, &session, stored());
        let due = feed.due(Instant::now());
        assert_eq!(due.len(), 1);
        assert!(feed.due(Instant::now()).is_empty());
        feed.published((key.clone(), session.clone()), Some(EntryId::parse("a").unwrap()));
        feed.passed(&key, &session);
        feed.changed(&key, &session, stored());
        assert!(feed.due(Instant::now()).iter().all(|(_, progress)| progress.published.is_none()));
    }
}
