//! `cron` and `agents.*.heartbeat`: scheduled runs.

use std::{fmt, time::Duration};

use homard_proto::AgentId;
use homard_reply::heartbeat::ACK_MAX;
use homard_schedule::heartbeat::{HeartbeatConfig, Hours};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

use crate::Text;

/// Scheduled jobs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cron {
    /// Run scheduled jobs. Default: true.
    pub enabled: Option<bool>,
    /// Path of the job file. Default: `cron/jobs.json` in the state directory.
    pub store: Option<Text>,
}

/// Heartbeat settings. Keys that an agent does not set are taken from `agents.defaults.heartbeat`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Heartbeat {
    /// Interval between heartbeats, such as `30m` or `1h`; `0m` for never. Default: 30m.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "Option<String>")]
    every: Option<Duration>,
    /// Hours of the day in which heartbeats run.
    #[serde(deserialize_with = "super::maybe_object")]
    active_hours: Option<ActiveHours>,
    /// Prompt of a heartbeat.
    prompt: Option<Text>,
    /// Maximum number of characters besides `HEARTBEAT_OK` in a reply that is not delivered because it counts as
    /// nothing to report. Default: 300.
    ack_max_chars: Option<usize>,
    /// Where findings are delivered: `last` (the chat in which the owner wrote last), `none`, or the name of a channel. Default: last.
    target: Option<Text>,
    /// Recipient on the channel in `target`. Default: the last chat there.
    to: Option<Text>,
    /// Account that sends the findings. Default: the account of the last chat on the channel in `target`.
    account_id: Option<Text>,
}

/// Hours of the day in which heartbeats run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct ActiveHours {
    /// Start, as `HH:MM`.
    start: Option<String>,
    /// End, as `HH:MM`; `24:00` is midnight.
    end: Option<String>,
    /// Time zone of `start` and `end`. Default: the machine's.
    timezone: Option<String>,
}

impl Heartbeat {
    /// Returns which key of the active hours is invalid, and why.
    pub fn invalid_hours(&self) -> Option<(&'static str, &'static str)> {
        self.active_hours.as_ref()?.hours().err()
    }

    /// Returns the number of characters beside `HEARTBEAT_OK` up to which a reply counts as nothing to report.
    pub fn ack_max(&self, agent: Option<&Self>) -> usize {
        agent.and_then(|agent| agent.ack_max_chars).or(self.ack_max_chars).unwrap_or(ACK_MAX)
    }

    /// Merges the heartbeat settings of an agent: its own section first, then `self`, which is the section of the agent
    /// defaults, then built-in values. Fails if the active hours are invalid.
    pub fn heartbeat(&self, agent_heartbeat: Option<&Self>, agent: AgentId) -> Result<HeartbeatConfig, String> {
        let built_in = HeartbeatConfig::of(agent);
        let hours = agent_heartbeat
            .and_then(|agent_heartbeat| agent_heartbeat.active_hours.as_ref())
            .or(self.active_hours.as_ref());
        let prompt =
            agent_heartbeat.and_then(|agent_heartbeat| agent_heartbeat.prompt.as_ref()).or(self.prompt.as_ref());
        let text = |field: fn(&Self) -> Option<&Text>| {
            agent_heartbeat.and_then(field).or_else(|| field(self)).map(|text| text.as_str().trim().to_owned())
        };
        let target = text(|section| section.target.as_ref()).unwrap_or_default();
        Ok(HeartbeatConfig {
            every: agent_heartbeat
                .and_then(|agent_heartbeat| agent_heartbeat.every)
                .or(self.every)
                .unwrap_or(built_in.every),
            hours: hours
                .map(ActiveHours::hours)
                .transpose()
                .map_err(|(key, why)| format!("heartbeat.activeHours.{key} {why}"))?,
            prompt: prompt.map(|prompt| prompt.as_str().to_owned()),
            ack_max: self.ack_max(agent_heartbeat),
            target: target.as_str().into(),
            to: text(|section| section.to.as_ref()),
            account: text(|section| section.account_id.as_ref()),
            ..built_in
        })
    }
}

impl ActiveHours {
    /// Returns the hours, or the invalid key and why.
    fn hours(&self) -> Result<Hours, (&'static str, &'static str)> {
        let zone = match self.timezone.as_deref().map(str::trim) {
            None | Some("" | "user" | "local") => TimeZone::system(),
            Some(name) => zone(name).map_err(|why| ("timezone", why))?,
        };
        let (start, end) = (self.start.as_deref().unwrap_or("00:00"), self.end.as_deref().unwrap_or("24:00"));
        if Hours::parse(start, "24:00", zone.clone()).is_none() {
            return Err(("start", "must be a time of the day, written HH:MM"));
        }
        Hours::parse(start, end, zone).ok_or(("end", "must be a time of the day, written HH:MM; midnight is 24:00"))
    }
}

