//! Inbound webhooks: other programs wake an agent or start a run.
//!
//! A request carries the webhooks' own token, which is checked before its body is read (`request`). `/wake` and
//! `/agent` describe the action themselves; for any other path a [`Mapping`] does (`mapping`, `template`). Either way
//! the result is an [`action`]: a text for the main session (`wake`), or a separate run (`run`) whose result is
//! reported to the main session (`pending`). Repeated requests are recognised by their idempotency key (`dedupe_key`),
//! also after a restart: the run id is derived from the key, and run ids are claimed on disk.

mod action;
mod dedupe_key;
mod mapping;
mod pending;
mod rejection;
mod request;
mod run;
mod template;
mod wake;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    extract::Request,
    http::{
        Method, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_audit::Audit;
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use self::{
    action::{FieldOrigin, WebhookAction},
    dedupe_key::DedupeKey,
    rejection::WebhookRejection,
    request::WebhookRequest,
};
use crate::{
    auth::{AuthLimiter, Secret},
    connection::AdmittedPeer,
    http_body,
    server::ServerState,
};

pub use mapping::{Mapping, MappingAction, Transform};
pub(crate) use run::resume_reports;
pub use template::Template;

/// Timeout of a transform.
const TRANSFORM_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of webhooks. They require a token.
#[derive(Clone)]
pub struct Webhooks {
    token: Secret,
    path: String,
    /// Maximum body size in bytes.
    pub max_body: usize,
    /// Session of requests that name none; if not set, each of their runs has its own session.
    pub default_session_key: Option<String>,
    /// Allow requests to name their session.
    pub allow_request_session_key: bool,
    /// Allowed prefixes of named session keys; any if not set.
    pub allowed_session_key_prefixes: Option<Vec<String>>,
    /// Agents that may be named besides the default one; all if not set or if it contains `*`.
    pub allowed_agent_ids: Option<Vec<String>>,
    /// Mappings for other paths; the first match applies.
    pub mappings: Vec<Mapping>,
    /// Runs the transforms of mappings; if not set, requests to mappings with a transform are rejected.
    pub transformer: Option<Arc<dyn Transformer>>,
}

/// Executes the transform modules that mappings name.
#[async_trait]
pub trait Transformer: Send + Sync {
    /// Calls a module with a request, which is `{payload, headers, url, path}`. Returns an object whose members
    /// override the mapping's, or `null` to do nothing. The future is dropped when it takes too long.
    async fn transform(&self, transform: &Transform, request: Value) -> Result<Value, String>;
}

/// Why webhooks cannot be enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The token is missing.
    #[error("hooks.token is missing; webhooks require a separate token")]
    NoToken,
    /// The path would hide the gateway's other routes.
    #[error("hooks.path must be a dedicated path, such as /hooks, not {0:?}")]
    Path(String),
}

impl Webhooks {
    /// Creates settings for webhooks below a path, with a token.
    pub fn new(token: &str, path: &str) -> Result<Self, WebhookError> {
        let token = Secret::new(Some(token.trim().to_owned()), None);
        if token.is_empty() {
            return Err(WebhookError::NoToken);
        }
        let base = path.trim().trim_matches('/');
        let is_plain = base.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.~".contains(c));
        // Routes of the gateway itself cannot be used.
        let is_reserved = matches!(
            base.split('/').next(),
            Some("health" | "healthz" | "ready" | "readyz" | "v1" | "tools" | "channels" | "metrics")
        );
        if base.is_empty() || !is_plain || is_reserved || base.split('/').any(|part| part.trim_matches('.').is_empty())
        {
            return Err(WebhookError::Path(path.to_owned()));
        }
        Ok(Self {
            token,
            path: format!("/{base}"),
            max_body: 256 * 1024,
            default_session_key: None,
            allow_request_session_key: false,
            allowed_session_key_prefixes: None,
            allowed_agent_ids: None,
            mappings: Vec::new(),
            transformer: None,
        })
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").field("path", &self.path).field("mappings", &self.mappings).finish_non_exhaustive()
    }
}

/// Running webhooks.
#[derive(Debug)]
pub(crate) struct WebhookServer {
    settings: Webhooks,
    /// Separate from the gateway's own limiter, so that guesses here cannot lock the owner out there.
    auth: AuthLimiter,
    /// Held while webhook data in a main session's record is changed.
    record_lock: Mutex<()>,
}

