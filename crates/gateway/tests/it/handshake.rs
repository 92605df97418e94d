//! All recorded variants of `connect` and their results.

use serde_json::{Value, json};

use crate::support::{TOKEN, TestClient, TestGateway, connect, says, sign};

/// Modifies valid parameters, given the nonce and the time of the challenge.
type ParamsChange = fn(&mut Value, &str, u64);

/// What a rejected client receives: error, close code and close reason.
#[derive(Debug, PartialEq)]
struct RejectedConnect {
    error: Value,
    code: u16,
    reason: String,
}

/// Opens a connection, answers the challenge with `make`, and returns the result.
async fn try_connect(gateway: &TestGateway, make: impl FnOnce(&str, u64) -> Value) -> Result<Value, RejectedConnect> {
    let (mut socket, challenge) = gateway.open().await;
    let params = make(challenge["nonce"].as_str().unwrap(), challenge["ts"].as_u64().unwrap());
    let answer = socket.ask("r1", "connect", params).await;
    if answer["ok"] == true {
        return Ok(answer["payload"].clone());
    }
    let (frames, close) = socket.read_to_close().await;
    assert_eq!(frames, [] as [Value; 0]);
    let (code, reason) = close.unwrap();
    Err(RejectedConnect { error: answer["error"].clone(), code, reason })
}

fn invalid(message: &str, details: Option<Value>, code: u16) -> RejectedConnect {
    let mut error = json!({"code": "INVALID_REQUEST", "message": message});
    if let Some(details) = details {
        error["details"] = details;
    }
    RejectedConnect { error, code, reason: message.to_owned() }
}

#[tokio::test]
async fn valid_connects_are_accepted() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let changes: [(&str, ParamsChange); 9] = [
            ("second form", |params, nonce, ts| sign(params, "v2", nonce, ts)),
            ("third form", |params, nonce, ts| sign(params, "v3", nonce, ts)),
            ("no device", |_, _, _| {}),
            ("a client for people", |params, _, _| {
                params["client"] = json!({"id": "cli", "mode": "cli", "version": "dev", "platform": "linux"});
            }),
            ("the secret as a password", |params, _, _| params["auth"] = json!({"password": TOKEN})),
            ("the secret twice", |params, _, _| params["auth"] = json!({"password": TOKEN, "token": TOKEN})),
            ("few scopes", |params, _, _| params["scopes"] = json!(["operator.read"])),
            ("no scopes", |params, _, _| params["scopes"] = json!([])),
            ("something unknown", |params, _, _| params["foo"] = json!(1)),
        ];
        for (name, change) in changes {
            let hello = try_connect(&gateway, |nonce, ts| {
                let mut params = connect(protocol);
                change(&mut params, nonce, ts);
                params
            });
            assert_eq!(hello.await.unwrap()["protocol"], protocol, "{name}");
        }
    }
    let range = |min: u64, max: u64| {
        let mut params = connect(3);
        params["minProtocol"] = min.into();
        params["maxProtocol"] = max.into();
        params
    };
    assert_eq!(try_connect(&gateway, |_, _| range(1, 10)).await.unwrap()["protocol"], 4);
    assert_eq!(try_connect(&gateway, |_, _| range(3, 4)).await.unwrap()["protocol"], 4);
    let without_nonce = try_connect(&gateway, |_, ts| {
        let mut params = connect(3);
        sign(&mut params, "v1", "", ts);
        params
    });
    assert_eq!(without_nonce.await.unwrap()["protocol"], 3);
}

#[tokio::test]
async fn a_signature_without_a_nonce_is_valid_once() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut signed = connect(3);
    let (_, challenge) = gateway.open().await;
    sign(&mut signed, "v1", "", challenge["ts"].as_u64().unwrap());
    assert_eq!(try_connect(&gateway, |_, _| signed.clone()).await.unwrap()["protocol"], 3);
    for _ in 0..2 {
        let replayed = try_connect(&gateway, |_, _| signed.clone()).await;
        assert_eq!(replayed, Err(invalid("device nonce required", None, 1008)));
    }
    // The same device with another signature.
    sign(&mut signed, "v1", "", challenge["ts"].as_u64().unwrap() + 1);
    assert_eq!(try_connect(&gateway, |_, _| signed.clone()).await.unwrap()["protocol"], 3);
}

