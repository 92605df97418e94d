//! Publishes run events to all clients, from one task, so that every client sees the same order.
//!
//! The projector reads each run's tape once and produces `agent` events and the corresponding `chat` events. An event
//! is serialised once for all subscribers; `chat` deltas have one form per protocol version. Text is throttled, because
//! each update repeats the whole message; see [`fanout`]. Published events of a run are kept in its [`log`] for clients
//! that reconnect.

mod fanout;
mod finished;
mod log;
mod resume;
mod run_stream;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use homard_agent::{HubEvent, Tape};
use homard_proto::{RunId, SessionId, SessionKey};
use homard_runtime::task;
use homard_schedule::Schedule;
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

use self::{fanout::Fanout, run_stream::EndWaiter};
use crate::{
    broadcaster::Audience,
    client::Client,
    message_feed::{MessageFeed, StoredMessage},
    metrics::Metrics,
    send_queue::StateVersion,
    session_changes::SessionChange,
};

pub(crate) use self::resume::{KnownRun, ResumePosition, ResumeRequest};

/// Level of detail of tool events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolDetail {
    /// Start and end only.
    Brief,
    /// Including the output.
    Full,
}

/// Handle to the projector. A command sent here takes effect before any event of a run that begins later.
#[derive(Debug, Clone)]
pub(crate) struct Projector {
    // Unbounded: every request sends a few, and a connection's concurrent requests are bounded.
    commands: UnboundedSender<ProjectorCommand>,
    feeds: SessionFeeds,
}

/// Feeds for session changes and stored messages.
#[derive(Debug, Clone)]
struct SessionFeeds {
    // Unbounded: it is drained several times a second, and changes of one session are merged.
    changes: UnboundedSender<SessionChange>,
    messages: MessageFeed,
    subscriptions: Arc<SubscriptionCounts>,
}

impl SessionFeeds {
    fn session_changed(&self, change: SessionChange) {
        // Fails only after the server has stopped.
        self.changes.send(change).ok();
    }

    fn has_subscribers(&self) -> bool {
        self.subscriptions.any()
    }
}

/// Numbers of session subscriptions.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionCounts {
    /// Clients subscribed to all sessions.
    pub(crate) all_sessions: AtomicUsize,
    /// Subscriptions to the messages of a single session.
    pub(crate) single_session: AtomicUsize,
}

impl SubscriptionCounts {
    /// True if any client may be subscribed to messages.
    pub(crate) fn any(&self) -> bool {
        self.all_sessions.load(Ordering::Relaxed) > 0 || self.single_session.load(Ordering::Relaxed) > 0
    }
}

/// A command to the projector.
#[derive(Debug)]
enum ProjectorCommand {
    Join(Arc<Client>),
    Leave(u64),
    Watch {
        run: RunId,
        client: u64,
        detail: ToolDetail,
    },
    Unwatch {
        run: RunId,
        client: u64,
    },
    RespondAtEnd(Arc<Tape>, EndWaiter),
    /// A client reconnects to runs.
    Resume(ResumeRequest),
    /// Delays a run's events until the response to its sender is in the sender's send queue.
    Gate(RunId),
    Ungate(RunId),
    /// Sends an event to all clients in the audience.
    Publish(&'static str, Arc<str>, Audience),
    /// Sends the presence list to clients with the read scope that do not have this version.
    PublishPresence(Arc<str>, StateVersion),
    /// Sends a session change to subscribers.
    PublishSessionChange(Arc<str>),
    /// A message was stored in this transcript of a session without an event of a run.
    MessageStored(SessionKey, SessionId, StoredMessage),
    /// Sends a stored message to the session's subscribers.
    PublishMessage(SessionKey, Arc<str>),
    /// Signals the sender once everything published so far was sent.
    Drain(oneshot::Sender<()>),
}

/// Delays a run's events until it is dropped, so that the sender of a message sees the response first.
#[derive(Debug)]
pub(crate) struct EventGate {
    run: RunId,
    projector: Projector,
}

impl Drop for EventGate {
    fn drop(&mut self) {
        self.projector.send(ProjectorCommand::Ungate(self.run.clone()));
    }
}

/// A client's registration; dropping it unregisters the client.
#[derive(Debug)]
pub(crate) struct ClientRegistration {
    client: u64,
    projector: Projector,
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.projector.send(ProjectorCommand::Leave(self.client));
    }
}

/// A projector that has not started yet; commands are queued.
#[derive(Debug)]
pub(crate) struct PendingProjector {
    projector: Projector,
    commands: UnboundedReceiver<ProjectorCommand>,
    changes: UnboundedReceiver<SessionChange>,
}

impl PendingProjector {
    pub(crate) fn new() -> Self {
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (change_sender, changes) = mpsc::unbounded_channel();
        let feeds =
            SessionFeeds { changes: change_sender, messages: MessageFeed::default(), subscriptions: Arc::default() };
        Self { projector: Projector { commands: command_sender, feeds }, commands, changes }
    }

    /// Returns a handle of the projector, which can be used before the projector is started.
    pub(crate) fn projector(&self) -> Projector {
        self.projector.clone()
    }

