//! Payloads for timelines and token usage. Equal for all generations: only Homard has these methods.

use std::collections::BTreeMap;

use homard_proto::message::Usage;
use homard_store::{
    DeliveryState, Outcome, RunRow, RunState, TimelineSpan,
    usage::{UsageSum, day_of},
};
use serde_json::{Map, Value, json};

use crate::{
    ambient::iso,
    hub::{HeldRun, RunTrace},
};

/// Row of a run in lists.
pub fn run_row(row: &RunRow) -> Value {
    let mut told = json!({
        "runId": row.run, "sessionKey": row.key, "sessionId": row.session, "method": row.method,
        "principal": row.principal, "acceptedAt": row.accepted_at, "startedAt": row.started_at, "host": row.host,
    });
    let more = match &row.state {
        RunState::Accepted => json!({"status": "accepted"}),
        RunState::Running => json!({"status": "running"}),
        RunState::Absorbed(_) => json!({"status": "absorbed"}),
        RunState::Held => json!({"status": "held", "heldAt": row.hold.map(|hold| hold.held_at)}),
        RunState::Ended(ended) => {
            let status = match ended.outcome {
                Outcome::Done => "ok",
                Outcome::Aborted(_) => "aborted",
                Outcome::Failed(_) => "error",
            };
            json!({
                "status": status, "error": ended.outcome.error(), "endedAt": ended.ended_at,
                "durationMs": ended.ended_at.saturating_sub(row.accepted_at), "provider": ended.model.0,
                "model": ended.model.1, "usage": usage_payload(&ended.usage),
            })
        }
    };
    if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
        told.extend(more);
        told.retain(|_, value| !value.is_null());
    }
    told
}

/// Payload of a held run.
pub fn held_run(held: &HeldRun) -> Value {
    json!({
        "runId": held.run, "sessionKey": held.key, "message": held.message, "acceptedAt": held.accepted_at,
        "heldAt": held.held_at, "expiresAt": held.expires_at, "attempts": held.attempts,
    })
}

/// Row of a run in lists, read from a state directory without a gateway: no run is active.
pub fn offline_run_row(row: &RunRow) -> Value {
    let mut told = run_row(row);
    let at_rest = match row.state {
        RunState::Accepted => Some(("queued", "starts when the gateway starts")),
        RunState::Running | RunState::Absorbed(_) => Some(("interrupted", "resumes when the gateway starts")),
        RunState::Held | RunState::Ended(_) => None,
    };
    if let Some((status, next)) = at_rest {
        (told["status"], told["next"]) = (status.into(), next.into());
    }
    told
}

/// Payload of a run's timeline.
pub fn run_trace(life: &RunTrace) -> Value {
    let deliveries: Vec<_> = life
        .deliveries
        .iter()
        .map(|row| {
            let (status, more) = match &row.state {
                DeliveryState::Queued => ("queued", Value::Null),
                DeliveryState::Sending => ("sending", Value::Null),
                DeliveryState::Sent { provider_id } => ("sent", json!({"messageId": provider_id})),
                DeliveryState::Failed { retry_at, reason } => {
                    ("failed", json!({"retryAt": retry_at, "reason": reason}))
                }
                DeliveryState::Unknown => {
                    ("unknown", json!({"reason": "the process ended while the message was being sent"}))
                }
                DeliveryState::Dead { reason } => ("dead", json!({"reason": reason})),
            };
            let mut told = json!({
                "id": row.delivery.id, "channel": row.delivery.target.channel, "account": row.delivery.target.account,
                "to": row.delivery.target.to, "part": row.delivery.part, "queuedAt": row.delivery.at,
                "attempts": row.attempts, "status": status,
            });
            if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
                told.extend(more);
            }
            told
        })
        .collect();
    let waited = life.until.saturating_sub(life.row.accepted_at);
    json!({
        "run": run_row(&life.row), "until": life.until, "totalMs": waited, "accountedMs": life.steps.covered_ms(),
        "steps": life.steps.all().iter().map(|step| step_payload(step, life.row.accepted_at)).collect::<Vec<_>>(),
        "deliveries": deliveries,
    })
}

fn step_payload(step: &TimelineSpan, since: u64) -> Value {
    let mut told = Map::new();
    told.insert("atMs".to_owned(), step.from.saturating_sub(since).into());
    told.insert("ms".to_owned(), (step.to - step.from).into());
    told.insert("aside".to_owned(), step.what.is_aside().into());
    if let Ok(Value::Object(what)) = serde_json::to_value(&step.what) {
        told.extend(what);
    }
    Value::Object(told)
}

/// Token usage and cost, with OpenClaw's names.
pub fn usage_payload(usage: &Usage) -> Value {
    json!({
        "input": usage.input, "output": usage.output, "cacheRead": usage.cache_read, "cacheWrite": usage.cache_write,
        "totalTokens": usage.input + usage.output + usage.cache_read + usage.cache_write,
        "totalCost": usage.cost.total, "inputCost": usage.cost.input, "outputCost": usage.cost.output,
        "cacheReadCost": usage.cost.cache_read, "cacheWriteCost": usage.cost.cache_write, "missingCostEntries": 0,
    })
}

/// Formats a day as `2026-11-15`.
pub fn date(day: u32) -> String {
    iso(u64::from(day) * 24 * 60 * 60 * 1000).chars().take(10).collect()
}

/// Parses such a day.
pub fn day(name: &str) -> Option<u32> {
    let day: jiff::civil::Date = name.parse().ok()?;
    let moment = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
    Some(day_of(u64::try_from(moment).ok()?))
}

/// Groups usage by a key.
pub fn group_by<'a, K: Ord>(spent: &'a [UsageSum], key: impl Fn(&'a UsageSum) -> K) -> BTreeMap<K, (u64, Usage)> {
    let mut sums: BTreeMap<K, (u64, Usage)> = BTreeMap::new();
    for one in spent {
        let (runs, usage) = sums.entry(key(one)).or_default();
        *runs += one.runs;
        *usage += &one.usage;
    }
    sums
}

/// Payload with the usage of each day and in total.
pub fn daily_costs(spent: &[UsageSum], (days, now): (u32, u64)) -> Value {
    let daily = group_by(spent, |one| one.subject.day).into_iter().map(|(day, (_, usage))| {
        let mut told = usage_payload(&usage);
        told["date"] = date(day).into();
        told
    });
    let daily: Vec<_> = daily.collect();
    let (_, all) = group_by(spent, |_| ()).remove(&()).unwrap_or_default();
    json!({"updatedAt": now, "days": days, "daily": daily, "totals": usage_payload(&all)})
}
