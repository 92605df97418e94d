//! An answer that grows in a chat while it is written: one message, sent early and edited, that becomes the answer.
//!
//! The answer itself goes through the outbox, like any other. When it comes to the courier, it takes the draft's place: the
//! draft is edited once more, and is the answer from then on. If it cannot be (the answer has a picture or hangs on another
//! message, or nobody knows what became of the edit before), the draft is deleted first and the answer sent as usual.
//!
//! Which message is whose draft is on disk, so the answer of a run that goes on after a crash finds its draft, too. A draft
//! ends in three dots: whatever happens, nobody takes it for an answer. What it never does is say something that hooks
//! could have kept back: where hooks look at what is sent, there are no drafts.

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

/// What stands at the end of a draft.
const GOES_ON: &str = " …";
/// How long a draft may take to be sent.
const SENDING: Duration = Duration::from_secs(20);
/// How long it may take to be edited. Shorter, because the answer waits for it.
const EDITING: Duration = Duration::from_secs(10);
/// How long an answer may take to get into its draft's place, before it is tried again.
const ANSWERING: Duration = Duration::from_secs(30);
/// How long a draft is remembered that no answer came for: as long as answers are tried.
const KEPT_MS: u64 = 25 * 60 * 60 * 1000;

/// The drafts of a house.
#[derive(Debug)]
pub(super) struct Drafts {
    path: PathBuf,
    open: Mutex<BTreeMap<RunId, Arc<Draft>>>,
}

/// Where a draft is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spot {
    /// The platform, and the account there.
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<String>,
    /// The message that it hangs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<String>,
    /// When it was begun, in milliseconds since the epoch.
    pub(super) at: u64,
}

impl Spot {
    fn place(&self) -> Place {
        Place { to: self.to.clone(), thread: self.thread.clone() }
    }
}

/// A draft as it is on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    spot: Spot,
    message: String,
}

/// An answer that is being written.
#[derive(Debug)]
struct Draft {
    spot: Spot,
    /// Held while the platform is asked, so that the answer never comes between.
    state: tokio::sync::Mutex<State>,
    /// As in `state`, for those who write the file.
    message: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// What the platform calls it, once it is there.
    message: Option<String>,
    /// Whether it grows no more.
    is_closed: bool,
    /// Whether an edit went out and nobody knows what became of it: it may still arrive.
    is_doubtful: bool,
}

/// What became of showing a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// It is there.
    Yes,
    /// The platform wants a pause.
    Later(Duration),
    /// It grows no more.
    NoMore,
}

/// Whether anything is said on a channel when a run has ended like this.
pub(super) fn is_answered(outcome: &Outcome, replies: &[Payload]) -> bool {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => !replies.is_empty(),
        Outcome::Aborted(AbortReason::User | AbortReason::Stop | AbortReason::Interrupted) => false,
        Outcome::Aborted(AbortReason::Timeout | AbortReason::Dropped) => true,
    }
}

impl Drafts {
    /// Reads what was left. Of a file that cannot be read nothing is known; it is written anew.
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

    /// The drafts that the last process left, and where they are.
    pub(super) fn left(&self) -> Vec<(RunId, Spot)> {
        self.lock().iter().map(|(run, draft)| (run.clone(), draft.spot.clone())).collect()
    }

    /// A run may have a draft from here on.
    pub(super) fn begin(&self, run: &RunId, spot: Spot) {
        let mut open = self.lock();
        open.retain(|_, draft| spot.at.saturating_sub(draft.spot.at) < KEPT_MS);
        open.entry(run.clone()).or_insert_with(|| Draft::new(spot, None));
    }

    /// Shows how far a run's answer has come.
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
            // An address that is not written to its end is nobody's, and the answer decides about previews.
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

    /// Puts an answer in the place of its draft. `None` if there is none, or none any more: the answer is to be sent.
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
                // Too long for one message, or somebody deleted it.
                Err(Failure::Refused(_) | Failure::Unsupported { .. }) => {}
                Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) => return Some(Err(failure)),
                // The same edit once more does no harm.
                Err(Failure::Unknown(why)) => return Some(Err(Failure::Unavailable(why))),
            }
        }
        match channel.act(Act::Delete { place, message }).await {
            Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) => Some(Err(failure)),
            // What cannot be deleted stays, and its three dots say that it is not the answer.
            Ok(_) | Err(Failure::Refused(_) | Failure::Unsupported { .. } | Failure::Unknown(_)) => {
                self.forget(run);
                None
            }
        }
    }

    /// A run is over. What it showed waits for its answer, or is taken back if there will be none.
    pub(super) async fn end(&self, channel: &dyn Channel, run: &RunId, is_answered: bool) {
        let was_shown = self.find(run).is_some_and(|draft| draft.known().is_some());
        if was_shown && !is_answered {
            self.withdraw(channel, run).await;
        } else if !was_shown {
            self.forget(run);
        }
    }

    /// Takes a draft back: its run says nothing.
    pub(super) async fn withdraw(&self, channel: &dyn Channel, run: &RunId) {
        let Some(draft) = self.find(run) else { return };
        let mut state = draft.state.lock().await;
        state.is_closed = true;
        if let Some(message) = state.message.clone() {
            let deleted = channel.act(Act::Delete { place: draft.spot.place(), message }).await;
            if let Err(failure @ (Failure::RetryAfter { .. } | Failure::Unavailable(_))) = deleted {
                // It is on disk, and tried again at the next start.
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

    /// Writes down which drafts there are. If that fails, a crash leaves one behind, and no more.
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
