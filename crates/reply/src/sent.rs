//! Tracks what a run sent with the `message` tool to the conversation that it answers, so that its answer does not
//! repeat it.
//!
//! Only repetitions are withheld: an answer with the same words, an answer that consists of whole sentences of what was
//! sent, or what was sent after a short introduction ("Done, I wrote: ..."). Text *after* what was sent is new, and so
//! is every other text, because reading something twice does less harm than missing it. A message sent to another
//! conversation withholds nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use homard_proto::{CallId, Route};
use serde_json::Value;

use crate::payload::Payload;

/// Maximum number of texts and media stored; the oldest text is dropped first.
const MAX_STORED: usize = 200;
/// Number of characters below which only an equal text is a repetition: short sentences are repeated with a new
/// meaning.
const MIN_CHARS: usize = 10;
/// Minimum percentage of an answer that must have been sent, if it introduces what was sent.
const MIN_OVERLAP_PERCENT: usize = 80;

/// What a run sent to the conversation that it answers.
#[derive(Debug, Clone, Default)]
pub struct SentTexts {
    pending: HashMap<CallId, SentContent>,
    texts: VecDeque<SentText>,
    media: BTreeSet<String>,
    /// True if anything was sent.
    is_answered: bool,
    /// Number of user messages that the run has read. What was sent before a message is no answer to it.
    input: u32,
}

/// Content that one call sends to this conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SentContent {
    text: String,
    media: Vec<String>,
}

#[derive(Debug, Clone)]
struct SentText {
    call: CallId,
    input: u32,
    text: ComparableText,
}

/// A text that is withheld because the user has already read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldText {
    pub text: String,
    /// Tool call that sent it.
    pub call: CallId,
    /// How it repeats what the call sent.
    pub repetition: Repetition,
}

/// How an answer repeats a text that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// The answer has the same words as the text that was sent.
    Same,
    /// The answer consists of whole sentences of the text that was sent.
    Part,
    /// The answer is a short introduction, followed by the whole text that was sent.
    Introduced,
}

impl Repetition {
    /// Returns the name used in a run's timeline.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Part => "part",
            Self::Introduced => "introduced",
        }
    }
}

impl SentTexts {
    /// Records the start of a tool call, if it sends a message to `origin`. That is the conversation that the run
    /// answers, and the default target of a call.
    pub fn begin(&mut self, call: &CallId, tool: &str, arguments: &Value, origin: &Route) {
        if let Some(content) = SentContent::of(tool, arguments, origin) {
            self.pending.insert(call.clone(), content);
        }
    }

    /// Records the end of a call; one that failed sent nothing.
    pub fn end(&mut self, call: &CallId, is_error: bool) {
        let Some(content) = self.pending.remove(call).filter(|_| !is_error) else { return };
        self.is_answered = true;
        self.texts.push_back(SentText {
            call: call.clone(),
            input: self.input,
            text: ComparableText::of(&content.text),
        });
        if self.texts.len() > MAX_STORED {
            self.texts.pop_front();
        }
        if self.media.len() < MAX_STORED {
            self.media.extend(content.media);
        }
    }

    /// Records that the run has read another user message.
    pub fn next_input(&mut self) {
        self.input += 1;
    }

    /// Returns the number of user messages that the run has read.
    pub fn input(&self) -> u32 {
        self.input
    }

    /// True if something was sent to the conversation that the run answers.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Returns how a text, written after `input` user messages, repeats what was sent, and by which call.
    pub fn repetition(&self, text: &str, input: u32) -> Option<(&CallId, Repetition)> {
        let text = ComparableText::of(text);
        let same_input = self.texts.iter().filter(|sent| sent.input == input);
        same_input.filter_map(|sent| Some((&sent.call, text.repeats(&sent.text)?))).next()
    }

    /// True if an incomplete text is a repetition so far, or may become one.
    pub fn may_repeat(&self, text: &str) -> bool {
        let comparable = ComparableText::of(text);
        let mut same_input = self.texts.iter().filter(|sent| sent.input == self.input);
        same_input.any(|sent| comparable.may_become_part_of(&sent.text) || comparable.repeats(&sent.text).is_some())
    }

