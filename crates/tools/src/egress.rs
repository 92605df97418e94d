//! The one door to the web for what an agent asks for: GET, from public servers only, within bounds.
//!
//! Every hop is checked: what the URL says (`destination`), and what its name leads to (`names`) at the moment when the
//! connection is made, so that there is no time between the check and the use. No proxy, no cookies, no other headers
//! than those here. Providers of models have their own road; they are chosen by the owner, not by a page.

mod address;
mod body;
mod destination;
mod exception;
#[cfg(test)]
mod fuzz;
mod names;
mod own;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    error::Error as StdError,
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use homard_agent::tool::ToolCx;
use homard_audit::{Audit, Fact, What};
use reqwest::{
    Client, Response, Url,
    dns::Resolve,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
    redirect::Policy,
};
use tokio::time::{Instant, timeout_at};

pub use self::{
    body::Body,
    exception::{BadException, Exception},
    names::SystemNames,
};
use self::{body::Unpacker, names::GuardedNames};

/// Why the web was not asked, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read as a URL.
    #[error("this is not a URL that can be used: {why}. It looks like https://example.com/page")]
    NotUrl {
        /// What is wrong with it.
        why: String,
    },
    /// Neither http nor https.
    #[error("{scheme} URLs cannot be used: only http and https")]
    Scheme {
        /// What it is.
        scheme: String,
    },
    /// A name or a password in the URL.
    #[error("URLs with a user name or a password are not used: leave out what is before the @")]
    Userinfo,
    /// A host name that no server can have.
    #[error("{name:?} is not the name of a server")]
    Name {
        /// The name.
        name: String,
    },
    /// A port where no web server is expected.
    #[error("port {port} is not used: only 80, 443 and those from 1024 on")]
    Port {
        /// The port.
        port: u16,
    },
    /// An exception for this host names other ports.
    #[error("port {port} of {host} is not used: the owner allows other ports of it")]
    OtherPort {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Not on the public internet.
    #[error(
        "{host} is not on the public internet ({what}): only public servers can be reached, unless the owner allows it"
    )]
    Inside {
        /// The host.
        host: String,
        /// What it is instead.
        what: &'static str,
    },
    /// Sent on once too often.
    #[error("the server sent us on more than {most} times")]
    Redirects {
        /// How often is allowed.
        most: usize,
    },
    /// The place that a server sent us on to cannot be used.
    #[error("the server sent us on, but {0}")]
    SentOn(Box<Self>),
    /// No connection, or no answer.
    #[error("{host} cannot be reached ({why})")]
    Unreached {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("{host} did not answer completely within {limit:?}")]
    Slow {
        /// The host.
        host: String,
        /// The limit that was passed: for the whole, or for the time without news.
        limit: Duration,
    },
    /// Packed in a way that nobody asked for.
    #[error("the server packed its answer in a way that was not asked for")]
    Packed,
    /// What came cannot be unpacked.
    #[error("the answer is broken ({why})")]
    Broken {
        /// Why.
        why: String,
    },
    /// HTTP does not work here at all.
    #[error("HTTP cannot be set up: {why}")]
    Setup {
        /// Why.
        why: String,
    },
}

impl Error {
    /// In a word: whether we did not want to, or it did not work.
    fn word(&self) -> &'static str {
        match self {
            Self::NotUrl { .. }
            | Self::Scheme { .. }
            | Self::Userinfo
            | Self::Name { .. }
            | Self::Port { .. }
            | Self::OtherPort { .. }
            | Self::Inside { .. } => "denied",
            Self::SentOn(error) => error.word(),
            Self::Redirects { .. }
            | Self::Unreached { .. }
            | Self::Slow { .. }
            | Self::Packed
            | Self::Broken { .. }
            | Self::Setup { .. } => "failed",
        }
    }
}

