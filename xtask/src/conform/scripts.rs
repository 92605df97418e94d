//! Rows of the checklist that no client performs by itself: scripted requests to the gateway.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    client::ProtocolVersion,
    messages::all_sessions,
    model_rule::SLOW,
    rows::RowContext,
    wire::{ScriptedSocket, SocketParams},
};
use crate::gateway::{RunningGateway, TOKEN};

impl RowContext<'_> {
    fn socket_params(&self) -> SocketParams<'_> {
        SocketParams { port: self.port, protocol: self.client.protocol, record: self.record }
    }

    fn is_new(&self) -> bool {
        matches!(self.client.protocol, ProtocolVersion::Four)
    }

    /// Returns a session that no other row uses.
    fn session(&self, row: u8) -> String {
        format!("agent:main:conform-{row}-{}", self.client.version.replace('.', "-"))
    }
}

pub(super) fn dedupe(context: &RowContext<'_>) -> Result<()> {
    let mut wire = context.socket_params().open()?;
    let (key, session) = (format!("dedupe-{}", context.client.version), context.session(23));
    let params = json!({"message": format!("once, {SLOW}"), "sessionKey": session, "idempotencyKey": key});
    let first = wire.send_request("agent", params.clone())?;
    let accepted = wire.response(&first)?;
    ensure!(accepted["payload"]["status"] == "accepted", "the first request should be accepted: {accepted}");
    let again = wire.request("agent", params.clone())?;
    let status = if context.is_new() { "in_flight" } else { "accepted" };
    ensure!(again["payload"]["status"] == status, "the second request should be {status}: {again}");
    wire.request_ok("chat.abort", json!({"sessionKey": session}))?;
    let ended = wire.response(&first)?;
    ensure!(ended["payload"]["runId"] == key, "the first request should get a second response: {ended}");
    let later = wire.request("agent", params)?;
    ensure!(later["payload"] == ended["payload"], "a later request should get the same result: {later} is not {ended}");
    let runs: usize = all_sessions(context.state)?.iter().map(|messages| messages.count("once, ")).sum();
    ensure!(runs == 1, "expected one run, but there were {runs}");
    Ok(())
}

pub(super) fn agent_wait(context: &RowContext<'_>) -> Result<()> {
    let mut wire = context.socket_params().open()?;
    let (key, session) = (format!("wait-{}", context.client.version), context.session(24));
    let params = json!({"message": "be quick", "sessionKey": session, "idempotencyKey": key});
    let first = wire.send_request("agent", params)?;
    wire.response(&first)?;
    let during = wire.request_ok("agent.wait", json!({"runId": key, "timeoutMs": 30_000}))?;
    ensure!(during["status"] == "ok", "agent.wait during the run should return its result: {during}");
    let after = wire.request_ok("agent.wait", json!({"runId": key}))?;
    ensure!(after == during, "agent.wait after the run should return the same result: {after}");
    ensure!(
        !after["result"]["payloads"][0]["text"].as_str().unwrap_or_default().is_empty(),
        "the result should contain the reply: {after}"
    );
    let unknown = wire.request_ok("agent.wait", json!({"runId": "nobody-knows", "timeoutMs": 50}))?;
    ensure!(unknown["status"] == "timeout", "agent.wait for an unknown run should time out: {unknown}");
    let slow = format!("wait-slow-{}", context.client.version);
    let params = json!({"message": SLOW, "sessionKey": session, "idempotencyKey": slow});
    let second = wire.send_request("agent", params)?;
    wire.response(&second)?;
    wire.find("the first delta of the run", |frame| frame["event"] == "chat" && frame["payload"]["runId"] == *slow)?;
    let at_once = wire.request_ok("agent.wait", json!({"runId": slow, "timeoutMs": 0}))?;
    ensure!(at_once["status"] == "timeout", "agent.wait with timeoutMs 0 should time out: {at_once}");
    wire.request_ok("chat.abort", json!({"sessionKey": session}))?;
    Ok(())
}

