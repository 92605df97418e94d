//! Client for the Model Context Protocol (MCP): tools of external servers.
//!
//! A server is a command that communicates over standard input and output, or an HTTP endpoint. It is started in the
//! background, its tools are listed when it is ready, and after it exits it is started again at the next call.
//! Start with `McpServers`; `supervisor` supervises one server, `connection` is one connection to it.

mod breaker;
mod connection;
mod names;
mod result;
mod server_process;
mod setup;
mod supervisor;
mod tool;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use homard_agent::tool::Tool;
use homard_runtime::task;
use homard_stdx::sync::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    supervisor::{McpShared, ServerSupervisor},
    tool::McpTool,
};
use crate::variables;

pub use self::{
    setup::{ServerSetup, ServerTransport},
    supervisor::{ServerState, ServerStatus},
};

/// The configured servers. They are shut down by [`McpServers::close`], or killed when this is dropped.
#[derive(Debug)]
pub struct McpServers {
    supervisors: Mutex<Vec<Arc<ServerSupervisor>>>,
    shared: McpShared,
}

impl McpServers {
    /// Starts to connect to all servers in the background; requires a runtime. Commands see a part of `env`, such as
    /// PATH and HOME, besides the variables of their setup.
    pub fn new(setups: Vec<ServerSetup>, env: Vec<(String, String)>) -> Self {
        let shared = McpShared {
            env: variables::filter_environment(env).into(),
            revision: watch::Sender::new(0),
            attempted: watch::Sender::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let servers = Self { supervisors: Mutex::default(), shared };
        servers.set(setups);
        servers
    }

    /// Applies a new config: unchanged servers are kept, others are stopped, and new ones are started.
    pub fn set(&self, setups: Vec<ServerSetup>) {
        let mut supervisors = self.supervisors.lock();
        let mut previous = std::mem::take(&mut *supervisors);
        let mut used_prefixes = BTreeSet::new();
        for setup in setups {
            let prefix = names::prefix(&setup.name, &mut used_prefixes);
            let existing = previous.iter().position(|supervisor| supervisor.matches(&setup, &prefix));
            supervisors.push(existing.map_or_else(|| self.start(setup, prefix), |index| previous.swap_remove(index)));
        }
        previous.iter().for_each(|supervisor| supervisor.end());
    }

    fn start(&self, setup: ServerSetup, prefix: String) -> Arc<ServerSupervisor> {
        let stop = self.shared.stop.child_token();
        let supervisor = Arc::new(ServerSupervisor::new(setup, prefix, McpShared { stop, ..self.shared.clone() }));
        // Joined through the tracker in `close`.
        task::spawn("mcp server", self.shared.tasks.track_future(supervisor.clone().supervise()));
        supervisor
    }

    fn supervisors(&self) -> Vec<Arc<ServerSupervisor>> {
        self.supervisors.lock().clone()
    }

    /// Waits until a connection to every server was attempted once, but at most `limit`: a late server adds its tools
    /// later.
    pub async fn settled(&self, limit: Duration) {
        let (mut attempted, supervisors) = (self.shared.attempted.subscribe(), self.supervisors());
        let all_attempted = |_: &u64| supervisors.iter().all(|supervisor| supervisor.was_attempted());
        if timeout(limit, attempted.wait_for(all_attempted)).await.is_err() {
            tracing::warn!(?limit, "some MCP servers have not connected yet");
        }
    }

    /// Returns the tools known so far. A call of one restarts its server if necessary.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut used_names = BTreeSet::new();
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for supervisor in self.supervisors() {
            for offer in supervisor.offers() {
                let name = names::tool(supervisor.prefix(), &offer.name, &mut used_names);
                tools.push(Arc::new(McpTool::new(supervisor.clone(), name, offer)));
            }
        }
        tools
    }

    /// Returns a counter that changes whenever [`McpServers::tools`] changes by itself, and when a server goes down or
    /// comes back.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Returns the status of each server.
    pub fn status(&self) -> Vec<ServerStatus> {
        let now = Instant::now();
        self.supervisors().iter().map(|supervisor| supervisor.status(now)).collect()
    }

    /// Stops all servers with all their child processes, and waits for that.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
