//! `bootstrap-extra-files`: adds further workspace files to prompts, such as the `AGENTS.md` of a project.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Component, Path, PathBuf},
};

use async_trait::async_trait;
use globset::{GlobBuilder, GlobMatcher};
use homard_hooks::{BootstrapFile, HookError, InternalEvent, Listener, ListenerResult};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use super::workspace;

/// Keys of the entry that contain patterns; all of them are used.
const KEYS: [&str; 3] = ["paths", "patterns", "files"];

/// Allowed file names; other files are not meant for prompts.
const NAMES: [&str; 9] = [
    "AGENTS.md",
    "SOUL.md",
    "TOOLS.md",
    "IDENTITY.md",
    "USER.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "MEMORY.md",
    "memory.md",
];

/// File names that are also used for sub-agents.
const FOR_SUBAGENTS: [&str; 2] = ["AGENTS.md", "TOOLS.md"];

/// Maximum number of patterns, of files added, of directories visited, and maximum depth.
const MAX_PATTERNS: usize = 64;
const MAX_FILES: usize = 32;
const MAX_DIRS: usize = 2000;
const MAX_DEPTH: usize = 12;

/// Maximum size of a file. How much of it is used is decided when the prompt is built.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The `bootstrap-extra-files` hook.
pub(super) struct ExtraFiles {
    events: Vec<String>,
    workspace: PathBuf,
    patterns: Vec<FilePattern>,
}

/// A glob pattern for files in the workspace.
#[derive(Debug, Clone)]
struct FilePattern {
    /// Leading directories without wildcards, which contain all matches.
    base: PathBuf,
    matcher: GlobMatcher,
}

impl FilePattern {
    /// Parses a pattern, or returns what is wrong with it.
    fn new(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_start_matches("./");
        let is_inside_workspace =
            Path::new(text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if text.is_empty() || !is_inside_workspace {
            return Err("not a path in the workspace".to_owned());
        }
        let has_no_wildcard = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let parts: Vec<_> = text.split('/').collect();
        let base = parts[..parts.len() - 1].iter().copied().take_while(has_no_wildcard).collect();
        let glob = GlobBuilder::new(text).literal_separator(true).build().map_err(|error| error.kind().to_string())?;
        Ok(Self { base, matcher: glob.compile_matcher() })
    }
}

impl ExtraFiles {
    pub(super) fn new(events: Vec<String>, workspace: PathBuf, config: &Map<String, Value>) -> Self {
        let texts = KEYS.iter().filter_map(|key| config.get(*key)).flat_map(|value| match value {
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
            Value::String(text) => vec![text.as_str()],
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        });
        let read = |text: &str| {
            let log_invalid =
                |reason: &String| tracing::warn!(pattern = text, "invalid pattern in bootstrap-extra-files: {reason}");
            FilePattern::new(text).inspect_err(log_invalid).ok()
        };
        Self { events, workspace, patterns: texts.take(MAX_PATTERNS).filter_map(read).collect() }
    }
}

#[async_trait]
impl Listener for ExtraFiles {
    fn name(&self) -> &'static str {
        super::BundledHook::BootstrapExtraFiles.name()
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let Some(mut files) = event.files().filter(|_| !self.patterns.is_empty()) else {
            return Ok(ListenerResult::default());
        };
        let (folder, patterns) = (workspace(event, &self.workspace), self.patterns.clone());
        let known: BTreeSet<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let is_subagent = event.session_key.contains(":subagent:");
        let join_error = |error: tokio::task::JoinError| HookError::Failed(error.to_string());
        let found = spawn_blocking(move || find(&folder, &patterns, &known)).await.map_err(join_error)?;
        let before = files.len();
        files.extend(found.into_iter().filter(|file| !is_subagent || FOR_SUBAGENTS.contains(&file.name.as_str())));
        Ok(ListenerResult { bootstrap_files: (files.len() > before).then_some(files), ..ListenerResult::default() })
    }
}

/// Finds the matching files that are not known yet. Blocks.
fn find(workspace: &Path, patterns: &[FilePattern], known: &BTreeSet<PathBuf>) -> Vec<BootstrapFile> {
    let Ok(root) = fs::canonicalize(workspace) else { return Vec::new() };
    // Canonical paths, so that two paths to one file count once.
    let mut seen: BTreeSet<PathBuf> = known.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let mut found = Vec::new();
    let mut remaining = MAX_DIRS;
    for pattern in patterns {
        for path in matching_paths(&root, pattern, &mut remaining) {
            let Some(real) = fs::canonicalize(&path).ok().filter(|real| real.starts_with(&root)) else { continue };
            if found.len() < MAX_FILES && seen.insert(real.clone()) {
                found.extend(read(&real, &path));
            }
        }
    }
    found
}

