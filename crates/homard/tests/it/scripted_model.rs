//! A scripted model: `CALL name {arguments}` has it call a tool, and it replies with the result.

use homard_testkit::fake_provider::{
    FakeAnswer, FakeProvider, FakeToolCall, ProviderReply, ReceivedRequest, dialect::WireFormat,
};
use serde_json::{Value, json};

use crate::home::{Home, RunningGateway};

/// Its description of a picture.
pub(crate) const SEEN: &str = "a lobster";

/// A home with the scripted model.
pub(crate) struct ScriptedHome {
    pub(crate) home: Home,
    pub(crate) provider: FakeProvider,
}

impl ScriptedHome {
    /// Creates a home with this config and the model, which accepts pictures.
    pub(crate) async fn with(config: Value) -> Self {
        Self::answering(config, reply).await
    }

    /// Same as `with`, with a model that answers by `reply`.
    pub(crate) async fn answering(
        mut config: Value,
        reply: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> Self {
        let provider = FakeProvider::start(reply).await.unwrap();
        config["models"]["providers"]["puppet"] = json!({
            "baseUrl": provider.base_url(WireFormat::Chat), "apiKey": "none", "api": "openai-completions",
            "models": [{"id": "m", "input": ["text", "image"], "contextWindow": 100_000, "maxTokens": 4_096}],
        });
        config["agents"]["defaults"]["model"] = json!("puppet/m");
        let home = Home::new();
        home.configure(&config.to_string());
        Self { home, provider }
    }

    /// Returns the names of the tools in the last request.
    pub(crate) fn offered(&self) -> Vec<String> {
        let last = self.provider.requests().pop().unwrap().json();
        let tools = last["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Has a tool called in the main session, and returns its result.
pub(crate) fn call(gateway: &RunningGateway<'_>, tool: &str, arguments: &Value) -> String {
    let output = gateway.run(&["agent", "-m", &format!("CALL {tool} {arguments}")]);
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout.trim_end().to_owned()
}

/// Makes the requested calls; `SAY ` has it reply with the rest, with `|` for a new line.
pub(crate) fn obey(request: &ReceivedRequest) -> ProviderReply {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().map(|last| last["content"].to_string()).unwrap_or_default();
    let text: Option<String> =
        last.split_once("SAY ").and_then(|(_, text)| serde_json::from_str(&format!("\"{text}")).ok());
    text.map_or_else(|| reply(request), |text| ProviderReply::text(text.replace('|', "\n")))
}

pub(crate) fn reply(request: &ReceivedRequest) -> ProviderReply {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    let blocks = last["content"].as_array().cloned().unwrap_or_default();
    let block_texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let text: String = last["content"].as_str().into_iter().chain(block_texts).collect();
    match text.split_once("CALL ").and_then(|(_, call)| call.split_once(' ')) {
        Some((name, rest)) if last["role"] == "user" => {
            let arguments = serde_json::Deserializer::from_str(rest).into_iter().next().unwrap().unwrap();
            let id = format!("call_{}", request.number);
            let calls = vec![FakeToolCall { id, name: name.to_owned(), arguments }];
            ProviderReply { answer: FakeAnswer { calls, ..FakeAnswer::default() }, ..ProviderReply::default() }
        }
        Some(_) | None if blocks.iter().any(|block| block["type"] == "image_url") => ProviderReply::text(SEEN),
        Some(_) | None => ProviderReply::text(text),
    }
}
