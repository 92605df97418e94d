//! `homard models`: configured models, the catalogue, and credentials. Only files are read and written, so it works
//! beside a gateway.

mod auth;
mod list;
mod status;

use anyhow::Result;
use clap::Subcommand;
use homard_app::models::Models;
use homard_config::LoadedConfig;
use homard_credentials::auth_profiles::{Keyring, credentials_file};
use homard_settings::{Config, agents::ConfiguredAgent, paths::Paths};

pub(super) use self::status::{ModelStatus, distinct};
use crate::cli_error::CliError;

/// What `homard models` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models status
  homard models list --provider anthropic
  homard models auth list                      list credentials without their secrets
  homard models auth add anthropic             prompts for the key without echo
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
        /// Include the models of all known providers
        #[arg(long, conflicts_with = "provider")]
        all: bool,
    },
    /// List, add and remove credentials
    Auth {
        #[command(subcommand)]
        command: AuthCommand,
    },
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// List the credentials of an agent, without their secrets
    List {
        /// Agent whose credentials to list [default: the default agent]
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
    },
    /// Add or replace a credential; reads it from stdin, or prompts without echo
    Add(auth::Add),
    /// Remove a credential
    #[command(visible_alias = "rm")]
    Remove {
        /// Profile id, such as openai:default, or a unique prefix of it; see `homard models auth list`
        id: String,
        /// Agent that the credential belongs to [default: the default agent]
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
    },
}

/// Returns the model status of an agent; without an id, of the default agent.
pub(super) fn model_status(loaded: &LoadedConfig<Config>, paths: &Paths, agent: Option<&str>) -> Result<ModelStatus> {
    let models = Models::new(&loaded.config, homard_app::environment(&loaded.variables), &paths.state);
    ModelStatus::find(&ModelsContext { models, config: loaded.config.clone(), paths: paths.clone() }, agent)
}

pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let LoadedConfig { config, variables, .. } = chosen.loaded;
    let models = Models::new(&config, homard_app::environment(&variables), &paths.state);
    let setup = ModelsContext { models, config, paths };
    match &args.command {
        Command::Status { agent } => status::run(&setup, agent.as_deref(), args.json),
        Command::List { provider, all } => list::run(&setup, provider.as_deref(), *all, args.json),
        Command::Auth { command: AuthCommand::List { agent } } => auth::list(&setup, agent.as_deref(), args.json),
        Command::Auth { command: AuthCommand::Add(add) } => auth::add(&setup, add, args.json),
        Command::Auth { command: AuthCommand::Remove { id, agent } } => {
            auth::remove(&setup, id, agent.as_deref(), args.json)
        }
    }
}

/// Inputs of the subcommands.
struct ModelsContext {
    paths: Paths,
    config: Config,
    models: Models,
}

impl ModelsContext {
    /// Returns an agent by its id; without one, the default agent.
    fn agent(&self, id: Option<&str>) -> Result<ConfiguredAgent<'_>, CliError> {
        let no_such = || {
            CliError::usage(format!("unknown agent \"{}\"; list agents with: homard agents", id.unwrap_or_default()))
        };
        self.config.agents.member(id).ok_or_else(no_such)
    }

    fn keyring(&self, agent: &ConfiguredAgent<'_>) -> Result<Keyring> {
        Ok(Keyring::open(credentials_file(&self.paths, agent), &self.models.client)?.0)
    }
}
