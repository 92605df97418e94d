//! `/v1/responses`: request parsing, and the response, whole or as events.

use homard_proto::message::{ToolCall, Usage};
use serde_json::{Map, Value, json};

use super::{
    content::MessageContent,
    error::{ApiError, required_text, text},
    fields,
    request::{ParsedRequest, functions},
    sse::{EventFormat, SseFrame},
    stream::{CompleteAnswer, ResponseResult},
};

/// Parses a request.
pub(super) fn read(body: &Value) -> Result<ParsedRequest, ApiError> {
    fields::check_responses(body)?;
    if body["background"] == true {
        return Err(ApiError::invalid_field(
            "background",
            "must be false: responses cannot be fetched later; use streaming instead",
        ));
    }
    let mut question = ParsedRequest::new("input", fields::thinking(body)?);
    question.add_instructions(text(&body["instructions"], "instructions")?.unwrap_or_default());
    match &body["input"] {
        Value::String(text) => {
            question.add("user", MessageContent { text: text.clone(), ..MessageContent::default() }, "input")?;
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                add(&mut question, item, &format!("input[{number}]"))?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(ApiError::invalid_field("input", "must be a string or a list of items"));
        }
    }
    question.set_tools(functions(&body["tools"])?, &body["tool_choice"])?;
    question.set_format(&body["text"]["format"], "text.format")?;
    Ok(question)
}

fn add(question: &mut ParsedRequest, item: &Value, place: &str) -> Result<(), ApiError> {
    let text = |name: &str| required_text(&item[name], &format!("{place}.{name}"));
    match (item["type"].as_str(), item["role"].as_str()) {
        (Some("message") | None, Some(role)) => {
            question.add(role, MessageContent::read(&item["content"], &format!("{place}.content"))?, place)?;
        }
        (Some("function_call"), _) => question.add_call(text("call_id")?, text("name")?, text("arguments")?),
        (Some("function_call_output"), _) => {
            question.add_result(text("call_id")?, MessageContent::read(&item["output"], &format!("{place}.output"))?);
        }
        // Reasoning items are not used, and referenced items are already in the session.
        (Some("reasoning" | "item_reference"), _) => {}
        (Some(other), _) => {
            let must = format!("is an item of type \"{other}\", which is not supported");
            return Err(ApiError::invalid_field(place, &must));
        }
        (None, None) => return Err(ApiError::invalid_field(place, "must have a role or a type")),
    }
    Ok(())
}

/// A response under construction.
#[derive(Debug)]
pub(super) struct ResponseBuilder {
    /// The response object without its results.
    response: Value,
    /// Id of its message item.
    message: String,
    /// Number of events sent.
    count: u64,
    /// True once the message item was opened.
    is_message_open: bool,
}

impl ResponseBuilder {
    /// Creates a response to a request; `nonce` is part of all ids. `created` is in seconds since the epoch.
    pub(super) fn new(id: &str, nonce: &str, created: u64, model: &str, body: &Value) -> Self {
        let or = |name: &str, default: Value| if body[name].is_null() { default } else { body[name].clone() };
        let frame = json!({
            "id": id, "object": "response", "created_at": created, "status": "in_progress", "error": null,
            "incomplete_details": null, "instructions": body["instructions"], "model": model, "output": [],
            "parallel_tool_calls": true, "previous_response_id": body["previous_response_id"],
            "temperature": null, "top_p": null, "metadata": or("metadata", json!({})), "tool_choice": or("tool_choice", "auto".into()),
            "tools": or("tools", json!([])), "usage": usage(&Usage::default()),
        });
        Self { response: frame, message: format!("msg_{nonce}"), count: 0, is_message_open: false }
    }

