//! Changes to a session from outside, executed by its lane, which is the only writer of the session.
//!
//! An active run is not affected by a changed record or a new transcript: it finishes in the transcript it started in.
//! Only the deletion of a session stops its runs first.

use std::{path::PathBuf, sync::Arc};

use homard_command::homard_message;
use homard_prompt::notes;
use homard_proto::{
    AgentId, EntryId, Extra, SessionId, SessionKey,
    message::{Assistant, Message},
    session::Record,
    transcript::{Entry, Kind},
};
use homard_runtime::ambient::iso;
use homard_store::{Authority, Error as StoreError, Rec, Verdict, branch};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    Lane,
    hooks::{ResetCause, TranscriptChange, before_reset, fire_transcript_change},
    model_choice,
    session::OpenSession,
    ticket::ActiveRun,
};
use crate::{auto_reset::SessionUse, context::background, event::AbortReason, run::session_stats};

/// A change to a session's record from outside.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// Session id that the caller expects, if any.
    pub expected: Option<SessionId>,
    /// New values by field name; `null` clears a field. Other fields are kept.
    pub changes: Extra,
}

/// Why a session was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The result would not be a valid record.
    #[error("invalid change to the session record: {0}")]
    Invalid(String),
    /// The session does not exist, and neither does its agent.
    #[error("unknown agent id \"{0}\"")]
    UnknownAgent(AgentId),
    /// The main session cannot be deleted.
    #[error("Cannot delete the main session ({0}).")]
    Main(SessionKey),
    /// The change is not possible; the text says why.
    #[error("{0}")]
    Refused(String),
    /// The session does not have the session id that the caller expects.
    #[error("the session has a new transcript since it was read; read it and try again")]
    Changed,
    /// The session does not exist or is empty.
    #[error("session not found")]
    NoSession,
    /// A run is active, and its entries must stay contiguous.
    #[error("the session is busy; try again when its runs have finished")]
    Busy,
    /// The change could not be stored.
    #[error("the change could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The process is shutting down.
    #[error("the gateway is stopping; try again after the restart")]
    Stopping,
}

/// A deleted session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedSession {
    /// Path of the archived transcript, if there was one.
    pub archive: Option<PathBuf>,
}

/// A message that [`HubSessions::inject`](crate::hub::HubSessions::inject) added to a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct InjectedMessage {
    /// Id of the transcript.
    pub session: SessionId,
    /// Id of its entry.
    pub entry: EntryId,
    /// The message.
    pub message: Assistant,
}

/// Sender for the result of a change.
type ResultSender<T> = oneshot::Sender<Result<T, ChangeError>>;

