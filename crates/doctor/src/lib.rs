//! The checks of an installation: what they find, and what can be fixed without losing data.
//!
//! One file per check; it collects the data in `check` and evaluates it in a pure function. Start with [`CheckContext`],
//! the inputs of the checks, and [`finding`], their results. [`plugins`] starts the enabled plugins briefly. Nothing is
//! printed here.

pub mod channels;
pub mod clock;
pub mod config;
pub mod disk;
pub mod finding;
pub mod fix;
pub mod gateway;
pub mod leftovers;
pub mod listing;
pub mod models;
pub mod permissions;
pub mod plugins;
pub mod sandbox;
pub mod sessions;
pub mod workspaces;

use futures_util::future::LocalBoxFuture;
use homard_config::LoadedConfig;
use homard_journal::lock::{self, LockHolder};
use homard_runtime::Ambient;
use homard_settings::{Config, paths::Paths};

use self::{
    finding::{CheckReport, DoctorFinding, FindingSeverity},
    listing::StateListing,
};

/// The inputs of the checks.
#[derive(Debug)]
pub struct CheckContext {
    /// Where the state and the config are.
    pub paths: Paths,
    /// The config to run with, if there is a valid one.
    pub loaded: Option<LoadedConfig<Config>>,
    /// The process that holds the state directory.
    pub holder: Option<LockHolder>,
    /// The content of the state directory.
    pub listing: StateListing,
    /// The current time.
    pub now_ms: u64,
}

impl CheckContext {
    /// Reads the config and lists the state directory.
    pub fn read(paths: Paths) -> Self {
        Self {
            loaded: Config::choose_as_client(&paths).ok().map(|chosen| chosen.loaded),
            holder: lock::holder(&paths.state),
            listing: StateListing::of(&paths.state),
            now_ms: Ambient::system().now_ms(),
            paths,
        }
    }
}

/// How a check is made.
#[derive(Debug)]
pub enum Check {
    /// By reading files.
    Sync(fn(&CheckContext) -> CheckReport),
    /// By requests to the gateway or others.
    Async(for<'a> fn(&'a CheckContext) -> LocalBoxFuture<'a, CheckReport>),
}

/// Removes the findings of the gateway check that another check reports too, at least as severely: the gateway reports
/// the same outages, in the form `SUBJECT: REASON`.
pub fn remove_repeated(reports: &mut [(&str, CheckReport)]) {
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
