//! Random conversations on a fake chat platform.
//!
//! Two people write, also while the agent works. The agent calls tools, sends messages with the `message` tool, starts
//! background commands and runs heartbeats; the platform is slow, busy or loses track; the process is killed and started
//! again on the same store. Every text of the model has a number, and names the messages and commands that it answers,
//! so `reader` can tell from the platform's log alone what the people have read.

mod reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_agent::channel_sender::MessageActionKind;
use homard_model::{Error, ErrorKind, Request, stream::CallDelta};
use homard_proto::message::{Message, StopReason};
use homard_stdx::SeededRng;

use super::done;
use crate::{
    channel_sender::AcceptedMessage,
    runner::{ENCORE, TraceResult, play_out},
    script::{AnswerStep, ScriptedAnswer},
    sweep::{default_answer, request_id},
    trace::Trace,
};
use reader::{Command, Kind, LogLine, ModelText, ReaderInput, UserMessage};

/// Maximum answers to one message, the last of which calls no tool.
const ANSWERS: usize = 4;

/// Pause before the last messages, in milliseconds: every background command ends, and every delivery is retried.
const REST_MS: u64 = 240_000;

/// The two chats. The first belongs to the main session, which heartbeats run in.
const CHATS: [&str; 2] = ["7", "8"];

/// The number of the last message in each chat. From then on the model calls no tool.
const LAST: u64 = 99;

/// A played conversation.
#[derive(Debug)]
pub struct Conversation {
    /// What was recorded: the events, the transcripts and the platform's log.
    pub result: TraceResult,
    reader_input: ReaderInput,
}

/// A generated conversation that has not been played yet.
struct Plan {
    trace: String,
    messages: Vec<UserMessage>,
    has_interrupts: bool,
}

/// Returns the trace of a seed in file format.
pub fn write(seed: u64) -> String {
    Plan::new(seed).trace
}

/// Plays the conversation of a seed. Deterministic.
pub fn converse(seed: u64) -> anyhow::Result<Conversation> {
    let plan = Plan::new(seed);
    let trace = Trace::read(&format!("conversation {seed}"), &plan.trace)?;
    let random_model = RandomModel {
        rng: SeededRng::new(seed),
        requests: 0,
        last_report: None,
        texts: Vec::new(),
        pauses: Vec::new(),
    };
    let model = Arc::new(Mutex::new(random_model));
    let random_model = model.clone();
    let answers = move |request: &Request| random_model.lock().unwrap_or_else(PoisonError::into_inner).answer(request);
    let result = play_out(&trace, Box::new(answers))?;
    let (texts, pauses) = {
        let mut random_model = model.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut random_model.texts), std::mem::take(&mut random_model.pauses))
    };
    let reader_input = reader_input(&result, texts, &pauses, plan);
    Ok(Conversation { result, reader_input })
}

impl Conversation {
    /// Returns what the people in the chats did not read but should have, or read twice or in the wrong order.
    pub fn complaints(&self) -> Vec<String> {
        reader::complaints(&self.reader_input)
    }

