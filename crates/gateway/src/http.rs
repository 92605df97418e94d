//! The HTTP side: is it alive, is it ready, and the doors to the WebSocket, to webhooks and to what speaks OpenAI's words.

use std::sync::Arc;

use axum::{
    Router,
    extract::{ConnectInfo, FromRequestParts, Request, State, WebSocketUpgrade},
    http::{
        Method, StatusCode,
        header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, UPGRADE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_proto::Generation;
use serde_json::{Value, json};

use crate::{
    admit,
    connection::{self, Visitor},
    control_ui, foreign, hello,
    lobby::Peer,
    openai,
    server::Server,
    webhooks,
};

/// Everything that is answered over HTTP.
pub(crate) fn app(server: Arc<Server>) -> Router {
    Router::new().fallback(answer).with_state(server)
}

async fn answer(State(server): State<Arc<Server>>, ConnectInfo(peer): ConnectInfo<Peer>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let knock = match admit::check(&parts.headers, peer.0.address().ip(), &server.rules) {
        Ok(knock) => knock,
        Err(refused) => {
            tracing::warn!(%refused, host = ?parts.headers.get("host"), origin = ?parts.headers.get("origin"),
                "a request was turned away");
            return (StatusCode::FORBIDDEN, refused.to_string()).into_response();
        }
    };
    match parts.uri.path() {
        "/health" | "/healthz" => probe(&parts, StatusCode::OK, &json!({"ok": true, "status": "live"})),
        "/ready" | "/readyz" => {
            let is_ready = !server.stop.is_cancelled();
            let failing: &[&str] = if is_ready { &[] } else { &["stopping"] };
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            probe(&parts, status, &json!({"ready": is_ready, "failing": failing, "uptimeMs": server.uptime_ms()}))
        }
        _ if parts.headers.contains_key(UPGRADE) => upgrade(server, Visitor { guest: peer.0, knock }, &mut parts).await,
        path => {
            if let Some((hooks, place)) =
                server.webhooks.clone().and_then(|hooks| hooks.place(path).map(|place| (hooks, place)))
            {
                return webhooks::answer((server, hooks), &peer.0, place, (parts, body)).await;
            }
            if let Some(place) = openai::Place::at(path) {
                return openai::answer(server, &peer.0, place, (parts, body)).await;
            }
            match foreign::door(&server, path) {
                Some(door) => foreign::answer(&server, door, &peer.0, (parts, body)).await,
                None => control_ui::answer(&server, &peer.0, &parts).await,
            }
        }
    }
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

/// Any path will do; neither a sub-protocol nor compression is agreed on.
async fn upgrade(server: Arc<Server>, visitor: Visitor, parts: &mut Parts) -> Response {
    let upgrade = match WebSocketUpgrade::from_request_parts(parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    // The limit of the larger generation: it cannot be changed later. The lobby bounds strangers, the connection the
    // smaller generation.
    let limit = hello::max_frame(Generation::Four);
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit).read_buffer_size(16_384);
    // Held from here, so that the server cannot stop between the upgrade and the connection.
    let token = server.connections.token();
    upgrade.on_upgrade(move |socket| async move {
        connection::run(server, socket, visitor).await;
        drop(token);
    })
}
