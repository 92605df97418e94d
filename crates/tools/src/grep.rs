//! The `grep` tool: finds lines that match a pattern.

mod format;
mod hits;
mod parallel;

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Error, FileAccess,
    error::{ArgumentError, PathError, StoppedError},
    glob::Glob,
    on_disk,
    walk::TreeWalk,
};
use format::GrepOutput;
use hits::FileSearcher;
use parallel::ParallelSearch;

/// Default number of matches.
const LIMIT: usize = 100;

/// Maximum number of matches.
const MAX_LIMIT: usize = 2000;

/// Maximum number of context lines on each side of a match.
const MAX_CONTEXT: usize = 50;

/// Finds lines by a pattern.
#[derive(Debug, Clone, Default)]
pub struct Grep {
    files: FileAccess,
}

impl Grep {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    context: Option<f64>,
    limit: Option<f64>,
}

/// Pattern and limits of a search.
#[derive(Debug)]
struct GrepSearch {
    matcher: RegexMatcher,
    context: usize,
    limit: usize,
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep".to_owned(),
            description:
                "Search the text files of the workspace for lines that a pattern fits, hidden files included. \
                          What .gitignore names is left out, and so is .git. Returns path:line: text for at most 100 \
                          matches or 50 KiB; long lines are cut to 500 characters."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "properties": {
                    "pattern": {"type": "string", "description": "A regular expression, or a text if literal is set"},
                    "path": {"type": "string", "description": "File or directory; the workspace itself by default"},
                    "glob": {"type": "string", "description": "Only these files, such as *.ts; with ! before, not these"},
                    "ignoreCase": {"type": "boolean", "description": "Whether upper and lower case are the same"},
                    "literal": {"type": "boolean", "description": "Whether the pattern is a text as it is"},
                    "context": {"type": "number", "description": "How many lines to show before and after a match"},
                    "limit": {"type": "number", "description": "How many matches to return at most; 100 by default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let files = self.files.clone();
        on_disk("grep", arguments, move |arguments| grep(&cx, &files, &arguments)).await
    }
}

fn grep(cx: &ToolCx, files: &FileAccess, arguments: &Args) -> Result<ToolResult, Error> {
    let search = GrepSearch {
        matcher: matcher(arguments)?,
        // `as` saturates, so out-of-range values become the nearest limit.
        context: arguments.context.map_or(0, |context| (context as usize).min(MAX_CONTEXT)),
        limit: arguments.limit.map_or(LIMIT, |limit| (limit as usize).clamp(1, MAX_LIMIT)),
    };
    let path = arguments.path.as_deref().unwrap_or(".");
    let (guard, inside) = files.open_for_reading(cx, path)?;
    let mut answer = GrepOutput::new(&search);
    match TreeWalk::new(&guard, &inside, &cx.cancel) {
        Ok(walk) => {
            let filter = FileFilter::parse(arguments.glob.as_deref())?;
            ParallelSearch::new(&search, walk, &filter, &cx.cancel).search(path, &mut answer);
        }
        Err(Error::Path(PathError::NotDirectory { .. })) => {
            let file = guard.file(&inside)?;
            let hits = FileSearcher::new(&search, &cx.cancel).search_file(file);
            if hits.is_binary {
                return Err(Error::Path(PathError::Binary { path: path.to_owned() }));
            }
            answer.add(path, &hits);
        }
        Err(error) => return Err(error),
    }
    if cx.cancel.is_cancelled() {
        return Err(Error::Stopped(StoppedError::Interrupted));
    }
    Ok(answer.into_result())
}

fn matcher(arguments: &Args) -> Result<RegexMatcher, Error> {
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case)
        .fixed_strings(arguments.literal)
        // `^` and `$` match at line boundaries.
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        // `$` also matches before CRLF.
        .crlf(true)
        .build(&arguments.pattern)
        .map_err(|error| Error::Argument(ArgumentError::BadPattern { why: error.to_string() }))
}

/// Which files are searched.
#[derive(Debug)]
enum FileFilter {
    All,
    Only(Glob),
    Not(Glob),
}

impl FileFilter {
    fn parse(glob: Option<&str>) -> Result<Self, Error> {
        Ok(match glob.filter(|glob| !glob.is_empty()) {
            None => Self::All,
            Some(glob) => match glob.strip_prefix('!') {
                Some(glob) => Self::Not(Glob::parse(glob)?),
                None => Self::Only(Glob::parse(glob)?),
            },
        })
    }

    fn allows(&self, path: &std::path::Path) -> bool {
        match self {
            Self::All => true,
            Self::Only(glob) => glob.is_match(path),
            Self::Not(glob) => !glob.is_match(path),
        }
    }
}
