//! Token count of a conversation: the usage reported by the provider, plus an estimate for what came after.

use homard_proto::message::{Message, StopReason, Usage};

use crate::line::{History, total_tokens};

/// Minimum estimate for comparison with a reported number; below it the ratio is meaningless.
const MIN_COMPARABLE: u64 = 1_000;

/// Token count of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMeasure {
    /// The provider's tokens, as far as known.
    pub tokens: u64,
    /// Ratio of the provider's tokens to estimates.
    pub scale: TokenScale,
}

/// Measures a conversation.
///
/// `overhead` is the estimate for what is sent in addition: the system prompt, the tools, the summary of a compaction.
/// Usage reported before the last compaction refers to a conversation that is no longer sent, so it is ignored.
pub fn measure(history: &History<'_>, overhead: u64) -> TokenMeasure {
    let kept = history.kept.unwrap_or(0).min(history.lines.len());
    let reported = history.lines[kept..].iter().rposition(|line| reported(&line.message).is_some());
    let Some(index) = reported.map(|index| index + kept) else {
        return TokenMeasure { tokens: overhead + total_tokens(history.lines), scale: TokenScale::ONE };
    };
    let (reported_lines, later_lines) = history.lines.split_at(index + 1);
    let tokens = reported_lines.last().and_then(|line| self::reported(&line.message)).unwrap_or(0);
    let scale = TokenScale::of(tokens, overhead + total_tokens(reported_lines));
    TokenMeasure { tokens: tokens + scale.grow(total_tokens(later_lines)), scale }
}

impl TokenMeasure {
    /// True if compaction is due; `threshold` is that of the limits.
    pub fn is_over(&self, threshold: u64) -> bool {
        self.tokens > threshold
    }
}

fn prompt(usage: &Usage) -> u64 {
    usage.input + usage.cache_read + usage.cache_write
}

/// Returns the reported tokens up to and including a message. Failed messages, and those without a model, report none.
fn reported(message: &Message) -> Option<u64> {
    let Message::Assistant(assistant) = message else { return None };
    let is_complete = match assistant.stop_reason {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted => false,
    };
    let parts = prompt(&assistant.usage) + assistant.usage.output;
    let tokens = if parts > 0 { parts } else { assistant.usage.total_tokens };
    (is_complete && tokens > 0).then_some(tokens)
}

/// Ratio of a provider's tokens to estimates: at least one, so that a budget is never too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenScale {
    thousandths: u64,
}

impl TokenScale {
    /// Ratio 1: the provider counts as many tokens as were estimated.
    pub const ONE: Self = Self { thousandths: 1_000 };

    /// Maximum ratio. A larger one means that the request contains something that was not estimated.
    const MAX: u64 = 4_000;

    fn of(reported: u64, estimated: u64) -> Self {
        if estimated < MIN_COMPARABLE {
            return Self::ONE;
        }
        Self { thousandths: (reported.saturating_mul(1_000) / estimated).clamp(1_000, Self::MAX) }
    }

    /// Returns the ratio after a provider rejected a request that was estimated to fit.
    pub fn after_overflow(self) -> Self {
        Self { thousandths: (self.thousandths * 4 / 3).min(Self::MAX) }
    }

    /// Converts the provider's tokens to estimated ones.
    pub fn shrink(self, tokens: u64) -> u64 {
        tokens.saturating_mul(1_000) / self.thousandths
    }

    /// Converts estimated tokens to the provider's.
    pub fn grow(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.thousandths).div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests;
