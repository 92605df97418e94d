//! `homard backup` and `homard restore`: a copy of the state directory, also of one that a gateway uses.
//!
//! The database is copied first, by the process that owns it; every other file afterwards. A transcript may then have
//! more lines than the database knows, as after a crash, and never fewer.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{self, Path, PathBuf},
};

use anyhow::{Context, Result};
use homard_journal::{
    Journal,
    checkup::{DatabaseStatus, database_status},
    lock,
};
use homard_runtime::{Ambient, ambient::iso};
use homard_service::supervisor;
use homard_settings::paths::Paths;
use homard_store::StoreReader;
use serde_json::{Value, json};

use super::{query::CommandContext, scaffold::write_new};
use crate::{cli_error::CliError, render};

/// File that describes a backup.
const MANIFEST: &str = "homard-backup.json";
/// Version of the layout of a backup.
const FORMAT: u64 = 1;
/// Folder of the database in the state directory.
const JOURNAL: &str = "journal";
/// Files of a running process, by the names that the gateway gives them.
const OF_PROCESS: [&str; 5] =
    ["gateway.lock", "gateway.holder.json", supervisor::FILES[0], supervisor::FILES[1], MANIFEST];
/// Name of the config in a backup whose config is outside the state directory.
const CONFIG: &str = "homard.json";

/// What `homard backup` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard backup /mnt/backup/homard-monday
  homard backup /mnt/backup/homard-monday --json")]
pub(super) struct Backup {
    /// New directory; pack it with tar for a single file
    directory: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What `homard restore` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard restore /mnt/backup/homard-monday
  homard restore /mnt/backup/homard-monday --force   keep the present state under another name")]
pub(super) struct Restore {
    /// Directory that homard backup wrote
    directory: PathBuf,
    /// Replace a state directory with content; it is renamed, not deleted
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What was copied.
#[derive(Debug, Default)]
struct CopyCount {
    files: usize,
    bytes: u64,
    /// Neither files, directories nor links.
    skipped: usize,
}

pub(super) async fn backup(args: &Backup) -> Result<()> {
    let setup = CommandContext::load()?;
    let state = setup.paths.state.clone();
    let target = path::absolute(&args.directory)?;
    if !state.is_dir() {
        return Err(CliError::not_found(format!("there is no state directory {}", state.display())).into());
    }
    if target.starts_with(&state) || state.starts_with(&target) {
        let text = format!("{} and the state directory {} contain each other", target.display(), state.display());
        return Err(CliError::usage(text).into());
    }
    create(&target)?;
    let mut count = CopyCount::default();
    if let Err(error) = copy_state(&setup, &target, &mut count).await {
        // An unfinished backup could be taken for a complete one.
        fs::remove_dir_all(&target).ok();
        return Err(error);
    }
    let document = json!({
        "format": FORMAT, "homard": env!("CARGO_PKG_VERSION"), "createdAt": iso(Ambient::system().now_ms()),
        "stateDir": state, "files": count.files, "bytes": count.bytes, "skipped": count.skipped,
    });
    write_new(&target.join(MANIFEST), &format!("{document:#}\n"), 0o600)?;
    let files = render::count(count.files, "file");
    let text =
        format!("backed up {files} to {}\nrestore it with: homard restore {}", target.display(), target.display());
    finish(&json!({"ok": true, "path": target, "files": count.files, "bytes": count.bytes}), &text, args.json)
}

/// Copies everything, and verifies the copy of the database.
async fn copy_state(setup: &CommandContext, target: &Path, count: &mut CopyCount) -> Result<()> {
    let state = &setup.paths.state;
    let answer = setup.administer("homard.backup.database", json!({})).await?;
    let journal = target.join(JOURNAL);
    private_folder(&journal)?;
    let database = journal.join("journal.db");
    match answer {
        Some(_) if !setup.target.is_own => {
            return Err(CliError::usage("a gateway on another machine is backed up there").into());
        }
        Some(answer) => {
            let snapshot = PathBuf::from(answer["path"].as_str().unwrap_or_default());
            let copied = copy_file(&snapshot, &database, count);
            fs::remove_file(&snapshot).with_context(|| format!("cannot remove {}", snapshot.display()))?;
            copied?;
            copy(state, target, &|path| is_left_out(state, path), count)?;
        }
        None => {
            // Owns the directory until everything is copied.
            let owner = Journal::open(state, || Ambient::system().now_ms())?;
            let copied = match owner.snapshot(database.clone()).await {
                Ok(()) => copy(state, target, &|path| is_left_out(state, path), count),
                Err(error) => Err(error.into()),
            };
            owner.flush().await?;
            copied?;
        }
    }
    let config = &setup.paths.config;
    if !config.starts_with(state) && config.is_file() {
        copy_file(config, &target.join(CONFIG), count)?;
    }
    verify_database(target)
}

/// Returns true for files of the running process, and for the database, which is copied by its owner.
fn is_left_out(state: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(state).unwrap_or(path);
    below == Path::new(JOURNAL) || OF_PROCESS.iter().any(|name| below == Path::new(name))
}

fn verify_database(state: &Path) -> Result<()> {
    match database_status(state) {
        DatabaseStatus::Intact => Ok(()),
        DatabaseStatus::None => Err(CliError::new("backup", format!("{} has no database", state.display())).into()),
        DatabaseStatus::InUse => Err(CliError::new("locked", format!("{} is in use", state.display())).into()),
        DatabaseStatus::Corrupt(why) | DatabaseStatus::Unusable(why) => {
            Err(CliError::new("backup", format!("the database in {} cannot be used: {why}", state.display())).into())
        }
    }
}

pub(super) async fn restore(args: &Restore) -> Result<()> {
    let paths = Paths::find()?;
    let source = path::absolute(&args.directory)?;
    let state = path::absolute(&paths.state)?;
    check_manifest(&source)?;
    if lock::holder(&state).is_some() || matches!(database_status(&state), DatabaseStatus::InUse) {
        let text = format!("the state directory {} is in use; stop the gateway first", state.display());
        return Err(CliError::new("locked", text).into());
    }
    let is_occupied = fs::read_dir(&state).is_ok_and(|mut entries| entries.next().is_some());
    if is_occupied && !args.force {
        let text = format!(
            "the state directory {} is not empty; --force renames it and restores the backup in its place",
            state.display()
        );
        return Err(CliError::new("exists", text).into());
    }
    let now = Ambient::system().now_ms();
    let beside = |suffix: &str| {
        let mut name = state.clone().into_os_string();
        name.push(format!(".{suffix}-{now}"));
        PathBuf::from(name)
    };
    let (new, old) = (beside("restore"), beside("before-restore"));
    let mut count = CopyCount::default();
    let restored = restore_into(&source, &new, &mut count).await;
    let sessions = match restored {
        Ok(sessions) => sessions,
        Err(error) => {
            fs::remove_dir_all(&new).ok();
            return Err(error);
        }
    };
    let failed = |path: &Path| format!("cannot rename {}", path.display());
    if is_occupied {
        fs::rename(&state, &old).with_context(|| failed(&state))?;
    }
    // An empty directory is replaced by the rename.
    fs::rename(&new, &state).with_context(|| failed(&new))?;
    let kept = is_occupied.then_some(&old);
    let mut text = format!(
        "restored {} and {} to {}",
        render::count(count.files, "file"),
        render::count(sessions, "session"),
        state.display()
    );
    if let Some(old) = kept {
        text += &format!("\nthe state before is in {}", old.display());
    }
    text += "\ncheck it with: homard doctor";
    finish(
        &json!({"ok": true, "path": state, "files": count.files, "sessions": sessions, "previous": kept}),
        &text,
        args.json,
    )
}

/// Copies a backup and opens the copy as a gateway would. Returns the number of its sessions.
async fn restore_into(source: &Path, new: &Path, count: &mut CopyCount) -> Result<usize> {
    create(new)?;
    copy(source, new, &|path| path == source.join(MANIFEST), count)?;
    verify_database(new)?;
    let journal = Journal::open(new, || Ambient::system().now_ms())
        .with_context(|| format!("the copy of {} cannot be opened", source.display()))?;
    let sessions = journal.list().await?.len();
    journal.flush().await?;
    Ok(sessions)
}

fn check_manifest(source: &Path) -> Result<()> {
    let path = source.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| {
        CliError::usage(format!("{} is not a complete backup: {}: {error}", source.display(), path.display()))
    })?;
    let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
    match manifest["format"].as_u64() {
        Some(FORMAT) => Ok(()),
        Some(newer) => {
            Err(CliError::usage(format!("{} has format {newer}; use a newer Homard", path.display())).into())
        }
        None => Err(CliError::usage(format!("{} does not describe a backup", path.display())).into()),
    }
}

/// Creates a directory that only the user can read.
fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a new directory, with its parents.
fn create(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    match private_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CliError::new("exists", format!("{} already exists; choose a new directory", path.display())).into())
        }
        created => created.with_context(|| format!("cannot create {}", path.display())),
    }
}

