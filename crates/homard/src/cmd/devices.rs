//! `homard devices`: clients that are paired with the gateway, which manages them.

use anyhow::Result;
use clap::Subcommand;
use homard_runtime::Ambient;
use serde_json::{Value, json};

use super::{
    ids::{self, Candidate},
    query::{Call, CommandContext},
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// The scopes of the commands: a device is managed by who has its scopes.
const SCOPES: [&str; 2] = ["operator.admin", "operator.pairing"];

/// Arguments of `homard devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard devices list
  homard devices approve 6f1c0a52
  homard devices reject 6f1c0a52
  homard devices revoke 77aa9b10   the device must be approved again")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List paired devices and pairing requests
    List,
    /// Approve a pairing request
    Approve {
        /// Request id, device id, or a unique prefix of either
        id: String,
    },
    /// Reject a pairing request
    Reject {
        /// Request id, device id, or a unique prefix of either
        id: String,
    },
    /// Remove a paired device with its tokens
    #[command(visible_aliases = ["remove", "rm"])]
    Revoke {
        /// Device id, a unique prefix of it, or the device's name
        id: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    let listed = call(&setup, "device.pair.list", json!({})).await?;
    let rows = |name: &str| listed[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (answer, text) = match &args.command {
        Command::List if args.json => return Ok(render::print_json(&listed)?),
        Command::List if rows("paired").is_empty() && rows("pending").is_empty() => {
            return Ok(render::print(
                "no devices; a client is listed here once it has connected with a device identity",
            )?);
        }
        Command::List => return Ok(render::print_table(&table(rows("pending"), rows("paired")))?),
        Command::Approve { id } => {
            let request = request_of(rows("pending"), id)?;
            let answer = call(&setup, "device.pair.approve", json!({"requestId": request})).await?;
            let text = format!("approved device {}", answer["device"]["deviceId"].as_str().unwrap_or_default());
            (answer, text)
        }
        Command::Reject { id } => {
            let request = request_of(rows("pending"), id)?;
            let answer = call(&setup, "device.pair.reject", json!({"requestId": request})).await?;
            let text = format!("rejected device {}", answer["deviceId"].as_str().unwrap_or_default());
            (answer, text)
        }
        Command::Revoke { id } => {
            let all: Vec<_> = rows("paired")
                .iter()
                .filter_map(|row| Some(Candidate { id: row["deviceId"].as_str()?, name: row["displayName"].as_str() }))
                .collect();
            let none = || CliError::not_found(format!("device {id} not found; list devices with: homard devices"));
            let device = ids::resolve("device", id, &all)?.ok_or_else(none)?;
            let answer = call(&setup, "device.pair.remove", json!({"deviceId": device})).await?;
            (answer, format!("revoked device {device}"))
        }
    };
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    Ok(render::print(&render::strip_controls(&text))?)
}

async fn call(setup: &CommandContext, method: &str, params: Value) -> Result<Value> {
    setup.require(Call::new(&SCOPES, method, params)).await
}

/// Returns the id of the pairing request that was typed.
fn request_of<'a>(pending: &'a [Value], input: &str) -> Result<&'a str, CliError> {
    let ids = |name: &str| -> Vec<Candidate<'a>> {
        let candidate = |row: &'a Value| Some(Candidate { id: row[name].as_str()?, name: row["displayName"].as_str() });
        pending.iter().filter_map(candidate).collect()
    };
    if let Some(request) = ids::resolve("request", input, &ids("requestId"))? {
        return Ok(request);
    }
    let device = ids::resolve("request", input, &ids("deviceId"))?;
    let row = pending.iter().find(|row| device.is_some() && row["deviceId"].as_str() == device);
    row.and_then(|row| row["requestId"].as_str()).ok_or_else(|| {
        CliError::not_found(format!("pairing request {input} not found; list requests with: homard devices"))
    })
}

/// Formats requests and devices as a table.
fn table(pending: &[Value], paired: &[Value]) -> Table {
    let titles = ["ID", "STATE", "NAME", "CLIENT", "PLATFORM", "SCOPES"].map(str::to_owned).to_vec();
    let now = Ambient::system().now_ms();
    let line = |row: &Value, id: &str, state: String| {
        let text = |name: &str| row[name].as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        let scopes: Vec<_> = row["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let cells = [text(id), state, text("displayName"), text("clientId"), text("platform"), scopes.join(" ")];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    let age = |row: &Value, name: &str| row[name].as_u64().map(|at| render::age(now, at)).unwrap_or_default();
    let requests = pending.iter().map(|row| line(row, "requestId", format!("asked {}", age(row, "ts"))));
    let devices = paired.iter().map(|row| line(row, "deviceId", format!("paired {}", age(row, "createdAtMs"))));
    Table::list(std::iter::once(titles).chain(requests).chain(devices).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_by_its_id_or_its_device() {
        let pending = [json!({"requestId": "req-1234", "deviceId": "dev-5678", "displayName": "Phone"})];
        for input in ["req-1234", "req-", "dev-5678", "dev-", "Phone"] {
            assert_eq!(request_of(&pending, input).unwrap(), "req-1234", "{input}");
        }
        assert_eq!(request_of(&pending, "other").unwrap_err().kind, "not_found");
        assert_eq!(request_of(&[], "").unwrap_err().kind, "not_found");
    }

    #[test]
    fn requests_are_listed_before_devices() {
        let pending = [json!({"requestId": "req-1", "displayName": "Phone\u{1b}[2J", "scopes": ["operator.read"]})];
        let paired = [json!({"deviceId": "dev-1", "clientId": "cli", "platform": "linux"})];
        assert_eq!(
            table(&pending, &paired).to_string(),
            "ID     STATE    NAME      CLIENT  PLATFORM  SCOPES\n\
             req-1  asked    Phone[2J  -       -         operator.read\n\
             dev-1  paired   -         cli     linux"
        );
    }
}
