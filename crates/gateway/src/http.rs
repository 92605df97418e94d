//! HTTP entry point: liveness and readiness probes, and dispatch to the WebSocket, webhooks, OpenAI-compatible
//! endpoints, plugin routes and the control UI.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, FromRequestParts, Request, State, WebSocketUpgrade},
    http::{
        HeaderValue, Method, StatusCode,
        header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, UPGRADE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_agent::hub::RunProgress;
use homard_proto::Generation;
use serde_json::{Value, json};

use crate::{
    connection::{self, AdmittedPeer},
    control_ui, hello, metrics, openai,
    origin_check::{self, ConnectionAddrs},
    plugin_routes,
    preauth::PeerInfo,
    server::ServerState,
    webhooks::{self, WebhookContext},
};

/// Read buffer per connection, which is held for its lifetime; longer messages get a buffer of their own.
const READ_BUFFER: usize = 4_096;

/// Time the journal may take for a pending commit before it counts as failing.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds the HTTP application.
pub(crate) fn app(server: Arc<ServerState>) -> Router {
    Router::new().fallback(answer).with_state(server)
}

async fn answer(
    State(server): State<Arc<ServerState>>,
    ConnectInfo(peer): ConnectInfo<PeerInfo>,
    request: Request,
) -> Response {
    let (client, local) = (peer.0.address(), peer.0.local());
    let addresses = ConnectionAddrs { peer: client.ip(), local: local.ip(), port: local.port() };
    let origin = match origin_check::check(request.headers(), addresses, &server.origin_rules) {
        Ok(origin) => origin,
        Err(refused) => {
            tracing::warn!(%refused, host = ?request.headers().get("host"),
                origin = ?request.headers().get("origin"),
                "rejected a request");
            return (StatusCode::FORBIDDEN, refused.to_string()).into_response();
        }
    };
    if !origin.is_proxied {
        return dispatch(server, AdmittedPeer { connection: peer.0, origin }, request).await;
    }
    server.preauth.set_client(&peer.0, origin.address);
    let mut response = dispatch(server, AdmittedPeer { connection: peer.0, origin }, request).await;
    // The next request on a proxy's connection may belong to another client, who is not authenticated by this one.
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Dispatches a request by path.
async fn dispatch(server: Arc<ServerState>, peer: AdmittedPeer, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    match parts.uri.path() {
        "/health" | "/healthz" => probe(&parts, StatusCode::OK, &json!({"ok": true, "status": "live"})),
        "/ready" | "/readyz" => {
            let failing = failing(&server).await;
            let is_ready = failing.is_empty();
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            probe(&parts, status, &json!({"ready": is_ready, "failing": failing, "uptimeMs": server.uptime_ms()}))
        }
        "/metrics" => metrics::answer(&server, &peer, &parts).await,
        _ if parts.headers.contains_key(UPGRADE) => upgrade(server, peer, &mut parts).await,
        path => {
            if let Some((webhooks, route)) = server
                .routes
                .webhooks
                .clone()
                .and_then(|webhooks| webhooks.route_path(path).map(|route| (webhooks, route)))
            {
                let context = WebhookContext { server, hooks: webhooks };
                return webhooks::answer(context, &peer, route, Request::from_parts(parts, body)).await;
            }
            if let Some(route) = openai::ApiRoute::of_path(path) {
                return openai::answer(server, &peer, route, Request::from_parts(parts, body)).await;
            }
            match plugin_routes::find_route(&server, path) {
                Some(plugin_route) => {
                    plugin_routes::answer(&server, plugin_route, &peer, Request::from_parts(parts, body)).await
                }
                None => control_ui::answer(&server, &peer, &parts).await,
            }
        }
    }
}

/// Returns the components that are failing, each once. Recovery of unfinished runs is not among them: it completes
/// before the first request is served.
async fn failing(server: &ServerState) -> Vec<&'static str> {
    if server.stop.is_cancelled() || server.hub.lifecycle().is_draining() {
        return vec!["stopping"];
    }
    let mut failing = Vec::new();
    if !server.hub.lifecycle().is_storing(JOURNAL_TIMEOUT).await {
        failing.push("journal");
    }
    if server.hub.runs().live().iter().any(|run| run.progress == RunProgress::Stuck) {
        failing.push("lane");
    }
    for outage in server.monitoring.outages.as_ref().map(|outages| outages()).unwrap_or_default() {
        if outage.prevents_service() && !failing.contains(&outage.part) {
            failing.push(outage.part);
        }
    }
    failing
}

fn probe(parts: &Parts, status: StatusCode, body: &Value) -> Response {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], "Method Not Allowed").into_response();
    }
    let headers = [
        (CONTENT_TYPE, "application/json; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body.to_string()).into_response()
}

/// Upgrades to a WebSocket on any path, without sub-protocol and compression.
async fn upgrade(server: Arc<ServerState>, peer: AdmittedPeer, parts: &mut Parts) -> Response {
    let upgrade = match WebSocketUpgrade::from_request_parts(parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    // The limit of protocol 4, because it cannot be changed later. Unauthenticated peers are bounded by the
    // pre-authentication limits (`preauth`), clients of protocol 3 by the connection.
    let limit = hello::max_frame(Generation::Four);
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit).read_buffer_size(READ_BUFFER);
    // Taken now, so that the server cannot shut down between the upgrade and the connection.
    let token = server.connections.token();
    upgrade.on_upgrade(move |socket| async move {
        // Boxed: otherwise the future's size would be added to each of the layers around it.
        Box::pin(connection::run(server, socket, peer)).await;
        drop(token);
    })
}