pub(super) fn busy_session(context: &RowContext<'_>) -> Result<()> {
    let mut wire = context.socket_params().open()?;
    let session = context.session(25);
    let (first, second) = (format!("busy-1-{}", context.client.version), format!("busy-2-{}", context.client.version));
    let send = |message: &str, key: &str| json!({"sessionKey": session, "message": message, "idempotencyKey": key});
    let ack = wire.request_ok("chat.send", send(&format!("first text, {SLOW}"), &first))?;
    ensure!(ack["status"] == "started" && ack["runId"] == *first, "the first message should be started: {ack}");
    wire.find("the first delta of the run", |frame| frame["event"] == "chat" && frame["payload"]["runId"] == *first)?;
    let ack = wire.request_ok("chat.send", send("second text", &second))?;
    ensure!(ack["status"] == "started" && ack["runId"] == *second, "the second message should be started: {ack}");
    let mut ends: Vec<String> = Vec::new();
    for run in [&first, &second] {
        let last = wire.final_chat_event(run).with_context(|| format!("run {run}"))?;
        ends.push(last["state"].to_string());
    }
    for frame in wire.collect(Duration::from_secs(3))? {
        let payload = &frame["payload"];
        let is_end = frame["event"] == "chat" && payload["state"] != "delta" && payload["state"] != "status";
        ensure!(!is_end || (payload["runId"] != *first && payload["runId"] != *second), "a run ended twice: {frame}");
    }
    let sessions = all_sessions(context.state)?;
    for text in ["first text", "second text"] {
        let count: usize = sessions.iter().map(|messages| messages.count(text)).sum();
        // Both versions of the client run this row, each in its own gateway.
        ensure!(count == 1, "the transcript should contain {text:?} once, but contains it {count} times ({ends:?})");
    }
    Ok(())
}

pub(super) fn stop_words(context: &RowContext<'_>) -> Result<()> {
    let mut wire = context.socket_params().open()?;
    let session = context.session(26);
    for (number, word) in ["/stop", "stop"].into_iter().enumerate() {
        let key = format!("stop-{number}-{}", context.client.version);
        let send = |message: &str, key: &str| json!({"sessionKey": session, "message": message, "idempotencyKey": key});
        wire.request_ok("chat.send", send(SLOW, &key))?;
        wire.find("the first delta of the run", |frame| frame["event"] == "chat" && frame["payload"]["runId"] == *key)?;
        let stopped = wire.request_ok("chat.send", send(word, &format!("{key}-word")))?;
        let expected = json!({"ok": true, "aborted": true, "runIds": [key]});
        ensure!(stopped == expected, "{word} should stop the run: {stopped}");
        let last = wire.final_chat_event(&key)?;
        ensure!(
            last["state"] == "aborted" && last["stopReason"] == "stop",
            "the last event should be aborted with the reason stop: {last}"
        );
    }
    Ok(())
}

