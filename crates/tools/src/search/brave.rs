//! Brave Search: a public service that requires an API key.

use homard_egress::Request;
use reqwest::{Url, header::HeaderValue};
use serde_json::Value;

use super::{SearchProvider, SearchQuery, SearchResult, build_request, parse_results};

/// Default endpoint.
const ENDPOINT: &str = "https://api.search.brave.com/res/v1/web/search";

/// Brave Search.
#[derive(Debug, Clone)]
pub struct Brave {
    endpoint: Url,
    key: HeaderValue,
}

impl Brave {
    /// Creates a client with an API key and an optional compatible endpoint. The error says what is wrong.
    pub fn new(key: &str, endpoint: Option<&str>) -> Result<Self, String> {
        let key = key.trim();
        let mut value = HeaderValue::from_str(key)
            .map_err(|_invalid| "the key has characters that are invalid in an HTTP header".to_owned())?;
        if key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        value.set_sensitive(true);
        let endpoint = Url::parse(endpoint.unwrap_or(ENDPOINT)).map_err(|error| format!("invalid URL: {error}"))?;
        Ok(Self { endpoint, key: value })
    }
}

impl SearchProvider for Brave {
    fn name(&self) -> &'static str {
        "brave"
    }

    fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    fn request(&self, query: &SearchQuery) -> Result<Request, String> {
        let count = query.count.to_string();
        let freshness = query.freshness.as_ref().map(ToString::to_string);
        let request = build_request(
            &self.endpoint,
            &[
                ("q", Some(&query.text)),
                ("count", Some(&count)),
                ("country", query.country.as_deref()),
                ("search_lang", query.search_lang.as_deref()),
                ("ui_lang", query.ui_lang.as_deref()),
                ("freshness", freshness.as_deref()),
                ("text_decorations", Some("false")),
            ],
        );
        Ok(request.with_key("x-subscription-token", self.key.clone()))
    }

    fn parse_response(&self, answer: &Value) -> Vec<SearchResult> {
        parse_results(answer.pointer("/web/results"), "description", "age")
    }

    fn status_hint(&self, status: u16) -> &'static str {
        match status {
            401 | 403 => "check the key in tools.web.search.apiKey or BRAVE_API_KEY",
            422 => "a parameter was rejected: leave out country, search_lang, ui_lang or freshness",
            429 => "too many requests for this key: wait a minute",
            _ => "try again later",
        }
    }
}
