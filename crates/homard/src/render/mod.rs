//! All terminal output goes through this module: answers to stdout, remarks to stderr.
//!
//! Colours and streaming are for terminals only. Control characters are removed from the text of models and files.

mod story;
mod table;

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

pub(crate) use story::{Shows, Story};
pub(crate) use table::{age, table};

use crate::paths;

/// Prints a line to stdout. A closed pipe, as in `homard sessions | head`, is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    quiet_if_nobody_reads(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a JSON document to stdout.
pub(crate) fn print_json(document: &Value) -> io::Result<()> {
    print(&format!("{document:#}"))
}

/// Prints a remark to stderr. A failure cannot be reported and is ignored.
pub(crate) fn remark(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Returns true if stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns true if colours are not disabled by `NO_COLOR`.
pub(crate) fn colours_wanted() -> bool {
    paths::env("NO_COLOR").is_none()
}

/// Removes control characters other than line ends and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() || c == '\n' || c == '\t').collect()
}

fn quiet_if_nobody_reads(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
