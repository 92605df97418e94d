//! Commands that keep running after their tool call has returned. Each belongs to a session and is visible only there.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_agent::{CommandOrigin, Hub, hub::BackgroundCommand};
use homard_proto::SessionKey;
use homard_runtime::task;
use homard_stdx::sync::{Mutex, MutexGuard};
use homard_workspace::LoadGate;

use crate::{
    Error,
    error::SessionError,
    job::{CommandJob, CommandOutcome},
    load_gate::CommandLoadGate,
    process_tool::label,
    sandbox::Watches,
};

/// Maximum number of running background commands per session.
const MAX_RUNNING: usize = 32;

/// Maximum number of finished commands kept per session.
const MAX_FINISHED: usize = 32;

/// Maximum length of the output tail in the report of a finished command.
const REPORT_TAIL_BYTES: usize = 400;

/// Words from which command names are built: easy to pronounce and hard for models to confuse.
const ADJECTIVES: [&str; 16] = [
    "amber", "brisk", "calm", "deep", "eager", "faint", "gold", "hazy", "iron", "jade", "keen", "lucid", "mild",
    "neat", "oak", "pale",
];
const NOUNS: [&str; 16] = [
    "reef", "tide", "cove", "kelp", "crab", "dune", "gull", "wave", "pearl", "shoal", "coral", "foam", "pier", "sand",
    "shell", "surf",
];

/// Registry of background commands. Clones share it; when the last clone is dropped, all commands are killed.
#[derive(Debug, Clone, Default)]
pub struct BackgroundCommands(Arc<BackgroundInner>);

#[derive(Default)]
struct BackgroundInner {
    sessions: Mutex<HashMap<SessionKey, SessionCommands>>,
    watches: Watches,
}

#[derive(Debug, Default)]
struct SessionCommands {
    /// Number of commands ever started; determines the next name.
    count: usize,
    jobs: BTreeMap<String, Arc<CommandJob>>,
}

/// Reports the start and the end of a background command to the hub.
#[derive(Debug, Clone)]
pub(crate) struct CommandReporter {
    pub(crate) hub: Hub,
    /// Principal, route and working directory of the run that started the command.
    pub(crate) origin: CommandOrigin,
    /// True if its end wakes the session.
    pub(crate) wakes: bool,
}

impl CommandReporter {
    /// Waits for a command to finish and reports it.
    fn follow(self, session: SessionKey, id: String, job: Arc<CommandJob>) {
        task::spawn("command in the background", async move {
            let outcome = job.finished().await;
            // A command that was stopped on purpose needs no report.
            if outcome.stopped == Some("cancel") {
                self.hub.background().settled(&session, &id).await;
            } else {
                self.hub.background().ended(&session, &id, &report(&id, &job, &outcome)).await;
            }
        });
    }
}

/// Formats the report of a finished command for its session.
fn report(id: &str, job: &CommandJob, outcome: &CommandOutcome) -> String {
    let status = outcome.error.as_deref().unwrap_or("Command is done");
    let tail = job.tail(REPORT_TAIL_BYTES);
    let tail = if tail.is_empty() { String::new() } else { format!(": {tail}") };
    let notes: String = outcome.notes.iter().map(|note| format!("\n\n{note}")).collect();
    format!("{status} (session {id}, {}){tail}{notes}", label(&job.command))
}

impl BackgroundCommands {
    /// Kills all commands when the process shuts down.
    pub async fn kill_all(&self) {
        let jobs: Vec<_> = self.lock().drain().flat_map(|(_, commands)| commands.jobs.into_values()).collect();
        for job in &jobs {
            job.stop();
        }
        for job in &jobs {
            job.finished().await;
        }
    }

    /// Returns the number of running commands of a session.
    pub fn count(&self, session: &SessionKey) -> usize {
        self.lock().get(session).map_or(0, SessionCommands::running)
    }

    /// Returns the gate that decides which files may be loaded from workspaces in which commands run.
    pub fn load_gate(&self) -> Arc<dyn LoadGate> {
        Arc::new(CommandLoadGate(self.0.watches.clone()))
    }