/// Copies the content of a directory into an existing one, with permissions. Links stay links.
fn copy(from: &Path, to: &Path, is_left_out: &dyn Fn(&Path) -> bool, count: &mut CopyCount) -> Result<()> {
    let entries = fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.with_context(|| format!("cannot read {}", from.display()))? {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if is_left_out(&source) {
            continue;
        }
        // A running gateway may have removed it since.
        let Ok(metadata) = fs::symlink_metadata(&source) else { continue };
        let kind = metadata.file_type();
        if kind.is_dir() {
            private_folder(&target).with_context(|| format!("cannot create {}", target.display()))?;
            copy(&source, &target, is_left_out, count)?;
            fs::set_permissions(&target, metadata.permissions())
                .with_context(|| format!("cannot set the permissions of {}", target.display()))?;
        } else if kind.is_symlink() {
            let points_to = fs::read_link(&source).with_context(|| format!("cannot read {}", source.display()))?;
            symlink(points_to, &target).with_context(|| format!("cannot create {}", target.display()))?;
        } else if kind.is_file() {
            copy_file(&source, &target, count)?;
        } else {
            count.skipped += 1;
        }
    }
    Ok(())
}

/// Copies a file; one that was removed meanwhile is left out.
fn copy_file(source: &Path, target: &Path, count: &mut CopyCount) -> Result<()> {
    match fs::copy(source, target) {
        Ok(bytes) => {
            count.files += 1;
            count.bytes += bytes;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !source.exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot copy {} to {}", source.display(), target.display())),
    }
}

fn finish(document: &Value, text: &str, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(document)?);
    }
    Ok(render::print(&render::strip_controls(text))?)
}
