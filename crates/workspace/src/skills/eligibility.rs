//! Eligibility of skills: the user's rules, and what the machine and the config provide.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::skills::skill::{Skill, SkillRequirements, SkillSource};

/// Config paths that count as set if they are absent.
const ON_BY_DEFAULT: [&str; 2] = ["browser.enabled", "browser.evaluateEnabled"];

/// Properties of the machine that skills depend on.
#[derive(Clone, Default, PartialEq)]
pub struct HostEnvironment {
    /// Node's name of the operating system: `linux`, `darwin` or `win32`.
    pub os: String,
    /// Folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// Environment variables that are set and not blank.
    pub env: BTreeMap<String, String>,
    /// The config.
    pub config: Value,
}

/// Omits the config and the values of variables, which may be secrets.
impl fmt::Debug for HostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { os, path, env, config: _ } = self;
        f.debug_struct("HostEnvironment")
            .field("os", os)
            .field("path", path)
            .field("env", &env.keys())
            .finish_non_exhaustive()
    }
}

impl HostEnvironment {
    /// True if a program is in `PATH`.
    pub fn has_program(&self, name: &str) -> bool {
        let is_program =
            |file: &Path| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        let is_plain = !name.is_empty() && !name.contains('/');
        is_plain && self.path.iter().any(|dir| !dir.as_os_str().is_empty() && is_program(&dir.join(name)))
    }

    /// True if a dotted path of the config is set.
    pub fn has_config(&self, path: &str) -> bool {
        let mut parts = path.split('.').filter(|part| !part.is_empty());
        match parts.try_fold(&self.config, |value, part| value.get(part)) {
            None => ON_BY_DEFAULT.contains(&path),
            Some(Value::Null) => false,
            Some(Value::Bool(is_on)) => *is_on,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(Value::Array(_) | Value::Object(_)) => true,
        }
    }
}

/// Rules of the config that decide which skills are enabled and allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillRules {
    /// `skills.entries`, by skill key.
    pub entries: BTreeMap<String, SkillEntry>,
    /// `skills.allowBundled`: keys or names; empty allows all.
    pub allow_bundled: Vec<String>,
    /// Names of the skills that the agent may use; `None` allows all, an empty list none.
    pub only: Option<Vec<String>>,
}

/// The user's settings for one skill.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SkillEntry {
    /// Whether it is enabled; defaults to true.
    pub enabled: Option<bool>,
    /// Value for its `primaryEnv`.
    pub api_key: Option<String>,
    /// Values for environment variables.
    pub env: BTreeMap<String, String>,
    /// Why the values of the entry are unavailable, if it refers to a variable that is not set.
    pub fault: Option<String>,
}

/// Shows no secrets: only whether there is a key, and the names of the variables.
impl fmt::Debug for SkillEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { enabled, api_key, env, fault: _ } = self;
        f.debug_struct("SkillEntry")
            .field("enabled", enabled)
            .field("api_key", &api_key.as_ref().map(|_| "…"))
            .field("env", &env.keys())
            .finish()
    }
}

/// Whether a skill can be used, and if not, why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// True if it is neither disabled nor blocked by the allowlist, and no requirement is missing.
    pub is_eligible: bool,
    /// True if the user disabled it.
    pub is_disabled: bool,
    /// True if it is bundled and not in `skills.allowBundled`.
    pub is_blocked_by_allowlist: bool,
    /// True if [`SkillRules::only`] excludes it. It may still be eligible.
    pub is_filtered_out: bool,
    /// Missing requirements.
    pub missing: MissingRequirements,
}

/// Missing requirements of a skill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingRequirements {
    /// Supported operating systems, if this is none of them.
    pub os: Vec<String>,
    /// Requirements that are not met.
    pub requires: SkillRequirements,
    /// Why the values of its config entry are unavailable; see [`SkillEntry::fault`].
    pub fault: Option<String>,
}

/// Checks whether a skill can be used, and if not, why.
pub fn check_eligibility(skill: &Skill, host: &HostEnvironment, rules: &SkillRules) -> Eligibility {
    let entry = rules.entries.get(&skill.key);
    let is_named = |list: &[String]| list.iter().any(|name| *name == skill.key || *name == skill.name);
    let is_disabled = entry.is_some_and(|entry| entry.enabled == Some(false));
    let is_blocked_by_allowlist =
        skill.source == SkillSource::Bundled && !rules.allow_bundled.is_empty() && !is_named(&rules.allow_bundled);
    let is_filtered_out = rules.only.as_ref().is_some_and(|only| !only.contains(&skill.name));
    let Skill { os, always, requires, .. } = skill;
    let requirements = Requirements { os, always: *always, requires, primary_env: skill.primary_env.as_deref() };
    let missing = missing(&requirements, host, entry);
    let is_eligible = !is_disabled && !is_blocked_by_allowlist && missing == MissingRequirements::default();
    Eligibility { is_eligible, is_disabled, is_blocked_by_allowlist, is_filtered_out, missing }
}

/// Requirements on the machine and the config.
#[derive(Debug, Clone, Copy)]
pub struct Requirements<'a> {
    /// Supported operating systems, by Node's names; empty for all.
    pub os: &'a [String],
    /// True if the skill is eligible even if `requires` is not met.
    pub always: bool,
    /// Required programs, environment variables and config paths.
    pub requires: &'a SkillRequirements,
    /// Environment variable that receives the API key of the skill's config entry.
    pub primary_env: Option<&'a str>,
}

/// Returns the missing requirements. `always` skips all of them except the operating system and faults of the config
/// entry.
pub fn missing(
    requirements: &Requirements<'_>,
    host: &HostEnvironment,
    entry: Option<&SkillEntry>,
) -> MissingRequirements {
    let is_supported_os = requirements.os.is_empty() || requirements.os.contains(&host.os);
    MissingRequirements {
        os: if is_supported_os { Vec::new() } else { requirements.os.to_vec() },
        requires: if requirements.always { SkillRequirements::default() } else { unmet(requirements, host, entry) },
        fault: entry.and_then(|entry| entry.fault.clone()),
    }
}

/// Returns the programs, variables and config paths that are required but missing.
fn unmet(requirements: &Requirements<'_>, host: &HostEnvironment, entry: Option<&SkillEntry>) -> SkillRequirements {
    let SkillRequirements { bins, any_bins, env, config } = requirements.requires;
    let absent = |names: &[String], is_present: &dyn Fn(&str) -> bool| {
        names.iter().filter(|name| !is_present(name)).cloned().collect::<Vec<_>>()
    };
    let has_key = entry.and_then(|entry| entry.api_key.as_ref()).is_some_and(|key| !key.is_empty());
    let is_set = |name: &str| {
        host.env.contains_key(name)
            || entry.and_then(|entry| entry.env.get(name)).is_some_and(|value| !value.is_empty())
            || has_key && requirements.primary_env == Some(name)
    };
    let has_any = any_bins.iter().any(|name| host.has_program(name));
    SkillRequirements {
        bins: absent(bins, &|name| host.has_program(name)),
        any_bins: if has_any { Vec::new() } else { any_bins.clone() },
        env: absent(env, &is_set),
        config: absent(config, &|path| host.has_config(path)),
    }
}