impl WebhookServer {
    pub(crate) fn new(settings: Webhooks, audit: Audit) -> Self {
        Self {
            auth: AuthLimiter::new(settings.token.clone()).with_audit(audit),
            settings,
            record_lock: Mutex::default(),
        }
    }

    /// Returns the part of a request path after the path of the webhooks, without slashes; `None` for any other path.
    pub(crate) fn route_path(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.settings.path)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_matches('/').to_owned())
    }

    /// True if this path, relative to that of the webhooks, has an action or a mapping.
    fn has_route(&self, path: &str) -> bool {
        matches!(path, "wake" | "agent")
            || (!path.is_empty() && self.settings.mappings.iter().any(|mapping| mapping.matches_path(path)))
    }
}

/// What the handling of a webhook needs.
#[derive(Clone)]
pub(crate) struct WebhookContext {
    pub(crate) server: Arc<ServerState>,
    pub(crate) hooks: Arc<WebhookServer>,
}

/// Handles a webhook request. `path` is relative to the path of the webhooks.
pub(crate) async fn answer(context: WebhookContext, peer: &AdmittedPeer, path: String, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(rejection) = context.hooks.authorise(peer, &parts, &path) {
        http_body::discard(body).await;
        return rejection.into_response();
    }
    let request = match request::read(&parts, body, path, context.hooks.settings.max_body).await {
        Ok(request) => request,
        Err(rejection) => return rejection.into_response(),
    };
    let connection_token = context.server.connections.token();
    // In a task of its own, so that a disconnecting sender does not interrupt it.
    let action_task = task::spawn("webhook", async move {
        let result = context.perform(request).await;
        drop(connection_token);
        result
    });
    match action_task.await {
        Ok(result) => result.unwrap_or_else(IntoResponse::into_response),
        Err(_) => WebhookRejection::new(StatusCode::INTERNAL_SERVER_ERROR, "the webhook failed with an internal error")
            .into_response(),
    }
}

impl WebhookServer {
    /// Checks the token and the path, and marks the connection as authenticated.
    fn authorise(&self, peer: &AdmittedPeer, parts: &Parts, path: &str) -> Result<(), WebhookRejection> {
        if request::query(&parts.uri).contains_key("token") {
            return Err(WebhookRejection::invalid(
                "tokens in the URL end up in logs; send the token in the header \"Authorization: Bearer …\" or \
                 \"x-openclaw-token\"",
            ));
        }
        let (auth, address) = (request::request_token(&parts.headers), peer.address());
        self.auth.check(&auth, address, Instant::now()).inspect_err(|_| {
            tracing::warn!(%address, "rejected a webhook request");
        })?;
        peer.mark_authenticated();
        if parts.method != Method::POST {
            return Err(WebhookRejection::method_not_allowed());
        }
        if self.has_route(path) { Ok(()) } else { Err(WebhookRejection::not_found()) }
    }

    /// Builds the action of a request to a custom path, from the first [`Mapping`] that matches its path and body.
    ///
    /// The mapping's templates are filled with values of the request. Its transform, a JavaScript function, may then
    /// override the resulting fields. Returns `None` if the transform returned `null`: the request has no effect.
    async fn apply_mapping(
        &self,
        request: &WebhookRequest,
        now: &str,
    ) -> Result<Option<WebhookAction>, WebhookRejection> {
        let is_match =
            |mapping: &&Mapping| mapping.matches_path(&request.path) && mapping.matches_source(&request.payload);
        let mapping = self.settings.mappings.iter().find(is_match).ok_or_else(WebhookRejection::not_found)?;
        let mut fields = mapping.fill(request.template_values(now));
        if let Some(transform) = &mapping.transform {
            match self.run_transform(transform, request.transform_input()).await? {
                Value::Null => return Ok(None),
                Value::Object(changes) => fields.extend(changes.into_iter().filter(|(_, value)| !value.is_null())),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(failed(transform, "must return an object or null"));
                }
            }
        }
        mapping.parse_action(&fields).map(Some)
    }

    /// Runs a transform with a timeout. Returns the fields to override, or `null`.
    async fn run_transform(&self, transform: &Transform, request: Value) -> Result<Value, WebhookRejection> {
        // The transform may be a filter, so the request must not pass without it.
        let Some(transformer) = &self.settings.transformer else {
            return Err(WebhookRejection::new(
                StatusCode::NOT_IMPLEMENTED,
                "this mapping has a transform, which requires Node",
            ));
        };
        match timeout(TRANSFORM_TIMEOUT, transformer.transform(transform, request)).await {
            Ok(Ok(changes)) => Ok(changes),
            Ok(Err(why)) => {
                tracing::warn!(module = transform.module, why, "webhook transform failed");
                Err(failed(transform, "failed; see the gateway's log"))
            }
            Err(_) => Err(failed(transform, &format!("took longer than {} seconds", TRANSFORM_TIMEOUT.as_secs()))),
        }
    }
}

