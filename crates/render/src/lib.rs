//! What the command line prints: answers to stdout, remarks to stderr.
//!
//! Colours and streaming are for terminals only. Control characters are removed from the text of models and files. This
//! crate reads neither files nor a gateway: it formats what its callers have found. Start with [`print()`], [`Table`] and
//! [`RunRenderer`]; then [`timeline`], [`skills`], [`hooks`] and [`plugins`], one module per kind of thing.

pub mod channels;
mod count;
pub mod hooks;
mod outages;
pub mod plugins;
mod run_renderer;
pub mod skills;
mod table;
mod text;
mod time;
pub mod timeline;

use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;
use serde_json::Value;

pub use homard_settings::paths::colours_wanted;
pub use homard_stdx::text::{fit as truncate, strip_controls};

pub use count::{count, count_of};
pub use outages::{outage_name, outages};
pub use run_renderer::{RenderOptions, RunRenderer, ToolLines, tool_arguments};
pub use table::Table;
pub use text::{MAX_DESCRIPTION, one_line, shell_quote};
pub use time::{age, duration, duration_ms};

/// Prints a line to stdout. A closed pipe, as in `homard sessions | head`, is not an error.
pub fn print(text: &str) -> io::Result<()> {
    ignore_broken_pipe(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a JSON document to stdout.
pub fn print_json(document: &Value) -> io::Result<()> {
    print(&format!("{document:#}"))
}

/// Prints a table to stdout, fitted to the terminal.
pub fn print_table(table: &Table) -> io::Result<()> {
    print(&table.fit(width()))
}

/// Returns the width of the terminal; `None` if stdout is not a terminal or its width is unknown.
pub fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout))?.ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Prints a remark to stderr. A failure cannot be reported and is ignored.
pub fn remark(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Returns true if stdout is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

fn ignore_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
