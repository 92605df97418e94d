//! Stubs for methods whose feature is not supported here. They return a valid empty result, so that clients show "none"
//! instead of an error.

use homard_proto::{
    ErrorShape,
    method::queries::{AgentQueryParams, GithubParams, NothingParams},
};
use serde_json::{Value, json};

use super::models::profile;
use crate::router::{RpcCall, RpcResult};

fn empty(mut call: RpcCall, answer: Value) -> Result<RpcResult, ErrorShape> {
    let NothingParams {} = call.params()?;
    Ok(answer.into())
}

/// `update.status`: there is no update check.
pub(crate) async fn update_status(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"sentinel": null, "updateAvailable": null}))
}

/// `talk.catalog`: speech is not supported.
pub(crate) async fn talk_catalog(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let none = json!({"ready": false, "providers": []});
    empty(
        call,
        json!({
            "modes": [], "transports": [], "brains": [], "speech": none, "transcription": none, "realtime": none,
        }),
    )
}

/// `node.pair.list`: nodes are not supported.
pub(crate) async fn node_pairs(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"pending": [], "paired": []}))
}

/// `diagnostics.stability`: OpenClaw's own diagnostics. Homard reports through `health`, the log and `/metrics`.
pub(crate) async fn stability(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"capacity": 0, "count": 0, "dropped": 0, "events": [], "summary": {"byType": {}}}))
}

/// `plugins.catalog.browse`: plugin marketplace. Installed plugins are in `plugins.list`.
pub(crate) async fn plugin_catalog(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"items": []}))
}

/// `exec.approval.grants.list`: standing approvals of scheduled jobs are not supported.
pub(crate) async fn approval_grants(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"grants": []}))
}

/// `artifacts.list`: generated files are not tracked; they stay where the agent wrote them.
pub(crate) async fn artifacts(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"artifacts": []}))
}

/// `progressCard.get`: progress cards are not supported.
pub(crate) async fn progress_card(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"card": null}))
}

/// `sessions.branches.list`: a session has a single branch.
pub(crate) async fn branches(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"branches": []}))
}

/// `sessions.companion.state`: side conversations are not supported.
pub(crate) async fn companion_state(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"exchanges": []}))
}

/// `sessions.observer.visibility`: session summaries are not supported.
pub(crate) async fn observer_visibility(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"ok": true}))
}

/// `transcripts.list`: meeting transcripts are not supported.
pub(crate) async fn transcripts(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"sessions": [], "nextCursor": null}))
}

/// `skills.library.list`: there is no shared library. An agent's skills are files; see `skills.status`.
pub(crate) async fn skill_library(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(
        call,
        json!({
            "entries": [], "profileId": null, "multipleProfiles": false, "defaultTarget": "unavailable",
            "canManageWorkspace": false, "defaultSelectionLimit": 0,
        }),
    )
}

/// `skills.proposals.list`: agents do not propose skills.
pub(crate) async fn skill_proposals(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let schema = "openclaw.skill-workshop.proposals-manifest.v1";
    empty(
        call,
        json!({"schema": schema, "updatedAt": "1970-01-01T00:00:00.000Z", "proposals": [], "installedSkills": []}),
    )
}

/// `migrations.memory.plan`: memory of other programs is imported with `homard import`.
pub(crate) async fn memory_migration(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AgentQueryParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "migrations.memory.plan")?;
    Ok(json!({"agentId": profile.id, "workspace": profile.workdir, "providers": []}).into())
}

/// `tools.github.status`: no GitHub account is stored.
pub(crate) async fn github_status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let GithubParams { agent_id, selected_scope } = call.params()?;
    let no_identity = json!({
        "source": "system-detected", "credentialKind": "native", "credentialState": "unavailable", "account": null,
        "gitAuthor": {"name": null, "email": null}, "evidence": "none", "accessExpiresAtMs": null,
        "refreshState": "not_applicable", "oauthScopes": [], "repositoryGrants": "unknown",
    });
    let selected = json!({"scope": selected_scope, "configured": false, "identity": null});
    Ok(json!({"agentId": agent_id, "selectedScope": selected_scope, "selected": selected, "effective": no_identity})
        .into())
}
