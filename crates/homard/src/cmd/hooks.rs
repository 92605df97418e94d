//! `homard hooks`: lists, enables and installs internal hooks. Only files are read and written, so it works with and
//! without a gateway.

mod check;
mod install;
mod node;
mod switch;
mod words;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use homard_config::{Loaded, edit::EditError};
use homard_plugins::internal::{Hook, Rules, Verdict, discover, judge, report};
use homard_skills::Problem;
use serde_json::{Value, json};

use self::node::Trial;
use super::plugins::setup;
use crate::{
    assemble::hooks::settings,
    config::{
        Config,
        change::{By, Change, Refusal, change},
    },
    failure::Failure,
    paths::Paths,
    render,
};

/// Maximum characters of a description in a list.
const SHOWN: usize = 60;

/// What `homard hooks` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard hooks                           what there is
  homard hooks list --eligible           what lacks nothing
  homard hooks info session-memory       one of them, and what it lacks
  homard hooks check                     what is on, what the others lack, and whether Node can run them
  homard hooks enable session-memory     switch one on; a gateway that runs must be restarted
  homard hooks disable session-memory    switch it off again
  homard hooks install ./my-hook         copy a folder with a HOOK.md into the state directory
  homard hooks install ./my-hook --link  use it where it is")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Args {
    /// Returns true if the output is JSON, including failures. The result of `check` is a document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Some(Command::Check))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List hooks (the default)
    List {
        /// Only hooks that are enabled and have all requirements
        #[arg(long)]
        eligible: bool,
        /// Also show the events and the handler of each hook
        #[arg(short, long)]
        verbose: bool,
    },
    /// Show one hook, its location and its missing requirements
    Info {
        /// Its name
        name: String,
    },
    /// Show which hooks are enabled, what the others need, and invalid files; run Node if a hook needs it
    Check,
    /// Enable a hook
    Enable {
        /// Its name
        name: String,
    },
    /// Disable a hook
    Disable {
        /// Its name
        name: String,
    },
    /// Install a hook, or a pack of hooks, from a directory without running it
    Install {
        /// Directory with a HOOK.md, or with a package.json that lists hooks
        path: PathBuf,
        /// Link to the directory instead of copying it
        #[arg(short, long)]
        link: bool,
        /// Replace an installed one
        #[arg(long, conflicts_with = "link")]
        force: bool,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let shown = || Shown::find(&chosen.loaded, &paths);
    match &args.command {
        None => shown().list(false, false, args.json),
        Some(Command::List { eligible, verbose }) => shown().list(*eligible, *verbose, args.json),
        Some(Command::Info { name }) => shown().info(name, args.json),
        Some(Command::Check) => {
            let shown = shown();
            let trial = Trial::of(&shown, &setup(&chosen.loaded, &paths)).await;
            check::run(&shown, &chosen.loaded.config.hooks.internal, trial.as_ref(), args.json)
        }
        Some(Command::Enable { name }) => switch::run(&shown(), &paths, (name, true), args.json),
        Some(Command::Disable { name }) => switch::run(&shown(), &paths, (name, false), args.json),
        Some(Command::Install { path, link: true, .. }) => install::link(&paths, path, args.json),
        Some(Command::Install { path, force, .. }) => install::copy(&paths, path, *force, args.json),
    }
}

/// The discovered hooks, with their eligibility.
struct Shown {
    workspace: PathBuf,
    managed: PathBuf,
    hooks: Vec<(Hook, Verdict)>,
    problems: Vec<Problem>,
    /// Their settings in the config.
    rules: Rules,
}

impl Shown {
    fn find(loaded: &Loaded<Config>, paths: &Paths) -> Self {
        let settings = settings(loaded, paths);
        let found = discover(&settings.roots);
        let judged = |hook: Hook| {
            let verdict = judge(&hook, &settings.host, &settings.rules);
            (hook, verdict)
        };
        Self {
            hooks: found.hooks.into_iter().map(judged).collect(),
            problems: found.problems,
            workspace: settings.workspace,
            managed: settings.roots.managed,
            rules: settings.rules,
        }
    }

    /// Returns the hook with this name or key.
    fn hook(&self, name: &str) -> Result<&(Hook, Verdict)> {
        let by_name = self.hooks.iter().find(|(hook, _)| hook.name == name);
        by_name.or_else(|| self.hooks.iter().find(|(hook, _)| hook.key == name)).ok_or_else(|| {
            Failure::usage(format!("there is no hook \"{name}\"; see them with: homard hooks list")).into()
        })
    }

    fn list(mut self, only_eligible: bool, is_verbose: bool, wants_json: bool) -> Result<()> {
        let is_eligible = |(hook, verdict): &(Hook, Verdict)| report(hook, verdict)["eligible"] == true;
        self.hooks.retain(|judged| !only_eligible || is_eligible(judged));
        if wants_json {
            let hooks: Vec<Value> = self.hooks.iter().map(|(hook, verdict)| report(hook, verdict)).collect();
            let document = json!({"workspaceDir": self.workspace, "managedHooksDir": self.managed, "hooks": hooks});
            return Ok(render::print_json(&document)?);
        }
        Ok(render::print(&words::table(&self.hooks, is_verbose))?)
    }

    fn info(&self, name: &str, wants_json: bool) -> Result<()> {
        let (hook, verdict) = self.hook(name)?;
        if wants_json {
            return Ok(render::print_json(&report(hook, verdict))?);
        }
        Ok(render::print(&words::about(hook, verdict))?)
    }
}

/// Changes the config file.
fn edit_config(paths: &Paths, edit: impl Fn(&str) -> Result<String, EditError>) -> Result<Change> {
    change(paths, By::Person, |text| Ok(edit(text)?)).map_err(|refusal| {
        match matches!(refusal, Refusal::Write(_)) {
            // Keeps the system's error as the source.
            true => refusal.into(),
            false => Failure::new("config", format!("config file {}: {refusal}", paths.config.display())).into(),
        }
    })
}
