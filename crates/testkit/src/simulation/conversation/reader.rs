//! Checks a chat platform's log from the point of view of the people in the chats.
//!
//! Its input is the log, the texts of the model, the messages of the users and the times of kills. It shares no code
//! with the gateway: the rules are stated here independently.
//!
//! A text is *read* if it appears in the chat. It is *kept* if the transcript has it: a later request contains it as
//! the model's own text.
//!
//! - A text that was kept is read once in its chat.
//! - A text that was not kept was lost in a kill; the request was repeated and got another answer. It is read at most
//!   once.
//! - An answer is withheld only if the `message` tool sent the same text to the same chat since the last message: the
//!   whole text, whole sentences, or the whole text behind an introduction of at most a fifth. Then it is read once.
//! - A heartbeat's finding that is the same as the last one is not repeated.
//! - Answers are read in the order in which they were given, and so are messages of the `message` tool.
//! - Instead of an answer a person may read why there is none: a notice that replies to the message, an error of the
//!   model, or the reply to `/stop`. A text that may have been lost in delivery is excused by a notice that says so,
//!   one each.
//! - Every message and the end of every background command is answered by a text that was read, or excused in this way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Input of the reader.
#[derive(Debug)]
pub(super) struct ReaderInput {
    pub(super) log: Vec<LogLine>,
    /// Texts that the platform refused.
    pub(super) refused: Vec<LogLine>,
    pub(super) texts: Vec<ModelText>,
    pub(super) messages: Vec<UserMessage>,
    pub(super) kills: Vec<Duration>,
    pub(super) commands: Vec<Command>,
    /// The unanswered messages in each request to the model.
    pub(super) requests: Vec<BTreeSet<String>>,
    /// Whether a message stops the run before it.
    pub(super) has_interrupts: bool,
}

/// A text in a chat.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) at: Duration,
    pub(super) chat: String,
    pub(super) text: String,
    pub(super) reply_to: Option<String>,
}

/// A text of the model.
#[derive(Debug, Clone)]
pub(super) struct ModelText {
    /// The number of the request.
    pub(super) request: usize,
    pub(super) kind: Kind,
    /// The chat of the conversation.
    pub(super) chat: &'static str,
    /// The chat that it is for.
    pub(super) to: &'static str,
    /// Id of the last message in the request.
    pub(super) last_message: String,
    /// The messages and commands that it answers.
    pub(super) answers: BTreeSet<String>,
    pub(super) text: String,
    /// The tool call that sends it.
    pub(super) call: Option<String>,
    pub(super) at: Duration,
    /// When it was complete.
    pub(super) done_at: Duration,
    /// The time of the next request in the conversation.
    pub(super) next_at: Duration,
    /// The time of the next request about another message.
    pub(super) until: Duration,
    /// True if it is in the history of the next request, as text of the model or as a successful call, and no restart
    /// lost it.
    pub(super) is_kept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of an answer without tool calls, which ends the run.
    Answer,
    /// Text of an answer that also has tool calls.
    Words,
    /// A message sent with the `message` tool.
    Sent,
    /// The report of a heartbeat.
    Finding,
    /// The model failed with this text.
    Error,
}

/// A message of a person.
#[derive(Debug)]
pub(super) struct UserMessage {
    pub(super) at: Duration,
    pub(super) chat: &'static str,
    pub(super) text: String,
    pub(super) name: String,
}

/// A background command whose start the model knows.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) chat: &'static str,
    pub(super) name: String,
    pub(super) started_at: Duration,
    /// Number of messages that reported its end to the model.
    pub(super) reports: usize,
}

/// Prefixes of the replies to `/stop`.
const STOPPED: &str = "Stopped";
const NOTHING_TO_STOP: &str = "There was nothing to stop";

/// Prefix of notices about a text that did not arrive, or may not have.
const LOST: &str = "⚠️ A message to you ";

/// Prefixes of texts that say why a message has no answer, or not yet.
const NOTICES: [&str; 5] =
    [LOST, "⚠️ Your message is on hold", "INTERRUPTED: ", "queue_full: ", "the run took longer than its timeout"];