/// The bounds of what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// What may be reached although it is not public.
    pub allow: Vec<Exception>,
    /// How long a request may take from first to last.
    pub timeout: Duration,
    /// How long nothing may come.
    pub idle: Duration,
    /// How often a server may send us on.
    pub redirects: usize,
    /// How many bytes of a body are read at most, unpacked.
    pub bytes: usize,
    /// How we call ourselves.
    pub user_agent: String,
}

impl Default for Bounds {
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

/// No request takes longer, whatever its bounds say.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    url: String,
    accept: &'static str,
    key: Option<(&'static str, HeaderValue)>,
    asker: Asker,
}

/// For whom the web is asked, and where that is noted.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    audit: Audit,
    session: String,
}

impl Asker {
    /// The run that calls a tool.
    pub fn of(cx: &ToolCx) -> Self {
        Self { audit: cx.audit(), session: cx.session.to_string() }
    }
}

impl Request {
    /// Asks for what a URL names, in one of the types that `accept` lists.
    pub fn new(url: impl Into<String>, accept: &'static str) -> Self {
        Self { url: url.into(), accept, key: None, asker: Asker::default() }
    }

    /// Shows a key to the server, which no redirect carries on to another one.
    pub fn with_key(mut self, header: &'static str, key: HeaderValue) -> Self {
        self.key = Some((header, key));
        self
    }

    /// Has it noted who asks whom.
    pub fn by(mut self, asker: Asker) -> Self {
        self.asker = asker;
        self
    }

    fn note(&self, url: Option<&Url>, outcome: &str) {
        let Asker { audit, session } = &self.asker;
        let fact = Fact::new(What::Egress).by(session).with("host", &url.map(host).unwrap_or_default()).ended(outcome);
        let port = url.and_then(Url::port_or_known_default).map(u64::from);
        audit.note(port.into_iter().fold(fact, |fact, port| fact.count("port", port)));
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers
    }
}

/// The door.
pub struct Egress {
    bounds: Bounds,
    exceptions: Arc<[Exception]>,
    names: Arc<dyn Resolve>,
    /// Whether an address belongs to this machine.
    is_own: fn(IpAddr) -> bool,
    /// Set up when it is needed first: loading the system's root certificates takes a while.
    client: OnceLock<Result<Client, Error>>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Egress {
    /// A door with such bounds, for names that somebody knows: [`SystemNames`] does.
    pub fn new(bounds: Bounds, names: Arc<dyn Resolve>) -> Self {
        let exceptions = bounds.allow.clone().into();
        Self { bounds, exceptions, names, is_own: own::is_own, client: OnceLock::new() }
    }

    /// Asks, follows where the server sends us, and returns with the head of the answer. Dropping it closes the connection.
    pub async fn get(&self, request: &Request) -> Result<Answer, Error> {
        let deadline = Instant::now() + self.bounds.timeout.min(LONGEST);
        let refused = |_: &Error| request.note(Url::parse(&request.url).ok().as_ref(), "denied");
        let mut url = destination::parse(&request.url, &self.exceptions).inspect_err(refused)?;
        let mut key = request.key.as_ref();
        for hop in 0..=self.bounds.redirects {
            let sent_on = |error| if hop == 0 { error } else { Error::SentOn(Box::new(error)) };
            let mut headers = request.headers();
            headers.extend(key.take().map(|(name, key)| (HeaderName::from_static(name), key.clone())));
            let response = self.hop(&url, headers, deadline).await;
            request.note(Some(&url), response.as_ref().err().map_or("ok", Error::word));
            let response = response.map_err(sent_on)?;
            let Some(location) = redirect(&response) else {
                return Ok(Answer { url, response, deadline, bounds: self.bounds.clone() });
            };
            if hop == self.bounds.redirects {
                break;
            }
            let next = self.next(&url, location).inspect_err(|_| {
                let wanted = location.to_str().ok().and_then(|text| url.join(text).ok());
                request.note(wanted.as_ref(), "denied");
            });
            url = next.map_err(|error| Error::SentOn(Box::new(error)))?;
            tracing::debug!(to = host(&url), "sent on");
        }
        Err(Error::Redirects { most: self.bounds.redirects })
    }

    /// Where a server sends us on to, if that can be used.
    fn next(&self, url: &Url, location: &HeaderValue) -> Result<Url, Error> {
        let text = str::from_utf8(location.as_bytes()).map_err(|error| Error::NotUrl { why: error.to_string() })?;
        let next = url.join(text).map_err(|error| Error::NotUrl { why: error.to_string() })?;
        destination::check(next, &self.exceptions)
    }

    async fn hop(&self, url: &Url, headers: HeaderMap, deadline: Instant) -> Result<Response, Error> {
        if let Some(address) = destination::literal(url) {
            destination::check_own(&host(url), address, (&self.exceptions, self.is_own))?;
        }
        let client = self.client.get_or_init(|| self.build()).as_ref().map_err(Error::clone)?;
        match timeout_at(deadline, client.get(url.clone()).headers(headers).send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unreached(url, &error)),
            Err(_) => Err(Error::Slow { host: host(url), limit: self.bounds.timeout }),
        }
    }

