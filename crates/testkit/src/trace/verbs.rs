//! Parser for the statements of a trace.

use std::time::Duration;

use homard_agent::tool::ToolResult;
use homard_hooks::{Point, Registration};

use super::{
    Trace, act,
    scan::{Scanner, Wrong},
    turn,
};
use crate::{
    courier::{Answer as Reaction, Conduct},
    faults::Death,
    hooks::{Does, Part, Place},
    tools::{Answer, Behaviour},
};

/// Parses one statement into the trace.
pub(super) fn read(line: &str, trace: &mut Trace) -> Result<(), Wrong> {
    let mut scan = Scanner::new(line);
    let whole = scan.clone();
    match scan.peek() {
        "set" => scan.word("").and_then(|_| trace.setup.read(&mut scan)),
        "at" => scan.word("").and_then(|_| act::read(&mut scan, trace)),
        "model" => scan.word("").and_then(|_| turn::read(&mut scan)).map(|turn| trace.turns.push(turn)),
        "tool" => scan.word("").and_then(|_| tool(&mut scan, trace)),
        "courier" => scan.word("").and_then(|_| courier(&mut scan, trace)),
        "fault" => scan.word("").and_then(|_| fault(&mut scan, trace)),
        "hook" => scan.word("").and_then(|_| hook(&mut scan)).map(|part| trace.parts.push(part)),
        _ => whole.wrong("`set`, `at`, `model`, `tool`, `courier`, `fault` or `hook`"),
    }
}

fn tool(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    let target = scan.word("a call's id or a tool's name")?.to_owned();
    let mut behaviour = Behaviour {
        takes: Duration::ZERO,
        reports: Vec::new(),
        obeys: false,
        lends: false,
        background: None,
        sends: false,
        reads: None,
        answer: Answer::Hangs,
    };
    let mut answer = None;
    let mut details = None;
    while !scan.is_empty() {
        match scan.word("what the tool does")? {
            "takes" => behaviour.takes = scan.time()?,
            "obeys" => behaviour.obeys = true,
            "lends" => behaviour.lends = true,
            "hangs" => answer = Some(Answer::Hangs),
            "says" => answer = Some(Answer::Says(ToolResult::text(scan.quoted()?))),
            "fails" => answer = Some(Answer::Says(ToolResult::error(scan.quoted()?))),
            "panics" => answer = Some(Answer::Panics(scan.quoted()?)),
            "details" => details = Some(scan.json()?),
            "sends" => behaviour.sends = true,
            "reads" => behaviour.reads = Some(scan.word("the call that started a command")?.to_owned()),
            "ends" => {
                let text = scan.quoted()?;
                if !scan.take("after") {
                    return scan.wrong("`after` and a time");
                }
                behaviour.background = Some((scan.time()?, text));
            }
            "reports" => {
                let text = scan.quoted()?;
                if !scan.take("at") {
                    return scan.wrong("`at` and a time");
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

fn hook(scan: &mut Scanner<'_>) -> Result<Part, Wrong> {
    let name = scan.word("a hook's name")?.to_owned();
    let expected = "a point of the loop, `signal=` or `command`";
    let before = scan.clone();
    let mut at = match scan.peek() {
        "signal" => Place::Signal(scan.setting()?.1, false),
        "command" => scan.word(expected).map(|_| Place::Command)?,
        point => match Point::named(point) {
            Some(point) => scan.word(expected).map(|_| Place::Point(Registration::at(point)))?,
            None => return before.wrong(expected),
        },
    };
    let (mut takes, mut does) = (Duration::ZERO, None);
    while !scan.is_empty() {
        let expected = "`priority=`, `guard`, `takes`, `answers`, `fails` or `hangs`";
        match (scan.peek(), &mut at) {
            ("priority", Place::Point(registration)) => {
                let before = scan.clone();
                let Ok(priority) = scan.setting()?.1.parse() else { return before.wrong("a number") };
                registration.priority = priority;
            }
            ("guard", Place::Point(registration)) => {
                scan.word(expected)?;
                registration.is_guard = true;
            }
            ("guard", Place::Signal(_, is_guard)) => {
                scan.word(expected)?;
                *is_guard = true;
            }
            _ => match scan.word(expected)? {
                "takes" => takes = scan.time()?,
                "answers" => does = Some(Does::Answers(scan.json()?)),
                "fails" => does = Some(Does::Fails(scan.quoted()?)),
                "hangs" => does = Some(Does::Hangs),
                word => return Err(format!("expected {expected}, found `{word}`")),
            },
        }
    }
    let does = does.unwrap_or_else(|| Does::Answers(serde_json::json!({})));
    Ok(Part { name, at, does, takes })
}

/// Parses the number of a call or a commit: `#3`.
fn number(scan: &mut Scanner<'_>) -> Result<u64, Wrong> {
    let before = scan.clone();
    let number = scan.word("a number such as #3")?.strip_prefix('#').and_then(|number| number.parse().ok());
    number.map_or_else(|| before.wrong("a number such as #3"), Ok)
}

fn courier(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    let number = number(scan)?;
    let mut conduct = Conduct::default();
    while !scan.is_empty() {
        let expected = "`takes`, `hears`, `refuses`, `busy`, `loses`, `drops`, `panics` or `hangs`";
        match scan.word(expected)? {
            "takes" => conduct.takes = scan.time()?,
            "hangs" => conduct.takes = Duration::MAX,
            "hears" => conduct.answer = Reaction::Hears,
            "refuses" => conduct.answer = Reaction::Refuses(scan.quoted()?),
            "loses" => conduct.answer = Reaction::Loses(scan.quoted()?),
            "drops" => conduct.answer = Reaction::Drops(scan.quoted()?),
            "panics" => conduct.answer = Reaction::Panics(scan.quoted()?),
            "busy" => {
                let why = scan.quoted()?;
                let after = scan.take("after").then(|| scan.time()).transpose()?;
                conduct.answer = Reaction::Busy(why, after);
            }
            word => return Err(format!("expected {expected}, found `{word}`")),
        }
    }
    match trace.conducts.insert(number, conduct) {
        None => Ok(()),
        Some(_) => Err(format!("expected one line for `courier #{number}`, found a second")),
    }
}

fn fault(scan: &mut Scanner<'_>, trace: &mut Trace) -> Result<(), Wrong> {
    if !scan.take("store.commit") {
        return scan.wrong("`store.commit`");
    }
    let number = number(scan)?;
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
