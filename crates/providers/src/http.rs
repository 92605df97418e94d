//! The one road to every provider: a POST, and an answer that comes in pieces.
//!
//! It tells apart what a caller must treat differently: not reached, refused, not a stream, cut off, silent.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::{StreamExt, future::ready, stream};
use homard_model::{Error, ErrorKind, Event, EventStream};
use reqwest::{
    ClientBuilder, Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect::Policy,
};
use tokio::time::timeout;

use crate::{Settings, openai_chat::Decoder, secret::excerpt, sse::Parser};

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(30);
/// How much of a body that is not an answer is read.
const BODY: usize = 16 * 1024;

/// The connections to all providers, one of these per process. Clones share them.
///
/// Nothing is set up before it is needed: loading the system's root certificates takes longer than starting the gateway.
#[derive(Debug, Clone)]
pub struct Client {
    remote: Arc<LazyLock<Road>>,
    local: Arc<LazyLock<Road>>,
}

type Road = Result<reqwest::Client, Error>;

impl Default for Client {
    fn default() -> Self {
        Self { remote: Arc::new(LazyLock::new(remote)), local: Arc::new(LazyLock::new(local)) }
    }
}

/// To other machines, through the proxy that the environment names, if any.
fn remote() -> Road {
    build(reqwest::Client::builder())
}

/// To this machine, in clear text: no proxy could find the way back, and no certificates are needed.
fn local() -> Road {
    build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
}

fn build(builder: ClientBuilder) -> Road {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // reqwest panics without one. It fails only if another thread was faster, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect would carry the key and the conversation to a place that nobody configured.
    let builder = builder.connect_timeout(CONNECT).redirect(Policy::none());
    let built = builder.user_agent(concat!("homard/", env!("CARGO_PKG_VERSION"))).build();
    built.map_err(|error| Error::new(ErrorKind::Connect, format!("HTTP cannot be set up: {}", cause(&error))))
}

/// Where a provider listens and how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    road: Arc<LazyLock<Road>>,
    url: Url,
    headers: HeaderMap,
    settings: Arc<Settings>,
}

impl Endpoint {
    /// The endpoint at `path` below the provider's base URL.
    pub(crate) fn new(client: &Client, settings: &Settings, path: &str) -> Result<Self, Error> {
        let provider = &settings.provider;
        let bad_url = |why: &str| {
            let message = format!("the baseUrl of provider {provider} {why}; it looks like https://host/v1");
            Error::new(ErrorKind::Rejected, message)
        };
        let mut url = Url::parse(&settings.base_url).map_err(|error| bad_url(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad_url("is neither http nor https"));
        }
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path.split('/')),
            Err(()) => return Err(bad_url("has no path")),
        };
        let road = if url.scheme() == "http" && is_loopback(&url) { &client.local } else { &client.remote };
        Ok(Self { road: road.clone(), url, headers: headers(settings)?, settings: Arc::new(settings.clone()) })
    }

    /// Asks, and waits for a stream.
    async fn open(&self, body: Vec<u8>) -> Result<Response, Error> {
        let client = (**self.road).clone()?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = match timeout(self.settings.idle, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreached(&error)),
            Err(_) => return Err(self.idle()),
        };
        let status = response.status().as_u16();
        tracing::debug!(provider = self.settings.provider, status, "provider answered");
        if !response.status().is_success() {
            let retry_after = response.headers().get(RETRY_AFTER).and_then(seconds);
            let message = format!("HTTP {status}: {}", said(&self.body(&mut response).await));
            return Err(Error { retry_after, ..self.error(kind_of(status), Some(status), &message) });
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing known");
        if kind.to_ascii_lowercase().starts_with("text/event-stream") {
            return Ok(response);
        }
        let message = format!("the answer is not an event stream but {kind}: ");
        let message = message + &self.body(&mut response).await;
        Err(self.error(ErrorKind::Malformed, Some(status), &message))
    }

    /// The head of a body that is not an answer; what there is of it, if it does not come.
    async fn body(&self, response: &mut Response) -> String {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > BODY {
                    break;
                }
            }
        };
        if timeout(self.settings.idle, reading).await.is_err() {
            tracing::debug!(provider = self.settings.provider, "the body of an error did not end");
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    fn error(&self, kind: ErrorKind, status: Option<u16>, message: &str) -> Error {
        let settings = &self.settings;
        let secrets = settings.api_key.iter().chain(settings.headers.iter().map(|(_, value)| value));
        let message = format!("{}: {}", settings.provider, excerpt(message, secrets));
        Error { kind, status, retry_after: None, message }
    }

    fn idle(&self) -> Error {
        let message = format!("nothing came for {:?}, so the request was given up", self.settings.idle);
        self.error(ErrorKind::Idle, None, &message)
    }

    fn unreached(&self, error: &reqwest::Error) -> Error {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or_default();
        let message = format!("{host}:{port} cannot be reached ({}); check baseUrl and the network", cause(error));
        self.error(ErrorKind::Connect, None, &message)
    }
}

