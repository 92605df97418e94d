//! The `exec` tool: runs a shell command in a sandbox. A long-running command continues in the background.

mod approvals;
mod arguments;
mod told;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{
    Ambient, CommandOrigin, Hub,
    approval::FolderSeen,
    sandboxing::SandboxView,
    tool::{Progress, Tool, ToolClass, ToolCx, ToolResult, ToolSpec, Variables},
};
use homard_audit::{Audit, Fact, What};
use homard_proto::{RunId, SessionKey};
use serde_json::{Value, json};
use tokio::{
    sync::OnceCell,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

pub use self::approvals::Approvals;
use self::{
    arguments::Arguments,
    told::{tell, tell_of_background},
};
use crate::{
    Background, Error, FileAccess,
    background::Reporter,
    failure,
    job::{Job, Order, Outcome},
    parse,
    process::{Input, Process, Wiring},
    sandbox::{self, Confined, Mode, Place, SandboxPolicy, Tier},
    variables,
};

/// Interval between two progress events.
const NEWS: Duration = Duration::from_millis(100);

/// Maximum output bytes in a progress event.
const NEWS_BYTES: usize = 2000;

/// Maximum number of attempts to build a command's sandbox.
const TRIES: usize = 4;

/// Settings of the `exec` tool.
#[derive(Clone)]
pub struct ExecSettings {
    /// The gateway's environment; commands see `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and `USER` of it.
    pub env: Vec<(String, String)>,
    /// Additional variables that calls may set: `tools.exec.allowEnv`.
    pub allow_env: Vec<String>,
    /// Sandbox policy.
    pub sandbox: SandboxPolicy,
    /// Sandbox tier of this machine; probed before the first command if `None`.
    pub tier: Option<Tier>,
    /// Binary that calls [`sandbox::enter`] when it is started with [`sandbox::ENTER`].
    pub helper: Option<std::path::PathBuf>,
    /// Registry of background commands. Must be passed on when tools are rebuilt.
    pub background: Background,
    /// True if the end of a background command wakes its session: `tools.exec.notifyOnExit`.
    pub wakes: bool,
    /// Default time a call waits before the command moves to the background: `tools.exec.backgroundMs`. `None` disables
    /// background commands, where no process remains to supervise them: every call then waits for the end.
    pub wait: Option<Duration>,
    /// Default time limit of a command: `tools.exec.timeoutSec`.
    pub timeout: Duration,
    /// How long a finished command is kept: `tools.exec.cleanupMs`.
    pub keep: Duration,
    /// Source of time and ids.
    pub ambient: Ambient,
    /// Approval settings; `None` if no approval is required.
    pub approvals: Option<Approvals>,
    /// Audit log for starts and ends of commands.
    pub audit: Audit,
}

/// Session, run and environment of a call.
#[derive(Debug)]
struct Site {
    session: SessionKey,
    run: RunId,
    workdir: PathBuf,
    /// Set for a sandboxed run.
    sandbox: Option<SandboxView>,
    variables: Variables,
    /// Principal and route of the call, if known.
    origin: Option<CommandOrigin>,
}

/// A validated call, ready to start.
struct Plan {
    site: Site,
    /// The unparsed arguments.
    call: Value,
    arguments: Arguments,
    /// Complete environment of the command, except for its `TMPDIR`.
    env: Vec<(String, String)>,
    wiring: Wiring,
    limit: Duration,
    wait: Option<Duration>,
}

impl Site {
    fn of(cx: &ToolCx) -> Self {
        let (session, run) = (cx.session.clone(), cx.run.clone());
        let (workdir, sandbox) = (cx.workdir.clone(), cx.sandbox.clone());
        let (variables, origin) = (cx.variables.clone(), Some(CommandOrigin::from(&cx.origin)));
        Self { session, run, workdir, sandbox, variables, origin }
    }
}

impl Plan {
    /// Builds an audit entry. The command is recorded as a digest only.
    fn fact(&self, what: What) -> Fact {
        let fact = Fact::new(what).by(self.site.session.as_str()).with("tool", "exec");
        fact.with("run", self.site.run.as_str()).digest("command", &self.arguments.command)
    }

    fn cwd(&self) -> PathBuf {
        let root = &self.site.workdir;
        self.arguments.workdir.as_ref().map_or_else(|| root.clone(), |below| root.join(below))
    }
}

/// Runs a shell command.
#[derive(Debug, Clone)]
pub struct Exec {
    settings: ExecSettings,
    tier: Arc<OnceCell<Tier>>,
}

impl fmt::Debug for ExecSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSettings").field("sandbox", &self.sandbox).field("tier", &self.tier).finish_non_exhaustive()
    }
}