    /// Builds the complete response.
    pub(super) fn response(&self, whole: &CompleteAnswer) -> Value {
        let mut output = Vec::new();
        if has_message(whole) {
            output.push(self.item("completed", &[part(&whole.text)]));
        }
        output.extend(whole.calls.iter().map(|made| call(made, "completed", &made.arguments.to_string())));
        let mut response = self.response.clone();
        response["status"] = if whole.is_truncated { "incomplete" } else { "completed" }.into();
        if whole.is_truncated {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["output"] = output.into();
        response["usage"] = usage(&whole.usage);
        response
    }

    fn item(&self, status: &str, content: &[Value]) -> Value {
        json!({"type": "message", "id": self.message, "role": "assistant", "content": content, "status": status})
    }

    fn event(&mut self, event: &'static str, data: Value) -> SseFrame {
        let mut told =
            Map::from_iter([("type".to_owned(), event.into()), ("sequence_number".to_owned(), self.count.into())]);
        self.count += 1;
        if let Value::Object(data) = data {
            told.extend(data);
        }
        SseFrame { event: Some(event), data: Value::Object(told).to_string() }
    }

    /// Builds an event about the message's text.
    fn text_event(&mut self, event: &'static str, name: &str, value: Value) -> SseFrame {
        let mut data = json!({"item_id": self.message, "output_index": 0, "content_index": 0});
        data[name] = value;
        if event.starts_with("response.output_text.") {
            data["logprobs"] = json!([]);
        }
        self.event(event, data)
    }

    fn begin_message(&mut self) -> Vec<SseFrame> {
        if std::mem::replace(&mut self.is_message_open, true) {
            return Vec::new();
        }
        let item = self.item("in_progress", &[]);
        vec![
            self.event("response.output_item.added", json!({"output_index": 0, "item": item})),
            self.text_event("response.content_part.added", "part", part("")),
        ]
    }

    fn end_message(&mut self, text: &str) -> Vec<SseFrame> {
        let mut frames = self.begin_message();
        let item = self.item("completed", &[part(text)]);
        frames.extend([
            self.text_event("response.output_text.done", "text", text.into()),
            self.text_event("response.content_part.done", "part", part(text)),
            self.event("response.output_item.done", json!({"output_index": 0, "item": item})),
        ]);
        frames
    }

    fn call_events(&mut self, index: usize, made: &ToolCall) -> [SseFrame; 4] {
        let arguments = made.arguments.to_string();
        let (begun, done) = (call(made, "in_progress", ""), call(made, "completed", &arguments));
        let about = |name: &str, value: &Value| json!({"item_id": done["id"], "output_index": index, name: value});
        let arguments = Value::from(arguments);
        [
            self.event("response.output_item.added", json!({"output_index": index, "item": begun})),
            self.event("response.function_call_arguments.delta", about("delta", &arguments)),
            self.event("response.function_call_arguments.done", about("arguments", &arguments)),
            self.event("response.output_item.done", json!({"output_index": index, "item": done})),
        ]
    }
}

impl EventFormat for ResponseBuilder {
    fn begin(&mut self) -> Vec<SseFrame> {
        let response = json!({"response": self.response});
        vec![self.event("response.created", response.clone()), self.event("response.in_progress", response)]
    }

    fn text_delta(&mut self, new: &str) -> Vec<SseFrame> {
        let mut frames = self.begin_message();
        frames.push(self.text_event("response.output_text.delta", "delta", new.into()));
        frames
    }

    fn end(&mut self, ending: &ResponseResult) -> Vec<SseFrame> {
        let (event, response, mut frames) = match ending {
            Ok(whole) => {
                let mut frames = Vec::new();
                if self.is_message_open || has_message(whole) {
                    frames.extend(self.end_message(&whole.text));
                }
                let first = usize::from(self.is_message_open);
                for (index, call) in whole.calls.iter().enumerate() {
                    frames.extend(self.call_events(first + index, call));
                }
                let event = if whole.is_truncated { "response.incomplete" } else { "response.completed" };
                (event, self.response(whole), frames)
            }
            Err(refusal) => {
                let mut response = self.response.clone();
                response["status"] = "failed".into();
                response["error"] = json!({"code": "server_error", "message": refusal.message()});
                ("response.failed", response, Vec::new())
            }
        };
        frames.extend([self.event(event, json!({ "response": response })), SseFrame::done()]);
        frames
    }
}

/// True if a response has a message item: always, unless it consists of tool calls only.
fn has_message(whole: &CompleteAnswer) -> bool {
    !whole.text.is_empty() || whole.calls.is_empty()
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn call(call: &ToolCall, status: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id, "name": call.name,
        "arguments": arguments, "status": status,
    })
}

fn usage(usage: &Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output,
    })
}
