//! `exec.approval.*` and `exec.approvals.*`: pending approvals, and the rules for commands that need none.

use std::{future::Future, time::Duration};

use homard_approvals::{
    APPROVAL_TIMEOUT, Approval, ApprovalDecision, ApprovalParams, ApprovalPolicy, ApprovalState, Error, ExecApprovals,
    approvals::ApprovalRules,
};
use homard_gateway::{Method, MethodRequest, Scope};
use homard_proto::{
    AgentId, Code, ErrorShape, Generation,
    method::approvals::{
        GetParams, HistoryParams, ListParams, PolicyParams, RequestParams, ResolveParams, SetPolicyParams, WaitParams,
    },
};
use serde_json::{Value, json};

/// Returns the methods for approvals.
pub(crate) fn methods(approvals: &ExecApprovals) -> Vec<Method> {
    vec![
        method("exec.approval.request", Scope::Approvals, approvals, request),
        method("exec.approval.waitDecision", Scope::Approvals, approvals, wait),
        method("exec.approval.resolve", Scope::Approvals, approvals, resolve),
        method("exec.approval.get", Scope::Approvals, approvals, get),
        method("exec.approval.list", Scope::Approvals, approvals, list),
        method("approval.history", Scope::Approvals, approvals, history),
        method("exec.approvals.get", Scope::Admin, approvals, rules),
        method("exec.approvals.set", Scope::Admin, approvals, set_rules),
    ]
}

fn method<A>(
    name: &'static str,
    scope: Scope,
    approvals: &ExecApprovals,
    answer: fn(MethodRequest, ExecApprovals) -> A,
) -> Method
where
    A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
{
    let approvals = approvals.clone();
    Method::new(name, scope, move |request| answer(request, approvals.clone()))
}

/// Requests approval for a command that the client runs itself. Responds with the decision, or immediately if the
/// client waits separately.
async fn request(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let RequestParams { id, command, timeout_ms, two_phase, more } = request.params()?;
    let generation = request.generation();
    let command = command.filter(|command| !command.trim().is_empty());
    let missing = || ErrorShape::invalid("invalid exec.approval.request params: command is missing");
    let agent = more.get("agentId").and_then(Value::as_str);
    let ticket = ApprovalParams {
        id,
        agent: agent.map_or_else(AgentId::main, AgentId::normalize),
        command: command.ok_or_else(missing)?,
        fields: more,
        fingerprint: None,
        rules: Vec::new(),
        call: Value::Null,
        expires: timeout_ms.map_or(APPROVAL_TIMEOUT, Duration::from_millis),
    };
    let entry = approvals.request(ticket).await.map_err(|error| error_shape(&error, generation))?;
    if two_phase {
        return Ok(json!({
            "status": "accepted", "id": entry.id, "createdAtMs": entry.created_at_ms, "expiresAtMs": entry.expires_at_ms,
        }));
    }
    decision(&approvals, &entry.id, generation).await
}

/// Waits for the decision; null if there is none in time.
async fn wait(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let WaitParams { id } = request.params()?;
    decision(&approvals, &id, request.generation()).await
}

async fn decision(approvals: &ExecApprovals, id: &str, generation: Generation) -> Result<Value, ErrorShape> {
    let approval = approvals.wait(id).await;
    let unknown = || error_shape(&Error::Unknown(id.to_owned()), generation);
    approval.as_ref().map(Approval::decision).ok_or_else(unknown)
}

async fn resolve(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let ResolveParams { id, decision } = request.params()?;
    let invalid_decision = || ErrorShape::invalid("invalid decision: allow-once, allow-always or deny");
    let parsed = ApprovalDecision::parse(&decision).ok_or_else(invalid_decision)?;
    let decided = approvals.decide(&id, parsed, request.principal()).await;
    decided.map_err(|error| error_shape(&error, request.generation()))?;
    Ok(json!({"ok": true}))
}

async fn get(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let GetParams { id } = request.params()?;
    let pending = approvals.pending().into_iter().find(|entry| entry.id == id);
    pending.map(|entry| entry.view()).ok_or_else(|| error_shape(&Error::Unknown(id), request.generation()))
}

async fn list(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let ListParams {} = request.params()?;
    Ok(approvals.pending().iter().map(Approval::requested).collect())
}

/// Default number of entries in the history.
const HISTORY: usize = 50;

/// Returns past decisions, newest first, as far as they are stored.
async fn history(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let HistoryParams { limit, kind } = request.params()?;
    let is_exec = kind.is_none_or(|kind| kind == "exec");
    let settled = approvals.settled().into_iter().filter(|_| is_exec).take(limit.unwrap_or(HISTORY));
    Ok(json!({"items": settled.filter_map(|entry| history_entry(&entry)).collect::<Vec<_>>()}))
}

/// Returns a decision as the control UI shows it.
fn history_entry(entry: &Approval) -> Option<Value> {
    let (status, decision, reason) = match entry.state {
        ApprovalState::Pending => return None,
        ApprovalState::AllowedOnce => ("allowed", Some("allow-once"), "user"),
        ApprovalState::AllowedAlways => ("allowed", Some("allow-always"), "user"),
        ApprovalState::Denied => ("denied", Some("deny"), "user"),
        ApprovalState::Expired => ("expired", None, "timeout"),
    };
    let mut document = json!({
        "id": entry.id, "urlPath": "/settings/approvals", "createdAtMs": entry.created_at_ms,
        "expiresAtMs": entry.expires_at_ms, "resolvedAtMs": entry.decided_at_ms.unwrap_or(entry.expires_at_ms),
        "presentation": {
            "kind": "exec", "commandText": entry.command, "agentId": entry.agent,
            "allowedDecisions": ["allow-once", "allow-always", "deny"],
        },
        "source": {"agentId": entry.agent}, "status": status, "reason": reason,
    });
    if let Some(decision) = decision {
        document["decision"] = decision.into();
    }
    Some(document)
}

async fn rules(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let PolicyParams {} = request.params()?;
    let rules = approvals.rules().await.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
    Ok(snapshot(&approvals, &rules))
}

async fn set_rules(mut request: MethodRequest, approvals: ExecApprovals) -> Result<Value, ErrorShape> {
    let SetPolicyParams { file, base_hash } = request.params()?;
    let invalid_params = |why: String| ErrorShape::invalid(format!("invalid exec.approvals.set params: {why}"));
    let policy = ApprovalPolicy::new(file).map_err(invalid_params)?;
    let rules = approvals.set_rules(policy, base_hash.as_deref()).await;
    Ok(snapshot(&approvals, &rules.map_err(|error| error_shape(&error, request.generation()))?))
}

fn snapshot(approvals: &ExecApprovals, rules: &ApprovalRules) -> Value {
    json!({"path": approvals.location(), "exists": rules.exists, "hash": rules.hash, "file": rules.policy.redacted()})
}

/// Maps an approval error to a response.
fn error_shape(error: &Error, generation: Generation) -> ErrorShape {
    let text = error.to_string();
    match error {
        Error::Unknown(_) | Error::Settled(..) | Error::Invalidated { .. } => match generation {
            Generation::Three => ErrorShape::invalid(text),
            Generation::Four => ErrorShape::new(Code::ApprovalNotFound, text),
        },
        Error::Invalid(_) => ErrorShape::invalid(text),
        Error::Full => ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(text) },
        Error::Store(_) => ErrorShape::unavailable(text),
    }
}
