//! The payloads of hooks have OpenClaw's names.
//!
//! `fixtures/keys.json` has the names recorded in both generations; this file lists those that are omitted, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use homard_hooks::HookPoint;
use serde_json::{Value, json};

use super::{Probe, fixtures, lines, samples};

/// A key of OpenClaw's that is omitted: the hook (`*` for all), event or context, the key, and the reason.
type LeftOut = (&'static str, &'static str, &'static str, &'static str);

/// Cannot be sent through a pipe.
const FUNCTION: &str = "a function, or an object of functions";
const OWN: &str = "OpenClaw's own bookkeeping, which means nothing here";
const CONFIG: &str = "a plugin has it as `api.config`";
const KEPT: &str = "our sessions are kept in a journal, and no plugin writes there";
/// Could be supported, and is not yet. Remove the row when it is.
const CHAT: &str = "not told: a chat without a channel has no ids but the session's, which is told";
const LATER: &str = "not told yet";

const LEFT_OUT: &[LeftOut] = &[
    ("*", "context", "trace", OWN),
    ("*", "context", "activeProjectKeys", OWN),
    ("*", "context", "channelContext", OWN),
    ("*", "context", "hookInvocation", FUNCTION),
    ("*", "context", "abortSignal", FUNCTION),
    ("*", "context", "getCron", FUNCTION),
    ("*", "context", "chatId", CHAT),
    ("*", "context", "conversationId", CHAT),
    ("*", "context", "messageId", CHAT),
    ("before_tool_call", "context", "requester", LATER),
    ("gateway_start", "context", "config", CONFIG),
    ("gateway_start", "context", "workspaceDir", LATER),
    ("gateway_stop", "context", "port", LATER),
    ("llm_output", "event", "harnessId", OWN),
    ("llm_output", "event", "contextTokenBudget", OWN),
    ("llm_output", "event", "contextWindowSource", OWN),
    ("llm_output", "context", "contextTokenBudget", OWN),
    ("llm_output", "context", "contextWindowSource", OWN),
    ("message_received", "event", "messageId", CHAT),
    ("message_sending", "event", "replyToId", CHAT),
    ("command:new", "signal", "storePath", KEPT),
    ("gateway:startup", "signal", "deps", FUNCTION),
    ("gateway:shutdown", "signal", "restartExpectedMs", "a gateway that goes down does not know who starts it again"),
    ("message:preprocessed", "signal", "*", "nothing is done to a message between `message:received` and the run"),
    ("message:received", "signal", "channelId", LATER),
    ("message:received", "signal", "conversationId", CHAT),
    ("message:received", "signal", "messageId", CHAT),
    ("session:compact:before", "signal", "missingSessionKey", OWN),
    ("session:compact:before", "signal", "messageCountOriginal", OWN),
    ("session:compact:before", "signal", "tokenCountOriginal", OWN),
    ("session:compact:after", "signal", "missingSessionKey", OWN),
    ("session:compact:after", "signal", "summaryLength", LATER),
    ("session:compact:after", "signal", "tokensBefore", LATER),
    ("session:compact:after", "signal", "tokensAfter", LATER),
    ("session:compact:after", "signal", "firstKeptEntryId", LATER),
];

/// Points without a recording in either generation. 2026.2.9 never calls them; 2026.9.6 was not seen to.
const NEVER_SEEN: [&str; 1] = ["message_sent"];

/// Compares what the probe received in a full visit with the recordings of OpenClaw.
pub(super) fn compare(probe: &Probe) {
    let actual = seen(&probe.of("hook"), &probe.internal_events());
    let known: Value = serde_json::from_str(&fs::read_to_string(fixtures().join("keys.json")).unwrap()).unwrap();
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for (generation, recorded_keys) in known.as_object().unwrap() {
        for (name, part, key) in all(recorded_keys) {
            if has(&actual, &name, part, &key) {
                continue;
            }
            let row = LEFT_OUT.iter().position(|(left_out, other_part, left_out_key, _)| {
                (*left_out == "*" || *left_out == name)
                    && *other_part == part
                    && (*left_out_key == "*" || *left_out_key == key)
            });
            match row {
                Some(row) => drop(used.insert(row)),
                None => problems.push(format!("{generation}: {name} has no {part} {key}")),
            }
        }
    }
    problems.extend(
        (0..LEFT_OUT.len())
            .filter(|row| !used.contains(row))
            .map(|row| format!("not left out any more: {:?}", LEFT_OUT[row])),
    );
    let was_called = |point: &HookPoint| actual["hooks"].get(point.name()).is_some();
    problems.extend(
        HookPoint::ALL
            .iter()
            .filter(|point| !was_called(point))
            .map(|point| format!("{} was never told", point.name())),
    );
    assert!(problems.is_empty(), "{problems:#?}");
    let recorded = |name: &str| known.as_object().unwrap().values().any(|item| item["hooks"].get(name).is_some());
    let silent: Vec<_> = HookPoint::ALL.iter().map(|point| point.name()).filter(|name| !recorded(name)).collect();
    assert_eq!(silent, NEVER_SEEN);
}

/// Returns the keys in recordings.
fn seen(hooks: &[Value], internal_events: &[Value]) -> Value {
    let mut hook_keys: BTreeMap<&str, [BTreeSet<&String>; 2]> = BTreeMap::new();
    for line in hooks.iter().filter(|line| HookPoint::named(line["hook"].as_str().unwrap()).is_some()) {
        let [event, context] = hook_keys.entry(line["hook"].as_str().unwrap()).or_default();
        event.extend(line["event"].as_object().unwrap().keys());
        context.extend(line["ctx"].as_object().into_iter().flat_map(serde_json::Map::keys));
    }
    let mut received: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for internal_event in internal_events {
        let name =
            format!("{}:{}", internal_event["type"].as_str().unwrap(), internal_event["action"].as_str().unwrap());
        received.entry(name).or_default().extend(internal_event["context"].as_object().unwrap().keys());
    }
    let hooks: BTreeMap<_, _> = hook_keys
        .into_iter()
        .map(|(hook, [event, context])| (hook, json!({"event": event, "context": context})))
        .collect();
    json!({"hooks": hooks, "signals": received})
}

/// Returns every key: hook, event or context, and name.
fn all(seen: &Value) -> Vec<(String, &'static str, String)> {
    let names =
        |keys: &Value| keys.as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (hook, parts) in seen["hooks"].as_object().unwrap() {
        for part in ["event", "context"] {
            all.extend(names(&parts[part]).into_iter().map(|key| (hook.clone(), part, key)));
        }
    }
    for (event, keys) in seen["signals"].as_object().unwrap() {
        all.extend(names(keys).into_iter().map(|key| (event.clone(), "signal", key)));
    }
    all
}

fn has(seen: &Value, path: &str, part: &str, key: &str) -> bool {
    let keys = if part == "signal" { &seen["signals"][path] } else { &seen["hooks"][path][part] };
    keys.as_array().is_some_and(|keys| keys.iter().any(|item| item == key))
}

#[test]
fn the_fixture_contains_the_recorded_keys() {
    let Some(samples) = samples("names of what hooks are told") else { return };
    let known: Value = serde_json::from_str(&fs::read_to_string(fixtures().join("keys.json")).unwrap()).unwrap();
    for generation in ["old", "new"] {
        let read = |kind: &str| lines(&samples.join(format!("hooks/{generation}-{kind}-hooks.jsonl")));
        let hooks: Vec<_> = read("plugin").into_iter().filter(|line| line["kind"] == "hook").collect();
        assert_eq!(seen(&hooks, &read("internal")), known[generation], "{generation}");
    }
}
