//! Table of what each provider accepts.

use homard_proto::message::Assistant;

/// Requirements of a model's provider on the messages of a request. Created by [`ProviderPolicy::of`]; applied by
/// [`for_model`](super::for_model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderPolicy {
    pub(super) blanks: BlankPolicy,
    pub(super) ids: IdForm,
    pub(super) turns: TurnPolicy,
    pub(super) signatures: SignaturePolicy,
    /// Model of the request: only its own reasoning is sent back as reasoning.
    pub(super) model: ModelName,
}

/// A model, by its names in a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelName {
    pub(super) api: String,
    pub(super) provider: String,
    pub(super) model: String,
}

/// Treatment of blank text blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlankPolicy {
    Kept,
    Dropped,
}

/// Form of tool call ids that a provider requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdForm {
    /// Any id that is not blank and is unique within its message.
    Any,
    /// An id of up to 64 letters, digits, `_` and `-`, unique within the history.
    Word,
    /// An id of up to 40 letters and digits, unique within the history.
    Strict,
    /// An id of exactly nine letters and digits, unique within the history.
    Strict9,
}

/// Which roles must not have consecutive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnPolicy {
    /// No restriction.
    Free,
    /// Consecutive user messages are merged.
    OneUser,
    /// Consecutive assistant messages are merged, and the history starts with a user message.
    OneAssistant,
}

/// Treatment of the signatures that providers attach to reasoning and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignaturePolicy {
    /// Left unchanged.
    Unchanged,
    /// Reasoning without a signature becomes text.
    Required,
    /// Reasoning that is not followed by other content is dropped.
    DropTrailing,
    /// Signatures that are another provider's message ids are removed.
    NoMessageIds,
    /// Signatures that are not base64 are removed.
    Base64,
    /// Reasoning without a base64 signature is dropped.
    Base64Reasoning,
}

type Row = (fn(&ModelName) -> bool, BlankPolicy, IdForm, TurnPolicy, SignaturePolicy);

/// The first matching row applies. Calls are paired with results for every provider.
const TABLE: &[Row] = &[
    (
        is_antigravity_claude,
        BlankPolicy::Dropped,
        IdForm::Strict,
        TurnPolicy::OneAssistant,
        SignaturePolicy::Base64Reasoning,
    ),
    (is_google, BlankPolicy::Dropped, IdForm::Strict, TurnPolicy::OneAssistant, SignaturePolicy::NoMessageIds),
    (is_anthropic, BlankPolicy::Dropped, IdForm::Word, TurnPolicy::OneUser, SignaturePolicy::Required),
    (is_mistral, BlankPolicy::Dropped, IdForm::Strict9, TurnPolicy::Free, SignaturePolicy::Unchanged),
    (is_routed_gemini, BlankPolicy::Dropped, IdForm::Any, TurnPolicy::Free, SignaturePolicy::Base64),
    (is_responses, BlankPolicy::Kept, IdForm::Any, TurnPolicy::Free, SignaturePolicy::DropTrailing),
    (|_| true, BlankPolicy::Kept, IdForm::Any, TurnPolicy::Free, SignaturePolicy::Unchanged),
];

fn is_antigravity_claude(name: &ModelName) -> bool {
    [&name.api, &name.provider].into_iter().any(|id| id == "google-antigravity") && name.model.contains("claude")
}

fn is_google(name: &ModelName) -> bool {
    let apis = ["google-generative-ai", "google-gemini-cli", "google-antigravity", "google-vertex"];
    apis.contains(&name.api.as_str()) || apis[1..3].contains(&name.provider.as_str())
}

fn is_anthropic(name: &ModelName) -> bool {
    name.api == "anthropic-messages" || name.api == "bedrock-converse-stream" || name.provider == "anthropic"
}

fn is_mistral(name: &ModelName) -> bool {
    let hints = ["mistral", "mixtral", "codestral", "pixtral", "devstral", "ministral"];
    name.provider == "mistral" || hints.iter().any(|hint| name.model.contains(hint))
}

fn is_routed_gemini(name: &ModelName) -> bool {
    ["openrouter", "opencode"].contains(&name.provider.as_str()) && name.model.contains("gemini")
}

fn is_responses(name: &ModelName) -> bool {
    ["openai-responses", "openai-codex-responses", "azure-openai-responses"].contains(&name.api.as_str())
}

impl ProviderPolicy {
    /// Returns the policy for a model, by wire API, provider and model name.
    pub fn of(api: &str, provider: &str, model: &str) -> Self {
        let lower = |text: &str| text.trim().to_lowercase();
        let lowercase = ModelName { api: lower(api), provider: lower(provider), model: lower(model) };
        let row = TABLE.iter().find(|(is_match, ..)| is_match(&lowercase));
        let (blanks, ids, turns, signatures) = row.map_or(
            (BlankPolicy::Kept, IdForm::Any, TurnPolicy::Free, SignaturePolicy::Unchanged),
            |&(_, blanks, ids, turns, signatures)| (blanks, ids, turns, signatures),
        );
        let model = ModelName { api: api.to_owned(), provider: provider.to_owned(), model: model.to_owned() };
        Self { blanks, ids, turns, signatures, model }
    }

    /// True if the model of the request wrote this message.
    pub(super) fn wrote(&self, assistant: &Assistant) -> bool {
        let ModelName { api, provider, model } = &self.model;
        assistant.api == *api && assistant.provider == *provider && assistant.model == *model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(api: &str, provider: &str, model: &str) -> (BlankPolicy, IdForm, TurnPolicy, SignaturePolicy) {
        let policy = ProviderPolicy::of(api, provider, model);
        (policy.blanks, policy.ids, policy.turns, policy.signatures)
    }

    #[test]
    fn policies_depend_on_api_provider_and_model() {
        let lenient = (BlankPolicy::Kept, IdForm::Any, TurnPolicy::Free, SignaturePolicy::Unchanged);
        let anthropic = (BlankPolicy::Dropped, IdForm::Word, TurnPolicy::OneUser, SignaturePolicy::Required);
        let google = (BlankPolicy::Dropped, IdForm::Strict, TurnPolicy::OneAssistant, SignaturePolicy::NoMessageIds);
        let mistral = (BlankPolicy::Dropped, IdForm::Strict9, TurnPolicy::Free, SignaturePolicy::Unchanged);
        for (api, provider, model, expected) in [
            ("openai-completions", "openai", "gpt-5", lenient),
            (
                "openai-responses",
                "openai",
                "gpt-5",
                (BlankPolicy::Kept, IdForm::Any, TurnPolicy::Free, SignaturePolicy::DropTrailing),
            ),
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
                (BlankPolicy::Dropped, IdForm::Strict, TurnPolicy::OneAssistant, SignaturePolicy::Base64Reasoning),
            ),
            ("openai-completions", "mistral", "large", mistral),
            ("openai-completions", "openrouter", "mistralai/Devstral-small", mistral),
            (
                "openai-completions",
                "openrouter",
                "google/gemini-3",
                (BlankPolicy::Dropped, IdForm::Any, TurnPolicy::Free, SignaturePolicy::Base64),
            ),
        ] {
            assert_eq!(rules(api, provider, model), expected, "{api} {provider} {model}");
        }
    }
}
