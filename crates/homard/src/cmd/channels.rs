//! `homard channels`: chat platforms. Adding one changes the config, which a running gateway reloads.

mod add;
mod hosted;
mod show;

use std::time::Duration;

use anyhow::{Error, Result};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    flags::Limit,
    query::{Call, CommandContext},
};
use crate::{cli_error::CliError, render};

/// Timeout for the gateway's response, including probes of the platforms.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of `homard channels`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard channels list
  homard channels add telegram --token 123456:ABC…
  homard channels add irc --set host=irc.libera.chat --set nick=my-agent
  homard channels login whatsapp
  homard channels status --probe
  homard channels logs telegram
  homard channels remove telegram")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add or change a channel
    Add(add::Add),
    /// List configured channels
    List,
    /// Show the channel status of the running gateway
    Status {
        /// Also query the platforms
        #[arg(long)]
        probe: bool,
    },
    /// Remove a channel from the config
    #[command(visible_alias = "rm")]
    Remove(add::Remove),
    /// Link an account of a channel in the terminal, such as WhatsApp by a QR code
    Login {
        /// Channel, such as whatsapp
        channel: String,
        /// Account
        #[arg(long, value_name = "NAME", default_value = "default")]
        account: String,
    },
    /// Show the recent events of a channel
    Logs {
        /// Channel, such as telegram
        channel: String,
        /// Account [default: all]
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Add(add) => add.run(args.json).await,
        Command::Remove(remove) => remove.run(args.json).await,
        Command::List => show::list(args.json),
        Command::Login { channel, account } => hosted::login(&channel.trim().to_lowercase(), account).await,
        Command::Status { probe } => {
            let answer = call("channels.status", json!({"probe": probe})).await?;
            if args.json {
                Ok(render::print_json(&answer)?)
            } else {
                Ok(render::print(&render::channels::status(&answer))?)
            }
        }
        Command::Logs { channel, account, limit } => {
            let mut params = json!({"channel": channel});
            if let Some(account) = account {
                params["accountId"] = account.as_str().into();
            }
            let mut answer = call("channels.logs", params).await.map_err(not_set_up)?;
            if let (Some(limit), Some(lines)) = (limit.get(), answer["lines"].as_array_mut()) {
                lines.drain(..lines.len().saturating_sub(limit.into()));
            }
            if args.json {
                Ok(render::print_json(&answer)?)
            } else {
                Ok(render::print(&render::channels::logs(&answer))?)
            }
        }
    }
}

/// Calls a method of the gateway.
pub(super) async fn call(method: &str, params: Value) -> Result<Value> {
    let setup = CommandContext::load()?;
    match call_if_running(&setup, method, params).await? {
        Some(answer) => Ok(answer),
        None => Err(setup.not_running().into()),
    }
}

/// Calls a method of the gateway; `None` if none is running.
pub(super) async fn call_if_running(setup: &CommandContext, method: &str, params: Value) -> Result<Option<Value>> {
    setup.call(Call { timeout: TIMEOUT, ..Call::admin(method, params) }).await
}

/// Returns a usage error if the gateway does not know the channel, which is the only request that it rejects.
fn not_set_up(error: Error) -> Error {
    match CliError::find(&error) {
        Some(cli_error) if cli_error.kind == "INVALID_REQUEST" => {
            CliError::usage(format!("{}; list channels with: homard channels", cli_error.message)).into()
        }
        Some(_) | None => error,
    }
}
