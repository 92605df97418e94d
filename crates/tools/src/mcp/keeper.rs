//! Supervises one server: connects on demand, lists its tools when it is ready or they change, backs off when it fails.

use std::{
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::model::{CallToolResult, JsonObject, Tool};
use tokio::{
    sync::{Mutex, Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    breaker::Breaker,
    link::{Error, Link},
    setup::ServerSetup,
};

/// Minimum interval between unsolicited connection attempts to a failing server.
const SELDOM: Duration = Duration::from_secs(5);

/// Debounce time after a notification that the tool list has changed, since a server may send many.
const SETTLE: Duration = Duration::from_millis(250);

/// Number of consecutive unanswered calls after which a server is restarted.
const PATIENCE: u32 = 3;

/// State shared by all servers.
#[derive(Debug, Clone)]
pub(super) struct House {
    /// Environment of server commands.
    pub(super) env: Arc<[(String, String)]>,
    /// Incremented when the list of tools changes, and when a server goes down or comes back.
    pub(super) edition: watch::Sender<u64>,
    /// Changes when the first connection attempt to a server has finished.
    pub(super) tried: watch::Sender<u64>,
    /// Stops everything; each server has its own child token.
    pub(super) stop: CancellationToken,
    /// Tasks to be joined on shutdown.
    pub(super) tasks: TaskTracker,
}

/// Supervisor of a server.
#[derive(Debug)]
pub(super) struct Keeper {
    setup: ServerSetup,
    prefix: String,
    house: House,
    /// Held while connecting, so that concurrent callers wait instead of connecting twice.
    seat: Mutex<Seat>,
    /// State that can be read without waiting.
    view: StdMutex<View>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Seat {
    link: Option<Arc<Link>>,
    breaker: Breaker,
    /// Consecutive unanswered calls.
    unanswered: u32,
    /// Last error.
    why: String,
}

#[derive(Debug, Default)]
struct View {
    state: ServerState,
    is_tried: bool,
    server: Option<String>,
    tools: Vec<Tool>,
    error: Option<String>,
    rests_until: Option<Instant>,
}

/// State of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerState {
    /// Not ready yet.
    #[default]
    Starting,
    /// Connected.
    Ready,
    /// Not connected; retried at the next call, or after a while.
    Down,
}

/// Status of a server, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name in the config.
    pub name: String,
    /// Connection state.
    pub state: ServerState,
    /// Name and version that the server reports.
    pub server: Option<String>,
    /// Names, on the server's side, of the tools that it offered last.
    pub tools: Vec<String>,
    /// Last error.
    pub error: Option<String>,
    /// Remaining cooldown.
    pub rests: Option<Duration>,
}

impl Keeper {
    pub(super) fn new(setup: ServerSetup, prefix: String, house: House) -> Self {
        Self { setup, prefix, house, seat: Mutex::default(), view: StdMutex::default(), changed: Arc::default() }
    }

    /// Returns its name in the config.
    pub(super) fn name(&self) -> &str {
        &self.setup.name
    }

    /// True if it has this setup and prefix.
    pub(super) fn is_of(&self, setup: &ServerSetup, prefix: &str) -> bool {
        self.setup == *setup && self.prefix == prefix
    }

    /// Stops it permanently.
    pub(super) fn end(&self) {
        self.house.stop.cancel();
    }

    /// True if the first connection attempt has finished, successfully or not.
    pub(super) fn is_tried(&self) -> bool {
        self.view().is_tried
    }

    /// Returns its prefix in tool names.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the tools that it offered last, filtered by the config.
    pub(super) fn offers(&self) -> Vec<Tool> {
        self.view().tools.clone()
    }

    pub(super) fn status(&self, now: Instant) -> ServerStatus {
        let view = self.view();
        ServerStatus {
            name: self.setup.name.clone(),
            state: view.state,
            server: view.server.clone(),
            tools: view.tools.iter().map(|tool| tool.name.to_string()).collect(),
            error: view.error.clone(),
            rests: view.rests_until.and_then(|until| until.checked_duration_since(now)).filter(|rest| !rest.is_zero()),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the tool list current until shutdown.
    pub(super) async fn keep(self: Arc<Self>) {
        let stop = self.house.stop.clone();
        // A server that hangs must not block the shutdown.
        stop.run_until_cancelled(self.keep_listed()).await;
        self.seat.lock().await.link = None;
    }

    async fn keep_listed(&self) {
        let mut is_first = true;
        loop {
            let listed = self.list().await;
            if std::mem::take(&mut is_first) {
                self.view().is_tried = true;
                self.house.tried.send_modify(|tried| *tried += 1);
            }
            match listed {
                Ok(()) => {
                    self.changed.notified().await;
                    sleep(SETTLE).await;
                }
                Err(error) => {
                    tracing::warn!(server = self.name(), %error, "an MCP server has no tools");
                    let rest = self.view().rests_until.unwrap_or_else(Instant::now).max(Instant::now() + SELDOM);
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = sleep_until(rest) => {}
                    }
                }
            }
        }
    }

    /// Requests the server's tool list.
    async fn list(&self) -> Result<(), Error> {
        let (link, _) = self.link().await?;
        let listed = timeout(self.setup.connect, link.list()).await;
        let mut tools = match listed.unwrap_or(Err(Error::Slow(self.setup.connect))) {
            Ok(tools) => tools,
            Err(error) => {
                let error = error.told_by(|text| self.setup.conceal(text));
                let mut seat = self.seat.lock().await;
                seat.link = None;
                self.note(&mut seat, &error);
                return Err(error);
            }
        };
        tools.retain(|tool| self.setup.wants(&tool.name));
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let mut view = self.view();
        if view.tools != tools {
            view.tools = tools;
            drop(view);
            self.house.edition.send_modify(|edition| *edition += 1);
        }
        Ok(())
    }

    /// Calls a tool and connects first if necessary. A call that was lost is not repeated: its outcome is unknown.
    pub(super) async fn call(&self, tool: String, arguments: Option<JsonObject>) -> Result<CallToolResult, Error> {
        let (link, is_new) = self.link().await?;
        if is_new {
            // The server may have been replaced; its tools are listed again.
            self.changed.notify_one();
        }
        let answered = timeout(self.setup.call, link.call(tool, arguments)).await;
        let answered = answered.unwrap_or(Err(Error::Slow(self.setup.call)));
        let answered = answered.map_err(|error| error.told_by(|text| self.setup.conceal(text)));
        let mut seat = self.seat.lock().await;
        match &answered {
            Ok(_) | Err(Error::Refused(_)) => {
                seat.breaker.worked();
                seat.unanswered = 0;
                self.view().rests_until = None;
            }
            Err(Error::Slow(_)) => {
                seat.unanswered += 1;
                if seat.unanswered >= PATIENCE {
                    self.drop_link(&mut seat, &link, answered.as_ref().err());
                }
            }
            Err(Error::Gone(_) | Error::Start(_) | Error::Resting { .. }) => {
                self.drop_link(&mut seat, &link, answered.as_ref().err());
            }
        }
        answered
    }

    /// Closes a connection, unless it was already replaced.
    fn drop_link(&self, seat: &mut Seat, link: &Arc<Link>, why: Option<&Error>) {
        if seat.link.take_if(|held| Arc::ptr_eq(held, link)).is_some() {
            seat.unanswered = 0;
            if let Some(why) = why {
                self.note(seat, why);
            }
        }
    }

    /// Returns the connection, connecting if necessary, and whether it is new.
    async fn link(&self) -> Result<(Arc<Link>, bool), Error> {
        if self.house.stop.is_cancelled() {
            return Err(Error::Start("it is not wanted any more".to_owned()));
        }
        let mut seat = self.seat.lock().await;
        if let Some(closed) = seat.link.take_if(|link| link.is_closed()) {
            self.note(&mut seat, &Error::Gone(closed.last_words()));
        }
        if let Some(link) = &seat.link {
            return Ok((link.clone(), false));
        }
        let now = Instant::now();
        if let Some(until) = seat.breaker.rests_until(now) {
            return Err(Error::Resting { rest: until - now, why: seat.why.clone() });
        }
        let opening = Link::open(&self.setup.reach, &self.house, self.changed.clone());
        let opened = timeout(self.setup.connect, opening).await;
        match opened.unwrap_or(Err(Error::Slow(self.setup.connect))) {
            Ok(link) => {
                let link = Arc::new(link);
                seat.link = Some(link.clone());
                let mut view = self.view();
                let is_back = view.state == ServerState::Down;
                (view.state, view.server, view.error) = (ServerState::Ready, link.server(), None);
                drop(view);
                if is_back {
                    self.house.edition.send_modify(|edition| *edition += 1);
                }
                tracing::info!(server = self.name(), "an MCP server is connected");
                Ok((link, true))
            }
            Err(error) => {
                let error = error.told_by(|text| self.setup.conceal(text));
                self.note(&mut seat, &error);
                Err(error)
            }
        }
    }

    /// Records a failure of the server.
    fn note(&self, seat: &mut Seat, error: &Error) {
        let now = Instant::now();
        seat.breaker.failed(now);
        seat.why = error.to_string();
        let mut view = self.view();
        let is_news = view.state != ServerState::Down;
        (view.state, view.error) = (ServerState::Down, Some(seat.why.clone()));
        view.rests_until = seat.breaker.rests_until(now);
        drop(view);
        if is_news {
            self.house.edition.send_modify(|edition| *edition += 1);
        }
    }
}
