//! The commands, one file each.

mod agent;
mod agents;
mod approvals;
mod audit;
mod backup;
mod channels;
mod chaos;
mod chat;
mod completions;
mod config;
mod cron;
mod dashboard;
mod devices;
mod docs;
mod doctor;
mod examples;
mod flags;
mod gateway;
mod health;
mod hooks;
mod ids;
mod import;
mod logs;
mod mcp;
mod message;
mod models;
mod pairing;
mod plugins;
mod prompt;
mod query;
#[cfg(test)]
mod reference;
mod runs;
mod sandbox;
mod scaffold;
mod secrets;
mod sessions;
mod setup;
mod skills;
mod status;
mod trace;
mod usage;
mod verbs;

use std::{ffi::OsString, net::TcpListener, path::PathBuf};

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use homard_logging::Log;
use homard_settings::{Chosen, Config, last_good_warning, logging::Logging, paths::Paths};

use crate::render;

/// Self-hosted AI agent gateway, compatible with OpenClaw
#[derive(Debug, Parser)]
#[command(
    name = "homard",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  homard chat                                start an interactive chat
  homard setup                               set up a model, from nothing to an answered message
  homard agent -m \"What files are here?\"     send a message and print the reply
  homard gateway                             serve clients on ws://127.0.0.1:18789
  homard sessions                            list sessions
  homard trace last                          show the latest run

On a terminal, homard without arguments starts the chat.

Exit codes: 0 success, 1 failure, 2 invalid usage, 74 disk error, 78 invalid config, 129, 130 and 143 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// True if no arguments were typed: the first time, the setup is offered before the chat.
    #[arg(skip)]
    is_bare: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Chat with an agent in the terminal
    Chat(chat::Args),
    /// Set up a model and a workspace, from nothing to an answered message
    Setup(setup::Args),
    /// Send a message to an agent and print its reply
    Agent(agent::Args),
    /// Run the gateway, install and control it as a service, or call a method of it
    Gateway(gateway::Args),
    /// Check the health of the running gateway
    #[command(after_help = "Examples:\n  homard health\n  homard health --json")]
    Health(query::Args),
    /// Show the configuration in use and recent sessions
    #[command(after_help = "Examples:\n  homard status\n  homard status --json")]
    Status(query::Args),
    /// Open the gateway's page in a browser, signed in with a one-time link
    Dashboard(dashboard::Args),
    /// Show what happened to a message, step by step, with timings
    Trace(trace::Args),
    /// List runs, and release or drop those held after repeated crashes
    Runs(runs::Args),
    /// Show token usage, cost and budgets
    Usage(usage::Args),
    /// List, show, search, export, change and compact sessions
    Sessions(sessions::Args),
    /// List agents, or show which one a message would go to
    Agents(agents::Args),
    /// List, install, enable and disable skills
    Skills(skills::Args),
    /// List, enable, disable and install hooks
    Hooks(hooks::Args),
    /// Install, enable and inspect plugins
    Plugins(plugins::Args),
    /// Configure models, API keys and fallbacks
    Models(models::Args),
    /// Show, change and validate the config file
    Config(config::Args),
    /// List, allow and deny commands that wait for approval
    Approvals(approvals::Args),
    /// Configure chat channels and show their status
    Channels(channels::Args),
    /// List, approve and revoke senders on chat channels
    Pairing(pairing::Args),
    /// List, approve and revoke paired clients
    Devices(devices::Args),
    /// Send messages on chat channels
    Message(message::Args),
    /// Add, remove, show and test MCP servers
    Mcp(mcp::Args),
    /// Show the command sandbox
    Sandbox(sandbox::Args),
    /// List, create, change, remove and run scheduled jobs
    Cron(cron::Args),
    /// Show the gateway's log
    Logs(logs::Args),
    /// Show and verify the security audit log
    Audit(audit::Args),
    /// Find secrets that lie in plain text
    Secrets(secrets::Args),
    /// Copy the state directory, also while a gateway uses it
    Backup(backup::Backup),
    /// Restore the state directory from a backup
    Restore(backup::Restore),
    /// Import data from another program
    Import(import::Args),
    /// Check the installation and fix common problems
    Doctor(doctor::Args),
    /// Print the documentation
    Docs(docs::Args),
    /// Print a shell completion script
    #[command(alias = "completion")]
    Completions(completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(completions::ManArgs),
    /// Kill a temporary gateway repeatedly, and verify that nothing is lost or done twice
    Chaos(chaos::Args),
}

