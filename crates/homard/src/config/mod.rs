//! The config file: OpenClaw's keys, one section a file. How it is read, checked and edited is `homard-config`'s.

pub(crate) mod change;
mod check;
mod sections;
mod text;

use std::path::{Path, PathBuf};

use homard_config::{Env, Loaded, Used, read, read_or_last_good, read_text};

pub(crate) use sections::{
    Config, agents, bindings, budgets, channels, gateway, internal_hooks, logging, mcp, schedule::span, session,
    skills, tools, typing,
};
pub(crate) use text::Text;

use crate::paths::{self, Paths};

/// The config to use, and what is wrong with the file if it is not that.
pub(crate) type Chosen = homard_config::Chosen<Config>;

impl Config {
    /// The config of the file; if that is not valid, the last one that was, or what is right of it.
    pub(crate) fn choose(paths: &Paths) -> Chosen {
        with_env(|env| read_or_last_good(&paths.config, &paths.state, env))
    }

    /// What the config file says, valid or not.
    pub(crate) fn read_file(path: &Path) -> Loaded<Self> {
        with_env(|env| read(path, env))
    }

    /// What a text would mean in the place of the config file.
    pub(crate) fn read(path: &Path, text: &str) -> Loaded<Self> {
        with_env(|env| read_text(path, text, env))
    }

    /// The config of a text, or what is wrong with it first.
    #[cfg(test)]
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let loaded = Self::read(Path::new("homard.json"), text);
        match loaded.problems.first() {
            Some(problem) => Err(problem.to_string()),
            None => Ok(loaded.config),
        }
    }
}

/// What people should know of a config file that is not valid: what is wrong, what counts instead, and the way out.
pub(crate) fn complaint(chosen: &Chosen, path: &Path) -> Option<String> {
    let instead = match chosen.used {
        Used::File => return None,
        Used::LastGood => "the last config that was valid is used",
        Used::Parts if chosen.loaded.source.as_object().is_none_or(serde_json::Map::is_empty) => {
            "nothing of it is used"
        }
        Used::Parts => "the rest of it is used",
    };
    let problems = &chosen.loaded.problems;
    let more = match problems.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let file = path.display();
    Some(format!("config file {file}, {first}{more}; {instead}; to see all that is wrong: homard config validate"))
}

fn with_env<T>(then: impl FnOnce(&Env<'_>) -> T) -> T {
    let roots: Vec<PathBuf> =
        paths::setting("INCLUDE_ROOTS").map(|roots| std::env::split_paths(&roots).collect()).unwrap_or_default();
    let variable = |name: &str| paths::env(name).and_then(|value| value.into_string().ok());
    then(&Env { variable: &variable, include_roots: &roots })
}
