//! `homard hooks`: lists, enables and installs internal hooks. Only files are read and written, so it works with and
//! without a gateway.

mod check;
mod enable;
mod install;
mod node;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use homard_app::{hooks::settings, plugins::setup};
use homard_config::LoadedConfig;
use homard_plugins::internal::{HookDecisionState, HookRules, InternalHook, decide, discover, report};
use homard_settings::{Config, paths::Paths};
use homard_workspace::skills::SkillProblem;
use serde_json::{Value, json};

use self::node::NodeTrial;
use super::{
    ids::{self, Candidate},
    scaffold::{self, NewFile},
};
use crate::{cli_error::CliError, render};

/// Arguments of `homard hooks`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard hooks                           list hooks
  homard hooks list --eligible           list hooks without missing requirements
  homard hooks info session-memory       show one hook and its missing requirements
  homard hooks check                     show enabled hooks, missing requirements, and whether Node can run them
  homard hooks enable session-memory     enable a hook; restart the gateway to apply it
  homard hooks disable session-memory    disable it again
  homard hooks new my-hook               create a directory to start from
  homard hooks install ./my-hook         copy a directory with a HOOK.md into the state directory
  homard hooks install ./my-hook --link  use the directory in place")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Args {
    /// Returns true if a failure is printed as JSON. `check` prints its own document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Some(Command::Check))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List hooks (the default)
    List {
        /// Only hooks whose requirements are met and that their entry in the config does not disable
        #[arg(long)]
        eligible: bool,
        /// Also show the events and the handler of each hook
        #[arg(short, long)]
        verbose: bool,
    },
    /// Show one hook, its location and its missing requirements
    Info {
        /// Hook name or a unique prefix of it
        name: String,
    },
    /// Show which hooks are enabled, what the others need, and invalid files; test Node if a hook needs it
    Check,
    /// Enable a hook
    Enable {
        /// Hook name or a unique prefix of it
        name: String,
    },
    /// Disable a hook
    Disable {
        /// Hook name or a unique prefix of it
        name: String,
    },
    /// Create the directory of a hook with files to start from
    New(scaffold::New),
    /// Install a hook, or a pack of hooks, from a directory without running it
    Install {
        /// Directory with a HOOK.md, or with a package.json that lists hooks
        path: PathBuf,
        /// Link to the directory instead of copying it
        #[arg(short, long)]
        link: bool,
        /// Replace an installed hook with the same name
        #[arg(long, conflicts_with = "link")]
        force: bool,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let list = || HookList::find(&chosen.loaded, &paths);
    match &args.command {
        None => list().list(false, false, args.json),
        Some(Command::List { eligible, verbose }) => list().list(*eligible, *verbose, args.json),
        Some(Command::Info { name }) => list().info(name, args.json),
        Some(Command::Check) => {
            let list = list();
            let trial = NodeTrial::of(&list, &setup(&chosen.loaded, &paths)).await;
            check::run(&list, &chosen.loaded.config.hooks.internal, trial.as_ref(), args.json)
        }
        Some(Command::Enable { name }) => enable::run(&list(), &paths, name, true, args.json),
        Some(Command::Disable { name }) => enable::run(&list(), &paths, name, false, args.json),
        Some(Command::New(new)) => scaffold::create(new, "hooks", &new_files(new.name()), args.json),
        Some(Command::Install { path, link: true, .. }) => install::link(&paths, path, args.json),
        Some(Command::Install { path, force, .. }) => install::copy(&paths, path, *force, args.json),
    }
}

/// The discovered hooks, with their eligibility.
struct HookList {
    workspace: PathBuf,
    managed: PathBuf,
    hooks: Vec<(InternalHook, HookDecisionState)>,
    problems: Vec<SkillProblem>,
    /// Their settings in the config.
    rules: HookRules,
}

impl HookList {
    fn find(loaded: &LoadedConfig<Config>, paths: &Paths) -> Self {
        let settings = settings(loaded, paths);
        let found = discover(&settings.roots);
        let judged = |hook: InternalHook| {
            let decision = decide(&hook, &settings.host, &settings.rules);
            (hook, decision)
        };
        Self {
            hooks: found.hooks.into_iter().map(judged).collect(),
            problems: found.problems,
            workspace: settings.workspace,
            managed: settings.roots.managed,
            rules: settings.rules,
        }
    }

    /// Returns the hook with this name, key or unique prefix of its name.
    fn hook(&self, name_or_prefix: &str) -> Result<&(InternalHook, HookDecisionState)> {
        let all = self.hooks.iter().map(|(hook, _)| Candidate { id: &hook.name, name: Some(&hook.key) });
        let name = ids::resolve("hook", name_or_prefix, &all.collect::<Vec<_>>())?;
        self.hooks.iter().find(|(hook, _)| Some(hook.name.as_str()) == name).ok_or_else(|| {
            CliError::not_found(format!("hook \"{name_or_prefix}\" not found; list hooks with: homard hooks list"))
                .into()
        })
    }

    fn list(mut self, only_eligible: bool, is_verbose: bool, wants_json: bool) -> Result<()> {
        let is_eligible =
            |(hook, decision): &(InternalHook, HookDecisionState)| report(hook, decision)["eligible"] == true;
        self.hooks.retain(|judged| !only_eligible || is_eligible(judged));
        if wants_json {
            let hooks: Vec<Value> = self.hooks.iter().map(|(hook, decision)| report(hook, decision)).collect();
            let document = json!({"workspaceDir": self.workspace, "managedHooksDir": self.managed, "hooks": hooks});
            return Ok(render::print_json(&document)?);
        }
        Ok(render::print_table(&render::hooks::table(&self.hooks, is_verbose))?)
    }

    fn info(&self, name: &str, wants_json: bool) -> Result<()> {
        let (hook, decision) = self.hook(name)?;
        if wants_json {
            return Ok(render::print_json(&report(hook, decision))?);
        }
        Ok(render::print_table(&render::hooks::describe(hook, decision))?)
    }
}

/// Returns the files of a new hook.
fn new_files(name: &str) -> [NewFile; 2] {
    let header = format!(
        "---\nname: {name}\ndescription: Describe in one sentence what this hook does.\nmetadata: {{\"openclaw\": {{\"events\": [\"command:new\"]}}}}\n---\n"
    );
    let handler = "#!/bin/sh\n# Reads one event as a line of JSON; may write one JSON object, such as {\"messages\": [\"Hello\"]}.\ncat > /dev/null\n";
    [
        NewFile { name: "HOOK.md", text: header, is_program: false },
        NewFile { name: "handler.sh", text: handler.to_owned(), is_program: true },
    ]
}
