//! `homard sandbox`: explains how commands are sandboxed on this machine.

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use homard_app::toolbox;
use homard_sandbox::{AccessMode, Tier, explain};
use homard_settings::{agent_directories::workspace, paths::Paths};
use serde_json::json;

use crate::{cli_error::CliError, render};

/// Arguments of `homard sandbox`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard sandbox explain                what commands of the default agent can do
  homard sandbox explain --agent ops    what commands of the agent ops can do")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explain what commands of an agent can do and how they are confined
    Explain {
        /// Agent whose commands to explain [default: the default agent]
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
    },
}

pub(super) fn run(args: &Args) -> Result<()> {
    let Command::Explain { agent } = &args.command;
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let config = &chosen.loaded.config;
    let no_such = || {
        CliError::usage(format!(
            "unknown agent \"{}\"; list agents with: homard agents",
            agent.as_deref().unwrap_or_default()
        ))
    };
    let member = config.agents.member(agent.as_deref()).ok_or_else(no_such)?;
    let (workspace, policy, tier) =
        (workspace(config, &paths, &member), homard_settings::sandbox_policy(config, &paths), toolbox::tier());
    let explanation = if workspace.exists() {
        explain(&policy, &tier, &workspace)
    } else {
        // The workspace is created when the agent first works. Explaining must create nothing that stays.
        let temp_workspace = tempfile::tempdir()?;
        let name = |path: &Path| path.display().to_string();
        let temp_name = name(&temp_workspace.path().canonicalize()?);
        let lines = explain(&policy, &tier, temp_workspace.path());
        lines.into_iter().map(|line| line.replace(&temp_name, &name(&workspace))).collect()
    };
    if !args.json {
        return Ok(render::print(&render::strip_controls(&explanation.join("\n")))?);
    }
    let mode = match policy.mode {
        AccessMode::ReadOnly => "read-only",
        AccessMode::Workspace => "workspace",
        AccessMode::Guarded => "guarded",
        AccessMode::Full => "full",
    };
    let (tier_name, why) = match &tier {
        Tier::A { .. } => ("A", None),
        Tier::B { why } => ("B", Some(why)),
        Tier::C { why } => ("C", Some(why)),
    };
    let document = json!({
        "agent": member.id, "workspace": workspace, "mode": mode, "network": policy.network,
        "tier": tier_name, "why": why,
        "explanation": explanation,
    });
    Ok(render::print_json(&document)?)
}
