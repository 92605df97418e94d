//! Inbound webhooks: other programs wake an agent or start a run.
//!
//! A request carries the webhooks' own token, which is checked before its body is read (`request`). `/wake` and
//! `/agent` describe the action themselves; for any other path a [`Mapping`] does (`mapping`, `template`). Either way
//! the result is an [`errand`]: a text for the main session (`wake`) or a run of its own (`run`), whose result that
//! session is informed of (`pending`). Repeated requests are recognised by their idempotency key (`once`), also after a
//! restart: the run id is derived from the key, and run ids are claimed on disk.

mod errand;
mod mapping;
mod once;
mod pending;
mod refusal;
mod request;
mod run;
mod template;
mod wake;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{
        Method, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_agent::task;
use homard_audit::Audit;
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use self::{
    errand::{Errand, Sender},
    once::Once,
    refusal::Refusal,
    request::Said,
};
use crate::{
    auth::{Bouncer, Secret},
    connection::Visitor,
    server::Server,
};
pub use mapping::{Action, Mapping, Transform};
pub(crate) use run::take_up;
pub use template::Template;

/// Timeout of a transform.
const TRANSFORM: Duration = Duration::from_secs(10);

/// Settings of webhooks. They require a token.
#[derive(Clone)]
pub struct Webhooks {
    token: Secret,
    path: String,
    /// Maximum body size in bytes.
    pub max_body: usize,
    /// Session for runs that name none; if not set, each run has its own.
    pub default_session_key: Option<String>,
    /// Allow requests to name their session.
    pub allow_request_session_key: bool,
    /// Allowed prefixes of named session keys; any if not set.
    pub allowed_session_key_prefixes: Option<Vec<String>>,
    /// Agents that may be named besides the default one; all if not set or if it contains `*`.
    pub allowed_agent_ids: Option<Vec<String>>,
    /// Mappings for other paths; the first match applies.
    pub mappings: Vec<Mapping>,
    /// Executes the modules of mappings.
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
    #[error("hooks.token is missing; webhooks are answered only with a token of their own")]
    NoToken,
    /// The path would hide the gateway's other routes.
    #[error("hooks.path must be a path of its own, such as /hooks, and not {0:?}")]
    Path(String),
}

impl Webhooks {
    /// Creates settings for webhooks below a path, with a token.
    pub fn new(token: &str, path: &str) -> Result<Self, WebhookError> {
        let token = Secret::new(Some(token.trim().to_owned()), None);
        if token.is_empty() {
            return Err(WebhookError::NoToken);
        }
        let own = path.trim().trim_matches('/');
        let is_plain = own.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.~".contains(c));
        // Routes of the gateway itself cannot be used.
        let is_taken = matches!(
            own.split('/').next(),
            Some("health" | "healthz" | "ready" | "readyz" | "v1" | "tools" | "channels" | "metrics")
        );
        if own.is_empty() || !is_plain || is_taken || own.split('/').any(|part| part.trim_matches('.').is_empty()) {
            return Err(WebhookError::Path(path.to_owned()));
        }
        Ok(Self {
            token,
            path: format!("/{own}"),
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
pub(crate) struct Hooks {
    settings: Webhooks,
    /// Separate from the gateway's own limiter, so that guesses here cannot lock the owner out there.
    bouncer: Bouncer,
    /// Held while webhook data in a main session's record is changed.
    notes: Mutex<()>,
}

impl Hooks {
    pub(crate) fn new(settings: Webhooks, audit: Audit) -> Self {
        Self { bouncer: Bouncer::new(settings.token.clone()).noting(audit), settings, notes: Mutex::default() }
    }

    /// Returns the part of a path below that of all webhooks, if it is one.
    pub(crate) fn place(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.settings.path)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_matches('/').to_owned())
    }

    /// True if there is an action or a mapping for this path.
    fn knows(&self, place: &str) -> bool {
        matches!(place, "wake" | "agent")
            || (!place.is_empty() && self.settings.mappings.iter().any(|mapping| mapping.is_at(place)))
    }
}

/// Handles a request to a path below that of all webhooks.
pub(crate) async fn answer(
    (server, hooks): (Arc<Server>, Arc<Hooks>),
    visitor: &Visitor,
    place: String,
    (parts, body): (Parts, Body),
) -> Response {
    if let Err(refusal) = hooks.admit(visitor, &parts, &place) {
        request::forget(body).await;
        return refusal.into_response();
    }
    let said = match request::read(&parts, body, (place, hooks.settings.max_body)).await {
        Ok(said) => said,
        Err(refusal) => return refusal.into_response(),
    };
    let waiting = server.connections.token();
    // In a task of its own, so that a disconnecting sender does not interrupt it.
    let doing = task::spawn("webhook", async move {
        let done = hooks.obey(&server, said).await;
        drop(waiting);
        done
    });
    match doing.await {
        Ok(done) => done.unwrap_or_else(IntoResponse::into_response),
        Err(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the webhook failed because of a bug").into_response()
        }
    }
}

impl Hooks {
    /// Checks the token and the path, and marks the connection as authenticated.
    fn admit(&self, visitor: &Visitor, parts: &Parts, place: &str) -> Result<(), Refusal> {
        if request::query(&parts.uri).contains_key("token") {
            return Err(Refusal::invalid(
                "a token in the address ends up in logs; send it as the header \"Authorization: Bearer …\" or \
                 \"x-openclaw-token\"",
            ));
        }
        let (auth, address) = (request::shown(&parts.headers), visitor.address());
        self.bouncer.check(&auth, address, Instant::now()).inspect_err(|_| {
            tracing::warn!(%address, "a webhook was refused");
        })?;
        visitor.welcome();
        if parts.method != Method::POST {
            return Err(Refusal::wrong_verb());
        }
        if self.knows(place) { Ok(()) } else { Err(Refusal::not_found()) }
    }

    /// Performs the requested action.
    async fn obey(self: &Arc<Self>, server: &Arc<Server>, said: Said) -> Result<Response, Refusal> {
        let now = homard_agent::ambient::iso(server.hub.ambient().now_ms());
        let errand = match said.place.as_str() {
            "wake" => Errand::wake(said.object()?, Sender::Request)?,
            "agent" => Errand::agent(said.object()?, Sender::Request)?,
            _ => match self.mapped(&said, &now).await? {
                Some(errand) => errand,
                None => return Ok(StatusCode::NO_CONTENT.into_response()),
            },
        };
        match errand {
            Errand::Wake(nudge) => {
                let once = Once::of((nudge.family.as_str(), nudge.key.as_ref()), &said)?;
                let mode = wake::tell(server, self, &nudge, once.as_ref()).await?;
                Ok(reply(StatusCode::OK, &json!({"ok": true, "mode": mode})))
            }
            Errand::Agent(job) => {
                let once = Once::of((job.family.as_str(), job.key.as_ref()), &said)?;
                let run = run::start((server, self), *job, once).await?;
                Ok(reply(StatusCode::ACCEPTED, &json!({"ok": true, "runId": run})))
            }
        }
    }

    /// Applies the first matching mapping; `None` if its transform returned `null`.
    async fn mapped(&self, said: &Said, now: &str) -> Result<Option<Errand>, Refusal> {
        let fits = |mapping: &&Mapping| mapping.is_at(&said.place) && mapping.is_from(&said.payload);
        let mapping = self.settings.mappings.iter().find(fits).ok_or_else(Refusal::not_found)?;
        let mut wanted = mapping.fill(said.scene(now));
        if let Some(transform) = &mapping.transform {
            match self.transformed(transform, said.told()).await? {
                Value::Null => return Ok(None),
                Value::Object(changes) => wanted.extend(changes.into_iter().filter(|(_, value)| !value.is_null())),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(failed(transform, "must give an object or null"));
                }
            }
        }
        mapping.errand(&wanted).map(Some)
    }

    async fn transformed(&self, transform: &Transform, request: Value) -> Result<Value, Refusal> {
        // The transform may be a filter, so the request must not pass without it.
        let Some(transformer) = &self.settings.transformer else {
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "this mapping has a transform, which needs Node"));
        };
        match timeout(TRANSFORM, transformer.transform(transform, request)).await {
            Ok(Ok(changes)) => Ok(changes),
            Ok(Err(why)) => {
                tracing::warn!(module = transform.module, why, "a transform failed");
                Err(failed(transform, "failed; see the gateway's log"))
            }
            Err(_) => Err(failed(transform, &format!("took longer than {} seconds", TRANSFORM.as_secs()))),
        }
    }
}

fn failed(transform: &Transform, why: &str) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the transform {} {why}", transform.module))
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
        assert!(!format!("{hooks:?} {:?}", Hooks::new(hooks.clone(), Audit::default())).contains("hunter2"));
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
        let refusal = Hooks::new(settings, Audit::default()).transformed(&transform, json!({})).await.unwrap_err();
        assert_eq!(refusal, failed(&transform, "took longer than 10 seconds"));
    }

    #[test]
    fn a_place_is_what_follows_the_path() {
        let hooks = Hooks::new(Webhooks::new("t", "/hooks").unwrap(), Audit::default());
        let place = |path: &str| hooks.place(path);
        assert_eq!(place("/hooks/wake").as_deref(), Some("wake"));
        assert_eq!(place("/hooks/a/b/").as_deref(), Some("a/b"));
        assert_eq!(place("/hooks").as_deref(), Some(""));
        assert_eq!((place("/hooksy/wake"), place("/"), place("/x/hooks/wake")), (None, None, None));
    }
}
