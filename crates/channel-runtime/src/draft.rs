//! Streams a reply into a chat: one message that is sent early and edited until it becomes the reply.
//!
//! The reply itself goes through the outbox like any other. When it is sent, it replaces the draft: the draft is edited
//! once more and is the reply from then on. If that is impossible (the reply has a picture or answers another message,
//! or the result of the previous edit is unknown), the draft is deleted first and the reply is sent as usual.
//!
//! The mapping from runs to drafts is on disk, so the reply of a run that resumes after a crash finds its draft, too. A
//! draft ends in an ellipsis, so it is never mistaken for a reply. If it is unknown whether the first message of a draft
//! arrived, because its confirmation was lost or the process ended, the platform may show a message that nothing can edit
//! or delete: it is reported like a delivery whose outcome is unknown. A draft must not show text that a hook would have
//! withheld: if hooks inspect outgoing messages, there are no drafts.

mod stream;

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_agent::{
    Hub,
    event::{AbortReason, Outcome},
};
use homard_channels::{Channel, ChannelAction, ChannelError, Destination, Outgoing, Receipt};
use homard_delivery::payload::OutboxPayload;
use homard_proto::RunId;
use homard_reply::payload::Payload;
use homard_store::{Delivery, DeliveryTarget, outbox::PROCESS_ENDED};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::spool;

pub(super) use stream::{DraftContent, DraftSettings, stream_draft};

/// Suffix of a draft.
const DRAFT_SUFFIX: &str = " …";
/// Timeout for sending a draft.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for editing a draft. Shorter, because the reply waits for it.
const EDIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for replacing a draft with its reply, before delivery is retried.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a draft without a reply is remembered: as long as deliveries are retried.
const RETENTION_MS: u64 = 25 * 60 * 60 * 1000;

/// The drafts of a gateway.
#[derive(Debug)]
pub(super) struct Drafts {
    path: PathBuf,
    hub: Arc<OnceLock<Hub>>,
    open: Mutex<BTreeMap<RunId, Arc<Draft>>>,
}

/// Location of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DraftLocation {
    /// The platform; `account` is the account there.
    pub channel: String,
    pub account: String,
    pub to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The message that it replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// When it was started, in milliseconds since the epoch.
    pub at: u64,
}

impl DraftLocation {
    fn destination(&self) -> Destination {
        Destination { to: self.to.clone(), thread: self.thread.clone() }
    }
}

/// A draft as stored on disk.
#[derive(Debug, Serialize, Deserialize)]
struct StoredDraft {
    #[serde(flatten)]
    spot: DraftLocation,
    /// The platform's message id; missing while its first message is being sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// A reply that is being streamed.
#[derive(Debug)]
struct Draft {
    location: DraftLocation,
    /// Held during requests to the platform, so that the reply cannot be sent in between.
    state: tokio::sync::Mutex<DraftState>,
    /// What is known of its first message, for writing the file.
    first: Mutex<FirstMessage>,
}

/// The first message of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FirstMessage {
    /// Not sent.
    Unsent,
    /// Being sent, or interrupted by the end of the process.
    Sending,
    /// Sent, with this id.
    Sent(String),
}

#[derive(Debug, Default)]
struct DraftState {
    /// The platform's message id, once it was sent.
    message: Option<String>,
    /// True if it is no longer edited.
    is_closed: bool,
    /// True if the result of an edit is unknown: it may still arrive.
    has_unknown_edit: bool,
}

/// Result of showing a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DraftUpdate {
    /// It was sent or edited.
    Sent,
    /// The platform demands a pause.
    RetryAfter(Duration),
    /// It is no longer edited.
    Closed,
}

/// Returns true if a run with this outcome sends anything on a channel.
pub(super) fn has_reply(outcome: &Outcome, replies: &[Payload]) -> bool {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => !replies.is_empty(),
        Outcome::Aborted(AbortReason::User | AbortReason::Stop | AbortReason::Interrupted) => false,
        Outcome::Aborted(AbortReason::Timeout | AbortReason::Dropped) => true,
    }
}

