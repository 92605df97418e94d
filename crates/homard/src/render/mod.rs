//! All terminal output goes through this module: answers to stdout, remarks to stderr.
//!
//! Colours and streaming are for terminals only. Control characters are removed from the text of models and files.

mod count;
mod run_renderer;
mod table;
mod time;

use std::io::{self, IsTerminal, Write};

use homard_settings::paths;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

pub(crate) use count::{count, count_of};
pub(crate) use run_renderer::{RenderOptions, RunRenderer, ToolLines, tool_arguments};
pub(crate) use table::Table;
pub(crate) use time::{age, duration, duration_ms};

/// Prints a line to stdout. A closed pipe, as in `homard sessions | head`, is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    ignore_broken_pipe(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a JSON document to stdout.
pub(crate) fn print_json(document: &Value) -> io::Result<()> {
    print(&format!("{document:#}"))
}

/// Prints a table to stdout, fitted to the terminal.
pub(crate) fn print_table(table: &Table) -> io::Result<()> {
    print(&table.fit(width()))
}

/// Returns the width of the terminal; `None` if stdout is not a terminal or its width is unknown.
pub(crate) fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout))?.ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
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
pub(crate) fn strip_controls(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() || c == '\n' || c == '\t').collect()
}

fn ignore_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
