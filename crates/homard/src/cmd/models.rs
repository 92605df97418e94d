//! `homard models`: configured models, the catalogue, and credentials. Only files are read and written, so it works
//! beside a gateway.

mod auth;
mod list;
mod status;

use anyhow::Result;
use clap::Subcommand;
use homard_config::Loaded;

pub(super) use self::status::Standing;
use crate::{
    assemble::{self, models::Models},
    auth::{Keyring, place},
    config::{Config, agents::Member},
    failure::Failure,
    paths::Paths,
};

/// What `homard models` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models status
  homard models list --provider anthropic
  homard models auth add anthropic             asks for the key, and shows nothing of it
  pass show openai | homard models auth add openai --profile work
  homard models auth remove openai:work")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the model candidates in order, their credentials and cooldowns
    Status {
        /// Agent to show [default: the default agent]
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
    },
    /// List the models of all configured providers
    List {
        /// Only models of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// Models of all known providers
        #[arg(long, conflicts_with = "provider")]
        all: bool,
    },
    /// Add and remove credentials
    Auth {
        #[command(subcommand)]
        command: Auth,
    },
}

#[derive(Debug, Subcommand)]
enum Auth {
    /// Add or replace a credential; reads it from stdin, or prompts without echo
    Add(auth::Add),
    /// Remove a credential
    #[command(visible_alias = "rm")]
    Remove {
        /// Profile id, such as openai:default; see `homard models status`
        id: String,
        /// Agent that has it [default: the default agent]
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
    },
}

/// Returns the model status of an agent; without an id, of the default agent.
pub(super) fn standing(loaded: &Loaded<Config>, paths: &Paths, agent: Option<&str>) -> Result<Standing> {
    let models = Models::new(&loaded.config, assemble::environment(&loaded.variables), &paths.state);
    Standing::find(&Setup { models, config: loaded.config.clone(), paths: paths.clone() }, agent)
}

pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let Loaded { config, variables, .. } = chosen.loaded;
    let models = Models::new(&config, assemble::environment(&variables), &paths.state);
    let setup = Setup { models, config, paths };
    match &args.command {
        Command::Status { agent } => status::run(&setup, agent.as_deref(), args.json),
        Command::List { provider, all } => list::run(&setup, provider.as_deref(), *all, args.json),
        Command::Auth { command: Auth::Add(add) } => auth::add(&setup, add, args.json),
        Command::Auth { command: Auth::Remove { id, agent } } => auth::remove(&setup, id, agent.as_deref(), args.json),
    }
}

/// Inputs of the subcommands.
struct Setup {
    paths: Paths,
    config: Config,
    models: Models,
}

impl Setup {
    /// Returns an agent by its id; without one, the default agent.
    fn agent(&self, id: Option<&str>) -> Result<Member<'_>, Failure> {
        let no_such = || Failure::usage(format!("there is no agent \"{}\" in agents.list", id.unwrap_or_default()));
        self.config.agents.member(id).ok_or_else(no_such)
    }

    fn keyring(&self, agent: &Member<'_>) -> Result<Keyring> {
        Ok(Keyring::open(place(&self.paths, agent), &self.models.client)?.0)
    }
}
