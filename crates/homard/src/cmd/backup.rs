//! `homard backup` and `homard restore`: a copy of the state directory, also of one that a gateway uses.

use std::path::{self, Path, PathBuf};

use anyhow::Result;
use homard_backup::{DatabaseSource, Replace, Staging, State, back_up, discard, prepare};
use homard_settings::paths::Paths;
use serde_json::{Value, json};

use super::query::CommandContext;
use crate::{cli_error::CliError, render};

/// Arguments of `homard backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard backup /mnt/backup/homard-monday
  homard backup --output /mnt/backup/homard-monday.tar.zst   one file
  homard backup /mnt/backup/homard-monday --json")]
pub(super) struct Backup {
    /// New directory
    #[arg(required_unless_present = "output")]
    directory: Option<PathBuf>,
    /// New file instead of a directory, whose name ends with .tar.zst, .tar.gz or .tgz
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `homard restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard restore /mnt/backup/homard-monday
  homard restore /mnt/backup/homard-monday --force   keep the present state under another name")]
pub(super) struct Restore {
    /// Directory or file that homard backup wrote
    directory: PathBuf,
    /// Replace a state directory with content; it is renamed, not deleted
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn backup(args: &Backup) -> Result<()> {
    let setup = CommandContext::load()?;
    if !setup.target.is_own {
        return Err(CliError::usage("a gateway on another machine is backed up there").into());
    }
    let state = State { directory: &setup.paths.state, config: &setup.paths.config };
    let staging =
        args.output.as_deref().map(path::absolute).transpose()?.as_deref().map(Staging::create).transpose()?;
    let target = match (&staging, &args.directory) {
        (Some(staging), _) => staging.target(),
        (None, directory) => path::absolute(directory.as_deref().unwrap_or(Path::new(".")))?,
    };
    prepare(state.directory, &target)?;
    // Not before the target exists: nothing would remove the snapshot.
    let database = match database(&setup).await {
        Ok(database) => database,
        Err(error) => {
            discard(&target);
            return Err(error);
        }
    };
    let count = back_up(state, &target, database).await?;
    let target = match staging {
        Some(staging) => staging.pack()?,
        None => target,
    };
    let files = render::count(count.files, "file");
    let text =
        format!("backed up {files} to {}\nrestore it with: homard restore {}", target.display(), target.display());
    finish(&json!({"ok": true, "path": target, "files": count.files, "bytes": count.bytes}), &text, args.json)
}

/// Asks the gateway for a snapshot of its database.
async fn database(setup: &CommandContext) -> Result<DatabaseSource> {
    match setup.administer("homard.backup.database", json!({})).await? {
        Some(answer) => Ok(DatabaseSource::Snapshot(PathBuf::from(answer["path"].as_str().unwrap_or_default()))),
        None => Ok(DatabaseSource::Own),
    }
}

pub(super) async fn restore(args: &Restore) -> Result<()> {
    let paths = Paths::find()?;
    let (source, state) = (path::absolute(&args.directory)?, path::absolute(&paths.state)?);
    let replace = if args.force { Replace::Rename } else { Replace::Never };
    let restored = homard_backup::restore(&source, &state, replace).await?;
    let (count, sessions) = (restored.count, restored.sessions);
    let mut text = format!(
        "restored {} and {} to {}",
        render::count(count.files, "file"),
        render::count(sessions, "session"),
        state.display()
    );
    if let Some(old) = &restored.previous {
        text += &format!("\nthe previous state is in {}", old.display());
    }
    text += "\ncheck it with: homard doctor";
    finish(
        &json!({"ok": true, "path": state, "files": count.files, "sessions": sessions, "previous": restored.previous}),
        &text,
        args.json,
    )
}

fn finish(document: &Value, text: &str, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(document)?);
    }
    Ok(render::print(&render::strip_controls(text))?)
}
