//! Heartbeats: periodic runs in which an agent checks whether there is something to do.
//!
//! This part is pure: when a heartbeat is skipped, and its prompt. The task is in `task`.

mod task;

use std::{fmt, sync::Arc, time::Duration};

use homard_prompt::timestamps::clock_line;
use homard_proto::AgentId;
use homard_reply::heartbeat::{ACK_MAX, TOKEN};
use jiff::{Timestamp, tz::TimeZone};

pub use task::Heartbeats;
pub(super) use task::prepare;

/// Default interval.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// Maximum characters of HEARTBEAT.md in the prompt.
const MAX_FILE_CHARS: usize = 20_000;

/// Reads an agent's HEARTBEAT.md; `None` if it does not exist.
#[derive(Clone)]
pub struct HeartbeatFile(Arc<ReadHeartbeatFile>);

type ReadHeartbeatFile = dyn Fn(&AgentId) -> Option<String> + Send + Sync;

impl HeartbeatFile {
    /// Wraps a function that reads the file.
    pub fn new(read: impl Fn(&AgentId) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    fn read(&self, agent: &AgentId) -> Option<String> {
        (self.0)(agent)
    }
}

impl fmt::Debug for HeartbeatFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

/// Heartbeat configuration of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct HeartbeatConfig {
    /// Id of the agent.
    pub agent: AgentId,
    /// Interval; zero for never.
    pub every: Duration,
    /// Active hours.
    pub hours: Option<Hours>,
    /// Prompt that replaces the default.
    pub prompt: Option<String>,
    /// Maximum characters besides [`TOKEN`] in an answer that still means that there is nothing to report.
    pub ack_max: usize,
    /// Chat to which the reply is delivered.
    pub target: HeartbeatTarget,
    /// Recipient there; `None` for the last chat of that channel.
    pub to: Option<String>,
    /// Sending account; `None` for that of the last chat.
    pub account: Option<String>,
}

/// Chat to which a heartbeat's reply is delivered, if it reports something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HeartbeatTarget {
    /// The chat in which the owner wrote last.
    #[default]
    Last,
    /// No chat.
    Nowhere,
    /// This channel.
    Channel(String),
}

impl From<&str> for HeartbeatTarget {
    fn from(name: &str) -> Self {
        match name.trim().to_lowercase().as_str() {
            "" | "last" => Self::Last,
            "none" => Self::Nowhere,
            channel => Self::Channel(channel.to_owned()),
        }
    }
}

impl HeartbeatTarget {
    /// Returns the name in the config.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Last => "last",
            Self::Nowhere => "none",
            Self::Channel(channel) => channel,
        }
    }
}

impl HeartbeatConfig {
    /// Returns the default configuration.
    pub fn of(agent: AgentId) -> Self {
        let target = HeartbeatTarget::default();
        Self {
            agent,
            every: DEFAULT_INTERVAL,
            hours: None,
            prompt: None,
            ack_max: ACK_MAX,
            target,
            to: None,
            account: None,
        }
    }
}

/// Hours of a day in a time zone. They may extend past midnight.
#[derive(Debug, Clone, PartialEq)]
pub struct Hours {
    start: u16,
    end: u16,
    zone: TimeZone,
}

impl Hours {
    /// Parses hours from `HH:MM` to `HH:MM`; the end may be 24:00. `None` if one of them is not a time.
    pub fn parse(start: &str, end: &str, zone: TimeZone) -> Option<Self> {
        let start = minutes(start).filter(|start| *start < 24 * 60)?;
        Some(Self { start, end: minutes(end)?, zone })
    }

    /// True if a moment is within the hours. Equal start and end mean the whole day.
    fn contains(&self, now: u64) -> bool {
        let time =
            i64::try_from(now).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX);
        let time = time.to_zoned(self.zone.clone());
        let now = u16::from(time.hour().unsigned_abs()) * 60 + u16::from(time.minute().unsigned_abs());
        if self.start <= self.end {
            self.start == self.end || (self.start..self.end).contains(&now)
        } else {
            now >= self.start || now < self.end
        }
    }
}

fn minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let two_digits = |text: &str| (text.len() == 2).then(|| text.parse::<u16>().ok()).flatten();
    let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
    (minute < 60 && hour * 60 + minute <= 24 * 60).then_some(hour * 60 + minute)
}

/// Why a heartbeat is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SkipReason {
    Disabled,
    QuietHours,
    Busy,
    EmptyFile,
}

impl SkipReason {
    fn reason(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::QuietHours => "quiet-hours",
            Self::Busy => "requests-in-flight",
            Self::EmptyFile => "empty-heartbeat-file",
        }
    }
}

/// Inputs of the skip decision.
#[derive(Debug, Clone, Copy)]
struct SkipInput<'a> {
    is_enabled: bool,
    is_in_hours: bool,
    is_busy: bool,
    /// True if there are pending events for the session.
    has_event: bool,
    file: Option<&'a str>,
}

fn skip(input: SkipInput<'_>) -> Option<SkipReason> {
    match input {
        SkipInput { is_enabled: false, .. } => Some(SkipReason::Disabled),
        SkipInput { is_in_hours: false, .. } => Some(SkipReason::QuietHours),
        SkipInput { is_busy: true, .. } => Some(SkipReason::Busy),
        SkipInput { has_event: true, .. } => None,
        // An empty file means that there is nothing to do; a missing one has no meaning.
        SkipInput { file, .. } => file.is_some_and(is_empty).then_some(SkipReason::EmptyFile),
    }
}