    /// Formats the texts of the model, one line each, for error messages.
    pub fn script(&self) -> String {
        let line = |model_text: &ModelText| {
            let ModelText { request, kind, chat, to, last_message, text, at, is_kept, .. } = model_text;
            let kept = if *is_kept { "kept" } else { "not kept" };
            format!("{} at {at:?} in {chat} to {to} {kind:?} {text:?} for {last_message}, {kept}", request + 1)
        };
        self.reader_input.texts.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Counts the events that conversations are meant to contain.
    pub fn tally(&self) -> BTreeMap<&'static str, usize> {
        let ReaderInput { texts, log, kills, commands, .. } = &self.reader_input;
        let count = |kind: Kind| texts.iter().filter(|model_text| model_text.kind == kind).count();
        let absorbed = self.result.committed.hosts.len();
        BTreeMap::from([
            ("answers", count(Kind::Answer)),
            ("words beside tool calls", count(Kind::Words)),
            ("`message` sends", count(Kind::Sent)),
            ("repetitions withheld", reader::withheld(&self.reader_input)),
            ("findings of heartbeats", count(Kind::Finding)),
            ("model errors", count(Kind::Error)),
            ("background commands", commands.len()),
            ("messages answered by another run", absorbed),
            ("kills and restarts", kills.len()),
            ("notices", log.iter().filter(|line| reader::is_notice(&line.text)).count()),
            ("texts on the platform", log.len()),
        ])
    }
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed ^ 0x00c0_ffee);
        let mode = *rng.pick(&["steer", "steer", "steer", "followup", "collect", "steer-backlog", "interrupt"]);
        let cap = if rng.percent(20) { 1 + rng.below(2) } else { 50 };
        let drop = rng.pick(&["old", "new", "summarize"]);
        let blocks = if rng.percent(25) { " blocks=yes" } else { "" };
        let exec =
            if rng.percent(10) { "hangs".to_owned() } else { format!("takes {}ms says \"yes\"", rng.below(500)) };
        let mut lines = vec![
            format!("set channel telegram replies=all{}{blocks}", rng.pick(&["", " idempotent=yes"])),
            format!("set queue=\"{mode} debounce:{} cap:{cap} drop:{drop}\"", rng.below(3) * 200),
            format!("set slots={} down={}ms timeout=30s", 1 + rng.below(3), 1 + rng.below(3) * 250),
            "set tool message effect {}".to_owned(),
            "set tool build effect {}".to_owned(),
            format!("tool message sends takes {}ms says \"sent\"", rng.below(3) * rng.below(300)),
            format!(
                "tool build says \"started\" ends \"Command is done (session {{call}})\" after {}ms",
                300 + rng.below(8_000)
            ),
            format!("tool read takes {}ms says \"yes\"", rng.below(2_000)),
            format!("tool exec {exec}"),
        ];
        let mut plan = Self { trace: String::new(), messages: Vec::new(), has_interrupts: mode == "interrupt" };
        let end = plan.acts(&mut rng, &mut lines);
        // The platform repeats unconfirmed messages. A message that was accepted is recognized by its event id and not answered
        // again.
        lines.extend(plan.messages.iter().map(|message| format!("at {}ms {}", end + REST_MS / 2, message.line())));
        let used: BTreeSet<_> = plan.messages.iter().map(|message| message.chat).collect();
        for chat in used {
            plan.say(&mut lines, end + REST_MS, chat, LAST);
        }
        let last = plan.messages.iter().filter(|message| message.name.ends_with(&LAST.to_string()));
        lines.extend(last.map(|message| format!("at {}ms {}", end + REST_MS + 1_000, message.line())));
        for _ in 0..rng.below(3) {
            let commit = 2 + rng.below(70);
            lines.push(format!("fault store.commit #{commit} {}", rng.pick(&["dies", "stored dies"])));
        }
        for call in 1..25 {
            let behaviour = match rng.below(60) {
                0 | 1 => "busy \"flood\" after 2s",
                2 | 3 => "loses \"timeout\"",
                4 | 5 => "drops \"timeout\"",
                6 => "refuses \"bad request\"",
                7..12 => "takes 700ms hears",
                _ => continue,
            };
            lines.push(format!("courier #{call} {behaviour}"));
        }
        plan.trace = lines.join("\n");
        plan
    }

    /// Generates the acts in order of time; returns the time of the last one.
    fn acts(&mut self, rng: &mut SeededRng, lines: &mut Vec<String>) -> u64 {
        let mut at = 0;
        for number in 1..5 + rng.below(9) {
            at += rng.below(8) * rng.below(500);
            let chat = if number > 1 && rng.percent(25) { CHATS[1] } else { CHATS[0] };
            match rng.below(100) {
                0..18 if number > 1 => lines.push(format!(
                    "at {at}ms agent {{\"message\":\"heartbeat {number}\",\"idempotencyKey\":\"hb{number}\",\
                     \"lane\":\"heartbeat\",\"deliver\":true,\"channel\":\"last\",\"bestEffortDeliver\":false}}"
                )),
                18..25 if number > 1 => {
                    if rng.percent(30) {
                        lines.push(format!("at {at}ms shutdown"));
                        at += 3_000;
                    }
                    lines.push(format!("at {at}ms restart"));
                    at += 600;
                    let recent = self.messages.iter().rev().take(2).rev();
                    lines.extend(recent.map(|message| format!("at {at}ms {}", message.line())));
                }
                25..28 if number > 1 => self.stop(lines, at, chat, number),
                _ => self.say(lines, at, chat, number),
            }
        }
        at
    }

    /// Adds a message, whose event id and message id are its text.
    fn say(&mut self, lines: &mut Vec<String>, at: u64, chat: &'static str, number: u64) {
        let prefix = if chat == CHATS[0] { 'm' } else { 'p' };
        let name = format!("{prefix}{number}");
        let message = UserMessage { at: Duration::from_millis(at), chat, text: name.clone(), name };
        lines.push(format!("at {at}ms {}", message.line()));
        self.messages.push(message);
    }

    fn stop(&mut self, lines: &mut Vec<String>, at: u64, chat: &'static str, number: u64) {
        let message = UserMessage {
            at: Duration::from_millis(at),
            chat,
            text: "/stop".to_owned(),
            name: format!("stop{number}"),
        };
        lines.push(format!("at {at}ms {}", message.line()));
        self.messages.push(message);
    }
}

