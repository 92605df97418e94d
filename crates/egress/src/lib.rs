//! Outbound HTTP to the public internet only: GET requests with limits, for programs that request URLs which they
//! did not choose themselves.
//!
//! Every hop is checked: the URL itself (`destination`), and the addresses that its name resolves to (`resolver`) when
//! connecting, so that there is no gap between check and use. No proxy, no cookies, no headers other than
//! those set here. README.md says what is guaranteed and what is not. Start with [`Egress::get`].
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use homard_egress::{Egress, EgressLimits, Request, SystemResolver};
//!
//! # async fn page() -> Result<(), homard_egress::Error> {
//! let egress = Egress::new(EgressLimits::default(), Arc::new(SystemResolver));
//! let response = egress.get(&Request::new("https://example.com/", "text/html")).await?;
//! let body = response.body().await?;
//! assert!(body.bytes.len() <= 2_000_000);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod address;
mod body;
mod destination;
mod exception;
#[cfg(test)]
mod fuzz;
mod local_address;
mod observer;
mod resolver;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;

use std::{
    error::Error as StdError,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{
    Client, Response,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION},
    redirect::Policy,
};
use tokio::time::{Instant, timeout_at};

pub use reqwest::{Url, dns::Resolve, header::HeaderValue};

pub use self::{
    body::Body,
    exception::{EgressException, InvalidEgressException},
    observer::{Hop, HopOutcome, Observer},
    resolver::SystemResolver,
};
use self::{body::BodyDecoder, destination::DestinationRules, resolver::GuardedResolver};

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a valid URL.
    #[error("invalid URL: {why}; use a URL such as https://example.com/page")]
    NotUrl {
        /// What is wrong.
        why: String,
    },
    /// The scheme is neither http nor https.
    #[error("{scheme} URLs are not supported: use http or https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The URL contains a user name or password.
    #[error("URLs with a user name or a password are not allowed: remove the part before the @")]
    Userinfo,
    /// Invalid host name.
    #[error("{name:?} is not a valid host name")]
    Name {
        /// The name.
        name: String,
    },
    /// A port that is not allowed for web servers.
    #[error("port {port} is not allowed: use 80, 443, or a port from 1024 on")]
    Port {
        /// The port.
        port: u16,
    },
    /// There is an exception for this host, but with other ports.
    #[error("port {port} of {host} is not allowed: the owner has allowed only other ports of this host")]
    OtherPort {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Not on the public internet.
    #[error(
        "{host} is not a public internet address ({what}): only public servers can be reached, unless the owner allows the address"
    )]
    NotPublic {
        /// The host.
        host: String,
        /// Kind of the address.
        what: &'static str,
    },
    /// Too many redirects.
    #[error("the server redirected more than {most} times")]
    Redirects {
        /// The limit.
        most: usize,
    },
    /// The target of a redirect is not allowed.
    #[error("the server redirected to a URL that is not allowed: {0}")]
    RedirectTarget(Box<Self>),
    /// No connection or no response.
    #[error("{host} cannot be reached ({why})")]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Timeout.
    #[error("{host} did not send a complete response within {limit:?}")]
    Timeout {
        /// The host.
        host: String,
        /// The limit that was exceeded: total time or idle time.
        limit: Duration,
    },
    /// The body has a content encoding that was not requested.
    #[error("the response has a content encoding that was not requested")]
    UnexpectedEncoding,
    /// The body cannot be decompressed.
    #[error("the response cannot be decompressed ({why})")]
    Decompression {
        /// Why.
        why: String,
    },
    /// The HTTP client cannot be built.
    #[error("cannot create the HTTP client: {why}")]
    Setup {
        /// Why.
        why: String,
    },
}

