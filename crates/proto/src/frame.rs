//! The three frames of the WebSocket: request, response, event.

mod request_id;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    code::ErrorShape,
    json,
    schema::{Schema, summary},
};

/// A question from a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "req", rename_all = "camelCase")]
pub struct Request {
    /// Chosen by the client; echoed as it is.
    pub id: String,
    /// What is asked for.
    pub method: String,
    /// With what; absent and `null` mean "nothing".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// The caller's trace context (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Protocol 4; not used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_profile_id: Option<String>,
}

/// An answer to a [`Request`]. One request may get two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "res")]
pub struct Response {
    /// The request's id: a text, or what a confused client sent in its place.
    pub id: Value,
    /// Whether it was done.
    pub ok: bool,
    /// The answer; it may be `null`. `agent` sends one beside an error, too.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorShape>,
}

/// A member that is there, even as `null`: serde would take that for absent.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// News for a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "event", rename_all = "camelCase")]
pub struct Event {
    /// What kind of news.
    pub event: String,
    /// The news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// This connection's count of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Versions of what is shared by all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_version: Option<StateVersion>,
}

/// Versions of what is shared by all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateVersion {
    /// Of the list of who is here.
    pub presence: u64,
    /// Of the health report.
    pub health: u64,
}

impl Response {
    /// It was done.
    pub fn ok(id: &str, payload: Value) -> Self {
        Self { id: id.into(), ok: true, payload: Some(payload), error: None }
    }

    /// It was not done.
    pub fn error(id: impl Into<Value>, error: ErrorShape) -> Self {
        Self { id: id.into(), ok: false, payload: None, error: Some(error) }
    }
}

/// How deep a frame may nest. A deeper one is refused before it is parsed.
pub const MAX_DEPTH: usize = 64;

/// What a client's bytes turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    /// A question.
    Request(Request),
    /// JSON, but not a request, or with a key that is there twice. The response is the error to send.
    Malformed(Response),
    /// Not JSON, or nested too deep to be read. The response is the error to send.
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

/// Reads a client's bytes. Never fails: every outcome is an [`Inbound`].
pub fn read(bytes: &[u8]) -> Inbound {
    let refuse = |why: String| Inbound::NotJson(invalid(request_id::find(bytes), &why));
    if nests_too_deep(bytes) {
        return refuse(format!("nested more than {MAX_DEPTH} levels deep"));
    }
    let value = match json::from_slice(bytes) {
        Ok(value) => value,
        // JSON, but with a key that is there twice.
        Err(error) if error.is_data() => {
            return Inbound::Malformed(invalid(request_id::find(bytes), &error.to_string()));
        }
        Err(error) => return refuse(format!("not valid JSON: {error}")),
    };
    let problems = REQUEST.check(&value);
    let id = value.get("id").cloned();
    if !problems.is_empty() {
        return Inbound::Malformed(invalid(id, &summary(&problems)));
    }
    match serde_json::from_value(value) {
        Ok(request) => Inbound::Request(request),
        Err(error) => Inbound::Malformed(invalid(id, &error.to_string())),
    }
}

/// The error for a frame that is not a request, under the frame's own id if it has one.
fn invalid(id: Option<Value>, why: &str) -> Response {
    let id = id.unwrap_or_else(|| "invalid".into());
    Response::error(id, ErrorShape::invalid(format!("invalid request frame: {why}")))
}

/// Whether brackets nest deeper than [`MAX_DEPTH`], found without recursion and before anything is allocated.
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

    fn complaint(text: &str) -> (Value, String) {
        match read(text.as_bytes()) {
            Inbound::Malformed(response) => (response.id, response.error.unwrap().message),
            other @ (Inbound::Request(_) | Inbound::NotJson(_)) => panic!("{text} was read as {other:?}"),
        }
    }

    // R50: found by `cargo xtask fuzz`.
    #[test]
    fn numbers_are_read_exactly() {
        let Inbound::Request(request) = read(br#"{"type":"req","id":"a","method":"m","params":[2.5e33]}"#) else {
            panic!("it is a request")
        };
        assert_eq!(request.params, Some(serde_json::json!([2.5e33])));
    }

    #[test]
    fn malformed_frames_get_the_answers_that_clients_know() {
        let told = |text: &str| {
            let (id, message) = complaint(text);
            (id, message.strip_prefix("invalid request frame: ").unwrap().to_owned())
        };
        assert_eq!(told("[1,2]"), ("invalid".into(), "must be object".to_owned()));
        assert_eq!(
            told(r#"{"type":"req","id":"x1"}"#),
            ("x1".into(), "must have required property 'method'".to_owned())
        );
        assert_eq!(told(r#"{"type":"req","id":7,"method":"m"}"#), (7.into(), "at /id: must be string".to_owned()));
        assert_eq!(
            told(r#"{"type":"req","id":"","method":"m"}"#),
            ("".into(), "at /id: must NOT have fewer than 1 characters".to_owned())
        );
        assert_eq!(told(r#"{"id":"x2","method":"m"}"#), ("x2".into(), "must have required property 'type'".to_owned()));
        assert_eq!(
            told(r#"{"type":"req","id":"x4","method":"m","foo":1}"#),
            ("x4".into(), "at root: unexpected property 'foo'".to_owned())
        );
        assert_eq!(told(r#"{"type":"event","event":"foo"}"#).0, Value::from("invalid"));
    }

    #[test]
    fn what_is_not_json_is_refused_under_its_id() {
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
            assert_eq!(read(text.as_bytes()), Inbound::NotJson(Response::error(id, error)));
        }
    }

    #[test]
    fn l11_a_key_that_is_there_twice_is_refused_at_any_depth() {
        for (text, id, key) in [
            (r#"{"type":"req","id":"a","method":"health","method":"config.get"}"#, "a", "method"),
            (r#"{"type":"req","id":"b","method":"m","params":{"a":[{"k":1,"x":{},"k":1}]}}"#, "b", "k"),
            (r#"{"type":"req","id":"c","method":"m","params":{"\u006bey":1,"key":2}}"#, "c", "key"),
        ] {
            let Inbound::Malformed(response) = read(text.as_bytes()) else { panic!("{text}") };
            let message = response.error.unwrap().message;
            let start = format!("invalid request frame: the key \"{key}\" is there twice at line 1 ");
            assert!(response.id == id && message.starts_with(&start), "{message}");
        }
        let all = r#"{"type":"req","id":"d","method":"m","params":{"n":[1,-2,3.5,1e300,18446744073709551615,true,null,"k"],"k":{"k":{}}}}"#;
        let Inbound::Request(request) = read(all.as_bytes()) else { panic!("{all}") };
        assert_eq!(serde_json::to_string(&request).unwrap(), all.replace("1e300", "1e+300"));
    }

    #[test]
    fn depth_is_measured_outside_strings_only() {
        let deep = format!(r#"{{"type":"req","id":"1","method":"m","params":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        let error = ErrorShape::invalid("invalid request frame: nested more than 64 levels deep");
        assert_eq!(read(deep.as_bytes()), Inbound::NotJson(Response::error("1", error)));
        let quoted = format!(r#"{{"type":"req","id":"1","method":"m","params":"\"{}"}}"#, "[".repeat(500));
        assert!(matches!(read(quoted.as_bytes()), Inbound::Request(_)));
    }

    proptest! {
        #[test]
        fn no_bytes_can_hurt(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }
}
