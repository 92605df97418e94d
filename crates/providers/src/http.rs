//! HTTP transport of all providers: a POST with a streamed response.
//!
//! It distinguishes the failures that callers treat differently: unreachable, rejected, not a stream, truncated, idle.

mod device_flow;
mod oauth;
mod refresh;

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, future::ready, stream};
use homard_model::{
    Error, ErrorKind, EventStream, ModelEvent, ModelSpec,
    classify::classify,
    spec::{CLOUD_IDLE_TIMEOUT, SELF_HOSTED_IDLE_TIMEOUT},
};
use reqwest::{
    ClientBuilder, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::time::timeout;

pub use self::{
    device_flow::{DeviceCode, DeviceEndpoints, DevicePoll},
    oauth::TokenGrant,
};
use crate::{
    AnswerReader, Credentials, ModelTarget,
    secret::{excerpt, redacted},
    wire::RequestPath,
};

/// Connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a response after which a request is reported as unanswered. It continues: a model may be slow.
const NO_RESPONSE_NOTICE: Duration = Duration::from_secs(4);
/// Maximum number of bytes read from a body that is not an answer.
const MAX_ERROR_BODY: usize = 16 * 1024;
/// Maximum number of bytes of a list of models.
const MAX_LISTING: usize = 16 * 1024 * 1024;

/// Connections to all providers, one per process. Clones share them.
///
/// Initialized lazily, because loading the system's root certificates takes longer than starting the gateway.
#[derive(Debug, Clone)]
pub struct HttpClient {
    remote: Arc<LazyLock<SharedClient>>,
    local: Arc<LazyLock<SharedClient>>,
}

type SharedClient = Result<reqwest::Client, Error>;

impl Default for HttpClient {
    fn default() -> Self {
        Self { remote: Arc::new(LazyLock::new(remote)), local: Arc::new(LazyLock::new(local)) }
    }
}

impl HttpClient {
    fn client_for(&self, url: &Url) -> &Arc<LazyLock<SharedClient>> {
        if url.scheme() == "http" && is_loopback(url) { &self.local } else { &self.remote }
    }
}

/// Client for other machines, through the proxy of the environment, if any.
fn remote() -> SharedClient {
    build(reqwest::Client::builder())
}

/// Client for this machine, in clear text: a proxy could not reach it, and no certificates are needed.
fn local() -> SharedClient {
    build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
}

fn build(builder: ClientBuilder) -> SharedClient {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // reqwest panics without a provider. This fails only if another thread was faster, which is fine.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect would send the key and the conversation to an address that was not configured.
    let builder = builder.connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none());
    let built = builder.user_agent(concat!("homard/", env!("CARGO_PKG_VERSION"))).build();
    built.map_err(|error| Error::new(ErrorKind::Connect, format!("cannot create the HTTP client: {}", cause(&error))))
}

/// URL, headers and client of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    client: Arc<LazyLock<SharedClient>>,
    url: Url,
    headers: HeaderMap,
    target: Arc<ModelTarget>,
}

