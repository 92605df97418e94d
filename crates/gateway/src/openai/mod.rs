//! OpenAI-compatible HTTP API: `/v1/chat/completions`, `/v1/responses`, `/v1/models`, and also `/tools/invoke`.
//!
//! A request is parsed (`request`), mapped to a session (`address`), submitted as an ordinary run (`stream`) and
//! answered in the format of its API (`chat`, `responses`), whole or streamed (`sse`).

mod address;
mod chat;
mod content;
mod error;
mod fields;
mod invoke;
mod request;
mod responses;
mod sse;
mod stream;
mod text_delta;

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, Method, StatusCode,
        header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
};
use homard_agent::{Inbound, InboundSender, hub::HTTP, intake::attachments};
use homard_command::OWNER;
use homard_prompt::client_results;
use homard_proto::{
    RunId, SessionKey,
    frame::{MAX_DEPTH, nests_too_deep},
    json,
    message::{Message, User},
    method::{chat::Attachment, connect::Auth},
};
use serde_json::Value;
use tokio::time::Instant;

use self::{
    address::RequestTarget,
    error::{ApiError, method_not_allowed, text},
    request::{HistoryMessage, HistoryState, ParsedRequest},
    stream::{OnDisconnect, RunResponse},
};
use crate::{
    connection::AdmittedPeer,
    http_body::{self, BodyError},
    server::ServerState,
};

/// Maximum body size of a chat completion or a tool call.
const MAX_BODY_BYTES: usize = 1024 * 1024;

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
pub(crate) enum ApiRoute {
    Chat,
    Responses,
    Models,
    Model(String),
    Tools,
    /// A path below `/v1` that is not supported.
    Unknown(String),
}

impl ApiRoute {
    /// Returns the route of a path, if it is one of these.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/models" => Some(Self::Models),
            "/tools/invoke" => Some(Self::Tools),
            "/v1" => Some(Self::Unknown(path.to_owned())),
            _ => match path.strip_prefix("/v1/models/").filter(|name| !name.is_empty()) {
                Some(name) => Some(Self::Model(unescaped(name))),
                None => path.starts_with("/v1/").then(|| Self::Unknown(path.to_owned())),
            },
        }
    }

    /// Returns the allowed methods, for the `Allow` header, if this method is not one of them.
    fn methods_if_not_allowed(&self, method: &Method) -> Option<&'static str> {
        match self {
            Self::Chat | Self::Responses | Self::Tools => (method != Method::POST).then_some("POST"),
            Self::Models | Self::Model(_) => (method != Method::GET && method != Method::HEAD).then_some("GET, HEAD"),
            Self::Unknown(_) => None,
        }
    }

    /// Checks whether the route exists and is enabled.
    fn check(&self, endpoints: &Endpoints) -> Result<(), ApiError> {
        let Endpoints { chat_completions, responses, .. } = *endpoints;
        let (path, key) = match self {
            Self::Chat if !chat_completions => ("/v1/chat/completions", "chatCompletions"),
            Self::Responses if !responses => ("/v1/responses", "responses"),
            Self::Models | Self::Model(_) if !chat_completions && !responses => ("/v1/models", "chatCompletions"),
            Self::Unknown(path) => return Err(unknown_route(path)),
            Self::Chat | Self::Responses | Self::Models | Self::Model(_) | Self::Tools => return Ok(()),
        };
        let why = format!(
            "{path} is disabled; set gateway.http.endpoints.{key}.enabled to true in the config and restart the gateway"
        );
        Err(ApiError::new(StatusCode::NOT_FOUND, "not_found_error", why))
    }
}

fn unknown_route(path: &str) -> ApiError {
    let why = format!(
        "unknown path {path}; available are /v1/chat/completions, /v1/responses, /v1/models and /v1/models/<id>"
    );
    ApiError::new(StatusCode::NOT_FOUND, "not_found_error", why)
}

