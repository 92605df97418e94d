//! The wires, and the model client that uses all of them.

use homard_model::{
    Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request,
    classify::{EXCERPT, classify},
};

use crate::{
    ModelTarget, anthropic, google,
    http::{self, Endpoint, HttpClient},
    openai_chat, openai_responses,
    sse::{Frame, Parser},
};

/// Maximum number of bytes of a body that are kept until it turns out to be a stream.
const HEAD: usize = 4096;

/// A model API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    AnthropicMessages,
    /// OpenAI Chat Completions, which most servers provide.
    OpenAiCompletions,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Google Gemini.
    GoogleGenerativeAi,
}

/// Path of a wire's requests below the base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestPath {
    /// Path segments, separated by `/`.
    pub(crate) path: String,
    pub(crate) query: Option<&'static str>,
}

impl Wire {
    /// APIs that a probe tries, the most common first.
    pub const PROBED: [Self; 3] = [Self::OpenAiCompletions, Self::OpenAiResponses, Self::AnthropicMessages];

    /// All supported model APIs.
    pub const ALL: [Self; 4] =
        [Self::AnthropicMessages, Self::OpenAiCompletions, Self::OpenAiResponses, Self::GoogleGenerativeAi];

    /// Finds a wire by its name in a config.
    pub fn from_api(api: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.api() == api)
    }

    /// Returns the API name that configs and transcripts use.
    pub fn api(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }

    /// Encodes a request body.
    pub fn encode(self, target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::AnthropicMessages => anthropic::encode(target, request),
            Self::OpenAiCompletions => openai_chat::encode(target, request),
            Self::OpenAiResponses => openai_responses::encode(target, request),
            Self::GoogleGenerativeAi => google::encode(target, request),
        }
    }

    /// Returns a reader of response bodies.
    pub fn reader(self) -> AnswerReader {
        AnswerReader::new(match self {
            Self::AnthropicMessages => Box::new(anthropic::Decoder::default()),
            Self::OpenAiCompletions => Box::new(openai_chat::Decoder::default()),
            Self::OpenAiResponses => Box::new(openai_responses::Decoder::default()),
            Self::GoogleGenerativeAi => Box::new(google::Decoder::default()),
        })
    }

    pub(crate) fn request_path(self, target: &ModelTarget) -> RequestPath {
        match self {
            Self::AnthropicMessages => anthropic::request_path(target),
            Self::OpenAiCompletions => RequestPath { path: "chat/completions".to_owned(), query: None },
            Self::OpenAiResponses => openai_responses::request_path(target),
            Self::GoogleGenerativeAi => google::request_path(target),
        }
    }

    /// Returns the authorization headers and those that the wire requires in addition. The target's own headers
    /// override them.
    pub(crate) fn headers(self, target: &ModelTarget) -> Vec<(&'static str, String)> {
        match self {
            Self::AnthropicMessages => anthropic::headers(target),
            Self::OpenAiCompletions => bearer(target),
            Self::OpenAiResponses => openai_responses::headers(target),
            Self::GoogleGenerativeAi => google::headers(target),
        }
    }
}

/// Returns a bearer token header, which most servers use.
pub(crate) fn bearer(target: &ModelTarget) -> Vec<(&'static str, String)> {
    let secret = target.auth.iter().map(|auth| auth.secret().expose().trim());
    secret.map(|secret| ("authorization", format!("Bearer {secret}"))).collect()
}

/// A model behind an HTTP endpoint.
#[derive(Debug)]
pub struct RemoteModel {
    wire: Wire,
    target: ModelTarget,
    endpoint: Endpoint,
}

impl RemoteModel {
    /// Creates a model that uses `client`. Fails for an unknown wire, or an invalid URL or header.
    pub fn new(target: ModelTarget, client: &HttpClient) -> Result<Self, Error> {
        let Some(wire) = Wire::from_api(&target.spec.api) else {
            let ModelSpec { provider, api, .. } = &target.spec;
            let supported = Wire::ALL.map(Wire::api).join(", ");
            let message = format!("provider {provider} has the unsupported api \"{api}\"; supported are {supported}");
            return Err(Error::new(ErrorKind::Rejected, message));
        };
        let endpoint = Endpoint::new(client, &target, &wire.request_path(&target), &wire.headers(&target))?;
        Ok(Self { wire, target, endpoint })
    }

