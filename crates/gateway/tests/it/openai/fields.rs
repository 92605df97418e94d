//! Request fields other than the messages: invalid ones are rejected by name, supported ones are passed on.

use homard_model::ReasoningLevel;
use serde_json::{Value, json};

use super::*;
use crate::support::says;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// A valid request with additional fields.
fn body_with(path: &str, fields: &Value) -> Value {
    let mut body = match path {
        CHAT => json!({"messages": [{"role": "user", "content": "hi"}]}),
        _ => json!({"input": "hi"}),
    };
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn invalid_fields_get_an_error_with_their_name() {
    let gateway = gateway(says(&["ok"])).await;
    let with_messages = |messages: Value| json!({ "messages": messages });
    let call = |call: Value| with_messages(json!([{"role": "assistant", "tool_calls": [call]}]));
    for (path, fields, param, message) in [
        (CHAT, json!({"stream": "yes"}), "stream", "stream must be true or false"),
        (CHAT, json!({"max_tokens": -1}), "max_tokens", "max_tokens must be a whole number of at least 1"),
        (CHAT, json!({"temperature": 3}), "temperature", "temperature must be a number from 0 to 2"),
        (CHAT, json!({"n": 2}), "n", "n must be 1: an agent gives one answer"),
        (CHAT, json!({"model": 7}), "model", "model must be a string"),
        (
            CHAT,
            json!({"reasoning_effort": "very"}),
            "reasoning_effort",
            "reasoning_effort must be none, minimal, low, medium, high or xhigh",
        ),
        (
            CHAT,
            json!({"response_format": {"type": "xml"}}),
            "response_format.type",
            "response_format.type must be text, json_object or json_schema",
        ),
        (CHAT, json!({"tool_choice": "required"}), "tool_choice", "tool_choice must not be required without tools"),
        (CHAT, with_messages(json!("hi")), "messages", "messages must be a list of messages"),
        (CHAT, with_messages(json!([])), "messages", "Missing user message in `messages`."),
        (CHAT, with_messages(json!(["hi"])), "messages[0]", "messages[0] must be an object with a role and a content"),
        (
            CHAT,
            with_messages(json!([{"role": "boss", "content": "x"}])),
            "messages[0].role",
            "messages[0].role must be system, developer, user, assistant or tool, not \"boss\"",
        ),
        (
            CHAT,
            with_messages(json!([{"role": "tool", "content": "x"}])),
            "messages[0].tool_call_id",
            "messages[0].tool_call_id must be a string",
        ),
        (
            CHAT,
            with_messages(json!([{"role": "assistant", "tool_calls": {}}])),
            "messages[0].tool_calls",
            "messages[0].tool_calls must be a list",
        ),
        (
            CHAT,
            call(json!({"id": "c", "function": {"name": "x", "arguments": {}}})),
            "messages[0].tool_calls[0].function.arguments",
            "messages[0].tool_calls[0].function.arguments must be a string",
        ),
        (RESPONSES, json!({"stream": 1}), "stream", "stream must be true or false"),
        (
            RESPONSES,
            json!({"max_output_tokens": 0}),
            "max_output_tokens",
            "max_output_tokens must be a whole number of at least 1",
        ),
        (RESPONSES, json!({"temperature": "hot"}), "temperature", "temperature must be a number from 0 to 2"),
        (RESPONSES, json!({"background": "no"}), "background", "background must be true or false"),
        (
            RESPONSES,
            json!({"reasoning": {"effort": "very"}}),
            "reasoning.effort",
            "reasoning.effort must be none, minimal, low, medium, high or xhigh",
        ),
        (RESPONSES, json!({"input": " "}), "input", "Missing user message in `input`."),
        (
            RESPONSES,
            json!({"input": [{"type": "function_call_output", "output": "x"}]}),
            "input[0].call_id",
            "input[0].call_id must be a string",
        ),
    ] {
        let answer = post(&gateway, path, body_with(path, &fields)).await;
        let error = json!({"error": {"message": message, "type": "invalid_request_error", "param": param}});
        assert_eq!((answer.status, answer.json()), (400, error));
    }
    assert_eq!(sessions(&gateway).await, Vec::<String>::new());
}

#[tokio::test]
async fn ignored_fields_are_accepted() {
    let gateway = gateway(says(&["ok"])).await;
    let common = json!({"temperature": 0, "top_p": 1, "stream": false, "metadata": {"a": "b"}, "store": null});
    for (path, extra) in [
        (CHAT, json!({"max_tokens": 5, "max_completion_tokens": 5, "seed": 1, "stop": "x", "n": 1})),
        (RESPONSES, json!({"max_output_tokens": 16, "truncation": "auto", "include": []})),
    ] {
        let mut fields = common.clone();
        fields.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(post(&gateway, path, body_with(path, &fields)).await.status, 200);
    }
    let requests = gateway.requests.lock().unwrap();
    assert_eq!(requests.iter().map(|request| request.max_output).collect::<Vec<_>>(), [None, None]);
}

#[tokio::test]
async fn reasoning_effort_is_passed_on_and_kept_in_the_session() {
    let gateway = gateway(says(&["ok"])).await;
    for (path, fields, level) in [
        (CHAT, json!({"user": "ann"}), ReasoningLevel::Off),
        (CHAT, json!({"user": "ann", "reasoning_effort": "high"}), ReasoningLevel::High),
        (CHAT, json!({"user": "ann"}), ReasoningLevel::High),
        (CHAT, json!({"user": "ann", "reasoning_effort": "none"}), ReasoningLevel::Off),
        (CHAT, json!({"reasoning": {"effort": "low"}}), ReasoningLevel::Low),
        (CHAT, json!({}), ReasoningLevel::Off),
        (RESPONSES, json!({"reasoning": {"effort": "medium", "summary": "auto"}}), ReasoningLevel::Medium),
    ] {
        let answer = post(&gateway, path, body_with(path, &fields)).await;
        let requested = gateway.requests.lock().unwrap().last().unwrap().thinking;
        assert_eq!((answer.status, requested), (200, level), "{fields}");
    }
}
