//! `exec.approval.*` and `exec.approvals.*`: approval requests and the exec policy.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{UnknownMembers, flag, text};

/// Parameters of `exec.approval.request`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestParams {
    /// Request id; generated if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Command to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Time to wait for a decision, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True if the caller wants an acknowledgement at once, and waits with `exec.approval.waitDecision`.
    #[serde(default)]
    pub two_phase: bool,
    /// Further information about the command.
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
    // Newer clients send more with each version, and it is only displayed.
    (members, if generation == Generation::Four { UnknownMembers::Ignored } else { UnknownMembers::Refused })
});

/// Parameters of `exec.approval.waitDecision`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitParams {
    /// Request id.
    pub id: String,
}

params!(WaitParams, "exec.approval.waitDecision", &["id"], |_| json!({"id": text()}));

/// Parameters of `approval.history`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryParams {
    /// Maximum number of entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only requests of this kind: `exec`, `plugin` or `system-agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

params!(HistoryParams, "approval.history", &[], |_| {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 200});
    (json!({"limit": limit, "kind": {"enum": ["exec", "plugin", "system-agent"]}}), UnknownMembers::Ignored)
});

/// Parameters of `exec.approval.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {
    /// Request id.
    pub id: String,
}

params!(GetParams, "exec.approval.get", &["id"], |_| json!({"id": text()}));

/// Parameters of `exec.approval.list`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "exec.approval.list", &[], |_| json!({}));

/// Parameters of `exec.approval.resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveParams {
    /// Request id.
    pub id: String,
    /// `allow-once`, `allow-always` or `deny`.
    pub decision: String,
}

params!(ResolveParams, "exec.approval.resolve", &["id", "decision"], |_| json!({
    "id": text(), "decision": text(),
}));

/// Parameters of `exec.approvals.get`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyParams {}

params!(PolicyParams, "exec.approvals.get", &[], |_| json!({}));

/// Parameters of `exec.approvals.set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPolicyParams {
    /// Complete new file.
    pub file: Map<String, Value>,
    /// Hash of the file that it replaces; required if there is one.
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
    fn only_protocol_4_accepts_unknown_approval_members() {
        let params = json!({"command": "ls", "cwd": null, "commandArgv": ["ls"], "twoPhase": true});
        let decoded = RequestParams::decode(Generation::Four, Some(params.clone())).unwrap();
        let more = json!({"cwd": null, "commandArgv": ["ls"]});
        let expected = RequestParams {
            id: None,
            command: Some("ls".to_owned()),
            timeout_ms: None,
            two_phase: true,
            more: more.as_object().unwrap().clone(),
        };
        assert_eq!(decoded, expected);
        let error = RequestParams::decode(Generation::Three, Some(params)).unwrap_err();
        assert!(error.message.starts_with("invalid exec.approval.request params: "), "{error:?}");
    }

    #[test]
    fn a_decision_names_its_request() {
        let error = ResolveParams::decode(Generation::Three, Some(json!({"decision": "deny"}))).unwrap_err();
        assert!(error.message.starts_with("invalid exec.approval.resolve params: "), "{error:?}");
    }
}
