//! One command, from its start until nobody asks for it any more: its output, its input, its end.

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{Ambient, task};
use homard_audit::{Audit, Fact};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    hints::hints,
    output::Output,
    process::{End, Finished, Input, Process},
};

/// How much of the beginning and of the end is kept of what was written between two polls.
const UNREAD: usize = 15_000;

/// How long a command may take to read what it is told.
const LISTEN: Duration = Duration::from_secs(2);

/// What ends the input of a terminal, if it is alone on its line.
const END_OF_INPUT: &[u8] = &[4];

/// A command, at work or over.
#[derive(Debug)]
pub(crate) struct Job {
    /// What the shell runs.
    pub(crate) command: String,
    /// Where.
    pub(crate) cwd: PathBuf,
    /// The number of its first process.
    pub(crate) pid: Option<u32>,
    /// When it was started, in milliseconds since the epoch.
    pub(crate) started_ms: u64,
    started: Instant,
    limit: Duration,
    ambient: Ambient,
    stop: CancellationToken,
    written: Mutex<Written>,
    outcome: watch::Sender<Option<Arc<Outcome>>>,
    input: tokio::sync::Mutex<Option<Input>>,
}

#[derive(Debug)]
struct Written {
    all: Output,
    unread: Output,
    is_fresh: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// `timeout`, `cancel`, `limit` or `sandbox` if we ended it.
    pub(crate) stopped: Option<&'static str>,
    /// What went wrong, as a sentence without its full stop; nothing if it did what it was asked.
    pub(crate) trouble: Option<String>,
    /// How many processes it left behind, which were ended.
    pub(crate) left: usize,
    /// What its sandbox has to say, a sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) ended_ms: u64,
    pub(crate) ended: Instant,
}

impl Outcome {
    /// Its end, in a few words and numbers.
    fn noted(&self, fact: Fact) -> Fact {
        let how = self.stopped.unwrap_or(if self.trouble.is_none() { "ok" } else { "failed" });
        let fact = fact.ended(how).count("ms", u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX));
        match (self.exit_code, self.signal) {
            (Some(code), _) => fact.count("code", u64::from(code.unsigned_abs())),
            (None, Some(signal)) => fact.count("signal", u64::from(signal.unsigned_abs())),
            (None, None) => fact,
        }
    }
}

/// What is known of a command before it starts.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) command: String,
    pub(crate) cwd: PathBuf,
    pub(crate) limit: Duration,
    pub(crate) ambient: Ambient,
    /// Where its end is noted, and as what.
    pub(crate) on_end: (Audit, Fact),
}

impl Job {
    /// Watches a process until its end, in a task of its own that ends with it.
    pub(crate) fn watch(process: Process, input: Option<Input>, order: Order) -> Arc<Self> {
        let Order { command, cwd, limit, ambient, on_end: (audit, fact) } = order;
        let job = Arc::new(Self {
            command,
            cwd,
            pid: process.pid(),
            started_ms: ambient.now_ms(),
            started: Instant::now(),
            limit,
            ambient,
            stop: CancellationToken::new(),
            written: Mutex::new(Written {
                all: Output::default(),
                unread: Output::keeping(UNREAD, UNREAD),
                is_fresh: false,
            }),
            outcome: watch::Sender::new(None),
            input: tokio::sync::Mutex::new(input),
        });
        let watched = job.clone();
        task::spawn("command", async move {
            let finished = process.finish(&watched.stop, watched.limit, |bytes| watched.hear(bytes)).await;
            watched.input.lock().await.take();
            let outcome = watched.outcome(&finished);
            audit.note(outcome.noted(fact));
            watched.outcome.send_replace(Some(Arc::new(outcome)));
        });
        job
    }

    /// Ends it, soon.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends it when it is cancelled.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits for its end.
    pub(crate) async fn over(&self) -> Arc<Outcome> {
        let mut watched = self.outcome.subscribe();
        match watched.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            // The sender is a part of `self`: it is there.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Arc<Outcome>> {
        self.outcome.borrow().clone()
    }

    /// How long it has been at work.
    pub(crate) fn took(&self) -> Duration {
        self.ended().map_or_else(|| self.started.elapsed(), |outcome| outcome.took)
    }

    /// All that was kept of its output, and whether something is left out.
    pub(crate) fn text(&self) -> (String, bool) {
        let written = self.written();
        (written.all.text(), written.all.is_cut())
    }

