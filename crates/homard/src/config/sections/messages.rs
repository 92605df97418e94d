//! `messages`: what becomes of messages that come while the agent is busy.

use std::{collections::BTreeMap, time::Duration};

use homard_agent::{
    command::queue::{Drop, Mode, Overrides},
    hub::QueueRules,
};
use serde::{Deserialize, Deserializer, de};

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Messages {
    #[serde(deserialize_with = "super::object")]
    queue: Queue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Queue {
    #[serde(deserialize_with = "word")]
    mode: Option<Word<Mode>>,
    by_channel: BTreeMap<String, Word<Mode>>,
    debounce_ms: Option<u64>,
    debounce_ms_by_channel: BTreeMap<String, u64>,
    cap: Option<u64>,
    #[serde(deserialize_with = "word")]
    drop: Option<Word<Drop>>,
}

impl Messages {
    /// How messages wait.
    pub(crate) fn queue(&self) -> QueueRules {
        let queue = &self.queue;
        let all = Overrides {
            mode: queue.mode.as_ref().map(|word| word.0),
            debounce: queue.debounce_ms.map(Duration::from_millis),
            cap: queue.cap.map(|cap| usize::try_from(cap).unwrap_or(usize::MAX)),
            drop: queue.drop.as_ref().map(|word| word.0),
        };
        let mut by_channel: BTreeMap<String, Overrides> = BTreeMap::new();
        let name = |name: &str| name.trim().to_lowercase();
        for (channel, mode) in &queue.by_channel {
            by_channel.entry(name(channel)).or_default().mode = Some(mode.0);
        }
        for (channel, ms) in &queue.debounce_ms_by_channel {
            by_channel.entry(name(channel)).or_default().debounce = Some(Duration::from_millis(*ms));
        }
        QueueRules { all, by_channel }
    }
}

/// A value that is one of some words.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Word<T>(T);

/// Something that is written as one of some words.
trait Named: Sized {
    /// What is said to another word.
    const EXPECTED: &'static str;
    fn read(word: &str) -> Option<Self>;
}

impl Named for Mode {
    const EXPECTED: &'static str = "one of steer, followup, collect, steer-backlog and interrupt";
    fn read(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl Named for Drop {
    const EXPECTED: &'static str = "one of old, new and summarize";
    fn read(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl<'de, T: Named> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let value = T::read(&word);
        value.map(Self).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&word), &T::EXPECTED))
    }
}

fn word<'de, D: Deserializer<'de>, T: Named>(deserializer: D) -> Result<Option<Word<T>>, D::Error> {
    Option::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(queue: &Value) -> Result<QueueRules, String> {
        let messages = serde_json::from_value::<Messages>(json!({"queue": queue}));
        messages.map(|messages| messages.queue()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_line_brings_back_the_older_way() {
        let rules = read(&json!({"mode": "collect", "debounceMs": 1000})).unwrap();
        let debounce = Some(Duration::from_secs(1));
        assert_eq!(rules.all, Overrides { mode: Some(Mode::Collect), debounce, cap: None, drop: None });
        assert_eq!(read(&json!({})), Ok(QueueRules::default()));
    }

    #[test]
    fn a_channel_has_its_own_way() {
        let rules = read(&json!({
            "byChannel": {"Telegram ": "steer+backlog"}, "debounceMsByChannel": {"telegram": 50, "slack": 7},
            "cap": 5, "drop": "oldest",
        }));
        let rules = rules.unwrap();
        let of = |mode, ms| Overrides { mode, debounce: Some(Duration::from_millis(ms)), ..Overrides::default() };
        let expected = [("slack", of(None, 7)), ("telegram", of(Some(Mode::SteerBacklog), 50))];
        assert_eq!(rules.by_channel, expected.map(|(name, rules)| (name.to_owned(), rules)).into());
        assert_eq!((rules.all.cap, rules.all.drop), (Some(5), Some(Drop::Old)));
    }

    #[test]
    fn a_word_that_is_none_is_named() {
        assert!(read(&json!({"mode": "chaos"})).unwrap_err().contains("expected one of steer, followup"));
        assert!(read(&json!({"drop": "all"})).unwrap_err().contains("expected one of old, new and summarize"));
    }
}
