//! Randomly generated scenarios: messages that start, wait, steer, collect and interrupt, retries, aborts, waits,
//! events, new transcripts, a faulty disk, crashes, and a model that answers anything.
//!
//! A seed generates a trace without `model` lines; the model has a random generator of its own, so that it may answer
//! differently when a request is repeated. Everything is executed to its end, and then all
//! [invariants](crate::invariants) must hold.
//!
//! A [rough](Severity::Rough) scenario has additional problems on the way to an answer: `troubles`.

pub mod conversation;
pub mod processes;
mod troubles;

use std::{collections::BTreeMap, time::Duration};

use homard_model::{
    Error, ErrorKind, Request,
    stream::{AnswerEnd, CallDelta},
};
use homard_proto::message::{StopReason, Usage};
use homard_stdx::SeededRng;

use crate::{
    runner::{ENCORE, TraceResult, play_out},
    script::{AnswerStep, ScriptedAnswer},
    sweep::{RequestId, default_answer, request_id},
    trace::Trace,
};

/// Number of different ids that the model gives to its calls.
const CALL_IDS: u64 = 6;

/// Number of answers to one message after which the model stops.
const MAX_ANSWERS: usize = 4;

/// Number of commits that may be faulty.
const MAX_FAULTY_COMMITS: u64 = 60;

/// How many problems a scenario has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Models and the disk fail occasionally.
    Normal,
    /// Models fail in every way and requests are retried, fallbacks are used, conversations get too long, hooks are
    /// called, and the process stays down for a while after a crash.
    Rough,
}

/// Generates the trace of a seed in file format.
pub fn generate_trace(seed: u64, severity: Severity) -> String {
    let mut rng = SeededRng::new(seed);
    let mode = rng.pick(&["parallel", "sequential"]);
    let mut lines = vec![format!("set tools={mode} slots={} timeout=20s", 1 + rng.below(3))];
    lines.push(format!("set queue=\"{}\"", queue(&mut rng)));
    lines.push("set tool put idempotent {}".to_owned());
    let tools = (0..CALL_IDS).map(|id| format!("c{id}")).chain(["exec", "read", "put"].map(str::to_owned));
    lines.extend(tools.map(|target| tool(&mut rng, &target)));
    let mut messages = Vec::new();
    let mut at = 0;
    for number in 0..4 + rng.below(12) {
        at += rng.below(10) * rng.below(400);
        lines.push(format!("at {at}ms {}", act(&mut rng, number, &mut messages)));
        if rng.percent(3) {
            lines.push(format!("at {at}ms {}", rng.pick(&["shutdown", "drain 300ms", "drain 2s"])));
            lines.push(format!("at {}ms restart", at + rng.below(2_000)));
        }
    }
    // Stricter checks are possible where the disk never fails.
    let is_bad = rng.percent(33);
    lines.extend((1..MAX_FAULTY_COMMITS).filter_map(|commit| fault(&mut rng, commit, is_bad)));
    if severity == Severity::Rough {
        lines.extend(troubles::lines(&mut rng, seed, at));
    }
    lines.join("\n")
}

/// Generates a queue mode.
fn queue(rng: &mut SeededRng) -> String {
    let mode = rng.pick(&["steer", "steer", "followup", "collect", "steer-backlog", "interrupt"]);
    let drop = rng.pick(&["old", "new", "summarize"]);
    format!("{mode} debounce:{} cap:{} drop:{drop}", rng.below(3) * rng.below(600), 1 + rng.below(4))
}

/// Generates what arrives at one time: a new message, an earlier one again, or a request such as an abort or a restart.
fn act(rng: &mut SeededRng, number: u64, messages: &mut Vec<String>) -> String {
    let roll = rng.below(100);
    if roll < 60 || messages.is_empty() {
        let text = message(rng, number);
        messages.push(text.clone());
        return text;
    }
    let earlier = rng.pick(messages).clone();
    let word =
        |start: &str| earlier.split(' ').find_map(|word| word.strip_prefix(start)).unwrap_or_default().to_owned();
    match roll {
        60..68 => earlier,
        68..70 => format!("say \"other\" run={}", word("run=")),
        70..78 => format!("abort {}", word("run=")),
        78..81 => format!("abort {{\"sessionKey\":\"{}\"}}", word("key=")),
        81..84 => format!("chat \"{}\" run=r{number} key={}", rng.pick(&["/stop", "stop"]), word("key=")),
        84..89 => format!("wait {} for {}ms", word("run="), rng.below(3_000)),
        89..92 => format!("event \"e{number}\" key={}", word("key=")),
        92..94 => format!("reset key={}", word("key=")),
        94..96 => format!("resize main={}", 1 + rng.below(4)),
        _ => "restart".to_owned(),
    }
}

