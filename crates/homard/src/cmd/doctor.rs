//! `homard doctor`: checks the installation and fixes common problems. The checks are in `homard-doctor`, but for that of
//! the audit log.

mod audit;

use anyhow::Result;
use futures_util::FutureExt as _;
use homard_client::GatewayTarget;
use homard_config::LoadedConfig;
use homard_doctor::{
    Check, CheckContext, channels, clock, config, disk, finding::CheckReport, fix, gateway, leftovers, models,
    permissions, plugins, remove_repeated, sandbox, sessions, workspaces,
};
use homard_settings::{Config, paths::Paths};
use serde_json::json;

use super::query::CommandContext;
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard doctor                   check only, change nothing
  homard doctor --fix             fix everything that can be fixed without losing data
  homard doctor --json            one JSON document

Exit code: 0 if no check reports a problem, 1 otherwise.")]
pub(super) struct Args {
    /// Fix everything that can be fixed without losing data
    #[arg(long)]
    fix: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the gateway of this directory, or the one that the config names.
fn setup(context: &CheckContext, loaded: &LoadedConfig<Config>) -> Result<CommandContext> {
    let (loaded, paths) = (loaded.clone(), context.paths.clone());
    let target = GatewayTarget::find(None, None, &loaded, &paths)?;
    Ok(CommandContext { paths, loaded, config_warning: None, target })
}

/// All checks, in the order of the report.
const CHECKS: [(&str, Check); 13] = [
    ("config", Check::Sync(config::check)),
    ("permissions", Check::Sync(permissions::check)),
    ("disk", Check::Sync(disk::check)),
    ("clock", Check::Sync(clock::check)),
    ("sessions", Check::Sync(sessions::check)),
    ("leftovers", Check::Sync(leftovers::check)),
    ("audit", Check::Async(|context| audit::check(context).boxed_local())),
    ("models", Check::Sync(models::check)),
    ("channels", Check::Sync(channels::check)),
    ("workspaces", Check::Sync(workspaces::check)),
    ("sandbox", Check::Sync(sandbox::check)),
    ("gateway", Check::Async(|context| gateway::check(context).boxed_local())),
    ("plugins", Check::Async(|context| plugins::check(context).boxed_local())),
];

/// Runs all checks, applies safe fixes if requested, and prints the report.
pub(super) async fn run(args: &Args) -> Result<()> {
    let context = CheckContext::read(Paths::find()?);
    let mut reports = Vec::new();
    for (name, check) in &CHECKS {
        let report = match check {
            Check::Sync(look) => look(&context),
            Check::Async(ask) => ask(&context).await,
        };
        reports.push((*name, report));
    }
    remove_repeated(&mut reports);
    if args.fix {
        for finding in reports.iter_mut().flat_map(|(_, report)| &mut report.findings) {
            if let Some(fix) = &finding.fix {
                finding.fixed = Some(fix::apply(fix, &context.paths.state).await);
            }
        }
    }
    print_report(&reports, args.json)
}

fn print_report(reports: &[(&str, CheckReport)], wants_json: bool) -> Result<()> {
    let findings = || reports.iter().flat_map(|(_, report)| &report.findings);
    let open = findings().filter(|finding| finding.needs_action()).count();
    let fixable = findings().filter(|finding| finding.fix.is_some() && finding.fixed.is_none()).count();
    if wants_json {
        let checks: Vec<_> = reports.iter().map(|(name, report)| report.document(name)).collect();
        render::print_json(&json!({"ok": open == 0, "needsAHand": open, "fixable": fixable, "checks": checks}))?;
    } else {
        let rows = reports.iter().flat_map(|(name, report)| report.rows(name)).collect();
        render::print_table(&Table::fields(rows))?;
    }
    let summary = match open {
        0 if wants_json => return Ok(()),
        0 => return Ok(render::print("\neverything looks good")?),
        _ => format!("{} found", render::count(open, "problem")),
    };
    let help = match fixable {
        // Its own row says how to fix a single one.
        0 | 1 => String::new(),
        some => format!("; to fix {some} of the findings: homard doctor --fix"),
    };
    Err(CliError::new("doctor", format!("{summary}{help}")).into())
}
