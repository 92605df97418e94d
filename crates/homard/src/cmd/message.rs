//! `homard message`: sends a message on a chat platform, through the gateway.

use anyhow::{Error, Result};
use clap::Subcommand;
use homard_runtime::Ambient;
use serde_json::{Value, json};

use super::channels::call;
use crate::{cli_error::CliError, render};

/// Arguments of `homard message`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard message send --channel telegram --to 123456789 -m \"Dinner is ready.\"
  homard message poll --to -1001234567890 --question \"Pizza?\" --option Yes --option No")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a message
    Send {
        #[command(flatten)]
        destination: DestinationArgs,
        /// Message text
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
        /// URL of an image or file to attach
        #[arg(long, value_name = "URL")]
        media: Vec<String>,
        /// Id of the message to reply to
        #[arg(long, value_name = "ID")]
        reply_to: Option<String>,
        /// Send without a notification sound
        #[arg(long)]
        silent: bool,
    },
    /// Send a poll
    Poll {
        #[command(flatten)]
        destination: DestinationArgs,
        /// Question of the poll
        #[arg(long, value_name = "TEXT")]
        question: String,
        /// Option of the poll; give at least two
        #[arg(long = "option", value_name = "TEXT", required = true)]
        options: Vec<String>,
        /// Allow voters to choose several options
        #[arg(long)]
        multiple: bool,
    },
}

/// Where to say it.
#[derive(Debug, clap::Args)]
struct DestinationArgs {
    /// Recipient: person or group
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    to: String,
    /// Channel [default: the only one]
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Account that sends it [default: the default account]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Thread or topic
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Idempotency key: a request with the same key is sent once [default: a new key]
    #[arg(long, value_name = "TEXT")]
    idempotency_key: Option<String>,
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let (method, destination, details) = match &args.command {
        Command::Send { destination, message, media, reply_to, silent } => {
            if message.is_none() && media.is_empty() {
                return Err(CliError::usage("nothing to send; add --message TEXT or --media URL").into());
            }
            let details = json!({"message": message, "mediaUrls": media, "replyToId": reply_to, "silent": silent});
            ("send", destination, details)
        }
        Command::Poll { destination, question, options, multiple } => {
            if options.len() < 2 {
                return Err(CliError::usage("a poll needs at least two --option").into());
            }
            let max_selections = multiple.then_some(options.len());
            ("poll", destination, json!({"question": question, "options": options, "maxSelections": max_selections}))
        }
    };
    if destination.to.trim().is_empty() {
        return Err(CliError::usage("--to is empty; pass the id of a person or group").into());
    }
    let key = destination.idempotency_key.clone().unwrap_or_else(|| Ambient::system().nonce());
    let mut params = json!({
        "to": destination.to, "channel": destination.channel,
        "accountId": destination.account, "threadId": destination.thread,
        "idempotencyKey": key,
    });
    if let (Some(params), Value::Object(details)) = (params.as_object_mut(), details) {
        params.extend(details);
        params.retain(|_, value| !value.is_null());
    }
    let answer = call(method, params).await.map_err(in_flags)?;
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let (channel, to) = (answer["channel"].as_str().unwrap_or_default(), &destination.to);
    let number = answer["messageId"].as_str().map(|id| format!(" as message {id}")).unwrap_or_default();
    Ok(render::print(&render::strip_controls(&format!("sent to {to} on {channel}{number}")))?)
}

/// Returns a usage error if the gateway asks for a channel, which it does in terms of its parameters.
fn in_flags(error: Error) -> Error {
    let text = match CliError::find(&error) {
        Some(cli_error) if cli_error.kind == "INVALID_REQUEST" => cli_error.message,
        Some(_) | None => return error,
    };
    match text.split_once("; name one with channel: ") {
        Some((why, channels)) => CliError::usage(format!("{why}; name one with --channel: {channels}")).into(),
        None => error,
    }
}
