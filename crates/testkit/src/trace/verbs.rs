//! What each verb takes.

use std::time::Duration;

use homard_agent::{Slots, ToolMode, tool::ToolResult};
use homard_proto::{AgentId, Generation, RunId, SessionKey};
use homard_store::ToolClass;
use serde_json::json;

use super::{
    Act, Deed, Trace,
    scan::{Scanner, Wrong},
    turn,
};
use crate::{
    faults::Death,
    tools::{Answer, Behaviour, Definition},
};

/// Reads one line into the trace.
pub(super) fn read(line: &str, trace: &mut Trace) -> Result<(), Wrong> {
    let mut scan = Scanner::new(line);
    let whole = scan.clone();
    match scan.peek() {
        "set" => scan.word("").and_then(|_| set(&mut scan, trace)),
        "at" => scan.word("").and_then(|_| at(&mut scan, trace)),
        "model" => scan.word("").and_then(|_| turn::read(&mut scan)).map(|turn| trace.turns.push(turn)),
        "tool" => scan.word("").and_then(|_| tool(&mut scan, trace)),
        "fault" => scan.word("").and_then(|_| fault(&mut scan, trace)),
        _ => whole.wrong("`set`, `at`, `model`, `tool` or `fault`"),
    }
}

fn set(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    if scan.take("session") {
        let key = scan.word("a session key")?;
        let key = SessionKey::parse(key, &AgentId::main()).map_err(|error| error.to_string())?;
        let record = scan.json()?;
        let record = serde_json::from_value(record).map_err(|error| format!("expected a session's record: {error}"))?;
        trace.setup.sessions.push((key, record));
        return scan.end();
    }
    if scan.take("tool") {
        let name = scan.word("the tool's name")?.to_owned();
        let class = class(scan)?;
        trace.setup.tools.push(Definition { name, class, parameters: scan.json()? });
        return scan.end();
    }
    while !scan.is_empty() {
        let before = scan.clone();
        let (name, value) = scan.setting()?;
        let setup = &mut trace.setup;
        match (name, value.as_str()) {
            ("timeout", _) => setup.timeout = Scanner::new(&value).time()?,
            ("tools", "sequential") => setup.tool_mode = ToolMode::Sequential,
            ("tools", "parallel") => setup.tool_mode = ToolMode::Parallel,
            ("slots", _) => match value.parse() {
                Ok(main) => setup.slots = Slots::new(main, 8, 1),
                Err(_) => return before.wrong("a number of slots"),
            },
            ("agent", _) => setup.agents.push(AgentId::normalize(&value)),
            _ => return before.wrong("`timeout=`, `tools=sequential`, `slots=`, `agent=`, `session` or `tool`"),
        }
    }
    Ok(())
}

fn class(scan: &mut Scanner<'_>) -> Result<ToolClass, Wrong> {
    let before = scan.clone();
    match scan.word("`read`, `idempotent` or `effect`")? {
        "read" => Ok(ToolClass::Read),
        "idempotent" => Ok(ToolClass::Idempotent),
        "effect" => Ok(ToolClass::Effect),
        _ => before.wrong("`read`, `idempotent` or `effect`"),
    }
}

