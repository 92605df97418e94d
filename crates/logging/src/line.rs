//! Sanitizes a log line for storage: one line of JSON, every text bounded, no terminal control characters, no known
//! secret.

use std::borrow::Cow;

use homard_app::masks::Masks;
use serde_json::{Value, json};

/// Maximum bytes of a text.
const MAX_TEXT_BYTES: usize = 512;

/// Sanitizes a line of JSON.
pub(crate) fn clean(line: &str, masks: &Masks) -> String {
    // Only the logger's own JSON counts as an event; anything else is wrapped as a message.
    let event = serde_json::from_str(line).ok().filter(|value: &Value| value["fields"].is_object());
    let mut value = event.unwrap_or_else(|| json!({"fields": {"message": line.trim_end()}}));
    shorten(&mut value, masks);
    escape(&value.to_string())
}

fn shorten(value: &mut Value, masks: &Masks) {
    match value {
        Value::String(text) => {
            // Masked before truncation, so that no part of a secret remains.
            let clear = masks.mask(text);
            if matches!(clear, Cow::Owned(_)) || clear.len() > MAX_TEXT_BYTES {
                *text = truncate(&clear);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| shorten(value, masks)),
        Value::Object(fields) => fields.values_mut().for_each(|value| shorten(value, masks)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn truncate(text: &str) -> String {
    let dots = "…";
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT_BYTES - dots.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{dots}", &text[..end])
}

/// Escapes characters that affect a terminal. JSON itself escapes those below U+0020.
fn escape(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => escaped.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use homard_secrets::Secrets;

    use super::*;

    /// Returns texts that attackers put into headers, names and messages.
    fn hostile() -> Vec<String> {
        let long = "A".repeat(15 * 1024);
        let mut all: Vec<String> = [
            "\r\n{\"level\":\"ERROR\"}\r\n",
            "\u{1b}[2J\u{1b}]0;x\u{7}",
            "\u{9b}31m",
            "\u{2028}\u{2029}",
            "\u{202e}txt.exe",
            "\u{0}",
            "\"}\n{\"",
            "\u{feff}\u{200b}",
            "é\u{301}🦞",
        ]
        .map(str::to_owned)
        .into();
        all.push(long);
        all.push("\u{1b}".repeat(5000));
        all.push("é".repeat(4000));
        all
    }

    #[test]
    fn r74_every_log_line_is_json_with_short_texts_and_no_control_characters() {
        for text in hostile() {
            let event =
                json!({"level": "WARN", "fields": {"message": text, "origin": text}, "spans": [{"name": text}]});
            for line in [event.to_string(), text.clone()] {
                let clean = clean(&line, &Masks::default());
                let is_dangerous =
                    |char: char| char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{200b}'..='\u{200f}');
                assert!(!clean.contains(is_dangerous), "{clean:?}");
                let value: Value = serde_json::from_str(&clean).unwrap();
                let message = value["fields"]["message"].as_str().unwrap();
                assert!(message.len() <= MAX_TEXT_BYTES, "{}", message.len());
            }
        }
    }

    #[test]
    fn a_known_secret_is_masked_even_where_a_text_is_truncated() {
        let masks = Masks::default();
        masks.hide_all(vec![Secrets::new(["sk-canary-0123456789".to_owned()])]);
        let text = format!("{}sk-canary-0123456789", "x".repeat(MAX_TEXT_BYTES - 10));
        let clean = clean(&json!({"fields": {"message": text}}).to_string(), &masks);
        assert!(!clean.contains("sk-canary"), "{clean}");
        assert!(clean.contains("[secret]") || clean.contains('…'), "{clean}");
    }
}
