//! `exec`: a shell command, run in the foreground.
//!
//! There is no sandbox here: the command may do what the user who runs Homard may do. It gets a cleared environment, so
//! that secrets of the gateway are not lying about, and starts in the workspace.

use std::{os::fd::AsRawFd, os::unix::process::ExitStatusExt, path::Path, time::Duration};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{process::Command, time::Instant};

use crate::{
    Error,
    beneath::Beneath,
    failure, parse,
    process::{End, Finished, Process},
    variables,
};

/// How long a command may take if the call does not say.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// How many bytes of the newest output a piece of news carries.
const NEWS_BYTES: usize = 2000;

/// Runs a shell command.
#[derive(Debug, Clone)]
pub struct Exec {
    env: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    command: String,
    workdir: Option<String>,
    #[serde(default)]
    env: Map<String, Value>,
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

impl Exec {
    /// Of the environment that is passed in, commands see `PATH`, `HOME`, `LANG`, `LC_ALL`, `TZ` and `USER`.
    pub fn new(env: Vec<(String, String)>) -> Self {
        Self { env: variables::passed(env) }
    }

    async fn run(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, Error> {
        let arguments: Arguments = parse(arguments)?;
        let limit = arguments.limit()?;
        let variables = variables::checked(&arguments.env)?;
        let notes = arguments.notes()?;
        if cx.cancel.is_cancelled() {
            return Err(Error::Stopped);
        }
        let workdir = arguments.workdir.as_deref().unwrap_or(".");
        let directory = Beneath::open(&cx.workdir)?.directory(workdir)?;
        let cwd = arguments.workdir.as_ref().map_or_else(|| cx.workdir.clone(), |below| cx.workdir.join(below));
        let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        let mut command = Command::new(shell);
        command.arg("-c").arg(&arguments.command).env_clear();
        command.envs(self.env.iter().cloned()).env("TERM", "dumb").envs(cx.variables.iter()).envs(variables);
        // By its handle: a name could lead elsewhere by now. It closes when the shell starts, after the change of directory.
        command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let started = Instant::now();
        let process = Process::start(command).map_err(|source| Error::Start { shell, source })?;
        let finished = process
            .finish(&cx.cancel, limit, |output| {
                let tail = output.last(NEWS_BYTES);
                let details = json!({"status": "running", "cwd": cwd, "tail": tail});
                cx.progress.report(ToolResult::text(tail).with_details(details));
            })
            .await;
        Ok(tell(&finished, &Facts { cwd: &cwd, limit, took: started.elapsed(), notes }))
    }
}

#[async_trait]
impl Tool for Exec {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "exec".to_owned(),
            description:
                "Run a shell command in the workspace and wait for its end. Returns stdout and stderr together, \
                          at most 200 KB: the beginning and the end. There is no input, no terminal and no sandbox; \
                          the environment is cleared but for PATH, HOME, USER, language and time zone."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["command"],
                "properties": {
                    "command": {"type": "string", "description": "What the shell runs"},
                    "workdir": {"type": "string", "description": "Where: a directory of the workspace; the workspace itself by default"},
                    "env": {"type": "object", "description": "More environment variables"},
                    "yieldMs": {"type": "number", "description": "Not supported yet: commands run in the foreground"},
                    "background": {"type": "boolean", "description": "Not supported yet: commands run in the foreground"},
                    "timeout": {"type": "number", "description": "Seconds until it is stopped; 1800 by default"},
                    "pty": {"type": "boolean", "description": "Not supported yet: there is no terminal"},
                    "elevated": {"type": "boolean", "description": "Not supported yet"},
                    "host": {"type": "string", "description": "Not supported yet: commands run on this machine"},
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
    fn limit(&self) -> Result<Duration, Error> {
        let Some(seconds) = self.timeout else { return Ok(TIMEOUT) };
        let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        limit.ok_or(Error::BadTimeout(seconds))
    }

    /// What was asked for and is not done. Where another machine was asked for, nothing may be done at all.
    fn notes(&self) -> Result<Vec<String>, Error> {
        if self.node.is_some() || self.host.as_deref() == Some("node") {
            return Err(Error::Elsewhere);
        }
        let list = |asked: &[(&str, bool)]| {
            let names: Vec<_> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| *name).collect();
            (!names.is_empty()).then(|| names.join(", "))
        };
        let foreground =
            list(&[("background", self.background), ("yieldMs", self.yield_ms.is_some()), ("pty", self.pty)])
                .map(|names| format!("[It ran in the foreground, without a terminal. Not supported yet: {names}.]"));
        let here = list(&[
            ("elevated", self.elevated),
            ("host", self.host.is_some()),
            ("security", self.security.is_some()),
            ("ask", self.ask.is_some()),
        ])
        .map(|names| format!("[It ran on this machine, unconfined and without asking. Not supported yet: {names}.]"));
        Ok(foreground.into_iter().chain(here).collect())
    }
}

/// What a result tells besides the output.
struct Facts<'a> {
    cwd: &'a Path,
    limit: Duration,
    took: Duration,
    notes: Vec<String>,
}

fn tell(finished: &Finished, facts: &Facts<'_>) -> ToolResult {
    let aggregated = finished.output.text();
    let mut details = json!({
        "status": "failed",
        "exitCode": null,
        "durationMs": facts.took.as_millis() as u64,
        "aggregated": aggregated,
        "cwd": facts.cwd,
    });
    let failed = match &finished.end {
        End::Exited(status) => {
            details["exitCode"] = json!(status.code());
            match (status.code(), status.signal()) {
                (Some(0), _) => None,
                (Some(code), _) => Some(format!("Command exited with code {code}")),
                (None, signal) => {
                    details["signal"] = json!(signal);
                    Some(format!("Command was killed by signal {}", signal.unwrap_or_default()))
                }
            }
        }
        End::TimedOut => {
            details["stopped"] = json!("timeout");
            Some(format!("Command timed out after {} seconds and was stopped", facts.limit.as_secs_f64()))
        }
        End::Cancelled => {
            details["stopped"] = json!("cancel");
            Some("Command was stopped, because the run was".to_owned())
        }
        End::Lost(error) => Some(format!("Command was stopped, because it could not be watched: {error}")),
    };
    let mut parts = vec![if aggregated.is_empty() { "(no output)".to_owned() } else { aggregated }];
    let is_error = failed.is_some();
    if !is_error {
        details["status"] = json!("completed");
    }
    parts.extend(failed);
    if finished.is_held {
        parts.push(
            "[It left a process running, whose output from now on is lost. Send the output of such a process to a file.]"
                .to_owned(),
        );
    }
    parts.extend(facts.notes.iter().cloned());
    ToolResult { is_error, ..ToolResult::text(parts.join("\n\n")) }.with_details(details)
}
