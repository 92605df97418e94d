//! Verifies the audit log.

use std::fmt::Display;

use homard_audit::{Evidence, verify_folder};
use homard_settings::{audit_log::location, paths::Paths};

use crate::finding::{CheckReport, DoctorFinding};

/// Maximum number of problems that are listed; one change breaks only a few rows.
const MAX_LISTED: usize = 3;

/// Runs a short form of `homard audit verify`. May block.
pub fn check(paths: &Paths, evidence: &Evidence) -> CheckReport {
    let folder = location(paths).folder;
    match verify_folder(&folder, evidence) {
        Ok(report) if report.rows == 0 && report.problems.is_empty() => CheckReport::new("no entries yet", Vec::new()),
        Ok(report) => {
            let findings = report.problems.iter().take(MAX_LISTED).map(|problem| {
                let remedy = "list all problems with: homard audit verify; find out who modified the log, keep a copy, then: homard audit acknowledge --reason TEXT";
                DoctorFinding::problem(format!("the audit log was modified: {problem}"), remedy).at(&folder)
            });
            let rows = homard_render::count(usize::try_from(report.rows).unwrap_or(usize::MAX), "row");
            CheckReport::new(format!("{rows}, unmodified"), findings.collect())
        }
        Err(error) => unknown(&error),
    }
}

/// Returns the report if the log cannot be verified.
pub fn unknown(error: &dyn Display) -> CheckReport {
    let message = format!("the audit log cannot be checked: {error}");
    CheckReport::new("", vec![DoctorFinding::note(message, "try again, or see: homard audit verify")])
}
