//! The `apply_patch` tool: creates, changes, moves and removes several files in one call.
//!
//! Nothing is changed unless the whole patch applies: it is first evaluated in memory, then all new contents are
//! written to temporary files beside their targets, and only then are files replaced or removed. If one of these last
//! steps fails, the error says how many files were changed.

mod fit;
mod parse;

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Error, FileAccess,
    atomic_file::{AtomicFile, StagedFile},
    error::{ArgumentError, EditError, PathError, StoppedError},
    file_access::{FileCall, FileChange},
    path_guard::PathGuard,
    sandbox::Watches,
    text::TextFile,
};
use fit::UnmatchedHunk;
use parse::{Hunk, PatchOp, PatchSyntaxError, parse};

/// Applies a patch to files.
#[derive(Debug, Clone, Default)]
pub struct ApplyPatch {
    files: FileAccess,
}

#[derive(Deserialize)]
pub(crate) struct Args {
    input: String,
}

impl ApplyPatch {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[async_trait]
impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "apply_patch".to_owned(),
            description:
                "Create, change, move and remove files of the workspace with one patch, all or nothing. It is \
                          written between the lines *** Begin Patch and *** End Patch, with sections *** Add File: \
                          path (every line starts with +), *** Update File: path (perhaps followed by *** Move to: \
                          path; hunks start with @@ or @@ and a line above, their lines with a space, - or +; *** End \
                          of File after the last line of a file) and *** Delete File: path."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["input"],
                "properties": {"input": {"type": "string", "description": "The patch"}},
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.files.change("apply_patch", cx, arguments).await
    }
}

/// Applies the patch in `input`. Blocks.
pub(crate) fn apply_patch(files: &FileAccess, call: &FileCall, Args { input }: Args) -> Result<ToolResult, Error> {
    let steps = parse(&input).map_err(|PatchSyntaxError { line, message }| {
        Error::Argument(ArgumentError::Malformed { line, what: message })
    })?;
    if steps.is_empty() {
        return Err(Error::Argument(ArgumentError::EmptyPatch));
    }
    let mut guard = files.open(&call.workdir)?;
    let mut plan = PatchPlan { call, guard: &guard, files: BTreeMap::new(), summary: PatchSummary::default() };
    for step in steps {
        plan.apply_step(step)?;
    }
    let PatchPlan { files: planned, summary, .. } = plan;
    let changes: Vec<_> = planned.values().filter_map(PlannedFile::change).collect();
    files.permit(&mut guard, "apply_patch", &changes, call)?;
    PatchPlan { call, guard: &guard, files: planned, summary }.execute(&files.watches)
}

/// Planned changes of a patch, keyed by path.
struct PatchPlan<'a> {
    call: &'a FileCall,
    guard: &'a PathGuard,
    files: BTreeMap<PathBuf, PlannedFile>,
    summary: PatchSummary,
}

/// State of one path before and after the patch.
struct PlannedFile {
    path: String,
    existed: bool,
    mode: Option<Mode>,
    identity: Option<(u64, u64)>,
    new_content: NewContent,
}

enum NewContent {
    /// Unchanged.
    Unchanged,
    /// Has this content.
    Text(String),
    /// Does not exist.
    Removed,
}

/// Affected paths, for the tool result's structured details.
#[derive(Default, Serialize)]
struct PatchSummary {
    added: Vec<String>,
    modified: Vec<String>,
    deleted: Vec<String>,
}

impl PlannedFile {
    /// Returns the change to write, if any.
    fn change(&self) -> Option<FileChange<'_>> {
        match &self.new_content {
            NewContent::Text(text) => Some((&self.path, Some(text.as_str()))),
            NewContent::Removed => Some((&self.path, None)),
            NewContent::Unchanged => None,
        }
    }

    fn exists(&self) -> bool {
        match self.new_content {
            NewContent::Unchanged => self.existed,
            NewContent::Text(_) => true,
            NewContent::Removed => false,
        }
    }
}

