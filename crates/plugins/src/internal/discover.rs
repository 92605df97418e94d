//! Discovery of internal hooks, and precedence among hooks with the same name.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use homard_workspace::skills::{ProblemLevel, SkillProblem};
use serde_json::Value;

use super::{
    bundled::BundledHook,
    hook_md::{self, FILE, HookSource, InternalHook, text_of},
};

/// Maximum number of directories examined per location.
const MAX_DIRS: usize = 300;

/// Keys of `package.json` that list hooks, newest first.
const PACKAGE_KEYS: [&str; 3] = ["openclaw", "moltbot", "clawdbot"];

/// Locations of hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookRoots {
    /// `hooks.internal.load.extraDirs`: directories of hooks, or hooks themselves.
    pub extra: Vec<PathBuf>,
    /// `<state>/hooks`.
    pub managed: PathBuf,
    /// `<workspace>/hooks`.
    pub workspace: PathBuf,
}

/// Discovered hooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoveredHooks {
    /// The hooks by name.
    pub hooks: Vec<InternalHook>,
    /// Problems and notes by path.
    pub problems: Vec<SkillProblem>,
}

/// Searches all locations. What cannot be read is skipped and reported. Blocks.
///
/// Of two hooks with the same name the one from the location of higher precedence is used. A workspace cannot reuse a
/// name: otherwise its agent could replace code that the owner has enabled.
pub fn discover(roots: &HookRoots) -> DiscoveredHooks {
    let mut search = HookSearch::default();
    for root in &roots.extra {
        search.search(root, HookSource::Extra);
    }
    for bundled in BundledHook::ALL {
        search.add(bundled.hook());
    }
    search.search(&roots.managed, HookSource::Managed);
    search.search(&roots.workspace, HookSource::Workspace);
    search.problems.sort();
    search.problems.dedup();
    DiscoveredHooks { hooks: search.chosen.into_values().collect(), problems: search.problems }
}

/// Returns the hooks of one directory, which is a hook, a pack of hooks, or contains some.
pub(super) fn within(dir: &Path, source: HookSource) -> DiscoveredHooks {
    let mut search = HookSearch::default();
    search.search(dir, source);
    DiscoveredHooks { hooks: search.chosen.into_values().collect(), problems: search.problems }
}

#[derive(Debug, Default)]
struct HookSearch {
    chosen: BTreeMap<String, InternalHook>,
    problems: Vec<SkillProblem>,
}

