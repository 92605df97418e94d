//! When a job is due: a pure function of the job, its state and the time.
//!
//! A slot is a time at which a job is planned to run; it has nothing to do with the slots of the concurrency limit.
//!
//! Every slot ends exactly once: as ran, as missed (the gateway was down), or as skipped (it was up, but could not run
//! it). All slots up to `settledAtMs` have ended. A recurring slot that did not run within a minute is missed, even the
//! newest one: a morning report is not wanted in the evening. A one-time job runs up to an hour late.

use croner::{
    Cron as Pattern,
    parser::{CronParser, Seconds},
};
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};

use super::job::{AtSchedule, CronJob, JobSchedule};

/// How late a recurring slot may run.
const MAX_LATE_MS: u64 = 60_000;
/// How late a one-time slot may run.
const MAX_LATE_ONCE_MS: u64 = 3_600_000;
/// Minimum interval between two slots.
pub const MIN_INTERVAL_MS: u64 = 1_000;
/// Maximum number of missed slots of a cron expression that are counted one by one.
const MAX_COUNTED: u64 = 100_000;
/// How far the clock may be behind `settledAtMs`. Up to this limit, slots that have ended are not repeated after the
/// clock was set back. Beyond it, `settledAtMs` is considered wrong and is replaced by the current time.
const MAX_CLOCK_SKEW_MS: u64 = 24 * 3_600_000;

/// What to do about a job now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueSlots {
    /// Slots that were missed.
    pub missed: Option<MissedSlots>,
    /// The slot to run now.
    pub run: Option<u64>,
    /// The next slot.
    pub next: Option<u64>,
    /// The new `settledAtMs`: the time up to which all slots have ended.
    pub settled: Option<u64>,
}

/// Slots that ended without a run, because no gateway ran them in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedSlots {
    /// The oldest.
    pub first: u64,
    /// The newest.
    pub last: u64,
    /// Number of slots.
    pub count: u64,
    /// True if there may be more: above a limit they are not counted one by one.
    pub is_at_least: bool,
}

/// Why a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a time.
    #[error("schedule.at \"{0}\" is not a time; write it as 2026-11-15T08:30:00Z")]
    Time(String),
    /// Not a cron expression.
    #[error("schedule.expr \"{0}\" is not a cron expression ({1}); write five fields, as in \"0 7 * * 1-5\"")]
    Expression(String, String),
    /// Not a time zone.
    #[error("schedule.tz \"{0}\" is not a time zone; write one as Europe/Berlin")]
    Zone(String),
    /// An unsupported kind of schedule.
    #[error("schedule.kind is not supported; use at, every or cron")]
    Kind,
}

/// Returns what to do about a job now. `zone` is the machine's time zone, for expressions without one.
pub fn due(job: &CronJob, zone: &TimeZone, now: u64) -> Result<DueSlots, Error> {
    let slots = SlotSeries::of(job, zone)?;
    let settled = settled(job, now);
    let Some(passed) = slots.between(settled, now) else {
        let settled = job.state.settled_at_ms.map(|_| settled);
        return Ok(DueSlots { next: slots.after(settled.unwrap_or(0).max(now)), settled, ..DueSlots::default() });
    };
    let tolerance = if matches!(slots, SlotSeries::Once(_)) { MAX_LATE_ONCE_MS } else { MAX_LATE_MS };
    let is_in_time = now - passed.last <= tolerance;
    let missed = if is_in_time {
        passed.before_last.map(|last| MissedSlots { last, count: passed.count - 1, ..passed.missed() })
    } else {
        Some(passed.missed())
    };
    Ok(DueSlots { missed, run: is_in_time.then_some(passed.last), next: slots.after(now), settled: Some(passed.last) })
}

/// Returns the first slot after a moment.
pub fn next(job: &CronJob, zone: &TimeZone, after: u64) -> Result<Option<u64>, Error> {
    Ok(SlotSeries::of(job, zone)?.after(after))
}

/// Returns the time up to which all slots have ended. A job of OpenClaw has no such field, so the time is derived from
/// its next planned run or its last run.
fn settled(job: &CronJob, now: u64) -> u64 {
    let state = &job.state;
    let planned = state.next_run_at_ms.map(|next| next.saturating_sub(1));
    let settled = match (&job.schedule, state.settled_at_ms) {
        (_, Some(settled)) => settled,
        (JobSchedule::At(_), None) => state.last_run_at_ms.unwrap_or(0),
        (JobSchedule::Every(_) | JobSchedule::Cron(_) | JobSchedule::Other(_), None) => {
            planned.or(state.last_run_at_ms).unwrap_or(job.created_at_ms)
        }
    };
    if settled > now.saturating_add(MAX_CLOCK_SKEW_MS) { now } else { settled }
}

