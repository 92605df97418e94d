//! The `web_fetch` tool: reads a web page.

mod charset;
mod content;
mod html;
mod json;
mod sanitize;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_egress::{Egress, EgressLimits, Observer, Request, Resolve};
use homard_runtime::ambient::{Ambient, iso};
use homard_stdx::{text::beginning, time::millis};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    content::{ContentKind, essence},
    html::ExtractedText,
};
use crate::{egress_audit, external, failure, ttl_cache::TtlCache};

/// Maximum length of the body shown with an HTTP error.
const MAX_ERROR_CHARS: usize = 4_000;

/// Minimum of `maxChars`.
const MIN_CHARS: usize = 100;

const ACCEPT: &str = "text/markdown, text/html;q=0.9, application/json;q=0.8, text/plain;q=0.8, */*;q=0.1";

/// Settings; the defaults are those of `tools.web.fetch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebFetchSettings {
    /// Limits on destinations, time and size.
    pub bounds: EgressLimits,
    /// Default number of characters.
    pub max_chars: usize,
    /// Maximum number of characters.
    pub max_chars_cap: usize,
    /// How long a page is cached.
    pub cache: Duration,
}

impl Default for WebFetchSettings {
    fn default() -> Self {
        Self {
            bounds: EgressLimits::default(),
            max_chars: 50_000,
            max_chars_cap: 50_000,
            cache: Duration::from_secs(15 * 60),
        }
    }
}

