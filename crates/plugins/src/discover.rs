//! Plugin discovery: the directories searched, their order, and the checks on file locations.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::manifest::{self, FILE_NAMES, MAX_MANIFEST_BYTES, Manifest, ManifestError};

/// Maximum number of directory entries examined.
const MAX_ENTRIES: usize = 1000;

/// File extensions of scripts that are plugins by themselves.
const SCRIPT_EXTENSIONS: [&str; 6] = ["ts", "js", "mts", "cts", "mjs", "cjs"];

/// Default entry files of a plugin directory.
const INDEX_FILES: [&str; 4] = ["index.ts", "index.js", "index.mjs", "index.cjs"];

/// Keys of `package.json` that list plugin files, newest first.
const PACKAGE_KEYS: [&str; 3] = ["openclaw", "moltbot", "clawdbot"];

/// Plugin directories of a workspace.
const WORKSPACE_DIRS: [&str; 3] = [".homard/extensions", ".openclaw/extensions", ".clawdbot/extensions"];

/// Where plugins are searched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginRoots {
    /// Paths from the config: files, plugins, or directories of plugins.
    pub paths: Vec<PathBuf>,
    /// Workspaces of the agents.
    pub workspaces: Vec<PathBuf>,
    /// State directory.
    pub state: PathBuf,
    /// True if a workspace plugin may replace an installed one.
    pub trusts_workspaces: bool,
}

/// Where a plugin was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginOrigin {
    /// At a path named in the config.
    Config,
    /// In an agent's workspace.
    Workspace,
    /// In the state directory.
    State,
}

/// A discovered plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredPlugin {
    /// Its manifest.
    pub manifest: Manifest,
    /// Where it was found.
    pub origin: PluginOrigin,
    /// Its canonical directory.
    pub root: PathBuf,
    /// Entry file for Node; `None` for a plugin with its own command.
    pub entry: Option<PathBuf>,
}

/// Discovered plugins, the first of each id, and problems with the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiscoveredPlugins {
    /// The plugins in the order of discovery, which is also the order in which they are called.
    pub candidates: Vec<DiscoveredPlugin>,
    /// Messages for the owner; each is a sentence that begins with a path.
    pub problems: Vec<String>,
}

/// Searches all locations.
pub fn discover(roots: &PluginRoots) -> DiscoveredPlugins {
    let mut found = DiscoveredPlugins::default();
    let mut by_id = BTreeMap::new();
    for (origin, location) in locations(roots) {
        for candidate in search(&location, origin, &mut found.problems) {
            let (id, root) = (candidate.manifest.id.clone(), candidate.root.clone());
            match by_id.get(&id) {
                None => {
                    by_id.insert(id, root);
                    found.candidates.push(candidate);
                }
                // The same location may be named twice.
                Some(first) if *first == root => {}
                Some(first) => {
                    let (root, first) = (root.display(), first.display());
                    found.problems.push(format!(
                        "{root} is not used: {first} also contains the plugin {id} and takes precedence"
                    ));
                }
            }
        }
    }
    found
}

/// Returns the locations in order of precedence. A location that an agent can write to cannot replace what the owner
/// has installed, unless the owner allows it.
fn locations(roots: &PluginRoots) -> Vec<(PluginOrigin, PathBuf)> {
    let mut all: Vec<_> = roots.paths.iter().map(|path| (PluginOrigin::Config, path.clone())).collect();
    let in_workspaces: Vec<_> = roots
        .workspaces
        .iter()
        .flat_map(|workspace| WORKSPACE_DIRS.map(|folder| (PluginOrigin::Workspace, workspace.join(folder))))
        .collect();
    let in_state = (PluginOrigin::State, roots.state.join("extensions"));
    if roots.trusts_workspaces {
        all.extend(in_workspaces);
        all.push(in_state);
    } else {
        all.push(in_state);
        all.extend(in_workspaces);
    }
    all
}

/// Returns the plugins of a location: itself, or its entries.
fn search(location: &Path, origin: PluginOrigin, problems: &mut Vec<String>) -> Vec<DiscoveredPlugin> {
    let Ok(meta) = fs::metadata(location) else {
        if origin == PluginOrigin::Config {
            problems.push(format!("{} is listed in plugins.load.paths but does not exist", location.display()));
        }
        return Vec::new();
    };
    let is_plugin = FILE_NAMES.iter().any(|name| location.join(name).exists());
    let paths = if meta.is_dir() && !(origin == PluginOrigin::Config && is_plugin) {
        let mut paths: Vec<PathBuf> = fs::read_dir(location)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| is_candidate(path))
            .take(MAX_ENTRIES)
            .collect();
        paths.sort();
        paths
    } else {
        vec![location.to_owned()]
    };
    let mut candidates = Vec::new();
    for candidate_path in paths {
        match read(&candidate_path, origin, problems) {
            Ok(candidate) => candidates.push(candidate),
            Err(problem) => problems.push(problem),
        }
    }
    candidates
}

fn is_candidate(path: &Path) -> bool {
    let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && (path.is_dir() || is_script(path))
}

