//! Builds the skills of an agent; they are discovered again whenever a file changes.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_agent::setting::{Kit, Shelf};
use homard_config::Loaded;
use homard_skills::{Book, Entry, Host, Limits, PromptLimits, Roots, Rules, block, discover_allowed};
use homard_workspace::{LoadRule, Reader};

use crate::{
    config::{Config, Text, agents::Member},
    paths::{self, Paths},
};

/// The skills of an agent: where they are, and how they are filtered.
#[derive(Debug, Clone)]
pub(crate) struct Library {
    pub(crate) roots: Roots,
    limits: Limits,
    prompt: PromptLimits,
    host: Host,
    rules: Rules,
    /// The current skills, as runs see them.
    pub(crate) shelf: Shelf,
    /// Decides which files may be loaded while commands run; by default all.
    reader: Arc<Reader>,
}

/// Returns the directories that are searched for the skills of an agent with this workspace.
pub(crate) fn roots(config: &Config, paths: &Paths, workspace: &Path) -> Roots {
    let home = paths::home();
    let place = |text: &Text| paths::expand(Path::new(text.as_str()), home.as_deref());
    Roots {
        extra: config.skills.load.extra_dirs.iter().map(place).collect(),
        bundled: paths::setting("BUNDLED_SKILLS_DIR").map(PathBuf::from),
        ..Roots::usual(&paths.state, home.as_deref(), workspace)
    }
}

impl Library {
    /// Builds the skill settings of an agent with this workspace.
    pub(crate) fn of(loaded: &Loaded<Config>, paths: &Paths, agent: &Member<'_>, workspace: &Path) -> Self {
        let config = &loaded.config;
        let (said, defaults) = (&config.skills, Limits::default());
        let roots = roots(config, paths, workspace);
        let limits = Limits {
            candidates: said.limits.max_candidates_per_root.unwrap_or(defaults.candidates),
            file_bytes: said.limits.max_skill_file_bytes.unwrap_or(defaults.file_bytes),
            ..defaults
        };
        let usual = PromptLimits::default();
        let prompt = PromptLimits {
            most: said.limits.max_skills_in_prompt.unwrap_or(usual.most),
            chars: said.limits.max_skills_prompt_chars.unwrap_or(usual.chars),
        };
        let only = agent.said.skills.clone().or_else(|| config.agents.defaults.skills.clone());
        let rules = Rules { entries: entries(config), allow_bundled: said.allow_bundled.clone(), only };
        Self { roots, limits, prompt, host: host(loaded), rules, shelf: Shelf::default(), reader: Arc::default() }
    }

    /// Excludes the files that `reader` does not allow to be loaded while commands run.
    pub(crate) fn with_reader(self, reader: Arc<Reader>) -> Self {
        Self { reader, ..self }
    }

    /// Discovers the skills and checks their requirements.
    pub(crate) fn book(&self) -> Book {
        let allows = |rule: LoadRule, text: &str| match rule {
            LoadRule::File | LoadRule::Target(_) => true,
            LoadRule::Text(own) => own == text,
            LoadRule::Nothing => false,
        };
        let found = self
            .reader
            .held(|rule| discover_allowed(&self.roots, &self.limits, &|path, text| allows(rule(path), text)));
        Book::new(found.unwrap_or_default(), self.host.clone(), self.rules.clone())
    }

    /// Discovers the skills again and publishes them to runs. Returns the result.
    pub(crate) fn refresh(&self) -> Book {
        let book = self.book();
        let block = block(&book, &self.prompt, paths::home().as_deref());
        self.shelf.put(Kit::new(&book, block));
        book
    }
}

fn entries(config: &Config) -> BTreeMap<String, Entry> {
    let text = |text: &Text| text.as_str().to_owned();
    let entry = |(key, said): (&String, &crate::config::skills::Entry)| {
        let entry = Entry {
            enabled: said.enabled,
            api_key: said.api_key.as_ref().map(text),
            env: said.env.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            fault: said.fault.clone(),
        };
        (key.clone(), entry)
    };
    config.skills.entries.iter().map(entry).collect()
}

/// Describes this machine for the requirements of skills and hooks.
pub(crate) fn host(loaded: &Loaded<Config>) -> Host {
    let os = match env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let ours = paths::variables().filter(|(_, value)| !value.trim().is_empty());
    Host {
        os: os.to_owned(),
        path: paths::env("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
        env: loaded.variables.clone().into_iter().chain(ours).collect(),
        config: loaded.tree.clone(),
    }
}
