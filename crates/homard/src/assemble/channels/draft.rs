//! Streams a reply into a chat: one message that is sent early and edited until it becomes the reply.
//!
//! The reply itself goes through the outbox like any other. When it is sent, it replaces the draft: the draft is edited
//! once more and is the reply from then on. If that is impossible (the reply has a picture or answers another message,
//! or the result of the previous edit is unknown), the draft is deleted first and the reply is sent as usual.
//!
//! The mapping from runs to drafts is on disk, so the reply of a run that resumes after a crash finds its draft, too. A
//! draft ends in an ellipsis, so it is never mistaken for a reply. A draft must not show text that a hook would have
//! withheld: if hooks inspect outgoing messages, there are no drafts.

mod grow;

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::event::{AbortReason, Outcome};
use homard_channels::{Act, Channel, Failure, Outgoing, Place, Receipt};
use homard_proto::RunId;
use homard_reply::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::spool;

pub(super) use grow::{DraftContent, Growing, grow};

/// Suffix of a draft.
const GOES_ON: &str = " …";
/// Timeout for sending a draft.
const SENDING: Duration = Duration::from_secs(20);
/// Timeout for editing a draft. Shorter, because the reply waits for it.
const EDITING: Duration = Duration::from_secs(10);
/// Timeout for replacing a draft with its reply, before delivery is retried.
const ANSWERING: Duration = Duration::from_secs(30);
/// How long a draft without a reply is remembered: as long as deliveries are retried.
const KEPT_MS: u64 = 25 * 60 * 60 * 1000;

/// The drafts of a gateway.
#[derive(Debug)]
pub(super) struct Drafts {
    path: PathBuf,
    open: Mutex<BTreeMap<RunId, Arc<Draft>>>,
}

/// Location of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spot {
    /// The platform; `account` is the account there.
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<String>,
    /// The message that it replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<String>,
    /// When it was started, in milliseconds since the epoch.
    pub(super) at: u64,
}

impl Spot {
    fn place(&self) -> Place {
        Place { to: self.to.clone(), thread: self.thread.clone() }
    }
}

/// A draft as stored on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    spot: Spot,
    message: String,
}

/// A reply that is being streamed.
#[derive(Debug)]
struct Draft {
    spot: Spot,
    /// Held during requests to the platform, so that the reply cannot be sent in between.
    state: tokio::sync::Mutex<State>,
    /// Copy of the id in `state`, for writing the file.
    message: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// The platform's message id, once it was sent.
    message: Option<String>,
    /// True if it is no longer edited.
    is_closed: bool,
    /// True if the result of an edit is unknown: it may still arrive.
    is_doubtful: bool,
}

/// Result of showing a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// It was sent or edited.
    Yes,
    /// The platform demands a pause.
    Later(Duration),
    /// It is no longer edited.
    NoMore,
}

/// Returns true if a run with this outcome sends anything on a channel.
pub(super) fn is_answered(outcome: &Outcome, replies: &[Payload]) -> bool {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => !replies.is_empty(),
        Outcome::Aborted(AbortReason::User | AbortReason::Stop | AbortReason::Interrupted) => false,
        Outcome::Aborted(AbortReason::Timeout | AbortReason::Dropped) => true,
    }
}

