//! The OpenAI-compatible API: real HTTP, a scripted model, and what clients see.

mod chat;
mod fields;
mod http;
mod invoke;
mod recorded;
mod responses;

use std::{net::SocketAddr, sync::Arc};

use futures_util::{StreamExt, stream};
use homard_agent::HubRules;
use homard_gateway::Endpoints;
use homard_model::{EventStream, ModelEvent, stream::CallDelta};
use homard_proto::message::{Message, StopReason, join_text};
use homard_store::MemoryStore;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{PATIENCE, Script, TOKEN, TestGateway, done};

/// A gateway with all HTTP endpoints enabled.
async fn gateway(script: Script) -> TestGateway {
    gateway_with(script, |_| {}).await
}

async fn gateway_with(script: Script, change: impl FnOnce(&mut Endpoints)) -> TestGateway {
    let mut endpoints = all();
    change(&mut endpoints);
    let store = Arc::new(MemoryStore::default());
    TestGateway::build(store, script, HubRules::default(), |gateway| gateway.with_endpoints(endpoints)).await
}

fn all() -> Endpoints {
    Endpoints { chat_completions: true, responses: true, ..Endpoints::default() }
}

/// Streams these texts.
fn text_events(texts: &[&str]) -> EventStream {
    let texts: Vec<_> = texts.iter().map(|&text| ModelEvent::Text(text.to_owned())).collect();
    stream::iter(texts.into_iter().chain([done(StopReason::Stop)])).boxed()
}

/// Calls `get_weather`.
fn calls() -> EventStream {
    let call = CallDelta {
        index: 0,
        id: Some("call_1".to_owned()),
        name: Some("get_weather".to_owned()),
        arguments: r#"{"city":"Paris"}"#.to_owned(),
    };
    stream::iter([ModelEvent::Call(call), done(StopReason::ToolUse)]).boxed()
}

/// Calls the caller's tool first, then reports its result.
fn weather() -> Script {
    Arc::new(|answer| if answer == 0 { calls() } else { text_events(&["It is ", "18 degrees."]) })
}

/// An HTTP response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The events of a stream: names and data.
    fn events(&self) -> Vec<(Option<&str>, Value)> {
        let event = |block: &'_ str| -> (Option<&str>, Value) {
            let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
            let data = line("data:").unwrap();
            // Borrowed from the body, since the name has to outlive the block.
            let name = line("event:").map(|name| &self.body[self.body.find(name).unwrap()..][..name.len()]);
            (name, serde_json::from_str(data).unwrap_or_else(|_| data.into()))
        };
        self.body.split("\n\n").filter(|block| block.contains("data:")).map(event).collect()
    }
}

/// Sends a request with additional headers.
async fn send(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // HTTP/1.0, so that the response ends with the connection and is not chunked.
    let mut request = format!("{line} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("no answer came").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head: head.to_owned(), body: body.to_owned() }
}

fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// Sends an authenticated request.
async fn post(gateway: &TestGateway, path: &str, body: Value) -> Answer {
    send(gateway.address, &format!("POST {path}"), &[("Authorization", &bearer())], &body.to_string()).await
}

/// Like [`post`], with additional headers.
async fn post_with(gateway: &TestGateway, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    let bearer = bearer();
    let all = [&[("Authorization", bearer.as_str())], headers].concat();
    send(gateway.address, &format!("POST {path}"), &all, &body.to_string()).await
}

/// Replaces the values that differ in every run.
fn normalize(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    match (name.as_str(), &*inner) {
                        ("created" | "created_at", Value::Number(_)) => *inner = 0.into(),
                        ("id" | "item_id" | "previous_response_id", Value::String(id)) => {
                            if let Some((kind, _)) = id.split_once('_').filter(|(kind, _)| *kind != "fc") {
                                *inner = kind.into();
                            }
                        }
                        _ => walk(inner),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    walk(&mut value);
    value
}

/// Keys of all sessions.
async fn sessions(gateway: &TestGateway) -> Vec<String> {
    gateway.hub.sessions().list().await.unwrap().into_iter().map(|(key, _)| key.to_string()).collect()
}

/// The last message the model received, and its tools.
fn last_request(gateway: &TestGateway) -> (String, Vec<String>) {
    let requests = gateway.requests.lock().unwrap();
    let request = requests.last().unwrap();
    let Message::User(user) = &**request.messages.last().unwrap() else {
        panic!("the model read no user's message last")
    };
    let text = user.content.text();
    (text, request.tools.iter().map(|tool| tool.name.clone()).collect())
}

/// The last model request, one line per message.
fn conversation(gateway: &TestGateway) -> Vec<String> {
    let requests = gateway.requests.lock().unwrap();
    let line = |message: &Arc<Message>| match &**message {
        Message::User(user) => format!("user {}", user.content.text()),
        Message::Assistant(assistant) => {
            let calls = assistant.tool_calls().map(|call| format!("{} {} {}", call.id, call.name, call.arguments));
            format!("assistant {}{}", assistant.text(), calls.collect::<Vec<_>>().join(" "))
        }
        Message::ToolResult(result) => {
            format!("result {} {} {}", result.tool_call_id, result.tool_name, join_text(&result.content))
        }
        Message::Other(_) => "other".to_owned(),
    };
    requests.last().unwrap().messages.iter().map(line).collect()
}

/// Waits until there are `count` sessions: an ephemeral session is deleted after its response.
async fn wait_for_sessions(gateway: &TestGateway, count: usize) -> Vec<String> {
    let poll = async {
        loop {
            let keys = sessions(gateway).await;
            if keys.len() == count {
                return keys;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, poll).await.unwrap()
}

fn get_weather() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"name": "get_weather", "description": "The weather of a city.", "parameters": parameters})
}
