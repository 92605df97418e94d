//! Client for the Model Context Protocol (MCP): tools of external servers.
//!
//! A server is a command that communicates over standard input and output, or an HTTP endpoint. It is started in the
//! background, its tools are listed when it is ready, and after it exits it is started again at the next call.
//! Start with `Servers`; `keeper` supervises one server, `link` is one connection to it.

mod answer;
mod breaker;
mod child;
mod keeper;
mod link;
mod names;
mod setup;
mod tool;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_agent::{task, tool::Tool};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    keeper::{House, Keeper},
    tool::McpTool,
};
pub use self::{
    keeper::{ServerState, ServerStatus},
    setup::{Reach, ServerSetup},
};
use crate::variables;

/// The configured servers. They are shut down by [`Servers::close`], or killed when this is dropped.
#[derive(Debug)]
pub struct Servers {
    keepers: Mutex<Vec<Arc<Keeper>>>,
    house: House,
}

impl Servers {
    /// Starts to connect to all servers in the background; requires a runtime. Commands see a part of `env`, such as
    /// PATH and HOME, besides the variables of their setup.
    pub fn new(setups: Vec<ServerSetup>, env: Vec<(String, String)>) -> Self {
        let house = House {
            env: variables::passed(env).into(),
            edition: watch::Sender::new(0),
            tried: watch::Sender::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let servers = Self { keepers: Mutex::default(), house };
        servers.set(setups);
        servers
    }

    /// Applies a new config: unchanged servers are kept, others are stopped, and new ones are started.
    pub fn set(&self, setups: Vec<ServerSetup>) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *keepers);
        let mut taken = BTreeSet::new();
        for setup in setups {
            let prefix = names::prefix(&setup.name, &mut taken);
            let kept = before.iter().position(|keeper| keeper.is_of(&setup, &prefix));
            keepers.push(kept.map_or_else(|| self.start(setup, prefix), |at| before.swap_remove(at)));
        }
        before.iter().for_each(|keeper| keeper.end());
    }

    fn start(&self, setup: ServerSetup, prefix: String) -> Arc<Keeper> {
        let stop = self.house.stop.child_token();
        let keeper = Arc::new(Keeper::new(setup, prefix, House { stop, ..self.house.clone() }));
        // Joined through the tracker in `close`.
        task::spawn("mcp server", self.house.tasks.track_future(keeper.clone().keep()));
        keeper
    }

    fn keepers(&self) -> Vec<Arc<Keeper>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a connection to every server was attempted once, but at most `limit`: a late server adds its tools
    /// later.
    pub async fn settled(&self, limit: Duration) {
        let (mut tried, keepers) = (self.house.tried.subscribe(), self.keepers());
        let are_tried = |_: &u64| keepers.iter().all(|keeper| keeper.is_tried());
        if timeout(limit, tried.wait_for(are_tried)).await.is_err() {
            tracing::warn!(?limit, "some MCP servers are late");
        }
    }

    /// Returns the tools known so far. A call of one restarts its server if necessary.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut taken = BTreeSet::new();
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for keeper in self.keepers() {
            for offer in keeper.offers() {
                let name = names::tool(keeper.prefix(), &offer.name, &mut taken);
                tools.push(Arc::new(McpTool::new(keeper.clone(), name, offer)));
            }
        }
        tools
    }

    /// Returns a counter that changes whenever [`Servers::tools`] changes by itself, and when a server goes down or
    /// comes back.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.house.edition.subscribe()
    }

    /// Returns the status of each server.
    pub fn status(&self) -> Vec<ServerStatus> {
        let now = Instant::now();
        self.keepers().iter().map(|keeper| keeper.status(now)).collect()
    }

    /// Stops all servers with all their child processes, and waits for that.
    pub async fn close(&self) {
        self.house.stop.cancel();
        self.house.tasks.close();
        self.house.tasks.wait().await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.house.stop.cancel();
    }
}
