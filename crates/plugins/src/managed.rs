//! Supervised processes that are not plugins but speak the same protocol, such as the host of channel packages.
//!
//! The process is started on first use, pinged, and restarted with a growing delay when it hangs or ends.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Error,
    host::Host,
    host_api::{ProcessInfo, UncaughtErrors},
    process::ProcessSpec,
    registrations::Registrations,
    rpc_session::RpcSession,
    supervisor::{
        CallParams, InitError, Launcher, LoadedPlugins, ProcessLife, ProcessSupervisor, ProcessTiming, RunningProcess,
    },
};

/// How a program is started.
#[derive(Debug, Clone, Default)]
pub struct ProgramCommand {
    /// Program and arguments.
    pub run: Vec<String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Complete environment.
    pub env: BTreeMap<String, String>,
}

/// A program that runs as a supervised process, and the requests that it may send.
#[async_trait]
pub trait Program: Host {
    /// Returns its name for logs.
    fn name(&self) -> String;

    /// Returns how to start it; an error says what the owner has to do.
    async fn command(&self) -> Result<ProgramCommand, String>;

    /// Returns the parameters of the request `initialize`.
    fn init_params(&self) -> Value;

    /// Receives the answer to `initialize`.
    fn initialised(&self, answer: Value);
}

/// Why a program is down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramDown {
    /// The reason.
    pub why: String,
    /// Time until it may be started again.
    pub retry_after: Duration,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ProgramCallError {
    /// The reason.
    pub error: Error,
    /// False if the program cannot have read the request.
    pub is_sent: bool,
}

/// A supervised program. Dropping it ends the process.
#[derive(Debug)]
pub struct ManagedProcess {
    worker: Arc<ProcessSupervisor>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A running instance of a program.
#[derive(Debug, Clone)]
pub struct RunningProgram(Arc<RunningProcess>);

impl ManagedProcess {
    /// Creates a supervisor; the process is not started yet.
    pub fn new(program: Arc<dyn Program>, timing: ProcessTiming) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let launcher = ProgramLauncher { program, uncaught: UncaughtErrors::default() };
        Self { worker: ProcessSupervisor::new(Box::new(launcher), timing, stop.clone(), &tasks), stop, tasks }
    }

    /// Returns the running program, starting it on first use. While it is down, returns why.
    pub async fn up(&self) -> Result<RunningProgram, ProgramDown> {
        let up = self.worker.up_or_down().await;
        up.map(RunningProgram).map_err(|(why, retry_after)| ProgramDown { why, retry_after })
    }

    /// Returns the program if it is running.
    pub fn running(&self) -> Option<RunningProgram> {
        match &*self.worker.state().borrow() {
            ProcessLife::Up(process) if !process.session.has_ended() => Some(RunningProgram(process.clone())),
            ProcessLife::Up(_)
            | ProcessLife::Off
            | ProcessLife::Starting
            | ProcessLife::Down { .. }
            | ProcessLife::Over => None,
        }
    }

    /// Ends the process and waits for its end.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl RunningProgram {
    /// Calls a method once.
    pub async fn call(&self, method: &str, params: &Value, time_limit: Duration) -> Result<Value, ProgramCallError> {
        let params = CallParams::plain(params).map_err(|error| ProgramCallError { error, is_sent: false })?;
        let (result, is_sent) = self.0.session.call_once(method, &params.params, time_limit, None).await;
        result.map_err(|error| ProgramCallError { error, is_sent })
    }

    /// Returns the process id.
    pub fn pid(&self) -> Option<u32> {
        self.0.session.pid()
    }

    /// Waits until the process is gone, and returns the reason.
    pub async fn ended(&self) -> String {
        self.0.session.ended().await
    }

    /// Kills the process; the supervisor restarts it.
    pub async fn end(&self, reason: &str) {
        self.0.session.end(reason).await;
    }
}

/// Starts a program.
struct ProgramLauncher {
    program: Arc<dyn Program>,
    uncaught: UncaughtErrors,
}

#[async_trait]
impl Launcher for ProgramLauncher {
    fn process_info(&self) -> ProcessInfo {
        ProcessInfo {
            name: self.program.name(),
            // Pinged also while calls are pending: its work is asynchronous.
            is_shared: true,
            allowed_methods: None,
            host: self.program.clone(),
            uncaught: self.uncaught.clone(),
        }
    }

    async fn process_spec(&self) -> Result<ProcessSpec, String> {
        let ProgramCommand { run, dir, env } = self.program.command().await?;
        Ok(ProcessSpec { name: self.program.name(), run, dir, env, memory_mb: None })
    }

    async fn initialise(&self, session: &RpcSession, time_limit: Duration) -> Result<LoadedPlugins, InitError> {
        let failed = |error: Error| InitError::Retry(format!("{} did not start: {error}", self.program.name()));
        let call = CallParams::plain(&self.program.init_params()).map_err(failed)?;
        let answer = session.call("initialize", &call.params, time_limit, None).await.map_err(failed)?;
        self.program.initialised(answer);
        Ok(vec![(self.program.name(), Ok(Registrations::default()))])
    }

    fn initialised(&self, loaded: &LoadedPlugins) {
        tracing::debug!(program = self.program.name(), parts = loaded.len(), "process initialised");
    }
}
