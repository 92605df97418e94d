//! OpenClaw's own lock: its gateway keeps off a state directory that Homard has, and Homard off one that it has.
//!
//! As OpenClaw 2026.2.9 does it: `<tmp>/openclaw-<uid>/gateway.<hash>.lock`, where the hash is the first eight digits of
//! the SHA-1 of the path of its config.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use homard_agent::Ambient;
use homard_journal::lock;
use homard_store::Error as StoreError;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::paths;

/// A lock that says nothing counts for so long: its owner may be about to fill it in.
const EMPTY_FOR: Duration = Duration::from_secs(30);

/// The names that a config has had, the first one first.
const CONFIGS: [&str; 4] = ["openclaw.json", "clawdbot.json", "moltbot.json", "moldbot.json"];

/// What the lock says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    pid: u32,
    created_at: String,
    config_path: PathBuf,
    /// When the process began, in the system's own ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_time: Option<u64>,
}

/// The lock that an OpenClaw gateway would take on a state directory.
#[derive(Debug)]
pub(super) struct Lock {
    state: PathBuf,
    config: PathBuf,
    path: PathBuf,
}

/// A lock that is ours; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct Held(PathBuf);

impl Lock {
    /// The lock of a state directory, by the environment.
    pub(super) fn find(state: &Path) -> Self {
        let home = paths::home();
        let place = |name: &str| paths::env(name).map(|path| paths::expand(Path::new(&path), home.as_deref()));
        // A config that lies elsewhere belongs to OpenClaw's own directory.
        let own = place("OPENCLAW_STATE_DIR").or_else(|| Some(home.as_ref()?.join(".openclaw")));
        let config = place("OPENCLAW_CONFIG_PATH").filter(|_| own.as_deref() == Some(state));
        let tmp = ["TMPDIR", "TMP", "TEMP"].into_iter().find_map(paths::env).unwrap_or_else(|| "/tmp".into());
        let folder = Path::new(&tmp).join(format!("openclaw-{}", rustix::process::getuid().as_raw()));
        Self::new(state, config, &folder)
    }

