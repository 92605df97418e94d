//! Delivery of replies: in blocks or whole, and how fast. These keys belong to `agents`.

use std::time::Duration;

use homard_agent::reply_settings::{DeliverySettings, MergeSettings};
use homard_reply::{
    blocks::BlockBreak,
    chunk::{ChunkBounds, CutPreference},
    pace::BlockDelay,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Config, agents::Agent, word::Word};

/// Default minimum and maximum delay of `custom`, in milliseconds.
const DEFAULT_DELAYS: (u64, u64) = (800, 2500);

/// Size limits and boundaries of blocks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BlockChunk {
    /// Minimum number of characters of a block, where the text allows it. Default: 800.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    min_chars: Option<u64>,
    /// Maximum number of characters of a block; never more than the channel's limit. Default: 1200.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    max_chars: Option<u64>,
    /// Preferred end of a block: paragraph (before a blank line), newline (at the end of a line), or sentence. Default: paragraph.
    break_preference: Option<Word<CutPreference>>,
}

/// How small blocks are merged into one message.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BlockCoalesce {
    /// Minimum number of characters of a message; shorter ones wait for more text. Default: the channel's preference, or that of a block.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    min_chars: Option<u64>,
    /// Maximum number of characters of a merged message. Default: the channel's limit, or 4000.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    max_chars: Option<u64>,
    /// Idle time in milliseconds after which a waiting message is sent; 0 for never. Default: 1000.
    idle_ms: Option<u64>,
}

/// Pause between two blocks, to imitate a person who types.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HumanDelay {
    /// Pause between two blocks: off for none, natural for 0.8 to 2.5 s, or custom for `minMs` to `maxMs`. Default: off.
    mode: Option<Word<DelayMode>>,
    /// Minimum pause in mode `custom`, in milliseconds. Default: 800.
    min_ms: Option<u64>,
    /// Maximum pause in mode `custom`, in milliseconds. Default: 2500.
    max_ms: Option<u64>,
}

/// An on/off setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnOff(bool);

/// Delay between two blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayMode {
    Off,
    Natural,
    Custom,
}

super::word::words! {
    OnOff: "off" => Self(false), "on" => Self(true);
    BlockBreak: "text_end" => Self::TextEnd, "message_end" => Self::MessageEnd;
    CutPreference: "paragraph" => Self::Paragraph, "newline" => Self::Newline, "sentence" => Self::Sentence;
    DelayMode: "off" => Self::Off, "natural" => Self::Natural, "custom" => Self::Custom;
}

impl Config {
    /// Returns the delivery settings of an agent's replies.
    pub fn delivery(&self, agent: &Agent) -> DeliverySettings {
        let (defaults, base) = (&self.agents.defaults, DeliverySettings::default());
        let (chunk, joined) = (&defaults.block_streaming_chunk, &defaults.block_streaming_coalesce);
        let prefix = self.messages.response_prefix.as_deref().filter(|prefix| !prefix.trim().is_empty());
        DeliverySettings {
            sends_blocks: defaults.block_streaming_default.map_or(base.sends_blocks, |word| word.0.0),
            from: defaults.block_streaming_break.map_or(base.from, |word| word.0),
            bounds: ChunkBounds {
                min: chunk.min_chars.map_or(base.bounds.min, count),
                max: chunk.max_chars.map_or(base.bounds.max, count),
                prefer: chunk.break_preference.map_or(base.bounds.prefer, |word| word.0),
            },
            merge: MergeSettings {
                min: joined.min_chars.map(count),
                max: joined.max_chars.map(count),
                idle_ms: joined.idle_ms,
            },
            delay: agent.human_delay.unwrap_or_default().or(defaults.human_delay).delay(),
            ack_max: defaults.heartbeat.ack_max(agent.heartbeat.as_ref()),
            prefix: prefix.map(str::to_owned),
        }
    }
}

impl BlockChunk {
    /// Returns a warning if the limits contradict each other.
    pub fn warning(&self) -> Option<String> {
        let default_max = u64::try_from(DeliverySettings::default().bounds.max).unwrap_or(u64::MAX);
        limit_warning(self.min_chars, self.max_chars.unwrap_or(default_max))
    }
}

impl BlockCoalesce {
    /// Returns a warning if the limits contradict each other.
    pub fn warning(&self) -> Option<String> {
        limit_warning(self.min_chars, self.max_chars?)
    }
}

