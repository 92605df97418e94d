//! `messages`: the queue for messages that arrive while a run is active, and the prefix of replies.

use std::{collections::BTreeMap, time::Duration};

use homard_agent::hub::QueueDefaults;
use homard_queue::settings::{DropPolicy, QueueMode, QueueOverrides};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::{FixedValues, Word};

/// Handling of incoming and outgoing messages.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Messages {
    /// Prefix of every message of an agent: a text, in which `{model}`, `{modelFull}`, `{provider}`, `{thinkingLevel}` and `{identityName}` are filled in, or `auto` for the agent's name in brackets. Default: nothing.
    pub response_prefix: Option<String>,
    /// Handling of messages that arrive during a run.
    #[serde(deserialize_with = "super::object")]
    queue: Queue,
    /// How the sender of a chat message is informed that it is queued or was steered into the active run: `reaction` on the message, `text` for a short line, or `off`. After half a minute, both send a line that says what the session is busy with. Default: `reaction`.
    queue_status: Option<Word<QueueStatus>>,
    /// Reactions that show the state of a message.
    #[serde(deserialize_with = "super::object")]
    status_reactions: StatusReactions,
    /// Handling of messages received from chat platforms.
    #[serde(deserialize_with = "super::object")]
    pub inbound: Inbound,
    /// Behaviour in groups.
    #[serde(deserialize_with = "super::object")]
    pub group_chat: GroupChat,
}

/// Handling of messages received from chat platforms.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Inbound {
    /// Time in milliseconds that a sender must be silent before their messages are passed to the agent as one. Default: 0, each message is handled by itself.
    debounce_ms: Option<u64>,
    /// Debounce time per channel, by its name.
    by_channel: BTreeMap<String, u64>,
}

impl Inbound {
    /// Returns the debounce time for messages on a channel.
    pub fn debounce(&self, channel: &str) -> Duration {
        let by_channel = self.by_channel.iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(channel));
        Duration::from_millis(by_channel.map(|(_, ms)| *ms).or(self.debounce_ms).unwrap_or(0))
    }
}

/// Behaviour in groups.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GroupChat {
    /// Regular expressions that match a mention of the agent. Default: its name and its emoji.
    pub mention_patterns: Option<Vec<String>>,
}

/// Handling of messages that arrive during a run.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Queue {
    /// Queue mode: steer to pass messages to the active run, followup for a later run of each, collect for one later
    /// run of all, steer-backlog for both steer and followup, interrupt to abort the active run. Default: steer.
    mode: Option<Word<QueueMode>>,
    /// Queue mode per channel, by its name.
    by_channel: BTreeMap<String, Word<QueueMode>>,
    /// Debounce time in milliseconds before queued messages are processed. Default: 500.
    debounce_ms: Option<u64>,
    /// Debounce time per channel, by its name.
    debounce_ms_by_channel: BTreeMap<String, u64>,
    /// Maximum number of queued messages. Default: 20.
    cap: Option<u64>,
    /// What is dropped if the queue is full: old for the oldest messages, new for new ones, or summarize to replace the
    /// oldest by a summary with one line for each. Default: summarize.
    drop: Option<Word<DropPolicy>>,
}

/// How the sender of a chat message is informed that it is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueStatus {
    /// By a reaction on the message.
    Reaction,
    /// By a short line.
    Text,
    Off,
}

super::word::words! {
    QueueStatus: "reaction" => Self::Reaction, "text" => Self::Text, "off" => Self::Off;
}

/// Reactions that show the state of a message.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusReactions {
    /// `false` has the effect of `queueStatus: "off"`, unless `queueStatus` is set. Default: true.
    enabled: Option<bool>,
}

impl Messages {
    /// Returns how senders are informed that their messages are queued.
    pub fn queue_status(&self) -> QueueStatus {
        let default =
            if self.status_reactions.enabled == Some(false) { QueueStatus::Off } else { QueueStatus::Reaction };
        self.queue_status.map_or(default, |word| word.0)
    }

    /// Returns the queue rules.
    pub fn queue(&self) -> QueueDefaults {
        let queue = &self.queue;
        let all = QueueOverrides {
            mode: queue.mode.as_ref().map(|word| word.0),
            debounce: queue.debounce_ms.map(Duration::from_millis),
            cap: queue.cap.map(|cap| usize::try_from(cap).unwrap_or(usize::MAX)),
            drop: queue.drop.as_ref().map(|word| word.0),
        };
        let mut by_channel: BTreeMap<String, QueueOverrides> = BTreeMap::new();
        let name = |name: &str| name.trim().to_lowercase();
        for (channel, mode) in &queue.by_channel {
            by_channel.entry(name(channel)).or_default().mode = Some(mode.0);
        }
        for (channel, ms) in &queue.debounce_ms_by_channel {
            by_channel.entry(name(channel)).or_default().debounce = Some(Duration::from_millis(*ms));
        }
        QueueDefaults { all, by_channel }
    }
}

impl FixedValues for QueueMode {
    const WORDS: &'static [&'static str] = &["steer", "followup", "collect", "steer-backlog", "interrupt"];

    fn parse(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl FixedValues for DropPolicy {
    const WORDS: &'static [&'static str] = &["old", "new", "summarize"];

    fn parse(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(queue: &Value) -> Result<QueueDefaults, String> {
        let messages = serde_json::from_value::<Messages>(json!({"queue": queue}));
        messages.map(|messages| messages.queue()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_setting_restores_the_old_queue_mode() {
        let rules = read(&json!({"mode": "collect", "debounceMs": 1000})).unwrap();
        let debounce = Some(Duration::from_secs(1));
        assert_eq!(rules.all, QueueOverrides { mode: Some(QueueMode::Collect), debounce, cap: None, drop: None });
        assert_eq!(read(&json!({})), Ok(QueueDefaults::default()));
    }

    #[test]
    fn a_queued_message_gets_a_reaction_by_default() {
        let read = |messages: Value| serde_json::from_value::<Messages>(messages).map(|section| section.queue_status());
        let disabled = json!({"statusReactions": {"enabled": false}});
        assert_eq!(read(json!({})).unwrap(), QueueStatus::Reaction);
        assert_eq!(read(disabled).unwrap(), QueueStatus::Off);
        let text = json!({"queueStatus": "text", "statusReactions": {"enabled": false}});
        assert_eq!(read(text).unwrap(), QueueStatus::Text);
        assert!(read(json!({"queueStatus": "loud"})).is_err());
    }

    #[test]
    fn a_channel_overrides_the_queue_settings() {
        let rules = read(&json!({
            "byChannel": {"Telegram ": "steer+backlog"}, "debounceMsByChannel": {"telegram": 50, "slack": 7},
            "cap": 5, "drop": "oldest",
        }));
        let rules = rules.unwrap();
        let overrides =
            |mode, ms| QueueOverrides { mode, debounce: Some(Duration::from_millis(ms)), ..QueueOverrides::default() };
        let expected = [("slack", overrides(None, 7)), ("telegram", overrides(Some(QueueMode::SteerBacklog), 50))];
        assert_eq!(rules.by_channel, expected.map(|(name, rules)| (name.to_owned(), rules)).into());
        assert_eq!((rules.all.cap, rules.all.drop), (Some(5), Some(DropPolicy::Old)));
    }

    #[test]
    fn an_unknown_queue_mode_is_named_in_the_error() {
        assert!(read(&json!({"mode": "chaos"})).unwrap_err().contains("expected one of steer, followup"));
        assert!(read(&json!({"drop": "all"})).unwrap_err().contains("expected one of old, new, summarize"));
    }
}
