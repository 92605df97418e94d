//! Text around the replies: notices before them, a prefix on each, and token usage after them.

use homard_proto::{SessionId, SessionKey, message::Usage};

use crate::payload::{Kind, Payload};

/// How much usage is shown: the session setting `responseUsage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsageMode {
    /// No usage line.
    #[default]
    Off,
    /// Tokens and the estimated cost.
    Tokens,
    /// Tokens, the estimated cost and the session key.
    Full,
}

impl UsageMode {
    /// Parses the setting; `on` is an older name of `tokens`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "off" => Some(Self::Off),
            "tokens" | "on" => Some(Self::Tokens),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// Returns the usage line of a run, if enabled and known. A cost of zero is not shown: the account is billed
/// differently, or the price is unknown.
pub fn usage(mode: UsageMode, usage: &Usage, session: &SessionKey) -> Option<String> {
    if mode == UsageMode::Off || (usage.input == 0 && usage.output == 0) {
        return None;
    }
    let price = usage.cost.total;
    let price = if price > 0.0 { format!(" · est {}", dollars(price)) } else { String::new() };
    let session_suffix = if mode == UsageMode::Full { format!(" · session {session}") } else { String::new() };
    Some(format!("Usage: {} in / {} out{price}{session_suffix}", count(usage.input), count(usage.output)))
}

/// Returns the warning about a message that was truncated to `kept` of `all` tokens.
pub fn truncated(model: &str, kept: u64, all: u64) -> String {
    format!(
        "⚠️ Your message was too long for {model}: of about {} tokens, the model received about {}, the beginning and \
         the end. Send it in parts, put it into a file for the agent to read, or choose a model with a larger context \
         window.",
        count(all),
        count(kept)
    )
}

/// Appends a warning to the last text; if that was already sent, the warning is a message of its own.
pub fn warn(payloads: &mut Vec<Payload>, line: &str, has_sent: bool) {
    if payloads.is_empty() && has_sent {
        payloads.push(notice(line.to_owned()));
    } else {
        append(payloads, line);
    }
}

/// Appends a line to the last text. If there is only media, it is a message of its own; if there is no payload, it is
/// dropped.
pub fn append(payloads: &mut Vec<Payload>, line: &str) {
    if let Some(last) = payloads.iter_mut().rfind(|payload| !payload.text.trim().is_empty()) {
        last.text = format!("{}\n\n{line}", last.text.trim_end());
    } else if !payloads.is_empty() {
        payloads.push(notice(line.to_owned()));
    }
}

/// Returns the notices before the replies of a verbose session: that it is new, and, if it was just compacted, how
/// often so far.
pub fn opening(new_session: Option<&SessionId>, compactions: Option<u64>) -> Vec<Payload> {
    let new_session = new_session.map(|id| format!("🧭 This is a new session: {id}"));
    let compacted = compactions.map(|count| match count {
        0 | 1 => "🧹 The older part of this session was summarized to make room.".to_owned(),
        count => format!("🧹 The older part of this session was summarized to make room ({count} times so far)."),
    });
    new_session.into_iter().chain(compacted).map(notice).collect()
}

fn notice(text: String) -> Payload {
    Payload { kind: Kind::Notice, ..Payload::answer(text) }
}

/// Formats tokens for people: `940`, `1.2k`, `36k`, `1.5m`.
fn count(tokens: u64) -> String {
    let tenths = |unit: u64| (tokens + unit / 20) / (unit / 10);
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..9_950 => format!("{}.{}k", tenths(1_000) / 10, tenths(1_000) % 10),
        9_950..999_500 => format!("{}k", (tokens + 500) / 1_000),
        999_500.. => format!("{}.{}m", tenths(1_000_000) / 10, tenths(1_000_000) % 10),
    }
}

fn dollars(price: f64) -> String {
    if price >= 0.01 { format!("${price:.2}") } else { format!("${price:.4}") }
}

/// Prefix of every message, set by the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyPrefix(String);

/// Values available to a prefix, known when the model is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixValues<'a> {
    /// Provider of the model.
    pub provider: Option<&'a str>,
    /// Model, by the provider's name.
    pub model: Option<&'a str>,
    /// Reasoning level.
    pub thinking: Option<&'a str>,
    /// Name of the agent.
    pub name: Option<&'a str>,
}

impl ReplyPrefix {
    /// Parses the setting `messages.responsePrefix`. `None` if the prefix is empty.
    ///
    /// `auto` is the agent's name in brackets. Unknown placeholders in braces are left unchanged.
    pub fn new(setting: &str, values: PrefixValues<'_>) -> Option<Self> {
        let setting = setting.trim();
        let text = match setting {
            "auto" => values.name.map(|name| format!("[{name}]")).unwrap_or_default(),
            template => values.fill(template),
        };
        (!text.is_empty()).then_some(Self(text))
    }

    /// Adds the prefix to the text of a payload. Every message gets it once.
    pub fn apply(&self, payload: Payload) -> Payload {
        if payload.text.trim().is_empty() || payload.text.starts_with(&self.0) {
            return payload;
        }
        Payload { text: format!("{} {}", self.0, payload.text), ..payload }
    }
}

impl PrefixValues<'_> {
    fn fill(self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let known = after.split_once('}').and_then(|(name, behind)| Some((self.value(name)?, behind)));
            (rest, filled) = match known {
                Some((value, behind)) => (behind, filled + &value),
                None => (after, filled + "{"),
            };
        }
        filled + rest
    }

    fn value(self, name: &str) -> Option<String> {
        match name.trim().to_ascii_lowercase().as_str() {
            "model" => self.model.map(|model| short(model).to_owned()),
            "modelfull" => Some(format!("{}/{}", self.provider?, self.model?)),
            "provider" => self.provider.map(str::to_owned),
            "thinkinglevel" | "think" => self.thinking.map(str::to_owned),
            "identityname" | "identity.name" => self.name.map(str::to_owned),
            _ => None,
        }
    }
}

