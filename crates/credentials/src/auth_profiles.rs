//! `auth-profiles.json`: credentials for providers, and their health.
//!
//! The file is OpenClaw's, `<state>/agents/<agent>/agent/auth-profiles.json`; agents without one of their own share
//! that of `main`. Start with [`Keyring`], its content; then `file` (how it is edited), `health_writer` (how
//! cooldowns are persisted) and [`sign_in`] (credentials that expire).

pub mod file;
pub mod health_writer;
pub mod sign_in;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_model::{
    candidates::Credential,
    catalog::provider_name,
    profile_health::{HealthTracker, ProfileHealth},
};
use homard_providers::{HttpClient, Secret};
use homard_settings::{
    agents::ConfiguredAgent,
    paths::{self, Paths},
};
use serde_json::{Map, Value};

use self::{file::Fields, health_writer::HealthWriter, sign_in::SignIn};
use crate::Error;

/// A credential of the file.
#[derive(Debug, Clone)]
pub struct CredentialProfile {
    pub id: String,
    /// Canonical provider name.
    pub provider: String,
    pub kind: Kind,
}

/// The kind of a credential.
#[derive(Debug, Clone)]
pub enum Kind {
    Key(Secret),
    Token(Secret),
    /// A credential that expires.
    SignIn(Credential, Arc<SignIn>),
    /// Unusable, with the reason.
    Unusable(String),
}

/// The credentials of an agent, and their health.
#[derive(Debug)]
pub struct Keyring {
    /// The file, which may not exist.
    pub path: PathBuf,
    pub profiles: Vec<CredentialProfile>,
    /// Order of a provider's credentials, if set.
    pub order: BTreeMap<String, Vec<String>>,
    pub health: Arc<HealthTracker>,
}

impl Keyring {
    /// Reads the file. The caller starts the keeper, which writes health changes back to the file.
    pub fn open(path: PathBuf, client: &HttpClient) -> Result<(Self, HealthWriter), Error> {
        let fields = file::read(&path)?.unwrap_or_default();
        let object = |name: &str| fields.object(name, &path);
        let profiles = object("profiles")?;
        let profiles = profiles.iter().map(|(id, text)| profile(id, text, &path, client)).collect();
        let order = object("order")?;
        let order = order.iter().filter_map(|(provider, ids)| {
            let ids: Vec<String> = serde_json::from_str(ids).ok()?;
            Some((provider_name(provider), ids))
        });
        let order = order.collect();
        let (health, writer) = health_writer::health_with_writer(&path, parse_health(&object("usageStats")?));
        Ok((Self { path, profiles, order, health }, writer))
    }

    /// Reads the credentials again and keeps the health state.
    pub fn reread(&self, client: &HttpClient) -> Result<Self, Error> {
        let (fresh, _) = Self::open(self.path.clone(), client)?;
        Ok(Self { health: self.health.clone(), ..fresh })
    }
}

/// Returns the credentials file of an agent: its own, or that of `main`.
pub fn credentials_file(paths: &Paths, agent: &ConfiguredAgent<'_>) -> PathBuf {
    let agents = paths.state.join("agents");
    let main = agents.join("main").join("agent").join(file::NAME);
    let folder = match &agent.config.agent_dir {
        Some(folder) => paths::expand(Path::new(folder.as_str()), paths::home().as_deref()),
        None => agents.join(agent.id.as_str()).join("agent"),
    };
    let agent_file = folder.join(file::NAME);
    if agent_file.exists() { agent_file } else { main }
}

/// Parses the health of credentials. Unreadable entries are skipped and stay in the file.
fn parse_health(stats: &Fields) -> ProfileHealth {
    let readable = stats.iter().filter_map(|(id, text)| {
        let single = Map::from_iter([(id.to_owned(), serde_json::from_str(text).ok()?)]);
        serde_json::from_value::<ProfileHealth>(Value::Object(single.clone())).ok().map(|_| single)
    });
    let all = readable.flatten().collect();
    serde_json::from_value(Value::Object(all)).unwrap_or_default()
}

