//! A command from its start until it is removed: its output, input and outcome.

use std::{os::unix::process::ExitStatusExt, path::PathBuf, sync::Arc, time::Duration};

use homard_audit::{Audit, AuditRecord};
use homard_runtime::{Ambient, task};
use homard_stdx::sync::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    hints::hints,
    output::OutputBuffer,
    process::{CommandEnd, CommandInput, CommandProcess, FinishedProcess},
};

/// Bytes kept of the beginning and of the end of the output between two polls.
const MAX_UNREAD: usize = 15_000;

/// Time limit for a command to read its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends the input of a terminal, if it is alone on its line.
const END_OF_INPUT: &[u8] = &[4];

/// A running or finished command.
#[derive(Debug)]
pub(crate) struct CommandJob {
    /// The command line.
    pub(crate) command: String,
    /// Working directory.
    pub(crate) cwd: PathBuf,
    /// Id of its first process.
    pub(crate) pid: Option<u32>,
    /// When it was started, in milliseconds since the epoch.
    pub(crate) started_ms: u64,
    started: Instant,
    limit: Duration,
    ambient: Ambient,
    stop: CancellationToken,
    written: Mutex<CapturedOutput>,
    outcome: watch::Sender<Option<Arc<CommandOutcome>>>,
    input: tokio::sync::Mutex<Option<CommandInput>>,
}

#[derive(Debug)]
struct CapturedOutput {
    all: OutputBuffer,
    unread: OutputBuffer,
    is_fresh: bool,
}

/// Outcome of a finished command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandOutcome {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// `timeout`, `cancel`, `limit` or `sandbox` if it was stopped.
    pub(crate) stopped: Option<&'static str>,
    /// What went wrong, as a sentence without its full stop; `None` on success.
    pub(crate) error: Option<String>,
    /// Number of processes it left behind, which were killed.
    pub(crate) leftover_processes: usize,
    /// Notes about its sandbox, one sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) duration: Duration,
    pub(crate) ended_ms: u64,
    pub(crate) ended: Instant,
}

impl CommandOutcome {
    /// Adds the outcome to an audit entry.
    fn add_to_audit(&self, record: AuditRecord) -> AuditRecord {
        let outcome = self.stopped.unwrap_or(if self.error.is_none() { "ok" } else { "failed" });
        let record = record.outcome(outcome).count("ms", homard_stdx::time::millis(self.duration));
        match (self.exit_code, self.signal) {
            (Some(code), _) => record.count("code", u64::from(code.unsigned_abs())),
            (None, Some(signal)) => record.count("signal", u64::from(signal.unsigned_abs())),
            (None, None) => record,
        }
    }
}

/// Parameters of a command to be watched.
#[derive(Debug)]
pub(crate) struct JobParams {
    pub(crate) command: String,
    pub(crate) cwd: PathBuf,
    pub(crate) limit: Duration,
    pub(crate) ambient: Ambient,
    /// Audit log and entry for its end.
    pub(crate) on_end: (Audit, AuditRecord),
}

impl CommandJob {
    /// Watches a process until it ends, in a separate task.
    pub(crate) fn watch(process: CommandProcess, input: Option<CommandInput>, params: JobParams) -> Arc<Self> {
        let JobParams { command, cwd, limit, ambient, on_end: (audit, record) } = params;
        let job = Arc::new(Self {
            command,
            cwd,
            pid: process.pid(),
            started_ms: ambient.now_ms(),
            started: Instant::now(),
            limit,
            ambient,
            stop: CancellationToken::new(),
            written: Mutex::new(CapturedOutput {
                all: OutputBuffer::default(),
                unread: OutputBuffer::with_limits(MAX_UNREAD, MAX_UNREAD),
                is_fresh: false,
            }),
            outcome: watch::Sender::new(None),
            input: tokio::sync::Mutex::new(input),
        });
        let watched = job.clone();
        task::spawn("command", async move {
            let finished = process.finish(&watched.stop, watched.limit, |bytes| watched.append_output(bytes)).await;
            watched.input.lock().await.take();
            let outcome = watched.outcome(&finished);
            audit.note(outcome.add_to_audit(record));
            watched.outcome.send_replace(Some(Arc::new(outcome)));
        });
        job
    }

