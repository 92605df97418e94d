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
mod models;
mod permissions;
mod plugins;
mod sandbox;
mod sessions;
mod walk;
mod workspaces;

use anyhow::Result;
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use homard_agent::Ambient;
use homard_config::Loaded;
use homard_journal::lock::{self, Holder};
use serde_json::json;

use self::{finding::Report, walk::Listing};
use super::ask::Setup;
use crate::{client::Target, config::Config, failure::Failure, paths::Paths, render};

/// What `homard doctor` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard doctor                   look, and change nothing
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
struct Scene {
    paths: Paths,
    /// The config to run with, if there is a valid one.
    loaded: Option<Loaded<Config>>,
    /// The process that holds the state directory.
    holder: Option<Holder>,
    listing: Listing,
    now_ms: u64,
}

impl Scene {
    /// Returns the gateway of this directory, or the one that the config names.
    fn setup(&self, loaded: &Loaded<Config>) -> Result<Setup> {
        let (loaded, paths) = (loaded.clone(), self.paths.clone());
        let target = Target::find(None, None, &loaded, &paths)?;
        Ok(Setup { paths, loaded, complaint: None, target })
    }
}

/// How a check is made.
enum Check {
    /// By reading files.
    Look(fn(&Scene) -> Report),
    /// By requests to the gateway or others.
    Ask(for<'a> fn(&'a Scene) -> LocalBoxFuture<'a, Report>),
}

/// All checks, in the order of the report.
const CHECKS: [(&str, Check); 13] = [
    ("config", Check::Look(config::look)),
    ("permissions", Check::Look(permissions::look)),
    ("disk", Check::Look(disk::look)),
    ("clock", Check::Look(clock::look)),
    ("sessions", Check::Look(sessions::look)),
    ("leftovers", Check::Look(leftovers::look)),
    ("audit", Check::Ask(|scene| audit::look(scene).boxed_local())),
    ("models", Check::Look(models::look)),
    ("channels", Check::Look(channels::look)),
    ("workspaces", Check::Look(workspaces::look)),
    ("sandbox", Check::Look(sandbox::look)),
    ("gateway", Check::Ask(|scene| gateway::look(scene).boxed_local())),
    ("plugins", Check::Ask(|scene| plugins::look(scene).boxed_local())),
];

/// Runs all checks, applies safe fixes if requested, and prints the report.
pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let scene = Scene {
        loaded: Config::choose_as_client(&paths).ok().map(|chosen| chosen.loaded),
        holder: lock::holder(&paths.state),
        listing: Listing::of(&paths.state),
        now_ms: Ambient::system().now_ms(),
        paths,
    };
    let mut reports = Vec::new();
    for (name, check) in &CHECKS {
        let report = match check {
            Check::Look(look) => look(&scene),
            Check::Ask(ask) => ask(&scene).await,
        };
        reports.push((*name, report));
    }
    if args.fix {
        for finding in reports.iter_mut().flat_map(|(_, report)| &mut report.findings) {
            if let Some(fix) = &finding.fix {
                finding.fixed = Some(fix::apply(fix, &scene.paths.state).await);
            }
        }
    }
    tell(&reports, args.json)
}

fn tell(reports: &[(&str, Report)], wants_json: bool) -> Result<()> {
    let findings = || reports.iter().flat_map(|(_, report)| &report.findings);
    let open = findings().filter(|finding| finding.needs_a_hand()).count();
    let fixable = findings().filter(|finding| finding.fix.is_some() && finding.fixed.is_none()).count();
    if wants_json {
        let checks: Vec<_> = reports.iter().map(|(name, report)| report.document(name)).collect();
        render::print_json(&json!({"ok": open == 0, "needsAHand": open, "fixable": fixable, "checks": checks}))?;
    } else {
        let rows: Vec<_> = reports.iter().flat_map(|(name, report)| report.rows(name)).collect();
        render::print(&render::table(&rows))?;
    }
    let things = match open {
        0 if wants_json => return Ok(()),
        0 => return Ok(render::print("\neverything looks good")?),
        1 => "1 thing needs a hand".to_owned(),
        many => format!("{many} things need a hand"),
    };
    let help = match fixable {
        0 => String::new(),
        some => format!("; to mend {some} of what was found: homard doctor --fix"),
    };
    Err(Failure::new("doctor", format!("{things}{help}")).into())
}
