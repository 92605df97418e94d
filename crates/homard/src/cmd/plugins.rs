//! `homard plugins`: lists, enables and installs plugins. It reads and writes files, so it works with and without a
//! gateway; only `doctor` starts plugins, briefly.

mod doctor;
mod enable;
mod install;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use homard_app::plugins::PluginList;
use homard_config::nearest;
use homard_plugins::{DiscoveredPlugin, PluginStatus};
use homard_settings::paths::Paths;
use serde_json::{Value, json};

use super::{
    ids::{self, Candidate},
    scaffold::{self, NewFile},
};
use crate::{cli_error::CliError, render};

/// Arguments of `homard plugins`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard plugins                        list plugins and their state
  homard plugins list -v                also show versions, reasons and directories
  homard plugins info tidy              show one plugin: its rights, and why it is enabled or disabled
  homard plugins new tidy               create a directory to start from
  homard plugins install ./tidy         copy a directory into the state directory without running it
  homard plugins install ./tidy --link  use the directory in place
  homard plugins enable tidy            enable a plugin; restart the gateway to apply it
  homard plugins disable tidy           disable it again
  homard plugins doctor                 start every enabled plugin briefly, and show problems and remedies")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List plugins (the default)
    List {
        /// Also show version, directory, and why each plugin is enabled or disabled
        #[arg(short, long)]
        verbose: bool,
    },
    /// Show one plugin: its rights, its location, and why it is enabled or disabled
    Info {
        /// Plugin id or a unique prefix of it
        id: String,
    },
    /// Enable a plugin
    Enable {
        /// Plugin id or a unique prefix of it
        id: String,
    },
    /// Disable a plugin
    Disable {
        /// Plugin id or a unique prefix of it
        id: String,
    },
    /// Create the directory of a plugin with files to start from
    New(scaffold::New),
    /// Install a plugin from a directory without running it; it stays disabled until you enable it
    Install {
        /// Directory with a homard.plugin.json or openclaw.plugin.json
        path: PathBuf,
        /// Link to the directory instead of copying it
        #[arg(short, long)]
        link: bool,
        /// Replace an installed plugin with the same id
        #[arg(long, conflicts_with = "link")]
        force: bool,
    },
    /// Start each enabled plugin briefly and report problems; fail if a plugin does not work
    Doctor,
}

impl Args {
    /// Returns true if the output is JSON, including failures. The result of `doctor` is a document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Some(Command::Doctor))
    }
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let list = || PluginList::find(&chosen.loaded, &paths);
    match &args.command {
        None => print_list(&list(), false, args.json),
        Some(Command::List { verbose }) => print_list(&list(), *verbose, args.json),
        Some(Command::Info { id }) => print_info(&list(), id, args.json),
        Some(Command::Enable { id }) => enable::enable(&list(), &paths, id, args.json),
        Some(Command::Disable { id }) => enable::disable(&list(), &paths, id, args.json),
        Some(Command::New(new)) => scaffold::create(new, "plugins", &new_files(new.name()), args.json),
        Some(Command::Install { path, link: true, .. }) => install::link(&paths, path, args.json),
        Some(Command::Install { path, force, .. }) => install::copy(&paths, path, *force, args.json),
        Some(Command::Doctor) => doctor::run(&list(), args.json).await,
    }
}

/// Returns the files of a new plugin: a tool that answers with its input.
fn new_files(name: &str) -> [NewFile; 2] {
    let tool = name.replace('-', "_");
    let manifest = json!({
        "id": name, "name": name, "version": "0.1.0", "configSchema": {"type": "object"}, "run": ["python3", "plugin.py"],
        "rights": {"tools": [{
            "name": tool, "description": "Describe what the tool does.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        }]},
    });
    [
        NewFile { name: "homard.plugin.json", text: format!("{manifest:#}\n"), is_program: false },
        NewFile { name: "plugin.py", text: include_str!("plugins/new_plugin.py").to_owned(), is_program: false },
    ]
}

/// Returns the plugin with this id, title or unique prefix of its id.
fn find_plugin<'a>(list: &'a PluginList, input: &str) -> Result<&'a (DiscoveredPlugin, PluginStatus)> {
    let all = list.plugins.iter().map(|(_, status)| Candidate { id: &status.id, name: Some(&status.title) });
    let all: Vec<_> = all.collect();
    let id = ids::resolve("plugin", input, &all)?.ok_or_else(|| unknown_plugin(list, input))?;
    list.plugins.iter().find(|(_, status)| status.id == id).ok_or_else(|| unknown_plugin(list, input).into())
}

fn unknown_plugin(list: &PluginList, id: &str) -> CliError {
    let similar = nearest(id, list.plugins.iter().map(|(_, status)| status.id.as_str()));
    let help = similar.map_or_else(
        || "list plugins with: homard plugins list".to_owned(),
        |similar| format!("did you mean {similar:?}? List plugins with: homard plugins list"),
    );
    CliError::not_found(render::strip_controls(&format!("plugin {id:?} not found; {help}")))
}

fn print_list(list: &PluginList, is_verbose: bool, wants_json: bool) -> Result<()> {
    if wants_json {
        let plugins: Vec<Value> =
            list.plugins.iter().map(|(candidate, status)| render::plugins::document(candidate, status)).collect();
        let problem = |problem: &String| json!({"level": "warn", "message": problem});
        return Ok(render::print_json(&json!({
            "workspaceDir": list.setup.workspaces.first(), "extensionsDir": list.setup.state.join("extensions"),
            "plugins": plugins, "diagnostics": list.problems.iter().map(problem).collect::<Vec<_>>(),
        }))?);
    }
    if list.plugins.is_empty() {
        render::print("no plugins; install one from a directory with: homard plugins install PATH")?;
    } else {
        render::print_table(&render::plugins::table(&list.plugins, is_verbose))?;
    }
    if !list.problems.is_empty() {
        let count = render::count_of(list.problems.len(), "file or directory", "files or directories");
        render::remark(&format!("{count} cannot be used as a plugin; see why with: homard plugins doctor"));
    }
    Ok(())
}

fn print_info(list: &PluginList, id: &str, wants_json: bool) -> Result<()> {
    let plugin = find_plugin(list, id)?;
    if wants_json {
        return Ok(render::print_json(&render::plugins::document(&plugin.0, &plugin.1))?);
    }
    Ok(render::print_table(&render::plugins::describe(&plugin.0, &plugin.1, &list.loaded.config))?)
}