impl PatchPlan<'_> {
    fn apply_step(&mut self, step: PatchOp) -> Result<(), Error> {
        match step {
            PatchOp::Add { path, content } => {
                self.create(&path, content, None)?;
                note(&mut self.summary.added, path);
            }
            PatchOp::Delete { path } => {
                let file = self.planned_file(&path)?;
                if !file.exists() {
                    return Err(self.missing(path));
                }
                file.new_content = NewContent::Removed;
                note(&mut self.summary.deleted, path);
            }
            PatchOp::Update { path, to, hunks } => {
                let text = self.updated(&path, &hunks)?;
                let file = self.planned_file(&path)?;
                match to.filter(|to| normalize(to) != normalize(&path)) {
                    None => {
                        file.new_content = NewContent::Text(text);
                        note(&mut self.summary.modified, path);
                    }
                    Some(to) => {
                        file.new_content = NewContent::Removed;
                        let mode = file.mode;
                        self.create(&to, text, mode)?;
                        note(&mut self.summary.modified, to);
                    }
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, content: String, mode: Option<Mode>) -> Result<(), Error> {
        let file = self.planned_file(path)?;
        if file.exists() {
            return Err(Error::Path(PathError::Exists { path: path.to_owned() }));
        }
        file.new_content = NewContent::Text(content);
        file.mode = file.mode.or(mode);
        Ok(())
    }

    /// Returns the content of a file after some hunks have been applied to it.
    fn updated(&mut self, path: &str, hunks: &[Hunk]) -> Result<String, Error> {
        let file = self.planned_file(path)?;
        let before = match &mut file.new_content {
            NewContent::Text(text) => std::mem::take(text),
            NewContent::Removed => return Err(self.missing(path.to_owned())),
            NewContent::Unchanged => {
                let TextFile { content, identity } = TextFile::load(self.guard, path, &self.call.cancel)?;
                // The same file under another path would be read in its old state, and one of the two changes would be
                // lost.
                if self.files.values().any(|other| other.identity == Some(identity)) {
                    return Err(Error::Argument(ArgumentError::DuplicateFile { path: path.to_owned() }));
                }
                self.planned_file(path)?.identity = Some(identity);
                content
            }
        };
        fit::apply(&before, hunks)
            .map_err(|UnmatchedHunk(lines)| Error::Edit(EditError::HunkNotFound { path: path.to_owned(), lines }))
    }

    /// Returns the planned state of a path. The path is checked the first time it is named.
    fn planned_file(&mut self, path: &str) -> Result<&mut PlannedFile, Error> {
        let key = normalize(path.strip_prefix(&format!("{}/", self.call.workdir.display())).unwrap_or(path));
        if !self.files.contains_key(&key) {
            let mode = AtomicFile::check(self.guard, path)?;
            let planned = PlannedFile {
                path: path.to_owned(),
                existed: mode.is_some(),
                mode,
                identity: None,
                new_content: NewContent::Unchanged,
            };
            self.files.insert(key.clone(), planned);
        }
        self.files.get_mut(&key).ok_or_else(|| Error::Path(PathError::Missing { path: path.to_owned() }))
    }

    fn missing(&self, path: String) -> Error {
        // The error of opening the path may suggest a similar name.
        self.guard.file(&path).err().unwrap_or(Error::Path(PathError::Missing { path }))
    }

    fn execute(self, watches: &Watches) -> Result<ToolResult, Error> {
        for (key, file) in &self.files {
            let is_text = |above: &Path| {
                self.files.get(above).is_some_and(|above| matches!(above.new_content, NewContent::Text(_)))
            };
            if file.exists() && key.ancestors().skip(1).any(is_text) {
                return Err(Error::Path(PathError::NotDirectory { path: file.path.clone() }));
            }
        }
        if self.call.cancel.is_cancelled() {
            return Err(Error::Stopped(StoppedError::Interrupted));
        }
        let tool_writes = self.files.iter().filter_map(|(path, file)| Some((path.clone(), file.change()?.1)));
        watches.own(&self.call.workdir, &tool_writes.collect::<Vec<_>>(), || self.change())?;
        Ok(self.summary.to_result())
    }

    fn change(&self) -> Result<(), Error> {
        let (mut written, mut removed) = (Vec::new(), Vec::new());
        for file in self.files.values() {
            match &file.new_content {
                NewContent::Text(text) => written.push((AtomicFile::find(self.guard, &file.path)?, text, file.mode)),
                NewContent::Removed if file.existed => removed.push(AtomicFile::find(self.guard, &file.path)?),
                NewContent::Removed | NewContent::Unchanged => {}
            }
        }
        let staged: Result<Vec<_>, Error> =
            written.iter().map(|(target, text, mode)| target.stage(text.as_bytes(), *mode)).collect();
        // Only renames and removals remain from here on; all new content is already on disk.
        let puts = staged?.into_iter().map(StagedFile::commit);
        for (changed, done) in puts.chain(removed.iter().map(AtomicFile::remove)).enumerate() {
            done.map_err(|error| Error::PartlyApplied { changed, error: Box::new(error) })?;
        }
        Ok(())
    }
}

impl PatchSummary {
    fn to_result(&self) -> ToolResult {
        let mut text = "Success. Updated the following files:".to_owned();
        for (status, paths) in [('A', &self.added), ('M', &self.modified), ('D', &self.deleted)] {
            for path in paths {
                text.push_str(&format!("\n{status} {path}"));
            }
        }
        ToolResult::text(text).with_details(json!({"summary": self}))
    }
}

fn note(paths: &mut Vec<String>, path: String) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// Normalizes a path for comparison only; [`PathGuard`] enforces confinement.
fn normalize(path: &str) -> PathBuf {
    Path::new(path).components().filter(|component| *component != Component::CurDir).collect()
}
