//! `homard sessions export`: a session as Markdown, JSON or HTML.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use homard_transcripts::{html, markdown, plain};

use super::read;
use crate::{cli_error::CliError, cmd::query::CommandContext, render};

/// Arguments of `homard sessions export`.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// Format [default: that of FILE's extension, or md]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// File to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Md,
    Json,
    Html,
}

pub(super) async fn run(args: &Export, is_json: bool) -> Result<()> {
    let format = match args.format {
        Some(format) => format,
        None if is_json => Format::Json,
        None => args.output.as_deref().map_or(Ok(Format::Md), format_of)?,
    };
    let setup = CommandContext::load()?;
    let conversation = read::load(&setup, &args.key, None).await?;
    let text = match format {
        Format::Md => markdown(&conversation),
        Format::Json => format!("{:#}\n", conversation.document()),
        Format::Html => html(&conversation),
    };
    let Some(path) = &args.output else { return Ok(render::print(text.trim_end())?) };
    write(path, &text, args.force)?;
    let count = render::count(conversation.messages.len(), "message");
    render::remark(&plain(&format!("exported {count} of {} to {}", conversation.key, path.display())));
    Ok(())
}

/// Returns the format that the extension of a file names.
fn format_of(path: &Path) -> Result<Format, CliError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("md" | "markdown" | "txt") => Ok(Format::Md),
        Some("json") => Ok(Format::Json),
        Some("html" | "htm") => Ok(Format::Html),
        Some(_) | None => Err(CliError::usage(format!(
            "{} has no known extension; choose a format with --format md, json or html",
            path.display()
        ))),
    }
}

/// Writes a new file that only the user can read.
fn write(path: &Path, text: &str, replaces: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if replaces {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let text = format!("{} exists; choose another file, or replace it with --force", path.display());
            return Err(CliError::usage(text).into());
        }
        opened => opened.with_context(|| format!("cannot write {}", path.display()))?,
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_names_the_format() {
        let format = |path: &str| format_of(Path::new(path)).ok();
        assert_eq!(
            ["a.md", "a.json", "a.html", "a"].map(format),
            [Some(Format::Md), Some(Format::Json), Some(Format::Html), None]
        );
    }
}
