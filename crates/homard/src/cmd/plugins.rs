//! `homard plugins`: lists, enables and installs plugins. It reads and writes files, so it works with and without a
//! gateway; only `doctor` starts plugins, briefly.

mod copy;
mod doctor;
mod install;
mod report;
mod switch;
mod words;

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use async_trait::async_trait;
use clap::Subcommand;
use homard_config::{Loaded, edit::EditError, nearest, redact};
use homard_plugins::{Ask, Candidate, Found, Host, Plugins, Reserved, Setup, Status, Timing, discover};
use serde_json::{Value, json};

pub(super) use self::doctor::node as node_version;
use crate::{
    config::{
        Config,
        change::{By, Change, Refusal, change},
    },
    failure::Failure,
    paths::{self, Paths},
    render,
};

/// What `homard plugins` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard plugins                        what there is, and whether it is on
  homard plugins list -v                the same, with versions, reasons and folders
  homard plugins info tidy              one of them: what it may do, and why it is on or off
  homard plugins install ./tidy         copy a folder into the state directory; nothing of it is run
  homard plugins install ./tidy --link  use it where it is
  homard plugins enable tidy            switch one on; a gateway that runs must be restarted
  homard plugins disable tidy           switch it off again
  homard plugins doctor                 start all that are on for a moment, and say what is wrong and what to do")]
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
    /// Show one plugin: capabilities, location, and why it is enabled or disabled
    Info {
        /// Its id
        id: String,
    },
    /// Enable a plugin
    Enable {
        /// Its id
        id: String,
    },
    /// Disable a plugin
    Disable {
        /// Its id
        id: String,
    },
    /// Install a plugin from a directory without running it; it stays disabled until you enable it
    Install {
        /// Directory with a homard.plugin.json or openclaw.plugin.json
        path: PathBuf,
        /// Link to the directory instead of copying it
        #[arg(short, long)]
        link: bool,
        /// Replace an installed one
        #[arg(long, conflicts_with = "link")]
        force: bool,
    },
    /// Start each enabled plugin briefly; fail if one does not work
    Doctor,
}

impl Args {
    /// Returns true if the output is JSON, including failures. The result of `doctor` is a document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Some(Command::Doctor))
    }
}

/// Checks the plugins of a config. Starts the enabled ones briefly.
pub(super) async fn examine(loaded: &Loaded<Config>, paths: &Paths) -> doctor::Summary {
    doctor::summary(&Shown::find(loaded, paths)).await
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let shown = || Shown::find(&chosen.loaded, &paths);
    match &args.command {
        None => shown().list(false, args.json),
        Some(Command::List { verbose }) => shown().list(*verbose, args.json),
        Some(Command::Info { id }) => shown().info(id, args.json),
        Some(Command::Enable { id }) => switch::on(&shown(), &paths, id, args.json),
        Some(Command::Disable { id }) => switch::off(&shown(), &paths, id, args.json),
        Some(Command::Install { path, link: true, .. }) => install::link(&paths, path, args.json),
        Some(Command::Install { path, force, .. }) => install::copy(&paths, path, *force, args.json),
        Some(Command::Doctor) => doctor::run(&shown(), args.json).await,
    }
}

/// The discovered plugins, evaluated as in a gateway. None of them runs.
struct Shown {
    /// Settings of the plugin host.
    setup: Setup,
    /// The config with their entries.
    loaded: Loaded<Config>,
    /// In discovery order, which is the order in which their hooks are called.
    plugins: Vec<(Candidate, Status)>,
    /// Problems with files: sentences that begin with a path.
    problems: Vec<String>,
}