    /// Returns what remains to be sent of a model's message, written after `input` user messages: all of it, or only
    /// the media that were not sent.
    pub fn withhold(&self, reply: Payload, input: u32) -> (Option<Payload>, Option<WithheldText>) {
        let Some((call, repetition)) = self.repetition(&reply.text, input) else { return (Some(reply), None) };
        let Payload { text, media, .. } = reply;
        let withheld = (!text.trim().is_empty()).then(|| WithheldText { text, call: call.clone(), repetition });
        let media: Vec<_> = media.into_iter().filter(|media| !self.media.contains(media)).collect();
        let (kind, reply_to, is_voice) = (reply.kind, reply.reply_to, reply.is_voice);
        let remaining = Payload { kind, text: String::new(), media, reply_to, is_voice };
        (Some(remaining).filter(|remaining| !remaining.is_empty()), withheld)
    }
}

impl SentContent {
    /// Returns the content that a tool call sends to `origin`, the conversation that the run answers. `None` if it
    /// sends nothing there.
    fn of(tool: &str, arguments: &Value, origin: &Route) -> Option<Self> {
        let argument =
            |name: &str| arguments.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let sends = matches!(argument("action"), Some("send" | "broadcast" | "reply" | "thread-reply"));
        let is_dry_run = arguments.get("dryRun").and_then(Value::as_bool) == Some(true);
        if tool != "message" || !sends || is_dry_run || origin.channel.is_none() {
            return None;
        }
        let text =
            argument("message").or_else(|| argument("content")).or_else(|| argument("caption")).unwrap_or_default();
        let listed = arguments.get("targets").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let targets: Vec<_> = argument("target").or_else(|| argument("to")).into_iter().chain(listed).collect();
        let channel = argument("provider").or_else(|| argument("channel"));
        let is_origin = |to: &str| {
            let route = Route::new(channel, Some(to), argument("accountId"), argument("threadId"));
            is_same_conversation(&Route { channel: route.channel.or_else(|| origin.channel.clone()), ..route }, origin)
        };
        let is_same_thread = || {
            argument("threadId")
                .is_none_or(|thread| origin.thread.as_deref().is_none_or(|origin_thread| origin_thread == thread))
        };
        let reaches_origin = if targets.is_empty() { is_same_thread() } else { targets.into_iter().any(is_origin) };
        if !reaches_origin {
            return None;
        }
        let media = ["media", "path", "filePath"].into_iter().filter_map(argument).map(str::to_owned).collect();
        Some(Self { text: text.to_owned(), media })
    }
}

/// True if two routes lead to the same conversation. Fields that only one of them has are ignored.
pub fn is_same_conversation(one: &Route, other: &Route) -> bool {
    let agrees = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    };
    let (Some(to), Some(other_to)) = (&one.to, &other.to) else { return false };
    one.channel == other.channel
        && address(to, one.channel.as_deref()) == address(other_to, other.channel.as_deref())
        && agrees(&one.account, &other.account)
        && agrees(&one.thread, &other.thread)
}

/// Strips the prefixes that platforms put before an address.
fn address(to: &str, channel: Option<&str>) -> String {
    let mut rest = to.trim().to_lowercase();
    let kinds = ["channel:", "group:", "user:", "chat:", "dm:"].map(str::to_owned);
    for prefix in channel.map(|channel| format!("{channel}:")).into_iter().chain(kinds) {
        if let Some(bare) = rest.strip_prefix(&prefix) {
            rest = bare.to_owned();
        }
    }
    rest.trim_start_matches(['@', '#']).to_owned()
}

/// A normalized text for comparison: its words in lower case without Markdown, punctuation and emoji.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparableText {
    words: Vec<ComparableWord>,
    /// The unchanged text, if it has no words.
    bare: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparableWord {
    text: String,
    /// True if the word is the first of a sentence or line.
    begins: bool,
    /// True if the word is the last of a sentence or line.
    ends: bool,
}

impl ComparableText {
    fn of(text: &str) -> Self {
        let mut words: Vec<ComparableWord> = Vec::new();
        for line in text.lines() {
            let mut begins = true;
            let quoted = line.trim_start().trim_start_matches(['>', ' ']);
            for token in quoted.split_whitespace() {
                let (text, ends) = (normalized(token), ends_sentence(token));
                if text.is_empty() {
                    begins |= ends;
                    words.iter_mut().last().into_iter().for_each(|last| last.ends |= ends);
                } else {
                    words.push(ComparableWord { text, begins, ends });
                    begins = ends;
                }
            }
            if let Some(last) = words.last_mut() {
                last.ends = true;
            }
        }
        let bare = words.is_empty().then(|| text.trim().to_owned());
        Self { words, bare }
    }

