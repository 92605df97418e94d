//! Search providers: each builds a request and parses the response, both pure.

mod brave;
mod freshness;
mod searxng;

use std::fmt;

use reqwest::Url;
use serde_json::Value;

pub use self::{brave::Brave, freshness::Freshness, searxng::Searxng};
use crate::egress::Request;

/// A web search provider.
pub trait SearchProvider: fmt::Debug + Send + Sync {
    /// Returns its name in the config.
    fn name(&self) -> &'static str;

    /// Returns its endpoint. The owner chose it, so it need not be public.
    fn endpoint(&self) -> &Url;

    /// Builds the request; the error says what this provider does not support.
    fn request(&self, query: &Query) -> Result<Request, String>;

    /// Parses the response.
    fn hits(&self, answer: &Value) -> Vec<Hit>;

    /// Returns a hint for an unsuccessful HTTP status.
    fn advice(&self, status: u16) -> &'static str;
}

/// A search query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
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
    pub freshness: Option<Freshness>,
}

/// A search result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hit {
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
fn asking(endpoint: &Url, pairs: &[(&str, Option<&str>)]) -> Request {
    let mut url = endpoint.clone();
    url.query_pairs_mut().extend_pairs(pairs.iter().filter_map(|(name, value)| Some((name, (*value)?))));
    Request::new(url, "application/json")
}

/// Parses a list of results; field names depend on the provider.
fn listed(list: Option<&Value>, description: &str, published: &str) -> Vec<Hit> {
    let text = |hit: &Value, name: &str| hit.get(name).and_then(Value::as_str).map(str::to_owned);
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let hits = list.iter().map(|hit| Hit {
        title: text(hit, "title").unwrap_or_default(),
        url: text(hit, "url").unwrap_or_default(),
        description: text(hit, description).unwrap_or_default(),
        published: text(hit, published),
    });
    hits.collect()
}
