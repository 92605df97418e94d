//! The protocol of plugin processes: JSON-RPC 2.0, one object per line. Pure: bytes in, messages out.

use homard_stdx::text;
use serde_json::{Value, json, value::RawValue};

/// Maximum length of a line in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Error codes for unknown, failed and denied requests.
pub(crate) const UNKNOWN_METHOD: i64 = -32601;
pub(crate) const FAILED: i64 = -32000;
pub(crate) const DENIED: i64 = -32001;

/// A message of a process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RpcMessage {
    /// A request with this id.
    Request { id: Value, method: String, params: Value },
    /// A notification.
    Notification { method: String, params: Value },
    /// A response to our request with this id.
    Response { id: u64, result: Result<Value, String> },
    /// Not a message: the number of bytes.
    Malformed(usize),
    /// An oversized line. Reported as soon as it is detected, since its end may never come.
    TooLong,
}

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
pub(crate) struct LineDecoder {
    partial: Vec<u8>,
    /// True while the rest of an oversized line is skipped.
    is_skipping: bool,
}

impl LineDecoder {
    /// Takes bytes and returns the messages that are complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Vec<RpcMessage> {
        let mut messages = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            messages.extend(self.buffer(&bytes[..end]));
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.partial);
            if !std::mem::take(&mut self.is_skipping) {
                messages.extend(read(&line));
            }
        }
        messages.extend(self.buffer(bytes));
        messages
    }

    /// Buffers part of a line; returns a message when the line becomes too long.
    fn buffer(&mut self, bytes: &[u8]) -> Option<RpcMessage> {
        if self.is_skipping {
            return None;
        }
        if self.partial.len() + bytes.len() > MAX_LINE_BYTES {
            (self.partial, self.is_skipping) = (Vec::new(), true);
            return Some(RpcMessage::TooLong);
        }
        self.partial.extend_from_slice(bytes);
        None
    }
}

/// Parses a line; `None` if it is blank.
fn read(line: &[u8]) -> Option<RpcMessage> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return None;
    }
    let Ok(Value::Object(mut message)) = serde_json::from_slice(line) else {
        return Some(RpcMessage::Malformed(line.len()));
    };
    let id = message.remove("id").filter(|id| !id.is_null());
    let method = message.remove("method");
    let params = message.remove("params").unwrap_or(Value::Null);
    Some(match (method, id) {
        (Some(Value::String(method)), Some(id)) => RpcMessage::Request { id, method, params },
        (Some(Value::String(method)), None) => RpcMessage::Notification { method, params },
        (None, Some(id)) => match (id.as_u64(), message.remove("error"), message.remove("result")) {
            (Some(id), Some(error), _) if !error.is_null() => {
                RpcMessage::Response { id, result: Err(error_text(&error)) }
            }
            (Some(id), _, Some(result)) => RpcMessage::Response { id, result: Ok(result) },
            _ => RpcMessage::Malformed(line.len()),
        },
        _ => RpcMessage::Malformed(line.len()),
    })
}

/// Returns the text of an error on one line, truncated.
fn error_text(error: &Value) -> String {
    let text = error
        .get("message")
        .and_then(Value::as_str)
        .or(error.as_str())
        .unwrap_or("the plugin returned an error without a message");
    one_line(text, 500)
}

/// Puts a text on one line and truncates it.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    text::truncate(&text::one_line(text), max_chars)
}

/// Formats a request.
pub(crate) fn request(id: u64, method: &str, params: &RawValue) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{},\"params\":{}}}\n", json!(method), params.get())
}

/// Formats a notification.
pub(crate) fn notification(method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Formats a response.
pub(crate) fn response(id: &Value, result: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Formats a response with a value that is serialised already.
pub(crate) fn raw_response(id: &Value, value: &RawValue) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"value\":{}}}}}\n", value.get())
}

/// Formats an error response.
pub(crate) fn error_response(id: &Value, code: i64, message: &str) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &str) -> Vec<RpcMessage> {
        LineDecoder::default().push(text.as_bytes())
    }

    #[test]
    fn each_kind_of_message_is_recognised_by_its_fields() {
        let text = r#"{"id":"a","method":"config.get"}
{"method":"log","params":{"level":"info"}}

{"id":7,"result":null}
{"id":8,"error":{"code":1,"message":"no\nsuch thing"},"result":null}
{"id":9,"error":null,"result":[1]}
"#;
        let answer = |id, result| RpcMessage::Response { id, result };
        let expected = [
            RpcMessage::Request { id: json!("a"), method: "config.get".to_owned(), params: Value::Null },
            RpcMessage::Notification { method: "log".to_owned(), params: json!({"level": "info"}) },
            answer(7, Ok(Value::Null)),
            answer(8, Err("no such thing".to_owned())),
            answer(9, Ok(json!([1]))),
        ];
        assert_eq!(decode(text), expected);
    }

    #[test]
    fn malformed_lines_are_counted() {
        let lines = ["hello", "[1]", "{}", r#"{"id":1}"#, r#"{"method":5}"#, r#"{"id":"x","result":1}"#, "\u{0}"];
        for line in lines {
            assert_eq!(decode(&format!("{line}\n")), [RpcMessage::Malformed(line.len())], "{line}");
        }
        assert_eq!(LineDecoder::default().push(b"\xff\xfe\n"), [RpcMessage::Malformed(2)]);
    }

    #[test]
    fn an_oversized_line_is_discarded_and_the_next_is_read() {
        let mut lines = LineDecoder::default();
        let part = vec![b'x'; MAX_LINE_BYTES / 4];
        for count in 1..=40 {
            let expected: &[RpcMessage] = if count == 5 { &[RpcMessage::TooLong] } else { &[] };
            assert_eq!(lines.push(&part), expected);
            assert!(lines.partial.len() <= MAX_LINE_BYTES);
        }
        let notification = RpcMessage::Notification { method: "m".to_owned(), params: Value::Null };
        assert_eq!(lines.push(b"\n{\"method\":\"m\"}\n"), [notification]);
    }

    proptest! {
        #[test]
        fn decoding_does_not_depend_on_how_bytes_are_split(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200), split_at in 0_usize..200,
        ) {
            let expected = LineDecoder::default().push(&bytes);
            let (first, second) = bytes.split_at(split_at.min(bytes.len()));
            let mut lines = LineDecoder::default();
            let mut parts = lines.push(first);
            parts.extend(lines.push(second));
            prop_assert_eq!(expected, parts);
        }
    }
}