impl Cli {
    /// Parses the command line. Exits the process if it is invalid or asks for help.
    pub(crate) fn read() -> Self {
        // Examples are only needed for help and errors, so valid commands are parsed without them.
        let mut args: Vec<_> = std::env::args_os().collect();
        // Elsewhere the help is more useful.
        let is_bare = args.len() == 1 && chat::is_interactive();
        if is_bare {
            args.push("chat".into());
        }
        let (args, matches) = Self::parse_args(args);
        let matches = matches.unwrap_or_else(|error| match verbs::hint(&args) {
            Some(hint) if error.kind() == ErrorKind::InvalidSubcommand => {
                let typed = args[1..].iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
                let message = format!("unknown command `{typed}`\n{hint}\n");
                clap::Error::raw(ErrorKind::InvalidSubcommand, message).exit()
            }
            Some(_) | None => examples::inherit_examples(Self::command()).get_matches_from(&args),
        });
        let parsed = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Self { is_bare, ..parsed }
    }

    /// Parses the arguments as typed or, if that fails, with the default subcommand inserted. Also returns the
    /// arguments that were parsed last.
    fn parse_args(args: Vec<OsString>) -> (Vec<OsString>, Result<ArgMatches, clap::Error>) {
        let parsed = Self::command().try_get_matches_from(&args);
        if let Err(error) = &parsed
            && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
            && let Some(expanded) = verbs::with_default(&args, &Self::command())
        {
            let parsed = Self::command().try_get_matches_from(&expanded);
            return (expanded, parsed);
        }
        (args, parsed)
    }

