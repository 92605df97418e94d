//! Queue settings, and which of their sources apply.

use std::{fmt, time::Duration};

use homard_proto::session::{Record, RecordField};
use serde_json::Value;

/// Maximum debounce: a year. Larger values could overflow a clock.
pub const MAX_DEBOUNCE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Queue mode: what happens to a message that arrives during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueMode {
    /// Steered into the run.
    Steer,
    /// Gets a run of its own afterwards.
    Followup,
    /// Gets one run afterwards, together with other queued messages.
    Collect,
    /// Steered into the run, and gets a run of its own afterwards.
    SteerBacklog,
    /// Aborts the run and replaces it.
    Interrupt,
}

impl QueueMode {
    /// All modes.
    pub const ALL: [Self; 5] = [Self::Steer, Self::Followup, Self::Collect, Self::SteerBacklog, Self::Interrupt];

    /// Parses a mode or one of its aliases, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name.trim().to_lowercase().as_str() {
            "steer" | "steering" | "queue" | "queued" => Self::Steer,
            "followup" | "followups" | "follow-up" | "follow-ups" => Self::Followup,
            "collect" | "coalesce" => Self::Collect,
            "steer-backlog" | "steer+backlog" | "steer_backlog" => Self::SteerBacklog,
            "interrupt" | "interrupts" | "abort" => Self::Interrupt,
            _ => return None,
        })
    }

    /// Returns the canonical name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::SteerBacklog => "steer-backlog",
            Self::Interrupt => "interrupt",
        }
    }
}

/// Which message is dropped when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPolicy {
    /// The oldest, silently.
    Old,
    /// The new one.
    New,
    /// The oldest, but a line of it is kept in a summary.
    Summarize,
}

impl DropPolicy {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Old, Self::New, Self::Summarize];

    /// Parses a rule or one of its aliases, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name.trim().to_lowercase().as_str() {
            "old" | "oldest" => Self::Old,
            "new" | "newest" => Self::New,
            "summarize" | "summary" => Self::Summarize,
            _ => return None,
        })
    }

    /// Returns the canonical name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
            Self::Summarize => "summarize",
        }
    }
}

/// Queue settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Queue mode.
    pub mode: QueueMode,
    /// Quiet time before queued messages get their run.
    pub debounce: Duration,
    /// Maximum number of queued messages; at least one.
    pub cap: usize,
    /// Which message is dropped when the queue is full.
    pub drop: DropPolicy,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { mode: QueueMode::Steer, debounce: Duration::from_millis(500), cap: 20, drop: DropPolicy::Summarize }
    }
}

/// Partial queue settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueOverrides {
    /// See [`QueueSettings::mode`].
    pub mode: Option<QueueMode>,
    /// See [`QueueSettings::debounce`].
    pub debounce: Option<Duration>,
    /// See [`QueueSettings::cap`].
    pub cap: Option<usize>,
    /// See [`QueueSettings::drop`].
    pub drop: Option<DropPolicy>,
}

/// Returns the effective settings of a message: its own, else its session's, else its channel's, else the configured
/// ones.
pub fn resolve(
    inline: &QueueOverrides,
    session: &QueueOverrides,
    channel: &QueueOverrides,
    config: &QueueOverrides,
) -> QueueSettings {
    let QueueOverrides { mode, debounce, cap, drop } = inline.or(session).or(channel).or(config);
    let defaults = QueueSettings::default();
    QueueSettings {
        mode: mode.unwrap_or(defaults.mode),
        debounce: debounce.unwrap_or(defaults.debounce).min(MAX_DEBOUNCE),
        cap: cap.unwrap_or(defaults.cap).max(1),
        drop: drop.unwrap_or(defaults.drop),
    }
}

const MODE: &str = "queueMode";
const DEBOUNCE: &str = "queueDebounceMs";
const CAP: &str = "queueCap";
const DROP: &str = "queueDrop";

impl QueueOverrides {
    /// Fields of a record that clear all settings.
    pub const CLEARED: [RecordField; 4] = [(MODE, None), (DEBOUNCE, None), (CAP, None), (DROP, None)];

    /// Fills unset values from others.
    fn or(&self, others: &Self) -> Self {
        Self {
            mode: self.mode.or(others.mode),
            debounce: self.debounce.or(others.debounce),
            cap: self.cap.or(others.cap),
            drop: self.drop.or(others.drop),
        }
    }

    /// Returns the fields of a record for the values that are set.
    pub fn fields(&self) -> Vec<RecordField> {
        let fields = [
            (MODE, self.mode.map(|mode| mode.name().into())),
            (DEBOUNCE, self.debounce.map(|debounce| Value::from(debounce.as_millis() as u64))),
            (CAP, self.cap.map(Value::from)),
            (DROP, self.drop.map(|drop| drop.name().into())),
        ];
        fields.into_iter().filter(|(_, value)| value.is_some()).collect()
    }
}

impl From<&Record> for QueueOverrides {
    /// Reads the settings of a session. Invalid values are ignored.
    fn from(record: &Record) -> Self {
        let text = |name| record.extra.get(name).and_then(Value::as_str);
        let number = |name| record.extra.get(name).and_then(Value::as_f64);
        Self {
            mode: text(MODE).and_then(QueueMode::parse),
            // Float casts saturate, so the result is never negative.
            debounce: number(DEBOUNCE).map(|ms| Duration::from_millis(ms as u64).min(MAX_DEBOUNCE)),
            cap: number(CAP).map(|cap| cap as usize),
            drop: text(DROP).and_then(DropPolicy::parse),
        }
    }
}