impl UserMessage {
    /// Formats the message as a line of a trace.
    fn line(&self) -> String {
        let Self { chat, text, name, .. } = self;
        let key = if *chat == CHATS[0] { "main" } else { "agent:main:two" };
        format!("phone \"{text}\" event={name} message={name} from={chat} to={chat} key={key}")
    }
}

/// A model with random answers and numbered texts.
struct RandomModel {
    rng: SeededRng,
    requests: usize,
    /// Report of the last heartbeat, if the next one may repeat it.
    last_report: Option<String>,
    texts: Vec<ModelText>,
    /// How long each answer took.
    pauses: Vec<Duration>,
}

impl RandomModel {
    fn answer(&mut self, request: &Request) -> ScriptedAnswer {
        self.requests += 1;
        let (last_message, answers) = request_id(request);
        if last_message.starts_with(ENCORE) {
            self.pauses.push(Duration::ZERO);
            return default_answer();
        }
        let is_heartbeat = last_message.starts_with("hb") && !last_text(request).contains("System event");
        let is_last = user_texts(request).any(|text| names(&text).iter().any(|name| name[1..] == LAST.to_string()));
        let open = open(request);
        let open_names = Vec::from_iter(open.iter().cloned()).join(" ");
        let number = self.requests;
        let mut draft =
            AnswerDraft { request: number - 1, chat: chat_of(request), last_message, answers: open, steps: Vec::new() };
        draft.pause(&mut self.rng);
        if answers < ANSWERS && !is_last && self.rng.percent(if is_heartbeat { 20 } else { 55 }) {
            self.call(&mut draft, is_heartbeat, &open_names);
        } else if is_heartbeat {
            self.report(&mut draft);
        } else if !is_last && self.rng.percent(5) {
            let text = format!("e{number} re {open_names}");
            self.texts.push(draft.model_text(Kind::Error, &text));
            draft.steps.push(AnswerStep::Fail(Error::new(ErrorKind::Rejected, text)));
        } else {
            if last_text(request).contains("System event") {
                self.last_report = None;
            }
            let text = self.final_text(&draft, &open_names);
            self.texts.push(draft.model_text(Kind::Answer, &text));
            draft.steps.push(AnswerStep::Text(text));
            draft.pause(&mut self.rng);
            draft.steps.push(done(StopReason::Stop));
        }
        let pauses =
            draft.steps.iter().map(|step| if let AnswerStep::Pause(time) = step { *time } else { Duration::ZERO });
        self.pauses.push(pauses.sum());
        ScriptedAnswer(draft.steps)
    }

