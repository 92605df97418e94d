//! A generic channel: signed JSON over HTTP in both directions.
//!
//! Inbound messages are parsed by [`inbound`], outbound ones are built here; both are signed by [`signature`] and carry
//! an idempotency key. `docs/channels/webhook.md` describes the format.

pub mod inbound;
pub mod signature;

use std::{future::pending, time::Duration};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{
    Method, Request, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value, json};

pub use self::inbound::Rejected;
use crate::{
    Act, Attachment, Channel, Failure, Flavour, Manner, Media, Note, Outgoing, Place, Probe, Receipt, Road, Secret,
    Sink, Source,
    http::{Answer, Lost, PATIENCE},
};

/// Header with the idempotency key.
pub const KEY: &str = "idempotency-key";

/// Returns the current time in milliseconds since the epoch.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Settings of a peer.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Account name in the config.
    pub account: String,
    /// Shared secret for signatures.
    pub secret: Secret,
    /// URL for outbound messages; `None` for a peer that only sends.
    pub url: Option<String>,
    /// Recommended maximum length of a text in characters.
    pub text_limit: usize,
    /// Timeout of a request.
    pub patience: Duration,
}

impl Settings {
    /// Creates settings with default values.
    pub fn new(account: impl Into<String>, secret: Secret, url: Option<String>) -> Self {
        Self { account: account.into(), secret, url, text_limit: 16_000, patience: PATIENCE }
    }
}

