//! The credentials of a provider in the order in which they are tried: profiles, then environment, then config.

use std::{collections::HashSet, sync::Arc};

use homard_model::roster::{Credential, Order};
use homard_providers::{Auth, Secret};

use super::{environment, models::Models};
use crate::auth::{Keyring, Kind, Profile, sign_in::SignIn};

/// A credential, ready to use.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Id under which cooldowns are stored.
    pub(crate) id: String,
    pub(crate) credential: Credential,
    pub(crate) way: Way,
}

/// How a credential authenticates.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// A static key or token.
    Plain(Auth),
    /// A sign-in whose access token is renewed.
    SignIn(Arc<SignIn>),
    /// The provider needs no credential.
    Free,
    /// Unusable, with the reason.
    Closed(String),
}

/// Origin of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Profile,
    Environment(String),
    Config(String),
    /// None is needed.
    None,
    /// One is needed but missing.
    Missing,
}

impl Source {
    /// Derives the origin from a credential's id.
    pub(crate) fn of(id: &str) -> Self {
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
    pub(crate) fn keys(&self, keyring: &Keyring, provider: &str) -> Vec<(Order, Vec<Key>)> {
        let given = keyring.order.get(provider).or_else(|| self.order.get(provider));
        let (order, profiles) = match given {
            Some(ids) => {
                let listed = ids.iter().filter_map(|id| keyring.profiles.iter().find(|profile| profile.id == *id));
                (Order::Given, listed.filter(|profile| profile.provider == provider).collect())
            }
            None => (Order::InTurn, keyring.profiles.iter().filter(|profile| profile.provider == provider).collect()),
        };
        let profiles: Vec<&Profile> = profiles;
        let mut known = HashSet::new();
        let mut stored: Vec<_> = profiles.into_iter().filter_map(of_profile).collect();
        stored.retain(|key| key.is_new(&mut known));
        let lent = self.environment.key(provider).map(|(name, auth)| plain(format!("env:{name}"), auth));
        let own = self.extras(provider).and_then(|extras| match (&extras.key, &extras.key_fault) {
            (Some(auth), _) => Some(plain(format!("config:{provider}"), auth.clone())),
            // The config names a key that cannot be resolved: do not send requests without one.
            (None, Some(why)) => Some(closed(provider, why.clone())),
            (None, None) => None,
        });
        let mut rest: Vec<_> = lent.into_iter().chain(own).collect();
        rest.retain(|key| key.is_new(&mut known));
        // Without any credential one entry remains: keyless access, or an error that says what to configure.
        if rest.is_empty() && stored.is_empty() {
            rest.push(self.without(keyring, provider));
        }
        // With at most one profile there is no rotation; one rank can be pinned as a whole.
        if order == Order::Given || stored.len() < 2 {
            stored.append(&mut rest);
            return vec![(Order::Given, stored)];
        }
        vec![(order, stored), (Order::Given, rest)]
    }

    /// Returns the entry for a provider without a usable credential: keyless access, or an error that says how to
    /// configure one.
    fn without(&self, keyring: &Keyring, provider: &str) -> Key {
        let credential = Credential::ApiKey;
        if self.is_free(provider) {
            return Key { id: format!("none:{provider}"), credential, way: Way::Free };
        }
        let unusable = keyring.profiles.iter().filter(|profile| profile.provider == provider);
        let unusable = unusable.filter_map(|profile| Some(format!(" ({}: {})", profile.id, trouble(profile)?)));
        let variable = environment::names(provider).iter().find(|name| name.ends_with("_KEY"));
        let variable = variable.map_or(String::new(), |name| format!("set {name}, or "));
        let why = format!(
            "there is no key for {provider}{}; {variable}run: homard models auth add {provider}",
            unusable.collect::<String>()
        );
        closed(provider, why)
    }
}

/// Returns the entry for a required key that is missing.
fn closed(provider: &str, why: String) -> Key {
    Key { id: format!("missing:{provider}"), credential: Credential::ApiKey, way: Way::Closed(why) }
}

impl Key {
    /// Returns why the credential cannot be used; empty if it can.
    pub(crate) fn closed(&self) -> &str {
        match &self.way {
            Way::Closed(why) => why,
            Way::Plain(_) | Way::SignIn(_) | Way::Free => "",
        }
    }

    /// Returns true if the same secret is not yet known under another id.
    fn is_new(&self, known: &mut HashSet<String>) -> bool {
        match &self.way {
            Way::Plain(Auth::Key(secret) | Auth::Token(secret)) => known.insert(Secret::expose(secret).to_owned()),
            Way::SignIn(_) | Way::Free | Way::Closed(_) => true,
        }
    }
}

fn plain(id: String, auth: Auth) -> Key {
    let credential = match auth {
        Auth::Key(_) => Credential::ApiKey,
        Auth::Token(_) => Credential::Token,
    };
    Key { id, credential, way: Way::Plain(auth) }
}

/// Converts a profile. Expired profiles are left out, unless they can be renewed.
fn of_profile(profile: &Profile) -> Option<Key> {
    if trouble(profile).is_some() {
        return None;
    }
    let id = profile.id.clone();
    match &profile.kind {
        Kind::Key(secret) => Some(plain(id, Auth::Key(secret.clone()))),
        Kind::Token(secret) => Some(plain(id, Auth::Token(secret.clone()))),
        Kind::SignIn(credential, sign_in) => {
            Some(Key { id, credential: *credential, way: Way::SignIn(sign_in.clone()) })
        }
        Kind::Unusable(_) => None,
    }
}

/// Returns why a profile cannot be used, if so.
pub(crate) fn trouble(profile: &Profile) -> Option<String> {
    match &profile.kind {
        Kind::Key(_) | Kind::Token(_) => None,
        Kind::SignIn(_, sign_in) => sign_in.trouble(),
        Kind::Unusable(why) => Some(why.clone()),
    }
}
