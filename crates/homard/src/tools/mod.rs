//! Tools that need what only this program has: the schedule, the config, and the models of agents.

mod cron;
mod gateway;
mod image;

pub(crate) use self::{cron::Cron, gateway::Gateway, image::Image};

use std::fmt::Display;

use homard_agent::tool::{Origin, ToolResult};
use serde_json::{Value, json};

/// An answer that people and programs read alike.
fn told(payload: Value) -> ToolResult {
    ToolResult::text(format!("{payload:#}")).with_details(payload)
}

fn failure(tool: &str, error: &impl Display) -> ToolResult {
    let error = error.to_string();
    ToolResult::error(&error).with_details(json!({"status": "error", "tool": tool, "error": error}))
}

/// Why a call is not for this gateway, or not from its owner. Who may use which tool is decided before; this is for the
/// day on which that fails.
fn refusal(origin: &Origin, gateway_url: Option<&str>) -> Option<&'static str> {
    if !origin.is_owner() {
        return Some("only the owner may have this done");
    }
    if !origin.is_admin() {
        return Some("the run was asked for without operator.admin, which this needs");
    }
    // Whoever could choose the place would be sent the token.
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
