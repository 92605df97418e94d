//! What plugins add to the gateway: methods, and paths over HTTP. Who they are, the gateway does not know.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_LENGTH},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_proto::ErrorShape;
use serde_json::Value;
use tokio::time::timeout;

use crate::{connection::Visitor, openai, scope::Scope, server::Server};

/// How large the body of a request for a plugin may be.
const BODY: usize = 5 * 1024 * 1024;
/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// What plugins add to the gateway. It may change while the gateway is at work.
#[async_trait]
pub trait Foreign: std::fmt::Debug + Send + Sync {
    /// The names of their methods.
    fn methods(&self) -> Vec<String>;

    /// What a method needs, if they have it.
    fn needs(&self, method: &str) -> Option<Scope>;

    /// Answers a method. `client` says who asks.
    async fn call(&self, method: &str, params: Value, client: Value) -> Result<Value, ErrorShape>;

    /// Whether somebody may answer at this path, and whether whoever asks must show the gateway's secret first.
    fn door(&self, path: &str) -> Option<Door>;

    /// How large the body of a request may be at this path.
    fn largest(&self, _path: &str) -> usize {
        BODY
    }

    /// Answers a request; `None` if it was not for them after all.
    async fn answer(&self, asked: HttpAsked) -> Option<HttpAnswered>;
}

/// How one comes in at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// With the gateway's secret.
    Guarded,
    /// As one is: the plugin looks who comes.
    Open,
}

/// A request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAsked {
    /// Such as `POST`.
    pub method: String,
    /// The path and what follows it.
    pub url: String,
    /// The headers, without the gateway's secret.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Who asks.
    pub from: IpAddr,
}

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswered {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The door at a path, if there is one.
pub(crate) fn door(server: &Server, path: &str) -> Option<(Arc<dyn Foreign>, Door)> {
    let foreign = server.foreign.clone()?;
    let door = foreign.door(path)?;
    Some((foreign, door))
}

/// Has a plugin answer.
pub(crate) async fn answer(
    server: &Server,
    (foreign, door): (Arc<dyn Foreign>, Door),
    visitor: &Visitor,
    (parts, body): (Parts, Body),
) -> Response {
    if door == Door::Guarded
        && let Some(refusal) = openai::turned_away(server, visitor, &parts.headers)
    {
        return refusal;
    }
    let mut response = led((server, visitor), &*foreign, (parts, body)).await;
    if door == Door::Open {
        // The room that was lent for this request is not for the next one.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn led((server, visitor): (&Server, &Visitor), foreign: &dyn Foreign, (parts, body): (Parts, Body)) -> Response {
    let from = visitor.address();
    let body = match read(server, visitor, foreign.largest(parts.uri.path()), (&parts, body)).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    match foreign.answer(asked(server, &parts, from, body.to_vec())).await {
        Some(answered) => written(answered),
        None => (StatusCode::NOT_FOUND, "Not Found").into_response(),
    }
}

/// Reads a body of at most so many bytes. Whoever sends it may be a stranger, so what is announced is looked at first, and
/// room for it is lent.
async fn read(
    server: &Server,
    visitor: &Visitor,
    limit: usize,
    (parts, body): (&Parts, Body),
) -> Result<Bytes, (StatusCode, &'static str)> {
    const TOO_LARGE: (StatusCode, &str) = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = if body.is_end_stream() { 0 } else { length.unwrap_or(limit) };
    if length > limit {
        return Err(TOO_LARGE);
    }
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "too much comes in at once; try again\n");
    let _lent = server.lobby.lend(&visitor.guest, length).ok_or(busy)?;
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "the body took too long to come\n");
    timeout(PATIENCE, to_bytes(body, limit)).await.map_err(late)?.map_err(|_too_large| TOO_LARGE)
}

fn asked(server: &Server, parts: &Parts, from: IpAddr, body: Vec<u8>) -> HttpAsked {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    // Whoever showed the gateway's secret showed it to the gateway.
    let headers = headers.filter(|(_, value)| !server.bouncer.is_in(value)).collect();
    HttpAsked { method: parts.method.to_string(), url: parts.uri.to_string(), headers, body, from }
}

fn written(answered: HttpAnswered) -> Response {
    let mut response = Response::new(Body::from(answered.body));
    *response.status_mut() = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in answered.headers {
        // The length is what it is, and a header that is none is left out.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
            && name != CONTENT_LENGTH
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}
