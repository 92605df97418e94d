//! What compaction may use of a model's window, and how much of a conversation it leaves alone.

use crate::measure::Scale;

/// What the config says of compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether a conversation is compacted without being asked to.
    pub enabled: bool,
    /// How large the parts are in which a long history is summed up.
    pub mode: Mode,
    /// Tokens kept free for the answer.
    pub reserve: u64,
    /// The least that `reserve` counts as; zero for none.
    pub reserve_floor: u64,
    /// How many tokens of the newest messages stay as they are.
    pub keep_recent: u64,
    /// The largest part of the window that these may take.
    pub max_history_share: f64,
    /// The name of the model that sums up, as `provider/model`; without one, the model that answers.
    pub model: Option<String>,
    /// When notes are stored before a compaction.
    pub flush: Flush,
}

/// How a long history is summed up. Neither gives up: without a model's answer an extract takes the summary's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// As much at once as the summary model takes.
    #[default]
    Default,
    /// In smaller parts, so that more of each is kept.
    Safeguard,
}

/// When the turn that stores notes takes place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// Whether it does at all.
    pub enabled: bool,
    /// How many tokens before the compaction.
    pub soft_threshold: u64,
    /// What the agent is asked then, if not the usual.
    pub prompt: Option<String>,
    /// What its system prompt says in addition, if not the usual.
    pub system_prompt: Option<String>,
}

impl Default for Flush {
    fn default() -> Self {
        Self { enabled: true, soft_threshold: 4_000, prompt: None, system_prompt: None }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: Mode::Default,
            reserve: 16_384,
            reserve_floor: 20_000,
            keep_recent: 20_000,
            max_history_share: 0.5,
            model: None,
            flush: Flush::default(),
        }
    }
}

impl Settings {
    /// Tokens kept free for the answer: never more than a quarter of the window, or a small model had no room to read.
    pub fn reserve(&self, window: u64) -> u64 {
        self.reserve.max(self.reserve_floor).min(window / 4)
    }

    /// From how many tokens on notes are stored, or `None` if never.
    pub fn flush_at(&self, window: u64) -> Option<u64> {
        // Counted from the reserve that compaction itself uses: with a floor of zero it would otherwise come too late.
        let at = window.checked_sub(self.reserve(window) + self.flush.soft_threshold);
        at.filter(|&at| self.flush.enabled && at > 0)
    }

    /// What follows from the settings for one model. `overhead` is the estimate for what is no conversation: the system
    /// prompt and the tools.
    pub fn limits(&self, window: u64, overhead: u64, scale: Scale) -> Limits {
        let reserve = self.reserve(window);
        let threshold = window - reserve;
        let room = scale.shrink(threshold).saturating_sub(overhead);
        let share = (window as f64 * self.max_history_share.clamp(0.0, 1.0)) as u64;
        Limits {
            window,
            threshold,
            overhead,
            room,
            // With the summary and a whole turn of twice that size a quarter is left for what comes next.
            keep: self.keep_recent.min(room / 4).min(scale.shrink(share)),
            summary: (reserve * 4 / 5).min(room / 4),
        }
    }
}

/// What a conversation may take of one model's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The model's window, in the provider's tokens.
    pub window: u64,
    /// Above this it is time to compact, in the provider's tokens.
    pub threshold: u64,
    /// What is no conversation, estimated.
    pub overhead: u64,
    /// What the conversation and its summary may take together, in estimated tokens, as all below.
    pub room: u64,
    /// How much of the newest messages stays as it is.
    pub keep: u64,
    /// What a summary may take.
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
    fn a_large_window_has_the_numbers_of_the_settings() {
        let limits = Settings::default().limits(200_000, 10_000, Scale::ONE);
        let expected = Limits {
            window: 200_000,
            threshold: 180_000,
            overhead: 10_000,
            room: 170_000,
            keep: 20_000,
            summary: 16_000,
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn sixteen_thousand_tokens_leave_room_for_a_turn() {
        let limits = Settings::default().limits(16_384, 6_000, Scale::ONE);
        // The kept part may be a turn of twice `keep`.
        let after = limits.overhead + limits.summary + 2 * limits.keep;
        assert_eq!((limits.threshold, limits.room, limits.keep, limits.summary), (12_288, 6_288, 1_572, 1_572));
        assert!(after + limits.room / 4 <= limits.threshold, "{limits:?}");
    }

    #[test]
    fn the_share_of_the_window_caps_what_is_kept() {
        let settings = Settings { keep_recent: 100_000, max_history_share: 0.1, ..Settings::default() };
        assert_eq!(settings.limits(200_000, 0, Scale::ONE).keep, 20_000);
    }

    #[test]
    fn notes_are_stored_before_the_compaction() {
        let settings = Settings::default();
        assert_eq!(settings.flush_at(200_000), Some(176_000));
        assert_eq!(settings.flush_at(5_000), None);
        let never = Settings { flush: Flush { enabled: false, ..Flush::default() }, ..Settings::default() };
        assert_eq!(never.flush_at(200_000), None);
    }
}
