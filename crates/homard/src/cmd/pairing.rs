//! `homard pairing`: approves senders on chat platforms. Uses the gateway if one is running, else the files.

use anyhow::Result;
use clap::Subcommand;
use homard_agent::Ambient;
use homard_channels::pairing::Book;
use serde_json::{Value, json};

use super::{ask::Setup, channels::ask_if_there};
use crate::{
    assemble::channels::{KINDS, approve, label},
    config::channels::DEFAULT_ACCOUNT,
    failure::Failure,
    methods::channels::pairing_row,
    render,
};

/// What `homard pairing` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard pairing list
  homard pairing approve telegram ABCD2345
  homard pairing approve telegram ABCD2345 --guest --notify
  homard pairing revoke telegram 123456789")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List pairing requests and approved senders
    List {
        /// Only this channel
        channel: Option<String>,
    },
    /// Approve a pairing code; the first approved sender becomes the owner
    Approve {
        /// Channel, such as telegram
        channel: String,
        /// Pairing code
        code: String,
        /// Notify the sender
        #[arg(long)]
        notify: bool,
        /// Approve as a non-owner, who may talk to the agent but not control it
        #[arg(long)]
        guest: bool,
    },
    /// Revoke a sender's access
    #[command(visible_aliases = ["remove", "rm"])]
    Revoke {
        /// Channel, such as telegram
        channel: String,
        /// Sender id on the channel
        id: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = Setup::find()?;
    let (method, params) = match &args.command {
        Command::List { channel: None } => ("channels.pairing.list", json!({})),
        Command::List { channel: Some(channel) } => ("channels.pairing.list", json!({"channel": channel})),
        Command::Approve { channel, code, notify, guest } => {
            ("channels.pairing.approve", json!({"channel": channel, "code": code, "notify": notify, "guest": guest}))
        }
        Command::Revoke { channel, id } => ("channels.pairing.revoke", json!({"channel": channel, "id": id})),
    };
    let answer = match ask_if_there(&setup, method, params).await? {
        Some(answer) => answer,
        None if setup.target.is_own => alone(&args.command, &setup)?,
        None => return Err(setup.nobody().into()),
    };
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    Ok(render::print(&render::harmless(&words(&args.command, &answer)))?)
}

/// Runs the command without a gateway.
fn alone(command: &Command, setup: &Setup) -> Result<Value> {
    let now = Ambient::system().now_ms();
    let book = Book::new(setup.paths.state.join("credentials"));
    let name = |channel: &str| channel.trim().to_lowercase();
    Ok(match command {
        Command::List { channel } => {
            let all = || KINDS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let names: Vec<String> = channel.as_deref().map_or_else(all, |channel| vec![name(channel)]);
            let rows = names.iter().map(|name| pairing_row(&book, name, now));
            json!({"channels": rows.collect::<Result<Vec<_>, _>>()?})
        }
        Command::Approve { channel, code, guest, notify } => {
            let approved = approve((&book, &setup.paths), (&name(channel), code), *guest, now)
                .map_err(|why| Failure::new("pairing", why))?;
            let why = notify.then_some("no gateway runs");
            json!({
                "ok": true, "channel": name(channel), "accountId": approved.account, "id": approved.id,
                "owner": approved.is_owner, "notified": false, "notifyError": why,
            })
        }
        Command::Revoke { channel, id } => {
            json!({"ok": true, "channel": name(channel), "id": id, "revoked": book.revoke(&name(channel), id.trim())?})
        }
    })
}

fn words(command: &Command, answer: &Value) -> String {
    let id = answer["id"].as_str().unwrap_or_default();
    match command {
        Command::List { .. } => list(answer),
        Command::Approve { channel, .. } => {
            let account = answer["accountId"].as_str().filter(|account| *account != DEFAULT_ACCOUNT);
            let place = account.map(|account| format!(" ({account})")).unwrap_or_default();
            let mut lines = vec![format!("{id} is let in on {}{place}", label(&channel.trim().to_lowercase()))];
            if answer["owner"] == true {
                lines.push(
                    "they are the owner: the agent obeys them as it obeys you here (commands.ownerAllowFrom)"
                        .to_owned(),
                );
            }
            lines.extend(answer["notifyError"].as_str().map(|why| format!("they could not be told: {why}")));
            lines.join("\n")
        }
        Command::Revoke { channel, .. } if answer["revoked"] == true => {
            format!("{id} is not let in on {} any more; look at allowFrom in the config, too", label(channel))
        }
        Command::Revoke { channel, .. } => format!("{id} was not approved on {}", label(channel)),
    }
}

/// Returns the channel, and its account if it is not the default one.
fn place(channel: &str, account: Option<&str>) -> String {
    account.map_or_else(|| channel.to_owned(), |account| format!("{channel}/{account}"))
}

fn list(answer: &Value) -> String {
    let titles = ["CHANNEL", "ID", "NAME", "CODE"].map(str::to_owned).to_vec();
    let mut table = vec![titles];
    for row in answer["channels"].as_array().into_iter().flatten() {
        let channel = row["channel"].as_str().unwrap_or_default().to_owned();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for request in row["requests"].as_array().into_iter().flatten() {
            let meta = &request["meta"];
            let name = meta["username"].as_str().map_or_else(|| text(&meta["name"]), |name| format!("@{name}"));
            let place = place(&channel, request["accountId"].as_str());
            table.push(vec![place, text(&request["id"]), name, text(&request["code"])]);
        }
        for id in row["approved"].as_array().into_iter().flatten() {
            table.push(vec![channel.clone(), text(id), String::new(), "approved".to_owned()]);
        }
        for (account, ids) in row["approvedByAccount"].as_object().into_iter().flatten() {
            for id in ids.as_array().into_iter().flatten() {
                table.push(vec![place(&channel, Some(account)), text(id), String::new(), "approved".to_owned()]);
            }
        }
    }
    if table.len() == 1 {
        return "nobody waits, and nobody was approved".to_owned();
    }
    render::table(&table)
}
