//! HTTP client of the Bot API. Errors name the method, never the URL, which contains the token.

use std::time::Duration;

use reqwest::{
    Method, Request, Url,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::Value;

use crate::{
    ChannelError, HttpClients, Secret,
    http::{self, ChannelHttpResponse, REQUEST_TIMEOUT, RepeatEffect, RequestError},
    multipart::{EncodedForm, MultipartForm},
    secret::excerpt,
};

/// Default server of the Bot API.
pub const ROOT: &str = "https://api.telegram.org";

/// How errors name the download of a file, which is not a method.
pub(super) const FILE_DOWNLOAD: &str = "file download";

/// Client of the Bot API for one bot.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    http: HttpClients,
    root: Url,
    token: Secret,
}

/// Why a method call failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ApiCallError {
    /// There was no response.
    NoResponse(RequestError),
    /// Too many requests; retry after this delay.
    RateLimited(Duration),
    /// Telegram returned an error.
    Denied {
        /// Error code, which equals the HTTP status.
        code: u16,
        /// Error message.
        description: String,
        /// New id of the group, if it was migrated.
        moved_to: Option<i64>,
    },
    /// The response is not one of the Bot API.
    InvalidResponse(u16),
}

impl ApiCallError {
    /// True if Telegram rejected our markup.
    pub(crate) fn is_markup(&self) -> bool {
        self.is_error(400, "can't parse entities") || self.is_error(400, "unsupported start tag")
    }

    /// True if it is an error with this code and text.
    pub(crate) fn is_error(&self, expected: u16, text: &str) -> bool {
        match self {
            Self::Denied { code, description, .. } => {
                *code == expected && description.to_ascii_lowercase().contains(text)
            }
            Self::NoResponse(_) | Self::RateLimited(_) | Self::InvalidResponse(_) => false,
        }
    }

    /// True if Telegram does not know the bot. To a token of an impossible form it answers 404 to every method; the first
    /// one is `getMe`, so another method that is not found is not the token's fault.
    pub(crate) fn is_invalid_token(&self, method: &str) -> bool {
        match self {
            Self::Denied { code: 401, .. } => true,
            Self::Denied { code: 404, description, .. } => method == "getMe" && is_plain_not_found(description),
            Self::NoResponse(_) | Self::RateLimited(_) | Self::Denied { .. } | Self::InvalidResponse(_) => false,
        }
    }

    /// Converts it to a failure that tells the caller whether to retry.
    pub(crate) fn into_failure(self, method: &str, repeat_effect: RepeatEffect) -> ChannelError {
        let describe = |reason: &str| format!("Telegram, {method}: {reason}");
        let ambiguous = |reason: String| repeat_effect.ambiguous(reason);
        let is_invalid_token = self.is_invalid_token(method);
        match self {
            Self::NoResponse(RequestError::Unsent(reason)) => ChannelError::Unavailable(describe(&reason)),
            Self::NoResponse(RequestError::Unanswered(reason)) => ambiguous(describe(&reason)),
            Self::NoResponse(RequestError::TooLong) => ChannelError::Refused(describe("the response is too large")),
            Self::RateLimited(after) => ChannelError::RetryAfter { after, why: describe("too many requests") },
            // After 503 the request was not processed; after other server errors it may have been.
            Self::Denied { code: 503, description, .. } => ChannelError::Unavailable(describe(&description)),
            Self::Denied { code: 500.., description, .. } => ambiguous(describe(&description)),
            Self::Denied { description, .. } if is_invalid_token => ChannelError::Refused(describe(&format!(
                "{description}; the bot token is not valid: get one from @BotFather and set channels.telegram.botToken"
            ))),
            Self::Denied { code: 404, description, .. } => {
                ChannelError::Refused(describe(&not_found(method, &description)))
            }
            Self::Denied { description, .. } => ChannelError::Refused(describe(&description)),
            Self::InvalidResponse(503) => ChannelError::Unavailable(describe("the server is not ready (503)")),
            Self::InvalidResponse(404) if repeat_effect == RepeatEffect::Visible => {
                ChannelError::Refused(describe(NO_API))
            }
            Self::InvalidResponse(404) => ChannelError::Unavailable(describe(NO_API)),
            Self::InvalidResponse(status) => {
                ambiguous(describe(&format!("the response with status {status} is not a Telegram API response")))
            }
        }
    }
}

/// Reason for a page that is not found and is not an answer of the Bot API.
const NO_API: &str = "no Bot API was found at this address (404); check channels.telegram.apiRoot";

