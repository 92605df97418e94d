//! Plugin routes: RPC methods and HTTP paths that plugins add. The gateway does not know the plugins behind them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::Request,
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

use crate::{connection::AdmittedPeer, openai, scope::Scope, server::ServerState};

/// Default maximum size of a request body for a plugin route.
const DEFAULT_MAX_BODY: usize = 5 * 1024 * 1024;
/// Time a request body has to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Methods and HTTP routes that plugins add to the gateway. They may change while the gateway runs.
#[async_trait]
pub trait PluginEndpoints: std::fmt::Debug + Send + Sync {
    /// Returns the names of the plugins' methods.
    fn methods(&self) -> Vec<String>;

    /// Returns the scope that a method requires; `None` if no plugin has the method.
    fn required_scope(&self, method: &str) -> Option<Scope>;

    /// Calls a method. `client` describes the caller.
    async fn call(&self, method: &str, params: Value, client: Value) -> Result<Value, ErrorShape>;

    /// Returns how a path is authenticated; `None` if no plugin may serve it.
    fn route_auth(&self, path: &str) -> Option<RouteAuth>;

    /// Returns the maximum size of a request body at this path.
    fn max_body(&self, _path: &str) -> usize {
        DEFAULT_MAX_BODY
    }

    /// Handles a request; `None` if no plugin serves it.
    async fn handle(&self, request: PluginHttpRequest) -> Option<PluginHttpResponse>;
}

/// Authentication of a plugin route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAuth {
    /// The gateway requires its shared secret.
    Gateway,
    /// The gateway requires nothing; the plugin authenticates the request itself.
    Plugin,
}

/// An HTTP request to a plugin route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginHttpRequest {
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
pub struct PluginHttpResponse {
    /// HTTP status code.
    pub status: u16,
    /// Response headers.
    pub headers: Vec<(String, String)>,
    /// Response body.
    pub body: Vec<u8>,
}

/// A route of a plugin.
pub(crate) struct PluginRoute {
    plugins: Arc<dyn PluginEndpoints>,
    auth: RouteAuth,
}

/// Finds the plugin route of a path.
pub(crate) fn find_route(server: &ServerState, path: &str) -> Option<PluginRoute> {
    let plugins = server.routes.plugins.clone()?;
    let auth = plugins.route_auth(path)?;
    Some(PluginRoute { plugins, auth })
}

/// Forwards a request to a plugin and returns its response.
pub(crate) async fn answer(
    server: &ServerState,
    route: PluginRoute,
    peer: &AdmittedPeer,
    request: Request,
) -> Response {
    if route.auth == RouteAuth::Gateway
        && let Some(error_response) = openai::auth_error(server, peer, request.headers())
    {
        return error_response;
    }
    let mut response = forward(server, peer, &*route.plugins, request).await;
    if route.auth == RouteAuth::Plugin {
        // The byte allowance of this request must not be usable by the next one on the connection.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn forward(
    server: &ServerState,
    peer: &AdmittedPeer,
    plugins: &dyn PluginEndpoints,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let address = peer.address();
    let body = match read(server, peer, plugins.max_body(parts.uri.path()), &parts, body).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    match plugins.handle(plugin_request(server, &parts, address, body.to_vec())).await {
        Some(response) => http_response(response),
        None => (StatusCode::NOT_FOUND, "Not Found").into_response(),
    }
}

/// Reads a body of at most `limit` bytes. The sender may be unauthenticated, so the announced length is checked first
/// and its bytes are reserved from the shared pool.
async fn read(
    server: &ServerState,
    peer: &AdmittedPeer,
    limit: usize,
    parts: &Parts,
    body: Body,
) -> Result<Bytes, (StatusCode, &'static str)> {
    const TOO_LARGE: (StatusCode, &str) = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = if body.is_end_stream() { 0 } else { length.unwrap_or(limit) };
    if length > limit {
        return Err(TOO_LARGE);
    }
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "too many request bodies are being received; try again\n");
    let _reservation = server.preauth.reserve(&peer.connection, length).ok_or(busy)?;
    let timed_out = |_| (StatusCode::REQUEST_TIMEOUT, "timed out while reading the body\n");
    timeout(BODY_TIMEOUT, to_bytes(body, limit)).await.map_err(timed_out)?.map_err(|_too_large| TOO_LARGE)
}

fn plugin_request(server: &ServerState, parts: &Parts, from: IpAddr, body: Vec<u8>) -> PluginHttpRequest {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    // The secret is meant for the gateway, not for plugins.
    let headers = headers.filter(|(_, value)| !server.auth.occurs_in(value)).collect();
    PluginHttpRequest { method: parts.method.to_string(), url: parts.uri.to_string(), headers, body, from }
}

fn http_response(plugin_response: PluginHttpResponse) -> Response {
    let mut response = Response::new(Body::from(plugin_response.body));
    *response.status_mut() = StatusCode::from_u16(plugin_response.status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in plugin_response.headers {
        // The length is computed from the body; invalid headers are dropped.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
            && name != CONTENT_LENGTH
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}
