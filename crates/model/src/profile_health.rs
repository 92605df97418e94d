//! Health of auth profiles and their models: last use, recent failures and cooldowns.
//!
//! Stored as OpenClaw's `usageStats`, with an additional map of models.
//!
//! | Failure | Cooldown of | Duration |
//! |---|---|---|
//! | rate limit, overload, timeout, no connection, broken answer, unknown model, wrong address or API, 403 | this model of the profile | 30 s, 1 min, 5 min |
//! | 401 | the profile | 30 s, 1 min, 5 min |
//! | no credit | the profile | 10 min |
//! | invalid request, context overflow, content filter | none | – |

use std::{collections::BTreeMap, fmt};

use homard_proto::Extra;
use homard_stdx::sync::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// Cooldowns after the first, the second and each further consecutive failure, in milliseconds.
pub const COOLDOWNS: [u64; 3] = [30_000, 60_000, 300_000];

/// Cooldown of an account without credit, in milliseconds.
pub const NO_CREDIT_COOLDOWN: u64 = 600_000;

/// Time without a failure after which earlier ones are forgotten, in milliseconds. Also the maximum cooldown, whatever
/// a provider asks for.
pub const FORGET_AFTER: u64 = 24 * 3_600_000;

/// Failure reasons, by OpenClaw's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FailureReason {
    Auth,
    Billing,
    Format,
    ModelNotFound,
    Overloaded,
    RateLimit,
    Timeout,
    Unknown,
}

impl FailureReason {
    /// Returns the reason of an error.
    pub fn of(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Connect | ErrorKind::Timeout => Self::Timeout,
            ErrorKind::RateLimit => Self::RateLimit,
            ErrorKind::Overloaded => Self::Overloaded,
            ErrorKind::Server | ErrorKind::Malformed | ErrorKind::Truncated => Self::Unknown,
            ErrorKind::Auth => Self::Auth,
            ErrorKind::Billing => Self::Billing,
            ErrorKind::Rejected if is_unknown_model(error) => Self::ModelNotFound,
            ErrorKind::Misconfigured => Self::ModelNotFound,
            ErrorKind::Rejected | ErrorKind::Overflow | ErrorKind::ContentFilter => Self::Format,
        }
    }

    /// Returns the name used on disk and in error messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::Format => "format",
            Self::ModelNotFound => "model_not_found",
            Self::Overloaded => "overloaded",
            Self::RateLimit => "rate_limit",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }
}

/// True if the error is about the model's name and not about the request: another model may succeed.
pub(crate) fn is_unknown_model(error: &Error) -> bool {
    error.kind == ErrorKind::Rejected && matches!(error.status, Some(404 | 410))
}

/// What a failure is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The profile, with all its models.
    Profile,
    /// One model of the profile.
    Model,
    /// None: the request is at fault.
    Request,
}

impl Blame {
    /// Determines what an error is held against.
    pub fn of(error: &Error) -> Self {
        match error.kind {
            // 403 is mostly about the model, 401 about the key.
            ErrorKind::Auth if error.status == Some(403) => Self::Model,
            ErrorKind::Auth | ErrorKind::Billing => Self::Profile,
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::RateLimit | ErrorKind::Overloaded => Self::Model,
            ErrorKind::Server | ErrorKind::Malformed | ErrorKind::Truncated => Self::Model,
            ErrorKind::Rejected if is_unknown_model(error) => Self::Model,
            ErrorKind::Misconfigured => Self::Model,
            ErrorKind::Rejected | ErrorKind::Overflow | ErrorKind::ContentFilter => Self::Request,
        }
    }
}

/// Health of all profiles by id: the value of `usageStats`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProfileHealth {
    profiles: BTreeMap<String, HealthStats>,
}

