//! `homard gateway`: runs a gateway, or calls one.

mod call;
mod serve;

use anyhow::Result;
use clap::Subcommand;
use homard_logging::Log;

/// What `homard gateway` takes: the flags of `run`, or a subcommand.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  homard gateway
  homard gateway run --port 19000
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
    /// Call a method of a running gateway and print the response
    Call(call::Args),
}

impl Args {
    /// Returns true if the output is JSON.
    pub(super) fn wants_json(&self) -> bool {
        matches!(&self.command, Some(Command::Call(args)) if args.json)
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

pub(super) async fn run(args: Args, log: Log) -> Result<()> {
    match args.command {
        None => serve::run(args.serve, log).await,
        Some(Command::Run(args)) => serve::run(args, log).await,
        Some(Command::Call(args)) => call::run(args).await,
    }
}
