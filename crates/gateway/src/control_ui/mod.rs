//! Serves Homard's own page, and the Control UI of an OpenClaw installation if one is configured.
//!
//! The files are public; all actions go through the authenticated WebSocket. The content security policy lets a page
//! load files and open connections from this gateway only (`connect-src`), so that a crafted link cannot make it send
//! its token elsewhere.

mod directory;
mod own_page;
mod page_files;
mod policy;

pub use directory::{ControlUi, ControlUiError};
pub(crate) use own_page::{OwnPage, PREFIX as OWN_PAGE_PREFIX};

use std::sync::Arc;

use axum::{
    http::{
        HeaderName, HeaderValue, Method, StatusCode,
        header::{
            ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_proto::method::connect::Auth;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{connection::AdmittedPeer, methods::agents, server::ServerState};

/// Paths from which a page reads its settings before it connects.
const SETTINGS_PATHS: [&str; 3] =
    ["/control-ui-config.json", "/__openclaw/control-ui-config.json", "/__openclaw__/control-ui-config.json"];

/// Serves a page or one of its files.
pub(crate) async fn answer(server: &Arc<ServerState>, peer: &AdmittedPeer, parts: &Parts) -> Response {
    let path = parts.uri.path();
    let own = path.strip_prefix(own_page::PREFIX).or_else(|| match server.routes.control_ui {
        Some(_) => None,
        None => path.strip_prefix('/'),
    });
    let is_redirect = path == own_page::PREFIX.trim_end_matches('/');
    let own = own.filter(|_| !is_redirect).and_then(|name| server.routes.own_page.answer(name, parts));
    let is_page = server.routes.control_ui.is_some() || own.is_some() || is_redirect;
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return match is_page {
            true => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], "Method Not Allowed").into_response(),
            false => not_found(),
        };
    }
    if is_redirect {
        return own_page::redirect();
    }
    if let Some(response) = own {
        return response;
    }
    match &server.routes.control_ui {
        Some(_) if SETTINGS_PATHS.contains(&path) => settings(server, peer, parts),
        // Avatars of agents are not supported.
        Some(_) if path.starts_with("/avatar/") => json_response(StatusCode::OK, &json!({"avatarUrl": null})),
        Some(directory) => match directory.find(path).await {
            Some(file) => page(file.kind, &file.policy, file.bytes),
            None => not_found(),
        },
        None => not_found(),
    }
}

/// Returns the page's settings to authenticated clients.
fn settings(server: &ServerState, peer: &AdmittedPeer, parts: &Parts) -> Response {
    let bearer = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = bearer else {
        return json_response(StatusCode::UNAUTHORIZED, &unauthorized("send the gateway's token as a bearer token"));
    };
    let auth = Auth { token: Some(token.to_owned()), ..Auth::default() };
    // A page may authenticate with its device token here, too.
    let has_device_token = || server.devices.has_token(token).then_some(());
    if let Err(auth_error) = server.auth.authenticate(&auth, peer.address(), Instant::now(), has_device_token) {
        let auth_error = auth_error.error(homard_proto::Generation::Four);
        return json_response(StatusCode::UNAUTHORIZED, &unauthorized(&auth_error.message));
    }
    let agents = server.hub.agents();
    let assistant = agents::identity_json(&agents, agents.default_id());
    json_response(
        StatusCode::OK,
        &json!({
            "basePath": "", "assistantName": assistant["name"], "assistantAvatar": assistant["avatar"],
            "assistantAgentId": agents.default_id(), "serverVersion": env!("CARGO_PKG_VERSION"),
            "embedSandbox": "scripts", "allowExternalEmbedUrls": false, "terminalEnabled": false,
            "cliAgentsEnabled": false, "pluginAssetsRequireAuth": true, "pluginFrameGrants": [],
        }),
    )
}

fn unauthorized(why: &str) -> Value {
    json!({"error": {"message": why, "type": "unauthorized"}})
}

/// Headers of all responses of this module.
fn security_headers() -> [(HeaderName, HeaderValue); 5] {
    [
        // A new version of a page must not be combined with cached parts of an old one.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ]
}

fn page(kind: &'static str, policy: &str, bytes: Vec<u8>) -> Response {
    // Contains hashes and fixed text only.
    let policy = HeaderValue::from_str(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(kind)), (CONTENT_SECURITY_POLICY, policy)];
    (security_headers(), headers, bytes).into_response()
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json; charset=utf-8"), (VARY, "Authorization")];
    (status, security_headers(), headers, body.to_string()).into_response()
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, security_headers(), "Not Found").into_response()
}
