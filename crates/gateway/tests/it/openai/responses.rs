//! `/v1/responses`.

use std::sync::Arc;

use homard_agent::{Inbound, InboundSender};
use homard_command::OWNER;
use homard_proto::{AgentId, RunId, SessionKey, message::User};
use serde_json::{Value, json};

use super::*;
use crate::support::says;

const PATH: &str = "/v1/responses";

fn frame() -> Value {
    json!({
        "id": "resp", "object": "response", "created_at": 0, "status": "in_progress", "error": null,
        "incomplete_details": null, "instructions": null, "model": "openclaw", "output": [],
        "parallel_tool_calls": true, "previous_response_id": null, "temperature": null, "top_p": null,
        "metadata": {}, "tool_choice": "auto", "tools": [], "usage": usage(0, 0),
    })
}

fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output,
    })
}

fn message(status: &str, content: &Value) -> Value {
    json!({"type": "message", "id": "msg", "role": "assistant", "content": content, "status": status})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn completed(text: &str) -> Value {
    let mut frame = frame();
    frame["status"] = "completed".into();
    frame["output"] = json!([message("completed", &json!([part(text)]))]);
    frame["usage"] = usage(100, 5);
    frame
}

#[tokio::test]
async fn an_unstreamed_answer_is_a_response() {
    let gateway = gateway(says(&["hello ", "world"])).await;
    let answer = post(&gateway, PATH, json!({"model": "openclaw", "input": "hi"})).await;
    assert_eq!((answer.status, normalize(answer.json())), (200, completed("hello world")));
    assert_eq!(last_request(&gateway).0, "hi");
}

#[tokio::test]
async fn a_stream_contains_every_event_in_order() {
    let gateway = gateway(says(&["hello"])).await;
    let answer = post(&gateway, PATH, json!({"model": "openclaw", "input": "hi", "stream": true})).await;
    let content_event =
        |name: &str, value: Value| json!({"item_id": "msg", "output_index": 0, "content_index": 0, name: value});
    let with_logprobs = |mut value: Value| {
        value["logprobs"] = json!([]);
        value
    };
    let mut expected: Vec<(&str, Value)> = vec![
        ("response.created", json!({"response": frame()})),
        ("response.in_progress", json!({"response": frame()})),
        ("response.output_item.added", json!({"output_index": 0, "item": message("in_progress", &json!([]))})),
        ("response.content_part.added", content_event("part", part(""))),
        ("response.output_text.delta", with_logprobs(content_event("delta", "hello".into()))),
        ("response.output_text.done", with_logprobs(content_event("text", "hello".into()))),
        ("response.content_part.done", content_event("part", part("hello"))),
        (
            "response.output_item.done",
            json!({"output_index": 0, "item": message("completed", &json!([part("hello")]))}),
        ),
        ("response.completed", json!({"response": completed("hello")})),
    ];
    for (number, (name, data)) in expected.iter_mut().enumerate() {
        data["type"] = (*name).into();
        data["sequence_number"] = number.into();
    }
    let mut events: Vec<_> = answer.events().into_iter().map(|(name, data)| (name, normalize(data))).collect();
    assert_eq!(events.pop(), Some((None, json!("[DONE]"))));
    let expected: Vec<_> = expected.into_iter().map(|(name, data)| (Some(name), data)).collect();
    assert_eq!(events, expected);
}

fn call(status: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": "fc_call_1", "call_id": "call_1", "name": "get_weather",
        "arguments": arguments, "status": status,
    })
}

fn tools() -> Value {
    let mut tool = get_weather();
    tool["type"] = "function".into();
    json!([tool])
}

