//! What the prompts of an agent are made from, besides what a run brings.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use homard_skills::{Book, Invocation, SlashCommand};
use homard_store::PromptMode;
use homard_workspace::{Limits, Reader};
use jiff::tz::TimeZone;

use crate::{command, tool::Variables};

/// What the prompts of an agent are made from, besides what a run brings. Without anything: its tools and its name.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The folder whose files go into every prompt; without one, none do.
    pub workspace: Option<PathBuf>,
    /// How much of them does.
    pub limits: Limits,
    /// Who reads them.
    pub reader: Arc<Reader>,
    /// How long prompts are.
    pub style: Style,
    /// What the agent can read how to do.
    pub shelf: Shelf,
    /// The person's time zone. Without one, models are not told when something was said.
    pub zone: Option<TimeZone>,
    /// Short names of models, each with the `provider/model` that it means.
    pub aliases: Vec<(String, String)>,
    /// Where Homard's documentation is.
    pub docs: Option<PathBuf>,
    /// What a heartbeat says, where that is not the usual.
    pub heartbeat: Option<String>,
    /// Where the agent runs.
    pub machine: Machine,
    /// How much of the prompt a model gets; `None` for as much as its session needs.
    pub mode: Option<PromptMode>,
    /// Whether the files of the workspace are left out.
    pub is_without_files: bool,
    /// Pictures that a message names are shown to models that see; where they may lie.
    pub pictures: Option<Pictures>,
}

/// How long prompts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Lean for models with a small context window, else rich.
    #[default]
    Auto,
    /// Everything that is useful.
    Rich,
    /// As few words as will do.
    Lean,
    /// Who the agent is, and nothing else.
    Bare,
}

/// Where an agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The machine's name.
    pub host: Option<String>,
    /// The operating system.
    pub os: Option<String>,
    /// The processor.
    pub arch: Option<String>,
    /// The shell that commands run in.
    pub shell: Option<String>,
    /// The repository around the workspace.
    pub repo: Option<String>,
}

/// Where pictures may lie that a message names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pictures {
    /// The person's home.
    pub home: Option<PathBuf>,
    /// Whether they must lie in the folder that the agent works in.
    pub is_confined: bool,
}

/// The skills of an agent as they are now. Clones are the same shelf: what is put on it counts for every run that begins
/// from then on.
#[derive(Debug, Clone, Default)]
pub struct Shelf(Arc<RwLock<Arc<Kit>>>);

impl Shelf {
    /// What is on it.
    pub fn kit(&self) -> Arc<Kit> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts something else on it.
    pub fn put(&self, kit: Kit) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kit);
    }
}

/// What runs have of the skills, made once for all of them.
#[derive(Debug, Default)]
pub struct Kit {
    /// What prompts say.
    pub(crate) block: Box<str>,
    /// What their commands find in their environment.
    pub(crate) variables: Variables,
    commands: Vec<SlashCommand>,
}

impl Kit {
    /// What runs have of these skills, with `block` as what prompts say of them.
    pub fn new(book: &Book, block: String) -> Self {
        Self {
            block: block.into(),
            variables: homard_skills::variables(book).into_iter().collect(),
            commands: homard_skills::commands(book, command::RESERVED),
        }
    }

    /// The skill that a text calls, if it does.
    pub(crate) fn invoked(&self, text: &str) -> Option<Invocation> {
        homard_skills::invoke(&self.commands, text)
    }

    /// What can be called.
    pub fn commands(&self) -> &[SlashCommand] {
        &self.commands
    }
}
