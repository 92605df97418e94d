//! Replays requests of the official clients, recorded by `cargo xtask conform`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use super::*;

const TEXT: &str = "It is 18 degrees.";

/// The checks of a client, each with its requests.
fn recorded(text: &str) -> Vec<(String, Vec<Value>)> {
    let mut checks: Vec<(String, Vec<Value>)> = Vec::new();
    for request in serde_json::from_str::<Vec<Value>>(text).unwrap() {
        let check = request["check"].as_str().unwrap().to_owned();
        match checks.last_mut() {
            Some((last, requests)) if *last == check => requests.push(request),
            _ => checks.push((check, vec![request])),
        }
    }
    checks
}

async fn answer(gateway: &TestGateway, request: &Value, previous: &Value) -> Answer {
    let mut body = request["body"].clone();
    if body.get("previous_response_id").is_some() {
        body["previous_response_id"] = previous.clone();
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let bearer = bearer();
    let headers =
        request["headers"].as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap()));
    let headers: Vec<_> = headers.chain([("authorization", &*bearer)]).collect();
    let line = format!("{} {}", request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
    send(gateway.address, &line, &headers, &body).await
}

/// Text of a response and arguments of its calls, for either API, streamed or not.
fn text_and_calls(answer: &Answer) -> (String, Vec<Value>) {
    let body = match answer.header("content-type") {
        Some("text/event-stream") => {
            let events = answer.events();
            assert_eq!(events.last().unwrap().1, json!("[DONE]"));
            if let Some((_, last)) = events.iter().find(|(name, _)| *name == Some("response.completed")) {
                last["response"].clone()
            } else {
                let deltas = events.iter().map(|(_, data)| &data["choices"][0]["delta"]);
                let text: String = deltas.clone().filter_map(|delta| delta["content"].as_str()).collect();
                let calls: Vec<_> = deltas.filter(|delta| delta["tool_calls"].is_array()).collect();
                let calls = calls.first().map(|delta| delta["tool_calls"].clone());
                json!({"choices": [{"message": {"content": text, "tool_calls": calls}}]})
            }
        }
        _ => answer.json(),
    };
    let message = &body["choices"][0]["message"];
    let items = || body["output"].as_array().into_iter().flatten();
    let text = message["content"].as_str().or_else(|| items().find_map(|item| item["content"][0]["text"].as_str()));
    let chat_calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["function"]);
    let calls = chat_calls.chain(items().filter(|item| item["type"] == "function_call"));
    (text.unwrap_or_default().to_owned(), calls.map(|call| call["arguments"].clone()).collect())
}

/// Replays all requests of a client and compares the responses.
async fn replay(text: &str) {
    let checks = recorded(text);
    assert!(checks.len() >= 10, "only {} checks are on record", checks.len());
    for (check, requests) in checks {
        let should_call = Arc::new(AtomicBool::new(false));
        let script_flag = should_call.clone();
        let script: Script = Arc::new(move |_| {
            if script_flag.load(Ordering::SeqCst) { calls() } else { text_events(&["It is ", "18 degrees."]) }
        });
        let gateway = gateway(script).await;
        let mut previous = Value::Null;
        for (number, request) in requests.iter().enumerate() {
            let has_tools = request["body"]["tools"].is_array() && number == 0;
            should_call.store(has_tools, Ordering::SeqCst);
            let answer = answer(&gateway, request, &previous).await;
            let expected = match (check.as_str(), number) {
                ("errors", 1) => 404,
                ("errors", 2) => 400,
                _ => 200,
            };
            assert_eq!(answer.status, expected, "{check} {number}: {}", answer.body);
            if check == "models" || expected != 200 {
                continue;
            }
            let wanted = if has_tools {
                (String::new(), vec![json!(r#"{"city":"Paris"}"#)])
            } else {
                (TEXT.to_owned(), Vec::new())
            };
            assert_eq!(text_and_calls(&answer), wanted, "{check} {number}");
            if answer.header("content-type") != Some("text/event-stream") {
                previous = answer.json()["id"].clone();
            }
        }
    }
}

#[tokio::test]
async fn recorded_python_requests_are_answered() {
    replay(include_str!("../../golden/openai/python.json")).await;
}

#[tokio::test]
async fn recorded_node_requests_are_answered() {
    replay(include_str!("../../golden/openai/node.json")).await;
}
