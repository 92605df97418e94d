//! SearXNG: a self-hosted metasearch engine.

use homard_egress::Request;
use reqwest::Url;
use serde_json::Value;

use super::{PageAge, SearchProvider, SearchQuery, SearchResult, build_request, parse_results};

/// A SearXNG instance.
#[derive(Debug, Clone)]
pub struct Searxng {
    endpoint: Url,
}

impl Searxng {
    /// Creates a client for a base URL such as `http://localhost:8888`. The error says what is wrong.
    pub fn new(base_url: &str) -> Result<Self, String> {
        let bad = |reason: &str| format!("{base_url} {reason}; use a URL such as http://localhost:8888");
        let mut endpoint = Url::parse(base_url.trim()).map_err(|error| bad(&format!("is not a URL ({error})")))?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(bad("is neither http nor https"));
        }
        endpoint.set_query(None);
        if let Ok(mut path) = endpoint.path_segments_mut() {
            path.pop_if_empty().push("search");
        }
        Ok(Self { endpoint })
    }
}

impl SearchProvider for Searxng {
    fn name(&self) -> &'static str {
        "searxng"
    }

    fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    fn request(&self, query: &SearchQuery) -> Result<Request, String> {
        let range = match &query.freshness {
            None => None,
            Some(PageAge::Day) => Some("day"),
            Some(PageAge::Week) => Some("week"),
            Some(PageAge::Month) => Some("month"),
            Some(PageAge::Year) => Some("year"),
            Some(PageAge::Between(..)) => {
                return Err("searxng does not support dates: use freshness day, week, month or year".to_owned());
            }
        };
        // SearXNG has no country parameter; a language may include one.
        let language = match (&query.search_lang, &query.country) {
            (Some(language), Some(country)) if !language.contains('-') => Some(format!("{language}-{country}")),
            (Some(language), _) => Some(language.clone()),
            (None, _) => None,
        };
        let pairs = [
            ("q", Some(query.text.as_str())),
            ("format", Some("json")),
            ("language", language.as_deref()),
            ("time_range", range),
        ];
        Ok(build_request(&self.endpoint, &pairs))
    }

    fn parse_response(&self, answer: &Value) -> Vec<SearchResult> {
        parse_results(answer.get("results"), "content", "publishedDate")
    }

    fn status_hint(&self, status: u16) -> &'static str {
        match status {
            403 => "allow json under search.formats in its settings.yml",
            404 => "check its base URL",
            429 => "its rate limiter rejected the request: allow this machine in its limiter.toml",
            _ => "try again later",
        }
    }
}
