//! Responses to requests, and what the user asks for with commands.

use serde_json::{Value, json};

use super::{CallKind, Effect, PendingMessage, PendingState, State, choices};
use crate::{
    approval::Approval,
    command::{self, LocalCommand},
    composer::Draft,
    link::RpcError,
    picker::{Choice, Picker, PickerKind},
    sanitize,
    transcript::{ModelText, Notice, TranscriptItem, UserMessage},
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
- `Ctrl+T` expands and collapses the last tool call; `Ctrl+O` shows everything with all output, `Ctrl+G` opens the editor, `Ctrl+L` redraws
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
            CallKind::Resume(run) => self.resumed(&run, result),
            CallKind::Approvals => {
                // The requests that are known stay: nothing says that they have ended.
                let Ok(listed) = result else { return };
                let rows = listed.as_array().map(Vec::as_slice).unwrap_or_default();
                let open: Vec<_> = rows.iter().filter_map(|row| Approval::read(row, self.conversation.now)).collect();
                self.conversation.approvals.retain(|known| open.iter().any(|approval| approval.id == known.id));
                for approval in open {
                    if self.conversation.add_approval(approval) {
                        effects.push(Effect::Bell);
                    }
                }
            }
            CallKind::Resolve(id) => {
                if let Err(error) = result {
                    self.conversation.approvals.retain(|approval| approval.id != id);
                    self.conversation
                        .notice(Notice::warning(&format!("the request for approval has ended: {}", error.message)));
                }
            }
            CallKind::Sessions => self.fill(
                PickerKind::Sessions,
                result.map(|payload| choices::session_choices(&payload, &self.conversation.session.key)),
            ),
            CallKind::Models => self.fill(PickerKind::Models, result.map(|payload| choices::model_choices(&payload))),
            CallKind::Agents => self.fill(PickerKind::Agents, result.map(|payload| choices::agent_choices(&payload))),
            CallKind::Commands => {
                if let Ok(payload) = result {
                    self.input.commands = command::all(&command::from_list(&payload));
                }
            }
            CallKind::Abort => {
                if let Err(error) = result {
                    self.conversation
                        .notice(Notice::error(&format!("the run could not be stopped: {}", error.message)));
                }
            }
            CallKind::Recall(run) => self.recalled(&run, result),
            CallKind::Trace => match result {
                Ok(payload) => {
                    self.conversation
                        .transcript
                        .push(TranscriptItem::ModelText(ModelText::complete("", &choices::trace(&payload))));
                }
                Err(error) => self.conversation.notice(Notice::error(&format!("no trace: {}", error.message))),
            },
            CallKind::Cost => {
                let last = result.ok().and_then(|payload| payload["points"].as_array()?.last().cloned());
                self.conversation.session.cost =
                    last.and_then(|point| point["cumulativeCost"].as_f64()).or(self.conversation.session.cost);
            }
            CallKind::Session => {
                if let Ok(payload) = result {
                    self.conversation.read_session(&payload["session"]);
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
                    self.conversation.sync.confirmed(run);
                    if let Some(message) = self.conversation.pending_mut(run) {
                        message.state = PendingState::of_disposition(&payload);
                    }
                }
                Some(_) => {
                    if let Some(message) = self.conversation.pending_mut(run)
                        && message.is_unconfirmed()
                    {
                        message.state = PendingState::Starting;
                    }
                    self.resume(Some(run.to_owned()), 0, effects);
                }
                // A stop command.
                None => {
                    self.conversation.sync.confirmed(run);
                    self.conversation.take_pending(run);
                }
            },
            Err(error) => {
                self.conversation.sync.confirmed(run);
                let Some(index) = self.conversation.pending.iter().position(|message| message.run == run) else {
                    return;
                };
                let message = self.conversation.pending.remove(index);
                self.conversation.notice(Notice::error(&format!("not sent: {}", error.message)));
                self.input.restore(&message.draft);
            }
        }
    }

    fn recalled(&mut self, run: &str, result: Result<Value, RpcError>) {
        let was_aborted = result.is_ok_and(|payload| payload["aborted"] == true);
        let Some(index) = self.conversation.pending.iter().position(|message| message.run == run) else {
            return self.hint("the message is already being answered");
        };
        if was_aborted {
            let message = self.conversation.pending.remove(index);
            self.input.restore(&message.draft);
        } else {
            self.conversation.pending[index].state = PendingState::Queued(None);
            self.hint("the message cannot be taken back any more");
        }
    }

    /// Executes a command of the chat.
    pub(super) fn execute(&mut self, command: LocalCommand, argument: &str, effects: &mut Vec<Effect>) {
        match command {
            LocalCommand::New => {
                let agent = self.conversation.session.key.split(':').nth(1).unwrap_or("main").to_owned();
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
                let agent = self.conversation.session.key.split(':').nth(1).map(str::to_owned);
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
                let current = self.conversation.session.thinking.as_deref();
                picker.selected = LEVELS.iter().position(|(level, _)| Some(*level) == current).unwrap_or(0);
                picker.choices = Some(LEVELS.into_iter().map(choice).collect());
                self.picker = Some(picker);
            }
            LocalCommand::Trace => {
                let id = Some(argument.to_owned())
                    .filter(|id| !id.is_empty())
                    .or_else(|| self.conversation.runs.last.clone());
                match id {
                    Some(id) if self.gateway.is_connected() => {
                        self.gateway.call(CallKind::Trace, "runs.trace", json!({"id": id}), effects);
                    }
                    Some(_) => self.hint("not connected"),
                    None => self.hint("nothing ran in this session yet"),
                }
            }
            LocalCommand::Details => self.pager = Some(crate::pager::Pager::default()),
            LocalCommand::Stop => self.abort(effects),
            LocalCommand::Help => {
                let rows =
                    self.input.commands.iter().map(|command| format!("- `{}` {}", command.name, command.description));
                let text = format!("{HELP}\n{}", rows.collect::<Vec<_>>().join("\n"));
                self.conversation.transcript.push(TranscriptItem::ModelText(ModelText::complete("", &text)));
            }
            LocalCommand::Quit => effects.push(Effect::Quit),
        }
    }

    fn pick(&mut self, kind: PickerKind, call: PickerCall, effects: &mut Vec<Effect>) {
        if !self.gateway.is_connected() {
            return self.hint("not connected");
        }
        let PickerCall { kind: call, method, params } = call;
        self.picker = Some(Picker::new(kind));
        self.gateway.call(call, method, params, effects);
    }

    fn fill(&mut self, kind: PickerKind, choices: Result<Vec<Choice>, RpcError>) {
        let Some(picker) = self.picker.as_mut().filter(|picker| picker.kind == kind) else { return };
        match choices {
            Ok(choices) => {
                let current = self.conversation.session.model.as_deref();
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
        let id: String = (self.local.ids.0)().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let key = format!("agent:{}:chat-{}", sanitize::one_line(agent).to_lowercase(), id.to_lowercase());
        self.open_session(&key, effects);
    }

    fn open_session(&mut self, key: &str, effects: &mut Vec<Effect>) {
        if key == self.conversation.session.key {
            return self.hint("this session is open");
        }
        self.conversation.transcript.settle();
        let old = std::mem::take(&mut self.conversation.session);
        let params = json!({"key": old.key});
        self.gateway.call(CallKind::Subscribe, "sessions.messages.unsubscribe", params, effects);
        self.conversation.session.key = key.to_owned();
        self.conversation.session.model = old.model;
        self.conversation.run = None;
        self.conversation.runs.last = None;
        // The gateway continues what it has; what it may not have is sent when there is a connection.
        self.conversation.pending.retain(PendingMessage::is_unconfirmed);
        self.conversation.notice(Notice::info(&format!("session {}", sanitize::one_line(key))));
        self.conversation.approvals.clear();
        self.load(true, effects);
        self.gateway.call(CallKind::Approvals, "exec.approval.list", json!({}), effects);
    }

    /// Sends a message, or executes the command that it is.
    pub(super) fn submit(&mut self, draft: Draft, queue_mode: Option<&'static str>, effects: &mut Vec<Effect>) {
        if draft.is_blank() {
            return;
        }
        if let Some((command, argument)) = command::parse(&draft.text) {
            let argument = argument.to_owned();
            if command != LocalCommand::Quit {
                self.conversation.transcript.push(TranscriptItem::User(UserMessage::of(&draft.shown)));
            }
            return self.execute(command, &argument, effects);
        }
        let run = (self.local.ids.0)();
        self.conversation.pending.push(PendingMessage {
            run: run.clone(),
            session: self.conversation.session.key.clone(),
            draft,
            cwd: self.local.working_directory.clone(),
            queue_mode,
            state: PendingState::Unsent,
            was_sent: false,
        });
        if self.local.saved_session.as_ref() != Some(&self.conversation.session.key) {
            self.local.saved_session = Some(self.conversation.session.key.clone());
            effects.push(Effect::SaveSession(self.conversation.session.key.clone()));
        }
        self.send(&run, effects);
    }
}