/// True if a description says only that something was not found.
fn is_plain_not_found(description: &str) -> bool {
    description.trim().eq_ignore_ascii_case("not found")
}

/// Says what was not found, after the bot's token was accepted.
fn not_found(method: &str, description: &str) -> String {
    match method {
        FILE_DOWNLOAD => format!("{description}; the file does not exist, or its link has expired"),
        _ if is_plain_not_found(description) => {
            format!("{description}; the server does not have this method: check channels.telegram.apiRoot")
        }
        // Telegram names it, such as the chat.
        _ => description.to_owned(),
    }
}

impl Api {
    /// Creates a client for the bot with this token.
    pub(crate) fn new(clients: HttpClients, root: &str, token: Secret) -> Result<Self, ChannelError> {
        let refused = |reason: &str| ChannelError::Refused(reason.to_owned());
        let not_a_url = "channels.telegram.apiRoot is not a valid URL; expected a URL such as https://api.telegram.org";
        let mut root = Url::parse(root.trim()).map_err(|_invalid| refused(not_a_url))?;
        if !matches!(root.scheme(), "http" | "https") || root.cannot_be_a_base() {
            return Err(refused(not_a_url));
        }
        root.set_query(None);
        root.set_fragment(None);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_token = token.expose().split_once(':').is_some_and(|(id, key)| {
            !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) && !key.is_empty() && key.chars().all(fits)
        });
        if !is_token {
            return Err(refused(
                "the Telegram bot token is malformed (expected 123456:ABC…); get one from @BotFather and set \
                 channels.telegram.botToken",
            ));
        }
        Ok(Self { http: clients, root, token })
    }

    /// Calls a method with JSON parameters.
    pub(crate) async fn call(&self, method: &str, params: &Value) -> Result<Value, ApiCallError> {
        self.call_within(REQUEST_TIMEOUT, method, params).await
    }

    /// Calls a method with a timeout.
    pub(crate) async fn call_within(
        &self,
        timeout: Duration,
        method: &str,
        params: &Value,
    ) -> Result<Value, ApiCallError> {
        let mut request = Request::new(Method::POST, self.url(&[&self.bot(), method]));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(params.to_string().into());
        self.parse_response(method, self.http.send(request, timeout).await)
    }

    /// Calls a method with a file.
    pub(crate) async fn upload(&self, method: &str, form: &MultipartForm) -> Result<Value, ApiCallError> {
        let EncodedForm { content_type, body } = form.encode();
        let mut request = Request::new(Method::POST, self.url(&[&self.bot(), method]));
        let encode_error =
            |_invalid| ApiCallError::NoResponse(RequestError::Unsent("cannot encode the form".to_owned()));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(&content_type).map_err(encode_error)?);
        // Large files get more time: one minute, and one more for each two megabytes.
        let timeout = REQUEST_TIMEOUT * u32::try_from(1 + body.len() / (2 << 20)).unwrap_or(u32::MAX).min(30);
        *request.body_mut() = Some(body.into());
        self.parse_response(method, self.http.send(request, timeout).await)
    }

    /// Downloads a file that `getFile` named.
    pub(crate) async fn download(&self, path: &str, max_bytes: usize) -> Result<Vec<u8>, ApiCallError> {
        let mut parts = vec!["file".to_owned(), self.bot()];
        // Path components such as `..` would lead elsewhere on the server.
        parts.extend(path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).map(str::to_owned));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let request = Request::new(Method::GET, self.url(&parts));
        match self.http.send_limited(request, REQUEST_TIMEOUT * 2, max_bytes).await {
            Ok(ChannelHttpResponse { status: 200, body, .. }) => Ok(body),
            response => self.parse_response(FILE_DOWNLOAD, response).and(Err(ApiCallError::InvalidResponse(200))),
        }
    }

    fn bot(&self) -> String {
        format!("bot{}", self.token.expose())
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        url
    }

    fn parse_response(
        &self,
        method: &str,
        answer: Result<ChannelHttpResponse, RequestError>,
    ) -> Result<Value, ApiCallError> {
        let ChannelHttpResponse { status, retry_after, body, .. } = answer.map_err(ApiCallError::NoResponse)?;
        tracing::debug!(method, status, "Telegram answered");
        let mut body: Value = match serde_json::from_slice(&body) {
            Ok(Value::Object(body)) => Value::Object(body),
            Ok(_) | Err(_) if status == 429 => {
                return Err(ApiCallError::RateLimited(retry_after.unwrap_or(http::retry_delay(1))));
            }
            Ok(_) | Err(_) => return Err(ApiCallError::InvalidResponse(status)),
        };
        if body["ok"] == true {
            return Ok(body["result"].take());
        }
        if body["ok"] != false {
            return Err(ApiCallError::InvalidResponse(status));
        }
        let code = body["error_code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(status);
        let parameters = &body["parameters"];
        if code == 429 {
            let requested_delay = parameters["retry_after"].as_u64().map(http::retry_delay);
            return Err(ApiCallError::RateLimited(requested_delay.or(retry_after).unwrap_or(http::retry_delay(1))));
        }
        let description = excerpt(body["description"].as_str().unwrap_or("no reason given"), &self.token);
        Err(ApiCallError::Denied { code, description, moved_to: parameters["migrate_to_chat_id"].as_i64() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_token_or_root_is_reported_without_showing_it() {
        let create = |root, token: &str| Api::new(HttpClients::default(), root, Secret::from(token)).map(|_| ());
        assert_eq!(create(ROOT, "123:ab-C_d"), Ok(()));
        for token in ["", "123", ":abc", "12x:abc", "123:", "123:a/../b", "123:abc\n"] {
            let Err(ChannelError::Refused(reason)) = create(ROOT, token) else { panic!("{token} was taken") };
            assert!(reason.contains("@BotFather") && (token.len() < 5 || !reason.contains(token)), "{reason}");
        }
        assert!(create("telegram.org", "123:abc").is_err() && create("data:x", "123:abc").is_err());
    }

    #[test]
    fn only_a_404_that_means_an_invalid_token_is_called_so() {
        let denied =
            |description: &str| ApiCallError::Denied { code: 404, description: description.to_owned(), moved_to: None };
        let reason = |error: ApiCallError, method| error.into_failure(method, RepeatEffect::Visible).to_string();
        for (error, method, expected) in [
            (denied("Not Found"), "getMe", "the bot token is not valid"),
            (denied("Not Found: chat not found"), "sendMessage", "Not Found: chat not found"),
            (denied("Not Found"), "sendMessage", "the server does not have this method"),
            (denied("Not Found"), FILE_DOWNLOAD, "the file does not exist"),
            (ApiCallError::InvalidResponse(404), "getMe", "no Bot API was found at this address"),
        ] {
            assert_eq!(error.is_invalid_token(method), expected.contains("token"), "{method}");
            let reason = reason(error, method);
            assert!(reason.contains(expected), "{reason}");
            assert_eq!(reason.contains("token"), expected.contains("token"), "{reason}");
        }
    }

    #[test]
    fn a_message_that_may_have_been_sent_is_not_reported_as_unsent() {
        let denied = |code| ApiCallError::Denied { code, description: "no".to_owned(), moved_to: None };
        let classify = |error: ApiCallError, repeat_effect| match error.into_failure("sendMessage", repeat_effect) {
            ChannelError::Refused(_) => "refused",
            ChannelError::Unavailable(_) => "unavailable",
            ChannelError::Unknown(_) => "unknown",
            ChannelError::RetryAfter { .. } => "later",
            ChannelError::Unsupported { .. } => "unsupported",
        };
        let classify_all = |repeat_effect| {
            [
                classify(denied(400), repeat_effect),
                classify(denied(403), repeat_effect),
                classify(denied(500), repeat_effect),
                classify(denied(502), repeat_effect),
                classify(denied(503), repeat_effect),
                classify(ApiCallError::InvalidResponse(200), repeat_effect),
                classify(ApiCallError::NoResponse(RequestError::Unsent(String::new())), repeat_effect),
                classify(ApiCallError::NoResponse(RequestError::Unanswered(String::new())), repeat_effect),
                classify(ApiCallError::RateLimited(Duration::ZERO), repeat_effect),
            ]
        };
        let (unknown, unavailable) = ("unknown", "unavailable");
        assert_eq!(
            classify_all(RepeatEffect::Visible),
            ["refused", "refused", unknown, unknown, unavailable, unknown, unavailable, unknown, "later"]
        );
        assert_eq!(
            classify_all(RepeatEffect::None),
            [
                "refused",
                "refused",
                unavailable,
                unavailable,
                unavailable,
                unavailable,
                unavailable,
                unavailable,
                "later"
            ]
        );
    }
}
