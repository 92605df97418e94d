//! `usage.cost` and `sessions.usage*`: token usage and cost, from the totals stored with the runs.

use homard_agent::{
    hub::{UsageQuery, UsageSum, day_of},
    wire::run_trace::{daily_costs, date, day, group_by, usage_payload},
};
use homard_proto::{
    ErrorShape,
    message::{Message, Usage},
    method::{
        Params,
        usage::{CostParams, LogsParams, PeriodParams, TimeseriesParams},
    },
};
use serde_json::{Value, json};

use super::{session_key, unavailable};
use crate::router::{RpcCall, RpcResult};

/// Number of days reported if the request gives no period.
const DEFAULT_DAYS: u32 = 30;
/// Number of sessions that `sessions.usage` lists by default.
const DEFAULT_SESSIONS: usize = 50;
/// Maximum length of a message's text in characters.
const MAX_CONTENT_CHARS: usize = 500;

/// Returns usage per day.
pub(crate) async fn cost(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CostParams { days, start_date, end_date } = call.params()?;
    let (from, to) = period(days, start_date.as_deref(), end_date.as_deref(), call.server.hub.ambient().now_ms())?;
    let sums = call.server.hub.runs().usage(&UsageQuery::Days(from, to)).await.map_err(unavailable)?;
    Ok(daily_costs(&sums, to - from + 1, call.server.hub.ambient().now_ms()).into())
}

/// Returns usage per session.
pub(crate) async fn sessions(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let PeriodParams { days, start_date, end_date, key, limit } = call.params()?;
    let (hub, now) = (&call.server.hub, call.server.hub.ambient().now_ms());
    let (from, to) = period(days, start_date.as_deref(), end_date.as_deref(), now)?;
    let key = key.as_deref().map(|key| session_key(&call.server, "sessions.usage", key)).transpose()?;
    let mut sums = hub.runs().usage(&UsageQuery::Days(from, to)).await.map_err(unavailable)?;
    sums.retain(|sum| key.as_ref().is_none_or(|key| sum.subject.key == *key));
    let records = hub.sessions().list().await.map_err(unavailable)?;
    let mut by_session = group_by(&sums, |sum| &sum.subject.key);
    let rows = records.iter().filter_map(|(key, record)| {
        let (runs, usage) = by_session.remove(key)?;
        let mut usage_json = usage_payload(&usage);
        usage_json["runs"] = runs.into();
        Some(json!({
            "key": key, "sessionId": record.session_id, "updatedAt": record.updated_at, "agentId": key.agent(),
            "label": record.label, "modelProvider": record.model_provider, "model": record.model, "usage": usage_json,
        }))
    });
    let rows: Vec<_> = rows.take(limit.unwrap_or(DEFAULT_SESSIONS)).collect();
    let (runs, all) = group_by(&sums, |_| ()).remove(&()).unwrap_or_default();
    Ok(json!({
        "updatedAt": now, "startDate": date(from), "endDate": date(to), "sessions": rows, "totals": usage_payload(&all),
        "aggregates": aggregates(&sums, runs),
    })
    .into())
}

/// Builds the aggregates. Messages and tool calls are not counted individually; a run counts as one message.
fn aggregates(sums: &[UsageSum], runs: u64) -> Value {
    let list = |groups: Vec<(Value, (u64, Usage))>| -> Vec<Value> {
        let rows = groups.into_iter().map(|(mut json, (runs, usage))| {
            json["count"] = runs.into();
            json["totals"] = usage_payload(&usage);
            json
        });
        rows.collect()
    };
    let models = group_by(sums, |row| (&row.subject.provider, &row.subject.model));
    let models =
        models.into_iter().map(|((provider, model), sum)| (json!({"provider": provider, "model": model}), sum));
    let providers = group_by(sums, |row| &row.subject.provider);
    let providers = providers.into_iter().map(|(provider, sum)| (json!({"provider": provider}), sum));
    let agents = group_by(sums, |row| row.subject.key.agent());
    let agents = agents.into_iter().map(|(agent, sum)| (json!({"agentId": agent}), sum));
    let daily = group_by(sums, |row| row.subject.day).into_iter().map(|(day, (runs, usage))| {
        json!({
            "date": date(day), "tokens": usage_payload(&usage)["totalTokens"], "cost": usage.cost.total, "messages": runs,
            "toolCalls": 0, "errors": 0,
        })
    });
    json!({
        "messages": {"total": runs, "user": runs, "assistant": 0, "toolCalls": 0, "toolResults": 0, "errors": 0},
        "tools": {"totalCalls": 0, "uniqueTools": 0, "tools": []},
        "byModel": list(models.collect()), "byProvider": list(providers.collect()), "byAgent": list(agents.collect()),
        "byChannel": [], "daily": daily.collect::<Vec<_>>(),
    })
}

