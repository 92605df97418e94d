//! Tells all clients what happens in all runs: one task, so that everybody hears everything in one order.
//!
//! It reads each run's tape once, and tells it twice: as `agent` events and as the `chat` events that go with them. An
//! event is serialised once, whoever listens; of a conversation's deltas each generation has its own. Words are paced,
//! because each time all of the message is told: the [`teller`] says how. What was told of a run is kept in its [`log`],
//! for clients that come back.

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

/// How much a client is told of a tool's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// That it began and ended.
    Brief,
    /// What it said, too.
    Full,
}

/// A handle on the projector. What is sent here is heeded before any news of a run that began later.
#[derive(Debug, Clone)]
pub(crate) struct Projector {
    // Unbounded: every request sends a few, and a connection's requests are bounded.
    wishes: UnboundedSender<Wish>,
    board: Board,
}

/// Where it is announced what becomes of conversations, for those who follow them.
#[derive(Debug, Clone)]
struct Board {
    // Unbounded: what is in it is read several times a second, and one message a conversation is enough.
    changes: UnboundedSender<Change>,
    messages: MessageFeed,
    followers: Arc<Followers>,
}

impl Board {
    fn session_changed(&self, change: Change) {
        // Nobody tells it any more once the server has stopped.
        self.changes.send(change).ok();
    }

    fn is_followed(&self) -> bool {
        self.followers.are_there()
    }
}

/// How many want to hear of conversations.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Clients that want to hear of all of them.
    pub(crate) of_all: AtomicUsize,
    /// Wishes to hear what is said in one.
    pub(crate) of_one: AtomicUsize,
}

impl Followers {
    /// Whether somebody may want to hear what is said.
    pub(crate) fn are_there(&self) -> bool {
        self.of_all.load(Ordering::Relaxed) > 0 || self.of_one.load(Ordering::Relaxed) > 0
    }
}

/// What a connection wants.
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
    /// Somebody comes back to runs.
    Resume(Resume),
    /// The run's news wait until its sender was answered.
    Hold(RunId),
    Release(RunId),
    /// Everybody in the audience is told this event.
    Tell(&'static str, Arc<str>, Audience),
    /// Everybody who may look, and does not know it yet, is told who is here.
    TellPresence(Arc<str>, StateVersion),
    /// Everybody who follows conversations is told that one changed.
    TellFollowers(Arc<str>),
    /// A message was stored in this transcript of a session, though no run's events say so.
    MessageStored(SessionKey, SessionId, StoredMessage),
    /// Everybody who follows what is said in this conversation is told that something was.
    TellSaid(SessionKey, Arc<str>),
    /// Everything that was announced so far is told; then this is.
    Drain(oneshot::Sender<()>),
}

/// A run's news wait while this lives: whoever sends a message hears that it was accepted before anything of its run.
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

/// A client's place among those who are told; dropping it is leaving.
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

/// A projector that has not started yet: what it is asked for waits.
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

    /// A handle on what it will be.
    pub(crate) fn projector(&self) -> Projector {
        self.projector.clone()
    }

    /// Starts telling. The receiver gets the changes of conversations.
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
    /// From here on the client is told what it may hear.
    pub(crate) fn join(&self, client: Arc<Client>) -> Joined {
        let joined = Joined { client: client.id, projector: self.clone() };
        self.wish(Wish::Join(client));
        joined
    }

    /// Keeps back the news of a run that is about to be accepted.
    pub(crate) fn hold(&self, run: RunId) -> Hold {
        self.wish(Wish::Hold(run.clone()));
        Hold { run, projector: self.clone() }
    }

    /// The client shall hear of the tools of a run that is about to begin.
    pub(crate) fn watch(&self, run: RunId, client: &Client, detail: Detail) {
        self.wish(Wish::Watch { run, client: client.id, detail });
    }

    /// The run did not begin after all, or began for somebody else.
    pub(crate) fn unwatch(&self, run: RunId, client: &Client) {
        self.wish(Wish::Unwatch { run, client: client.id });
    }

    /// Answers the request once more when the run is over, after everybody was told so; at once if it is over.
    pub(crate) fn answer_at_end(&self, tape: Arc<Tape>, client: Arc<Client>, request: String) {
        self.wish(Wish::Answer(tape, Waiter { client, request }));
    }

    /// Tells a client what it missed of runs; from there on it is told the rest.
    pub(crate) fn resume(&self, resume: Resume) {
        self.wish(Wish::Resume(resume));
    }

    /// Tells everybody what the schedule does, for as long as the handle lives.
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

    /// Tells everybody in the audience.
    pub(crate) fn tell(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.wish(Wish::Tell(event, payload.to_string().into(), audience));
    }

    /// Tells who is here; a slow client can do without it.
    pub(crate) fn tell_presence(&self, payload: &Value, state: StateVersion) {
        self.wish(Wish::TellPresence(payload.to_string().into(), state));
    }

    /// Says that a conversation changed; those who follow hear of it a moment later.
    pub(crate) fn session_changed(&self, change: Change) {
        self.board.session_changed(change);
    }

    /// How many clients follow all conversations.
    pub(crate) fn followers(&self) -> usize {
        self.board.followers.of_all.load(Ordering::Relaxed)
    }

    /// The messages that are stored in sessions, for those who subscribed.
    pub(crate) fn messages(&self) -> MessageFeed {
        self.board.messages.clone()
    }

    /// The numbers themselves, for a client that begins or ends following.
    pub(crate) fn followers_count(&self) -> Arc<Followers> {
        self.board.followers.clone()
    }

    /// Notes that a message was stored; those who subscribed get it a moment later.
    pub(crate) fn message_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        self.wish(Wish::MessageStored(key.clone(), session.clone(), message));
    }

    /// Tells those who follow a conversation what was said in it.
    pub(crate) fn tell_said(&self, key: SessionKey, payload: &Value) {
        self.wish(Wish::TellSaid(key, payload.to_string().into()));
    }

    /// Tells those who follow conversations that one changed.
    pub(crate) fn tell_followers(&self, payload: &Value) {
        self.wish(Wish::TellFollowers(payload.to_string().into()));
    }

    /// Waits until everything that happened so far was told.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.wish(Wish::Drain(done));
        // Without a projector there is nothing left to tell.
        drained.await.ok();
    }

    fn wish(&self, wish: Wish) {
        // Without a projector the server has stopped, and nobody is told anything any more.
        self.wishes.send(wish).ok();
    }
}

async fn run(mut teller: Teller, mut feed: UnboundedReceiver<HubEvent>, mut wishes: UnboundedReceiver<Wish>) {
    loop {
        let due = teller.due();
        tokio::select! {
            // Wishes first: a client that watches a run must be known before the run's first news is read.
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
                // Whoever asked may have gone, and that is fine.
                done.send(()).ok();
            }
        }
    }
}
