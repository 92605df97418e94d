//! The `process` tool: controls the background commands of this session that `exec` started.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_stdx::time::millis;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    BackgroundCommands, Error,
    error::{ArgumentError, SessionError, StoppedError},
    failure,
    job::{CommandJob, CommandOutcome},
    keys, parse,
};

/// Default number of log lines.
const DEFAULT_LOG_LINES: usize = 200;

/// Maximum size of a log in a result, in bytes.
const MAX_LOG_BYTES: usize = 100_000;

/// Maximum time that a poll waits.
const MAX_POLL_WAIT: Duration = Duration::from_secs(30);

/// Maximum length of a command in a list, in characters.
const MAX_LABEL_CHARS: usize = 120;

/// Bracketed paste: marks text as pasted instead of typed.
const PASTE_MARKERS: (&str, &str) = ("\x1b[200~", "\x1b[201~");

/// Controls background commands.
#[derive(Debug, Clone)]
pub struct ProcessTool {
    background: BackgroundCommands,
    keep: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProcessAction {
    List,
    Poll,
    Log,
    Write,
    SendKeys,
    Submit,
    Paste,
    Kill,
    Clear,
    Remove,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    action: ProcessAction,
    session_id: Option<String>,
    data: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    hex: Vec<String>,
    literal: Option<String>,
    text: Option<String>,
    bracketed: Option<bool>,
    #[serde(default)]
    eof: bool,
    offset: Option<f64>,
    limit: Option<f64>,
    timeout: Option<f64>,
}

/// A command and its name.
struct NamedJob<'a> {
    id: &'a str,
    job: Arc<CommandJob>,
}

impl ProcessTool {
    /// Creates the tool. Commands in `background` that finished more than `keep` ago are removed.
    pub fn new(background: BackgroundCommands, keep: Duration) -> Self {
        Self { background, keep }
    }

