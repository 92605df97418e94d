//! Starts a plugin briefly in a temporary state directory, so that the state of the gateway and of plugins is not
//! changed.

use std::{os::unix::fs::symlink, path::PathBuf, process::Stdio, time::Duration};

use homard_app::plugins::{PluginList, offline_host};
use homard_plugins::{PluginSetup, PluginStatus, Plugins, ProcessState, Settings, which_node};
use homard_render::duration;
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

/// Timeout for a plugin's start, with everything that belongs to it.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for `node --version`.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a start.
#[derive(Debug)]
pub(super) struct StartTrial {
    /// Time until the plugin was ready, if it was measured.
    pub(super) took: Option<Duration>,
    /// Accepted registrations.
    pub(super) registered: Vec<String>,
    /// Denied registrations, and why.
    pub(super) denied: Vec<String>,
}

/// Starts and stops a plugin; an error says why it cannot be started.
pub(super) async fn start(list: &PluginList, id: &str) -> Result<StartTrial, String> {
    let prepare_error = |error: std::io::Error| format!("cannot prepare a temporary directory: {error}");
    let scratch = tempfile::tempdir().map_err(prepare_error)?;
    // Installed plugins are found there through a symlink.
    symlink(list.setup.state.join("extensions"), scratch.path().join("extensions")).map_err(prepare_error)?;
    let settings = Settings { allow: vec![id.to_owned()], ..list.setup.settings.clone() };
    let setup = PluginSetup { settings, state: scratch.path().to_owned(), ..list.setup.clone() };
    let host = offline_host(&setup);
    let plugins = Plugins::open(setup, &host);
    let started_at = Instant::now();
    let is_late = timeout(START_TIMEOUT, plugins.start_all()).await.is_err();
    let took = started_at.elapsed();
    let status = plugins.status().into_iter().find(|status| status.id == id);
    plugins.close().await;
    let status = status.ok_or("the plugin was removed during the check")?;
    if is_late {
        return Err(format!("not ready after {}", duration(START_TIMEOUT)));
    }
    let started = result(status)?.ok_or("it did not start")?;
    Ok(StartTrial { took: Some(took), ..started })
}

/// Returns the result of a plugin's start; `None` if it was not started yet, or is starting.
pub(super) fn result(status: PluginStatus) -> Result<Option<StartTrial>, String> {
    match (status.error, status.state) {
        (Some(error), _) => Err(error),
        (None, ProcessState::Down { why, .. }) => Err(why),
        (None, ProcessState::CircuitOpen { .. }) => Err("it failed repeatedly".to_owned()),
        (None, ProcessState::Off | ProcessState::Starting) => Ok(None),
        (None, ProcessState::Up { .. }) => {
            let registered = status.registered.unwrap_or_default();
            Ok(Some(StartTrial { took: None, registered, denied: status.denied }))
        }
    }
}

/// Returns version and path of the Node that runs OpenClaw plugins. An error says what to do.
pub async fn node(setup: &PluginSetup) -> Result<String, String> {
    let path = setup.env.get("PATH").map(String::as_str).unwrap_or_default();
    let node: PathBuf = which_node(setup.settings.node.as_deref(), path).await?;
    let mut command = Command::new(&node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).env_clear().kill_on_drop(true);
    let output = timeout(NODE_TIMEOUT, command.output()).await.ok().and_then(Result::ok);
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    Ok(format!("{version} at {}", node.display()))
}
