//! `homard message`: sends a message on a chat platform, through the gateway.

use anyhow::Result;
use clap::Subcommand;
use homard_agent::Ambient;
use serde_json::{Value, json};

use super::channels::ask;
use crate::{failure::Failure, render};

/// What `homard message` takes.
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
        place: Place,
        /// The message
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
        /// URL of a picture or file to attach
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
        place: Place,
        /// The question
        #[arg(long, value_name = "TEXT")]
        question: String,
        /// An answer; at least two are needed
        #[arg(long = "option", value_name = "TEXT", required = true)]
        options: Vec<String>,
        /// Allow several answers
        #[arg(long)]
        multiple: bool,
    },
}

/// Where to say it.
#[derive(Debug, clap::Args)]
struct Place {
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
    let (method, place, more) = match &args.command {
        Command::Send { place, message, media, reply_to, silent } => {
            if message.is_none() && media.is_empty() {
                return Err(Failure::usage("there is nothing to say; add --message TEXT or --media URL").into());
            }
            let more = json!({"message": message, "mediaUrls": media, "replyToId": reply_to, "silent": silent});
            ("send", place, more)
        }
        Command::Poll { place, question, options, multiple } => {
            let most = multiple.then_some(options.len());
            ("poll", place, json!({"question": question, "options": options, "maxSelections": most}))
        }
    };
    let key = place.idempotency_key.clone().unwrap_or_else(|| Ambient::system().nonce());
    let mut params = json!({
        "to": place.to, "channel": place.channel, "accountId": place.account, "threadId": place.thread,
        "idempotencyKey": key,
    });
    if let (Some(params), Value::Object(more)) = (params.as_object_mut(), more) {
        params.extend(more);
        params.retain(|_, value| !value.is_null());
    }
    let answer = ask(method, params).await?;
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let (channel, to) = (answer["channel"].as_str().unwrap_or_default(), &place.to);
    let number = answer["messageId"].as_str().map(|id| format!(" as message {id}")).unwrap_or_default();
    Ok(render::print(&render::harmless(&format!("sent to {to} on {channel}{number}")))?)
}
