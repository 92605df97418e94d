//! Reads a chat platform's log as the people in the chats do, and says what is wrong with it.
//!
//! It knows the log, what the model said to which message, what people wrote and when the process was killed. It asks no
//! code of the gateway: the rules are stated here anew.
//!
//! - A text that the model is later shown as its own words was kept. It is read once in its chat.
//! - A text that was not kept was lost in a kill; the model was asked again and says something else. It is read at most once.
//! - An answer is withheld only if the same words went to the same chat with the `message` tool since the last message: all
//!   of them, whole sentences, or all of them behind an introduction of at most a fifth. Then they are read once.
//! - A heartbeat's finding that is the same as the last one is not repeated.
//! - Answers are read in the order in which they were given, and so are messages of the `message` tool.
//! - Instead of an answer a person may read why there is none: a notice that hangs on the message, an error of the model, or
//!   the reply to `/stop`. A text that may have been lost on the way is excused by a notice that says so, one each.
//! - Every message and the end of every background command is answered by a text that was read, or excused in this way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Everything that the reader knows.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) log: Vec<LogLine>,
    /// What the platform did not take.
    pub(super) refused: Vec<LogLine>,
    pub(super) said: Vec<ModelText>,
    pub(super) wrote: Vec<Wrote>,
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
    /// The last message that the model had read.
    pub(super) asked: String,
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
    /// Whether the next request shows it: as words of the model, or as a successful call.
    pub(super) is_kept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The end of an answer.
    Answer,
    /// Words beside a tool call.
    Words,
    /// A message of the `message` tool.
    Sent,
    /// The report of a heartbeat.
    Finding,
    /// The model failed with this text.
    Error,
}

/// A message of a person.
#[derive(Debug)]
pub(super) struct Wrote {
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
    /// How many messages told the model that it ended.
    pub(super) reports: usize,
}

/// How the replies to `/stop` begin.
const STOPPED: &str = "Stopped";
const NOTHING_TO_STOP: &str = "There was nothing to stop";

/// How notices begin that a text did not arrive, or may not have.
const LOST: &str = "⚠️ A message to you ";

/// How texts begin that say why a message has no answer, or not yet.
const NOTICES: [&str; 5] =
    [LOST, "⚠️ Your message is on hold", "INTERRUPTED: ", "queue_full: ", "the run took longer than its timeout"];

/// Whether a text says what happened to a message.
pub(super) fn is_notice(text: &str) -> bool {
    NOTICES.iter().any(|start| text.starts_with(start))
}

/// Everything that is wrong.
pub(super) fn complaints(account: &Account) -> Vec<String> {
    let mut wrong = Vec::new();
    unknown_texts(account, &mut wrong);
    each_text(account, &mut wrong);
    order(account, &mut wrong);
    messages(account, &mut wrong);
    commands(account, &mut wrong);
    wrong
}

/// How many answers were withheld.
pub(super) fn withheld(account: &Account) -> usize {
    account.said.iter().filter(|said| said.is_kept && said.kind == Kind::Answer && account.is_withheld(said)).count()
}

impl Account {
    fn in_chat<'a>(&'a self, chat: &'a str) -> impl Iterator<Item = &'a LogLine> {
        self.log.iter().filter(move |line| line.chat == chat)
    }

    fn is_read(&self, chat: &str, text: &str) -> bool {
        self.times_read(chat, text) > 0
    }

    fn times_read(&self, chat: &str, text: &str) -> usize {
        self.in_chat(chat).filter(|line| self.is_text(line, text)).count()
    }

    /// Whether a line is this text, or the rest of it: what was sent in blocks before a kill is not sent again if the next
    /// answer begins with it.
    fn is_text(&self, line: &LogLine, text: &str) -> bool {
        let begun = text.strip_suffix(&line.text).map(str::trim_end);
        let is_rest = |begun: &str| self.in_chat(&line.chat).any(|before| before.at < line.at && before.text == begun);
        line.text == text || self.was_killed(Duration::ZERO, line.at) && begun.is_some_and(is_rest)
    }

    fn was_killed(&self, from: Duration, to: Duration) -> bool {
        self.kills.iter().any(|kill| (from..=to).contains(kill))
    }