    /// Starts the task. The returned receiver yields session changes.
    pub(crate) fn start(
        self,
        feed: UnboundedReceiver<HubEvent>,
        metrics: Metrics,
    ) -> (Projector, JoinHandle<()>, UnboundedReceiver<SessionChange>) {
        let fanout = Fanout::with_feeds(self.projector.feeds.clone(), metrics);
        (self.projector, task::spawn("projector", run(fanout, feed, self.commands)), self.changes)
    }
}

impl Projector {
    /// Registers a client; it receives events from now on.
    pub(crate) fn join(&self, client: Arc<Client>) -> ClientRegistration {
        let joined = ClientRegistration { client: client.id, projector: self.clone() };
        self.send(ProjectorCommand::Join(client));
        joined
    }

    /// Delays the events of a run that is about to be accepted.
    pub(crate) fn gate(&self, run: RunId) -> EventGate {
        self.send(ProjectorCommand::Gate(run.clone()));
        EventGate { run, projector: self.clone() }
    }

    /// Subscribes a client to the tool events of a run that is about to start.
    pub(crate) fn watch(&self, run: RunId, client: &Client, detail: ToolDetail) {
        self.send(ProjectorCommand::Watch { run, client: client.id, detail });
    }

    /// Cancels [`watch`](Self::watch), because the run did not start or belongs to another request.
    pub(crate) fn unwatch(&self, run: RunId, client: &Client) {
        self.send(ProjectorCommand::Unwatch { run, client: client.id });
    }

    /// Sends a second response to the request when the run ends, after its final event; at once if it has ended.
    pub(crate) fn respond_at_end(&self, tape: Arc<Tape>, client: Arc<Client>, request: String) {
        self.send(ProjectorCommand::RespondAtEnd(tape, EndWaiter { client, request }));
    }

    /// Sends a client the events it missed of runs and subscribes it to the rest.
    pub(crate) fn resume(&self, resume: ResumeRequest) {
        self.send(ProjectorCommand::Resume(resume));
    }

    /// Publishes events of the schedule until the handle is dropped.
    pub(crate) fn publish_schedule(&self, schedule: &Schedule) -> AbortOnDropHandle<()> {
        let (projector, mut events) = (self.clone(), schedule.subscribe());
        AbortOnDropHandle::new(task::spawn("schedule events", async move {
            loop {
                match events.recv().await {
                    Ok((event, payload)) => projector.publish(event, &payload, Audience::READERS),
                    Err(RecvError::Lagged(count)) => {
                        tracing::warn!(count, "schedule events were dropped; clients may show outdated jobs")
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        }))
    }

    /// Sends an event to all clients in the audience.
    pub(crate) fn publish(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.send(ProjectorCommand::Publish(event, payload.to_string().into(), audience));
    }

    /// Publishes the presence list; slow clients may miss it.
    pub(crate) fn publish_presence(&self, payload: &Value, state: StateVersion) {
        self.send(ProjectorCommand::PublishPresence(payload.to_string().into(), state));
    }

    /// Reports a session change; subscribers receive it shortly after.
    pub(crate) fn session_changed(&self, change: SessionChange) {
        self.feeds.session_changed(change);
    }

    /// Number of clients subscribed to all sessions.
    pub(crate) fn session_subscribers(&self) -> usize {
        self.feeds.subscriptions.all_sessions.load(Ordering::Relaxed)
    }

    /// Returns the feed of stored messages.
    pub(crate) fn messages(&self) -> MessageFeed {
        self.feeds.messages.clone()
    }

    /// Returns the shared subscription counters.
    pub(crate) fn subscription_counts(&self) -> Arc<SubscriptionCounts> {
        self.feeds.subscriptions.clone()
    }

    /// Reports a stored message; subscribers receive it shortly after.
    pub(crate) fn message_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        self.send(ProjectorCommand::MessageStored(key.clone(), session.clone(), message));
    }

    /// Sends a stored message to the session's subscribers.
    pub(crate) fn publish_message(&self, key: SessionKey, payload: &Value) {
        self.send(ProjectorCommand::PublishMessage(key, payload.to_string().into()));
    }

    /// Sends a session change to subscribers.
    pub(crate) fn publish_session_change(&self, payload: &Value) {
        self.send(ProjectorCommand::PublishSessionChange(payload.to_string().into()));
    }

    /// Waits until everything that happened so far was published.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.send(ProjectorCommand::Drain(done));
        // If the projector has stopped, nothing is left to publish.
        drained.await.ok();
    }

    fn send(&self, command: ProjectorCommand) {
        // Fails only after the server has stopped.
        self.commands.send(command).ok();
    }
}

async fn run(
    mut fanout: Fanout,
    mut feed: UnboundedReceiver<HubEvent>,
    mut commands: UnboundedReceiver<ProjectorCommand>,
) {
    loop {
        let due = fanout.due();
        tokio::select! {
            // Commands first: a client that watches a run must be registered before the run's first event is read.
            biased;
            command = commands.recv() => match command {
                Some(command) => fanout.execute(command),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => fanout.publish_due_text(Instant::now()),
            Some(event) = feed.recv() => {
                while let Ok(command) = commands.try_recv() {
                    fanout.execute(command);
                }
                fanout.handle_hub_event(&event);
            }
        }
        if !fanout.drains.is_empty() {
            while let Ok(event) = feed.try_recv() {
                fanout.handle_hub_event(&event);
            }
            for done in fanout.drains.drain(..) {
                // The waiting task may have been dropped.
                done.send(()).ok();
            }
        }
    }
}
