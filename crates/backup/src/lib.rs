//! A copy of the state directory, also of one that a gateway uses, and its restoration.
//!
//! The database is copied first, by the process that owns it; every other file afterwards. A transcript may then have
//! more lines than the database knows, as after a crash, and never fewer. The manifest has the digests of all files. A
//! backup is a directory or, packed by `archive`, one file. Start with [`back_up`] and [`restore`]; how the
//! gateway is asked for a snapshot of its database is for the caller.

mod archive;
mod copy;
mod digests;

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use homard_journal::{
    Journal,
    checkup::{DatabaseStatus, database_status},
    lock,
};
use homard_runtime::{Ambient, ambient::iso};
use homard_service::supervisor;
use homard_store::StoreReader as _;
use serde_json::{Value, json};

use self::{
    copy::{copy, copy_file, create, private_folder},
    digests::Digests,
};

pub use self::{archive::Staging, copy::CopyCount};

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

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to copy.
    #[error("{0}")]
    NotFound(String),
    /// The directories cannot be used like this.
    #[error("{0}")]
    Usage(String),
    /// The target exists already.
    #[error("{0}")]
    Exists(String),
    /// The state directory is in use.
    #[error("{0}")]
    Locked(String),
    /// The copied database is missing or cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// A file operation failed.
    #[error("{action}")]
    Disk {
        /// What was tried.
        action: String,
        /// Error of the operating system.
        #[source]
        reason: io::Error,
    },
    /// A state directory cannot be opened.
    #[error("the copy of {} cannot be opened", source_dir.display())]
    Open {
        /// The backup.
        source_dir: PathBuf,
        /// Why its copy cannot be opened.
        #[source]
        reason: homard_store::Error,
    },
    /// A state directory cannot be read.
    #[error(transparent)]
    Store(#[from] homard_store::Error),
}

/// Describes a failed file operation.
fn disk(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let action = format!("cannot {verb} {}", path.display());
    |reason| Error::Disk { action, reason }
}

/// Where the database of a backup comes from.
#[derive(Debug)]
pub enum DatabaseSource {
    /// A snapshot that the gateway wrote, which is removed afterwards.
    Snapshot(PathBuf),
    /// The state directory itself, which no process uses.
    Own,
}

/// A state directory and its config, which are copied.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The state directory.
    pub directory: &'a Path,
    /// The config, which may be elsewhere.
    pub config: &'a Path,
}

/// Checks that the state directory exists and that neither directory contains the other, and creates the target.
pub fn prepare(state: &Path, target: &Path) -> Result<(), Error> {
    if !state.is_dir() {
        return Err(Error::NotFound(format!("there is no state directory {}", state.display())));
    }
    if target.starts_with(state) || state.starts_with(target) {
        let text = format!("{} and the state directory {} contain each other", target.display(), state.display());
        return Err(Error::Usage(text));
    }
    create(target)
}

/// Copies everything into a directory that [`prepare`] created, and verifies the copy of the database. If this fails, the
/// directory is removed: an unfinished backup could be taken for a complete one.
pub async fn back_up(state: State<'_>, target: &Path, database: DatabaseSource) -> Result<CopyCount, Error> {
    let mut count = CopyCount::default();
    let copied =
        copy_state(state, target, database, &mut count).await.and_then(|()| write_manifest(state, target, &count));
    match copied {
        Ok(()) => Ok(count),
        Err(error) => {
            discard(target);
            Err(error)
        }
    }
}

/// Removes an unfinished copy. If that fails, the copy stays, without a manifest.
pub fn discard(target: &Path) {
    if let Err(error) = fs::remove_dir_all(target) {
        tracing::warn!(%error, path = %target.display(), "failed to remove an unfinished copy");
    }
}

fn write_manifest(state: State<'_>, target: &Path, count: &CopyCount) -> Result<(), Error> {
    let document = json!({
        "format": FORMAT, "homard": env!("CARGO_PKG_VERSION"), "createdAt": iso(Ambient::system().now_ms()),
        "stateDir": state.directory, "files": count.files, "bytes": count.bytes, "skipped": count.skipped,
        "sha256": digests::digests(target)?,
    });
    let path = target.join(MANIFEST);
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = opened.and_then(|mut opened| opened.write_all(format!("{document:#}\n").as_bytes()));
    written.map_err(disk("write", &path))
}

async fn copy_state(
    state: State<'_>,
    target: &Path,
    source: DatabaseSource,
    count: &mut CopyCount,
) -> Result<(), Error> {
    let State { directory, config } = state;
    let journal = target.join(JOURNAL);
    private_folder(&journal).map_err(disk("create", &journal))?;
    let database = journal.join("journal.db");
    match source {
        DatabaseSource::Snapshot(snapshot) => {
            let copied = copy_file(&snapshot, &database, count);
            fs::remove_file(&snapshot).map_err(disk("remove", &snapshot))?;
            copied?;
            copy(directory, target, &|path| is_left_out(directory, path), count)?;
        }
        DatabaseSource::Own => {
            // Owns the directory until everything is copied.
            let owner = Journal::open(directory, || Ambient::system().now_ms())?;
            let copied = match owner.snapshot(database.clone()).await {
                Ok(()) => copy(directory, target, &|path| is_left_out(directory, path), count),
                Err(error) => Err(error.into()),
            };
            owner.flush().await?;
            copied?;
        }
    }
    if !config.starts_with(directory) && config.is_file() {
        copy_file(config, &target.join(CONFIG), count)?;
    }
    verify_database(target)
}

