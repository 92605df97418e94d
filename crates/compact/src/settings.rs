//! Compaction settings and the token limits derived from them.

use crate::measure::TokenScale;

/// Compaction settings from the config.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// True if conversations are compacted automatically.
    pub enabled: bool,
    /// Whether a long history is summarized in parts as large as possible, or in smaller ones.
    pub mode: CompactionMode,
    /// Tokens reserved for the answer.
    pub reserve: u64,
    /// Lower bound of `reserve`; zero for none.
    pub reserve_floor: u64,
    /// Number of tokens of the newest messages that are kept.
    pub keep_recent: u64,
    /// Maximum share of the window for kept messages.
    pub max_history_share: f64,
    /// Summary model, as `provider/model`; defaults to the run's model.
    pub model: Option<String>,
    /// Memory flush before a compaction.
    pub flush: FlushSettings,
}

/// How a long history is summarized. Neither mode fails: without a model's answer an extract replaces the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionMode {
    /// As much at once as the summary model accepts.
    #[default]
    Default,
    /// In smaller parts, so that more of each is kept.
    Safeguard,
}

/// Settings of the memory flush, a turn that stores notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushSettings {
    /// True if it is enabled.
    pub enabled: bool,
    /// Number of tokens before the compaction threshold at which it starts.
    pub soft_threshold: u64,
    /// Prompt of that turn, if not the default.
    pub prompt: Option<String>,
    /// Addition to its system prompt, if not the default.
    pub system_prompt: Option<String>,
}

impl Default for FlushSettings {
    fn default() -> Self {
        Self { enabled: true, soft_threshold: 4_000, prompt: None, system_prompt: None }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: CompactionMode::Default,
            reserve: 16_384,
            reserve_floor: 20_000,
            keep_recent: 20_000,
            max_history_share: 0.5,
            model: None,
            flush: FlushSettings::default(),
        }
    }
}

impl Settings {
    /// Returns the tokens reserved for the answer: at most a quarter of the window, which leaves space for input on
    /// small models.
    pub fn reserve(&self, window: u64) -> u64 {
        self.reserve.max(self.reserve_floor).min(window / 4)
    }

    /// Returns the token count from which the memory flush is due, or `None` if never.
    pub fn flush_at(&self, window: u64) -> Option<u64> {
        // Relative to the reserve that compaction itself uses: with a floor of zero it would otherwise start too late.
        let threshold = window.checked_sub(self.reserve(window) + self.flush.soft_threshold);
        threshold.filter(|&threshold| self.flush.enabled && threshold > 0)
    }

    /// Derives the limits for one model. `overhead` is the estimate for everything but the conversation: the system
    /// prompt and the tools.
    pub fn limits(&self, window: u64, overhead: u64, scale: TokenScale) -> CompactionLimits {
        let reserve = self.reserve(window);
        let threshold = window - reserve;
        let space = scale.shrink(threshold).saturating_sub(overhead);
        let share = (window as f64 * self.max_history_share.clamp(0.0, 1.0)) as u64;
        CompactionLimits {
            window,
            threshold,
            overhead,
            space,
            // With the summary and a whole turn of twice that size, a quarter is left for what follows.
            keep: self.keep_recent.min(space / 4).min(scale.shrink(share)),
            summary: (reserve * 4 / 5).min(space / 4),
        }
    }
}

/// Token limits of a conversation for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionLimits {
    /// Context window, in the provider's tokens.
    pub window: u64,
    /// Threshold of compaction, in the provider's tokens.
    pub threshold: u64,
    /// Estimated tokens of everything but the conversation.
    pub overhead: u64,
    /// Space for the conversation and its summary, in estimated tokens, like the fields below.
    pub space: u64,
    /// Tokens of the newest messages that are kept.
    pub keep: u64,
    /// Maximum tokens of a summary.
    pub summary: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_has_a_floor_and_never_takes_more_than_a_quarter() {
        let settings = Settings::default();
        let reserves = [200_000, 80_000, 32_000, 16_384, 0].map(|window| settings.reserve(window));
        assert_eq!(reserves, [20_000, 20_000, 8_000, 4_096, 0]);
        let settings = Settings { reserve_floor: 0, ..settings };
        assert_eq!(settings.reserve(200_000), 16_384);
    }

    #[test]
    fn a_large_window_uses_the_configured_limits() {
        let limits = Settings::default().limits(200_000, 10_000, TokenScale::ONE);
        let expected = CompactionLimits {
            window: 200_000,
            threshold: 180_000,
            overhead: 10_000,
            space: 170_000,
            keep: 20_000,
            summary: 16_000,
        };
        assert_eq!(limits, expected);
    }

    // Pitfall 47.
    #[test]
    fn sixteen_thousand_tokens_leave_space_for_a_turn() {
        let limits = Settings::default().limits(16_384, 6_000, TokenScale::ONE);
        // The kept part may be a turn of twice `keep`.
        let after = limits.overhead + limits.summary + 2 * limits.keep;
        assert_eq!((limits.threshold, limits.space, limits.keep, limits.summary), (12_288, 6_288, 1_572, 1_572));
        assert!(after + limits.space / 4 <= limits.threshold, "{limits:?}");
    }

    #[test]
    fn the_share_of_the_window_caps_what_is_kept() {
        let settings = Settings { keep_recent: 100_000, max_history_share: 0.1, ..Settings::default() };
        assert_eq!(settings.limits(200_000, 0, TokenScale::ONE).keep, 20_000);
    }

    #[test]
    fn the_memory_flush_starts_before_the_compaction() {
        let settings = Settings::default();
        assert_eq!(settings.flush_at(200_000), Some(176_000));
        assert_eq!(settings.flush_at(5_000), None);
        let never =
            Settings { flush: FlushSettings { enabled: false, ..FlushSettings::default() }, ..Settings::default() };
        assert_eq!(never.flush_at(200_000), None);
    }
}