/// Returns the usage of each answer in a session.
pub(crate) async fn timeseries(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let TimeseriesParams { key } = call.params()?;
    let key = session_key(&call.server, TimeseriesParams::METHOD, &key)?;
    let found = call.server.hub.sessions().history(&key).await.map_err(unavailable)?;
    let Some((record, messages)) = found else { return Ok(json!({"sessionId": null, "points": []}).into()) };
    let (mut tokens, mut cost) = (0, 0.0);
    let points = messages.iter().filter_map(|message| {
        let Message::Assistant(assistant) = &**message else { return None };
        let usage = &assistant.usage;
        let total = usage.input + usage.output + usage.cache_read + usage.cache_write;
        tokens += total;
        cost += usage.cost.total;
        Some(json!({
            "timestamp": assistant.timestamp, "input": usage.input, "output": usage.output, "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write, "totalTokens": total, "cost": usage.cost.total,
            "cumulativeTokens": tokens, "cumulativeCost": cost,
        }))
    });
    let points: Vec<_> = points.collect();
    Ok(json!({"sessionId": record.session_id, "points": points}).into())
}

/// Returns the messages of a session with the usage of each.
pub(crate) async fn logs(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let LogsParams { key, limit } = call.params()?;
    let key = session_key(&call.server, LogsParams::METHOD, &key)?;
    let messages = call
        .server
        .hub
        .sessions()
        .history(&key)
        .await
        .map_err(unavailable)?
        .map(|(_, messages)| messages)
        .unwrap_or_default();
    let line = |message: &Message| {
        let truncate = |text: String| text.chars().take(MAX_CONTENT_CHARS).collect::<String>();
        match message {
            Message::User(user) => {
                Some(json!({"timestamp": user.timestamp, "role": "user", "content": truncate(user.content.text())}))
            }
            Message::Assistant(assistant) => Some(json!({
                "timestamp": assistant.timestamp, "role": "assistant", "content": truncate(assistant.text()),
                "tokens": assistant.usage.input + assistant.usage.output + assistant.usage.cache_read + assistant.usage.cache_write,
                "cost": assistant.usage.cost.total,
            })),
            Message::ToolResult(result) => {
                Some(json!({"timestamp": result.timestamp, "role": "toolResult", "content": result.tool_name}))
            }
            Message::Other(_) => None,
        }
    };
    let limit = limit.unwrap_or(200);
    let mut lines: Vec<_> = messages.iter().rev().filter_map(|message| line(message)).take(limit).collect();
    lines.reverse();
    Ok(json!({"logs": lines}).into())
}

/// Resolves the requested range of days, both ends included.
fn period(days: Option<u32>, start: Option<&str>, end: Option<&str>, now: u64) -> Result<(u32, u32), ErrorShape> {
    let today = day_of(now);
    let parse = |text: &str| -> Result<u32, ErrorShape> {
        day(text).ok_or_else(|| ErrorShape::invalid(format!("invalid date: {text}; write it as 2026-11-15")))
    };
    let to = end.map_or(Ok(today), parse)?;
    let from = match start {
        Some(date) => parse(date)?,
        None => (to + 1).saturating_sub(days.unwrap_or(DEFAULT_DAYS)),
    };
    Ok((from.min(to), to))
}
