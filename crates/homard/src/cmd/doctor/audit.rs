//! Gets what the audit log is verified against.

use homard_doctor::{CheckContext, audit, finding::CheckReport};

use crate::cmd::audit::evidence;

/// Runs a short form of `homard audit verify`.
pub(super) async fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let evidence = async { evidence(&super::setup(context, loaded)?).await };
    match evidence.await {
        Ok(evidence) => audit::check(&context.paths, &evidence),
        Err(error) => audit::unknown(&format!("{error:#}")),
    }
}
