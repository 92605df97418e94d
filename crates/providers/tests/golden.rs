//! Recorded streams and histories, and what must become of them. A new case is new files:
//! `<case>.sse` with `<case>.events.json`, or `<case>.history.json` with `<case>.request.json`.

use std::{fs, path::Path, time::Duration};

use homard_model::{Event, Request, ToolSpec};
use homard_providers::{
    Settings,
    openai_chat::{Decoder, encode},
    sse::Parser,
};
use serde_json::{Value, json};

type Outcome = datatest_stable::Result<()>;

datatest_stable::harness! {
    { test = a_stream_becomes_its_events, root = "tests/golden/openai_chat", pattern = r"\.sse$" },
    { test = a_history_becomes_its_request, root = "tests/golden/openai_chat", pattern = r"\.history\.json$" },
}

fn a_stream_becomes_its_events(path: &Path) -> Outcome {
    let mut decoder = Decoder::default();
    let frames = Parser::default().push(&fs::read(path)?)?;
    let mut events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(&frame.data)).collect();
    events.extend(decoder.finish());
    compare(&path.with_extension("events.json"), &events.iter().map(shown).collect())
}

fn a_history_becomes_its_request(path: &Path) -> Outcome {
    let history: Value = serde_json::from_slice(&fs::read(path)?)?;
    let text = |name: &str| history[name].as_str().unwrap_or_default();
    let settings = Settings {
        provider: "local".to_owned(),
        model: "tiny".to_owned(),
        base_url: text("baseUrl").to_owned(),
        api_key: None,
        context_window: 32_000,
        max_output: history["maxOutput"].as_u64().unwrap_or(0),
        headers: Vec::new(),
        idle: Duration::from_secs(1),
    };
    let tool = |tool: &Value| ToolSpec {
        name: tool["name"].as_str().unwrap_or_default().to_owned(),
        description: tool["description"].as_str().unwrap_or_default().to_owned(),
        parameters: tool["parameters"].clone(),
    };
    let request = Request {
        system: text("system").into(),
        messages: serde_json::from_value(history["messages"].clone())?,
        tools: history["tools"].as_array().into_iter().flatten().map(tool).collect(),
    };
    let body: Value = serde_json::from_slice(&encode(&settings, &request)?)?;
    compare(&path.with_extension("").with_extension("request.json"), &body)
}

fn shown(event: &Event) -> Value {
    match event {
        Event::Text(text) => json!({"text": text}),
        Event::Thinking(text) => json!({"thinking": text}),
        Event::Call(call) => {
            json!({"call": call.index, "id": call.id, "name": call.name, "arguments": call.arguments})
        }
        Event::Done(done) => {
            let usage = &done.usage;
            let tokens = json!({"input": usage.input, "output": usage.output, "cacheRead": usage.cache_read});
            json!({"done": done.stop, "tokens": tokens, "total": usage.total_tokens})
        }
        Event::Failed(error) => {
            json!({"failed": format!("{:?}", error.kind), "status": error.status, "message": error.message})
        }
    }
}

fn compare(golden: &Path, actual: &Value) -> Outcome {
    let expected: Value = serde_json::from_slice(&fs::read(golden).unwrap_or_default()).unwrap_or_default();
    assert!(expected == *actual, "{} should hold, if this is right:\n{actual:#}", golden.display());
    Ok(())
}