impl Error {
    /// Returns the outcome of a hop with this error.
    fn outcome(&self) -> HopOutcome {
        match self {
            Self::NotUrl { .. }
            | Self::Scheme { .. }
            | Self::Userinfo
            | Self::Name { .. }
            | Self::Port { .. }
            | Self::OtherPort { .. }
            | Self::NotPublic { .. } => HopOutcome::Denied,
            Self::RedirectTarget(error) => error.outcome(),
            Self::Redirects { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::UnexpectedEncoding
            | Self::Decompression { .. }
            | Self::Setup { .. } => HopOutcome::Failed,
        }
    }
}

/// Limits of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// Exceptions to the rule that only public servers may be reached.
    pub allow: Vec<EgressException>,
    /// Total time limit of a request.
    pub timeout: Duration,
    /// Maximum time without receiving data.
    pub idle: Duration,
    /// Maximum number of redirects.
    pub redirects: usize,
    /// Maximum number of body bytes, after decompression.
    pub bytes: usize,
    /// The `User-Agent` header.
    pub user_agent: String,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            idle: Duration::from_secs(15),
            redirects: 3,
            bytes: 2_000_000,
            user_agent: concat!("Mozilla/5.0 (compatible; homard/", env!("CARGO_PKG_VERSION"), ")").to_owned(),
        }
    }
}

/// Upper bound of the time limit, regardless of settings.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A GET request.
#[derive(Debug, Clone)]
pub struct Request {
    url: String,
    accept: &'static str,
    key: Option<(&'static str, HeaderValue)>,
    observer: Observer,
}

impl Request {
    /// Builds a request for a URL; `accept` is the `Accept` header.
    pub fn new(url: impl Into<String>, accept: &'static str) -> Self {
        Self { url: url.into(), accept, key: None, observer: Observer::default() }
    }

    /// Adds an API key header. It is only sent with the first request, not after a redirect.
    pub fn with_key(mut self, header: &'static str, key: HeaderValue) -> Self {
        self.key = Some((header, key));
        self
    }

    /// Sets the observer of the hops of this request, such as a log.
    pub fn observed_by(mut self, observer: Observer) -> Self {
        self.observer = observer;
        self
    }

    fn note(&self, url: Option<&Url>, outcome: HopOutcome) {
        let port = url.and_then(Url::port_or_known_default);
        self.observer.note(&Hop { host: url.map(host).unwrap_or_default(), port, outcome });
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers
    }
}

/// The HTTP client for agents' requests.
pub struct Egress {
    limits: EgressLimits,
    rules: Arc<DestinationRules>,
    resolver: Arc<dyn Resolve>,
    /// Built on first use: loading the system's root certificates is slow.
    client: OnceLock<Result<Client, Error>>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("bounds", &self.limits).finish_non_exhaustive()
    }
}

impl Egress {
    /// Creates a client with these limits and resolver, usually [`SystemResolver`].
    pub fn new(limits: EgressLimits, names: Arc<dyn Resolve>) -> Self {
        let rules = DestinationRules { exceptions: limits.allow.clone(), is_local: local_address::is_local_address };
        Self { limits, rules: Arc::new(rules), resolver: names, client: OnceLock::new() }
    }

    /// Sends a request, follows redirects, and returns the response head. Dropping it closes the connection.
    pub async fn get(&self, request: &Request) -> Result<EgressResponse, Error> {
        let deadline = Instant::now() + self.limits.timeout.min(MAX_TIMEOUT);
        let refused = |_: &Error| request.note(Url::parse(&request.url).ok().as_ref(), HopOutcome::Denied);
        let mut url = destination::parse(&request.url, &self.rules.exceptions).inspect_err(refused)?;
        let mut key = request.key.as_ref();
        for hop in 0..=self.limits.redirects {
            let sent_on = |error| if hop == 0 { error } else { Error::RedirectTarget(Box::new(error)) };
            let mut headers = request.headers();
            headers.extend(key.take().map(|(name, key)| (HeaderName::from_static(name), key.clone())));
            let response = self.hop(&url, headers, deadline).await;
            request.note(Some(&url), response.as_ref().err().map_or(HopOutcome::Ok, Error::outcome));
            let response = response.map_err(sent_on)?;
            let Some(location) = redirect(&response) else {
                return Ok(EgressResponse { url, response, deadline, limits: self.limits.clone() });
            };
            if hop == self.limits.redirects {
                break;
            }
            let next = self.next(&url, location).inspect_err(|_| {
                let wanted = location.to_str().ok().and_then(|text| url.join(text).ok());
                request.note(wanted.as_ref(), HopOutcome::Denied);
            });
            url = next.map_err(|error| Error::RedirectTarget(Box::new(error)))?;
            tracing::debug!(to = host(&url), "following a redirect");
        }
        Err(Error::Redirects { most: self.limits.redirects })
    }

