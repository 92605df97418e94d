//! Checks that enabled plugins and their requirements are usable.

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::cmd::plugins::examine;

/// Same as `homard plugins doctor`; starts the enabled plugins briefly.
pub(super) async fn check(scene: &CheckContext) -> CheckReport {
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    let exam = examine(loaded, &scene.paths).await;
    let finding = |found: (bool, String, String)| match found {
        (true, what, to_do) => DoctorFinding::problem(what, to_do),
        (false, what, to_do) => DoctorFinding::note(what, to_do),
    };
    CheckReport::new(exam.summary, exam.findings.into_iter().map(finding).collect())
}
