//! OpenClaw's own lock: it keeps an OpenClaw gateway out of a state directory that Homard uses, and vice versa.
//!
//! As in OpenClaw 2026.2.9: `<tmp>/openclaw-<uid>/gateway.<hash>.lock`, where the hash is the first eight digits of the
//! SHA-1 of the path of its config. Every user of the machine can create files in `<tmp>`, so a lock counts only if it
//! is a regular file of this user, in a directory of this user.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use homard_journal::lock;
use homard_runtime::Ambient;
use homard_settings::paths;
use homard_store::Error as StoreError;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// An empty lock counts this long: its owner may be about to write it.
const EMPTY_LOCK_GRACE: Duration = Duration::from_secs(30);

/// Names of the config over time, in order of preference.
const CONFIGS: [&str; 4] = ["openclaw.json", "clawdbot.json", "moltbot.json", "moldbot.json"];

/// Maximum size of a lock.
const MAX_LOCK_BYTES: u64 = 64 * 1024;

/// Content of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockContent {
    pid: u32,
    created_at: String,
    config_path: PathBuf,
    /// Start time of the process, in the system's ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_time: Option<u64>,
}

/// The lock that an OpenClaw gateway would take on a state directory.
#[derive(Debug)]
pub struct OpenClawLock {
    state: PathBuf,
    config: PathBuf,
    path: PathBuf,
}

/// A lock that is held; it is removed on drop.
#[derive(Debug)]
pub struct HeldLock(PathBuf);

impl OpenClawLock {
    /// Returns the lock of a state directory, by the environment.
    pub fn find(state: &Path) -> Self {
        let home = paths::home();
        let env_path = |name: &str| paths::env(name).map(|path| paths::expand(Path::new(&path), home.as_deref()));
        // A config at another path applies to OpenClaw's own directory.
        let state_dir = env_path("OPENCLAW_STATE_DIR").or_else(|| Some(home.as_ref()?.join(".openclaw")));
        let config = env_path("OPENCLAW_CONFIG_PATH").filter(|_| state_dir.as_deref() == Some(state));
        let tmp = ["TMPDIR", "TMP", "TEMP"].into_iter().find_map(paths::env).unwrap_or_else(|| "/tmp".into());
        let folder = Path::new(&tmp).join(format!("openclaw-{}", rustix::process::getuid().as_raw()));
        Self::new(state, config, &folder)
    }

