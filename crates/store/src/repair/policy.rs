//! Table of what each provider accepts.

use homard_proto::message::Assistant;

/// Rules of a model's provider. Created by [`Policy::of`]; applied by [`for_model`](super::for_model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(super) blanks: Blanks,
    pub(super) ids: Ids,
    pub(super) turns: Turns,
    pub(super) seals: Seals,
    /// Model of the request: only its own reasoning is sent back as reasoning.
    pub(super) model: Name,
}

/// A model, by its names in a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) api: String,
    pub(super) provider: String,
    pub(super) model: String,
}

/// Treatment of blank text blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blanks {
    Kept,
    Dropped,
}

/// Required form of call ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// Anything that is unique within its message.
    Any,
    /// Up to 64 letters, digits, `_` and `-`; unique.
    Word,
    /// Up to 40 letters and digits; unique.
    Strict,
    /// Exactly nine letters and digits; unique.
    Strict9,
}

/// Which roles must not have consecutive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// No restriction.
    Free,
    /// Consecutive user messages are merged.
    OneUser,
    /// Consecutive assistant messages are merged, and the history starts with a user message.
    OneAssistant,
}

/// Treatment of the signatures that providers attach to reasoning and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seals {
    /// Left unchanged.
    Let,
    /// Reasoning without a signature becomes text.
    Wanted,
    /// Reasoning that is not followed by other content is dropped.
    Followed,
    /// Signatures that are another provider's message ids are removed.
    NoMessageIds,
    /// Signatures that are not base64 are removed.
    Base64,
    /// Reasoning without a base64 signature is dropped.
    Base64Reasoning,
}

type Row = (fn(&Name) -> bool, Blanks, Ids, Turns, Seals);

/// The first matching row applies. Calls are paired with results for every provider.
const TABLE: &[Row] = &[
    (is_antigravity_claude, Blanks::Dropped, Ids::Strict, Turns::OneAssistant, Seals::Base64Reasoning),
    (is_google, Blanks::Dropped, Ids::Strict, Turns::OneAssistant, Seals::NoMessageIds),
    (is_anthropic, Blanks::Dropped, Ids::Word, Turns::OneUser, Seals::Wanted),
    (is_mistral, Blanks::Dropped, Ids::Strict9, Turns::Free, Seals::Let),
    (is_routed_gemini, Blanks::Dropped, Ids::Any, Turns::Free, Seals::Base64),
    (is_responses, Blanks::Kept, Ids::Any, Turns::Free, Seals::Followed),
    (|_| true, Blanks::Kept, Ids::Any, Turns::Free, Seals::Let),
];

fn is_antigravity_claude(name: &Name) -> bool {
    [&name.api, &name.provider].into_iter().any(|word| word == "google-antigravity") && name.model.contains("claude")
}

fn is_google(name: &Name) -> bool {
    let apis = ["google-generative-ai", "google-gemini-cli", "google-antigravity", "google-vertex"];
    apis.contains(&name.api.as_str()) || apis[1..3].contains(&name.provider.as_str())
}

fn is_anthropic(name: &Name) -> bool {
    name.api == "anthropic-messages" || name.api == "bedrock-converse-stream" || name.provider == "anthropic"
}

fn is_mistral(name: &Name) -> bool {
    let hints = ["mistral", "mixtral", "codestral", "pixtral", "devstral", "ministral"];
    name.provider == "mistral" || hints.iter().any(|hint| name.model.contains(hint))
}

fn is_routed_gemini(name: &Name) -> bool {
    ["openrouter", "opencode"].contains(&name.provider.as_str()) && name.model.contains("gemini")
}

fn is_responses(name: &Name) -> bool {
    ["openai-responses", "openai-codex-responses", "azure-openai-responses"].contains(&name.api.as_str())
}

impl Policy {
    /// Returns the policy for a model, by wire API, provider and model name.
    pub fn of(api: &str, provider: &str, model: &str) -> Self {
        let lower = |text: &str| text.trim().to_lowercase();
        let plain = Name { api: lower(api), provider: lower(provider), model: lower(model) };
        let row = TABLE.iter().find(|(fits, ..)| fits(&plain));
        let (blanks, ids, turns, seals) = row
            .map_or((Blanks::Kept, Ids::Any, Turns::Free, Seals::Let), |&(_, blanks, ids, turns, seals)| {
                (blanks, ids, turns, seals)
            });
        let model = Name { api: api.to_owned(), provider: provider.to_owned(), model: model.to_owned() };
        Self { blanks, ids, turns, seals, model }
    }

    /// True if the model of the request wrote this message.
    pub(super) fn wrote(&self, said: &Assistant) -> bool {
        let Name { api, provider, model } = &self.model;
        said.api == *api && said.provider == *provider && said.model == *model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(api: &str, provider: &str, model: &str) -> (Blanks, Ids, Turns, Seals) {
        let policy = Policy::of(api, provider, model);
        (policy.blanks, policy.ids, policy.turns, policy.seals)
    }

    #[test]
    fn providers_are_told_apart_by_wire_name_and_model() {
        let lenient = (Blanks::Kept, Ids::Any, Turns::Free, Seals::Let);
        let anthropic = (Blanks::Dropped, Ids::Word, Turns::OneUser, Seals::Wanted);
        let google = (Blanks::Dropped, Ids::Strict, Turns::OneAssistant, Seals::NoMessageIds);
        let mistral = (Blanks::Dropped, Ids::Strict9, Turns::Free, Seals::Let);
        for (api, provider, model, expected) in [
            ("openai-completions", "openai", "gpt-5", lenient),
            ("openai-responses", "openai", "gpt-5", (Blanks::Kept, Ids::Any, Turns::Free, Seals::Followed)),
            ("demo", "homard", "demo", lenient),
            ("", "", "", lenient),
            ("anthropic-messages", "minimax", "m2", anthropic),
            ("", "Anthropic", "claude-x", anthropic),
            ("google-generative-ai", "google", "gemini-3", google),
            ("", "google-gemini-cli", "gemini-3", google),
            (
                "google-antigravity",
                "google-antigravity",
                "claude-opus",
                (Blanks::Dropped, Ids::Strict, Turns::OneAssistant, Seals::Base64Reasoning),
            ),
            ("openai-completions", "mistral", "large", mistral),
            ("openai-completions", "openrouter", "mistralai/Devstral-small", mistral),
            (
                "openai-completions",
                "openrouter",
                "google/gemini-3",
                (Blanks::Dropped, Ids::Any, Turns::Free, Seals::Base64),
            ),
        ] {
            assert_eq!(rules(api, provider, model), expected, "{api} {provider} {model}");
        }
    }
}