/// Returns true if a text is a notice about what happened to a message.
pub(super) fn is_notice(text: &str) -> bool {
    NOTICES.iter().any(|start| text.starts_with(start))
}

/// Returns all problems.
pub(super) fn complaints(input: &ReaderInput) -> Vec<String> {
    let mut problems = Vec::new();
    check_unknown_texts(input, &mut problems);
    check_each_text(input, &mut problems);
    check_order(input, &mut problems);
    check_messages(input, &mut problems);
    check_commands(input, &mut problems);
    problems
}

/// Returns the number of withheld answers.
pub(super) fn withheld(input: &ReaderInput) -> usize {
    input
        .texts
        .iter()
        .filter(|model_text| model_text.is_kept && model_text.kind == Kind::Answer && input.is_withheld(model_text))
        .count()
}

impl ReaderInput {
    fn in_chat<'a>(&'a self, chat: &'a str) -> impl Iterator<Item = &'a LogLine> {
        self.log.iter().filter(move |line| line.chat == chat)
    }

    fn is_read(&self, chat: &str, text: &str) -> bool {
        self.times_read(chat, text) > 0
    }

    fn times_read(&self, chat: &str, text: &str) -> usize {
        self.in_chat(chat).filter(|line| self.is_text(line, text)).count()
    }

    /// Returns true if a line is this text, or the rest of it: blocks that were sent before a kill are not sent again
    /// if the next answer begins with them.
    fn is_text(&self, line: &LogLine, text: &str) -> bool {
        let prefix = text.strip_suffix(&line.text).map(str::trim_end);
        let is_rest =
            |prefix: &str| self.in_chat(&line.chat).any(|before| before.at < line.at && before.text == prefix);
        line.text == text || self.was_killed(Duration::ZERO, line.at) && prefix.is_some_and(is_rest)
    }

    fn was_killed(&self, from: Duration, to: Duration) -> bool {
        self.kills.iter().any(|kill| (from..=to).contains(kill))
    }

    /// Returns true if a person stopped a run in a chat at a time, and read the confirmation.
    fn was_stopped(&self, chat: &str, at: Duration) -> bool {
        let mut replies = self.in_chat(chat).filter(|line| line.text.starts_with(STOPPED));
        // A reply that may have been lost has a notice in its place.
        let stops = self.messages.iter().filter(|message| message.chat == chat && message.text == "/stop");
        let mut lost = stops.filter(|message| self.has_notice(chat, &message.name));
        replies.any(|line| line.at >= at) || lost.any(|message| message.at >= at)
    }

    /// Returns true if a notice replies to a message.
    fn has_notice(&self, chat: &str, name: &str) -> bool {
        let mut lines = self.log.iter().chain(&self.refused).filter(|line| line.chat == chat && is_notice(&line.text));
        lines.any(|line| line.reply_to.as_deref() == Some(name))
    }

    /// Whether a newer message came before an answer was complete, and stopped its run.
    fn is_cut_off(&self, model_text: &ModelText) -> bool {
        let own = self
            .messages
            .iter()
            .filter(|message| model_text.answers.contains(&message.name))
            .map(|message| message.at)
            .max();
        let newer = |message: &UserMessage| {
            message.chat == model_text.chat
                && !model_text.answers.contains(&message.name)
                && own.is_none_or(|own| message.at >= own)
        };
        self.has_interrupts && self.messages.iter().any(|message| newer(message) && message.at <= model_text.done_at)
    }

    /// Whether a newer message stopped the run that said this, before it came to an answer.
    fn was_interrupted(&self, model_text: &ModelText) -> bool {
        let mut same = self
            .texts
            .iter()
            .filter(|other| other.chat == model_text.chat && other.last_message == model_text.last_message);
        let is_answered = same.any(|other| other.kind == Kind::Answer && other.is_kept && !self.is_cut_off(other));
        let newer = |message: &UserMessage| {
            message.chat == model_text.chat && (model_text.at..=model_text.until).contains(&message.at)
        };
        self.is_cut_off(model_text) || self.has_interrupts && !is_answered && self.messages.iter().any(newer)
    }

