//! Common code of read-only commands: they query the gateway if it runs, else the state directory itself.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use homard_agent::Ambient;
use homard_config::Loaded;
use homard_journal::Journal;
use homard_proto::{SessionKey, session::Record};
use homard_store::Store;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    client::{Client, Reached, Target},
    config::{self, Config},
    failure::Failure,
    paths::Paths,
};

/// Timeout for the gateway's response.
const PATIENCE: Duration = Duration::from_secs(10);

/// The flags of a command that only looks.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Environment of a command: paths, config and gateway.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) paths: Paths,
    pub(super) loaded: Loaded<Config>,
    /// What is wrong with the config file, if anything.
    pub(super) complaint: Option<String>,
    pub(super) target: Target,
}

impl Setup {
    /// Reads the environment and the config. Fails if there is no valid config.
    pub(super) fn find() -> Result<Self> {
        let paths = Paths::find()?;
        let chosen = Config::choose_as_client(&paths)?;
        let complaint = config::complaint(&chosen, &paths.config);
        let loaded = chosen.loaded;
        let target = Target::find(None, None, &loaded, &paths)?;
        Ok(Self { paths, loaded, complaint, target })
    }

    /// Same as `find`, also without a valid config: then [`Setup::loaded`] is the readable part of the file, good only
    /// for locating the gateway, and the second value says why nothing can be run.
    pub(super) fn inspect() -> Result<(Self, Option<String>)> {
        let paths = Paths::find()?;
        let loaded = match Config::inspect(&paths) {
            Ok(_) => return Ok((Self::find()?, None)),
            Err(loaded) => *loaded,
        };
        let unusable = config::unusable(&loaded, &paths.config);
        let target = Target::find(None, None, &loaded, &paths)?;
        Ok((Self { paths, loaded, complaint: None, target }, Some(unusable)))
    }

    /// Calls a read method of the gateway; `None` if no gateway listens.
    pub(super) async fn ask(&self, method: &str) -> Result<Option<Value>> {
        self.ask_with(method, json!({})).await
    }

    /// Calls a read method with parameters; `None` if no gateway listens.
    pub(super) async fn ask_with(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(&["operator.read"], method, params).await
    }

    async fn call(&self, scopes: &[&str], method: &str, params: Value) -> Result<Option<Value>> {
        let Reached::Gateway(mut client) = Client::connect(&self.target, scopes, &[]).await? else {
            return Ok(None);
        };
        let slow = |_| Failure::new("connection", format!("the gateway at {} does not answer", self.target.url));
        Ok(Some(timeout(PATIENCE, client.call(method, params)).await.map_err(slow)??))
    }

    /// Calls a method that changes something; `None` if no gateway listens.
    pub(super) async fn order(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(&["operator.read", "operator.write"], method, params).await
    }

    /// Calls an administrative method; `None` if no gateway listens.
    pub(super) async fn administer(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(&["operator.admin"], method, params).await
    }

    /// Returns the failure of a command that needs the gateway.
    pub(super) fn nobody(&self) -> Failure {
        let url = &self.target.url;
        let way_out = if self.target.is_own { "start one with: homard gateway" } else { "check gateway.remote.url" };
        Failure::new("connection", format!("no gateway answers at {url}\n{way_out}"))
    }

    /// Reads the state directory; `None` if there is none. Fails for a remote gateway, whose state is not on this
    /// machine.
    pub(super) async fn look<T>(&self, read: impl AsyncFnOnce(&Journal) -> Result<T>) -> Result<Option<T>> {
        if !self.target.is_own {
            return Err(self.nobody().into());
        }
        // Reading must not create the directory.
        if !self.paths.state.exists() {
            return Ok(None);
        }
        let opened = Journal::open(&self.paths.state, || Ambient::system().now_ms());
        let journal =
            opened.with_context(|| format!("no gateway answers at {}, and nobody else can look", self.target.url))?;
        let found = read(&journal).await;
        // Without a flush, this would count as a crash.
        journal.flush().await?;
        found.map(Some)
    }

    /// Returns the sessions in the state directory, newest first.
    pub(super) async fn sessions(&self) -> Result<Vec<(SessionKey, Arc<Record>)>> {
        let mut sessions = self.look(async |journal| Ok(journal.list().await?)).await?.unwrap_or_default();
        sessions.sort_by(|(a_key, a), (b_key, b)| b.updated_at.cmp(&a.updated_at).then_with(|| a_key.cmp(b_key)));
        Ok(sessions)
    }
}
