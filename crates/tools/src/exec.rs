//! `exec`: a shell command, in its sandbox; one that takes long goes on in the background.

use std::{ffi::OsStr, fmt, io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::{
    Ambient,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    sync::OnceCell,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    Background, Error, OnExit,
    beneath::Beneath,
    failure,
    job::{Job, Order, Outcome},
    parse,
    process::{Process, Wiring},
    sandbox::{self, Confined, Layers, Mode, Place, SandboxPolicy, Tier},
    variables,
};

/// How long between two pieces of news.
const NEWS: Duration = Duration::from_millis(100);

/// How many bytes of the newest output a piece of news carries.
const NEWS_BYTES: usize = 2000;

/// How short and how long a call may ask to wait before the command goes on in the background.
const WAITS: (f64, f64) = (10.0, 120_000.0);

/// How commands are run.
#[derive(Clone)]
pub struct ExecSettings {
    /// Our environment; commands see `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and `USER` of it.
    pub env: Vec<(String, String)>,
    /// What holds them.
    pub sandbox: SandboxPolicy,
    /// What this machine can hold them with; tried before the first command if it is not given.
    pub tier: Option<Tier>,
    /// The program that calls [`sandbox::enter`] when it is started with [`sandbox::ENTER`].
    pub helper: Option<std::path::PathBuf>,
    /// Where those go that take long. Whoever makes tools anew passes the same one again.
    pub background: Background,
    /// Who hears of the end of those.
    pub on_exit: Option<OnExit>,
    /// How long a call waits if it does not say: `tools.exec.backgroundMs`.
    pub wait: Duration,
    /// How long a command may take if the call does not say: `tools.exec.timeoutSec`.
    pub timeout: Duration,
    /// How long one that is over is kept: `tools.exec.cleanupMs`.
    pub keep: Duration,
    /// The clock.
    pub ambient: Ambient,
}

/// Runs a shell command.
#[derive(Debug, Clone)]
pub struct Exec {
    settings: ExecSettings,
    tier: Arc<OnceCell<Tier>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    command: String,
    workdir: Option<String>,
    #[serde(default)]
    env: Map<String, Value>,
    #[serde(alias = "timeoutSeconds")]
    timeout: Option<f64>,
    #[serde(default)]
    background: bool,
    yield_ms: Option<f64>,
    #[serde(default)]
    pty: bool,
    #[serde(default)]
    elevated: bool,
    host: Option<String>,
    security: Option<String>,
    ask: Option<String>,
    node: Option<String>,
}

impl fmt::Debug for ExecSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSettings").field("sandbox", &self.sandbox).field("tier", &self.tier).finish_non_exhaustive()
    }
}

/// The usual: a sandbox around the workspace, with the home directory that `HOME` names.
impl From<Vec<(String, String)>> for ExecSettings {
    fn from(env: Vec<(String, String)>) -> Self {
        let home = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.into());
        Self {
            env,
            sandbox: SandboxPolicy { home, ..SandboxPolicy::default() },
            tier: None,
            helper: None,
            background: Background::default(),
            on_exit: None,
            wait: Duration::from_secs(10),
            timeout: Duration::from_secs(1800),
            keep: Duration::from_secs(1800),
            ambient: Ambient::system(),
        }
    }
}

impl Exec {
    /// Of the environment that is passed in, commands see `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and `USER`.
    pub fn new(settings: impl Into<ExecSettings>) -> Self {
        let mut settings = settings.into();
        settings.env = variables::passed(settings.env);
        Self { tier: Arc::new(OnceCell::new_with(settings.tier.clone())), settings }
    }

