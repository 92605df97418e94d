//! A model behind an HTTP endpoint, simulated by the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

use crate::home::{CommandOutput, Home, run_command};

/// Reads one request: its headers in lower case, and its body.
pub(crate) fn request(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

/// Runs a turn against an endpoint that answers once; returns the request and the output of the command.
fn run_against(answer: &'static str, args: &[&str]) -> ((String, Value), CommandOutput) {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let provider = json!({
        "baseUrl": format!("http://{}/v1", listener.local_addr().unwrap()), "apiKey": "${FAKE_KEY}",
        "api": "openai-completions", "models": [{"id": "fake-1", "contextWindow": 40_000, "maxTokens": 4_096}],
    });
    let agents = json!({"defaults": {"model": {"primary": "fake/fake-1"}}});
    home.configure(&json!({"agents": agents, "models": {"providers": {"fake": provider}}}).to_string());
    let received = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let received = request(&stream);
        stream.write_all(answer.as_bytes()).unwrap();
        received
    });
    let mut command = home.command(args);
    command.env("FAKE_KEY", "sk-a-fake-key");
    let output = run_command(command);
    (received.join().unwrap(), output)
}

#[test]
fn a_configured_endpoint_answers() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Bon\"}}]}\n\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"jour\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: [DONE]\n\n";
    let ((head, body), output) = run_against(answer, &["agent", "-m", "Say hello"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "Bonjour\n", ""));
    assert!(head.starts_with("post /v1/chat/completions "), "{head}");
    assert!(head.contains("authorization: bearer sk-a-fake-key\r\n"), "{head}");
    assert_eq!(body["model"], "fake-1");
}

#[test]
fn an_endpoint_that_rejects_fails_the_turn_without_leaking_the_key() {
    let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
        content-length: 47\r\n\r\n{\"error\":{\"message\":\"bad key: sk-a-fake-key\"}}\n";
    let (_, output) = run_against(answer, &["agent", "-m", "Say hello", "--json"]);
    assert_eq!(output.code, Some(1));
    let failure = output.json();
    assert_eq!((&failure["ok"], &failure["origin"]), (&json!(false), &json!("local")));
    assert!(failure["error"]["message"].as_str().unwrap().contains("401"), "{failure}");
    assert!(!output.stdout.contains("sk-a-fake-key"), "{failure}");
}
