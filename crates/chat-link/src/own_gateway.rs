//! A gateway that is started for a chat, because none was running.
//!
//! It is a process of its own: it can crash without the chat, and it ends active runs as every gateway does. Other
//! commands find it as they find any gateway.

use std::{
    env,
    fs::File,
    io::{self, Read, Seek},
    process::Stdio,
    time::Duration,
};

use homard_settings::paths::{self, Paths};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::Error;

/// Maximum bytes of its error message.
const MAX_MESSAGE: u64 = 4_096;
/// Time to wait for its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The process.
#[derive(Debug)]
pub(super) struct OwnGateway {
    process: Child,
    /// What it writes to stderr. A pipe would have to be read all the time.
    errors: File,
}

impl OwnGateway {
    /// Starts a gateway for the state directory. It listens on a free port unless one is set in the environment.
    pub(super) fn start(paths: &Paths) -> Result<Self, Error> {
        let program = env::current_exe().map_err(failed("cannot find this program"))?;
        let mut command = Command::new(program);
        command.args(["gateway", "run", "--bind", "loopback"]);
        if paths::port()?.is_none() {
            command.args(["--port", "0"]);
        }
        // Only what it says when it cannot start is read.
        let errors = tempfile::tempfile().map_err(failed("cannot create a temporary file"))?;
        let stderr = errors.try_clone().map_err(failed("cannot use a temporary file"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).env("HOMARD_LOG", "error");
        command.env("HOMARD_STATE_DIR", &paths.state).env("HOMARD_CONFIG_PATH", &paths.config);
        if !paths.config.exists() {
            command.env_remove("HOMARD_CONFIG_PATH");
        }
        let process = command.spawn().map_err(failed("cannot start a gateway"))?;
        Ok(Self { process, errors })
    }

    /// Returns why it ended, if it did.
    pub(super) fn failure(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok()??;
        let mut message = Vec::new();
        // What can be read is enough.
        self.errors.rewind().and_then(|()| self.errors.by_ref().take(MAX_MESSAGE).read_to_end(&mut message)).ok();
        let message = String::from_utf8_lossy(&message);
        let message = message.trim();
        Some(if message.is_empty() { format!("it ended with {status}") } else { message.to_owned() })
    }

    /// Asks it to end, and waits a moment. It finishes active runs first, within its own limit.
    pub(super) async fn stop(mut self) {
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        // Fails only if it has ended.
        if pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok()) {
            timeout(STOP_TIMEOUT, self.process.wait()).await.ok();
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Process { what, source }
}