    async fn run(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, Error> {
        let arguments: Arguments = parse(arguments)?;
        let limit = arguments.limit(self.settings.timeout)?;
        let wait = arguments.wait(self.settings.wait);
        let notes = arguments.notes(self.settings.sandbox.mode)?;
        let background = &self.settings.background;
        background.tidy(self.settings.keep);
        background.check(&cx.session)?;
        let variables = variables::checked(&arguments.env)?;
        if cx.cancel.is_cancelled() {
            return Err(Error::Stopped);
        }
        let wiring = arguments.wiring();
        let (mut confined, cwd) = self.confine(cx, &arguments, wiring).await?;
        let command = &mut confined.command;
        command.env_clear().envs(self.settings.env.iter().cloned());
        command.env("TERM", if wiring == Wiring::Terminal { "xterm-256color" } else { "dumb" });
        if let Some(temporary) = confined.keep.temporary() {
            command.env("TMPDIR", temporary);
        }
        command.envs(cx.variables.iter()).envs(variables);
        let (process, input) =
            Process::start(confined, wiring).map_err(|source| Error::Start { shell: shell(), source })?;
        let order = Order { command: arguments.command, cwd, limit, ambient: self.settings.ambient.clone() };
        let job = Job::watch(process, input, order);
        Ok(match follow(cx, &job, wait).await {
            Some(outcome) => tell(&job, &outcome, notes),
            None => {
                let id = background.add(&cx.session, job.clone(), self.settings.on_exit.clone());
                tell_of_background(&job, &id, notes)
            }
        })
    }

    /// Finds out where to run, and makes the sandbox. The command is started on the caller's thread, not here: it may
    /// be killed when the thread ends that started it.
    async fn confine(
        &self,
        cx: &ToolCx,
        arguments: &Arguments,
        wiring: Wiring,
    ) -> Result<(Confined, std::path::PathBuf), Error> {
        let (policy, helper) = (self.settings.sandbox.clone(), self.settings.helper.clone());
        let tier = if policy.mode == Mode::Full { None } else { Some(self.tier().await?) };
        let stand_ins = self.settings.background.stand_ins().clone();
        let (root, below) = (cx.workdir.clone(), arguments.workdir.clone());
        let command = arguments.command.clone();
        spawn_blocking(move || {
            let directory = Beneath::open(&root)?.directory(below.as_deref().unwrap_or("."))?;
            let cwd = below.map_or_else(|| root.clone(), |below| root.join(below));
            let words = [OsStr::new(shell()), OsStr::new("-c"), OsStr::new(&command)];
            let has_terminal = wiring == Wiring::Terminal;
            let place = Place { workspace: &root, cwd: &cwd, directory: &directory, has_terminal };
            let layers = || Layers::new(&policy, place.workspace);
            let helper = helper.as_deref();
            let confined = match (&tier, helper) {
                (None, _) => Ok(sandbox::unconfined(&words, &place)),
                (Some(Tier::A { bwrap }), _) => layers()
                    .and_then(|layers| sandbox::in_namespace(bwrap, helper, &layers, (&words, &place), &stand_ins)),
                (Some(Tier::B { .. }), Some(helper)) => {
                    layers().and_then(|layers| sandbox::by_itself(helper, &layers, &words, &place))
                }
                (Some(Tier::B { why } | Tier::C { why }), _) => return Err(Error::NoSandbox { why: why.clone() }),
            };
            let mut confined = confined.map_err(|source: io::Error| Error::Confine { source })?;
            confined.opened.push(directory);
            Ok((confined, cwd))
        })
        .await
        .map_err(Error::Thread)
        .flatten()
    }

    /// What this machine has; tried once.
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

/// Waits for the end of a command, or until it goes on in the background, which is `None`.
async fn follow(cx: &ToolCx, job: &Arc<Job>, wait: Option<Duration>) -> Option<Arc<Outcome>> {
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
                () = cx.cancel.cancelled() => {
                    job.stop();
                    return Some(over.await);
                }
                outcome = &mut over => return Some(outcome),
                () = &mut wait => break,
                _ = tick.tick() => if let Some(tail) = job.news(NEWS_BYTES) {
                    let details = json!({"status": "running", "cwd": job.cwd, "tail": tail});
                    cx.progress.report(ToolResult::text(tail).with_details(details));
                },
            }
        }
    }
    guard.is_armed = false;
    None
}

