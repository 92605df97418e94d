//! OpenAI-compatible HTTP API: `/v1/chat/completions`, `/v1/responses`, `/v1/models`, and also `/tools/invoke`.
//!
//! A request is parsed (`question`), mapped to a session (`address`), submitted as an ordinary run (`talk`) and
//! answered in the format of its API (`chat`, `responses`), whole or streamed (`sse`).

mod address;
mod chat;
mod content;
mod fields;
mod invoke;
mod question;
mod refusal;
mod responses;
mod sse;
mod talk;
mod words;

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, Method, StatusCode,
        header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use homard_agent::{Inbound, client_results, command::OWNER, hub::HTTP, intake::attachments};
use homard_proto::{
    RunId, SessionKey,
    frame::{MAX_DEPTH, nests_too_deep},
    json,
    message::{Message, User},
    method::{chat::Attachment, connect::Auth},
};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use self::{
    address::Meant,
    question::{Known, Question, Told},
    refusal::{Refusal, text, wrong_verb},
    talk::{Leaving, Talk},
};
use crate::{connection::Visitor, server::Server};

/// Maximum body size of a chat completion or a tool call.
const BODY: usize = 1024 * 1024;
/// Number of bytes of an oversized body that are read and discarded, so that the client can read the error.
const SPARE: usize = 8 * 1024 * 1024;
/// Time to read and discard a rejected body.
const GRACE: Duration = Duration::from_secs(1);

/// Settings of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Enables `/v1/chat/completions`.
    pub chat_completions: bool,
    /// Enables `/v1/responses`.
    pub responses: bool,
    /// Maximum body size of `/v1/responses` in bytes.
    pub responses_body: usize,
    /// Tools that `/tools/invoke` may call although they are denied by default.
    pub allowed_tools: Vec<String>,
    /// Tools that `/tools/invoke` must not call although they are allowed by default.
    pub denied_tools: Vec<String>,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            chat_completions: false,
            responses: false,
            responses_body: 20_000_000,
            allowed_tools: Vec::new(),
            denied_tools: Vec::new(),
        }
    }
}

/// A route of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Chat,
    Responses,
    Models,
    Model(String),
    Tools,
    /// A path below `/v1` that is not supported.
    Nowhere(String),
}

impl Place {
    /// Returns the route of a path, if it is one of these.
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/models" => Some(Self::Models),
            "/tools/invoke" => Some(Self::Tools),
            "/v1" => Some(Self::Nowhere(path.to_owned())),
            _ => match path.strip_prefix("/v1/models/").filter(|name| !name.is_empty()) {
                Some(name) => Some(Self::Model(unescaped(name))),
                None => path.starts_with("/v1/").then(|| Self::Nowhere(path.to_owned())),
            },
        }
    }

    /// Returns the allowed HTTP method if this one is not.
    fn other_verb(&self, used: &Method) -> Option<&'static str> {
        match self {
            Self::Chat | Self::Responses | Self::Tools => (used != Method::POST).then_some("POST"),
            Self::Models | Self::Model(_) => (used != Method::GET && used != Method::HEAD).then_some("GET, HEAD"),
            Self::Nowhere(_) => None,
        }
    }

    /// Checks whether the route exists and is enabled.
    fn check(&self, endpoints: &Endpoints) -> Result<(), Refusal> {
        let Endpoints { chat_completions, responses, .. } = *endpoints;
        let (path, key) = match self {
            Self::Chat if !chat_completions => ("/v1/chat/completions", "chatCompletions"),
            Self::Responses if !responses => ("/v1/responses", "responses"),
            Self::Models | Self::Model(_) if !chat_completions && !responses => ("/v1/models", "chatCompletions"),
            Self::Nowhere(path) => return Err(nowhere(path)),
            Self::Chat | Self::Responses | Self::Models | Self::Model(_) | Self::Tools => return Ok(()),
        };
        let why = format!(
            "{path} is off; set gateway.http.endpoints.{key}.enabled to true in the config and restart the gateway"
        );
        Err(Refusal::new(StatusCode::NOT_FOUND, "not_found_error", why))
    }
}

fn nowhere(path: &str) -> Refusal {
    let why = format!(
        "there is no {path} here; there are /v1/chat/completions, /v1/responses, /v1/models and /v1/models/<id>"
    );
    Refusal::new(StatusCode::NOT_FOUND, "not_found_error", why)
}

