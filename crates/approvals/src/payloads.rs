//! Client payloads of approvals. One payload has the fields of both protocol generations; older clients ignore unknown
//! ones.

use serde_json::{Value, json};

use super::{display, state::Approval};

impl Approval {
    /// Returns the command for display.
    pub fn shown(&self) -> String {
        // A command that is too long was rejected before.
        display::display_command(&self.command).unwrap_or_default()
    }

    /// Payload of `exec.approval.requested`, and item of `exec.approval.list`.
    pub fn requested(&self) -> Value {
        json!({
            "id": self.id, "request": self.request(), "createdAtMs": self.created_at_ms,
            "expiresAtMs": self.expires_at_ms,
        })
    }

    /// Payload of `exec.approval.resolved`. An expired request counts as denied at `now`.
    pub fn resolved(&self, now: u64) -> Value {
        json!({
            "id": self.id, "decision": self.state.decision().unwrap_or("deny"), "resolvedBy": self.decided_by,
            "ts": self.decided_at_ms.unwrap_or(now), "request": self.request(),
        })
    }

    /// Result of `exec.approval.request` and `exec.approval.waitDecision`.
    pub fn decision(&self) -> Value {
        json!({
            "id": self.id, "decision": self.state.decision(), "createdAtMs": self.created_at_ms,
            "expiresAtMs": self.expires_at_ms,
        })
    }

    /// Result of `exec.approval.get`.
    pub fn view(&self) -> Value {
        let field = |name: &str| self.client_fields.get(name).cloned().unwrap_or_default();
        json!({
            "id": self.id, "commandText": self.shown(), "commandPreview": null, "allowedDecisions": self.allowed(),
            "host": field("host"), "nodeId": field("nodeId"), "agentId": self.agent, "cwd": field("cwd"),
            "resolvedPath": field("resolvedPath"), "sessionKey": field("sessionKey"),
            "createdAtMs": self.created_at_ms, "expiresAtMs": self.expires_at_ms,
        })
    }

    fn request(&self) -> Value {
        let mut request = self.client_fields.clone();
        request.insert("command".to_owned(), self.shown().into());
        request.entry("agentId").or_insert_with(|| self.agent.as_str().into());
        for name in ["cwd", "host", "security", "ask", "resolvedPath", "sessionKey"] {
            request.entry(name).or_insert(Value::Null);
        }
        request.insert("allowedDecisions".to_owned(), self.allowed());
        let rules: Vec<String> =
            self.rules().iter().filter_map(|rule| display::display_command(&rule.describe())).collect();
        if !rules.is_empty() {
            request.insert("alwaysAllows".to_owned(), rules.into());
        }
        request.into()
    }

    fn allowed(&self) -> Value {
        self.offers().iter().map(|decision| decision.as_str()).collect()
    }
}