impl Endpoint {
    /// Creates the endpoint of a wire below the provider's base URL.
    pub(crate) fn new(
        client: &HttpClient,
        target: &ModelTarget,
        request_path: &RequestPath,
        headers: &[(&'static str, String)],
    ) -> Result<Self, Error> {
        let provider = &target.spec.provider;
        let bad_url = |why: &str| {
            let message = format!("the baseUrl of provider {provider} {why}; expected a URL such as https://host/v1");
            Error::new(ErrorKind::Rejected, message)
        };
        let mut url = Url::parse(&target.base_url).map_err(|error| bad_url(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad_url("is neither http nor https"));
        }
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(request_path.path.split('/')),
            Err(()) => return Err(bad_url("has no path")),
        };
        if let Some(query) = request_path.query {
            url.set_query(Some(query));
        }
        let shared_client = client.client_for(&url).clone();
        let headers = header_map(target, headers)?;
        Ok(Self { client: shared_client, url, headers, target: Arc::new(target.clone()) })
    }

    /// Sends a request and waits for the stream.
    async fn open(&self, body: Vec<u8>) -> Result<Response, Error> {
        let client = (**self.client).clone()?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = match timeout(self.target.spec.idle_timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.connect_error(&error)),
            Err(_) => return Err(self.idle()),
        };
        let status = response.status().as_u16();
        tracing::debug!(provider = self.target.spec.provider, status, "provider answered");
        let headers = header_pairs(response.headers());
        if !response.status().is_success() {
            let body = self.body(&mut response).await;
            let error = classify(Some(status), &headers, &body);
            let is_about_url = matches!(status, 300..=399 | 404 | 405 | 410 | 501);
            let message = if is_about_url { self.answered(&error.message) } else { error.message.clone() };
            return Err(self.with_context(Error { message, ..error }));
        }
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
        if kind.to_ascii_lowercase().starts_with("text/event-stream") {
            return Ok(response);
        }
        let message = self.answered(&format!("HTTP {status} with {kind}, which is not an event stream"));
        let body = self.body(&mut response).await;
        let error = classify(None, &headers, &body);
        // An error object is an error even with a success status.
        if serde_json::from_str::<serde_json::Value>(&body).is_ok_and(|body| body.get("error").is_some()) {
            return Err(self.with_context(error));
        }
        Err(self.with_context(Error { kind: ErrorKind::Misconfigured, status: Some(status), message, ..error }))
    }

    /// Formats what the endpoint returned.
    fn answered(&self, outcome: &str) -> String {
        format!("POST {} answered {outcome}", self.url_without_secrets())
    }

    /// Returns the URL without possible secrets: user info and query.
    pub(crate) fn url_without_secrets(&self) -> String {
        let mut url = self.url.clone();
        // Succeeds for a URL with a host, which all of these have.
        let is_plain = url.set_username("").and_then(|()| url.set_password(None)).is_ok();
        url.set_query(None);
        if is_plain { url.to_string() } else { self.url.host_str().unwrap_or_default().to_owned() }
    }

    /// Sends one request and returns the status, the content type and the beginning of the body. The body of an event
    /// stream is not read.
    pub(crate) async fn ask_once(&self, body: Vec<u8>) -> Result<(u16, String, String), String> {
        let client = (**self.client).clone().map_err(|error| error.message)?;
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let request = client.post(self.url.clone()).headers(headers).body(body);
        let mut response = request.send().await.map_err(|error| cause(&error))?;
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        if content_type.starts_with("text/event-stream") {
            return Ok((status, content_type, String::new()));
        }
        Ok((status, content_type, self.body(&mut response).await))
    }

    /// Sends a GET request and returns the status and the body.
    pub(crate) async fn get(&self) -> Result<(u16, String), String> {
        let client = (**self.client).clone().map_err(|error| error.message)?;
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.remove(CONTENT_TYPE);
        let request = client.get(self.url.clone()).headers(headers);
        let mut response = request.send().await.map_err(|error| cause(&error))?;
        let status = response.status().as_u16();
        Ok((status, self.body_up_to(&mut response, MAX_LISTING).await))
    }

    /// Reads the beginning of a body that is not an answer, as far as it arrives.
    async fn body(&self, response: &mut Response) -> String {
        self.body_up_to(response, MAX_ERROR_BODY).await
    }

