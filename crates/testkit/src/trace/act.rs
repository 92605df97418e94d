//! Parser for `at` lines.

use std::collections::BTreeMap;

use homard_proto::{Generation, Route, RunId};
use homard_queue::RunClass;
use homard_reply::{
    blocks::{BlockBreak, BlockRules},
    chunk::{ChunkBounds, CutPreference},
    coalesce::Settings,
};
use homard_store::{Origin, Sender};
use serde_json::{Value, json};

use super::{
    ActKind, PlatformMessage, ProcessKind, Trace, TraceAct,
    scan::{LineScanner, SyntaxMessage},
};

/// Parses what follows `at` into the trace.
pub(super) fn parse(scan: &mut LineScanner<'_>, trace: &mut Trace) -> Result<(), SyntaxMessage> {
    let at = scan.time()?;
    let text = scan.rest().to_owned();
    let expected = "`say`, `chat`, `phone`, `agent`, `wait`, `abort`, `event`, `reset`, `undo`, `resize`, `drain`, `shutdown`, \
                    `restart`, `release` or `drop`";
    let kind = match scan.word(expected)? {
        "say" => say(scan, trace)?,
        "chat" => chat(scan, trace)?,
        "phone" => phone(scan, trace)?,
        "agent" => ActKind::Agent { principal: "owner".to_owned(), generation: generation(scan), params: scan.json()? },
        "wait" => wait(scan)?,
        "abort" if scan.rest().starts_with(['{', '[']) => ActKind::Abort { params: scan.json()? },
        "abort" => ActKind::AbortRun(run(scan)?),
        "event" => ActKind::Event { text: scan.quoted()?, key: key(scan)? },
        "reset" => ActKind::Reset { key: key(scan)? },
        "undo" => ActKind::Undo { key: key(scan)? },
        "resize" => resize(scan)?,
        "drain" => ActKind::Drain(scan.time()?),
        "shutdown" => ActKind::ShutDown,
        "restart" if scan.take("local") => ActKind::Restart(ProcessKind::LocalTurn),
        "restart" => ActKind::Restart(ProcessKind::Gateway),
        "release" => ActKind::Release(run(scan)?),
        "drop" => ActKind::Drop(run(scan)?),
        word => return Err(format!("expected {expected}, found `{word}`")),
    };
    scan.end()?;
    trace.acts.push(TraceAct { at, text, kind });
    Ok(())
}

fn generation(scan: &mut LineScanner<'_>) -> Generation {
    if scan.take("p3") { Generation::Three } else { Generation::Four }
}

fn run(scan: &mut LineScanner<'_>) -> Result<RunId, SyntaxMessage> {
    let word = scan.word("the name of a run")?;
    RunId::parse(word).map_err(|error| error.to_string())
}

