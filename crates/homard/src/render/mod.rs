//! Everything that is printed goes through here: answers to stdout, remarks to stderr.
//!
//! Colours and streaming are for terminals only. Text from a model or a file is stripped of what could drive one.

mod story;
mod table;

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

pub(crate) use story::{Shows, Story};
pub(crate) use table::{age, table};

use crate::paths;

/// Prints a text and a line end to stdout. That nobody reads any more, as in `homard sessions | head`, is no failure.
pub(crate) fn print(text: &str) -> io::Result<()> {
    quiet_if_nobody_reads(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a document to stdout.
pub(crate) fn print_json(document: &Value) -> io::Result<()> {
    print(&format!("{document:#}"))
}

/// Prints a remark to stderr. There is nowhere to complain if that fails.
pub(crate) fn remark(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether the user minds colours.
pub(crate) fn colours_wanted() -> bool {
    paths::env("NO_COLOR").is_none()
}

/// A text without what could drive a terminal: control characters other than line ends and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() || c == '\n' || c == '\t').collect()
}

fn quiet_if_nobody_reads(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