    /// Returns the URL of its requests, without user info and query, which may be secret.
    pub fn url(&self) -> String {
        self.endpoint.url_without_secrets()
    }
}

impl Model for RemoteModel {
    fn spec(&self) -> &ModelSpec {
        &self.target.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        http::send(self.endpoint.clone(), self.wire.encode(&self.target, &request), self.wire.reader())
    }
}

/// Decoder of a wire: takes events of the stream and returns events of the answer.
///
/// It may continue after [`ModelEvent::Done`] or [`ModelEvent::Failed`]; later output is ignored.
pub(crate) trait Decode: Send {
    /// Decodes one event of the stream.
    fn push(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>);

    /// Returns the final event if the stream ended without one: `Done` if the answer was complete, else `Failed`.
    fn finish(&mut self) -> ModelEvent;
}

/// Reader of a response body. Pure: takes bytes, split anywhere, and returns events of the answer.
///
/// It returns [`ModelEvent::Done`] or [`ModelEvent::Failed`] exactly once, and nothing after it.
pub struct AnswerReader {
    parser: Parser,
    decoder: Box<dyn Decode>,
    /// Beginning of a body in which no event was found yet.
    head: Option<Vec<u8>>,
    ended: bool,
}

impl std::fmt::Debug for AnswerReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerReader").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl AnswerReader {
    fn new(decoder: Box<dyn Decode>) -> Self {
        Self { parser: Parser::default(), decoder, head: Some(Vec::new()), ended: false }
    }

    /// Processes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        if self.ended {
            return events;
        }
        match self.parser.push(bytes) {
            Ok(frames) if frames.is_empty() => {
                if let Some(head) = &mut self.head {
                    head.extend_from_slice(&bytes[..bytes.len().min(HEAD - head.len())]);
                }
            }
            Ok(frames) => {
                self.head = None;
                for frame in &frames {
                    let before = events.len();
                    self.decoder.push(frame, &mut events);
                    if let Some(last) = events[before..].iter().position(is_last) {
                        events.truncate(before + last + 1);
                        self.ended = true;
                        break;
                    }
                }
            }
            Err(error) => {
                self.ended = true;
                events.push(ModelEvent::Failed(Error::new(ErrorKind::Malformed, error.to_string())));
            }
        }
        events
    }

    /// Ends the body. Returns the final event, `Done` or `Failed`; `None` if it was returned before.
    pub fn finish(&mut self) -> Option<ModelEvent> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let head = self.head.take().unwrap_or_default();
        let head = String::from_utf8_lossy(&head);
        Some(ModelEvent::Failed(match serde_json::from_str::<serde_json::Value>(&head) {
            // Some servers announce a stream and then send an error as plain JSON; Google wraps it in a list.
            Ok(json) if json.get(0).unwrap_or(&json).get("error").is_some() => classify(None, &[], &head),
            _ if is_not_a_stream(&head) => Error {
                excerpt: excerpt(&head),
                ..Error::new(ErrorKind::Malformed, "the answer is not an event stream")
            },
            Ok(_) | Err(_) => return Some(self.decoder.finish()),
        }))
    }
}

/// True if a body without any event was never meant to be a stream.
fn is_not_a_stream(head: &str) -> bool {
    let line = head.trim_start_matches('\u{feff}').trim_start().lines().next().unwrap_or_default();
    !line.is_empty() && !["data", "event", "id", "retry", ""].contains(&line.split(':').next().unwrap_or_default())
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

fn is_last(event: &ModelEvent) -> bool {
    match event {
        ModelEvent::Done(_) | ModelEvent::Failed(_) => true,
        ModelEvent::Text(_)
        | ModelEvent::Thinking(_)
        | ModelEvent::Call(_)
        | ModelEvent::Signature(_)
        | ModelEvent::Heartbeat
        | ModelEvent::NoResponse(_) => false,
    }
}

/// Returns the event for an answer that ended prematurely.
pub(crate) fn truncated_event() -> ModelEvent {
    ModelEvent::Failed(Error::new(ErrorKind::Truncated, "the answer ended prematurely"))
}

/// Returns the event for a stream event that cannot be parsed.
pub(crate) fn malformed_event(frame: &Frame, error: &serde_json::Error) -> ModelEvent {
    let message = format!("an event of the stream is not valid ({error})");
    ModelEvent::Failed(Error { excerpt: excerpt(&frame.data), ..Error::new(ErrorKind::Malformed, message) })
}
