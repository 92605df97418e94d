//! HTTP client for chat platforms: single attempts, and errors that say whether the request may have arrived.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use reqwest::{
    ClientBuilder, Request, Response, StatusCode, Upgraded, Url,
    header::{HeaderMap, RETRY_AFTER},
    redirect::Policy,
};

use crate::ChannelError;

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle timeout of pooled connections. Short, because a request on a connection that the peer is about to close has an
/// unknown outcome.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Default timeout of a request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// Maximum delay accepted from a platform; more is a mistake or malicious.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// HTTP clients for all platforms, one per process. Clones share them.
///
/// Clients are created on first use: loading the system's root certificates takes longer than starting the gateway.
#[derive(Debug, Clone)]
pub struct HttpClients {
    remote: Arc<LazyLock<BuiltClient>>,
    local: Arc<LazyLock<BuiltClient>>,
    upgrading: Arc<LazyLock<BuiltClient>>,
}

type BuiltClient = Result<reqwest::Client, String>;

impl Default for HttpClients {
    fn default() -> Self {
        Self {
            remote: Arc::new(LazyLock::new(remote)),
            local: Arc::new(LazyLock::new(local)),
            upgrading: Arc::new(LazyLock::new(upgrading)),
        }
    }
}

/// Client for other machines, through the proxy of the environment, if any.
fn remote() -> BuiltClient {
    build(reqwest::Client::builder())
}

/// Client for other machines whose connections become WebSockets, which HTTP/2 does not allow.
fn upgrading() -> BuiltClient {
    build(reqwest::Client::builder().http1_only())
}

/// Client for this machine, unencrypted: without proxy and certificates.
fn local() -> BuiltClient {
    build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
}

fn build(builder: ClientBuilder) -> BuiltClient {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // reqwest panics without one. It fails only if another thread was faster, which is fine.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect would send the token and the message to an unconfigured host.
    let builder = builder.connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none()).pool_idle_timeout(IDLE_TIMEOUT);
    // reqwest would otherwise silently repeat a request on a connection that the peer just closed.
    let builder = builder.retry(reqwest::retry::never());
    let built = builder.user_agent(concat!("homard/", env!("CARGO_PKG_VERSION"))).build();
    built.map_err(|error| format!("cannot create the HTTP client: {}", cause(&error)))
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct ChannelHttpResponse {
    pub(crate) status: u16,
    /// Delay that the server asks for.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The request was not sent.
    Unsent(String),
    /// The request was sent, at least in part.
    Unanswered(String),
    /// The response is too large.
    TooLong,
}

/// Whether a request may be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatEffect {
    /// A repetition has no effect.
    None,
    /// A repetition would be visible, such as a duplicate message.
    Visible,
}

impl RepeatEffect {
    /// Returns the failure of a request of which it is unknown whether it was processed.
    pub(crate) fn ambiguous(self, reason: String) -> ChannelError {
        match self {
            Self::None => ChannelError::Unavailable(reason),
            Self::Visible => ChannelError::Unknown(reason),
        }
    }
}

impl HttpClients {
    pub(crate) fn client(&self, url: &Url) -> Result<&reqwest::Client, RequestError> {
        let client = if is_local(url) { &self.local } else { &self.remote };
        (***client).as_ref().map_err(|reason| RequestError::Unsent(reason.clone()))
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, request: Request, timeout: Duration) -> Result<ChannelHttpResponse, RequestError> {
        self.send_limited(request, timeout, MAX_RESPONSE_BYTES).await
    }

    /// Sends a request and reads a response of at most `max_bytes` bytes.
    pub(crate) async fn send_limited(
        &self,
        mut request: Request,
        timeout: Duration,
        max_bytes: usize,
    ) -> Result<ChannelHttpResponse, RequestError> {
        *request.timeout_mut() = Some(timeout);
        let client = self.client(request.url())?;
        let response = client.execute(request).await.map_err(|error| request_error(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| value.trim().parse().ok()).map(retry_delay);
        let headers = response.headers().clone();
        Ok(ChannelHttpResponse { status, retry_after, headers, body: read_body(response, max_bytes).await? })
    }

    /// Sends a request that asks for another protocol, and returns the connection once the server has agreed. The
    /// second value is the response's headers.
    pub(crate) async fn upgrade(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<(Upgraded, HeaderMap), RequestError> {
        let client = if is_local(request.url()) { &self.local } else { &self.upgrading };
        let client = (***client).as_ref().map_err(|reason| RequestError::Unsent(reason.clone()))?;
        let connecting = async {
            let response = client.execute(request).await.map_err(|error| request_error(&error))?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let status = response.status().as_u16();
                return Err(RequestError::Unanswered(format!(
                    "the server rejected the WebSocket with status {status}"
                )));
            }
            let headers = response.headers().clone();
            Ok((response.upgrade().await.map_err(|error| request_error(&error))?, headers))
        };
        let timed_out = |_| Err(RequestError::Unanswered("the request timed out".to_owned()));
        tokio::time::timeout(timeout, connecting).await.unwrap_or_else(timed_out)
    }
}

/// Converts seconds to a delay, up to the maximum.
pub(crate) fn retry_delay(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_RETRY_DELAY)
}

async fn read_body(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, RequestError> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| RequestError::Unanswered(cause(&error)))? {
        if body.len() + bytes.len() > max_bytes {
            return Err(RequestError::TooLong);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

fn request_error(error: &reqwest::Error) -> RequestError {
    let reason =
        if error.is_timeout() && !error.is_connect() { "the request timed out".to_owned() } else { cause(error) };
    if error.is_connect() || error.is_builder() {
        RequestError::Unsent(reason)
    } else {
        RequestError::Unanswered(reason)
    }
}

/// Returns the innermost cause. The outer errors add nothing and contain the URL, which may contain a token.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<reqwest::Error>() {
        // There is no inner cause, and its own text contains the URL.
        Some(error) if error.is_timeout() => "the request timed out".to_owned(),
        Some(_) => "the request failed".to_owned(),
        None => cause.to_string(),
    }
}

fn is_local(url: &Url) -> bool {
    url.scheme() == "http" && is_loopback(url)
}

/// True if the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}