impl Drafts {
    /// Reads the stored drafts. An unreadable file counts as empty and is overwritten.
    pub(super) fn open(path: PathBuf) -> Self {
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "unfinished messages cannot be found again");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "unfinished messages cannot be found again");
                BTreeMap::new()
            }
        };
        let kept: BTreeMap<RunId, Kept> = kept;
        let open = kept.into_iter().map(|(run, Kept { spot, message })| (run, Draft::new(spot, Some(message))));
        Self { path, open: Mutex::new(open.collect()) }
    }

    /// Returns the drafts that the previous process left, and where they are.
    pub(super) fn left(&self) -> Vec<(RunId, Spot)> {
        self.lock().iter().map(|(run, draft)| (run.clone(), draft.spot.clone())).collect()
    }

    /// Allows a run to have a draft.
    pub(super) fn begin(&self, run: &RunId, spot: Spot) {
        let mut open = self.lock();
        open.retain(|_, draft| spot.at.saturating_sub(draft.spot.at) < KEPT_MS);
        open.entry(run.clone()).or_insert_with(|| Draft::new(spot, None));
    }

    /// Shows the current text of a run's reply.
    pub(super) async fn show(&self, channel: &dyn Channel, run: &RunId, text: &str) -> Shown {
        let Some(draft) = self.find(run) else { return Shown::NoMore };
        let mut state = draft.state.lock().await;
        if state.is_closed {
            return Shown::NoMore;
        }
        let text = format!("{}{GOES_ON}", text.trim_end());
        let place = draft.spot.place();
        let Some(message) = state.message.clone() else {
            let reply_to = draft.spot.reply_to.clone();
            let id = format!("draft-{run}");
            // A URL may be incomplete at this point; previews are decided with the reply.
            let outgoing = Outgoing { id, place, reply_to, text, hides_previews: true, ..Outgoing::default() };
            let failure = match timeout(SENDING, channel.send(outgoing)).await {
                Ok(Ok(Receipt { message: Some(message), .. })) => {
                    state.message = Some(message.clone());
                    *draft.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
                    self.write();
                    return Shown::Yes;
                }
                Ok(Ok(Receipt { message: None, .. })) => "the platform does not say what it calls it".to_owned(),
                Ok(Err(Failure::RetryAfter { after, .. })) => return Shown::Later(after),
                Ok(Err(failure)) => failure.to_string(),
                Err(_) => "the platform did not answer in time".to_owned(),
            };
            tracing::warn!(
                channel = draft.spot.channel,
                why = failure,
                "an answer cannot be shown while it is written"
            );
            state.is_closed = true;
            return Shown::NoMore;
        };
        match timeout(EDITING, channel.act(Act::Edit { place, message, text, hides_previews: true })).await {
            Ok(Ok(_)) => Shown::Yes,
            Ok(Err(Failure::RetryAfter { after, .. })) => Shown::Later(after),
            Ok(Err(Failure::Refused(_) | Failure::Unsupported { .. })) => {
                state.is_closed = true;
                Shown::NoMore
            }
            Ok(Err(Failure::Unavailable(_) | Failure::Unknown(_))) | Err(_) => {
                (state.is_closed, state.is_doubtful) = (true, true);
                Shown::NoMore
            }
        }
    }

    /// Replaces a draft with its reply. `None` if there is no draft, or none any more: the caller sends the reply.
    pub(super) async fn become_answer(
        &self,
        channel: &dyn Channel,
        run: &RunId,
        answer: &Outgoing,
    ) -> Option<Result<Receipt, Failure>> {
        let draft = self.find(run)?;
        let mut state = draft.state.lock().await;
        state.is_closed = true;
        let Some(message) = state.message.clone() else {
            self.forget(run);
            return None;
        };
        let place = draft.spot.place();
        let is_plain = answer.media.is_empty() && answer.poll.is_none() && !answer.text.trim().is_empty();
        let is_there = answer.place == place && answer.reply_to == draft.spot.reply_to;
        if is_plain && is_there && !state.is_doubtful {
            let (text, hides_previews) = (answer.text.clone(), answer.hides_previews);
            let edit = Act::Edit { place: place.clone(), message: message.clone(), text, hides_previews };
            let edited = timeout(ANSWERING, channel.act(edit)).await;
            let edited =
                edited.unwrap_or_else(|_| Err(Failure::Unknown("the platform did not answer in time".to_owned())));
            match edited {
                Ok(_) => {
                    self.forget(run);
                    let details = json!({"chatId": place.to, "messageIds": [message]});
                    return Some(Ok(Receipt { message: Some(message), details }));
                }
                // Too long for one message, or the draft was deleted.
                Err(Failure::Refused(_) | Failure::Unsupported { .. }) => {}
                Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) => return Some(Err(failure)),
                // Repeating the same edit is harmless.
                Err(Failure::Unknown(why)) => return Some(Err(Failure::Unavailable(why))),
            }
        }
        match channel.act(Act::Delete { place, message }).await {
            Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) => Some(Err(failure)),
            // A draft that cannot be deleted stays; its ellipsis shows that it is not the reply.
            Ok(_) | Err(Failure::Refused(_) | Failure::Unsupported { .. } | Failure::Unknown(_)) => {
                self.forget(run);
                None
            }
        }
    }

    /// Ends the draft of a finished run: it waits for the reply, or is deleted if there will be none.
    pub(super) async fn end(&self, channel: &dyn Channel, run: &RunId, is_answered: bool) {
        let was_shown = self.find(run).is_some_and(|draft| draft.known().is_some());
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
            let deleted = channel.act(Act::Delete { place: draft.spot.place(), message }).await;
            if let Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) = deleted {
                // It is on disk, and retried at the next start.
                return tracing::warn!(channel = draft.spot.channel, %failure, "an unfinished message was not deleted");
            }
        }
        self.forget(run);
    }

    fn find(&self, run: &RunId) -> Option<Arc<Draft>> {
        self.lock().get(run).cloned()
    }

    fn forget(&self, run: &RunId) {
        let gone = self.lock().remove(run);
        if gone.is_some_and(|draft| draft.known().is_some()) {
            self.write();
        }
    }

    /// Stores the list of drafts. If that fails, a crash leaves one draft behind, nothing worse.
    fn write(&self) {
        let open = self.lock();
        let kept = open
            .iter()
            .filter_map(|(run, draft)| Some((run.clone(), Kept { spot: draft.spot.clone(), message: draft.known()? })));
        let kept: BTreeMap<RunId, Kept> = kept.collect();
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        let written = tokio::task::block_in_place(|| spool::write(&self.path, &bytes));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "it could not be noted which messages are unfinished");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<Draft>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draft {
    fn new(spot: Spot, message: Option<String>) -> Arc<Self> {
        let state = State { message: message.clone(), ..State::default() };
        Arc::new(Self { spot, state: tokio::sync::Mutex::new(state), message: Mutex::new(message) })
    }

    fn known(&self) -> Option<String> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