impl HookSearch {
    fn search(&mut self, root: &Path, source: HookSource) {
        let real = match fs::canonicalize(root) {
            Ok(real) if real.is_dir() => real,
            Ok(_) => return self.warn(root, "is not a folder, so no hooks are read from it"),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                // The standard locations may be missing; configured ones should exist.
                if source == HookSource::Extra {
                    self.warn(root, "is listed in hooks.internal.load.extraDirs but does not exist");
                }
                return;
            }
            Err(error) => return self.warn(root, format!("cannot be read: {}", error.kind())),
        };
        if self.read_dir_hook(&real, source) {
            return;
        }
        let entries = fs::read_dir(&real).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut folders: Vec<PathBuf> = match entries {
            Ok(entries) => entries.into_iter().map(|entry| entry.path()).filter(|path| is_candidate(path)).collect(),
            Err(error) => return self.warn(root, format!("cannot be read: {}", error.kind())),
        };
        folders.sort();
        if folders.len() > MAX_DIRS {
            folders.truncate(MAX_DIRS);
            self.warn(root, format!("contains more than {MAX_DIRS} folders; the rest is not searched for hooks"));
        }
        for folder in folders {
            if let Some(resolved) = self.inside(&folder, &real) {
                self.read_dir_hook(&resolved, source);
            }
        }
    }

    /// Reads a directory that is a hook or a pack of hooks; returns true if it is one.
    fn read_dir_hook(&mut self, dir: &Path, source: HookSource) -> bool {
        if dir.join(FILE).symlink_metadata().is_ok() {
            self.read(dir, source);
            return true;
        }
        let file = dir.join("package.json");
        if file.symlink_metadata().is_err() {
            return false;
        }
        let listed = match text_of(&file, dir).map(|text| serde_json::from_str::<Value>(&text)) {
            Ok(Ok(package)) => PACKAGE_KEYS.iter().find_map(|key| package.get(key)?.get("hooks").cloned()),
            Ok(Err(error)) => return self.warn_pack(&file, format!("is not JSON: {error}")),
            Err(reason) => return self.warn_pack(&file, reason),
        };
        let Some(listed) = listed else { return false };
        for path in listed.as_array().into_iter().flatten().filter_map(Value::as_str).take(MAX_DIRS) {
            let is_below =
                Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
            if !is_below {
                self.warn(&file, format!("lists the hook {path:?}, which is outside its folder"));
            } else if let Some(resolved) = self.inside(&dir.join(path), dir) {
                self.read(&resolved, source);
            }
        }
        true
    }

    fn read(&mut self, dir: &Path, source: HookSource) {
        match hook_md::read(dir, source) {
            Ok((hook, notes)) => {
                notes.into_iter().for_each(|note| self.warn(&hook.file, note));
                self.add(hook);
            }
            Err(reason) => self.warn(&dir.join(FILE), reason),
        }
    }

    fn add(&mut self, hook: InternalHook) {
        let Some(other) = self.chosen.get(&hook.name) else {
            self.chosen.insert(hook.name.clone(), hook);
            return;
        };
        if other.file == hook.file {
            return;
        }
        let is_rejected = hook.source == HookSource::Workspace && other.source != HookSource::Workspace;
        let (overridden, winner) = if is_rejected { (&hook, other) } else { (other, &hook) };
        let suffix = if is_rejected { "; a workspace hook cannot replace another hook" } else { "" };
        let winner_name = match winner.source {
            HookSource::Bundled => "the bundled hook".to_owned(),
            HookSource::Extra | HookSource::Managed | HookSource::Workspace => winner.file.display().to_string(),
        };
        // Replacing a bundled hook is not reported, since the name was chosen deliberately.
        if overridden.source != HookSource::Bundled {
            let message =
                format!("defines the hook \"{}\", which is overridden by {winner_name}{suffix}", overridden.name);
            let level = if is_rejected { ProblemLevel::Warning } else { ProblemLevel::Info };
            self.problems.push(SkillProblem { path: overridden.file.clone(), message, level });
        }
        if !is_rejected {
            self.chosen.insert(hook.name.clone(), hook);
        }
    }

    /// Returns the canonical path of a directory, unless a link leads outside its location or is broken.
    fn inside(&mut self, folder: &Path, root: &Path) -> Option<PathBuf> {
        match fs::canonicalize(folder) {
            Ok(real) if !real.starts_with(root) => {
                self.warn(
                    folder,
                    format!(
                        "is a link that leads out of {}, so it is not followed; add its target to \
                         hooks.internal.load.extraDirs",
                        root.display()
                    ),
                );
                None
            }
            Ok(real) if real.is_dir() => Some(real),
            Ok(_) => None,
            Err(error) => {
                self.warn(folder, format!("cannot be read: {}", error.kind()));
                None
            }
        }
    }

    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        self.problems.push(SkillProblem {
            path: path.to_owned(),
            message: message.into(),
            level: ProblemLevel::Warning,
        });
    }

    /// Like [`warn`](Self::warn), for a broken pack; returns true.
    fn warn_pack(&mut self, path: &Path, message: String) -> bool {
        self.warn(path, message);
        true
    }
}

/// True if a path may be a hook's directory: plain files and hidden entries never are.
fn is_candidate(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let is_hidden = name.as_encoded_bytes().starts_with(b".") || name == "node_modules";
    !is_hidden && (path.is_dir() || path.is_symlink())
}

#[cfg(test)]
mod tests;