#[tokio::test]
async fn wrong_secrets_are_refused() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let details = |code: &str, reason: &str, step: &str| json!({"code": code, "authReason": reason, "canRetryWithDeviceToken": false, "recommendedNextStep": step});
    let missing = details("AUTH_TOKEN_MISSING", "token_missing", "update_auth_configuration");
    let mismatch = details("AUTH_TOKEN_MISMATCH", "token_mismatch", "update_auth_credentials");
    for protocol in [3, 4] {
        let details_for = |details: &Value| (protocol == 4).then(|| details.clone());
        let deviceless = try_connect(&gateway, |_, _| {
            let mut params = connect(protocol);
            params["auth"] = json!({"token": "nope"});
            params
        });
        let message = "unauthorized: gateway token mismatch (provide gateway auth token)";
        assert_eq!(deviceless.await, Err(invalid(message, details_for(&mismatch), 1008)));
        let with_device = try_connect(&gateway, |nonce, ts| {
            let mut params = connect(protocol);
            params["auth"] = json!({"token": "nope"});
            sign(&mut params, "v2", nonce, ts);
            params
        });
        assert_eq!(with_device.await, Err(invalid(message, details_for(&mismatch), 1008)));
        let no_secret = try_connect(&gateway, |nonce, ts| {
            let mut params = connect(protocol);
            params.as_object_mut().unwrap().remove("auth");
            sign(&mut params, "v2", nonce, ts);
            params
        });
        let message = "unauthorized: gateway token missing (provide gateway auth token)";
        assert_eq!(no_secret.await, Err(invalid(message, details_for(&missing), 1008)));
        let no_credentials = try_connect(&gateway, |_, _| {
            let mut params = connect(protocol);
            params.as_object_mut().unwrap().remove("auth");
            params
        });
        let mut error = json!({"code": "NOT_PAIRED", "message": "device identity required"});
        if protocol == 4 {
            error["details"] = json!({"code": "DEVICE_IDENTITY_REQUIRED"});
        }
        let reason = "device identity required".to_owned();
        assert_eq!(no_credentials.await, Err(RejectedConnect { error, code: 1008, reason }));
    }
}

#[tokio::test]
async fn guessing_locks_out_the_guesser_but_not_the_owner() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let guess = || {
        try_connect(&gateway, |_, _| {
            let mut params = connect(4);
            params["auth"] = json!({"token": "guess"});
            params
        })
    };
    for _ in 0..10 {
        assert_eq!(guess().await.unwrap_err().error["details"]["code"], "AUTH_TOKEN_MISMATCH");
    }
    let locked = guess().await.unwrap_err().error;
    assert_eq!(locked["details"]["code"], "AUTH_RATE_LIMITED");
    assert!(locked["retryAfterMs"].as_u64().unwrap() > 290_000);
    assert_eq!(guess().await.unwrap_err().error["details"], locked["details"]);
    // Failed guesses of another local program do not lock the owner out.
    assert_eq!(try_connect(&gateway, |_, _| connect(4)).await.unwrap()["protocol"], 4);
}

#[tokio::test]
async fn devices_with_wrong_identities_are_rejected() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let rows: [(&str, &str, &str, ParamsChange); 4] = [
        ("device identity mismatch", "DEVICE_ID_MISMATCH", "device-id-mismatch", |params, nonce, ts| {
            sign(params, "v2", nonce, ts);
            params["device"]["id"] = "ab".repeat(32).into();
        }),
        ("device signature expired", "SIGNATURE_EXPIRED", "device-signature-stale", |params, nonce, ts| {
            sign(params, "v2", nonce, ts - 11 * 60_000);
        }),
        ("device nonce mismatch", "NONCE_MISMATCH", "device-nonce-mismatch", |params, _, ts| {
            sign(params, "v2", "nonce-of-another-connection", ts);
        }),
        ("device signature invalid", "SIGNATURE_INVALID", "device-signature", |params, nonce, ts| {
            sign(params, "v2", nonce, ts);
            let signature = params["device"]["signature"].as_str().unwrap();
            params["device"]["signature"] = format!("AAAA{}", &signature[4..]).into();
        }),
    ];
    for protocol in [3, 4] {
        for (message, code, reason, change) in rows {
            let refused = try_connect(&gateway, |nonce, ts| {
                let mut params = connect(protocol);
                change(&mut params, nonce, ts);
                params
            });
            let details = json!({"code": format!("DEVICE_AUTH_{code}"), "reason": reason});
            assert_eq!(refused.await, Err(invalid(message, (protocol == 4).then_some(details), 1008)));
        }
        let without_nonce = try_connect(&gateway, |nonce, ts| {
            let mut params = connect(protocol);
            sign(&mut params, "v2", nonce, ts);
            params["device"].as_object_mut().unwrap().remove("nonce");
            params
        });
        let message = match protocol {
            3 => "device signature invalid",
            _ => "invalid connect params: at /device: must have required property 'nonce'",
        };
        assert_eq!(without_nonce.await, Err(invalid(message, None, 1008)));
    }
}

