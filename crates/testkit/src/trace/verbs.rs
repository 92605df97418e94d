//! Parser for the statements of a trace.

use std::time::Duration;

use homard_agent::tool::ToolResult;
use homard_hooks::{HookPoint, Registration};

use super::{
    Trace, act,
    scan::{LineScanner, SyntaxMessage},
    turn,
};
use crate::{
    channel_sender::{SenderBehaviour, SenderResponse as Reaction},
    faults::CrashPoint,
    hooks::{HookBehaviour, HookPlace, ScriptedParticipant},
    tools::{ToolAnswer, ToolBehaviour},
};

/// Parses one statement into the trace.
pub(super) fn parse(line: &str, trace: &mut Trace) -> Result<(), SyntaxMessage> {
    let mut scan = LineScanner::new(line);
    let whole = scan.clone();
    match scan.peek() {
        "set" => scan.word("").and_then(|_| trace.setup.read(&mut scan)),
        "at" => scan.word("").and_then(|_| act::parse(&mut scan, trace)),
        "model" => scan.word("").and_then(|_| turn::parse(&mut scan)).map(|turn| trace.turns.push(turn)),
        "tool" => scan.word("").and_then(|_| tool(&mut scan, trace)),
        "courier" => scan.word("").and_then(|_| sender_behaviour(&mut scan, trace)),
        "fault" => scan.word("").and_then(|_| fault(&mut scan, trace)),
        "hook" => scan.word("").and_then(|_| hook(&mut scan)).map(|participant| trace.participants.push(participant)),
        _ => whole.error("`set`, `at`, `model`, `tool`, `courier`, `fault` or `hook`"),
    }
}

fn tool(scan: &mut LineScanner<'_>, trace: &mut Trace) -> Result<(), SyntaxMessage> {
    let target = scan.word("a call's id or a tool's name")?.to_owned();
    let mut behaviour = ToolBehaviour {
        delay: Duration::ZERO,
        reports: Vec::new(),
        is_cancellable: false,
        lends_slot: false,
        background: None,
        sends: false,
        reads_background: None,
        answer: ToolAnswer::Hangs,
    };
    let mut answer = None;
    let mut details = None;
    while !scan.is_empty() {
        match scan.word("what the tool does")? {
            "takes" => behaviour.delay = scan.time()?,
            "obeys" => behaviour.is_cancellable = true,
            "lends" => behaviour.lends_slot = true,
            "hangs" => answer = Some(ToolAnswer::Hangs),
            "says" => answer = Some(ToolAnswer::Says(ToolResult::text(scan.quoted()?))),
            "fails" => answer = Some(ToolAnswer::Says(ToolResult::error(scan.quoted()?))),
            "panics" => answer = Some(ToolAnswer::Panics(scan.quoted()?)),
            "details" => details = Some(scan.json()?),
            "sends" => behaviour.sends = true,
            "reads" => behaviour.reads_background = Some(scan.word("the call that started a command")?.to_owned()),
            "ends" => {
                let text = scan.quoted()?;
                if !scan.take("after") {
                    return scan.error("`after` and a time");
                }
                behaviour.background = Some((scan.time()?, text));
            }
            "reports" => {
                let text = scan.quoted()?;
                if !scan.take("at") {
                    return scan.error("`at` and a time");
                }
                behaviour.reports.push((scan.time()?, text));
            }
            word => {
                return Err(format!(
                    "expected `takes`, `reports`, `ends`, `sends`, `reads`, `says`, `fails`, `panics`, `details`, `hangs`, `obeys` or `lends`, found `{word}`"
                ));
            }
        }
    }
    behaviour.answer = match (answer, details) {
        (Some(ToolAnswer::Says(result)), Some(details)) => ToolAnswer::Says(result.with_details(details)),
        (Some(answer), _) => answer,
        (None, _) if behaviour.is_cancellable => ToolAnswer::Hangs,
        (None, _) => return scan.error("`says`, `fails`, `panics`, `hangs` or `obeys`"),
    };
    behaviour.reports.sort_by_key(|(at, _)| *at);
    match trace.tools.insert(target.clone(), behaviour) {
        None => Ok(()),
        Some(_) => Err(format!("expected one line for `{target}`, found a second")),
    }
}

