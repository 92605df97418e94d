//! Automatic reset: when a session is stale, so that the next message starts a new transcript. Pure: time is a
//! parameter.
//!
//! Only messages of people count. Scheduled runs and changes of settings do not keep a session fresh.

use std::collections::BTreeMap;

use homard_proto::{SessionKey, session::Record};
use jiff::{Timestamp, ToSpan, Zoned, tz::TimeZone};
use serde_json::Value;

/// Field of a record with the time of the last message of a person.
const LAST_INTERACTION: &str = "lastInteractionAt";
/// Hour of a rule of mode [`ResetMode::Daily`], if none is set.
const DEFAULT_HOUR: u8 = 4;
/// Idle time of a rule of mode [`ResetMode::Idle`], in minutes, if none is set.
const DEFAULT_IDLE_MINUTES: u64 = 60;

/// Rules for when a transcript becomes stale. Without a rule it never does.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoReset {
    /// For every session.
    pub all: Option<ResetRule>,
    /// For threads and topics.
    pub thread: Option<ResetRule>,
    /// For groups and channels.
    pub group: Option<ResetRule>,
    /// For direct messages: all sessions that are neither threads nor groups.
    pub direct: Option<ResetRule>,
    /// For the sessions of a channel, by its lower-case name. Overrides all other rules.
    pub by_channel: BTreeMap<String, ResetRule>,
    /// Idle time in minutes, where no rule sets one.
    pub idle_minutes: Option<u64>,
    /// Time zone of daily hours.
    pub zone: TimeZone,
}

/// One rule; unset values are taken from the rule for every session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetRule {
    /// Daily by default.
    pub mode: Option<ResetMode>,
    /// Hour of a daily rule, 0 to 23.
    pub at_hour: Option<u8>,
    /// Idle time in minutes. With a daily rule, the earlier of the two limits applies.
    pub idle_minutes: Option<u64>,
}

/// Event after which a rule considers a transcript stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetMode {
    /// None: transcripts never become stale.
    Never,
    /// The daily hour [`ResetRule::at_hour`] has passed since the last use.
    Daily,
    /// The session was idle for [`ResetRule::idle_minutes`].
    Idle,
}

/// Origin of a message: only messages of people keep a session fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionUse {
    /// A person wrote it.
    Person,
    /// Anything else, such as a scheduled run or a sub-agent.
    Machine,
}

impl Default for AutoReset {
    fn default() -> Self {
        Self {
            all: None,
            thread: None,
            group: None,
            direct: None,
            by_channel: BTreeMap::new(),
            idle_minutes: None,
            zone: TimeZone::UTC,
        }
    }
}

impl AutoReset {
    /// True if a message that arrives now finds a stale transcript.
    pub fn is_stale(&self, key: &SessionKey, record: &Record, now_ms: u64) -> bool {
        let last_used = last_interaction(record);
        let (hour, idle) = self.limits(key, record);
        let is_yesterday =
            hour.and_then(|hour| boundary(now_ms, hour, &self.zone)).is_some_and(|boundary_ms| last_used < boundary_ms);
        let is_idle =
            idle.is_some_and(|minutes| now_ms > last_used.saturating_add(minutes.max(1).saturating_mul(60_000)));
        is_yesterday || is_idle
    }

    /// Records the time of the last message of a person; call before the record's `updated_at` is changed.
    ///
    /// Without any rule the time is not needed, so the record is left unchanged.
    pub(crate) fn record_use(&self, record: &mut Record, session_use: SessionUse, at: u64) {
        if self.is_off() && !record.extra.contains_key(LAST_INTERACTION) {
            return;
        }
        let last_used = match session_use {
            SessionUse::Person => at,
            SessionUse::Machine => last_interaction(record),
        };
        record.extra.insert(LAST_INTERACTION.to_owned(), last_used.into());
    }

    fn is_off(&self) -> bool {
        let rules = [&self.all, &self.thread, &self.group, &self.direct];
        rules.iter().all(|rule| rule.is_none()) && self.by_channel.is_empty() && self.idle_minutes.is_none()
    }

    /// Returns the hour and the idle minutes that apply to a session.
    fn limits(&self, key: &SessionKey, record: &Record) -> (Option<u8>, Option<u64>) {
        if let Some(rule) = channel(key, record).and_then(|channel| self.by_channel.get(&channel)) {
            return rule.limits(None);
        }
        let specific = match key {
            key if key.rest().contains(":thread:") || key.rest().contains(":topic:") => &self.thread,
            key if key.kind() == "group" => &self.group,
            _ => &self.direct,
        };
        match (specific, &self.all) {
            (Some(specific), Some(all)) => specific.or(all).limits(self.idle_minutes),
            (Some(rule), None) | (None, Some(rule)) => rule.limits(self.idle_minutes),
            (None, None) => (None, self.idle_minutes),
        }
    }
}

