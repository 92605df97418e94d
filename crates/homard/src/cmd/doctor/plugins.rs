//! Checks that enabled plugins and their requirements are usable.

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::cmd::plugins::examine;

/// Same as `homard plugins doctor`; starts the enabled plugins briefly.
pub(super) async fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let exam = examine(loaded, &scene.paths).await;
    let finding = |found: (bool, String, String)| match found {
        (true, what, to_do) => Finding::wrong(what, to_do),
        (false, what, to_do) => Finding::note(what, to_do),
    };
    Report::new(exam.summary, exam.findings.into_iter().map(finding).collect())
}
