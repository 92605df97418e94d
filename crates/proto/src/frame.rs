//! The three WebSocket frames: request, response, event.

mod request_id;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    code::ErrorShape,
    json,
    schema::{Schema, summary},
};

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "req", rename_all = "camelCase")]
pub struct Request {
    /// Chosen by the client; echoed unchanged.
    pub id: String,
    /// Method name.
    pub method: String,
    /// Parameters; absent and `null` mean none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// The caller's trace context (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Protocol 4; not used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_profile_id: Option<String>,
}

/// A response to a [`Request`]. Some methods send two: `accepted` first, then the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "res")]
pub struct Response {
    /// Id of the request: a string, or whatever an invalid request had in its place.
    pub id: Value,
    /// True if the request succeeded.
    pub ok: bool,
    /// Result; may be `null`. `agent` sends one beside an error as well.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Error, if the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorShape>,
}

/// Deserializes a member that is present even as `null`, which serde would treat as absent.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An event for a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "event", rename_all = "camelCase")]
pub struct Event {
    /// Event name.
    pub event: String,
    /// Data of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Sequence number of the event on this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Versions of the state shared by all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_version: Option<StateVersion>,
}

/// Versions of the state shared by all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateVersion {
    /// Version of the presence list.
    pub presence: u64,
    /// Version of the health report.
    pub health: u64,
}

impl Response {
    /// Creates a successful response.
    pub fn ok(id: &str, payload: Value) -> Self {
        Self { id: id.into(), ok: true, payload: Some(payload), error: None }
    }

    /// Creates an error response.
    pub fn error(id: impl Into<Value>, error: ErrorShape) -> Self {
        Self { id: id.into(), ok: false, payload: None, error: Some(error) }
    }
}

/// Maximum nesting depth of a frame. A deeper one is rejected before it is parsed.
pub const MAX_DEPTH: usize = 64;

/// Result of parsing a client's frame.
#[derive(Debug, Clone, PartialEq)]
pub enum IncomingFrame {
    /// A valid request.
    Request(Request),
    /// JSON, but not a request, or with a duplicate key. Contains the error response to send.
    Malformed(Response),
    /// Not JSON, or nested too deeply. Contains the error response to send.
    NotJson(Response),
}

static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    Schema::compile(&json!({
        "type": "object", "additionalProperties": false, "required": ["type", "id", "method"],
        "properties": {
            "type": {"const": "req"},
            "id": {"type": "string", "minLength": 1},
            "method": {"type": "string", "minLength": 1},
            "params": {},
            "traceparent": {"type": "string", "maxLength": 128},
            "expectedProfileId": {"type": "string", "minLength": 1, "maxLength": 128},
        },
    }))
});

/// Parses a client's frame. Infallible: every outcome is an [`IncomingFrame`].
pub fn read(bytes: &[u8]) -> IncomingFrame {
    let reject = |why: String| IncomingFrame::NotJson(invalid(request_id::find(bytes), &why));
    if nests_too_deep(bytes) {
        return reject(format!("nested more than {MAX_DEPTH} levels deep"));
    }
    let value = match json::from_slice(bytes) {
        Ok(value) => value,
        // JSON, but with a duplicate key.
        Err(error) if error.is_data() => {
            return IncomingFrame::Malformed(invalid(request_id::find(bytes), &error.to_string()));
        }
        Err(error) => return reject(format!("not valid JSON: {error}")),
    };
    let problems = REQUEST.check(&value);
    let id = value.get("id").cloned();
    if !problems.is_empty() {
        return IncomingFrame::Malformed(invalid(id, &summary(&problems)));
    }
    match serde_json::from_value(value) {
        Ok(request) => IncomingFrame::Request(request),
        Err(error) => IncomingFrame::Malformed(invalid(id, &error.to_string())),
    }
}

/// Builds the error response for an invalid frame, with the frame's own id if it has one.
fn invalid(id: Option<Value>, why: &str) -> Response {
    let id = id.unwrap_or_else(|| "invalid".into());
    Response::error(id, ErrorShape::invalid(format!("invalid request frame: {why}")))
}

