//! A test case: a folder of files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_model::{CacheLifetime, ModelEvent, ModelSpec, ReasoningLevel, Request, Signature, ToolSpec};
use homard_providers::{ModelTarget, Wire};
use serde_json::{Value, json};

pub(crate) type Outcome<T = ()> = datatest_stable::Result<T>;

pub(crate) struct Case {
    pub(crate) wire: Wire,
    folder: PathBuf,
}

impl Case {
    /// Loads the case of a file. Its wire is the name of the parent folder.
    pub(crate) fn at(file: &Path) -> Outcome<Self> {
        let folder = file.parent().ok_or("a case is a folder")?;
        let name = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        let wire = Wire::from_api(name).ok_or_else(|| format!("{name} is not a wire"))?;
        Ok(Self { wire, folder: folder.to_owned() })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn bytes(&self, name: &str) -> Outcome<Vec<u8>> {
        Ok(fs::read(self.file(name))?)
    }

    pub(crate) fn json(&self, name: &str) -> Outcome<Value> {
        Ok(serde_json::from_slice(&self.bytes(name)?)?)
    }

    /// Returns the request body of a conversation.
    pub(crate) fn encode(&self, history: &Value) -> Outcome<Value> {
        let spec = spec(self.wire, history);
        let messages = history["messages"].as_array().into_iter().flatten();
        let tools = history["tools"].as_array().into_iter().flatten().map(|tool| ToolSpec {
            name: text(tool, "name", "").to_owned(),
            description: text(tool, "description", "").to_owned(),
            parameters: tool["parameters"].clone(),
        });
        let request = Request {
            system: text(history, "system", "").into(),
            stable_bytes: history["stable"].as_u64().map_or(0, |stable| stable as usize),
            messages: serde_json::from_value(messages.map(|message| with_author(message, &spec)).collect())?,
            tools: tools.collect(),
            allow_calls: history["mayCall"].as_bool().unwrap_or(true),
            thinking: ReasoningLevel::parse(text(history, "thinking", "off")).ok_or("no such level")?,
            max_output: history["limit"].as_u64(),
            cache: match text(history, "cache", "short") {
                "off" => CacheLifetime::Off,
                "long" => CacheLifetime::Long,
                _ => CacheLifetime::Short,
            },
            session: history["session"].as_str().map(Into::into),
        };
        let target = ModelTarget::new(spec, text(history, "baseUrl", "https://example.com/v1"));
        Ok(serde_json::from_slice(&self.wire.encode(&target, &request)?)?)
    }
}

impl Case {
    /// Returns the messages of a request without cache markers.
    pub(crate) fn prompt(&self, history: &Value) -> Outcome<Vec<Value>> {
        let mut body = self.encode(history)?;
        strip_cache_markers(&mut body);
        let list = ["messages", "input", "contents"].into_iter().find_map(|name| body.get(name)?.as_array());
        Ok(list.ok_or("a request has a conversation")?.clone())
    }
}

fn strip_cache_markers(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(strip_cache_markers);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_cache_markers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn text<'a>(json: &'a Value, name: &str, fallback: &'a str) -> &'a str {
    json[name].as_str().unwrap_or(fallback)
}

fn spec(wire: Wire, history: &Value) -> ModelSpec {
    let levels = history["levels"].as_array().into_iter().flatten();
    ModelSpec {
        provider: text(history, "provider", "test").to_owned(),
        model: text(history, "model", "tiny").to_owned(),
        api: wire.api().to_owned(),
        max_output: history["maxOutput"].as_u64().unwrap_or(0),
        thinking: levels.filter_map(|level| ReasoningLevel::parse(level.as_str()?)).collect(),
        accepts_images: history["sees"].as_bool().unwrap_or(true),
        ..ModelSpec::default()
    }
}

/// An assistant message without `api` counts as written by the requested model.
fn with_author(message: &Value, spec: &ModelSpec) -> Value {
    let mut message = message.clone();
    if message["role"] == "assistant" && message["api"].is_null() {
        message["api"] = json!(spec.api);
        message["provider"] = json!(spec.provider);
        message["model"] = json!(spec.model);
    }
    message
}

/// Builds a conversation that continues after an answer: with a result for each of its calls, or else with another user
/// message.
pub(crate) fn conversation(blocks: &Value) -> Value {
    let calls = blocks.as_array().into_iter().flatten().filter(|block| block["type"] == "toolCall");
    let results = calls.map(|call| {
        let content = json!([{"type": "text", "text": format!("result of {}", text(call, "name", ""))}]);
        json!({"role": "toolResult", "toolCallId": call["id"], "toolName": call["name"], "content": content})
    });
    let results: Vec<_> = results.collect();
    let stop = if results.is_empty() { "stop" } else { "toolUse" };
    let mut messages = vec![
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": blocks, "stopReason": stop}),
    ];
    messages.extend(results);
    if stop == "stop" {
        messages.push(json!({"role": "user", "content": "Go on"}));
    }
    json!({"messages": messages, "levels": ["low", "high"], "thinking": "low", "maxOutput": 8192})
}

/// Formats an event as in the files.
pub(crate) fn event_json(event: &ModelEvent) -> Value {
    match event {
        ModelEvent::Text(text) => json!({"text": text}),
        ModelEvent::Thinking(text) => json!({"thinking": text}),
        ModelEvent::Call(call) => {
            json!({"call": call.index, "id": call.id, "name": call.name, "arguments": call.arguments})
        }
        ModelEvent::Signature(Signature::Thinking(signature)) => json!({"seal": "thinking", "mark": signature}),
        ModelEvent::Signature(Signature::Redacted(signature)) => json!({"seal": "redacted", "mark": signature}),
        ModelEvent::Signature(Signature::Text(signature)) => json!({"seal": "text", "mark": signature}),
        ModelEvent::Signature(Signature::Call(index, signature)) => json!({"seal": index, "mark": signature}),
        ModelEvent::Heartbeat => json!("alive"),
        ModelEvent::NoResponse(why) => json!({"noResponse": why}),
        ModelEvent::Done(done) => {
            let usage = &done.usage;
            let mut tokens = json!({"input": usage.input, "output": usage.output, "cacheRead": usage.cache_read});
            if usage.cache_write > 0 {
                tokens["cacheWrite"] = json!(usage.cache_write);
            }
            json!({"done": done.stop, "tokens": tokens, "total": usage.total_tokens})
        }
        ModelEvent::Failed(error) => {
            let mut event_json = json!({"failed": format!("{:?}", error.kind), "message": error.message});
            if let Some(status) = error.status {
                event_json["status"] = json!(status);
            }
            if let Some(delay) = error.retry_after {
                event_json["retryAfter"] = json!(delay.as_secs_f64());
            }
            if let Some(id) = &error.request_id {
                event_json["requestId"] = json!(id);
            }
            event_json
        }
    }
}

/// Compares a value with a golden file; `BLESS=1` updates the file.
#[allow(clippy::disallowed_methods, reason = "a switch for whoever runs the tests")]
pub(crate) fn compare(golden: &Path, actual: &Value) -> Outcome {
    if std::env::var_os("BLESS").is_some() {
        // One event per line.
        let lines = actual.as_array().map(|list| list.iter().map(|item| format!("  {item}")).collect::<Vec<_>>());
        let text = lines.map_or_else(|| format!("{actual:#}"), |lines| format!("[\n{}\n]", lines.join(",\n")));
        fs::write(golden, text + "\n")?;
    }
    let expected: Value = serde_json::from_slice(&fs::read(golden).unwrap_or_default()).unwrap_or_default();
    assert!(expected == *actual, "{} should hold, if this is right:\n{actual:#}", golden.display());
    Ok(())
}
