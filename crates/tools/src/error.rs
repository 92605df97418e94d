//! Errors of tools. The model reads them: each names the thing concerned and, if there is one, a remedy.

use std::{io, path::PathBuf};

use homard_media::FitError;

use crate::file_access::Proposal;

/// Why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the arguments do not fit: {0}")]
    Arguments(#[source] serde_json::Error),
    #[error("path is missing: name the file")]
    NoPath,
    #[error("{path} leads outside the workspace: only what is inside {} can be used", root.display())]
    Outside { path: String, root: PathBuf },
    #[error(
        "{path} is hidden from tools: it may hold credentials, or belongs to Homard's own state; the owner can open a path \
         of the home directory with tools.exec.sandbox.extraRead"
    )]
    Hidden { path: String },
    #[error(
        "{path} makes shells or other programs of the user run code, so tools do not change it: show the user what to \
         change instead"
    )]
    StartFile { path: String },
    #[error(
        "{} belongs to Homard's state directory, where no tool works: use another directory, or an agent's workspace",
        path.display()
    )]
    InStateDirectory { path: PathBuf },
    #[error("{path} runs code or steers agents, so changing it needs the owner's approval: {why}")]
    Protected { path: String, why: String },
    #[error("{} needs the owner's approval", .0.paths)]
    NeedsApproval(Box<Proposal>),
    #[error("{tool} is not a tool that changes files")]
    NotAChange { tool: String },
    #[error("{path} does not exist: use ls to see what does")]
    Missing { path: String },
    #[error("{path} does not exist: did you mean {near}?")]
    MissingNear { path: String, near: String },
    #[error("{path} is a directory: use ls to see what is in it")]
    Directory { path: String },
    #[error("{path} is not a directory, or leads through a file")]
    NotDirectory { path: String },
    #[error("{path} is a device, a pipe or a socket: only regular files can be used")]
    Special { path: String },
    #[error("{path} is a symbolic link, which is not replaced: write to the file that it points to")]
    Link { path: String },
    #[error("{path} is read-only: change its mode first")]
    ReadOnly { path: String },
    #[error("{path} is a binary file: only text and pictures can be read")]
    Binary { path: String },
    #[error("{path} cannot be shown: {source}")]
    Picture { path: String, source: FitError },
    #[error("{path} is larger than {most} MiB: use exec to work on a part of it")]
    TooLarge { path: String, most: u64 },
    #[error("offset {offset} is past the end of {path}, which has {lines} lines")]
    PastEnd { path: String, offset: u64, lines: u64 },
    #[error("cursor {cursor} is past the end of {path}, which has {bytes} bytes")]
    PastCursor { path: String, cursor: u64, bytes: u64 },
    #[error("{path} is not a text in UTF-8: only such files can be edited")]
    NotText { path: String },
    #[error("there is nothing to replace: give oldText and newText, or edits")]
    NoChange,
    #[error("{which} is empty: name what is to be replaced, or use write to create a file")]
    EmptyText { which: String },
    #[error("{which} was not found in {path}: it must be exactly what the file holds, with its white space{hint}")]
    NotFound { path: String, which: String, hint: String },
    #[error("{which} was found {count} times in {path}: add lines around it until it is there once")]
    FoundOften { path: String, which: String, count: usize },
    #[error("{one} and {other} overlap in {path}: make one of them")]
    Overlap { path: String, one: String, other: String },
    #[error("nothing would change in {path}: the new text is the old one")]
    SameText { path: String },
    #[error("{pattern} is not a glob pattern: {why}")]
    BadGlob { pattern: String, why: String },
    #[error("the pattern must fit in one line, and be a regular expression unless literal is set: {why}")]
    BadPattern { why: String },
    #[error("{error}; {changed} files were changed before that")]
    Partly { changed: usize, error: Box<Self> },
    #[error("line {line} of the patch: {what}")]
    Malformed { line: usize, what: String },
    #[error("the patch changes nothing: it needs at least one file")]
    EmptyPatch,
    #[error("{path} exists already: use *** Update File, or another path")]
    Exists { path: String },
    #[error("{path} is the same file as another one of the patch: use one path for it")]
    Twice { path: String },
    #[error("these lines were not found in {path}, or not below the hunk before; nothing was changed:\n{lines}")]
    Unfit { path: String, lines: String },
    #[error("the run was stopped before all was looked through")]
    Interrupted,
    #[error("paths cannot be confined here: openat2 is missing, which Linux has since 5.6")]
    NoOpenat2,
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error(
        "the variable {0} is not passed on: it may change what programs load or run. Set it in the command itself \
         ({0}=value program), or let the owner add it to tools.exec.allowEnv"
    )]
    ForbiddenVariable(String),
    #[error("the variable {0:?} is not passed on: a name has letters, digits and _, and its value is a text")]
    BadVariable(String),
    #[error("timeout must be a number of seconds above 0, not {0}")]
    BadTimeout(f64),
    #[error("commands run on this machine only: leave out host and node")]
    Elsewhere,
    #[error("the run was stopped before the command was started")]
    Stopped,
    #[error("the shell {shell} could not be started: {source}")]
    Start { shell: &'static str, source: io::Error },
    #[error(
        "the command was not run, because nothing can hold it here: {why}. The way out: install bubblewrap (apt-get \
         install bubblewrap), or let the owner choose the sandbox mode full"
    )]
    NoSandbox { why: String },
    #[error("the command was not run, because its sandbox could not be made: {source}")]
    Confine { source: io::Error },
    #[error("{0} commands of this session are at work already: use process to end some")]
    TooMany(usize),
    #[error("sessionId is missing: use the action list to see which there are")]
    NoSession,
    #[error("there is no session {id} here: use the action list to see which there are")]
    UnknownSession { id: String },
    #[error("session {id} is still running: use kill or remove")]
    StillRunning { id: String },
    #[error("session {id} is over: use log to read its output")]
    Over { id: String },
    #[error("session {id} was not told everything: {why}")]
    Untold { id: String, why: String },
    #[error("{text} is not a byte in hexadecimal")]
    BadHex { text: String },
    #[error("there is nothing to send: give keys, hex or literal")]
    NoKeys,
    #[error("there is nothing to paste: give text")]
    NoText,
    #[error(
        "{path} is no memory: that is only MEMORY.md, memory.md and the .md files below memory/; use read for others"
    )]
    NotMemory { path: String },
    #[error("the work broke off: {0}")]
    Thread(#[source] tokio::task::JoinError),
}
