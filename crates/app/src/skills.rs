//! Builds the skills of an agent; they are discovered again whenever a file changes.

use std::{collections::BTreeMap, env, path::Path, sync::Arc};

use homard_config::LoadedConfig;
use homard_prompt::config::{SharedSkills, SkillKit};
use homard_settings::{
    Config, Text,
    agent_directories::skill_roots,
    agents::ConfiguredAgent,
    paths::{self, Paths},
};
use homard_workspace::skills::{
    DiscoveryLimits, HostEnvironment, PromptLimits, SkillEntry, SkillRoots, SkillRules, SkillSet, block,
    discover_allowed,
};
use homard_workspace::{BootstrapReader, LoadRule};

/// The skills of an agent: where they are, and how they are filtered.
#[derive(Debug, Clone)]
pub struct SkillLibrary {
    pub roots: SkillRoots,
    limits: DiscoveryLimits,
    prompt: PromptLimits,
    host: HostEnvironment,
    rules: SkillRules,
    /// The current skills, as runs see them.
    pub published: SharedSkills,
    /// Decides which files may be loaded while commands run; by default all.
    reader: Arc<BootstrapReader>,
}

impl SkillLibrary {
    /// Builds the skill settings of an agent with this workspace.
    pub fn of(loaded: &LoadedConfig<Config>, paths: &Paths, agent: &ConfiguredAgent<'_>, workspace: &Path) -> Self {
        let config = &loaded.config;
        let (section, defaults) = (&config.skills, DiscoveryLimits::default());
        let roots = skill_roots(config, paths, workspace);
        let limits = DiscoveryLimits {
            candidates: section.limits.max_candidates_per_root.unwrap_or(defaults.candidates),
            file_bytes: section.limits.max_skill_file_bytes.unwrap_or(defaults.file_bytes),
            ..defaults
        };
        let prompt_defaults = PromptLimits::default();
        let prompt = PromptLimits {
            max_skills: section.limits.max_skills_in_prompt.unwrap_or(prompt_defaults.max_skills),
            chars: section.limits.max_skills_prompt_chars.unwrap_or(prompt_defaults.chars),
        };
        let only = agent.config.skills.clone().or_else(|| config.agents.defaults.skills.clone());
        let rules = SkillRules { entries: entries(config), allow_bundled: section.allow_bundled.clone(), only };
        Self {
            roots,
            limits,
            prompt,
            host: host(loaded),
            rules,
            published: SharedSkills::default(),
            reader: Arc::default(),
        }
    }

    /// Excludes the files that `reader` does not allow to be loaded while commands run.
    pub(crate) fn with_reader(self, reader: Arc<BootstrapReader>) -> Self {
        Self { reader, ..self }
    }

    /// Discovers the skills and checks their requirements.
    pub fn discover(&self) -> SkillSet {
        let allows = |rule: LoadRule, text: &str| match rule {
            LoadRule::File | LoadRule::Target(_) => true,
            LoadRule::Text(known) => known == text,
            LoadRule::Nothing => false,
        };
        let found = self
            .reader
            .with_rules(|rule| discover_allowed(&self.roots, &self.limits, &|path, text| allows(rule(path), text)));
        SkillSet::new(found.unwrap_or_default(), self.host.clone(), self.rules.clone())
    }

    /// Discovers the skills again and publishes them to runs. Returns the result.
    pub fn refresh(&self) -> SkillSet {
        let skills = self.discover();
        let block = block(&skills, &self.prompt, paths::home().as_deref());
        self.published.replace(SkillKit::new(&skills, block));
        skills
    }
}

fn entries(config: &Config) -> BTreeMap<String, SkillEntry> {
    let text = |text: &Text| text.as_str().to_owned();
    let entry = |(key, section): (&String, &homard_settings::skills::SkillEntry)| {
        let entry = SkillEntry {
            enabled: section.enabled,
            api_key: section.api_key.as_ref().map(text),
            env: section.env.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            fault: section.fault.clone(),
        };
        (key.clone(), entry)
    };
    config.skills.entries.iter().map(entry).collect()
}

/// Describes this machine for the requirements of skills and hooks.
pub fn host(loaded: &LoadedConfig<Config>) -> HostEnvironment {
    let os = match env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let variables = paths::variables().filter(|(_, value)| !value.trim().is_empty());
    HostEnvironment {
        os: os.to_owned(),
        path: paths::env("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
        env: loaded.variables.clone().into_iter().chain(variables).collect(),
        config: loaded.tree.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_have_the_limits_of_the_config() {
        let text = "{skills: {limits: {maxCandidatesPerRoot: 1, maxSkillFileBytes: 2, maxSkillsInPrompt: 3, \
                    maxSkillsPromptChars: 4}}}";
        let loaded = Config::read(Path::new("homard.json"), text);
        let paths = Paths { config: "/s/homard.json".into(), state: "/s".into() };
        let library = SkillLibrary::of(&loaded, &paths, &loaded.config.agents.members()[0], Path::new("/s/workspace"));
        assert_eq!((library.limits.candidates, library.limits.file_bytes), (1, 2));
        assert_eq!((library.prompt.max_skills, library.prompt.chars), (3, 4));
    }
}
