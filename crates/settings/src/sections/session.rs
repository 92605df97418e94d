//! `session`: when a session is reset, automatically or by a command.

use std::collections::BTreeMap;

use homard_agent::auto_reset::{AutoReset, ResetMode, ResetRule};
use homard_command::Triggers;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::{number::WholeNumber, word::Word};

/// Session routing and automatic resets.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Session {
    /// Key of the main session. It is always `main`; another value has no effect.
    pub main_key: Option<String>,
    /// Session of a direct message: main, per-peer, per-channel-peer, per-account-channel-peer. Default: main for the owner, per-channel-peer for other senders.
    pub dm_scope: Option<Word<DmScope>>,
    /// Ids of one person on several channels, as `{ann: ["telegram:1", "slack:U2"]}`.
    pub identity_links: BTreeMap<String, Vec<String>>,
    /// Words that reset the session, which begins a new transcript. Default: `/new` and `/reset`.
    reset_triggers: Option<Vec<String>>,
    /// When a session is reset automatically. Default: never.
    #[serde(deserialize_with = "super::maybe_object")]
    reset: Option<Reset>,
    /// Reset rules per kind of chat.
    #[serde(deserialize_with = "super::object")]
    reset_by_type: ByType,
    /// Reset rules per channel, by its name.
    #[serde(deserialize_with = "super::named_objects")]
    reset_by_channel: BTreeMap<String, Reset>,
    /// As `agents.defaults.typingMode`; takes precedence over it.
    pub typing_mode: Option<Word<super::typing::Mode>>,
    /// As `agents.defaults.typingIntervalSeconds`, which takes precedence.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub typing_interval_seconds: Option<u64>,
    /// Older form of `reset: {mode: "idle"}`.
    #[serde(deserialize_with = "minutes")]
    idle_minutes: Option<u64>,
}

/// Reset rules per kind of chat.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ByType {
    /// Rule for threads.
    #[serde(deserialize_with = "super::maybe_object")]
    thread: Option<Reset>,
    /// Rule for groups.
    #[serde(deserialize_with = "super::maybe_object")]
    group: Option<Reset>,
    /// Rule for direct chats.
    #[serde(deserialize_with = "super::maybe_object")]
    direct: Option<Reset>,
    /// Older name of `direct`.
    #[serde(deserialize_with = "super::maybe_object")]
    dm: Option<Reset>,
}

/// A rule for automatic resets.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Reset {
    /// When the session is reset: daily at an hour, idle after some minutes without a message, or none.
    mode: Option<Word<ResetMode>>,
    /// Hour of the day, from 0 to 23. Default: 4.
    #[serde(deserialize_with = "hour")]
    at_hour: Option<u64>,
    /// Number of minutes without a message.
    #[serde(deserialize_with = "minutes")]
    idle_minutes: Option<u64>,
}

/// Which session a direct message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmScope {
    Main,
    PerPeer,
    PerChannelPeer,
    PerAccountChannelPeer,
}

super::word::words! {
    ResetMode: "daily" => Self::Daily, "idle" => Self::Idle, "none" => Self::Never;
    DmScope:
        "main" => Self::Main, "per-peer" => Self::PerPeer, "per-channel-peer" => Self::PerChannelPeer,
        "per-account-channel-peer" => Self::PerAccountChannelPeer;
}

impl Session {
    /// Returns the words that reset a session.
    pub fn triggers(&self) -> Triggers {
        self.reset_triggers.as_ref().map(Triggers::new).unwrap_or_default()
    }

    /// Returns when sessions are reset automatically, with hours of this zone.
    pub fn auto_reset(&self, zone: TimeZone) -> AutoReset {
        let rule = |reset: &Option<Reset>| reset.as_ref().map(Reset::rule);
        let by_channel = self.reset_by_channel.iter().map(|(name, reset)| (name.trim().to_lowercase(), reset.rule()));
        AutoReset {
            all: rule(&self.reset),
            thread: rule(&self.reset_by_type.thread),
            group: rule(&self.reset_by_type.group),
            direct: rule(&self.reset_by_type.direct).or_else(|| rule(&self.reset_by_type.dm)),
            by_channel: by_channel.collect(),
            idle_minutes: self.idle_minutes,
            zone,
        }
    }
}

