//! Model descriptions: limits, capabilities and prices.

use std::time::Duration;

use homard_proto::message::{Assistant, Cost, Usage};

use crate::thinking::ReasoningLevel;

/// Idle timeout of cloud providers.
pub const CLOUD_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Idle timeout of self-hosted models, which may take long before the first token.
pub const SELF_HOSTED_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Default context window in tokens.
pub const DEFAULT_CONTEXT_WINDOW: u64 = 200_000;

/// Description of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Provider name in the config.
    pub provider: String,
    /// Model name at that provider.
    pub model: String,
    /// Wire API, such as `openai-completions`; empty if unknown.
    pub api: String,
    /// Context window in tokens.
    pub context_window: u64,
    /// Maximum output tokens; zero leaves it to the provider.
    pub max_output: u64,
    /// Supported reasoning levels other than off; empty if it cannot reason.
    pub thinking: Vec<ReasoningLevel>,
    /// True if it accepts images.
    pub accepts_images: bool,
    /// Prices.
    pub prices: Prices,
    /// Idle timeout of its stream; heartbeats count as activity.
    pub idle_timeout: Duration,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    /// Price of input tokens.
    pub input: f64,
    /// Price of output tokens.
    pub output: f64,
    /// Price of input tokens read from the provider's cache.
    pub cache_read: f64,
    /// Price of input tokens written to the provider's cache.
    pub cache_write: f64,
}

impl Default for ModelSpec {
    /// A nameless model with default values: no reasoning, accepts images, costs nothing.
    fn default() -> Self {
        Self {
            provider: String::new(),
            model: String::new(),
            api: String::new(),
            context_window: DEFAULT_CONTEXT_WINDOW,
            max_output: 0,
            thinking: Vec::new(),
            accepts_images: true,
            prices: Prices::default(),
            idle_timeout: CLOUD_IDLE_TIMEOUT,
        }
    }
}

/// True if models of this provider write reasoning and answers in tags.
pub fn uses_reasoning_tags(provider: &str) -> bool {
    matches!(provider, "ollama" | "google-gemini-cli" | "google-generative-ai")
        || ["google-antigravity", "minimax"].iter().any(|part| provider.contains(part))
}

impl ModelSpec {
    /// True if this model wrote the message. A model accepts only its own signatures back.
    pub fn wrote(&self, message: &Assistant) -> bool {
        message.api == self.api && message.provider == self.provider && message.model == self.model
    }
}

impl Prices {
    /// Returns the cost of this usage.
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