#[tokio::test]
async fn a_tool_call_continues_from_the_previous_response() {
    let gateway = gateway(weather()).await;
    let first = post(&gateway, PATH, json!({"input": "How is the weather in Paris?", "tools": tools()})).await.json();
    assert_eq!(
        (&first["status"], &first["output"]),
        (&json!("completed"), &json!([call("completed", r#"{"city":"Paris"}"#)]))
    );
    let output = json!([{"type": "function_call_output", "call_id": "call_1", "output": "18"}]);
    let body = json!({"input": output, "previous_response_id": first["id"], "tools": tools()});
    let second = post(&gateway, PATH, body).await.json();
    assert_eq!(second["output"][0]["content"][0]["text"], "It is 18 degrees.");
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(
        conversation(&gateway),
        [
            "user How is the weather in Paris?",
            r#"assistant call_1 get_weather {"city":"Paris"}"#,
            "result call_1 get_weather 18"
        ]
    );
    let keys = sessions(&gateway).await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].starts_with("agent:main:openresponses:"), "{keys:?}");
}

#[tokio::test]
async fn a_response_is_continued_with_its_own_agent() {
    let gateway = gateway(says(&["ok"])).await;
    let run = RunId::parse("resp_ops").unwrap();
    let key = SessionKey::parse("agent:ops:notes", &AgentId::main()).unwrap();
    let inbound = Inbound::plain(run.clone(), InboundSender::new(OWNER, "http"), key, User::text("hi", 0));
    gateway.hub.submit(inbound).await.unwrap();
    gateway.hub.runs().wait(&run, PATIENCE).await.unwrap();
    let body = |model: &str| json!({"model": model, "input": "more", "previous_response_id": "resp_ops"});
    let problem =
        "refers to a response of the agent \"ops\", but the request selects \"main\"; select \"ops\" or no agent";
    let error = json!({"error": {
        "message": format!("previous_response_id {problem}"), "type": "invalid_request_error",
        "param": "previous_response_id",
    }});
    let answer = post(&gateway, PATH, body("openclaw/main")).await;
    assert_eq!((answer.status, answer.json()), (400, error.clone()));
    let answer = post_with(&gateway, PATH, &[("x-openclaw-agent-id", "main")], body("gpt-5")).await;
    assert_eq!((answer.status, answer.json()), (400, error));
    // A request that names no agent continues with that one.
    assert_eq!(post(&gateway, PATH, body("openclaw")).await.status, 200);
    assert_eq!(sessions(&gateway).await, ["agent:ops:notes"]);
}

#[tokio::test]
async fn a_conversation_may_be_sent_in_full_instead() {
    let gateway = gateway(weather()).await;
    let first = post(&gateway, PATH, json!({"input": "Paris?", "tools": tools()})).await.json();
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Paris?"}]},
        {"type": "reasoning", "summary": []},
        first["output"][0],
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "18"}]},
    ]);
    let second = post(&gateway, PATH, json!({"input": input, "instructions": "Be brief.", "tools": tools()})).await;
    assert_eq!(second.status, 200);
    assert_eq!(
        conversation(&gateway),
        ["user Paris?", r#"assistant call_1 get_weather {"city":"Paris"}"#, "result call_1 get_weather 18"]
    );
    assert!(gateway.requests.lock().unwrap()[1].system.contains("Be brief."));
    assert_eq!(sessions(&gateway).await.len(), 2);
}

#[tokio::test]
async fn a_streamed_call_is_a_separate_item_after_the_text() {
    let script: Script = Arc::new(|answer| match answer {
        0 => text_events(&["Let me look."]).take(1).chain(calls()).boxed(),
        _ => text_events(&["ok"]),
    });
    let gateway = gateway(script).await;
    let answer = post(&gateway, PATH, json!({"input": "Paris?", "tools": tools(), "stream": true})).await;
    let events = answer.events();
    let names: Vec<_> =
        events.iter().filter_map(|(name, data)| Some(((*name)?, data["output_index"].as_u64()))).collect();
    assert_eq!(
        names[7..],
        [
            ("response.output_item.done", Some(0)),
            ("response.output_item.added", Some(1)),
            ("response.function_call_arguments.delta", Some(1)),
            ("response.function_call_arguments.done", Some(1)),
            ("response.output_item.done", Some(1)),
            ("response.completed", None),
        ]
    );
    assert_eq!(events[8].1["item"], call("in_progress", ""));
    assert_eq!(events[9].1["delta"], r#"{"city":"Paris"}"#);
    assert_eq!(events[11].1["item"], call("completed", r#"{"city":"Paris"}"#));
    assert_eq!(events[12].1["response"]["output"][1], call("completed", r#"{"city":"Paris"}"#));
}

#[tokio::test]
async fn a_json_format_is_requested_in_the_system_prompt() {
    let gateway = gateway(says(&["{}"])).await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let format = json!({"type": "json_schema", "name": "place", "schema": schema});
    assert_eq!(post(&gateway, PATH, json!({"input": "x", "text": {"format": format}})).await.status, 200);
    let system = gateway.requests.lock().unwrap()[0].system.clone();
    assert!(system.contains(&format!("It must fit this JSON Schema: {schema}")), "{system}");
}

#[tokio::test]
async fn a_failure_is_the_last_event_of_a_stream() {
    let broken: Script = Arc::new(|_| {
        let error = homard_model::Error::new(homard_model::ErrorKind::Auth, "no key");
        stream::iter([ModelEvent::Failed(error)]).boxed()
    });
    let gateway = gateway(broken).await;
    let answer = post(&gateway, PATH, json!({"input": "hi", "stream": true})).await;
    let events = answer.events();
    let (name, failed) = &events[2];
    assert_eq!((*name, &failed["response"]["status"]), (Some("response.failed"), &json!("failed")));
    assert_eq!(failed["response"]["error"]["code"], "server_error");
    assert_eq!(events[3].1, json!("[DONE]"));
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_a_message() {
    let gateway = gateway(says(&["ok"])).await;
    for (body, message) in [
        (json!({}), "input must be a string or a list of items"),
        (json!({"input": 7}), "input must be a string or a list of items"),
        (json!({"input": " "}), "Missing user message in `input`."),
        (json!({"input": [{"text": "x"}]}), "input[0] must have a role or a type"),
        (
            json!({"input": [{"type": "computer_call"}]}),
            "input[0] is an item of type \"computer_call\", which is not supported",
        ),
        (
            json!({"input": "x", "background": true}),
            "background must be false: responses cannot be fetched later; use streaming instead",
        ),
        (
            json!({"input": "x", "previous_response_id": "resp_nobody"}),
            "previous_response_id refers to an unknown response; send the whole conversation",
        ),
    ] {
        let answer = post(&gateway, PATH, body).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["message"], &error["type"]),
            (400, &json!(message), &json!("invalid_request_error"))
        );
    }
}