    async fn body_up_to(&self, response: &mut Response, limit: usize) -> String {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > limit {
                    break;
                }
            }
        };
        if timeout(self.target.spec.idle_timeout, reading).await.is_err() {
            tracing::debug!(provider = self.target.spec.provider, "timed out while reading the body of a response");
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Adds the provider's name and advice to a decoder's error and redacts secrets; the decoder knows none of them.
    pub(crate) fn with_context(&self, error: Error) -> Error {
        let target = &self.target;
        let secrets = || {
            let auth = target.auth.iter().map(Credentials::secret);
            auth.chain(target.headers.iter().map(|(_, value)| value))
        };
        let text = excerpt(&error.message, secrets());
        let ModelSpec { provider, model, api, .. } = &target.spec;
        let advice = match (error.kind == ErrorKind::Misconfigured, api.is_empty()) {
            (false, _) => error.kind.advice().to_owned(),
            (true, true) => {
                format!(
                    "check models.providers.{provider}.baseUrl, and set models.providers.{provider}.api if you know it"
                )
            }
            (true, false) => format!(
                "check models.providers.{provider}.baseUrl and models.providers.{provider}.api, which is {api}, and the \
                 model's name, {model}"
            ),
        };
        let name = match text.contains(&self.url_without_secrets()) {
            true => provider.clone(),
            false => format!("{provider} ({})", self.host()),
        };
        let message = format!("{name}: {text}; {advice}");
        Error { message, excerpt: redacted(&error.excerpt, secrets()), ..error }
    }

    fn idle(&self) -> Error {
        let idle = self.target.spec.idle_timeout;
        self.with_context(Error::new(
            ErrorKind::Timeout,
            format!("no data received for {idle:?}; the request was cancelled"),
        ))
    }

    fn connect_error(&self, error: &reqwest::Error) -> Error {
        let message = format!("{} failed ({})", self.request_name(), cause(error));
        self.with_context(Error::new(ErrorKind::Connect, message))
    }

    /// Names the request: its URL and the API.
    fn request_name(&self) -> String {
        format!("POST {} ({})", self.url_without_secrets(), self.target.spec.api)
    }

    /// Says that no response has arrived yet, and what to check.
    fn no_response(&self) -> String {
        let (seconds, provider) = (NO_RESPONSE_NOTICE.as_secs(), &self.target.spec.provider);
        format!(
            "{} has not answered for {seconds} s; still waiting, as a model may need time. If the address or the API is \
             wrong, correct models.providers.{provider}.baseUrl or models.providers.{provider}.api",
            self.request_name()
        )
    }

    /// Returns the host, and the port unless it is the default.
    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Adds what only the endpoint knows: the provider of an error, and the cost of the tokens.
    fn complete_event(&self, event: ModelEvent) -> ModelEvent {
        match event {
            ModelEvent::Failed(error) => ModelEvent::Failed(self.with_context(error)),
            ModelEvent::Done(mut done) => {
                done.usage.cost = self.target.spec.prices.of(&done.usage);
                ModelEvent::Done(done)
            }
            ModelEvent::Text(_)
            | ModelEvent::Thinking(_)
            | ModelEvent::Call(_)
            | ModelEvent::Signature(_)
            | ModelEvent::Heartbeat
            | ModelEvent::NoResponse(_) => event,
        }
    }
}

fn header_map(target: &ModelTarget, required: &[(&'static str, String)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let invalid = |what: &str| {
        let message = format!(
            "{what} of provider {} has characters that are not allowed in an HTTP header",
            target.spec.provider
        );
        Error::new(ErrorKind::Auth, message)
    };
    let sensitive = |text: &str, what: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_invalid| invalid(what))?;
        value.set_sensitive(true);
        Ok::<_, Error>(value)
    };
    for (name, value) in required {
        headers.insert(HeaderName::from_static(name), sensitive(value, "the API key")?);
    }
    for (name, value) in &target.headers {
        let what = format!("the header {name}");
        let name = HeaderName::try_from(name).map_err(|_invalid| invalid(&what))?;
        headers.insert(name, sensitive(value.expose(), &what)?);
    }
    Ok(headers)
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let header_pairs = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    header_pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the idle timeout of a server: longer if it is self-hosted.
pub fn idle_timeout(base_url: &str) -> Duration {
    if is_self_hosted(base_url) { SELF_HOSTED_IDLE_TIMEOUT } else { CLOUD_IDLE_TIMEOUT }
}

