//! The wires, and the one model that speaks all of them.

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

/// How much of a body is kept until it turns out to be a stream.
const HEAD: usize = 4096;

/// A way to speak to models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic's Messages.
    AnthropicMessages,
    /// OpenAI's Chat Completions, which most servers speak.
    OpenAiCompletions,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Google's Gemini.
    GoogleGenerativeAi,
}

/// Where a wire's requests go, below the base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Segments of the path, with `/` between them.
    pub(crate) path: String,
    pub(crate) query: Option<&'static str>,
}

impl Wire {
    /// Those that a probe tries, the most common first.
    pub const PROBED: [Self; 3] = [Self::OpenAiCompletions, Self::OpenAiResponses, Self::AnthropicMessages];

    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AnthropicMessages, Self::OpenAiCompletions, Self::OpenAiResponses, Self::GoogleGenerativeAi];

    /// The wire that a config calls so.
    pub fn named(api: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.api() == api)
    }

    /// Its name in configs and transcripts.
    pub fn api(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }

    /// Writes a request's body.
    pub fn encode(self, target: &Target, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::AnthropicMessages => anthropic::encode(target, request),
            Self::OpenAiCompletions => openai_chat::encode(target, request),
            Self::OpenAiResponses => openai_responses::encode(target, request),
            Self::GoogleGenerativeAi => google::encode(target, request),
        }
    }

    /// Reads an answer's body.
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

    /// The headers that let one in, and those that the wire needs besides. Those of the target win.
    pub(crate) fn headers(self, target: &Target) -> Vec<(&'static str, String)> {
        match self {
            Self::AnthropicMessages => anthropic::headers(target),
            Self::OpenAiCompletions => bearer(target),
            Self::OpenAiResponses => openai_responses::headers(target),
            Self::GoogleGenerativeAi => google::headers(target),
        }
    }
}

/// The way in that most servers have.
pub(crate) fn bearer(target: &Target) -> Vec<(&'static str, String)> {
    let secret = target.auth.iter().map(|auth| auth.secret().expose().trim());
    secret.map(|secret| ("authorization", format!("Bearer {secret}"))).collect()
}

/// A model behind an endpoint.
#[derive(Debug)]
pub struct Remote {
    wire: Wire,
    target: Target,
    endpoint: Endpoint,
}

impl Remote {
    /// A model that is asked through `client`. Fails where the target cannot be asked at all: an unknown wire, a bad URL
    /// or header.
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

/// An answer that is being decoded: the events of a stream go in, the pieces of the answer come out.
///
/// A decoder may go on after it said [`Event::Done`] or [`Event::Failed`]; nobody listens then.
pub(crate) trait Decode: Send {
    /// Takes one event of the stream.
    fn push(&mut self, frame: &Frame, events: &mut Vec<Event>);

    /// How the answer ends if the stream is over and nothing said so: a `Done` if all was there, else a `Failed`.
    fn finish(&mut self) -> Event;
}

/// An answer that is being read. Pure: bytes go in, split anywhere, and the pieces of the answer come out.
///
/// It says [`Event::Done`] or [`Event::Failed`] exactly once, and nothing after it.
pub struct Reader {
    parser: Parser,
    decoder: Box<dyn Decode>,
    /// The beginning of a body in which no event was seen yet.
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

    /// Takes the next bytes.
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

    /// Takes note that the body is over. `None` if the answer had ended before.
    pub fn finish(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let head = self.head.take().unwrap_or_default();
        let head = String::from_utf8_lossy(&head);
        Some(Event::Failed(match serde_json::from_str::<serde_json::Value>(&head) {
            // Some servers promise a stream and then send an error as plain JSON; Google wraps it in a list.
            Ok(json) if json.get(0).unwrap_or(&json).get("error").is_some() => classify(None, &[], &head),
            _ if is_other(&head) => Error {
                excerpt: excerpt(&head),
                ..Error::new(ErrorKind::Malformed, "the answer is not an event stream")
            },
            Ok(_) | Err(_) => return Some(self.decoder.finish()),
        }))
    }
}

/// Whether a body without a single event was never meant to be a stream.
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

/// The end of an answer that stopped without one.
pub(crate) fn broken_off() -> Event {
    Event::Failed(Error::new(ErrorKind::Truncated, "the answer broke off before its end"))
}

/// The end of an answer in which something stood that the wire does not know.
pub(crate) fn malformed(frame: &Frame, error: &serde_json::Error) -> Event {
    let message = format!("an event of the stream is not what it should be ({error})");
    Event::Failed(Error { excerpt: excerpt(&frame.data), ..Error::new(ErrorKind::Malformed, message) })
}
