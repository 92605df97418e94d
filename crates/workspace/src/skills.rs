//! Skills: discovery, parsing, eligibility, and the list for a model.
//!
//! Values in, values out: this module reads only the folders it is given. It does not depend on the environment, the
//! config file, sessions or models. Start with [`Skill`] (content of a file), then [`discover`] (which files), then
//! [`check_eligibility`] (which of them are eligible) and [`SkillSet`] (how these are used).

mod front_matter;
mod skill;

mod discover;
mod walk;

mod eligibility;

mod command;
mod prompt;
mod skill_set;
mod status;
mod variables;

pub use command::{Invocation, SlashCommand, commands, invoke, rewrite};
pub use discover::{
    DiscoveredSkills, DiscoveryLimits, ProblemLevel, SkillProblem, SkillRoots, discover, discover_allowed,
};
pub use eligibility::{
    Eligibility, HostEnvironment, MissingRequirements, Requirements, SkillEntry, SkillRules, check_eligibility, missing,
};
pub use front_matter::{FrontMatter, lookup};
pub use prompt::{PromptLimits, block};
pub use skill::{
    Skill, SkillRequirements, SkillSource, ToolDispatch, as_bool, as_list, as_text, manifest, on_one_line, requires,
};
pub use skill_set::{JudgedSkill, SkillSet, environment};
pub use status::report;
pub use variables::Variables;