    /// Returns the target of a redirect, if it is allowed.
    fn next(&self, url: &Url, location: &HeaderValue) -> Result<Url, Error> {
        let text = str::from_utf8(location.as_bytes()).map_err(|error| Error::NotUrl { why: error.to_string() })?;
        let next = url.join(text).map_err(|error| Error::NotUrl { why: error.to_string() })?;
        destination::check(next, &self.rules.exceptions)
    }

    async fn hop(&self, url: &Url, headers: HeaderMap, deadline: Instant) -> Result<Response, Error> {
        if let Some(address) = destination::literal(url) {
            self.rules.check_not_local(&host(url), address)?;
        }
        let client = self.client.get_or_init(|| self.build()).as_ref().map_err(Error::clone)?;
        match timeout_at(deadline, client.get(url.clone()).headers(headers).send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(connection_error(url, &error)),
            Err(_) => Err(Error::Timeout { host: host(url), limit: self.limits.timeout }),
        }
    }

    fn build(&self) -> Result<Client, Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // reqwest panics without a provider. This only fails if another thread installed one first, which is fine.
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let names = GuardedResolver { inner: self.resolver.clone(), rules: self.rules.clone() };
        // A proxy would resolve names itself, and redirects are only followed after a check.
        let builder = Client::builder().no_proxy().redirect(Policy::none()).referer(false);
        // Decompression is done here, with limits, even if another crate enables it in reqwest.
        let builder = builder.no_gzip().no_brotli().no_deflate().no_zstd();
        let built = builder.dns_resolver(Arc::new(names)).user_agent(&self.limits.user_agent).build();
        built.map_err(|error| Error::Setup { why: innermost(&error) })
    }
}

/// A response whose body has not been read yet.
#[derive(Debug)]
pub struct EgressResponse {
    url: Url,
    response: Response,
    deadline: Instant,
    limits: EgressLimits,
}

impl EgressResponse {
    /// Returns the final URL, after all redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the HTTP status code.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the `Content-Type` header.
    pub fn content_type(&self) -> Option<&str> {
        self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
    }

    /// Reads the body, up to the size limit.
    pub async fn body(mut self) -> Result<Body, Error> {
        let encoding = self.response.headers().get(CONTENT_ENCODING).map(|it| String::from_utf8_lossy(it.as_bytes()));
        let mut decoder = BodyDecoder::new(&encoding.unwrap_or_default(), self.limits.bytes)?;
        loop {
            let by = self.deadline.min(Instant::now() + self.limits.idle.min(MAX_TIMEOUT));
            match timeout_at(by, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    if !decoder.push(&bytes)? {
                        return decoder.finish();
                    }
                }
                Ok(Ok(None)) => return decoder.finish(),
                Ok(Err(error)) => return Err(connection_error(&self.url, &error)),
                Err(_) => {
                    let limit = if by == self.deadline { self.limits.timeout } else { self.limits.idle };
                    return Err(Error::Timeout { host: host(&self.url), limit });
                }
            }
        }
    }
}

/// Returns the redirect target, if the response is a redirect.
fn redirect(response: &Response) -> Option<&HeaderValue> {
    let is_redirect = matches!(response.status().as_u16(), 301..=303 | 307 | 308);
    response.headers().get(LOCATION).filter(|_| is_redirect)
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Maps a connection error: a name that resolves to a non-public address, or a network error.
fn connection_error(url: &Url, error: &reqwest::Error) -> Error {
    let refused = causes(error).find_map(|cause| cause.downcast_ref::<Error>());
    refused.cloned().unwrap_or_else(|| Error::Unreachable { host: host(url), why: innermost(error) })
}

/// Returns the innermost cause. The outer errors only wrap it.
fn innermost(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |&cause| cause.source())
}