    async fn run(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, Error> {
        let arguments: Args = parse(arguments)?;
        self.background.evict(self.keep);
        if matches!(arguments.action, ProcessAction::List) {
            return Ok(list(&self.background.list(&cx.session)));
        }
        let id = arguments
            .session_id
            .as_deref()
            .filter(|id| !id.is_empty())
            .ok_or(Error::Argument(ArgumentError::NoSession))?;
        let unknown = || Error::Session(SessionError::UnknownSession { id: id.to_owned() });
        let command = NamedJob { id, job: self.background.find(&cx.session, id).ok_or_else(unknown)? };
        match arguments.action {
            ProcessAction::Poll => {
                let result = command.poll(cx, arguments.timeout).await;
                Ok(command.suppress_report(cx, result).await)
            }
            ProcessAction::Log => Ok(command.log(arguments.offset, arguments.limit)),
            ProcessAction::Write | ProcessAction::SendKeys | ProcessAction::Submit | ProcessAction::Paste => {
                let bytes = arguments.bytes(command.job.has_terminal().await)?;
                command.write_input(cx, &bytes, arguments.eof).await
            }
            ProcessAction::Kill => command.kill().await,
            ProcessAction::Clear => {
                command
                    .job
                    .outcome_if_finished()
                    .ok_or_else(|| Error::Session(SessionError::StillRunning { id: id.to_owned() }))?;
                self.background.remove(&cx.session, id);
                Ok(command.result(format!("Cleared session {id}."), json!({"status": "completed"})))
            }
            ProcessAction::Remove => {
                command.job.stop();
                command.job.finished().await;
                self.background.remove(&cx.session, id);
                Ok(command.result(format!("Removed session {id}."), json!({"status": "completed"})))
            }
            // Handled above, because it names no command.
            ProcessAction::List => Err(Error::Argument(ArgumentError::NoSession)),
        }
    }
}

#[async_trait]
impl Tool for ProcessTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "process".to_owned(),
            description: "Manage background commands of exec: list them, poll for new output, read the log, write to \
                          their input, send keys, submit (Enter), paste, kill, clear or remove them."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["action"],
                "properties": {
                    "action": {
                        "type": "string",
                        "enum": ["list", "poll", "log", "write", "send-keys", "submit", "paste", "kill", "clear", "remove"],
                        "description": "What to do",
                    },
                    "sessionId": {"type": "string", "description": "Which command, for all actions but list"},
                    "data": {"type": "string", "description": "What to write"},
                    "keys": {"type": "array", "items": {"type": "string"}, "description": "Keys to send: Enter, Up, C-c, M-x, F1 and such; anything else is typed"},
                    "hex": {"type": "array", "items": {"type": "string"}, "description": "Bytes to send, in hexadecimal"},
                    "literal": {"type": "string", "description": "Text to send before keys"},
                    "text": {"type": "string", "description": "Text to paste"},
                    "bracketed": {"type": "boolean", "description": "Mark pasted text as such for a terminal; true by default"},
                    "eof": {"type": "boolean", "description": "End the input after writing"},
                    "offset": {"type": "number", "description": "First line of the log, from 0"},
                    "limit": {"type": "number", "description": "How many lines of the log; without an offset the last ones, 200 by default"},
                    "timeout": {"type": "number", "minimum": 0, "description": "Milliseconds that poll waits for the end; at most 30000"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.run(&cx, arguments).await.unwrap_or_else(|error| failure("process", &error))
    }
}

impl Args {
    /// Returns the bytes to send to a command.
    fn bytes(&self, has_terminal: bool) -> Result<Vec<u8>, Error> {
        Ok(match self.action {
            ProcessAction::Write => self.data.clone().unwrap_or_default().into_bytes(),
            ProcessAction::SendKeys => {
                let hex = self.hex.iter().map(|text| {
                    keys::hex(text).ok_or_else(|| Error::Argument(ArgumentError::BadHex { text: text.clone() }))
                });
                let mut bytes = self.literal.clone().unwrap_or_default().into_bytes();
                bytes.extend(hex.collect::<Result<Vec<_>, _>>()?);
                bytes.extend(self.keys.iter().flat_map(|key| keys::bytes(key)));
                if bytes.is_empty() {
                    return Err(Error::Argument(ArgumentError::NoKeys));
                }
                bytes
            }
            ProcessAction::Submit if has_terminal => b"\r".to_vec(),
            ProcessAction::Submit => b"\n".to_vec(),
            ProcessAction::Paste => {
                let text =
                    self.text.as_ref().filter(|text| !text.is_empty()).ok_or(Error::Argument(ArgumentError::NoText))?;
                if has_terminal && self.bracketed != Some(false) {
                    // An end marker within the text would end the paste, and the rest would count as typed.
                    let text = text.replace(PASTE_MARKERS.0, "").replace(PASTE_MARKERS.1, "");
                    format!("{}{text}{}", PASTE_MARKERS.0, PASTE_MARKERS.1).into_bytes()
                } else {
                    text.clone().into_bytes()
                }
            }
            ProcessAction::List
            | ProcessAction::Poll
            | ProcessAction::Log
            | ProcessAction::Kill
            | ProcessAction::Clear
            | ProcessAction::Remove => Vec::new(),
        })
    }
}

impl NamedJob<'_> {
    /// Returns new output and the state. Optionally waits for the end.
    async fn poll(&self, cx: &ToolCx, wait_ms: Option<f64>) -> ToolResult {
        let wait =
            wait_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()).unwrap_or_default().min(MAX_POLL_WAIT);
        // Without a wait, a command that was just sent input gets no time to respond.
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => {}
            _ = timeout(wait, self.job.finished()) => {}
        }
        let ended = self.job.outcome_if_finished();
        let new = self.job.unread();
        let new = if new.is_empty() { "(no new output)".to_owned() } else { new };
        let status = ended.as_deref().map_or_else(|| "Process still running.".to_owned(), end_of);
        let (aggregated, _) = self.job.text();
        let mut details = json!({"status": "running", "aggregated": aggregated});
        if let Some(outcome) = &ended {
            outcome.add_to_details(&mut details);
        }
        self.result(format!("{new}\n\n{status}"), details)
    }

    fn log(&self, offset: Option<f64>, limit: Option<f64>) -> ToolResult {
        let (text, is_cut) = self.job.text();
        let lines: Vec<&str> = text.lines().collect();
        let to_index = |number: f64| number.max(0.0) as usize;
        let limit_or = |default| limit.map_or(default, to_index);
        let first = match offset {
            Some(offset) => to_index(offset).min(lines.len()),
            None => lines.len().saturating_sub(limit_or(DEFAULT_LOG_LINES)),
        };
        let count = limit_or(if offset.is_some() { lines.len() } else { DEFAULT_LOG_LINES });
        let visible = &lines[first..first.saturating_add(count).min(lines.len())];
        let mut output = visible.join("\n");
        if output.len() > MAX_LOG_BYTES {
            output.truncate(output.floor_char_boundary(MAX_LOG_BYTES));
            output.push_str("\n\n[The rest is left out: use offset and limit]");
        }
        if output.is_empty() {
            output = "(no output)".to_owned();
        } else if visible.len() < lines.len() {
            let last = first + visible.len();
            output.push_str(&format!(
                "\n\n[Lines {first} to {last} of {}: use offset and limit for others]",
                lines.len()
            ));
        }
        let status = self.job.outcome_if_finished().map_or("running", |outcome| outcome.status());
        let mut details = json!({
            "status": status,
            "total": lines.len(),
            "totalLines": lines.len(),
            "totalChars": text.chars().count(),
            "truncated": is_cut,
        });
        if let Some(outcome) = self.job.outcome_if_finished() {
            outcome.add_to_details(&mut details);
        }
        self.result(output, details)
    }

    async fn write_input(&self, cx: &ToolCx, bytes: &[u8], then_end: bool) -> Result<ToolResult, Error> {
        let id = self.id.to_owned();
        if self.job.outcome_if_finished().is_some() {
            return Err(Error::Session(SessionError::AlreadyFinished { id }));
        }
        let written = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(Error::Stopped(StoppedError::Interrupted)),
            written = self.job.write_input(bytes, then_end) => written.map_err(|reason| Error::Session(SessionError::InputFailed { id, why: reason }))?,
        };
        let end = if then_end { " and closed its input" } else { "" };
        Ok(self.result(format!("Wrote {written} bytes to session {}{end}.", self.id), json!({"status": "running"})))
    }

    async fn kill(&self) -> Result<ToolResult, Error> {
        if self.job.outcome_if_finished().is_some() {
            return Err(Error::Session(SessionError::AlreadyFinished { id: self.id.to_owned() }));
        }
        self.job.stop();
        let outcome = self.job.finished().await;
        let mut details = json!({});
        outcome.add_to_details(&mut details);
        let notes: String = outcome.notes.iter().map(|note| format!("\n\n{note}")).collect();
        Ok(self.result(format!("Killed session {}.{notes}", self.id), details))
    }

    /// If the result reports the end of the command, suppresses the separate report to the session.
    async fn suppress_report(&self, cx: &ToolCx, result: ToolResult) -> ToolResult {
        let has_ended = result.details.as_ref().is_some_and(|details| details["status"] != "running");
        if let (true, Some(hub)) = (has_ended, &cx.hub) {
            hub.background().settled(&cx.session, self.id).await;
        }
        result
    }

    fn result(&self, text: String, mut details: Value) -> ToolResult {
        details["sessionId"] = json!(self.id);
        details["name"] = json!(label(&self.job.command));
        ToolResult::text(text).with_details(details)
    }
}