/// Returns the default name of a run: messages are counted.
fn next_run(trace: &Trace) -> String {
    let is_message = |act: &&TraceAct| act.text.starts_with("say ") || act.text.starts_with("chat ");
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

/// Unit in which a method takes a timeout.
#[derive(Debug, Clone, Copy)]
enum TimeoutUnit {
    Seconds,
    Milliseconds,
}

impl TimeoutUnit {
    /// Returns the member of the parameters.
    fn member(self) -> &'static str {
        match self {
            Self::Seconds => "timeout",
            Self::Milliseconds => "timeoutMs",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }
}

/// Parses the settings of a message into parameters. Also returns the sender.
fn settings(
    scan: &mut LineScanner<'_>,
    verb: &str,
    known: &[(&str, &str)],
    timeout: TimeoutUnit,
    params: &mut Value,
) -> Result<String, SyntaxMessage> {
    let mut principal = "owner".to_owned();
    while !scan.is_empty() {
        let (name, value) = scan.setting()?;
        match (name, known.iter().find(|(word, _)| *word == name)) {
            ("as", _) => principal = value,
            ("strict", _) if verb == "say" => params["strict"] = (value == "yes").into(),
            ("timeout", _) => match value.parse::<u64>() {
                Ok(number) => params[timeout.member()] = number.into(),
                Err(_) => return Err(format!("expected a number of {}, found `{value}`", timeout.name())),
            },
            (_, Some((_, member))) => params[*member] = value.into(),
            (_, None) => return Err(format!("expected a setting of `{verb}`, found `{name}`")),
        }
    }
    Ok(principal)
}

fn say(scan: &mut LineScanner<'_>, trace: &Trace) -> Result<ActKind, SyntaxMessage> {
    let mut params = json!({"message": scan.quoted()?});
    let principal = settings(scan, "say", &SAY, TimeoutUnit::Seconds, &mut params)?;
    if params.get("idempotencyKey").is_none() {
        params["idempotencyKey"] = next_run(trace).into();
    }
    Ok(ActKind::Agent { principal, generation: Generation::Four, params })
}

fn chat(scan: &mut LineScanner<'_>, trace: &Trace) -> Result<ActKind, SyntaxMessage> {
    if scan.rest().starts_with('{') {
        return Ok(ActKind::Chat {
            principal: "owner".to_owned(),
            params: scan.json()?,
            blocks: None,
            message_id: None,
        });
    }
    let mut params = json!({"message": scan.quoted()?, "sessionKey": "main"});
    let principal = settings(scan, "chat", &CHAT, TimeoutUnit::Milliseconds, &mut params)?;
    let blocks_setting = params.as_object_mut().and_then(|params| params.shift_remove("blocks"));
    let message_id = params.as_object_mut().and_then(|params| params.shift_remove("messageId"));
    let message_id = message_id.as_ref().and_then(Value::as_str).map(str::to_owned);
    let blocks = blocks_setting.as_ref().and_then(Value::as_str).map(blocks_rules).transpose()?;
    if params.get("idempotencyKey").is_none() {
        params["idempotencyKey"] = next_run(trace).into();
    }
    Ok(ActKind::Chat { principal, params, blocks, message_id })
}

fn phone(scan: &mut LineScanner<'_>, trace: &Trace) -> Result<ActKind, SyntaxMessage> {
    let number = trace.acts.iter().filter(|act| matches!(act.kind, ActKind::PlatformMessage(_))).count() + 1;
    let text = scan.quoted()?;
    let mut values = BTreeMap::new();
    while !scan.is_empty() {
        let (name, value) = scan.setting()?;
        let known = ["channel", "account", "event", "from", "name", "to", "thread", "message", "key", "as"];
        if !known.contains(&name) {
            return Err(format!("expected a setting of `phone`, found `{name}`"));
        }
        values.insert(name.to_owned(), value);
    }
    let value_or = |name: &str, default: &str| values.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let (channel, account, from) =
        (value_or("channel", "telegram"), value_or("account", "default"), value_or("from", "7"));
    let thread = values.get("thread").map(String::as_str);
    Ok(ActKind::PlatformMessage(Box::new(PlatformMessage {
        key: value_or("key", "main"),
        principal: value_or("as", "owner"),
        route: Route::new(Some(&channel), Some(&value_or("to", &from)), Some(&account), thread),
        origin: Origin { channel, account, event: value_or("event", &format!("e{number}")), message: None },
        sender: Sender { id: from, name: values.get("name").cloned(), username: None },
        message_id: value_or("message", &format!("m{number}")),
        text,
    })))
}

/// Parses rules for a reply in blocks: `5..20`, then `end` to send nothing before the end of the message, `idle:1000`
/// to merge what comes within that many milliseconds.
fn blocks_rules(text: &str) -> Result<BlockRules, SyntaxMessage> {
    let syntax_error = || format!("expected `MIN..MAX [end] [idle:MS]`, found `{text}`");
    let mut words = text.split_whitespace();
    let (min, max) = words.next().and_then(|word| word.split_once("..")).ok_or_else(syntax_error)?;
    let number = |word: &str| word.parse::<usize>().ok().ok_or_else(syntax_error);
    let bounds = ChunkBounds { min: number(min)?, max: number(max)?, prefer: CutPreference::Paragraph };
    let mut rules = BlockRules { from: BlockBreak::TextEnd, bounds, coalesce: None };
    for word in words {
        match word.strip_prefix("idle:") {
            Some(idle) => {
                let (idle_ms, joiner) = (number(idle)? as u64, bounds.prefer.joiner());
                rules.coalesce = Some(Settings { min: 1, max: 4000, idle_ms, joiner });
            }
            None if word == "end" => rules.from = BlockBreak::MessageEnd,
            None => return Err(syntax_error()),
        }
    }
    Ok(rules)
}

fn wait(scan: &mut LineScanner<'_>) -> Result<ActKind, SyntaxMessage> {
    if scan.peek() == "p3" || scan.rest().starts_with(['{', '[']) {
        return Ok(ActKind::Wait { generation: generation(scan), params: scan.json()? });
    }
    let mut params = json!({"runId": run(scan)?});
    if scan.take("for") {
        params["timeoutMs"] = u64::try_from(scan.time()?.as_millis()).unwrap_or(u64::MAX).into();
    }
    Ok(ActKind::Wait { generation: Generation::Four, params })
}

/// Parses the session of an act.
fn key(scan: &mut LineScanner<'_>) -> Result<String, SyntaxMessage> {
    if scan.is_empty() {
        return Ok("main".to_owned());
    }
    match scan.setting()? {
        ("key", key) => Ok(key),
        (name, _) => Err(format!("expected `key=`, found `{name}`")),
    }
}

fn resize(scan: &mut LineScanner<'_>) -> Result<ActKind, SyntaxMessage> {
    let before = scan.clone();
    let (name, value) = scan.setting()?;
    let class = match name {
        "main" => RunClass::Main,
        "subagent" => RunClass::Subagent,
        "cron" => RunClass::Cron,
        _ => return before.error("`main=`, `subagent=` or `cron=`"),
    };
    match value.parse() {
        Ok(size) => Ok(ActKind::Resize(class, size)),
        Err(_) => before.error("a number of slots"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(line: &str) -> Value {
        let mut trace = Trace::read("x", line).unwrap();
        match trace.acts.pop().unwrap().kind {
            ActKind::Agent { params, .. } | ActKind::Chat { params, .. } => params,
            other @ (ActKind::Wait { .. }
            | ActKind::PlatformMessage(_)
            | ActKind::Abort { .. }
            | ActKind::AbortRun(_)
            | ActKind::Event { .. }
            | ActKind::Reset { .. }
            | ActKind::Undo { .. }
            | ActKind::Resize(..)
            | ActKind::Drain(_)
            | ActKind::ShutDown
            | ActKind::Restart(_)
            | ActKind::Release(_)
            | ActKind::Drop(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_line_becomes_method_parameters() {
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