#[tokio::test]
async fn other_invalid_connects_are_rejected() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [2, 5] {
        let details = json!({
            "code": "PROTOCOL_MISMATCH", "expectedProtocol": 4, "minimumProbeProtocol": 3,
            "clientMinProtocol": protocol, "clientMaxProtocol": protocol,
        });
        let refused = try_connect(&gateway, |_, _| connect(protocol)).await;
        assert_eq!(refused, Err(invalid("protocol mismatch", Some(details), 1002)));
    }
    let values = "must be equal to one of the allowed values";
    for protocol in [3, 4] {
        let rows: [(String, ParamsChange); 5] = [
            ("invalid role".to_owned(), |params, _, _| params["role"] = "boss".into()),
            (format!("invalid connect params: at /client/id: {values}"), |params, _, _| {
                params["client"]["id"] = "my-own-client".into();
            }),
            (format!("invalid connect params: at /client/mode: {values}"), |params, _, _| {
                params["client"]["mode"] = "operator".into();
            }),
            ("invalid connect params: must have required property 'client'".to_owned(), |params, _, _| {
                params.as_object_mut().unwrap().remove("client");
            }),
            ("invalid connect params: must be object".to_owned(), |params, _, _| *params = json!([])),
        ];
        for (message, change) in rows {
            let refused = try_connect(&gateway, |nonce, ts| {
                let mut params = connect(protocol);
                change(&mut params, nonce, ts);
                params
            });
            assert_eq!(refused.await, Err(invalid(&message, None, 1008)));
        }
        let node = try_connect(&gateway, |_, _| {
            let mut params = connect(protocol);
            params["role"] = "node".into();
            params
        });
        let error = json!({"code": "UNAVAILABLE", "message": "nodes are not supported yet"});
        let reason = "nodes are not supported yet".to_owned();
        assert_eq!(node.await, Err(RejectedConnect { error, code: 1008, reason }));
    }
    let empty = try_connect(&gateway, |_, _| json!({})).await.unwrap_err();
    let message = "invalid connect params: must have required property 'minProtocol'; must have required property \
                   'maxProtocol'; must have required property 'client'";
    assert_eq!(empty.error, json!({"code": "INVALID_REQUEST", "message": message}));
    assert_eq!(empty.reason, message[..120]);
}

#[tokio::test]
async fn a_control_ui_needs_an_origin() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let page = |protocol: u64| {
        let mut params = connect(protocol);
        params["client"]["id"] = "openclaw-control-ui".into();
        params["client"]["mode"] = "webchat".into();
        params
    };
    let message = "origin not allowed (open the Control UI from the gateway host or allow it in \
                   gateway.controlUi.allowedOrigins)";
    let details = json!({"code": "CONTROL_UI_ORIGIN_NOT_ALLOWED", "reason": "origin missing or invalid"});
    assert_eq!(try_connect(&gateway, |_, _| page(3)).await, Err(invalid(message, None, 1008)));
    assert_eq!(try_connect(&gateway, |_, _| page(4)).await, Err(invalid(message, Some(details), 1008)));
    let origin = format!("http://{}", gateway.address);
    let mut socket = TestClient::open(gateway.address, &[("origin", &origin)]).await.unwrap();
    socket.next().await;
    assert_eq!(socket.ask("r1", "connect", page(4)).await["payload"]["protocol"], 4);
}

#[tokio::test]
async fn a_first_message_other_than_connect_closes_the_connection() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (mut socket, _) = gateway.open().await;
    socket.send("r1", "health", json!({})).await;
    let message = "invalid handshake: first request must be connect";
    let error = json!({"code": "INVALID_REQUEST", "message": message});
    let answer = json!({"type": "res", "id": "r1", "ok": false, "error": error});
    assert_eq!(socket.read_to_close().await, (vec![answer], Some((1008, message.to_owned()))));

    let deep = "[".repeat(100_000 / 2);
    let padded = format!(r#"{{"type":"req","id":"1","method":"connect","params":{{"pad":"{}"}}}}"#, "x".repeat(70_000));
    let huge = format!("\"{}\"", "x".repeat(900_000));
    for (text, code, reason) in [
        ("hello", 1000, ""),
        (deep.as_str(), 1000, ""),
        ("[]", 1008, "invalid request frame"),
        (r#"{"type":"req","method":"connect","params":{}}"#, 1008, "invalid request frame"),
        (padded.as_str(), 1009, "message too large: the limit is 65536 bytes"),
        (huge.as_str(), 1009, "message too large: the limit is 65536 bytes"),
    ] {
        let (mut socket, _) = gateway.open().await;
        socket.send_text(text).await;
        assert_eq!(
            socket.read_to_close().await,
            (Vec::new(), Some((code, reason.to_owned()))),
            "{}",
            &text[..5.min(text.len())]
        );
    }
}

#[tokio::test]
async fn a_silent_unauthenticated_connection_is_closed() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (mut socket, _) = gateway.open().await;
    tokio::time::pause();
    let started_at = tokio::time::Instant::now();
    assert_eq!(socket.read_to_close().await, (Vec::new(), Some((1000, String::new()))));
    assert_eq!(started_at.elapsed().as_secs_f64().round(), 10.0);
}

