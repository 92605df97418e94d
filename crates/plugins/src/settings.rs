//! What the owner says of plugins in the config, under `plugins`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use homard_hooks::{GUARDED, Point};
use serde::Deserialize;
use serde_json::Value;

/// How long a hook may take, at most, whatever anybody says.
const LONGEST: Duration = Duration::from_secs(600);

/// What the owner says of plugins.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Whether there are plugins at all; so if it is not said.
    pub enabled: Option<bool>,
    /// The only ones that may be on, and on they are.
    pub allow: Vec<String>,
    /// Those that are off.
    pub deny: Vec<String>,
    /// Where plugins are beside the usual places.
    pub load: Load,
    /// Who has a place that only one can have.
    pub slots: Slots,
    /// One by one.
    pub entries: BTreeMap<String, Entry>,
    /// What each was when it was installed.
    pub installs: BTreeMap<String, Install>,
    /// The Node that runs OpenClaw's plugins; the one of the path if it is not said.
    pub node: Option<PathBuf>,
}

/// Where plugins are beside the usual places.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Load {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Whether those in the agent's workspace may be used, where the agent itself can write.
    pub workspace: bool,
}

/// Who has a place that only one can have.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Slots {
    /// The plugin that is the memory; `none` for nobody.
    pub memory: Option<String>,
}

/// What the owner says of one plugin.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// Whether it is on.
    pub enabled: Option<bool>,
    /// Its config.
    pub config: Value,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// Its part in the loop.
    pub hooks: HookSettings,
    /// Whether it gets a Node process of its own.
    pub isolated: bool,
    /// Which of its hooks are guards, beside those that it declares itself.
    pub guard: Guard,
    /// Why it must not run, if its entry refers to a variable that is not set. It is still wanted: what it guards does not
    /// happen without it.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Which hooks are guards, as the owner declares it: nothing may happen there without their answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Guard {
    /// All that can be, or none.
    All(bool),
    /// Those at these points, or of these events.
    At(Vec<String>),
}

impl Default for Guard {
    fn default() -> Self {
        Self::All(false)
    }
}

impl Guard {
    /// Whether the hook at this point, or of this event, is a guard.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::All(is_so) => *is_so,
            Self::At(names) => names.iter().any(|listed| listed == name),
        }
    }

    /// Whether anything is guarded.
    pub fn is_set(&self) -> bool {
        match self {
            Self::All(is_so) => *is_so,
            Self::At(names) => !names.is_empty(),
        }
    }

    /// The points at which it is known to stand: those that are listed; all that can be guarded if the plugin's own hooks
    /// are not known.
    pub(crate) fn points(&self) -> Vec<Point> {
        Point::ALL.into_iter().filter(|point| point.can_refuse() && self.covers(point.name())).collect()
    }

    /// Names in the list at which no guard can stand: sentences for the owner. `at` is the key in the config.
    pub(crate) fn problems(&self, at: &str) -> Vec<String> {
        let Self::At(names) = self else { return Vec::new() };
        let sentence = |name: &String| {
            let can_refuse = |point: Point| point.can_refuse();
            if Point::named(name).is_some_and(can_refuse) || GUARDED == name.as_str() {
                return None;
            }
            let points = Point::ALL.into_iter().filter(|point| point.can_refuse()).map(Point::name);
            let all: Vec<&str> = points.chain([GUARDED]).collect();
            Some(format!("{at} names {name:?}, where nothing can be refused; a guard can stand at {}", all.join(", ")))
        };
        names.iter().filter_map(sentence).collect()
    }
}

/// What the owner says of a plugin's part in the loop.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookSettings {
    /// How long its hooks may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// How long one of them may take.
    pub timeouts: BTreeMap<String, u64>,
    /// Whether it may put words into prompts; so if it is not said.
    pub allow_prompt_injection: Option<bool>,
}

/// What a plugin was when it was installed.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Install {
    /// What its files added up to: [`crate::fingerprint`].
    pub hash: Option<String>,
    /// What it guarded. While it is on, nothing happens there without it, whatever became of its folder.
    pub guard: Vec<String>,
}

impl HookSettings {
    /// Whether it may have this hook at all.
    pub(crate) fn lets_in(&self, hook: &str) -> bool {
        self.allow_prompt_injection != Some(false) || !matches!(hook, "before_prompt_build" | "before_agent_start")
    }

    /// How long a hook may take: the owner's word for this hook, then for all of the plugin, then the author's.
    pub(crate) fn deadline(&self, hook: &str, author: Option<u64>) -> Option<Duration> {
        let said = self.timeouts.get(hook).copied().or(self.timeout_ms).or(author).filter(|ms| *ms > 0);
        said.map(|ms| Duration::from_millis(ms).min(LONGEST))
    }
}

impl Settings {
    /// What is said of one plugin.
    pub(crate) fn entry(&self, id: &str) -> Entry {
        self.entries.get(id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_declared_for_all_hooks_or_by_name() {
        let read = |said: &str| serde_json::from_str::<Guard>(said).unwrap();
        assert!(!read("false").is_set() && !read("[]").is_set());
        assert!(read("true").covers("before_tool_call") && read("true").points().len() == 9);
        let some = read(r#"["message_sending", "agent:bootstrap"]"#);
        assert!(some.covers("message_sending") && some.covers("agent:bootstrap"));
        assert!(!some.covers("before_tool_call") && !some.covers("agent_end"));
        assert_eq!(some.points(), [Point::MessageSending]);
    }

    #[test]
    fn a_guard_where_nothing_can_be_refused_is_reported() {
        let guard = |names: &[&str]| Guard::At(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(guard(&["before_tool_call", "agent:bootstrap"]).problems("x"), Vec::<String>::new());
        for wrong in ["llm_input", "before_reset", "befor_tool_call", "message:sent", "agent"] {
            let told = guard(&[wrong]).problems("plugins.entries.a.guard");
            assert!(told.len() == 1 && told[0].contains(wrong) && told[0].contains("message_sending"), "{told:?}");
        }
    }

    #[test]
    fn the_owner_decides_how_long_a_hook_may_take_before_its_author_does() {
        let timeouts = BTreeMap::from([("agent_end".to_owned(), 900_000)]);
        let owner = HookSettings { timeout_ms: Some(100), timeouts, ..HookSettings::default() };
        let ms = |number| Some(Duration::from_millis(number));
        assert_eq!(owner.deadline("agent_end", Some(7)), ms(600_000));
        assert_eq!(owner.deadline("llm_input", Some(7)), ms(100));
        assert_eq!(HookSettings::default().deadline("llm_input", Some(7)), ms(7));
        assert_eq!(HookSettings::default().deadline("llm_input", None), None);
    }
}
