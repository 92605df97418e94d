//! Builds the MCP servers of the config. Servers keep running across config reloads unless their own settings change.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::tool::Tool;
use homard_runtime::task;
use homard_settings::{mcp::Mcp, paths};
use homard_tools::mcp::{McpServers, ServerSetup, ServerState, ServerStatus};
use tokio::sync::Notify;

/// The MCP servers of a gateway. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct McpConnections {
    servers: Arc<Mutex<Option<Arc<McpServers>>>>,
    changed: Arc<Notify>,
}

impl McpConnections {
    /// Applies the servers of a config and returns their tools, as far as known, and warnings. Restarts only servers
    /// whose settings changed. Needs a runtime if there are servers.
    pub(crate) fn tools(&self, setups: Vec<ServerSetup>) -> (Vec<Arc<dyn Tool>>, Vec<String>) {
        let mut running = self.servers();
        match &*running {
            Some(servers) => servers.set(setups),
            None if setups.is_empty() => {}
            None => *running = Some(self.start(setups)),
        }
        let Some(servers) = &*running else { return Default::default() };
        (servers.tools(), servers.status().iter().filter_map(down_warning).collect())
    }

    fn start(&self, setups: Vec<ServerSetup>) -> Arc<McpServers> {
        let servers = Arc::new(start(setups));
        let (mut watcher, changed) = (servers.watch(), self.changed.clone());
        // Ends with the servers.
        task::spawn("mcp changes", async move {
            while watcher.changed().await.is_ok() {
                changed.notify_one();
            }
        });
        servers
    }

    /// Returns the status of all servers.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.servers().as_ref().map(|servers| servers.status()).unwrap_or_default()
    }

    /// Waits until the set of tools has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until a connection to every server was attempted, at most for `limit`. Returns true if there are servers.
    pub(crate) async fn settle(&self, limit: Duration) -> bool {
        let Some(servers) = self.servers().clone() else { return false };
        servers.settled(limit).await;
        true
    }

    /// Ends all servers, with the processes that they started.
    pub(crate) async fn close(&self) {
        let running = self.servers().take();
        if let Some(servers) = running {
            servers.close().await;
        }
    }

    fn servers(&self) -> MutexGuard<'_, Option<Arc<McpServers>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a warning if a server is down. Omits the reason: the server's last output may contain a secret.
fn down_warning(status: &ServerStatus) -> Option<String> {
    let name = &status.name;
    let text = || format!("the MCP server {name} is down, so its tools fail; to see why: homard mcp test {name}");
    match status.state {
        ServerState::Down => Some(text()),
        ServerState::Starting | ServerState::Ready => None,
    }
}

/// Starts to connect to servers.
pub fn start(setups: Vec<ServerSetup>) -> McpServers {
    McpServers::new(setups, paths::variables().collect())
}

/// Returns the enabled servers of a config, and warnings about the invalid ones.
pub fn setups(mcp: &Mcp, state: &Path) -> (Vec<ServerSetup>, Vec<String>) {
    let setups = mcp.servers.iter().filter_map(|(name, server)| server.setup(name, state)).collect();
    let enabled = mcp.servers.iter().filter(|(_, server)| server.enabled != Some(false));
    let warnings = enabled.filter_map(|(name, server)| {
        let (key, why) = server.config_error()?;
        Some(format!("the MCP server {name} is disabled: {key} {why}"))
    });
    (setups, warnings.collect())
}