/// Returns a time zone by its name. A machine without a time zone database cannot check names and uses its own zone.
pub fn zone(name: &str) -> Result<TimeZone, &'static str> {
    match TimeZone::get(name.trim()) {
        Ok(zone) => Ok(zone),
        Err(_) if jiff::tz::db().is_definitively_empty() => Ok(TimeZone::system()),
        Err(_) => Err("is not a time zone; use a name such as Europe/Berlin"),
    }
}

pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    struct Span;

    impl Visitor<'_> for Span {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a time such as \"30m\" or \"1h\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            parse_duration(text).map(Some).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_str(Span)
}

/// Parses a duration such as `90s`, `30m`, `1h` or `2d`; a bare number is minutes.
pub fn parse_duration(text: &str) -> Option<Duration> {
    parse_duration_in(text, Duration::from_secs(60))
}

/// Same as `parse_duration`, with another unit for a bare number.
pub fn parse_duration_in(text: &str, unit: Duration) -> Option<Duration> {
    let text = text.trim().to_lowercase();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let seconds = match text[at..].trim() {
        "" => unit.as_secs_f64(),
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let number: f64 = text[..at].parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn heartbeats(text: &str) -> Result<Vec<HeartbeatConfig>, String> {
        let config = Config::parse(text).map_err(|error| error.to_string())?;
        let all = &config.agents.defaults.heartbeat;
        let members = config.agents.members().into_iter();
        members.map(|agent| all.heartbeat(agent.config.heartbeat.as_ref(), agent.id)).collect()
    }

    #[test]
    fn an_agent_overrides_the_default_heartbeat() {
        let text = "{agents: {defaults: {heartbeat: {every: '1h', prompt: 'Look.', ackMaxChars: 9}},
            list: [{id: 'a'}, {id: 'b', heartbeat: {
                every: '0m', activeHours: {start: '08:00', end: '24:00', timezone: 'UTC'}}}]}}";
        let all = HeartbeatConfig {
            every: Duration::from_secs(3600),
            prompt: Some("Look.".to_owned()),
            ack_max: 9,
            ..HeartbeatConfig::of(AgentId::normalize("a"))
        };
        let hours = Hours::parse("08:00", "24:00", TimeZone::UTC);
        let agent_config =
            HeartbeatConfig { agent: AgentId::normalize("b"), every: Duration::ZERO, hours, ..all.clone() };
        assert_eq!(heartbeats(text), Ok(vec![all, agent_config]));
        assert_eq!(heartbeats("{agents: {list: [{id: 'a'}]}}"), Ok(vec![HeartbeatConfig::of(AgentId::normalize("a"))]));
    }

    #[test]
    fn invalid_values_are_named() {
        let error_of = |heartbeat: &str| {
            heartbeats(&format!("{{agents: {{list: [{{id: 'a', heartbeat: {heartbeat}}}]}}}}")).unwrap_err()
        };
        assert_eq!(
            error_of("{every: 'often'}"),
            "line 1, column 47: agents.list[0].heartbeat.every must be a time such as \"30m\" or \"1h\""
        );
        let invalid_hours = |hours: &str| {
            let error = error_of(&format!("{{activeHours: {hours}}}"));
            error.split_once("agents.list[0].heartbeat.activeHours.").unwrap().1.to_owned()
        };
        assert_eq!(invalid_hours("{start: '8', end: '20:00'}"), "start must be a time of the day, written HH:MM");
        assert_eq!(
            invalid_hours("{start: '08:00', end: '24:01'}"),
            "end must be a time of the day, written HH:MM; midnight is 24:00"
        );
        assert_eq!(invalid_hours("{start: '24:00'}"), "start must be a time of the day, written HH:MM");
        assert_eq!(
            invalid_hours("{timezone: 'Mars/Base'}"),
            "timezone is not a time zone; use a name such as Europe/Berlin"
        );
    }

    #[test]
    fn durations_are_parsed_with_their_unit() {
        let seconds = |text| parse_duration(text).map(|span| span.as_secs_f64());
        assert_eq!(
            ["30", "1.5h", "90s", "2d", "500ms", "0m"].map(seconds),
            [1800.0, 5400.0, 90.0, 172_800.0, 0.5, 0.0].map(Some)
        );
        assert_eq!(["", "m", "1w", "-5m", "1h30m"].map(seconds), [None; 5]);
    }
}
