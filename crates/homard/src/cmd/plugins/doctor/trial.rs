//! A plugin started for a moment, in a state directory that is thrown away: what a gateway knows and what plugins keep
//! there stays as it is.

use std::{os::unix::fs::symlink, path::PathBuf, process::Stdio, time::Duration};

use homard_plugins::{Plugins, Settings, Setup, State, which_node};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

use super::super::{Shown, host};

/// How long a plugin may take, with all that it takes to start it.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long Node may take to say which one it is.
const NODE: Duration = Duration::from_secs(5);

/// What came of a start.
pub(super) struct Trial {
    /// How long it took until the plugin was ready.
    pub(super) took: Duration,
    /// What it registered and was let in with.
    pub(super) registered: Vec<String>,
    /// What it registered and was denied, and why.
    pub(super) denied: Vec<String>,
}

/// Starts a plugin and ends it again; an error says why it cannot be started.
pub(super) async fn start(shown: &Shown, id: &str) -> Result<Trial, String> {
    let cannot = |error: std::io::Error| format!("there is no place to try it: {error}");
    let scratch = tempfile::tempdir().map_err(cannot)?;
    // What is installed is found there as it is.
    symlink(shown.setup.state.join("extensions"), scratch.path().join("extensions")).map_err(cannot)?;
    let settings = Settings { allow: vec![id.to_owned()], ..shown.setup.settings.clone() };
    let setup = Setup { settings, state: scratch.path().to_owned(), ..shown.setup.clone() };
    let host = host(&setup);
    let plugins = Plugins::open(setup, &host);
    let begun = Instant::now();
    let is_late = timeout(PATIENCE, plugins.warm()).await.is_err();
    let took = begun.elapsed();
    let status = plugins.status().into_iter().find(|status| status.id == id);
    plugins.close().await;
    let status = status.ok_or("it is not there any more")?;
    match (status.error, status.state) {
        _ if is_late => Err(format!("it is not ready after {} s", PATIENCE.as_secs())),
        (Some(error), _) => Err(error),
        (None, State::Down { why, .. }) => Err(why),
        (None, State::Parked { .. }) => Err("it failed again and again".to_owned()),
        (None, State::Off | State::Starting) => Err("it did not start".to_owned()),
        (None, State::Up { .. }) => {
            Ok(Trial { took, registered: status.registered.unwrap_or_default(), denied: status.denied })
        }
    }
}

/// The Node that runs OpenClaw's plugins: which one, and where. An error says what to do.
pub(in crate::cmd) async fn node(setup: &Setup) -> Result<String, String> {
    let path = setup.env.get("PATH").map(String::as_str).unwrap_or_default();
    let node: PathBuf = which_node(setup.settings.node.as_deref(), path).await?;
    let mut command = Command::new(&node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).env_clear().kill_on_drop(true);
    let said = timeout(NODE, command.output()).await.ok().and_then(Result::ok);
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default();
    Ok(format!("{version} at {}", node.display()))
}
