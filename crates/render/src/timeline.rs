//! Formats a run's timeline for the terminal.

use homard_prompt::shortening;
use homard_runtime::{Ambient, ambient::iso};
use homard_store::timeline::PromptCuts;
use serde::Deserialize;
use serde_json::Value;

use crate::{Table, age, count, duration_ms, strip_controls, tool_arguments, width};

/// Width of the bars in characters.
const WIDTH: u64 = 24;

/// In a narrower terminal the bars are left out.
const MIN_WIDTH_WITH_BARS: usize = 80;

/// Formats the whole timeline for stdout: the origin, the steps, the deliveries.
pub fn timeline(trace: &Value, has_bars: bool) -> String {
    let width = width();
    let has_bars = has_bars && width.is_none_or(|width| width >= MIN_WIDTH_WITH_BARS);
    fitted_timeline(trace, has_bars, width)
}

fn fitted_timeline(trace: &Value, has_bars: bool, width: Option<usize>) -> String {
    let run = &trace["run"];
    let mut text = vec![head(run, number(trace, "totalMs"))];
    text.extend(prompt(trace));
    text.extend(shortened(trace));
    let mut rows = vec![titles(has_bars)];
    let total = number(trace, "totalMs").max(1);
    rows.extend(list_of(trace, "steps").iter().map(|step| row(step, total, has_bars)));
    text.push(String::new());
    text.push(Table::fields(rows).fit(width));
    let (named, all) = (number(trace, "accountedMs"), number(trace, "totalMs"));
    if named != all {
        text.push(format!("the steps account for {} of {}", duration_ms(named), duration_ms(all)));
    }
    let sent: Vec<_> = list_of(trace, "deliveries").iter().map(delivery).collect();
    if !sent.is_empty() {
        text.extend([String::new(), "Deliveries:".to_owned()]);
        text.extend(sent);
    }
    text.join("\n")
}

/// Describes the current step of a run in one line.
pub fn current_step(trace: &Value) -> String {
    let last = list_of(trace, "steps").iter().rfind(|step| step["aside"] == false).map(step_text).unwrap_or_default();
    format!(
        "{}: {} ({} after the message was accepted)",
        text_of(&trace["run"], "status"),
        last,
        duration_ms(number(trace, "totalMs"))
    )
}

/// Formats runs as a table for stdout.
pub fn list(runs: &[Value]) -> String {
    let titles = ["RUN", "WHEN", "STATUS", "TOOK", "SESSION", "MODEL", "COST"].map(str::to_owned).to_vec();
    let now = Ambient::system().now_ms();
    let rows = runs.iter().map(|run| {
        let cost = run["usage"]["totalCost"].as_f64().map(money).unwrap_or_default();
        let duration = run.get("durationMs").and_then(Value::as_u64).map(duration_ms).unwrap_or_default();
        let model = [text_of(run, "provider"), text_of(run, "model")].into_iter().filter(|part| !part.is_empty());
        vec![
            text_of(run, "runId"),
            age(now, number(run, "acceptedAt")),
            text_of(run, "status"),
            duration,
            text_of(run, "sessionKey"),
            model.collect::<Vec<_>>().join("/"),
            cost,
        ]
    });
    Table::list(std::iter::once(titles).chain(rows).collect()).fit(width())
}