    /// About the last `count` bytes of its output.
    pub(crate) fn tail(&self, count: usize) -> String {
        self.written().all.last(count)
    }

    /// What was written since this was asked before.
    pub(crate) fn unread(&self) -> String {
        self.written().unread.take().text()
    }

    /// The newest output, if there is any since this was asked before.
    pub(crate) fn news(&self, count: usize) -> Option<String> {
        let mut written = self.written();
        std::mem::take(&mut written.is_fresh).then(|| written.all.last(count))
    }

    /// Tells it something, and ends its input then if asked to. `Err` says why not, for a model.
    pub(crate) async fn tell(&self, bytes: &[u8], then_end: bool) -> Result<usize, String> {
        let mut held = self.input.lock().await;
        let Some(input) = held.as_mut() else {
            return Err("it has no input: only a command that was started with background or pty has".to_owned());
        };
        let end = if then_end && input.is_terminal { END_OF_INPUT } else { &[] };
        let bytes = [bytes, end].concat();
        let mut told = 0;
        while told < bytes.len() {
            match timeout(LISTEN, input.pipe.write(&bytes[told..])).await {
                Ok(Ok(count)) => told += count,
                Ok(Err(error)) => return Err(format!("its input is closed ({error})")),
                Err(_) => return Err(format!("it does not read its input, and took only {told} bytes")),
            }
        }
        if then_end && !input.is_terminal {
            *held = None;
        }
        Ok(told - end.len())
    }

    /// Whether it has a terminal.
    pub(crate) async fn has_terminal(&self) -> bool {
        self.input.lock().await.as_ref().is_some_and(|input| input.is_terminal)
    }

    fn hear(&self, bytes: &[u8]) {
        let mut written = self.written();
        written.all.push(bytes);
        written.unread.push(bytes);
        written.is_fresh = true;
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a sandbox has to say of a command that is over.
    fn notes(&self, finished: &Finished, exit_code: Option<i32>) -> Vec<String> {
        let Some(notes) = &finished.notes else { return Vec::new() };
        let limits = finished.usage.as_ref().map(|usage| &usage.limits);
        let mut all = hints(&self.text().0, exit_code, (finished.wrapper, limits));
        all.extend(notes.iter().cloned());
        all
    }

    fn outcome(&self, finished: &Finished) -> Outcome {
        let (mut exit_code, mut signal, mut stopped) = (None, None, None);
        let trouble = match &finished.end {
            End::Exited(status) => {
                (exit_code, signal) = (status.code(), status.signal());
                match (status.code(), status.signal()) {
                    (Some(0), _) => None,
                    // What a shell says of a program, and a sandbox of a shell, that was killed.
                    (Some(code @ 129..=159), _) => {
                        Some(format!("Command exited with code {code} (signal {})", code - 128))
                    }
                    (Some(code), _) => Some(format!("Command exited with code {code}")),
                    (None, signal) => Some(format!("Command was killed by signal {}", signal.unwrap_or_default())),
                }
            }
            End::TimedOut => {
                stopped = Some("timeout");
                Some(format!("Command timed out after {} seconds and was stopped", self.limit.as_secs_f64()))
            }
            End::Cancelled => {
                stopped = Some("cancel");
                Some("Command was stopped, because the run was".to_owned())
            }
            End::Exceeded(exceeded) => {
                stopped = Some("limit");
                Some(exceeded.trouble())
            }
            End::Planted(path) => {
                stopped = Some("sandbox");
                Some(format!(
                    "Command was stopped, because it made {} again after the sandbox had taken it aside",
                    path.display()
                ))
            }
            End::Lost(error) => Some(format!("Command was stopped, because it could not be watched: {error}")),
        };
        Outcome {
            exit_code,
            signal,
            stopped,
            trouble,
            left: finished.left,
            notes: self.notes(finished, exit_code),
            took: self.started.elapsed(),
            ended_ms: self.ambient.now_ms(),
            ended: Instant::now(),
        }
    }
}

impl Outcome {
    /// The word for it that programs read.
    pub(crate) fn status(&self) -> &'static str {
        if self.trouble.is_none() { "completed" } else { "failed" }
    }

    /// Adds what programs read of it.
    pub(crate) fn put_into(&self, details: &mut Value) {
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
