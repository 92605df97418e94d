//! Formats a run's timeline for the terminal.

use homard_agent::{Ambient, ambient::iso, shortening};
use homard_store::timeline::Shortened;
use serde::Deserialize;
use serde_json::Value;

use crate::render;

/// Width of the bars in characters.
const WIDTH: u64 = 24;

/// Formats the whole timeline: the origin, the steps, the deliveries.
pub(super) fn whole(life: &Value, has_bars: bool) -> String {
    let run = &life["run"];
    let mut text = vec![head(run, number(life, "totalMs"))];
    text.extend(prompt(life));
    text.extend(shortened(life));
    let mut rows = vec![titles(has_bars)];
    let total = number(life, "totalMs").max(1);
    rows.extend(list_of(life, "steps").iter().map(|step| row(step, total, has_bars)));
    text.push(String::new());
    text.push(render::table(&rows));
    let (named, all) = (number(life, "accountedMs"), number(life, "totalMs"));
    if named != all {
        text.push(format!("{} of {} are accounted for", time(named), time(all)));
    }
    let sent: Vec<_> = list_of(life, "deliveries").iter().map(delivery).collect();
    if !sent.is_empty() {
        text.extend([String::new(), "On channels:".to_owned()]);
        text.extend(sent);
    }
    text.join("\n")
}

/// Describes the current step of a run in one line.
pub(super) fn now(life: &Value) -> String {
    let last = list_of(life, "steps").iter().rfind(|step| step["aside"] == false).map(words).unwrap_or_default();
    format!("{}: {} since {}", word(&life["run"], "status"), last, time(number(life, "totalMs")))
}

/// Formats runs as a table.
pub(super) fn list(runs: &[Value]) -> String {
    let titles = ["RUN", "WHEN", "STATUS", "TOOK", "SESSION", "MODEL", "COST"].map(str::to_owned).to_vec();
    let now = Ambient::system().now_ms();
    let rows = runs.iter().map(|run| {
        let cost = run["usage"]["totalCost"].as_f64().map(money).unwrap_or_default();
        let took = run.get("durationMs").and_then(Value::as_u64).map(time).unwrap_or_default();
        let model = [word(run, "provider"), word(run, "model")].into_iter().filter(|part| !part.is_empty());
        vec![
            word(run, "runId"),
            render::age(now, number(run, "acceptedAt")),
            word(run, "status"),
            took,
            word(run, "sessionKey"),
            model.collect::<Vec<_>>().join("/"),
            cost,
        ]
    });
    render::table(&std::iter::once(titles).chain(rows).collect::<Vec<_>>())
}

fn head(run: &Value, total: u64) -> String {
    let mut text = format!(
        "run {}  {} after {}\nin {}, received {} by {} from {}",
        word(run, "runId"),
        word(run, "status"),
        time(total),
        word(run, "sessionKey"),
        iso(number(run, "acceptedAt")),
        word(run, "method"),
        word(run, "principal"),
    );
    if let Some(next) = run["next"].as_str() {
        text.push_str(&format!("\nit {}", render::harmless(next)));
    }
    if let Some(held_at) = run["heldAt"].as_u64() {
        let id = word(run, "runId");
        text.push_str(&format!(
            "\nheld since {} after several crashes in a row; continue it with: homard runs release {id}",
            iso(held_at)
        ));
    }
    if let Some(host) = run["host"].as_str() {
        text.push_str(&format!("\nits message was answered in run {}", render::harmless(host)));
    }
    if let Some(error) = run["error"].as_str() {
        text.push_str(&format!("\nerror: {}", render::harmless(error)));
    }
    if let Some(usage) = run["usage"].as_object().filter(|usage| usage["totalTokens"] != 0) {
        let count = |name: &str| usage[name].as_u64().unwrap_or_default();
        let cost = usage["totalCost"].as_f64().unwrap_or_default();
        text.push_str(&format!(
            "\n{} tokens: {} input ({} cached), {} output; {}",
            count("totalTokens"),
            count("input") + count("cacheRead") + count("cacheWrite"),
            count("cacheRead"),
            count("output"),
            money(cost),
        ));
    }
    text
}

