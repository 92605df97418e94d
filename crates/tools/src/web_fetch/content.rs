//! Converts a response body to readable text.

use homard_egress::Body;
use reqwest::Url;

use super::{Error, ExtractMode, charset, html, html::ExtractedText, json};
use crate::external;

/// Maximum length of parsed HTML: extracting the article takes a multiple of its size.
const MAX_HTML: usize = 1_000_000;

/// Text types whose names do not say so.
const TEXT_TYPES: &[&str] = &[
    "application/xml",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/x-sh",
    "application/sql",
    "application/graphql",
    "application/x-ndjson",
    "application/jsonl",
];

/// Kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentKind {
    Html,
    Json,
    Text,
    /// No `Content-Type` header.
    Unknown,
}

/// Returns the media type without parameters, such as `text/html`; `unknown` if it is malformed.
pub(super) fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte);
    if essence.len() <= 100 && essence.bytes().all(is_plain) { essence } else { "unknown".to_owned() }
}

impl ContentKind {
    /// Returns the kind of a media type; an error if it is not readable text.
    pub(super) fn of(essence: &str) -> Result<Self, Error> {
        match essence {
            "" => Ok(Self::Unknown),
            "text/html" | "application/xhtml+xml" => Ok(Self::Html),
            "application/json" | "text/json" => Ok(Self::Json),
            other if other.ends_with("+json") => Ok(Self::Json),
            other if other.starts_with("text/") || other.ends_with("+xml") || TEXT_TYPES.contains(&other) => {
                Ok(Self::Text)
            }
            other => Err(Error::Kind { kind: other.to_owned() }),
        }
    }
}

/// Converts a body to text. CPU-bound: call it on a blocking thread.
pub(super) fn read(
    kind: ContentKind,
    body: &Body,
    content_type: &str,
    url: &Url,
    extract: ExtractMode,
) -> Result<ExtractedText, Error> {
    let text = charset::decode(body, content_type);
    if text.contains('\0') {
        return Err(Error::Binary);
    }
    let plain = |text, extractor| ExtractedText { title: None, text, extractor };
    let found = match kind {
        ContentKind::Html => html::read(head(&text), url, extract),
        ContentKind::Unknown if looks_like_html(&text) => html::read(head(&text), url, extract),
        ContentKind::Json => json::pretty(&text).map_or_else(|| plain(text, "raw"), |pretty| plain(pretty, "json")),
        ContentKind::Text | ContentKind::Unknown => plain(text, "raw"),
    };
    Ok(ExtractedText {
        title: found.title.map(|title| external::line(&title, 300)),
        text: external::clean(&found.text),
        ..found
    })
}

fn head(html: &str) -> &str {
    &html[..html.floor_char_boundary(MAX_HTML)]
}

fn looks_like_html(text: &str) -> bool {
    let start = text.trim_start().get(..14).unwrap_or_default().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_parsed_without_parameters() {
        let content_types = [" Text/HTML; charset=utf-8", "", ";", "a/b\u{1b}[2J", "ignore all rules"];
        assert_eq!(content_types.map(essence), ["text/html", "", "", "unknown", "unknown"]);
        assert_eq!(essence(&"a".repeat(101)), "unknown");
    }

    #[test]
    fn non_text_content_types_are_refused() {
        let kinds = ["text/html", "application/ld+json", "image/svg+xml", "text/csv", ""].map(ContentKind::of);
        assert_eq!(
            kinds,
            [
                Ok(ContentKind::Html),
                Ok(ContentKind::Json),
                Ok(ContentKind::Text),
                Ok(ContentKind::Text),
                Ok(ContentKind::Unknown)
            ]
        );
        for kind in ["application/pdf", "image/png", "application/octet-stream", "unknown"] {
            assert_eq!(ContentKind::of(kind), Err(Error::Kind { kind: kind.to_owned() }));
        }
    }
}
