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

pub use self::inbound::InboundRejection;
use crate::{
    AccountIdentity, Attachment, AttachmentSource, Channel, ChannelAction, ChannelCapabilities, ChannelError,
    ConnectionState, Destination, HttpClients, MarkdownRendering, Media, Outgoing, Receipt, Secret, Sink,
    http::{ChannelHttpResponse, REQUEST_TIMEOUT, RequestError},
    secret::excerpt,
};

/// Header with the idempotency key.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Returns the current time in milliseconds since the epoch.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Settings of one webhook account.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Account name in the config.
    pub account: String,
    /// Shared secret for signatures.
    pub secret: Secret,
    /// URL to which outbound messages are sent; `None` if the other program only sends messages to Homard.
    pub url: Option<String>,
    /// Recommended maximum length of a text in characters.
    pub text_limit: usize,
    /// Timeout of a request.
    pub timeout: Duration,
}

impl Settings {
    /// Creates settings with default values.
    pub fn new(account: impl Into<String>, secret: Secret, url: Option<String>) -> Self {
        Self { account: account.into(), secret, url, text_limit: 16_000, timeout: REQUEST_TIMEOUT }
    }
}

/// Channel to a program that exchanges signed JSON messages with Homard.
pub struct Webhook {
    http: HttpClients,
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
    /// Creates the channel without a request to its URL. Fails if the settings are invalid.
    pub fn new(clients: HttpClients, settings: Settings, clock: Clock) -> Result<Self, ChannelError> {
        let account = &settings.account;
        if settings.secret.expose().len() < 16 {
            let reason = format!(
                "webhook {account}: the secret must have 16 characters or more; generate one with: openssl rand -hex 32"
            );
            return Err(ChannelError::Refused(reason));
        }
        let parse = |url: &String| {
            let url = Url::parse(url.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            url.ok_or_else(|| {
                ChannelError::Refused(format!(
                    "webhook {account}: the url is not valid; expected a URL such as https://host/path"
                ))
            })
        };
        let url = settings.url.as_ref().map(parse).transpose()?;
        Ok(Self { http: clients, settings, url, clock })
    }

    /// Sends a body with an idempotency key; the peer treats repetitions as one.
    async fn deliver(&self, key: &str, mut body: Map<String, Value>) -> Result<Receipt, ChannelError> {
        let Some(url) = &self.url else {
            return Err(ChannelError::Unsupported { channel: "webhook", action: "sending without a url" });
        };
        let seconds = (self.clock)() / 1000;
        body.insert("account".to_owned(), json!(self.settings.account));
        let body = Value::Object(body).to_string().into_bytes();
        let signature = signature::sign(&self.settings.secret, seconds, &body);
        let mut request = Request::new(Method::POST, url.clone());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        put(headers, signature::TIMESTAMP_HEADER, &seconds.to_string())?;
        put(headers, signature::SIGNATURE_HEADER, &signature)?;
        put(headers, IDEMPOTENCY_HEADER, key)?;
        *request.body_mut() = Some(body.into());
        self.parse_response(self.http.send(request, self.settings.timeout).await)
    }

    fn parse_response(&self, answer: Result<ChannelHttpResponse, RequestError>) -> Result<Receipt, ChannelError> {
        let describe = |reason: &str| format!("webhook {}: {reason}", self.settings.account);
        let ChannelHttpResponse { status, retry_after, body, .. } = answer.map_err(|error| match error {
            RequestError::Unsent(reason) => ChannelError::Unavailable(describe(&reason)),
            RequestError::Unanswered(reason) => ChannelError::Unknown(describe(&reason)),
            RequestError::TooLong => ChannelError::Unknown(describe("the response is too large")),
        })?;
        tracing::debug!(account = self.settings.account, status, "webhook peer answered");
        let excerpt = excerpt(&String::from_utf8_lossy(&body), &self.settings.secret);
        let reason = describe(&format!("the peer answered {status} {excerpt}"));
        match (status, retry_after) {
            (200..300, _) => {
                // A success status without a body is accepted.
                let response: Value = serde_json::from_slice(&body).unwrap_or_default();
                Ok(Receipt {
                    message: response["messageId"].as_str().map(str::to_owned),
                    details: json!({ "status": status }),
                })
            }
            (429 | 500.., Some(after)) => Err(ChannelError::RetryAfter { after, why: reason }),
            (429, None) => Err(ChannelError::RetryAfter { after: Duration::from_secs(1), why: reason }),
            (408 | 425 | 500.., None) => Err(ChannelError::Unavailable(reason)),
            _ => Err(ChannelError::Refused(reason)),
        }
    }
}

fn put(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<(), ChannelError> {
    let value = HeaderValue::from_str(value)
        .map_err(|_invalid| ChannelError::Refused(format!("webhook: invalid value for the header {name}")))?;
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}

fn base(kind: &str, destination: &Destination) -> Map<String, Value> {
    let fields = [("type", json!(kind)), ("to", json!(destination.to)), ("thread", json!(destination.thread))];
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn extended<const N: usize>(mut body: Map<String, Value>, fields: [(&str, Value); N]) -> Map<String, Value> {
    let present_fields = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!(false));
    body.extend(present_fields.map(|(name, value)| (name.to_owned(), value)));
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
    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities {
            channel: "webhook",
            text_limit: self.settings.text_limit.max(1),
            markdown: MarkdownRendering::Markdown,
            has_blocks: true,
            has_threads: true,
            has_reactions: true,
            has_polls: true,
            has_edits: true,
            is_idempotent: true,
            has_previews: false,
        }
    }

    async fn receive(&self, _cursor: Option<String>, sink: &dyn Sink) -> ChannelError {
        // The peer sends requests to the gateway; see `inbound`.
        sink.report_state(ConnectionState::Up);
        pending().await
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
        let Outgoing { id, destination, reply_to, text, media, is_silent, is_voice, poll, hides_previews: _ } =
            outgoing;
        let media: Vec<Value> = media.iter().map(attached).collect();
        let media = if media.is_empty() { Value::Null } else { json!(media) };
        let poll = poll
            .map(|poll| json!({ "question": poll.question, "options": poll.options, "multiple": poll.is_multiple }));
        let body = extended(
            base("message", &destination),
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

    async fn perform(&self, action: ChannelAction) -> Result<Receipt, ChannelError> {
        let body = match &action {
            ChannelAction::Type(destination) => base("typing", destination),
            ChannelAction::React { destination, message, emoji } => {
                let body = extended(base("reaction", destination), [("messageId", json!(message))]);
                // An empty one removes the reaction.
                extended(body, [("emoji", json!(emoji.as_deref().unwrap_or_default()))])
            }
            ChannelAction::Edit { destination, message, text, hides_previews: _ } => {
                extended(base("edit", destination), [("messageId", json!(message)), ("text", json!(text))])
            }
            ChannelAction::Delete { destination, message } => {
                extended(base("delete", destination), [("messageId", json!(message))])
            }
        };
        // The time is part of the key: only an immediate retry has the same key, a later identical action is a new one.
        let body_text = Value::Object(body.clone()).to_string();
        let seconds = (self.clock)() / 1000;
        let key = signature::sign(&self.settings.secret, seconds, body_text.as_bytes());
        self.deliver(&format!("{}-{}", action.name(), key.trim_start_matches("v1=")), body).await
    }

    async fn fetch(&self, attachment: &Attachment, max_bytes: usize) -> Result<Vec<u8>, ChannelError> {
        match &attachment.source {
            AttachmentSource::Bytes(bytes) if bytes.len() <= max_bytes => Ok(bytes.clone()),
            AttachmentSource::Bytes(_) => {
                Err(ChannelError::Refused(format!("webhook: the file exceeds the limit of {max_bytes} bytes")))
            }
            AttachmentSource::Url(_) | AttachmentSource::Platform(_) => {
                Err(ChannelError::Unsupported { channel: "webhook", action: "downloads from a URL" })
            }
        }
    }

    async fn identity(&self) -> Result<AccountIdentity, ChannelError> {
        let account = self.settings.account.clone();
        let hint = "replies cannot be sent to the peer: no url is set".to_owned();
        let hints = if self.url.is_some() { Vec::new() } else { vec![hint] };
        Ok(AccountIdentity { id: account.clone(), username: None, name: account, hints })
    }
}
