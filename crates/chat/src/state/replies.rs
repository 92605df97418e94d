//! Responses to requests, and what the user asks for with commands.

use serde_json::{Value, json};

use super::{CallKind, Effect, PendingState, State};
use crate::{
    approval::Approval,
    command::{self, LocalCommand},
    composer::Draft,
    link::RpcError,
    picker::{Choice, Picker, PickerKind},
    sanitize,
    transcript::{ModelText, Notice, TranscriptItem, UserMessage, duration},
};

/// Number of sessions in the picker.
const LISTED_SESSIONS: usize = 100;
/// Reasoning levels.
const LEVELS: [(&str, &str); 6] = [
    ("off", "no reasoning"),
    ("minimal", "as little as possible"),
    ("low", "a little"),
    ("medium", "some"),
    ("high", "much"),
    ("xhigh", "as much as possible, where a model has it"),
];

const HELP: &str = "\
**Keys**

- `Enter` sends; `Ctrl+J`, `Shift+Enter`, `Alt+Enter` or `\\` and `Enter` begin a new line
- `Esc` stops the run; while it runs, `Enter` sends a message to it and `Tab` queues one after it; `Up` takes a queued message back
- `Up` and `Down` recall earlier messages, `Ctrl+R` searches them
- `@` completes a file, `/` a command; a pasted or dropped path of a picture is attached
- `Ctrl+O` shows everything with all output, `Ctrl+G` opens the editor, `Ctrl+L` redraws
- `Ctrl+C` clears the message, then stops the run, then leaves; `Ctrl+D` leaves

**Commands**
";

/// The request for the choices of a picker.
struct PickerCall {
    kind: CallKind,
    method: &'static str,
    params: Value,
}

impl State {
    /// Processes a response.
    pub(super) fn response(&mut self, kind: CallKind, result: Result<Value, RpcError>, effects: &mut Vec<Effect>) {
        match kind {
            CallKind::Send(run) => self.sent(&run, result, effects),
            CallKind::History => self.history(result, effects),
            CallKind::Resume(run) => self.resumed(&run, result, effects),
            CallKind::Approvals => {
                let listed = result.unwrap_or_default();
                let rows = listed.as_array().map(Vec::as_slice).unwrap_or_default();
                let open: Vec<_> = rows.iter().filter_map(|row| Approval::read(row, self.now)).collect();
                self.approvals.retain(|known| open.iter().any(|approval| approval.id == known.id));
                for approval in open {
                    self.add_approval(approval, effects);
                }
            }
            CallKind::Resolve(id) => {
                if let Err(error) = result {
                    self.approvals.retain(|approval| approval.id != id);
                    self.notice(Notice::warning(&format!("the request for approval has ended: {}", error.message)));
                }
            }
            CallKind::Sessions => self.fill(PickerKind::Sessions, result.map(|payload| self.session_choices(&payload))),
            CallKind::Models => self.fill(PickerKind::Models, result.map(|payload| model_choices(&payload))),
            CallKind::Agents => self.fill(PickerKind::Agents, result.map(|payload| agent_choices(&payload))),
            CallKind::Commands => {
                if let Ok(payload) = result {
                    self.commands = command::all(&command::from_list(&payload));
                }
            }
            CallKind::Abort => {
                if let Err(error) = result {
                    self.notice(Notice::error(&format!("the run could not be stopped: {}", error.message)));
                }
            }
            CallKind::Recall(run) => self.recalled(&run, result),
            CallKind::Trace => match result {
                Ok(payload) => {
                    self.transcript.push(TranscriptItem::ModelText(ModelText::complete("", &trace(&payload))));
                }
                Err(error) => self.notice(Notice::error(&format!("no trace: {}", error.message))),
            },
            CallKind::Cost => {
                let last = result.ok().and_then(|payload| payload["points"].as_array()?.last().cloned());
                self.session.cost = last.and_then(|point| point["cumulativeCost"].as_f64()).or(self.session.cost);
            }
            CallKind::Session => {
                if let Ok(payload) = result {
                    self.read_session(&payload["session"]);
                }
            }
            // Without it, messages of other clients are not shown.
            CallKind::Subscribe => {}
        }
    }

