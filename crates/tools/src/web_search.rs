//! The `web_search` tool: finds web pages.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dom_query::Document;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_egress::{Egress, EgressLimits, Observer, Resolve};
use homard_runtime::ambient::{Ambient, iso};
use homard_stdx::time::millis;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    egress_audit, external, failure,
    search::{PageAge, SearchProvider, SearchQuery},
    ttl_cache::TtlCache,
};

/// Maximum number of results.
const MAX_RESULTS: usize = 10;

/// Maximum length of a title and of a description, in characters.
const MAX_TITLE_CHARS: usize = 300;
const MAX_DESCRIPTION_CHARS: usize = 1_000;

/// Error message if no provider is configured.
const UNCONFIGURED: &str = "no search provider is configured: the owner can set tools.web.search.apiKey or \
                            BRAVE_API_KEY for Brave Search, or tools.web.search.searxng.baseUrl or SEARXNG_BASE_URL \
                            for SearXNG";

/// Settings; the defaults are those of `tools.web.search`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearchSettings {
    /// Default number of results.
    pub max_results: usize,
    /// Time limit of a search.
    pub timeout: Duration,
    /// How long results are cached.
    pub cache: Duration,
}

impl Default for WebSearchSettings {
    fn default() -> Self {
        Self { max_results: 5, timeout: Duration::from_secs(30), cache: Duration::from_secs(15 * 60) }
    }
}

/// Finds web pages.
#[derive(Debug)]
pub struct WebSearch {
    settings: WebSearchSettings,
    provider: Option<ConfiguredProvider>,
    ambient: Ambient,
    result_cache: TtlCache<(SearchQuery, DomainFilter), Arc<[ShownResult]>>,
}

/// A provider and an HTTP client that may reach it.
#[derive(Debug)]
struct ConfiguredProvider {
    provider: Arc<dyn SearchProvider>,
    egress: Egress,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("invalid arguments: {0}")]
    Arguments(String),
    #[error("{}", UNCONFIGURED)]
    Unconfigured,
    #[error("the run was stopped before the search finished")]
    Stopped,
    #[error(transparent)]
    Egress(#[from] homard_egress::Error),
    #[error("{provider} answered with status {status}: {advice}")]
    Refused { provider: &'static str, status: u16, advice: &'static str },
    #[error("invalid response from {provider}: {why}")]
    Malformed { provider: &'static str, why: String },
}

#[derive(Deserialize)]
struct Args {
    query: String,
    count: Option<f64>,
    country: Option<String>,
    search_lang: Option<String>,
    language: Option<String>,
    ui_lang: Option<String>,
    freshness: Option<String>,
    date_after: Option<String>,
    date_before: Option<String>,
    #[serde(default)]
    domain_filter: Vec<String>,
}

/// A result as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownResult {
    title: String,
    url: String,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    site_name: String,
}

/// Domain filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct DomainFilter {
    included: Vec<String>,
    excluded: Vec<String>,
}

impl DomainFilter {
    /// Parses a list of domains; a leading hyphen excludes a domain.
    fn parse(list: &[String]) -> Result<Self, Error> {
        let mut domains = Self::default();
        for entry in list {
            let entry = entry.trim().to_ascii_lowercase();
            let (name, names) = match entry.strip_prefix('-') {
                Some(name) => (name, &mut domains.excluded),
                None => (entry.as_str(), &mut domains.included),
            };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            if name.is_empty() || !name.bytes().all(is_plain) {
                return Err(Error::Arguments(format!("domain_filter: {entry:?} is not a name such as example.com")));
            }
            names.push(name.to_owned());
        }
        Ok(domains)
    }

    /// Returns the search operators, which most engines support.
    fn operators(&self) -> String {
        let only: Vec<String> = self.included.iter().map(|name| format!("site:{name}")).collect();
        let only = match only.as_slice() {
            [] => String::new(),
            [site] => format!(" {site}"),
            several => format!(" ({})", several.join(" OR ")),
        };
        self.excluded.iter().fold(only, |query, name| format!("{query} -site:{name}"))
    }

    /// Filters results, for engines that ignore the operators.
    fn allow(&self, host: &str) -> bool {
        let is_in =
            |name: &String| host.strip_suffix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        (self.included.is_empty() || self.included.iter().any(is_in)) && !self.excluded.iter().any(is_in)
    }
}