fn headers(settings: &Settings) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let unfit = |what: &str| {
        let message = format!("{what} of provider {} has characters that HTTP cannot send", settings.provider);
        Error::new(ErrorKind::Auth, message)
    };
    let sealed = |text: &str, what: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_invalid| unfit(what))?;
        value.set_sensitive(true);
        Ok::<_, Error>(value)
    };
    if let Some(key) = &settings.api_key {
        headers.insert(AUTHORIZATION, sealed(&format!("Bearer {}", key.expose().trim()), "the API key")?);
    }
    for (name, value) in &settings.headers {
        let what = format!("the header {name}");
        let name = HeaderName::try_from(name).map_err(|_invalid| unfit(&what))?;
        headers.insert(name, sealed(value.expose(), &what)?);
    }
    Ok(headers)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// What a caller can do about a status.
pub(crate) fn kind_of(status: u16) -> ErrorKind {
    match status {
        // 402: the account has no money left, which is as final as a wrong key.
        401..=403 => ErrorKind::Auth,
        429 => ErrorKind::RateLimit,
        // 408 and 425 ask to come again.
        408 | 425 | 500.. => ErrorKind::Server,
        _ => ErrorKind::Rejected,
    }
}

/// Seconds only: a date would need a clock, and no model provider sends one.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The sentence in an error's body, or the body.
fn said(body: &str) -> String {
    let body = body.trim();
    let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let error = json.get("error").unwrap_or(&json);
    let sentence = error.get("message").unwrap_or(error).as_str();
    sentence.unwrap_or(if body.is_empty() { "no explanation" } else { body }).to_owned()
}

/// The innermost reason. The outer ones only say that there was one, and name the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Asks a provider. Dropping the stream closes the connection.
pub(crate) fn ask(endpoint: Endpoint, body: Result<Vec<u8>, serde_json::Error>, decoder: Decoder) -> EventStream {
    let opening = async move {
        let unwritten = |error| endpoint.error(ErrorKind::Rejected, None, &format!("the request is not JSON: {error}"));
        let response = endpoint.open(body.map_err(unwritten)?).await?;
        Ok(Reading { endpoint, response, parser: Parser::default(), decoder, over: false })
    };
    Box::pin(stream::once(opening).flat_map(|opened| match opened {
        Ok(reading) => reading.events().left_stream(),
        Err(error) => stream::once(ready(Event::Failed(error))).right_stream(),
    }))
}

/// An answer that is being read.
struct Reading {
    endpoint: Endpoint,
    response: Response,
    parser: Parser,
    decoder: Decoder,
    over: bool,
}

impl Reading {
    fn events(self) -> impl stream::Stream<Item = Event> + Send {
        let steps = stream::unfold(self, |mut reading| async move {
            if reading.over {
                return None;
            }
            let events = reading.step().await;
            reading.over = matches!(events.last(), Some(Event::Done(_) | Event::Failed(_)));
            Some((stream::iter(events), reading))
        });
        steps.flatten()
    }

    /// What the next bytes say.
    async fn step(&mut self) -> Vec<Event> {
        let bytes = match timeout(self.endpoint.settings.idle, self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => return self.finish("the connection was closed"),
            Ok(Err(error)) => return self.finish(&cause(&error)),
            Err(_) => return vec![Event::Failed(self.endpoint.idle())],
        };
        match self.parser.push(&bytes) {
            Ok(frames) => {
                let events = frames.iter().flat_map(|frame| self.decoder.push(&frame.data));
                events.map(|event| named(&self.endpoint, event)).collect()
            }
            Err(error) => vec![Event::Failed(self.endpoint.error(ErrorKind::Malformed, None, &error.to_string()))],
        }
    }

    fn finish(&mut self, why: &str) -> Vec<Event> {
        let last = self.decoder.finish().into_iter().map(|event| match event {
            Event::Failed(error) => Event::Failed(Error { message: format!("{} ({why})", error.message), ..error }),
            Event::Text(_) | Event::Thinking(_) | Event::Call(_) | Event::Done(_) => event,
        });
        last.map(|event| named(&self.endpoint, event)).collect()
    }
}

/// A decoder does not know whose words it reads.
fn named(endpoint: &Endpoint, event: Event) -> Event {
    match event {
        Event::Failed(error) => Event::Failed(endpoint.error(error.kind, error.status, &error.message)),
        Event::Text(_) | Event::Thinking(_) | Event::Call(_) | Event::Done(_) => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_all_its_names() {
        let is_local = |host: &str| is_loopback(&Url::parse(&format!("http://{host}:8080/v1")).unwrap());
        assert!(
            ["localhost", "LOCALHOST", "ollama.localhost", "127.0.0.1", "127.9.9.9", "[::1]"].into_iter().all(is_local)
        );
        assert!(!["example.com", "localhost.example.com", "192.168.1.2", "[fe80::1]"].into_iter().any(is_local));
    }

    #[test]
    fn a_road_is_built_even_if_nobody_chose_a_tls_library() {
        assert_eq!((local().err(), remote().err()), (None, None));
    }

    #[test]
    fn a_wait_is_seconds() {
        let wait = |text| seconds(&HeaderValue::from_static(text));
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("0.5"), Some(Duration::from_millis(500)));
        assert_eq!((wait("-1"), wait("NaN"), wait("Fri, 31 Dec 2027 23:59:59 GMT")), (None, None, None));
    }
}