    fn sent(&mut self, run: &str, result: Result<Value, RpcError>, effects: &mut Vec<Effect>) {
        match result {
            Ok(payload) => match payload["status"].as_str() {
                Some("started") => {
                    self.confirmed(run);
                    if let Some(message) = self.pending.iter_mut().find(|message| message.run == run) {
                        message.state = PendingState::of_disposition(&payload);
                    }
                }
                Some(_) => {
                    if let Some(message) = self.pending.iter_mut().find(|message| message.run == run)
                        && message.is_unconfirmed()
                    {
                        message.state = PendingState::Starting;
                    }
                    self.resume(Some(run.to_owned()), 0, effects);
                }
                // A stop command.
                None => {
                    self.confirmed(run);
                    self.take_pending(run);
                }
            },
            Err(error) => {
                self.confirmed(run);
                let Some(index) = self.pending.iter().position(|message| message.run == run) else { return };
                let message = self.pending.remove(index);
                self.notice(Notice::error(&format!("not sent: {}", error.message)));
                self.restore(&message.draft);
            }
        }
    }

    /// Puts a message back into the composer, if that is empty; otherwise it can be recalled from the history.
    fn restore(&mut self, draft: &Draft) {
        if self.composer.is_empty() {
            self.composer.restore(draft);
        } else {
            self.input_history.add(&draft.text);
        }
    }

    fn recalled(&mut self, run: &str, result: Result<Value, RpcError>) {
        let was_aborted = result.is_ok_and(|payload| payload["aborted"] == true);
        let Some(index) = self.pending.iter().position(|message| message.run == run) else {
            return self.hint("the message is already being answered");
        };
        if was_aborted {
            let message = self.pending.remove(index);
            self.restore(&message.draft);
        } else {
            self.pending[index].state = PendingState::Queued(None);
            self.hint("the message cannot be taken back any more");
        }
    }

    /// Reads a row of a session.
    pub(super) fn read_session(&mut self, row: &Value) {
        if row["key"].as_str().is_some_and(|key| key != self.session.key) {
            return;
        }
        let text = |name: &str| row[name].as_str().map(sanitize::one_line);
        self.session.label = text("label").or_else(|| text("displayName")).or(self.session.label.take());
        self.session.model = model_name(row).or(self.session.model.take());
        self.session.thinking = text("thinkingLevel").or(self.session.thinking.take());
        let used = row["totalTokens"].as_u64().zip(row["contextTokens"].as_u64());
        self.session.context = used.filter(|(_, window)| *window > 0).or(self.session.context);
    }

    /// Executes a command of the chat.
    pub(super) fn execute(&mut self, command: LocalCommand, argument: &str, effects: &mut Vec<Effect>) {
        match command {
            LocalCommand::New => {
                let agent = self.session.key.split(':').nth(1).unwrap_or("main").to_owned();
                self.new_session(&agent, effects);
            }
            LocalCommand::Sessions if !argument.is_empty() => self.open_session(argument, effects),
            LocalCommand::Sessions => {
                let params = json!({"limit": LISTED_SESSIONS});
                self.pick(
                    PickerKind::Sessions,
                    PickerCall { kind: CallKind::Sessions, method: "sessions.list", params },
                    effects,
                );
            }
            LocalCommand::Model => {
                let agent = self.session.key.split(':').nth(1).map(str::to_owned);
                let params = agent.map_or_else(|| json!({}), |agent| json!({"agentId": agent}));
                self.pick(
                    PickerKind::Models,
                    PickerCall { kind: CallKind::Models, method: "models.list", params },
                    effects,
                );
            }
            LocalCommand::Agents if !argument.is_empty() => self.new_session(argument, effects),
            LocalCommand::Agents => {
                self.pick(
                    PickerKind::Agents,
                    PickerCall { kind: CallKind::Agents, method: "agents.list", params: json!({}) },
                    effects,
                );
            }
            LocalCommand::Think => {
                let choice = |(level, description): (&str, &str)| Choice {
                    id: level.to_owned(),
                    label: level.to_owned(),
                    description: description.to_owned(),
                };
                let mut picker = Picker::new(PickerKind::Levels);
                let current = self.session.thinking.as_deref();
                picker.selected = LEVELS.iter().position(|(level, _)| Some(*level) == current).unwrap_or(0);
                picker.choices = Some(LEVELS.into_iter().map(choice).collect());
                self.picker = Some(picker);
            }
            LocalCommand::Trace => {
                let id = Some(argument.to_owned()).filter(|id| !id.is_empty()).or_else(|| self.last_run.clone());
                match id {
                    Some(id) if self.is_connected() => {
                        self.call(CallKind::Trace, "runs.trace", json!({"id": id}), effects);
                    }
                    Some(_) => self.hint("not connected"),
                    None => self.hint("nothing ran in this session yet"),
                }
            }
            LocalCommand::Details => self.pager = Some(crate::pager::Pager::default()),
            LocalCommand::Stop => self.abort(effects),
            LocalCommand::Help => {
                let rows = self.commands.iter().map(|command| format!("- `{}` {}", command.name, command.description));
                let text = format!("{HELP}\n{}", rows.collect::<Vec<_>>().join("\n"));
                self.transcript.push(TranscriptItem::ModelText(ModelText::complete("", &text)));
            }
            LocalCommand::Quit => effects.push(Effect::Quit),
        }
    }

