//! Runs the gateway in the background and restarts it after a failure, on machines without a service manager.
//!
//! One supervisor serves a state directory: it holds the lock of a file in it, and describes itself and its gateway in
//! another. The gateway's output goes to a log file.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::{Error, spec::PERMANENT_FAILURES};

/// Names of the files in the state directory that belong to the running supervisor.
pub const FILES: [&str; 2] = [LOCK, RECORD];
const LOCK: &str = "supervisor.lock";
const RECORD: &str = "supervisor.json";

/// Delay before the first restart; it doubles up to the maximum.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Uptime after which a gateway counts as stable and the delay starts again.
const STABLE: Duration = Duration::from_secs(60);
/// How long the gateway may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
/// Size of the log in bytes above which it is renamed when the gateway starts.
const MAX_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// State of a supervisor, as its file contains it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SupervisorRecord {
    /// Process id of the supervisor.
    pub pid: u32,
    /// Process id of the gateway, while it runs.
    pub gateway: Option<u32>,
    /// How often the gateway was restarted.
    pub restarts: u32,
    /// How the gateway ended last, if it did.
    pub last_exit: Option<String>,
}

/// A gateway to supervise.
#[derive(Debug)]
pub struct Supervisor {
    state: PathBuf,
    program: PathBuf,
    args: Vec<String>,
    record: SupervisorRecord,
    /// Held until the end.
    _lock: File,
}

/// Delays between restarts.
#[derive(Debug)]
struct Backoff(Duration);

impl Backoff {
    /// Returns the delay before the next start of a gateway that ran this long.
    fn after(&mut self, uptime: Duration) -> Duration {
        let delay = if uptime >= STABLE { FIRST_DELAY } else { self.0 };
        self.0 = (delay * 2).min(MAX_DELAY);
        delay
    }
}

impl Supervisor {
    /// Becomes the supervisor of a state directory, whose gateway is `program` with these arguments. Detaches from the
    /// terminal of the process that started it.
    pub fn begin(state: &Path, program: &Path, args: &[&str]) -> Result<Self, Error> {
        let lock = open_lock(state)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Supervised(running(state)?.unwrap_or_default().pid));
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", state.join(LOCK))(error)),
        }
        // Fails only for the leader of a process group, which has its own terminal or none.
        rustix::process::setsid().ok();
        let record = SupervisorRecord { pid: std::process::id(), ..SupervisorRecord::default() };
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let supervisor = Self { state: state.to_owned(), program: program.to_owned(), args, record, _lock: lock };
        // Before anything runs, so that it can be stopped.
        supervisor.write()?;
        Ok(supervisor)
    }

    /// Runs the gateway until it ends by itself or `stop` completes; restarts it after failures. Returns the last exit.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<ExitStatus, Error> {
        tokio::pin!(stop);
        let mut backoff = Backoff(FIRST_DELAY);
        loop {
            let started_at = Instant::now();
            let mut gateway = self.start()?;
            self.record.gateway = gateway.id();
            self.update();
            let waited = tokio::select! {
                biased;
                status = gateway.wait() => status.map(|status| (status, true)),
                () = &mut stop => end(&mut gateway).await.map(|status| (status, false)),
            };
            let (status, is_over) = waited.map_err(Error::file("wait for", &self.program))?;
            self.record.gateway = None;
            self.record.last_exit = Some(status.to_string());
            self.update();
            let is_final = status.success() || status.code().is_some_and(|code| PERMANENT_FAILURES.contains(&code));
            if !is_over || is_final {
                return Ok(status);
            }
            let delay = backoff.after(started_at.elapsed());
            tracing::warn!(%status, ?delay, "the gateway ended; restarting it");
            tokio::select! {
                biased;
                () = &mut stop => return Ok(status),
                () = sleep(delay) => {}
            }
            self.record.restarts += 1;
        }
    }

    fn start(&self) -> Result<tokio::process::Child, Error> {
        let log = open_log(&self.state)?;
        let path = log_file(&self.state);
        let errors = log.try_clone().map_err(Error::file("open", path))?;
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(log).stderr(errors);
        command.spawn().map_err(Error::file("run", &self.program))
    }

    /// Updates the record. A failure does not end the supervision of a running gateway.
    fn update(&self) {
        if let Err(error) = self.write() {
            tracing::warn!(%error, "failed to write the record of the supervisor");
        }
    }

    fn write(&self) -> Result<(), Error> {
        let path = self.state.join(RECORD);
        homard_stdx::file::replace(&path, format!("{}\n", serde_json::json!(self.record)).as_bytes())
            .map_err(Error::file("write", path))
    }
}

/// Asks the gateway to stop, and kills it if it does not.
async fn end(gateway: &mut tokio::process::Child) -> io::Result<ExitStatus> {
    if let Some(pid) = gateway.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM)?;
    }
    match timeout(STOP_TIMEOUT, gateway.wait()).await {
        Ok(status) => status,
        Err(_) => {
            gateway.start_kill()?;
            gateway.wait().await
        }
    }
}

