//! The owner's settings for plugins, under `plugins` in the config.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use homard_hooks::{GUARDED_EVENT, HookPoint};
use serde::Deserialize;
use serde_json::Value;

/// Upper bound on the deadline of a hook.
const MAX_DEADLINE: Duration = Duration::from_secs(600);

/// Settings of all plugins.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Enables plugins; true by default.
    pub enabled: Option<bool>,
    /// If not empty, the only plugins that may be enabled; listing a plugin enables it.
    pub allow: Vec<String>,
    /// Disabled plugins.
    pub deny: Vec<String>,
    /// Additional locations.
    pub load: LoadSettings,
    /// Exclusive roles.
    pub slots: SlotSettings,
    /// Settings per plugin.
    pub entries: BTreeMap<String, PluginEntry>,
    /// Installation records.
    pub installs: BTreeMap<String, InstallRecord>,
    /// Path of Node for OpenClaw's plugins; from `PATH` by default.
    pub node: Option<PathBuf>,
}

/// Additional locations of plugins.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadSettings {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Allow plugins in agents' workspaces, where agents can write.
    pub workspace: bool,
}

/// Exclusive roles.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct SlotSettings {
    /// Plugin that provides the memory; `none` for no plugin.
    pub memory: Option<String>,
}

/// Settings of one plugin.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginEntry {
    /// Whether it is enabled.
    pub enabled: Option<bool>,
    /// Its config.
    pub config: Value,
    /// Environment variables for it.
    pub env: BTreeMap<String, String>,
    /// Settings of its hooks.
    pub hooks: HookSettings,
    /// Run it in a Node process of its own.
    pub isolated: bool,
    /// Which of its hooks are guards, besides those that it declares itself.
    pub guard: GuardPolicy,
    /// Error if its entry refers to an environment variable that is not set. The plugin does not run, but stays
    /// enabled, so that operations with its guards are blocked.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Which hooks the owner declares guards: if one fails, the operation is blocked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum GuardPolicy {
    /// All possible hooks, or none.
    All(bool),
    /// Those at these points, or for these events.
    At(Vec<String>),
}

impl Default for GuardPolicy {
    fn default() -> Self {
        Self::All(false)
    }
}

impl GuardPolicy {
    /// Returns true if the hook at this point, or for this event, is a guard.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::All(is_guard) => *is_guard,
            Self::At(names) => names.iter().any(|listed| listed == name),
        }
    }

    /// Returns true if anything is guarded.
    pub fn is_set(&self) -> bool {
        match self {
            Self::All(is_guard) => *is_guard,
            Self::At(names) => !names.is_empty(),
        }
    }

    /// Returns the points that are guarded: the listed ones, or all that can be.
    pub(crate) fn points(&self) -> Vec<HookPoint> {
        HookPoint::ALL.into_iter().filter(|point| point.can_block() && self.covers(point.name())).collect()
    }

    /// Returns messages about listed names that cannot be guarded. `at` is the key in the config.
    pub(crate) fn problems(&self, at: &str) -> Vec<String> {
        let Self::At(names) = self else { return Vec::new() };
        let sentence = |name: &String| {
            let can_refuse = |point: HookPoint| point.can_block();
            if HookPoint::named(name).is_some_and(can_refuse) || GUARDED_EVENT == name.as_str() {
                return None;
            }
            let points = HookPoint::ALL.into_iter().filter(|point| point.can_block()).map(HookPoint::name);
            let all: Vec<&str> = points.chain([GUARDED_EVENT]).collect();
            Some(format!("{at} lists {name:?}, which cannot be guarded; guards are possible at {}", all.join(", ")))
        };
        names.iter().filter_map(sentence).collect()
    }
}

/// Settings of a plugin's hooks.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookSettings {
    /// Deadline of all its hooks in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Deadlines of single hooks in milliseconds.
    pub timeouts: BTreeMap<String, u64>,
    /// Allow it to modify prompts; true by default.
    pub allow_prompt_injection: Option<bool>,
}

/// Installation record of a plugin.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallRecord {
    /// Fingerprint of its files: [`crate::fingerprint`].
    pub hash: Option<String>,
    /// What it guarded at installation. While it is enabled, these operations are blocked without it, even if its
    /// directory is missing or changed.
    pub guard: Vec<String>,
}

impl HookSettings {
    /// True if it may register this hook.
    pub(crate) fn allows(&self, hook: &str) -> bool {
        self.allow_prompt_injection != Some(false) || !matches!(hook, "before_prompt_build" | "before_agent_start")
    }

    /// Deadline of a hook: the owner's setting for this hook, then for the plugin, then the author's.
    pub(crate) fn deadline(&self, hook: &str, plugin_default: Option<u64>) -> Option<Duration> {
        let configured = self.timeouts.get(hook).copied().or(self.timeout_ms).or(plugin_default).filter(|ms| *ms > 0);
        configured.map(|ms| Duration::from_millis(ms).min(MAX_DEADLINE))
    }
}

impl Settings {
    /// Returns the settings of one plugin.
    pub(crate) fn entry(&self, id: &str) -> PluginEntry {
        self.entries.get(id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_declared_for_all_hooks_or_by_name() {
        let read = |json: &str| serde_json::from_str::<GuardPolicy>(json).unwrap();
        assert!(!read("false").is_set() && !read("[]").is_set());
        assert!(read("true").covers("before_tool_call") && read("true").points().len() == 9);
        let listed = read(r#"["message_sending", "agent:bootstrap"]"#);
        assert!(listed.covers("message_sending") && listed.covers("agent:bootstrap"));
        assert!(!listed.covers("before_tool_call") && !listed.covers("agent_end"));
        assert_eq!(listed.points(), [HookPoint::MessageSending]);
    }

    #[test]
    fn a_guard_at_a_point_that_cannot_block_is_reported() {
        let guard = |names: &[&str]| GuardPolicy::At(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(guard(&["before_tool_call", "agent:bootstrap"]).problems("x"), Vec::<String>::new());
        for invalid in ["llm_input", "before_reset", "befor_tool_call", "message:sent", "agent"] {
            let problems = guard(&[invalid]).problems("plugins.entries.a.guard");
            assert!(
                problems.len() == 1 && problems[0].contains(invalid) && problems[0].contains("message_sending"),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn the_configured_hook_timeout_overrides_the_plugins() {
        let timeouts = BTreeMap::from([("agent_end".to_owned(), 900_000)]);
        let owner = HookSettings { timeout_ms: Some(100), timeouts, ..HookSettings::default() };
        let ms = |number| Some(Duration::from_millis(number));
        assert_eq!(owner.deadline("agent_end", Some(7)), ms(600_000));
        assert_eq!(owner.deadline("llm_input", Some(7)), ms(100));
        assert_eq!(HookSettings::default().deadline("llm_input", Some(7)), ms(7));
        assert_eq!(HookSettings::default().deadline("llm_input", None), None);
    }
}
