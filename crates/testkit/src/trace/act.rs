//! Parser for `at` lines.

use std::collections::BTreeMap;

use homard_agent::Class;
use homard_proto::{Generation, Route, RunId};
use homard_reply::{
    blocks::{Break, Rules},
    chunk::{Bounds, Prefer},
    coalesce::Settings,
};
use homard_store::{Origin, Sender};
use serde_json::{Value, json};

use super::{
    Act, Deed, Phone, Process, Trace,
    scan::{Scanner, Wrong},
};

/// Parses what follows `at` into the trace.
pub(super) fn read(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    let at = scan.time()?;
    let text = scan.rest().to_owned();
    let expected = "`say`, `chat`, `phone`, `agent`, `wait`, `abort`, `event`, `reset`, `undo`, `resize`, `drain`, `shutdown`, \
                    `restart`, `release` or `drop`";
    let deed = match scan.word(expected)? {
        "say" => say(scan, trace)?,
        "chat" => chat(scan, trace)?,
        "phone" => phone(scan, trace)?,
        "agent" => Deed::Agent { principal: "owner".to_owned(), generation: generation(scan), params: scan.json()? },
        "wait" => wait(scan)?,
        "abort" if scan.rest().starts_with(['{', '[']) => Deed::Abort { params: scan.json()? },
        "abort" => Deed::AbortRun(run(scan)?),
        "event" => Deed::Event { text: scan.quoted()?, key: key(scan)? },
        "reset" => Deed::Reset { key: key(scan)? },
        "undo" => Deed::Undo { key: key(scan)? },
        "resize" => resize(scan)?,
        "drain" => Deed::Drain(scan.time()?),
        "shutdown" => Deed::ShutDown,
        "restart" if scan.take("local") => Deed::Restart(Process::LocalTurn),
        "restart" => Deed::Restart(Process::Gateway),
        "release" => Deed::Release(run(scan)?),
        "drop" => Deed::Drop(run(scan)?),
        word => return Err(format!("expected {expected}, found `{word}`")),
    };
    scan.end()?;
    trace.acts.push(Act { at, text, deed });
    Ok(())
}

fn generation(scan: &mut Scanner<'_>) -> Generation {
    if scan.take("p3") { Generation::Three } else { Generation::Four }
}

fn run(scan: &mut Scanner<'_>) -> Result<RunId, Wrong> {
    let word = scan.word("the name of a run")?;
    RunId::parse(word).map_err(|error| error.to_string())
}

/// Returns the default name of a run: messages are counted.
fn next_run(trace: &Trace) -> String {
    let is_message = |act: &&Act| act.text.starts_with("say ") || act.text.starts_with("chat ");
    format!("run-{}", trace.acts.iter().filter(is_message).count() + 1)
}

/// Settings of `say`, with the method's parameter names.
const SAY: [(&str, &str); 11] = [
    ("run", "idempotencyKey"),
    ("key", "sessionKey"),
    ("agent", "agentId"),
    ("session", "sessionId"),
    ("thinking", "thinking"),
    ("label", "label"),
    ("lane", "lane"),
    ("channel", "channel"),
    ("prompt", "extraSystemPrompt"),
    ("restart", "onRestart"),
    ("parent", "spawnedBy"),
];

/// Settings of `chat`, with the method's parameter names.
const CHAT: [(&str, &str); 9] = [
    ("blocks", "blocks"),
    ("message", "messageId"),
    ("run", "idempotencyKey"),
    ("key", "sessionKey"),
    ("mode", "queueMode"),
    ("channel", "originatingChannel"),
    ("to", "originatingTo"),
    ("account", "originatingAccountId"),
    ("thread", "originatingThreadId"),
];