fn head(run: &Value, total: u64) -> String {
    let mut text = format!(
        "run {}  {} after {}\nin {}, received {} by {} from {}",
        text_of(run, "runId"),
        text_of(run, "status"),
        duration_ms(total),
        text_of(run, "sessionKey"),
        iso(number(run, "acceptedAt")),
        text_of(run, "method"),
        text_of(run, "principal"),
    );
    if let Some(next) = run["next"].as_str() {
        text.push_str(&format!("\nthe run {}", strip_controls(next)));
    }
    if let Some(held_at) = run["heldAt"].as_u64() {
        let id = text_of(run, "runId");
        text.push_str(&format!(
            "\nheld since {} after several crashes in a row; continue it with: homard runs release {id}",
            iso(held_at)
        ));
    }
    if let Some(host) = run["host"].as_str() {
        text.push_str(&format!("\nthe message was answered in run {}", strip_controls(host)));
    }
    if let Some(error) = run["error"].as_str() {
        text.push_str(&format!("\nerror: {}", strip_controls(error)));
    }
    if let Some(usage) = run["usage"].as_object().filter(|usage| usage["totalTokens"] != 0) {
        let count = |name: &str| usage[name].as_u64().unwrap_or_default();
        let cost = usage["totalCost"].as_f64().unwrap_or_default();
        text.push_str(&format!(
            "\n{}: {} input ({} cached), {} output; {}",
            plural(count("totalTokens"), "token"),
            count("input") + count("cacheRead") + count("cacheWrite"),
            count("cacheRead"),
            count("output"),
            money(cost),
        ));
    }
    text
}

