//! Classification of error responses of providers.
//!
//! An error is recognized by its position, never by its text: a non-success status, or an error object in the stream.
//! Structured fields decide first (error type and code, then the status); the text is examined only where providers
//! give no other sign, for example on context overflow.

mod phrases;

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use serde_json::Value;

use crate::error::{Error, ErrorKind};

/// Maximum number of characters of a response body that an error keeps.
pub const EXCERPT: usize = 600;

/// Converts an error response to an error. `status` is `None` for an error object in a stream that had already begun.
///
/// Names in `headers` are lower case. The caller adds the provider's name and redacts keys, because neither is known
/// here.
pub fn classify(status: Option<u16>, headers: &[(String, String)], body: &str) -> Error {
    let error_body = ErrorBody::read(body);
    let status = status.or_else(|| error_body.status());
    let kind = error_body.kind(status);
    let explanation =
        if error_body.message.is_empty() { "no explanation" } else { error_body.message.trim_end_matches('.') };
    let message = match status {
        Some(status) => format!("HTTP {status}: {explanation}"),
        None => explanation.to_owned(),
    };
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let ids = ["request-id", "x-request-id", "x-goog-request-id", "cf-ray"];
    Error {
        kind,
        status,
        retry_after: retry_delay(&header).or(error_body.retry_after),
        message,
        excerpt: truncate(body),
        request_id: ids.into_iter().find_map(header).map(str::to_owned).or(error_body.request_id),
    }
}

/// Truncates a text.
fn truncate(text: &str) -> String {
    homard_stdx::text::truncate(text.trim(), EXCERPT)
}

/// Returns the retry delay from the headers. A date is relative to the response's own date, so that no clock is needed.
fn retry_delay<'a>(header: &impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let number = |name| header(name).and_then(|text| text.trim().parse::<f64>().ok());
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after")).or_else(|| {
        let time = |name| DateTimeParser::new().parse_timestamp(header(name)?.trim()).ok();
        Some(time("retry-after")?.duration_since(time("date")?).as_secs_f64().max(0.0))
    });
    Duration::try_from_secs_f64(seconds?).ok()
}

/// What an error response says in its body.
#[derive(Default)]
struct ErrorBody {
    /// Types, codes and reasons, in lower case.
    names: Vec<String>,
    message: String,
    retry_after: Option<Duration>,
    request_id: Option<String>,
}

impl ErrorBody {
    fn read(body: &str) -> Self {
        let body = body.trim();
        let Ok(json) = serde_json::from_str::<Value>(body) else {
            return Self { message: truncate(body), ..Self::default() };
        };
        // Gemini wraps its error in a list.
        let outer = json.get(0).unwrap_or(&json);
        let error = outer.get("error").filter(|error| !error.is_null()).unwrap_or(outer);
        let details = error.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let objects = [error, error.get("innererror").unwrap_or(&Value::Null)].into_iter().chain(details);
        let named = objects.flat_map(|object| ["type", "code", "status", "reason"].map(|name| object.get(name)));
        let mut names: Vec<_> = named.flatten().filter_map(name_of).collect();
        let metadata = error.get("metadata");
        // OpenRouter indicates a content filter by this field.
        names.extend(metadata.and_then(|metadata| metadata.get("flagged_input")).map(|_| "content_filter".to_owned()));
        let message_field = error.get("message").or_else(|| outer.get("message")).or_else(|| outer.get("detail"));
        let message = message_field.unwrap_or(error).as_str().map_or_else(|| truncate(body), truncate);
        let request_id = outer.get("request_id").and_then(Value::as_str).map(str::to_owned);
        let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s'));
        let retry_after =
            delay.and_then(|delay| delay.parse().ok()).and_then(|delay| Duration::try_from_secs_f64(delay).ok());
        let raw = metadata.and_then(|metadata| metadata.get("raw")).and_then(Value::as_str);
        // A router passes on the message of the provider behind it.
        let message = raw.map_or_else(|| message.clone(), |raw| truncate(&format!("{message}: {raw}")));
        Self { names, message, retry_after, request_id }
    }

    /// Returns a status contained in the body, for responses whose own status was success.
    fn status(&self) -> Option<u16> {
        self.names.iter().find_map(|name| name.parse().ok().filter(|status| (400..600).contains(status)))
    }

    fn kind(&self, status: Option<u16>) -> ErrorKind {
        let by_status = status.map(kind_of);
        let by_name = phrases::NAMES.iter().find(|(name, _)| self.names.iter().any(|known| known == name));
        let by_name = by_name.map(|(_, kind)| *kind);
        let is_invalid_request =
            phrases::INVALID_REQUEST.iter().any(|name| self.names.iter().any(|known| known == name));
        let fallback = if is_invalid_request { ErrorKind::Rejected } else { ErrorKind::Server };
        let kind = by_name.or(by_status).unwrap_or(fallback);
        let text = self.message.to_lowercase();
        let mentions = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
        // Without an error name, and without a word about the model, the response is not from the provider's API: the
        // base URL is wrong.
        if matches!(status, Some(300..=399 | 404 | 405 | 501)) && self.names.is_empty() && !mentions(&["model"]) {
            return ErrorKind::Misconfigured;
        }
        if matches!(kind, ErrorKind::Rejected | ErrorKind::Server) && mentions(phrases::OVERFLOW) {
            ErrorKind::Overflow
        } else if by_name.is_none() && mentions(phrases::NO_CREDIT) {
            // An error name takes precedence: Gemini mentions billing in ordinary rate limits.
            ErrorKind::Billing
        } else {
            kind
        }
    }
}

