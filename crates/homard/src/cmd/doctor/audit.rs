//! Whether somebody changed the audit log.

use homard_audit::verify_folder;

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::{audit::folder, cmd::audit::kept};

/// So many problems are told; one change breaks no more than a few rows.
const TOLD: usize = 3;

/// What `homard audit verify` says, in short.
pub(super) async fn look(scene: &Scene) -> Report {
    let folder = folder(&scene.paths);
    if !folder.exists() {
        return Report::new("nothing was noted yet", Vec::new());
    }
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let setup = match scene.setup(loaded) {
        Ok(setup) => setup,
        Err(error) => return unknown(&error),
    };
    let kept = match kept(&setup).await {
        Ok(kept) => kept,
        Err(error) => return unknown(&error),
    };
    match verify_folder(&folder, kept) {
        Ok(report) => {
            let told = report.problems.iter().take(TOLD).map(|problem| {
                let to_do = "see all of it with: homard audit verify; then find out who changed it, and keep a copy";
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
