//! Who can be asked for pages, and how: each provider is a request and a reading of its answer, both pure.

mod brave;
mod freshness;
mod searxng;

use std::fmt;

use reqwest::Url;
use serde_json::Value;

pub use self::{brave::Brave, freshness::Freshness, searxng::Searxng};
use crate::egress::Request;

/// Somebody who knows where things are on the web.
pub trait SearchProvider: fmt::Debug + Send + Sync {
    /// Its name in the config.
    fn name(&self) -> &'static str;

    /// Where it is. The owner chose it, so it may be reached wherever it is.
    fn endpoint(&self) -> &Url;

    /// What to ask; an error says what this provider cannot do.
    fn request(&self, query: &Query) -> Result<Request, String>;

    /// What it answered.
    fn hits(&self, answer: &Value) -> Vec<Hit>;

    /// What to do about an answer with another status than success.
    fn advice(&self, status: u16) -> &'static str;
}

/// What is searched for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The words.
    pub text: String,
    /// How many hits are wanted.
    pub count: usize,
    /// From which country: two letters.
    pub country: Option<String>,
    /// In which language the pages are.
    pub search_lang: Option<String>,
    /// In which language the provider speaks.
    pub ui_lang: Option<String>,
    /// How old the pages may be.
    pub freshness: Option<Freshness>,
}

/// A page that was found, as the provider tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hit {
    /// Its title.
    pub title: String,
    /// Where it is.
    pub url: String,
    /// What it says of the words.
    pub description: String,
    /// When it was published, in the provider's words.
    pub published: Option<String>,
}

/// A URL below the endpoint, with what is known of the query.
fn asking(endpoint: &Url, pairs: &[(&str, Option<&str>)]) -> Request {
    let mut url = endpoint.clone();
    url.query_pairs_mut().extend_pairs(pairs.iter().filter_map(|(name, value)| Some((name, (*value)?))));
    Request::new(url, "application/json")
}

/// The hits in a list of objects, each field under the name that the provider gives it.
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
