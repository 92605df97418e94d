//! The checks of an installation: what they find, and what can be fixed without losing data.
//!
//! One file per check; it collects the data in `check` and evaluates it in a pure function. Start with [`CheckContext`],
//! the inputs of the checks, and [`finding`], their results. [`FILE_CHECKS`] are made by `homard doctor` and by a running
//! gateway, which answers `doctor.run` with them ([`running`]). [`plugins`] starts the enabled plugins briefly. Nothing
//! is printed here.

pub mod audit;
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
pub mod running;
pub mod sandbox;
pub mod sessions;
pub mod workspaces;

use homard_config::LoadedConfig;
use homard_journal::lock::{self, LockHolder};
use homard_runtime::Ambient;
use homard_settings::{Config, paths::Paths};
use serde_json::{Value, json};

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

/// A check that only reads files. It may block.
pub type FileCheck = fn(&CheckContext) -> CheckReport;

/// The checks that only read files, by name, in the order of the report.
pub const FILE_CHECKS: [(&str, FileCheck); 10] = [
    ("config", config::check),
    ("permissions", permissions::check),
    ("disk", disk::check),
    ("clock", clock::check),
    ("sessions", sessions::check),
    ("leftovers", leftovers::check),
    ("models", models::check),
    ("channels", channels::check),
    ("workspaces", workspaces::check),
    ("sandbox", sandbox::check),
];

/// A report with the name of its check.
pub type NamedReport = (&'static str, CheckReport);

/// Makes all [`FILE_CHECKS`].
pub fn check_files(context: &CheckContext) -> Vec<NamedReport> {
    FILE_CHECKS.iter().map(|(name, check)| (*name, check(context))).collect()
}

/// Returns the number of problems that are not fixed.
pub fn problem_count(reports: &[NamedReport]) -> usize {
    findings(reports).filter(|finding| finding.needs_action()).count()
}

/// Returns the number of findings that `--fix` can fix.
pub fn fixable_count(reports: &[NamedReport]) -> usize {
    findings(reports).filter(|finding| finding.fix.is_some() && finding.fixed.is_none()).count()
}

fn findings(reports: &[NamedReport]) -> impl Iterator<Item = &DoctorFinding> {
    reports.iter().flat_map(|(_, report)| &report.findings)
}

/// Returns all reports as one JSON document, as `homard doctor --json` and `doctor.run` return it.
pub fn document(reports: &[NamedReport]) -> Value {
    let checks: Vec<Value> = reports.iter().map(|(name, report)| report.document(name)).collect();
    let open = problem_count(reports);
    json!({"ok": open == 0, "needsAHand": open, "fixable": fixable_count(reports), "checks": checks})
}

/// Removes the findings of the gateway check that another check reports too, at least as severely: the gateway reports
/// the same outages, in the form `SUBJECT: REASON`. That of a model is `SUBJECT: MODEL: REASON`.
pub fn remove_repeated(reports: &mut [NamedReport]) {
    let known = reports.iter().filter(|(name, _)| *name != "gateway").flat_map(|(_, report)| &report.findings);
    let known: Vec<_> = known.map(|finding| (finding.level, finding.message.clone())).collect();
    let is_repeated = |finding: &DoctorFinding| {
        let reason = finding.message.split_once(": ").map_or("", |(_, reason)| reason.trim());
        let without_model = reason.split_once(": ").map_or(reason, |(_, reason)| reason.trim());
        let is_as_severe = |level: FindingSeverity| level == FindingSeverity::Problem || level == finding.level;
        let is_same = |message: &str| message.contains(reason) || message.ends_with(without_model);
        !reason.is_empty() && known.iter().any(|(level, message)| is_as_severe(*level) && is_same(message))
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
                        problem("model of agent main is down: p/m: p has no key"),
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
