//! Verifies the audit log.

use homard_audit::verify_folder;
use homard_doctor::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use homard_settings::audit_log::location;

use crate::cmd::audit::{evidence, row_count};

/// Maximum number of problems that are listed; one change breaks only a few rows.
const MAX_LISTED: usize = 3;

/// Runs a short form of `homard audit verify`.
pub(super) async fn check(context: &CheckContext) -> CheckReport {
    let folder = location(&context.paths).folder;
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let setup = match super::setup(context, loaded) {
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
            let findings = report.problems.iter().take(MAX_LISTED).map(|problem| {
                let remedy = "list all problems with: homard audit verify; find out who modified the log, keep a copy, then: homard audit acknowledge --reason TEXT";
                DoctorFinding::problem(format!("the audit log was modified: {problem}"), remedy).at(&folder)
            });
            CheckReport::new(format!("{}, unmodified", row_count(report.rows)), findings.collect())
        }
        Err(error) => unknown(&error.into()),
    }
}

fn unknown(error: &anyhow::Error) -> CheckReport {
    let message = format!("the audit log cannot be checked: {error:#}");
    CheckReport::new("", vec![DoctorFinding::note(message, "try again, or see: homard audit verify")])
}