/// Packages of channels and scripts, which are installed again when they are missing.
const INSTALLED: [&str; 2] = ["channels/packages", "channels/host"];

/// Returns true for files of the running process, for what was installed, and for the database, which is copied by its
/// owner.
fn is_left_out(state: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(state).unwrap_or(path);
    below == Path::new(JOURNAL) || OF_PROCESS.iter().chain(&INSTALLED).any(|name| below == Path::new(name))
}

fn verify_database(state: &Path) -> Result<(), Error> {
    match database_status(state) {
        DatabaseStatus::Intact => Ok(()),
        DatabaseStatus::None => Err(Error::Invalid(format!("{} has no database", state.display()))),
        DatabaseStatus::InUse => Err(Error::Locked(format!("{} is in use", state.display()))),
        DatabaseStatus::Corrupt(why) | DatabaseStatus::Unusable(why) => {
            Err(Error::Invalid(format!("the database in {} cannot be used: {why}", state.display())))
        }
    }
}

/// What was restored.
#[derive(Debug)]
pub struct RestoreSummary {
    /// The files.
    pub count: CopyCount,
    /// The number of sessions.
    pub sessions: usize,
    /// Where the state before is, if there was one.
    pub previous: Option<PathBuf>,
}

/// Whether a state directory with content may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It is kept, and nothing is restored.
    Never,
    /// It is renamed.
    Rename,
}

/// Copies a backup, a directory or an archive, to the place of a state directory, as soon as its files were verified and the
/// copy was opened like a gateway would.
pub async fn restore(source: &Path, state: &Path, replace: Replace) -> Result<RestoreSummary, Error> {
    let unpacked = source.is_file().then(|| archive::unpack(source, state)).transpose()?;
    let source = unpacked.as_ref().map_or(source, |folder| folder.path());
    let expected = read_manifest(source)?;
    if lock::holder(state).is_some() || matches!(database_status(state), DatabaseStatus::InUse) {
        let text = format!("the state directory {} is in use; stop the gateway first", state.display());
        return Err(Error::Locked(text));
    }
    let is_occupied = fs::read_dir(state).is_ok_and(|mut entries| entries.next().is_some());
    if is_occupied && replace == Replace::Never {
        let text = format!(
            "the state directory {} is not empty; --force renames it and restores the backup in its place",
            state.display()
        );
        return Err(Error::Exists(text));
    }
    // Backups of early versions have no digests.
    if let Some(expected) = expected {
        digests::verify(source, &expected)?;
    }
    let now = Ambient::system().now_ms();
    let beside = |suffix: &str| {
        let mut name = state.as_os_str().to_owned();
        name.push(format!(".{suffix}-{now}"));
        PathBuf::from(name)
    };
    let (new, old) = (beside("restore"), beside("before-restore"));
    let mut count = CopyCount::default();
    let sessions = match restore_into(source, &new, &mut count).await {
        Ok(sessions) => sessions,
        Err(error) => {
            discard(&new);
            return Err(error);
        }
    };
    if let Err(error) = put_in_place(&new, state, is_occupied.then_some(&*old)) {
        discard(&new);
        return Err(error);
    }
    Ok(RestoreSummary { count, sessions, previous: is_occupied.then_some(old) })
}

/// Renames the new directory to the place of the old one, which is kept under another name.
fn put_in_place(new: &Path, state: &Path, old: Option<&Path>) -> Result<(), Error> {
    if let Some(old) = old {
        fs::rename(state, old).map_err(disk("rename", state))?;
    }
    // An empty directory is replaced by the rename.
    fs::rename(new, state).map_err(|reason| {
        if let Some(old) = old
            && let Err(error) = fs::rename(old, state)
        {
            tracing::error!(%error, kept = %old.display(), "failed to restore the previous state directory");
        }
        disk("rename", new)(reason)
    })
}

/// Copies a backup and opens the copy as a gateway would. Returns the number of its sessions.
async fn restore_into(source: &Path, new: &Path, count: &mut CopyCount) -> Result<usize, Error> {
    create(new)?;
    copy(source, new, &|path| path == source.join(MANIFEST), count)?;
    verify_database(new)?;
    let journal = Journal::open(new, || Ambient::system().now_ms())
        .map_err(|reason| Error::Open { source_dir: source.to_owned(), reason })?;
    let sessions = journal.list().await?.len();
    journal.flush().await?;
    Ok(sessions)
}

/// Checks that a directory is a complete backup, and returns the digests of its files.
fn read_manifest(source: &Path) -> Result<Option<Digests>, Error> {
    let path = source.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| {
        Error::Usage(format!("{} is not a complete backup: {}: {error}", source.display(), path.display()))
    })?;
    let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
    match manifest["format"].as_u64() {
        // Without digests it is null, which is none.
        Some(FORMAT) => serde_json::from_value(manifest["sha256"].clone())
            .map_err(|error| Error::Invalid(format!("{} is not valid: {error}", path.display()))),
        Some(newer) => Err(Error::Usage(format!("{} has format {newer}; use a newer Homard", path.display()))),
        None => Err(Error::Usage(format!("{} does not describe a backup", path.display()))),
    }
}