    /// Whether a newer message took the place of one that was not answered yet.
    fn is_replaced(&self, message: &UserMessage) -> bool {
        self.has_interrupts
            && self
                .messages
                .iter()
                .any(|newer| newer.chat == message.chat && newer.at >= message.at && newer.name != message.name)
    }

    /// Whether a text repeats a message that the `message` tool sent to the same chat since the last message.
    fn is_withheld(&self, model_text: &ModelText) -> bool {
        let sent = self.texts.iter().filter(|sent| {
            sent.kind == Kind::Sent
                && sent.request < model_text.request
                && sent.last_message == model_text.last_message
                && sent.to == model_text.to
        });
        let mut sent = sent.filter(|sent| sent.chat == model_text.chat && self.is_read(sent.to, &sent.text));
        model_text.kind != Kind::Sent && sent.any(|sent| repeats(&model_text.text, &sent.text))
    }
}

/// Whether a text only repeats another one.
fn repeats(text: &str, sent: &str) -> bool {
    let words = |text: &str| {
        let words = text.split_whitespace().map(|word| word.trim_matches(['.', ':']).to_lowercase());
        words.collect::<Vec<_>>().join(" ")
    };
    let is_sentence = sent.split_inclusive(". ").any(|sentence| words(sentence) == words(text));
    let is_introduced = words(text).ends_with(&words(sent)) && words(sent).len() * 5 >= words(text).len() * 4;
    is_sentence || is_introduced
}

/// Checks that every text in a chat is a text of the model for that chat, or a notice.
fn check_unknown_texts(input: &ReaderInput, problems: &mut Vec<String>) {
    for line in &input.log {
        let is_said =
            input.texts.iter().any(|model_text| model_text.to == line.chat && input.is_text(line, &model_text.text));
        let is_reply = line.text.starts_with(STOPPED) || line.text.starts_with(NOTHING_TO_STOP);
        if !is_said && !is_reply && !is_notice(&line.text) {
            problems.push(format!("chat {} read {:?}, which the model did not say", line.chat, line.text));
        }
    }
}

