//! The Node process that runs OpenClaw's plugins and hook handlers: finding Node, writing the host's source, and
//! loading plugins.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{process::Command, task::spawn_blocking, time::timeout};

use crate::{
    Error,
    discover::Candidate,
    door::{Behind, Uncaught},
    fingerprint,
    host::Host,
    link::Link,
    offer::{Offers, ToolOffer},
    plugin::Surroundings,
    process::{Recipe, environment, find},
    register::{Judged, Register},
    supervisor::{Launch, Loaded, Paper, Unwelcome},
};

/// Minimum major version of Node.
const OLDEST: u32 = 22;

/// Timeout for the version query.
const PATIENCE: Duration = Duration::from_secs(5);

/// Heap limit in MiB.
const HEAP_MB: u32 = 1024;

/// Advice if a plugin needs Node and none is found.
const WAY_OUT: &str = "install Node 22 or newer, or set plugins.node in the config to where it is";

mod source;

/// Launcher of the Node process.
pub(crate) struct NodeHost {
    pub(crate) name: String,
    pub(crate) guests: Vec<Judged>,
    /// Path of Node from the config.
    pub(crate) node: Option<PathBuf>,
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) register: Arc<Register>,
    pub(crate) uncaught: Uncaught,
    /// Plugins that hung while being loaded, with the error; they are skipped from then on.
    pub(crate) left_out: Mutex<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Report {
    status: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    registrations: Offers,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    plugin_id: String,
    #[serde(flatten)]
    tool: ToolOffer,
}

impl NodeHost {
    fn left_out(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads one plugin. One that hangs or crashes the process is skipped from then on.
    async fn load(&self, link: &Link, guest: &Judged, within: Duration) -> Result<Result<Offers, String>, Unwelcome> {
        let Candidate { manifest, root, entry, .. } = &*guest.candidate;
        if let Some(why) = self.left_out().get(&manifest.id) {
            return Ok(Err(why.clone()));
        }
        if let Err(why) = guest.may_start().await {
            return Ok(Err(why));
        }
        let candidate = json!({
            "id": manifest.id, "source": entry, "rootDir": root, "pluginConfig": guest.entry.config, "manifest": manifest.raw,
        });
        // Slightly less than our own timeout, so that the host can skip a plugin that only waits.
        let deadline = (within.as_millis() as u64).saturating_sub(500).max(500);
        let params = json!({"candidates": [candidate], "deadlineMs": deadline});
        let paper = Paper::plain(&params).map_err(|error| Unwelcome::Later(error.to_string()))?;
        match link.call("plugins.load", &paper.params, within, None).await {
            Ok(answer) => Ok(read_report(&answer)),
            Err(Error::Failed(why)) => Ok(Err(why)),
            Err(error @ (Error::Gone(_) | Error::Late(_))) => {
                let why = format!("it could not be loaded: {error}");
                self.left_out().insert(manifest.id.clone(), why.clone());
                Err(Unwelcome::Without(format!("{}: {why}", manifest.id)))
            }
        }
    }

    /// Replaces tool factories in the registrations by the tools they create without a particular run.
    async fn make(&self, link: &Link, loaded: &mut Loaded, within: Duration) -> Result<(), Unwelcome> {
        let is_making = |(_, offers): &(String, Result<Offers, String>)| {
            offers.as_ref().is_ok_and(|offers| offers.tools.iter().any(|tool| tool.is_factory))
        };
        if !loaded.iter().any(is_making) {
            return Ok(());
        }
        let later = |error: Error| Unwelcome::Later(format!("its tools could not be made: {error}"));
        let ctx = json!({"ctx": {"agentId": "main", "workspaceDir": self.surroundings.workspace, "sandboxed": false}});
        let paper = Paper::plain(&ctx).map_err(later)?;
        let answer = link.call("tools.materialize", &paper.params, within, None).await.map_err(later)?;
        let made: Vec<Made> =
            answer.get("tools").and_then(|tools| Deserialize::deserialize(tools).ok()).unwrap_or_default();
        for (plugin, offers) in loaded {
            let Ok(offers) = offers else { continue };
            offers.tools.retain(|tool| !tool.is_factory);
            for Made { tool, .. } in made.iter().filter(|made| made.plugin_id == *plugin) {
                if !offers.tools.iter().any(|known| known.name == tool.name) {
                    offers.tools.push(ToolOffer { is_factory: true, reference: Value::Null, ..tool.clone() });
                }
            }
        }
        Ok(())
    }
}

fn read_report(answer: &Value) -> Result<Offers, String> {
    let report = answer.get("plugins").and_then(|plugins| plugins.get(0)).cloned().unwrap_or_default();
    let report: Report = serde_json::from_value(report)
        .map_err(|error| format!("it registered something that cannot be read: {error}"))?;
    if report.status == "loaded" {
        Ok(report.registrations)
    } else {
        Err(report.error.unwrap_or_else(|| "it could not be loaded".to_owned()))
    }
}

#[async_trait]
impl Launch for NodeHost {
    fn behind(&self) -> Behind {
        Behind {
            name: self.name.clone(),
            is_shared: true,
            asks: None,
            host: self.host.clone(),
            uncaught: self.uncaught.clone(),
        }
    }

