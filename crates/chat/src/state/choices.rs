//! Responses as the user sees them: the rows of pickers, and a run's timeline.

use serde_json::{Value, json};

use crate::{picker::Choice, sanitize, transcript::duration};

/// Returns the sessions of a list, without the open one.
pub(super) fn session_choices(payload: &Value, open: &str) -> Vec<Choice> {
    let rows = payload["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listed_at = payload["ts"].as_u64().unwrap_or_default();
    let choice = |row: &Value| {
        let key = row["key"].as_str()?;
        let names = ["label", "derivedTitle", "displayName"];
        let name = names.iter().find_map(|name| row[name].as_str()).map(sanitize::one_line);
        let short = key.strip_prefix("agent:").unwrap_or(key);
        let age = listed_at.saturating_sub(row["updatedAt"].as_u64().unwrap_or(listed_at));
        let model = row["model"].as_str().map(sanitize::one_line).unwrap_or_default();
        let preview = row["lastMessagePreview"].as_str().map(sanitize::one_line).unwrap_or_default();
        let facts = [format!("{} ago", duration(age / 60_000 * 60_000).replace(" 00s", "")), model, preview];
        let facts: Vec<_> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        Some(Choice {
            id: key.to_owned(),
            label: name.unwrap_or_else(|| sanitize::one_line(short)),
            description: facts.join(" · "),
        })
    };
    rows.iter().filter(|row| row["key"] != open).filter_map(choice).collect()
}

pub(super) fn model_choices(payload: &Value) -> Vec<Choice> {
    let rows = payload["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choice = |row: &Value| {
        let id = format!("{}/{}", row["provider"].as_str()?, row["id"].as_str()?);
        let window = row["contextWindow"].as_u64().map(|window| format!("{} tokens", tokens(window)));
        let reasoning = (row["reasoning"] == true).then(|| "reasoning".to_owned());
        let facts: Vec<_> = [window, reasoning].into_iter().flatten().collect();
        Some(Choice { label: sanitize::one_line(&id), id, description: facts.join(" · ") })
    };
    rows.iter().filter_map(choice).collect()
}

pub(super) fn agent_choices(payload: &Value) -> Vec<Choice> {
    let rows = payload["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choice = |row: &Value| {
        let id = row["id"].as_str()?.to_owned();
        let name = row["name"].as_str().or_else(|| row["identity"]["name"].as_str()).map(sanitize::one_line);
        let model = row["model"]["primary"].as_str().map(sanitize::one_line).unwrap_or_default();
        Some(Choice { label: name.map_or_else(|| id.clone(), |name| format!("{id} ({name})")), id, description: model })
    };
    rows.iter().filter_map(choice).collect()
}

/// Returns the model of a row, with its provider.
pub(super) fn model_name(row: &Value) -> Option<String> {
    let model = row["model"].as_str()?;
    let provider = row["modelProvider"].as_str().map(|provider| format!("{provider}/")).unwrap_or_default();
    Some(sanitize::one_line(&format!("{provider}{model}")))
}

/// Formats a number of tokens.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Renders the timeline of a run as Markdown.
pub(super) fn trace(payload: &Value) -> String {
    let run = &payload["run"];
    let text = |value: &Value| sanitize::one_line(value.as_str().unwrap_or_default());
    let total = duration(payload["totalMs"].as_u64().unwrap_or_default());
    let model = model_name(&json!({"model": run["model"], "modelProvider": run["provider"]})).unwrap_or_default();
    let mut lines = vec![format!("**Run** `{}`: {} in {total} {model}", text(&run["runId"]), text(&run["status"]))];
    lines.push(String::new());
    lines.push("| at | took | step |\n|---:|---:|---|".to_owned());
    for step in payload["steps"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let ms = |name: &str| duration(step[name].as_u64().unwrap_or_default());
        let known = ["atMs", "ms", "aside"];
        let facts = step.as_object().into_iter().flatten().filter(|(name, value)| {
            !known.contains(&name.as_str()) && (value.is_string() || value.is_number() || **value == true)
        });
        let facts: Vec<_> = facts
            .map(|(name, value)| match (name.as_str(), value) {
                ("what" | "kind" | "step" | "type", Value::String(text)) => sanitize::one_line(text),
                (_, Value::String(text)) => format!("{name} {}", sanitize::one_line(text)),
                (_, Value::Bool(_)) => name.clone(),
                _ => format!("{name} {value}"),
            })
            .collect();
        lines.push(format!("| {} | {} | {} |", ms("atMs"), ms("ms"), facts.join(", ").replace('|', "\\|")));
    }
    if let Some(error) = run["error"].as_str() {
        lines.push(format!("\nError: {}", sanitize::one_line(error)));
    }
    lines.join("\n")
}
