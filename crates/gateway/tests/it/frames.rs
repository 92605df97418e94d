//! Malformed and oversized frames after the handshake.

use serde_json::{Value, json};

use crate::{
    log::CapturedLog,
    support::{TestGateway, says},
};

fn error_frame(id: &Value, message: &str) -> Value {
    json!({"type": "res", "id": id, "ok": false, "error": {"code": "INVALID_REQUEST", "message": message}})
}

#[tokio::test]
async fn bad_frames_are_answered_and_the_socket_stays_open() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        let frame = |why: &str| format!("invalid request frame: {why}");
        let rows = [
            ("[1,2]", json!("invalid"), frame("must be object")),
            (r#"{"type":"req","id":"x1"}"#, json!("x1"), frame("must have required property 'method'")),
            (r#"{"type":"req","id":7,"method":"health"}"#, json!(7), frame("at /id: must be string")),
            (
                r#"{"type":"req","id":"","method":"health"}"#,
                json!(""),
                frame("at /id: must NOT have fewer than 1 characters"),
            ),
            (r#"{"id":"x2","method":"health"}"#, json!("x2"), frame("must have required property 'type'")),
            (
                r#"{"type":"res","id":"x3","ok":true}"#,
                json!("x3"),
                frame(
                    "must have required property 'method'; at root: unexpected property 'ok'; at /type: must be \
                     equal to constant",
                ),
            ),
            (
                r#"{"type":"req","id":"x4","method":"health","foo":1}"#,
                json!("x4"),
                frame("at root: unexpected property 'foo'"),
            ),
            (
                r#"{"type":"event","event":"foo"}"#,
                json!("invalid"),
                frame(
                    "must have required property 'id'; must have required property 'method'; at root: unexpected \
                     property 'event'; at /type: must be equal to constant",
                ),
            ),
            (
                r#"{"type":"req","id":"x5","method":"connect","params":{}}"#,
                json!("x5"),
                "connect is only valid as the first request".to_owned(),
            ),
            (
                r#"{"type":"req","id":"x6","method":"no.such.method"}"#,
                json!("x6"),
                "unknown method: no.such.method".to_owned(),
            ),
            (
                r#"{"type":"req","id":"x8","method":"sessions.list","params":"str"}"#,
                json!("x8"),
                "invalid sessions.list params: must be object".to_owned(),
            ),
            (
                r#"{"type":"req","id":"x9","method":"agent.wait","params":{}}"#,
                json!("x9"),
                "invalid agent.wait params: must have required property 'runId'".to_owned(),
            ),
            (
                r#"{"type":"req","id":"x10","method":"sessions.list","params":{"foo":1}}"#,
                json!("x10"),
                "invalid sessions.list params: at root: unexpected property 'foo'".to_owned(),
            ),
        ];
        for (text, id, message) in rows {
            socket.send_text(text).await;
            assert_eq!(socket.next().await, error_frame(&id, &message));
        }
        socket.send_bytes(br#"{"type":"req","id":"bin1","method":"health","params":null}"#).await;
        let answer = socket.next().await;
        assert_eq!((&answer["id"], &answer["payload"]["ok"]), (&json!("bin1"), &json!(true)));
    }
}

#[tokio::test]
async fn invalid_json_is_rejected_under_its_id_and_the_socket_stays_open() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let deep = format!(r#"{{"type":"req","id":"deep","method":"health","params":{}}}"#, "[".repeat(100_000));
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        for (text, id, why) in [
            (
                r#"{"type":"req","id":"alone","method":"chat.send","params":{"message":"\ud800 "}}"#,
                "alone",
                "not valid JSON: unexpected end of hex escape at line 1 column 76",
            ),
            (
                r#"{"type":"req","params":"\udc00","method":"health","id":"last"}"#,
                "last",
                "not valid JSON: lone leading surrogate in hex escape at line 1 column 30",
            ),
            (
                r#"{"type":"req","id":"cut","method":"hea"#,
                "cut",
                "not valid JSON: EOF while parsing a string at line 1 column 38",
            ),
            (&deep, "deep", "nested more than 64 levels deep"),
            ("hello there", "invalid", "not valid JSON: expected value at line 1 column 1"),
        ] {
            socket.send_text(text).await;
            assert_eq!(socket.next().await, error_frame(&json!(id), &format!("invalid request frame: {why}")));
        }
        socket.send_bytes(b"{\"type\":\"req\",\"id\":\"\xff\"}").await;
        let why = "invalid request frame: not valid JSON: invalid unicode code point at line 1 column 21";
        assert_eq!(socket.next().await, error_frame(&json!("invalid"), why));
        assert_eq!(socket.ask("1", "health", json!({})).await["ok"], true);
    }
}

#[tokio::test]
async fn closed_connections_are_logged_without_their_content() {
    let log = CapturedLog::begin();
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    old.send_text(&"x".repeat(524_289)).await;
    old.read_to_close().await;
    let (mut unauthenticated, _) = gateway.open().await;
    unauthenticated.send_text("hello there").await;
    assert_eq!(unauthenticated.read_to_close().await, (Vec::new(), Some((1000, String::new()))));
    let too_large = "closing a connection: message too large limit=524288";
    let not_json = "closed an unauthenticated connection: its first message is not JSON bytes=11";
    assert_eq!(log.warnings(), [too_large, not_json]);
}

#[tokio::test]
async fn a_frame_larger_than_the_policy_ends_the_connection() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let padded = |size: usize| {
        let frame = r#"{"type":"req","id":"big","method":"health","params":{"pad":""}}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(size - frame.len())))
    };
    let mut socket = gateway.client(3, json!({})).await;
    socket.send_text(&padded(524_288)).await;
    assert_eq!(socket.next().await["id"], "big");
    socket.send_text(&padded(524_289)).await;
    let why = |limit: usize| format!("message too large: the limit is {limit} bytes");
    assert_eq!(socket.read_to_close().await, (Vec::new(), Some((1009, why(524_288)))));

    // This client reads nothing until it has sent everything, as clients with blocking sockets do.
    for size in [26_214_401, 60_000_000] {
        let mut socket = gateway.client(4, json!({})).await;
        socket.send_text(&padded(524_289)).await;
        assert_eq!(socket.next().await["id"], "big");
        socket.send_text(&padded(size)).await;
        assert_eq!(socket.read_to_close().await, (Vec::new(), Some((1009, why(26_214_400)))));
    }
    for size in [65_537, 500_000, 60_000_000] {
        let (mut socket, _) = gateway.open().await;
        socket.send_text(&padded(size)).await;
        assert_eq!(socket.read_to_close().await, (Vec::new(), Some((1009, why(65_536)))));
    }
}