/// True if a file contains only blanks, headings and empty list items.
fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| {
        let item = line.trim_start_matches(['-', '*', '+']).trim();
        let heading = line.trim_start_matches('#');
        let is_heading = heading.len() < line.len() && (heading.is_empty() || heading.starts_with(char::is_whitespace));
        is_heading || item.is_empty() || matches!(item, "[ ]" | "[x]" | "[X]" | "[]")
    })
}

/// Builds the prompt.
fn prompt(config: &HeartbeatConfig, file: Option<&str>, now: u64, zone: &TimeZone) -> String {
    let default_prompt = format!(
        "This is a heartbeat from a timer, not a message from a person. Look at recent events and at the text below, \
         and do what is asked for now. \
         Do not resume old tasks that nobody asks about. If there is nothing to do or to report, answer {TOKEN} and \
         nothing else."
    );
    let mut text = config.prompt.clone().filter(|prompt| !prompt.trim().is_empty()).unwrap_or(default_prompt);
    if let Some(file) = file.filter(|file| !is_empty(file)) {
        let cut = &file[..file.floor_char_boundary(MAX_FILE_CHARS)];
        text.push_str(&format!("\n\nHEARTBEAT.md:\n{}", cut.trim()));
        if cut.len() < file.len() {
            text.push_str("\n…(truncated; read the file for the rest)");
        }
    }
    format!("{text}\n\n{}", clock_line(now, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-15T00:00:00Z, a Sunday.
    const MIDNIGHT: u64 = 1_794_700_800_000;

    // Case 191, case 192, pitfall 74.
    #[test]
    fn a_heartbeat_is_skipped_for_the_first_matching_reason() {
        let idle =
            SkipInput { is_enabled: true, is_in_hours: true, is_busy: false, has_event: false, file: Some("- look") };
        assert_eq!(skip(idle), None);
        assert_eq!(skip(SkipInput { file: None, ..idle }), None);
        assert_eq!(skip(SkipInput { file: Some("# Later\n- "), ..idle }), Some(SkipReason::EmptyFile));
        // Events are delivered whatever the file says, but not to a busy session or in quiet hours.
        let with_event = SkipInput { has_event: true, file: Some(""), ..idle };
        assert_eq!(skip(with_event), None);
        assert_eq!(skip(SkipInput { is_busy: true, ..with_event }), Some(SkipReason::Busy));
        assert_eq!(skip(SkipInput { is_in_hours: false, is_busy: true, ..with_event }), Some(SkipReason::QuietHours));
        assert_eq!(skip(SkipInput { is_enabled: false, is_in_hours: false, ..with_event }), Some(SkipReason::Disabled));
    }

    #[test]
    fn a_heartbeat_file_of_headings_and_empty_items_is_empty() {
        for empty in ["", " \n\t\n", "# Tasks\n\n## Later\n", "- \n* [ ]\n+\n- [x]", "#"] {
            assert!(is_empty(empty), "{empty:?}");
        }
        for full in ["look", "# Tasks\n- [ ] mail", "#tag", "1.", "> "] {
            assert!(!is_empty(full), "{full:?}");
        }
    }

    #[test]
    fn hours_may_go_past_midnight() {
        let contains = |hours: &Hours, time: u64| hours.contains(MIDNIGHT + time * 60_000);
        let day = Hours::parse("08:00", "22:30", TimeZone::UTC).unwrap();
        assert_eq!([479, 480, 1349, 1350].map(|minute| contains(&day, minute)), [false, true, true, false]);
        let night = Hours::parse("22:00", "06:00", TimeZone::UTC).unwrap();
        assert_eq!([0, 359, 360, 1320].map(|minute| contains(&night, minute)), [true, true, false, true]);
        let late = Hours::parse("20:00", "24:00", TimeZone::UTC).unwrap();
        assert_eq!([1199, 1200, 1439].map(|minute| contains(&late, minute)), [false, true, true]);
        let tokyo = Hours::parse("08:00", "10:00", TimeZone::posix("JST-9").unwrap()).unwrap();
        assert_eq!([0, 60].map(|minute| contains(&tokyo, minute)), [true, false]);
        let always = Hours::parse("07:00", "07:00", TimeZone::UTC).unwrap();
        assert!(contains(&always, 0));
        for wrong in [("24:00", "08:00"), ("8:00", "09:00"), ("08:60", "09:00"), ("08:00", "24:01"), ("", "09:00")] {
            assert_eq!(Hours::parse(wrong.0, wrong.1, TimeZone::UTC), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_prompt_contains_the_file_and_the_time() {
        let config = HeartbeatConfig { prompt: Some("Look.".to_owned()), ..HeartbeatConfig::of(AgentId::main()) };
        let now = (MIDNIGHT, &TimeZone::UTC);
        assert_eq!(
            prompt(&config, Some("- water\n"), now.0, now.1),
            "Look.\n\nHEARTBEAT.md:\n- water\n\nCurrent time: Sunday, 2026-11-15 00:00 +00:00 (UTC)"
        );
        let long = prompt(&config, Some(&"ä".repeat(MAX_FILE_CHARS)), now.0, now.1);
        assert!(long.len() < MAX_FILE_CHARS + 200 && long.contains("…(truncated; read the file for the rest)"));
        assert!(prompt(&HeartbeatConfig::of(AgentId::main()), None, now.0, now.1).contains(TOKEN));
    }
}
