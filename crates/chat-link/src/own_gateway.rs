//! A gateway that is started for a chat, because none was running.
//!
//! It is a process of its own, with the code of every gateway: other commands and chats find it, and it can crash
//! without the chat. It ends when its standard input is closed, which the system does whenever the chat ends, also by
//! SIGKILL.

use std::{
    env,
    fs::File,
    io::{self, Read, Seek},
    process::Stdio,
    time::Duration,
};

use homard_settings::paths::{self, Paths};
use tokio::{
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use crate::Error;

/// Maximum bytes of its error message.
const MAX_MESSAGE: u64 = 4_096;
/// Time to wait for its end, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);

/// The process.
#[derive(Debug)]
pub(super) struct OwnGateway {
    process: Child,
    /// Its standard input: closing it ends the process.
    lifeline: Option<ChildStdin>,
    /// What it writes to stderr. A pipe would have to be read all the time.
    errors: File,
}

impl OwnGateway {
    /// Starts a gateway for the state directory. It listens on a free port unless one is set in the environment.
    pub(super) fn start(paths: &Paths) -> Result<Self, Error> {
        let program = env::current_exe().map_err(failed("cannot find this program"))?;
        let mut command = Command::new(program);
        command.args(["gateway", "run", "--for-chat", "--bind", "loopback"]);
        if paths::port()?.is_none() {
            command.args(["--port", "0"]);
        }
        // Only what it says when it cannot start is read.
        let errors = tempfile::tempfile().map_err(failed("cannot create a temporary file"))?;
        let stderr = errors.try_clone().map_err(failed("cannot use a temporary file"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr).env("HOMARD_LOG", "error");
        command.env("HOMARD_STATE_DIR", &paths.state).env("HOMARD_CONFIG_PATH", &paths.config);
        if !paths.config.exists() {
            command.env_remove("HOMARD_CONFIG_PATH");
        }
        command.kill_on_drop(true);
        let mut process = command.spawn().map_err(failed("cannot start a gateway"))?;
        let lifeline = process.stdin.take();
        Ok(Self { process, lifeline, errors })
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

    /// Returns true if this is its process id.
    pub(super) fn is_process(&self, pid: u32) -> bool {
        self.process.id() == Some(pid)
    }

    /// Returns the gateway unless it has ended.
    pub(super) fn if_running(mut self) -> Option<Self> {
        self.process.try_wait().is_ok_and(|status| status.is_none()).then_some(self)
    }

    /// Ends it, and waits for that. What its runs did is stored; they continue when their session is used again.
    pub(super) async fn stop(mut self) {
        drop(self.lifeline.take());
        if timeout(STOP_TIMEOUT, self.process.wait()).await.is_err() {
            // Fails only if it has ended meanwhile.
            self.process.kill().await.ok();
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Process { what, error }
}