impl WebSearch {
    /// Creates the tool with an optional provider and a resolver.
    pub fn new(
        settings: WebSearchSettings,
        provider: Option<Arc<dyn SearchProvider>>,
        names: Arc<dyn Resolve>,
        ambient: Ambient,
    ) -> Self {
        let provider = provider.map(|provider| {
            let url = provider.endpoint();
            let port = url.port_or_known_default().unwrap_or_default();
            let here = format!("{}:{port}", url.host_str().unwrap_or_default());
            // The provider's endpoint need not be public, so it gets an exception. Redirects are not followed.
            let allow = here.parse().into_iter().collect();
            let limits = EgressLimits { allow, timeout: settings.timeout, redirects: 0, ..EgressLimits::default() };
            ConfiguredProvider { egress: Egress::new(limits, names), provider }
        });
        let result_cache = TtlCache::new(settings.cache);
        Self { settings, provider, ambient, result_cache }
    }

    async fn answer(
        &self,
        cancel: &CancellationToken,
        observer: Observer,
        arguments: Value,
    ) -> Result<ToolResult, Error> {
        let started = Instant::now();
        let configured = self.provider.as_ref().ok_or(Error::Unconfigured)?;
        let arguments: Args = serde_json::from_value(arguments).map_err(|error| Error::Arguments(error.to_string()))?;
        let query_text = arguments.query.trim().to_owned();
        let key = (self.query(&arguments)?, DomainFilter::parse(&arguments.domain_filter)?);
        let cached = self.result_cache.get(&key);
        let is_cached = cached.is_some();
        let found = match cached {
            Some(found) => found,
            None => {
                let searched = cancel.run_until_cancelled(configured.search(observer, &key.0, &key.1)).await;
                let found: Arc<[ShownResult]> = searched.ok_or(Error::Stopped)??.into();
                self.result_cache.put(key, found.clone());
                found
            }
        };
        let provider = configured.provider.name();
        let mut details = json!({
            "query": query_text,
            "provider": provider,
            "count": found.len(),
            "tookMs": millis(started.elapsed()),
            "results": found,
            "externalContent": {"untrusted": true, "source": "web_search"},
        });
        if is_cached {
            details["cached"] = json!(true);
        }
        let text =
            external::frame_untrusted(&format!("a search with {provider}"), &listed(&found), &self.ambient.nonce());
        Ok(ToolResult::text(text).with_details(details))
    }

    /// Validates the arguments and converts them to a query.
    fn query(&self, args: &Args) -> Result<SearchQuery, Error> {
        let text = args.query.trim().to_owned();
        if text.is_empty() {
            return Err(Error::Arguments("query is empty".to_owned()));
        }
        // `as` saturates, so out-of-range values become the nearest limit.
        let count = args.count.map_or(self.settings.max_results, |count| count as usize).clamp(1, MAX_RESULTS);
        let country = validate_code(args.country.as_deref(), "country")?.map(|country| country.to_ascii_uppercase());
        let search_lang = validate_code(args.search_lang.as_deref().or(args.language.as_deref()), "search_lang")?;
        let ui_lang = validate_code(args.ui_lang.as_deref(), "ui_lang")?;
        Ok(SearchQuery { text, count, country, search_lang, ui_lang, freshness: self.freshness(args)? })
    }

    fn freshness(&self, args: &Args) -> Result<Option<PageAge>, Error> {
        let given =
            |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let (after, before) = (given(&args.date_after), given(&args.date_before));
        let parsed = match (given(&args.freshness), &after, &before) {
            (None, None, None) => return Ok(None),
            (Some(freshness), None, None) => PageAge::parse(&freshness),
            (Some(_), ..) => {
                let reason = "freshness cannot be combined with date_after or date_before: use one of them";
                return Err(Error::Arguments(reason.to_owned()));
            }
            (None, after, before) => {
                let today = iso(self.ambient.now_ms()).chars().take(10).collect::<String>();
                PageAge::between(after.as_deref().unwrap_or("1970-01-01"), before.as_deref().unwrap_or(&today))
            }
        };
        let reason =
            "freshness must be pd, pw, pm, py or 2026-01-01to2026-01-31; date_after and date_before must be such dates";
        parsed.map(Some).ok_or_else(|| Error::Arguments(reason.to_owned()))
    }
}