/// Slots of a schedule.
enum SlotSeries {
    Once(u64),
    Every { anchor: u64, every: u64 },
    Pattern(Box<Pattern>, TimeZone),
}

/// Slots in a time range.
struct SlotRange {
    first: u64,
    before_last: Option<u64>,
    last: u64,
    count: u64,
    is_at_least: bool,
}

impl SlotRange {
    fn missed(&self) -> MissedSlots {
        MissedSlots { first: self.first, last: self.last, count: self.count, is_at_least: self.is_at_least }
    }
}

impl SlotSeries {
    fn of(job: &CronJob, zone: &TimeZone) -> Result<Self, Error> {
        match &job.schedule {
            JobSchedule::At(at) => moment(at).map(Self::Once),
            JobSchedule::Every(every) => Ok(Self::Every {
                anchor: every.anchor_ms.unwrap_or(job.created_at_ms),
                every: every.every_ms.max(MIN_INTERVAL_MS),
            }),
            JobSchedule::Cron(cron) => {
                let zone = match cron.tz.as_deref().map(str::trim).filter(|tz| !tz.is_empty()) {
                    Some(tz) => TimeZone::get(tz).map_err(|_unknown| Error::Zone(tz.to_owned()))?,
                    None => zone.clone(),
                };
                let parser = CronParser::builder().seconds(Seconds::Optional).build();
                let pattern = parser
                    .parse(cron.expr.trim())
                    .map_err(|error| Error::Expression(cron.expr.clone(), error.to_string().to_lowercase()))?;
                Ok(Self::Pattern(Box::new(pattern), zone))
            }
            JobSchedule::Other(_) => Err(Error::Kind),
        }
    }

    /// Returns the first slot after a moment.
    fn after(&self, moment: u64) -> Option<u64> {
        match self {
            Self::Once(at) => (*at > moment).then_some(*at),
            Self::Every { anchor, .. } if moment < *anchor => Some(*anchor),
            Self::Every { anchor, every } => {
                let steps = (moment - anchor) / every + 1;
                steps.checked_mul(*every).and_then(|far| far.checked_add(*anchor))
            }
            Self::Pattern(pattern, zone) => {
                // Slots are whole seconds, so the one after the moment's second is after the moment.
                let second = zoned(moment, zone)?;
                let found = pattern.find_next_occurrence(&second, false).ok()?;
                ms(&found).filter(|slot| *slot > moment)
            }
        }
    }

    /// Returns the slots in the range `(after, until]`.
    fn between(&self, after: u64, until: u64) -> Option<SlotRange> {
        let first = self.after(after).filter(|first| *first <= until)?;
        match self {
            Self::Once(_) => Some(SlotRange { first, before_last: None, last: first, count: 1, is_at_least: false }),
            Self::Every { every, .. } => {
                let more = (until - first) / every;
                let last = first + more * every;
                let before_last = (more > 0).then(|| last - every);
                Some(SlotRange { first, before_last, last, count: more + 1, is_at_least: false })
            }
            Self::Pattern(pattern, zone) => {
                let mut passed = SlotRange { first, before_last: None, last: first, count: 1, is_at_least: false };
                while let Some(slot) = self.after(passed.last).filter(|slot| *slot <= until) {
                    if passed.count == MAX_COUNTED {
                        passed.is_at_least = true;
                        let back = |from: u64, inclusive| {
                            ms(&pattern.find_previous_occurrence(&zoned(from, zone)?, inclusive).ok()?)
                        };
                        passed.last = back(until, true).unwrap_or(slot);
                        passed.before_last = back(passed.last, false);
                        break;
                    }
                    passed.count += 1;
                    passed.before_last = Some(passed.last);
                    passed.last = slot;
                }
                Some(passed)
            }
        }
    }
}

/// Converts a moment, truncated to seconds.
fn zoned(at: u64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_second(i64::try_from(at / 1000).ok()?).ok()?.to_zoned(zone.clone()))
}

fn ms(at: &Zoned) -> Option<u64> {
    u64::try_from(at.timestamp().as_millisecond()).ok()
}

/// Parses a moment: a time with a zone, one without (UTC), a date, or milliseconds.
fn moment(at: &AtSchedule) -> Result<u64, Error> {
    let text = match (&at.at, at.at_ms) {
        (Some(text), _) => text.trim(),
        (None, Some(ms)) => return Ok(ms),
        (None, None) => "",
    };
    let utc = |time: civil::DateTime| time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    if text.len() > 8 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_too_long| Error::Time(text.to_owned()));
    }
    let parsed: Option<Timestamp> = text
        .parse()
        .ok()
        .or_else(|| text.parse().ok().and_then(utc))
        .or_else(|| text.parse::<civil::Date>().ok().and_then(|day| utc(day.at(0, 0, 0, 0))));
    let ms = parsed.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    ms.ok_or_else(|| Error::Time(text.to_owned()))
}

#[cfg(test)]
mod tests;
