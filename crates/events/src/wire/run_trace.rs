//! Payloads for timelines and token usage. Equal for all generations: only Homard has these methods.

use std::collections::BTreeMap;

use homard_proto::message::Usage;
use homard_runtime::ambient::iso;
use homard_store::{
    DeliveryState, RunRow, RunState, TimelineSpan,
    usage::{UsageSum, day_of},
};
use serde_json::{Map, Value, json};

use crate::trace::{HeldRun, RunTrace};

/// Row of a run in lists.
pub fn run_row(row: &RunRow) -> Value {
    let mut payload = json!({
        "runId": row.run, "sessionKey": row.key, "sessionId": row.session, "method": row.method,
        "principal": row.principal, "acceptedAt": row.accepted_at, "startedAt": row.started_at, "host": row.host,
    });
    payload["status"] = row.status().into();
    let state_fields = match &row.state {
        RunState::Accepted | RunState::Running | RunState::Absorbed(_) => Value::Null,
        RunState::Held => json!({"heldAt": row.hold.map(|hold| hold.held_at)}),
        RunState::Ended(ended) => json!({
            "error": ended.outcome.error(), "endedAt": ended.ended_at,
            "durationMs": ended.ended_at.saturating_sub(row.accepted_at), "provider": ended.model.0,
            "model": ended.model.1, "usage": usage_payload(&ended.usage),
        }),
    };
    if let (Value::Object(payload), Value::Object(state_fields)) = (&mut payload, state_fields) {
        payload.extend(state_fields);
    }
    if let Value::Object(payload) = &mut payload {
        payload.retain(|_, value| !value.is_null());
    }
    payload
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
    let mut payload = run_row(row);
    let offline_status = match row.state {
        RunState::Accepted => Some(("queued", "starts when the gateway starts")),
        RunState::Running | RunState::Absorbed(_) => Some(("interrupted", "resumes when the gateway starts")),
        RunState::Held | RunState::Ended(_) => None,
    };
    if let Some((status, next)) = offline_status {
        (payload["status"], payload["next"]) = (status.into(), next.into());
    }
    payload
}

/// Payload of a run's timeline.
pub fn run_trace(trace: &RunTrace) -> Value {
    let deliveries: Vec<_> = trace
        .deliveries
        .iter()
        .map(|row| {
            let (status, details) = match &row.state {
                DeliveryState::Queued => ("queued", Value::Null),
                DeliveryState::Sending => ("sending", Value::Null),
                DeliveryState::Sent { provider_id, .. } => {
                    ("sent", json!({"messageId": provider_id, "messageIds": row.state.message_ids()}))
                }
                DeliveryState::Failed { retry_at, reason } => {
                    ("failed", json!({"retryAt": retry_at, "reason": reason}))
                }
                DeliveryState::Unknown { reason } => {
                    ("unknown", json!({"reason": reason.as_deref().unwrap_or("the reason was not recorded")}))
                }
                DeliveryState::Dead { reason } => ("dead", json!({"reason": reason})),
            };
            let mut payload = json!({
                "id": row.delivery.id, "channel": row.delivery.target.channel, "account": row.delivery.target.account,
                "to": row.delivery.target.to, "part": row.delivery.part, "queuedAt": row.delivery.at,
                "attempts": row.attempts, "status": status,
            });
            if let (Value::Object(payload), Value::Object(details)) = (&mut payload, details) {
                payload.extend(details);
            }
            payload
        })
        .collect();
    let total_ms = trace.until.saturating_sub(trace.row.accepted_at);
    json!({
        "run": run_row(&trace.row), "until": trace.until, "totalMs": total_ms, "accountedMs": trace.steps.covered_ms(),
        "steps": trace.steps.all().iter().map(|step| step_payload(step, trace.row.accepted_at)).collect::<Vec<_>>(),
        "deliveries": deliveries,
    })
}

fn step_payload(step: &TimelineSpan, accepted_at: u64) -> Value {
    let mut payload = Map::new();
    payload.insert("atMs".to_owned(), step.from.saturating_sub(accepted_at).into());
    payload.insert("ms".to_owned(), (step.to - step.from).into());
    payload.insert("aside".to_owned(), step.what.is_aside().into());
    if let Ok(Value::Object(fields)) = serde_json::to_value(&step.what) {
        payload.extend(fields);
    }
    Value::Object(payload)
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
    let millis = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
    Some(day_of(u64::try_from(millis).ok()?))
}

/// Groups usage by a key.
pub fn group_by<'a, K: Ord>(rows: &'a [UsageSum], key: impl Fn(&'a UsageSum) -> K) -> BTreeMap<K, (u64, Usage)> {
    let mut sums: BTreeMap<K, (u64, Usage)> = BTreeMap::new();
    for row in rows {
        let (runs, usage) = sums.entry(key(row)).or_default();
        *runs += row.runs;
        *usage += &row.usage;
    }
    sums
}

/// Payload with the usage of each day and in total.
pub fn daily_costs(rows: &[UsageSum], days: u32, now: u64) -> Value {
    let daily = group_by(rows, |row| row.subject.day).into_iter().map(|(day, (_, usage))| {
        let mut payload = usage_payload(&usage);
        payload["date"] = date(day).into();
        payload
    });
    let daily: Vec<_> = daily.collect();
    let (_, total) = group_by(rows, |_| ()).remove(&()).unwrap_or_default();
    json!({"updatedAt": now, "days": days, "daily": daily, "totals": usage_payload(&total)})
}