/// Returns the paths that match a pattern, in order.
fn matching_paths(root: &Path, pattern: &FilePattern, remaining: &mut usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut pending = vec![(root.join(&pattern.base), 0)];
    while let Some((folder, depth)) = pending.pop() {
        if *remaining == 0 {
            tracing::warn!(folder = %folder.display(), "bootstrap-extra-files reached its folder limit; the search ends here");
            break;
        }
        *remaining -= 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_hidden = name.as_encoded_bytes().starts_with(b".") || name == "node_modules";
            if is_dir && !is_hidden && depth < MAX_DEPTH {
                pending.push((path, depth + 1));
            } else if NAMES.iter().any(|known| name == *known)
                && path.strip_prefix(root).is_ok_and(|path| pattern.matcher.is_match(path))
            {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
}

fn read(real: &Path, path: &Path) -> Option<BootstrapFile> {
    let name = path.file_name()?.to_str()?.to_owned();
    let meta = fs::metadata(real).ok().filter(|meta| meta.is_file() && meta.len() <= MAX_FILE_BYTES)?;
    let mut bytes = Vec::new();
    fs::File::open(real).ok()?.take(meta.len()).read_to_end(&mut bytes).ok()?;
    let content = String::from_utf8(bytes).ok()?;
    Some(BootstrapFile { name, path: path.to_owned(), content: Some(content), missing: false })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    struct WorkspaceFixture {
        _temp: tempfile::TempDir,
        workspace: PathBuf,
    }

    impl WorkspaceFixture {
        fn new(files: &[&str]) -> Self {
            let temp = tempfile::tempdir().unwrap();
            let workspace = fs::canonicalize(temp.path()).unwrap().join("workspace");
            for file in files {
                let path = workspace.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            Self { _temp: temp, workspace }
        }

        /// Returns the bootstrap files after the hook, as workspace paths; `None` if nothing changes.
        async fn files(&self, config: &Value, session: &str) -> Option<Vec<String>> {
            let config = config.as_object().unwrap();
            let listener = ExtraFiles::new(Vec::new(), self.workspace.clone(), config);
            let file = BootstrapFile {
                name: "AGENTS.md".to_owned(),
                path: self.workspace.join("AGENTS.md"),
                content: Some("mine".to_owned()),
                missing: false,
            };
            let mut event = InternalEvent {
                kind: "agent".to_owned(),
                action: "bootstrap".to_owned(),
                session_key: session.to_owned(),
                context: Map::new(),
                timestamp: 0,
                messages: Vec::new(),
            };
            event.set_files(&[file]);
            let files = listener.handle(&event).await.unwrap().bootstrap_files?;
            let relative =
                |file: &BootstrapFile| file.path.strip_prefix(&self.workspace).unwrap().display().to_string();
            Some(files.iter().map(relative).collect())
        }
    }

    const MAIN: &str = "agent:main:main";

    #[tokio::test]
    async fn files_that_match_a_pattern_are_appended_once() {
        let fixture = WorkspaceFixture::new(&[
            "AGENTS.md",
            "a/AGENTS.md",
            "b/c/AGENTS.md",
            "b/TOOLS.md",
            "b/notes.md",
            "node_modules/x/AGENTS.md",
        ]);
        let config =
            json!({"paths": ["*/AGENTS.md"], "patterns": "b/**/*.md", "files": ["./AGENTS.md", "a/AGENTS.md"]});
        let expected = ["AGENTS.md", "a/AGENTS.md", "b/TOOLS.md", "b/c/AGENTS.md"];
        assert_eq!(fixture.files(&config, MAIN).await.unwrap(), expected);
        let helper = fixture.files(&json!({"files": ["b/TOOLS.md", "b/SOUL.md"]}), "agent:main:subagent:1").await;
        assert_eq!(helper.unwrap(), ["AGENTS.md", "b/TOOLS.md"]);
    }

    #[tokio::test]
    async fn no_file_outside_the_workspace_is_read() {
        let fixture = WorkspaceFixture::new(&["a/AGENTS.md"]);
        let outside_dir = fixture.workspace.parent().unwrap().join("outside");
        fs::create_dir(&outside_dir).unwrap();
        fs::write(outside_dir.join("AGENTS.md"), "secret").unwrap();
        symlink(&outside_dir, fixture.workspace.join("away")).unwrap();
        symlink(outside_dir.join("AGENTS.md"), fixture.workspace.join("a/TOOLS.md")).unwrap();
        for pattern in
            ["../outside/AGENTS.md", "away/AGENTS.md", "**/TOOLS.md", "/etc/AGENTS.md", "", "[", "a/../../outside/*.md"]
        {
            assert_eq!(fixture.files(&json!({"paths": [pattern]}), MAIN).await, None, "{pattern}");
        }
        assert_eq!(fixture.files(&json!({}), MAIN).await, None);
    }

    #[tokio::test]
    async fn binary_and_oversized_files_are_skipped() {
        let fixture = WorkspaceFixture::new(&["a/AGENTS.md", "b/AGENTS.md", "c/SOUL.md"]);
        fs::write(fixture.workspace.join("a/AGENTS.md"), [0xff]).unwrap();
        fs::write(fixture.workspace.join("b/AGENTS.md"), vec![b'x'; 300_000]).unwrap();
        let files = fixture.files(&json!({"paths": ["**/*.md"]}), MAIN).await;
        assert_eq!(files.unwrap(), ["AGENTS.md", "c/SOUL.md"]);
    }
}
