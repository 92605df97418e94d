//! From `"provider/model"` to something that answers.

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

/// All models that can be asked for, and what is needed to ask.
#[derive(Debug)]
pub(crate) struct Models {
    pub(crate) names: ModelNames,
    extras: BTreeMap<String, Extras>,
    /// What may be chosen; anything if it is empty.
    allowed: BTreeSet<String>,
    /// In which order the credentials of a provider are used, by the config.
    pub(super) order: BTreeMap<String, Vec<String>>,
    pub(super) environment: Environment,
    pub(crate) client: Client,
    /// The APIs that probes have found.
    apis: KnownApis,
    /// By provider and address, for providers of which the config does not say which API they speak.
    finders: Mutex<BTreeMap<(String, String), Arc<ApiFinder>>>,
}

/// What a config says of a provider beside its models.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub(crate) key: Option<Auth>,
    /// Why the key of the config must not be used, if so.
    pub(super) key_fault: Option<String>,
    headers: Vec<(String, Secret)>,
    /// Whether the config says where it is.
    is_placed: bool,
    /// Whether the key is sent as a bearer, too.
    is_bearer: bool,
}

impl Models {
    /// The models of a config and an environment, with what is known in a state directory.
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

    /// The models that may be chosen; none when any may be.
    pub(super) fn offers(&self) -> Arc<[String]> {
        self.allowed.iter().cloned().collect()
    }

    /// What the config says of a provider beside its models.
    pub(super) fn extras(&self, provider: &str) -> Option<&Extras> {
        self.extras.get(&provider_name(provider))
    }

    /// Why keys that the config names cannot be used.
    pub(super) fn key_faults(&self) -> impl Iterator<Item = &str> {
        self.extras.values().filter_map(|extras| extras.key_fault.as_deref())
    }

    /// Whether a provider is asked without a key if there is none: it is on one's own machine, or the config says where
    /// it is and gives no key.
    pub(crate) fn is_free(&self, provider: &str) -> bool {
        let is_placed = self.extras(provider).is_some_and(|extras| extras.is_placed);
        is_placed || quirks::provider(provider).is_some_and(|known| known.is_local)
    }

    /// A model by its name or alias.
    pub(crate) fn entry(&self, name: &str) -> Result<Named> {
        self.names.entry(name)
    }

    /// Whether a model may be chosen.
    pub(crate) fn allows(&self, named: &Named) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&named.name())
    }

    /// Who answers, in order: each model with all credentials of its provider.
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
                            // A fallback that cannot be asked says so when its turn comes.
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

    /// The model that somebody chose for a session: nobody else answers then.
    pub(crate) fn strict(&self, keyring: &Keyring, name: &str, own: &[Named]) -> Result<Roster> {
        let named = self.entry(name)?;
        if !self.allows(&named) && !own.iter().any(|own| own.name() == named.name()) {
            bail!("it is not among the models of agents.defaults.models");
        }
        self.roster(keyring, &[named])
    }

    /// Finds out which API a provider speaks; the same one for all that ask.
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
            // A key with a line end in it costs its own candidate only.
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

/// A model that cannot be asked, and says why.
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