/// A peer that exchanges signed JSON.
pub struct Webhook {
    road: Road,
    settings: Settings,
    url: Option<Url>,
    clock: Clock,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("account", &self.settings.account).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Creates a peer without contacting it. Fails if the settings are invalid.
    pub fn new(road: Road, settings: Settings, clock: Clock) -> Result<Self, Failure> {
        let account = &settings.account;
        if settings.secret.expose().len() < 16 {
            let why = format!(
                "webhook {account}: the secret must have 16 characters or more; make one with: openssl rand -hex 32"
            );
            return Err(Failure::Refused(why));
        }
        let parse = |url: &String| {
            let url = Url::parse(url.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            url.ok_or_else(|| {
                Failure::Refused(format!("webhook {account}: the url is not one; it looks like https://host/path"))
            })
        };
        let url = settings.url.as_ref().map(parse).transpose()?;
        Ok(Self { road, settings, url, clock })
    }

    /// Sends a body with an idempotency key; the peer treats repetitions as one.
    async fn deliver(&self, key: &str, mut body: Map<String, Value>) -> Result<Receipt, Failure> {
        let Some(url) = &self.url else {
            return Err(Failure::Unsupported { channel: "webhook", action: "send without a url" });
        };
        let seconds = (self.clock)() / 1000;
        body.insert("account".to_owned(), json!(self.settings.account));
        let body = Value::Object(body).to_string().into_bytes();
        let signature = signature::sign(&self.settings.secret, seconds, &body);
        let mut request = Request::new(Method::POST, url.clone());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        put(headers, signature::TIMESTAMP, &seconds.to_string())?;
        put(headers, signature::SIGNATURE, &signature)?;
        put(headers, KEY, key)?;
        *request.body_mut() = Some(body.into());
        self.understood(self.road.ask(request, self.settings.patience).await)
    }

    fn understood(&self, answer: Result<Answer, Lost>) -> Result<Receipt, Failure> {
        let named = |why: &str| format!("webhook {}: {why}", self.settings.account);
        let Answer { status, retry_after, body } = answer.map_err(|lost| match lost {
            Lost::Unsent(why) => Failure::Unavailable(named(&why)),
            Lost::Unanswered(why) => Failure::Unknown(named(&why)),
            Lost::TooLong => Failure::Unknown(named("the answer is too long")),
        })?;
        tracing::debug!(account = self.settings.account, status, "webhook peer answered");
        let said = self.settings.secret.excerpt(&String::from_utf8_lossy(&body));
        let why = named(&format!("the peer answered {status} {said}"));
        match (status, retry_after) {
            (200..300, _) => {
                // A success status without a body is accepted.
                let said: Value = serde_json::from_slice(&body).unwrap_or_default();
                Ok(Receipt {
                    message: said["messageId"].as_str().map(str::to_owned),
                    details: json!({ "status": status }),
                })
            }
            (429 | 500.., Some(after)) => Err(Failure::RetryAfter { after, why }),
            (429, None) => Err(Failure::RetryAfter { after: Duration::from_secs(1), why }),
            (408 | 425 | 500.., None) => Err(Failure::Unavailable(why)),
            _ => Err(Failure::Refused(why)),
        }
    }
}

fn put(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<(), Failure> {
    let value = HeaderValue::from_str(value)
        .map_err(|_unfit| Failure::Refused(format!("webhook: the header {name} cannot hold what it should")))?;
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}

fn base(kind: &str, place: &Place) -> Map<String, Value> {
    let fields = [("type", json!(kind)), ("to", json!(place.to)), ("thread", json!(place.thread))];
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn extended<const N: usize>(mut body: Map<String, Value>, fields: [(&str, Value); N]) -> Map<String, Value> {
    let told = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!(false));
    body.extend(told.map(|(name, value)| (name.to_owned(), value)));
    body
}

fn attached(media: &Media) -> Value {
    match media {
        Media::Url(url) => json!({ "url": url }),
        Media::Bytes { name, mime, bytes } => json!({ "name": name, "mime": mime, "data": STANDARD.encode(bytes) }),
    }
}

#[async_trait]
impl Channel for Webhook {
    fn manner(&self) -> Manner {
        Manner {
            channel: "webhook",
            text_limit: self.settings.text_limit.max(1),
            flavour: Flavour::Markdown,
            has_blocks: true,
            has_threads: true,
            has_reactions: true,
            has_polls: true,
            has_edits: true,
            is_idempotent: true,
            has_previews: false,
        }
    }

    async fn receive(&self, _cursor: Option<String>, sink: &dyn Sink) -> Failure {
        // The peer sends requests to the gateway; see `inbound`.
        sink.note(Note::Up);
        pending().await
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, Failure> {
        let Outgoing { id, place, reply_to, text, media, is_silent, is_voice, poll, hides_previews: _ } = outgoing;
        let media: Vec<Value> = media.iter().map(attached).collect();
        let media = if media.is_empty() { Value::Null } else { json!(media) };
        let poll = poll
            .map(|poll| json!({ "question": poll.question, "options": poll.options, "multiple": poll.is_multiple }));
        let body = extended(
            base("message", &place),
            [
                ("id", json!(id)),
                ("replyTo", json!(reply_to)),
                ("text", json!(text)),
                ("media", media),
                ("poll", json!(poll)),
                ("silent", json!(is_silent)),
                ("voice", json!(is_voice)),
            ],
        );
        self.deliver(&id, body).await
    }

    async fn act(&self, act: Act) -> Result<Receipt, Failure> {
        let body = match &act {
            Act::Type(place) => base("typing", place),
            Act::React { place, message, emoji } => {
                let body = extended(base("reaction", place), [("messageId", json!(message))]);
                // An empty one removes the reaction.
                extended(body, [("emoji", json!(emoji.as_deref().unwrap_or_default()))])
            }
            Act::Edit { place, message, text, hides_previews: _ } => {
                extended(base("edit", place), [("messageId", json!(message)), ("text", json!(text))])
            }
            Act::Delete { place, message } => extended(base("delete", place), [("messageId", json!(message))]),
        };
        // The time is part of the key: only an immediate retry has the same key, a later identical action is a new one.
        let body_text = Value::Object(body.clone()).to_string();
        let seconds = (self.clock)() / 1000;
        let key = signature::sign(&self.settings.secret, seconds, body_text.as_bytes());
        self.deliver(&format!("{}-{}", act.name(), key.trim_start_matches("v1=")), body).await
    }

    async fn fetch(&self, attachment: &Attachment, most: usize) -> Result<Vec<u8>, Failure> {
        match &attachment.source {
            Source::Bytes(bytes) if bytes.len() <= most => Ok(bytes.clone()),
            Source::Bytes(_) => {
                Err(Failure::Refused(format!("webhook: the file has more than {most} bytes, which is the limit")))
            }
            Source::Url(_) | Source::Platform(_) => {
                Err(Failure::Unsupported { channel: "webhook", action: "load an address" })
            }
        }
    }

    async fn probe(&self) -> Result<Probe, Failure> {
        let account = self.settings.account.clone();
        let hint = "the peer can speak, but not be answered: no url is set".to_owned();
        let hints = if self.url.is_some() { Vec::new() } else { vec![hint] };
        Ok(Probe { id: account.clone(), username: None, name: account, hints })
    }
}