/// True if brackets nest deeper than [`MAX_DEPTH`]; checked without recursion and before anything is allocated.
pub fn nests_too_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error_of(text: &str) -> (Value, String) {
        match read(text.as_bytes()) {
            IncomingFrame::Malformed(response) => (response.id, response.error.unwrap().message),
            other @ (IncomingFrame::Request(_) | IncomingFrame::NotJson(_)) => panic!("{text} was read as {other:?}"),
        }
    }

    // R50: found by `cargo xtask fuzz`.
    #[test]
    fn numbers_are_read_exactly() {
        let IncomingFrame::Request(request) = read(br#"{"type":"req","id":"a","method":"m","params":[2.5e33]}"#) else {
            panic!("it is a request")
        };
        assert_eq!(request.params, Some(serde_json::json!([2.5e33])));
    }

    #[test]
    fn malformed_frames_get_the_errors_that_clients_expect() {
        let error_text = |text: &str| {
            let (id, message) = error_of(text);
            (id, message.strip_prefix("invalid request frame: ").unwrap().to_owned())
        };
        assert_eq!(error_text("[1,2]"), ("invalid".into(), "must be object".to_owned()));
        assert_eq!(
            error_text(r#"{"type":"req","id":"x1"}"#),
            ("x1".into(), "must have required property 'method'".to_owned())
        );
        assert_eq!(
            error_text(r#"{"type":"req","id":7,"method":"m"}"#),
            (7.into(), "at /id: must be string".to_owned())
        );
        assert_eq!(
            error_text(r#"{"type":"req","id":"","method":"m"}"#),
            ("".into(), "at /id: must NOT have fewer than 1 characters".to_owned())
        );
        assert_eq!(
            error_text(r#"{"id":"x2","method":"m"}"#),
            ("x2".into(), "must have required property 'type'".to_owned())
        );
        assert_eq!(
            error_text(r#"{"type":"req","id":"x4","method":"m","foo":1}"#),
            ("x4".into(), "at root: unexpected property 'foo'".to_owned())
        );
        assert_eq!(error_text(r#"{"type":"event","event":"foo"}"#).0, Value::from("invalid"));
    }

    #[test]
    fn invalid_json_is_rejected_under_its_request_id() {
        for (text, id, why) in [
            (
                r#"{"type":"req","id":"s","method":"m","params":"\ud800"}"#,
                "s",
                "unexpected end of hex escape at line 1 column 53",
            ),
            (
                r#"{"type":"req","id":"s","method":"m","params":"\ud800\u0041"}"#,
                "s",
                "lone leading surrogate in hex escape at line 1 column 58",
            ),
            ("hello there", "invalid", "expected value at line 1 column 1"),
        ] {
            let error = ErrorShape::invalid(format!("invalid request frame: not valid JSON: {why}"));
            assert_eq!(read(text.as_bytes()), IncomingFrame::NotJson(Response::error(id, error)));
        }
    }

    #[test]
    fn a_duplicate_key_is_rejected_at_any_depth() {
        for (text, id, key) in [
            (r#"{"type":"req","id":"a","method":"health","method":"config.get"}"#, "a", "method"),
            (r#"{"type":"req","id":"b","method":"m","params":{"a":[{"k":1,"x":{},"k":1}]}}"#, "b", "k"),
            (r#"{"type":"req","id":"c","method":"m","params":{"\u006bey":1,"key":2}}"#, "c", "key"),
        ] {
            let IncomingFrame::Malformed(response) = read(text.as_bytes()) else { panic!("{text}") };
            let message = response.error.unwrap().message;
            let start = format!("invalid request frame: duplicate key \"{key}\" at line 1 ");
            assert!(response.id == id && message.starts_with(&start), "{message}");
        }
        let all = r#"{"type":"req","id":"d","method":"m","params":{"n":[1,-2,3.5,1e300,18446744073709551615,true,null,"k"],"k":{"k":{}}}}"#;
        let IncomingFrame::Request(request) = read(all.as_bytes()) else { panic!("{all}") };
        assert_eq!(serde_json::to_string(&request).unwrap(), all.replace("1e300", "1e+300"));
    }

    #[test]
    fn depth_is_measured_outside_strings_only() {
        let deep = format!(r#"{{"type":"req","id":"1","method":"m","params":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        let error = ErrorShape::invalid("invalid request frame: nested more than 64 levels deep");
        assert_eq!(read(deep.as_bytes()), IncomingFrame::NotJson(Response::error("1", error)));
        let in_string = format!(r#"{{"type":"req","id":"1","method":"m","params":"\"{}"}}"#, "[".repeat(500));
        assert!(matches!(read(in_string.as_bytes()), IncomingFrame::Request(_)));
    }

    proptest! {
        #[test]
        fn reading_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }
}