impl Shown {
    /// Discovers the plugins. Needs a runtime.
    fn find(loaded: &Loaded<Config>, paths: &Paths) -> Self {
        let setup = setup(loaded, paths);
        let Found { candidates, problems } = discover(&loaded.config.plugin_roots(paths));
        let mut known = Plugins::open(setup.clone(), &host(&setup)).status();
        let with_status = |candidate: Candidate| {
            let at = known.iter().position(|status| status.id == candidate.manifest.id)?;
            Some((candidate, known.swap_remove(at)))
        };
        let plugins = candidates.into_iter().filter_map(with_status).collect();
        Self { setup, loaded: loaded.clone(), plugins, problems }
    }

    /// Returns the plugin with this id.
    fn plugin(&self, id: &str) -> Result<&(Candidate, Status)> {
        self.plugins.iter().find(|(_, status)| status.id == id).ok_or_else(|| self.stranger(id).into())
    }

    fn stranger(&self, id: &str) -> Failure {
        let near = nearest(id, self.plugins.iter().map(|(_, status)| status.id.as_str()));
        let help = near.map_or_else(
            || "see them with: homard plugins list".to_owned(),
            |near| format!("did you mean {near:?}? See them with: homard plugins list"),
        );
        Failure::usage(render::harmless(&format!("there is no plugin {id:?}; {help}")))
    }

    fn list(&self, is_verbose: bool, wants_json: bool) -> Result<()> {
        if wants_json {
            let plugins: Vec<Value> = self.plugins.iter().map(report::document).collect();
            let problem = |problem: &String| json!({"level": "warn", "message": problem});
            return Ok(render::print_json(&json!({
                "workspaceDir": self.setup.workspaces.first(), "extensionsDir": self.setup.state.join("extensions"),
                "plugins": plugins, "diagnostics": self.problems.iter().map(problem).collect::<Vec<_>>(),
            }))?);
        }
        if self.plugins.is_empty() {
            render::print("no plugins; to take one from a folder: homard plugins install PATH")?;
        } else {
            render::print(&words::table(&self.plugins, is_verbose))?;
        }
        if !self.problems.is_empty() {
            let count = words::count(self.problems.len(), "file or folder", "files or folders");
            render::remark(&format!("{count} cannot be used as a plugin; see why with: homard plugins doctor"));
        }
        Ok(())
    }

    fn info(&self, id: &str, wants_json: bool) -> Result<()> {
        let plugin = self.plugin(id)?;
        if wants_json {
            return Ok(render::print_json(&report::document(plugin))?);
        }
        Ok(render::print(&words::about(plugin, &self.loaded.config))?)
    }
}

/// Returns the settings of the plugin host, as in a gateway.
pub(super) fn setup(loaded: &Loaded<Config>, paths: &Paths) -> Setup {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let reserved = Reserved {
        tools: homard_agent::policy::known().map(str::to_owned).collect(),
        commands: names(&homard_agent::command::NAMES),
        methods: homard_gateway::method_names().into_iter().map(str::to_owned).collect(),
        paths: names(&["/health", "/healthz", "/ready", "/readyz", "/v1", "/tools/invoke", "/hooks", "/metrics"]),
    };
    Setup {
        settings: loaded.config.plugins.settings(paths),
        state: paths.state.clone(),
        workspaces: loaded.config.plugin_roots(paths).workspaces,
        config: redact::redact(&loaded.source),
        env: paths::variables().collect(),
        reserved,
        timing: Timing::default(),
    }
}

/// A plugin host without a gateway: it gives plugins the config and nothing else.
struct Lodge(Value);

#[async_trait]
impl Host for Lodge {
    async fn answer(&self, _plugin: &str, ask: Ask, _params: Value) -> Result<Value, String> {
        match ask {
            Ask::ConfigGet => Ok(self.0.clone()),
            Ask::ConfigWrite
            | Ask::SystemEvent
            | Ask::GatewayRequest
            | Ask::AgentRun
            | Ask::LlmComplete
            | Ask::MemorySearch
            | Ask::MemoryGet => Err(format!("{} is not available without a gateway", ask.name())),
        }
    }
}

pub(super) fn host(setup: &Setup) -> Arc<dyn Host> {
    Arc::new(Lodge(setup.config.clone()))
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
