//! Bounds of answers that contradict one another. OpenClaw takes them, and so do we, with a word about it.

use super::{Found, key};
use crate::config::{Config, sections::replies::HumanDelay};

impl Config {
    /// What is odd about how answers reach people.
    pub(super) fn odd_replies(&self) -> Found {
        let (path, defaults) = (key("agents").key("defaults"), &self.agents.defaults);
        let chunk = defaults.block_streaming_chunk.doubt().map(|why| ("blockStreamingChunk", "minChars", why));
        let joined = defaults.block_streaming_coalesce.doubt().map(|why| ("blockStreamingCoalesce", "minChars", why));
        let own: Vec<_> = self.named().filter_map(|(path, _, agent)| Some((path, agent.human_delay?))).collect();
        // Where agents have their own, what is said for all may be meant as the other half of it.
        let shared = defaults.human_delay.doubt(HumanDelay::default()).filter(|_| own.is_empty());
        let shared = shared.map(|(name, why)| ("humanDelay", name, why));
        let all = [chunk, joined, shared].into_iter().flatten();
        let all = all.map(|(section, name, why)| (path.key(section).key(name), why));
        let own = own.into_iter().filter_map(|(path, delay)| {
            let (name, why) = delay.doubt(defaults.human_delay)?;
            Some((path.key("humanDelay").key(name), why))
        });
        all.chain(own).collect()
    }
}