#[tokio::test]
async fn hello_lists_exactly_the_supported_methods_and_events() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut hello = try_connect(&gateway, |_, _| connect(protocol)).await.unwrap();
        let snapshot = hello["snapshot"].take();
        assert!(!hello["server"]["connId"].take().as_str().unwrap().is_empty());
        let mut expected = json!({
            "type": "hello-ok", "protocol": protocol, "snapshot": null,
            "server": {"version": env!("CARGO_PKG_VERSION"), "connId": null},
            "features": {
                "methods": [
                    "health", "status", "system-presence", "agent", "agent.wait", "agents.list", "agent.identity.get",
                    "sessions.list", "sessions.resolve", "sessions.preview", "sessions.describe", "sessions.create", "sessions.patch", "sessions.reset",
                    "sessions.delete", "sessions.compact", "sessions.compactions", "sessions.compactions.undo",
                    "chat.history", "chat.send", "chat.abort",
                    "chat.inject", "chat.resume", "chat.startup", "chat.metadata", "commands.list", "models.list",
                    "sessions.subscribe", "sessions.unsubscribe", "sessions.messages.subscribe",
                    "sessions.messages.unsubscribe", "tools.catalog", "tools.effective", "logs.tail", "node.list",
                    "runs.list", "runs.get", "runs.trace", "runs.tools", "runs.prompt", "runs.held", "runs.release", "runs.drop", "usage.cost", "sessions.usage", "sessions.usage.timeseries",
                    "sessions.usage.logs", "usage.status", "system.info", "system-event", "question.list", "plugin.approval.list",
                    "openclaw.approval.list", "themes.list", "models.authStatus", "tasks.list", "diagnostics.lanes",
                    "environments.list", "doctor.memory.status", "webSearch.status", "update.status", "node.pair.list",
                    "diagnostics.stability", "plugins.catalog.browse", "exec.approval.grants.list", "artifacts.list",
                    "talk.catalog",
                    "progressCard.get", "sessions.branches.list", "sessions.companion.state",
                    "sessions.observer.visibility", "transcripts.list", "skills.library.list", "skills.proposals.list",
                    "migrations.memory.plan", "tools.github.status", "device.pair.list", "device.pair.approve",
                    "device.pair.reject", "device.pair.remove", "device.pair.rename", "device.token.rotate",
                    "device.token.revoke", "device.loginCode.create",
                    "cron.status", "cron.list", "cron.get", "cron.runs", "cron.add", "cron.update", "cron.remove",
                    "cron.run", "wake", "last-heartbeat", "set-heartbeats",
                ],
                "events": [
                    "connect.challenge", "agent", "chat", "presence", "health", "tick", "shutdown", "cron", "heartbeat",
                    "exec.approval.requested", "exec.approval.resolved", "config.changed", "sessions.changed", "session.message",
                    "device.pair.requested", "device.pair.resolved",
                ],
            },
            "policy": {"maxPayload": 524_288, "maxBufferedBytes": 1_572_864, "tickIntervalMs": 30_000},
        });
        if protocol == 4 {
            expected["policy"]["maxPayload"] = 26_214_400.into();
            expected["policy"]["maxBufferedBytes"] = 4_194_304.into();
            expected["policy"]["attachments"] = json!({"maxBytes": 5_000_000, "maxImageBytes": 5_000_000});
            expected["features"]["capabilities"] = json!(["published-model-catalog"]);
            let scopes = connect(4)["scopes"].take();
            expected["auth"] = json!({"role": "operator", "scopes": scopes, "method": "token"});
        }
        assert_eq!(hello, expected);
        assert_eq!(snapshot["sessionDefaults"]["mainSessionKey"], "agent:main:main");
        assert_eq!(snapshot["health"]["ok"], true);
    }
}
