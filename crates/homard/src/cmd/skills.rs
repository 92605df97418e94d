//! `homard skills`: lists skills and checks their requirements. Only files are read, so it works with and without a
//! gateway.

mod check;
mod install;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use homard_app::skills::SkillLibrary;
use homard_config::LoadedConfig;
use homard_settings::{Config, agent_directories::workspace, paths::Paths};
use homard_workspace::skills::{JudgedSkill, SkillSet, report};
use serde_json::Value;

use super::{
    ids::{self, Candidate},
    scaffold::{self, NewFile},
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard skills`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard skills                     list skills
  homard skills list --eligible     list skills that are ready
  homard skills info weather        show one skill and its missing requirements
  homard skills check               show missing requirements and invalid files
  homard skills new tides           create a directory to start from
  homard skills install ./tides     copy a directory into the state directory
  homard skills enable tides
  homard skills disable tides")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Agent whose skills to show [default: the default agent]
    #[arg(long, global = true, value_name = "ID")]
    agent: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List skills (the default)
    List {
        /// Only skills that are ready to use
        #[arg(long)]
        eligible: bool,
    },
    /// Show one skill, its location and its missing requirements
    Info {
        /// Skill name or a unique prefix of it
        name: String,
    },
    /// Install a skill, from a directory without running it
    Install {
        /// Directory with a SKILL.md
        path: PathBuf,
        /// Replace an installed skill with the same name
        #[arg(long)]
        force: bool,
    },
    /// Create the directory of a skill with a SKILL.md to start from
    New(scaffold::New),
    /// Enable a skill
    Enable {
        /// Skill name or a unique prefix of it
        name: String,
    },
    /// Disable a skill
    Disable {
        /// Skill name or a unique prefix of it
        name: String,
    },
    /// Show which skills are ready, what the others need, and invalid files
    Check,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    match &args.command {
        Some(Command::Install { path, force }) => return install::install(&paths, path, *force, args.json),
        Some(Command::New(new)) => return scaffold::create(new, "skills", &new_files(new.name()), args.json),
        Some(_) | None => {}
    }
    let list = SkillList::find(&chosen.loaded, &paths, args.agent.as_deref())?;
    match &args.command {
        None => list.list(false, args.json),
        Some(Command::List { eligible }) => list.list(*eligible, args.json),
        Some(Command::Info { name }) => list.info(name, args.json),
        Some(Command::Check) => check::run(&list, args.json),
        Some(Command::Enable { name }) => install::switch(&list, &paths, name, true, args.json),
        Some(Command::Disable { name }) => install::switch(&list, &paths, name, false, args.json),
        // Done above: they need no list.
        Some(Command::Install { .. } | Command::New(_)) => Ok(()),
    }
}

/// The skills of an agent: with their eligibility, and as JSON, in the same order.
struct SkillList {
    agent: String,
    set: SkillSet,
    report: Value,
}

impl SkillList {
    fn find(loaded: &LoadedConfig<Config>, paths: &Paths, agent: Option<&str>) -> Result<Self> {
        let no_such = || {
            CliError::usage(format!("unknown agent \"{}\"; list agents with: homard agents", agent.unwrap_or_default()))
        };
        let agent = loaded.config.agents.member(agent).ok_or_else(no_such)?;
        let workspace = workspace(&loaded.config, paths, &agent);
        let library = SkillLibrary::of(loaded, paths, &agent, &workspace);
        let skills = library.discover();
        let report = report(&skills, &workspace, &library.roots.managed);
        Ok(Self { agent: agent.id.to_string(), set: skills, report })
    }

    fn each(&self) -> impl Iterator<Item = (&JudgedSkill, &Value)> {
        self.set.skills.iter().zip(self.report["skills"].as_array().into_iter().flatten())
    }

    fn list(mut self, only_eligible: bool, wants_json: bool) -> Result<()> {
        if only_eligible {
            self.set.skills.retain(|judged| judged.verdict.is_eligible);
            if let Some(skills) = self.report["skills"].as_array_mut() {
                skills.retain(|skill| skill["eligible"] == true);
            }
        }
        if wants_json {
            return Ok(render::print_json(&self.report)?);
        }
        if self.set.skills.is_empty() {
            let folder = self.report["workspaceDir"].as_str().unwrap_or_default();
            let kind = if only_eligible { "ready " } else { "" };
            return Ok(render::print(&format!(
                "no {kind}skills; put a directory with a SKILL.md into {folder}/skills, then run: homard skills check"
            ))?);
        }
        Ok(render::print_table(&table(&self.set.skills))?)
    }

    /// Returns the skill with this name, key or unique prefix of its name.
    fn skill(&self, name: &str) -> Result<&JudgedSkill, CliError> {
        let all = self.set.skills.iter().map(|judged| &judged.skill);
        let all: Vec<_> = all.map(|skill| Candidate { id: &skill.name, name: Some(&skill.key) }).collect();
        let resolved = ids::resolve("skill", name, &all)?;
        self.set.skills.iter().find(|judged| Some(judged.skill.name.as_str()) == resolved).ok_or_else(|| {
            CliError::not_found(format!("skill \"{name}\" not found; list skills with: homard skills list"))
        })
    }

    fn info(&self, name: &str, wants_json: bool) -> Result<()> {
        let found = self.skill(name)?;
        let Some((judged, state)) = self.each().find(|(judged, _)| judged.skill.name == found.skill.name) else {
            return Ok(());
        };
        if wants_json {
            return Ok(render::print_json(state)?);
        }
        Ok(render::print_table(&render::skills::describe(judged, state, &self.agent))?)
    }
}

/// Returns the files of a new skill.
fn new_files(name: &str) -> [NewFile; 1] {
    let text = format!(
        "---\nname: {name}\ndescription: Describe in one sentence when to use this skill.\n---\n\nWrite the instructions for the agent here.\n"
    );
    [NewFile { name: "SKILL.md", text, is_program: false }]
}

/// Formats the skills as a table.
fn table(skills: &[JudgedSkill]) -> Table {
    let titles = ["SKILL", "STATE", "FROM", "FOR"].map(str::to_owned).to_vec();
    let line = |judged: &JudgedSkill| {
        let description = judged.skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let cells = [
            judged.skill.name.clone(),
            render::skills::state(judged),
            render::skills::origin(judged.skill.source).to_owned(),
            render::truncate(&description, render::MAX_DESCRIPTION),
        ];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(skills.iter().map(line)).collect())
}