/// Handles a request to one of these routes.
pub(crate) async fn answer(
    server: Arc<ServerState>,
    peer: &AdmittedPeer,
    route: ApiRoute,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(allowed) = route.methods_if_not_allowed(&parts.method) {
        return method_not_allowed(&parts.method, parts.uri.path(), allowed);
    }
    if let Err(error) = authenticate(&server, peer, &parts.headers).and_then(|()| route.check(&server.routes.endpoints))
    {
        http_body::discard(body).await;
        return error.into_response();
    }
    serve(&server, route, &parts.headers, body).await.unwrap_or_else(IntoResponse::into_response)
}

async fn serve(
    server: &Arc<ServerState>,
    route: ApiRoute,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let agents = server.hub.agents();
    match route {
        ApiRoute::Models => Ok(reply(StatusCode::OK, &address::models(&agents))),
        ApiRoute::Model(name) => Ok(reply(StatusCode::OK, &address::one_model(&agents, &name)?)),
        ApiRoute::Unknown(path) => Err(unknown_route(&path)),
        ApiRoute::Tools => Ok(invoke::call(server, &read(body, MAX_BODY_BYTES).await?).await),
        ApiRoute::Chat => complete(server, headers, &read(body, MAX_BODY_BYTES).await?).await,
        ApiRoute::Responses => {
            respond(server, headers, &read(body, server.routes.endpoints.responses_body).await?).await
        }
    }
}

/// Returns an error response if a request lacks the shared secret.
pub(crate) fn auth_error(server: &ServerState, peer: &AdmittedPeer, headers: &HeaderMap) -> Option<Response> {
    authenticate(server, peer, headers).err().map(IntoResponse::into_response)
}

/// Checks the shared secret and marks the connection as authenticated.
fn authenticate(server: &ServerState, peer: &AdmittedPeer, headers: &HeaderMap) -> Result<(), ApiError> {
    let credentials = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.trim().split_once(' '));
    let bearer = credentials
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, secret)| secret.trim().to_owned());
    let (auth, address) = (Auth { token: bearer, ..Auth::default() }, peer.address());
    server.auth.check(&auth, address, Instant::now()).inspect_err(|_| {
        tracing::warn!(%address, "rejected an HTTP request");
    })?;
    peer.mark_authenticated();
    Ok(())
}

/// Reads a JSON body.
async fn read(body: Body, limit: usize) -> Result<Value, ApiError> {
    let too_large = || {
        let why = format!("the request exceeds the limit of {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", why)
    };
    if body.size_hint().lower() > limit as u64 {
        // The announced bytes may never arrive.
        http_body::discard(body).await;
        return Err(too_large());
    }
    let bytes = http_body::read(body, limit).await.map_err(|error| match error {
        BodyError::TooLarge => too_large(),
        BodyError::Broken(_) => ApiError::invalid(error.to_string()),
    })?;
    if nests_too_deep(&bytes) {
        return Err(ApiError::invalid(format!("the body nests deeper than {MAX_DEPTH} levels")));
    }
    let body = json::from_slice(&bytes).map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))?;
    if body.is_object() { Ok(body) } else { Err(ApiError::invalid("the body must be a JSON object")) }
}

async fn complete(server: &Arc<ServerState>, headers: &HeaderMap, body: &Value) -> Result<Response, ApiError> {
    let nonce = server.hub.ambient().nonce();
    let target = request_target(headers, body, "openai")?;
    let model = target.model.unwrap_or("openclaw").to_owned();
    let id = format!("chatcmpl_{nonce}");
    let run = start_run(server, RequestTarget { previous: None, ..target }, &id, &nonce, chat::read(body)?).await?;
    let has_usage = body["stream_options"]["include_usage"] == true;
    let completion = chat::ChatCompletion { id, created: now(server), model, has_usage };
    if body["stream"] == true {
        return Ok(sse::stream(run, completion));
    }
    Ok(reply(StatusCode::OK, &completion.completion(&run.end().await?)))
}

