//! Bootstrap files: the workspace files that are part of every prompt, their order, and their limits.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_stdx::sync::Mutex;
use tracing::warn;

use crate::{
    LoadGate, LoadRule, LoadRules, PageBody, PromptPage,
    file::{self, FileState, WorkspaceFile},
    text::FileText,
};

/// Files that every workspace has; a prompt mentions it if one is missing.
pub(crate) const STANDARD: [&str; 6] = ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"];

/// Guide for the first conversation. The agent deletes it afterwards, so prompts do not report it as missing. OpenClaw
/// 2026.2.9 did; newer versions do not.
pub(crate) const BOOTSTRAP_GUIDE: &str = "BOOTSTRAP.md";

/// The agent's memory file, in either spelling. On a case-insensitive file system they are one file.
const MEMORY: [&str; 2] = ["MEMORY.md", "memory.md"];

/// Minimum space for a file in characters; with less, it is only mentioned.
const MIN_SHARE: usize = 200;

/// Maximum number of files in a reader's cache.
const MAX_CACHED: usize = 256;

/// For whom a prompt is built; decides which bootstrap files it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// An agent that may read its workspace: all bootstrap files.
    Main,
    /// A sub-agent: only the files about its work, AGENTS.md and TOOLS.md.
    Subagent,
    /// An agent that talks to a non-owner: only the files about its behaviour. All others are about the owner.
    NonOwner,
}

impl Audience {
    /// Returns the names of its bootstrap files, in the order of the prompt.
    fn names(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Main => &[&STANDARD, &[BOOTSTRAP_GUIDE], &MEMORY],
            Self::Subagent => &[&["AGENTS.md", "TOOLS.md"]],
            Self::NonOwner => &[&["AGENTS.md", "SOUL.md", "IDENTITY.md"]],
        }
    }

    /// True if a hook may add a file of this name to the prompt of this audience.
    pub fn admits(self, name: &str) -> bool {
        match self {
            Self::Main | Self::Subagent => true,
            Self::NonOwner => self.names().iter().any(|names| names.contains(&name)),
        }
    }
}

/// Maximum number of characters of the files in a prompt. Truncation notes are added on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootstrapLimits {
    /// Characters per file.
    pub per_file: usize,
    /// Characters of all files together; earlier files in the order take precedence.
    pub total: usize,
}

impl Default for BootstrapLimits {
    fn default() -> Self {
        Self { per_file: 20_000, total: 60_000 }
    }
}

/// Reads bootstrap files, and caches the text of each until the file changes.
#[derive(Debug, Default)]
pub struct BootstrapReader {
    cache: Mutex<HashMap<PathBuf, CachedFile>>,
    /// Decides which files may be read while commands run; `None` allows all.
    gate: Option<Arc<dyn LoadGate>>,
}

#[derive(Debug)]
struct CachedFile {
    state: FileState,
    limit: usize,
    text: Arc<FileText>,
}

impl BootstrapReader {
    /// Creates a reader that reads only what a gate allows.
    pub fn with_gate(gate: Arc<dyn LoadGate>) -> Self {
        Self { gate: Some(gate), ..Self::default() }
    }

    /// Returns the current load rule of a path. It may change at any time; [`with_rules`](Self::with_rules) keeps the
    /// rules fixed while files are read.
    pub fn rule(&self, path: &Path) -> LoadRule {
        self.with_rules(|rule| rule(path)).unwrap_or(LoadRule::Nothing)
    }

    /// Returns the bootstrap files for a prompt, in order. Never fails: a problem with a file becomes its page. Blank
    /// files are omitted, and so are those that a running command may have created.
    pub fn pages(&self, dir: &Path, audience: Audience, limits: &BootstrapLimits) -> Vec<PromptPage> {
        self.with_rules(|rule| self.allowed_pages(dir, audience, limits, rule)).unwrap_or_default()
    }