/// Health of a profile or of one of its models. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthStats {
    /// Time of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<u64>,
    /// End of the cooldown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_until: Option<u64>,
    /// Reason of the cooldown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_reason: Option<String>,
    /// Model that the cooldown is limited to; all models, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_model: Option<String>,
    /// End of the period in which it is disabled for lack of credit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_until: Option<u64>,
    /// Reason of being disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// Consecutive failures. Those during a cooldown have the same cause and are not counted again.
    pub error_count: u32,
    /// Number of failures since the last answer, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failure_counts: BTreeMap<String, u64>,
    /// Time of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure_at: Option<u64>,
    /// Health of its models that failed recently. OpenClaw does not know this field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, Self>,
    /// Unknown fields, kept for OpenClaw.
    #[serde(flatten)]
    pub extra: Extra,
}

/// End and reason of a cooldown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cooldown {
    /// End in milliseconds since the epoch.
    pub until: u64,
    /// Reason, by OpenClaw's names.
    pub reason: String,
}

impl ProfileHealth {
    /// Returns the health of a profile, if it was ever used.
    pub fn get(&self, profile: &str) -> Option<&HealthStats> {
        self.profiles.get(profile)
    }

    /// Returns all profiles that were ever used, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HealthStats)> {
        self.profiles.iter().map(|(id, stats)| (id.as_str(), stats))
    }

    /// Returns the cooldown of a model of a profile, if any: the one that ends last.
    pub fn cooldown(&self, profile: &str, model: &str, now: u64) -> Option<Cooldown> {
        let stats = self.profiles.get(profile)?;
        let applies = stats.cooldown_model.as_deref().is_none_or(|limited_to| limited_to == model);
        let cooldown = |until: Option<u64>, reason: &Option<String>| {
            let reason = reason.clone().unwrap_or_else(|| FailureReason::Unknown.as_str().to_owned());
            until.filter(|until| *until > now).map(|until| Cooldown { until, reason })
        };
        let model_stats = stats.models.get(model);
        let cooldowns = [
            cooldown(stats.disabled_until, &stats.disabled_reason),
            cooldown(stats.cooldown_until.filter(|_| applies), &stats.cooldown_reason),
            model_stats.and_then(|model_stats| cooldown(model_stats.cooldown_until, &model_stats.cooldown_reason)),
        ];
        cooldowns.into_iter().flatten().max_by_key(|cooldown| cooldown.until)
    }

    /// Returns why a model of a profile failed last, if it has not answered since. Failures are forgotten after
    /// [`FORGET_AFTER`].
    pub fn failing(&self, profile: &str, model: &str, now: u64) -> Option<String> {
        let stats = self.profiles.get(profile)?;
        let reason = |stats: &HealthStats| {
            let is_fresh = stats.last_failure_at.is_some_and(|at| now.saturating_sub(at) <= FORGET_AFTER);
            let reason = stats.disabled_reason.as_ref().or(stats.cooldown_reason.as_ref());
            let reason = reason.cloned().unwrap_or_else(|| FailureReason::Unknown.as_str().to_owned());
            (is_fresh && stats.error_count > 0).then_some(reason)
        };
        stats.models.get(model).and_then(reason).or_else(|| reason(stats))
    }

    /// Records a failure that is not retried, and starts or extends the cooldown of the profile or of its model. A
    /// failure caused by the request itself is ignored.
    pub fn failed(&mut self, profile: &str, model: &str, error: &Error, now: u64) {
        let blame = Blame::of(error);
        if blame == Blame::Request {
            return;
        }
        let stats = self.profiles.entry(profile.to_owned()).or_default();
        stats.unfold();
        stats.count(FailureReason::of(error), now);
        match blame {
            Blame::Profile => stats.extend_cooldown(error, now),
            Blame::Model => {
                let model_stats = stats.models.entry(model.to_owned()).or_default();
                model_stats.count(FailureReason::of(error), now);
                model_stats.extend_cooldown(error, now);
            }
            Blame::Request => {}
        }
        stats.fold(now);
    }

    /// Records an answer: clears failures of the profile and this model. Cooldowns of other models continue.
    ///
    /// Only a complete answer counts; one that failed must not clear the cooldown it caused.
    pub fn succeeded(&mut self, profile: &str, model: &str, now: u64) {
        let stats = self.profiles.entry(profile.to_owned()).or_default();
        stats.unfold();
        stats.models.remove(model);
        let HealthStats { models, extra, .. } = std::mem::take(stats);
        *stats = HealthStats { last_used: Some(now), models, extra, ..HealthStats::default() };
        stats.fold(now);
    }
}