/// Defaults: a sandbox around the workspace, with the home directory from `HOME`.
impl From<Vec<(String, String)>> for ExecSettings {
    fn from(env: Vec<(String, String)>) -> Self {
        let home = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.into());
        Self {
            env,
            allow_env: Vec::new(),
            sandbox: SandboxPolicy { home, ..SandboxPolicy::default() },
            tier: None,
            helper: None,
            background: Background::default(),
            wakes: true,
            wait: Some(Duration::from_secs(10)),
            timeout: Duration::from_secs(1800),
            keep: Duration::from_secs(1800),
            ambient: Ambient::system(),
            approvals: None,
            audit: Audit::default(),
        }
    }
}

impl Exec {
    /// Creates the tool. Of the given environment, commands see `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and `USER`.
    pub fn new(settings: impl Into<ExecSettings>) -> Self {
        let mut settings = settings.into();
        settings.env = variables::passed(settings.env);
        Self { tier: Arc::new(OnceCell::new_with(settings.tier.clone())), settings }
    }

    async fn run(&self, cx: &ToolCx, call: Value) -> Result<ToolResult, Error> {
        let plan = self.plan(Site::of(cx), call)?;
        let notes = plan.arguments.notes(self.policy(&plan.site).mode, self.settings.approvals.is_some())?;
        if cx.cancel.is_cancelled() {
            return Err(Error::Stopped);
        }
        let words = match self.leave(cx, &plan).await {
            Ok(words) => words,
            Err(answer) => return Ok(answer),
        };
        if cx.cancel.is_cancelled() {
            return Err(Error::Stopped);
        }
        let job = self.start(&plan, words, None).await?;
        Ok(match watch((&cx.cancel, &cx.progress), &job, plan.wait).await {
            Some(outcome) => tell(&job, &outcome, notes),
            None => {
                let reporter = cx.hub.as_ref().and_then(|hub| self.reporter(hub, &plan.site));
                let id = self.settings.background.add(&cx.session, job.clone(), reporter).await;
                tell_of_background(&job, &id, notes)
            }
        })
    }

    /// Returns the sandbox policy for a call.
    fn policy(&self, site: &Site) -> SandboxPolicy {
        match &site.sandbox {
            Some(view) => self.settings.sandbox.in_sandbox(view, &site.workdir),
            None => self.settings.sandbox.clone(),
        }
    }

    /// Returns the reporter for a background command.
    fn reporter(&self, hub: &Hub, site: &Site) -> Option<Reporter> {
        Some(Reporter { hub: hub.clone(), origin: site.origin.clone()?, wakes: self.settings.wakes })
    }

