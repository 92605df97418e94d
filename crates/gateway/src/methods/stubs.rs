//! Methods whose feature does not exist here. They return a valid empty result, so that clients show "none" instead of an
//! error. `docs/clients.md` lists them with the same sentences.

use homard_proto::{
    ErrorShape,
    method::queries::{AgentQueryParams, GithubParams, NothingParams},
};
use serde_json::{Value, json};

use super::models::profile;
use crate::router::{RpcCall, RpcResult};

/// A method without its feature.
struct Stub {
    method: &'static str,
    /// Why there is nothing, in one sentence.
    reason: &'static str,
    result: fn(&mut RpcCall) -> Result<Value, ErrorShape>,
}

const STUBS: [Stub; 16] = [
    Stub {
        method: "artifacts.list",
        reason: "generated files are not tracked; they stay where the agent wrote them",
        result: |call| empty(call, json!({"artifacts": []})),
    },
    Stub {
        method: "diagnostics.stability",
        reason: "these are OpenClaw's own diagnostics; Homard reports through `health`, the log and `/metrics`",
        result: |call| {
            empty(call, json!({"capacity": 0, "count": 0, "dropped": 0, "events": [], "summary": {"byType": {}}}))
        },
    },
    Stub {
        method: "exec.approval.grants.list",
        reason: "scheduled jobs have no standing approvals",
        result: |call| empty(call, json!({"grants": []})),
    },
    Stub {
        method: "migrations.memory.plan",
        reason: "memory of other programs is imported with `homard import`",
        result: memory_migration,
    },
    Stub {
        method: "node.pair.list",
        reason: "nodes are not supported",
        result: |call| empty(call, json!({"pending": [], "paired": []})),
    },
    Stub {
        method: "plugins.catalog.browse",
        reason: "there is no plugin market; installed plugins are in `plugins.list`",
        result: |call| empty(call, json!({"items": []})),
    },
    Stub {
        method: "progressCard.get",
        reason: "progress cards are not supported",
        result: |call| empty(call, json!({"card": null})),
    },
    Stub {
        method: "sessions.branches.list",
        reason: "a session has a single branch",
        result: |call| empty(call, json!({"branches": []})),
    },
    Stub {
        method: "sessions.companion.state",
        reason: "side conversations are not supported",
        result: |call| empty(call, json!({"exchanges": []})),
    },
    Stub {
        method: "sessions.observer.visibility",
        reason: "sessions have no summaries for observers",
        result: |call| empty(call, json!({"ok": true})),
    },
    Stub {
        method: "skills.library.list",
        reason: "there is no shared library; an agent's skills are files, listed by `skills.status`",
        result: |call| {
            empty(
                call,
                json!({
                    "entries": [], "profileId": null, "multipleProfiles": false, "defaultTarget": "unavailable",
                    "canManageWorkspace": false, "defaultSelectionLimit": 0,
                }),
            )
        },
    },
    Stub {
        method: "skills.proposals.list",
        reason: "agents do not propose skills",
        result: |call| {
            empty(
                call,
                json!({
                    "schema": "openclaw.skill-workshop.proposals-manifest.v1", "updatedAt": "1970-01-01T00:00:00.000Z",
                    "proposals": [], "installedSkills": [],
                }),
            )
        },
    },
    Stub {
        method: "talk.catalog",
        reason: "speech is not supported",
        result: |call| {
            let none = json!({"ready": false, "providers": []});
            empty(
                call,
                json!({
                    "modes": [], "transports": [], "brains": [], "speech": none, "transcription": none, "realtime": none,
                }),
            )
        },
    },
    Stub { method: "tools.github.status", reason: "no GitHub account is stored", result: github_status },
    Stub {
        method: "transcripts.list",
        reason: "meetings are not recorded",
        result: |call| empty(call, json!({"sessions": [], "nextCursor": null})),
    },
    Stub {
        method: "update.status",
        reason: "there is no update check",
        result: |call| empty(call, json!({"sentinel": null, "updateAvailable": null})),
    },
];

/// Answers a method of the table.
pub(crate) async fn answer(method: &'static str, mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let stub = STUBS.iter().find(|stub| stub.method == method);
    let stub = stub.ok_or_else(|| ErrorShape::invalid(format!("unknown method: {method}")))?;
    tracing::debug!(method, reason = stub.reason, "answered with an empty result");
    (stub.result)(&mut call).map(RpcResult::from)
}

fn empty(call: &mut RpcCall, result: Value) -> Result<Value, ErrorShape> {
    let NothingParams {} = call.params()?;
    Ok(result)
}

fn memory_migration(call: &mut RpcCall) -> Result<Value, ErrorShape> {
    let AgentQueryParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "migrations.memory.plan")?;
    Ok(json!({"agentId": profile.id, "workspace": profile.workdir, "providers": []}))
}

fn github_status(call: &mut RpcCall) -> Result<Value, ErrorShape> {
    let GithubParams { agent_id, selected_scope } = call.params()?;
    let no_identity = json!({
        "source": "system-detected", "credentialKind": "native", "credentialState": "unavailable", "account": null,
        "gitAuthor": {"name": null, "email": null}, "evidence": "none", "accessExpiresAtMs": null,
        "refreshState": "not_applicable", "oauthScopes": [], "repositoryGrants": "unknown",
    });
    let selected = json!({"scope": selected_scope, "configured": false, "identity": null});
    Ok(json!({"agentId": agent_id, "selectedScope": selected_scope, "selected": selected, "effective": no_identity}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::builtin_names;

    #[test]
    fn every_stub_is_a_method_and_is_documented() {
        let names = builtin_names();
        let rows: Vec<_> = include_str!("../../../../docs/clients.md").lines().collect();
        for Stub { method, reason, .. } in &STUBS {
            assert!(names.contains(method), "{method} is not a method");
            assert!(rows.contains(&format!("| `{method}` | {reason} |").as_str()), "{method} is not documented");
        }
        assert!(STUBS.is_sorted_by_key(|stub| stub.method));
    }
}