    /// Returns true if the output is JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Command::Setup(args) => args.json,
            Command::Agent(args) => args.json,
            Command::Gateway(args) => args.wants_json(),
            Command::Dashboard(args) => args.json,
            Command::Agents(args) => args.json,
            Command::Skills(args) => args.json,
            Command::Hooks(args) => args.wants_json(),
            Command::Plugins(args) => args.wants_json(),
            Command::Models(args) => args.json,
            Command::Config(args) => args.wants_json(),
            Command::Approvals(args) => args.json,
            Command::Channels(args) => args.json,
            Command::Pairing(args) => args.json,
            Command::Devices(args) => args.json,
            Command::Message(args) => args.json,
            Command::Mcp(args) => args.json,
            Command::Sandbox(args) => args.json,
            Command::Cron(args) => args.json,
            Command::Logs(args) => args.json,
            Command::Audit(args) => args.wants_json(),
            Command::Secrets(args) => args.wants_json(),
            Command::Backup(args) => args.json,
            Command::Restore(args) => args.json,
            Command::Import(args) => args.wants_json(),
            Command::Docs(args) => args.json,
            Command::Sessions(args) => args.json,
            Command::Trace(args) => args.json,
            Command::Runs(args) => args.json,
            Command::Usage(args) => args.json,
            Command::Health(args) | Command::Status(args) => args.json,
            // Their reports are documents even if they fail.
            Command::Chaos(_) | Command::Doctor(_) => false,
            Command::Chat(_) | Command::Completions(_) | Command::Man(_) => false,
        }
    }

    /// Returns true if this runs a gateway.
    pub(crate) fn serves(&self) -> bool {
        matches!(&self.command, Command::Gateway(args) if args.serves())
    }

    /// Returns the default log level.
    pub(crate) fn log_level(&self) -> &'static str {
        match &self.command {
            Command::Gateway(args) if args.serves() => "info",
            // Lines of a log would destroy the screen.
            Command::Chat(_) => "off",
            // The findings are the output; the log would repeat them.
            Command::Plugins(_) | Command::Doctor(_) => "error",
            Command::Gateway(_)
            | Command::Agent(_)
            | Command::Setup(_)
            | Command::Health(_)
            | Command::Status(_)
            | Command::Dashboard(_)
            | Command::Trace(_)
            | Command::Runs(_)
            | Command::Usage(_)
            | Command::Sessions(_)
            | Command::Agents(_)
            | Command::Skills(_)
            | Command::Hooks(_)
            | Command::Models(_)
            | Command::Config(_)
            | Command::Approvals(_)
            | Command::Channels(_)
            | Command::Pairing(_)
            | Command::Devices(_)
            | Command::Message(_)
            | Command::Mcp(_)
            | Command::Sandbox(_)
            | Command::Cron(_)
            | Command::Logs(_)
            | Command::Audit(_)
            | Command::Secrets(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Import(_)
            | Command::Docs(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Chaos(_) => "warn",
        }
    }

    /// Returns the log settings and the log file; used by gateways only.
    pub(crate) fn logging(&self) -> (Logging, Option<PathBuf>) {
        let Command::Gateway(args) = &self.command else { return Default::default() };
        // Invalid usage creates no file.
        let Some(paths) = args.can_serve().then(Paths::find).and_then(Result::ok) else { return Default::default() };
        // Nor does an unusable config, with which no gateway starts.
        let Ok(chosen) = Config::choose(&paths) else { return Default::default() };
        let logging = chosen.loaded.config.logging;
        let file = homard_logging::log_file(&logging, &paths);
        (logging, Some(file))
    }

    /// Runs the command. A gateway also serves this log to clients, and uses inherited listeners.
    pub(crate) async fn run(self, log: Log, inherited: Vec<TcpListener>) -> Result<()> {
        match self.command {
            Command::Chat(args) => {
                if self.is_bare {
                    setup::offer().await?;
                }
                chat::run(&args).await
            }
            Command::Setup(args) => setup::run(&args).await,
            Command::Agent(args) => agent::run(args).await,
            Command::Gateway(args) => gateway::run(args, log, inherited).await,
            Command::Health(args) => health::run(&args).await,
            Command::Status(args) => status::run(&args).await,
            Command::Dashboard(args) => dashboard::run(&args).await,
            Command::Trace(args) => trace::run(&args).await,
            Command::Runs(args) => runs::run(&args).await,
            Command::Usage(args) => usage::run(&args).await,
            Command::Sessions(args) => sessions::run(&args).await,
            Command::Agents(args) => agents::run(&args),
            Command::Skills(args) => skills::run(&args),
            Command::Hooks(args) => hooks::run(&args).await,
            Command::Plugins(args) => plugins::run(&args).await,
            Command::Models(args) => models::run(&args).await,
            Command::Config(args) => config::run(&args),
            Command::Approvals(args) => approvals::run(&args).await,
            Command::Channels(args) => channels::run(&args).await,
            Command::Pairing(args) => pairing::run(&args).await,
            Command::Devices(args) => devices::run(&args).await,
            Command::Message(args) => message::run(&args).await,
            Command::Mcp(args) => mcp::run(&args).await,
            Command::Sandbox(args) => sandbox::run(&args),
            Command::Cron(args) => cron::run(&args).await,
            Command::Logs(args) => logs::run(&args).await,
            Command::Audit(args) => audit::run(&args).await,
            Command::Secrets(args) => secrets::run(&args),
            Command::Backup(args) => backup::backup(&args).await,
            Command::Restore(args) => backup::restore(&args).await,
            Command::Import(args) => import::run(&args).await,
            Command::Doctor(args) => doctor::run(&args).await,
            Command::Docs(args) => docs::run(&args),
            Command::Completions(args) => completions::run(&args, Self::command()),
            Command::Man(args) => completions::write_manual(&args, examples::inherit_examples(Self::command())),
            Command::Chaos(args) => chaos::run(args).await,
        }
    }
}

/// Returns the config for commands that show it or call a gateway. Warns on stderr if a copy is used in place of the
/// file.
fn config_of(paths: &Paths) -> Result<Chosen> {
    let chosen = Config::choose_as_client(paths)?;
    if let Some(warning) = last_good_warning(&chosen, &paths.config) {
        render::remark(&warning);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        examples::inherit_examples(Cli::command()).debug_assert();
    }
}