/// Checks that every text that was kept is read once.
fn check_each_text(input: &ReaderInput, problems: &mut Vec<String>) {
    let mut texts: BTreeMap<(&str, &str), Vec<&ModelText>> = BTreeMap::new();
    for model_text in &input.texts {
        texts.entry((model_text.to, &model_text.text)).or_default().push(model_text);
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((chat, text), all) in texts {
        let count = input.times_read(chat, text);
        // The same text after another message is another answer; the same finding is not another one.
        let is_finding = all.iter().all(|model_text| model_text.kind == Kind::Finding);
        let last_messages: BTreeSet<_> = all.iter().map(|model_text| &model_text.last_message).collect();
        // A message of a tool that failed may have arrived nevertheless; the answer repeats it then.
        let failed = all.iter().filter(|model_text| model_text.kind == Kind::Sent && !model_text.is_kept).count();
        let most = if is_finding { 1 } else { last_messages.len() + failed };
        if count > most {
            problems.push(format!("chat {chat} read {text:?} {count} times"));
        }
        let owed: BTreeSet<_> = all
            .iter()
            .filter(|model_text| is_owed(input, model_text, problems))
            .map(|model_text| &model_text.last_message)
            .collect();
        let least = if is_finding { owed.len().min(1) } else { owed.len() };
        missing.entry(chat).or_default().extend((count..least).map(|_| text));
    }
    for (chat, texts) in missing {
        // A notice that the platform refused counts, too: that is not the gateway's fault.
        let notices = input.log.iter().chain(&input.refused).filter(|line| line.chat == chat);
        let excuses = notices.filter(|line| line.text.starts_with(LOST)).count();
        if texts.len() > excuses {
            problems.push(format!("chat {chat} did not read {texts:?}, with {excuses} notices about lost messages"));
        }
    }
}

/// Returns true if a text must be read in its chat. Also reports an answer that was not kept, although neither a kill
/// nor a person stopped its run.
fn is_owed(input: &ReaderInput, model_text: &ModelText, problems: &mut Vec<String>) -> bool {
    let was_killed = input.was_killed(model_text.at, model_text.next_at);
    let is_stopped = input.was_stopped(model_text.chat, model_text.at) || input.was_interrupted(model_text);
    match model_text.kind {
        Kind::Sent => model_text.is_kept,
        Kind::Error => !was_killed && !is_stopped,
        Kind::Answer | Kind::Words | Kind::Finding if model_text.is_kept => {
            !is_stopped && !input.is_withheld(model_text)
        }
        // A report that repeats the last one is not kept and not sent.
        Kind::Finding => false,
        Kind::Answer | Kind::Words => {
            if !was_killed && !is_stopped {
                problems
                    .push(format!("the model said {:?} and is not shown it later, without a kill", model_text.text));
            }
            false
        }
    }
}

/// Checks that texts are read in the order in which the model wrote them.
fn check_order(input: &ReaderInput, problems: &mut Vec<String>) {
    let mut last: BTreeMap<(&str, &str, bool), usize> = BTreeMap::new();
    for line in &input.log {
        let mut same =
            input.texts.iter().filter(|model_text| model_text.to == line.chat && model_text.text == line.text);
        // An error is delivered before the texts that precede it.
        let (Some(model_text), None) = (same.next().filter(|model_text| model_text.kind != Kind::Error), same.next())
        else {
            continue;
        };
        // A message that was on hold is answered late, and its sender was informed.
        if line.reply_to.as_deref().is_some_and(|name| input.has_notice(&line.chat, name)) {
            continue;
        }
        let before = last.insert((model_text.to, model_text.chat, model_text.kind == Kind::Sent), model_text.request);
        if before.is_some_and(|before| before > model_text.request) {
            problems.push(format!("chat {} read {:?} too late", line.chat, line.text));
        }
    }
}

/// Checks that every message is answered, or its sender was informed why not.
fn check_messages(input: &ReaderInput, problems: &mut Vec<String>) {
    for message in &input.messages {
        let UserMessage { chat, name, .. } = message;
        let has_notice = |name: &str| input.has_notice(chat, name);
        let is_settled = if message.text == "/stop" {
            input.in_chat(chat).any(|line| line.reply_to.as_deref() == Some(name)) || has_notice(name)
        } else {
            let with: BTreeSet<_> = input.requests.iter().filter(|open| open.contains(name)).flatten().collect();
            is_answered(input, chat, name)
                || input.was_stopped(chat, message.at)
                || input.is_replaced(message)
                || has_notice(name)
                || with.into_iter().any(|other| has_notice(other))
        };
        if !is_settled {
            problems.push(format!("{name} in chat {chat} has no answer, and nothing says why"));
        }
    }
}

/// Checks that the end of every background command is reported to the model once, and that the chat gets the answer.
fn check_commands(input: &ReaderInput, problems: &mut Vec<String>) {
    for Command { chat, name, started_at, reports } in &input.commands {
        if input.was_stopped(chat, *started_at) && *reports == 0 {
            continue;
        }
        if *reports != 1 {
            problems.push(format!("the model was told {reports} times that command {name} ended"));
        } else if !is_answered(input, chat, name) && !input.was_stopped(chat, *started_at) {
            problems.push(format!("chat {chat} was not told that command {name} ended"));
        }
    }
}

/// Returns true if a text that answers a message or command was read, or was kept, so that [`check_each_text`] reports
/// it if it was not read.
fn is_answered(input: &ReaderInput, chat: &str, name: &str) -> bool {
    let mut answers =
        input.texts.iter().filter(|model_text| model_text.to == chat && model_text.answers.contains(name));
    answers.any(|model_text| model_text.is_kept || input.is_read(chat, &model_text.text))
}
