//! Model selection of an agent: the primary model, its fallbacks, and the default if the config names none.

use std::path::Path;

use homard_credentials::auth_profiles::Keyring;
use homard_settings::{Config, DEMO, NamedModel, agents::Agent};

use super::{
    Error,
    keys::{CredentialAuth, CredentialSource},
    models::Models,
};

/// Default model per provider, for configs that name no model. The first provider with a credential wins.
pub const DEFAULT_MODELS: &[(&str, &str)] = &[
    ("anthropic", "claude-opus-5-5"),
    ("openai", "gpt-6.1-sol"),
    ("google", "gemini-3.8-flash"),
    ("openrouter", "anthropic/claude-sonnet-5.5"),
    ("xai", "grok-4.7"),
    ("mistral", "mistral-large-4"),
    ("groq", "openai/gpt-oss-120b"),
    ("deepseek", "deepseek-v4-pro"),
    ("cerebras", "gpt-oss-120b"),
    ("minimax", "MiniMax-M3"),
    ("moonshot", "kimi-k3.1-pro"),
    ("zai", "glm-5.3"),
];

/// The models of an agent, in the order in which they are tried.
#[derive(Debug)]
pub struct ModelChain {
    /// The primary model, then the fallbacks. Never empty.
    pub models: Vec<NamedModel>,
    /// Fallbacks that are not used.
    pub skipped: Vec<SkippedFallback>,
    pub reason: SelectionReason,
}

/// A fallback that is not used. The remaining ones still are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFallback {
    pub name: String,
    /// Reason, as a complete sentence.
    pub reason: String,
}

/// Why the primary model was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectionReason {
    /// The config names it.
    Configured,
    /// A credential for it exists: its source, and the other providers that have one, too.
    Credential { from: String, others: Vec<&'static str> },
    /// There is no credential; the demo model answers.
    DemoModel,
}

impl ModelChain {
    /// Selects the models of an agent from the config or, if it names none, by the available credentials.
    pub fn of(config: &Config, agent: &Agent, models: &Models, keyring: &Keyring) -> Result<Self, Error> {
        let own_choice = agent.model.as_ref();
        let shared = config.agents.defaults.model.as_ref();
        let primary = |path: &str, choice: Option<&homard_settings::agents::Choice>| {
            let name = choice.and_then(|choice| choice.primary.as_ref())?;
            Some((path.to_owned(), name.as_str().to_owned()))
        };
        let shared_primary = primary("agents.defaults.model", shared);
        let (first, why) = match primary("agents.list[].model", own_choice).or_else(|| shared_primary.clone()) {
            Some(first) => (first, SelectionReason::Configured),
            None => {
                let (name, why) = default_by_credential(models, keyring);
                if let Some(fault) = models.key_faults().next().filter(|_| why == SelectionReason::DemoModel) {
                    return Err(Error::Config(format!("no model is configured, and no API key is usable: {fault}")));
                }
                (("the default model".to_owned(), name), why)
            }
        };
        let own_list = own_choice.and_then(|choice| choice.fallbacks.as_ref());
        let (path, fallbacks) = match own_list {
            Some(list) => ("agents.list[].model.fallbacks", Some(list)),
            None => ("agents.defaults.model.fallbacks", shared.and_then(|choice| choice.fallbacks.as_ref())),
        };
        let fallbacks = fallbacks.into_iter().flatten().map(|name| (path.to_owned(), name.as_str().to_owned()));
        let shared_last = shared_primary.filter(|_| own_list.is_none());
        let mut chain = Self { models: Vec::new(), skipped: Vec::new(), reason: why };
        let (path, name) = first;
        let first = models.entry(&name).map_err(|error| Error::Config(format!("{path} is \"{name}\": {error}")))?;
        chain.models.push(first);
        let rest =
            fallbacks.map(|fallback| (fallback, true)).chain(shared_last.map(|shared_last| (shared_last, false)));
        for ((path, name), is_listed) in rest {
            match models.entry(&name) {
                Ok(named) if is_listed && !models.allows(&named) => {
                    let name = named.name();
                    let reason = format!("fallback {name} is not listed in agents.defaults.models and is ignored");
                    chain.skipped.push(SkippedFallback { name, reason });
                }
                Ok(named) if chain.models.iter().any(|known| known.name() == named.name()) => {}
                Ok(named) => chain.models.push(named),
                Err(error) => {
                    let reason = format!("{path} names \"{name}\", which is ignored: {error:#}");
                    chain.skipped.push(SkippedFallback { name, reason });
                }
            }
        }
        Ok(chain)
    }

    /// Returns the name of the primary model.
    pub fn primary(&self) -> String {
        self.models.first().map_or_else(|| DEMO.to_owned(), NamedModel::name)
    }

    /// Returns a remark for the user if the model was selected by credential and not by the config.
    pub fn remark(&self, config: &Path) -> Option<String> {
        let SelectionReason::Credential { from, others } = &self.reason else { return None };
        let first = self.primary();
        let others = match others.as_slice() {
            [] => String::new(),
            others => format!(", preferred over {}", others.join(", ")),
        };
        let config = config.display();
        Some(format!(
            "(using {first} because of {from}{others}; to use another model, set agents.defaults.model in {config})"
        ))
    }
}

/// Selects the default model of the first provider that has a usable credential.
fn default_by_credential(models: &Models, keyring: &Keyring) -> (String, SelectionReason) {
    let mut usable = DEFAULT_MODELS.iter().filter_map(|(provider, model)| {
        let keys = models.keys(keyring, provider).into_iter().flat_map(|(_, keys)| keys);
        let key =
            keys.into_iter().find(|key| matches!(key.auth, CredentialAuth::Static(_) | CredentialAuth::SignIn(_)))?;
        Some((*provider, *model, key.id))
    });
    let Some((provider, model, id)) = usable.next() else { return (DEMO.to_owned(), SelectionReason::DemoModel) };
    let from = match CredentialSource::of(&id) {
        CredentialSource::Environment(name) => format!("{name} in the environment"),
        CredentialSource::Config(key) => format!("{key} in the config"),
        CredentialSource::Profile => format!("the auth profiles of {provider}"),
        CredentialSource::None | CredentialSource::Missing => id,
    };
    (
        format!("{provider}/{model}"),
        SelectionReason::Credential { from, others: usable.map(|(provider, ..)| provider).collect() },
    )
}

#[cfg(test)]
mod tests {
    use homard_model::catalog;

    use super::*;

    #[test]
    fn every_first_choice_is_in_the_catalogue() {
        for (provider, model) in DEFAULT_MODELS {
            assert!(catalog::find(provider, model).is_some(), "{provider}/{model}");
        }
    }
}
