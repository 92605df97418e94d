//! Randomly generated scenarios: messages that start, wait, steer, collect and interrupt, retries, aborts, waits,
//! events, new transcripts, a faulty disk, crashes, and a model that answers anything.
//!
//! A seed generates a trace without `model` lines; the model has a random generator of its own, so that it may answer
//! differently when a request is repeated. Everything is executed to its end, and then all [invariants](crate::invariants)
//! must hold.
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

use crate::{
    rng::SeededRng,
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
pub fn generate_trace(seed: u64, weather: Severity) -> String {
    let mut dice = SeededRng::new(seed);
    let mode = dice.pick(&["parallel", "sequential"]);
    let mut lines = vec![format!("set tools={mode} slots={} timeout=20s", 1 + dice.below(3))];
    lines.push(format!("set queue=\"{}\"", queue(&mut dice)));
    lines.push("set tool put idempotent {}".to_owned());
    let tools = (0..CALL_IDS).map(|id| format!("c{id}")).chain(["exec", "read", "put"].map(str::to_owned));
    lines.extend(tools.map(|target| tool(&mut dice, &target)));
    let mut said = Vec::new();
    let mut at = 0;
    for number in 0..4 + dice.below(12) {
        at += dice.below(10) * dice.below(400);
        lines.push(format!("at {at}ms {}", act(&mut dice, number, &mut said)));
        if dice.percent(3) {
            lines.push(format!("at {at}ms {}", dice.pick(&["shutdown", "drain 300ms", "drain 2s"])));
            lines.push(format!("at {}ms restart", at + dice.below(2_000)));
        }
    }
    // Stricter checks are possible where the disk never fails.
    let is_bad = dice.percent(33);
    lines.extend((1..MAX_FAULTY_COMMITS).filter_map(|commit| fault(&mut dice, commit, is_bad)));
    if weather == Severity::Rough {
        lines.extend(troubles::lines(&mut dice, (seed, at)));
    }
    lines.join("\n")
}

/// Generates a queue mode.
fn queue(dice: &mut SeededRng) -> String {
    let mode = dice.pick(&["steer", "steer", "followup", "collect", "steer-backlog", "interrupt"]);
    let drop = dice.pick(&["old", "new", "summarize"]);
    format!("{mode} debounce:{} cap:{} drop:{drop}", dice.below(3) * dice.below(600), 1 + dice.below(4))
}

fn act(dice: &mut SeededRng, number: u64, said: &mut Vec<String>) -> String {
    let throw = dice.below(100);
    if throw < 60 || said.is_empty() {
        let say = message(dice, number);
        said.push(say.clone());
        return say;
    }
    let earlier = dice.pick(said).clone();
    let word =
        |start: &str| earlier.split(' ').find_map(|word| word.strip_prefix(start)).unwrap_or_default().to_owned();
    match throw {
        60..68 => earlier,
        68..70 => format!("say \"other\" run={}", word("run=")),
        70..78 => format!("abort {}", word("run=")),
        78..81 => format!("abort {{\"sessionKey\":\"{}\"}}", word("key=")),
        81..84 => format!("chat \"{}\" run=r{number} key={}", dice.pick(&["/stop", "stop"]), word("key=")),
        84..89 => format!("wait {} for {}ms", word("run="), dice.below(3_000)),
        89..92 => format!("event \"e{number}\" key={}", word("key=")),
        92..94 => format!("reset key={}", word("key=")),
        94..96 => format!("resize main={}", 1 + dice.below(4)),
        _ => "restart".to_owned(),
    }
}

/// Generates a message: half of them follow the queue mode, and some of these choose it.
fn message(dice: &mut SeededRng, number: u64) -> String {
    let key = dice.pick(&["a", "a", "b", "c"]);
    let whose = format!("run=r{number} key={key}");
    match dice.below(20) {
        0..7 => {
            let more = dice.pick(&[
                "",
                "",
                "",
                "",
                " restart=interrupt",
                " restart=interrupt",
                " timeout=5",
                " restart=interrupt",
            ]);
            format!("say \"m{number}\" {whose}{more}")
        }
        7..12 => format!("chat \"m{number}\" {whose}"),
        12..16 => {
            let mode = dice.pick(&["steer", "steer", "followup", "collect", "interrupt"]);
            format!("chat \"m{number}\" {whose} mode={mode}")
        }
        16 => format!("chat \"/queue {} m{number}\" {whose}", queue(dice)),
        17 => format!("chat \"/queue {}\" {whose}", queue(dice)),
        18 => format!("chat \"m{number}\" {whose} channel=slack to={}", dice.pick(&["x", "y"])),
        _ => format!("chat \"{}\" {whose}", dice.pick(&["/new", "/new hello", "/queue default", "/status"])),
    }
}

fn tool(dice: &mut SeededRng, target: &str) -> String {
    let takes = dice.below(5) * dice.below(400);
    let does = match dice.below(20) {
        0 => "hangs".to_owned(),
        1 => "panics \"a bug\"".to_owned(),
        2 => format!("takes {takes}ms fails \"no\""),
        3..6 => format!("takes {takes}ms obeys says \"yes\""),
        6..9 => format!("takes {takes}ms lends says \"yes\""),
        _ => format!("takes {takes}ms says \"yes\""),
    };
    format!("tool {target} {does}")
}

fn fault(dice: &mut SeededRng, commit: u64, is_bad: bool) -> Option<String> {
    let what = match dice.below(100) {
        0..8 => format!("takes {}ms", dice.below(500)),
        8..10 => "dies".to_owned(),
        10..12 => "stored dies".to_owned(),
        12..20 if is_bad => "ENOSPC".to_owned(),
        _ => return None,
    };
    Some(format!("fault store.commit #{commit} {what}"))
}

/// Executes a seed. Deterministic.
pub fn simulate(seed: u64, weather: Severity) -> anyhow::Result<TraceResult> {
    let trace = Trace::read(&format!("seed {seed}"), &generate_trace(seed, weather))?;
    let mut asked = BTreeMap::new();
    play_out(&trace, Box::new(move |request| say((seed, weather), request, &mut asked)))
}

fn say((seed, weather): (u64, Severity), request: &Request, asked: &mut BTreeMap<RequestId, u64>) -> ScriptedAnswer {
    let question = request_id(request);
    if question.0.starts_with(ENCORE) {
        return default_answer();
    }
    let times = asked.entry(question.clone()).or_default();
    *times += 1;
    let place = question.0.bytes().fold(seed, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let mut dice = SeededRng::new(place.wrapping_mul(131).wrapping_add(question.1 as u64 * 17 + *times));
    if weather == Severity::Rough
        && let Some(turn) = troubles::say(&mut dice, seed, request)
    {
        return turn;
    }
    let mut steps = vec![AnswerStep::Pause(Duration::from_millis(dice.below(4) * dice.below(300)))];
    if dice.percent(70) {
        steps.push(AnswerStep::Text(format!("words {}", dice.below(1_000))));
    }
    match dice.below(100) {
        _ if question.1 >= MAX_ANSWERS => steps.push(done(StopReason::Stop)),
        0..45 => steps.push(done(StopReason::Stop)),
        45..88 => {
            steps.extend((0..1 + dice.below(3) as usize).flat_map(|index| call(&mut dice, index)));
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

fn call(dice: &mut SeededRng, index: usize) -> [AnswerStep; 2] {
    let id = Some(format!("c{}", dice.below(CALL_IDS)));
    let (name, arguments) = *dice.pick(&[
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
