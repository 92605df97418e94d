//! Reply delivery settings of an agent: whole or in blocks, delays, and a prefix.
//!
//! These are the owner's settings. A channel supplies its own properties when it asks for block rules.

use homard_reply::heartbeat::ACK_MAX;
use homard_reply::{
    blocks::{BlockBreak, BlockRules},
    chunk::{ChunkBounds, CutPreference},
    coalesce,
    pace::BlockDelay,
};

/// Default maximum characters of a merged message, if neither the owner nor the channel sets one.
const DEFAULT_MAX_CHARS: usize = 4000;
/// Default idle time before a merged message is sent.
const DEFAULT_IDLE_MS: u64 = 1000;

/// Reply delivery settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySettings {
    /// True to send replies in blocks while they stream, unless the channel overrides it.
    pub sends_blocks: bool,
    /// When the first block may be sent.
    pub from: BlockBreak,
    /// Block sizes, if the channel allows them.
    pub bounds: ChunkBounds,
    /// The owner's settings for merging small blocks.
    pub merge: MergeSettings,
    /// Delay between two blocks.
    pub delay: BlockDelay,
    /// Maximum characters besides `HEARTBEAT_OK` in an answer that still means that there is nothing to report.
    pub ack_max: usize,
    /// Prefix of every message, as configured; parse it with [`homard_reply::footer::ReplyPrefix`].
    pub prefix: Option<String>,
}

impl Default for DeliverySettings {
    /// Replies are sent whole.
    fn default() -> Self {
        Self {
            sends_blocks: false,
            from: BlockBreak::default(),
            bounds: ChunkBounds { min: 800, max: 1200, prefer: CutPreference::default() },
            merge: MergeSettings::default(),
            delay: BlockDelay::default(),
            ack_max: ACK_MAX,
            prefix: None,
        }
    }
}

/// Settings for merging small blocks; unset values are taken from the next level: the owner's for all channels, for one
/// channel, or the channel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeSettings {
    /// Minimum characters; a shorter message waits for more.
    pub min: Option<usize>,
    /// Maximum characters of a merged message.
    pub max: Option<usize>,
    /// Idle time before a message is sent, in milliseconds; 0 for never.
    pub idle_ms: Option<u64>,
}

impl MergeSettings {
    /// Settings of channels where many small messages are a nuisance: Discord, Slack and Signal.
    pub const PATIENT: Self = Self { min: Some(1500), max: None, idle_ms: Some(1000) };

    /// Fills unset values from another one.
    pub fn or(self, other: Self) -> Self {
        Self { min: self.min.or(other.min), max: self.max.or(other.max), idle_ms: self.idle_ms.or(other.idle_ms) }
    }
}

impl DeliverySettings {
    /// Returns the block rules for a channel with this message limit and these merge settings. No block or message
    /// exceeds the limit.
    pub fn blocks_for(&self, text_limit: Option<usize>, channel_merge: MergeSettings) -> BlockRules {
        let limit = text_limit.unwrap_or(usize::MAX).max(1);
        let max = self.bounds.max.clamp(1, limit);
        let bounds = ChunkBounds { min: self.bounds.min.clamp(1, max), max, ..self.bounds };
        let merge = self.merge.or(channel_merge);
        let max_chars = merge.max.unwrap_or_else(|| text_limit.unwrap_or(DEFAULT_MAX_CHARS)).clamp(1, limit);
        let coalesce = coalesce::Settings {
            min: merge.min.unwrap_or(bounds.min).clamp(1, max_chars),
            max: max_chars,
            idle_ms: merge.idle_ms.unwrap_or(DEFAULT_IDLE_MS),
            joiner: bounds.prefer.joiner(),
        };
        BlockRules { from: self.from, bounds, coalesce: Some(coalesce) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bounds of blocks, and those of messages with their idle time.
    fn numbers(rules: &BlockRules) -> ([usize; 2], [usize; 2], u64) {
        let coalesce = rules.coalesce.as_ref().unwrap();
        ([rules.bounds.min, rules.bounds.max], [coalesce.min, coalesce.max], coalesce.idle_ms)
    }

    #[test]
    fn replies_are_sent_whole_by_default() {
        let defaults = DeliverySettings::default();
        assert!(!defaults.sends_blocks);
        let bounds = ChunkBounds { min: 800, max: 1200, prefer: CutPreference::Paragraph };
        let coalesce = coalesce::Settings { min: 800, max: 4000, idle_ms: 1000, joiner: "\n\n" };
        let expected = BlockRules { from: BlockBreak::TextEnd, bounds, coalesce: Some(coalesce) };
        assert_eq!(defaults.blocks_for(None, MergeSettings::default()), expected);
    }

    #[test]
    fn no_block_or_message_exceeds_the_channel_limit() {
        let limits_for =
            |limit| numbers(&DeliverySettings::default().blocks_for(Some(limit), MergeSettings::default()));
        assert_eq!(limits_for(2000), ([800, 1200], [800, 2000], 1000));
        assert_eq!(limits_for(1000), ([800, 1000], [800, 1000], 1000));
        assert_eq!(limits_for(350), ([350, 350], [350, 350], 1000));
        assert_eq!(limits_for(0), ([1, 1], [1, 1], 1000), "a limit that makes no sense is one that does");
    }

    #[test]
    fn the_owners_merge_settings_override_those_of_the_channel() {
        let defaults = DeliverySettings::default();
        assert_eq!(
            numbers(&defaults.blocks_for(Some(2000), MergeSettings::PATIENT)),
            ([800, 1200], [1500, 2000], 1000)
        );
        let owner_settings = DeliverySettings {
            merge: MergeSettings { idle_ms: Some(50), max: Some(900), min: None },
            ..defaults.clone()
        };
        assert_eq!(
            numbers(&owner_settings.blocks_for(Some(2000), MergeSettings::PATIENT)),
            ([800, 1200], [900, 900], 50)
        );
        let small = DeliverySettings { merge: MergeSettings { min: Some(10), ..MergeSettings::default() }, ..defaults };
        assert_eq!(numbers(&small.blocks_for(Some(2000), MergeSettings::PATIENT)), ([800, 1200], [10, 2000], 1000));
    }

    #[test]
    fn blocks_that_were_cut_at_sentences_are_joined_by_a_blank() {
        let bounds = ChunkBounds { min: 9, max: 3, prefer: CutPreference::Sentence };
        let delivery = DeliverySettings { from: BlockBreak::MessageEnd, bounds, ..DeliverySettings::default() };
        let rules = delivery.blocks_for(Some(100), MergeSettings::default());
        assert_eq!((rules.from, rules.bounds), (BlockBreak::MessageEnd, ChunkBounds { min: 3, ..bounds }));
        assert_eq!(rules.coalesce.unwrap().joiner, " ");
    }
}
