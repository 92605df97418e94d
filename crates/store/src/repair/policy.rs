//! What each provider takes, as a table.

use homard_proto::message::Assistant;

/// What a model's provider takes. Made by [`Policy::of`]; applied by [`for_model`](super::for_model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(super) blanks: Blanks,
    pub(super) ids: Ids,
    pub(super) turns: Turns,
    pub(super) seals: Seals,
    /// The model that is asked: only its own reasoning is given back to it as reasoning.
    pub(super) model: Name,
}

/// A model by the words in a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) api: String,
    pub(super) provider: String,
    pub(super) model: String,
}

/// What becomes of blocks of text that say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blanks {
    Kept,
    Dropped,
}

/// What the id of a call must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// Anything that differs from the others of its message.
    Any,
    /// Up to 64 letters, digits, `_` and `-`; different from all others.
    Word,
    /// Up to 40 letters and digits; different from all others.
    Strict,
    /// Exactly nine letters and digits; different from all others.
    Strict9,
}

/// Who must not speak twice in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// Nobody minds.
    Free,
    /// What users say in a row becomes one message.
    OneUser,
    /// What a model says in a row becomes one message, and a user begins.
    OneAssistant,
}

/// What is done about the seals (signatures) that providers put on reasoning and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seals {
    /// Nothing.
    Let,
    /// Reasoning without a seal is told as text.
    Wanted,
    /// Reasoning behind which nothing was said is left out.
    Followed,
    /// Seals that are another provider's message ids are taken off.
    NoMessageIds,
    /// Seals that are not base64 are taken off.
    Base64,
    /// Reasoning without a seal in base64 is left out.
    Base64Reasoning,
}

type Row = (fn(&Name) -> bool, Blanks, Ids, Turns, Seals);

/// The first row that fits counts. Every provider gets its calls paired.
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
    /// The policy for a model, by the wire that is spoken, the provider's name and the model's.
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

    /// Whether the model that is asked gave this answer.
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
