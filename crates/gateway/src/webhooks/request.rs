//! A webhook request: token, body, and the values available to templates.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    body::Body,
    http::{
        HeaderMap, StatusCode, Uri,
        header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, PROXY_AUTHORIZATION},
        request::Parts,
    },
};
use homard_proto::{
    frame::{MAX_DEPTH, nests_too_deep},
    method::connect::Auth,
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{rejection::WebhookRejection, template::TemplateValues};
use crate::http_body::{self, BodyError};

/// Header that may contain the token instead of `Authorization`.
const TOKEN_HEADER: &str = "x-openclaw-token";
/// Time a body has to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A parsed request.
#[derive(Debug)]
pub(super) struct WebhookRequest {
    /// Path below that of all webhooks.
    pub(super) path: String,
    pub(super) payload: Value,
    /// Headers by lower-case name, without those that contain secrets.
    pub(super) headers: BTreeMap<String, String>,
    query: BTreeMap<String, String>,
    url: String,
}

impl WebhookRequest {
    /// Returns the body if it is an object.
    pub(super) fn object(&self) -> Result<&Map<String, Value>, WebhookRejection> {
        self.payload.as_object().ok_or_else(|| WebhookRejection::invalid("the body must be a JSON object"))
    }

    /// Returns the values available to templates.
    pub(super) fn template_values<'a>(&'a self, now: &'a str) -> TemplateValues<'a> {
        TemplateValues { payload: &self.payload, headers: &self.headers, query: &self.query, path: &self.path, now }
    }

    /// Returns the input of a transform.
    pub(super) fn transform_input(&self) -> Value {
        json!({"payload": self.payload, "headers": self.headers, "url": self.url, "path": self.path})
    }
}

/// Returns the token of a request.
pub(super) fn request_token(headers: &HeaderMap) -> Auth {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.trim().split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
    let token = bearer.or_else(|| headers.get(TOKEN_HEADER)?.to_str().ok());
    let token = token.map(str::trim).filter(|token| !token.is_empty()).map(str::to_owned);
    Auth { token, ..Auth::default() }
}

/// Reads the body of an authenticated request, up to `limit` bytes.
pub(super) async fn read(
    parts: &Parts,
    body: Body,
    path: String,
    limit: usize,
) -> Result<WebhookRequest, WebhookRejection> {
    let too_large = || WebhookRejection::new(StatusCode::PAYLOAD_TOO_LARGE, "payload too large");
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        http_body::discard(body).await;
        return Err(too_large());
    }
    let timed_out = || WebhookRejection::new(StatusCode::REQUEST_TIMEOUT, "timed out while reading the body");
    let read = timeout(BODY_TIMEOUT, http_body::read(body, limit)).await.map_err(|_elapsed| timed_out())?;
    let bytes = read.map_err(|error| match error {
        BodyError::TooLarge => too_large(),
        BodyError::Broken(_) => WebhookRejection::invalid(error.to_string()),
    })?;
    if nests_too_deep(&bytes) {
        return Err(WebhookRejection::invalid(format!("the body nests deeper than {MAX_DEPTH} levels")));
    }
    let is_blank = bytes.iter().all(u8::is_ascii_whitespace);
    let payload = if is_blank { Ok(json!({})) } else { serde_json::from_slice(&bytes) };
    Ok(WebhookRequest {
        path,
        payload: payload.map_err(|error| WebhookRejection::invalid(format!("the body is not JSON: {error}")))?,
        headers: headers(&parts.headers),
        query: query(&parts.uri),
        url: parts.uri.to_string(),
    })
}

/// Returns the headers that templates and transforms may use. Repeated headers are joined in order.
fn headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut visible: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let is_secret = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name) || name == TOKEN_HEADER;
        let Some(value) = value.to_str().ok().filter(|_| !is_secret) else { continue };
        visible
            .entry(name.as_str().to_owned())
            .and_modify(|joined| *joined = format!("{joined}, {value}"))
            .or_insert_with(|| value.to_owned());
    }
    visible
}

/// Parses the query string; the first value of a repeated name counts.
pub(super) fn query(uri: &Uri) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(unescaped(name)).or_insert_with(|| unescaped(value));
    }
    found
}

/// Decodes percent escapes in a query; invalid escapes are kept.
fn unescaped(text: &str) -> String {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let decoded = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        bytes.push(decoded.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn header_map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_token_is_accepted_in_either_header() {
        let token = |pairs: &[(&'static str, &'static str)]| request_token(&header_map(pairs)).token;
        assert_eq!(token(&[("authorization", "bEaReR  t ")]).as_deref(), Some("t"));
        assert_eq!(token(&[("x-openclaw-token", " t ")]).as_deref(), Some("t"));
        assert_eq!(token(&[("authorization", "Basic eDp5"), ("x-openclaw-token", "t")]).as_deref(), Some("t"));
        for none in [&[][..], &[("authorization", "t")], &[("authorization", "Bearer ")], &[("x-openclaw-token", "")]] {
            assert_eq!(token(none), None, "{none:?}");
        }
    }

    #[test]
    fn templates_do_not_see_secret_headers() {
        let all = header_map(&[
            ("authorization", "Bearer t"),
            ("x-openclaw-token", "t"),
            ("cookie", "c"),
            ("x-a", "1"),
            ("x-a", "2"),
        ]);
        assert_eq!(headers(&all), BTreeMap::from([("x-a".to_owned(), "1, 2".to_owned())]));
    }

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let read = |text: &'static str| query(&Uri::from_static(text));
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(
            read("/hooks/x?a=1&a=2&b&%63=%C3%A4+%zz%4&=e&&"),
            pairs(&[("a", "1"), ("b", ""), ("c", "ä %zz%4"), ("", "e")])
        );
        assert_eq!(read("/hooks/x?%74oken=t"), pairs(&[("token", "t")]));
        assert_eq!(read("/hooks/x"), pairs(&[]));
    }
}