impl fmt::Display for QueueOverrides {
    /// Formats the arguments of `/queue`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = [
            self.mode.map(|mode| mode.name().to_owned()),
            self.debounce.map(|debounce| format!("debounce:{}ms", debounce.as_millis())),
            self.cap.map(|cap| format!("cap:{cap}")),
            self.drop.map(|drop| format!("drop:{}", drop.name())),
        ];
        f.write_str(&arguments.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for QueueSettings {
    /// Formats the arguments of `/queue`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, debounce, cap, drop } = *self;
        QueueOverrides { mode: Some(mode), debounce: Some(debounce), cap: Some(cap), drop: Some(drop) }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*, sample::select};
    use serde_json::json;

    use super::*;

    /// Arbitrary settings.
    fn overrides() -> impl Strategy<Value = QueueOverrides> {
        let debounce = (0..=MAX_DEBOUNCE.as_millis() as u64).prop_map(Duration::from_millis);
        let parts = (
            option::of(select(QueueMode::ALL.to_vec())),
            option::of(debounce),
            option::of(1..1_000_000_000_usize),
            option::of(select(DropPolicy::ALL.to_vec())),
        );
        parts.prop_map(|(mode, debounce, cap, drop)| QueueOverrides { mode, debounce, cap, drop })
    }

    fn record(mut fields: Value) -> Record {
        fields["sessionId"] = "s".into();
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn queue_modes_have_aliases() {
        for (mode, names) in [
            (QueueMode::Steer, "steer steering queue queued STEER"),
            (QueueMode::Followup, "followup followups follow-up follow-ups"),
            (QueueMode::Collect, "collect coalesce Collect"),
            (QueueMode::SteerBacklog, "steer-backlog steer+backlog steer_backlog"),
            (QueueMode::Interrupt, "interrupt interrupts abort"),
        ] {
            for name in names.split(' ') {
                assert_eq!(QueueMode::parse(name), Some(mode), "{name}");
            }
            assert_eq!(QueueMode::parse(mode.name()), Some(mode));
        }
        assert_eq!(QueueMode::parse("bogus"), None);
    }

    #[test]
    fn drop_policies_have_aliases() {
        let words = ["old", "oldest", "new", "Newest", "summarize", "summary", "none"];
        let rules = [Some(DropPolicy::Old), Some(DropPolicy::New), Some(DropPolicy::Summarize)];
        let expected: Vec<_> = rules.into_iter().flat_map(|rule| [rule, rule]).chain([None]).collect();
        assert_eq!(words.map(DropPolicy::parse).to_vec(), expected);
    }

    #[test]
    fn each_setting_comes_from_the_most_specific_source() {
        let none = QueueOverrides::default();
        let inline = QueueOverrides { mode: Some(QueueMode::Interrupt), ..none };
        let session = QueueOverrides { mode: Some(QueueMode::Collect), cap: Some(0), ..none };
        let channel =
            QueueOverrides { mode: Some(QueueMode::Followup), cap: Some(5), debounce: Some(Duration::MAX), ..none };
        let config = QueueOverrides { debounce: Some(Duration::ZERO), drop: Some(DropPolicy::Old), ..none };
        assert_eq!(
            resolve(&inline, &session, &channel, &config),
            QueueSettings { mode: QueueMode::Interrupt, debounce: MAX_DEBOUNCE, cap: 1, drop: DropPolicy::Old }
        );
        assert_eq!(
            resolve(&none, &none, &none, &config),
            QueueSettings { mode: QueueMode::Steer, debounce: Duration::ZERO, cap: 20, drop: DropPolicy::Old }
        );
        let standard = QueueSettings {
            mode: QueueMode::Steer,
            debounce: Duration::from_millis(500),
            cap: 20,
            drop: DropPolicy::Summarize,
        };
        assert_eq!(resolve(&none, &none, &none, &none), standard);
    }

    #[test]
    fn records_of_openclaw_are_parsed() {
        let read = |fields| QueueOverrides::from(&record(fields));
        assert_eq!(
            read(json!({"queueMode": "queue", "queueDebounceMs": 12.7, "queueCap": 2.9, "queueDrop": "oldest"})),
            QueueOverrides {
                mode: Some(QueueMode::Steer),
                debounce: Some(Duration::from_millis(12)),
                cap: Some(2),
                drop: Some(DropPolicy::Old),
            }
        );
        assert_eq!(
            read(json!({"queueMode": "bogus", "queueDebounceMs": -5, "queueCap": -1, "queueDrop": 7})),
            QueueOverrides { debounce: Some(Duration::ZERO), cap: Some(0), ..QueueOverrides::default() }
        );
        assert_eq!(read(json!({"queueMode": null, "queueCap": "3"})), QueueOverrides::default());
    }

    proptest! {
        #[test]
        fn overrides_round_trip_through_a_record(expected in overrides()) {
            let fields: serde_json::Map<_, _> =
                expected.fields().into_iter().map(|(name, value)| (name.to_owned(), value.unwrap())).collect();
            prop_assert_eq!(QueueOverrides::from(&record(fields.into())), expected);
        }
    }
}
