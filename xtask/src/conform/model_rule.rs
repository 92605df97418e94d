//! Rule for the fake model's answers to clients: a keyword in the message selects the answer.

use std::time::Duration;

use serde_json::Value;

use super::{messages::role_and_text, model::RuleAnswer};

/// Makes the model run a command.
pub(super) const TOOL: &str = "TOOLEXEC";
/// Output of the command that [`TOOL`] makes the model run.
pub(super) const TOOL_SAYS: &str = "tool-was-here";
/// Makes the model stream for half a minute.
pub(super) const SLOW: &str = "SLOWLY";
/// Makes the model stream for six seconds.
pub(super) const PACED: &str = "PACED";
/// Words of that answer.
pub(super) const PACED_WORDS: usize = 60;
/// Makes the model fail.
pub(super) const FAIL: &str = "FAIL400";
/// The model's error message.
pub(super) const FAILED: &str = "the puppet does not want to";

/// Returns the answer to a request.
pub(super) fn answer(request: &Value) -> RuleAnswer {
    let messages: Vec<&Value> = request["messages"].as_array().into_iter().flatten().collect();
    let last = messages.last().map(|message| role_and_text(message)).unwrap_or_default();
    if last.0 == "tool" {
        return RuleAnswer::Text(format!("The tool answered {}.", last.1.trim().replace('\n', " ")));
    }
    let user_text = messages.iter().rev().map(|message| role_and_text(message)).find(|(role, _)| role == "user");
    let user_text = user_text.map(|(_, text)| text).unwrap_or_default();
    if user_text.contains(TOOL) {
        RuleAnswer::Call("exec", r#"{"command": "echo tool-was-here"}"#)
    } else if user_text.contains(SLOW) {
        RuleAnswer::Slowly(words("word", 100), Duration::from_millis(300))
    } else if user_text.contains(PACED) {
        // The words of two answers of a session differ.
        let tag = user_text.split_whitespace().last().unwrap_or_default();
        RuleAnswer::Slowly(words(tag, PACED_WORDS), Duration::from_millis(100))
    } else if user_text.contains(FAIL) {
        RuleAnswer::Fail(400, FAILED)
    } else {
        let line = user_text.lines().last().unwrap_or_default();
        // Without the timestamp that precedes users' messages.
        let line = line.split_once("] ").filter(|_| line.starts_with('[')).map_or(line, |(_, line)| line);
        RuleAnswer::Text(format!("I have heard: {line}"))
    }
}

/// Returns numbered words.
fn words(word: &str, count: usize) -> String {
    let words: Vec<_> = (1..=count).map(|number| format!("{word}{number}")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_keyword_in_the_newest_message_selects_the_answer() {
        let answer_to = |messages: Value| format!("{:?}", answer(&json!({"messages": messages})));
        let user = |text: &str| json!({"role": "user", "content": text});
        assert_eq!(answer_to(json!([user("hi"), user("ho")])), r#"Text("I have heard: ho")"#);
        assert!(answer_to(json!([user(TOOL)])).starts_with("Call(\"exec\""));
        let tool = json!({"role": "tool", "content": "x\n"});
        assert_eq!(answer_to(json!([user(TOOL), tool])), r#"Text("The tool answered x.")"#);
        assert!(answer_to(json!([user(FAIL), user("now")])).starts_with("Text"));
    }
}
