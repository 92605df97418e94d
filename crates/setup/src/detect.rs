//! What exists on this machine: keys in the environment, stored keys, and model servers.

use std::time::Duration;

use futures_util::future::join_all;
use homard_app::{
    keys::{CredentialAuth, CredentialSource},
    model_chain::DEFAULT_MODELS,
};
use homard_model::catalog::provider_name;
use homard_providers::quirks;
use homard_settings::NamedModel;
use tokio::time::timeout;

use crate::{
    Error, ModelsContext,
    questions::{Discovery, LocalServer},
};

/// Time within which a server on this machine answers.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks for keys and for servers.
pub(super) async fn detect(setup: &ModelsContext) -> Result<Discovery, Error> {
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let place = |provider: &str| {
        let keys = setup.models.keys(&keyring, provider).into_iter().flat_map(|(_, keys)| keys);
        let key = { keys }.find(|key| matches!(key.auth, CredentialAuth::Static(_) | CredentialAuth::SignIn(_)))?;
        Some(match CredentialSource::of(&key.id) {
            CredentialSource::Environment(name) => format!("{name} in the environment"),
            CredentialSource::Config(key) => format!("{key} in the config"),
            CredentialSource::Profile | CredentialSource::None | CredentialSource::Missing => {
                format!("the stored key {}", key.id)
            }
        })
    };
    let found = DEFAULT_MODELS.iter().filter_map(|(provider, _)| Some(((*provider).to_owned(), place(provider)?)));
    let keys = found.collect();
    // Only loopback: the setup must not scan a network. Another address is asked only if the user configured it.
    let local = quirks::PROVIDERS.iter().filter(|known| known.is_local);
    let ask = |known: &'static quirks::Provider| {
        let keyring = &keyring;
        async move {
            let models = timeout(LOCAL_TIMEOUT, setup.models.listed_by_server(keyring, known.id)).await.ok()?.ok()?;
            let configured = setup.models.names.configured.iter().find(|other| provider_name(&other.id) == known.id);
            let base_url =
                configured.and_then(|other| other.base_url.clone()).unwrap_or_else(|| known.base_url.to_owned());
            (!models.is_empty()).then(|| LocalServer { provider: known.id.to_owned(), base_url, models })
        }
    };
    let servers = join_all(local.map(ask)).await.into_iter().flatten().collect();
    Ok(Discovery { current: current_model(setup)?, keys, servers })
}

/// Returns the model that the config names, if it can be used.
fn current_model(setup: &ModelsContext) -> Result<Option<String>, Error> {
    let agent = setup.agent(None)?;
    let choice = agent.config.model.as_ref().or(setup.config.agents.defaults.model.as_ref());
    let name = choice.and_then(|choice| choice.primary.as_ref()).map(|name| name.as_str().to_owned());
    let is_usable = |name: &String| matches!(setup.models.entry(name), Ok(NamedModel::Entry(_) | NamedModel::Demo));
    Ok(name.filter(is_usable))
}
