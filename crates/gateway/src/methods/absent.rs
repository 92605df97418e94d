//! What clients ask for and this house does not have. They are told so in the form that they understand, so that a page
//! says that there is nothing instead of that something is wrong.

use homard_proto::{
    ErrorShape,
    method::house::{GithubParams, NothingParams, OfAgentParams},
};
use serde_json::{Value, json};

use super::models::profile;
use crate::router::{Answer, Call};

fn nothing(mut call: Call, answer: Value) -> Result<Answer, ErrorShape> {
    let NothingParams {} = call.params()?;
    Ok(answer.into())
}

/// Newer versions: nobody looks for them.
pub(crate) async fn update(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"sentinel": null, "updateAvailable": null}))
}

/// Voices: there are none.
pub(crate) async fn voices(call: Call) -> Result<Answer, ErrorShape> {
    let none = json!({"ready": false, "providers": []});
    nothing(
        call,
        json!({
            "modes": [], "transports": [], "brains": [], "speech": none, "transcription": none, "realtime": none,
        }),
    )
}

/// Devices that lend their tools and ask to be let in: nodes are refused.
pub(crate) async fn node_pairs(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"pending": [], "paired": []}))
}

/// Notes of OpenClaw's own about its health: ours are in `health`, in the log and in `/metrics`.
pub(crate) async fn stability(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"capacity": 0, "count": 0, "dropped": 0, "events": [], "summary": {"byType": {}}}))
}

/// A market for plugins: none is asked. Which plugins there are, `plugins.list` tells.
pub(crate) async fn market(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"items": []}))
}

/// What scheduled jobs may always run: nothing is allowed to a job alone.
pub(crate) async fn grants(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"grants": []}))
}

/// Pictures and files that were made: they are where the agent put them.
pub(crate) async fn artifacts(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"artifacts": []}))
}

/// A card that tells how far an agent is: none writes one.
pub(crate) async fn progress_card(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"card": null}))
}

/// Other ends of a conversation that one could switch to: it has one.
pub(crate) async fn branches(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"branches": []}))
}

/// Questions about a conversation beside it: there are none.
pub(crate) async fn companion(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"exchanges": []}))
}

/// Whether somebody looks at summaries of conversations: none are made.
pub(crate) async fn observer(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"ok": true}))
}

/// Records of meetings: none are made.
pub(crate) async fn meetings(call: Call) -> Result<Answer, ErrorShape> {
    nothing(call, json!({"sessions": [], "nextCursor": null}))
}

/// Skills that people share: an agent's skills are files in folders, as `skills.status` tells.
pub(crate) async fn shared_skills(call: Call) -> Result<Answer, ErrorShape> {
    nothing(
        call,
        json!({
            "entries": [], "profileId": null, "multipleProfiles": false, "defaultTarget": "unavailable",
            "canManageWorkspace": false, "defaultSelectionLimit": 0,
        }),
    )
}

/// Skills that agents would like to have written: none proposes any.
pub(crate) async fn proposals(call: Call) -> Result<Answer, ErrorShape> {
    let schema = "openclaw.skill-workshop.proposals-manifest.v1";
    nothing(
        call,
        json!({"schema": schema, "updatedAt": "1970-01-01T00:00:00.000Z", "proposals": [], "installedSkills": []}),
    )
}

/// Memories of other programs that could be taken over: `homard import` does that.
pub(crate) async fn memories(mut call: Call) -> Result<Answer, ErrorShape> {
    let OfAgentParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "migrations.memory.plan")?;
    Ok(json!({"agentId": profile.id, "workspace": profile.workdir, "providers": []}).into())
}

/// An account at GitHub: none is kept.
pub(crate) async fn github(mut call: Call) -> Result<Answer, ErrorShape> {
    let GithubParams { agent_id, selected_scope } = call.params()?;
    let nobody = json!({
        "source": "system-detected", "credentialKind": "native", "credentialState": "unavailable", "account": null,
        "gitAuthor": {"name": null, "email": null}, "evidence": "none", "accessExpiresAtMs": null,
        "refreshState": "not_applicable", "oauthScopes": [], "repositoryGrants": "unknown",
    });
    let selected = json!({"scope": selected_scope, "configured": false, "identity": null});
    Ok(json!({"agentId": agent_id, "selectedScope": selected_scope, "selected": selected, "effective": nobody}).into())
}
