//! Encoders for the four wire formats.

use serde_json::{Value, json};

use super::FakeAnswer;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WireFormat {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Google's Gemini.
    Gemini,
}

/// Token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCounts {
    /// Prompt tokens.
    pub prompt: u64,
    /// Cached prompt tokens.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Encoded bytes.
    pub text: String,
    /// True for a delta: a reader cannot distinguish a duplicate of it from a second delta.
    pub is_delta: bool,
}

impl StreamEvent {
    pub(super) fn marker(text: String) -> Self {
        Self { text, is_delta: false }
    }

    fn delta(text: String) -> Self {
        Self { text, is_delta: true }
    }
}

impl WireFormat {
    /// All wire formats.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns its name in configs.
    pub fn api(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic-messages",
            Self::Chat => "openai-completions",
            Self::Responses => "openai-responses",
            Self::Gemini => "google-generative-ai",
        }
    }

    /// Returns the prefix of its URL path.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::Anthropic => "",
            Self::Chat | Self::Responses => "/v1",
            Self::Gemini => "/v1beta",
        }
    }

    /// Determines the wire format and the model of a request.
    pub(super) fn of(path: &str, body: &str) -> Option<(Self, String)> {
        if let Some(rest) = path.strip_prefix("/v1beta/models/") {
            return Some((Self::Gemini, rest.strip_suffix(":streamGenerateContent?alt=sse")?.to_owned()));
        }
        let body: Value = serde_json::from_str(body).ok()?;
        let dialect = match path {
            "/v1/messages" => Self::Anthropic,
            "/v1/chat/completions" => Self::Chat,
            "/v1/responses" => Self::Responses,
            _ => return None,
        };
        Some((dialect, body["model"].as_str()?.to_owned()))
    }

    /// Returns the request field that contains the conversation.
    pub fn conversation(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Chat => "messages",
            Self::Responses => "input",
            Self::Gemini => "contents",
        }
    }

    /// Encodes an error within a stream.
    pub(super) fn error(self, name: &str, message: &str) -> String {
        match self {
            Self::Anthropic => named("error", &json!({"type": "error", "error": {"type": name, "message": message}})),
            Self::Chat => data(&json!({"error": {"type": name, "message": message}})),
            Self::Responses => named(
                "response.failed",
                &json!({"type": "response.failed", "sequence_number": 9_999, "response": {
                    "id": "resp_1", "status": "failed", "error": {"code": name, "message": message},
                }}),
            ),
            Self::Gemini => data(&json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": message}})),
        }
    }

    /// Encodes the body of an error response.
    pub(super) fn refusal(self, name: &str) -> String {
        let message = "the fake provider was told to refuse this";
        match self {
            Self::Anthropic => json!({"type": "error", "error": {"type": name, "message": message}}),
            Self::Chat | Self::Responses => json!({"error": {"type": name, "message": message}}),
            Self::Gemini => json!({"error": {"message": message}}),
        }
        .to_string()
    }
}

fn data(json: &Value) -> String {
    format!("data: {json}\n\n")
}

fn named(name: &str, json: &Value) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// Encodes an answer.
pub(super) fn encode(dialect: WireFormat, answer: &FakeAnswer, tokens: TokenCounts) -> Vec<StreamEvent> {
    match dialect {
        WireFormat::Anthropic => anthropic(answer, tokens),
        WireFormat::Chat => chat(answer, tokens),
        WireFormat::Responses => responses(answer, tokens),
        WireFormat::Gemini => gemini(answer, tokens),
    }
}

fn anthropic(answer: &FakeAnswer, tokens: TokenCounts) -> Vec<StreamEvent> {
    let event = |mut json: Value, kind: &str| {
        json["type"] = kind.into();
        named(kind, &json)
    };
    let TokenCounts { prompt, cached, output: output_tokens } = tokens;
    let usage = json!({"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage});
    let mut events = vec![StreamEvent::marker(event(json!({"message": message}), "message_start"))];
    let mut index = 0;
    let mut block = |begin: Value, deltas: Vec<Value>| {
        events.push(StreamEvent::marker(event(json!({"index": index, "content_block": begin}), "content_block_start")));
        for delta in deltas {
            events.push(StreamEvent::delta(event(json!({"index": index, "delta": delta}), "content_block_delta")));
        }
        events.push(StreamEvent::marker(event(json!({"index": index}), "content_block_stop")));
        index += 1;
    };
    if let Some(reasoning) = &answer.thinking {
        let reasoning = json!({"type": "thinking_delta", "thinking": reasoning});
        let signature = json!({"type": "signature_delta", "signature": "c2VhbA=="});
        block(json!({"type": "thinking", "thinking": "", "signature": ""}), vec![reasoning, signature]);
    }
    if !answer.text.is_empty() {
        let deltas = answer.text.iter().map(|text| json!({"type": "text_delta", "text": text}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in &answer.calls {
        let delta = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
        let deltas = halves(&call.arguments.to_string()).map(|part| delta(&part)).into();
        block(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas);
    }
    let reason = if answer.calls.is_empty() { "end_turn" } else { "tool_use" };
    let end = json!({"delta": {"stop_reason": reason}, "usage": {"output_tokens": output_tokens}});
    events.push(StreamEvent::marker(event(end, "message_delta")));
    events.push(StreamEvent::marker(event(json!({}), "message_stop")));
    events
}

fn chat(answer: &FakeAnswer, tokens: TokenCounts) -> Vec<StreamEvent> {
    let chunk = |choices: Value, usage: Value| {
        data(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, "usage": usage}))
    };
    let piece = |delta: Value| StreamEvent::delta(chunk(json!([{"index": 0, "delta": delta}]), Value::Null));
    let mut events =
        vec![StreamEvent::marker(chunk(json!([{"index": 0, "delta": {"role": "assistant"}}]), Value::Null))];
    events.extend(answer.thinking.iter().map(|reasoning| piece(json!({"reasoning_content": reasoning}))));
    events.extend(answer.text.iter().map(|text| piece(json!({"content": text}))));
    for (index, call) in answer.calls.iter().enumerate() {
        let [begin, rest] = halves(&call.arguments.to_string());
        let function = json!({"name": call.name, "arguments": begin});
        let first = json!({"index": index, "id": call.id, "type": "function", "function": function});
        events.push(piece(json!({"tool_calls": [first]})));
        events.push(piece(json!({"tool_calls": [{"index": index, "function": {"arguments": rest}}]})));
    }
    let reason = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(StreamEvent::marker(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]), Value::Null)));
    let TokenCounts { prompt, cached, output: output_tokens } = tokens;
    let details = json!({"cached_tokens": cached});
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": output_tokens, "prompt_tokens_details": details});
    events.push(StreamEvent::marker(chunk(json!([]), usage)));
    events.push(StreamEvent::marker("data: [DONE]\n\n".to_owned()));
    events
}