/// A frame, the id of its response, and the end of the error message.
const BAD_FRAMES: &[(&str, &str, &str)] = &[
    ("[1, 2]", r#""invalid""#, "invalid request frame: must be object"),
    (r#"{"type":"req","id":"x1"}"#, r#""x1""#, "must have required property 'method'"),
    (r#"{"type":"req","id":7,"method":"health"}"#, "7", "at /id: must be string"),
    (r#"{"id":"x2","method":"health"}"#, r#""x2""#, "must have required property 'type'"),
    (r#"{"type":"req","id":"x4","method":"health","foo":1}"#, r#""x4""#, "at root: unexpected property 'foo'"),
    (r#"{"type":"event","event":"foo"}"#, r#""invalid""#, "invalid request frame: "),
    (
        r#"{"type":"req","id":"x5","method":"connect","params":{}}"#,
        r#""x5""#,
        "connect is only valid as the first request",
    ),
    (r#"{"type":"req","id":"x6","method":"no.such.method"}"#, r#""x6""#, "unknown method: no.such.method"),
    (r#"{"type":"req","id":"x8","method":"sessions.list","params":"str"}"#, r#""x8""#, "must be object"),
    (
        r#"{"type":"req","id":"x9","method":"chat.send","params":{"sessionKey":"main"}}"#,
        r#""x9""#,
        "must have required property 'message'; must have required property 'idempotencyKey'",
    ),
    (
        r#"{"type":"req","id":"x10","method":"chat.history","params":{"sessionKey":"main","limit":1001}}"#,
        r#""x10""#,
        "at /limit: must be <= 1000",
    ),
];

pub(super) fn bad_frames(context: &RowContext<'_>) -> Result<()> {
    let mut wire = context.socket_params().open()?;
    for garbage in [&b"hello there"[..], b"{", b"", &[1, 2, 3]] {
        wire.send_binary(garbage)?;
        let answer = wire.find("an error response", |frame| frame["type"] == "res" && frame["id"] == "invalid")?;
        ensure!(answer["error"]["code"] == "INVALID_REQUEST", "a frame that is not JSON should be rejected: {answer}");
    }
    for (text, id, message) in BAD_FRAMES {
        wire.send_text(text)?;
        let id: Value = serde_json::from_str(id)?;
        let answer =
            wire.find(&format!("a response to {text}"), |frame| frame["type"] == "res" && frame["id"] == id)?;
        let error_message = answer["error"]["message"].as_str().unwrap_or_default();
        ensure!(answer["error"]["code"] == "INVALID_REQUEST", "{text}: {answer}");
        ensure!(error_message.contains(message), "{text} should be answered with {message:?}: {answer}");
    }
    let bytes = br#"{"type":"req","id":"bin","method":"health"}"#;
    wire.send_binary(bytes)?;
    ensure!(wire.response("bin")?["ok"] == true, "JSON in a binary message should be accepted");
    ensure!(wire.request("last-heartbeat", Value::Null)?["ok"] == true, "`null` should be accepted as no parameters");
    let max_bytes = if context.is_new() { 26_214_400 } else { 524_288 };
    let pad = "x".repeat(max_bytes);
    wire.send_text(&json!({"type": "req", "id": "big", "method": "health", "params": {"pad": pad}}).to_string())?;
    let (_, code, _) = wire.rest()?;
    ensure!(code == 1009, "an oversized frame should close with 1009, but closed with {code}");
    Ok(())
}

/// A change to a valid `connect`, and the close code, reason and `details.code` of the rejection; `None` if it is
/// accepted.
type ConnectVariant = (&'static str, fn(&mut Value), Option<(u16, &'static str, Option<&'static str>)>);

const VARIANTS: &[ConnectVariant] = &[
    ("unchanged parameters", |_| {}, None),
    (
        "any protocol",
        |params| {
            params["minProtocol"] = 1.into();
            params["maxProtocol"] = 10.into()
        },
        None,
    ),
    ("an unknown property", |params| params["foo"] = 1.into(), None),
    ("the secret as a password", |params| params["auth"] = json!({"password": TOKEN}), None),
    ("the secret twice", |params| params["auth"] = json!({"token": TOKEN, "password": TOKEN}), None),
    ("no scopes", |params| params["scopes"] = json!([]), None),
    (
        "protocol 2",
        |params| {
            params["minProtocol"] = 2.into();
            params["maxProtocol"] = 2.into()
        },
        Some((1002, "protocol mismatch", Some("PROTOCOL_MISMATCH"))),
    ),
    (
        "a wrong token",
        |params| params["auth"] = json!({"token": "nope"}),
        Some((1008, "unauthorized: gateway token mismatch", Some("AUTH_TOKEN_MISMATCH"))),
    ),
    (
        "no credentials",
        |params| params["auth"] = json!({}),
        Some((1008, "device identity required", Some("DEVICE_IDENTITY_REQUIRED"))),
    ),
    ("an unknown role", |params| params["role"] = "boss".into(), Some((1008, "invalid role", None))),
    (
        "an unknown client",
        |params| params["client"]["id"] = "mine".into(),
        Some((1008, "invalid connect params", None)),
    ),
    (
        "a page without origin",
        |params| params["client"]["id"] = "openclaw-control-ui".into(),
        Some((1008, "origin not allowed", Some("CONTROL_UI_ORIGIN_NOT_ALLOWED"))),
    ),
];

pub(super) fn handshakes(context: &RowContext<'_>) -> Result<()> {
    // Wrong tokens lock out an address, so this row has a gateway of its own.
    let log = context.client.logs.join("28-gateway.log");
    let gateway = RunningGateway::start(context.binary, &json!({}), &log)?;
    let socket_params = SocketParams { port: gateway.port(), ..context.socket_params() };
    for (what, change, rejection) in VARIANTS {
        check_variant(&socket_params, *change, *rejection).with_context(|| format!("connect with {what}"))?;
    }
    let first = [("hello", 1000), ("[]", 1008), (r#"{"type":"req","id":"1","method":"health"}"#, 1008)];
    for (text, code) in first {
        let mut wire = socket_params.connect_only(&[])?;
        wire.send_text(text)?;
        let (_, closed, _) = wire.rest()?;
        ensure!(closed == code, "{text} before `connect` should close with {code}, but closed with {closed}");
    }
    ensure!(
        socket_params.connect_only(&[("origin", "https://evil.example")]).is_err(),
        "a page of another origin should be rejected"
    );
    let methods = gateway_methods(&mut socket_params.open()?, &socket_params)?;
    ensure!(!methods.is_empty(), "some methods should be advertised");
    Ok(())
}

fn check_variant(
    socket_params: &SocketParams<'_>,
    change: fn(&mut Value),
    rejection: Option<(u16, &str, Option<&str>)>,
) -> Result<()> {
    let mut wire = socket_params.connect_only(&[])?;
    let mut params = socket_params.connect();
    change(&mut params);
    let id = wire.send_request("connect", params)?;
    let answer = wire.response(&id)?;
    let Some((code, expected_reason, details)) = rejection else {
        ensure!(
            answer["ok"] == true && answer["payload"]["type"] == "hello-ok",
            "the handshake should succeed: {answer}"
        );
        return Ok(());
    };
    let error_message = answer["error"]["message"].as_str().unwrap_or_default();
    ensure!(
        answer["ok"] == false && error_message.starts_with(expected_reason),
        "the handshake should be rejected with {expected_reason:?}: {answer}"
    );
    if socket_params.number() == 4 {
        let details_code = answer["error"]["details"]["code"].as_str();
        ensure!(details.is_none() || details_code == details, "`details.code` should be {details:?}: {answer}");
    }
    let (_, closed, reason) = wire.rest()?;
    ensure!(
        closed == code && reason.starts_with(expected_reason),
        "the connection should close with {code}, but closed with {closed} {reason:?}"
    );
    Ok(())
}

/// Calls every advertised method without parameters: each must be known.
fn gateway_methods(wire: &mut ScriptedSocket, socket_params: &SocketParams<'_>) -> Result<Vec<String>> {
    let mut fresh = socket_params.connect_only(&[])?;
    let hello = fresh.request_ok("connect", socket_params.connect())?;
    let methods: Vec<String> = serde_json::from_value(hello["features"]["methods"].clone())?;
    for method in &methods {
        let answer = wire.request(method, json!({}))?;
        let error_message = answer["error"]["message"].as_str().unwrap_or_default();
        ensure!(!error_message.starts_with("unknown method"), "{method} is advertised, but unknown");
    }
    Ok(methods)
}