/// Reads web pages.
#[derive(Debug)]
pub struct WebFetch {
    egress: Egress,
    settings: WebFetchSettings,
    ambient: Ambient,
    page_cache: TtlCache<(String, ExtractMode), Arc<FetchedPage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Error {
    #[error("invalid arguments: {0}")]
    Arguments(String),
    #[error("the run was stopped before the page was loaded")]
    Stopped,
    #[error(transparent)]
    Egress(#[from] homard_egress::Error),
    #[error("the content type of the response is {kind}: only HTML, JSON and text can be read")]
    Kind { kind: String },
    #[error("the response is binary: only HTML, JSON and text can be read")]
    Binary,
    #[error("the page could not be read: {0}")]
    Thread(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    url: String,
    #[serde(default)]
    extract_mode: ExtractMode,
    max_chars: Option<f64>,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExtractMode {
    #[default]
    Markdown,
    Text,
}

impl ExtractMode {
    fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Text => "text",
        }
    }
}

/// A fetched page.
#[derive(Debug)]
struct FetchedPage {
    final_url: String,
    status: u16,
    content_type: String,
    title: Option<String>,
    extractor: &'static str,
    /// The beginning of the text, up to the maximum length.
    text: String,
    /// Total number of characters.
    chars: usize,
    /// Number of bytes read, if the body was truncated.
    bytes_read: Option<usize>,
    fetched_at: String,
}

impl WebFetch {
    /// Creates the tool with these limits and resolver.
    pub fn new(settings: WebFetchSettings, names: Arc<dyn Resolve>, ambient: Ambient) -> Self {
        let egress = Egress::new(settings.bounds.clone(), names);
        let page_cache = TtlCache::new(settings.cache);
        Self { egress, settings, ambient, page_cache }
    }

    async fn answer(
        &self,
        cancel: &CancellationToken,
        observer: Observer,
        arguments: Value,
    ) -> Result<ToolResult, Error> {
        let started = Instant::now();
        let args: Args = serde_json::from_value(arguments).map_err(|error| Error::Arguments(error.to_string()))?;
        let key = (args.url.trim().to_owned(), args.extract_mode);
        let cached = self.page_cache.get(&key);
        let is_cached = cached.is_some();
        let page = match cached {
            Some(page) => page,
            None => {
                let request = Request::new(&key.0, ACCEPT).observed_by(observer);
                let fetched = cancel.run_until_cancelled(self.fetch(&request, key.1)).await;
                Arc::new(fetched.ok_or(Error::Stopped)??)
            }
        };
        if !is_cached && page.is_good() {
            self.page_cache.put(key.clone(), page.clone());
        }
        let excerpt = page.excerpt(self.char_limit(args.max_chars, &page));
        let mut details = json!({
            "url": key.0,
            "finalUrl": page.final_url,
            "status": page.status,
            "contentType": page.content_type,
            "title": page.title,
            "extractMode": key.1.name(),
            "extractor": page.extractor,
            "truncated": excerpt.is_cut || page.bytes_read.is_some(),
            "length": excerpt.chars,
            "fetchedAt": page.fetched_at,
            "tookMs": millis(started.elapsed()),
            "text": excerpt.text,
            "externalContent": {"untrusted": true, "source": "web_fetch"},
        });
        if let Some(warning) = page.warning() {
            details["warning"] = json!(warning);
        }
        if is_cached {
            details["cached"] = json!(true);
        }
        let text = self.format_page(&page, &excerpt);
        let result = if page.is_good() { ToolResult::text(text) } else { ToolResult::error(text) };
        Ok(result.with_details(details))
    }

    /// Returns the number of characters to show.
    fn char_limit(&self, requested: Option<f64>, page: &FetchedPage) -> usize {
        // `as` saturates, so out-of-range values become the nearest limit.
        let wanted = requested.map_or(self.settings.max_chars, |max| max as usize);
        let cap = if page.is_good() { self.settings.max_chars_cap } else { MAX_ERROR_CHARS };
        wanted.max(MIN_CHARS).min(cap)
    }

    async fn fetch(&self, request: &Request, extract: ExtractMode) -> Result<FetchedPage, Error> {
        let answer = self.egress.get(request).await?;
        let (final_url, status) = (answer.url().clone(), answer.status());
        let header = answer.content_type().unwrap_or_default().to_owned();
        let content_type = essence(&header);
        let (found, read) = match ContentKind::of(&content_type) {
            Ok(kind) => {
                let body = answer.body().await?;
                let read = (!body.is_complete).then_some(body.bytes.len());
                let base_url = final_url.clone();
                let extraction =
                    tokio::task::spawn_blocking(move || content::read(kind, &body, &header, &base_url, extract));
                (extraction.await.map_err(|error| Error::Thread(error.to_string()))??, read)
            }
            Err(error) if is_good(status) => return Err(error),
            // The HTTP error is worth reporting even if its body cannot be read.
            Err(_) => (ExtractedText { title: None, text: String::new(), extractor: "none" }, None),
        };
        let (text, chars) = head(&found.text, self.settings.max_chars_cap.max(MAX_ERROR_CHARS));
        Ok(FetchedPage {
            final_url: final_url.into(),
            status,
            content_type,
            title: found.title,
            extractor: found.extractor,
            text: text.to_owned(),
            chars,
            bytes_read: read,
            fetched_at: iso(self.ambient.now_ms()),
        })
    }

    /// Formats a page for the model: untrusted content is between markers, our own notes are outside.
    fn format_page(&self, page: &FetchedPage, excerpt: &PageExcerpt<'_>) -> String {
        let body = match (&page.title, excerpt.text) {
            (None, "") => "(no text)".to_owned(),
            (None, text) => text.to_owned(),
            (Some(title), "") => format!("Title: {title}\n\n(no text: the page may need a browser)"),
            (Some(title), text) => format!("Title: {title}\n\n{text}"),
        };
        let mut output = external::frame_untrusted(&page.final_url, &body, &self.ambient.nonce());
        if !page.is_good() {
            output = format!("The server answered with status {}.\n{output}", page.status);
        }
        if excerpt.is_cut {
            let cap = self.settings.max_chars_cap;
            let is_more = page.is_good() && excerpt.chars < cap;
            let hint = if is_more { format!("; maxChars can be up to {cap}") } else { String::new() };
            output += &format!("\n[These are the first {} of {} characters{hint}.]", excerpt.chars, page.chars);
        }
        if let Some(warning) = page.warning() {
            output += &format!("\n[{warning}]");
        }
        output
    }
}

/// The part of a page that is shown.
struct PageExcerpt<'a> {
    text: &'a str,
    chars: usize,
    is_cut: bool,
}

impl FetchedPage {
    fn is_good(&self) -> bool {
        is_good(self.status)
    }

    fn excerpt(&self, max: usize) -> PageExcerpt<'_> {
        let (text, count) = head(&self.text, max);
        let chars = count.min(max);
        PageExcerpt { text, chars, is_cut: chars < self.chars }
    }

    fn warning(&self) -> Option<String> {
        self.bytes_read.map(|read| format!("Only the first {read} bytes of the response were read."))
    }
}

fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Returns the first characters of a text and its total number of characters.
fn head(text: &str, max: usize) -> (&str, usize) {
    (beginning(text, max), text.chars().count())
}

#[async_trait]
impl Tool for WebFetch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "web_fetch".to_owned(),
            description:
                "Read a page of the public web by its URL, as Markdown or plain text: articles without what is \
                          around them, JSON and text as they are. It only reads; it does not log in, click or run \
                          scripts."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["url"],
                "properties": {
                    "url": {"type": "string", "description": "The URL, with http or https"},
                    "extractMode": {
                        "type": "string",
                        "enum": ["markdown", "text"],
                        "default": "markdown",
                        "description": "The output format",
                    },
                    "maxChars": {
                        "type": "number",
                        "minimum": MIN_CHARS,
                        "description": "How many characters to return at most",
                    },
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.answer(&cx.cancel, egress_audit::observer(&cx), arguments)
            .await
            .unwrap_or_else(|error| failure("web_fetch", &error))
    }
}
