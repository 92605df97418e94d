//! Prompt configuration of an agent.

use std::{path::PathBuf, sync::Arc};

use homard_command as command;
use homard_stdx::sync::RwLock;
use homard_store::PromptMode;
use homard_workspace::skills::{Invocation, SkillSet, SlashCommand, Variables};
use homard_workspace::{BootstrapLimits, BootstrapReader};
use jiff::tz::TimeZone;

/// Prompt configuration of an agent. The default prompt contains only its tools and its name.
#[derive(Debug, Clone, Default)]
pub struct PromptConfig {
    /// Directory whose files go into every prompt; `None` for no files.
    pub workspace: Option<PathBuf>,
    /// Size limits of these files.
    pub limits: BootstrapLimits,
    /// Reader of these files.
    pub reader: Arc<BootstrapReader>,
    /// Prompt style.
    pub style: PromptStyle,
    /// Skills of the agent.
    pub skills: SharedSkills,
    /// The user's time zone. `None` to send messages without times.
    pub zone: Option<TimeZone>,
    /// Model aliases with their `provider/model`.
    pub aliases: Vec<(String, String)>,
    /// The heartbeat prompt, if it is not the default.
    pub heartbeat: Option<String>,
    /// Machine that the agent runs on.
    pub machine: HostInfo,
    /// Prompt mode; `None` for the default of the session.
    pub mode: Option<PromptMode>,
    /// True to omit the workspace files.
    pub omits_files: bool,
    /// Where pictures named by a message may be loaded from, for models with vision; `None` to disable that.
    pub pictures: Option<PictureSources>,
}

/// Prompt styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptStyle {
    /// Lean for models with a small context window, else rich.
    #[default]
    Auto,
    /// Everything useful.
    Rich,
    /// The minimum.
    Lean,
    /// The identity only.
    Bare,
}

/// Machine that an agent runs on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostInfo {
    /// Host name.
    pub host: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Processor architecture.
    pub arch: Option<String>,
    /// Shell of commands.
    pub shell: Option<String>,
    /// Repository that contains the workspace.
    pub repo: Option<String>,
}

/// Where pictures named by a message may be loaded from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PictureSources {
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// True if they must be in the agent's working directory.
    pub is_confined: bool,
}

/// Current skills of an agent. Clones share the state: new skills apply to every run that starts afterwards.
#[derive(Debug, Clone, Default)]
pub struct SharedSkills(Arc<RwLock<Arc<SkillKit>>>);

impl SharedSkills {
    /// Returns the current skills.
    pub fn get(&self) -> Arc<SkillKit> {
        self.0.read().clone()
    }

    /// Replaces the skills.
    pub fn replace(&self, kit: SkillKit) {
        *self.0.write() = Arc::new(kit);
    }
}

/// Skills as used by runs, built once.
#[derive(Debug, Default)]
pub struct SkillKit {
    /// Text for prompts.
    pub block: Box<str>,
    /// Environment variables for commands.
    pub variables: Variables,
    commands: Vec<SlashCommand>,
}

impl SkillKit {
    /// Builds the kit for these skills, with `block` as their text in prompts.
    pub fn new(skills: &SkillSet, block: String) -> Self {
        Self {
            block: block.into(),
            variables: homard_workspace::skills::environment(skills).into_iter().collect(),
            commands: homard_workspace::skills::commands(skills, command::RESERVED),
        }
    }

    /// Returns the skill that a text invokes, if any.
    pub fn invoked(&self, text: &str) -> Option<Invocation> {
        homard_workspace::skills::invoke(&self.commands, text)
    }

    /// Returns the slash commands of the skills.
    pub fn commands(&self) -> &[SlashCommand] {
        &self.commands
    }
}