/// Ends a command whose call is dropped.
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
        ToolSpec {
            name: "exec".to_owned(),
            description: format!(
                "Run a shell command in the workspace. Returns stdout and stderr together, at most 200 KB: the \
                 beginning and the end. One that takes longer than yieldMs goes on in the background: use process to \
                 follow it. What a command leaves running is ended with it. {} The environment is cleared but for PATH, HOME, USER, language and time zone.",
                confinement(&self.settings.sandbox)
            ),
            parameters: json!({
                "type": "object",
                "required": ["command"],
                "properties": {
                    "command": {"type": "string", "description": "What the shell runs"},
                    "workdir": {"type": "string", "description": "Where: a directory of the workspace; the workspace itself by default"},
                    "env": {"type": "object", "description": "More environment variables"},
                    "yieldMs": {"type": "number", "description": "Milliseconds to wait before it goes on in the background; 10000 by default"},
                    "background": {"type": "boolean", "description": "Go on in the background at once, with an input that process can write to"},
                    "timeout": {"type": "number", "description": "Seconds until it is stopped; 1800 by default"},
                    "pty": {"type": "boolean", "description": "Give it a terminal, for programs that want one"},
                    "elevated": {"type": "boolean", "description": "Not supported yet"},
                    "host": {"type": "string", "description": "Where: sandbox. Nothing else is supported yet"},
                    "security": {"type": "string", "description": "Not supported yet"},
                    "ask": {"type": "string", "description": "Not supported yet"},
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

impl Arguments {
    fn limit(&self, usual: Duration) -> Result<Duration, Error> {
        let Some(seconds) = self.timeout else { return Ok(usual) };
        let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        limit.ok_or(Error::BadTimeout(seconds))
    }

    /// How long to wait for the end; not at all in the background.
    fn wait(&self, usual: Duration) -> Option<Duration> {
        let (least, most) = WAITS;
        let asked = |ms: f64| Duration::from_secs_f64(if ms.is_nan() { least } else { ms.clamp(least, most) } / 1000.0);
        (!self.background).then(|| self.yield_ms.map_or(usual, asked))
    }

    fn wiring(&self) -> Wiring {
        match (self.pty, self.background) {
            (true, _) => Wiring::Terminal,
            (false, true) => Wiring::Piped,
            // Nobody will say anything: a program that waits for it would wait for ever.
            (false, false) => Wiring::Deaf,
        }
    }

    /// What was asked for and is not done. Where another machine was asked for, nothing may be done at all.
    fn notes(&self, mode: Mode) -> Result<Vec<String>, Error> {
        if self.node.is_some() || self.host.as_deref() == Some("node") {
            return Err(Error::Elsewhere);
        }
        let is_foreign = self.host.as_deref().is_some_and(|host| !matches!(host, "sandbox" | "auto"));
        let asked = [
            ("elevated", self.elevated),
            ("host", is_foreign),
            ("security", self.security.is_some()),
            ("ask", self.ask.is_some()),
        ];
        let names: Vec<_> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| *name).collect();
        let held = if mode == Mode::Full { "without a sandbox" } else { "in its sandbox" };
        let note =
            format!("[It ran on this machine, {held}, without asking. Not supported yet: {}.]", names.join(", "));
        Ok((!names.is_empty()).then_some(note).into_iter().collect())
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

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}

fn tell(job: &Job, outcome: &Outcome, notes: Vec<String>) -> ToolResult {
    let (aggregated, _) = job.text();
    let mut details = json!({
        "status": "failed",
        "exitCode": null,
        "durationMs": outcome.took.as_millis() as u64,
        "aggregated": aggregated,
        "cwd": job.cwd,
    });
    outcome.put_into(&mut details);
    let mut parts = vec![if aggregated.is_empty() { "(no output)".to_owned() } else { aggregated }];
    parts.extend(outcome.trouble.clone());
    if outcome.left > 0 {
        parts.push("[It left processes running, which were ended. Use background for what has to go on.]".to_owned());
    }
    parts.extend(notes);
    ToolResult { is_error: outcome.trouble.is_some(), ..ToolResult::text(parts.join("\n\n")) }.with_details(details)
}

fn tell_of_background(job: &Job, id: &str, notes: Vec<String>) -> ToolResult {
    let tail = job.tail(NEWS_BYTES);
    let details = json!({
        "status": "running",
        "sessionId": id,
        "pid": job.pid,
        "startedAt": job.started_ms,
        "cwd": job.cwd,
        "tail": tail,
    });
    let pid = job.pid.map_or_else(|| "gone".to_owned(), |pid| pid.to_string());
    let text =
        format!("Command still running (session {id}, pid {pid}). Use process to poll, read, write to or kill it.");
    let parts = Some(tail).filter(|tail| !tail.is_empty()).into_iter().chain([text]).chain(notes);
    ToolResult::text(parts.collect::<Vec<_>>().join("\n\n")).with_details(details)
}