/// Generates a message: half of them follow the queue mode, and some of these choose it.
fn message(rng: &mut SeededRng, number: u64) -> String {
    let key = rng.pick(&["a", "a", "b", "c"]);
    let run_and_key = format!("run=r{number} key={key}");
    match rng.below(20) {
        0..7 => {
            let options = rng.pick(&[
                "",
                "",
                "",
                "",
                " restart=interrupt",
                " restart=interrupt",
                " timeout=5",
                " restart=interrupt",
            ]);
            format!("say \"m{number}\" {run_and_key}{options}")
        }
        7..12 => format!("chat \"m{number}\" {run_and_key}"),
        12..16 => {
            let mode = rng.pick(&["steer", "steer", "followup", "collect", "interrupt"]);
            format!("chat \"m{number}\" {run_and_key} mode={mode}")
        }
        16 => format!("chat \"/queue {} m{number}\" {run_and_key}", queue(rng)),
        17 => format!("chat \"/queue {}\" {run_and_key}", queue(rng)),
        18 => format!("chat \"m{number}\" {run_and_key} channel=slack to={}", rng.pick(&["x", "y"])),
        _ => format!("chat \"{}\" {run_and_key}", rng.pick(&["/new", "/new hello", "/queue default", "/status"])),
    }
}

/// Generates the behaviour of a tool. A tool that `obeys` ends when it is cancelled; one that `lends` gives the run's
/// slot to other runs until it returns.
fn tool(rng: &mut SeededRng, target: &str) -> String {
    let delay_ms = rng.below(5) * rng.below(400);
    let behaviour = match rng.below(20) {
        0 => "hangs".to_owned(),
        1 => "panics \"a bug\"".to_owned(),
        2 => format!("takes {delay_ms}ms fails \"no\""),
        3..6 => format!("takes {delay_ms}ms obeys says \"yes\""),
        6..9 => format!("takes {delay_ms}ms lends says \"yes\""),
        _ => format!("takes {delay_ms}ms says \"yes\""),
    };
    format!("tool {target} {behaviour}")
}

/// Generates the fault of a commit; most commits have none. Disk errors occur only if `is_bad`.
fn fault(rng: &mut SeededRng, commit: u64, is_bad: bool) -> Option<String> {
    let what = match rng.below(100) {
        0..8 => format!("takes {}ms", rng.below(500)),
        8..10 => "dies".to_owned(),
        10..12 => "stored dies".to_owned(),
        12..20 if is_bad => "ENOSPC".to_owned(),
        _ => return None,
    };
    Some(format!("fault store.commit #{commit} {what}"))
}

/// Executes a seed. Deterministic.
pub fn simulate(seed: u64, severity: Severity) -> anyhow::Result<TraceResult> {
    let trace = Trace::read(&format!("seed {seed}"), &generate_trace(seed, severity))?;
    let mut counts = BTreeMap::new();
    play_out(&trace, Box::new(move |request| answer(seed, severity, request, &mut counts)))
}

fn answer(seed: u64, severity: Severity, request: &Request, counts: &mut BTreeMap<RequestId, u64>) -> ScriptedAnswer {
    let request_key = request_id(request);
    if request_key.0.starts_with(ENCORE) {
        return default_answer();
    }
    let times = counts.entry(request_key.clone()).or_default();
    *times += 1;
    let hash = request_key.0.bytes().fold(seed, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let mut rng = SeededRng::new(hash.wrapping_mul(131).wrapping_add(request_key.1 as u64 * 17 + *times));
    if severity == Severity::Rough
        && let Some(turn) = troubles::faulty_answer(&mut rng, seed, request)
    {
        return turn;
    }
    let mut steps = vec![AnswerStep::Pause(Duration::from_millis(rng.below(4) * rng.below(300)))];
    if rng.percent(70) {
        steps.push(AnswerStep::Text(format!("words {}", rng.below(1_000))));
    }
    match rng.below(100) {
        _ if request_key.1 >= MAX_ANSWERS => steps.push(done(StopReason::Stop)),
        0..45 => steps.push(done(StopReason::Stop)),
        45..88 => {
            steps.extend((0..1 + rng.below(3) as usize).flat_map(|index| call(&mut rng, index)));
            steps.push(done(StopReason::ToolUse));
        }
        88..92 => steps.push(AnswerStep::Fail(Error::new(ErrorKind::Server, "no"))),
        92..94 => steps.push(done(StopReason::Error)),
        94..96 => steps.push(AnswerStep::Hang),
        96..98 => steps.push(AnswerStep::Panic("a bug".to_owned())),
        // The answer is cut off.
        _ => {}
    }
    ScriptedAnswer(steps)
}

fn call(rng: &mut SeededRng, index: usize) -> [AnswerStep; 2] {
    let id = Some(format!("c{}", rng.below(CALL_IDS)));
    let (name, arguments) = *rng.pick(&[
        ("exec", "{\"cmd\":\"x\"}"),
        ("read", "{\"path\":\"x\"}"),
        ("put", "{}"),
        ("fly", "{}"),
        ("exec", "{"),
    ]);
    [
        AnswerStep::Call(CallDelta { index, id, name: Some(name.to_owned()), arguments: String::new() }),
        AnswerStep::Call(CallDelta { index, arguments: arguments.to_owned(), ..CallDelta::default() }),
    ]
}

fn done(stop: StopReason) -> AnswerStep {
    AnswerStep::Done(AnswerEnd { stop, usage: Usage::default() })
}
