//! Verifies the audit log.

use homard_audit::verify_folder;

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::{audit::location, cmd::audit::evidence};

/// Maximum number of problems that are listed; one change breaks only a few rows.
const TOLD: usize = 3;

/// Runs a short form of `homard audit verify`.
pub(super) async fn look(scene: &Scene) -> Report {
    let folder = location(&scene.paths).folder;
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let setup = match scene.setup(loaded) {
        Ok(setup) => setup,
        Err(error) => return unknown(&error),
    };
    let evidence = match evidence(&setup).await {
        Ok(evidence) => evidence,
        Err(error) => return unknown(&error),
    };
    match verify_folder(&folder, &evidence) {
        Ok(report) if report.rows == 0 && report.problems.is_empty() => {
            Report::new("nothing was noted yet", Vec::new())
        }
        Ok(report) => {
            let told = report.problems.iter().take(TOLD).map(|problem| {
                let to_do = "see all of it with: homard audit verify; find out who changed it, keep a copy, then: homard audit acknowledge --reason TEXT";
                Finding::wrong(format!("the audit log was changed: {problem}"), to_do).at(&folder)
            });
            Report::new(format!("{} rows, as they were written", report.rows), told.collect())
        }
        Err(error) => unknown(&error.into()),
    }
}

fn unknown(error: &anyhow::Error) -> Report {
    let what = format!("the audit log cannot be checked: {error:#}");
    Report::new("", vec![Finding::note(what, "try again, or see: homard audit verify")])
}