    fn pick(&mut self, kind: PickerKind, call: PickerCall, effects: &mut Vec<Effect>) {
        if !self.is_connected() {
            return self.hint("not connected");
        }
        let PickerCall { kind: call, method, params } = call;
        self.picker = Some(Picker::new(kind));
        self.call(call, method, params, effects);
    }

    fn fill(&mut self, kind: PickerKind, choices: Result<Vec<Choice>, RpcError>) {
        let Some(picker) = self.picker.as_mut().filter(|picker| picker.kind == kind) else { return };
        match choices {
            Ok(choices) => {
                let current = self.session.model.as_deref();
                picker.selected = choices.iter().position(|choice| Some(choice.id.as_str()) == current).unwrap_or(0);
                picker.choices = Some(choices);
            }
            Err(error) => {
                self.picker = None;
                self.hint(&error.message);
            }
        }
    }

    /// Uses the selected row of the picker.
    pub(super) fn choose(&mut self, effects: &mut Vec<Effect>) {
        let Some(choice) = self.picker.as_ref().and_then(|picker| picker.chosen().cloned()) else { return };
        let Some(picker) = self.picker.take() else { return };
        match picker.kind {
            PickerKind::Sessions => self.open_session(&choice.id, effects),
            PickerKind::Agents => self.new_session(&choice.id, effects),
            PickerKind::Models => self.submit(Draft::of(format!("/model {}", choice.id)), None, effects),
            PickerKind::Levels => self.submit(Draft::of(format!("/think {}", choice.id)), None, effects),
        }
    }

    fn new_session(&mut self, agent: &str, effects: &mut Vec<Effect>) {
        let id: String = (self.ids.0)().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let key = format!("agent:{}:chat-{}", sanitize::one_line(agent).to_lowercase(), id.to_lowercase());
        self.open_session(&key, effects);
    }

    fn open_session(&mut self, key: &str, effects: &mut Vec<Effect>) {
        if key == self.session.key {
            return self.hint("this session is open");
        }
        self.transcript.settle();
        let old = std::mem::take(&mut self.session);
        let params = json!({"key": old.key});
        self.call(CallKind::Subscribe, "sessions.messages.unsubscribe", params, effects);
        self.session.key = key.to_owned();
        self.session.model = old.model;
        self.run = None;
        self.last_run = None;
        // The gateway continues what it has; what it may not have is sent when there is a connection.
        self.pending.retain(super::pending::PendingMessage::is_unconfirmed);
        self.notice(Notice::info(&format!("session {}", sanitize::one_line(key))));
        self.approvals.clear();
        self.load(true, effects);
        self.call(CallKind::Approvals, "exec.approval.list", json!({}), effects);
    }

    /// Sends a message, or executes the command that it is.
    pub(super) fn submit(&mut self, draft: Draft, queue_mode: Option<&'static str>, effects: &mut Vec<Effect>) {
        if draft.is_blank() {
            return;
        }
        if let Some((command, argument)) = command::parse(&draft.text) {
            let argument = argument.to_owned();
            if command != LocalCommand::Quit {
                self.transcript.push(TranscriptItem::User(UserMessage::of(&draft.shown)));
            }
            return self.execute(command, &argument, effects);
        }
        let run = (self.ids.0)();
        self.pending.push(super::PendingMessage {
            run: run.clone(),
            session: self.session.key.clone(),
            draft,
            cwd: self.working_directory.clone(),
            queue_mode,
            state: PendingState::Unsent,
            was_sent: false,
        });
        if self.saved_session.as_ref() != Some(&self.session.key) {
            self.saved_session = Some(self.session.key.clone());
            effects.push(Effect::SaveSession(self.session.key.clone()));
        }
        self.send(&run, effects);
    }

