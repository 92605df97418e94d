//! `/v1/chat/completions`: request parsing, and the response, whole or in chunks.

use homard_proto::message::{ToolCall, Usage};
use serde_json::{Value, json};

use super::{
    content::MessageContent,
    error::{ApiError, required_text},
    fields,
    request::{ParsedRequest, functions},
    sse::{EventFormat, SseFrame},
    stream::{CompleteAnswer, ResponseResult},
};

/// Parses a request.
pub(super) fn read(body: &Value) -> Result<ParsedRequest, ApiError> {
    fields::check_chat(body)?;
    let Some(messages) = body["messages"].as_array() else {
        return Err(ApiError::invalid_field("messages", "must be a list of messages"));
    };
    let mut request = ParsedRequest::new("messages", fields::thinking(body)?);
    for (number, message) in messages.iter().enumerate() {
        add(&mut request, message, &format!("messages[{number}]"))?;
    }
    request.set_tools(functions(&body["tools"])?, &body["tool_choice"])?;
    request.set_format(&body["response_format"], "response_format")?;
    Ok(request)
}

fn add(request: &mut ParsedRequest, message: &Value, path: &str) -> Result<(), ApiError> {
    if !message.is_object() {
        return Err(ApiError::invalid_field(path, "must be an object with a role and a content"));
    }
    let content = MessageContent::read(&message["content"], &format!("{path}.content"))?;
    let Some(role) = message["role"].as_str() else {
        return Err(ApiError::invalid_field(&format!("{path}.role"), "must be a role, such as \"user\""));
    };
    if let Some(name) = match role {
        "tool" => Some("tool_call_id"),
        "function" => Some("name"),
        _ => None,
    } {
        request.add_result(required_text(&message[name], &format!("{path}.{name}"))?, content);
        return Ok(());
    }
    request.add(role, content, path)?;
    let calls = &message["tool_calls"];
    if !calls.is_null() && !calls.is_array() {
        return Err(ApiError::invalid_field(&format!("{path}.tool_calls"), "must be a list"));
    }
    for (number, call) in calls.as_array().into_iter().flatten().enumerate() {
        let text = |value: &'_ Value, name: &str| {
            required_text(value, &format!("{path}.tool_calls[{number}].{name}")).map(str::to_owned)
        };
        let function = &call["function"];
        let name = text(&function["name"], "function.name")?;
        request.add_call(&text(&call["id"], "id")?, &name, &text(&function["arguments"], "function.arguments")?);
    }
    Ok(())
}

/// Fields of a response.
#[derive(Debug, Clone)]
pub(super) struct ChatCompletion {
    pub(super) id: String,
    /// Seconds since the epoch.
    pub(super) created: u64,
    /// Model name as the caller sent it.
    pub(super) model: String,
    /// True if a stream reports token usage.
    pub(super) has_usage: bool,
}

impl ChatCompletion {
    /// Builds the complete response.
    pub(super) fn completion(&self, answer: &CompleteAnswer) -> Value {
        let mut message = json!({"role": "assistant", "content": answer.text});
        if !answer.calls.is_empty() {
            if answer.text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = answer.calls.iter().map(call).collect();
        }
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(answer)}],
            "usage": usage(&answer.usage),
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> SseFrame {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        self.frame(&json!([choice]), Value::Null)
    }

    fn frame(&self, choices: &Value, usage: Value) -> SseFrame {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        });
        if self.has_usage {
            chunk["usage"] = usage;
        }
        SseFrame::plain(&chunk)
    }
}

impl EventFormat for ChatCompletion {
    fn begin(&mut self) -> Vec<SseFrame> {
        vec![self.chunk(&json!({"role": "assistant", "content": ""}), None)]
    }

    fn text_delta(&mut self, new: &str) -> Vec<SseFrame> {
        vec![self.chunk(&json!({ "content": new }), None)]
    }

    fn end(&mut self, result: &ResponseResult) -> Vec<SseFrame> {
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return vec![SseFrame::plain(&error.body()), SseFrame::done()],
        };
        let mut frames = Vec::new();
        if !answer.calls.is_empty() {
            let indexed = |(index, tool_call): (usize, &ToolCall)| {
                let mut call = call(tool_call);
                call["index"] = index.into();
                call
            };
            let calls: Value = answer.calls.iter().enumerate().map(indexed).collect();
            frames.push(self.chunk(&json!({ "tool_calls": calls }), None));
        }
        frames.push(self.chunk(&json!({}), Some(finish_reason(answer))));
        if self.has_usage {
            frames.push(self.frame(&json!([]), usage(&answer.usage)));
        }
        frames.push(SseFrame::done());
        frames
    }
}

fn finish_reason(answer: &CompleteAnswer) -> &'static str {
    match answer {
        CompleteAnswer { calls, .. } if !calls.is_empty() => "tool_calls",
        CompleteAnswer { is_truncated: true, .. } => "length",
        CompleteAnswer { is_truncated: false, .. } => "stop",
    }
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
    json!({"id": call.id, "type": "function", "function": function})
}

fn usage(usage: &Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    })
}
