//! Resolves `"provider/model"` names to model clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::{future::ready, stream};
use homard_model::{
    Error, ErrorKind, Event, EventStream, Model, Request, Spec,
    catalog::{Entry, provider_name},
    demo::Demo,
    roster::{Candidate, Credential, Order, Rank, Roster},
};
use homard_providers::{Auth, Client, Remote, Secret, Target, quirks};

use super::{
    environment::Environment,
    keys::{Key, Way},
    known_apis::KnownApis,
    probed::{ApiFinder, Probed},
};
use crate::{
    auth::{
        Keyring,
        sign_in::{SignIn, SignedIn},
    },
    config::{Config, ModelNames, Named},
};

/// All known models, and what is needed to send requests to them.
#[derive(Debug)]
pub(crate) struct Models {
    pub(crate) names: ModelNames,
    extras: BTreeMap<String, Extras>,
    /// The models that may be selected; any if empty.
    allowed: BTreeSet<String>,
    /// Order of a provider's credentials, from the config.
    pub(super) order: BTreeMap<String, Vec<String>>,
    pub(super) environment: Environment,
    pub(crate) client: Client,
    /// Results of API probes.
    apis: KnownApis,
    /// By provider and base URL, for providers whose API the config does not name.
    finders: Mutex<BTreeMap<(String, String), Arc<ApiFinder>>>,
}

/// Settings of a provider besides its models.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub(crate) key: Option<Auth>,
    /// Why the key of the config cannot be used, if so.
    pub(super) key_fault: Option<String>,
    headers: Vec<(String, Secret)>,
    /// True if the config sets a base URL.
    is_placed: bool,
    /// True if the key is also sent as a bearer token.
    is_bearer: bool,
}

impl Models {
    /// Builds the models from a config and the environment, with the probe results of a state directory.
    pub(crate) fn new(config: &Config, environment: Environment, state: &Path) -> Self {
        let extras = config.models.providers.iter().map(|(id, provider)| {
            let key = provider.api_key.as_ref().map(|key| key.as_str().trim()).filter(|key| !key.is_empty());
            let is_token = matches!(provider.auth.as_deref(), Some("token" | "oauth"));
            let extras = Extras {
                key: key.map(|key| if is_token { Auth::Token(key.into()) } else { Auth::Key(key.into()) }),
                headers: provider.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
                key_fault: provider.key_fault.clone(),
                is_placed: provider.base_url.is_some(),
                is_bearer: provider.auth_header,
            };
            (provider_name(id), extras)
        });
        let extras = extras.collect();
        let listed = &config.agents.defaults.models;
        let order = config.auth.order.iter().map(|(provider, ids)| (provider_name(provider), ids.clone())).collect();
        let names = ModelNames::of(config);
        let allowed = listed.keys().filter_map(|name| Some(names.entry(name).ok()?.name())).collect();
        let (apis, finders) = (KnownApis::of(state), Mutex::default());
        Self { names, extras, allowed, order, environment, client: Client::default(), apis, finders }
    }

    /// Returns the models that may be selected; empty if any may be.
    pub(super) fn offers(&self) -> Arc<[String]> {
        self.allowed.iter().cloned().collect()
    }

    /// Returns the settings of a provider besides its models.
    pub(super) fn extras(&self, provider: &str) -> Option<&Extras> {
        self.extras.get(&provider_name(provider))
    }

    /// Returns why keys named in the config cannot be used.
    pub(super) fn key_faults(&self) -> impl Iterator<Item = &str> {
        self.extras.values().filter_map(|extras| extras.key_fault.as_deref())
    }

    /// Returns true if a provider may be used without a key: it runs locally, or the config gives its base URL and no
    /// key.
    pub(crate) fn is_free(&self, provider: &str) -> bool {
        let is_placed = self.extras(provider).is_some_and(|extras| extras.is_placed);
        is_placed || quirks::provider(provider).is_some_and(|known| known.is_local)
    }

    /// Returns a model by its name or alias.
    pub(crate) fn entry(&self, name: &str) -> Result<Named> {
        self.names.entry(name)
    }