/// Starts a supervisor that outlives this process: `program` with these arguments, which calls [`Supervisor::begin`].
pub fn start_detached(state: &Path, program: &Path, args: &[&str]) -> Result<std::process::Child, Error> {
    let log = open_log(state)?;
    let errors = log.try_clone().map_err(Error::file("open", log_file(state)))?;
    let mut command = Command::new(program);
    command.args(args).env("HOMARD_STATE_DIR", state).stdin(Stdio::null()).stdout(log).stderr(errors);
    command.spawn().map_err(Error::file("run", program))
}

/// Returns what the supervisor of a state directory says about itself; `None` if none runs.
pub fn running(state: &Path) -> Result<Option<SupervisorRecord>, Error> {
    if !state.join(LOCK).exists() {
        return Ok(None);
    }
    let lock = open_lock(state)?;
    match lock.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(last_record(state))),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", state.join(LOCK))(error)),
    }
}

/// Returns what the last supervisor of a state directory wrote, whether or not it still runs.
pub fn last_record(state: &Path) -> SupervisorRecord {
    let record = fs::read(state.join(RECORD)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    record.unwrap_or_default()
}

/// Stops the supervisor of a state directory and its gateway, and returns when both have ended. Returns false if none
/// runs. Blocks.
pub fn stop(state: &Path) -> Result<bool, Error> {
    let Some(record) = running(state)? else { return Ok(false) };
    let path = state.join(LOCK);
    let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::Spec(format!("{} names no process", state.join(RECORD).display())))?;
    kill_process(pid, Signal::TERM).map_err(|error| Error::file("stop the owner of", &path)(error.into()))?;
    open_lock(state)?.lock_shared().map_err(Error::file("lock", path))?;
    Ok(true)
}

/// Returns the file with the output of supervisor and gateway.
pub fn log_file(state: &Path) -> PathBuf {
    state.join("logs").join("service.log")
}

fn open_lock(state: &Path) -> Result<File, Error> {
    let path = state.join(LOCK);
    private().read(true).write(true).create(true).truncate(false).open(&path).map_err(Error::file("open", path))
}

/// Opens the log; renames a long one first.
fn open_log(state: &Path) -> Result<File, Error> {
    let path = log_file(state);
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(Error::file("create", folder))?;
    }
    if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        fs::rename(&path, path.with_added_extension("1")).map_err(Error::file("rename", &path))?;
    }
    private().append(true).create(true).open(&path).map_err(Error::file("open", path))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn supervisor(state: &Path, script: &str) -> Supervisor {
        Supervisor::begin(state, Path::new("/bin/sh"), &["-c", script]).unwrap()
    }

    #[test]
    fn restarts_slow_down_until_the_gateway_is_stable() {
        let mut backoff = Backoff(FIRST_DELAY);
        let short = Duration::from_millis(10);
        let delays: Vec<_> = (0..8).map(|_| backoff.after(short).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!([backoff.after(STABLE), backoff.after(short)].map(|delay| delay.as_secs()), [1, 2]);
    }

    #[tokio::test]
    async fn a_gateway_that_fails_is_restarted_and_one_that_succeeds_is_not() {
        let state = tempfile::tempdir().unwrap();
        let script = format!("cd {}; echo start; test -e again && exit 0; touch again; exit 7", state.path().display());
        let status = supervisor(state.path(), &script).run(std::future::pending()).await.unwrap();
        assert!(status.success());
        assert_eq!(fs::read_to_string(log_file(state.path())).unwrap(), "start\nstart\n");
        let record = last_record(state.path());
        assert_eq!((record.restarts, record.last_exit.as_deref()), (1, Some("exit status: 0")));
        assert_eq!(running(state.path()).unwrap(), None);
    }

    #[tokio::test]
    async fn an_invalid_config_is_not_tried_again() {
        let state = tempfile::tempdir().unwrap();
        let status = supervisor(state.path(), "exit 78").run(std::future::pending()).await.unwrap();
        assert_eq!((status.code(), last_record(state.path()).restarts), (Some(78), 0));
    }

    #[tokio::test]
    async fn a_supervisor_stops_its_gateway_and_is_alone() {
        let state = tempfile::tempdir().unwrap();
        let first = supervisor(state.path(), "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
        let refused = Supervisor::begin(state.path(), Path::new("/bin/sh"), &[]).unwrap_err();
        assert!(matches!(refused, Error::Supervised(_)), "{refused}");
        let (stop, stopped) = oneshot::channel::<()>();
        let path = log_file(state.path());
        let ready = async move {
            while !fs::read_to_string(&path).is_ok_and(|text| text.contains("ready")) {
                tokio::task::yield_now().await;
            }
            stop.send(()).unwrap();
        };
        let stopped = async { stopped.await.unwrap() };
        let (status, ()) = tokio::join!(first.run(stopped), ready);
        assert_eq!(status.unwrap().code(), Some(5));
    }
}
