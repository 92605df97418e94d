//! Rule for the fake model's answers to clients: a keyword in the message selects the answer.

use std::time::Duration;

use serde_json::Value;

use super::{model::Say, talk::words};

/// Makes the model run a command.
pub(super) const TOOL: &str = "TOOLEXEC";
/// Output of that command.
pub(super) const TOOL_SAYS: &str = "tool-was-here";
/// Makes the model stream for half a minute.
pub(super) const SLOW: &str = "SLOWLY";
/// Makes the model fail.
pub(super) const FAIL: &str = "FAIL400";
/// The model's error message.
pub(super) const FAILED: &str = "the puppet does not want to";

/// Returns the answer to a request.
pub(super) fn says(request: &Value) -> Say {
    let messages: Vec<&Value> = request["messages"].as_array().into_iter().flatten().collect();
    let last = messages.last().map(|message| words(message)).unwrap_or_default();
    if last.0 == "tool" {
        return Say::Words(format!("The tool answered {}.", last.1.trim().replace('\n', " ")));
    }
    let asked = messages.iter().rev().map(|message| words(message)).find(|(role, _)| role == "user");
    let asked = asked.map(|(_, text)| text).unwrap_or_default();
    if asked.contains(TOOL) {
        Say::Call("exec", r#"{"command": "echo tool-was-here"}"#)
    } else if asked.contains(SLOW) {
        let words: Vec<String> = (1..=100).map(|number| format!("word{number}")).collect();
        Say::Slowly(words.join(" "), Duration::from_millis(300))
    } else if asked.contains(FAIL) {
        Say::Fail(400, FAILED)
    } else {
        let line = asked.lines().last().unwrap_or_default();
        // Without the timestamp that precedes users' messages.
        let line = line.split_once("] ").filter(|_| line.starts_with('[')).map_or(line, |(_, line)| line);
        Say::Words(format!("I have heard: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_in_the_newest_message_says_how() {
        let said = |messages: Value| format!("{:?}", says(&json!({"messages": messages})));
        let user = |text: &str| json!({"role": "user", "content": text});
        assert_eq!(said(json!([user("hi"), user("ho")])), r#"Words("I have heard: ho")"#);
        assert!(said(json!([user(TOOL)])).starts_with("Call(\"exec\""));
        let tool = json!({"role": "tool", "content": "x\n"});
        assert_eq!(said(json!([user(TOOL), tool])), r#"Words("The tool answered x.")"#);
        assert!(said(json!([user(FAIL), user("now")])).starts_with("Words"));
    }
}
