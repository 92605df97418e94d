//! HTTP client of Discord's API. Errors name the operation, never the URL, which may contain the token of an
//! interaction.

use std::time::Duration;

use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::limits::{RateLimits, Route};
use crate::{
    ChannelError, HttpClients, Secret,
    http::{self, ChannelHttpResponse, REQUEST_TIMEOUT, RepeatEffect, RequestError},
    multipart::{EncodedForm, MultipartForm},
    secret::excerpt,
};

/// Default address of the API.
pub const ROOT: &str = "https://discord.com/api/v10";

/// Form of the user agent that Discord requires.
const AGENT: &str = concat!("DiscordBot (https://homard.invalid, ", env!("CARGO_PKG_VERSION"), ")");

/// Hosts from which attachments are downloaded.
const CDN_HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];

/// Longest time that a request waits for its rate limit; after that the caller has to retry.
const MAX_LIMIT_WAIT: Duration = Duration::from_secs(10);

/// Client for one bot.
#[derive(Debug)]
pub(super) struct Api {
    http: HttpClients,
    root: Url,
    token: Secret,
    limits: RateLimits,
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApiCallError {
    /// There was no response.
    NoResponse(RequestError),
    /// Too many requests; retry after this delay.
    RateLimited(Duration),
    /// Discord returned an error.
    Denied {
        /// HTTP status.
        status: u16,
        /// Discord's error code; 0 if unknown.
        code: u64,
        /// Error message.
        message: String,
    },
    /// The response is not one of the API.
    InvalidResponse(u16),
}

impl ApiCallError {
    /// True if the token is not valid.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Denied { status: 401, .. } | Self::InvalidResponse(401))
    }

    /// True if the channel, message or user does not exist or is not accessible.
    pub(super) fn is_inaccessible(&self) -> bool {
        matches!(self, Self::Denied { status: 403 | 404, .. })
    }

    /// True if what the request names does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Denied { status: 404, .. })
    }

    /// Converts it to a failure that tells the caller whether to retry.
    pub(super) fn into_failure(self, operation: &str, repeat_effect: RepeatEffect) -> ChannelError {
        let describe = |reason: &str| format!("Discord, {operation}: {reason}");
        let ambiguous = |reason: String| repeat_effect.ambiguous(reason);
        match self {
            Self::NoResponse(RequestError::Unsent(reason)) => ChannelError::Unavailable(describe(&reason)),
            Self::NoResponse(RequestError::Unanswered(reason)) => ambiguous(describe(&reason)),
            Self::NoResponse(RequestError::TooLong) => ChannelError::Refused(describe("the response is too large")),
            Self::RateLimited(after) => ChannelError::RetryAfter { after, why: describe("too many requests") },
            // After 503 the request was not processed; after other server errors it may have been.
            Self::Denied { status: 503, message, .. } => ChannelError::Unavailable(describe(&message)),
            Self::Denied { status: 500.., message, .. } => ambiguous(describe(&message)),
            Self::Denied { status, code, message } => {
                let remedy = remedy(status, code).map(|remedy| format!("; {remedy}")).unwrap_or_default();
                ChannelError::Refused(describe(&format!("{message}{remedy}")))
            }
            Self::InvalidResponse(503) => ChannelError::Unavailable(describe("the server is not ready (503)")),
            Self::InvalidResponse(status) => {
                ambiguous(describe(&format!("the response with status {status} is not one of Discord's API")))
            }
        }
    }
}

/// Returns what the owner can do about an error.
fn remedy(status: u16, code: u64) -> Option<&'static str> {
    match (status, code) {
        (401, _) => Some(
            "the bot token is not valid: reset it on the page Bot of the Discord Developer Portal and set \
             channels.discord.token",
        ),
        (_, 10003) => Some("there is no such channel, or the bot is not in its server"),
        (_, 50001) => Some("the bot cannot see the channel: give its role the permission View Channel"),
        (_, 50007) => Some("the user does not accept direct messages from members of the server"),
        (_, 50013) => {
            Some("give the bot's role the permissions that docs/channels/discord.md lists, such as Send Messages")
        }
        _ => None,
    }
}

