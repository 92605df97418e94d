//! Publishes run events to all clients, from one task, so that every client sees the same order.
//!
//! The projector reads each run's tape once and produces `agent` events and the corresponding `chat` events. An event
//! is serialised once for all subscribers; `chat` deltas have one form per protocol version. Text is throttled, because
//! each update repeats the whole message; see [`teller`]. Published events of a run are kept in its [`log`] for clients
//! that reconnect.

mod log;
mod past;
mod resume;
mod story;
mod teller;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use homard_agent::{HubEvent, Tape, schedule::Schedule, task};
use homard_proto::{RunId, SessionId, SessionKey};
use serde_json::Value;
use tokio::{
    sync::{
        broadcast::error::RecvError,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::resume::{Known, Missed, Resume};
use self::{story::Waiter, teller::Teller};
use crate::{
    changes::Change,
    client::Client,
    message_feed::{MessageFeed, StoredMessage},
    metrics::Metrics,
    news::Audience,
    outbox::StateVersion,
};

/// Level of detail of tool events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Start and end only.
    Brief,
    /// Including the output.
    Full,
}

/// Handle to the projector. A command sent here takes effect before any event of a run that begins later.
#[derive(Debug, Clone)]
pub(crate) struct Projector {
    // Unbounded: every request sends a few, and a connection's concurrent requests are bounded.
    wishes: UnboundedSender<Wish>,
    board: Board,
}

/// Feeds for session changes and stored messages.
#[derive(Debug, Clone)]
struct Board {
    // Unbounded: it is drained several times a second, and changes of one session are merged.
    changes: UnboundedSender<Change>,
    messages: MessageFeed,
    followers: Arc<Followers>,
}

impl Board {
    fn session_changed(&self, change: Change) {
        // Fails only after the server has stopped.
        self.changes.send(change).ok();
    }

    fn is_followed(&self) -> bool {
        self.followers.are_there()
    }
}

/// Numbers of session subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Clients subscribed to all sessions.
    pub(crate) of_all: AtomicUsize,
    /// Subscriptions to the messages of a single session.
    pub(crate) of_one: AtomicUsize,
}

impl Followers {
    /// True if any client may be subscribed to messages.
    pub(crate) fn are_there(&self) -> bool {
        self.of_all.load(Ordering::Relaxed) > 0 || self.of_one.load(Ordering::Relaxed) > 0
    }
}

/// A command to the projector.
#[derive(Debug)]
enum Wish {
    Join(Arc<Client>),
    Leave(u64),
    Watch {
        run: RunId,
        client: u64,
        detail: Detail,
    },
    Unwatch {
        run: RunId,
        client: u64,
    },
    Answer(Arc<Tape>, Waiter),
    /// A client reconnects to runs.
    Resume(Resume),
    /// Delays a run's events until its `accepted` response was sent.
    Hold(RunId),
    Release(RunId),
    /// Sends an event to all clients in the audience.
    Tell(&'static str, Arc<str>, Audience),
    /// Sends the presence list to clients with the read scope that do not have this version.
    TellPresence(Arc<str>, StateVersion),
    /// Sends a session change to subscribers.
    TellFollowers(Arc<str>),
    /// A message was stored in this transcript of a session without an event of a run.
    MessageStored(SessionKey, SessionId, StoredMessage),
    /// Sends a stored message to the session's subscribers.
    TellSaid(SessionKey, Arc<str>),
    /// Signals the sender once everything published so far was sent.
    Drain(oneshot::Sender<()>),
}

/// Delays a run's events while it lives, so that the sender of a message sees the `accepted` response first.
#[derive(Debug)]
pub(crate) struct Hold {
    run: RunId,
    projector: Projector,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.projector.wish(Wish::Release(self.run.clone()));
    }
}

/// A client's registration; dropping it unregisters the client.
#[derive(Debug)]
pub(crate) struct Joined {
    client: u64,
    projector: Projector,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.projector.wish(Wish::Leave(self.client));
    }
}

/// A projector that has not started yet; commands are queued.
#[derive(Debug)]
pub(crate) struct Unstarted {
    projector: Projector,
    wished: UnboundedReceiver<Wish>,
    changed: UnboundedReceiver<Change>,
}

impl Unstarted {
    pub(crate) fn new() -> Self {
        let (wishes, wished) = mpsc::unbounded_channel();
        let (changes, changed) = mpsc::unbounded_channel();
        let board = Board { changes, messages: MessageFeed::default(), followers: Arc::default() };
        Self { projector: Projector { wishes, board }, wished, changed }
    }

    /// Returns a handle.
    pub(crate) fn projector(&self) -> Projector {
        self.projector.clone()
    }

    /// Starts the task. The returned receiver yields session changes.
    pub(crate) fn start(
        self,
        feed: UnboundedReceiver<HubEvent>,
        metrics: Metrics,
    ) -> (Projector, JoinHandle<()>, UnboundedReceiver<Change>) {
        let teller = Teller::announcing(self.projector.board.clone(), metrics);
        (self.projector, task::spawn("projector", run(teller, feed, self.wished)), self.changed)
    }
}

