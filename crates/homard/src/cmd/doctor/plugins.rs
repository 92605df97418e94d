//! Whether the plugins that are on can be used, and what they need is there.

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::cmd::plugins::examine;

/// What `homard plugins doctor` says; it starts those that are on for a moment.
pub(super) async fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let exam = examine(loaded, &scene.paths).await;
    let finding = |found: (bool, String, String)| match found {
        (true, what, to_do) => Finding::wrong(what, to_do),
        (false, what, to_do) => Finding::note(what, to_do),
    };
    Report::new(exam.summary, exam.findings.into_iter().map(finding).collect())
}