    /// Runs `write`, which writes a workspace file on behalf of something other than a tool and returns its path and
    /// content. The write is not attributed to a running command. Blocks.
    pub fn write_file(&self, workspace: &Path, write: &mut dyn FnMut() -> Option<(PathBuf, String)>) {
        self.0.watches.own_one(workspace, write);
    }

    /// Returns the file watches of running commands.
    pub(crate) fn watches(&self) -> &Watches {
        &self.0.watches
    }

    /// Fails if the session has reached its limit of background commands.
    pub(crate) fn check(&self, session: &SessionKey) -> Result<(), Error> {
        if self.count(session) < MAX_RUNNING { Ok(()) } else { Err(Error::Session(SessionError::TooMany(MAX_RUNNING))) }
    }

    /// Registers a command and returns its name. Its record is on disk when this returns.
    pub(crate) async fn add(
        &self,
        session: &SessionKey,
        job: Arc<CommandJob>,
        reporter: Option<CommandReporter>,
    ) -> String {
        let id = {
            let mut sessions = self.lock();
            let commands = sessions.entry(session.clone()).or_default();
            let id = name(commands.count);
            commands.count += 1;
            commands.jobs.insert(id.clone(), job.clone());
            id
        };
        if let Some(reporter) = reporter {
            let (command, origin, stop) = (job.command.clone(), reporter.origin.clone(), job.stopper());
            let started = BackgroundCommand { id: id.clone(), command, origin, stop };
            reporter.hub.background().started(session, started, reporter.wakes).await;
            reporter.follow(session.clone(), id.clone(), job);
        }
        id
    }

    /// Returns a command of a session by its name.
    pub(crate) fn find(&self, session: &SessionKey, id: &str) -> Option<Arc<CommandJob>> {
        self.lock().get(session)?.jobs.get(id).cloned()
    }

    /// Returns all commands of a session, the newest last.
    pub(crate) fn list(&self, session: &SessionKey) -> Vec<(String, Arc<CommandJob>)> {
        let sessions = self.lock();
        let jobs = sessions.get(session).into_iter().flat_map(|commands| commands.jobs.clone());
        let mut jobs: Vec<_> = jobs.collect();
        jobs.sort_by_key(|(_, job)| job.started_ms);
        jobs
    }

    /// Removes a command from the registry.
    pub(crate) fn remove(&self, session: &SessionKey, id: &str) {
        if let Some(commands) = self.lock().get_mut(session) {
            commands.jobs.remove(id);
        }
    }

    /// Removes commands that finished more than `keep` ago, and the oldest finished ones beyond the limit per session.
    pub(crate) fn evict(&self, keep: Duration) {
        for commands in self.lock().values_mut() {
            commands
                .jobs
                .retain(|_, job| job.outcome_if_finished().is_none_or(|outcome| outcome.ended.elapsed() < keep));
            let mut finished: Vec<_> = commands
                .jobs
                .iter()
                .filter_map(|(id, job)| Some((job.outcome_if_finished()?.ended, id.clone())))
                .collect();
            finished.sort();
            for (_, id) in finished.iter().rev().skip(MAX_FINISHED) {
                commands.jobs.remove(id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, SessionCommands>> {
        self.0.sessions.lock()
    }
}

impl SessionCommands {
    fn running(&self) -> usize {
        self.jobs.values().filter(|job| job.outcome_if_finished().is_none()).count()
    }
}

impl Drop for BackgroundInner {
    fn drop(&mut self) {
        let sessions = self.sessions.lock();
        for job in sessions.values().flat_map(|commands| commands.jobs.values()) {
            job.stop();
        }
    }
}

impl fmt::Debug for BackgroundInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundInner").finish_non_exhaustive()
    }
}

/// Returns the name of the `n`th command of a session, counted from 0.
fn name(n: usize) -> String {
    let name = format!("{}-{}", ADJECTIVES[n % 16], NOUNS[n / 16 % 16]);
    if n < 256 { name } else { format!("{name}-{}", n / 256 + 1) }
}
