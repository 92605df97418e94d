//! Faults between a message and its reply in a random scenario.

use std::time::Duration;

use homard_model::{Error, ErrorKind, Request, stream::AnswerEnd};
use homard_proto::message::{StopReason, Usage};
use homard_stdx::SeededRng;

use serde_json::{Value, json};

use crate::{
    runner::EPOCH_MS,
    script::{AnswerStep, ScriptedAnswer},
};

/// One in this many scenarios has long texts.
const TALKATIVE: u64 = 5;

/// A sentence that is repeated for long texts.
const LONG: &str = "All about the house by the sea. ";

/// A summary with all required sections.
const SUMMARY: &str = "## Goal\nKeep the house.\n## Constraints\nnone\n## Progress\n### Done\nmuch of it\n### In progress\n\
    more\n### Blocked\nnothing\n## Decisions\nto go on\n## Next steps\ngo on\n## Critical context\nthe word is tide, and \
    the house stands by the sea where it always stood";

/// Generates additional lines for the trace of a seed whose acts end at this time.
pub(super) fn lines(rng: &mut SeededRng, seed: u64, end: u64) -> Vec<String> {
    let mut lines = vec![format!("set retries={} down={}ms", rng.below(3), 20 + rng.below(600))];
    if rng.percent(60) {
        lines.push("set fallback=200000 fallback=200000".to_owned());
    }
    if is_talkative(seed) {
        lines.push("set window=40000".to_owned());
        lines.push(format!("set session agent:main:a {}", json!({"sessionId": "old", "updatedAt": EPOCH_MS - 1})));
        lines.extend(long_history().into_iter().map(|line| format!("set line agent:main:a {line}")));
    }
    if rng.percent(30) {
        lines.push(format!("set timeout={}ms", 500 + rng.below(2_000)));
    }
    for number in 0..rng.below(5) {
        let message = rng.pick(&["\"/compact\"", "\"now\" mode=steer", "\"now\" mode=steer", "\"now\" mode=interrupt"]);
        let key = rng.pick(&["a", "a", "b"]);
        lines.push(format!("at {}ms chat {message} run=x{number} key={key}", rng.below(end + 2_000)));
    }
    let hooks = [
        "hook build before_prompt_build takes 30ms answers {\"prependContext\":\"It is Monday.\"}",
        "hook guard before_tool_call takes 15ms answers {\"block\":true,\"blockReason\":\"not today\"}",
        "hook watch before_tool_call takes 5ms fails \"no idea\"",
        "hook after after_tool_call takes 5ms",
        "hook start before_agent_start takes 20ms answers {\"prependContext\":\"Now.\"}",
    ];
    lines.extend(hooks.iter().filter(|_| rng.percent(15)).map(|hook| (*hook).to_owned()));
    lines
}

/// Generates a history that nearly fills the context window.
fn long_history() -> Vec<Value> {
    let roles = ["user", "assistant"].into_iter().cycle().take(6);
    let text = |role| if role == "user" { "go on".to_owned() } else { LONG.repeat(900) };
    let entry = |(number, role): (u64, _)| {
        let at = EPOCH_MS - 100 + number;
        let mut message = json!({"role": role, "content": [{"type": "text", "text": text(role)}], "timestamp": at});
        if role == "assistant" {
            message["stopReason"] = "stop".into();
        }
        let parent = number.checked_sub(1).map(|before| format!("old-{before}"));
        json!({"type": "message", "message": message, "id": format!("old-{number}"), "parentId": parent, "timestamp": "t"})
    };
    (0..).zip(roles).map(entry).collect()
}

fn is_talkative(seed: u64) -> bool {
    seed.is_multiple_of(TALKATIVE)
}

/// Returns a failure, an empty or a very long answer in place of the usual one; `None` in most cases.
pub(super) fn faulty_answer(rng: &mut SeededRng, seed: u64, request: &Request) -> Option<ScriptedAnswer> {
    let pause = AnswerStep::Pause(Duration::from_millis(rng.below(300)));
    let done = || AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() });
    let text = |text: &str| AnswerStep::Text(text.to_owned());
    // Only compaction requests have no tools.
    if request.tools.is_empty() {
        let failure = AnswerStep::Fail(Error::new(ErrorKind::Server, "nobody sums up"));
        return Some(ScriptedAnswer(if rng.percent(80) {
            vec![pause, text(SUMMARY), done()]
        } else {
            vec![pause, failure]
        }));
    }
    let fails = |kind, why: &str| AnswerStep::Fail(Error::new(kind, why));
    let last = match rng.below(100) {
        0..5 => fails(ErrorKind::RateLimit, "slow down"),
        5..9 => fails(ErrorKind::Overloaded, "busy"),
        9..12 => fails(ErrorKind::Connect, "nobody answers"),
        12..14 => fails(ErrorKind::Auth, "who are you"),
        14..16 => fails(ErrorKind::Rejected, "no such thing"),
        16..18 => fails(ErrorKind::Billing, "pay first"),
        18..22 => fails(ErrorKind::Overflow, "prompt is too long"),
        22..24 => return Some(ScriptedAnswer(vec![pause, done()])),
        24..60 if is_talkative(seed) => {
            return Some(ScriptedAnswer(vec![pause, AnswerStep::Text(LONG.repeat(900)), done()]));
        }
        _ => return None,
    };
    let mut steps = vec![pause];
    steps.extend(rng.percent(30).then(|| text("Well, ")));
    steps.push(last);
    Some(ScriptedAnswer(steps))
}
