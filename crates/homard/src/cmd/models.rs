//! `homard models`: configured models, the catalogue, and credentials. Files are read and written, and servers of models
//! are asked, but no gateway is, so it works beside one.

mod add;
mod auth;
mod list;
mod set;
mod status;
mod test;

use anyhow::Result;
use clap::Subcommand;
use homard_config::LoadedConfig;
use homard_settings::{Config, paths::Paths};
use homard_setup::{ModelsContext, inventory::Selection, status::ModelStatus};

pub(super) use self::test::{answer_text, document as test_document};
use crate::render;

/// Arguments of `homard models`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models status
  homard models status --probe                 send each candidate a small request
  homard models set openai/gpt-6.1-sol
  homard models test                           send the model one small request
  homard models add mine http://127.0.0.1:8000/v1
  homard models list --provider anthropic
  homard models auth list                      list credentials without their secrets
  homard models auth add anthropic             prompts for the key without echo
  pass show openai | homard models auth add openai --profile work
  homard models auth login --provider mine     sign in with OAuth
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
        /// Send each candidate a small request, which may cost money, and show whether it answers
        #[arg(long)]
        probe: bool,
    },
    /// Set the model that agents use
    Set(set::Args),
    /// Send a model one small request and show the answer, its time, the URL and the API
    Test(test::Test),
    /// Add a server with an API of OpenAI or Anthropic: asks it for its models and detects the API
    Add(add::Args),
    /// List the models of all configured providers
    List {
        /// Only models of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// Include the models of all known providers
        #[arg(long, conflicts_with = "provider")]
        all: bool,
        /// Ask the servers for their models, and list those
        #[arg(long, conflicts_with = "all")]
        probe: bool,
    },
    /// List, add and remove credentials, and sign in
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
    /// Sign in at a provider with a code that you confirm in a browser
    Login(auth::Login),
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
    Ok(ModelStatus::find(&ModelsContext::of(loaded, paths.clone()), agent)?)
}

/// Reads the config. Warns on stderr if a copy is used in its place.
pub(super) fn read_context(paths: Paths) -> Result<ModelsContext> {
    let (setup, warning) = ModelsContext::read(paths)?;
    warning.iter().for_each(|warning| render::remark(warning));
    Ok(setup)
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = read_context(Paths::find()?)?;
    match &args.command {
        Command::Status { agent, probe } => status::run(&setup, agent.as_deref(), *probe, args.json).await,
        Command::Set(set) => set::run(&setup, set, args.json),
        Command::Test(test) => test::run(&setup, test, args.json).await,
        Command::Add(add) => add::run(&setup, add, args.json).await,
        Command::List { provider, probe: true, .. } => list::run_probe(&setup, provider.as_deref(), args.json).await,
        Command::List { provider, all, probe: false } => {
            let all = if *all { Selection::All } else { Selection::Usable };
            list::run(&setup, provider.as_deref().map_or(all, Selection::Provider), args.json)
        }
        Command::Auth { command: AuthCommand::List { agent } } => auth::list(&setup, agent.as_deref(), args.json),
        Command::Auth { command: AuthCommand::Add(add) } => auth::add(&setup, add, args.json),
        Command::Auth { command: AuthCommand::Login(login) } => auth::login(&setup, login, args.json).await,
        Command::Auth { command: AuthCommand::Remove { id, agent } } => {
            auth::remove(&setup, id, agent.as_deref(), args.json)
        }
    }
}
