//! Errors of tools, grouped by what the caller can do. The model reads them: each names the thing concerned and, if
//! there is one, a remedy.

use std::{io, path::PathBuf};

use homard_media::FitError;

use crate::{file_access::ProposedChange, sandbox::InStateDirectory};

/// Why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Refused(#[from] RefusedError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Stopped(#[from] StoppedError),
    #[error("{} needs the owner's approval", .0.paths)]
    NeedsApproval(Box<ProposedChange>),
    #[error("{error}; {changed} files were changed before that")]
    PartlyApplied { changed: usize, error: Box<Self> },
    #[error("internal error: {0}")]
    Thread(#[source] tokio::task::JoinError),
}

/// The arguments are wrong, whatever the files are: the call has to be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("invalid arguments: {0}")]
    Arguments(#[source] serde_json::Error),
    #[error("path is missing: pass the path of the file")]
    NoPath,
    #[error("nothing to replace: provide oldText and newText, or edits")]
    NoChange,
    #[error("{which} is empty: provide the text to replace, or use write to create a file")]
    EmptyText { which: String },
    #[error("{pattern} is not a glob pattern: {why}")]
    BadGlob { pattern: String, why: String },
    #[error("the pattern must be a single line, and a regular expression unless literal is set: {why}")]
    BadPattern { why: String },
    #[error(
        "the variable {0} is not passed on: it may change what programs load or run. Set it in the command itself \
         ({0}=value program), or ask the owner to add it to tools.exec.allowEnv"
    )]
    ForbiddenVariable(String),
    #[error("invalid environment variable {0:?}: names consist of letters, digits and _, and values are strings")]
    BadVariable(String),
    #[error("timeout must be a number of seconds above 0, not {0}")]
    BadTimeout(f64),
    #[error("commands run on this machine only: leave out host and node")]
    UnsupportedHost,
    #[error("sessionId is missing: use the action `list` to see the sessions")]
    NoSession,
    #[error("{text} is not a byte in hexadecimal")]
    BadHex { text: String },
    #[error("nothing to send: provide keys, hex or literal")]
    NoKeys,
    #[error("nothing to paste: provide text")]
    NoText,
    #[error("{tool} is not a tool that changes files")]
    NotAChange { tool: String },
    #[error(
        "{path} is not a memory file: those are MEMORY.md, memory.md and the .md files below memory/; use read for \
         other files"
    )]
    NotMemory { path: String },
    #[error("the patch changes nothing: it needs at least one file")]
    EmptyPatch,
    #[error("line {line} of the patch: {what}")]
    Malformed { line: usize, what: String },
    #[error("{path} is the same file as another path in the patch: use one path for each file")]
    DuplicateFile { path: String },
}

/// The path is out of reach: only the owner can allow it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedError {
    #[error("{path} leads outside the workspace: only paths inside {} can be used", root.display())]
    Outside { path: String, root: PathBuf },
    #[error(
        "{path} is hidden from tools: it may contain credentials, or belongs to Homard's state directory; the owner can allow a path \
         of the home directory with tools.exec.sandbox.extraRead"
    )]
    Hidden { path: String },
    #[error(
        "{path} can make shells or other programs of the user run code, so tools do not change it: show the user what to \
         change instead"
    )]
    StartFile { path: String },
    #[error(transparent)]
    InStateDirectory(#[from] InStateDirectory),
    #[error("{path} runs code or instructs agents, so changing it needs the owner's approval: {why}")]
    Protected { path: String, why: String },
}

/// The path leads to something that the tool cannot use: another path or another tool is needed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("{path} does not exist: use ls to see what does")]
    Missing { path: String },
    #[error("{path} does not exist: did you mean {near}?")]
    MissingWithSuggestion { path: String, near: String },
    #[error("{path} is a directory: use ls to list it")]
    Directory { path: String },
    #[error("{path} is not a directory, or a parent of it is a file")]
    NotDirectory { path: String },
    #[error("{path} is a device, a pipe or a socket: only regular files can be used")]
    Special { path: String },
    #[error("{path} is a symbolic link, which is not replaced: write to the file that it points to")]
    Link { path: String },
    #[error("{path} is read-only: change its mode first")]
    ReadOnly { path: String },
    #[error("{path} is a binary file: only text and images can be read")]
    Binary { path: String },
    #[error("image {path} cannot be sent to the model: {source}")]
    Picture { path: String, source: FitError },
    #[error("{path} is larger than {most} MiB: use exec to work on a part of it")]
    TooLarge { path: String, most: u64 },
    #[error("offset {offset} is past the end of {path}, which has {lines} lines")]
    PastEnd { path: String, offset: u64, lines: u64 },
    #[error("cursor {cursor} is past the end of {path}, which has {bytes} bytes")]
    PastCursor { path: String, cursor: u64, bytes: u64 },
    #[error("{path} is not UTF-8 text: only UTF-8 text files can be edited")]
    NotText { path: String },
    #[error("{path} already exists: use *** Update File, or another path")]
    Exists { path: String },
}

/// The change does not fit the content of the file: the file has to be read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("{which} was not found in {path}: it must match the file exactly, including white space{hint}")]
    NotFound { path: String, which: String, hint: String },
    #[error("{which} was found {count} times in {path}: add surrounding lines until it is unique")]
    Ambiguous { path: String, which: String, count: usize },
    #[error("{one} and {other} overlap in {path}: merge them into one")]
    Overlap { path: String, one: String, other: String },
    #[error("nothing would change in {path}: the new text equals the old text")]
    SameText { path: String },
    #[error("these lines were not found in {path}, or not after the previous hunk; nothing was changed:\n{lines}")]
    HunkNotFound { path: String, lines: String },
}

/// The background command is not in the state that the action needs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("{0} commands of this session are already running: use the tool process to stop some")]
    TooMany(usize),
    #[error("session {id} not found: use the action `list` to see the sessions")]
    UnknownSession { id: String },
    #[error("session {id} is still running: use kill or remove")]
    StillRunning { id: String },
    #[error("session {id} has ended: use log to read its output")]
    AlreadyFinished { id: String },
    #[error("cannot write all input to session {id}: {why}")]
    InputFailed { id: String, why: String },
}

/// The machine cannot do it: the same call may succeed later or elsewhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("paths cannot be confined: this kernel has no openat2, which requires Linux 5.6 or later")]
    NoOpenat2,
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("the shell {shell} could not be started: {source}")]
    Start { shell: &'static str, source: io::Error },
    #[error(
        "the command was not run, because no sandbox is available: {why}. Install bubblewrap (apt-get install \
         bubblewrap), or ask the owner to set tools.exec.sandbox.mode to full"
    )]
    NoSandbox { why: String },
    #[error("the command was not run, because its sandbox could not be created: {source}")]
    Confine { source: io::Error },
}

/// The run was stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoppedError {
    #[error("the run was stopped before the tool finished")]
    Interrupted,
    #[error("the run was stopped before the command was started")]
    Stopped,
}