/// Parses the settings of a message into parameters; `timeout` is a number. Also returns the sender.
fn settings(
    scan: &mut Scanner<'_>,
    verb: &str,
    known: &[(&str, &str)],
    timeout: (&str, &str),
    params: &mut Value,
) -> Result<String, Wrong> {
    let mut principal = "owner".to_owned();
    while !scan.is_empty() {
        let (name, value) = scan.setting()?;
        match (name, known.iter().find(|(word, _)| *word == name)) {
            ("as", _) => principal = value,
            ("strict", _) if verb == "say" => params["strict"] = (value == "yes").into(),
            ("timeout", _) => match value.parse::<u64>() {
                Ok(number) => params[timeout.0] = number.into(),
                Err(_) => return Err(format!("expected a number of {}, found `{value}`", timeout.1)),
            },
            (_, Some((_, member))) => params[*member] = value.into(),
            (_, None) => return Err(format!("expected a setting of `{verb}`, found `{name}`")),
        }
    }
    Ok(principal)
}

fn say(scan: &mut Scanner<'_>, trace: &Trace) -> Result<Deed, Wrong> {
    let mut params = json!({"message": scan.quoted()?});
    let principal = settings(scan, "say", &SAY, ("timeout", "seconds"), &mut params)?;
    if params.get("idempotencyKey").is_none() {
        params["idempotencyKey"] = next_run(trace).into();
    }
    Ok(Deed::Agent { principal, generation: Generation::Four, params })
}

fn chat(scan: &mut Scanner<'_>, trace: &Trace) -> Result<Deed, Wrong> {
    if scan.rest().starts_with('{') {
        return Ok(Deed::Chat { principal: "owner".to_owned(), params: scan.json()?, blocks: None, message: None });
    }
    let mut params = json!({"message": scan.quoted()?, "sessionKey": "main"});
    let principal = settings(scan, "chat", &CHAT, ("timeoutMs", "milliseconds"), &mut params)?;
    let blocks = params.as_object_mut().and_then(|params| params.shift_remove("blocks"));
    let message = params.as_object_mut().and_then(|params| params.shift_remove("messageId"));
    let message = message.as_ref().and_then(Value::as_str).map(str::to_owned);
    let blocks = blocks.as_ref().and_then(Value::as_str).map(blocks_rules).transpose()?;
    if params.get("idempotencyKey").is_none() {
        params["idempotencyKey"] = next_run(trace).into();
    }
    Ok(Deed::Chat { principal, params, blocks, message })
}

fn phone(scan: &mut Scanner<'_>, trace: &Trace) -> Result<Deed, Wrong> {
    let number = trace.acts.iter().filter(|act| matches!(act.deed, Deed::Phone(_))).count() + 1;
    let words = scan.quoted()?;
    let mut said = BTreeMap::new();
    while !scan.is_empty() {
        let (name, value) = scan.setting()?;
        let known = ["channel", "account", "event", "from", "name", "to", "thread", "message", "key", "as"];
        if !known.contains(&name) {
            return Err(format!("expected a setting of `phone`, found `{name}`"));
        }
        said.insert(name.to_owned(), value);
    }
    let given = |name: &str, usual: &str| said.get(name).cloned().unwrap_or_else(|| usual.to_owned());
    let (channel, account, from) = (given("channel", "telegram"), given("account", "default"), given("from", "7"));
    let thread = said.get("thread").map(String::as_str);
    Ok(Deed::Phone(Box::new(Phone {
        key: given("key", "main"),
        principal: given("as", "owner"),
        route: Route::new(Some(&channel), Some(&given("to", &from)), Some(&account), thread),
        origin: Origin { channel, account, event: given("event", &format!("e{number}")) },
        sender: Sender { id: from, name: said.get("name").cloned(), username: None },
        message: given("message", &format!("m{number}")),
        words,
    })))
}

