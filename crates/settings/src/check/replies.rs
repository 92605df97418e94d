//! Checks of contradictory limits for replies. OpenClaw accepts them, and so does Homard, with a warning.

use super::{FoundProblems, key};
use crate::{Config, sections::replies::HumanDelay};

/// Returns warnings about the delivery of replies.
pub(super) fn reply_warnings(config: &Config) -> FoundProblems {
    let (path, defaults) = (key("agents").key("defaults"), &config.agents.defaults);
    let chunk = defaults.block_streaming_chunk.warning().map(|why| ("blockStreamingChunk", "minChars", why));
    let joined = defaults.block_streaming_coalesce.warning().map(|why| ("blockStreamingCoalesce", "minChars", why));
    let agent_delays: Vec<_> =
        config.all_agents().filter_map(|(path, _, agent)| Some((path, agent.human_delay?))).collect();
    // If agents have their own settings, the shared ones may be meant to be combined with them.
    let shared = defaults.human_delay.warning(HumanDelay::default()).filter(|_| agent_delays.is_empty());
    let shared = shared.map(|(name, why)| ("humanDelay", name, why));
    let all = [chunk, joined, shared].into_iter().flatten();
    let all = all.map(|(section, name, why)| (path.key(section).key(name), why));
    let agent_delays = agent_delays.into_iter().filter_map(|(path, delay)| {
        let (name, why) = delay.warning(defaults.human_delay)?;
        Some((path.key("humanDelay").key(name), why))
    });
    all.chain(agent_delays).collect()
}
