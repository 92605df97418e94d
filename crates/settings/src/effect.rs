//! Which config changes need a restart. A table; the first matching row counts.

/// What a config change requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: new runs use it.
    Live,
    /// A restart of the gateway.
    Restart,
    /// It has no effect on a running gateway.
    None,
}

const TABLE: &[(&str, Effect)] = &[
    ("gateway.remote", Effect::None),
    ("gateway", Effect::Restart),
    ("audit", Effect::Restart),
    ("hooks", Effect::Restart),
    ("logging", Effect::Restart),
    ("trace", Effect::Restart),
    ("plugins", Effect::Restart),
    ("cron", Effect::Restart),
    ("agents.defaults.heartbeat", Effect::Restart),
    ("agents.list[].heartbeat", Effect::Restart),
    ("agents", Effect::Live),
    ("auth", Effect::Live),
    ("bindings", Effect::Live),
    ("budgets", Effect::Live),
    ("channels", Effect::Live),
    ("commands", Effect::Live),
    ("env", Effect::Live),
    ("mcp", Effect::Live),
    ("memory", Effect::Live),
    ("messages", Effect::Live),
    ("models", Effect::Live),
    ("session", Effect::Live),
    ("skills", Effect::Live),
    ("tools", Effect::Live),
];

impl Effect {
    /// Returns the requirement for a key, by its path.
    pub fn of(path: &str) -> Self {
        let path = without_indexes(path);
        let is_below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        TABLE.iter().find(|(prefix, _)| is_below(prefix)).map_or(Self::None, |(_, effect)| *effect)
    }
}

/// Replaces `list[0]` by `list[]`, as the table names lists.
fn without_indexes(path: &str) -> String {
    let mut is_index = false;
    let is_kept = |c: &char| {
        is_index = *c == '[' || (is_index && c.is_ascii_digit());
        !c.is_ascii_digit() || !is_index
    };
    path.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_effect_of_the_first_matching_row() {
        for (path, effect) in [
            ("gateway.port", Effect::Restart),
            ("gateway.remote.url", Effect::None),
            ("hooks.mappings[0].id", Effect::Restart),
            ("plugins.entries.tidy.enabled", Effect::Restart),
            ("agents.defaults.heartbeat.every", Effect::Restart),
            ("agents.defaults.maxConcurrent", Effect::Live),
            ("agents.defaults.compaction.memoryFlush.enabled", Effect::Live),
            ("agents.defaults.contextPruning.ttl", Effect::Live),
            ("agents.defaults.humanDelay.mode", Effect::Live),
            ("agents.list", Effect::Live),
            ("agents.list[12].heartbeat.every", Effect::Restart),
            ("agents.list[0].model2", Effect::Live),
            ("messages.responsePrefix", Effect::Live),
            ("messages[\"queue\"]", Effect::Live),
            ("skillsets", Effect::None),
            ("meta.lastTouchedAt", Effect::None),
        ] {
            assert_eq!(Effect::of(path), effect, "{path}");
        }
    }
}
