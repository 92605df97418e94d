//! Resolves `"provider/model"` names to model clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{future::ready, stream};
use homard_credentials::auth_profiles::{
    Keyring,
    sign_in::{SignIn, SignInModel},
};
use homard_model::{
    Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request,
    candidates::{Candidate, CandidateRank, Candidates, Credential, CredentialOrder},
    catalog::{CatalogEntry, provider_name},
    demo::Demo,
};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Secret, quirks};
use homard_settings::{Config, ModelNames, NamedModel};

use super::{
    environment::Environment,
    keys::{CredentialAuth, ProviderKey},
    known_apis::KnownApis,
    probed_model::{ApiProbe, ProbedModel},
};

/// All known models, and what is needed to send requests to them.
#[derive(Debug)]
pub struct Models {
    pub names: ModelNames,
    extras: BTreeMap<String, ProviderSettings>,
    /// The models that may be selected; any if empty.
    allowed: BTreeSet<String>,
    /// Order of a provider's credentials, from the config.
    pub order: BTreeMap<String, Vec<String>>,
    pub environment: Environment,
    pub client: HttpClient,
    /// Results of API probes.
    apis: KnownApis,
    /// By provider and base URL, for providers whose API the config does not name.
    finders: Mutex<BTreeMap<(String, String), Arc<ApiProbe>>>,
}

/// Settings of a provider besides its models.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderSettings {
    pub key: Option<Credentials>,
    /// Why the key of the config cannot be used, if so.
    pub(super) key_fault: Option<String>,
    /// True if the user signs in at the provider.
    pub(super) has_sign_in: bool,
    headers: Vec<(String, Secret)>,
    /// True if the config sets a base URL.
    has_base_url: bool,
    /// True if the key is also sent as a bearer token.
    is_bearer: bool,
}