fn profile(id: &str, text: &str, path: &Path, client: &HttpClient) -> CredentialProfile {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let string_field =
        |name: &str| value.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let provider = string_field("provider").or_else(|| id.split_once(':').map(|(provider, _)| provider)).unwrap_or(id);
    let expires = value.get("expires").and_then(Value::as_u64).filter(|expires| *expires > 0);
    let missing = |field: &str| Kind::Unusable(format!("the {field} is missing"));
    let kind = match (string_field("type"), expires) {
        (Some("api_key"), _) => string_field("key").map_or_else(|| missing("key"), |key| Kind::Key(key.into())),
        (Some("token"), None) => {
            string_field("token").map_or_else(|| missing("token"), |token| Kind::Token(token.into()))
        }
        (Some("token"), Some(_)) => string_field("token").map_or_else(
            || missing("token"),
            |token| Kind::SignIn(Credential::Token, Arc::new(SignIn::fixed(id, token.into(), expires))),
        ),
        (Some("oauth"), _) => match (string_field("access"), string_field("refresh")) {
            (None, None) => missing("access token"),
            (access, refresh) => {
                let fixed = SignIn::fixed(id, access.unwrap_or_default().into(), expires);
                let renewal = string_field("tokenEndpoint").zip(refresh).map(|(endpoint, refresh)| sign_in::Renewal {
                    endpoint: endpoint.to_owned(),
                    client_id: string_field("clientId").map(str::to_owned),
                    refresh: refresh.into(),
                    file: path.to_owned(),
                    client: client.clone(),
                });
                let is_login = string_field("tokenEndpoint").is_some();
                let sign_in = fixed.with_renewal(renewal);
                let sign_in = if is_login { sign_in.of_login(provider) } else { sign_in };
                Kind::SignIn(Credential::Oauth, Arc::new(sign_in))
            }
        },
        (Some(_) | None, _) => Kind::Unusable("the type must be api_key, token or oauth".to_owned()),
    };
    CredentialProfile { id: id.to_owned(), provider: provider_name(provider), kind }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn profiles_are_read_and_unusable_ones_have_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file::NAME);
        let profiles = r#"{"version": 1, "profiles": {
            "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": "sk-1"},
            "anthropic:me": {"type": "token", "provider": "Anthropic", "token": "t", "expires": 5},
            "z.ai:x": {"type": "token", "token": "t"},
            "openai-codex:x": {"type": "oauth", "provider": "openai-codex", "access": "a", "refresh": "r", "expires": 9},
            "google:empty": {"type": "api_key", "provider": "google", "key": " "},
            "google:new": {"type": "passkey", "provider": "google"}},
            "order": {"Z.AI": ["z.ai:x"], "google": 7}, "usageStats": {"a": {"errorCount": "many"}, "b": {"lastUsed": 3}}}"#;
        fs::write(&path, profiles).unwrap();
        let (keyring, _) = Keyring::open(path, &HttpClient::default()).unwrap();
        let kind = |kind: &Kind| match kind {
            Kind::Key(_) => "key".to_owned(),
            Kind::Token(_) => "token".to_owned(),
            Kind::SignIn(credential, _) => format!("{credential:?}"),
            Kind::Unusable(why) => why.clone(),
        };
        let read: Vec<_> = keyring.profiles.iter().map(|profile| (&*profile.provider, kind(&profile.kind))).collect();
        let expected = [
            ("anthropic", "key"),
            ("anthropic", "Token"),
            ("zai", "token"),
            ("openai-codex", "Oauth"),
            ("google", "the key is missing"),
            ("google", "the type must be api_key, token or oauth"),
        ];
        assert_eq!(read, expected.map(|(provider, kind)| (provider, kind.to_owned())));
        assert_eq!(keyring.order, BTreeMap::from([("zai".to_owned(), vec!["z.ai:x".to_owned()])]));
        let health = keyring.health.snapshot();
        assert_eq!(health.iter().map(|(id, stats)| (id, stats.last_used)).collect::<Vec<_>>(), [("b", Some(3))]);
    }
}
