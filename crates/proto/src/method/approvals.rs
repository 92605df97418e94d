//! `exec.approval.*` and `exec.approvals.*`: who may run what, and what is asked about it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Others, flag, text};

/// What `exec.approval.request` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestParams {
    /// Names it; without one, it gets a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How long an answer is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether the asker wants to hear at once that it is asked, and waits with `exec.approval.waitDecision`.
    #[serde(default)]
    pub two_phase: bool,
    /// What else is told about it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

params!(RequestParams, "exec.approval.request", &[], |generation| {
    let word = || json!({"type": ["string", "null"]});
    let mut members = json!({
        "id": text(), "command": text(), "cwd": word(), "host": word(), "security": word(), "ask": word(),
        "agentId": word(), "resolvedPath": word(), "sessionKey": word(),
        "timeoutMs": {"type": "integer", "minimum": 1},
    });
    if generation == Generation::Four {
        members["twoPhase"] = flag();
    }
    // Newer clients say more from version to version, and it is only shown.
    (members, if generation == Generation::Four { Others::PassedOver } else { Others::Refused })
});

/// What `exec.approval.waitDecision` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitParams {
    /// Which.
    pub id: String,
}

params!(WaitParams, "exec.approval.waitDecision", &["id"], |_| json!({"id": text()}));

/// What `approval.history` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryParams {
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only of this kind: `exec`, `plugin` or `system-agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

params!(HistoryParams, "approval.history", &[], |_| {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 200});
    (json!({"limit": limit, "kind": {"enum": ["exec", "plugin", "system-agent"]}}), Others::PassedOver)
});

/// What `exec.approval.get` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {
    /// Which.
    pub id: String,
}

params!(GetParams, "exec.approval.get", &["id"], |_| json!({"id": text()}));

/// What `exec.approval.list` takes: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "exec.approval.list", &[], |_| json!({}));

/// What `exec.approval.resolve` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveParams {
    /// Which.
    pub id: String,
    /// `allow-once`, `allow-always` or `deny`.
    pub decision: String,
}

params!(ResolveParams, "exec.approval.resolve", &["id", "decision"], |_| json!({
    "id": text(), "decision": text(),
}));

/// What `exec.approvals.get` takes: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyParams {}

params!(PolicyParams, "exec.approvals.get", &[], |_| json!({}));

/// What `exec.approvals.set` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPolicyParams {
    /// The whole file.
    pub file: Map<String, Value>,
    /// The hash of the file that it replaces; needed if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
}

params!(SetPolicyParams, "exec.approvals.set", &["file"], |_| json!({
    "file": {"type": "object"}, "baseHash": text(),
}));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, method::Params};

    #[test]
    fn only_newer_clients_may_say_what_we_do_not_know() {
        let params = json!({"command": "ls", "cwd": null, "commandArgv": ["ls"], "twoPhase": true});
        let read = RequestParams::decode(Generation::Four, Some(params.clone())).unwrap();
        let more = json!({"cwd": null, "commandArgv": ["ls"]});
        let expected = RequestParams {
            id: None,
            command: Some("ls".to_owned()),
            timeout_ms: None,
            two_phase: true,
            more: more.as_object().unwrap().clone(),
        };
        assert_eq!(read, expected);
        let error = RequestParams::decode(Generation::Three, Some(params)).unwrap_err();
        assert!(error.message.starts_with("invalid exec.approval.request params: "), "{error:?}");
    }

    #[test]
    fn a_decision_names_what_it_is_about() {
        let error = ResolveParams::decode(Generation::Three, Some(json!({"decision": "deny"}))).unwrap_err();
        assert!(error.message.starts_with("invalid exec.approval.resolve params: "), "{error:?}");
    }
}
