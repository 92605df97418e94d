//! `homard doctor`: checks the installation and fixes common problems. One file per check.

mod audit;
mod channels;
mod clock;
mod config;
mod disk;
mod finding;
mod fix;
mod gateway;
mod leftovers;
mod listing;
mod models;
mod permissions;
mod plugins;
mod sandbox;
mod sessions;
mod workspaces;

use anyhow::Result;
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use homard_client::GatewayTarget;
use homard_config::LoadedConfig;
use homard_journal::lock::{self, LockHolder};
use homard_runtime::Ambient;
use homard_settings::{Config, paths::Paths};
use serde_json::json;

use self::{
    finding::{CheckReport, DoctorFinding, FindingSeverity},
    listing::StateListing,
};
use super::query::CommandContext;
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// What `homard doctor` takes.
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

/// The inputs of the checks.
struct CheckContext {
    paths: Paths,
    /// The config to run with, if there is a valid one.
    loaded: Option<LoadedConfig<Config>>,
    /// The process that holds the state directory.
    holder: Option<LockHolder>,
    listing: StateListing,
    now_ms: u64,
}

impl CheckContext {
    /// Returns the gateway of this directory, or the one that the config names.
    fn setup(&self, loaded: &LoadedConfig<Config>) -> Result<CommandContext> {
        let (loaded, paths) = (loaded.clone(), self.paths.clone());
        let target = GatewayTarget::find(None, None, &loaded, &paths)?;
        Ok(CommandContext { paths, loaded, config_warning: None, target })
    }
}

/// How a check is made.
enum Check {
    /// By reading files.
    Sync(fn(&CheckContext) -> CheckReport),
    /// By requests to the gateway or others.
    Async(for<'a> fn(&'a CheckContext) -> LocalBoxFuture<'a, CheckReport>),
}

/// All checks, in the order of the report.
const CHECKS: [(&str, Check); 13] = [
    ("config", Check::Sync(config::check)),
    ("permissions", Check::Sync(permissions::check)),
    ("disk", Check::Sync(disk::check)),
    ("clock", Check::Sync(clock::check)),
    ("sessions", Check::Sync(sessions::check)),
    ("leftovers", Check::Sync(leftovers::check)),
    ("audit", Check::Async(|scene| audit::check(scene).boxed_local())),
    ("models", Check::Sync(models::check)),
    ("channels", Check::Sync(channels::check)),
    ("workspaces", Check::Sync(workspaces::check)),
    ("sandbox", Check::Sync(sandbox::check)),
    ("gateway", Check::Async(|scene| gateway::check(scene).boxed_local())),
    ("plugins", Check::Async(|scene| plugins::check(scene).boxed_local())),
];

/// Runs all checks, applies safe fixes if requested, and prints the report.
pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let context = CheckContext {
        loaded: Config::choose_as_client(&paths).ok().map(|chosen| chosen.loaded),
        holder: lock::holder(&paths.state),
        listing: StateListing::of(&paths.state),
        now_ms: Ambient::system().now_ms(),
        paths,
    };
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

/// Removes the findings of the gateway check that another check reports too, at least as severely: the gateway reports
/// the same outages, in the form `SUBJECT: REASON`.
fn remove_repeated(reports: &mut [(&str, CheckReport)]) {
    let known = reports.iter().filter(|(name, _)| *name != "gateway").flat_map(|(_, report)| &report.findings);
    let known: Vec<_> = known.map(|finding| (finding.level, finding.message.clone())).collect();
    let is_repeated = |finding: &DoctorFinding| {
        let reason = finding.message.split_once(": ").map_or("", |(_, reason)| reason.trim());
        let is_as_severe = |level: FindingSeverity| level == FindingSeverity::Problem || level == finding.level;
        !reason.is_empty() && known.iter().any(|(level, message)| is_as_severe(*level) && message.contains(reason))
    };
    for (_, report) in reports.iter_mut().filter(|(name, _)| *name == "gateway") {
        report.findings.retain(|finding| !is_repeated(finding));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_of_two_checks_is_reported_once() {
        let problem = |text: &str| DoctorFinding::problem(text, "correct it");
        let note = |text: &str| DoctorFinding::note(text, "look at it");
        let mut reports = [
            ("models", CheckReport::new("", vec![problem("agent main: p has no key"), note("agent main: q is slow")])),
            (
                "gateway",
                CheckReport::new(
                    "",
                    vec![
                        problem("model of agent main is down: p has no key"),
                        problem("model of agent main is down: q is slow"),
                        problem("the gateway reports that it is unhealthy"),
                    ],
                ),
            ),
        ];
        remove_repeated(&mut reports);
        let messages: Vec<_> = reports[1].1.findings.iter().map(|finding| finding.message.as_str()).collect();
        // A problem stays if the other check reports it as a note only.
        assert_eq!(messages, ["model of agent main is down: q is slow", "the gateway reports that it is unhealthy"]);
        assert_eq!(reports[0].1.findings.len(), 2);
    }
}