/// Describes the first prompt by size.
fn prompt(trace: &Value) -> Vec<String> {
    let first = list_of(trace, "steps").iter().find(|step| step["step"] == "model");
    let Some(prompt) = first.map(|step| &step["prompt"]).filter(|prompt| number(prompt, "tokens") > 0) else {
        return Vec::new();
    };
    let count = |name: &str, one: &str| plural(number(prompt, name), one);
    let mut lines = vec![format!(
        "prompt: {} of system prompt, {}, {}; about {}",
        count("system", "character"),
        count("tools", "tool"),
        count("messages", "message"),
        count("tokens", "token"),
    )];
    lines.push(match prompt["changed"].as_str() {
        None => "cache: unchanged up to the new messages".to_owned(),
        Some("") => "cache: first request of this session since it was opened".to_owned(),
        Some(changed) => format!("cache: valid up to the first change: {}", strip_controls(changed)),
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
fn shortened(trace: &Value) -> Vec<String> {
    let steps = list_of(trace, "steps").iter().filter(|step| step["step"] == "model");
    let lines = steps.filter_map(|step| {
        let shortened = PromptCuts::deserialize(step["prompt"].get("shortened")?).ok()?;
        let model = format!("{}/{}", text_of(step, "provider"), text_of(step, "model"));
        let (explanation, remedy) = (shortening::explain(&shortened, &model), shortening::remedy(&shortened, &model));
        Some(strip_controls(&format!("shortened: {explanation}; {remedy}")))
    });
    lines.collect()
}

fn titles(has_bars: bool) -> Vec<String> {
    let titles = ["AT", "TOOK", "", "STEP"].map(str::to_owned).into_iter();
    titles.filter(|title| has_bars || !title.is_empty()).collect()
}

fn row(step: &Value, total: u64, has_bars: bool) -> Vec<String> {
    let (at, duration) = (number(step, "atMs"), number(step, "ms"));
    let is_aside = step["aside"] == true;
    let mut row = vec![duration_ms(at), duration_ms(duration)];
    if has_bars {
        row.push(bar(at, duration, total, is_aside));
    }
    row.push(format!("{}{}", if is_aside { "  · " } else { "" }, step_text(step)));
    row
}

/// Draws the position of a step within the time of its run.
fn bar(at: u64, duration: u64, total: u64, is_aside: bool) -> String {
    let position = |at_ms: u64| (at_ms.min(total) * WIDTH / total).min(WIDTH - 1);
    let (from, to) = (position(at), position(at + duration));
    let cell = |column: u64| match (from..=to).contains(&column) {
        true if is_aside => '─',
        true => '█',
        false => ' ',
    };
    (0..WIDTH).map(cell).collect()
}

fn step_text(step: &Value) -> String {
    let text = |name: &str| text_of(step, name);
    match step["step"].as_str().unwrap_or_default() {
        "queued" if number(step, "slotMs") > 0 => {
            format!("queued, {} of it waiting for a slot", duration_ms(number(step, "slotMs")))
        }
        "queued" => "queued".to_owned(),
        "prepared" => "built the prompt".to_owned(),
        "model" => model(step),
        "retry" => format!("waited before the retry: {}", text("why")),
        "stored" => "committed the answer before running tools".to_owned(),
        "tools" => "ran tools".to_owned(),
        "compaction" => match (step["tokens"][0].as_u64(), step["tokens"][1].as_u64()) {
            (Some(before), Some(after)) => {
                let compaction =
                    format!("compacted the history ({}) from {before} to {}", text("how"), plural(after, "token"));
                match step["input"].as_object() {
                    Some(_) => format!(
                        "{compaction}; the message did not fit, so the model got {} of its {}",
                        number(&step["input"], "keptTokens"),
                        plural(number(&step["input"], "originalTokens"), "token")
                    ),
                    None => compaction,
                }
            }
            _ => format!("did not compact the history: {}", text("how")),
        },
        "down" => "no process was running".to_owned(),
        "held" => "held after several crashes in a row".to_owned(),
        "finished" => "committed the result".to_owned(),
        "finalHooks" => "ran hooks on the last messages".to_owned(),
        "more" => plural(number(step, "steps"), "more step"),
        "tool" => {
            let failed = if step["isError"] == true { ", failed" } else { "" };
            let truncation = match (step["cut"][0].as_u64(), step["cut"][1].as_u64()) {
                (Some(all), Some(kept)) => format!(", result cut to {kept} of {}", plural(all, "character")),
                _ => String::new(),
            };
            let arguments = match step.get("arguments") {
                Some(arguments) => strip_controls(&tool_arguments(arguments)).replace(['\n', '\t'], " "),
                None => format!("(arguments {})", text("digest")),
            };
            format!("tool {} {arguments}{failed}{truncation}", text("name"))
        }
        "hook" => format!("hook {} at {}: {}", text("hook"), text("point"), text("decision")),
        "switched" => format!("candidate {} failed ({}): {}", text("fromModel"), text("reason"), text("why")),
        "joined" => "absorbed a message, which this run answers too".to_owned(),
        "withheld" => {
            let description = match step["repetition"].as_str().unwrap_or_default() {
                "part" => "which are part of",
                "introduced" => "which introduce and repeat",
                _ => "which repeat",
            };
            let (chars, call) = (plural(number(step, "chars"), "character"), text("call"));
            format!(
                "withheld {chars} of the reply, {description} the message that tool call {call} had sent to the same chat: {:?}",
                text("text")
            )
        }
        "placed" => match step["position"].as_u64() {
            Some(position) => {
                format!("the disposition of the message changed to {}, position {position}", text("disposition"))
            }
            None => format!("the disposition of the message changed to {}", text("disposition")),
        },
        "busy" => {
            format!("still waiting; the session was {} for {}", text("activity"), duration_ms(number(step, "busyMs")))
        }
        "summarized" => {
            let runs: Vec<_> = list_of(step, "runs").iter().filter_map(|run| run.as_str()).collect();
            let (count, names) = (count(runs.len(), "message"), strip_controls(&runs.join(", ")));
            format!("too many messages waited; the model got a summary of {count}: {names}")
        }
        "block" => "sent a block of the reply".to_owned(),
        other => strip_controls(other),
    }
}

fn model(step: &Value) -> String {
    let mut text = format!("called {}/{}", text_of(step, "provider"), text_of(step, "model"));
    if let Some(profile) = step["profile"].as_str() {
        text.push_str(&format!(" as {}", strip_controls(profile)));
    }
    match step["firstMs"].as_u64() {
        Some(first) => text.push_str(&format!(": first token after {}", duration_ms(first))),
        // For a request before a restart only the answer is stored, not when it was sent.
        None if number(step, "output") > 0 => text.push_str(": answered before a restart"),
        None => text.push_str(": no answer"),
    }
    let read = number(step, "input") + number(step, "cacheRead") + number(step, "cacheWrite");
    if read + number(step, "output") > 0 {
        text.push_str(&format!(", {}, {} output", plural(read, "input token"), number(step, "output")));
    }
    if let Some(pruned) = step["prompt"]["pruned"].as_u64() {
        text.push_str(&format!(", {} shortened in the request", plural(pruned, "old tool result")));
    }
    if let Some(cost) = step["cost"].as_f64().filter(|cost| *cost > 0.0) {
        text.push_str(&format!(", {}", money(cost)));
    }
    if let Some(error) = step["error"].as_str() {
        text.push_str(&format!("; failed: {}", strip_controls(error)));
    }
    text
}

fn delivery(row: &Value) -> String {
    let mut text = format!(
        "  {} to {} on {}: {} after {}",
        text_of(row, "id"),
        text_of(row, "to"),
        text_of(row, "channel"),
        text_of(row, "status"),
        plural(number(row, "attempts"), "attempt"),
    );
    // A gateway of an earlier version names the last message only.
    let listed: Vec<&str> = list_of(row, "messageIds").iter().filter_map(Value::as_str).collect();
    let messages = if listed.is_empty() { row["messageId"].as_str().into_iter().collect() } else { listed };
    match messages.as_slice() {
        [] => {}
        [message] => text.push_str(&format!(" as message {}", strip_controls(message))),
        several => text.push_str(&format!(" as messages {}", strip_controls(&several.join(", ")))),
    }
    if let Some(reason) = row["reason"].as_str() {
        text.push_str(&format!(" ({})", strip_controls(reason)));
    }
    text
}

fn list_of<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text_of(value: &Value, name: &str) -> String {
    strip_controls(value[name].as_str().unwrap_or_default())
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

/// Formats a count with its noun.
fn plural(number: u64, noun: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

/// Formats an amount of money.
pub fn money(dollars: f64) -> String {
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
        assert_eq!(step_text(&step), "called p/m: answered before a restart, 90 input tokens, 10 output");
        let step = json!({"step": "model", "provider": "p", "model": "m"});
        assert_eq!(step_text(&step), "called p/m: no answer");
        let step = json!({"step": "withheld", "call": "c1", "repetition": "same", "chars": 20, "text": "The report is ready."});
        let expected = "withheld 20 characters of the reply, which repeat the message that tool call c1 had sent to the same \
                        chat: \"The report is ready.\"";
        assert_eq!(step_text(&step), expected);
    }

    #[test]
    fn a_timeline_is_printed_line_by_line() {
        let trace = json!({
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
                    "decision": "made no change"},
            ],
            "deliveries": [{"id": "d", "to": "7", "channel": "telegram", "status": "sent", "attempts": 1,
                "messageId": "55", "messageIds": ["54", "55"]}],
        });
        let expected = "run r1  ok after 1.24s
in agent:main:main, received 1970-01-01T00:00:00.000Z by agent from owner
120 tokens: 100 input (10 cached), 20 output; $0.0123
prompt: 900 characters of system prompt, 3 tools, 1 message; about 250 tokens
cache: first request of this session since it was opened
sections: Identity 900

AT    TOOK  STEP
0ms   40ms  queued
40ms  1.2s  called p/m: first token after 300ms, 100 input tokens, 20 output, $0.0123
50ms  5ms   compacted the history (extract) from 900 to 300 tokens; the message did not fit, so the model got 250 of its 800 tokens
60ms  5ms     · tool read (arguments ab), result cut to 20 of 70 characters
40ms  5ms     · hook h[2J at llm_input: made no change

Deliveries:
  d to 7 on telegram: sent after 1 attempt as messages 54, 55";
        assert_eq!(fitted_timeline(&trace, false, None), expected);
        assert!(fitted_timeline(&trace, true, None).contains('█'));
        assert_eq!(
            current_step(&trace),
            "ok: compacted the history (extract) from 900 to 300 tokens; the message did not fit, so the model got \
             250 of its 800 tokens (1.24s after the message was accepted)"
        );
    }
}
