//! Tools that need this binary's own objects: the schedule, the config, and the agents' models.

mod cron;
mod gateway;
mod image;

pub(crate) use self::{cron::Cron, gateway::GatewayTool, image::Image};

use std::fmt::Display;

use homard_agent::tool::{RunOrigin, ToolResult};
use serde_json::{Value, json};

/// Returns a result with the same content as text and as details.
fn json_result(payload: Value) -> ToolResult {
    ToolResult::text(format!("{payload:#}")).with_details(payload)
}

fn failure(tool: &str, error: &impl Display) -> ToolResult {
    let error = error.to_string();
    ToolResult::error(&error).with_details(json!({"status": "error", "tool": tool, "error": error}))
}

/// Returns why a call is rejected: it targets another gateway, or its caller is not the owner. The tool policy has
/// already decided this; the check is a second line of defence.
fn refusal(origin: &RunOrigin, gateway_url: Option<&str>) -> Option<&'static str> {
    if !origin.is_owner() {
        return Some("only the owner may do this");
    }
    if !origin.is_admin() {
        return Some("this requires the scope operator.admin, which the run does not have");
    }
    // A caller that chose the URL would receive the token.
    let is_elsewhere = gateway_url.is_some_and(|url| !url.trim().is_empty());
    is_elsewhere.then_some("this tool only calls the gateway that it runs in; omit gatewayUrl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_tools_serve_only_the_owner_and_this_gateway() {
        let from = |principal: &str| RunOrigin { principal: principal.to_owned(), ..RunOrigin::default() };
        assert_eq!(refusal(&from("owner"), Some(" ")), None);
        assert!(refusal(&from("owner"), Some("ws://evil.example")).unwrap().contains("gatewayUrl"));
        assert!(refusal(&from("somebody"), None).unwrap().contains("owner"));
    }
}
