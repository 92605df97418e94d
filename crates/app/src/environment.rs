//! API keys from environment variables.

use std::collections::BTreeMap;

use homard_model::catalog::provider_name;
use homard_providers::{
    Credentials, Secret,
    quirks::{self, PROVIDERS},
};

/// Environment variables of providers without an entry in the quirks table. The first one that is set is used.
const EXTRA_VARIABLES: &[(&str, &[&str])] = &[
    ("cerebras", &["CEREBRAS_API_KEY"]),
    ("minimax", &["MINIMAX_API_KEY"]),
    ("moonshot", &["MOONSHOT_API_KEY"]),
    ("kimi-coding", &["KIMICODE_API_KEY", "KIMI_API_KEY"]),
    ("zai", &["ZAI_API_KEY", "Z_AI_API_KEY"]),
    ("opencode", &["OPENCODE_API_KEY", "OPENCODE_ZEN_API_KEY"]),
    ("vercel-ai-gateway", &["AI_GATEWAY_API_KEY"]),
    ("synthetic", &["SYNTHETIC_API_KEY"]),
    ("venice", &["VENICE_API_KEY"]),
];

/// Returns the environment variables for a provider's key, in order of preference.
pub fn names(provider: &str) -> &'static [&'static str] {
    let provider = provider_name(provider);
    match quirks::provider(&provider) {
        Some(known) => known.env,
        None => EXTRA_VARIABLES.iter().find(|(name, _)| *name == provider).map_or(&[], |(_, names)| names),
    }
}

/// API keys from the environment, by variable name.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<&'static str, Secret>);

impl Environment {
    /// Reads every variable that may hold a key.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let known =
            PROVIDERS.iter().map(|provider| provider.env).chain(EXTRA_VARIABLES.iter().map(|(_, names)| *names));
        let set = known.flatten().filter_map(|name| {
            let value = variable(name)?.trim().to_owned();
            (!value.is_empty()).then(|| (*name, value.into()))
        });
        Self(set.collect())
    }

    /// Returns the key of a provider and the variable that holds it.
    pub fn key(&self, provider: &str) -> Option<(&'static str, Credentials)> {
        let (name, secret) = names(provider).iter().find_map(|name| Some((*name, self.0.get(name)?.clone())))?;
        Some((name, if name.ends_with("_TOKEN") { Credentials::Token(secret) } else { Credentials::Key(secret) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_set_variable_is_used() {
        let set =
            [("GOOGLE_API_KEY", "g"), ("ANTHROPIC_OAUTH_TOKEN", "t"), ("ANTHROPIC_API_KEY", "k"), ("XAI_API_KEY", " ")];
        let environment = Environment::read(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        assert_eq!(environment.key("google"), Some(("GOOGLE_API_KEY", Credentials::Key("g".into()))));
        assert_eq!(environment.key("Anthropic"), Some(("ANTHROPIC_OAUTH_TOKEN", Credentials::Token("t".into()))));
        assert_eq!((environment.key("xai"), environment.key("nobody")), (None, None));
        assert_eq!(names("Z.AI"), ["ZAI_API_KEY", "Z_AI_API_KEY"]);
    }
}