    fn chars(&self) -> usize {
        self.words.iter().map(|word| word.text.chars().count() + 1).sum::<usize>().saturating_sub(1)
    }

    /// Returns how this text repeats one that was sent.
    fn repeats(&self, sent: &Self) -> Option<Repetition> {
        if self.bare.is_some() || sent.bare.is_some() {
            return (self.bare == sent.bare).then_some(Repetition::Same);
        }
        let (length, sent_length) = (self.words.len(), sent.words.len());
        if length == sent_length {
            return is_equal(&self.words, &sent.words).then_some(Repetition::Same);
        }
        let (chars, sent_chars) = (self.chars(), sent.chars());
        if chars.min(sent_chars) < MIN_CHARS {
            return None;
        }
        if length < sent_length {
            let is_whole =
                |part: &[ComparableWord]| part[0].begins && part[length - 1].ends && is_equal(&self.words, part);
            return sent.words.windows(length).any(is_whole).then_some(Repetition::Part);
        }
        let is_last = is_equal(&self.words[length - sent_length..], &sent.words);
        (is_last && sent_chars * 100 >= chars * MIN_OVERLAP_PERCENT).then_some(Repetition::Introduced)
    }

    /// True if appending words can make this text whole sentences of one that was sent, or all of it.
    fn may_become_part_of(&self, sent: &Self) -> bool {
        let count = self.words.len();
        // The last word may be incomplete.
        let is_prefix = |from: &[ComparableWord]| {
            from.len() >= count && from[0].begins && {
                let last = count.saturating_sub(1);
                is_equal(&self.words[..last], &from[..last])
                    && self.words.get(last).is_none_or(|word| from[last].text.starts_with(&word.text))
            }
        };
        (0..sent.words.len()).any(|at| is_prefix(&sent.words[at..]))
    }
}

fn is_equal(one: &[ComparableWord], other: &[ComparableWord]) -> bool {
    one.iter().map(|word| &word.text).eq(other.iter().map(|word| &word.text))
}

/// Normalizes a word: without case, Markdown, punctuation and emoji. Signs and decimal points of numbers are kept, and
/// so are operators.
fn normalized(token: &str) -> String {
    let token: String = token.to_lowercase().chars().filter(|&c| !is_emoji(c)).collect();
    if token.chars().any(char::is_numeric) {
        let token = token.trim_end_matches(is_decoration);
        return token.trim_start_matches(|c| is_decoration(c) && c != '-').to_owned();
    }
    let letters: String = token.chars().filter(|c| c.is_alphanumeric()).collect();
    let is_operator = letters.is_empty() && token.chars().any(|c| !is_decoration(c));
    if is_operator { token } else { letters }
}

/// True for punctuation and Markdown, which may vary without changing the meaning.
fn is_decoration(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '<' | '>' | '=' | '+' | '%' | '$' | '&' | '/' | '\\' | '^' | '@')
        || matches!(
            c,
            '«' | '»'
                | '¡'
                | '¿'
                | '•'
                | '·'
                | '、'
                | '。'
                | '，'
                | '！'
                | '？'
                | '：'
                | '；'
                | '「'
                | '」'
                | '（'
                | '）'
        )
        || ('\u{2010}'..='\u{203A}').contains(&c)
}

/// True if a sentence or an independent clause ends with a token.
fn ends_sentence(token: &str) -> bool {
    let token = token
        .trim_end_matches(|c| is_emoji(c) || matches!(c, '"' | '\'' | ')' | ']' | '*' | '_' | '`' | '»' | '”' | '’'));
    token.ends_with(['.', '!', '?', ':', ';', '…', '。', '！', '？'])
}

fn is_emoji(c: char) -> bool {
    matches!(u32::from(c),
        0x200D | 0x20E3 | 0xFE0F | 0x2190..=0x21FF | 0x2300..=0x23FF | 0x2600..=0x27BF | 0x2B00..=0x2BFF
        | 0x1F000..=0x1FAFF | 0xE0020..=0xE007F)
}

#[cfg(test)]
mod tests;
