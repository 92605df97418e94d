//! What models took, summed up: by day, session and model.

use std::collections::BTreeMap;

use homard_proto::{SessionId, SessionKey, message::Usage};

use crate::Ended;

/// Sums that are older are forgotten, in days.
pub const KEEP_DAYS: u32 = 400;

/// What models took on one day in one session.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// What for.
    pub of: Of,
    /// How many runs it was.
    pub runs: u64,
    /// How much.
    pub usage: Usage,
}

/// What a sum is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Of {
    /// The day on which the runs ended, in days since the epoch.
    pub day: u32,
    /// The session.
    pub key: SessionKey,
    /// Its transcript.
    pub session: SessionId,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// Which sums are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Period {
    /// Those of these days, both included.
    Days(u32, u32),
    /// Those of one transcript.
    Session(SessionId),
}

impl Period {
    /// Whether a sum is looked for.
    pub fn holds(&self, of: &Of) -> bool {
        match self {
            Self::Days(from, to) => (*from..=*to).contains(&of.day),
            Self::Session(session) => of.session == *session,
        }
    }
}

/// The day of a moment, in days since the epoch.
pub fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / (24 * 60 * 60 * 1000)).unwrap_or(u32::MAX)
}

/// Sums as they grow.
#[derive(Debug, Clone, Default)]
pub struct Sums(BTreeMap<Of, (u64, Usage)>);

impl Sums {
    /// A run of this session has ended.
    pub fn add(&mut self, key: &SessionKey, session: Option<&SessionId>, ended: &Ended) {
        let Some(session) = session.filter(|_| ended.usage != Usage::default()) else { return };
        let (provider, model) = ended.model.clone();
        let of = Of { day: day_of(ended.ended_at), key: key.clone(), session: session.clone(), provider, model };
        let (runs, usage) = self.0.entry(of).or_default();
        *runs += 1;
        *usage += &ended.usage;
    }

    /// Those that are looked for.
    pub fn find(&self, period: &Period) -> Vec<Spent> {
        let found = self.0.iter().filter(|(of, _)| period.holds(of));
        found.map(|(of, (runs, usage))| Spent { of: of.clone(), runs: *runs, usage: usage.clone() }).collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Spent> {
        self.find(&Period::Days(0, u32::MAX))
    }

    /// Adds others.
    pub fn merge(&mut self, others: Self) {
        for (of, (runs, usage)) in others.0 {
            let (all, sum) = self.0.entry(of).or_default();
            *all += runs;
            *sum += &usage;
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