fn is_script(path: &Path) -> bool {
    let is_script_extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| SCRIPT_EXTENSIONS.contains(&extension));
    is_script_extension && !path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".d.ts"))
}

/// Reads a plugin: a directory, or a script with a manifest beside it. An error is a complete sentence.
fn read(path: &Path, origin: PluginOrigin, problems: &mut Vec<String>) -> Result<DiscoveredPlugin, String> {
    let displayed_path = path.display();
    let script = (!path.is_dir()).then(|| path.to_owned());
    let folder = if script.is_some() { path.parent().unwrap_or(path) } else { path };
    let root = folder.canonicalize().map_err(|error| format!("{displayed_path} cannot be read: {}", error.kind()))?;
    if origin != PluginOrigin::Config && fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink()) {
        return Err(format!(
            "{displayed_path} is not used: it is a symbolic link; add {} to plugins.load.paths",
            root.display()
        ));
    }
    trusted(&root, &root).map_err(|reason| format!("{} is not used: {reason}", root.display()))?;
    let (file, name) = FILE_NAMES
        .iter()
        .map(|name| (root.join(name), *name))
        .find(|(file, _)| file.symlink_metadata().is_ok())
        .ok_or_else(|| format!("{displayed_path} is not used: it has no {} or {}", FILE_NAMES[0], FILE_NAMES[1]))?;
    let text = text(&file, &root).map_err(|reason| format!("{} {reason}", file.display()))?;
    let manifest = manifest::read(name, &text).map_err(|reason| format!("{} {reason}", file.display()))?;
    let entry = match (&manifest.run, script) {
        (Some(run), _) => {
            // Files in the directory that the command executes are checked like all executed files.
            for part in run.iter().map(|part| root.join(part)).filter(|part| part.starts_with(&root) && part.is_file())
            {
                trusted(&part, &root).map_err(|reason| format!("{} is not used: {reason}", part.display()))?;
            }
            None
        }
        (None, script) => {
            let entry = script
                .map_or_else(|| entry(&root, problems), Ok)
                .map_err(|reason| format!("{displayed_path} is not used: {reason}"))?;
            Some(trusted(&entry, &root).map_err(|reason| format!("{} is not used: {reason}", entry.display()))?)
        }
    };
    Ok(DiscoveredPlugin { manifest, origin, root, entry })
}

/// Returns the entry file of a directory.
fn entry(root: &Path, problems: &mut Vec<String>) -> Result<PathBuf, String> {
    let package = root.join("package.json");
    let package: Value = match text(&package, root) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("its package.json is not JSON: {error}"))?,
        Err(_) if !package.exists() => Value::Null,
        Err(reason) => return Err(format!("its package.json {reason}")),
    };
    let listed = PACKAGE_KEYS.iter().find_map(|key| package.get(key)?.get("extensions")?.as_array());
    let listed: Vec<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
    if listed.len() > 1 {
        problems.push(format!(
            "{} lists several plugin files; only the first is used",
            root.join("package.json").display()
        ));
    }
    if let Some(first) = listed.first() {
        return Ok(root.join(first.trim_start_matches("./")));
    }
    let index = INDEX_FILES.iter().map(|name| root.join(name)).find(|file| file.is_file());
    index.ok_or_else(|| "it has no index.ts or index.js, and package.json names no \"openclaw.extensions\"".to_owned())
}

/// Reads a file of a plugin.
fn text(file: &Path, root: &Path) -> Result<String, ManifestError> {
    let real = trusted(file, root).map_err(|reason| format!("is not used: {reason}"))?;
    let mut text = String::new();
    let read = fs::File::open(real).and_then(|file| file.take(MAX_MANIFEST_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot be read: {}", error.kind()))?;
    if text.len() as u64 > MAX_MANIFEST_BYTES {
        Err(format!("is larger than {MAX_MANIFEST_BYTES} bytes"))
    } else {
        Ok(text)
    }
}

/// Returns the canonical path if it stays within the plugin and no other user can modify it.
fn trusted(path: &Path, root: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|error| format!("it cannot be read: {}", error.kind()))?;
    if !real.starts_with(root) {
        return Err("it is a link that leads out of the plugin's folder".to_owned());
    }
    let meta = real.metadata().map_err(|error| format!("it cannot be read: {}", error.kind()))?;
    if meta.is_file() && meta.nlink() > 1 {
        return Err("it is a hard link, so it can be changed from elsewhere; copy it instead".to_owned());
    }
    if !meta.is_file() && !meta.is_dir() {
        return Err("it is neither a file nor a folder".to_owned());
    }
    owned(&meta)?;
    Ok(real)
}

/// Fails if a user other than us and root owns the file, or if every user can write to it.
fn owned(meta: &Metadata) -> Result<(), String> {
    if meta.mode() & 0o002 != 0 {
        return Err("it is world-writable; fix it with chmod o-w".to_owned());
    }
    let our_uid = rustix::process::geteuid().as_raw();
    if meta.uid() != our_uid && meta.uid() != 0 {
        return Err(format!("it belongs to another user (uid {})", meta.uid()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
