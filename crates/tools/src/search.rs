//! Search providers: each builds a request and parses the response, both pure.

mod brave;
mod freshness;
mod searxng;

use std::fmt;

use homard_egress::Request;
use reqwest::Url;
use serde_json::Value;

pub use self::{brave::Brave, freshness::PageAge, searxng::Searxng};

/// A web search provider.
pub trait SearchProvider: fmt::Debug + Send + Sync {
    /// Returns its name in the config.
    fn name(&self) -> &'static str;

    /// Returns its endpoint. The owner chose it, so it need not be public.
    fn endpoint(&self) -> &Url;

    /// Builds the HTTP request. Fails if the provider does not support an option of the query.
    fn request(&self, query: &SearchQuery) -> Result<Request, String>;

    /// Parses the response.
    fn parse_response(&self, answer: &Value) -> Vec<SearchResult>;

    /// Returns a hint for an unsuccessful HTTP status.
    fn status_hint(&self, status: u16) -> &'static str;
}

/// A search query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SearchQuery {
    /// Search terms.
    pub text: String,
    /// Number of results.
    pub count: usize,
    /// Two-letter country code.
    pub country: Option<String>,
    /// Language of the pages.
    pub search_lang: Option<String>,
    /// Language of the provider's interface.
    pub ui_lang: Option<String>,
    /// Maximum age of the pages.
    pub freshness: Option<PageAge>,
}

/// A search result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// Title.
    pub title: String,
    /// URL.
    pub url: String,
    /// Snippet.
    pub description: String,
    /// Publication date as the provider formats it.
    pub published: Option<String>,
}

/// Builds a request to the endpoint with those query parameters that have a value.
fn build_request(endpoint: &Url, pairs: &[(&str, Option<&str>)]) -> Request {
    let mut url = endpoint.clone();
    url.query_pairs_mut().extend_pairs(pairs.iter().filter_map(|(name, value)| Some((name, (*value)?))));
    Request::new(url, "application/json")
}

/// Parses a list of results; field names depend on the provider.
fn parse_results(list: Option<&Value>, description: &str, published: &str) -> Vec<SearchResult> {
    let text = |hit: &Value, name: &str| hit.get(name).and_then(Value::as_str).map(str::to_owned);
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let hits = list.iter().map(|hit| SearchResult {
        title: text(hit, "title").unwrap_or_default(),
        url: text(hit, "url").unwrap_or_default(),
        description: text(hit, description).unwrap_or_default(),
        published: text(hit, published),
    });
    hits.collect()
}
