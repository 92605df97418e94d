//! `homard approvals`: commands that are waiting for approval. They are managed by the gateway.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use homard_agent::Ambient;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ask::Setup;
use crate::{
    client::{Client, Reached},
    failure::Failure,
    render,
};

/// Timeout for the gateway's response.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `homard approvals` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard approvals list
  homard approvals allow 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11
  homard approvals always 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11
  homard approvals deny 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the commands that wait for approval, oldest first
    List,
    /// Allow a command once
    Allow {
        /// Approval id
        id: String,
    },
    /// Allow a command now and whenever it is asked for again
    Always {
        /// Approval id
        id: String,
    },
    /// Deny a command
    Deny {
        /// Approval id
        id: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let resolve = |id: &String, decision| ("exec.approval.resolve", json!({"id": id, "decision": decision}));
    let (method, params) = match &args.command {
        Command::List => ("exec.approval.list", json!({})),
        Command::Allow { id } => resolve(id, "allow-once"),
        Command::Always { id } => resolve(id, "allow-always"),
        Command::Deny { id } => resolve(id, "deny"),
    };
    let answer = ask(method, params).await?;
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let text = match &args.command {
        Command::List => waiting(answer.as_array().map(Vec::as_slice).unwrap_or_default(), Ambient::system().now_ms()),
        Command::Allow { id } => format!("allowed {id}, once"),
        Command::Always { id } => format!("allowed {id}, and what is like it from now on"),
        Command::Deny { id } => format!("denied {id}"),
    };
    Ok(render::print(&text)?)
}

/// Calls a method of the gateway.
async fn ask(method: &str, params: Value) -> Result<Value> {
    let setup = Setup::find()?;
    let Reached::Gateway(mut client) = Client::connect(&setup.target, &["operator.admin"], &[]).await? else {
        return Err(setup.nobody().into());
    };
    let slow = |_| Failure::new("connection", format!("the gateway at {} does not answer", setup.target.url));
    timeout(PATIENCE, client.call(method, params)).await.map_err(slow)?
}

/// Formats the pending approvals, each in full: a truncated command must not be approved.
fn waiting(approvals: &[Value], now: u64) -> String {
    if approvals.is_empty() {
        return "no command waits for approval".to_owned();
    }
    let one = |approval: &Value| {
        let request = &approval["request"];
        let left = approval["expiresAtMs"].as_u64().unwrap_or(0).saturating_sub(now) / 1000;
        let told = |name: &str| request.get(name).and_then(Value::as_str);
        let always = request.get("alwaysAllows").and_then(Value::as_array).into_iter().flatten();
        let rows = [("agent", told("agentId")), ("session", told("sessionKey")), ("in", told("cwd"))]
            .into_iter()
            .chain([("sandbox", told("sandbox")), ("note", told("warningText")), ("runs", told("command"))])
            .chain(always.map(|rule| ("always", rule.as_str())));
        let id = approval["id"].as_str().unwrap_or("-");
        let mut lines = vec![render::harmless(&format!("{id} ({left} s left)"))];
        lines.extend(rows.filter_map(|(name, value)| Some(format!("  {name:<8} {}", render::harmless(value?)))));
        lines.join("\n")
    };
    approvals.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_waits_is_shown() {
        let request = json!({
            "agentId": "main", "sessionKey": "agent:main:main", "cwd": "/w", "command": "git log\\u{a}", "host": null,
            "alwaysAllows": ["/usr/bin/git log …"],
        });
        let told = waiting(&[json!({"id": "a-1", "expiresAtMs": 65_000, "request": request})], 5_000);
        let expected = "a-1 (60 s left)\n  agent    main\n  session  agent:main:main\n  in       /w\n  runs     git \
                        log\\u{a}\n  always   /usr/bin/git log …";
        assert_eq!(told, expected);
        assert_eq!(waiting(&[], 0), "no command waits for approval");
    }
}
