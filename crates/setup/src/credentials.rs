//! Credentials of model providers: stored, removed, and checked before that. A key is never printed.

use std::path::Path;

use homard_credentials::auth_profiles::file::{self, Fields};
use homard_model::catalog::{self, provider_name};
use homard_providers::{Secret, quirks};
use serde_json::{Value, json};

use crate::{Error, ModelsContext};

/// Maximum length of a key.
const MAX_KEY: usize = 16 * 1024;

/// Checks that a text can be a key.
pub fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY || key.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Error::Usage("invalid key: it must be one word on one line, and not empty".to_owned()));
    }
    Ok(())
}

/// Returns the id of a credential: the provider and a name.
pub fn profile_id(provider: &str, name: &str) -> Result<String, Error> {
    let name = name.trim();
    if name.is_empty() || name.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control()) {
        return Err(Error::Usage("--profile must be a name without spaces and colons, such as work".to_owned()));
    }
    Ok(format!("{}:{name}", provider_name(provider)))
}

/// A credential to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewCredential {
    /// An API key.
    ApiKey(Secret),
    /// A token that does not expire.
    Token(Secret),
    /// The tokens of a sign-in.
    SignIn {
        access: Secret,
        refresh: Option<Secret>,
        /// Milliseconds since the epoch.
        expires: Option<u64>,
        token_endpoint: String,
        client_id: String,
    },
}

impl NewCredential {
    /// Returns the profile in OpenClaw's format.
    fn profile(&self, provider: &str) -> Value {
        match self {
            Self::Token(token) => json!({"type": "token", "provider": provider, "token": token.expose()}),
            Self::ApiKey(key) => json!({"type": "api_key", "provider": provider, "key": key.expose()}),
            Self::SignIn { access, refresh, expires, token_endpoint, client_id } => {
                let mut profile = json!({
                    "type": "oauth", "provider": provider, "access": access.expose(), "tokenEndpoint": token_endpoint,
                    "clientId": client_id,
                });
                if let Some(refresh) = refresh {
                    profile["refresh"] = json!(refresh.expose());
                }
                if let Some(expires) = expires {
                    profile["expires"] = json!(expires);
                }
                profile
            }
        }
    }
}

/// Stores a credential under a profile id. Returns true if it is new.
pub fn store(path: &Path, provider: &str, id: &str, credential: &NewCredential) -> Result<bool, Error> {
    let profile = credential.profile(provider);
    file::edit(path, |fields| {
        let mut profiles = fields.object("profiles", path)?;
        let is_new = profiles.get(id).is_none();
        profiles.set(id, &profile, 2);
        fields.put("profiles", &profiles, 1);
        // Cooldowns of the old key do not apply to the new one.
        forget(fields, path, id)?;
        let mut order = fields.object("order", path)?;
        if let Some(mut ids) = order.get(provider).and_then(|ids| serde_json::from_str::<Vec<String>>(ids).ok())
            && !ids.iter().any(|listed| listed == id)
        {
            ids.push(id.to_owned());
            order.set(provider, &json!(ids), 2);
            fields.put("order", &order, 1);
        }
        Ok::<_, Error>(is_new)
    })
}

/// Removes a credential with its health record, its place in the order, and its mark as the last good one.
pub fn remove(path: &Path, id: &str) -> Result<(), Error> {
    file::edit(path, |fields| {
        let mut profiles = fields.object("profiles", path)?;
        profiles.remove(id);
        fields.put("profiles", &profiles, 1);
        forget(fields, path, id)?;
        let stored_order = fields.object("order", path)?;
        let mut order = stored_order.clone();
        for (provider, ids) in stored_order.iter() {
            if let Ok(mut ids) = serde_json::from_str::<Vec<String>>(ids)
                && ids.iter().any(|known| known == id)
            {
                ids.retain(|known| known != id);
                order.set(provider, &json!(ids), 2);
                fields.put("order", &order, 1);
            }
        }
        let mut last_good = fields.object("lastGood", path)?;
        let quoted = json!(id).to_string();
        let stale: Vec<_> = last_good
            .iter()
            .filter(|(_, last_good)| *last_good == quoted)
            .map(|(provider, _)| provider.to_owned())
            .collect();
        for provider in stale {
            last_good.remove(&provider);
            fields.put("lastGood", &last_good, 1);
        }
        Ok::<_, Error>(())
    })
}

fn forget(fields: &mut Fields, path: &Path, id: &str) -> Result<(), Error> {
    let mut stats = fields.object("usageStats", path)?;
    if stats.remove(id) {
        fields.put("usageStats", &stats, 1);
    }
    Ok(())
}

/// Returns the canonical name of a known or configured provider: a mistyped one would store an unused key.
pub fn known(setup: &ModelsContext, provider: &str) -> Result<String, Error> {
    let name = provider_name(provider);
    let configured =
        setup.models.names.configured.iter().any(|configured_provider| provider_name(&configured_provider.id) == name);
    if configured || catalog::provider(&name).next().is_some() {
        return Ok(name);
    }
    // Other spellings, such as "LM Studio": models look up their keys under the id.
    if let Some(known) = quirks::provider(&name) {
        return Ok(known.id.to_owned());
    }
    let all = catalog::providers().collect::<Vec<_>>().join(", ");
    Err(Error::Usage(format!(
        "unknown provider \"{provider}\"; known providers are {all}, and those in models.providers"
    )))
}