impl Drafts {
    /// Reads the stored drafts. An unreadable file counts as empty and is overwritten.
    pub(crate) fn open(path: PathBuf, hub: Arc<OnceLock<Hub>>) -> Self {
        let stored = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "cannot read the stored drafts; ignoring them");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the stored drafts; ignoring them");
                BTreeMap::new()
            }
        };
        let stored: BTreeMap<RunId, StoredDraft> = stored;
        let draft = |(run, StoredDraft { spot, message }): (RunId, StoredDraft)| {
            (run, Draft::new(spot, message.map_or(FirstMessage::Sending, FirstMessage::Sent)))
        };
        Self { path, hub, open: Mutex::new(stored.into_iter().map(draft).collect()) }
    }

    /// Returns the drafts that the previous process left, and where they are.
    pub(crate) fn leftover(&self) -> Vec<(RunId, DraftLocation)> {
        self.lock().iter().map(|(run, draft)| (run.clone(), draft.location.clone())).collect()
    }

    /// Allows a run to have a draft.
    pub(crate) fn register(&self, run: &RunId, location: DraftLocation) {
        let mut open = self.lock();
        open.retain(|_, draft| location.at.saturating_sub(draft.location.at) < RETENTION_MS);
        open.entry(run.clone()).or_insert_with(|| Draft::new(location, FirstMessage::Unsent));
    }

    /// Shows the current text of a run's reply.
    pub(crate) async fn show(&self, channel: &dyn Channel, run: &RunId, text: &str) -> DraftUpdate {
        let Some(draft) = self.find(run) else { return DraftUpdate::Closed };
        let mut state = draft.state.lock().await;
        if state.is_closed {
            return DraftUpdate::Closed;
        }
        let text = format!("{}{DRAFT_SUFFIX}", text.trim_end());
        let Some(message) = state.message.clone() else {
            if draft.first() == FirstMessage::Sending {
                // A previous process was interrupted here.
                state.is_closed = true;
                self.report_unknown(run, &draft, String::new(), PROCESS_ENDED).await;
                return DraftUpdate::Closed;
            }
            let (first, update) = self.send_first(channel, run, &draft, text).await;
            state.is_closed = update == DraftUpdate::Closed;
            state.message = first;
            return update;
        };
        let destination = draft.location.destination();
        match timeout(
            EDIT_TIMEOUT,
            channel.perform(ChannelAction::Edit { destination, message, text, hides_previews: true }),
        )
        .await
        {
            Ok(Ok(_)) => DraftUpdate::Sent,
            Ok(Err(ChannelError::RetryAfter { after, .. })) => DraftUpdate::RetryAfter(after),
            Ok(Err(ChannelError::Refused(_) | ChannelError::Unsupported { .. })) => {
                state.is_closed = true;
                DraftUpdate::Closed
            }
            Ok(Err(ChannelError::Unavailable(_) | ChannelError::Unknown(_))) | Err(_) => {
                (state.is_closed, state.has_unknown_edit) = (true, true);
                DraftUpdate::Closed
            }
        }
    }

    /// Sends the first message of a draft, and returns its id. That it is being sent is on disk before.
    async fn send_first(
        &self,
        channel: &dyn Channel,
        run: &RunId,
        draft: &Draft,
        text: String,
    ) -> (Option<String>, DraftUpdate) {
        self.set_first(draft, FirstMessage::Sending);
        let (destination, reply_to) = (draft.location.destination(), draft.location.reply_to.clone());
        let (id, shown) = (format!("draft-{run}"), text.clone());
        // A URL may be incomplete at this point; previews are decided with the reply.
        let outgoing = Outgoing { id, destination, reply_to, text, hides_previews: true, ..Outgoing::default() };
        let sent = timeout(SEND_TIMEOUT, channel.send(outgoing)).await;
        let timed_out = || Err(ChannelError::Unknown("the platform did not answer in time".to_owned()));
        let failure = match sent.unwrap_or_else(|_| timed_out()) {
            Ok(Receipt { message: Some(message), .. }) => {
                self.set_first(draft, FirstMessage::Sent(message.clone()));
                return (Some(message), DraftUpdate::Sent);
            }
            Ok(Receipt { message: None, .. }) => {
                ChannelError::Unknown("the platform returned no message id".to_owned())
            }
            Err(failure) => failure,
        };
        match failure {
            ChannelError::RetryAfter { after, .. } => {
                self.set_first(draft, FirstMessage::Unsent);
                return (None, DraftUpdate::RetryAfter(after));
            }
            ChannelError::Unknown(why) => self.report_unknown(run, draft, shown, &why).await,
            failure @ (ChannelError::Refused(_) | ChannelError::Unsupported { .. } | ChannelError::Unavailable(_)) => {
                self.set_first(draft, FirstMessage::Unsent);
                tracing::warn!(
                    channel = draft.location.channel, %failure,
                    "failed to send a draft; the reply is sent when it is complete"
                );
            }
        }
        (None, DraftUpdate::Closed)
    }

    /// Reports that a draft may be shown on the platform although its id is not known: nothing can replace it.
    async fn report_unknown(&self, run: &RunId, draft: &Draft, text: String, why: &str) {
        let DraftLocation { channel, account, to, thread, reply_to, at } = draft.location.clone();
        let payload = OutboxPayload { text, thread, reply_to, is_best_effort: true, ..OutboxPayload::default() };
        let id = format!("draft-{run}");
        let delivery = Delivery {
            key: id.clone(),
            id,
            run: Some(run.clone()),
            target: DeliveryTarget { channel, account, to },
            part: 0,
            is_idempotent: false,
            payload: serde_json::to_value(payload).unwrap_or_default(),
            at,
            is_immediate: true,
        };
        let reason = format!("the draft of a reply may still be shown: {why}");
        let recorded = match self.hub.get() {
            Some(hub) => hub.deliveries().record_unknown(delivery, reason).await,
            None => Ok(()),
        };
        match recorded {
            Ok(()) => self.set_first(draft, FirstMessage::Unsent),
            // It is on disk that it was being sent, so the next start reports it.
            Err(error) => tracing::error!(%error, "failed to record a draft whose outcome is unknown"),
        }
    }

    /// Reports the draft that a previous process was sending when it ended. Returns false if this one was not.
    pub(crate) async fn settle_interrupted(&self, run: &RunId) -> bool {
        let Some(draft) = self.find(run) else { return false };
        let mut state = draft.state.lock().await;
        if draft.first() != FirstMessage::Sending {
            return false;
        }
        state.is_closed = true;
        self.report_unknown(run, &draft, String::new(), PROCESS_ENDED).await;
        true
    }

    fn set_first(&self, draft: &Draft, first: FirstMessage) {
        *draft.first.lock().unwrap_or_else(PoisonError::into_inner) = first;
        self.write();
    }

    /// Replaces a draft with its reply. Returns `None` if there is no draft to replace: the caller sends the reply.
    pub(super) async fn replace_with_reply(
        &self,
        channel: &dyn Channel,
        run: &RunId,
        answer: &Outgoing,
    ) -> Option<Result<Receipt, ChannelError>> {
        let draft = self.find(run)?;
        let mut state = draft.state.lock().await;
        state.is_closed = true;
        let Some(message) = state.message.clone() else {
            if draft.first() == FirstMessage::Sending {
                self.report_unknown(run, &draft, String::new(), PROCESS_ENDED).await;
            }
            self.forget(run);
            return None;
        };
        let destination = draft.location.destination();
        let is_plain = answer.media.is_empty() && answer.poll.is_none() && !answer.text.trim().is_empty();
        let is_same_chat = answer.destination == destination && answer.reply_to == draft.location.reply_to;
        if is_plain && is_same_chat && !state.has_unknown_edit {
            let (text, hides_previews) = (answer.text.clone(), answer.hides_previews);
            let edit = ChannelAction::Edit {
                destination: destination.clone(),
                message: message.clone(),
                text,
                hides_previews,
            };
            let edited = timeout(REPLACE_TIMEOUT, channel.perform(edit)).await;
            let edited =
                edited.unwrap_or_else(|_| Err(ChannelError::Unknown("the platform did not answer in time".to_owned())));
            match edited {
                Ok(_) => {
                    self.forget(run);
                    let details = json!({"chatId": destination.to, "messageIds": [message]});
                    return Some(Ok(Receipt { message: Some(message), details }));
                }
                // Too long for one message, or the draft was deleted.
                Err(ChannelError::Refused(_) | ChannelError::Unsupported { .. }) => {}
                Err(failure @ (ChannelError::RetryAfter { .. } | ChannelError::Unavailable(_))) => {
                    return Some(Err(failure));
                }
                // Repeating the same edit is harmless.
                Err(ChannelError::Unknown(why)) => return Some(Err(ChannelError::Unavailable(why))),
            }
        }
        match channel.perform(ChannelAction::Delete { destination, message }).await {
            Err(failure @ (ChannelError::RetryAfter { .. } | ChannelError::Unavailable(_))) => Some(Err(failure)),
            // A draft that cannot be deleted stays; its ellipsis shows that it is not the reply.
            Ok(_) | Err(ChannelError::Refused(_) | ChannelError::Unsupported { .. } | ChannelError::Unknown(_)) => {
                self.forget(run);
                None
            }
        }
    }

    /// Ends the draft of a finished run: it waits for the reply, or is deleted if there will be none.
    pub(crate) async fn finish(&self, channel: &dyn Channel, run: &RunId, is_answered: bool) {
        let was_shown = self.find(run).is_some_and(|draft| matches!(draft.first(), FirstMessage::Sent(_)));
        if was_shown && !is_answered {
            self.withdraw(channel, run).await;
        } else if !was_shown {
            self.forget(run);
        }
    }

    /// Deletes the draft of a run without a reply.
    pub(super) async fn withdraw(&self, channel: &dyn Channel, run: &RunId) {
        let Some(draft) = self.find(run) else { return };
        let mut state = draft.state.lock().await;
        state.is_closed = true;
        if let Some(message) = state.message.clone() {
            let deleted =
                channel.perform(ChannelAction::Delete { destination: draft.location.destination(), message }).await;
            if let Err(failure @ (ChannelError::RetryAfter { .. } | ChannelError::Unavailable(_))) = deleted {
                // It is on disk, and retried at the next start.
                return tracing::warn!(
                    channel = draft.location.channel, %failure, "failed to delete a draft; retrying at the next start"
                );
            }
        }
        self.forget(run);
    }

    fn find(&self, run: &RunId) -> Option<Arc<Draft>> {
        self.lock().get(run).cloned()
    }

    fn forget(&self, run: &RunId) {
        let removed = self.lock().remove(run);
        if removed.is_some_and(|draft| draft.first() != FirstMessage::Unsent) {
            self.write();
        }
    }

    /// Stores the list of drafts. If that fails, a crash leaves one draft behind, nothing worse.
    fn write(&self) {
        let open = self.lock();
        let stored = open.iter().filter_map(|(run, draft)| {
            let message = match draft.first() {
                FirstMessage::Unsent => return None,
                FirstMessage::Sending => None,
                FirstMessage::Sent(message) => Some(message),
            };
            Some((run.clone(), StoredDraft { spot: draft.location.clone(), message }))
        });
        let stored: BTreeMap<RunId, StoredDraft> = stored.collect();
        let bytes = serde_json::to_vec(&stored).unwrap_or_default();
        let written = tokio::task::block_in_place(|| spool::write(&self.path, &bytes));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "failed to write the list of drafts");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<Draft>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draft {
    fn new(location: DraftLocation, first: FirstMessage) -> Arc<Self> {
        let message = match &first {
            FirstMessage::Sent(message) => Some(message.clone()),
            FirstMessage::Unsent | FirstMessage::Sending => None,
        };
        let state = DraftState { message, ..DraftState::default() };
        Arc::new(Self { location, state: tokio::sync::Mutex::new(state), first: Mutex::new(first) })
    }

    fn first(&self) -> FirstMessage {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file as earlier versions wrote it, and as this one does.
    #[test]
    fn stored_drafts_of_earlier_versions_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("drafts.json");
        let spot = r#""channel":"telegram","account":"default","to":"7","at":5"#;
        let text = format!(r#"{{"r1":{{{spot},"message":"12"}},"r2":{{{spot}}}}}"#);
        fs::write(&path, &text).unwrap();
        let drafts = Drafts::open(path, Arc::default());
        let first = |run: &str| drafts.find(&RunId::parse(run).unwrap()).unwrap().first();
        assert_eq!((first("r1"), first("r2")), (FirstMessage::Sent("12".to_owned()), FirstMessage::Sending));
        let stored: StoredDraft = serde_json::from_str(&format!(r#"{{{spot},"message":"12"}}"#)).unwrap();
        assert_eq!(serde_json::to_string(&stored).unwrap(), format!(r#"{{{spot},"message":"12"}}"#));
    }
}
