//! The gateway's methods that are about this program's files, one file per family.

mod approvals;
pub(crate) mod config;
mod skills;

use homard_agent::approval::Desk;
use homard_gateway::{Asked, Method};
use homard_proto::ErrorShape;
use serde_json::Value;

use crate::{live::Live, paths::Paths};

/// All of them, answered by the config at work and the desk for approvals.
pub(crate) fn all(live: &Live, paths: &Paths, desk: &Desk) -> Vec<Method> {
    let files = config::methods(live, paths).into_iter().chain(skills::methods(live, paths));
    files.chain(approvals::methods(desk)).collect()
}

/// Has a method answered where it may wait for the disk. Once begun it comes to its end, also when nobody waits any more.
async fn on_blocking_thread(
    asked: Asked,
    (live, paths): (Live, Paths),
    answer: fn(Asked, &Live, &Paths) -> Result<Value, ErrorShape>,
) -> Result<Value, ErrorShape> {
    let answering = tokio::task::spawn_blocking(move || answer(asked, &live, &paths)).await;
    answering.unwrap_or_else(|error| Err(ErrorShape::unavailable(format!("it could not be answered: {error}"))))
}
