//! Which skills work here: what the user allows, and what the machine and the config have.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::skill::{Requires, Skill, Source};

/// Config paths that count as set where the config is silent.
const ON_BY_DEFAULT: [&str; 2] = ["browser.enabled", "browser.evaluateEnabled"];

/// The machine, as far as skills ask for it.
#[derive(Clone, Default, PartialEq)]
pub struct Host {
    /// The system's Node name: `linux`, `darwin` or `win32`.
    pub os: String,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The variables that are set and not blank.
    pub env: BTreeMap<String, String>,
    /// The config.
    pub config: Value,
}

/// Leaves out the config and the values of variables, which may hold secrets.
impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { os, path, env, config: _ } = self;
        f.debug_struct("Host").field("os", os).field("path", path).field("env", &env.keys()).finish_non_exhaustive()
    }
}

impl Host {
    /// Whether a program is on the path.
    pub fn has_program(&self, name: &str) -> bool {
        let is_program =
            |file: &Path| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        let is_plain = !name.is_empty() && !name.contains('/');
        is_plain && self.path.iter().any(|dir| !dir.as_os_str().is_empty() && is_program(&dir.join(name)))
    }

    /// Whether a dotted path of the config holds something.
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

/// What the user allows and gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// `skills.entries`, by skill key.
    pub entries: BTreeMap<String, Entry>,
    /// `skills.allowBundled`: keys or names; empty allows all.
    pub allow_bundled: Vec<String>,
    /// The names that an agent or a channel is limited to; an empty list is none.
    pub only: Option<Vec<String>>,
}

/// What the user says about one skill.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whether it is on; it is where this is silent.
    pub enabled: Option<bool>,
    /// The value for its `primaryEnv`.
    pub api_key: Option<String>,
    /// Values for variables.
    pub env: BTreeMap<String, String>,
    /// Why what the entry gives cannot be given, if so: it refers to a variable that is not set.
    pub fault: Option<String>,
}

/// Shows no secret: only that there is a key, and the variables' names.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { enabled, api_key, env, fault: _ } = self;
        f.debug_struct("Entry")
            .field("enabled", enabled)
            .field("api_key", &api_key.as_ref().map(|_| "…"))
            .field("env", &env.keys())
            .finish()
    }
}

/// What became of a skill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it works here.
    pub is_eligible: bool,
    /// Whether the user switched it off.
    pub is_disabled: bool,
    /// Whether it is bundled and not in `skills.allowBundled`.
    pub is_blocked_by_allowlist: bool,
    /// Whether [`Rules::only`] leaves it out. It may work here all the same.
    pub is_filtered_out: bool,
    /// What it lacks.
    pub missing: Missing,
}

/// What a skill lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// The systems it works on, if this is none of them.
    pub os: Vec<String>,
    /// What it requires and is not there.
    pub requires: Requires,
    /// Why it cannot get what its entry in the config gives, if so.
    pub fault: Option<String>,
}

/// Judges a skill.
pub fn judge(skill: &Skill, host: &Host, rules: &Rules) -> Verdict {
    let entry = rules.entries.get(&skill.key);
    let is_named = |list: &[String]| list.iter().any(|name| *name == skill.key || *name == skill.name);
    let is_disabled = entry.is_some_and(|entry| entry.enabled == Some(false));
    let is_blocked_by_allowlist =
        skill.source == Source::Bundled && !rules.allow_bundled.is_empty() && !is_named(&rules.allow_bundled);
    let is_filtered_out = rules.only.as_ref().is_some_and(|only| !only.contains(&skill.name));
    let Skill { os, always, requires, .. } = skill;
    let needs = Needs { os, always: *always, requires, primary_env: skill.primary_env.as_deref() };
    let missing = missing(&needs, host, entry);
    let is_eligible = !is_disabled && !is_blocked_by_allowlist && missing == Missing::default();
    Verdict { is_eligible, is_disabled, is_blocked_by_allowlist, is_filtered_out, missing }
}

/// What something asks of the machine and the config.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// The systems it works on, by their Node names; none means all.
    pub os: &'a [String],
    /// Whether it works without what it requires.
    pub always: bool,
    /// What it requires.
    pub requires: &'a Requires,
    /// The variable that takes the entry's key.
    pub primary_env: Option<&'a str>,
}

/// What it lacks here.
pub fn missing(needs: &Needs<'_>, host: &Host, entry: Option<&Entry>) -> Missing {
    let is_at_home = needs.os.is_empty() || needs.os.contains(&host.os);
    Missing {
        os: if is_at_home { Vec::new() } else { needs.os.to_vec() },
        requires: if needs.always { Requires::default() } else { lacking(needs, host, entry) },
        fault: entry.and_then(|entry| entry.fault.clone()),
    }
}

fn lacking(needs: &Needs<'_>, host: &Host, entry: Option<&Entry>) -> Requires {
    let Requires { bins, any_bins, env, config } = needs.requires;
    let without = |names: &[String], is_there: &dyn Fn(&str) -> bool| {
        names.iter().filter(|name| !is_there(name)).cloned().collect::<Vec<_>>()
    };
    let has_key = entry.and_then(|entry| entry.api_key.as_ref()).is_some_and(|key| !key.is_empty());
    let is_set = |name: &str| {
        host.env.contains_key(name)
            || entry.and_then(|entry| entry.env.get(name)).is_some_and(|value| !value.is_empty())
            || has_key && needs.primary_env == Some(name)
    };
    let has_any = any_bins.iter().any(|name| host.has_program(name));
    Requires {
        bins: without(bins, &|name| host.has_program(name)),
        any_bins: if has_any { Vec::new() } else { any_bins.clone() },
        env: without(env, &is_set),
        config: without(config, &|path| host.has_config(path)),
    }
}
