//! `homard skills`: lists skills and checks their requirements. Only files are read, so it works with and without a
//! gateway.

mod check;
mod words;

use anyhow::Result;
use clap::Subcommand;
use homard_config::Loaded;
use homard_skills::{Book, Judged, Source, report};
use serde_json::Value;

use crate::{
    assemble::{office::workspace, skills::Library},
    config::Config,
    failure::Failure,
    paths::Paths,
    render,
};

/// Maximum characters of a description in a list.
const SHOWN: usize = 60;

/// What `homard skills` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard skills                     what there is
  homard skills list --eligible     what is ready
  homard skills info weather        one of them, and what it lacks
  homard skills check               what the others lack, and what is wrong with files")]
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
        /// Its name
        name: String,
    },
    /// Show which skills are ready, what the others need, and invalid files
    Check,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let shown = Shown::find(&chosen.loaded, &paths, args.agent.as_deref())?;
    match &args.command {
        None => shown.list(false, args.json),
        Some(Command::List { eligible }) => shown.list(*eligible, args.json),
        Some(Command::Info { name }) => shown.info(name, args.json),
        Some(Command::Check) => check::run(&shown, args.json),
    }
}

/// The skills of an agent: with their eligibility, and as JSON, in the same order.
struct Shown {
    agent: String,
    book: Book,
    report: Value,
}

impl Shown {
    fn find(loaded: &Loaded<Config>, paths: &Paths, agent: Option<&str>) -> Result<Self> {
        let no_such = || Failure::usage(format!("there is no agent \"{}\" in the config", agent.unwrap_or_default()));
        let agent = loaded.config.agents.member(agent).ok_or_else(no_such)?;
        let workspace = workspace(&loaded.config, paths, &agent);
        let library = Library::of(loaded, paths, &agent, &workspace);
        let book = library.book();
        let report = report(&book, &workspace, &library.roots.managed);
        Ok(Self { agent: agent.id.to_string(), book, report })
    }

    fn each(&self) -> impl Iterator<Item = (&Judged, &Value)> {
        self.book.skills.iter().zip(self.report["skills"].as_array().into_iter().flatten())
    }

    fn list(mut self, only_eligible: bool, wants_json: bool) -> Result<()> {
        if only_eligible {
            self.book.skills.retain(|judged| judged.verdict.is_eligible);
            if let Some(skills) = self.report["skills"].as_array_mut() {
                skills.retain(|skill| skill["eligible"] == true);
            }
        }
        if wants_json {
            return Ok(render::print_json(&self.report)?);
        }
        if self.book.skills.is_empty() {
            let folder = self.report["workspaceDir"].as_str().unwrap_or_default();
            let which = if only_eligible { "ready " } else { "" };
            return Ok(render::print(&format!(
                "no {which}skills; put a folder with a SKILL.md into {folder}/skills, and look with: homard skills check"
            ))?);
        }
        Ok(render::print(&table(&self.book.skills))?)
    }

    fn info(&self, name: &str, wants_json: bool) -> Result<()> {
        let is_meant = |judged: &Judged| judged.skill.name == name || judged.skill.key == name;
        let Some((judged, state)) = self.each().find(|(judged, _)| is_meant(judged)) else {
            let text = format!("there is no skill \"{name}\"; see them with: homard skills list");
            return Err(Failure::usage(text).into());
        };
        if wants_json {
            return Ok(render::print_json(state)?);
        }
        Ok(render::print(&words::about(judged, state, &self.agent))?)
    }
}

/// Formats the skills as a table.
fn table(skills: &[Judged]) -> String {
    let titles = ["SKILL", "STATE", "FROM", "FOR"].map(str::to_owned).to_vec();
    let line = |judged: &Judged| {
        let description = judged.skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let cells = [
            judged.skill.name.clone(),
            words::state(judged),
            origin(judged.skill.source).to_owned(),
            words::cut(&description, SHOWN),
        ];
        cells.map(|cell| render::harmless(&cell)).to_vec()
    };
    render::table(&std::iter::once(titles).chain(skills.iter().map(line)).collect::<Vec<_>>())
}

fn origin(source: Source) -> &'static str {
    match source {
        Source::Extra => "extraDirs",
        Source::Plugin => "plugin",
        Source::Bundled => "bundled",
        Source::Managed => "state directory",
        Source::Personal => "~/.agents",
        Source::Project => "workspace/.agents",
        Source::Workspace => "workspace",
    }
}
