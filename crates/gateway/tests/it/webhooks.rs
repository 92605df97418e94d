//! Inbound webhooks: real HTTP and a scripted model.

mod agent;
mod dedupe_key;
mod http;
mod mappings;

use std::{net::SocketAddr, sync::Arc};

use homard_agent::HubRules;
use homard_gateway::Webhooks;
use homard_model::Request;
use homard_proto::{AgentId, RunId, SessionKey, message::Message};
use homard_store::{MemoryStore, Store};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::yield_now,
    time::timeout,
};

use crate::support::{PATIENCE, TestGateway, says};

const HOOK_TOKEN: &str = "the-hook-token";

/// A gateway with webhooks and a model that answers "all done".
async fn gateway(change: impl FnOnce(&mut Webhooks)) -> TestGateway {
    gateway_over(Arc::new(MemoryStore::default()), change).await
}

async fn gateway_over(store: Arc<dyn Store>, change: impl FnOnce(&mut Webhooks)) -> TestGateway {
    let mut webhooks = Webhooks::new(HOOK_TOKEN, "/hooks").unwrap();
    change(&mut webhooks);
    TestGateway::build(store, says(&["all ", "done"]), HubRules::default(), |gateway| gateway.with_webhooks(webhooks))
        .await
}

/// An HTTP response.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> (u16, Value) {
        (self.status, serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}")))
    }

    fn text(&self) -> (u16, &str) {
        (self.status, &self.body)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn run(&self) -> RunId {
        let (status, body) = self.json();
        assert_eq!((status, &body["ok"]), (202, &json!(true)), "{body}");
        RunId::parse(body["runId"].as_str().unwrap()).unwrap()
    }
}

/// Sends a request with additional headers.
async fn send(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = format!("{line} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    exchange(address, &format!("{request}\r\n{body}")).await
}

/// Sends a raw request and reads until the gateway closes the connection.
async fn exchange(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("no answer came").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request with the token.
async fn post(gateway: &TestGateway, path: &str, body: Value) -> Answer {
    post_with(gateway, path, &[], &body.to_string()).await
}

async fn post_with(gateway: &TestGateway, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let bearer = format!("Bearer {HOOK_TOKEN}");
    let headers: Vec<_> = headers.iter().copied().chain([("Authorization", bearer.as_str())]).collect();
    send(gateway.address, &format!("POST /hooks/{path}"), &headers, body).await
}

fn main_session() -> SessionKey {
    AgentId::main().main_session()
}

/// Texts queued for the main session.
async fn events(gateway: &TestGateway) -> Vec<String> {
    let sessions = gateway.hub.sessions().list().await.unwrap();
    let main = sessions.iter().find(|(key, _)| *key == main_session());
    let events = main.and_then(|(_, record)| record.extra.get("systemEvents")?.as_array());
    events.into_iter().flatten().map(|event| event.as_str().unwrap().to_owned()).collect()
}

/// Waits until `count` texts are queued for the main session.
async fn wait_for_events(gateway: &TestGateway, count: usize) -> Vec<String> {
    let poll = async {
        loop {
            let events = events(gateway).await;
            if events.len() >= count {
                return events;
            }
            yield_now().await;
        }
    };
    timeout(PATIENCE, poll).await.expect("the main session was not told")
}

/// Last message of each model request.
fn prompts(gateway: &TestGateway) -> Vec<String> {
    let requests = gateway.requests.lock().unwrap();
    let last = |request: &Request| match &**request.messages.last().unwrap() {
        Message::User(user) => user.content.text(),
        other @ (Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_)) => panic!("{other:?}"),
    };
    requests.iter().map(last).collect()
}
