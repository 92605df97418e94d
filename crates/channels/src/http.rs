//! The road to chat platforms: one request, one answer, and a failure that tells whether the request may have arrived.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use reqwest::{ClientBuilder, Request, Response, Url, header::RETRY_AFTER, redirect::Policy};

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(30);

/// How long a connection waits for its next request. Short, because a request on a connection that the other side is about
/// to close ends in not knowing.
const IDLE: Duration = Duration::from_secs(15);

/// How long Telegram or a peer may take to answer, unless a request says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How much of an answer is read.
const ANSWER: usize = 8 << 20;

/// The longest wait that a platform may ask for; more is a mistake or malice.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The connections to all platforms, one of these per process. Clones share them.
///
/// Nothing is set up before it is needed: loading the system's root certificates takes longer than starting the gateway.
#[derive(Debug, Clone)]
pub struct Road {
    remote: Arc<LazyLock<Built>>,
    local: Arc<LazyLock<Built>>,
}

type Built = Result<reqwest::Client, String>;

impl Default for Road {
    fn default() -> Self {
        Self { remote: Arc::new(LazyLock::new(remote)), local: Arc::new(LazyLock::new(local)) }
    }
}

/// To other machines, through the proxy that the environment names, if any.
fn remote() -> Built {
    build(reqwest::Client::builder())
}

/// To this machine, in clear text: no proxy could find the way back, and no certificates are needed.
fn local() -> Built {
    build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
}

fn build(builder: ClientBuilder) -> Built {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // reqwest panics without one. It fails only if another thread was faster, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect would carry the token and the message to a place that nobody configured.
    let builder = builder.connect_timeout(CONNECT).redirect(Policy::none()).pool_idle_timeout(IDLE);
    // A request on a connection that the other side just closed would be sent again behind our back.
    let builder = builder.retry(reqwest::retry::never());
    let built = builder.user_agent(concat!("homard/", env!("CARGO_PKG_VERSION"))).build();
    built.map_err(|error| format!("HTTP cannot be set up: {}", cause(&error)))
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// How long the other side wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
    /// The body, up to a bound.
    pub(crate) body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The request did not go out.
    Unsent(String),
    /// It went out, or part of it.
    Unanswered(String),
    /// The answer is longer than it may be.
    TooLong,
}

impl Road {
    pub(crate) fn client(&self, url: &Url) -> Result<&reqwest::Client, Lost> {
        let road = if url.scheme() == "http" && is_loopback(url) { &self.local } else { &self.remote };
        (***road).as_ref().map_err(|why| Lost::Unsent(why.clone()))
    }

    /// Asks, and reads the whole answer.
    pub(crate) async fn ask(&self, request: Request, patience: Duration) -> Result<Answer, Lost> {
        self.load(request, patience, ANSWER).await
    }

    /// Asks, and reads an answer of at most so many bytes.
    pub(crate) async fn load(&self, mut request: Request, patience: Duration, most: usize) -> Result<Answer, Lost> {
        *request.timeout_mut() = Some(patience);
        let client = self.client(request.url())?;
        let response = client.execute(request).await.map_err(|error| lost(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| value.trim().parse().ok()).map(wait);
        Ok(Answer { status, retry_after, body: body(response, most).await? })
    }
}

/// A wait of so many seconds, within reason.
pub(crate) fn wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_WAIT)
}

async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, Lost> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| Lost::Unanswered(cause(&error)))? {
        if body.len() + bytes.len() > most {
            return Err(Lost::TooLong);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

fn lost(error: &reqwest::Error) -> Lost {
    let why =
        if error.is_timeout() && !error.is_connect() { "no answer came in time".to_owned() } else { cause(error) };
    if error.is_connect() || error.is_builder() { Lost::Unsent(why) } else { Lost::Unanswered(why) }
}

/// The innermost reason. The outer ones only say that there was one, and name the URL, which may hold a token.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<reqwest::Error>() {
        // There is nothing inside: what it says of itself names the URL.
        Some(error) if error.is_timeout() => "no answer came in time".to_owned(),
        Some(_) => "the request failed".to_owned(),
        None => cause.to_string(),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}