/// Handles a request to one of these routes.
pub(crate) async fn answer(
    server: Arc<Server>,
    visitor: &Visitor,
    place: Place,
    (parts, body): (Parts, Body),
) -> Response {
    if let Some(right) = place.other_verb(&parts.method) {
        return wrong_verb(&parts.method, parts.uri.path(), right);
    }
    if let Err(refusal) = admit(&server, visitor, &parts.headers).and_then(|()| place.check(&server.endpoints)) {
        // Closing a connection with unread bytes would discard the response.
        timeout(GRACE, take(body, 0)).await.ok();
        return refusal.into_response();
    }
    tell(&server, place, (&parts.headers, body)).await.unwrap_or_else(IntoResponse::into_response)
}

async fn tell(server: &Arc<Server>, place: Place, (headers, body): (&HeaderMap, Body)) -> Result<Response, Refusal> {
    let agents = server.hub.agents();
    match place {
        Place::Models => Ok(reply(StatusCode::OK, &address::models(&agents))),
        Place::Model(name) => Ok(reply(StatusCode::OK, &address::one_model(&agents, &name)?)),
        Place::Nowhere(path) => Err(nowhere(&path)),
        Place::Tools => Ok(invoke::call(server, &read(body, BODY).await?).await),
        Place::Chat => complete(server, headers, &read(body, BODY).await?).await,
        Place::Responses => respond(server, headers, &read(body, server.endpoints.responses_body).await?).await,
    }
}

/// Returns an error response if a request lacks the shared secret.
pub(crate) fn turned_away(server: &Server, visitor: &Visitor, headers: &HeaderMap) -> Option<Response> {
    admit(server, visitor, headers).err().map(IntoResponse::into_response)
}

/// Checks the shared secret and marks the connection as authenticated.
fn admit(server: &Server, visitor: &Visitor, headers: &HeaderMap) -> Result<(), Refusal> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.trim().split_once(' '));
    let bearer =
        shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, secret)| secret.trim().to_owned());
    let (auth, address) = (Auth { token: bearer, ..Auth::default() }, visitor.address());
    server.bouncer.check(&auth, address, Instant::now()).inspect_err(|_| {
        tracing::warn!(%address, "a request over HTTP was refused");
    })?;
    visitor.welcome();
    Ok(())
}

/// Reads a JSON body.
async fn read(body: Body, limit: usize) -> Result<Value, Refusal> {
    let too_large = || {
        let why = format!("the request is larger than {limit} bytes, which is the most that is taken");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", why)
    };
    if body.size_hint().lower() > limit as u64 {
        // The announced bytes may never arrive.
        timeout(GRACE, take(body, 0)).await.ok();
        return Err(too_large());
    }
    let bytes = take(body, limit).await?.ok_or_else(too_large)?;
    if nests_too_deep(&bytes) {
        return Err(Refusal::invalid(format!("the body nests deeper than {MAX_DEPTH} levels")));
    }
    let body = json::from_slice(&bytes).map_err(|error| Refusal::invalid(format!("the body is not JSON: {error}")))?;
    if body.is_object() { Ok(body) } else { Err(Refusal::invalid("the body must be a JSON object")) }
}

/// Reads a body of at most `limit` bytes. Part of the rest of a larger one is read and discarded.
async fn take(body: Body, limit: usize) -> Result<Option<Vec<u8>>, Refusal> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Refusal::invalid(format!("the body broke off: {error}")))?;
        count += chunk.len();
        if count > limit + SPARE {
            break;
        }
        if count <= limit {
            bytes.extend_from_slice(&chunk);
        }
    }
    Ok((count <= limit).then_some(bytes))
}

async fn complete(server: &Arc<Server>, headers: &HeaderMap, body: &Value) -> Result<Response, Refusal> {
    let nonce = server.hub.ambient().nonce();
    let meant = meant(headers, body, "openai")?;
    let model = meant.model.unwrap_or("openclaw").to_owned();
    let id = format!("chatcmpl_{nonce}");
    let talk = ask(server, Meant { previous: None, ..meant }, (&id, &nonce), chat::read(body)?).await?;
    let tells_usage = body["stream_options"]["include_usage"] == true;
    let form = chat::Form { id, created: now(server), model, tells_usage };
    if body["stream"] == true {
        return Ok(sse::tell(talk, form));
    }
    Ok(reply(StatusCode::OK, &form.completion(&talk.end().await?)))
}