impl WebhookContext {
    /// Performs the requested action.
    async fn perform(&self, request: WebhookRequest) -> Result<Response, WebhookRejection> {
        let now = homard_runtime::ambient::iso(self.server.hub.ambient().now_ms());
        let action = match request.path.as_str() {
            "wake" => WebhookAction::wake(request.object()?, FieldOrigin::Request)?,
            "agent" => WebhookAction::agent(request.object()?, FieldOrigin::Request)?,
            _ => match self.hooks.apply_mapping(&request, &now).await? {
                Some(action) => action,
                None => return Ok(StatusCode::NO_CONTENT.into_response()),
            },
        };
        match action {
            WebhookAction::Wake(wake) => {
                let dedupe_key = DedupeKey::of(wake.family.as_str(), wake.key.as_ref(), &request)?;
                let mode = wake::send(self, &wake, dedupe_key.as_ref()).await?;
                Ok(reply(StatusCode::OK, &json!({"ok": true, "mode": mode})))
            }
            WebhookAction::Agent(job) => {
                let dedupe_key = DedupeKey::of(job.family.as_str(), job.key.as_ref(), &request)?;
                let run = run::start(self, *job, dedupe_key).await?;
                Ok(reply(StatusCode::ACCEPTED, &json!({"ok": true, "runId": run})))
            }
        }
    }
}

fn failed(transform: &Transform, why: &str) -> WebhookRejection {
    WebhookRejection::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the transform {} {why}", transform.module))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_webhooks_without_a_token_or_at_the_root() {
        for blank in ["", " ", "\t"] {
            assert_eq!(Webhooks::new(blank, "/hooks").unwrap_err(), WebhookError::NoToken);
        }
        for path in [
            "/",
            "",
            "//",
            "/health",
            "v1/",
            "/v1/hooks",
            "/tools",
            "/channels",
            "/metrics",
            "/a b",
            "/a?b",
            "/..",
            "/a//b",
            "/a/./b",
        ] {
            assert_eq!(Webhooks::new("t", path).unwrap_err(), WebhookError::Path(path.to_owned()), "{path}");
        }
        let hooks = Webhooks::new("hunter2", "in/hooks/").unwrap();
        assert_eq!((hooks.path.as_str(), hooks.max_body), ("/in/hooks", 262_144));
        assert!(!format!("{hooks:?} {:?}", WebhookServer::new(hooks.clone(), Audit::default())).contains("hunter2"));
    }

    struct Stuck;

    #[async_trait]
    impl Transformer for Stuck {
        async fn transform(&self, _: &Transform, _: Value) -> Result<Value, String> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transform_that_hangs_is_left_behind() {
        let mut settings = Webhooks::new("t", "/hooks").unwrap();
        settings.transformer = Some(Arc::new(Stuck));
        let transform = Transform { module: "x.mjs".to_owned(), export: None };
        let refusal =
            WebhookServer::new(settings, Audit::default()).run_transform(&transform, json!({})).await.unwrap_err();
        assert_eq!(refusal, failed(&transform, "took longer than 10 seconds"));
    }

    #[test]
    fn the_route_is_the_path_below_the_base_path() {
        let hooks = WebhookServer::new(Webhooks::new("t", "/hooks").unwrap(), Audit::default());
        let route = |path: &str| hooks.route_path(path);
        assert_eq!(route("/hooks/wake").as_deref(), Some("wake"));
        assert_eq!(route("/hooks/a/b/").as_deref(), Some("a/b"));
        assert_eq!(route("/hooks").as_deref(), Some(""));
        assert_eq!((route("/hooksy/wake"), route("/"), route("/x/hooks/wake")), (None, None, None));
    }
}
