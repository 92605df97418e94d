//! The `edit` tool: replaces pieces of a text file.

mod locate;

use std::{ops::Range, time::Duration};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use crate::{
    Error, FileAccess,
    atomic_file::AtomicFile,
    either,
    error::{ArgumentError, EditError},
    file_access::FileCall,
    similarity::nearest,
    text::{TextFile, line_break, to_lf},
};
use locate::{NoMatch, TextMatch, locate};

/// Maximum number of lines compared to suggest a similar one.
const MAX_COMPARED_LINES: usize = 20_000;

/// Maximum length of a suggested line, in characters.
const MAX_HINT_CHARS: usize = 200;

/// Time limit for minimizing a diff; after that it is correct, but possibly larger than necessary.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Replaces pieces of a text file.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    files: FileAccess,
}

#[derive(Deserialize)]
pub(crate) struct Args {
    path: Option<String>,
    file_path: Option<String>,
    #[serde(rename = "oldText", alias = "old_string")]
    old: Option<String>,
    #[serde(rename = "newText", alias = "new_string")]
    new: Option<String>,
    #[serde(default)]
    edits: Vec<Replacement>,
}

#[derive(Deserialize)]
struct Replacement {
    #[serde(rename = "oldText")]
    old: String,
    #[serde(rename = "newText")]
    new: String,
}

impl Edit {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> ToolSpec {
        let change = json!({
            "type": "object",
            "required": ["oldText", "newText"],
            "properties": {
                "oldText": {"type": "string", "description": "Text to replace, exactly as in the file"},
                "newText": {"type": "string", "description": "Replacement text"},
            },
        });
        ToolSpec {
            name: "edit".to_owned(),
            description: "Replace pieces of a text file of the workspace. Each oldText must match the file exactly \
                          and occur only once; add surrounding lines until it does. With edits, several pieces are \
                          replaced at once: each is matched against the original file, and they must not overlap."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": [],
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the workspace"},
                    "oldText": {"type": "string", "description": "Text to replace, exactly as in the file"},
                    "newText": {"type": "string", "description": "Replacement text"},
                    "edits": {"type": "array", "items": change, "description": "Several pieces, instead of one"},
                    "file_path": {"type": "string", "description": "Another name for path"},
                    "old_string": {"type": "string", "description": "Another name for oldText"},
                    "new_string": {"type": "string", "description": "Another name for newText"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.files.change("edit", cx, arguments).await
    }
}

/// Applies the edits. Blocks.
pub(crate) fn edit(files: &FileAccess, call: &FileCall, arguments: Args) -> Result<ToolResult, Error> {
    let path = either(arguments.path, arguments.file_path)?;
    let mut changes = arguments.edits;
    match (arguments.old, arguments.new) {
        (Some(old), Some(new)) => changes.push(Replacement { old, new }),
        (None, None) if !changes.is_empty() => {}
        (None | Some(_), None) | (None, Some(_)) => return Err(Error::Argument(ArgumentError::NoChange)),
    }
    let mut guard = files.open(&call.workdir)?;
    // Checked before the file is read: without write access, the caller must not learn whether the text occurs in it.
    AtomicFile::check(&guard, &path)?;
    let before = TextFile::load(&guard, &path, &call.cancel)?.content;
    let pieces = pieces(&path, &before, &changes)?;
    let after = replaced(&before, &pieces);
    if after == before {
        return Err(Error::Edit(EditError::SameText { path }));
    }
    files.permit(&mut guard, "edit", &[(&path, Some(&after))], call)?;
    let tool_writes = [(guard.normalize(&path)?, Some(after.as_str()))];
    files.watches.own(&call.workdir, &tool_writes, || AtomicFile::find(&guard, &path)?.replace(after.as_bytes()))?;
    Ok(format_result(&path, &pieces, &before, &after))
}

/// A range of the file and its replacement.
struct ReplacedRange<'a> {
    location: TextMatch,
    new: &'a str,
    which: String,
}

/// Returns the range of each change, in file order.
fn pieces<'a>(path: &str, content: &str, changes: &'a [Replacement]) -> Result<Vec<ReplacedRange<'a>>, Error> {
    let path = || path.to_owned();
    let mut pieces = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let which = if changes.len() == 1 { "oldText".to_owned() } else { format!("edits[{number}].oldText") };
        if change.old.is_empty() {
            return Err(Error::Argument(ArgumentError::EmptyText { which }));
        }
        match locate(content, &change.old) {
            Ok(location) => pieces.push(ReplacedRange { location, new: &change.new, which }),
            Err(NoMatch::NotFound) => {
                return Err(Error::Edit(EditError::NotFound { path: path(), which, hint: hint(content, &change.old) }));
            }
            Err(NoMatch::Ambiguous(count)) => {
                return Err(Error::Edit(EditError::Ambiguous { path: path(), which, count }));
            }
        }
    }
    pieces.sort_by_key(|piece| piece.location.range.start);
    for pair in pieces.windows(2) {
        if let [first, other] = pair
            && first.location.range.end > other.location.range.start
        {
            return Err(Error::Edit(EditError::Overlap {
                path: path(),
                one: first.which.clone(),
                other: other.which.clone(),
            }));
        }
    }
    Ok(pieces)
}

/// Returns the line of the file that is most similar to the first line of the text that was not found.
fn hint(content: &str, wanted: &str) -> String {
    let Some(first) = wanted.lines().find(|line| !line.trim().is_empty()) else { return String::new() };
    let lines = content.lines().take(MAX_COMPARED_LINES).enumerate().filter(|(_, line)| !line.trim().is_empty());
    match nearest(first, lines.map(NumberedLine)) {
        Some(NumberedLine((number, line))) => {
            let excerpt = homard_stdx::text::beginning(line, MAX_HINT_CHARS);
            format!("; the line most similar to its first line is line {}: {excerpt}", number + 1)
        }
        None => String::new(),
    }
}

struct NumberedLine<'a>((usize, &'a str));

impl AsRef<str> for NumberedLine<'_> {
    fn as_ref(&self) -> &str {
        self.0.1
    }
}

fn replaced(content: &str, pieces: &[ReplacedRange<'_>]) -> String {
    let line_break = line_break(content);
    let mut text = String::with_capacity(content.len());
    let mut from = 0;
    for ReplacedRange { location: TextMatch { range: Range { start, end }, .. }, new, .. } in pieces {
        text.push_str(&content[from..*start]);
        text.push_str(&to_lf(new).replace('\n', line_break));
        from = *end;
    }
    text.push_str(&content[from..]);
    text
}

fn format_result(path: &str, pieces: &[ReplacedRange<'_>], before: &str, after: &str) -> ToolResult {
    let line = 1 + before.split('\n').zip(after.split('\n')).take_while(|(before, after)| before == after).count();
    let mut text = match pieces.len() {
        1 => format!("Edited {path}, from line {line} on"),
        count => format!("Edited {path} at {count} places, from line {line} on"),
    };
    if pieces.iter().any(|piece| piece.location.is_loose) {
        text.push_str(". The match was not exact: trailing white space, quotes, dashes or spaces differ from the file");
    }
    let (before, after) = (to_lf(before), to_lf(after));
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
    let diff = diff.unified_diff().header(path, path).to_string();
    ToolResult::text(text).with_details(json!({"diff": diff, "firstChangedLine": line}))
}
