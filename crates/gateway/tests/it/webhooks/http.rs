//! Authentication, routing and size limits.

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::*;
use crate::support::TOKEN;

// R45.
#[tokio::test]
async fn webhooks_are_not_found_unless_configured() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for path in ["wake", "agent", "gmail"] {
        let answer = post(&gateway, path, json!({"text": "x", "message": "x"})).await;
        assert_eq!(answer.text(), (404, "Not Found"), "{path}");
    }
}

#[tokio::test]
async fn webhook_requests_without_the_token_are_unauthorized() {
    let gateway = gateway(|_| {}).await;
    let bearer = format!("Bearer {TOKEN}");
    let wrong: [&[(&str, &str)]; 6] = [
        &[],
        &[("Authorization", "Bearer guess")],
        &[("Authorization", &bearer)],
        &[("Authorization", HOOK_TOKEN)],
        &[("x-openclaw-token", "the-hook-toke")],
        &[("x-openclaw-token", "")],
    ];
    for headers in wrong {
        for line in ["POST /hooks/wake", "POST /hooks/nowhere", "GET /hooks/wake", "POST /hooks"] {
            // A missing token does not count as a failed attempt. Wrong ones do, so each is sent once, to stay below
            // the lockout.
            if headers.is_empty() || line == "POST /hooks/wake" {
                assert_eq!(
                    send(gateway.address, line, headers, "{}").await.text(),
                    (401, "Unauthorized"),
                    "{headers:?}"
                );
            }
        }
    }
    let correct =
        send(gateway.address, "POST /hooks/wake", &[("X-OpenClaw-Token", HOOK_TOKEN)], r#"{"text": "hi"}"#).await;
    assert_eq!(correct.json(), (200, json!({"ok": true, "mode": "now"})));
}

#[tokio::test]
async fn ten_wrong_tokens_lock_only_webhooks() {
    let gateway = gateway(|_| {}).await;
    for _ in 0..10 {
        let wrong = send(gateway.address, "POST /hooks/wake", &[("Authorization", "Bearer guess")], "{}").await;
        assert_eq!(wrong.status, 401);
    }
    let locked = post(&gateway, "wake", json!({"text": "hi"})).await;
    assert_eq!(locked.status, 429);
    let wait: u64 = locked.header("retry-after").unwrap().parse().unwrap();
    assert!((290..=300).contains(&wait), "{wait}");
    // Guesses here do not lock the owner out of the gateway.
    gateway.client(4, json!({})).await;
}

#[tokio::test]
async fn a_token_in_the_url_is_rejected_with_a_reason() {
    let gateway = gateway(|_| {}).await;
    for query in [format!("token={HOOK_TOKEN}"), "a=1&%74oken=x".to_owned()] {
        let answer = post(&gateway, &format!("wake?{query}"), json!({"text": "hi"})).await;
        let why = "tokens in the URL end up in logs; send the token in the header \"Authorization: Bearer …\" or \
             \"x-openclaw-token\"";
        assert_eq!(answer.json(), (400, json!({"ok": false, "error": why})));
    }
    assert!(events(&gateway).await.is_empty());
}

#[tokio::test]
async fn only_post_to_known_webhooks_is_accepted() {
    let gateway = gateway(|_| {}).await;
    let token = [("x-openclaw-token", HOOK_TOKEN)];
    for verb in ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"] {
        let answer = send(gateway.address, &format!("{verb} /hooks/wake"), &token, "").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{verb}");
    }
    for path in ["", "nowhere", "wake/x", "Wake", "agent%2F"] {
        assert_eq!(post(&gateway, path, json!({"text": "x"})).await.text(), (404, "Not Found"), "{path}");
    }
}

#[tokio::test]
async fn a_body_must_be_small_and_json() {
    let gateway = gateway(|webhooks| webhooks.max_body = 64).await;
    let large = format!(r#"{{"text": "{}"}}"#, "x".repeat(64));
    let too_large = (413, json!({"ok": false, "error": "payload too large"}));
    assert_eq!(post_with(&gateway, "wake", &[], &large).await.json(), too_large);
    let chunks = format!(
        "POST /hooks/wake HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-openclaw-token: {HOOK_TOKEN}\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert_eq!(exchange(gateway.address, &chunks).await.status, 413);
    for (body, why) in [
        ("{", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "the body must be a JSON object"),
        ("", "text is required and must not be blank"),
        (r#"{"text": 7}"#, "text must be a string"),
        (r#"{"text": "x", "mode": "soon"}"#, "mode must be now or next-heartbeat"),
        (r#"{"text": "x", "agentId": "nobody"}"#, "unknown agent \"nobody\""),
    ] {
        assert_eq!(post_with(&gateway, "wake", &[], body).await.json(), (400, json!({"ok": false, "error": why})));
    }
    assert!(events(&gateway).await.is_empty());
}

#[tokio::test]
async fn the_token_is_checked_before_the_body_is_read() {
    let gateway = gateway(|_| {}).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head =
        "POST /hooks/agent HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\nContent-Length: 1000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // The body is never sent.
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("no answer came").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}