fn responses(answer: &FakeAnswer, tokens: TokenCounts) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    let mut event = |kind: &str, mut json: Value| {
        json["type"] = kind.into();
        json["sequence_number"] = events.len().into();
        let is_piece = kind.ends_with(".delta");
        events.push(StreamEvent { text: named(kind, &json), is_delta: is_piece });
    };
    event("response.created", json!({"response": {"id": "resp_1", "status": "in_progress", "output": []}}));
    let mut output: Vec<Value> = Vec::new();
    let mut item = |started: Value, kind: &str, deltas: Vec<String>, whole: Value| {
        let index = output.len();
        event("response.output_item.added", json!({"output_index": index, "item": started}));
        for delta in deltas {
            let body = json!({"item_id": whole["id"], "output_index": index, "delta": delta, "content_index": 0});
            event(kind, body);
        }
        event("response.output_item.done", json!({"output_index": index, "item": whole}));
        output.push(whole);
    };
    if let Some(reasoning) = &answer.thinking {
        let summary = json!([{"type": "summary_text", "text": reasoning}]);
        let whole = json!({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA"});
        item(json!({"id": "rs_1", "type": "reasoning", "summary": []}), "", Vec::new(), whole);
    }
    if !answer.text.is_empty() {
        let message = |status: &str, content: Value| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content});
        let whole = json!([{"type": "output_text", "text": answer.text.concat(), "annotations": []}]);
        let kind = "response.output_text.delta";
        item(message("in_progress", json!([])), kind, answer.text.clone(), message("completed", whole));
    }
    for (number, call) in answer.calls.iter().enumerate() {
        let call = |arguments: &str| {
            let id = format!("fc_{}_{number}", call.id);
            json!({"id": id, "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
        };
        let arguments = answer.calls[number].arguments.to_string();
        let kind = "response.function_call_arguments.delta";
        item(call(""), kind, halves(&arguments).into(), call(&arguments));
    }
    let TokenCounts { prompt, cached, output: output_tokens } = tokens;
    let details = json!({"cached_tokens": cached});
    let usage = json!({"input_tokens": prompt, "output_tokens": output_tokens, "input_tokens_details": details});
    let response = json!({"id": "resp_1", "status": "completed", "output": output, "usage": usage});
    event("response.completed", json!({"response": response}));
    events
}

fn gemini(answer: &FakeAnswer, tokens: TokenCounts) -> Vec<StreamEvent> {
    let chunk = |parts: Value| data(&json!({"candidates": [{"content": {"role": "model", "parts": parts}}]}));
    let mut events = Vec::new();
    if let Some(reasoning) = &answer.thinking {
        events.push(StreamEvent::delta(chunk(json!([{"text": reasoning, "thought": true}]))));
    }
    events.extend(answer.text.iter().map(|text| StreamEvent::delta(chunk(json!([{"text": text}])))));
    for (number, call) in answer.calls.iter().enumerate() {
        let mut part = json!({"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}});
        if number == 0 && answer.thinking.is_some() {
            part["thoughtSignature"] = "c2VhbA==".into();
        }
        events.push(StreamEvent::delta(chunk(json!([part]))));
    }
    let TokenCounts { prompt, cached, output: output_tokens } = tokens;
    let usage =
        json!({"promptTokenCount": prompt, "cachedContentTokenCount": cached, "candidatesTokenCount": output_tokens});
    let content = json!({"role": "model", "parts": [{"text": ""}]});
    let end = json!({"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage});
    events.push(StreamEvent::marker(data(&end)));
    events
}

fn halves(text: &str) -> [String; 2] {
    let (begin, rest) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [begin.to_owned(), rest.to_owned()]
}
