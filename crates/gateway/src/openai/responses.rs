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
    let mut request = ParsedRequest::new("input", fields::thinking(body)?);
    request.add_instructions(text(&body["instructions"], "instructions")?.unwrap_or_default());
    match &body["input"] {
        Value::String(text) => {
            request.add("user", MessageContent { text: text.clone(), ..MessageContent::default() }, "input")?;
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                add(&mut request, item, &format!("input[{number}]"))?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(ApiError::invalid_field("input", "must be a string or a list of items"));
        }
    }
    request.set_tools(functions(&body["tools"])?, &body["tool_choice"])?;
    request.set_format(&body["text"]["format"], "text.format")?;
    Ok(request)
}

fn add(request: &mut ParsedRequest, item: &Value, path: &str) -> Result<(), ApiError> {
    let text = |name: &str| required_text(&item[name], &format!("{path}.{name}"));
    match (item["type"].as_str(), item["role"].as_str()) {
        (Some("message") | None, Some(role)) => {
            request.add(role, MessageContent::read(&item["content"], &format!("{path}.content"))?, path)?;
        }
        (Some("function_call"), _) => request.add_call(text("call_id")?, text("name")?, text("arguments")?),
        (Some("function_call_output"), _) => {
            request.add_result(text("call_id")?, MessageContent::read(&item["output"], &format!("{path}.output"))?);
        }
        // Reasoning items are not used, and referenced items are already in the session.
        (Some("reasoning" | "item_reference"), _) => {}
        (Some(other), _) => {
            let problem = format!("is an item of type \"{other}\", which is not supported");
            return Err(ApiError::invalid_field(path, &problem));
        }
        (None, None) => return Err(ApiError::invalid_field(path, "must have a role or a type")),
    }
    Ok(())
}

/// A response under construction.
#[derive(Debug)]
pub(super) struct ResponseBuilder {
    /// The response object before any output: status `in_progress`, an empty `output`, and no token usage.
    response: Value,
    /// Id of the message item: the output item of type `message`, which contains the text of the answer.
    message: String,
    /// Number of events built so far; the `sequence_number` of the next event.
    count: u64,
    /// True once `response.output_item.added` was built for the message item. Its text events must come after that.
    is_message_open: bool,
}

impl ResponseBuilder {
    /// Creates a response to a request; `nonce` is part of all ids. `created` is in seconds since the epoch.
    pub(super) fn new(id: &str, nonce: &str, created: u64, model: &str, body: &Value) -> Self {
        let or_default = |name: &str, default: Value| if body[name].is_null() { default } else { body[name].clone() };
        let response = json!({
            "id": id, "object": "response", "created_at": created, "status": "in_progress", "error": null,
            "incomplete_details": null, "instructions": body["instructions"], "model": model, "output": [],
            "parallel_tool_calls": true, "previous_response_id": body["previous_response_id"],
            "temperature": null, "top_p": null, "metadata": or_default("metadata", json!({})), "tool_choice": or_default("tool_choice", "auto".into()),
            "tools": or_default("tools", json!([])), "usage": usage(&Usage::default()),
        });
        Self { response, message: format!("msg_{nonce}"), count: 0, is_message_open: false }
    }

    /// Builds the complete response.
    pub(super) fn response(&self, answer: &CompleteAnswer) -> Value {
        let mut output = Vec::new();
        if has_message(answer) {
            output.push(self.item("completed", &[part(&answer.text)]));
        }
        output.extend(
            answer.calls.iter().map(|tool_call| call(tool_call, "completed", &tool_call.arguments.to_string())),
        );
        let mut response = self.response.clone();
        response["status"] = if answer.is_truncated { "incomplete" } else { "completed" }.into();
        if answer.is_truncated {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["output"] = output.into();
        response["usage"] = usage(&answer.usage);
        response
    }

    /// Builds the message item.
    fn item(&self, status: &str, content: &[Value]) -> Value {
        json!({"type": "message", "id": self.message, "role": "assistant", "content": content, "status": status})
    }

    /// Builds an event: `data` with the event's type and sequence number.
    fn event(&mut self, event: &'static str, data: Value) -> SseFrame {
        let mut payload =
            Map::from_iter([("type".to_owned(), event.into()), ("sequence_number".to_owned(), self.count.into())]);
        self.count += 1;
        if let Value::Object(data) = data {
            payload.extend(data);
        }
        SseFrame { event: Some(event), data: Value::Object(payload).to_string() }
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

    /// Builds the events that add the message item and its text part; none if they were built before.
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

    /// Builds the events that complete the message item, after those that add it if they were not built before.
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

    /// Builds the events of a tool call. `index` is the position of its item in the output.
    fn call_events(&mut self, index: usize, tool_call: &ToolCall) -> [SseFrame; 4] {
        let arguments = tool_call.arguments.to_string();
        let (started, done) = (call(tool_call, "in_progress", ""), call(tool_call, "completed", &arguments));
        let arguments_event =
            |name: &str, value: &Value| json!({"item_id": done["id"], "output_index": index, name: value});
        let arguments = Value::from(arguments);
        [
            self.event("response.output_item.added", json!({"output_index": index, "item": started})),
            self.event("response.function_call_arguments.delta", arguments_event("delta", &arguments)),
            self.event("response.function_call_arguments.done", arguments_event("arguments", &arguments)),
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

    fn end(&mut self, result: &ResponseResult) -> Vec<SseFrame> {
        let (event, response, mut frames) = match result {
            Ok(answer) => {
                let mut frames = Vec::new();
                if self.is_message_open || has_message(answer) {
                    frames.extend(self.end_message(&answer.text));
                }
                let first = usize::from(self.is_message_open);
                for (index, call) in answer.calls.iter().enumerate() {
                    frames.extend(self.call_events(first + index, call));
                }
                let event = if answer.is_truncated { "response.incomplete" } else { "response.completed" };
                (event, self.response(answer), frames)
            }
            Err(error) => {
                let mut response = self.response.clone();
                response["status"] = "failed".into();
                response["error"] = json!({"code": "server_error", "message": error.message()});
                ("response.failed", response, Vec::new())
            }
        };
        frames.extend([self.event(event, json!({ "response": response })), SseFrame::done()]);
        frames
    }
}

/// True if a response has a message item: always, unless it consists of tool calls only.
fn has_message(answer: &CompleteAnswer) -> bool {
    !answer.text.is_empty() || answer.calls.is_empty()
}

/// Builds the text part of the message item.
fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Builds the output item of a tool call.
fn call(call: &ToolCall, status: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id, "name": call.name,
        "arguments": arguments, "status": status,
    })
}

/// Converts token usage to the format of the API.
fn usage(usage: &Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output,
    })
}
