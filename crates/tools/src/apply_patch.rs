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
    beneath::Beneath,
    file_access::{Call, Change},
    sandbox::Watches,
    target::{Staged, Target},
    text::Text,
};
use fit::Unfit;
use parse::{Hunk, Malformed, Step, parse};

/// Applies a patch to files.
#[derive(Debug, Clone, Default)]
pub struct ApplyPatch {
    files: FileAccess,
}

#[derive(Deserialize)]
pub(crate) struct Arguments {
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
pub(crate) fn apply_patch(
    files: &FileAccess,
    call: &Call,
    Arguments { input }: Arguments,
) -> Result<ToolResult, Error> {
    let steps = parse(&input).map_err(|Malformed { line, what }| Error::Malformed { line, what })?;
    if steps.is_empty() {
        return Err(Error::EmptyPatch);
    }
    let mut beneath = files.open(&call.workdir)?;
    let mut plan = Plan { call, beneath: &beneath, files: BTreeMap::new(), summary: Summary::default() };
    for step in steps {
        plan.take(step)?;
    }
    let Plan { files: planned, summary, .. } = plan;
    let changes: Vec<_> = planned.values().filter_map(Planned::change).collect();
    files.permit(&mut beneath, "apply_patch", &changes, call)?;
    Plan { call, beneath: &beneath, files: planned, summary }.carry_out(&files.watches)
}

/// Planned changes of a patch, keyed by path.
struct Plan<'a> {
    call: &'a Call,
    beneath: &'a Beneath,
    files: BTreeMap<PathBuf, Planned>,
    summary: Summary,
}

/// State of one path before and after the patch.
struct Planned {
    path: String,
    was_there: bool,
    mode: Option<Mode>,
    identity: Option<(u64, u64)>,
    becomes: Becomes,
}

enum Becomes {
    /// Unchanged.
    Same,
    /// Has this content.
    Text(String),
    /// Does not exist.
    Gone,
}

/// Affected paths, for the tool result's structured details.
#[derive(Default, Serialize)]
struct Summary {
    added: Vec<String>,
    modified: Vec<String>,
    deleted: Vec<String>,
}

impl Planned {
    /// Returns the change to write, if any.
    fn change(&self) -> Option<Change<'_>> {
        match &self.becomes {
            Becomes::Text(text) => Some((&self.path, Some(text.as_str()))),
            Becomes::Gone => Some((&self.path, None)),
            Becomes::Same => None,
        }
    }

    fn is_there(&self) -> bool {
        match self.becomes {
            Becomes::Same => self.was_there,
            Becomes::Text(_) => true,
            Becomes::Gone => false,
        }
    }
}

impl Plan<'_> {
    fn take(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Add { path, content } => {
                self.create(&path, content, None)?;
                note(&mut self.summary.added, path);
            }
            Step::Delete { path } => {
                let file = self.look(&path)?;
                if !file.is_there() {
                    return Err(self.missing(path));
                }
                file.becomes = Becomes::Gone;
                note(&mut self.summary.deleted, path);
            }
            Step::Update { path, to, hunks } => {
                let text = self.updated(&path, &hunks)?;
                let file = self.look(&path)?;
                match to.filter(|to| clean(to) != clean(&path)) {
                    None => {
                        file.becomes = Becomes::Text(text);
                        note(&mut self.summary.modified, path);
                    }
                    Some(to) => {
                        file.becomes = Becomes::Gone;
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
        let file = self.look(path)?;
        if file.is_there() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        file.becomes = Becomes::Text(content);
        file.mode = file.mode.or(mode);
        Ok(())
    }

    /// Returns the content of a file after some hunks have been applied to it.
    fn updated(&mut self, path: &str, hunks: &[Hunk]) -> Result<String, Error> {
        let file = self.look(path)?;
        let before = match &mut file.becomes {
            Becomes::Text(text) => std::mem::take(text),
            Becomes::Gone => return Err(self.missing(path.to_owned())),
            Becomes::Same => {
                let Text { content, identity } = Text::load(self.beneath, path, &self.call.cancel)?;
                // The same file under another path would be read in its old state, and one of the two changes would be
                // lost.
                if self.files.values().any(|other| other.identity == Some(identity)) {
                    return Err(Error::Twice { path: path.to_owned() });
                }
                self.look(path)?.identity = Some(identity);
                content
            }
        };
        fit::apply(&before, hunks).map_err(|Unfit(lines)| Error::Unfit { path: path.to_owned(), lines })
    }

    /// Returns the planned state of a path. The path is checked the first time it is named.
    fn look(&mut self, path: &str) -> Result<&mut Planned, Error> {
        let key = clean(path.strip_prefix(&format!("{}/", self.call.workdir.display())).unwrap_or(path));
        if !self.files.contains_key(&key) {
            let mode = Target::check(self.beneath, path)?;
            let planned = Planned {
                path: path.to_owned(),
                was_there: mode.is_some(),
                mode,
                identity: None,
                becomes: Becomes::Same,
            };
            self.files.insert(key.clone(), planned);
        }
        self.files.get_mut(&key).ok_or_else(|| Error::Missing { path: path.to_owned() })
    }

    fn missing(&self, path: String) -> Error {
        // The error of opening the path may suggest a similar name.
        self.beneath.file(&path).err().unwrap_or(Error::Missing { path })
    }

    fn carry_out(self, watches: &Watches) -> Result<ToolResult, Error> {
        for (key, file) in &self.files {
            let is_text =
                |above: &Path| self.files.get(above).is_some_and(|above| matches!(above.becomes, Becomes::Text(_)));
            if file.is_there() && key.ancestors().skip(1).any(is_text) {
                return Err(Error::NotDirectory { path: file.path.clone() });
            }
        }
        if self.call.cancel.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let own = self.files.iter().filter_map(|(path, file)| Some((path.clone(), file.change()?.1)));
        watches.own(&self.call.workdir, &own.collect::<Vec<_>>(), || self.change())?;
        Ok(self.summary.tell())
    }

    fn change(&self) -> Result<(), Error> {
        let (mut written, mut removed) = (Vec::new(), Vec::new());
        for file in self.files.values() {
            match &file.becomes {
                Becomes::Text(text) => written.push((Target::find(self.beneath, &file.path)?, text, file.mode)),
                Becomes::Gone if file.was_there => removed.push(Target::find(self.beneath, &file.path)?),
                Becomes::Gone | Becomes::Same => {}
            }
        }
        let staged: Result<Vec<_>, Error> =
            written.iter().map(|(target, text, mode)| target.stage(text.as_bytes(), *mode)).collect();
        // Only renames and removals remain from here on; all new content is already on disk.
        let puts = staged?.into_iter().map(Staged::put);
        for (changed, done) in puts.chain(removed.iter().map(Target::remove)).enumerate() {
            done.map_err(|error| Error::Partly { changed, error: Box::new(error) })?;
        }
        Ok(())
    }
}

impl Summary {
    fn tell(&self) -> ToolResult {
        let mut text = "Success. Updated the following files:".to_owned();
        for (letter, paths) in [('A', &self.added), ('M', &self.modified), ('D', &self.deleted)] {
            for path in paths {
                text.push_str(&format!("\n{letter} {path}"));
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

/// Normalizes a path for comparison only; [`Beneath`] enforces confinement.
fn clean(path: &str) -> PathBuf {
    Path::new(path).components().filter(|component| *component != Component::CurDir).collect()
}
