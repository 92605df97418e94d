//! Token usage summed by day, session and model.

use std::collections::BTreeMap;

use homard_proto::{SessionId, SessionKey, message::Usage};

use crate::EndRecord;

/// Age in days after which sums are deleted.
pub const KEEP_DAYS: u32 = 400;

/// Token usage of one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageSum {
    /// Subject.
    pub subject: UsageSubject,
    /// Number of runs.
    pub runs: u64,
    /// Token usage and cost.
    pub usage: Usage,
}

/// Subject of a sum.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageSubject {
    /// Day on which the runs ended, in days since the epoch.
    pub day: u32,
    /// Session key.
    pub key: SessionKey,
    /// Session id.
    pub session: SessionId,
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
}

/// Query for sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageQuery {
    /// Sums of these days, both inclusive.
    Days(u32, u32),
    /// Sums of one session id.
    Session(SessionId),
}

impl UsageQuery {
    /// True if a sum matches the query.
    pub fn matches(&self, subject: &UsageSubject) -> bool {
        match self {
            Self::Days(from, to) => (*from..=*to).contains(&subject.day),
            Self::Session(session) => subject.session == *session,
        }
    }
}

/// Returns the day of a time, in days since the epoch.
pub fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / (24 * 60 * 60 * 1000)).unwrap_or(u32::MAX)
}

/// Accumulated sums.
#[derive(Debug, Clone, Default)]
pub struct UsageSums(BTreeMap<UsageSubject, (u64, Usage)>);

impl UsageSums {
    /// Adds the usage of an ended run.
    pub fn add(&mut self, key: &SessionKey, session: Option<&SessionId>, ended: &EndRecord) {
        let Some(session) = session.filter(|_| ended.usage != Usage::default()) else { return };
        let (provider, model) = ended.model.clone();
        let subject =
            UsageSubject { day: day_of(ended.ended_at), key: key.clone(), session: session.clone(), provider, model };
        let (runs, usage) = self.0.entry(subject).or_default();
        *runs += 1;
        *usage += &ended.usage;
    }

    /// Returns the sums that match a query.
    pub fn query(&self, period: &UsageQuery) -> Vec<UsageSum> {
        let matching = self.0.iter().filter(|(subject, _)| period.matches(subject));
        matching
            .map(|(subject, (runs, usage))| UsageSum { subject: subject.clone(), runs: *runs, usage: usage.clone() })
            .collect()
    }

    /// Returns all sums.
    pub fn all(&self) -> Vec<UsageSum> {
        self.query(&UsageQuery::Days(0, u32::MAX))
    }

    /// Adds other sums.
    pub fn merge(&mut self, others: Self) {
        for (subject, (runs, usage)) in others.0 {
            let (run_count, total) = self.0.entry(subject).or_default();
            *run_count += runs;
            *total += &usage;
        }
    }

    /// True if there are no sums.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
