//! Plugin routes: RPC methods and HTTP paths that plugins add. The gateway does not know the plugins behind them.

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

/// Default maximum size of a request body for a plugin route.
const BODY: usize = 5 * 1024 * 1024;
/// Time a request body has to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Methods and HTTP routes that plugins add to the gateway. They may change while the gateway runs.
#[async_trait]
pub trait Foreign: std::fmt::Debug + Send + Sync {
    /// Returns the names of the plugins' methods.
    fn methods(&self) -> Vec<String>;

    /// Returns the scope that a method requires; `None` if no plugin has the method.
    fn needs(&self, method: &str) -> Option<Scope>;

    /// Calls a method. `client` describes the caller.
    async fn call(&self, method: &str, params: Value, client: Value) -> Result<Value, ErrorShape>;

    /// Returns how a path is authenticated; `None` if no plugin may serve it.
    fn door(&self, path: &str) -> Option<Door>;

    /// Returns the maximum size of a request body at this path.
    fn largest(&self, _path: &str) -> usize {
        BODY
    }

    /// Handles a request; `None` if no plugin serves it.
    async fn answer(&self, asked: HttpAsked) -> Option<HttpAnswered>;
}

/// Authentication of a plugin route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The gateway requires its shared secret.
    Guarded,
    /// The gateway requires nothing; the plugin authenticates the request itself.
    Open,
}

/// An HTTP request to a plugin route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAsked {
    /// HTTP method, such as `POST`.
    pub method: String,
    /// Path and query.
    pub url: String,
    /// Headers, without those that contain the gateway's secret.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Vec<u8>,
    /// Address of the client.
    pub from: IpAddr,
}

/// An HTTP response of a plugin route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswered {
    /// HTTP status code.
    pub status: u16,
    /// Response headers.
    pub headers: Vec<(String, String)>,
    /// Response body.
    pub body: Vec<u8>,
}

/// Finds the plugin route of a path.
pub(crate) fn door(server: &Server, path: &str) -> Option<(Arc<dyn Foreign>, Door)> {
    let foreign = server.foreign.clone()?;
    let door = foreign.door(path)?;
    Some((foreign, door))
}

/// Forwards a request to a plugin and returns its response.
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
        // The byte allowance of this request must not be usable by the next one on the connection.
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

/// Reads a body of at most `limit` bytes. The sender may be unauthenticated, so the announced length is checked first
/// and its bytes are reserved from the shared pool.
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
    // The secret is meant for the gateway, not for plugins.
    let headers = headers.filter(|(_, value)| !server.bouncer.is_in(value)).collect();
    HttpAsked { method: parts.method.to_string(), url: parts.uri.to_string(), headers, body, from }
}

fn written(answered: HttpAnswered) -> Response {
    let mut response = Response::new(Body::from(answered.body));
    *response.status_mut() = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in answered.headers {
        // The length is computed from the body; invalid headers are dropped.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
            && name != CONTENT_LENGTH
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}