fn hook(scan: &mut LineScanner<'_>) -> Result<ScriptedParticipant, SyntaxMessage> {
    let name = scan.word("a hook's name")?.to_owned();
    let expected = "a point of the loop, `signal=` or `command`";
    let before = scan.clone();
    let mut at = match scan.peek() {
        "signal" => HookPlace::Signal(scan.setting()?.1, false),
        "command" => scan.word(expected).map(|_| HookPlace::Command)?,
        point => match HookPoint::named(point) {
            Some(point) => scan.word(expected).map(|_| HookPlace::Point(Registration::at(point)))?,
            None => return before.error(expected),
        },
    };
    let (mut delay, mut behaviour) = (Duration::ZERO, None);
    while !scan.is_empty() {
        let expected = "`priority=`, `guard`, `takes`, `answers`, `fails` or `hangs`";
        match (scan.peek(), &mut at) {
            ("priority", HookPlace::Point(registration)) => {
                let before = scan.clone();
                let Ok(priority) = scan.setting()?.1.parse() else { return before.error("a number") };
                registration.priority = priority;
            }
            ("guard", HookPlace::Point(registration)) => {
                scan.word(expected)?;
                registration.is_guard = true;
            }
            ("guard", HookPlace::Signal(_, is_guard)) => {
                scan.word(expected)?;
                *is_guard = true;
            }
            _ => match scan.word(expected)? {
                "takes" => delay = scan.time()?,
                "answers" => behaviour = Some(HookBehaviour::Answers(scan.json()?)),
                "fails" => behaviour = Some(HookBehaviour::Fails(scan.quoted()?)),
                "hangs" => behaviour = Some(HookBehaviour::Hangs),
                word => return Err(format!("expected {expected}, found `{word}`")),
            },
        }
    }
    let behaviour = behaviour.unwrap_or_else(|| HookBehaviour::Answers(serde_json::json!({})));
    Ok(ScriptedParticipant { name, at, behaviour, delay })
}

/// Parses the number of a call or a commit: `#3`.
fn number(scan: &mut LineScanner<'_>) -> Result<u64, SyntaxMessage> {
    let before = scan.clone();
    let number = scan.word("a number such as #3")?.strip_prefix('#').and_then(|number| number.parse().ok());
    number.map_or_else(|| before.error("a number such as #3"), Ok)
}

fn sender_behaviour(scan: &mut LineScanner<'_>, trace: &mut Trace) -> Result<(), SyntaxMessage> {
    let number = number(scan)?;
    let mut behaviour = SenderBehaviour::default();
    while !scan.is_empty() {
        let expected = "`takes`, `hears`, `refuses`, `busy`, `loses`, `drops`, `panics` or `hangs`";
        match scan.word(expected)? {
            "takes" => behaviour.delay = scan.time()?,
            "hangs" => behaviour.delay = Duration::MAX,
            "hears" => behaviour.response = Reaction::Accepts,
            "refuses" => behaviour.response = Reaction::Rejects(scan.quoted()?),
            "loses" => behaviour.response = Reaction::AcceptsSilently(scan.quoted()?),
            "drops" => behaviour.response = Reaction::DropsSilently(scan.quoted()?),
            "panics" => behaviour.response = Reaction::Panics(scan.quoted()?),
            "busy" => {
                let why = scan.quoted()?;
                let after = scan.take("after").then(|| scan.time()).transpose()?;
                behaviour.response = Reaction::Busy(why, after);
            }
            word => return Err(format!("expected {expected}, found `{word}`")),
        }
    }
    match trace.sender_behaviours.insert(number, behaviour) {
        None => Ok(()),
        Some(_) => Err(format!("expected one line for `courier #{number}`, found a second")),
    }
}

fn fault(scan: &mut LineScanner<'_>, trace: &mut Trace) -> Result<(), SyntaxMessage> {
    if !scan.take("store.commit") {
        return scan.error("`store.commit`");
    }
    let number = number(scan)?;
    let fault = trace.faults.entry(number).or_default();
    while !scan.is_empty() {
        let expected = "`takes`, `ENOSPC`, `EIO`, `dies` or `stored dies`";
        match scan.word(expected)? {
            "takes" => fault.delay = scan.time()?,
            "ENOSPC" => fault.error = Some("no space left on device".to_owned()),
            "EIO" => fault.error = Some("input/output error".to_owned()),
            "dies" => fault.crash = Some(CrashPoint::BeforeCommit),
            "stored" if scan.take("dies") => fault.crash = Some(CrashPoint::AfterCommit),
            word => return Err(format!("expected {expected}, found `{word}`")),
        }
    }
    Ok(())
}
