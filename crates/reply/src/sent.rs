//! What a run has said on chat platforms with its own tools, so that its answer does not say it again.
//!
//! A call counts when it went well. A text that was sent is not sent once more; and when something went to the very
//! conversation that asked, the answer to it was that. What must not be swallowed is kept: errors, media that no tool
//! sent, and a longer answer that merely quotes what was sent.

use std::collections::{BTreeSet, HashMap, VecDeque};

use homard_proto::{CallId, Route};
use serde_json::Value;

use crate::payload::{Kind, Payload};

/// How much is remembered of each kind; the oldest goes first.
const MOST: usize = 200;
/// Texts shorter than so many characters are never taken for repetitions: everybody says "ok".
const SHORTEST: usize = 10;
/// How much of a text must have been sent, in percent, for it to be a repetition.
const OVERLAP: usize = 80;

/// What a run has said with its tools.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    pending: HashMap<CallId, Piece>,
    texts: VecDeque<String>,
    places: VecDeque<Route>,
    media: BTreeSet<String>,
}

/// What one call says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    text: String,
    places: Vec<Route>,
    /// What it showed in the conversation that the run answers.
    media: Vec<String>,
}

impl Sent {
    /// A call begins. `origin` is where the run's own answer goes, and where a call that names nobody says something.
    pub fn begin(&mut self, call: &CallId, tool: &str, arguments: &Value, origin: &Route) {
        if let Some(piece) = Piece::of(tool, arguments, origin) {
            self.pending.insert(call.clone(), piece);
        }
    }

    /// A call has ended; one that failed said nothing.
    pub fn end(&mut self, call: &CallId, is_error: bool) {
        let Some(piece) = self.pending.remove(call).filter(|_| !is_error) else { return };
        let text = plain(&piece.text);
        if text.chars().count() >= SHORTEST {
            keep(&mut self.texts, text);
        }
        piece.places.into_iter().for_each(|place| keep(&mut self.places, place));
        if self.media.len() < MOST {
            self.media.extend(piece.media);
        }
    }

    /// Whether a text was said already: it is a part of what was sent, or hardly more than that.
    pub fn repeats(&self, text: &str) -> bool {
        let text = plain(text);
        let length = text.chars().count();
        length >= SHORTEST
            && self.texts.iter().any(|sent| {
                sent.contains(&text) || (text.contains(sent) && sent.chars().count() * 100 >= length * OVERLAP)
            })
    }

    /// Whether something was said in the conversation that the run answers.
    pub fn answered(&self, origin: &Route) -> bool {
        origin.channel.is_some() && self.places.iter().any(|place| is_same(place, origin))
    }

    /// What is still to be said of a payload for `origin`: all of it, its new media without the words, or nothing.
    pub fn left(&self, payload: Payload, origin: &Route) -> Option<Payload> {
        let may_repeat = match payload.kind {
            Kind::Answer | Kind::Reasoning => true,
            Kind::Error | Kind::Tool | Kind::Notice => false,
        };
        if !may_repeat || !(self.answered(origin) || self.repeats(&payload.text)) {
            return Some(payload);
        }
        let media: Vec<_> = payload.media.into_iter().filter(|media| !self.media.contains(media)).collect();
        (!media.is_empty()).then(|| Payload { text: String::new(), media, ..payload })
    }
}

impl Piece {
    /// What a call says, if it says something on a chat platform. What goes to another session is no answer here.
    fn of(tool: &str, arguments: &Value, origin: &Route) -> Option<Self> {
        let given =
            |name: &str| arguments.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let speaks = matches!(given("action"), Some("send" | "broadcast" | "reply" | "thread-reply"));
        let is_dry = arguments.get("dryRun").and_then(Value::as_bool) == Some(true);
        if tool != "message" || !speaks || is_dry {
            return None;
        }
        let text = given("message").or_else(|| given("content")).or_else(|| given("caption")).unwrap_or_default();
        let named = arguments.get("targets").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let targets: Vec<_> = given("target").or_else(|| given("to")).into_iter().chain(named).collect();
        let channel = given("provider").or_else(|| given("channel"));
        let place = |to: &str| {
            let place = Route::new(channel, Some(to), given("accountId"), given("threadId"));
            Route { channel: place.channel.or_else(|| origin.channel.clone()), ..place }
        };
        let places = match &targets[..] {
            [] => vec![Route {
                thread: given("threadId").map(str::to_owned).or_else(|| origin.thread.clone()),
                ..origin.clone()
            }],
            targets => targets.iter().map(|to| place(to)).collect(),
        };
        // What was shown to others has not been seen here.
        let is_here = places.iter().any(|place| is_same(place, origin));
        let media = ["media", "path", "filePath"].into_iter().filter(|_| is_here).filter_map(given);
        Some(Self { text: text.to_owned(), media: media.map(str::to_owned).collect(), places })
    }
}

fn keep<T>(list: &mut VecDeque<T>, item: T) {
    list.push_back(item);
    if list.len() > MOST {
        list.pop_front();
    }
}

/// Whether two routes lead to the same conversation. What only one of them says does not part them.
pub fn is_same(one: &Route, other: &Route) -> bool {
    let agrees = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    };
    let (Some(to), Some(there)) = (&one.to, &other.to) else { return false };
    one.channel == other.channel
        && address(to, one.channel.as_deref()) == address(there, other.channel.as_deref())
        && agrees(&one.account, &other.account)
        && agrees(&one.thread, &other.thread)
}

/// An address without the words that platforms put before it.
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

/// A text as it is compared: in lower case, without emoji, with single spaces.
fn plain(text: &str) -> String {
    let words: String = text.to_lowercase().chars().filter(|&c| !is_emoji(c)).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_emoji(c: char) -> bool {
    matches!(u32::from(c),
        0x200D | 0x20E3 | 0xFE0F | 0x2190..=0x21FF | 0x2300..=0x23FF | 0x2600..=0x27BF | 0x2B00..=0x2BFF
        | 0x1F000..=0x1FAFF | 0xE0020..=0xE007F)
}

#[cfg(test)]
mod tests;
