//! Several processes on one store, one after the other: gateways and local turns, each with messages of its own, killed
//! anywhere or stopped. The model always comes to an answer, so every accepted message must get one, in order.

use std::time::Duration;

use homard_model::{Request, stream::CallDelta};
use homard_proto::message::StopReason;
use homard_stdx::SeededRng;

use super::done;
use crate::{
    runner::{ENCORE, TraceResult, play_out},
    script::{AnswerStep, ScriptedAnswer},
    sweep::{default_answer, request_id},
    trace::Trace,
};

/// Number of commits at which a process may crash.
const COMMITS: u64 = 40;

/// Returns the trace of a seed in file format.
pub fn write(seed: u64) -> String {
    let mut rng = SeededRng::new(seed);
    let mut lines = vec![
        format!("set slots={} timeout=600s down={}ms", 1 + rng.below(3), rng.below(500)),
        "set tool put idempotent {}".to_owned(),
    ];
    for tool in ["exec", "read", "put"] {
        lines.push(format!("tool {tool} takes {}ms says \"yes\"", rng.below(800)));
    }
    let (mut at, mut messages) = (0, 0);
    for lifetime in 0..2 + rng.below(4) {
        if lifetime > 0 {
            if rng.percent(30) {
                lines.push(format!("at {at}ms shutdown"));
                at += 2_000;
            }
            lines.push(format!("at {at}ms restart{}", rng.pick(&["", " local", " local"])));
            at += 500;
        }
        for _ in 0..1 + rng.below(3) {
            at += rng.below(600);
            messages += 1;
            lines.push(format!("at {at}ms say \"m{messages}\" run=r{messages} key={}", rng.pick(&["a", "a", "b"])));
        }
        // It is random whether this lifetime leaves unfinished runs to the next one.
        at += 1 + rng.below(3) * rng.below(2_500);
    }
    for _ in 0..rng.below(2) {
        let how = rng.pick(&["dies", "stored dies"]);
        lines.push(format!("fault store.commit #{} {how}", 1 + rng.below(COMMITS)));
    }
    lines.join("\n")
}

/// Plays a seed. Deterministic.
pub fn simulate(seed: u64) -> anyhow::Result<TraceResult> {
    let trace = Trace::read(&format!("seed {seed}"), &write(seed))?;
    play_out(&trace, Box::new(move |request| answer(seed, request)))
}

fn answer(seed: u64, request: &Request) -> ScriptedAnswer {
    let (message, answers) = request_id(request);
    if message.starts_with(ENCORE) {
        return default_answer();
    }
    let hash = message.bytes().fold(seed, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let mut rng = SeededRng::new(hash.wrapping_mul(131).wrapping_add(answers as u64));
    let mut steps = vec![
        AnswerStep::Pause(Duration::from_millis(rng.below(800))),
        AnswerStep::Text(format!("answer {answers} to {message}")),
        AnswerStep::Pause(Duration::from_millis(rng.below(300))),
    ];
    if answers < 2 && rng.percent(60) {
        let (name, arguments) = *rng.pick(&[("exec", "{\"cmd\":\"x\"}"), ("read", "{\"path\":\"x\"}"), ("put", "{}")]);
        let id = Some(format!("{message}-{answers}"));
        let call = CallDelta { index: 0, id, name: Some(name.to_owned()), arguments: arguments.to_owned() };
        steps.extend([AnswerStep::Call(call), done(StopReason::ToolUse)]);
    } else {
        steps.push(done(StopReason::Stop));
    }
    ScriptedAnswer(steps)
}