/// A change for the lane to make.
#[derive(Debug)]
pub(crate) enum Mutation {
    /// Changes fields of the record.
    Patch(Patch, ResultSender<Record>),
    /// Starts a new transcript; the reason is passed to hooks.
    Reset(&'static str, ResultSender<Record>),
    /// Runs the hooks of a new transcript because another session replaces this one, which does not change.
    Succeeded(ResultSender<()>),
    /// Records an event for the session's next run.
    Event((String, Authority), ResultSender<()>),
    /// Changes the session's background commands. The result is true if the record changed.
    Command(background::CommandChange, ResultSender<bool>),
    /// Appends an assistant message that no model wrote.
    Note(String, ResultSender<InjectedMessage>),
    /// Undoes a compaction, the last one if none is named.
    Undo(Option<EntryId>, ResultSender<EntryId>),
    /// Deletes the session.
    Delete(Deletion),
}

/// A requested deletion of the session.
#[derive(Debug)]
pub(crate) struct Deletion {
    /// Session id that the caller expects, if any.
    pub(crate) expected: Option<SessionId>,
    /// Receives what was deleted, if the session existed.
    pub(crate) reply: ResultSender<Option<DeletedSession>>,
}

/// Makes a change. `active` is the active run. The caller may have gone; the result is then dropped.
pub(super) async fn mutate(lane: &mut Lane, mutation: Mutation, active: Option<&mut ActiveRun>) {
    if active.is_none() && lane.inbox.is_empty() {
        lane.refresh();
    }
    match mutation {
        Mutation::Patch(patch, reply) => {
            let changed = patch_record(lane, &patch).await;
            reply.send(changed).ok();
        }
        Mutation::Reset(reason, reply) => {
            let changed = reset(lane, reason).await;
            reply.send(changed).ok();
        }
        Mutation::Succeeded(reply) => {
            before_reset(lane, "new", ResetCause::Method("sessions.create")).await;
            reply.send(Ok(())).ok();
        }
        Mutation::Event((text, authority), reply) => {
            let changed = rewrite(lane, |record| Ok(notes::add_event(record, &text, authority))).await;
            reply.send(changed.map(drop)).ok();
        }
        Mutation::Command(change, reply) => {
            let changed = note_command(lane, &change).await;
            reply.send(changed).ok();
        }
        Mutation::Note(text, reply) => {
            // A recovered run may be queued with unanswered tool calls.
            let is_busy = active.is_some() || !lane.inbox.is_empty();
            let injected = if is_busy { Err(ChangeError::Busy) } else { inject(lane, &text).await };
            reply.send(injected).ok();
        }
        Mutation::Undo(id, reply) => {
            let is_busy = active.is_some() || !lane.inbox.is_empty();
            let result = if is_busy { Err(ChangeError::Busy) } else { undo(lane, id).await };
            reply.send(result).ok();
        }
        Mutation::Delete(deletion) => match check_session_id(lane, deletion.expected.as_ref()).await {
            Ok(()) => {
                let is_idle = active.is_none();
                lane.abort(None, AbortReason::User, active).await;
                lane.deletions.push(deletion);
                if is_idle {
                    delete(lane).await;
                }
            }
            Err(error) => drop(deletion.reply.send(Err(error))),
        },
    }
}

/// Changes the background commands in the record. A deleted session has none.
async fn note_command(lane: &mut Lane, change: &background::CommandChange) -> Result<bool, ChangeError> {
    lane.open().await?;
    let Some(changed) = lane.session.as_ref().and_then(|session| change.apply(&session.record)) else {
        return Ok(false);
    };
    rewrite(lane, |_| Ok(changed)).await.map(|_| true)
}

/// Gives the session a new transcript.
async fn reset(lane: &mut Lane, reason: &'static str) -> Result<Record, ChangeError> {
    before_reset(lane, reason, ResetCause::Method("sessions.reset")).await;
    let (at, id) = (lane.hub.ambient.now_ms(), lane.hub.ambient.session_id());
    let previous = lane.session.as_ref().map(|session| (session.record.session_id.clone(), session.history.len()));
    let record = rewrite(lane, |record| Ok(record_for_new_transcript(record, id, at))).await?;
    fire_transcript_change(lane, &TranscriptChange { before: previous, reason }, Some(&record.session_id));
    Ok(record)
}

/// Undoes a compaction. No run is active.
async fn undo(lane: &mut Lane, id: Option<EntryId>) -> Result<EntryId, ChangeError> {
    let session = lane.hub.store.load(&lane.key).await?.ok_or(ChangeError::NoSession)?;
    let mut compactions =
        branch::compactions(&session.entries).into_iter().rev().filter(|compaction| !compaction.is_undone);
    let found = compactions
        .find(|compaction| id.as_ref().is_none_or(|id| *id == compaction.id))
        .map(|compaction| compaction.id);
    let undone = found.ok_or_else(|| match id {
        Some(id) => ChangeError::Refused(format!("compaction {id} does not exist or is already undone")),
        None => ChangeError::Refused("this session has no compaction to undo".to_owned()),
    })?;
    let kind = Kind::compaction_undone(&undone);
    let (id, at) = (lane.hub.ambient.entry_id(), lane.hub.ambient.now_ms());
    let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: iso(at) });
    let (mut record, key) = (session.record, lane.key.clone());
    session_stats::subtract_compaction(&mut record);
    let session = record.session_id.clone();
    let patch = Rec::Patch { run: None, key: key.clone(), expect: Some(session.clone()), record: Box::new(record) };
    store_all(lane, vec![Rec::Entry { run: None, key, session, entry }, patch]).await?;
    // The restored history is on disk.
    lane.session = None;
    Ok(undone)
}

/// Appends a message that no model wrote to the transcript. No run is active.
async fn inject(lane: &mut Lane, text: &str) -> Result<InjectedMessage, ChangeError> {
    lane.open().await?;
    let session = lane.session.as_ref().filter(|session| !session.history.is_empty());
    let session = session.map(|session| session.record.session_id.clone()).ok_or(ChangeError::NoSession)?;
    let (at, id) = (lane.hub.ambient.now_ms(), lane.hub.ambient.entry_id());
    let assistant = Assistant { model: "gateway-injected".to_owned(), ..homard_message(text, at) };
    let message = Message::Assistant(assistant.clone());
    let kind = Kind::message(message.clone());
    let entry = Box::new(Entry { kind, id: id.clone(), parent_id: None, timestamp: iso(at) });
    store(lane, Rec::Entry { run: None, key: lane.key.clone(), session: session.clone(), entry }).await?;
    if let Some(session) = &mut lane.session {
        session.history.push(id.clone(), Arc::new(message));
    }
    Ok(InjectedMessage { session, entry: id, message: assistant })
}

