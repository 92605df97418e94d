//! The Node process that runs OpenClaw's plugins and hook handlers: finding Node, writing the host's source, and
//! loading plugins.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use homard_stdx::sync::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{process::Command, task::spawn_blocking, time::timeout};

use crate::{
    Error,
    discover::DiscoveredPlugin,
    fingerprint,
    host::Host,
    host_api::{ProcessInfo, UncaughtErrors},
    plugin::PluginEnvironment,
    process::{ProcessSpec, environment, find},
    registrations::{Registrations, ToolRegistration},
    registry::{EnabledPlugin, PluginRegistry},
    rpc_session::RpcSession,
    supervisor::{CallParams, InitError, Launcher, LoadedPlugins},
};

/// Minimum major version of Node.
const MIN_VERSION: u32 = 22;

/// Timeout for the version query.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Heap limit in MiB.
const HEAP_MB: u32 = 1024;

/// Advice if a plugin needs Node and none is found.
const ADVICE: &str = "install Node 22 or newer, or set plugins.node in the config to its path";

mod source;

/// Launcher of the Node process.
pub(crate) struct NodeHost {
    pub(crate) name: String,
    pub(crate) plugins: Vec<EnabledPlugin>,
    /// Path of Node from the config.
    pub(crate) node: Option<PathBuf>,
    pub(crate) environment: Arc<PluginEnvironment>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) register: Arc<PluginRegistry>,
    pub(crate) uncaught: UncaughtErrors,
    /// Plugins that hung while being loaded, with the error; they are skipped from then on.
    pub(crate) skipped: Mutex<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct LoadReport {
    status: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    registrations: Registrations,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MaterialisedTool {
    plugin_id: String,
    #[serde(flatten)]
    tool: ToolRegistration,
}

impl NodeHost {
    fn lock_skipped(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.skipped.lock()
    }

    /// Loads one plugin. One that hangs or crashes the process is skipped from then on.
    async fn load(
        &self,
        session: &RpcSession,
        plugin: &EnabledPlugin,
        time_limit: Duration,
    ) -> Result<Result<Registrations, String>, InitError> {
        let DiscoveredPlugin { manifest, root, entry, .. } = &*plugin.candidate;
        if let Some(reason) = self.lock_skipped().get(&manifest.id) {
            return Ok(Err(reason.clone()));
        }
        if let Err(reason) = plugin.check_start().await {
            return Ok(Err(reason));
        }
        let candidate = json!({
            "id": manifest.id, "source": entry, "rootDir": root, "pluginConfig": plugin.entry.config, "manifest": manifest.raw,
        });
        // Slightly less than our own timeout, so that the host can skip a plugin that only waits.
        let deadline = (time_limit.as_millis() as u64).saturating_sub(500).max(500);
        let params = json!({"candidates": [candidate], "deadlineMs": deadline});
        let call = CallParams::plain(&params).map_err(|error| InitError::Retry(error.to_string()))?;
        match session.call("plugins.load", &call.params, time_limit, None).await {
            Ok(answer) => Ok(read_report(&answer)),
            Err(Error::Failed(reason)) => Ok(Err(reason)),
            Err(error @ (Error::Unavailable(_) | Error::Timeout(_))) => {
                let reason = format!("failed to load: {error}");
                self.lock_skipped().insert(manifest.id.clone(), reason.clone());
                Err(InitError::SkipPlugin(format!("{}: {reason}", manifest.id)))
            }
        }
    }

    /// Replaces tool factories in the registrations by the tools they create without a particular run.
    async fn materialise_tools(
        &self,
        session: &RpcSession,
        loaded: &mut LoadedPlugins,
        time_limit: Duration,
    ) -> Result<(), InitError> {
        let has_factory = |(_, registrations): &(String, Result<Registrations, String>)| {
            registrations.as_ref().is_ok_and(|registrations| registrations.tools.iter().any(|tool| tool.is_factory))
        };
        if !loaded.iter().any(has_factory) {
            return Ok(());
        }
        let later = |error: Error| InitError::Retry(format!("failed to create the tools: {error}"));
        let ctx = json!({"ctx": {"agentId": "main", "workspaceDir": self.environment.workspace, "sandboxed": false}});
        let call = CallParams::plain(&ctx).map_err(later)?;
        let answer = session.call("tools.materialize", &call.params, time_limit, None).await.map_err(later)?;
        let created: Vec<MaterialisedTool> =
            answer.get("tools").and_then(|tools| Deserialize::deserialize(tools).ok()).unwrap_or_default();
        for (plugin, registrations) in loaded {
            let Ok(registrations) = registrations else { continue };
            registrations.tools.retain(|tool| !tool.is_factory);
            for MaterialisedTool { tool, .. } in created.iter().filter(|created| created.plugin_id == *plugin) {
                if !registrations.tools.iter().any(|known| known.name == tool.name) {
                    registrations.tools.push(ToolRegistration {
                        is_factory: true,
                        handle: Value::Null,
                        ..tool.clone()
                    });
                }
            }
        }
        Ok(())
    }
}

fn read_report(answer: &Value) -> Result<Registrations, String> {
    let report = answer.get("plugins").and_then(|plugins| plugins.get(0)).cloned().unwrap_or_default();
    let report: LoadReport =
        serde_json::from_value(report).map_err(|error| format!("invalid registrations: {error}"))?;
    if report.status == "loaded" {
        Ok(report.registrations)
    } else {
        Err(report.error.unwrap_or_else(|| "failed to load".to_owned()))
    }
}

#[async_trait]
impl Launcher for NodeHost {
    fn process_info(&self) -> ProcessInfo {
        ProcessInfo {
            name: self.name.clone(),
            is_shared: true,
            allowed_methods: None,
            host: self.host.clone(),
            uncaught: self.uncaught.clone(),
        }
    }

    async fn process_spec(&self) -> Result<ProcessSpec, String> {
        let path = self.environment.env.get("PATH").map(String::as_str).unwrap_or_default();
        let node = find_node(self.node.as_deref(), path).await?;
        let folder = self.environment.state.join("plugins");
        let written = spawn_blocking(move || write_source(&folder)).await;
        let dir = written
            .map_err(io::Error::other)
            .and_then(|dir| dir)
            .map_err(|error| format!("failed to write the source of the Node host: {error}"))?;
        let mut env = environment(&self.environment.env, std::iter::empty());
        for plugin in &self.plugins {
            env.extend(plugin.entry.env.clone());
        }
        let run = vec![
            node.display().to_string(),
            format!("--max-old-space-size={HEAP_MB}"),
            dir.join("host.mjs").display().to_string(),
        ];
        Ok(ProcessSpec { name: self.name.clone(), run, dir: self.environment.state.clone(), env, memory_mb: None })
    }

    async fn initialise(&self, session: &RpcSession, time_limit: Duration) -> Result<LoadedPlugins, InitError> {
        let later = |error: Error| InitError::Retry(format!("the Node host did not start: {error}"));
        let call = CallParams::plain(&self.environment.init_params()).map_err(later)?;
        session.call("initialize", &call.params, time_limit, None).await.map_err(later)?;
        let mut loaded = Vec::new();
        // One after the other, so that a plugin that hangs can be identified.
        for plugin in &self.plugins {
            loaded.push((plugin.id().to_owned(), self.load(session, plugin, time_limit).await?));
        }
        self.materialise_tools(session, &mut loaded, time_limit).await?;
        Ok(loaded)
    }

    fn initialised(&self, loaded: &LoadedPlugins) {
        for (plugin, registrations) in loaded {
            self.register.update(plugin, registrations.clone());
        }
    }
}

/// Returns the Node executable to use; an error says what to do.
pub async fn find_node(configured: Option<&Path>, path: &str) -> Result<PathBuf, String> {
    let node = match configured {
        Some(node) => node.to_owned(),
        None => {
            find("node", Path::new("/"), path).map_err(|_none| format!("node was not found on the PATH; {ADVICE}"))?
        }
    };
    let displayed_path = node.display();
    let mut command = Command::new(&node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).env_clear().kill_on_drop(true);
    let output = match timeout(VERSION_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{displayed_path} cannot be run: {error}; {ADVICE}")),
        Err(_) => return Err(format!("{displayed_path} --version timed out; {ADVICE}")),
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match major(&version) {
        Some(major) if major >= MIN_VERSION => Ok(node),
        Some(_) => {
            Err(format!("{displayed_path} is Node {version}, which is too old for OpenClaw's plugins; {ADVICE}"))
        }
        None => Err(format!("{displayed_path} --version did not print a Node version; {ADVICE}")),
    }
}

fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Scripts that other Node hosts need, too: the protocol, the log, and the protection of the process.
pub fn shared_scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    const SHARED: [&str; 7] =
        ["guard.mjs", "http.mjs", "lines.mjs", "log.mjs", "owner.mjs", "request-limiter.mjs", "rpc.mjs"];
    source::FILES.iter().copied().filter(|(name, _)| SHARED.contains(name))
}

/// Writes the host's source to a directory for Node, and returns its path.
fn write_source(folder: &Path) -> io::Result<PathBuf> {
    write_scripts(folder, source::FILES)
}

/// Writes scripts to a directory for Node below a folder, and returns its path. An identical existing copy is reused.
pub fn write_scripts(folder: &Path, files: &[(&str, &str)]) -> io::Result<PathBuf> {
    let all = files.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
    let hash = fingerprint::digest(all);
    let target = folder.join(format!("host-{}", &hash[..16]));
    let is_complete = |target: &Path| {
        files.iter().all(|(name, text)| fs::read(target.join(name)).is_ok_and(|existing| existing == text.as_bytes()))
    };
    let is_ours = target.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o077 == 0);
    if is_ours && is_complete(&target) {
        return Ok(target);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = tempfile::Builder::new()
        .prefix("host-new-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(folder)?;
    for (name, text) in files {
        let file = new.path().join(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(file.parent().unwrap_or(new.path()))?;
        let mut written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        io::Write::write_all(&mut written, text.as_bytes())?;
    }
    // The existing copy is broken and is removed.
    let old = tempfile::Builder::new()
        .prefix("host-old-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(folder)?;
    if target.symlink_metadata().is_ok() {
        fs::rename(&target, old.path().join("host"))?;
    }
    match fs::rename(new.path(), &target) {
        Ok(()) => {
            drop(new.keep());
            Ok(target)
        }
        // Another process was faster.
        Err(_) if is_complete(&target) => Ok(target),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
