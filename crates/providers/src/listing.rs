//! Lists the models that a server offers.

use std::time::Duration;

use homard_model::{Error, ErrorKind, classify::classify};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    ModelTarget, Wire,
    http::{Endpoint, HttpClient},
    wire::{RequestPath, bearer},
};

/// Timeout of a list of models. No model has to be loaded for it.
pub const LISTING_TIMEOUT: Duration = Duration::from_secs(4);

/// A model that a server offers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedModel {
    /// Id of the model at the server.
    pub id: String,
    /// Context window in tokens, if the server reports it.
    pub context_window: Option<u64>,
    /// Maximum number of output tokens, if the server reports it.
    pub max_output: Option<u64>,
}

/// Requests the list of models of a server. Without an API in the target, the list is requested as OpenAI's servers
/// provide it.
///
/// # Errors
///
/// The server cannot be reached, rejects the request, or does not answer with a list of models.
pub async fn list_models(target: &ModelTarget, client: &HttpClient) -> Result<Vec<ListedModel>, Error> {
    let wire = Wire::from_api(&target.spec.api);
    let headers = wire.map_or_else(|| bearer(target), |wire| wire.headers(target));
    let endpoint = Endpoint::new(client, target, &listing_path(wire, target), &headers)?;
    let failed = |kind, status, why: &str| {
        let message = format!("GET {} {why}", endpoint.url_without_secrets());
        endpoint.with_context(Error { status, ..Error::new(kind, message) })
    };
    let (status, body) = match timeout(LISTING_TIMEOUT, endpoint.get()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => return Err(failed(ErrorKind::Connect, None, &format!("failed ({why})"))),
        Err(_) => {
            let api = match target.spec.api.as_str() {
                "" => "OpenAI's or Anthropic's API",
                api => api,
            };
            let seconds = LISTING_TIMEOUT.as_secs();
            let why = format!("did not answer within {seconds} s, as a server with {api} would");
            return Err(failed(ErrorKind::Connect, None, &why));
        }
    };
    if !(200..300).contains(&status) {
        let error = classify(Some(status), &[], &body);
        let kind = if matches!(status, 404 | 405 | 501) { ErrorKind::Misconfigured } else { error.kind };
        return Err(failed(kind, Some(status), &format!("answered {}", error.message)));
    }
    parse(&body).ok_or_else(|| failed(ErrorKind::Misconfigured, Some(status), "did not answer with a list of models"))
}

fn listing_path(wire: Option<Wire>, target: &ModelTarget) -> RequestPath {
    let is_versioned = target.base_url.trim_end_matches('/').ends_with("/v1");
    let (path, query) = match wire {
        Some(Wire::AnthropicMessages) if is_versioned => ("models", Some("limit=1000")),
        Some(Wire::AnthropicMessages) => ("v1/models", Some("limit=1000")),
        Some(Wire::GoogleGenerativeAi) => ("models", Some("pageSize=1000")),
        Some(Wire::OpenAiCompletions | Wire::OpenAiResponses) | None => ("models", None),
    };
    RequestPath { path: path.to_owned(), query }
}

/// Parses a list of models: of OpenAI and Anthropic (`data`), of Google (`models`), or a plain array.
fn parse(body: &str) -> Option<Vec<ListedModel>> {
    let json: Value = serde_json::from_str(body).ok()?;
    let list = json.get("data").or_else(|| json.get("models")).unwrap_or(&json).as_array()?;
    let model = |entry: &Value| {
        let id = entry.get("id").or_else(|| entry.get("name")).or(Some(entry))?.as_str()?;
        let number =
            |names: &[&str]| names.iter().find_map(|name| entry.get(name)?.as_u64().filter(|&count| count > 0));
        let loaded = entry.get("meta").and_then(|meta| meta.get("n_ctx")).and_then(Value::as_u64);
        Some(ListedModel {
            id: id.strip_prefix("models/").unwrap_or(id).to_owned(),
            // The names of OpenRouter, vLLM, LM Studio and Google; then llama.cpp.
            context_window: number(&[
                "context_length",
                "max_model_len",
                "loaded_context_length",
                "max_context_length",
                "inputTokenLimit",
            ])
            .or(loaded),
            max_output: number(&["max_completion_tokens", "outputTokenLimit", "max_output_tokens"]),
        })
    };
    let models: Vec<_> = list.iter().filter_map(model).collect();
    // A list in which no entry is a model is a list of something else.
    (!models.is_empty() || list.is_empty()).then_some(models)
}

#[cfg(test)]
mod tests {
    use homard_model::ModelSpec;

    use super::*;

    #[test]
    fn the_lists_of_all_vendors_are_understood() {
        let listed = |body: &str| {
            let models = parse(body)?;
            Some(models.into_iter().map(|model| (model.id, model.context_window, model.max_output)).collect::<Vec<_>>())
        };
        let of = |id: &str, window, output| Some(vec![(id.to_owned(), window, output)]);
        for (body, expected) in [
            (r#"{"object": "list", "data": [{"id": "gpt", "object": "model"}]}"#, of("gpt", None, None)),
            (
                r#"{"data": [{"id": "a/b", "context_length": 9, "max_completion_tokens": 3}]}"#,
                of("a/b", Some(9), Some(3)),
            ),
            (r#"{"data": [{"id": "qwen", "max_model_len": 40960}]}"#, of("qwen", Some(40960), None)),
            (r#"{"models": [{"name": "x"}], "data": [{"id": "l", "meta": {"n_ctx": 8}}]}"#, of("l", Some(8), None)),
            (
                r#"{"models": [{"name": "models/gemini", "inputTokenLimit": 5, "outputTokenLimit": 2}]}"#,
                of("gemini", Some(5), Some(2)),
            ),
            (r#"["plain"]"#, of("plain", None, None)),
            (r#"{"data": []}"#, Some(Vec::new())),
            (r#"{"data": [1, 2]}"#, None),
            (r#"{"error": "no"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(listed(body), expected, "{body}");
        }
    }

    #[test]
    fn the_path_depends_on_the_api_and_the_base_url() {
        let path = |wire, base_url: &str| {
            let path = listing_path(wire, &ModelTarget::new(ModelSpec::default(), base_url));
            (path.path, path.query)
        };
        let messages = Some(Wire::AnthropicMessages);
        assert_eq!(path(messages, "https://api.anthropic.com"), ("v1/models".to_owned(), Some("limit=1000")));
        assert_eq!(path(messages, "https://proxy/v1/"), ("models".to_owned(), Some("limit=1000")));
        assert_eq!(path(None, "http://127.0.0.1:1/v1"), ("models".to_owned(), None));
    }
}
