//! Supervises one server: connects on demand, lists its tools when it is ready or they change, backs off when it fails.

use std::{sync::Arc, time::Duration};

use homard_stdx::sync::{self, MutexGuard};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use tokio::{
    sync::{Mutex, Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    breaker::ServerBreaker,
    connection::{Error, McpConnection},
    setup::ServerSetup,
};

/// Minimum interval between unsolicited connection attempts to a failing server.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Debounce time after a notification that the tool list has changed, since a server may send many.
const LIST_DEBOUNCE: Duration = Duration::from_millis(250);

/// Number of consecutive unanswered calls after which a server is restarted.
const MAX_UNANSWERED: u32 = 3;

/// State shared by all servers.
#[derive(Debug, Clone)]
pub(super) struct McpShared {
    /// Environment of server commands.
    pub(super) env: Arc<[(String, String)]>,
    /// Incremented when the list of tools changes, and when a server goes down or comes back.
    pub(super) revision: watch::Sender<u64>,
    /// Changes when the first connection attempt to a server has finished.
    pub(super) attempted: watch::Sender<u64>,
    /// Stops everything; each server has its own child token.
    pub(super) stop: CancellationToken,
    /// Tasks to be joined on shutdown.
    pub(super) tasks: TaskTracker,
}

/// Supervisor of a server.
#[derive(Debug)]
pub(super) struct ServerSupervisor {
    setup: ServerSetup,
    prefix: String,
    shared: McpShared,
    /// Held while connecting, so that concurrent callers wait instead of connecting twice.
    connection: Mutex<ServerConnection>,
    /// State that can be read without waiting.
    view: sync::Mutex<ServerView>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ServerConnection {
    link: Option<Arc<McpConnection>>,
    breaker: ServerBreaker,
    /// Consecutive unanswered calls.
    unanswered: u32,
    /// Last error.
    last_error: String,
}

#[derive(Debug, Default)]
struct ServerView {
    state: ServerState,
    was_attempted: bool,
    server: Option<String>,
    tools: Vec<Tool>,
    error: Option<String>,
    cooldown_until: Option<Instant>,
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
    pub cooldown: Option<Duration>,
}

impl ServerSupervisor {
    pub(super) fn new(setup: ServerSetup, prefix: String, shared: McpShared) -> Self {
        Self {
            setup,
            prefix,
            shared,
            connection: Mutex::default(),
            view: sync::Mutex::default(),
            changed: Arc::default(),
        }
    }

    /// Returns its name in the config.
    pub(super) fn name(&self) -> &str {
        &self.setup.name
    }

    /// True if it has this setup and prefix.
    pub(super) fn matches(&self, setup: &ServerSetup, prefix: &str) -> bool {
        self.setup == *setup && self.prefix == prefix
    }

    /// Stops it permanently.
    pub(super) fn end(&self) {
        self.shared.stop.cancel();
    }

    /// True if the first connection attempt has finished, successfully or not.
    pub(super) fn was_attempted(&self) -> bool {
        self.view().was_attempted
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
            cooldown: view
                .cooldown_until
                .and_then(|until| until.checked_duration_since(now))
                .filter(|rest| !rest.is_zero()),
        }
    }

    fn view(&self) -> MutexGuard<'_, ServerView> {
        self.view.lock()
    }

    /// Keeps the tool list current until shutdown.
    pub(super) async fn supervise(self: Arc<Self>) {
        let stop = self.shared.stop.clone();
        // A server that hangs must not block the shutdown.
        stop.run_until_cancelled(self.refresh_tools()).await;
        self.connection.lock().await.link = None;
    }

    async fn refresh_tools(&self) {
        let mut is_first = true;
        loop {
            let listed = self.list().await;
            if std::mem::take(&mut is_first) {
                self.view().was_attempted = true;
                self.shared.attempted.send_modify(|count| *count += 1);
            }
            match listed {
                Ok(()) => {
                    self.changed.notified().await;
                    sleep(LIST_DEBOUNCE).await;
                }
                Err(error) => {
                    tracing::warn!(server = self.name(), %error, "failed to list the tools of an MCP server");
                    let retry_at = self
                        .view()
                        .cooldown_until
                        .unwrap_or_else(Instant::now)
                        .max(Instant::now() + MIN_RETRY_INTERVAL);
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = sleep_until(retry_at) => {}
                    }
                }
            }
        }
    }

    /// Requests the server's tool list.
    async fn list(&self) -> Result<(), Error> {
        let (link, _) = self.link().await?;
        let listed = timeout(self.setup.connect_timeout, link.list()).await;
        let mut tools = match listed.unwrap_or(Err(Error::Timeout(self.setup.connect_timeout))) {
            Ok(tools) => tools,
            Err(error) => {
                let error = error.map_text(|text| self.setup.redact(text));
                let mut connection = self.connection.lock().await;
                connection.link = None;
                self.record_failure(&mut connection, &error);
                return Err(error);
            }
        };
        tools.retain(|tool| self.setup.wants(&tool.name));
        tools.sort_by(|tool_a, tool_b| tool_a.name.cmp(&tool_b.name));
        let mut view = self.view();
        if view.tools != tools {
            view.tools = tools;
            drop(view);
            self.shared.revision.send_modify(|edition| *edition += 1);
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
        let response = timeout(self.setup.call_timeout, link.call(tool, arguments)).await;
        let response = response.unwrap_or(Err(Error::Timeout(self.setup.call_timeout)));
        let response = response.map_err(|error| error.map_text(|text| self.setup.redact(text)));
        let mut connection = self.connection.lock().await;
        match &response {
            Ok(_) | Err(Error::Rejected(_)) => {
                connection.breaker.record_success();
                connection.unanswered = 0;
                self.view().cooldown_until = None;
            }
            Err(Error::Timeout(_)) => {
                connection.unanswered += 1;
                if connection.unanswered >= MAX_UNANSWERED {
                    self.drop_link(&mut connection, &link, response.as_ref().err());
                }
            }
            Err(Error::Disconnected(_) | Error::Start(_) | Error::Cooldown { .. }) => {
                self.drop_link(&mut connection, &link, response.as_ref().err());
            }
        }
        response
    }

    /// Closes a connection, unless it was already replaced.
    fn drop_link(&self, connection: &mut ServerConnection, link: &Arc<McpConnection>, reason: Option<&Error>) {
        if connection.link.take_if(|current| Arc::ptr_eq(current, link)).is_some() {
            connection.unanswered = 0;
            if let Some(reason) = reason {
                self.record_failure(connection, reason);
            }
        }
    }

    /// Returns the connection, connecting if necessary, and whether it is new.
    async fn link(&self) -> Result<(Arc<McpConnection>, bool), Error> {
        if self.shared.stop.is_cancelled() {
            return Err(Error::Start("the server was removed, or the gateway is stopping".to_owned()));
        }
        let mut connection = self.connection.lock().await;
        if let Some(closed) = connection.link.take_if(|link| link.is_closed()) {
            self.record_failure(&mut connection, &Error::Disconnected(closed.close_reason()));
        }
        if let Some(link) = &connection.link {
            return Ok((link.clone(), false));
        }
        let now = Instant::now();
        if let Some(until) = connection.breaker.cooldown_until(now) {
            return Err(Error::Cooldown { rest: until - now, why: connection.last_error.clone() });
        }
        let opening = McpConnection::open(&self.setup.transport, &self.shared, self.changed.clone());
        let opened = timeout(self.setup.connect_timeout, opening).await;
        match opened.unwrap_or(Err(Error::Timeout(self.setup.connect_timeout))) {
            Ok(link) => {
                let link = Arc::new(link);
                connection.link = Some(link.clone());
                let mut view = self.view();
                let is_back = view.state == ServerState::Down;
                (view.state, view.server, view.error) = (ServerState::Ready, link.server(), None);
                drop(view);
                if is_back {
                    self.shared.revision.send_modify(|edition| *edition += 1);
                }
                tracing::info!(server = self.name(), "connected to an MCP server");
                Ok((link, true))
            }
            Err(error) => {
                let error = error.map_text(|text| self.setup.redact(text));
                self.record_failure(&mut connection, &error);
                Err(error)
            }
        }
    }

    /// Records a failure of the server.
    fn record_failure(&self, connection: &mut ServerConnection, error: &Error) {
        let now = Instant::now();
        connection.breaker.record_failure(now);
        connection.last_error = error.to_string();
        let mut view = self.view();
        let is_new_outage = view.state != ServerState::Down;
        (view.state, view.error) = (ServerState::Down, Some(connection.last_error.clone()));
        view.cooldown_until = connection.breaker.cooldown_until(now);
        drop(view);
        if is_new_outage {
            self.shared.revision.send_modify(|edition| *edition += 1);
        }
    }
}
