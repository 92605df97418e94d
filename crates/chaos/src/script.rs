//! The script of the model: a pure function of the message and of the answers so far.
//!
//! `chaos 3-17` is answered with some words and a command that appends the line `3-17` to a file, sometimes with a call
//! that reads another file, and then with a final text that names `3-17`. Some answers are slow, so that a kill can hit
//! every phase.

use std::time::Duration;

use homard_stdx::SeededRng;
use serde_json::{Value, json};

/// The file in the workspace that every run appends its line to.
pub(super) const COUNTER: &str = "counter.txt";
/// The file in the workspace that some runs read.
pub(super) const NOTES: &str = "notes.txt";

/// Returns the user's message of a run.
pub(crate) fn message(id: &str) -> String {
    format!("chaos {id} please")
}

/// Returns the run that a message belongs to.
pub(super) fn id_in(text: &str) -> Option<&str> {
    text.split_once("chaos ")?.1.split_whitespace().next()
}

/// Returns the final reply of a run.
pub(super) fn final_reply(id: &str) -> String {
    format!("{id} is counted")
}

/// One answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChaosAnswer {
    /// Text deltas; `pause` is the delay before each.
    pub words: Vec<String>,
    pub pause: Duration,
    /// The tool call that follows: its id, the tool and the arguments.
    pub call: Option<(String, &'static str, Value)>,
}

/// Returns the next answer to a message, given the number of previous ones.
pub(crate) fn answer(id: &str, answers: usize) -> ChaosAnswer {
    let mut rng = SeededRng::named(answers as u64, id);
    let pause = match rng.below(10) {
        0 => Duration::from_millis(20),
        1..4 => Duration::ZERO,
        _ => Duration::from_millis(1 + rng.below(4)),
    };
    let split_words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect();
    let has_read_call = SeededRng::named(0, id).percent(30);
    match answers {
        0 => {
            let call = (format!("count_{id}"), "exec", json!({"command": command(id, &mut rng)}));
            ChaosAnswer {
                words: split_words(&format!("I will count {id} once and only once, ")),
                pause,
                call: Some(call),
            }
        }
        1 if has_read_call => {
            let call = (format!("look_{id}"), "read", json!({"path": NOTES}));
            ChaosAnswer { words: split_words("and have a look, "), pause, call: Some(call) }
        }
        _ => ChaosAnswer { words: split_words(&final_reply(id)), pause, call: None },
    }
}

/// Returns a command that counts the run, with a delay before or after it.
fn command(id: &str, rng: &mut SeededRng) -> String {
    let count = format!("echo {id} >> {COUNTER}");
    match rng.below(4) {
        0 => format!("sleep 0.0{}; {count}", 1 + rng.below(4)),
        1 => format!("{count}; sleep 0.0{}", 1 + rng.below(4)),
        _ => count,
    }
}

/// Checks the pairing in a request: every tool call has one result, directly after its message and in order, and there
/// are no other results.
pub(super) fn unpaired(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match (message["role"].as_str(), open.first()) {
            (Some("tool"), Some(&call)) if message["tool_call_id"] == call => {
                open.remove(0);
            }
            (Some("tool"), _) => return Some(format!("a tool result without a tool call: {message}")),
            (_, Some(call)) => return Some(format!("a tool call without a result: {call}")),
            (Some("assistant"), None) => {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                open = calls.filter_map(|call| call["id"].as_str()).collect();
            }
            (_, None) => {}
        }
    }
    open.first().map(|call| format!("a tool call without a result: {call}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_counts_once_and_names_itself_at_the_end() {
        for number in 0..100 {
            let id = format!("0-{number}");
            let calls: Vec<_> = (0..3).filter_map(|answers| answer(&id, answers).call).collect();
            assert_eq!(calls.iter().filter(|(_, tool, _)| *tool == "exec").count(), 1);
            assert_eq!(answer(&id, 2).words.concat(), final_reply(&id));
            assert_eq!(answer(&id, 0), answer(&id, 0));
            assert_eq!(id_in(&format!("[now] {}", message(&id))), Some(id.as_str()));
        }
    }

    #[test]
    fn an_unpaired_call_is_found() {
        let calls = json!({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]});
        let tool = |id: &str| json!({"role": "tool", "tool_call_id": id});
        let user = json!({"role": "user", "content": "x"});
        assert_eq!(unpaired(&[user.clone(), calls.clone(), tool("a"), tool("b"), user.clone()]), None);
        assert_eq!(unpaired(&[calls.clone(), tool("a"), user]), Some("a tool call without a result: b".to_owned()));
        assert_eq!(unpaired(&[calls.clone(), tool("a")]), Some("a tool call without a result: b".to_owned()));
        assert!(unpaired(&[calls, tool("b")]).unwrap().starts_with("a tool result without a tool call"));
        assert!(unpaired(&[tool("a")]).unwrap().starts_with("a tool result without a tool call"));
    }
}