impl Api {
    /// Creates a client for the bot with this token.
    pub(super) fn new(clients: HttpClients, root: &str, token: &Secret) -> Result<Self, ChannelError> {
        let refused = |reason: &str| ChannelError::Refused(reason.to_owned());
        let not_a_url =
            "channels.discord.apiRoot is not a valid URL; expected a URL such as https://discord.com/api/v10";
        let mut root = Url::parse(root.trim()).map_err(|_invalid| refused(not_a_url))?;
        if !matches!(root.scheme(), "http" | "https") || root.cannot_be_a_base() {
            return Err(refused(not_a_url));
        }
        root.set_query(None);
        root.set_fragment(None);
        let text = token.expose().trim();
        let text = text.strip_prefix("Bot ").unwrap_or(text).trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused(
                "the Discord bot token is malformed; copy it from the page Bot of the Discord Developer Portal and set \
                 channels.discord.token",
            ));
        }
        Ok(Self { http: clients, root, token: Secret::from(text), limits: RateLimits::default() })
    }

    /// Returns the HTTP clients.
    pub(super) fn clients(&self) -> &HttpClients {
        &self.http
    }

    /// Returns the bot's token.
    pub(super) fn token(&self) -> &Secret {
        &self.token
    }

    /// Sends a `GET` request with query parameters.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, ApiCallError> {
        let mut url = self.url(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.call(Request::new(Method::GET, url), path, REQUEST_TIMEOUT).await
    }

    /// Sends a request with a JSON body, or without a body if it is null.
    pub(super) async fn send(&self, method: Method, path: &[&str], body: &Value) -> Result<Value, ApiCallError> {
        let mut request = Request::new(method, self.url(path));
        if !body.is_null() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.to_string().into());
        }
        self.call(request, path, REQUEST_TIMEOUT).await
    }

    /// Sends a `POST` request with files.
    pub(super) async fn upload(&self, path: &[&str], form: &MultipartForm) -> Result<Value, ApiCallError> {
        let EncodedForm { content_type, body } = form.encode();
        let mut request = Request::new(Method::POST, self.url(path));
        let invalid = |_invalid| ApiCallError::NoResponse(RequestError::Unsent("cannot encode the form".to_owned()));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(&content_type).map_err(invalid)?);
        // Large files get more time: one minute, and one more for each two megabytes.
        let timeout = REQUEST_TIMEOUT * u32::try_from(1 + body.len() / (2 << 20)).unwrap_or(u32::MAX).min(30);
        *request.body_mut() = Some(body.into());
        self.call(request, path, timeout).await
    }

    /// Downloads an attachment from Discord's servers.
    pub(super) async fn download(&self, address: &str, max_bytes: usize) -> Result<Vec<u8>, ApiCallError> {
        let unsent = |reason: &str| ApiCallError::NoResponse(RequestError::Unsent(reason.to_owned()));
        let url = Url::parse(address).map_err(|_invalid| unsent("the attachment has no valid URL"))?;
        let host = url.host_str().unwrap_or_default();
        let is_cdn = url.scheme() == "https" && CDN_HOSTS.contains(&host);
        let is_ours = url.origin() == self.root.origin();
        if !is_cdn && !is_ours {
            return Err(unsent("the attachment is not on a server of Discord"));
        }
        // No token: attachments are public to those who know their URL.
        let request = Request::new(Method::GET, url);
        match self.http.send_limited(request, REQUEST_TIMEOUT * 2, max_bytes).await {
            Ok(ChannelHttpResponse { status: 200, body, .. }) => Ok(body),
            Ok(ChannelHttpResponse { status, .. }) => {
                Err(ApiCallError::Denied { status, code: 0, message: format!("the server answered {status}") })
            }
            Err(error) => Err(ApiCallError::NoResponse(error)),
        }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// Sends a request once its rate limit allows it.
    async fn call(&self, mut request: Request, path: &[&str], timeout: Duration) -> Result<Value, ApiCallError> {
        let route = Route::of(request.method().as_str(), path);
        let mut waited = Duration::ZERO;
        while let Err(wait) = self.limits.take(&route, Instant::now()) {
            if waited + wait > MAX_LIMIT_WAIT {
                return Err(ApiCallError::RateLimited(wait));
            }
            waited += wait;
            sleep(wait).await;
        }
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let unsent = |_invalid| ApiCallError::NoResponse(RequestError::Unsent("the token is malformed".to_owned()));
        let mut token = HeaderValue::from_str(&format!("Bot {}", self.token.expose())).map_err(unsent)?;
        token.set_sensitive(true);
        headers.insert(AUTHORIZATION, token);
        let response = self.http.send(request, timeout).await.map_err(ApiCallError::NoResponse)?;
        self.limits.learn(&route, &response.headers, Instant::now());
        self.parse_response(&response)
    }

    fn parse_response(&self, response: &ChannelHttpResponse) -> Result<Value, ApiCallError> {
        let status = response.status;
        if status == 204 {
            return Ok(Value::Null);
        }
        let body = serde_json::from_slice::<Value>(&response.body).ok();
        if status == 429 {
            let body = body.unwrap_or_default();
            let requested = body["retry_after"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let wait =
                requested.or(response.retry_after).unwrap_or(http::retry_delay(1)).min(http::retry_delay(u64::MAX));
            if body["global"] == true || response.headers.contains_key("x-ratelimit-global") {
                self.limits.block_all(wait, Instant::now());
            }
            return Err(ApiCallError::RateLimited(wait));
        }
        match (status, body) {
            (200..300, Some(body)) => Ok(body),
            (400.., Some(body)) if body["message"].is_string() => {
                let code = body["code"].as_u64().unwrap_or(0);
                let details = body.get("errors").map(|errors| format!(" {errors}")).unwrap_or_default();
                let message = format!("{}{details}", body["message"].as_str().unwrap_or_default());
                Err(ApiCallError::Denied { status, code, message: excerpt(&message, &self.token) })
            }
            (_, Some(_) | None) => Err(ApiCallError::InvalidResponse(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_token_or_root_is_reported_without_showing_it() {
        let create = |root, token: &str| Api::new(HttpClients::default(), root, &Secret::from(token)).map(|_| ());
        assert_eq!([create(ROOT, "abc.def-g"), create(ROOT, " Bot abc.def ")], [Ok(()), Ok(())]);
        for token in ["", " ", "abc\ndef", "abc déf"] {
            let Err(ChannelError::Refused(reason)) = create(ROOT, token) else { panic!("{token} was accepted") };
            assert!(reason.contains("Developer Portal") && !reason.contains("abc"), "{reason}");
        }
        assert!(create("discord.com", "abc").is_err() && create("data:x", "abc").is_err());
    }

    #[test]
    fn a_message_that_may_have_been_sent_is_not_reported_as_unsent() {
        let denied = |status| ApiCallError::Denied { status, code: 0, message: "no".to_owned() };
        let unanswered = || ApiCallError::NoResponse(RequestError::Unanswered(String::new()));
        let visible = |error: ApiCallError| error.into_failure("send", RepeatEffect::Visible);
        assert!(matches!(visible(denied(400)), ChannelError::Refused(_)));
        assert!(matches!(visible(denied(503)), ChannelError::Unavailable(_)));
        for error in [denied(500), denied(502), unanswered(), ApiCallError::InvalidResponse(200)] {
            assert!(matches!(visible(error), ChannelError::Unknown(_)));
        }
        for error in [denied(500), unanswered()] {
            assert!(matches!(error.into_failure("edit", RepeatEffect::None), ChannelError::Unavailable(_)));
        }
        let unauthorized = denied(401).into_failure("send", RepeatEffect::Visible);
        assert!(unauthorized.to_string().contains("channels.discord.token"), "{unauthorized}");
    }
}
