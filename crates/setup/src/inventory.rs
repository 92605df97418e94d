//! The models of all providers: those that the catalogue and the config name, and those that servers list.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use homard_app::keys::{CredentialAuth, ProviderKey};
use homard_credentials::auth_profiles::Keyring;
use homard_model::catalog::{self, CatalogEntry, provider_name};
use homard_providers::ListedModel;

use crate::{Error, ModelsContext};

/// Which providers are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Those with a usable credential, or without need of one.
    Usable,
    /// All that are known.
    All,
    /// This one.
    Provider(&'a str),
}

/// Models, and what is to be said about providers without any.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Each model, and whether its provider can be used.
    pub models: Vec<(CatalogEntry, bool)>,
    /// A sentence for each configured provider whose models are not in the list.
    pub notes: Vec<String>,
    /// All providers with known models.
    pub providers: BTreeSet<String>,
}

/// Returns the models that the catalogue and the config name.
pub fn known_models(setup: &ModelsContext, selection: Selection<'_>) -> Result<Inventory, Error> {
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let known = catalog::providers().flat_map(catalog::provider).collect();
    let entries = catalog::extend(known, &setup.models.names.configured, setup.models.names.mode);
    let names: BTreeSet<_> = entries.iter().map(|entry| provider_name(&entry.spec.provider)).collect();
    let is_usable = |name: &String| {
        let is_open = |key: &ProviderKey| !matches!(key.auth, CredentialAuth::Unusable(_));
        setup.models.keys(&keyring, name).iter().flat_map(|(_, keys)| keys).any(is_open)
    };
    let usable: BTreeSet<_> = names.iter().filter(|name| is_usable(name)).cloned().collect();
    let shown: BTreeSet<_> = match selection {
        Selection::Provider(provider) if names.contains(&provider_name(provider)) => [provider_name(provider)].into(),
        Selection::Provider(provider) => {
            let provider = provider_name(provider);
            let known = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Error::Usage(format!(
                "no models of \"{provider}\" are known; providers with known models: {known}"
            )));
        }
        Selection::All => names.clone(),
        Selection::Usable => usable.clone(),
    };
    let notes = match selection {
        Selection::Provider(_) => Vec::new(),
        Selection::All | Selection::Usable => configured_without_models(setup, &keyring, &entries),
    };
    let models = entries.into_iter().filter_map(|entry| {
        let provider = provider_name(&entry.spec.provider);
        shown.contains(&provider).then(|| (entry, usable.contains(&provider)))
    });
    Ok(Inventory { models: models.collect(), notes, providers: names })
}

/// Returns a sentence for each configured provider whose models are not in the list: it has no usable key, or the config
/// names none of its models.
fn configured_without_models(setup: &ModelsContext, keyring: &Keyring, entries: &[CatalogEntry]) -> Vec<String> {
    let note = |id: &String| {
        let name = provider_name(id);
        let keys: Vec<_> = setup.models.keys(keyring, &name).into_iter().flat_map(|(_, keys)| keys).collect();
        if let Some(key) = keys.first().filter(|_| keys.iter().all(|key| !key.unusable_reason().is_empty())) {
            return Some(format!("the models of {id} cannot be used: {}", key.unusable_reason()));
        }
        let has_models = entries.iter().any(|entry| provider_name(&entry.spec.provider) == name);
        let how = format!(
            "{id} is configured without models; ask its server with: homard models list --probe --provider {id}"
        );
        (!has_models).then_some(how)
    };
    setup.config.models.providers.keys().filter_map(note).collect()
}

/// What the server of a provider lists, or why it does not.
pub type ServerList = (String, Result<Vec<ListedModel>, homard_model::Error>);

/// Asks the servers of all usable providers, or of one, for their models.
///
/// # Errors
///
/// The server of the named provider does not list its models. The failure of one of several is part of the result.
pub async fn listed_models(setup: &ModelsContext, provider: Option<&str>) -> Result<Vec<ServerList>, Error> {
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let providers: BTreeSet<String> = match provider {
        Some(name) => [name.to_owned()].into(),
        None => {
            let configured = setup.config.models.providers.keys().cloned();
            let known = catalog::providers().filter(|name| {
                let mut keys = setup.models.keys(&keyring, name).into_iter().flat_map(|(_, keys)| keys);
                keys.any(|key| key.unusable_reason().is_empty())
            });
            configured.chain(known.map(str::to_owned)).collect()
        }
    };
    let ask = |name: String| {
        let keyring = &keyring;
        async move {
            let listed = setup.models.listed_by_server(keyring, &name).await;
            (name, listed)
        }
    };
    let answers = join_all(providers.into_iter().map(ask)).await;
    match (provider, answers.as_slice()) {
        (Some(_), [(_, Err(error))]) => Err(Error::Model(error.message.clone())),
        _ => Ok(answers),
    }
}