    /// Requests that it be stopped.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns a token that stops the command when cancelled.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits for its end.
    pub(crate) async fn finished(&self) -> Arc<CommandOutcome> {
        let mut watched = self.outcome.subscribe();
        match watched.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            // Unreachable: the sender is a field of `self`.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Returns the outcome, if it has ended.
    pub(crate) fn outcome_if_finished(&self) -> Option<Arc<CommandOutcome>> {
        self.outcome.borrow().clone()
    }

    /// Returns the running time.
    pub(crate) fn elapsed(&self) -> Duration {
        self.outcome_if_finished().map_or_else(|| self.started.elapsed(), |outcome| outcome.duration)
    }

    /// Returns the kept output, and whether some of it was dropped.
    pub(crate) fn text(&self) -> (String, bool) {
        let output = self.written();
        (output.all.text(), output.all.is_truncated())
    }

    /// Returns about the last `count` bytes of its output.
    pub(crate) fn tail(&self, count: usize) -> String {
        self.written().all.tail(count)
    }

    /// Returns the output since the previous call.
    pub(crate) fn unread(&self) -> String {
        self.written().unread.take().text()
    }

    /// Returns the newest output, if there is any since the previous call.
    pub(crate) fn new_output(&self, count: usize) -> Option<String> {
        let mut output = self.written();
        std::mem::take(&mut output.is_fresh).then(|| output.all.tail(count))
    }

    /// Writes to its input and optionally closes it. The error is a message for the model.
    pub(crate) async fn write_input(&self, bytes: &[u8], then_end: bool) -> Result<usize, String> {
        let mut guard = self.input.lock().await;
        let Some(input) = guard.as_mut() else {
            return Err(
                "the command has no input: only a command that was started with background or pty has one".to_owned()
            );
        };
        let end = if then_end && input.is_terminal { END_OF_INPUT } else { &[] };
        let bytes = [bytes, end].concat();
        let mut written = 0;
        while written < bytes.len() {
            match timeout(INPUT_TIMEOUT, input.pipe.write(&bytes[written..])).await {
                Ok(Ok(count)) => written += count,
                Ok(Err(error)) => return Err(format!("its input is closed ({error})")),
                Err(_) => {
                    return Err(format!("the command does not read its input; only {written} bytes were written"));
                }
            }
        }
        if then_end && !input.is_terminal {
            *guard = None;
        }
        Ok(written - end.len())
    }

    /// True if it has a terminal.
    pub(crate) async fn has_terminal(&self) -> bool {
        self.input.lock().await.as_ref().is_some_and(|input| input.is_terminal)
    }

    fn append_output(&self, bytes: &[u8]) {
        let mut output = self.written();
        output.all.push(bytes);
        output.unread.push(bytes);
        output.is_fresh = true;
    }

    fn written(&self) -> MutexGuard<'_, CapturedOutput> {
        self.written.lock()
    }

    /// Returns notes about the sandbox of a finished command.
    fn notes(&self, finished: &FinishedProcess, exit_code: Option<i32>) -> Vec<String> {
        let Some(notes) = &finished.notes else { return Vec::new() };
        let limits = finished.usage.as_ref().map(|usage| &usage.limits);
        let mut all = hints(&self.text().0, exit_code, finished.wrapper, limits);
        all.extend(notes.iter().cloned());
        all
    }

    fn outcome(&self, finished: &FinishedProcess) -> CommandOutcome {
        let (mut exit_code, mut signal, mut stopped) = (None, None, None);
        let error_text = match &finished.end {
            CommandEnd::Exited(status) => {
                (exit_code, signal) = (status.code(), status.signal());
                match (status.code(), status.signal()) {
                    (Some(0), _) => None,
                    // Exit codes with which a shell, or the sandbox for a shell, reports death by a signal.
                    (Some(code @ 129..=159), _) => {
                        Some(format!("Command exited with code {code} (signal {})", code - 128))
                    }
                    (Some(code), _) => Some(format!("Command exited with code {code}")),
                    (None, signal) => Some(format!("Command was killed by signal {}", signal.unwrap_or_default())),
                }
            }
            CommandEnd::TimedOut => {
                stopped = Some("timeout");
                Some(format!("Command timed out after {} seconds and was stopped", self.limit.as_secs_f64()))
            }
            CommandEnd::Cancelled => {
                stopped = Some("cancel");
                Some("Command was stopped, because the run was stopped".to_owned())
            }
            CommandEnd::Exceeded(exceeded) => {
                stopped = Some("limit");
                Some(exceeded.trouble())
            }
            CommandEnd::Planted(path) => {
                stopped = Some("sandbox");
                Some(format!(
                    "Command was stopped, because it created {} again after the sandbox had quarantined it",
                    path.display()
                ))
            }
            CommandEnd::Lost(error) => Some(format!("Command was stopped, because it could not be monitored: {error}")),
        };
        CommandOutcome {
            exit_code,
            signal,
            stopped,
            error: error_text,
            leftover_processes: finished.leftover_processes,
            notes: self.notes(finished, exit_code),
            duration: self.started.elapsed(),
            ended_ms: self.ambient.now_ms(),
            ended: Instant::now(),
        }
    }
}

impl CommandOutcome {
    /// Returns the status for structured details.
    pub(crate) fn status(&self) -> &'static str {
        if self.error.is_none() { "completed" } else { "failed" }
    }

    /// Adds the outcome to structured details.
    pub(crate) fn add_to_details(&self, details: &mut Value) {
        details["status"] = json!(self.status());
        details["exitCode"] = json!(self.exit_code);
        if let Some(signal) = self.signal {
            details["signal"] = json!(signal);
        }
        if let Some(stopped) = self.stopped {
            details["stopped"] = json!(stopped);
        }
    }
}