impl Projector {
    /// Registers a client; it receives events from now on.
    pub(crate) fn join(&self, client: Arc<Client>) -> Joined {
        let joined = Joined { client: client.id, projector: self.clone() };
        self.wish(Wish::Join(client));
        joined
    }

    /// Delays the events of a run that is about to be accepted.
    pub(crate) fn hold(&self, run: RunId) -> Hold {
        self.wish(Wish::Hold(run.clone()));
        Hold { run, projector: self.clone() }
    }

    /// Subscribes a client to the tool events of a run that is about to start.
    pub(crate) fn watch(&self, run: RunId, client: &Client, detail: Detail) {
        self.wish(Wish::Watch { run, client: client.id, detail });
    }

    /// Cancels [`watch`](Self::watch), because the run did not start or belongs to another request.
    pub(crate) fn unwatch(&self, run: RunId, client: &Client) {
        self.wish(Wish::Unwatch { run, client: client.id });
    }

    /// Sends a second response to the request when the run ends, after its final event; at once if it has ended.
    pub(crate) fn answer_at_end(&self, tape: Arc<Tape>, client: Arc<Client>, request: String) {
        self.wish(Wish::Answer(tape, Waiter { client, request }));
    }

    /// Sends a client the events it missed of runs and subscribes it to the rest.
    pub(crate) fn resume(&self, resume: Resume) {
        self.wish(Wish::Resume(resume));
    }

    /// Publishes events of the schedule until the handle is dropped.
    pub(crate) fn follow(&self, schedule: &Schedule) -> AbortOnDropHandle<()> {
        let (projector, mut news) = (self.clone(), schedule.listen());
        AbortOnDropHandle::new(task::spawn("schedule news", async move {
            loop {
                match news.recv().await {
                    Ok((event, payload)) => projector.tell(event, &payload, Audience::READERS),
                    Err(RecvError::Lagged(count)) => tracing::warn!(count, "news of the schedule were lost"),
                    Err(RecvError::Closed) => return,
                }
            }
        }))
    }

    /// Sends an event to all clients in the audience.
    pub(crate) fn tell(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.wish(Wish::Tell(event, payload.to_string().into(), audience));
    }

    /// Publishes the presence list; slow clients may miss it.
    pub(crate) fn tell_presence(&self, payload: &Value, state: StateVersion) {
        self.wish(Wish::TellPresence(payload.to_string().into(), state));
    }

    /// Reports a session change; subscribers receive it shortly after.
    pub(crate) fn session_changed(&self, change: Change) {
        self.board.session_changed(change);
    }

    /// Number of clients subscribed to all sessions.
    pub(crate) fn followers(&self) -> usize {
        self.board.followers.of_all.load(Ordering::Relaxed)
    }

    /// Returns the feed of stored messages.
    pub(crate) fn messages(&self) -> MessageFeed {
        self.board.messages.clone()
    }

    /// Returns the shared subscription counters.
    pub(crate) fn followers_count(&self) -> Arc<Followers> {
        self.board.followers.clone()
    }

    /// Reports a stored message; subscribers receive it shortly after.
    pub(crate) fn message_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        self.wish(Wish::MessageStored(key.clone(), session.clone(), message));
    }

    /// Sends a stored message to the session's subscribers.
    pub(crate) fn tell_said(&self, key: SessionKey, payload: &Value) {
        self.wish(Wish::TellSaid(key, payload.to_string().into()));
    }

    /// Sends a session change to subscribers.
    pub(crate) fn tell_followers(&self, payload: &Value) {
        self.wish(Wish::TellFollowers(payload.to_string().into()));
    }

    /// Waits until everything that happened so far was published.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.wish(Wish::Drain(done));
        // If the projector has stopped, nothing is left to publish.
        drained.await.ok();
    }

    fn wish(&self, wish: Wish) {
        // Fails only after the server has stopped.
        self.wishes.send(wish).ok();
    }
}

async fn run(mut teller: Teller, mut feed: UnboundedReceiver<HubEvent>, mut wishes: UnboundedReceiver<Wish>) {
    loop {
        let due = teller.due();
        tokio::select! {
            // Commands first: a client that watches a run must be registered before the run's first event is read.
            biased;
            wish = wishes.recv() => match wish {
                Some(wish) => teller.heed(wish),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => teller.tell_words(Instant::now()),
            Some(event) = feed.recv() => {
                while let Ok(wish) = wishes.try_recv() {
                    teller.heed(wish);
                }
                teller.hear(&event);
            }
        }
        if !teller.drains.is_empty() {
            while let Ok(event) = feed.try_recv() {
                teller.hear(&event);
            }
            for done in teller.drains.drain(..) {
                // The waiting task may have been dropped.
                done.send(()).ok();
            }
        }
    }
}