    /// Calls a tool.
    fn call(&mut self, draft: &mut AnswerDraft, is_heartbeat: bool, open_names: &str) {
        let number = self.requests;
        let tool = if is_heartbeat { 2 + self.rng.below(3) } else { self.rng.below(5) };
        let (name, arguments, id) = match tool {
            0 => {
                let text = format!("s{number} is a note of two sentences. It goes on for a while re {open_names}.");
                let other_chat = if draft.chat == CHATS[0] { CHATS[1] } else { CHATS[0] };
                let to = if self.rng.percent(15) { other_chat } else { draft.chat };
                let call = format!("c{number}");
                self.texts.push(ModelText { to, call: Some(call.clone()), ..draft.model_text(Kind::Sent, &text) });
                let arguments = serde_json::json!({"action": "send", "target": to, "message": text});
                ("message", arguments.to_string(), call)
            }
            1 => ("build", "{}".to_owned(), format!("j{number}")),
            2 | 3 => ("read", "{\"path\":\"x\"}".to_owned(), format!("c{number}")),
            _ => ("exec", "{\"cmd\":\"x\"}".to_owned(), format!("c{number}")),
        };
        if !is_heartbeat && self.rng.percent(30) {
            let text = format!("n{number} first");
            self.texts.push(draft.model_text(Kind::Words, &text));
            draft.steps.push(AnswerStep::Text(text));
        }
        let call = CallDelta { index: 0, id: Some(id), name: Some(name.to_owned()), arguments };
        draft.steps.push(AnswerStep::Call(call));
        draft.steps.push(done(StopReason::ToolUse));
    }

    /// Reports what a heartbeat found: nothing, something new, or the same as the last one.
    fn report(&mut self, draft: &mut AnswerDraft) {
        let text = match (self.rng.below(10), &self.last_report) {
            (0..3, _) => {
                draft.steps.extend([AnswerStep::Text("HEARTBEAT_OK".to_owned()), done(StopReason::Stop)]);
                return;
            }
            (3..6, Some(text)) => text.clone(),
            _ => format!("f{} found", self.requests),
        };
        self.last_report = Some(text.clone());
        self.texts.push(draft.model_text(Kind::Finding, &text));
        draft.steps.extend([AnswerStep::Text(text), done(StopReason::Stop)]);
    }

    /// Returns the text of a final answer. It often repeats what the `message` tool sent just before, because repetitions are
    /// withheld and other texts are not.
    fn final_text(&mut self, draft: &AnswerDraft, open_names: &str) -> String {
        let number = self.requests;
        let plain = format!("a{number} re {open_names}");
        let sent =
            self.texts.iter().rev().find(|model_text| model_text.kind == Kind::Sent && model_text.chat == draft.chat);
        let Some(sent) = sent.map(|model_text| model_text.text.clone()).filter(|_| self.rng.percent(60)) else {
            return plain;
        };
        match self.rng.below(5) {
            0 => sent,
            1 => sent.split_inclusive(". ").last().unwrap_or_default().to_owned(),
            2 => format!("a{number}: {sent}"),
            3 => format!("{sent} Now a{number} re {open_names}"),
            _ => plain,
        }
    }
}

/// An answer of the model under construction.
struct AnswerDraft {
    request: usize,
    chat: &'static str,
    last_message: String,
    answers: BTreeSet<String>,
    steps: Vec<AnswerStep>,
}

impl AnswerDraft {
    fn pause(&mut self, rng: &mut SeededRng) {
        self.steps.push(AnswerStep::Pause(Duration::from_millis(rng.below(4) * rng.below(300))));
    }

    fn model_text(&self, kind: Kind, text: &str) -> ModelText {
        ModelText {
            request: self.request,
            kind,
            chat: self.chat,
            to: self.chat,
            last_message: self.last_message.clone(),
            answers: self.answers.clone(),
            text: text.to_owned(),
            call: None,
            at: Duration::ZERO,
            done_at: Duration::ZERO,
            next_at: Duration::MAX,
            until: Duration::MAX,
            is_kept: false,
        }
    }
}

fn user_texts(request: &Request) -> impl Iterator<Item = String> + '_ {
    request.messages.iter().filter_map(|message| match &**message {
        Message::User(user) => Some(user.content.text()),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => None,
    })
}

fn last_text(request: &Request) -> String {
    user_texts(request).last().unwrap_or_default()
}

fn chat_of(request: &Request) -> &'static str {
    let is_second = user_texts(request).any(|text| names(&text).iter().any(|name| name.starts_with('p')));
    CHATS[usize::from(is_second)]
}