impl Models {
    /// Builds the models from a config and the environment, with the probe results of a state directory.
    pub fn new(config: &Config, environment: Environment, state: &Path) -> Self {
        let extras = config.models.providers.iter().map(|(id, provider)| {
            let key = provider.api_key.as_ref().map(|key| key.as_str().trim()).filter(|key| !key.is_empty());
            let is_token = matches!(provider.auth.as_deref(), Some("token" | "oauth"));
            let extras = ProviderSettings {
                key: key
                    .map(|key| if is_token { Credentials::Token(key.into()) } else { Credentials::Key(key.into()) }),
                headers: provider.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
                key_fault: provider.key_fault.clone(),
                has_sign_in: provider.oauth.is_some(),
                has_base_url: provider.base_url.is_some(),
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
        Self { names, extras, allowed, order, environment, client: HttpClient::default(), apis, finders }
    }

    /// Returns the models that may be selected; empty if any may be.
    pub(super) fn selectable(&self) -> Arc<[String]> {
        self.allowed.iter().cloned().collect()
    }

    /// Returns the settings of a provider besides its models.
    pub(crate) fn extras(&self, provider: &str) -> Option<&ProviderSettings> {
        self.extras.get(&provider_name(provider))
    }

    /// Returns the additional headers of a provider's requests.
    pub(crate) fn headers(&self, provider: &str) -> Vec<(String, Secret)> {
        self.extras(provider).map(|extras| extras.headers.clone()).unwrap_or_default()
    }

    /// Returns why keys named in the config cannot be used.
    pub(super) fn key_faults(&self) -> impl Iterator<Item = &str> {
        self.extras.values().filter_map(|extras| extras.key_fault.as_deref())
    }

    /// Returns true if a provider may be used without a key: it runs locally, or the config gives its base URL and no
    /// key.
    pub(crate) fn is_keyless(&self, provider: &str) -> bool {
        let is_placed = self.extras(provider).is_some_and(|extras| extras.has_base_url);
        is_placed || quirks::provider(provider).is_some_and(|known| known.is_local)
    }

    /// Returns a model by its name or alias.
    pub fn entry(&self, name: &str) -> Result<NamedModel, homard_settings::Error> {
        self.names.entry(name)
    }

    /// Returns true if the model may be selected.
    pub fn allows(&self, named: &NamedModel) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&named.name())
    }

    /// Builds the candidates in order: each model with all credentials of its provider.
    pub fn candidates(&self, keyring: &Keyring, names: &[NamedModel]) -> Result<Candidates, crate::Error> {
        if let [NamedModel::Demo] = names {
            return Ok(Candidates::single(Arc::new(Demo::default())));
        }
        let mut ranks = Vec::new();
        for named in names {
            match named {
                NamedModel::Demo => {
                    let model = Arc::new(Demo::default());
                    let demo = Candidate { model, profile: "none:homard".into(), credential: Credential::ApiKey };
                    ranks.push(CandidateRank { candidates: vec![demo], order: CredentialOrder::Configured });
                }
                NamedModel::Entry(entry) => {
                    for (order, keys) in self.keys(keyring, &provider_name(&entry.spec.provider)) {
                        let is_first = ranks.is_empty();
                        let candidate = |key: ProviderKey| {
                            let (id, credential) = (key.id.clone(), key.credential);
                            // A fallback that cannot be built becomes a candidate that fails with the reason.
                            self.candidate(entry, key).or_else(|error| match is_first {
                                true => Err(error),
                                false => {
                                    let error = Error::new(ErrorKind::Misconfigured, format!("{error:#}"));
                                    let model = Arc::new(UnusableModel { spec: entry.spec.clone(), error });
                                    Ok(Candidate { model, profile: id.into(), credential })
                                }
                            })
                        };
                        let candidates = keys.into_iter().map(candidate).collect::<Result<_, crate::Error>>();
                        ranks.push(CandidateRank { candidates: candidates?, order });
                    }
                }
            }
        }
        Candidates::new(ranks, keyring.health.clone())
            .ok_or_else(|| crate::Error::Config("no model candidate is available".to_owned()))
    }

    /// Builds the candidates for a model that was selected for a session: no fallbacks.
    pub fn pinned(&self, keyring: &Keyring, name: &str, listed: &[NamedModel]) -> Result<Candidates, crate::Error> {
        let named = self.entry(name)?;
        if !self.allows(&named) && !listed.iter().any(|listed| listed.name() == named.name()) {
            return Err(crate::Error::Config("the model is not listed in agents.defaults.models".to_owned()));
        }
        self.candidates(keyring, &[named])
    }

    /// Returns the probe for a provider's API, shared by all models of that provider.
    fn api_probe(&self, provider: &str, base_url: &str) -> Arc<ApiProbe> {
        let mut finders = self.finders.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(ApiProbe::new(&self.apis, provider, base_url));
        finders.entry((provider.to_owned(), base_url.to_owned())).or_insert_with(make).clone()
    }

    fn candidate(&self, entry: &CatalogEntry, key: ProviderKey) -> Result<Candidate, crate::Error> {
        let ProviderKey { id, credential, auth: key_auth } = key;
        let mut target = ModelTarget::new(entry.spec.clone(), entry.base_url.clone());
        let extras = self.extras(&entry.spec.provider).cloned().unwrap_or_default();
        target.headers = extras.headers;
        if let (true, CredentialAuth::Static(Credentials::Key(secret) | Credentials::Token(secret))) =
            (extras.is_bearer, &key_auth)
        {
            target.headers.push(("authorization".to_owned(), format!("Bearer {}", secret.expose().trim()).into()));
        }
        let closed = |why: String| {
            let error = Error { status: Some(401), ..Error::new(ErrorKind::Auth, why) };
            Arc::new(UnusableModel { spec: entry.spec.clone(), error }) as Arc<dyn Model>
        };
        let connect = |auth, sign_in: Option<Arc<SignIn>>| -> Result<Arc<dyn Model>, Error> {
            let target = ModelTarget { auth, ..target.clone() };
            if entry.spec.api.is_empty() {
                let finder = self.api_probe(&entry.spec.provider, &entry.base_url);
                return Ok(Arc::new(ProbedModel::new(target, &self.client, sign_in, finder)?));
            }
            let remote = RemoteModel::new(target.clone(), &self.client)?;
            Ok(match sign_in {
                Some(sign_in) => Arc::new(SignInModel { target, client: self.client.clone(), sign_in }),
                None => Arc::new(remote),
            })
        };
        let unusable =
            |error: Error| crate::Error::Config(format!("models.providers.{}: {error}", entry.spec.provider));
        let model = match key_auth {
            // A key that is not a valid header value makes only its own candidate unusable.
            CredentialAuth::Static(auth) => match connect(Some(auth), None) {
                Err(error) if error.kind == ErrorKind::Auth => closed(error.message),
                connected => connected.map_err(unusable)?,
            },
            CredentialAuth::Keyless => connect(None, None).map_err(unusable)?,
            CredentialAuth::SignIn(sign_in) => connect(None, Some(sign_in)).map_err(unusable)?,
            CredentialAuth::Unusable(why) => closed(why),
        };
        Ok(Candidate { model, profile: id.into(), credential })
    }
}

/// A model that cannot be used; every request fails with the reason.
pub(super) struct UnusableModel {
    pub spec: ModelSpec,
    pub error: Error,
}

impl Model for UnusableModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn stream(&self, _: Request) -> EventStream {
        Box::pin(stream::once(ready(ModelEvent::Failed(self.error.clone()))))
    }

    fn unusable(&self) -> Option<&Error> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests;
