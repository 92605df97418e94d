//! Verifies the audit log.

use homard_audit::verify_folder;

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::{
    audit::location,
    cmd::audit::{evidence, row_count},
};

/// Maximum number of problems that are listed; one change breaks only a few rows.
const MAX_LISTED: usize = 3;

/// Runs a short form of `homard audit verify`.
pub(super) async fn check(scene: &CheckContext) -> CheckReport {
    let folder = location(&scene.paths).folder;
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    let setup = match scene.setup(loaded) {
        Ok(setup) => setup,
        Err(error) => return unknown(&error),
    };
    let evidence = match evidence(&setup).await {
        Ok(evidence) => evidence,
        Err(error) => return unknown(&error),
    };
    match verify_folder(&folder, &evidence) {
        Ok(report) if report.rows == 0 && report.problems.is_empty() => CheckReport::new("no entries yet", Vec::new()),
        Ok(report) => {
            let told = report.problems.iter().take(MAX_LISTED).map(|problem| {
                let to_do = "list all problems with: homard audit verify; find out who modified the log, keep a copy, then: homard audit acknowledge --reason TEXT";
                DoctorFinding::problem(format!("the audit log was modified: {problem}"), to_do).at(&folder)
            });
            CheckReport::new(format!("{}, unmodified", row_count(report.rows)), told.collect())
        }
        Err(error) => unknown(&error.into()),
    }
}

fn unknown(error: &anyhow::Error) -> CheckReport {
    let what = format!("the audit log cannot be checked: {error:#}");
    CheckReport::new("", vec![DoctorFinding::note(what, "try again, or see: homard audit verify")])
}
