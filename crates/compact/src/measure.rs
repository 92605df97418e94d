//! How many tokens a conversation takes: what the provider reported, and an estimate for what came after.

use homard_proto::message::{Message, StopReason, Usage};

use crate::line::{History, weight};

/// The least estimate that a reported number is compared with; below it the ratio says nothing.
const COMPARABLE: u64 = 1_000;

/// How many tokens a conversation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// In the provider's tokens, as well as they are known.
    pub tokens: u64,
    /// How the provider's tokens compare with estimates.
    pub scale: Scale,
}

/// How many tokens a conversation takes.
///
/// `overhead` is the estimate for what is sent besides: the system prompt, the tools, the summary of a compaction. What
/// was reported before the last compaction speaks of a conversation that is no longer sent, so it does not count.
pub fn measure(history: &History<'_>, overhead: u64) -> Measure {
    let kept = history.kept.unwrap_or(0).min(history.lines.len());
    let reported = history.lines[kept..].iter().rposition(|line| reported(&line.message).is_some());
    let Some(at) = reported.map(|at| at + kept) else {
        return Measure { tokens: overhead + weight(history.lines), scale: Scale::ONE };
    };
    let (known, since) = history.lines.split_at(at + 1);
    let tokens = known.last().and_then(|line| self::reported(&line.message)).unwrap_or(0);
    let scale = Scale::of(tokens, overhead + weight(known));
    Measure { tokens: tokens + scale.grow(weight(since)), scale }
}

impl Measure {
    /// Whether it is time to compact; `threshold` is that of the limits.
    pub fn is_over(&self, threshold: u64) -> bool {
        self.tokens > threshold
    }
}

fn prompt(usage: &Usage) -> u64 {
    usage.input + usage.cache_read + usage.cache_write
}

/// What an answer says of everything up to itself. A failed one says nothing, nor does one that no model gave.
fn reported(message: &Message) -> Option<u64> {
    let Message::Assistant(said) = message else { return None };
    let is_whole = match said.stop_reason {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted => false,
    };
    let parts = prompt(&said.usage) + said.usage.output;
    let tokens = if parts > 0 { parts } else { said.usage.total_tokens };
    (is_whole && tokens > 0).then_some(tokens)
}

/// How a provider's tokens compare with estimates: at least one to one, so that a budget is never too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scale {
    thousandths: u64,
}

impl Scale {
    /// Estimates are right.
    pub const ONE: Self = Self { thousandths: 1_000 };

    /// Beyond this something else is wrong: the request holds what is not known here.
    const MOST: u64 = 4_000;

    fn of(reported: u64, estimated: u64) -> Self {
        if estimated < COMPARABLE {
            return Self::ONE;
        }
        Self { thousandths: (reported.saturating_mul(1_000) / estimated).clamp(1_000, Self::MOST) }
    }

    /// After a provider refused what was thought to fit.
    pub fn after_overflow(self) -> Self {
        Self { thousandths: (self.thousandths * 4 / 3).min(Self::MOST) }
    }

    /// The provider's tokens as estimated ones.
    pub fn shrink(self, tokens: u64) -> u64 {
        tokens.saturating_mul(1_000) / self.thousandths
    }

    /// Estimated tokens as the provider's.
    pub fn grow(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.thousandths).div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests;