    /// Returns true if a person stopped a run in a chat at a time, and read the confirmation.
    fn was_stopped(&self, chat: &str, at: Duration) -> bool {
        let mut replies = self.in_chat(chat).filter(|line| line.text.starts_with(STOPPED));
        // A reply that may have been lost has a notice in its place.
        let stops = self.wrote.iter().filter(|wrote| wrote.chat == chat && wrote.text == "/stop");
        let mut lost = stops.filter(|wrote| self.has_notice(chat, &wrote.name));
        replies.any(|line| line.at >= at) || lost.any(|wrote| wrote.at >= at)
    }

    /// Whether a notice hangs on a message.
    fn has_notice(&self, chat: &str, name: &str) -> bool {
        let mut lines = self.log.iter().chain(&self.refused).filter(|line| line.chat == chat && is_notice(&line.text));
        lines.any(|line| line.reply_to.as_deref() == Some(name))
    }

    /// Whether a newer message came before an answer was complete, and stopped its run.
    fn is_cut_off(&self, said: &ModelText) -> bool {
        let own = self.wrote.iter().filter(|wrote| said.answers.contains(&wrote.name)).map(|wrote| wrote.at).max();
        let newer = |wrote: &Wrote| {
            wrote.chat == said.chat && !said.answers.contains(&wrote.name) && own.is_none_or(|own| wrote.at >= own)
        };
        self.has_interrupts && self.wrote.iter().any(|wrote| newer(wrote) && wrote.at <= said.done_at)
    }

    /// Whether a newer message stopped the run that said this, before it came to an answer.
    fn was_interrupted(&self, said: &ModelText) -> bool {
        let mut same = self.said.iter().filter(|other| other.chat == said.chat && other.asked == said.asked);
        let is_answered = same.any(|other| other.kind == Kind::Answer && other.is_kept && !self.is_cut_off(other));
        let newer = |wrote: &Wrote| wrote.chat == said.chat && (said.at..=said.until).contains(&wrote.at);
        self.is_cut_off(said) || self.has_interrupts && !is_answered && self.wrote.iter().any(newer)
    }

    /// Whether a newer message took the place of one that was not answered yet.
    fn is_replaced(&self, wrote: &Wrote) -> bool {
        self.has_interrupts
            && self
                .wrote
                .iter()
                .any(|newer| newer.chat == wrote.chat && newer.at >= wrote.at && newer.name != wrote.name)
    }