/// Describes the first prompt by size.
fn prompt(life: &Value) -> Vec<String> {
    let first = list_of(life, "steps").iter().find(|step| step["step"] == "model");
    let Some(prompt) = first.map(|step| &step["prompt"]).filter(|prompt| number(prompt, "tokens") > 0) else {
        return Vec::new();
    };
    let count = |name: &str| number(prompt, name);
    let mut lines = vec![format!(
        "prompt: {} characters of system prompt, {} tools, {} messages; about {} tokens",
        count("system"),
        count("tools"),
        count("messages"),
        count("tokens"),
    )];
    lines.push(match prompt["changed"].as_str() {
        None => "cache: unchanged up to the new messages".to_owned(),
        Some("") => "cache: first request of this session since it was opened".to_owned(),
        Some(changed) => format!("cache: valid up to the first change: {}", render::harmless(changed)),
    });
    let sections = prompt["sections"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sections: Vec<_> = sections
        .iter()
        .map(|section| {
            format!("{} {}", section[0].as_str().unwrap_or_default(), section[1].as_u64().unwrap_or_default())
        })
        .collect();
    if !sections.is_empty() {
        lines.push(format!("sections: {}", sections.join(", ")));
    }
    lines
}

/// Describes how the prompts of a run were shortened, for each model.
fn shortened(life: &Value) -> Vec<String> {
    let steps = list_of(life, "steps").iter().filter(|step| step["step"] == "model");
    let lines = steps.filter_map(|step| {
        let shortened = Shortened::deserialize(step["prompt"].get("shortened")?).ok()?;
        let model = format!("{}/{}", word(step, "provider"), word(step, "model"));
        let (what, remedy) = (shortening::explain(&shortened, &model), shortening::remedy(&shortened, &model));
        Some(render::harmless(&format!("shortened: {what}; {remedy}")))
    });
    lines.collect()
}

fn titles(has_bars: bool) -> Vec<String> {
    let titles = ["AT", "TOOK", "", "STEP"].map(str::to_owned).into_iter();
    titles.filter(|title| has_bars || !title.is_empty()).collect()
}

fn row(step: &Value, total: u64, has_bars: bool) -> Vec<String> {
    let (at, took) = (number(step, "atMs"), number(step, "ms"));
    let is_aside = step["aside"] == true;
    let mut row = vec![time(at), time(took)];
    if has_bars {
        row.push(bar(at, took, total, is_aside));
    }
    row.push(format!("{}{}", if is_aside { "  · " } else { "" }, words(step)));
    row
}

/// Draws the position of a step within the time of its run.
fn bar(at: u64, took: u64, total: u64, is_aside: bool) -> String {
    let place = |moment: u64| (moment.min(total) * WIDTH / total).min(WIDTH - 1);
    let (from, to) = (place(at), place(at + took));
    let letter = |column: u64| match (from..=to).contains(&column) {
        true if is_aside => '─',
        true => '█',
        false => ' ',
    };
    (0..WIDTH).map(letter).collect()
}

fn words(step: &Value) -> String {
    let said = |name: &str| word(step, name);
    match step["step"].as_str().unwrap_or_default() {
        "queued" if number(step, "slotMs") > 0 => {
            format!("queued, {} of it waiting for a slot", time(number(step, "slotMs")))
        }
        "queued" => "queued".to_owned(),
        "prepared" => "built the prompt".to_owned(),
        "model" => model(step),
        "retry" => format!("waited before the retry: {}", said("why")),
        "stored" => "committed the answer before running tools".to_owned(),
        "tools" => "ran tools".to_owned(),
        "compaction" => match (step["tokens"][0].as_u64(), step["tokens"][1].as_u64()) {
            (Some(before), Some(after)) => {
                let short = format!("compacted the history ({}) from {before} to {after} tokens", said("how"));
                match step["input"].as_object() {
                    Some(_) => format!(
                        "{short}; the message did not fit, so the model got {} of its {} tokens",
                        number(&step["input"], "keptTokens"),
                        number(&step["input"], "originalTokens")
                    ),
                    None => short,
                }
            }
            _ => format!("did not compact the history: {}", said("how")),
        },
        "down" => "no process was running".to_owned(),
        "held" => "held after several crashes in a row".to_owned(),
        "finished" => "committed the result".to_owned(),
        "finalHooks" => "ran hooks on the last messages".to_owned(),
        "more" => format!("{} more steps", number(step, "steps")),
        "tool" => {
            let failed = if step["isError"] == true { ", failed" } else { "" };
            let cut = match (step["cut"][0].as_u64(), step["cut"][1].as_u64()) {
                (Some(all), Some(kept)) => format!(", result cut to {kept} of {all} characters"),
                _ => String::new(),
            };
            format!("tool {} (arguments {}){failed}{cut}", said("name"), said("digest"))
        }
        "hook" => format!("hook {} at {}: {}", said("hook"), said("point"), said("decision")),
        "switched" => format!("candidate {} failed ({}): {}", said("fromModel"), said("reason"), said("why")),
        "joined" => "absorbed a message".to_owned(),
        "withheld" => {
            let how = match step["repetition"].as_str().unwrap_or_default() {
                "part" => "it is a part of what",
                "introduced" => "it introduces and repeats what",
                _ => "it is what",
            };
            let (chars, call) = (number(step, "chars"), said("call"));
            format!("withheld {chars} characters, {how} call {call} had sent to the same chat: {:?}", said("text"))
        }
        "placed" => match step["position"].as_u64() {
            Some(position) => {
                format!("the message was moved in the queue: {}, position {position}", said("disposition"))
            }
            None => format!("the message was moved in the queue: {}", said("disposition")),
        },
        "busy" => format!("still waiting; the session was {} for {}", said("activity"), time(number(step, "busyMs"))),
        "summarized" => {
            let runs: Vec<_> = list_of(step, "runs").iter().filter_map(|run| run.as_str()).collect();
            let (count, names) = (runs.len(), render::harmless(&runs.join(", ")));
            format!("too many messages waited; the model got a summary of {count}: {names}")
        }
        "block" => "sent a block of the reply".to_owned(),
        other => render::harmless(other),
    }
}

fn model(step: &Value) -> String {
    let mut text = format!("called {}/{}", word(step, "provider"), word(step, "model"));
    if let Some(profile) = step["profile"].as_str() {
        text.push_str(&format!(" as {}", render::harmless(profile)));
    }
    match step["firstMs"].as_u64() {
        Some(first) => text.push_str(&format!(": first token after {}", time(first))),
        // For a request before a restart only the answer is stored, not when it was sent.
        None if number(step, "output") > 0 => text.push_str(": answered before a restart"),
        None => text.push_str(": no answer"),
    }
    let read = number(step, "input") + number(step, "cacheRead") + number(step, "cacheWrite");
    if read + number(step, "output") > 0 {
        text.push_str(&format!(", {read} input tokens, {} output", number(step, "output")));
    }
    if let Some(pruned) = step["prompt"]["pruned"].as_u64() {
        text.push_str(&format!(", {pruned} old tool results shortened in the request"));
    }
    if let Some(cost) = step["cost"].as_f64().filter(|cost| *cost > 0.0) {
        text.push_str(&format!(", {}", money(cost)));
    }
    if let Some(error) = step["error"].as_str() {
        text.push_str(&format!("; failed: {}", render::harmless(error)));
    }
    text
}

fn delivery(row: &Value) -> String {
    let mut text = format!(
        "  {} to {} on {}: {} after {} attempts",
        word(row, "id"),
        word(row, "to"),
        word(row, "channel"),
        word(row, "status"),
        number(row, "attempts"),
    );
    for name in ["messageId", "reason"] {
        if let Some(more) = row[name].as_str() {
            text.push_str(&format!(" ({})", render::harmless(more)));
        }
    }
    text
}

fn list_of<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value, name: &str) -> String {
    render::harmless(value[name].as_str().unwrap_or_default())
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

pub(in crate::cmd) fn money(dollars: f64) -> String {
    format!("${dollars:.4}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Acceptance D18: a run that was killed said "no answer, 10 written".
    #[test]
    fn a_request_before_a_restart_was_answered() {
        let step = json!({"step": "model", "provider": "p", "model": "m", "input": 90, "output": 10});
        assert_eq!(words(&step), "called p/m: answered before a restart, 90 input tokens, 10 output");
        let step = json!({"step": "model", "provider": "p", "model": "m"});
        assert_eq!(words(&step), "called p/m: no answer");
        let step = json!({"step": "withheld", "call": "c1", "repetition": "same", "chars": 20, "text": "The report is ready."});
        let told = "withheld 20 characters, it is what call c1 had sent to the same chat: \"The report is ready.\"";
        assert_eq!(words(&step), told);
    }

    #[test]
    fn a_life_is_told_line_by_line() {
        let life = json!({
            "run": {"runId": "r1", "status": "ok", "sessionKey": "agent:main:main", "acceptedAt": 0, "method": "agent",
                "principal": "owner", "usage": {"totalTokens": 120, "input": 90, "output": 20, "cacheRead": 10,
                "cacheWrite": 0, "totalCost": 0.0123}},
            "totalMs": 1_240, "accountedMs": 1_240,
            "steps": [
                {"atMs": 0, "ms": 40, "aside": false, "step": "queued", "slotMs": 0},
                {"atMs": 40, "ms": 1_200, "aside": false, "step": "model", "provider": "p", "model": "m", "firstMs": 300,
                    "input": 90, "output": 20, "cacheRead": 10, "cost": 0.0123, "prompt": {"system": 900, "tools": 3,
                    "messages": 1, "tokens": 250, "changed": "", "sections": [["Identity", 900]]}},
                {"atMs": 50, "ms": 5, "aside": false, "step": "compaction", "tokens": [900, 300], "how": "extract",
                    "input": {"originalTokens": 800, "keptTokens": 250}},
                {"atMs": 60, "ms": 5, "aside": true, "step": "tool", "name": "read", "digest": "ab", "cut": [70, 20]},
                {"atMs": 40, "ms": 5, "aside": true, "step": "hook", "hook": "h\u{1b}[2J", "point": "llm_input",
                    "decision": "had nothing to say"},
            ],
            "deliveries": [{"id": "d", "to": "7", "channel": "telegram", "status": "sent", "attempts": 1, "messageId": "55"}],
        });
        let expected = "run r1  ok after 1.24 s
in agent:main:main, received 1970-01-01T00:00:00.000Z by agent from owner
120 tokens: 100 input (10 cached), 20 output; $0.0123
prompt: 900 characters of system prompt, 3 tools, 1 messages; about 250 tokens
cache: first request of this session since it was opened
sections: Identity 900

AT     TOOK    STEP
0 ms   40 ms   queued
40 ms  1.20 s  called p/m: first token after 300 ms, 100 input tokens, 20 output, $0.0123
50 ms  5 ms    compacted the history (extract) from 900 to 300 tokens; the message did not fit, so the model got 250 of its 800 tokens
60 ms  5 ms      · tool read (arguments ab), result cut to 20 of 70 characters
40 ms  5 ms      · hook h[2J at llm_input: had nothing to say

On channels:
  d to 7 on telegram: sent after 1 attempts (55)";
        assert_eq!(whole(&life, false), expected);
        assert!(whole(&life, true).contains('█'));
        assert_eq!(
            now(&life),
            "ok: compacted the history (extract) from 900 to 300 tokens; the message did not fit, so the model got \
             250 of its 800 tokens since 1.24 s"
        );
    }
}