    fn new(state: &Path, config: Option<PathBuf>, folder: &Path) -> Self {
        let config = config.unwrap_or_else(|| {
            let mut there = CONFIGS.iter().map(|name| state.join(name)).filter(|path| path.exists());
            there.next().unwrap_or_else(|| state.join(CONFIGS[0]))
        });
        let digest = Sha1::digest(config.as_os_str().as_encoded_bytes());
        let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("gateway.{hash}.lock"));
        Self { state: state.to_owned(), config, path }
    }

    /// An error if an OpenClaw gateway has the directory. To be asked before the directory is touched.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Some(owner) = self.owner() else { return Ok(()) };
        // A gateway of ours leaves it to the lock of the directory itself.
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

    /// Takes the lock, once the directory is ours. Where there can be none, OpenClaw is not kept off.
    pub(super) fn take(&self) -> Result<Option<Held>, StoreError> {
        self.check()?;
        match self.write() {
            Ok(()) => Ok(Some(Held(self.path.clone()))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.check().map(|()| None),
            Err(reason) => {
                tracing::warn!(path = %self.path.display(), %reason, "an OpenClaw gateway would not be kept off");
                Ok(None)
            }
        }
    }

    /// Writes the lock in place of one that nobody has any more.
    fn write(&self) -> io::Result<()> {
        let Some(folder) = self.path.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let pid = std::process::id();
        let now = i64::try_from(Ambient::system().now_ms()).unwrap_or_default();
        let created_at = format!("{:.3}", jiff::Timestamp::from_millisecond(now).unwrap_or_default());
        let owner = Owner { pid, created_at, config_path: self.config.clone(), start_time: lock::began(pid) };
        // Filled in before it has its name, so that nobody finds it empty.
        let draft = self.path.with_added_extension(pid.to_string());
        remove(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written = file.write_all(serde_json::json!(owner).to_string().as_bytes());
        let linked = written.and_then(|()| remove(&self.path)).and_then(|()| fs::hard_link(&draft, &self.path));
        remove(&draft)?;
        linked
    }

    /// Who has the lock: `None` if nobody does, and `Some(None)` if it is not known who.
    fn owner(&self) -> Option<Option<u32>> {
        let bytes = fs::read(&self.path).ok()?;
        match serde_json::from_slice::<Owner>(&bytes) {
            Ok(owner) => is_alive(&owner).then_some(Some(owner.pid)),
            Err(_) => {
                let written = fs::metadata(&self.path).and_then(|found| found.modified()).ok()?;
                written.elapsed().is_ok_and(|age| age < EMPTY_FOR).then_some(None)
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let owner = fs::read(&self.0).ok().and_then(|bytes| serde_json::from_slice::<Owner>(&bytes).ok());
        if owner.is_some_and(|owner| owner.pid == std::process::id())
            && let Err(reason) = remove(&self.0)
        {
            tracing::warn!(path = %self.0.display(), %reason, "OpenClaw's lock could not be removed");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_alive(owner: &Owner) -> bool {
    match (owner.start_time, lock::began(owner.pid)) {
        (Some(then), Some(now)) => then == now,
        (None, Some(_)) => true,
        // Only Linux tells when a process began.
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

        fn lock(&self) -> Lock {
            Lock::new(&self.0.path().join("state"), None, &self.0.path().join("openclaw-7"))
        }

        /// A lock that another process left.
        fn left(&self, pid: u32, start_time: Option<u64>) -> Lock {
            let lock = self.lock();
            let owner = Owner { pid, created_at: String::new(), config_path: lock.config.clone(), start_time };
            fs::create_dir_all(lock.path.parent().unwrap()).unwrap();
            fs::write(&lock.path, serde_json::json!(owner).to_string()).unwrap();
            lock
        }
    }

    fn read(lock: &Lock) -> Owner {
        serde_json::from_slice(&fs::read(&lock.path).unwrap()).unwrap()
    }

    #[test]
    fn the_lock_is_where_openclaw_looks_for_it() {
        let lock = Lock::new(Path::new("/home/me/.openclaw"), None, Path::new("/tmp/openclaw-1000"));
        assert_eq!(lock.path, Path::new("/tmp/openclaw-1000/gateway.d71013c3.lock"));
        let home = Home::new();
        fs::create_dir(home.0.path().join("state")).unwrap();
        fs::write(home.0.path().join("state/moltbot.json"), "{}").unwrap();
        assert_eq!(home.lock().config, home.0.path().join("state/moltbot.json"));
    }

    #[test]
    fn a_lock_is_filled_in_and_goes_with_its_owner() {
        let home = Home::new();
        let lock = home.lock();
        let held = lock.take().unwrap();
        let pid = std::process::id();
        let created_at = read(&lock).created_at;
        let expected = Owner { pid, created_at, config_path: lock.config.clone(), start_time: lock::began(pid) };
        assert_eq!(read(&lock), expected);
        assert!(expected.created_at.ends_with('Z') && expected.created_at.len() == "2026-11-15T02:32:40.355Z".len());
        assert_eq!(fs::read_dir(lock.path.parent().unwrap()).unwrap().count(), 1);
        drop(held);
        assert!(!lock.path.exists());
    }

    #[test]
    fn a_live_gateway_keeps_its_directory() {
        let home = Home::new();
        let pid = std::process::id();
        let lock = home.left(pid, lock::began(pid));
        let refused = lock.take().unwrap_err();
        let expected = format!("is in use by an OpenClaw gateway, process {pid} (its lock is {})", lock.path.display());
        assert!(matches!(&refused, StoreError::Locked(text) if text.contains(&expected)), "{refused:?}");
        fs::write(&lock.path, "").unwrap();
        assert!(lock.take().is_err(), "it may be about to be filled in");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_that_nobody_has_any_more_is_replaced() {
        let pid = std::process::id();
        for (gone, start_time) in [(pid, Some(1)), (u32::MAX - 1, Some(1)), (u32::MAX - 1, None)] {
            let home = Home::new();
            let lock = home.left(gone, start_time);
            let held = lock.take().unwrap();
            assert!(held.is_some());
            assert_eq!(read(&lock).start_time, lock::began(pid));
        }
    }

    #[test]
    fn a_lock_that_somebody_else_took_meanwhile_stays() {
        let home = Home::new();
        let held = home.lock().take().unwrap();
        let lock = home.left(1, None);
        drop(held);
        assert!(lock.path.exists());
    }

    #[test]
    fn where_there_can_be_no_lock_the_gateway_starts_all_the_same() {
        let home = Home::new();
        fs::write(home.0.path().join("openclaw-7"), "a file").unwrap();
        assert!(home.lock().take().unwrap().is_none());
    }
}