impl ResetRule {
    fn or(&self, other: &Self) -> Self {
        Self {
            mode: self.mode.or(other.mode),
            at_hour: self.at_hour.or(other.at_hour),
            idle_minutes: self.idle_minutes.or(other.idle_minutes),
        }
    }

    fn limits(&self, idle_minutes: Option<u64>) -> (Option<u8>, Option<u64>) {
        let idle = self.idle_minutes.or(idle_minutes);
        match self.mode.unwrap_or(ResetMode::Daily) {
            ResetMode::Never => (None, None),
            ResetMode::Daily => (Some(self.at_hour.unwrap_or(DEFAULT_HOUR)), idle),
            ResetMode::Idle => (None, Some(idle.unwrap_or(DEFAULT_IDLE_MINUTES))),
        }
    }
}

/// Returns when a person last wrote. A record without that time is assumed to be last updated by a person.
fn last_interaction(record: &Record) -> u64 {
    record.extra.get(LAST_INTERACTION).and_then(Value::as_u64).unwrap_or(record.updated_at)
}

/// Returns the channel of a session: the one in its key, else the one it was last used on.
fn channel(key: &SessionKey, record: &Record) -> Option<String> {
    let parts: Vec<_> = key.rest().split(':').collect();
    let names_channel = parts.iter().skip(1).take(2).any(|part| ["group", "channel", "direct"].contains(part));
    if names_channel {
        return parts.first().map(|&channel| channel.to_owned());
    }
    let recorded = ["lastChannel", "channel"].into_iter().find_map(|name| record.extra.get(name)?.as_str());
    recorded.map(|channel| channel.trim().to_lowercase())
}

