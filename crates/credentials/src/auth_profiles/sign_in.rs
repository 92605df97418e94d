//! Credentials that expire: used while valid, renewed if possible, and reported if not.

use std::{fmt, path::PathBuf, sync::Arc};

use futures_util::{FutureExt, StreamExt, future::ready, stream};
use homard_model::{Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Secret};
use homard_runtime::Ambient;
use tokio::sync::Mutex;

use super::file;

/// A token is renewed this many milliseconds before it expires, so that it does not expire in flight.
const RENEW_BEFORE_MS: u64 = 60_000;

/// A credential that expires. Shared by all models that use it.
pub struct SignIn {
    id: String,
    token: Mutex<Token>,
    clock: Ambient,
}

#[derive(Clone)]
struct Token {
    access: Secret,
    /// Milliseconds since the epoch.
    expires: Option<u64>,
    renewal: Option<Renewal>,
}

/// How a token is renewed, and where the new one is stored.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub endpoint: String,
    pub(crate) client_id: Option<String>,
    pub refresh: Secret,
    pub file: PathBuf,
    pub client: HttpClient,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SignIn {
    /// Creates a credential that cannot be renewed.
    pub fn fixed(id: &str, access: Secret, expires: Option<u64>) -> Self {
        let token = Token { access, expires, renewal: None };
        Self { id: id.to_owned(), token: Mutex::new(token), clock: Ambient::system() }
    }

    /// Sets the renewal.
    pub(crate) fn with_renewal(self, renewal: Option<Renewal>) -> Self {
        let token = Token { renewal, ..self.token.into_inner() };
        Self { token: Mutex::new(token), ..self }
    }

    /// Returns the secrets to mask; empty while it is being renewed.
    pub fn secrets(&self) -> Vec<String> {
        let Ok(token) = self.token.try_lock() else { return Vec::new() };
        let refresh = token.renewal.as_ref().map(|renewal| renewal.refresh.expose().to_owned());
        [token.access.expose().to_owned()].into_iter().chain(refresh).collect()
    }

    /// Returns why it cannot be used, if so.
    pub fn unusable_reason(&self) -> Option<String> {
        let token = self.token.try_lock().ok()?;
        let has_expired = token.expires.is_some_and(|expires| expires <= self.clock.now_ms());
        (has_expired && token.renewal.is_none()).then(|| "expired; sign in again, or add a key".to_owned())
    }

    /// Returns a valid token, renewing it if needed.
    pub async fn token(&self) -> Result<Secret, Error> {
        let mut token = self.token.lock().await;
        let now = self.clock.now_ms();
        let Some(expires) = token.expires.filter(|expires| *expires <= now.saturating_add(RENEW_BEFORE_MS)) else {
            return Ok(token.access.clone());
        };
        let Some(renewal) = token.renewal.clone() else {
            if expires > now {
                return Ok(token.access.clone());
            }
            let message = format!(
                "{} has expired and cannot be renewed, because its tokenEndpoint is missing; sign in again, or add a key \
                 with: homard models auth add",
                self.id
            );
            return Err(Error { status: Some(401), ..Error::new(ErrorKind::Auth, message) });
        };
        let Renewal { endpoint, client_id, refresh, file, client } = &renewal;
        let new = client.refresh(endpoint, client_id.as_deref(), refresh).await;
        let new = new.map_err(|error| {
            let message = format!(
                "{} has expired and could not be renewed: {}; sign in again if this persists",
                self.id, error.message
            );
            Error { message, ..error }
        })?;
        let lifetime_ms = new.lifetime.map(|lifetime_ms| u64::try_from(lifetime_ms.as_millis()).unwrap_or(u64::MAX));
        let refresh = new.refresh.unwrap_or_else(|| refresh.clone());
        token.access = new.access;
        token.expires = lifetime_ms.map(|lifetime_ms| now.saturating_add(lifetime_ms));
        token.renewal = Some(Renewal { refresh: refresh.clone(), ..renewal.clone() });
        let (id, file, stored) = (self.id.clone(), file.clone(), token.clone());
        let written = tokio::task::spawn_blocking(move || store(&id, &file, &stored, &refresh)).await;
        // The old refresh token may be invalid from here on, so this is logged; the new one works in the meantime.
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(profile = self.id, "failed to save the renewed token: {error:#}"),
            Err(error) => tracing::warn!(profile = self.id, %error, "failed to save the renewed token"),
        }
        Ok(token.access.clone())
    }
}

fn store(id: &str, path: &std::path::Path, token: &Token, refresh: &Secret) -> Result<(), crate::Error> {
    file::edit(path, |fields| {
        let mut profiles = fields.object("profiles", path)?;
        let mut profile = match profiles.get(id) {
            Some(_) => profiles.object(id, path)?,
            // The profile was removed in the meantime.
            None => return Ok(()),
        };
        profile.set("access", &token.access.expose().into(), 3);
        profile.set("refresh", &refresh.expose().into(), 3);
        profile.set("expires", &token.expires.into(), 3);
        profiles.put(id, &profile, 2);
        fields.put("profiles", &profiles, 1);
        Ok(())
    })
}

/// A model that is used with an expiring credential.
#[derive(Debug)]
pub struct SignInModel {
    pub target: ModelTarget,
    pub client: HttpClient,
    pub sign_in: Arc<SignIn>,
}

impl Model for SignInModel {
    fn spec(&self) -> &ModelSpec {
        &self.target.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let (target, client, sign_in) = (self.target.clone(), self.client.clone(), self.sign_in.clone());
        let opened = async move {
            let auth = Some(Credentials::Token(sign_in.token().await?));
            RemoteModel::new(ModelTarget { auth, ..target }, &client)
        };
        let opened = opened.map(move |remote| match remote {
            Ok(remote) => remote.stream(request),
            Err(error) => Box::pin(stream::once(ready(ModelEvent::Failed(error)))),
        });
        Box::pin(stream::once(opened).flatten())
    }
}
