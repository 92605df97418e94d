//! `homard approvals`: commands that are waiting for approval. They are managed by the gateway.

use anyhow::Result;
use clap::Subcommand;
use homard_runtime::Ambient;
use serde_json::{Value, json};

use super::{
    ids::{self, Candidate},
    query::{Call, CommandContext},
};
use crate::render;

/// Arguments of `homard approvals`.
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
        /// Approval id or a unique prefix of it
        id: String,
    },
    /// Allow a command and store a rule that allows it from now on
    Always {
        /// Approval id or a unique prefix of it
        id: String,
    },
    /// Deny a command
    Deny {
        /// Approval id or a unique prefix of it
        id: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    let (prefix, decision) = match &args.command {
        Command::List => {
            let answer = setup.require(Call::admin("exec.approval.list", json!({}))).await?;
            let pending = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            match args.json {
                true => render::print_json(&answer)?,
                false => render::print(&pending_list(pending, Ambient::system().now_ms()))?,
            }
            return Ok(());
        }
        Command::Allow { id } => (id, "allow-once"),
        Command::Always { id } => (id, "allow-always"),
        Command::Deny { id } => (id, "deny"),
    };
    // The gateway explains why an unknown id is not pending.
    let id = find_pending(&setup, prefix).await?.unwrap_or_else(|| prefix.clone());
    let params = json!({"id": id, "decision": decision});
    let answer = setup.require(Call::admin("exec.approval.resolve", params)).await?;
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let text = match decision {
        "allow-once" => format!("allowed {id}, once"),
        "allow-always" => format!("allowed {id} and all matching commands from now on"),
        _ => format!("denied {id}"),
    };
    Ok(render::print(&text)?)
}

/// Returns the id of the pending approval that was typed: its id or a unique prefix.
async fn find_pending(setup: &CommandContext, prefix: &str) -> Result<Option<String>> {
    let pending = setup.require(Call::admin("exec.approval.list", json!({}))).await?;
    let ids = pending.as_array().into_iter().flatten().filter_map(|approval| approval["id"].as_str());
    let all: Vec<_> = ids.map(|id| Candidate { id, name: None }).collect();
    Ok(ids::resolve("approval", prefix, &all)?.map(str::to_owned))
}

/// Formats the pending approvals, each in full: a truncated command must not be approved.
fn pending_list(approvals: &[Value], now: u64) -> String {
    if approvals.is_empty() {
        return "no command waits for approval".to_owned();
    }
    let block = |approval: &Value| {
        let request = &approval["request"];
        let remaining_ms = approval["expiresAtMs"].as_u64().unwrap_or(0).saturating_sub(now) / 1000 * 1000;
        let field = |name: &str| request.get(name).and_then(Value::as_str);
        let always = request.get("alwaysAllows").and_then(Value::as_array).into_iter().flatten();
        let rows = [("agent", field("agentId")), ("session", field("sessionKey")), ("in", field("cwd"))]
            .into_iter()
            .chain([("sandbox", field("sandbox")), ("note", field("warningText")), ("runs", field("command"))])
            .chain(always.map(|rule| ("always", rule.as_str())));
        let id = approval["id"].as_str().unwrap_or("-");
        let mut lines = vec![render::strip_controls(&format!("{id} ({} left)", render::duration_ms(remaining_ms)))];
        lines.extend(rows.filter_map(|(name, value)| Some(format!("  {name:<8} {}", render::strip_controls(value?)))));
        lines.join("\n")
    };
    approvals.iter().map(block).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_approvals_are_listed_completely() {
        let request = json!({
            "agentId": "main", "sessionKey": "agent:main:main", "cwd": "/w", "command": "git log\\u{a}", "host": null,
            "alwaysAllows": ["/usr/bin/git log …"],
        });
        let listing = pending_list(&[json!({"id": "a-1", "expiresAtMs": 65_000, "request": request})], 5_000);
        let expected = "a-1 (1m left)\n  agent    main\n  session  agent:main:main\n  in       /w\n  runs     git \
                        log\\u{a}\n  always   /usr/bin/git log …";
        assert_eq!(listing, expected);
        assert_eq!(pending_list(&[], 0), "no command waits for approval");
    }
}
