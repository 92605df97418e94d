//! Several processes on one store, one after the other: gateways and local turns, each with messages of its own, killed
//! anywhere or stopped. The model always comes to an answer, so every accepted message must get one, in order.

use std::time::Duration;

use homard_model::{Request, stream::CallDelta};
use homard_proto::message::StopReason;

use super::done;
use crate::{
    rng::SeededRng,
    runner::{ENCORE, TraceResult, play_out},
    script::{AnswerStep, ScriptedAnswer},
    sweep::{default_answer, request_id},
    trace::Trace,
};

/// Commits that may be the last of a process.
const COMMITS: u64 = 40;

/// The trace of a seed, as a file would have it.
pub fn write(seed: u64) -> String {
    let mut dice = SeededRng::new(seed);
    let mut lines = vec![
        format!("set slots={} timeout=600s down={}ms", 1 + dice.below(3), dice.below(500)),
        "set tool put idempotent {}".to_owned(),
    ];
    for tool in ["exec", "read", "put"] {
        lines.push(format!("tool {tool} takes {}ms says \"yes\"", dice.below(800)));
    }
    let (mut at, mut messages) = (0, 0);
    for life in 0..2 + dice.below(4) {
        if life > 0 {
            if dice.percent(30) {
                lines.push(format!("at {at}ms shutdown"));
                at += 2_000;
            }
            lines.push(format!("at {at}ms restart{}", dice.pick(&["", " local", " local"])));
            at += 500;
        }
        for _ in 0..1 + dice.below(3) {
            at += dice.below(600);
            messages += 1;
            lines.push(format!("at {at}ms say \"m{messages}\" run=r{messages} key={}", dice.pick(&["a", "a", "b"])));
        }
        // Whether anything of this life is left to the next one is a matter of chance.
        at += 1 + dice.below(3) * dice.below(2_500);
    }
    for _ in 0..dice.below(2) {
        let how = dice.pick(&["dies", "stored dies"]);
        lines.push(format!("fault store.commit #{} {how}", 1 + dice.below(COMMITS)));
    }
    lines.join("\n")
}

/// Plays a seed. The same seed always gives the same.
pub fn simulate(seed: u64) -> anyhow::Result<TraceResult> {
    let trace = Trace::read(&format!("seed {seed}"), &write(seed))?;
    play_out(&trace, Box::new(move |request| say(seed, request)))
}

fn say(seed: u64, request: &Request) -> ScriptedAnswer {
    let (message, answers) = request_id(request);
    if message.starts_with(ENCORE) {
        return default_answer();
    }
    let place = message.bytes().fold(seed, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let mut dice = SeededRng::new(place.wrapping_mul(131).wrapping_add(answers as u64));
    let mut steps = vec![
        AnswerStep::Pause(Duration::from_millis(dice.below(800))),
        AnswerStep::Text(format!("answer {answers} to {message}")),
        AnswerStep::Pause(Duration::from_millis(dice.below(300))),
    ];
    if answers < 2 && dice.percent(60) {
        let (name, arguments) = *dice.pick(&[("exec", "{\"cmd\":\"x\"}"), ("read", "{\"path\":\"x\"}"), ("put", "{}")]);
        let id = Some(format!("{message}-{answers}"));
        let call = CallDelta { index: 0, id, name: Some(name.to_owned()), arguments: arguments.to_owned() };
        steps.extend([AnswerStep::Call(call), done(StopReason::ToolUse)]);
    } else {
        steps.push(done(StopReason::Stop));
    }
    ScriptedAnswer(steps)
}