    /// Whether a text repeats a message that the `message` tool sent to the same chat since the last message.
    fn is_withheld(&self, said: &ModelText) -> bool {
        let sent = self.said.iter().filter(|sent| {
            sent.kind == Kind::Sent && sent.request < said.request && sent.asked == said.asked && sent.to == said.to
        });
        let mut sent = sent.filter(|sent| sent.chat == said.chat && self.is_read(sent.to, &sent.text));
        said.kind != Kind::Sent && sent.any(|sent| repeats(&said.text, &sent.text))
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

/// Every text in a chat was said by the model for that chat, or is a notice.
fn unknown_texts(account: &Account, wrong: &mut Vec<String>) {
    for line in &account.log {
        let is_said = account.said.iter().any(|said| said.to == line.chat && account.is_text(line, &said.text));
        let is_reply = line.text.starts_with(STOPPED) || line.text.starts_with(NOTHING_TO_STOP);
        if !is_said && !is_reply && !is_notice(&line.text) {
            wrong.push(format!("chat {} read {:?}, which the model did not say", line.chat, line.text));
        }
    }
}

/// Every text that was kept is read once.
fn each_text(account: &Account, wrong: &mut Vec<String>) {
    let mut texts: BTreeMap<(&str, &str), Vec<&ModelText>> = BTreeMap::new();
    for said in &account.said {
        texts.entry((said.to, &said.text)).or_default().push(said);
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((chat, text), all) in texts {
        let count = account.times_read(chat, text);
        // The same words after another message are another answer; the same finding is not another one.
        let is_finding = all.iter().all(|said| said.kind == Kind::Finding);
        let asked: BTreeSet<_> = all.iter().map(|said| &said.asked).collect();
        // A message of a tool that failed may have arrived nevertheless; the answer repeats it then.
        let failed = all.iter().filter(|said| said.kind == Kind::Sent && !said.is_kept).count();
        let most = if is_finding { 1 } else { asked.len() + failed };
        if count > most {
            wrong.push(format!("chat {chat} read {text:?} {count} times"));
        }
        let owed: BTreeSet<_> =
            all.iter().filter(|said| is_owed(account, said, wrong)).map(|said| &said.asked).collect();
        let least = if is_finding { owed.len().min(1) } else { owed.len() };
        missing.entry(chat).or_default().extend((count..least).map(|_| text));
    }
    for (chat, texts) in missing {
        // One that the platform did not take either is not the gateway's fault.
        let notices = account.log.iter().chain(&account.refused).filter(|line| line.chat == chat);
        let excuses = notices.filter(|line| line.text.starts_with(LOST)).count();
        if texts.len() > excuses {
            wrong.push(format!("chat {chat} did not read {texts:?}, with {excuses} notices about lost messages"));
        }
    }
}

/// Whether a person must read a text.
fn is_owed(account: &Account, said: &ModelText, wrong: &mut Vec<String>) -> bool {
    let was_killed = account.was_killed(said.at, said.next_at);
    let is_stopped = account.was_stopped(said.chat, said.at) || account.was_interrupted(said);
    match said.kind {
        Kind::Sent => said.is_kept,
        Kind::Error => !was_killed && !is_stopped,
        Kind::Answer | Kind::Words | Kind::Finding if said.is_kept => !is_stopped && !account.is_withheld(said),
        // The same as the last report: it is not kept in the conversation.
        Kind::Finding => false,
        Kind::Answer | Kind::Words => {
            if !was_killed && !is_stopped {
                wrong.push(format!("the model said {:?} and is not shown it later, without a kill", said.text));
            }
            false
        }
    }
}

/// What the model said first is read first.
fn order(account: &Account, wrong: &mut Vec<String>) {
    let mut last: BTreeMap<(&str, &str, bool), usize> = BTreeMap::new();
    for line in &account.log {
        let mut same = account.said.iter().filter(|said| said.to == line.chat && said.text == line.text);
        // Errors stand before the words that were said before them.
        let (Some(said), None) = (same.next().filter(|said| said.kind != Kind::Error), same.next()) else { continue };
        // A message that was on hold is answered late, and its sender knows.
        if line.reply_to.as_deref().is_some_and(|name| account.has_notice(&line.chat, name)) {
            continue;
        }
        let before = last.insert((said.to, said.chat, said.kind == Kind::Sent), said.request);
        if before.is_some_and(|before| before > said.request) {
            wrong.push(format!("chat {} read {:?} too late", line.chat, line.text));
        }
    }
}

/// Checks that every message is answered, or its sender was informed why not.
fn messages(account: &Account, wrong: &mut Vec<String>) {
    for wrote in &account.wrote {
        let Wrote { chat, name, .. } = wrote;
        let is_told = |name: &str| account.has_notice(chat, name);
        let is_settled = if wrote.text == "/stop" {
            account.in_chat(chat).any(|line| line.reply_to.as_deref() == Some(name)) || is_told(name)
        } else {
            let with: BTreeSet<_> = account.requests.iter().filter(|open| open.contains(name)).flatten().collect();
            is_answered(account, chat, name)
                || account.was_stopped(chat, wrote.at)
                || account.is_replaced(wrote)
                || is_told(name)
                || with.into_iter().any(|other| is_told(other))
        };
        if !is_settled {
            wrong.push(format!("{name} in chat {chat} has no answer, and nothing says why"));
        }
    }
}

/// The end of every background command is reported to the model once, and its answer is read.
fn commands(account: &Account, wrong: &mut Vec<String>) {
    for Command { chat, name, started_at, reports } in &account.commands {
        if account.was_stopped(chat, *started_at) && *reports == 0 {
            continue;
        }
        if *reports != 1 {
            wrong.push(format!("the model was told {reports} times that command {name} ended"));
        } else if !is_answered(account, chat, name) && !account.was_stopped(chat, *started_at) {
            wrong.push(format!("chat {chat} was not told that command {name} ended"));
        }
    }
}

/// Whether a text answers a message or command that was read, or that [`each_text`] misses if it was not.
fn is_answered(account: &Account, chat: &str, name: &str) -> bool {
    let mut answers = account.said.iter().filter(|said| said.to == chat && said.answers.contains(name));
    answers.any(|said| said.is_kept || account.is_read(chat, &said.text))
}
