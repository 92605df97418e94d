//! What the commands that only look have in common: the gateway if it answers, or else the state directory itself.

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

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The flags of a command that only looks.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Where a command looks.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) paths: Paths,
    pub(super) loaded: Loaded<Config>,
    /// What is wrong with the config file, if something is.
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

    /// The same, also without a valid config: then [`Setup::loaded`] is what could be read of the file, which only says
    /// where the gateway may be, and the second value is why nothing may be run.
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

    /// The gateway's answer; `None` when nobody listens there.
    pub(super) async fn ask(&self, method: &str) -> Result<Option<Value>> {
        self.ask_with(method, json!({})).await
    }

    /// The gateway's answer to a question with parameters; `None` when nobody listens there.
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

    /// The gateway's answer to a request that changes something; `None` when nobody listens there.
    pub(super) async fn order(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(&["operator.read", "operator.write"], method, params).await
    }

    /// The gateway's answer to a request that only an administrator may make; `None` when no gateway answers.
    pub(super) async fn administer(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(&["operator.admin"], method, params).await
    }

    /// The failure of a command that needs the gateway.
    pub(super) fn nobody(&self) -> Failure {
        let url = &self.target.url;
        let way_out = if self.target.is_own { "start one with: homard gateway" } else { "check gateway.remote.url" };
        Failure::new("connection", format!("no gateway answers at {url}\n{way_out}"))
    }

    /// Looks into the state directory; `None` if there is none. A gateway elsewhere keeps what it knows there.
    pub(super) async fn look<T>(&self, read: impl AsyncFnOnce(&Journal) -> Result<T>) -> Result<Option<T>> {
        if !self.target.is_own {
            return Err(self.nobody().into());
        }
        // Looking must not make a directory.
        if !self.paths.state.exists() {
            return Ok(None);
        }
        let opened = Journal::open(&self.paths.state, || Ambient::system().now_ms());
        let journal =
            opened.with_context(|| format!("no gateway answers at {}, and nobody else can look", self.target.url))?;
        let found = read(&journal).await;
        // Or having looked would count as a crash.
        journal.flush().await?;
        found.map(Some)
    }

    /// The sessions in the state directory, newest first.
    pub(super) async fn sessions(&self) -> Result<Vec<(SessionKey, Arc<Record>)>> {
        let mut sessions = self.look(async |journal| Ok(journal.list().await?)).await?.unwrap_or_default();
        sessions.sort_by(|(a_key, a), (b_key, b)| b.updated_at.cmp(&a.updated_at).then_with(|| a_key.cmp(b_key)));
        Ok(sessions)
    }
}