async fn patch_record(lane: &mut Lane, patch: &Patch) -> Result<Record, ChangeError> {
    check_session_id(lane, patch.expected.as_ref()).await?;
    let hub = lane.hub.clone();
    let at = hub.ambient.now_ms();
    let mut changes = patch.changes.clone();
    model_choice::resolve_override(&hub.config.agents().of(lane.key.agent()), &mut changes)
        .map_err(ChangeError::Refused)?;
    let change = |record: &Record| {
        let mut record = merge_record(record, &changes)?;
        hub.config.rules().auto_reset.record_use(&mut record, SessionUse::Machine, at);
        record.updated_at = record.updated_at.max(at);
        Ok(record)
    };
    rewrite(lane, change).await
}

/// Checks that the session has the session id that the caller expects.
async fn check_session_id(lane: &mut Lane, expected: Option<&SessionId>) -> Result<(), ChangeError> {
    lane.open().await?;
    let current = lane.session.as_ref().map(|session| &session.record.session_id);
    if expected.is_none() || expected == current { Ok(()) } else { Err(ChangeError::Changed) }
}

/// Changes the session's record on disk and then in memory; creates the session if it does not exist.
async fn rewrite(
    lane: &mut Lane,
    change: impl FnOnce(&Record) -> Result<Record, ChangeError>,
) -> Result<Record, ChangeError> {
    lane.open().await?;
    let before = lane.session.as_ref().map(|session| &session.record);
    let expect = before.map(|record| record.session_id.clone());
    let record = match (before, lane.key.agent()) {
        (Some(record), _) => change(record)?,
        (None, Some(agent)) if lane.hub.config.agents().get(agent).is_none() => {
            return Err(ChangeError::UnknownAgent(agent.clone()));
        }
        (None, _) => change(&Record::new(lane.hub.ambient.session_id(), lane.hub.ambient.now_ms()))?,
    };
    let patch = Rec::Patch { run: None, key: lane.key.clone(), expect, record: Box::new(record.clone()) };
    store(lane, patch).await?;
    match &mut lane.session {
        Some(session) if session.record.session_id == record.session_id => session.record = record.clone(),
        Some(_) | None => lane.session = Some(OpenSession::stored(record.clone())),
    }
    Ok(record)
}

/// Deletes the session for all callers that asked for it. No run is active.
pub(super) async fn delete(lane: &mut Lane) {
    for Deletion { reply, .. } in std::mem::take(&mut lane.deletions) {
        let deleted = delete_session(lane).await;
        reply.send(deleted).ok();
    }
}

async fn delete_session(lane: &mut Lane) -> Result<Option<DeletedSession>, ChangeError> {
    lane.refresh();
    lane.open().await?;
    let Some(session) = lane.session.take() else { return Ok(None) };
    let (expect, messages) = (session.record.session_id, session.history.len());
    let archive = store(lane, Rec::Delete { key: lane.key.clone(), expect: expect.clone() }).await?;
    fire_transcript_change(lane, &TranscriptChange { before: Some((expect, messages)), reason: "deleted" }, None);
    Ok(Some(DeletedSession { archive }))
}

/// Stores a change. Returns the path of the archived transcript, if it archived one. If the record is not stored,
/// the cached session is marked as stale and will be read again.
async fn store(lane: &mut Lane, rec: Rec) -> Result<Option<PathBuf>, ChangeError> {
    store_all(lane, vec![rec]).await
}

/// Stores changes in one commit.
async fn store_all(lane: &mut Lane, records: Vec<Rec>) -> Result<Option<PathBuf>, ChangeError> {
    let verdict = lane.hub.writer.commit_with_verdicts(records).await.map(|verdicts| {
        let failed = verdicts.iter().position(|verdict| *verdict != Verdict::Stored);
        verdicts.into_iter().nth(failed.unwrap_or(0))
    });
    let stored = match verdict {
        Ok(Some(Verdict::Stored)) => Ok(None),
        Ok(Some(Verdict::Archived(archive))) => Ok(archive),
        Ok(Some(Verdict::Full(why))) => Err(StoreError::Disk(why).into()),
        Ok(Some(Verdict::Duplicate(_) | Verdict::Conflict | Verdict::Skipped) | None) => Err(ChangeError::Changed),
        Err(error) => Err(error.into()),
    };
    lane.must_reload |= stored.is_err();
    stored
}

