//! What a run has said on chat platforms with its own tools, so that its answer does not say it again. No I/O.
//!
//! A call counts when it went well. A text that was sent is not sent once more; and when something went to the very
//! conversation that asked, the answer to it was that. What must not be swallowed is kept: errors, media that no tool
//! sent, and a longer answer that merely quotes what was sent.

use std::collections::{BTreeSet, HashMap, VecDeque};

use homard_proto::{CallId, Route};
use serde_json::Value;

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
    media: Vec<String>,
}

/// Something that a run is about to answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Payload<'a> {
    /// Its words.
    pub text: &'a str,
    /// What goes with them: addresses or paths.
    pub media: &'a [String],
    /// Whether it says that something went wrong.
    pub is_error: bool,
}

/// What of a payload is still to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// All of it.
    Whole,
    /// Its media, without the words.
    Media,
    /// Nothing.
    Nothing,
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

    /// What is still to be said of a payload for `origin`.
    pub fn left(&self, payload: Payload<'_>, origin: &Route) -> Left {
        let is_said = !payload.is_error && (self.answered(origin) || self.repeats(payload.text));
        let has_new = payload.media.iter().any(|media| !self.media.contains(media));
        match (is_said, has_new) {
            (false, _) => Left::Whole,
            (true, true) => Left::Media,
            (true, false) => Left::Nothing,
        }
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
        let media = ["media", "path", "filePath"].into_iter().filter_map(given).map(str::to_owned).collect();
        Some(Self { text: text.to_owned(), places, media })
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
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn origin() -> Route {
        Route::new(Some("telegram"), Some("42"), None, None)
    }

    fn after(arguments: &Value) -> Sent {
        let mut sent = Sent::default();
        let call = CallId::parse("c").unwrap();
        sent.begin(&call, "message", arguments, &origin());
        sent.end(&call, false);
        sent
    }

    fn text(text: &str) -> Payload<'_> {
        Payload { text, ..Payload::default() }
    }

    const ELSEWHERE: &str = "The report is ready, see the shared folder.";

    fn elsewhere() -> Sent {
        after(&json!({"action": "send", "channel": "slack", "target": "C1", "message": ELSEWHERE}))
    }

    #[test]
    fn what_was_sent_is_not_said_again() {
        let sent = elsewhere();
        for said in [
            ELSEWHERE,
            "  the REPORT is ready,\n see the shared folder. 🎉",
            "the report is ready",
            "Done: The report is ready, see the shared folder.",
        ] {
            assert_eq!(sent.left(text(said), &origin()), Left::Nothing, "{said}");
        }
    }

    #[test]
    fn a_new_answer_that_quotes_what_was_sent_is_said() {
        let said =
            format!("I wrote to them: \"{ELSEWHERE}\". They will look at it on Monday, so let us wait until then.");
        for said in [said.as_str(), "ready", "Something else altogether."] {
            assert_eq!(elsewhere().left(text(said), &origin()), Left::Whole, "{said}");
        }
    }

    #[test]
    fn an_answer_that_a_tool_gave_in_the_conversation_is_the_answer() {
        for arguments in [
            json!({"action": "send", "target": "42", "message": "Hello there!"}),
            json!({"action": "reply", "message": "Hello there!"}),
            json!({"action": "send", "channel": "Telegram", "target": "telegram:42", "message": "Hello there!"}),
            json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "42"], "message": "Hello there!"}),
        ] {
            let sent = after(&arguments);
            assert_eq!(sent.left(text("I have told them everything."), &origin()), Left::Nothing, "{arguments}");
            let failed = Payload { text: "the model is gone", is_error: true, ..Payload::default() };
            assert_eq!(sent.left(failed, &origin()), Left::Whole, "{arguments}");
        }
    }

    #[test]
    fn media_that_no_tool_sent_goes_out() {
        let sent = after(&json!({"action": "send", "target": "42", "message": "Look at this", "media": "a.png"}));
        let media = |paths: &[String]| sent.left(Payload { text: "Look", media: paths, is_error: false }, &origin());
        assert_eq!(media(&["a.png".to_owned()]), Left::Nothing);
        assert_eq!(media(&["a.png".to_owned(), "b.png".to_owned()]), Left::Media);
    }

    #[test]
    fn elsewhere_is_not_here() {
        for arguments in [
            json!({"action": "send", "target": "43", "message": "Hello there!"}),
            json!({"action": "send", "channel": "slack", "target": "42", "message": "Hello there!"}),
            json!({"action": "send", "target": "42", "message": "Hello there!", "dryRun": true}),
            json!({"action": "react", "target": "42", "emoji": "x"}),
        ] {
            assert_eq!(after(&arguments).left(text("What I have to say."), &origin()), Left::Whole, "{arguments}");
        }
        let threads = after(&json!({"action": "send", "target": "42", "threadId": "9", "message": "Hello there!"}));
        let here = Route { thread: Some("8".to_owned()), ..origin() };
        assert_eq!((threads.answered(&here), threads.answered(&origin())), (false, true));
    }

    #[test]
    fn a_call_that_failed_or_went_to_a_session_said_nothing() {
        let call = CallId::parse("c").unwrap();
        let arguments = json!({"action": "send", "target": "42", "message": "Hello out there!"});
        let mut sent = Sent::default();
        sent.begin(&call, "message", &arguments, &origin());
        sent.end(&call, true);
        sent.end(&call, false);
        sent.begin(&call, "sessions_send", &json!({"message": "Hello out there!", "sessionKey": "main"}), &origin());
        sent.end(&call, false);
        assert_eq!(sent.left(text("Hello out there!"), &origin()), Left::Whole);
    }

    #[test]
    fn only_so_much_is_remembered() {
        let mut sent = Sent::default();
        for number in 0..=MOST {
            let call = CallId::parse("c").unwrap();
            let message = format!("This is message {number:05}.");
            sent.begin(&call, "message", &json!({"action": "send", "target": "x", "message": message}), &origin());
            sent.end(&call, false);
        }
        assert_eq!((sent.texts.len(), sent.places.len()), (MOST, MOST));
        assert!(!sent.repeats("This is message 00000.") && sent.repeats("This is message 00001."));
    }

    proptest! {
        #[test]
        fn errors_are_always_said(sent in "\\PC{0,40}", said in "\\PC{0,40}") {
            let sent = after(&json!({"action": "send", "target": "42", "message": sent}));
            let payload = Payload { text: &said, media: &[], is_error: true };
            prop_assert_eq!(sent.left(payload, &origin()), Left::Whole);
        }
    }
}