async fn respond(server: &Arc<Server>, headers: &HeaderMap, body: &Value) -> Result<Response, Refusal> {
    let nonce = server.hub.ambient().nonce();
    let meant = meant(headers, body, "openresponses")?;
    let model = meant.model.unwrap_or("openclaw").to_owned();
    let id = format!("resp_{nonce}");
    let talk = ask(server, meant, (&id, &nonce), responses::read(body)?).await?;
    let form = responses::Form::new(&id, &nonce, now(server), &model, body);
    if body["stream"] == true {
        return Ok(sse::tell(talk, form));
    }
    Ok(reply(StatusCode::OK, &form.response(&talk.end().await?)))
}

fn meant<'a>(headers: &'a HeaderMap, body: &'a Value, family: &'static str) -> Result<Meant<'a>, Refusal> {
    let text = |name: &str| text(&body[name], name);
    let is_kept = family == "openresponses" && body["store"] != false;
    let (model, user, previous) = (text("model")?, text("user")?, text("previous_response_id")?);
    Ok(Meant { headers, model, user, previous, family, is_kept })
}

/// Starts the run that answers a request.
async fn ask(
    server: &Arc<Server>,
    meant: Meant<'_>,
    (id, nonce): (&str, &str),
    mut question: Question,
) -> Result<Talk, Refusal> {
    let address = meant.find(server, nonce).await?;
    let known = match address.leaving {
        Leaving::GoesOn if question.tells_of_answers() => what_is_known(server, &address.key).await?,
        Leaving::GoesOn | Leaving::Stops => Known::Nothing,
    };
    let (client_tools, thinking) = (std::mem::take(&mut question.tools), question.thinking.take());
    let part = question.part;
    let now = server.hub.ambient().now_ms();
    let asked = question.ask(known, now).ok_or_else(|| Refusal::nothing_asked(part))?;
    let run = RunId::parse(id).map_err(|error| Refusal::failed(error.to_string()))?;
    let mut message = User::text(asked.content.text, now);
    show(&mut message, asked.content.pictures, id).await?;
    client_results::attach(&mut message, asked.results, asked.rest);
    let mut history = Vec::with_capacity(asked.history.len());
    for Told { mut message, pictures } in asked.history {
        if let Message::User(user) = &mut message {
            show(user, pictures, id).await?;
        }
        history.push(message);
    }
    let inbound = Inbound::plain(run, (OWNER, HTTP), address.key, message);
    // A run whose caller cannot reconnect is not resumed after a restart.
    let reports_restart = address.leaving == Leaving::Stops;
    let is_ephemeral = address.is_ephemeral;
    let inbound = Inbound {
        extra_prompt: asked.system,
        client_tools,
        thinking,
        reports_restart,
        history,
        is_ephemeral,
        ..inbound
    };
    Talk::begin(server, inbound, address.leaving).await
}

/// Attaches images to a message.
async fn show(message: &mut User, pictures: Vec<String>, id: &str) -> Result<(), Refusal> {
    let attached = pictures.into_iter();
    let attached =
        attached.map(|data| Attachment { name: None, mime: Some("image/*".to_owned()), content: Some(data) });
    // Declared as images, so none is stored as a file.
    let attached = attachments::open_all(attached.collect(), None, id).await;
    attached.map_err(|error| Refusal::invalid(error.message))?.attach_to(message);
    Ok(())
}

/// Determines whether a session already contains the conversation that a request repeats.
async fn what_is_known(server: &Server, key: &SessionKey) -> Result<Known, Refusal> {
    let history = server.hub.history(key).await.map_err(|error| Refusal::failed(error.to_string()))?;
    let is_new = history.is_none_or(|(_, said)| said.is_empty());
    Ok(if is_new { Known::Nothing } else { Known::Conversation })
}

fn now(server: &Server) -> u64 {
    server.hub.ambient().now_ms() / 1000
}

/// Builds a JSON response.
fn reply(status: StatusCode, body: &Value) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body.to_string()).into_response()
}

/// Decodes percent escapes in a path segment; invalid escapes are kept.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