impl HumanDelay {
    /// Returns a warning if the limits, combined with the shared ones, contradict each other: the key and the reason.
    pub fn warning(self, all: Self) -> Option<(&'static str, String)> {
        let key = match (self.min_ms, self.max_ms) {
            (Some(_), _) => "minMs",
            (None, Some(_)) => "maxMs",
            (None, None) => return None,
        };
        let why = match self.or(all).delay() {
            BlockDelay::Custom { min, max } if min > max => {
                let (min, max) = (min.as_millis(), max.as_millis());
                format!("makes every delay {min} ms long: minMs is greater than maxMs, which is {max}")
            }
            BlockDelay::Custom { .. } => return None,
            BlockDelay::Off | BlockDelay::Natural => "has no effect unless mode is custom".to_owned(),
        };
        Some((key, why))
    }

    fn or(self, all: Self) -> Self {
        Self { mode: self.mode.or(all.mode), min_ms: self.min_ms.or(all.min_ms), max_ms: self.max_ms.or(all.max_ms) }
    }

    fn delay(self) -> BlockDelay {
        let wait = |configured: Option<u64>, default| Duration::from_millis(configured.unwrap_or(default));
        match self.mode.map_or(DelayMode::Off, |word| word.0) {
            DelayMode::Off => BlockDelay::Off,
            DelayMode::Natural => BlockDelay::Natural,
            DelayMode::Custom => BlockDelay::Custom {
                min: wait(self.min_ms, DEFAULT_DELAYS.0),
                max: wait(self.max_ms, DEFAULT_DELAYS.1),
            },
        }
    }
}

fn limit_warning(min: Option<u64>, max: u64) -> Option<String> {
    min.filter(|min| *min > max).map(|_| format!("is greater than maxChars; {max} is used instead"))
}

fn count(chars: u64) -> usize {
    usize::try_from(chars).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<DeliverySettings>, String> {
        let config = Config::parse(text).map_err(|error| error.to_string())?;
        Ok(config.agents.members().iter().map(|member| config.delivery(member.config)).collect())
    }

    #[test]
    fn replies_are_sent_whole_and_at_once_by_default() {
        assert_eq!(read("{}"), Ok(vec![DeliverySettings::default()]));
        let text = "{agents: {defaults: {blockStreamingDefault: 'off'}}, messages: {responsePrefix: ' '}}";
        assert_eq!(read(text), Ok(vec![DeliverySettings::default()]));
    }

    #[test]
    fn every_setting_is_read() {
        let text = "{agents: {defaults: {
                blockStreamingDefault: 'on', blockStreamingBreak: 'message_end',
                blockStreamingChunk: {minChars: 1, maxChars: 2, breakPreference: 'sentence'},
                blockStreamingCoalesce: {minChars: 3, maxChars: 4, idleMs: 0},
                humanDelay: {mode: 'natural'}, heartbeat: {ackMaxChars: 7}}},
            messages: {responsePrefix: '[{model}]'}}";
        let expected = DeliverySettings {
            sends_blocks: true,
            from: BlockBreak::MessageEnd,
            bounds: ChunkBounds { min: 1, max: 2, prefer: CutPreference::Sentence },
            merge: MergeSettings { min: Some(3), max: Some(4), idle_ms: Some(0) },
            delay: BlockDelay::Natural,
            ack_max: 7,
            prefix: Some("[{model}]".to_owned()),
        };
        assert_eq!(read(text), Ok(vec![expected]));
    }

    #[test]
    fn an_agent_has_its_own_block_delay() {
        let text = "{agents: {defaults: {humanDelay: {mode: 'custom', maxMs: 900}}, list: [
            {id: 'a'}, {id: 'b', humanDelay: {mode: 'off'}}, {id: 'c', humanDelay: {minMs: 5}}]}}";
        let delays: Vec<_> = read(text).unwrap().into_iter().map(|delivery| delivery.delay).collect();
        let custom = |min, max| BlockDelay::Custom { min: Duration::from_millis(min), max: Duration::from_millis(max) };
        assert_eq!(delays, [custom(800, 900), BlockDelay::Off, custom(5, 900)]);
    }

    #[test]
    fn invalid_values_are_named() {
        let error_of = |text: &str| {
            let error = read(&format!("{{agents: {{defaults: {{{text}}}}}}}")).unwrap_err();
            error.split_once("agents.defaults.").unwrap().1.to_owned()
        };
        assert_eq!(error_of("blockStreamingDefault: true"), "blockStreamingDefault must be one of off, on");
        assert_eq!(error_of("blockStreamingBreak: 'now'"), "blockStreamingBreak must be one of text_end, message_end");
        let expected = "must be a whole number, one or more";
        assert_eq!(error_of("blockStreamingChunk: {minChars: 0}"), format!("blockStreamingChunk.minChars {expected}"));
        assert_eq!(
            error_of("blockStreamingCoalesce: {maxChars: -1}"),
            format!("blockStreamingCoalesce.maxChars {expected}")
        );
        assert_eq!(error_of("humanDelay: {mode: 'slow'}"), "humanDelay.mode must be one of off, natural, custom");
    }
}
