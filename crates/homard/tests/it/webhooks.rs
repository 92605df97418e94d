//! Webhooks through the binary, and across its restarts.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home::{Home, RunningGateway, until};

const CONFIG: &str = "{hooks: {enabled: true, token: 'the-hook-token', presets: ['gmail']}}";

/// Sends a request; returns its status and response.
fn post(gateway: &RunningGateway<'_>, path: &str, headers: &[&str], body: &Value) -> (u16, String) {
    let body = body.to_string();
    let mut request = format!("POST /hooks/{path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn sessions(home: &Home) -> Value {
    let text = fs::read_to_string(home.state().join("agents/main/sessions/sessions.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the pending system events of the main session.
fn events(home: &Home) -> Value {
    sessions(home)["agent:main:main"]["systemEvents"].clone()
}

const TOKEN: &str = "Authorization: Bearer the-hook-token";

// R46, with processes that are killed.
#[test]
fn ten_repeated_requests_cause_one_run() {
    let home = Home::new();
    home.configure(CONFIG);
    let mut gateway = home.gateway();
    let body = json!({"message": "What files are here?", "name": "Shop", "wakeMode": "next-heartbeat"});
    let mut answers = Vec::new();
    for sent in 0..10 {
        let headers = match sent % 2 {
            0 => [TOKEN, "Idempotency-Key: order-7"],
            _ => ["idempotency-key:   order-7", "X-OpenClaw-Token: the-hook-token"],
        };
        answers.push(post(&gateway, "agent", &headers, &body));
        if sent == 0 || sent == 5 {
            gateway.process.signal(Signal::KILL);
            gateway.end();
            gateway = home.gateway();
        }
    }
    assert_eq!(answers, vec![answers[0].clone(); 10]);
    assert_eq!(answers[0].0, 202, "{answers:?}");
    // The main session is informed of recovered runs, too; twice if the kill came just after.
    until("the main session hears of it", || {
        let events = events(&home);
        let received = events.as_array().into_iter().flatten().map(|event| event.as_str().unwrap());
        received.clone().count() > 0 && received.clone().all(|event| event.starts_with("Hook Shop: "))
    });
    let sessions = sessions(&home);
    let keys: Vec<_> = sessions.as_object().unwrap().keys().filter(|key| key.contains(":hook:")).collect();
    assert_eq!(keys.len(), 1, "{sessions}");
    let transcript = format!("agents/main/sessions/{}.jsonl", sessions[keys[0]]["sessionId"].as_str().unwrap());
    let transcript = fs::read_to_string(home.state().join(transcript)).unwrap();
    assert_eq!(transcript.matches(r#""role":"user""#).count(), 1, "{transcript}");
    assert!(!transcript.contains("the-hook-token"), "{transcript}");
}

// R45.
#[test]
fn webhooks_without_a_token_or_path_prevent_the_start() {
    for (hooks, expected) in [
        ("enabled: true", "hooks.token is missing"),
        ("enabled: true, token: ''", "hooks.token is missing"),
        ("enabled: true, token: 'the-hook-token', path: '/'", "hooks.path must be a path such as /hooks"),
    ] {
        let home = Home::new();
        home.configure(&format!("{{hooks: {{{hooks}}}}}"));
        let output = home.run(&["config", "validate"]);
        assert!(
            output.code == Some(1) && format!("{}{}", output.stdout, output.stderr).contains(expected),
            "{output:?}"
        );
        let (code, stderr) = home.refused_start();
        assert!(code == Some(78) && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_mail_webhook_is_handled_without_showing_the_token() {
    let home = Home::new();
    home.configure(CONFIG);
    let gateway = home.gateway();
    let mail = json!({"messages": [{"id": "19a", "from": "ann", "subject": "Hi", "snippet": "How are you?"}]});
    let (status, body) = post(&gateway, "gmail", &[TOKEN], &mail);
    assert_eq!(status, 202, "{body}");
    until("the session is there", || sessions(&home).get("agent:main:hook:gmail:19a").is_some());
    let output = gateway.run(&["gateway", "call", "config.get"]).stdout;
    assert!(output.contains("gmail") && !output.contains("the-hook-token"), "{output}");
}
