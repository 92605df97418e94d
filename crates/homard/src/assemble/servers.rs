//! From the config to the MCP servers. They stay from one config to the next, unless that says something else of one.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{task, tool::Tool};
use homard_tools::mcp::{ServerSetup, ServerState, ServerStatus, Servers};
use tokio::sync::Notify;

use crate::{config::mcp::Mcp, paths};

/// The MCP servers of a house. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    held: Arc<Mutex<Option<Arc<Servers>>>>,
    changed: Arc<Notify>,
}

impl Outside {
    /// The tools of the servers of a config, as far as they are known by now, and what is wrong with servers. Only
    /// those are started again of which the config says something else. Needs a runtime if there are servers.
    pub(super) fn tools(&self, setups: Vec<ServerSetup>) -> (Vec<Arc<dyn Tool>>, Vec<String>) {
        let mut held = self.held();
        match &*held {
            Some(servers) => servers.set(setups),
            None if setups.is_empty() => {}
            None => *held = Some(self.start(setups)),
        }
        let Some(servers) = &*held else { return Default::default() };
        (servers.tools(), servers.status().iter().filter_map(down).collect())
    }

    fn start(&self, setups: Vec<ServerSetup>) -> Arc<Servers> {
        let servers = Arc::new(start(setups));
        let (mut news, changed) = (servers.watch(), self.changed.clone());
        // Ends with the servers.
        task::spawn("mcp news", async move {
            while news.changed().await.is_ok() {
                changed.notify_one();
            }
        });
        servers
    }

    /// Waits until there are other tools than before.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until every server was tried, or for so long. Says whether there are servers.
    pub(super) async fn settled(&self, limit: Duration) -> bool {
        let Some(servers) = self.held().clone() else { return false };
        servers.settled(limit).await;
        true
    }

    /// Ends them all, with what they have started.
    pub(super) async fn close(&self) {
        let held = self.held().take();
        if let Some(servers) = held {
            servers.close().await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<Servers>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a server is not there. Not why: what it said before it went may be a secret.
fn down(status: &ServerStatus) -> Option<String> {
    let name = &status.name;
    let text = || format!("the MCP server {name} is not there, so its tools fail; to see why: homard mcp test {name}");
    match status.state {
        ServerState::Down => Some(text()),
        ServerState::Starting | ServerState::Ready => None,
    }
}

/// Starts to connect to servers.
pub(crate) fn start(setups: Vec<ServerSetup>) -> Servers {
    Servers::new(setups, paths::variables().collect())
}

/// The servers that a config wants, and what is wrong with the others.
pub(crate) fn setups(mcp: &Mcp, state: &Path) -> (Vec<ServerSetup>, Vec<String>) {
    let setups = mcp.servers.iter().filter_map(|(name, server)| server.setup(name, state)).collect();
    let wanted = mcp.servers.iter().filter(|(_, server)| server.enabled != Some(false));
    let troubles = wanted.filter_map(|(name, server)| {
        let (key, why) = server.wrong()?;
        Some(format!("the MCP server {name} is left out: {key}: {why}"))
    });
    (setups, troubles.collect())
}