/// Converts an error type, code or reason to text: a string to lower case, or a number.
fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(name) => Some(name.to_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Classifies an error by its HTTP status alone.
fn kind_of(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::Auth,
        402 => ErrorKind::Billing,
        408 | 504 | 524 => ErrorKind::Timeout,
        413 => ErrorKind::Overflow,
        429 => ErrorKind::RateLimit,
        503 | 529 => ErrorKind::Overloaded,
        // 425 asks for a retry.
        425 | 500.. => ErrorKind::Server,
        _ => ErrorKind::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(status: Option<u16>, body: &str) -> ErrorKind {
        classify(status, &[], body).kind
    }

    #[test]
    fn fields_take_precedence_over_status_and_status_over_text() {
        let error = |r#type: &str, message: &str| json!({"error": {"type": r#type, "message": message}}).to_string();
        for (status, body, expected) in [
            (Some(429), error("insufficient_quota", "You exceeded your current quota"), ErrorKind::Billing),
            (Some(429), error("requests", "Limit reached"), ErrorKind::RateLimit),
            (Some(429), error("RESOURCE_EXHAUSTED", "check your plan and billing details"), ErrorKind::RateLimit),
            (Some(400), error("invalid_request_error", "Your credit balance is too low"), ErrorKind::Billing),
            (
                Some(400),
                error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
                ErrorKind::Overflow,
            ),
            (Some(400), error("invalid_request_error", "messages: roles must alternate"), ErrorKind::Rejected),
            (
                Some(400),
                error("invalid_request_error", "rate limit, overloaded, 429, 500, timeout"),
                ErrorKind::Rejected,
            ),
            (Some(500), error("api_error", "prompt is too long"), ErrorKind::Overflow),
            (Some(200), error("overloaded_error", "Overloaded"), ErrorKind::Overloaded),
            (None, error("overloaded_error", "Overloaded"), ErrorKind::Overloaded),
            (None, error("rate_limit_error", "billing is fine"), ErrorKind::RateLimit),
            (None, json!({"error": {"code": 502, "message": "upstream"}}).to_string(), ErrorKind::Server),
            (None, json!({"error": "it broke"}).to_string(), ErrorKind::Server),
            (Some(503), String::new(), ErrorKind::Overloaded),
            (Some(413), "<html>Request Entity Too Large</html>".to_owned(), ErrorKind::Overflow),
            (Some(404), "page not found".to_owned(), ErrorKind::Misconfigured),
            (Some(404), json!({"detail": "Not Found"}).to_string(), ErrorKind::Misconfigured),
            (Some(404), "the model is not there".to_owned(), ErrorKind::Rejected),
            (Some(405), String::new(), ErrorKind::Misconfigured),
            (Some(501), String::new(), ErrorKind::Misconfigured),
            (Some(404), error("api_error", "model not found, try pulling it first"), ErrorKind::Rejected),
            (Some(302), String::new(), ErrorKind::Misconfigured),
        ] {
            assert_eq!(kind(status, &body), expected, "{status:?} {body}");
        }
    }

    #[test]
    fn overflow_messages_of_all_servers_are_recognized() {
        for message in [
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Please reduce the length of the messages or completion.",
            "the request exceeds the available context size, try increasing it",
            "The number of tokens to keep from the initial prompt is greater than the context length.",
            "Prompt contains 150000 tokens, too large for model with 131072 maximum context length",
        ] {
            let body = json!({"object": "error", "message": message, "type": "BadRequestError", "code": 400});
            assert_eq!(kind(Some(400), &body.to_string()), ErrorKind::Overflow, "{message}");
        }
    }

    #[test]
    fn the_retry_delay_is_read_from_headers_or_body() {
        let retry_after = |headers: &[(&str, &str)], body: &str| {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            classify(Some(429), &headers, body).retry_after
        };
        let date = ("date", "Fri, 31 Dec 2027 23:59:00 GMT");
        assert_eq!(retry_after(&[("retry-after", "7")], ""), Some(Duration::from_secs(7)));
        assert_eq!(
            retry_after(&[("retry-after", "7"), ("retry-after-ms", "500")], ""),
            Some(Duration::from_millis(500))
        );
        assert_eq!(
            retry_after(&[("retry-after", "Fri, 31 Dec 2027 23:59:59 GMT"), date], ""),
            Some(Duration::from_secs(59))
        );
        assert_eq!(retry_after(&[("retry-after", "Fri, 31 Dec 2027 23:58:59 GMT"), date], ""), Some(Duration::ZERO));
        assert_eq!(retry_after(&[("retry-after", "Fri, 31 Dec 2027 23:59:59 GMT")], ""), None);
        assert_eq!(
            (retry_after(&[("retry-after", "-1")], ""), retry_after(&[("retry-after", "NaN")], "")),
            (None, None)
        );
        let body =
            json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "34.5s"}]}}]);
        assert_eq!(retry_after(&[], &body.to_string()), Some(Duration::from_millis(34_500)));
    }

    #[test]
    fn an_error_keeps_status_request_id_and_excerpt() {
        let body =
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: nope"},"request_id":"req_1"}"#;
        let expected = Error {
            status: Some(404),
            excerpt: body.to_owned(),
            request_id: Some("req_1".to_owned()),
            ..Error::new(ErrorKind::Rejected, "HTTP 404: model: nope")
        };
        assert_eq!(classify(Some(404), &[], body), expected);
        let from_header = classify(Some(404), &[("request-id".to_owned(), "req_2".to_owned())], body);
        assert_eq!(from_header.request_id.as_deref(), Some("req_2"));
        assert_eq!(classify(Some(500), &[], &"é".repeat(9_999)).excerpt, format!("{}…", "é".repeat(EXCERPT)));
    }
}
