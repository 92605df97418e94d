//! From the config to the MCP servers. They stay from one config to the next, unless it says something else of them.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{task, tool::Tool};
use homard_tools::mcp::{ServerSetup, Servers};
use tokio::sync::Notify;

use crate::{config::mcp::Mcp, paths};

/// The MCP servers of a house. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    held: Arc<Mutex<Held>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Held {
    setups: Vec<ServerSetup>,
    servers: Option<Arc<Servers>>,
}

impl Outside {
    /// The tools of the servers of a config, as far as they are known by now. Needs a runtime if there are servers.
    pub(super) fn tools(&self, setups: Vec<ServerSetup>) -> Vec<Arc<dyn Tool>> {
        let mut held = self.held();
        if held.setups != setups {
            // Those that were there end when nobody holds them.
            held.servers = (!setups.is_empty()).then(|| self.start(setups.clone()));
            held.setups = setups;
        }
        held.servers.as_ref().map(|servers| servers.tools()).unwrap_or_default()
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
        let Some(servers) = self.held().servers.clone() else { return false };
        servers.settled(limit).await;
        true
    }

    /// Ends them all, with what they have started.
    pub(super) async fn close(&self) {
        let held = std::mem::take(&mut *self.held());
        if let Some(servers) = held.servers {
            servers.close().await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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