impl HealthStats {
    /// Moves a cooldown of one model from the profile's fields to the model's.
    fn unfold(&mut self) {
        if let Some(model) = self.cooldown_model.take() {
            let (until, reason) = (self.cooldown_until.take(), self.cooldown_reason.take());
            let model_stats = self.models.entry(model).or_default();
            if model_stats.cooldown_until < until {
                (model_stats.cooldown_until, model_stats.cooldown_reason) = (until, reason);
            }
        }
    }

    /// Copies the longest cooldown of a model to the profile's fields, which OpenClaw reads, unless the whole profile
    /// is in cooldown.
    fn fold(&mut self, now: u64) {
        let longest = self.models.iter().max_by_key(|(_, model_stats)| model_stats.cooldown_until);
        if let Some((model, model_stats)) = longest
            && model_stats.cooldown_until > Some(now)
            && self.cooldown_until <= Some(now)
        {
            self.cooldown_until = model_stats.cooldown_until;
            self.cooldown_reason.clone_from(&model_stats.cooldown_reason);
            self.cooldown_model = Some(model.clone());
        }
    }

    fn count(&mut self, reason: FailureReason, now: u64) {
        if self.last_failure_at.is_some_and(|last| now.saturating_sub(last) > FORGET_AFTER) {
            self.error_count = 0;
            self.failure_counts.clear();
        }
        self.last_failure_at = Some(now);
        *self.failure_counts.entry(reason.as_str().to_owned()).or_default() += 1;
    }

    /// Extends the cooldown, never shortens it.
    fn extend_cooldown(&mut self, error: &Error, now: u64) {
        let reason = FailureReason::of(error);
        let requested = error.retry_after.map_or(0, homard_stdx::time::millis);
        let (until, why) = if reason == FailureReason::Billing {
            (&mut self.disabled_until, &mut self.disabled_reason)
        } else {
            (&mut self.cooldown_until, &mut self.cooldown_reason)
        };
        let is_cooling_down = until.is_some_and(|until| until > now);
        if !is_cooling_down {
            self.error_count = self.error_count.saturating_add(1);
        }
        let step = match (reason, is_cooling_down) {
            (FailureReason::Billing, _) => NO_CREDIT_COOLDOWN,
            (_, true) => 0,
            (_, false) => COOLDOWNS[(self.error_count.max(1) as usize - 1).min(COOLDOWNS.len() - 1)],
        };
        let end = now.saturating_add(step.max(requested).min(FORGET_AFTER));
        if until.is_none_or(|until| until < end) {
            *until = Some(end);
            *why = Some(reason.as_str().to_owned());
        }
    }
}

/// The shared [`ProfileHealth`] of all runs, with a callback that persists it.
pub struct HealthTracker {
    health: Mutex<ProfileHealth>,
    persist: Box<dyn Fn(&ProfileHealth) + Send + Sync>,
}

impl fmt::Debug for HealthTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthTracker").field("standing", &self.health).finish_non_exhaustive()
    }
}

impl HealthTracker {
    /// Creates a tracker with this initial state; `persist` is called on each change and must not block.
    pub fn new(health: ProfileHealth, persist: impl Fn(&ProfileHealth) + Send + Sync + 'static) -> Self {
        Self { health: Mutex::new(health), persist: Box::new(persist) }
    }

    /// Returns a copy of the current state.
    pub fn snapshot(&self) -> ProfileHealth {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ProfileHealth> {
        // A panic elsewhere leaves at worst one failure uncounted.
        self.health.lock()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ProfileHealth)) {
        let mut health = self.lock();
        change(&mut health);
        (self.persist)(&health);
    }
}

impl Default for HealthTracker {
    /// Creates an empty tracker that is not persisted.
    fn default() -> Self {
        Self::new(ProfileHealth::default(), |_| {})
    }
}

#[cfg(test)]
mod tests;