fn list(all: &[(String, Arc<CommandJob>)]) -> ToolResult {
    let line = |(id, job): &(String, Arc<CommandJob>)| {
        let status = job.outcome_if_finished().map_or("running", |outcome| outcome.status());
        format!("{id} {status:<9} {:>6}s :: {}", job.elapsed().as_secs(), label(&job.command))
    };
    let row = |(id, job): &(String, Arc<CommandJob>)| {
        let (_, is_cut) = job.text();
        let mut row = json!({
            "sessionId": id,
            "status": "running",
            "pid": job.pid,
            "startedAt": job.started_ms,
            "runtimeMs": millis(job.elapsed()),
            "cwd": job.cwd,
            "command": job.command,
            "name": label(&job.command),
            "tail": job.tail(MAX_LABEL_CHARS),
            "truncated": is_cut,
        });
        if let Some(outcome) = job.outcome_if_finished() {
            outcome.add_to_details(&mut row);
            row["endedAt"] = json!(outcome.ended_ms);
        }
        row
    };
    let text = if all.is_empty() {
        "No commands in the background.".to_owned()
    } else {
        all.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    ToolResult::text(text).with_details(json!({"status": "completed", "sessions": rows}))
}

fn end_of(outcome: &CommandOutcome) -> String {
    let status = match (&outcome.error, outcome.stopped) {
        (None, _) => "Process exited with code 0.".to_owned(),
        (Some(_), Some("cancel")) => "Process was killed.".to_owned(),
        (Some(error), _) => format!("{error}."),
    };
    outcome.notes.iter().fold(status, |text, note| format!("{text}\n\n{note}"))
}

/// Returns the first line of a command, truncated.
pub(crate) fn label(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or_default();
    let mut label: String = line.chars().take(MAX_LABEL_CHARS).collect();
    if label.len() < command.trim().len() {
        label.push('…');
    }
    label
}
