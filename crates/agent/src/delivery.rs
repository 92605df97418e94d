//! How an agent's answers reach people: whole or in blocks, how fast, and with what before them.
//!
//! These are its owner's wishes. What a channel is like, the channel says when it asks for the rules of its blocks.

use crate::schedule::heartbeat::ACK_MAX;
use homard_reply::{
    blocks::{Break, Rules},
    chunk::{Bounds, Prefer},
    coalesce,
    pace::Delay,
};

/// How many characters a message that was put together has at most, where neither the owner nor the channel says.
const LONGEST: usize = 4000;
/// How long nothing has to come until a message goes, where nobody says.
const IDLE_MS: u64 = 1000;

/// How an agent's answers reach people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Whether answers go out in blocks while they are written, where a channel does not say otherwise.
    pub sends_blocks: bool,
    /// When the first block may go.
    pub from: Break,
    /// How blocks are cut, where the channel takes them so long.
    pub bounds: Bounds,
    /// How small blocks become one message, as far as the owner says.
    pub joining: Joining,
    /// How long to wait between two blocks.
    pub delay: Delay,
    /// How many characters beside `HEARTBEAT_OK` still mean that there is nothing to report.
    pub ack_max: usize,
    /// What stands before every message, as the setting has it; read it with [`homard_reply::footer::Prefix`].
    pub prefix: Option<String>,
}

impl Default for Delivery {
    /// Answers come whole.
    fn default() -> Self {
        Self {
            sends_blocks: false,
            from: Break::default(),
            bounds: Bounds { min: 800, max: 1200, prefer: Prefer::default() },
            joining: Joining::default(),
            delay: Delay::default(),
            ack_max: ACK_MAX,
            prefix: None,
        }
    }
}

/// How small blocks become one message, as far as somebody says: the owner for all channels or for one, or the channel
/// by its nature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Joining {
    /// A message of fewer characters waits for more.
    pub min: Option<usize>,
    /// No message that was put together has more characters.
    pub max: Option<usize>,
    /// How long nothing has to come until a message goes, in milliseconds; 0 for never.
    pub idle_ms: Option<u64>,
}

impl Joining {
    /// The nature of channels where many small messages are a nuisance: Discord, Slack and Signal.
    pub const PATIENT: Self = Self { min: Some(1500), max: None, idle_ms: Some(1000) };

    /// What this one does not say, the other one may.
    pub fn or(self, other: Self) -> Self {
        Self { min: self.min.or(other.min), max: self.max.or(other.max), idle_ms: self.idle_ms.or(other.idle_ms) }
    }
}

impl Delivery {
    /// How blocks are made for a channel that takes so many characters in a message and has this nature. No block and no
    /// message is longer than that.
    pub fn blocks_for(&self, text_limit: Option<usize>, nature: Joining) -> Rules {
        let limit = text_limit.unwrap_or(usize::MAX).max(1);
        let max = self.bounds.max.clamp(1, limit);
        let bounds = Bounds { min: self.bounds.min.clamp(1, max), max, ..self.bounds };
        let joining = self.joining.or(nature);
        let longest = joining.max.unwrap_or_else(|| text_limit.unwrap_or(LONGEST)).clamp(1, limit);
        let coalesce = coalesce::Settings {
            min: joining.min.unwrap_or(bounds.min).clamp(1, longest),
            max: longest,
            idle_ms: joining.idle_ms.unwrap_or(IDLE_MS),
            joiner: bounds.prefer.joiner(),
        };
        Rules { from: self.from, bounds, coalesce: Some(coalesce) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of blocks, and those of messages with their idle time.
    fn numbers(rules: &Rules) -> ([usize; 2], [usize; 2], u64) {
        let together = rules.coalesce.as_ref().unwrap();
        ([rules.bounds.min, rules.bounds.max], [together.min, together.max], together.idle_ms)
    }

    #[test]
    fn answers_come_whole_unless_somebody_wants_blocks() {
        let usual = Delivery::default();
        assert!(!usual.sends_blocks);
        let bounds = Bounds { min: 800, max: 1200, prefer: Prefer::Paragraph };
        let coalesce = coalesce::Settings { min: 800, max: 4000, idle_ms: 1000, joiner: "\n\n" };
        let expected = Rules { from: Break::TextEnd, bounds, coalesce: Some(coalesce) };
        assert_eq!(usual.blocks_for(None, Joining::default()), expected);
    }

    #[test]
    fn nothing_is_longer_than_the_channel_takes() {
        let of = |limit| numbers(&Delivery::default().blocks_for(Some(limit), Joining::default()));
        assert_eq!(of(2000), ([800, 1200], [800, 2000], 1000));
        assert_eq!(of(1000), ([800, 1000], [800, 1000], 1000));
        assert_eq!(of(350), ([350, 350], [350, 350], 1000));
        assert_eq!(of(0), ([1, 1], [1, 1], 1000), "a limit that makes no sense is one that does");
    }

    #[test]
    fn a_channel_has_its_nature_and_the_owner_the_last_word() {
        let usual = Delivery::default();
        assert_eq!(numbers(&usual.blocks_for(Some(2000), Joining::PATIENT)), ([800, 1200], [1500, 2000], 1000));
        let said = Delivery { joining: Joining { idle_ms: Some(50), max: Some(900), min: None }, ..usual.clone() };
        assert_eq!(numbers(&said.blocks_for(Some(2000), Joining::PATIENT)), ([800, 1200], [900, 900], 50));
        let small = Delivery { joining: Joining { min: Some(10), ..Joining::default() }, ..usual };
        assert_eq!(numbers(&small.blocks_for(Some(2000), Joining::PATIENT)), ([800, 1200], [10, 2000], 1000));
    }

    #[test]
    fn blocks_that_were_cut_at_sentences_are_joined_to_sentences() {
        let bounds = Bounds { min: 9, max: 3, prefer: Prefer::Sentence };
        let delivery = Delivery { from: Break::MessageEnd, bounds, ..Delivery::default() };
        let rules = delivery.blocks_for(Some(100), Joining::default());
        assert_eq!((rules.from, rules.bounds), (Break::MessageEnd, Bounds { min: 3, ..bounds }));
        assert_eq!(rules.coalesce.unwrap().joiner, " ");
    }
}