impl Reset {
    fn rule(&self) -> ResetRule {
        let at_hour = self.at_hour.and_then(|hour| u8::try_from(hour).ok());
        ResetRule { mode: self.mode.map(|word| word.0), at_hour, idle_minutes: self.idle_minutes }
    }
}

fn hour<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(WholeNumber { least: 0, most: 23, what: "a whole number from 0 to 23" })
}

fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(WholeNumber {
        least: 1,
        most: u64::MAX,
        what: "a whole number of minutes, one or more",
    })
}

#[cfg(test)]
mod tests {
    use homard_command::Command;

    use crate::Config;

    use super::*;

    fn read(session: &str) -> Result<AutoReset, String> {
        Ok(Config::parse(&format!("{{session: {session}}}"))
            .map_err(|error| error.to_string())?
            .session
            .auto_reset(TimeZone::UTC))
    }

    fn rule(mode: Option<ResetMode>, at_hour: Option<u8>, idle_minutes: Option<u64>) -> ResetRule {
        ResetRule { mode, at_hour, idle_minutes }
    }

    #[test]
    fn automatic_reset_is_disabled_by_default() {
        assert_eq!(Config::parse("{}").unwrap().session.auto_reset(TimeZone::UTC), AutoReset::default());
        assert_eq!(read("{reset: null, resetByChannel: {}}"), Ok(AutoReset::default()));
    }

    #[test]
    fn reset_rules_apply_to_all_to_chat_types_and_to_channels() {
        let text = "{reset: {mode: 'daily', atHour: 5}, resetByType: {dm: {idleMinutes: 9}, group: {mode: 'none'}},
                     resetByChannel: {Slack: {mode: 'idle', idleMinutes: 3}}, idleMinutes: 30}";
        let expected = AutoReset {
            all: Some(rule(Some(ResetMode::Daily), Some(5), None)),
            direct: Some(rule(None, None, Some(9))),
            group: Some(rule(Some(ResetMode::Never), None, None)),
            by_channel: [("slack".to_owned(), rule(Some(ResetMode::Idle), None, Some(3)))].into(),
            idle_minutes: Some(30),
            ..AutoReset::default()
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn an_invalid_reset_rule_is_named_with_the_valid_ones() {
        let error_of = |text: &str| read(text).unwrap_err().split_once(": ").unwrap().1.to_owned();
        assert_eq!(error_of("{reset: {mode: 'weekly'}}"), "session.reset.mode must be one of daily, idle, none");
        let hour = "must be a whole number from 0 to 23";
        assert_eq!(error_of("{reset: {atHour: 24}}"), format!("session.reset.atHour {hour}"));
        assert_eq!(
            error_of("{resetByType: {thread: {atHour: -1}}}"),
            format!("session.resetByType.thread.atHour {hour}")
        );
        assert_eq!(
            error_of("{resetByChannel: {irc: {atHour: 4.5}}}"),
            format!("session.resetByChannel.irc.atHour {hour}")
        );
        assert_eq!(error_of("{idleMinutes: 0}"), "session.idleMinutes must be a whole number of minutes, one or more");
        assert_eq!(error_of("{reset: ['daily']}"), "session.reset must be an object");
        assert_eq!(error_of("{resetTriggers: '/new'}"), "session.resetTriggers must be a list");
    }

    #[test]
    fn reset_triggers_are_configurable() {
        let triggers = |text: &str| Config::parse(text).unwrap().session.triggers();
        assert_eq!(triggers("{}"), Triggers::default());
        let chosen = triggers("{session: {resetTriggers: ['/Fresh']}}");
        assert_eq!(chosen.parse("/fresh start"), Some(Command::NewTranscriptWith("start".to_owned())));
        assert_eq!(chosen.parse("/new"), None);
        assert_eq!(triggers("{session: {resetTriggers: []}}").parse("/new"), None);
    }
}