    fn session_choices(&self, payload: &Value) -> Vec<Choice> {
        let rows = payload["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let listed_at = payload["ts"].as_u64().unwrap_or_default();
        let choice = |row: &Value| {
            let key = row["key"].as_str()?;
            let names = ["label", "derivedTitle", "displayName"];
            let name = names.iter().find_map(|name| row[name].as_str()).map(sanitize::one_line);
            let short = key.strip_prefix("agent:").unwrap_or(key);
            let age = listed_at.saturating_sub(row["updatedAt"].as_u64().unwrap_or(listed_at));
            let model = row["model"].as_str().map(sanitize::one_line).unwrap_or_default();
            let preview = row["lastMessagePreview"].as_str().map(sanitize::one_line).unwrap_or_default();
            let facts = [format!("{} ago", duration(age / 60_000 * 60_000).replace(" 00s", "")), model, preview];
            let facts: Vec<_> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
            Some(Choice {
                id: key.to_owned(),
                label: name.unwrap_or_else(|| sanitize::one_line(short)),
                description: facts.join(" · "),
            })
        };
        rows.iter().filter(|row| row["key"] != self.session.key.as_str()).filter_map(choice).collect()
    }
}

fn model_choices(payload: &Value) -> Vec<Choice> {
    let rows = payload["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choice = |row: &Value| {
        let id = format!("{}/{}", row["provider"].as_str()?, row["id"].as_str()?);
        let window = row["contextWindow"].as_u64().map(|window| format!("{} tokens", tokens(window)));
        let reasoning = (row["reasoning"] == true).then(|| "reasoning".to_owned());
        let facts: Vec<_> = [window, reasoning].into_iter().flatten().collect();
        Some(Choice { label: sanitize::one_line(&id), id, description: facts.join(" · ") })
    };
    rows.iter().filter_map(choice).collect()
}

fn agent_choices(payload: &Value) -> Vec<Choice> {
    let rows = payload["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choice = |row: &Value| {
        let id = row["id"].as_str()?.to_owned();
        let name = row["name"].as_str().or_else(|| row["identity"]["name"].as_str()).map(sanitize::one_line);
        let model = row["model"]["primary"].as_str().map(sanitize::one_line).unwrap_or_default();
        Some(Choice { label: name.map_or_else(|| id.clone(), |name| format!("{id} ({name})")), id, description: model })
    };
    rows.iter().filter_map(choice).collect()
}

/// Returns the model of a row, with its provider.
pub(super) fn model_name(row: &Value) -> Option<String> {
    let model = row["model"].as_str()?;
    let provider = row["modelProvider"].as_str().map(|provider| format!("{provider}/")).unwrap_or_default();
    Some(sanitize::one_line(&format!("{provider}{model}")))
}

/// Formats a number of tokens.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Renders the timeline of a run as Markdown.
fn trace(payload: &Value) -> String {
    let run = &payload["run"];
    let text = |value: &Value| sanitize::one_line(value.as_str().unwrap_or_default());
    let total = duration(payload["totalMs"].as_u64().unwrap_or_default());
    let model = model_name(&json!({"model": run["model"], "modelProvider": run["provider"]})).unwrap_or_default();
    let mut lines = vec![format!("**Run** `{}`: {} in {total} {model}", text(&run["runId"]), text(&run["status"]))];
    lines.push(String::new());
    lines.push("| at | took | step |\n|---:|---:|---|".to_owned());
    for step in payload["steps"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let ms = |name: &str| duration(step[name].as_u64().unwrap_or_default());
        let known = ["atMs", "ms", "aside"];
        let facts = step.as_object().into_iter().flatten().filter(|(name, value)| {
            !known.contains(&name.as_str()) && (value.is_string() || value.is_number() || **value == true)
        });
        let facts: Vec<_> = facts
            .map(|(name, value)| match (name.as_str(), value) {
                ("what" | "kind" | "step" | "type", Value::String(text)) => sanitize::one_line(text),
                (_, Value::String(text)) => format!("{name} {}", sanitize::one_line(text)),
                (_, Value::Bool(_)) => name.clone(),
                _ => format!("{name} {value}"),
            })
            .collect();
        lines.push(format!("| {} | {} | {} |", ms("atMs"), ms("ms"), facts.join(", ").replace('|', "\\|")));
    }
    if let Some(error) = run["error"].as_str() {
        lines.push(format!("\nError: {}", sanitize::one_line(error)));
    }
    lines.join("\n")
}