    fn new(state: &Path, config: Option<PathBuf>, folder: &Path) -> Self {
        let config = config.unwrap_or_else(|| {
            let mut existing = CONFIGS.iter().map(|name| state.join(name)).filter(|path| path.exists());
            existing.next().unwrap_or_else(|| state.join(CONFIGS[0]))
        });
        let digest = Sha1::digest(config.as_os_str().as_encoded_bytes());
        let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("gateway.{hash}.lock"));
        Self { state: state.to_owned(), config, path }
    }

    /// Fails if an OpenClaw gateway holds the directory. To be called before the directory is touched.
    pub fn check(&self) -> Result<(), StoreError> {
        // An untrusted lock is ignored.
        let Some(owner) = self.owner().unwrap_or_default() else { return Ok(()) };
        // A Homard gateway is handled by the lock of the directory itself.
        if owner.is_some() && owner == lock::holder(&self.state).map(|holder| holder.pid) {
            return Ok(());
        }
        let process = owner.map_or_else(String::new, |pid| format!(", process {pid}"));
        Err(StoreError::Locked(format!(
            "state directory {} is in use by an OpenClaw gateway{process} (its lock is {}); stop it or choose another \
             directory with HOMARD_STATE_DIR",
            self.state.display(),
            self.path.display()
        )))
    }

    /// Takes the lock, once the directory is locked by us. If it cannot be created, OpenClaw is not kept out.
    pub fn take(&self) -> Result<Option<HeldLock>, StoreError> {
        self.check()?;
        if let Err(why) = self.owner() {
            tracing::warn!("ignoring OpenClaw's lock {}: {why}", self.path.display());
        }
        match self.write() {
            Ok(()) => Ok(Some(HeldLock(self.path.clone()))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.check().map(|()| None),
            Err(reason) => {
                tracing::warn!(path = %self.path.display(), %reason, "failed to write OpenClaw's lock; an OpenClaw gateway could use this state directory at the same time");
                Ok(None)
            }
        }
    }

    /// Writes the lock, replacing a stale one.
    fn write(&self) -> io::Result<()> {
        let Some(folder) = self.path.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        trusted_folder(folder).map_err(io::Error::other)?;
        let pid = std::process::id();
        let now = i64::try_from(Ambient::system().now_ms()).unwrap_or_default();
        let created_at = format!("{:.3}", jiff::Timestamp::from_millisecond(now).unwrap_or_default());
        let owner = LockContent {
            pid,
            created_at,
            config_path: self.config.clone(),
            start_time: lock::process_start_time(pid),
        };
        // Written before it gets its name, so that it is never seen empty.
        let draft = self.path.with_added_extension(pid.to_string());
        remove(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written = file.write_all(serde_json::json!(owner).to_string().as_bytes());
        let linked = written.and_then(|()| remove(&self.path)).and_then(|()| fs::hard_link(&draft, &self.path));
        remove(&draft)?;
        linked
    }

    /// Returns the holder of the lock: `None` if there is none, and `Some(None)` if it is unknown. Fails with the
    /// reason if the lock could belong to another user.
    fn owner(&self) -> Result<Option<Option<u32>>, String> {
        let Some((bytes, found)) = read(&self.path)? else { return Ok(None) };
        Ok(match serde_json::from_slice::<LockContent>(&bytes) {
            Ok(owner) => is_alive(&owner).then_some(Some(owner.pid)),
            Err(_) => {
                let age = found.modified().ok().and_then(|modified| modified.elapsed().ok());
                age.is_some_and(|age| age < EMPTY_LOCK_GRACE).then_some(None)
            }
        })
    }
}

/// Reads a lock without blocking; `None` if there is none. Fails with the reason if it could belong to another user.
fn read(path: &Path) -> Result<Option<(Vec<u8>, Metadata)>, String> {
    let Some(folder) = path.parent() else { return Ok(None) };
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot inspect {}: {error}", folder.display())),
        Ok(_) => trusted_folder(folder)?,
    }
    // A FIFO would block, and a symlink may lead anywhere.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(format!("the file cannot be opened: {error}; remove it: rm {}", path.display())),
    };
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() || !is_ours(&found) {
        let problem = if found.is_file() {
            format!("the file belongs to user {}", found.uid())
        } else {
            "not a regular file".to_owned()
        };
        return Err(format!("{problem}; remove it: rm {}", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_LOCK_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some((bytes, found)))
}

/// Fails with the reason and the remedy if another user could create a lock there. Closes our own directory to others.
fn trusted_folder(folder: &Path) -> Result<(), String> {
    let found = fs::symlink_metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = folder.display();
    if !found.is_dir() || !is_ours(&found) {
        let problem = match found.is_dir() {
            true => format!("belongs to user {}", found.uid()),
            false => "is not a directory".to_owned(),
        };
        return Err(format!(
            "{name} {problem}, so another user may have created it; remove it as root (rm -r {name}), or set TMPDIR to a directory that you own"
        ));
    }
    if found.mode() & 0o022 != 0 {
        let closed = Permissions::from_mode(found.mode() & 0o755);
        fs::set_permissions(folder, closed).map_err(|error| format!("{name} is writable by other users: {error}"))?;
    }
    Ok(())
}

fn is_ours(found: &Metadata) -> bool {
    let (uid, euid) = (rustix::process::getuid().as_raw(), rustix::process::geteuid().as_raw());
    found.uid() == uid || found.uid() == euid
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let found = read(&self.0).ok().flatten();
        let owner = found.and_then(|(bytes, _)| serde_json::from_slice::<LockContent>(&bytes).ok());
        if owner.is_some_and(|owner| owner.pid == std::process::id())
            && let Err(reason) = remove(&self.0)
        {
            tracing::warn!(path = %self.0.display(), %reason, "failed to remove OpenClaw's lock");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_alive(owner: &LockContent) -> bool {
    match (owner.start_time, lock::process_start_time(owner.pid)) {
        (Some(start_time), Some(now)) => start_time == now,
        (None, Some(_)) => true,
        // Only Linux reports when a process started.
        (_, None) => {
            let pid = i32::try_from(owner.pid).ok().and_then(rustix::process::Pid::from_raw);
            cfg!(not(target_os = "linux")) && pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn lock(&self) -> OpenClawLock {
            OpenClawLock::new(&self.0.path().join("state"), None, &self.0.path().join("openclaw-7"))
        }

        /// Creates a lock of another process.
        fn with_lock_of(&self, pid: u32, start_time: Option<u64>) -> OpenClawLock {
            let lock = self.lock();
            let owner = LockContent { pid, created_at: String::new(), config_path: lock.config.clone(), start_time };
            fs::create_dir_all(lock.path.parent().unwrap()).unwrap();
            fs::write(&lock.path, serde_json::json!(owner).to_string()).unwrap();
            lock
        }
    }

    fn content(lock: &OpenClawLock) -> LockContent {
        serde_json::from_slice(&fs::read(&lock.path).unwrap()).unwrap()
    }

    #[test]
    fn the_lock_is_where_openclaw_looks_for_it() {
        let lock = OpenClawLock::new(Path::new("/home/me/.openclaw"), None, Path::new("/tmp/openclaw-1000"));
        assert_eq!(lock.path, Path::new("/tmp/openclaw-1000/gateway.d71013c3.lock"));
        let home = Home::new();
        fs::create_dir(home.0.path().join("state")).unwrap();
        fs::write(home.0.path().join("state/moltbot.json"), "{}").unwrap();
        assert_eq!(home.lock().config, home.0.path().join("state/moltbot.json"));
    }

    #[test]
    fn a_lock_is_written_and_removed_with_its_owner() {
        let home = Home::new();
        let lock = home.lock();
        let guard = lock.take().unwrap();
        let pid = std::process::id();
        let created_at = content(&lock).created_at;
        let expected = LockContent {
            pid,
            created_at,
            config_path: lock.config.clone(),
            start_time: lock::process_start_time(pid),
        };
        assert_eq!(content(&lock), expected);
        assert!(expected.created_at.ends_with('Z') && expected.created_at.len() == "2026-11-15T02:32:40.355Z".len());
        assert_eq!(fs::read_dir(lock.path.parent().unwrap()).unwrap().count(), 1);
        drop(guard);
        assert!(!lock.path.exists());
    }

    #[test]
    fn a_live_gateway_keeps_its_lock() {
        let home = Home::new();
        let pid = std::process::id();
        let lock = home.with_lock_of(pid, lock::process_start_time(pid));
        let error = lock.take().unwrap_err();
        let expected = format!("is in use by an OpenClaw gateway, process {pid} (its lock is {})", lock.path.display());
        assert!(matches!(&error, StoreError::Locked(text) if text.contains(&expected)), "{error:?}");
        fs::write(&lock.path, "").unwrap();
        assert!(lock.take().is_err(), "it may be about to be filled in");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_stale_lock_is_replaced() {
        let pid = std::process::id();
        for (dead_pid, start_time) in [(pid, Some(1)), (u32::MAX - 1, Some(1)), (u32::MAX - 1, None)] {
            let home = Home::new();
            let lock = home.with_lock_of(dead_pid, start_time);
            let guard = lock.take().unwrap();
            assert!(guard.is_some());
            assert_eq!(content(&lock).start_time, lock::process_start_time(pid));
        }
    }

    #[test]
    fn a_lock_taken_by_another_process_is_not_removed() {
        let home = Home::new();
        let guard = home.lock().take().unwrap();
        let lock = home.with_lock_of(1, None);
        drop(guard);
        assert!(lock.path.exists());
    }

    #[test]
    fn the_gateway_starts_if_no_lock_can_be_created() {
        let home = Home::new();
        fs::write(home.0.path().join("openclaw-7"), "a file").unwrap();
        assert!(home.lock().take().unwrap().is_none());
    }

    #[test]
    fn a_pipe_or_a_link_in_place_of_the_lock_is_replaced_at_once() {
        let home = Home::new();
        let lock = home.lock();
        let folder = lock.path.parent().unwrap();
        fs::create_dir(folder).unwrap();
        let status = std::process::Command::new("mkfifo").arg(&lock.path).status().unwrap();
        assert!(status.success());
        assert!(lock.owner().unwrap_err().contains("not a regular file; remove it: rm "), "{:?}", lock.owner());
        let guard = lock.take().unwrap();
        assert!(guard.is_some() && content(&lock).pid == std::process::id());
        drop(guard);
        // A live process, through a file elsewhere.
        let pid = std::process::id();
        let other = home.with_lock_of(pid, lock::process_start_time(pid));
        let target = home.0.path().join("elsewhere");
        fs::rename(&other.path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &lock.path).unwrap();
        assert!(lock.take().unwrap().is_some());
        assert!(target.exists());
    }

    #[test]
    fn an_untrusted_lock_folder_is_neither_read_nor_written() {
        let home = Home::new();
        let pid = std::process::id();
        let lock = home.with_lock_of(pid, lock::process_start_time(pid));
        let folder = lock.path.parent().unwrap();
        // A symlink to our own directory stands for a directory of another user, which a test without root cannot
        // create.
        let moved = folder.with_file_name("moved");
        fs::rename(folder, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, folder).unwrap();
        let error = lock.owner().unwrap_err();
        assert!(
            error.contains("is not a directory, so another user may have created it; remove it as root"),
            "{error}"
        );
        assert!(lock.check().is_ok() && lock.take().unwrap().is_none());
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 1);
        if rustix::process::geteuid().is_root() {
            fs::remove_file(folder).unwrap();
            std::os::unix::fs::chown(&moved, Some(65534), None).unwrap();
            fs::rename(&moved, folder).unwrap();
            assert!(lock.owner().unwrap_err().contains("belongs to user 65534"), "{:?}", lock.owner());
            assert!(lock.check().is_ok() && lock.take().unwrap().is_none());
            // A lock of another user in our directory.
            std::os::unix::fs::chown(folder, Some(0), None).unwrap();
            std::os::unix::fs::chown(&lock.path, Some(65534), None).unwrap();
            assert!(
                lock.owner().unwrap_err().contains("the file belongs to user 65534; remove it"),
                "{:?}",
                lock.owner()
            );
            assert!(lock.take().unwrap().is_some());
        }
    }

    #[test]
    fn our_lock_folder_is_private() {
        let home = Home::new();
        let pid = std::process::id();
        let lock = home.with_lock_of(pid, lock::process_start_time(pid));
        let folder = lock.path.parent().unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        assert!(lock.take().is_err(), "a live gateway keeps its directory");
        assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o755);
    }
}
