//! Messages, prepared for people.

use homard_runtime::ambient::iso;
use serde_json::Value;

/// Lines of a tool result that are shown unless all are wanted.
const MAX_RESULT_LINES: usize = 20;
/// Characters that change the direction of the text around them, with which a text can look like another one.
const DIRECTION_CHARS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}', '\u{2069}',
];

/// A message, prepared for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMessage {
    /// Who wrote it: `user`, `assistant`, or the name of a tool and `result`.
    pub author: String,
    /// Time, model and failure, if known.
    pub details: Vec<String>,
    pub text: String,
    /// Tool calls: the name, and the arguments in short.
    pub calls: Vec<String>,
}

impl ShownMessage {
    pub fn new(message: &Value) -> Self {
        let field = |name: &str| message[name].as_str().filter(|text| !text.is_empty()).map(plain);
        let author = match field("role").as_deref() {
            Some("toolResult") => format!("{} result", field("toolName").unwrap_or_default()),
            Some(role) => role.to_owned(),
            None => "other".to_owned(),
        };
        let mut details: Vec<String> =
            message["timestamp"].as_u64().filter(|at| *at > 0).map(iso).into_iter().collect();
        if let (Some(provider), Some(model)) = (field("provider"), field("model")) {
            details.push(format!("{provider}/{model}"));
        }
        if message["isError"] == true || message["stopReason"] == "error" {
            details.push("failed".to_owned());
        }
        let (mut texts, mut calls) = (Vec::new(), Vec::new());
        match &message["content"] {
            Value::String(text) => texts.push(plain(text)),
            Value::Array(blocks) => {
                for block in blocks {
                    match block["type"].as_str() {
                        Some("text") => texts.push(plain(block["text"].as_str().unwrap_or_default())),
                        Some("toolCall") => {
                            let arguments = homard_render::tool_arguments(&block["arguments"]);
                            calls.push(plain(&format!("{} {arguments}", block["name"].as_str().unwrap_or_default())));
                        }
                        Some("image") => texts.push("[image]".to_owned()),
                        Some(_) | None => {}
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        texts.extend(field("errorMessage").map(|error| format!("[error: {error}]")));
        texts.retain(|text| !text.trim().is_empty());
        Self { author, details, text: texts.join("\n\n"), calls }
    }

    /// Returns the author and the details on one line.
    pub fn title(&self) -> String {
        std::iter::once(&self.author).chain(&self.details).cloned().collect::<Vec<_>>().join("  ")
    }
}

/// Formats a message. What it contains is indented, so that it cannot look like the title of another one.
pub fn message_text(message: &Value, full: bool) -> String {
    let shown = ShownMessage::new(message);
    let all: Vec<&str> = shown.text.lines().collect();
    let is_cut = !full && message["role"] == "toolResult" && all.len() > MAX_RESULT_LINES;
    let kept = if is_cut { &all[..MAX_RESULT_LINES] } else { &all[..] };
    let mut lines = vec![shown.title()];
    lines.extend(kept.iter().map(|line| format!("  {line}").trim_end().to_owned()));
    if is_cut {
        lines.push(format!("  … {} more lines; show them with --full", all.len() - MAX_RESULT_LINES));
    }
    lines.extend(shown.calls.iter().map(|call| format!("  · {}", call.replace('\n', "\n    ").trim_end())));
    lines.join("\n")
}

/// Removes what could change the terminal, or how the text around it looks.
pub fn plain(text: &str) -> String {
    homard_render::strip_controls(text).replace(DIRECTION_CHARS, "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_prepared_for_people() {
        let message = json!({
            "role": "assistant", "provider": "p", "model": "m\u{1b}[2J", "timestamp": 1_000, "stopReason": "toolUse",
            "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I \u{202e}look"},
                {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "ls\u{7}"}}, {"type": "image"},
            ],
        });
        let expected = ShownMessage {
            author: "assistant".to_owned(),
            details: vec!["1970-01-01T00:00:01.000Z".to_owned(), "p/m[2J".to_owned()],
            text: "I look\n\n[image]".to_owned(),
            calls: vec!["exec ls".to_owned()],
        };
        assert_eq!(ShownMessage::new(&message), expected);
        let failed = json!({"role": "toolResult", "toolName": "exec", "isError": true, "content": [], "timestamp": 0});
        assert_eq!(ShownMessage::new(&failed).title(), "exec result  failed");
        assert_eq!(ShownMessage::new(&json!({"role": "user", "content": "hi"})).text, "hi");
    }

    #[test]
    fn what_a_message_contains_is_indented_and_shortened() {
        let lines = (1..=22).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
        let result = json!({"role": "toolResult", "toolName": "exec", "content": [{"type": "text", "text": lines}]});
        let text = message_text(&result, false);
        assert!(
            text.starts_with("exec result\n  1\n") && text.ends_with("  20\n  … 2 more lines; show them with --full")
        );
        assert_eq!(message_text(&result, true).lines().count(), 23);
        let fake = json!({"role": "user", "content": "hi\nassistant  now\n"});
        assert_eq!(message_text(&fake, false), "user\n  hi\n  assistant  now");
    }
}
