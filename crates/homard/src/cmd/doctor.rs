//! `homard doctor`: checks the installation and fixes common problems. The checks are in `homard-doctor`.

mod audit;

use anyhow::Result;
use homard_client::GatewayTarget;
use homard_config::LoadedConfig;
use homard_doctor::{
    CheckContext, NamedReport, check_files, document, fix, fixable_count, gateway, plugins, problem_count,
    remove_repeated,
};
use homard_settings::{Config, paths::Paths};

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

/// Runs all checks, applies safe fixes if requested, and prints the report.
pub(super) async fn run(args: &Args) -> Result<()> {
    let context = CheckContext::read(Paths::find()?);
    let mut reports = check_files(&context);
    reports.push(("audit", audit::check(&context).await));
    reports.push(("gateway", gateway::check(&context).await));
    reports.push(("plugins", plugins::check(&context).await));
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

fn print_report(reports: &[NamedReport], wants_json: bool) -> Result<()> {
    let (open, fixable) = (problem_count(reports), fixable_count(reports));
    if wants_json {
        render::print_json(&document(reports))?;
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
