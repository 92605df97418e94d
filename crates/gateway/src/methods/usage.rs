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

/// Default number of days.
const DEFAULT_DAYS: u32 = 30;
/// Default number of sessions.
const DEFAULT_SESSIONS: usize = 50;
/// Maximum length of a message's text in characters.
const MAX_CONTENT_CHARS: usize = 500;

/// Returns usage per day.
pub(crate) async fn cost(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CostParams { days, start_date, end_date } = call.params()?;
    let (from, to) = period(days, (start_date.as_deref(), end_date.as_deref()), call.server.hub.ambient().now_ms())?;
    let spent = call.server.hub.usage(&UsageQuery::Days(from, to)).await.map_err(unavailable)?;
    Ok(daily_costs(&spent, (to - from + 1, call.server.hub.ambient().now_ms())).into())
}

/// Returns usage per session.
pub(crate) async fn sessions(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let PeriodParams { days, start_date, end_date, key, limit } = call.params()?;
    let (hub, now) = (&call.server.hub, call.server.hub.ambient().now_ms());
    let (from, to) = period(days, (start_date.as_deref(), end_date.as_deref()), now)?;
    let key = key.as_deref().map(|key| session_key(&call.server, "sessions.usage", key)).transpose()?;
    let mut spent = hub.usage(&UsageQuery::Days(from, to)).await.map_err(unavailable)?;
    spent.retain(|one| key.as_ref().is_none_or(|key| one.subject.key == *key));
    let records = hub.sessions().await.map_err(unavailable)?;
    let mut taken = group_by(&spent, |one| &one.subject.key);
    let rows = records.iter().filter_map(|(key, record)| {
        let (runs, usage) = taken.remove(key)?;
        let mut told = usage_payload(&usage);
        told["runs"] = runs.into();
        Some(json!({
            "key": key, "sessionId": record.session_id, "updatedAt": record.updated_at, "agentId": key.agent(),
            "label": record.label, "modelProvider": record.model_provider, "model": record.model, "usage": told,
        }))
    });
    let rows: Vec<_> = rows.take(limit.unwrap_or(DEFAULT_SESSIONS)).collect();
    let (runs, all) = group_by(&spent, |_| ()).remove(&()).unwrap_or_default();
    Ok(json!({
        "updatedAt": now, "startDate": date(from), "endDate": date(to), "sessions": rows, "totals": usage_payload(&all),
        "aggregates": aggregates(&spent, runs),
    })
    .into())
}

/// Builds the aggregates. Messages and tool calls are not counted individually; a run counts as one message.
fn aggregates(spent: &[UsageSum], runs: u64) -> Value {
    let list = |taken: Vec<(Value, (u64, Usage))>| -> Vec<Value> {
        let told = taken.into_iter().map(|(mut told, (runs, usage))| {
            told["count"] = runs.into();
            told["totals"] = usage_payload(&usage);
            told
        });
        told.collect()
    };
    let models = group_by(spent, |one| (&one.subject.provider, &one.subject.model));
    let models =
        models.into_iter().map(|((provider, model), sum)| (json!({"provider": provider, "model": model}), sum));
    let providers = group_by(spent, |one| &one.subject.provider);
    let providers = providers.into_iter().map(|(provider, sum)| (json!({"provider": provider}), sum));
    let agents = group_by(spent, |one| one.subject.key.agent());
    let agents = agents.into_iter().map(|(agent, sum)| (json!({"agentId": agent}), sum));
    let daily = group_by(spent, |one| one.subject.day).into_iter().map(|(day, (runs, usage))| {
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
    let found = call.server.hub.history(&key).await.map_err(unavailable)?;
    let Some((record, messages)) = found else { return Ok(json!({"sessionId": null, "points": []}).into()) };
    let (mut tokens, mut cost) = (0, 0.0);
    let points = messages.iter().filter_map(|message| {
        let Message::Assistant(said) = &**message else { return None };
        let usage = &said.usage;
        let taken = usage.input + usage.output + usage.cache_read + usage.cache_write;
        tokens += taken;
        cost += usage.cost.total;
        Some(json!({
            "timestamp": said.timestamp, "input": usage.input, "output": usage.output, "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write, "totalTokens": taken, "cost": usage.cost.total,
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
    let messages = call.server.hub.history(&key).await.map_err(unavailable)?.map(|(_, said)| said).unwrap_or_default();
    let line = |message: &Message| {
        let short = |text: String| text.chars().take(MAX_CONTENT_CHARS).collect::<String>();
        match message {
            Message::User(user) => {
                Some(json!({"timestamp": user.timestamp, "role": "user", "content": short(user.content.text())}))
            }
            Message::Assistant(said) => Some(json!({
                "timestamp": said.timestamp, "role": "assistant", "content": short(said.text()),
                "tokens": said.usage.input + said.usage.output + said.usage.cache_read + said.usage.cache_write,
                "cost": said.usage.cost.total,
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
fn period(days: Option<u32>, (start, end): (Option<&str>, Option<&str>), now: u64) -> Result<(u32, u32), ErrorShape> {
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
