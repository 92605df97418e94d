//! Credentials that expire: used while valid, renewed if possible, and reported if not.

use std::{fmt, path::PathBuf, sync::Arc};

use futures_util::{FutureExt, StreamExt, future::ready, stream};
use homard_model::{Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Secret};
use homard_runtime::Ambient;
use serde_json::Value;
use tokio::sync::Mutex;

use super::file;

/// A token is renewed this many milliseconds before it expires, so that it does not expire in flight.
const RENEW_BEFORE_MS: u64 = 60_000;

/// A credential that expires. Shared by all models that use it.
pub struct SignIn {
    id: String,
    /// The command that replaces it, if it came from a sign-in.
    login: Option<String>,
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
        Self { id: id.to_owned(), login: None, token: Mutex::new(token), clock: Ambient::system() }
    }

    /// Sets the renewal.
    pub(crate) fn with_renewal(self, renewal: Option<Renewal>) -> Self {
        let token = Token { renewal, ..self.token.into_inner() };
        Self { token: Mutex::new(token), ..self }
    }

    /// Marks it as the result of a sign-in at a provider, which can be repeated.
    pub(crate) fn of_login(self, provider: &str) -> Self {
        let profile = self.id.split_once(':').map(|(_, name)| name).filter(|name| *name != "default");
        let profile = profile.map(|name| format!(" --profile {name}")).unwrap_or_default();
        Self { login: Some(format!("homard models auth login --provider {provider}{profile}")), ..self }
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
        (has_expired && token.renewal.is_none()).then(|| match &self.login {
            Some(login) => format!("expired; sign in again with: {login}"),
            None => "expired; sign in again, or add a key".to_owned(),
        })
    }

    /// Returns a valid token, renewing it if needed.
    pub async fn token(&self) -> Result<Secret, Error> {
        let mut token = self.token.lock().await;
        let now = self.clock.now_ms();
        if token.is_fresh(now) {
            return Ok(token.access.clone());
        }
        let Some(renewal) = token.renewal.clone() else {
            if token.expires.is_some_and(|expires| expires > now) {
                return Ok(token.access.clone());
            }
            let id = &self.id;
            let message = match &self.login {
                Some(login) => format!("{id} has expired; sign in again with: {login}"),
                None => format!(
                    "{id} has expired and cannot be renewed, because its tokenEndpoint is missing; sign in again, or \
                     add a key with: homard models auth add"
                ),
            };
            return Err(Error { status: Some(401), ..Error::new(ErrorKind::Auth, message) });
        };
        if let Some(stored) = self.stored(&token, &renewal).await {
            *token = stored;
            if token.is_fresh(now) {
                return Ok(token.access.clone());
            }
        }
        self.renew(&mut token, now).await
    }

    /// Returns another token, because the provider has rejected this one before it expired. `None` if there is no other.
    pub(crate) async fn replace(&self, rejected: &Secret) -> Result<Option<Secret>, Error> {
        let mut token = self.token.lock().await;
        if token.access != *rejected {
            return Ok(Some(token.access.clone()));
        }
        let Some(renewal) = token.renewal.clone() else { return Ok(None) };
        if let Some(stored) = self.stored(&token, &renewal).await {
            *token = stored;
            return Ok(Some(token.access.clone()));
        }
        let now = self.clock.now_ms();
        self.renew(&mut token, now).await.map(Some)
    }

    /// Returns the token of the file if it is another one: a different process has renewed it, or the user has signed in
    /// again. A refresh token that was used by another process is no longer valid.
    async fn stored(&self, token: &Token, renewal: &Renewal) -> Option<Token> {
        let (id, renewal, known) = (self.id.clone(), renewal.clone(), token.access.clone());
        let read = tokio::task::spawn_blocking(move || read_stored(&id, &renewal)).await;
        match read {
            Ok(Ok(stored)) => stored.filter(|stored| stored.access != known),
            Ok(Err(error)) => {
                tracing::warn!(profile = self.id, "cannot read the stored token: {error:#}");
                None
            }
            Err(error) => {
                tracing::warn!(profile = self.id, %error, "cannot read the stored token");
                None
            }
        }
    }

    /// Renews the token and stores it.
    async fn renew(&self, token: &mut Token, now: u64) -> Result<Secret, Error> {
        let Some(renewal) = token.renewal.clone() else { return Ok(token.access.clone()) };
        let Renewal { endpoint, client_id, refresh, file, client } = &renewal;
        let new = client.refresh(endpoint, client_id.as_deref(), refresh).await;
        let new = new.map_err(|error| {
            let (id, why) = (&self.id, &error.message);
            let message = match (&self.login, error.kind) {
                (Some(login), ErrorKind::Auth) => {
                    format!("the sign-in {id} was revoked or has expired ({why}); sign in again with: {login}")
                }
                _ => format!("{id} has expired and could not be renewed: {why}; sign in again if this persists"),
            };
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

impl Token {
    /// Returns true if it does not expire soon.
    fn is_fresh(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| expires > now.saturating_add(RENEW_BEFORE_MS))
    }
}

/// Reads the token of a profile; `None` if the profile is gone or incomplete.
fn read_stored(id: &str, renewal: &Renewal) -> Result<Option<Token>, crate::Error> {
    let Some(fields) = file::read(&renewal.file)? else { return Ok(None) };
    let profiles = fields.object("profiles", &renewal.file)?;
    let profile: Value = profiles.get(id).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let text = |name: &str| profile[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let (Some(access), Some(refresh)) = (text("access"), text("refresh")) else { return Ok(None) };
    let renewal = Renewal { refresh: refresh.into(), ..renewal.clone() };
    Ok(Some(Token { access: access.into(), expires: profile["expires"].as_u64(), renewal: Some(renewal) }))
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
#[derive(Debug, Clone)]
pub struct SignInModel {
    pub target: ModelTarget,
    pub client: HttpClient,
    pub sign_in: Arc<SignIn>,
}

impl SignInModel {
    /// Sends the request with a token.
    fn send(&self, token: Secret, request: Request) -> Result<EventStream, Error> {
        let target = ModelTarget { auth: Some(Credentials::Token(token)), ..self.target.clone() };
        Ok(RemoteModel::new(target, &self.client)?.stream(request))
    }

    /// Sends the request; once more with a new token if the provider rejects the first one, which may have been revoked.
    async fn open(self, request: Request) -> Result<EventStream, Error> {
        let token = self.sign_in.token().await?;
        let mut events = self.send(token.clone(), request.clone())?;
        match events.next().await {
            Some(ModelEvent::Failed(error)) if error.status == Some(401) => match self.sign_in.replace(&token).await? {
                Some(new) => self.send(new, request),
                None => Err(error),
            },
            Some(first) => Ok(Box::pin(stream::once(ready(first)).chain(events))),
            None => Ok(events),
        }
    }
}

impl Model for SignInModel {
    fn spec(&self) -> &ModelSpec {
        &self.target.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let opened = self.clone().open(request).map(|opened| match opened {
            Ok(events) => events,
            Err(error) => Box::pin(stream::once(ready(ModelEvent::Failed(error)))),
        });
        Box::pin(stream::once(opened).flatten())
    }
}
