//! What a model is, what it takes, and what it costs.

use std::time::Duration;

use homard_proto::message::{Assistant, Cost, Usage};

use crate::thinking::Level;

/// How long a provider in the cloud may say nothing.
pub const IDLE: Duration = Duration::from_secs(120);

/// How long a machine of one's own may say nothing: it may think for a long time before the first word.
pub const SELF_HOSTED_IDLE: Duration = Duration::from_secs(300);

/// The context window of a model of which none is known, in tokens.
pub const DEFAULT_CONTEXT_WINDOW: u64 = 200_000;

/// What a model is.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The provider's name in the config.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// The wire that is spoken, such as `openai-completions`; empty while that is not known.
    pub api: String,
    /// How many tokens fit into its context.
    pub context_window: u64,
    /// How many tokens it may write; zero leaves it to the provider.
    pub max_output: u64,
    /// How hard it can be asked to think, besides not at all; empty if it cannot.
    pub thinking: Vec<Level>,
    /// Whether it sees pictures.
    pub sees: bool,
    /// What it costs.
    pub prices: Prices,
    /// How long it may say nothing, heartbeats included.
    pub idle: Duration,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    /// Of the prompt.
    pub input: f64,
    /// Of the answer.
    pub output: f64,
    /// Of the prompt, read from the provider's cache.
    pub cache_read: f64,
    /// Of the prompt, written to the provider's cache.
    pub cache_write: f64,
}

impl Default for Spec {
    /// A nameless model of which nothing is known: it does not reason, sees pictures, and costs nothing.
    fn default() -> Self {
        Self {
            provider: String::new(),
            model: String::new(),
            api: String::new(),
            context_window: DEFAULT_CONTEXT_WINDOW,
            max_output: 0,
            thinking: Vec::new(),
            sees: true,
            prices: Prices::default(),
            idle: IDLE,
        }
    }
}

/// Whether models of this provider write their thoughts and their answers in tags.
pub fn writes_tags(provider: &str) -> bool {
    matches!(provider, "ollama" | "google-gemini-cli" | "google-generative-ai")
        || ["google-antigravity", "minimax"].iter().any(|part| provider.contains(part))
}

impl Spec {
    /// Whether this model gave the answer: only then does it take its seals back.
    pub fn wrote(&self, said: &Assistant) -> bool {
        said.api == self.api && said.provider == self.provider && said.model == self.model
    }
}

impl Prices {
    /// What these tokens cost.
    pub fn of(&self, usage: &Usage) -> Cost {
        let price = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        let input = price(usage.input, self.input);
        let output = price(usage.output, self.output);
        let cache_read = price(usage.cache_read, self.cache_read);
        let cache_write = price(usage.cache_write, self.cache_write);
        Cost { input, output, cache_read, cache_write, total: input + output + cache_read + cache_write }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_for_a_million_tokens_of_each_kind() {
        let prices = Prices { input: 3.0, output: 15.0, cache_read: 0.5, cache_write: 4.0 };
        let usage = Usage {
            input: 1_000_000,
            output: 2_000_000,
            cache_read: 4_000_000,
            cache_write: 250_000,
            ..Usage::default()
        };
        let cost = Cost { input: 3.0, output: 30.0, cache_read: 2.0, cache_write: 1.0, total: 36.0 };
        assert_eq!(prices.of(&usage), cost);
    }
}
