//! `new`: creates the directory of a skill, a hook or a plugin with files to start from.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{cli_error::CliError, render};

/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// What `new` takes.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct New {
    /// Name: lower-case letters, digits and hyphens
    name: String,
    /// Directory in which the new one is created [default: the current directory]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

impl New {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A file of the new directory.
pub(super) struct NewFile {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) is_program: bool,
}

/// Writes a new file with these permissions.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Creates the directory with its files and says what to do next: `noun install DIRECTORY`.
pub(super) fn create(args: &New, noun: &str, files: &[NewFile], is_json: bool) -> Result<()> {
    let name = &args.name;
    let is_valid = !name.is_empty()
        && name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !is_valid {
        let text = format!(
            "{name} is not a name: use lower-case letters, digits and hyphens, a letter first, at most {MAX_NAME} characters"
        );
        return Err(CliError::usage(render::strip_controls(&text)).into());
    }
    let folder = args.path.as_deref().unwrap_or(Path::new(".")).join(name);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("{} already exists; choose another name", folder.display());
            return Err(CliError::new("exists", text).into());
        }
        created => created.with_context(|| format!("cannot create {}", folder.display()))?,
    }
    for file in files {
        let path = folder.join(file.name);
        let mode = if file.is_program { 0o755 } else { 0o644 };
        write_new(&path, &file.text, mode)?;
    }
    let names: Vec<_> = files.iter().map(|file| file.name).collect();
    if is_json {
        let document = json!({"ok": true, "name": name, "path": folder, "files": names});
        return Ok(render::print_json(&document)?);
    }
    let text = format!(
        "created {} with {}\nedit the files, then install it with: homard {noun} install {}",
        folder.display(),
        names.join(" and "),
        folder.display()
    );
    Ok(render::print(&render::strip_controls(&text))?)
}
