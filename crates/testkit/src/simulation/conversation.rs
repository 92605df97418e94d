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

use super::done;
use crate::{
    channel_sender::AcceptedMessage,
    rng::SeededRng,
    runner::{ENCORE, TraceResult, play_out},
    script::{AnswerStep, ScriptedAnswer},
    sweep::{default_answer, request_id},
    trace::Trace,
};
use reader::{Account, Command, Kind, LogLine, ModelText, Wrote};

/// Maximum answers to one message, the last of which calls no tool.
const ANSWERS: usize = 4;

/// Pause before the last messages, in milliseconds: every background command ends, and every delivery is retried.
const REST_MS: u64 = 240_000;

/// The two chats. The first belongs to the main session, which heartbeats run in.
const CHATS: [&str; 2] = ["7", "8"];

/// The number of the last message in each chat. From then on the model calls no tool.
const LAST: u64 = 99;

/// A conversation that was played.
#[derive(Debug)]
pub struct Conversation {
    /// The events, the transcripts and the platform's log.
    pub played: TraceResult,
    account: Account,
}

/// A conversation before it is played.
struct Plan {
    trace: String,
    wrote: Vec<Wrote>,
    has_interrupts: bool,
}

/// The trace of a seed, as a file would have it.
pub fn write(seed: u64) -> String {
    Plan::new(seed).trace
}

/// Plays the conversation of a seed. The same seed always gives the same conversation.
pub fn converse(seed: u64) -> anyhow::Result<Conversation> {
    let plan = Plan::new(seed);
    let trace = Trace::read(&format!("conversation {seed}"), &plan.trace)?;
    let speaker =
        Speaker { dice: SeededRng::new(seed), requests: 0, last_report: None, said: Vec::new(), pauses: Vec::new() };
    let model = Arc::new(Mutex::new(speaker));
    let speaker = model.clone();
    let answers = move |request: &Request| speaker.lock().unwrap_or_else(PoisonError::into_inner).answer(request);
    let played = play_out(&trace, Box::new(answers))?;
    let spoken = {
        let mut speaker = model.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut speaker.said), std::mem::take(&mut speaker.pauses))
    };
    let account = account(&played, spoken, plan);
    Ok(Conversation { played, account })
}

impl Conversation {
    /// Everything that a person should have read and has not, or has read twice or in the wrong order.
    pub fn complaints(&self) -> Vec<String> {
        reader::complaints(&self.account)
    }