impl ConfiguredProvider {
    async fn search(
        &self,
        observer: Observer,
        query: &SearchQuery,
        domains: &DomainFilter,
    ) -> Result<Vec<ShownResult>, Error> {
        let provider = self.provider.name();
        let query = SearchQuery { text: format!("{}{}", query.text, domains.operators()), ..query.clone() };
        let request = self.provider.request(&query).map_err(Error::Arguments)?.observed_by(observer);
        let answer = self.egress.get(&request).await?;
        let status = answer.status();
        if status != 200 {
            return Err(Error::Refused { provider, status, advice: self.provider.status_hint(status) });
        }
        let body = answer.body().await?;
        let malformed = |error: serde_json::Error| Error::Malformed { provider, why: error.to_string() };
        let answer: Map<String, Value> = serde_json::from_slice(&body.bytes).map_err(malformed)?;
        let found = self.provider.parse_response(&answer.into()).into_iter().filter_map(|hit| {
            let url = Url::parse(&hit.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
            let site_name = url.host_str()?.to_owned();
            domains.allow(&site_name).then(|| ShownResult {
                title: strip_markup(&hit.title, MAX_TITLE_CHARS),
                url: url.into(),
                description: strip_markup(&hit.description, MAX_DESCRIPTION_CHARS),
                published: hit.published.map(|published| external::line(&published, 100)),
                site_name,
            })
        });
        Ok(found.take(query.count).collect())
    }
}

/// Strips markup: providers highlight words with HTML.
fn strip_markup(text: &str, max: usize) -> String {
    let text = &text[..text.floor_char_boundary(8 * max)];
    if text.contains(['<', '&']) {
        external::line(&Document::fragment(text).text(), max)
    } else {
        external::line(text, max)
    }
}

/// Validates a country or language code.
fn validate_code(text: Option<&str>, name: &str) -> Result<Option<String>, Error> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (2..=12).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(Some(text.to_owned()));
    }
    Err(Error::Arguments(format!("{name}: {text:?} is not a code such as de or en-US")))
}

fn listed(found: &[ShownResult]) -> String {
    if found.is_empty() {
        return "(nothing was found)".to_owned();
    }
    let entry = |(n, found): (usize, &ShownResult)| {
        let published = found.published.as_ref().map(|published| format!(" ({published})")).unwrap_or_default();
        let description =
            if found.description.is_empty() { String::new() } else { format!("\n   {}", found.description) };
        format!("{}. {}{published}\n   {}{description}", n + 1, found.title, found.url)
    };
    found.iter().enumerate().map(entry).collect::<Vec<_>>().join("\n")
}

#[async_trait]
impl Tool for WebSearch {
    fn spec(&self) -> ToolSpec {
        let text = |description: &str| json!({"type": "string", "description": description});
        ToolSpec {
            name: "web_search".to_owned(),
            description: "Search the web. Returns titles, URLs and short descriptions; read a page with web_fetch."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["query"],
                "properties": {
                    "query": text("What to search for"),
                    "count": {
                        "type": "number",
                        "minimum": 1,
                        "maximum": MAX_RESULTS,
                        "description": "How many results to return",
                    },
                    "country": text("From which country, as two letters such as DE"),
                    "language": text("Another name of search_lang"),
                    "freshness": text("How old: pd (a day), pw (a week), pm (a month), py (a year) or 2026-01-01to2026-01-31"),
                    "date_after": text("Only pages from this day on, as 2026-01-01"),
                    "date_before": text("Only pages up to this day, as 2026-01-31"),
                    "search_lang": text("In which language the pages are, such as de"),
                    "ui_lang": text("In which language the search engine speaks, such as de-DE"),
                    "domain_filter": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Only pages of these domains; with a hyphen before it, none of that domain",
                    },
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        match self.answer(&cx.cancel, egress_audit::observer(&cx), arguments).await {
            Ok(result) => result,
            // Clients match this error by its code.
            Err(Error::Unconfigured) => ToolResult::error(UNCONFIGURED)
                .with_details(json!({"status": "error", "tool": "web_search", "error": "missing_brave_api_key", "message": UNCONFIGURED})),
            Err(error) => failure("web_search", &error),
        }
    }
}