    /// Returns true if the model may be selected.
    pub(crate) fn allows(&self, named: &Named) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&named.name())
    }

    /// Builds the candidates in order: each model with all credentials of its provider.
    pub(crate) fn roster(&self, keyring: &Keyring, names: &[Named]) -> Result<Roster> {
        if let [Named::Demo] = names {
            return Ok(Roster::alone(Arc::new(Demo::default())));
        }
        let mut ranks = Vec::new();
        for named in names {
            match named {
                Named::Demo => {
                    let model = Arc::new(Demo::default());
                    let demo = Candidate { model, profile: "none:homard".into(), credential: Credential::ApiKey };
                    ranks.push(Rank { candidates: vec![demo], order: Order::Given });
                }
                Named::Entry(entry) => {
                    for (order, keys) in self.keys(keyring, &provider_name(&entry.spec.provider)) {
                        let is_first = ranks.is_empty();
                        let candidate = |key: Key| {
                            let (id, credential) = (key.id.clone(), key.credential);
                            // A fallback that cannot be built becomes a candidate that fails with the reason.
                            self.candidate(entry, key).or_else(|error| match is_first {
                                true => Err(error),
                                false => {
                                    let error = Error::new(ErrorKind::Misconfigured, format!("{error:#}"));
                                    let model = Arc::new(Closed { spec: entry.spec.clone(), error });
                                    Ok(Candidate { model, profile: id.into(), credential })
                                }
                            })
                        };
                        let candidates = keys.into_iter().map(candidate).collect::<Result<_>>();
                        ranks.push(Rank { candidates: candidates?, order });
                    }
                }
            }
        }
        Roster::new(ranks, keyring.book.clone()).ok_or_else(|| anyhow!("there is no model to ask"))
    }

    /// Builds the candidates for a model that was selected for a session: no fallbacks.
    pub(crate) fn strict(&self, keyring: &Keyring, name: &str, own: &[Named]) -> Result<Roster> {
        let named = self.entry(name)?;
        if !self.allows(&named) && !own.iter().any(|own| own.name() == named.name()) {
            bail!("it is not among the models of agents.defaults.models");
        }
        self.roster(keyring, &[named])
    }

    /// Returns the probe for a provider's API, shared by all models of that provider.
    fn finder(&self, provider: &str, base_url: &str) -> Arc<ApiFinder> {
        let mut finders = self.finders.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(ApiFinder::new(&self.apis, provider, base_url));
        finders.entry((provider.to_owned(), base_url.to_owned())).or_insert_with(make).clone()
    }

    fn candidate(&self, entry: &Entry, key: Key) -> Result<Candidate> {
        let Key { id, credential, way } = key;
        let mut target = Target::new(entry.spec.clone(), entry.base_url.clone());
        let extras = self.extras(&entry.spec.provider).cloned().unwrap_or_default();
        target.headers = extras.headers;
        if let (true, Way::Plain(Auth::Key(secret) | Auth::Token(secret))) = (extras.is_bearer, &way) {
            target.headers.push(("authorization".to_owned(), format!("Bearer {}", secret.expose().trim()).into()));
        }
        let closed = |why: String| {
            let error = Error { status: Some(401), ..Error::new(ErrorKind::Auth, why) };
            Arc::new(Closed { spec: entry.spec.clone(), error }) as Arc<dyn Model>
        };
        let reach = |auth, sign_in: Option<Arc<SignIn>>| -> Result<Arc<dyn Model>, Error> {
            let target = Target { auth, ..target.clone() };
            if entry.spec.api.is_empty() {
                let finder = self.finder(&entry.spec.provider, &entry.base_url);
                return Ok(Arc::new(Probed::new(target, &self.client, sign_in, finder)?));
            }
            let remote = Remote::new(target.clone(), &self.client)?;
            Ok(match sign_in {
                Some(sign_in) => Arc::new(SignedIn { target, client: self.client.clone(), sign_in }),
                None => Arc::new(remote),
            })
        };
        let place = || format!("models.providers.{}", entry.spec.provider);
        let model = match way {
            // A key that is not a valid header value makes only its own candidate unusable.
            Way::Plain(auth) => match reach(Some(auth), None) {
                Err(error) if error.kind == ErrorKind::Auth => closed(error.message),
                reached => reached.with_context(place)?,
            },
            Way::Free => reach(None, None).with_context(place)?,
            Way::SignIn(sign_in) => reach(None, Some(sign_in)).with_context(place)?,
            Way::Closed(why) => closed(why),
        };
        Ok(Candidate { model, profile: id.into(), credential })
    }
}

/// A model that cannot be used; every request fails with the reason.
pub(super) struct Closed {
    pub(super) spec: Spec,
    pub(super) error: Error,
}

impl Model for Closed {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn stream(&self, _: Request) -> EventStream {
        Box::pin(stream::once(ready(Event::Failed(self.error.clone()))))
    }

    fn unusable(&self) -> Option<&Error> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests;