fn at(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    let at = scan.time()?;
    let text = scan.rest().to_owned();
    let expected = "`say`, `agent`, `wait`, `abort`, `shutdown` or `restart`";
    let deed = match scan.word(expected)? {
        "say" => say(scan, trace)?,
        "agent" => Deed::Agent { principal: "owner".to_owned(), generation: generation(scan), params: scan.json()? },
        "wait" => wait(scan)?,
        "abort" if scan.rest().starts_with(['{', '[']) => Deed::Abort { params: scan.json()? },
        "abort" => Deed::AbortRun(run(scan)?),
        "shutdown" => Deed::ShutDown,
        "restart" => Deed::Restart,
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

/// The settings of `say`, and how the method calls them.
const SETTINGS: [(&str, &str); 10] = [
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
];

fn say(scan: &mut Scanner<'_>, trace: &Trace) -> Result<Deed, Wrong> {
    let mut params = json!({"message": scan.quoted()?});
    let mut principal = "owner".to_owned();
    while !scan.is_empty() {
        let (name, value) = scan.setting()?;
        match (name, SETTINGS.iter().find(|(word, _)| *word == name)) {
            ("as", _) => principal = value,
            ("timeout", _) => match value.parse::<u64>() {
                Ok(seconds) => params["timeout"] = seconds.into(),
                Err(_) => return Err(format!("expected a number of seconds, found `{value}`")),
            },
            (_, Some((_, member))) => params[*member] = value.into(),
            (_, None) => return Err(format!("expected a setting of `say`, found `{name}`")),
        }
    }
    if params.get("idempotencyKey").is_none() {
        let earlier = trace.acts.iter().filter(|act| act.text.starts_with("say ")).count();
        params["idempotencyKey"] = format!("run-{}", earlier + 1).into();
    }
    Ok(Deed::Agent { principal, generation: Generation::Four, params })
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

fn tool(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    let target = scan.word("a call's id or a tool's name")?.to_owned();
    let mut behaviour = Behaviour { takes: Duration::ZERO, reports: Vec::new(), obeys: false, answer: Answer::Hangs };
    let mut answer = None;
    let mut details = None;
    while !scan.is_empty() {
        match scan.word("what the tool does")? {
            "takes" => behaviour.takes = scan.time()?,
            "obeys" => behaviour.obeys = true,
            "hangs" => answer = Some(Answer::Hangs),
            "says" => answer = Some(Answer::Says(ToolResult::text(scan.quoted()?))),
            "fails" => answer = Some(Answer::Says(ToolResult::error(scan.quoted()?))),
            "panics" => answer = Some(Answer::Panics(scan.quoted()?)),
            "details" => details = Some(scan.json()?),
            "reports" => {
                let text = scan.quoted()?;
                if !scan.take("at") {
                    return scan.wrong("`at` and a time");
                }
                behaviour.reports.push((scan.time()?, text));
            }
            word => {
                return Err(format!(
                    "expected `takes`, `reports`, `says`, `fails`, `panics`, `details`, `hangs` or `obeys`, found `{word}`"
                ));
            }
        }
    }
    behaviour.answer = match (answer, details) {
        (Some(Answer::Says(result)), Some(details)) => Answer::Says(result.with_details(details)),
        (Some(answer), _) => answer,
        (None, _) if behaviour.obeys => Answer::Hangs,
        (None, _) => return scan.wrong("`says`, `fails`, `panics`, `hangs` or `obeys`"),
    };
    behaviour.reports.sort_by_key(|(at, _)| *at);
    match trace.tools.insert(target.clone(), behaviour) {
        None => Ok(()),
        Some(_) => Err(format!("expected one line for `{target}`, found a second")),
    }
}

fn fault(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    if !scan.take("store.commit") {
        return scan.wrong("`store.commit`");
    }
    let before = scan.clone();
    let number = scan.word("a number such as #3")?.strip_prefix('#').and_then(|number| number.parse().ok());
    let Some(number) = number else { return before.wrong("a number such as #3") };
    let fault = trace.faults.entry(number).or_default();
    while !scan.is_empty() {
        let expected = "`takes`, `ENOSPC`, `EIO`, `dies` or `stored dies`";
        match scan.word(expected)? {
            "takes" => fault.delay = scan.time()?,
            "ENOSPC" => fault.error = Some("no space left on device".to_owned()),
            "EIO" => fault.error = Some("input/output error".to_owned()),
            "dies" => fault.death = Some(Death::Unstored),
            "stored" if scan.take("dies") => fault.death = Some(Death::Stored),
            word => return Err(format!("expected {expected}, found `{word}`")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn params(line: &str) -> Value {
        let trace = Trace::read("x", line).unwrap();
        match &trace.acts.last().unwrap().deed {
            Deed::Agent { params, .. } => params.clone(),
            other @ (Deed::Wait { .. } | Deed::Abort { .. } | Deed::AbortRun(_) | Deed::ShutDown | Deed::Restart) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn a_message_is_the_parameters_of_the_method() {
        assert_eq!(
            params("at 0ms say \"a\"\nat 1ms say \"b\" key=agent:ops:main timeout=5 label=\"two words\""),
            json!({"message": "b", "sessionKey": "agent:ops:main", "timeout": 5, "label": "two words", "idempotencyKey": "run-2"})
        );
        assert_eq!(params("at 0ms agent {\"message\":1}"), json!({"message": 1}));
    }
}