    fn build(&self) -> Result<Client, Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // reqwest panics without one. It fails only if another thread was faster, which is as good.
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let names =
            GuardedNames { names: self.names.clone(), exceptions: self.exceptions.clone(), is_own: self.is_own };
        // A proxy would resolve names itself, and a redirect is followed only after a check.
        let builder = Client::builder().no_proxy().redirect(Policy::none()).referer(false);
        // Unpacked is here, within bounds, whatever else in the house wants reqwest to do.
        let builder = builder.no_gzip().no_brotli().no_deflate().no_zstd();
        let built = builder.dns_resolver(Arc::new(names)).user_agent(&self.bounds.user_agent).build();
        built.map_err(|error| Error::Setup { why: innermost(&error) })
    }
}

/// The head of an answer, its body still to come.
#[derive(Debug)]
pub struct Answer {
    url: Url,
    response: Response,
    deadline: Instant,
    bounds: Bounds,
}

impl Answer {
    /// Who answered, after all redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// What the server says of the body's type.
    pub fn content_type(&self) -> Option<&str> {
        self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
    }

    /// Reads the body, as much of it as the bounds allow.
    pub async fn body(mut self) -> Result<Body, Error> {
        let encoding = self.response.headers().get(CONTENT_ENCODING).map(|it| String::from_utf8_lossy(it.as_bytes()));
        let mut unpacker = Unpacker::new(&encoding.unwrap_or_default(), self.bounds.bytes)?;
        loop {
            let by = self.deadline.min(Instant::now() + self.bounds.idle.min(LONGEST));
            match timeout_at(by, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    if !unpacker.push(&bytes)? {
                        return unpacker.finish();
                    }
                }
                Ok(Ok(None)) => return unpacker.finish(),
                Ok(Err(error)) => return Err(unreached(&self.url, &error)),
                Err(_) => {
                    let limit = if by == self.deadline { self.bounds.timeout } else { self.bounds.idle };
                    return Err(Error::Slow { host: host(&self.url), limit });
                }
            }
        }
    }
}

/// Where a server wants to send us on to, if it does.
fn redirect(response: &Response) -> Option<&HeaderValue> {
    let is_redirect = matches!(response.status().as_u16(), 301..=303 | 307 | 308);
    response.headers().get(LOCATION).filter(|_| is_redirect)
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Why there was no answer: a name that leads inside, or what the network says.
fn unreached(url: &Url, error: &reqwest::Error) -> Error {
    let refused = causes(error).find_map(|cause| cause.downcast_ref::<Error>());
    refused.cloned().unwrap_or_else(|| Error::Unreached { host: host(url), why: innermost(error) })
}

/// The innermost reason. The outer ones only say that there was one.
fn innermost(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |&cause| cause.source())
}
