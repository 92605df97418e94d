//! Table of differences between servers of one wire.
//!
//! A provider that is not listed gets the settings that most servers accept.

/// Differences of a server from others of its wire. Each can be overridden in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirks {
    /// Field that limits the output.
    pub limit: LimitField,
    /// True if the system prompt of a reasoning model is sent as `developer`.
    pub developer_role: bool,
    /// How reasoning is requested.
    pub effort: EffortFormat,
    /// True if it accepts its reasoning back.
    pub replays_reasoning: bool,
    /// True if token usage of a stream must be requested.
    pub asks_for_usage: bool,
    /// True if it stores answers unless told not to.
    pub store: bool,
    /// True if it accepts a key that routes a session to the same cache.
    pub cache_key: bool,
    /// True if it accepts cache markers in Anthropic's format.
    pub cache_marks: bool,
    /// True if a tool result must name the tool, and no user message may directly follow it.
    pub strict_results: bool,
    /// True if it accepts `tool_choice: none`.
    pub tool_choice: bool,
}

/// Field that limits the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitField {
    /// The old name, accepted by all servers except OpenAI's newer models.
    MaxTokens,
    /// OpenAI's new name.
    MaxCompletionTokens,
}

/// How reasoning is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffortFormat {
    /// It cannot be controlled.
    Uncontrolled,
    /// `reasoning_effort: "low"`.
    Plain,
    /// `reasoning: {effort: "low"}`.
    Nested,
    /// `thinking: {type: "enabled"}`.
    Switch,
    /// `chat_template_kwargs: {enable_thinking: true}`.
    Template,
}

/// A known provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Name in configs.
    pub id: &'static str,
    /// Base URL.
    pub base_url: &'static str,
    /// Wire API.
    pub api: &'static str,
    /// Environment variables of its key; the first one that is set is used.
    pub env: &'static [&'static str],
    /// True if it is self-hosted and needs no key.
    pub is_local: bool,
    /// Differences from other servers.
    pub quirks: Quirks,
}

/// Settings that most servers accept.
const DEFAULT_QUIRKS: Quirks = Quirks {
    limit: LimitField::MaxTokens,
    developer_role: false,
    effort: EffortFormat::Plain,
    replays_reasoning: true,
    asks_for_usage: true,
    store: false,
    cache_key: false,
    cache_marks: false,
    strict_results: false,
    tool_choice: true,
};

const OPENAI: Quirks = Quirks {
    limit: LimitField::MaxCompletionTokens,
    developer_role: true,
    replays_reasoning: false,
    store: true,
    cache_key: true,
    ..DEFAULT_QUIRKS
};

/// All known providers. If the environment has several keys, the first provider is used.
pub const PROVIDERS: &[Provider] = &[
    cloud(
        "anthropic",
        "https://api.anthropic.com",
        "anthropic-messages",
        &["ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_API_KEY"],
    ),
    Provider {
        quirks: OPENAI,
        ..cloud("openai", "https://api.openai.com/v1", "openai-responses", &["OPENAI_API_KEY"])
    },
    cloud(
        "google",
        "https://generativelanguage.googleapis.com/v1beta",
        "google-generative-ai",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    ),
    Provider {
        quirks: Quirks { effort: EffortFormat::Nested, cache_marks: true, ..DEFAULT_QUIRKS },
        ..chat("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"])
    },
    Provider {
        quirks: Quirks { effort: EffortFormat::Uncontrolled, ..DEFAULT_QUIRKS },
        ..chat("xai", "https://api.x.ai/v1", &["XAI_API_KEY"])
    },
    Provider {
        quirks: Quirks {
            effort: EffortFormat::Uncontrolled,
            replays_reasoning: false,
            asks_for_usage: false,
            strict_results: true,
            ..DEFAULT_QUIRKS
        },
        ..chat("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"])
    },
    Provider {
        quirks: Quirks { limit: LimitField::MaxCompletionTokens, ..DEFAULT_QUIRKS },
        ..chat("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"])
    },
    Provider {
        // It rejects `tool_choice` while reasoning.
        quirks: Quirks { effort: EffortFormat::Switch, tool_choice: false, ..DEFAULT_QUIRKS },
        ..chat("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"])
    },
    local("ollama", "http://127.0.0.1:11434/v1", &["OLLAMA_API_KEY"]),
    local("lmstudio", "http://127.0.0.1:1234/v1", &["LMSTUDIO_API_KEY"]),
    Provider {
        // Some versions reject `tool_choice`, and others then write calls as text.
        quirks: Quirks { tool_choice: false, ..DEFAULT_QUIRKS },
        ..local("vllm", "http://127.0.0.1:8000/v1", &["VLLM_API_KEY"])
    },
    Provider {
        quirks: Quirks { effort: EffortFormat::Template, ..DEFAULT_QUIRKS },
        ..local("llamacpp", "http://127.0.0.1:8080/v1", &["LLAMA_API_KEY"])
    },
];

const fn cloud(id: &'static str, base_url: &'static str, api: &'static str, env: &'static [&'static str]) -> Provider {
    Provider { id, base_url, api, env, is_local: false, quirks: DEFAULT_QUIRKS }
}

const fn chat(id: &'static str, base_url: &'static str, env: &'static [&'static str]) -> Provider {
    cloud(id, base_url, "openai-completions", env)
}

const fn local(id: &'static str, base_url: &'static str, env: &'static [&'static str]) -> Provider {
    Provider { is_local: true, ..chat(id, base_url, env) }
}

/// Finds a provider by its name in a config.
pub fn provider(id: &str) -> Option<&'static Provider> {
    let id: String = id.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    PROVIDERS.iter().find(|provider| provider.id == id)
}

/// Returns the quirks of a server: by its host, whatever its name in the config, or else by that name.
pub fn of(id: &str, base_url: &str) -> Quirks {
    let cloud = PROVIDERS.iter().filter(|provider| !provider.is_local);
    let by_host = cloud.into_iter().find(|provider| host(provider.base_url) == host(base_url));
    by_host.or_else(|| provider(id)).map_or(DEFAULT_QUIRKS, |provider| provider.quirks)
}

/// True if a URL has the host of a known provider.
pub fn is_host_of(id: &str, base_url: &str) -> bool {
    provider(id).is_some_and(|known| host(known.base_url) == host(base_url))
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', ':', '?']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Wire, is_self_hosted};

    #[test]
    fn quirks_are_found_by_host_then_by_name() {
        let limit = |id: &str, base_url: &str| of(id, base_url).limit;
        assert_eq!(limit("mine", "https://api.openai.com/v1"), LimitField::MaxCompletionTokens);
        assert_eq!(limit("openai", "http://127.0.0.1:9/v1"), LimitField::MaxCompletionTokens);
        assert_eq!(limit("openai", "https://openrouter.ai/api/v1"), LimitField::MaxTokens);
        assert_eq!(limit("mine", "https://api.openai.com.example/v1"), LimitField::MaxTokens);
    }

    #[test]
    fn provider_names_match_in_any_spelling() {
        assert_eq!(provider("llama.cpp").map(|provider| provider.id), Some("llamacpp"));
        assert_eq!(provider("LM-Studio").map(|provider| provider.id), Some("lmstudio"));
        assert_eq!(provider("nobody"), None);
    }

    #[test]
    fn every_provider_has_a_wire_and_a_key_variable() {
        for provider in PROVIDERS {
            assert!(Wire::from_api(provider.api).is_some(), "{provider:?}");
            assert_eq!(is_self_hosted(provider.base_url), provider.is_local, "{provider:?}");
            assert!(!provider.env.is_empty(), "{provider:?}");
        }
    }
}
