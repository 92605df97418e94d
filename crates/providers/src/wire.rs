//! The wires, and the model client that uses all of them.

use homard_model::{
    Error, ErrorKind, Event, EventStream, Model, Request, Spec,
    classify::{EXCERPT, classify},
};

use crate::{
    Target, anthropic, google,
    http::{self, Client, Endpoint},
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
pub(crate) struct Place {
    /// Path segments, separated by `/`.
    pub(crate) path: String,
    pub(crate) query: Option<&'static str>,
}

impl Wire {
    /// APIs that a probe tries, the most common first.
    pub const PROBED: [Self; 3] = [Self::OpenAiCompletions, Self::OpenAiResponses, Self::AnthropicMessages];

    /// All wires.
    pub const ALL: [Self; 4] =
        [Self::AnthropicMessages, Self::OpenAiCompletions, Self::OpenAiResponses, Self::GoogleGenerativeAi];

    /// Finds a wire by its name in a config.
    pub fn named(api: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.api() == api)
    }

    /// Returns its name in configs and transcripts.
    pub fn api(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }

    /// Encodes a request body.
    pub fn encode(self, target: &Target, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::AnthropicMessages => anthropic::encode(target, request),
            Self::OpenAiCompletions => openai_chat::encode(target, request),
            Self::OpenAiResponses => openai_responses::encode(target, request),
            Self::GoogleGenerativeAi => google::encode(target, request),
        }
    }

    /// Returns a reader of response bodies.
    pub fn reader(self) -> Reader {
        Reader::new(match self {
            Self::AnthropicMessages => Box::new(anthropic::Decoder::default()),
            Self::OpenAiCompletions => Box::new(openai_chat::Decoder::default()),
            Self::OpenAiResponses => Box::new(openai_responses::Decoder::default()),
            Self::GoogleGenerativeAi => Box::new(google::Decoder::default()),
        })
    }

    pub(crate) fn place(self, target: &Target) -> Place {
        match self {
            Self::AnthropicMessages => anthropic::place(target),
            Self::OpenAiCompletions => Place { path: "chat/completions".to_owned(), query: None },
            Self::OpenAiResponses => openai_responses::place(target),
            Self::GoogleGenerativeAi => google::place(target),
        }
    }

    /// Returns the authorization headers and those that the wire requires in addition. The target's own headers
    /// override them.
    pub(crate) fn headers(self, target: &Target) -> Vec<(&'static str, String)> {
        match self {
            Self::AnthropicMessages => anthropic::headers(target),
            Self::OpenAiCompletions => bearer(target),
            Self::OpenAiResponses => openai_responses::headers(target),
            Self::GoogleGenerativeAi => google::headers(target),
        }
    }
}

/// Returns a bearer token header, which most servers use.
pub(crate) fn bearer(target: &Target) -> Vec<(&'static str, String)> {
    let secret = target.auth.iter().map(|auth| auth.secret().expose().trim());
    secret.map(|secret| ("authorization", format!("Bearer {secret}"))).collect()
}

/// A model behind an HTTP endpoint.
#[derive(Debug)]
pub struct Remote {
    wire: Wire,
    target: Target,
    endpoint: Endpoint,
}

impl Remote {
    /// Creates a model that uses `client`. Fails for an unknown wire, or an invalid URL or header.
    pub fn new(target: Target, client: &Client) -> Result<Self, Error> {
        let Some(wire) = Wire::named(&target.spec.api) else {
            let Spec { provider, api, .. } = &target.spec;
            let known = Wire::ALL.map(Wire::api).join(", ");
            let message = format!("provider {provider} wants api \"{api}\", which is not spoken; known are {known}");
            return Err(Error::new(ErrorKind::Rejected, message));
        };
        let endpoint = Endpoint::new(client, &target, &wire.place(&target), &wire.headers(&target))?;
        Ok(Self { wire, target, endpoint })
    }
}

impl Model for Remote {
    fn spec(&self) -> &Spec {
        &self.target.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        http::ask(self.endpoint.clone(), self.wire.encode(&self.target, &request), self.wire.reader())
    }
}

/// Decoder of a wire: takes events of the stream and returns events of the answer.
///
/// It may continue after [`Event::Done`] or [`Event::Failed`]; later output is ignored.
pub(crate) trait Decode: Send {
    /// Decodes one event of the stream.
    fn push(&mut self, frame: &Frame, events: &mut Vec<Event>);

    /// Returns the final event if the stream ended without one: `Done` if the answer was complete, else `Failed`.
    fn finish(&mut self) -> Event;
}

/// Reader of a response body. Pure: takes bytes, split anywhere, and returns events of the answer.
///
/// It returns [`Event::Done`] or [`Event::Failed`] exactly once, and nothing after it.
pub struct Reader {
    parser: Parser,
    decoder: Box<dyn Decode>,
    /// Beginning of a body in which no event was found yet.
    head: Option<Vec<u8>>,
    ended: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Reader {
    fn new(decoder: Box<dyn Decode>) -> Self {
        Self { parser: Parser::default(), decoder, head: Some(Vec::new()), ended: false }
    }

    /// Processes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
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
                events.push(Event::Failed(Error::new(ErrorKind::Malformed, error.to_string())));
            }
        }
        events
    }

    /// Ends the body. Returns `None` if the answer had ended before.
    pub fn finish(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let head = self.head.take().unwrap_or_default();
        let head = String::from_utf8_lossy(&head);
        Some(Event::Failed(match serde_json::from_str::<serde_json::Value>(&head) {
            // Some servers announce a stream and then send an error as plain JSON; Google wraps it in a list.
            Ok(json) if json.get(0).unwrap_or(&json).get("error").is_some() => classify(None, &[], &head),
            _ if is_other(&head) => Error {
                excerpt: excerpt(&head),
                ..Error::new(ErrorKind::Malformed, "the answer is not an event stream")
            },
            Ok(_) | Err(_) => return Some(self.decoder.finish()),
        }))
    }
}

/// True if a body without any event was never meant to be a stream.
fn is_other(head: &str) -> bool {
    let line = head.trim_start_matches('\u{feff}').trim_start().lines().next().unwrap_or_default();
    !line.is_empty() && !["data", "event", "id", "retry", ""].contains(&line.split(':').next().unwrap_or_default())
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

fn is_last(event: &Event) -> bool {
    match event {
        Event::Done(_) | Event::Failed(_) => true,
        Event::Text(_) | Event::Thinking(_) | Event::Call(_) | Event::Seal(_) | Event::Alive => false,
    }
}

/// Returns the event for an answer that ended prematurely.
pub(crate) fn broken_off() -> Event {
    Event::Failed(Error::new(ErrorKind::Truncated, "the answer broke off before its end"))
}

/// Returns the event for a stream event that cannot be parsed.
pub(crate) fn malformed(frame: &Frame, error: &serde_json::Error) -> Event {
    let message = format!("an event of the stream is not what it should be ({error})");
    Event::Failed(Error { excerpt: excerpt(&frame.data), ..Error::new(ErrorKind::Malformed, message) })
}