    /// Calls `load` with a function that returns the load rule of a path. The gate keeps the rules fixed until `load`
    /// returns; without a gate, every file may be read. Returns `None` if the gate did not call `load`.
    pub fn with_rules<T>(&self, mut load: impl FnMut(&LoadRules<'_>) -> T) -> Option<T> {
        let Some(gate) = &self.gate else { return Some(load(&|_| LoadRule::File)) };
        let mut loaded = None;
        gate.hold(&mut |rule| loaded = Some(load(rule)));
        loaded
    }

    fn allowed_pages(
        &self,
        dir: &Path,
        audience: Audience,
        limits: &BootstrapLimits,
        rule: &LoadRules<'_>,
    ) -> Vec<PromptPage> {
        let mut seen = HashSet::new();
        let mut remaining = limits.total;
        let mut pages = Vec::new();
        let root = file::root(dir);
        for name in audience.names().iter().copied().flatten().copied() {
            let path = dir.join(name);
            let allowed = rule(&path);
            if let LoadRule::Text(text) = &allowed {
                let text = FileText::new(text.trim_end(), limits.per_file);
                if text.char_count() > 0 {
                    let body = share(&text, name, limits.per_file, &mut remaining);
                    pages.push(PromptPage { name: name.into(), path, body, chars: text.char_count() });
                }
                continue;
            }
            let found = match &root {
                Ok(Some(root)) => find(root, name, &allowed),
                Ok(None) => Ok(None),
                Err(why) => Err(why.clone()),
            };
            let is_duplicate = matches!(&found, Ok(Some(file)) if !seen.insert(file.state.identity));
            let (body, chars) = match found {
                Ok(_) if is_duplicate && MEMORY.contains(&name) => continue,
                Ok(Some(file)) => match self.read(&file, &path, limits.per_file) {
                    Ok(text) if text.char_count() == 0 => continue,
                    Ok(text) => (share(&text, name, limits.per_file, &mut remaining), text.char_count()),
                    Err(why) => (unusable(&path, why), 0),
                },
                Ok(None) if STANDARD.contains(&name) => (PageBody::Missing, 0),
                Ok(None) => continue,
                Err(why) => (unusable(&path, why), 0),
            };
            pages.push(PromptPage { name: name.into(), path, body, chars });
        }
        pages
    }

    /// Returns a workspace file, truncated to `limit`; `None` if it does not exist, an error if it cannot be used.
    pub fn file(&self, dir: &Path, name: &'static str, limit: usize) -> Result<Option<String>, String> {
        self.with_rules(|rule| self.allowed_file(dir, name, limit, &rule(&dir.join(name)))).unwrap_or(Ok(None))
    }

    /// Reads a file as far as the load rule `allowed` permits, and truncates it to `limit`.
    fn allowed_file(
        &self,
        dir: &Path,
        name: &'static str,
        limit: usize,
        allowed: &LoadRule,
    ) -> Result<Option<String>, String> {
        let text = if let LoadRule::Text(text) = allowed {
            Arc::new(FileText::new(text.trim_end(), limit))
        } else {
            let Some(root) = file::root(dir)? else { return Ok(None) };
            let Some(file) = find(&root, name, allowed)? else { return Ok(None) };
            self.read(&file, &dir.join(name), limit)?
        };
        match text.fit(name, limit).0 {
            PageBody::Whole(text) | PageBody::Cut(text) => Ok(Some(text)),
            PageBody::Missing | PageBody::Unusable(_) => Ok(None),
        }
    }

    /// Returns the text of a file, from the cache if neither the file nor the limit has changed.
    fn read(&self, file: &WorkspaceFile, path: &Path, limit: usize) -> Result<Arc<FileText>, String> {
        let cache = || self.cache.lock();
        if let Some(cached) = cache().get(path)
            && (cached.state, cached.limit) == (file.state, limit)
        {
            return Ok(cached.text.clone());
        }
        let (state, text) = file::read(file, limit)?;
        if text.char_count() > limit {
            warn!(path = %path.display(), chars = text.char_count(), limit, "workspace file cut for the prompt");
        }
        let text = Arc::new(text);
        let mut cache = cache();
        // Rare, because the maximum exceeds the number of files in use. Removed entries are just read again.
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(path.to_owned(), CachedFile { state, limit, text: text.clone() });
        Ok(text)
    }
}

/// Finds the file that may be loaded for a name.
fn find(root: &Path, name: &str, allowed: &LoadRule) -> Result<Option<WorkspaceFile>, String> {
    match allowed {
        LoadRule::File => file::find(root, name),
        LoadRule::Target(target) => file::find(root, target),
        LoadRule::Text(_) | LoadRule::Nothing => Ok(None),
    }
}

/// Fits a file into the remaining space of the prompt and reduces that space. If too little is left, the file is only
/// mentioned.
fn share(text: &FileText, name: &str, per_file: usize, remaining: &mut usize) -> PageBody {
    let wanted = text.char_count().min(per_file);
    if *remaining < wanted && *remaining < MIN_SHARE {
        return text.note(name);
    }
    let (body, used) = text.fit(name, per_file.min(*remaining));
    *remaining -= used;
    body
}

/// Builds the page of an additional text for a prompt. It gets no more space than a file would.
pub fn page(name: String, path: PathBuf, content: Option<&str>, limits: &BootstrapLimits) -> PromptPage {
    let Some(content) = content else {
        return PromptPage { name: name.into(), path, body: PageBody::Missing, chars: 0 };
    };
    let text = FileText::new(content, limits.per_file);
    let (body, chars) = (text.fit(&name, limits.per_file).0, text.char_count());
    PromptPage { name: name.into(), path, body, chars }
}

/// Logs why a workspace file cannot be used, and returns the content of its page.
fn unusable(path: &Path, why: String) -> PageBody {
    warn!(path = %path.display(), why, "workspace file left out of the prompt");
    PageBody::Unusable(why)
}