    /// Validates a call.
    fn plan(&self, site: Site, call: Value) -> Result<Plan, Error> {
        let mut arguments: Arguments = parse(call.clone())?;
        if self.settings.wait.is_none() {
            arguments.stay();
        }
        let background = &self.settings.background;
        background.tidy(self.settings.keep);
        background.check(&site.session)?;
        let wiring = arguments.wiring();
        let terminal = if wiring == Wiring::Terminal { "xterm-256color" } else { "dumb" };
        let mut env: BTreeMap<String, String> = self.settings.env.iter().cloned().collect();
        env.insert("TERM".to_owned(), terminal.to_owned());
        env.extend(site.variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.extend(variables::checked(&arguments.env, &self.settings.allow_env)?);
        Ok(Plan {
            limit: arguments.limit(self.settings.timeout)?,
            // Waits without limit; the command's own time limit ends it.
            wait: self.settings.wait.map_or(Some(Duration::MAX), |usual| arguments.wait(usual)),
            env: env.into_iter().collect(),
            wiring,
            site,
            call,
            arguments,
        })
    }

    /// Starts exactly these words. `seen` identifies the approved working directory, if approval was required.
    async fn start(&self, plan: &Plan, words: Vec<String>, seen: Option<&FolderSeen>) -> Result<Arc<Job>, Error> {
        let mut tries = TRIES;
        let (process, input) = loop {
            let (mut process, input) = self.spawn(plan, &words, seen).await?;
            tries -= 1;
            // A file that the sandbox hides can disappear while the sandbox is built. The next attempt no longer finds
            // it.
            if process.has_begun().await || tries == 0 {
                break (process, input);
            }
        };
        let order = Order {
            command: plan.arguments.command.clone(),
            cwd: plan.cwd(),
            limit: plan.limit,
            ambient: self.settings.ambient.clone(),
            on_end: (self.settings.audit.clone(), plan.fact(What::ExecEnded)),
        };
        self.note(plan, What::ExecStarted, "started");
        Ok(Job::watch(process, input, order))
    }

    /// Spawns the process of a command.
    async fn spawn(
        &self,
        plan: &Plan,
        words: &[String],
        seen: Option<&FolderSeen>,
    ) -> Result<(Process, Option<Input>), Error> {
        let confined = self.confine(plan, words.to_vec(), seen.cloned()).await;
        let mut confined = confined.inspect_err(|error| {
            if matches!(error, Error::NoSandbox { .. }) {
                self.note(plan, What::PolicyDenied, "sandbox");
            }
        })?;
        let command = &mut confined.command;
        command.env_clear();
        // Not part of the approval: the path is unique per command and not shared.
        if let Some(temporary) = confined.keep.temporary() {
            command.env("TMPDIR", temporary);
        }
        command.envs(plan.env.iter().cloned());
        Process::start(confined, plan.wiring).map_err(|source| Error::Start { shell: shell(), source })
    }

    fn note(&self, plan: &Plan, what: What, outcome: &str) {
        self.settings.audit.note(plan.fact(what).with("sandbox", confinement(&self.policy(&plan.site))).ended(outcome));
    }

    /// Opens the working directory and prepares the sandbox. Only prepares: the process is started on the caller's
    /// thread, because it may be killed when the thread that started it ends.
    async fn confine(&self, plan: &Plan, words: Vec<String>, seen: Option<FolderSeen>) -> Result<Confined, Error> {
        let (policy, helper) = (self.policy(&plan.site), self.settings.helper.clone());
        let tier = if policy.mode == Mode::Full { None } else { Some(self.tier().await?) };
        let watches = self.settings.background.watches().clone();
        let files = FileAccess::new(&policy);
        let (root, below, cwd) = (plan.site.workdir.clone(), plan.arguments.workdir.clone(), plan.cwd());
        let has_terminal = plan.wiring == Wiring::Terminal;
        spawn_blocking(move || {
            let directory = files.open(&root)?.directory(below.as_deref().unwrap_or("."))?;
            check(&directory, seen.as_ref()).map_err(|source| Error::Confine { source })?;
            let words: Vec<_> = words.iter().map(OsStr::new).collect();
            let place = Place { workspace: &root, cwd: &cwd, directory: &directory, has_terminal };
            let (what, held) = ((&*words, &place), (&policy, &watches));
            let helper = helper.as_deref();
            let confined = match (&tier, helper) {
                (None, _) => Ok(sandbox::unconfined(&words, &place)),
                (Some(Tier::A { bwrap, has_sizes }), _) => {
                    sandbox::in_namespace((bwrap, *has_sizes), helper, what, held)
                }
                (Some(Tier::B { .. }), Some(helper)) => sandbox::by_itself(helper, what, held),
                (Some(Tier::B { why } | Tier::C { why }), _) => return Err(Error::NoSandbox { why: why.clone() }),
            };
            let mut confined = confined.map_err(|source: io::Error| Error::Confine { source })?;
            confined.opened.push(directory);
            Ok(confined)
        })
        .await
        .map_err(Error::Thread)
        .flatten()
    }

    /// Returns what the tool description says about the visible part of the home directory.
    fn view(&self) -> &'static str {
        let policy = &self.settings.sandbox;
        match policy.mode == Mode::Full || policy.home.is_none() {
            true => "",
            false => " Of the home directory it sees the workspace, toolchains, caches and the git identity only.",
        }
    }

    /// Returns the sandbox tier of this machine; probed once.
    async fn tier(&self) -> Result<Tier, Error> {
        let tried = self.tier.get_or_try_init(|| async {
            let path = self.settings.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
            let helper = self.settings.helper.clone();
            let detect = move || Tier::detect(helper.as_deref(), path.as_deref().unwrap_or_default());
            spawn_blocking(detect).await.map_err(Error::Thread)
        });
        tried.await.cloned()
    }
}