/// True if a URL refers to this machine or its network, where models are slow and no key is needed.
pub fn is_self_hosted(base_url: &str) -> bool {
    let Ok(url) = Url::parse(base_url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => is_loopback(&url) || host.ends_with(".local") || !host.contains('.'),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the innermost cause. The outer ones only repeat that there was an error, and name the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Sends a request to a provider. Dropping the stream closes the connection.
pub(crate) fn send(endpoint: Endpoint, body: Result<Vec<u8>, serde_json::Error>, reader: AnswerReader) -> EventStream {
    let notice = endpoint.no_response();
    let mut opening = Box::pin(async move {
        let encode_error = |error| {
            endpoint
                .with_context(Error::new(ErrorKind::Rejected, format!("cannot serialize the request as JSON: {error}")))
        };
        let response = endpoint.open(body.map_err(encode_error)?).await?;
        Ok(ResponseReading { endpoint, response, reader, unread: Bytes::new(), ended: false })
    });
    let first = async move {
        match timeout(NO_RESPONSE_NOTICE, &mut opening).await {
            Ok(opened) => answer_events(opened),
            Err(_) => {
                let late = stream::once(opening).flat_map(answer_events);
                stream::once(ready(ModelEvent::NoResponse(notice))).chain(late).boxed()
            }
        }
    };
    stream::once(first).flatten().boxed()
}

/// Returns the events of a response, or the failure to get one.
fn answer_events(opened: Result<ResponseReading, Error>) -> EventStream {
    match opened {
        Ok(reading) => reading.events().boxed(),
        Err(error) => stream::once(ready(ModelEvent::Failed(error))).boxed(),
    }
}

/// Maximum number of bytes processed at once, to bound the number of events.
const MAX_PIECE: usize = 8 * 1024;

/// A response being read.
struct ResponseReading {
    endpoint: Endpoint,
    response: Response,
    reader: AnswerReader,
    /// Received bytes that are not processed yet.
    unread: Bytes,
    ended: bool,
}

impl ResponseReading {
    fn events(self) -> impl stream::Stream<Item = ModelEvent> + Send {
        let steps = stream::unfold(self, |mut reading| async move {
            if reading.ended {
                return None;
            }
            let mut events = reading.step().await;
            if events.is_empty() {
                events.push(ModelEvent::Heartbeat);
            }
            reading.ended = matches!(events.last(), Some(ModelEvent::Done(_) | ModelEvent::Failed(_)));
            Some((stream::iter(events), reading))
        });
        steps.flatten()
    }

    /// Reads the next bytes, at most [`MAX_PIECE`], and returns the events that they complete.
    async fn step(&mut self) -> Vec<ModelEvent> {
        if self.unread.is_empty() {
            self.unread = match timeout(self.endpoint.target.spec.idle_timeout, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return self.finish("the connection was closed"),
                Ok(Err(error)) => return self.finish(&cause(&error)),
                Err(_) => return vec![ModelEvent::Failed(self.endpoint.idle())],
            };
        }
        let piece = self.unread.split_to(self.unread.len().min(MAX_PIECE));
        let events = self.reader.push(&piece);
        events.into_iter().map(|event| self.endpoint.complete_event(event)).collect()
    }

    fn finish(&mut self, why: &str) -> Vec<ModelEvent> {
        let mut last = self.reader.finish();
        if let Some(ModelEvent::Failed(Error { kind: ErrorKind::Truncated, message, .. })) = &mut last {
            *message = format!("{message} ({why})");
        }
        last.map(|event| self.endpoint.complete_event(event)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_recognized() {
        let is_local = |host: &str| is_loopback(&Url::parse(&format!("http://{host}:8080/v1")).unwrap());
        assert!(
            ["localhost", "LOCALHOST", "ollama.localhost", "127.0.0.1", "127.9.9.9", "[::1]"].into_iter().all(is_local)
        );
        assert!(!["example.com", "localhost.example.com", "192.168.1.2", "[fe80::1]"].into_iter().any(is_local));
    }

    #[test]
    fn clients_are_built_without_a_default_crypto_provider() {
        assert_eq!((local().err(), remote().err()), (None, None));
    }

    #[test]
    fn self_hosted_servers_are_recognized_by_address() {
        let self_hosted =
            ["http://localhost:1/v1", "http://127.0.0.1/v1", "http://[::1]:1", "http://192.168.1.2/v1", "http://box:1"];
        assert_eq!(self_hosted.map(is_self_hosted), [true; 5]);
        assert_eq!(["https://api.openai.com/v1", "https://8.8.8.8", "none"].map(is_self_hosted), [false; 3]);
    }
}
