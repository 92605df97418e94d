//! `homard channels`: chat platforms. Adding one changes the config, which a running gateway reloads.

mod add;
mod show;

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use homard_config::edit::EditError;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(super) use self::show::lack;
use super::ask::Setup;
use crate::{
    client::{Client, Reached},
    config::change::{By, Change, Refusal, change},
    failure::Failure,
    paths::Paths,
    render,
};

/// Timeout for the gateway's response, including probes of the platforms.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `homard channels` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard channels list
  homard channels add telegram --token 123456:ABC…
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
    /// Show the recent events of a channel
    Logs {
        /// Channel, such as telegram
        channel: String,
        /// Account [default: all]
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Add(add) => add.run(args.json),
        Command::Remove(remove) => remove.run(args.json),
        Command::List => show::list(args.json),
        Command::Status { probe } => {
            let answer = ask("channels.status", json!({"probe": probe})).await?;
            if args.json { Ok(render::print_json(&answer)?) } else { Ok(render::print(&show::status(&answer))?) }
        }
        Command::Logs { channel, account } => {
            let mut params = json!({"channel": channel});
            if let Some(account) = account {
                params["accountId"] = account.as_str().into();
            }
            let answer = ask("channels.logs", params).await?;
            if args.json { Ok(render::print_json(&answer)?) } else { Ok(render::print(&show::logs(&answer))?) }
        }
    }
}

/// Calls a method of the gateway.
pub(super) async fn ask(method: &str, params: Value) -> Result<Value> {
    let setup = Setup::find()?;
    match ask_if_there(&setup, method, params).await? {
        Some(answer) => Ok(answer),
        None => Err(setup.nobody().into()),
    }
}

/// Calls a method of the gateway; `None` if none is running.
pub(super) async fn ask_if_there(setup: &Setup, method: &str, params: Value) -> Result<Option<Value>> {
    let Reached::Gateway(mut client) = Client::connect(&setup.target, &["operator.admin"], &[]).await? else {
        return Ok(None);
    };
    let slow = |_| Failure::new("connection", format!("the gateway at {} does not answer", setup.target.url));
    timeout(PATIENCE, client.call(method, params)).await.map_err(slow)?.map(Some)
}

/// Changes the config.
fn edit_config(paths: &Paths, edit: impl Fn(&str) -> Result<String, EditError>) -> Result<Change> {
    change(paths, By::Person, |text| Ok(edit(text)?)).map_err(|refusal| {
        match matches!(refusal, Refusal::Write(_)) {
            // Keeps the system's error as the source.
            true => refusal.into(),
            false => Failure::new("config", format!("config file {}: {refusal}", paths.config.display())).into(),
        }
    })
}