/// Returns the names of the messages and background commands that the model has not answered yet. An answer contains
/// the names of everything that it answers.
fn open(request: &Request) -> BTreeSet<String> {
    let mut unanswered = BTreeSet::new();
    for message in &request.messages {
        match &**message {
            Message::User(user) => unanswered.extend(names(&user.content.text())),
            Message::Assistant(answer) => {
                let answered = names(&answer.text());
                unanswered.retain(|name| !answered.contains(name));
            }
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    unanswered
}

/// Returns the names of messages (`m1`, `p1`) and background commands (`j1`) in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |word: &&str| {
        let digits = word.strip_prefix(['m', 'p', 'j']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_alphanumeric()).filter(is_name).map(str::to_owned).collect()
}

/// Builds the input of the reader: the platform's log, the texts of the model and whether later requests contain them, and
/// the messages of the users.
fn reader_input(result: &TraceResult, texts: Vec<ModelText>, pauses: &[Duration], plan: Plan) -> ReaderInput {
    let kills: Vec<_> = result.log.restarts.iter().map(|(at, _)| *at).collect();
    let of_session = |chat: &'static str, from: usize| {
        let later = result.requests.iter().skip(from);
        later
            .filter(move |recorded| chat_of(&recorded.request) == chat)
            .map(|recorded| (recorded.at, &recorded.request))
    };
    let times_shown = |model_text: &ModelText, request: &Request| {
        let is_shown = |message: &&Arc<Message>| match (&***message, &model_text.call) {
            (Message::ToolResult(tool_result), Some(call)) => {
                tool_result.tool_call_id == *call && !tool_result.is_error
            }
            (Message::Assistant(answer), None) => answer.text() == model_text.text,
            (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_), _) => false,
        };
        request.messages.iter().filter(is_shown).count()
    };
    let texts = texts.into_iter().map(|model_text| {
        let later = || of_session(model_text.chat, model_text.request + 1);
        let (next, other) =
            (later().next(), later().find(|(_, request)| request_id(request).0 != model_text.last_message));
        let at = result.requests[model_text.request].at;
        let count =
            |request: Option<(Duration, &Request)>| request.map_or(0, |(_, request)| times_shown(&model_text, request));
        // A text in the next request may not have been stored yet; then it is missing after a kill.
        let killed_at = kills.iter().find(|kill| **kill >= at);
        let after = killed_at.and_then(|kill| later().find(|(at, _)| at > kill));
        let is_lost = after.is_some() && count(after) < count(next);
        let is_kept = count(next) > times_shown(&model_text, &result.requests[model_text.request].request) && !is_lost;
        ModelText {
            at,
            done_at: at + pauses[model_text.request],
            next_at: next.map_or(Duration::MAX, |(at, _)| at),
            until: other.map_or(Duration::MAX, |(at, _)| at),
            is_kept,
            ..model_text
        }
    });
    let log = |accepted: &[AcceptedMessage]| {
        let sent = accepted.iter().filter(|message| message.message.action == MessageActionKind::Send);
        let line = |AcceptedMessage { at, message: outgoing }: &AcceptedMessage| LogLine {
            at: *at,
            chat: outgoing.to.clone(),
            text: outgoing.text.clone(),
            reply_to: outgoing.reply_to.clone(),
        };
        sent.map(line).collect()
    };
    let commands = CHATS.into_iter().flat_map(|chat| {
        let last = of_session(chat, 0).next_back();
        last.map(|(_, request)| commands(chat, request)).unwrap_or_default()
    });
    ReaderInput {
        texts: texts.collect(),
        log: log(&result.channels.accepted_messages),
        refused: log(&result.channels.refused),
        messages: plan.messages,
        kills: kills.clone(),
        commands: commands.collect(),
        requests: result.requests.iter().map(|recorded| open(&recorded.request)).collect(),
        has_interrupts: plan.has_interrupts,
    }
}

/// Returns the background commands whose start succeeded, each with the number of messages that report its end.
fn commands(chat: &'static str, request: &Request) -> Vec<Command> {
    let started = request.messages.iter().filter_map(|message| match &**message {
        Message::ToolResult(result) if result.tool_name == "build" && !result.is_error => {
            Some((result.tool_call_id.clone(), result.timestamp))
        }
        Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => None,
    });
    let reports = |name: &str| user_texts(request).filter(|text| names(text).contains(name)).count();
    let started_at = |at: u64| Duration::from_millis(at.saturating_sub(crate::runner::EPOCH_MS));
    started.map(|(name, at)| Command { chat, started_at: started_at(at), reports: reports(&name), name }).collect()
}