/// Strips the owner and the release date from a model name.
fn short(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    match name.rsplit_once('-') {
        Some((bare, "latest")) => bare,
        Some((bare, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => bare,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, message::Cost};

    use super::*;

    fn usage_of(input: u64, output: u64, total: f64) -> Usage {
        Usage { input, output, cost: Cost { total, ..Cost::default() }, ..Usage::default() }
    }

    #[test]
    fn the_footer_shows_the_token_usage() {
        let key = SessionKey::parse("agent:main:main", &AgentId::main()).unwrap();
        let line = |mode, run_usage: Usage| usage(mode, &run_usage, &key);
        assert_eq!(line(UsageMode::Tokens, usage_of(1234, 940, 0.0)).unwrap(), "Usage: 1.2k in / 940 out");
        assert_eq!(
            line(UsageMode::Tokens, usage_of(36_400, 9_949, 0.0042)).unwrap(),
            "Usage: 36k in / 9.9k out · est $0.0042"
        );
        assert_eq!(
            line(UsageMode::Full, usage_of(999_499, 1_460_000, 1.239)).unwrap(),
            "Usage: 999k in / 1.5m out · est $1.24 · session agent:main:main"
        );
        assert_eq!(line(UsageMode::Off, usage_of(1, 1, 0.0)), None);
        assert_eq!(line(UsageMode::Full, usage_of(0, 0, 0.0)), None);
        assert_eq!([9_950, 999_500].map(count), ["10k", "1.0m"]);
    }

    #[test]
    fn the_footer_follows_the_last_text() {
        let image = Payload { media: vec!["./a.png".to_owned()], ..Payload::default() };
        let mut payloads = vec![Payload::answer("One"), Payload::answer("Two\n"), image.clone()];
        append(&mut payloads, "Usage");
        assert_eq!(payloads, [Payload::answer("One"), Payload::answer("Two\n\nUsage"), image.clone()]);
        let mut images = vec![image.clone()];
        append(&mut images, "Usage");
        assert_eq!(images, [image, notice("Usage".to_owned())]);
        let mut empty = Vec::new();
        append(&mut empty, "Usage");
        assert_eq!(empty, []);
    }

    #[test]
    fn a_truncation_warning_follows_the_answer() {
        let line = truncated("p/m", 29_500, 1_750_000);
        assert!(
            line.starts_with(
                "⚠️ Your message was too long for p/m: of about 1.8m tokens, the model received about 30k"
            ),
            "{line}"
        );
        let mut payloads = vec![Payload::answer("One")];
        warn(&mut payloads, "Cut", false);
        assert_eq!(payloads, [Payload::answer("One\n\nCut")]);
        // The text was already sent in blocks; without any text the warning is dropped.
        let (mut sent, mut empty) = (Vec::new(), Vec::new());
        warn(&mut sent, "Cut", true);
        warn(&mut empty, "Cut", false);
        assert_eq!((sent, empty), (vec![notice("Cut".to_owned())], vec![]));
    }

    // Case 151.
    #[test]
    fn the_session_line_comes_before_the_compaction_line() {
        let id = SessionId::parse("3f2c").unwrap();
        let expected = [
            "🧭 This is a new session: 3f2c",
            "🧹 The older part of this session was summarized to make room (2 times so far).",
        ];
        assert_eq!(opening(Some(&id), Some(2)), expected.map(|line| notice(line.to_owned())));
        assert_eq!(opening(None, None), []);
    }

    const VALUES: PrefixValues<'_> = PrefixValues {
        provider: Some("anthropic"),
        model: Some("claude-opus-4-5-20251101"),
        thinking: Some("high"),
        name: Some("Pincer"),
    };

    #[test]
    fn a_prefix_fills_in_model_and_agent() {
        let prefix = |setting: &str| ReplyPrefix::new(setting, VALUES).map(|prefix| prefix.0);
        for (setting, expected) in [
            ("auto", "[Pincer]"),
            ("[{model} | {provider} | think:{thinkingLevel}]", "[claude-opus-4-5 | anthropic | think:high]"),
            ("{identity.name} ({ModelFull}):", "Pincer (anthropic/claude-opus-4-5-20251101):"),
            ("{identityName}{unknown} {", "Pincer{unknown} {"),
        ] {
            assert_eq!(prefix(setting).as_deref(), Some(expected), "{setting}");
        }
        assert_eq!(prefix("  "), None);
        let no_name = ReplyPrefix::new("auto", PrefixValues::default());
        assert_eq!(
            (no_name, ReplyPrefix::new("{model}", PrefixValues::default()).unwrap().0.as_str()),
            (None, "{model}")
        );
        assert_eq!(["openai/gpt-5-latest", "gpt-4o", "model"].map(short), ["gpt-5", "gpt-4o", "model"]);
    }

    #[test]
    fn a_prefix_is_added_once() {
        let prefix = ReplyPrefix::new("auto", VALUES).unwrap();
        let once = prefix.apply(Payload::answer("Hi"));
        assert_eq!(once, Payload::answer("[Pincer] Hi"));
        assert_eq!(prefix.apply(once.clone()), once);
        let image = Payload { media: vec!["./a.png".to_owned()], ..Payload::default() };
        assert_eq!(prefix.apply(image.clone()), image);
    }
}
