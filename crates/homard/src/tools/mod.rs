//! Tools that need this binary's own objects: the schedule, the config, and the agents' models.

mod cron;
mod gateway;
mod image;

pub(crate) use self::{cron::Cron, gateway::Gateway, image::Image};

use std::fmt::Display;

use homard_agent::tool::{Origin, ToolResult};
use serde_json::{Value, json};

/// Returns a result with the same content as text and as details.
fn told(payload: Value) -> ToolResult {
    ToolResult::text(format!("{payload:#}")).with_details(payload)
}

fn failure(tool: &str, error: &impl Display) -> ToolResult {
    let error = error.to_string();
    ToolResult::error(&error).with_details(json!({"status": "error", "tool": tool, "error": error}))
}

/// Returns why a call is rejected: it targets another gateway, or its caller is not the owner. The tool policy has
/// already decided this; the check is a second line of defence.
fn refusal(origin: &Origin, gateway_url: Option<&str>) -> Option<&'static str> {
    if !origin.is_owner() {
        return Some("only the owner may have this done");
    }
    if !origin.is_admin() {
        return Some("the run was asked for without operator.admin, which this needs");
    }
    // A caller that chose the URL would receive the token.
    let is_elsewhere = gateway_url.is_some_and(|url| !url.trim().is_empty());
    is_elsewhere.then_some("this tool speaks to the gateway that it runs in and to no other; leave gatewayUrl out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_is_served_and_only_by_this_gateway() {
        let from = |principal: &str| Origin { principal: principal.to_owned(), ..Origin::default() };
        assert_eq!(refusal(&from("owner"), Some(" ")), None);
        assert!(refusal(&from("owner"), Some("ws://evil.example")).unwrap().contains("gatewayUrl"));
        assert!(refusal(&from("somebody"), None).unwrap().contains("owner"));
    }
}