/// Parses rules for a reply in blocks: `5..20`, then `end` to send nothing before the end of the message, `idle:1000`
/// to merge what comes within that many milliseconds.
fn blocks_rules(text: &str) -> Result<Rules, Wrong> {
    let wrong = || format!("expected `MIN..MAX [end] [idle:MS]`, found `{text}`");
    let mut words = text.split_whitespace();
    let (min, max) = words.next().and_then(|word| word.split_once("..")).ok_or_else(wrong)?;
    let number = |word: &str| word.parse::<usize>().ok().ok_or_else(wrong);
    let bounds = Bounds { min: number(min)?, max: number(max)?, prefer: Prefer::Paragraph };
    let mut rules = Rules { from: Break::TextEnd, bounds, coalesce: None };
    for word in words {
        match word.strip_prefix("idle:") {
            Some(idle) => {
                let (idle_ms, joiner) = (number(idle)? as u64, bounds.prefer.joiner());
                rules.coalesce = Some(Settings { min: 1, max: 4000, idle_ms, joiner });
            }
            None if word == "end" => rules.from = Break::MessageEnd,
            None => return Err(wrong()),
        }
    }
    Ok(rules)
}

fn wait(scan: &mut Scanner<'_>) -> Result<Deed, Wrong> {
    if scan.peek() == "p3" || scan.rest().starts_with(['{', '[']) {
        return Ok(Deed::Wait { generation: generation(scan), params: scan.json()? });
    }
    let mut params = json!({"runId": run(scan)?});
    if scan.take("for") {
        params["timeoutMs"] = u64::try_from(scan.time()?.as_millis()).unwrap_or(u64::MAX).into();
    }
    Ok(Deed::Wait { generation: Generation::Four, params })
}

/// Parses the session of an act.
fn key(scan: &mut Scanner<'_>) -> Result<String, Wrong> {
    if scan.is_empty() {
        return Ok("main".to_owned());
    }
    match scan.setting()? {
        ("key", key) => Ok(key),
        (name, _) => Err(format!("expected `key=`, found `{name}`")),
    }
}

fn resize(scan: &mut Scanner<'_>) -> Result<Deed, Wrong> {
    let before = scan.clone();
    let (name, value) = scan.setting()?;
    let class = match name {
        "main" => Class::Main,
        "subagent" => Class::Subagent,
        "cron" => Class::Cron,
        _ => return before.wrong("`main=`, `subagent=` or `cron=`"),
    };
    match value.parse() {
        Ok(size) => Ok(Deed::Resize(class, size)),
        Err(_) => before.wrong("a number of slots"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(line: &str) -> Value {
        let mut trace = Trace::read("x", line).unwrap();
        match trace.acts.pop().unwrap().deed {
            Deed::Agent { params, .. } | Deed::Chat { params, .. } => params,
            other @ (Deed::Wait { .. }
            | Deed::Phone(_)
            | Deed::Abort { .. }
            | Deed::AbortRun(_)
            | Deed::Event { .. }
            | Deed::Reset { .. }
            | Deed::Undo { .. }
            | Deed::Resize(..)
            | Deed::Drain(_)
            | Deed::ShutDown
            | Deed::Restart(_)
            | Deed::Release(_)
            | Deed::Drop(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_is_the_parameters_of_the_method() {
        assert_eq!(
            params("at 0ms say \"a\"\nat 1ms say \"b\" key=agent:ops:main timeout=5 label=\"two words\""),
            json!({"message": "b", "sessionKey": "agent:ops:main", "timeout": 5, "label": "two words", "idempotencyKey": "run-2"})
        );
        assert_eq!(params("at 0ms agent {\"message\":1}"), json!({"message": 1}));
        assert_eq!(
            params("at 0ms say \"a\"\nat 1ms chat \"b\" mode=collect channel=slack to=c1 thread=9 timeout=5"),
            json!({
                "message": "b", "sessionKey": "main", "idempotencyKey": "run-2", "queueMode": "collect",
                "originatingChannel": "slack", "originatingTo": "c1", "originatingThreadId": "9", "timeoutMs": 5,
            })
        );
    }
}
