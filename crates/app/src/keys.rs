//! The credentials of a provider in the order in which they are tried: profiles, then environment, then config.

use std::{collections::HashSet, sync::Arc};

use homard_credentials::auth_profiles::{CredentialProfile, Keyring, Kind, sign_in::SignIn};
use homard_model::candidates::{Credential, CredentialOrder};
use homard_providers::{Credentials, Secret};

use super::{environment, models::Models};

/// A credential, ready to use.
#[derive(Debug, Clone)]
pub struct ProviderKey {
    /// Id under which cooldowns are stored.
    pub id: String,
    pub credential: Credential,
    pub auth: CredentialAuth,
}

/// How a credential authenticates.
#[derive(Debug, Clone)]
pub enum CredentialAuth {
    /// A static key or token.
    Static(Credentials),
    /// A sign-in whose access token is renewed.
    SignIn(Arc<SignIn>),
    /// The provider needs no credential.
    Keyless,
    /// Unusable, with the reason.
    Unusable(String),
}

/// Origin of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    Profile,
    Environment(String),
    Config(String),
    /// None is needed.
    None,
    /// One is needed but missing.
    Missing,
}

impl CredentialSource {
    /// Derives the origin from a credential's id.
    pub fn of(id: &str) -> Self {
        match id.split_once(':') {
            Some(("env", name)) => Self::Environment(name.to_owned()),
            Some(("config", provider)) => Self::Config(format!("models.providers.{provider}.apiKey")),
            Some(("none", _)) => Self::None,
            Some(("missing", _)) => Self::Missing,
            Some(_) => Self::Profile,
            None => Self::None,
        }
    }
}

impl Models {
    /// Returns the credentials of a provider in ranks; each rank has its own order. Never empty.
    pub fn keys(&self, keyring: &Keyring, provider: &str) -> Vec<(CredentialOrder, Vec<ProviderKey>)> {
        let configured_order = keyring.order.get(provider).or_else(|| self.order.get(provider));
        let (order, profiles) = match configured_order {
            Some(ids) => {
                let listed = ids.iter().filter_map(|id| keyring.profiles.iter().find(|profile| profile.id == *id));
                (CredentialOrder::Configured, listed.filter(|profile| profile.provider == provider).collect())
            }
            None => (
                CredentialOrder::RoundRobin,
                keyring.profiles.iter().filter(|profile| profile.provider == provider).collect(),
            ),
        };
        let profiles: Vec<&CredentialProfile> = profiles;
        let mut known = HashSet::new();
        let mut stored: Vec<_> = profiles.into_iter().filter_map(from_profile).collect();
        stored.retain(|key| key.is_new(&mut known));
        let env_key = self.environment.key(provider).map(|(name, auth)| plain(format!("env:{name}"), auth));
        let config_key = self.extras(provider).and_then(|extras| match (&extras.key, &extras.key_fault) {
            (Some(auth), _) => Some(plain(format!("config:{provider}"), auth.clone())),
            // The config names a key that cannot be resolved: do not send requests without one.
            (None, Some(why)) => Some(missing_key(provider, why.clone())),
            (None, None) => None,
        });
        let mut other_keys: Vec<_> = env_key.into_iter().chain(config_key).collect();
        other_keys.retain(|key| key.is_new(&mut known));
        // Without any credential one entry remains: keyless access, or an error that says what to configure.
        if other_keys.is_empty() && stored.is_empty() {
            other_keys.push(self.fallback_key(keyring, provider));
        }
        // With at most one profile there is no rotation; one rank can be pinned as a whole.
        if order == CredentialOrder::Configured || stored.len() < 2 {
            stored.append(&mut other_keys);
            return vec![(CredentialOrder::Configured, stored)];
        }
        vec![(order, stored), (CredentialOrder::Configured, other_keys)]
    }

    /// Returns the entry for a provider without a usable credential: keyless access, or an error that says how to
    /// configure one.
    fn fallback_key(&self, keyring: &Keyring, provider: &str) -> ProviderKey {
        let credential = Credential::ApiKey;
        let has_sign_in = self.extras(provider).is_some_and(|extras| extras.has_sign_in);
        if self.is_keyless(provider) && !has_sign_in {
            return ProviderKey { id: format!("none:{provider}"), credential, auth: CredentialAuth::Keyless };
        }
        let unusable = keyring.profiles.iter().filter(|profile| profile.provider == provider);
        let unusable = unusable.filter_map(|profile| Some(format!(" ({}: {})", profile.id, unusable_reason(profile)?)));
        if has_sign_in {
            let unusable = unusable.collect::<String>();
            let login = format!("homard models auth login --provider {provider}");
            return missing_key(provider, format!("not signed in to {provider}{unusable}; run: {login}"));
        }
        let variable = environment::names(provider).iter().find(|name| name.ends_with("_KEY"));
        let variable = variable.map_or(String::new(), |name| format!("set {name}, or "));
        let why = format!(
            "no API key for {provider}{}; {variable}run: homard models auth add {provider}",
            unusable.collect::<String>()
        );
        missing_key(provider, why)
    }
}

/// Returns the entry for a required key that is missing.
fn missing_key(provider: &str, why: String) -> ProviderKey {
    ProviderKey {
        id: format!("missing:{provider}"),
        credential: Credential::ApiKey,
        auth: CredentialAuth::Unusable(why),
    }
}

impl ProviderKey {
    /// Returns why the credential cannot be used; empty if it can.
    pub fn unusable_reason(&self) -> &str {
        match &self.auth {
            CredentialAuth::Unusable(why) => why,
            CredentialAuth::Static(_) | CredentialAuth::SignIn(_) | CredentialAuth::Keyless => "",
        }
    }

    /// Returns true if the same secret is not yet known under another id.
    fn is_new(&self, known: &mut HashSet<String>) -> bool {
        match &self.auth {
            CredentialAuth::Static(Credentials::Key(secret) | Credentials::Token(secret)) => {
                known.insert(Secret::expose(secret).to_owned())
            }
            CredentialAuth::SignIn(_) | CredentialAuth::Keyless | CredentialAuth::Unusable(_) => true,
        }
    }
}

fn plain(id: String, auth: Credentials) -> ProviderKey {
    let credential = match auth {
        Credentials::Key(_) => Credential::ApiKey,
        Credentials::Token(_) => Credential::Token,
    };
    ProviderKey { id, credential, auth: CredentialAuth::Static(auth) }
}

/// Converts a profile. Expired profiles are left out, unless they can be renewed.
fn from_profile(profile: &CredentialProfile) -> Option<ProviderKey> {
    if unusable_reason(profile).is_some() {
        return None;
    }
    let id = profile.id.clone();
    match &profile.kind {
        Kind::Key(secret) => Some(plain(id, Credentials::Key(secret.clone()))),
        Kind::Token(secret) => Some(plain(id, Credentials::Token(secret.clone()))),
        Kind::SignIn(credential, sign_in) => {
            Some(ProviderKey { id, credential: *credential, auth: CredentialAuth::SignIn(sign_in.clone()) })
        }
        Kind::Unusable(_) => None,
    }
}

/// Returns why a profile cannot be used, if so.
pub fn unusable_reason(profile: &CredentialProfile) -> Option<String> {
    match &profile.kind {
        Kind::Key(_) | Kind::Token(_) => None,
        Kind::SignIn(_, sign_in) => sign_in.unusable_reason(),
        Kind::Unusable(why) => Some(why.clone()),
    }
}