/// Returns the last occurrence of this hour; `None` for times outside the calendar.
fn boundary(now_ms: u64, hour: u8, zone: &TimeZone) -> Option<u64> {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?.to_zoned(zone.clone());
    let hour_of = |day: &Zoned| day.date().at(hour.min(23) as i8, 0, 0, 0).to_zoned(zone.clone()).ok();
    let today = hour_of(&now)?;
    let last = if today <= now { today } else { hour_of(&now.checked_sub(1.day()).ok()?)? };
    u64::try_from(last.timestamp().as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, SessionId};
    use proptest::prelude::*;

    use super::*;

    /// Central European time with daylight saving, independent of the machine's time zone data.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn at(time: &str) -> u64 {
        let time: jiff::civil::DateTime = time.parse().unwrap();
        time.to_zoned(berlin()).unwrap().timestamp().as_millisecond() as u64
    }

    fn key(text: &str) -> SessionKey {
        SessionKey::parse(text, &AgentId::main()).unwrap()
    }

    fn record(updated_at: u64) -> Record {
        Record::new(SessionId::parse("s").unwrap(), updated_at)
    }

    fn rule(mode: ResetMode) -> ResetRule {
        ResetRule { mode: Some(mode), ..ResetRule::default() }
    }

    fn for_every_session(rule: ResetRule) -> AutoReset {
        AutoReset { all: Some(rule), zone: berlin(), ..AutoReset::default() }
    }

    fn is_stale_after(policy: &AutoReset, last: &str, now: &str) -> bool {
        policy.is_stale(&key("main"), &record(at(last)), at(now))
    }

    #[test]
    fn case_74_a_daily_rule_applies_from_its_hour() {
        let daily = for_every_session(rule(ResetMode::Daily));
        assert!(is_stale_after(&daily, "2026-07-01 23:00", "2026-07-02 04:01"));
        assert!(!is_stale_after(&daily, "2026-07-01 23:00", "2026-07-02 03:59"));
        assert!(!is_stale_after(&daily, "2026-07-02 04:00", "2026-07-02 04:01"));
        assert!(is_stale_after(
            &for_every_session(ResetRule { at_hour: Some(23), ..rule(ResetMode::Daily) }),
            "2026-07-01 22:59",
            "2026-07-02 03:00"
        ));
    }

    #[test]
    fn case_75_an_idle_rule_counts_minutes() {
        let idle = for_every_session(rule(ResetMode::Idle));
        assert!(is_stale_after(&idle, "2026-07-01 12:00", "2026-07-01 13:01"));
        assert!(!is_stale_after(&idle, "2026-07-01 12:00", "2026-07-01 12:59"));
        assert!(!is_stale_after(&idle, "2026-07-01 12:00", "2026-07-01 13:00"));
        let quick = for_every_session(ResetRule { idle_minutes: Some(5), ..rule(ResetMode::Idle) });
        assert!(is_stale_after(&quick, "2026-07-01 12:00", "2026-07-01 12:06"));
    }

    #[test]
    fn case_76_the_earlier_of_two_limits_applies() {
        let both = for_every_session(ResetRule { mode: None, at_hour: Some(4), idle_minutes: Some(120) });
        assert!(is_stale_after(&both, "2026-07-02 03:30", "2026-07-02 04:01"));
        assert!(is_stale_after(&both, "2026-07-02 10:00", "2026-07-02 12:01"));
        assert!(!is_stale_after(&both, "2026-07-02 10:00", "2026-07-02 11:59"));
    }

    #[test]
    fn case_77_machine_use_does_not_keep_a_session_fresh() {
        let daily = for_every_session(rule(ResetMode::Daily));
        let mut session = record(at("2026-06-30 12:00"));
        for (session_use, time) in
            [(SessionUse::Machine, "2026-07-01 12:00"), (SessionUse::Machine, "2026-07-02 03:50")]
        {
            daily.record_use(&mut session, session_use, at(time));
            session.updated_at = at(time);
        }
        assert!(daily.is_stale(&key("main"), &session, at("2026-07-02 03:55")));
        daily.record_use(&mut session, SessionUse::Person, at("2026-07-02 03:55"));
        assert!(!daily.is_stale(&key("main"), &session, at("2026-07-02 03:59")));
    }

    #[test]
    fn without_a_rule_no_session_is_stale_and_no_time_is_recorded() {
        let never = AutoReset::default();
        let mut session = record(0);
        assert!(!never.is_stale(&key("main"), &session, at("2026-07-02 04:01")));
        never.record_use(&mut session, SessionUse::Person, 7);
        assert_eq!(session, record(0));
        // A recorded time is kept up to date.
        session.extra.insert(LAST_INTERACTION.to_owned(), 3.into());
        never.record_use(&mut session, SessionUse::Person, 7);
        assert_eq!(session.extra[LAST_INTERACTION], 7);
    }

    #[test]
    fn the_most_specific_rule_applies() {
        let policy = AutoReset {
            all: Some(ResetRule { mode: Some(ResetMode::Idle), idle_minutes: Some(10), at_hour: Some(5) }),
            thread: Some(rule(ResetMode::Never)),
            group: Some(rule(ResetMode::Daily)),
            by_channel: [("slack".to_owned(), ResetRule { idle_minutes: Some(3), ..rule(ResetMode::Idle) })].into(),
            ..AutoReset::default()
        };
        let limits = |text: &str| policy.limits(&key(text), &record(0));
        assert_eq!(limits("main"), (None, Some(10)));
        assert_eq!(limits("telegram:group:7"), (Some(5), Some(10)));
        assert_eq!(limits("telegram:group:7:topic:1"), (None, None));
        assert_eq!(limits("slack:group:7:thread:1"), (None, Some(3)));
        assert_eq!(limits("slack:work:direct:u1"), (None, Some(3)));
        let mut with_channel = record(0);
        with_channel.extra.insert("lastChannel".to_owned(), "Slack".into());
        assert_eq!(policy.limits(&key("main"), &with_channel), (None, Some(3)));
        let legacy = AutoReset { idle_minutes: Some(30), ..AutoReset::default() };
        assert_eq!(legacy.limits(&key("main"), &record(0)), (None, Some(30)));
    }

    #[test]
    fn an_hour_that_the_clock_skips_or_repeats_is_one_boundary() {
        let boundary = |now: &str, hour| boundary(at(now), hour, &berlin()).unwrap();
        assert_eq!(boundary("2026-03-29 12:00", 2), at("2026-03-29 03:00"));
        assert_eq!(boundary("2026-10-25 12:00", 2), at("2026-10-25 02:00"));
    }

    proptest! {
        #[test]
        fn a_boundary_is_the_last_occurrence_of_its_hour(now in 100_000_000u64..4_000_000_000_000, hour in 0u8..24) {
            let last = boundary(now, hour, &berlin()).unwrap();
            let local = Timestamp::from_millisecond(last as i64).unwrap().to_zoned(berlin());
            prop_assert!(last <= now && now - last <= 25 * 3_600_000, "{last} {now}");
            // Only two o'clock is ever skipped there.
            prop_assert!(local.hour() == hour as i8 || (hour, local.hour()) == (2, 3));
            prop_assert_eq!((local.minute(), local.second()), (0, 0));
        }

        #[test]
        fn a_stale_session_stays_stale(last in 0u64..4_000_000_000_000, wait in 0u64..200_000_000,
                                       more in 0u64..200_000_000, hour in 0u8..24, minutes in 1u64..3_000) {
            let policy = for_every_session(ResetRule { mode: None, at_hour: Some(hour), idle_minutes: Some(minutes) });
            let is_stale = |now| policy.is_stale(&key("main"), &record(last), now);
            prop_assert!(!is_stale(last) && is_stale(last + wait) <= is_stale(last + wait + more));
            prop_assert!(wait <= minutes * 60_000 || is_stale(last + wait));
        }

        #[test]
        fn arbitrary_times_do_not_panic(last: u64, now: u64, hour: u8, minutes: u64) {
            let policy = for_every_session(ResetRule { mode: None, at_hour: Some(hour), idle_minutes: Some(minutes) });
            prop_assert!(now > last || !policy.is_stale(&key("main"), &record(last), now));
        }
    }
}
