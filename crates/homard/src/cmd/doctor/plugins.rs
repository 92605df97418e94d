//! Checks that enabled plugins and their requirements are usable.

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::cmd::plugins::examine;

/// Same as `homard plugins doctor`; starts the enabled plugins briefly.
pub(super) async fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let examination = examine(loaded, &context.paths).await;
    let finding = |found: (bool, String, String)| match found {
        (true, message, remedy) => DoctorFinding::problem(message, remedy),
        (false, message, remedy) => DoctorFinding::note(message, remedy),
    };
    CheckReport::new(examination.summary, examination.findings.into_iter().map(finding).collect())
}
