//! The models of an agent as they are configured: the first one, and what is missing.

use homard_app::{
    factory,
    keys::{self, CredentialSource},
    model_chain::{ModelChain, SelectionReason},
};
use homard_credentials::auth_profiles::Keyring;
use homard_model::candidates::{Candidate, PreferredCredential};
use homard_runtime::Ambient;
use homard_settings::NamedModel;
use homard_store::timeline::PromptCuts;

use crate::{Error, ModelsContext};

/// Returns each text once, in order: several candidates of one provider lack the same key.
pub fn distinct(texts: &[String]) -> impl Iterator<Item = &str> {
    let is_first = move |at: usize| !texts[..at].contains(&texts[at]);
    texts.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, text)| text.as_str())
}

/// Model status of an agent: its primary model, and problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelStatus {
    /// The first candidate's model.
    pub primary: String,
    /// True if that is the demo model because there is no other.
    pub is_demo: bool,
    /// Number of candidates.
    pub candidate_count: usize,
    /// Candidates without a key, each with the remedy.
    pub missing: Vec<String>,
    /// Credentials that cannot be used.
    pub unusable: Vec<String>,
    /// Fallbacks that are not used.
    pub skipped_fallbacks: Vec<String>,
    /// Models whose prompt is shortened, and how.
    pub shortened: Vec<(String, PromptCuts)>,
    /// Why no candidate is usable now, if so.
    pub outage: Option<String>,
}

impl ModelStatus {
    /// Returns the status of the agent with this id; without one, of the default agent.
    pub fn find(setup: &ModelsContext, agent: Option<&str>) -> Result<Self, Error> {
        let agent = setup.agent(agent)?;
        let keyring = setup.keyring(&agent)?;
        let chain = ModelChain::of(&setup.config, agent.config, &setup.models, &keyring)?;
        let candidates = setup.models.candidates(&keyring, &chain.models)?;
        let now = Ambient::system().now_ms();
        let order = candidates.order(now, &PreferredCredential::Any);
        let shortened =
            |model: &NamedModel| Some((model.name(), factory::shortened(&setup.config, &setup.paths, &agent, model)?));
        let shortened = chain.models.iter().filter_map(shortened).collect();
        Ok(Self { shortened, outage: candidates.outage(now), ..Self::of(setup, &chain, &keyring, &order) })
    }

    /// Returns the status of a chain whose candidates are in this order.
    pub fn of(setup: &ModelsContext, chain: &ModelChain, keyring: &Keyring, order: &[Candidate]) -> Self {
        let missing =
            order.iter().filter(|candidate| CredentialSource::of(&candidate.profile) == CredentialSource::Missing);
        let missing = missing.map(|candidate| {
            let keys = setup.models.keys(keyring, &candidate.model.spec().provider);
            keys.iter().flat_map(|(_, keys)| keys).map(keys::ProviderKey::unusable_reason).collect::<String>()
        });
        Self {
            primary: chain.primary(),
            is_demo: chain.reason == SelectionReason::DemoModel,
            candidate_count: order.len(),
            missing: missing.collect(),
            unusable: unusable_credentials(keyring).map(|(id, why)| format!("{id} cannot be used: {why}")).collect(),
            skipped_fallbacks: chain.skipped.iter().map(|left_out| left_out.reason.clone()).collect(),
            shortened: Vec::new(),
            outage: None,
        }
    }
}

/// Returns the credentials that cannot be used, and why.
pub fn unusable_credentials(keyring: &Keyring) -> impl Iterator<Item = (&str, String)> {
    keyring.profiles.iter().filter_map(|profile| Some((&*profile.id, keys::unusable_reason(profile)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missing_key_is_printed_once() {
        let missing = ["p has no key", "q has no key", "p has no key"].map(str::to_owned);
        assert_eq!(distinct(&missing).collect::<Vec<_>>(), ["p has no key", "q has no key"]);
    }
}