async fn respond(server: &Arc<ServerState>, headers: &HeaderMap, body: &Value) -> Result<Response, ApiError> {
    let nonce = server.hub.ambient().nonce();
    let target = request_target(headers, body, "openresponses")?;
    let model = target.model.unwrap_or("openclaw").to_owned();
    let id = format!("resp_{nonce}");
    let run = start_run(server, target, &id, &nonce, responses::read(body)?).await?;
    let builder = responses::ResponseBuilder::new(&id, &nonce, now(server), &model, body);
    if body["stream"] == true {
        return Ok(sse::stream(run, builder));
    }
    Ok(reply(StatusCode::OK, &builder.response(&run.end().await?)))
}

fn request_target<'a>(
    headers: &'a HeaderMap,
    body: &'a Value,
    key_prefix: &'static str,
) -> Result<RequestTarget<'a>, ApiError> {
    let text = |name: &str| text(&body[name], name);
    let is_referable = key_prefix == "openresponses" && body["store"] != false;
    let (model, user, previous) = (text("model")?, text("user")?, text("previous_response_id")?);
    Ok(RequestTarget { headers, model, user, previous, key_prefix, is_referable })
}

/// Starts the run that answers a request.
async fn start_run(
    server: &Arc<ServerState>,
    target: RequestTarget<'_>,
    id: &str,
    nonce: &str,
    mut request: ParsedRequest,
) -> Result<RunResponse, ApiError> {
    let address = target.find(server, nonce).await?;
    let history_state = match address.on_disconnect {
        OnDisconnect::Continue if request.has_answers() => known_history(server, &address.key).await?,
        OnDisconnect::Continue | OnDisconnect::Abort => HistoryState::Empty,
    };
    let (client_tools, thinking) = (std::mem::take(&mut request.tools), request.thinking.take());
    let field = request.messages_field;
    let now = server.hub.ambient().now_ms();
    let input = request.into_input(history_state, now).ok_or_else(|| ApiError::missing_message(field))?;
    let run = RunId::parse(id).map_err(|error| ApiError::failed(error.to_string()))?;
    let mut message = User::text(input.content.text, now);
    attach_images(&mut message, input.content.images, id).await?;
    client_results::attach(&mut message, input.results, input.remaining_text);
    let mut history = Vec::with_capacity(input.history.len());
    for HistoryMessage { mut message, images } in input.history {
        if let Message::User(user) = &mut message {
            attach_images(user, images, id).await?;
        }
        history.push(message);
    }
    let mut inbound = Inbound::plain(run, InboundSender::new(OWNER, HTTP), address.key, message);
    inbound.session.thinking = thinking;
    inbound.session.history = history;
    inbound.session.is_ephemeral = address.is_ephemeral;
    inbound.options.extra_prompt = input.system;
    inbound.options.client_tools = client_tools;
    // A run whose caller cannot reconnect is not resumed after a restart.
    inbound.options.reports_restart = address.on_disconnect == OnDisconnect::Abort;
    RunResponse::begin(server, inbound, address.on_disconnect).await
}

/// Attaches images to a message.
async fn attach_images(message: &mut User, images: Vec<String>, id: &str) -> Result<(), ApiError> {
    let attachments = images.into_iter();
    let attachments =
        attachments.map(|data| Attachment { name: None, mime: Some("image/*".to_owned()), content: Some(data) });
    // Declared as images, so none is stored as a file.
    let opened = attachments::open_all(attachments.collect(), None, id).await;
    opened.map_err(|error| ApiError::invalid(error.message))?.attach_to(message);
    Ok(())
}

/// Determines whether a session already contains the conversation that a request repeats.
async fn known_history(server: &ServerState, key: &SessionKey) -> Result<HistoryState, ApiError> {
    let history = server.hub.sessions().history(key).await.map_err(|error| ApiError::failed(error.to_string()))?;
    let is_new = history.is_none_or(|(_, messages)| messages.is_empty());
    Ok(if is_new { HistoryState::Empty } else { HistoryState::Complete })
}

fn now(server: &ServerState) -> u64 {
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
    while let [first, after @ ..] = rest {
        let decoded = match (first, after) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
