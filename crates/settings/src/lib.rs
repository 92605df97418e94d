//! The settings of Homard: OpenClaw's keys, one section per file, and what they mean for the other crates.
//!
//! Reading, checking and editing the file is done by `homard-config`; this crate has the typed sections ([`Config`]),
//! the checks across them, and the only reader of the process environment ([`paths`]). It starts nothing. Start with
//! `sections`, then `check` (what is wrong with a config), `change` (a change by a user or a client) and `effect` (what
//! takes effect when).

pub mod agent_directories;
pub mod audit_log;
pub mod change;
pub mod channel_kinds;
mod check;
pub mod effect;
mod error;
mod model_names;
mod parts;
pub mod paths;
pub mod routes;
mod sandbox_policy;
pub mod secret_references;
mod sections;
mod text;
#[cfg(test)]
mod unread;

use std::path::{Path, PathBuf};

use homard_config::{
    ConfigFault, ConfigProblem, ConfigSource, LoadedConfig, ReadEnvironment, SavedCopy, read, read_or_last_good,
    read_text,
};
use homard_runtime::ambient::iso;

use crate::paths::Paths;

pub use check::channels::unsupported_channels as unsupported_channel_keys;
pub use error::Error;
pub use model_names::{DEMO, ModelNames, NamedModel};
pub use sandbox_policy::sandbox_policy;
pub use sections::{
    Config, agents, audit, auth, bindings, budgets, channels, commands, compaction, gateway, hooks, internal_hooks,
    logging, mcp, memory, messages, models, plugins, pruning, replies, sandbox, schedule,
    schedule::{parse_duration, parse_duration_in},
    session, skills, tools, typing, word,
};
pub use text::Text;

/// The config to run with, and the errors of the file if it is not that.
pub type Chosen = homard_config::UsableConfig<Config>;

impl Config {
    /// Returns the config to run with: the file, or the last valid copy. Fails if neither is valid: a config read in
    /// part may lack its restrictions.
    pub fn choose(paths: &Paths) -> Result<Chosen, Error> {
        let chosen = Self::choose_as_client(paths)?;
        require_variables(&chosen.loaded, &paths.config)?;
        Ok(chosen)
    }

    /// Same as `choose`, for commands that talk to a gateway or show what it would do: it may have variables that they
    /// lack.
    pub fn choose_as_client(paths: &Paths) -> Result<Chosen, Error> {
        Self::inspect(paths).map_err(|loaded| {
            let message = unusable(&loaded, &paths.config);
            Error::Unusable(format!("{message}\nnothing was started; {REMEDY}"))
        })
    }

    /// Same as `choose`, for commands that show or repair a config: the error has the readable part of the file.
    pub fn inspect(paths: &Paths) -> Result<Chosen, Box<LoadedConfig<Self>>> {
        let mut chosen = with_env(|env| read_or_last_good(&paths.config, &paths.state, env))?;
        use_environment(&mut chosen.loaded);
        Ok(chosen)
    }

    /// Reads the config file, valid or not.
    pub fn read_file(path: &Path) -> LoadedConfig<Self> {
        let mut loaded = with_env(|env| read(path, env));
        use_environment(&mut loaded);
        loaded
    }

    /// Reads a text as if it were the content of the config file.
    pub fn read(path: &Path, text: &str) -> LoadedConfig<Self> {
        let mut loaded = with_env(|env| read_text(path, text, env));
        use_environment(&mut loaded);
        loaded
    }

    /// Parses the text of a config that is in no file, or returns its first error.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let loaded = Self::read(Path::new("homard.json"), text);
        match loaded.all_problems().first() {
            Some(problem) => Err(Error::Unusable(problem.to_string())),
            None => Ok(loaded.config),
        }
    }
}

/// How to fix an invalid config file.
const REMEDY: &str = "correct the file, then check it with: homard config validate";

/// Returns the warning while a copy is used in place of the config file: the file's errors, and which copy it is.
pub fn last_good_warning(chosen: &Chosen, file: &Path) -> Option<String> {
    let ConfigSource::LastGood(SavedCopy { path, saved_at }) = &chosen.used else { return None };
    let saved = saved_at.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let saved =
        saved.and_then(|modified| u64::try_from(modified.as_millis()).ok()).map(|ms| format!(", saved at {}", iso(ms)));
    Some(format!(
        "{}; the last valid config is used instead ({}{}); {REMEDY}",
        unusable(&chosen.loaded, file),
        path.display(),
        saved.unwrap_or_default()
    ))
}

/// Fails if a required variable is not set.
pub fn require_variables(loaded: &LoadedConfig<Config>, file: &Path) -> Result<(), Error> {
    let Some(fault) = loaded.faults.iter().find(|fault| fault.part.is_none()) else { return Ok(()) };
    let remedy = "set the variable in Homard's environment, or correct the config";
    Err(Error::Unusable(format!("config file {}, {fault}\nnothing was started; {remedy}", file.display())))
}

/// Returns the parts of a config that are disabled because of a fault, each with the reason.
pub fn outages(loaded: &LoadedConfig<Config>) -> Vec<String> {
    let outage = |fault: &ConfigFault| match &fault.part {
        Some(part) if part.to_string() != fault.problem.path => format!("{part} is down: {fault}"),
        Some(_) | None => fault.to_string(),
    };
    loaded.faults.iter().map(outage).collect()
}

/// Returns the channels of a config that this version does not support, each as a sentence.
pub fn unsupported_channels(config: &Config) -> Vec<String> {
    unsupported_channel_keys(config).iter().map(|(path, message)| format!("{path} {message}")).collect()
}

/// Returns the names in tool lists that are probably misspelt, each as a sentence.
pub fn tool_name_warnings(config: &Config) -> Vec<String> {
    check::tool_names::tool_name_warnings(config).iter().map(|(path, message)| format!("{path} {message}")).collect()
}

/// Returns why a config file cannot be used.
pub fn unusable(loaded: &LoadedConfig<Config>, file: &Path) -> String {
    format!("config file {} is not valid: {}", file.display(), first_of(&loaded.problems))
}

/// Returns the first problem and the number of further ones.
fn first_of(problems: &[ConfigProblem]) -> String {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    match problems.len().saturating_sub(1) {
        0 => first,
        more => format!("{first} (and {more} more)"),
    }
}

/// Applies the environment variables that stand for settings.
fn use_environment(loaded: &mut LoadedConfig<Config>) {
    let variables = &loaded.variables;
    let variable = |name: &str| {
        let value = paths::env(name).and_then(|value| value.into_string().ok());
        value.or_else(|| variables.get(name).cloned())
    };
    loaded.config.models.use_environment(variable);
}

fn with_env<T>(with: impl FnOnce(&ReadEnvironment<'_>) -> T) -> T {
    let roots: Vec<PathBuf> =
        paths::setting("INCLUDE_ROOTS").map(|roots| std::env::split_paths(&roots).collect()).unwrap_or_default();
    let variable = |name: &str| paths::env(name).and_then(|value| value.into_string().ok());
    with(&ReadEnvironment { variable: &variable, secret: &secret_references::resolve, include_roots: &roots })
}