/// Fields of a record that only the lane sets.
const LANE_FIELDS: [&str; 2] = ["sessionId", "updatedAt"];

/// Applies changes to a record; all other fields are kept, also unknown ones.
pub(super) fn merge_record(record: &Record, changes: &Extra) -> Result<Record, ChangeError> {
    let invalid = |error: serde_json::Error| ChangeError::Invalid(error.to_string());
    let mut fields = serde_json::to_value(record).map_err(invalid)?;
    if let Value::Object(fields) = &mut fields {
        for (name, value) in changes.iter().filter(|(name, _)| !LANE_FIELDS.contains(&name.as_str())) {
            if value.is_null() {
                fields.shift_remove(name);
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
    serde_json::from_value(fields).map_err(invalid)
}

/// Fields of a record that belong to its transcript and not to the session.
const TRANSCRIPT_FIELDS: [&str; 8] = [
    "sessionFile",
    "memoryFlushAt",
    "memoryFlushCompactionCount",
    "authProfileOverrideCompactionCount",
    "cliSessionIds",
    "claudeCliSessionId",
    "systemPromptReport",
    session_stats::PRUNING_FIELD,
];

/// Returns the session's record for a new transcript: settings are kept, counters of the old transcript are dropped.
pub(super) fn record_for_new_transcript(record: &Record, id: SessionId, at: u64) -> Record {
    let mut record = Record {
        session_id: id,
        updated_at: record.updated_at.max(at),
        // The model that answered last; none has in the new transcript.
        model_provider: None,
        model: None,
        context_tokens: None,
        input_tokens: None,
        output_tokens: None,
        total_tokens: None,
        aborted_last_run: Some(false),
        ..record.clone()
    };
    for name in TRANSCRIPT_FIELDS {
        record.extra.shift_remove(name);
    }
    record.extra.insert("systemSent".to_owned(), false.into());
    record.extra.insert("compactionCount".to_owned(), 0.into());
    record
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(fields: Value) -> Record {
        serde_json::from_value(fields).unwrap()
    }

    fn fields(value: Value) -> Extra {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_patch_changes_only_the_fields_it_names() {
        let before = record(json!({
            "sessionId": "s", "updatedAt": 5, "label": "old", "thinkingLevel": "high", "queueMode": "steer", "novel": [1],
        }));
        let changes = fields(json!({
            "label": "new", "thinkingLevel": null, "queueMode": null, "elevatedLevel": "on", "absent": null,
            "sessionId": "other", "updatedAt": 0,
        }));
        let after = json!({"sessionId": "s", "updatedAt": 5, "label": "new", "novel": [1], "elevatedLevel": "on"});
        assert_eq!(merge_record(&before, &changes), Ok(record(after)));
    }

    #[test]
    fn a_patch_with_an_invalid_value_is_rejected() {
        let before = record(json!({"sessionId": "s", "updatedAt": 5}));
        let merged = merge_record(&before, &fields(json!({"label": 7})));
        assert!(matches!(merged, Err(ChangeError::Invalid(_))), "{merged:?}");
    }

    #[test]
    fn a_new_transcript_keeps_settings_and_clears_counters() {
        let before = record(json!({
            "sessionId": "old", "updatedAt": 9, "label": "mine", "thinkingLevel": "high", "sendPolicy": "allow",
            "spawnedBy": "agent:main:main", "verboseLevel": "on", "modelProvider": "p", "model": "m",
            "contextTokens": 100, "inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "abortedLastRun": true,
            "systemSent": true, "compactionCount": 4, "memoryFlushAt": 8, "sessionFile": "/old.jsonl",
            "modelOverride": "big", "queueMode": "collect", "lastInteractionAt": 7, "novel": {"a": 1},
        }));
        let after = record(json!({
            "sessionId": "new", "updatedAt": 9, "label": "mine", "thinkingLevel": "high", "sendPolicy": "allow",
            "spawnedBy": "agent:main:main", "verboseLevel": "on", "abortedLastRun": false, "systemSent": false,
            "compactionCount": 0, "modelOverride": "big", "queueMode": "collect", "lastInteractionAt": 7,
            "novel": {"a": 1},
        }));
        assert_eq!(record_for_new_transcript(&before, SessionId::parse("new").unwrap(), 8), after);
    }
}
