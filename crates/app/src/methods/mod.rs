//! Gateway methods that read or change files of the state directory, one file per family.

mod approvals;
pub mod audit;
pub mod backup;
pub mod channels;
pub mod config;
mod hooks;
pub(crate) mod mcp;
pub mod plugins;
pub mod service;
mod skills;

use homard_approvals::ExecApprovals;
use homard_channel_runtime::Channels;
use homard_gateway::{Method, MethodRequest};
use homard_proto::ErrorShape;
use homard_settings::paths::Paths;
use serde_json::Value;

use crate::reload::ConfigReloader;

/// Returns all methods for the config, skills, approvals and channels.
pub fn all(live: &ConfigReloader, paths: &Paths, approvals: &ExecApprovals, chats: &Channels) -> Vec<Method> {
    let files = config::methods(live, paths).into_iter().chain(skills::methods(live, paths));
    let files = files.chain([hooks::method(live, paths)]);
    files.chain(approvals::methods(approvals)).chain(channels::methods(chats, live, paths)).collect()
}

/// Runs a method that may block on the disk. It completes even if the client disconnects.
async fn on_blocking_thread(
    request: MethodRequest,
    live: ConfigReloader,
    paths: Paths,
    answer: fn(MethodRequest, &ConfigReloader, &Paths) -> Result<Value, ErrorShape>,
) -> Result<Value, ErrorShape> {
    let result = tokio::task::spawn_blocking(move || answer(request, &live, &paths)).await;
    result.unwrap_or_else(|error| Err(ErrorShape::unavailable(format!("the request failed: {error}"))))
}