/// Waits for the end of a command; `None` if it moves to the background.
async fn watch(
    (cancel, progress): (&CancellationToken, &Progress),
    job: &Arc<Job>,
    wait: Option<Duration>,
) -> Option<Arc<Outcome>> {
    let mut guard = Guard { job, is_armed: true };
    if let Some(wait) = wait {
        let wait = sleep(wait);
        tokio::pin!(wait);
        let mut tick = interval(NEWS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = job.over();
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    job.stop();
                    return Some(over.await);
                }
                outcome = &mut over => return Some(outcome),
                () = &mut wait => break,
                _ = tick.tick() => if let Some(tail) = job.news(NEWS_BYTES) {
                    let details = json!({"status": "running", "cwd": job.cwd, "tail": tail});
                    progress.report(ToolResult::text(tail).with_details(details));
                },
            }
        }
    }
    guard.is_armed = false;
    None
}

/// Kills the command when its call is dropped.
struct Guard<'a> {
    job: &'a Job,
    is_armed: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.job.stop();
        }
    }
}

#[async_trait]
impl Tool for Exec {
    fn spec(&self) -> ToolSpec {
        let (is_gated, no) = (self.settings.approvals.is_some(), "Not supported yet");
        ToolSpec {
            name: "exec".to_owned(),
            description: format!(
                "Run a shell command in the workspace. Returns stdout and stderr together, at most 200 KB: the \
                 beginning and the end. One that takes longer than yieldMs goes on in the background: use process to \
                 follow it. What a command leaves running is ended with it. {}{} The environment is cleared but for PATH, HOME, USER, language and time zone.",
                confinement(&self.settings.sandbox),
                self.view()
            ),
            parameters: json!({
                "type": "object",
                "required": ["command"],
                "properties": {
                    "command": {"type": "string", "description": "What the shell runs"},
                    "workdir": {"type": "string", "description": "Where: a directory of the workspace; the workspace itself by default"},
                    "env": {"type": "object", "description": "More environment variables, such as NODE_ENV, PORT, RUST_LOG, CI, TZ. Set others in the command itself"},
                    "yieldMs": {"type": "number", "description": "Milliseconds to wait before it goes on in the background; 10000 by default"},
                    "background": {"type": "boolean", "description": "Go on in the background at once, with an input that process can write to"},
                    "timeout": {"type": "number", "description": "Seconds until it is stopped; 1800 by default, at most 86400"},
                    "pty": {"type": "boolean", "description": "Give it a terminal, for programs that want one"},
                    "elevated": {"type": "boolean", "description": "Not supported yet"},
                    "host": {"type": "string", "description": "Where: sandbox. Nothing else is supported yet"},
                    "security": {"type": "string", "description": if is_gated { "deny, allowlist or full; only stricter than usual" } else { no }},
                    "ask": {"type": "string", "description": if is_gated { "off, on-miss or always; only stricter than usual" } else { no }},
                    "node": {"type": "string", "description": "Not supported yet: commands run on this machine"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.run(&cx, arguments).await.unwrap_or_else(|error| failure("exec", &error))
    }
}

fn confinement(policy: &SandboxPolicy) -> &'static str {
    match (policy.mode, policy.network) {
        (Mode::Full, _) => "There is no sandbox.",
        (Mode::ReadOnly, false) => "It runs in a sandbox: it can change nothing and has no network.",
        (Mode::ReadOnly, true) => "It runs in a sandbox: it can change nothing.",
        (Mode::Workspace | Mode::Guarded, false) => {
            "It runs in a sandbox: it can change the workspace only, but for files that steer agents and git, and has \
             no network."
        }
        (Mode::Workspace | Mode::Guarded, true) => {
            "It runs in a sandbox: it can change the workspace only, but for files that steer agents and git."
        }
    }
}

/// Checks that a directory is the one that was approved.
fn check(directory: &OwnedFd, seen: Option<&FolderSeen>) -> io::Result<()> {
    let Some(seen) = seen else { return Ok(()) };
    let found = rustix::fs::fstat(directory)?;
    let is_same = (found.st_dev, found.st_ino) == (seen.dev, seen.ino);
    is_same.then_some(()).ok_or_else(|| io::Error::other("its folder has changed since it was asked"))
}

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}