    /// What the model said to which message, for people.
    pub fn script(&self) -> String {
        let line = |said: &ModelText| {
            let ModelText { request, kind, chat, to, asked, text, at, is_kept, .. } = said;
            let kept = if *is_kept { "kept" } else { "not kept" };
            format!("{} at {at:?} in {chat} to {to} {kind:?} {text:?} for {asked}, {kept}", request + 1)
        };
        self.account.said.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// How often each thing happened that the conversation is meant to contain.
    pub fn tally(&self) -> BTreeMap<&'static str, usize> {
        let Account { said, log, kills, commands, .. } = &self.account;
        let of = |kind: Kind| said.iter().filter(|said| said.kind == kind).count();
        let absorbed = self.played.taken.hosts.len();
        BTreeMap::from([
            ("answers", of(Kind::Answer)),
            ("words beside tool calls", of(Kind::Words)),
            ("`message` sends", of(Kind::Sent)),
            ("repetitions withheld", reader::withheld(&self.account)),
            ("findings of heartbeats", of(Kind::Finding)),
            ("model errors", of(Kind::Error)),
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
        let mut dice = SeededRng::new(seed ^ 0x00c0_ffee);
        let mode = *dice.pick(&["steer", "steer", "steer", "followup", "collect", "steer-backlog", "interrupt"]);
        let cap = if dice.percent(20) { 1 + dice.below(2) } else { 50 };
        let drop = dice.pick(&["old", "new", "summarize"]);
        let blocks = if dice.percent(25) { " blocks=yes" } else { "" };
        let exec =
            if dice.percent(10) { "hangs".to_owned() } else { format!("takes {}ms says \"yes\"", dice.below(500)) };
        let mut lines = vec![
            format!("set channel telegram replies=all{}{blocks}", dice.pick(&["", " idempotent=yes"])),
            format!("set queue=\"{mode} debounce:{} cap:{cap} drop:{drop}\"", dice.below(3) * 200),
            format!("set slots={} down={}ms timeout=30s", 1 + dice.below(3), 1 + dice.below(3) * 250),
            "set tool message effect {}".to_owned(),
            "set tool build effect {}".to_owned(),
            format!("tool message sends takes {}ms says \"sent\"", dice.below(3) * dice.below(300)),
            format!(
                "tool build says \"started\" ends \"Command is done (session {{call}})\" after {}ms",
                300 + dice.below(8_000)
            ),
            format!("tool read takes {}ms says \"yes\"", dice.below(2_000)),
            format!("tool exec {exec}"),
        ];
        let mut plan = Self { trace: String::new(), wrote: Vec::new(), has_interrupts: mode == "interrupt" };
        let end = plan.acts(&mut dice, &mut lines);
        // The platform repeats what was not confirmed. What was, is known by its event and not answered again.
        lines.extend(plan.wrote.iter().map(|wrote| format!("at {}ms {}", end + REST_MS / 2, wrote.line())));
        let used: BTreeSet<_> = plan.wrote.iter().map(|wrote| wrote.chat).collect();
        for chat in used {
            plan.say(&mut lines, end + REST_MS, chat, LAST);
        }
        let last = plan.wrote.iter().filter(|wrote| wrote.name.ends_with(&LAST.to_string()));
        lines.extend(last.map(|wrote| format!("at {}ms {}", end + REST_MS + 1_000, wrote.line())));
        for _ in 0..dice.below(3) {
            let commit = 2 + dice.below(70);
            lines.push(format!("fault store.commit #{commit} {}", dice.pick(&["dies", "stored dies"])));
        }
        for call in 1..25 {
            let does = match dice.below(60) {
                0 | 1 => "busy \"flood\" after 2s",
                2 | 3 => "loses \"timeout\"",
                4 | 5 => "drops \"timeout\"",
                6 => "refuses \"bad request\"",
                7..12 => "takes 700ms hears",
                _ => continue,
            };
            lines.push(format!("courier #{call} {does}"));
        }
        plan.trace = lines.join("\n");
        plan
    }

    /// What happens, in order; returns when it has.
    fn acts(&mut self, dice: &mut SeededRng, lines: &mut Vec<String>) -> u64 {
        let mut at = 0;
        for number in 1..5 + dice.below(9) {
            at += dice.below(8) * dice.below(500);
            let chat = if number > 1 && dice.percent(25) { CHATS[1] } else { CHATS[0] };
            match dice.below(100) {
                0..18 if number > 1 => lines.push(format!(
                    "at {at}ms agent {{\"message\":\"heartbeat {number}\",\"idempotencyKey\":\"hb{number}\",\
                     \"lane\":\"heartbeat\",\"deliver\":true,\"channel\":\"last\",\"bestEffortDeliver\":false}}"
                )),
                18..25 if number > 1 => {
                    if dice.percent(30) {
                        lines.push(format!("at {at}ms shutdown"));
                        at += 3_000;
                    }
                    lines.push(format!("at {at}ms restart"));
                    at += 600;
                    let recent = self.wrote.iter().rev().take(2).rev();
                    lines.extend(recent.map(|wrote| format!("at {at}ms {}", wrote.line())));
                }
                25..28 if number > 1 => self.stop(lines, at, chat, number),
                _ => self.say(lines, at, chat, number),
            }
        }
        at
    }

    /// A message; its event and its name on the platform are its text.
    fn say(&mut self, lines: &mut Vec<String>, at: u64, chat: &'static str, number: u64) {
        let letter = if chat == CHATS[0] { 'm' } else { 'p' };
        let name = format!("{letter}{number}");
        let wrote = Wrote { at: Duration::from_millis(at), chat, text: name.clone(), name };
        lines.push(format!("at {at}ms {}", wrote.line()));
        self.wrote.push(wrote);
    }

    fn stop(&mut self, lines: &mut Vec<String>, at: u64, chat: &'static str, number: u64) {
        let wrote =
            Wrote { at: Duration::from_millis(at), chat, text: "/stop".to_owned(), name: format!("stop{number}") };
        lines.push(format!("at {at}ms {}", wrote.line()));
        self.wrote.push(wrote);
    }
}

impl Wrote {
    /// The message as the platform brings it.
    fn line(&self) -> String {
        let Self { chat, text, name, .. } = self;
        let key = if *chat == CHATS[0] { "main" } else { "agent:main:two" };
        format!("phone \"{text}\" event={name} message={name} from={chat} to={chat} key={key}")
    }
}

/// The model: random, with numbered texts.
struct Speaker {
    dice: SeededRng,
    requests: usize,
    /// What the last heartbeat reported, if the next one may report the same again.
    last_report: Option<String>,
    said: Vec<ModelText>,
    /// How long each answer took.
    pauses: Vec<Duration>,
}

impl Speaker {
    fn answer(&mut self, request: &Request) -> ScriptedAnswer {
        self.requests += 1;
        let (asked, answers) = request_id(request);
        if asked.starts_with(ENCORE) {
            self.pauses.push(Duration::ZERO);
            return default_answer();
        }
        let is_heartbeat = asked.starts_with("hb") && !last_text(request).contains("System event");
        let is_last = user_texts(request).any(|text| names(&text).iter().any(|name| name[1..] == LAST.to_string()));
        let open = open(request);
        let re = Vec::from_iter(open.iter().cloned()).join(" ");
        let number = self.requests;
        let mut turn =
            Speaking { request: number - 1, chat: chat_of(request), asked, answers: open, steps: Vec::new() };
        turn.pause(&mut self.dice);
        if answers < ANSWERS && !is_last && self.dice.percent(if is_heartbeat { 20 } else { 55 }) {
            self.call(&mut turn, is_heartbeat, &re);
        } else if is_heartbeat {
            self.report(&mut turn);
        } else if !is_last && self.dice.percent(5) {
            let text = format!("e{number} re {re}");
            self.said.push(turn.said(Kind::Error, &text));
            turn.steps.push(AnswerStep::Fail(Error::new(ErrorKind::Rejected, text)));
        } else {
            if last_text(request).contains("System event") {
                self.last_report = None;
            }
            let text = self.last_words(&turn, &re);
            self.said.push(turn.said(Kind::Answer, &text));
            turn.steps.push(AnswerStep::Text(text));
            turn.pause(&mut self.dice);
            turn.steps.push(done(StopReason::Stop));
        }
        let pauses =
            turn.steps.iter().map(|step| if let AnswerStep::Pause(time) = step { *time } else { Duration::ZERO });
        self.pauses.push(pauses.sum());
        ScriptedAnswer(turn.steps)
    }

    /// Calls a tool.
    fn call(&mut self, turn: &mut Speaking, is_heartbeat: bool, re: &str) {
        let number = self.requests;
        let tool = if is_heartbeat { 2 + self.dice.below(3) } else { self.dice.below(5) };
        let (name, arguments, id) = match tool {
            0 => {
                let text = format!("s{number} is a note of two sentences. It goes on for a while re {re}.");
                let elsewhere = if turn.chat == CHATS[0] { CHATS[1] } else { CHATS[0] };
                let to = if self.dice.percent(15) { elsewhere } else { turn.chat };
                let call = format!("c{number}");
                self.said.push(ModelText { to, call: Some(call.clone()), ..turn.said(Kind::Sent, &text) });
                let arguments = serde_json::json!({"action": "send", "target": to, "message": text});
                ("message", arguments.to_string(), call)
            }
            1 => ("build", "{}".to_owned(), format!("j{number}")),
            2 | 3 => ("read", "{\"path\":\"x\"}".to_owned(), format!("c{number}")),
            _ => ("exec", "{\"cmd\":\"x\"}".to_owned(), format!("c{number}")),
        };
        if !is_heartbeat && self.dice.percent(30) {
            let text = format!("n{number} first");
            self.said.push(turn.said(Kind::Words, &text));
            turn.steps.push(AnswerStep::Text(text));
        }
        let call = CallDelta { index: 0, id: Some(id), name: Some(name.to_owned()), arguments };
        turn.steps.push(AnswerStep::Call(call));
        turn.steps.push(done(StopReason::ToolUse));
    }

    /// Reports what a heartbeat found: nothing, something new, or the same as the last one.
    fn report(&mut self, turn: &mut Speaking) {
        let text = match (self.dice.below(10), &self.last_report) {
            (0..3, _) => {
                turn.steps.extend([AnswerStep::Text("HEARTBEAT_OK".to_owned()), done(StopReason::Stop)]);
                return;
            }
            (3..6, Some(text)) => text.clone(),
            _ => format!("f{} found", self.requests),
        };
        self.last_report = Some(text.clone());
        self.said.push(turn.said(Kind::Finding, &text));
        turn.steps.extend([AnswerStep::Text(text), done(StopReason::Stop)]);
    }

    /// The end of an answer: often about what was sent just before, because a repetition is withheld and news is not.
    fn last_words(&mut self, turn: &Speaking, re: &str) -> String {
        let number = self.requests;
        let plain = format!("a{number} re {re}");
        let sent = self.said.iter().rev().find(|said| said.kind == Kind::Sent && said.chat == turn.chat);
        let Some(sent) = sent.map(|said| said.text.clone()).filter(|_| self.dice.percent(60)) else { return plain };
        match self.dice.below(5) {
            0 => sent,
            1 => sent.split_inclusive(". ").last().unwrap_or_default().to_owned(),
            2 => format!("a{number}: {sent}"),
            3 => format!("{sent} Now a{number} re {re}"),
            _ => plain,
        }
    }
}

/// One answer of the model, in the making.
struct Speaking {
    request: usize,
    chat: &'static str,
    asked: String,
    answers: BTreeSet<String>,
    steps: Vec<AnswerStep>,
}

impl Speaking {
    fn pause(&mut self, dice: &mut SeededRng) {
        self.steps.push(AnswerStep::Pause(Duration::from_millis(dice.below(4) * dice.below(300))));
    }

    fn said(&self, kind: Kind, text: &str) -> ModelText {
        ModelText {
            request: self.request,
            kind,
            chat: self.chat,
            to: self.chat,
            asked: self.asked.clone(),
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

/// The messages and background commands in a conversation that no answer mentions yet.
fn open(request: &Request) -> BTreeSet<String> {
    let mut open = BTreeSet::new();
    for message in &request.messages {
        match &**message {
            Message::User(user) => open.extend(names(&user.content.text())),
            Message::Assistant(said) => {
                let answered = names(&said.text());
                open.retain(|name| !answered.contains(name));
            }
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    open
}

/// The names of messages (`m1`, `p1`) and background commands (`j1`) in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |word: &&str| {
        let digits = word.strip_prefix(['m', 'p', 'j']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_alphanumeric()).filter(is_name).map(str::to_owned).collect()
}

/// What the reader gets: the platform's log, what the model said and was shown of it later, and what people wrote.
fn account(played: &TraceResult, (said, pauses): (Vec<ModelText>, Vec<Duration>), plan: Plan) -> Account {
    let kills: Vec<_> = played.log.restarts.iter().map(|(at, _)| *at).collect();
    let of_session = |chat: &'static str, from: usize| {
        let later = played.seen.iter().skip(from);
        later.filter(move |seen| chat_of(&seen.request) == chat).map(|seen| (seen.at, &seen.request))
    };
    let shown = |said: &ModelText, request: &Request| {
        let is_shown = |message: &&Arc<Message>| match (&***message, &said.call) {
            (Message::ToolResult(result), Some(call)) => result.tool_call_id == *call && !result.is_error,
            (Message::Assistant(known), None) => known.text() == said.text,
            (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_), _) => false,
        };
        request.messages.iter().filter(is_shown).count()
    };
    let said = said.into_iter().map(|said| {
        let later = || of_session(said.chat, said.request + 1);
        let (next, other) = (later().next(), later().find(|(_, request)| request_id(request).0 != said.asked));
        let at = played.seen[said.request].at;
        let count = |request: Option<(Duration, &Request)>| request.map_or(0, |(_, request)| shown(&said, request));
        // What was shown may not have been stored yet, and is gone after a kill.
        let killed_at = kills.iter().find(|kill| **kill >= at);
        let after = killed_at.and_then(|kill| later().find(|(at, _)| at > kill));
        let is_lost = after.is_some() && count(after) < count(next);
        let is_kept = count(next) > shown(&said, &played.seen[said.request].request) && !is_lost;
        ModelText {
            at,
            done_at: at + pauses[said.request],
            next_at: next.map_or(Duration::MAX, |(at, _)| at),
            until: other.map_or(Duration::MAX, |(at, _)| at),
            is_kept,
            ..said
        }
    });
    let log = |heard: &[AcceptedMessage]| {
        let sent = heard.iter().filter(|heard| heard.message.action == MessageActionKind::Send);
        let line = |AcceptedMessage { at, message: said }: &AcceptedMessage| LogLine {
            at: *at,
            chat: said.to.clone(),
            text: said.text.clone(),
            reply_to: said.reply_to.clone(),
        };
        sent.map(line).collect()
    };
    let commands = CHATS.into_iter().flat_map(|chat| {
        let last = of_session(chat, 0).next_back();
        last.map(|(_, request)| commands(chat, request)).unwrap_or_default()
    });
    Account {
        said: said.collect(),
        log: log(&played.heard),
        refused: log(&played.refused),
        wrote: plan.wrote,
        kills: kills.clone(),
        commands: commands.collect(),
        requests: played.seen.iter().map(|seen| open(&seen.request)).collect(),
        has_interrupts: plan.has_interrupts,
    }
}

/// The background commands that a conversation has: those whose start succeeded, and how many messages report the end.
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
