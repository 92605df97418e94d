//! What it takes for a changed key to have its effect. A table; the first row that fits counts.

/// What it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: what begins from then on goes by it.
    Live,
    /// A restart of the gateway.
    Restart,
    /// There is none on a gateway at work.
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
    /// What it takes for a key, by its path.
    pub(crate) fn of(path: &str) -> Self {
        let path = without_indexes(path);
        let is_at = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        TABLE.iter().find(|(prefix, _)| is_at(prefix)).map_or(Self::None, |(_, effect)| *effect)
    }
}

/// `list[]` for `list[0]`, as the table names lists.
fn without_indexes(path: &str) -> String {
    let mut is_index = false;
    let keep = |letter: &char| {
        is_index = *letter == '[' || (is_index && letter.is_ascii_digit());
        !letter.is_ascii_digit() || !is_index
    };
    path.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_effect_of_the_first_row_that_fits() {
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
