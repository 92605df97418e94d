//! `homard pairing`: approves senders on chat platforms. Uses the gateway if one is running, else the files.

use anyhow::Result;
use clap::Subcommand;
use homard_app::methods::channels::{approval_document, pairing_document};
use homard_channel_runtime::{SenderApproval, approve};
use homard_channels::pairing::PairingStore;
use homard_runtime::Ambient;
use homard_settings::{
    channel_kinds::{CHANNEL_KINDS, label},
    channels::DEFAULT_ACCOUNT,
};
use serde_json::{Value, json};

use super::{
    channels::call_if_running,
    ids::{self, Candidate},
    query::CommandContext,
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard pairing`.
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
        /// Approve as a non-owner, who may send messages but not use commands or most tools
        #[arg(long)]
        guest: bool,
    },
    /// Revoke a sender's access
    #[command(visible_aliases = ["remove", "rm"])]
    Revoke {
        /// Channel, such as telegram
        channel: String,
        /// Sender id on the channel, or a unique prefix of it
        id: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    if let Command::Approve { code, .. } = &args.command
        && code.trim().is_empty()
    {
        return Err(CliError::usage("CODE is empty; list codes with: homard pairing").into());
    }
    let (method, params) = match &args.command {
        Command::List { channel: None } => ("channels.pairing.list", json!({})),
        Command::List { channel: Some(channel) } => ("channels.pairing.list", json!({"channel": channel})),
        Command::Approve { channel, code, notify, guest } => {
            ("channels.pairing.approve", json!({"channel": channel, "code": code, "notify": notify, "guest": guest}))
        }
        Command::Revoke { channel, id } => {
            let listed = Command::List { channel: Some(channel.clone()) };
            let listed = execute(&setup, &listed, "channels.pairing.list", json!({"channel": channel})).await?;
            let id = find_approved(&listed, id)?;
            let command = Command::Revoke { channel: channel.clone(), id: id.clone() };
            let params = json!({"channel": channel, "id": id});
            let answer = execute(&setup, &command, "channels.pairing.revoke", params).await?;
            return show(&command, &answer, args.json);
        }
    };
    let answer = execute(&setup, &args.command, method, params).await?;
    show(&args.command, &answer, args.json)
}

/// Runs the command through the gateway, or on the files if none is running.
async fn execute(setup: &CommandContext, command: &Command, method: &str, params: Value) -> Result<Value> {
    match call_if_running(setup, method, params).await? {
        Some(answer) => Ok(answer),
        None if setup.target.is_own => run_offline(command, setup),
        None => Err(setup.not_running().into()),
    }
}

/// Returns the id of the approved sender that was typed: the id or a unique prefix; the text itself if there is none.
fn find_approved(listed: &Value, input: &str) -> Result<String, CliError> {
    let channels = listed["channels"].as_array().into_iter().flatten();
    let ids = channels.flat_map(|row| {
        let by_account = row["approvedByAccount"].as_object().into_iter().flatten().map(|(_, ids)| ids);
        std::iter::once(&row["approved"]).chain(by_account).filter_map(Value::as_array).flatten()
    });
    let mut ids: Vec<_> = ids.filter_map(Value::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    let all: Vec<_> = ids.into_iter().map(|id| Candidate { id, name: None }).collect();
    Ok(ids::resolve("sender", input.trim(), &all)?.unwrap_or(input).to_owned())
}

fn show(command: &Command, answer: &Value, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(answer)?);
    }
    Ok(render::print(&render::strip_controls(&describe_result(command, answer)))?)
}

/// Runs the command without a gateway.
fn run_offline(command: &Command, setup: &CommandContext) -> Result<Value> {
    let now = Ambient::system().now_ms();
    let store = PairingStore::new(setup.paths.state.join("credentials"));
    let name = |channel: &str| channel.trim().to_lowercase();
    Ok(match command {
        Command::List { channel } => {
            let all = || CHANNEL_KINDS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let names: Vec<String> = channel.as_deref().map_or_else(all, |channel| vec![name(channel)]);
            pairing_document(&store, &names, &[], now)?
        }
        Command::Approve { channel, code, guest, notify } => {
            let approved =
                approve(&store, &setup.paths, SenderApproval { channel: &name(channel), code, is_guest: *guest }, now)
                    .map_err(|why| CliError::new("pairing", why))?;
            let why = notify.then_some("no gateway is running");
            let request = code.trim().to_ascii_uppercase();
            approval_document(&name(channel), &request, &approved, *notify, why)
        }
        Command::Revoke { channel, id } => {
            json!({"ok": true, "channel": name(channel), "id": id, "revoked": store.revoke(&name(channel), id.trim())?})
        }
    })
}

fn describe_result(command: &Command, answer: &Value) -> String {
    let id = answer["id"].as_str().unwrap_or_default();
    match command {
        Command::List { .. } => list(answer),
        Command::Approve { channel, .. } => {
            let account = answer["accountId"].as_str().filter(|account| *account != DEFAULT_ACCOUNT);
            let account_suffix = account.map(|account| format!(" ({account})")).unwrap_or_default();
            let mut lines = vec![format!("approved {id} on {}{account_suffix}", label(&channel.trim().to_lowercase()))];
            if answer["owner"] == true {
                lines.push("the sender is the owner and can control the agent (commands.ownerAllowFrom)".to_owned());
            }
            lines.extend(answer["notifyError"].as_str().map(|why| format!("cannot notify the sender: {why}")));
            lines.join("\n")
        }
        Command::Revoke { channel, .. } if answer["revoked"] == true => {
            format!("revoked {id} on {}; check allowFrom in the config as well", label(channel))
        }
        Command::Revoke { channel, .. } => format!("{id} was not approved on {}", label(channel)),
    }
}

/// Returns the channel, and its account if it is not the default one.
fn account_label(channel: &str, account: Option<&str>) -> String {
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
            let label = account_label(&channel, request["accountId"].as_str());
            table.push(vec![label, text(&request["id"]), name, text(&request["code"])]);
        }
        for id in row["approved"].as_array().into_iter().flatten() {
            table.push(vec![channel.clone(), text(id), String::new(), "approved".to_owned()]);
        }
        for (account, ids) in row["approvedByAccount"].as_object().into_iter().flatten() {
            for id in ids.as_array().into_iter().flatten() {
                table.push(vec![
                    account_label(&channel, Some(account)),
                    text(id),
                    String::new(),
                    "approved".to_owned(),
                ]);
            }
        }
    }
    if table.len() == 1 {
        return "no pairing requests and no approved senders".to_owned();
    }
    Table::list(table).fit(render::width())
}