    async fn recipe(&self) -> Result<Recipe, String> {
        let path = self.surroundings.env.get("PATH").map(String::as_str).unwrap_or_default();
        let node = which(self.node.as_deref(), path).await?;
        let folder = self.surroundings.state.join("plugins");
        let written = spawn_blocking(move || supply(&folder)).await;
        let dir = written
            .map_err(io::Error::other)
            .and_then(|dir| dir)
            .map_err(|error| format!("the source of the Node host cannot be written: {error}"))?;
        let mut env = environment(&self.surroundings.env, std::iter::empty());
        for guest in &self.guests {
            env.extend(guest.entry.env.clone());
        }
        let run = vec![
            node.display().to_string(),
            format!("--max-old-space-size={HEAP_MB}"),
            dir.join("host.mjs").display().to_string(),
        ];
        Ok(Recipe { name: self.name.clone(), run, dir: self.surroundings.state.clone(), env, memory_mb: None })
    }

    async fn greet(&self, link: &Link, within: Duration) -> Result<Loaded, Unwelcome> {
        let later = |error: Error| Unwelcome::Later(format!("the Node host did not start: {error}"));
        let paper = Paper::plain(&self.surroundings.greeting()).map_err(later)?;
        link.call("initialize", &paper.params, within, None).await.map_err(later)?;
        let mut loaded = Vec::new();
        // One after the other, so that a plugin that hangs can be identified.
        for guest in &self.guests {
            loaded.push((guest.id().to_owned(), self.load(link, guest, within).await?));
        }
        self.make(link, &mut loaded, within).await?;
        Ok(loaded)
    }

    fn greeted(&self, loaded: &Loaded) {
        for (plugin, offers) in loaded {
            self.register.hear(plugin, offers.clone());
        }
    }
}

/// Returns the Node executable to use; an error says what to do.
pub async fn which(configured: Option<&Path>, path: &str) -> Result<PathBuf, String> {
    let node = match configured {
        Some(node) => node.to_owned(),
        None => {
            find("node", Path::new("/"), path).map_err(|_none| format!("there is no node on the PATH; {WAY_OUT}"))?
        }
    };
    let shown = node.display();
    let mut command = Command::new(&node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).env_clear().kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{shown} cannot be run: {error}; {WAY_OUT}")),
        Err(_) => return Err(format!("{shown} --version does not end; {WAY_OUT}")),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match major(&said) {
        Some(major) if major >= OLDEST => Ok(node),
        Some(_) => Err(format!("{shown} is Node {said}, which is too old for OpenClaw's plugins; {WAY_OUT}")),
        None => Err(format!("{shown} does not say which Node it is; {WAY_OUT}")),
    }
}

fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Writes the host's source to a directory for Node, and returns its path. An identical existing copy is reused.
fn supply(folder: &Path) -> io::Result<PathBuf> {
    let all = source::FILES.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
    let hash = fingerprint::sum(all);
    let home = folder.join(format!("host-{}", &hash[..16]));
    let is_whole = |home: &Path| {
        source::FILES.iter().all(|(name, text)| fs::read(home.join(name)).is_ok_and(|there| there == text.as_bytes()))
    };
    let is_ours = home.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o077 == 0);
    if is_ours && is_whole(&home) {
        return Ok(home);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = tempfile::Builder::new()
        .prefix("host-new-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(folder)?;
    for (name, text) in source::FILES {
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
    if home.symlink_metadata().is_ok() {
        fs::rename(&home, old.path().join("host"))?;
    }
    match fs::rename(new.path(), &home) {
        Ok(()) => {
            drop(new.keep());
            Ok(home)
        }
        // Another process was faster.
        Err(_) if is_whole(&home) => Ok(home),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
