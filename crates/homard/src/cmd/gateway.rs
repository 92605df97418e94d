//! `homard gateway`: runs a gateway, or calls one.

mod call;
mod check;
mod serve;
mod service;

use std::net::TcpListener;

use anyhow::Result;
use clap::Subcommand;
use homard_logging::Log;

use super::logs;

pub(super) use self::service::{ServiceStatus, install_for_user, no_manager};

/// What `homard gateway` takes: the flags of `run`, or a subcommand.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  homard gateway
  homard gateway run --port 19000
  homard gateway install           start it with the machine, as a service of this user
  homard gateway uninstall         stop that service and remove it
  homard gateway start             start it, in the background without a service manager
  homard gateway stop
  homard gateway status            process, version, uptime, addresses and log
  homard gateway restart           replace it without refusing a connection
  homard gateway check             could a gateway start?
  homard gateway call health
  homard gateway call agent --expect-final --params '{\"message\":\"hi\",\"idempotencyKey\":\"k1\"}'"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway in the foreground
    Run(serve::Args),
    /// Install the gateway as a service and start it
    Install(service::InstallArgs),
    /// Stop the service and remove it
    Uninstall(service::ScopeArgs),
    /// Start the service, or a supervised process in the background if there is no service manager
    Start(service::ScopeArgs),
    /// Stop the service
    Stop(service::ScopeArgs),
    /// Replace the running gateway with a new process, which takes over its sockets and runs
    Restart(service::RestartArgs),
    /// Show the service: process, version, uptime, last exit, addresses and the newest log lines
    Status(service::ScopeArgs),
    /// Show the gateway's log
    Logs(logs::Args),
    /// Check whether a gateway could start: the config, and the format of the state directory
    Check(check::Args),
    /// Run a gateway and restart it after failures; homard gateway start does this in the background
    #[command(hide = true)]
    Supervise,
    /// Call a method of a running gateway and print the response
    Call(call::Args),
}

impl Args {
    /// Returns true if the output is JSON.
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            Some(Command::Call(args)) => args.json,
            Some(Command::Install(args)) => args.json,
            Some(Command::Uninstall(args) | Command::Start(args) | Command::Stop(args) | Command::Status(args)) => {
                args.json
            }
            Some(Command::Restart(args)) => args.json,
            Some(Command::Logs(args)) => args.json,
            Some(Command::Check(args)) => args.json,
            Some(Command::Run(_) | Command::Supervise) | None => false,
        }
    }

    /// Returns true if this runs a gateway.
    pub(super) fn serves(&self) -> bool {
        matches!(self.command, None | Some(Command::Run(_)))
    }

    /// Returns true if this runs a gateway and its arguments are valid.
    pub(super) fn can_serve(&self) -> bool {
        match &self.command {
            None => self.serve.check().is_ok(),
            Some(Command::Run(args)) => args.check().is_ok(),
            Some(_) => false,
        }
    }
}

pub(super) async fn run(args: Args, log: Log, inherited: Vec<TcpListener>) -> Result<()> {
    match args.command {
        None => serve::run(args.serve, log, inherited).await,
        Some(Command::Run(args)) => serve::run(args, log, inherited).await,
        Some(Command::Install(args)) => service::install(&args).await,
        Some(Command::Uninstall(args)) => service::uninstall(&args),
        Some(Command::Start(args)) => service::start(&args).await,
        Some(Command::Stop(args)) => service::stop(&args).await,
        Some(Command::Restart(args)) => service::restart(&args).await,
        Some(Command::Status(args)) => service::status(&args).await,
        Some(Command::Logs(args)) => logs::run(&args).await,
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Supervise) => service::supervise().await,
        Some(Command::Call(args)) => call::run(args).await,
    }
}
