//! Owner's approval for changes of protected files: the request, and the change once it is approved.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use homard_agent::{
    CommandOrigin, Hub,
    approved_commands::{ApprovedRunner, Followup, follow},
    tool::{ToolCx, ToolResult},
};
use homard_approvals::{
    APPROVAL_TIMEOUT, Approval, ApprovalParams, CommandFingerprint, DirIdentity, ExecApprovals, fingerprint,
};
use homard_runtime::task;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Consent, FileAccess, FileCall, ProposedChange};
use crate::{
    Error,
    apply_patch::apply_patch,
    edit::edit,
    error::{ArgumentError, MachineError, RefusedError},
    failure,
    write::write,
};

/// Sandbox profile recorded in approvals of file tools, which do not run in a sandbox.
const PROFILE: &str = "file tool";

/// Stored form of a call that waits for approval.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingChange {
    /// Name of the tool. Stored calls of `exec` do not have this field.
    file_tool: String,
    workspace: PathBuf,
    arguments: Value,
    /// Principal and route of the call. Missing in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<CommandOrigin>,
}

/// True if an approval request is about a file change.
pub(crate) fn is_change(entry: &Approval) -> bool {
    entry.call.get("fileTool").is_some()
}

impl FileAccess {
    /// Runs a tool that changes files. If the change needs approval, requests it and applies the change once approved.
    pub(crate) async fn change(&self, tool: &'static str, cx: ToolCx, arguments: Value) -> ToolResult {
        let consent = if cx.origin.is_owner() { Consent::Ask } else { Consent::Never };
        let call = FileCall { workdir: cx.workdir.clone(), cancel: cx.cancel.clone(), consent };
        match self.run(tool, call, arguments.clone()).await {
            Ok(result) => result,
            Err(Error::NeedsApproval(proposal)) => match self.ask(tool, &cx, arguments, *proposal).await {
                Ok(result) => result,
                Err(error) => failure(tool, &error),
            },
            Err(error) => failure(tool, &error),
        }
    }

    async fn run(&self, tool: &str, call: FileCall, arguments: Value) -> Result<ToolResult, Error> {
        let (files, tool) = (self.clone(), tool.to_owned());
        let apply = move || {
            files.locks.with_lock(&call.workdir, || match tool.as_str() {
                "write" => write(&files, &call, crate::parse(arguments)?),
                "edit" => edit(&files, &call, crate::parse(arguments)?),
                "apply_patch" => apply_patch(&files, &call, crate::parse(arguments)?),
                other => Err(Error::Argument(ArgumentError::NotAChange { tool: other.to_owned() })),
            })
        };
        tokio::task::spawn_blocking(apply).await.map_err(Error::Thread).flatten()
    }

    /// Creates an approval request. The tool call returns at once and reports that the change is pending.
    async fn ask(
        &self,
        tool: &str,
        cx: &ToolCx,
        arguments: Value,
        proposal: ProposedChange,
    ) -> Result<ToolResult, Error> {
        let refused = |reason: &str| {
            Error::Refused(RefusedError::Protected { path: proposal.paths.clone(), why: reason.to_owned() })
        };
        let Some((hub, exec_approvals)) = cx.hub.as_ref().and_then(|hub| Some((hub, hub.approvals()?))) else {
            return Err(refused("approvals are not available here"));
        };
        let (session, run) = (cx.session.as_str(), cx.run.as_str());
        let bound = fingerprint(tool, &proposal.text, &cx.workdir, session, run);
        let bound = bound
            .map_err(|source| Error::Machine(MachineError::Io { path: cx.workdir.display().to_string(), source }))?;
        let mut fields = Map::new();
        for (name, value) in [
            ("cwd", cx.workdir.display().to_string()),
            ("host", "gateway".to_owned()),
            ("sessionKey", session.to_owned()),
            ("runId", run.to_owned()),
            ("diff", proposal.text.clone()),
            ("warningText", format!("changes protected files: {}", proposal.paths)),
        ] {
            fields.insert(name.to_owned(), value.into());
        }
        let origin = Some(CommandOrigin::from(&cx.origin));
        let stored = PendingChange { file_tool: tool.to_owned(), workspace: cx.workdir.clone(), arguments, origin };
        let ticket = ApprovalParams {
            id: None,
            agent: cx.session.agent().unwrap_or(hub.agents().default_id()).clone(),
            command: proposal.text.clone(),
            fields,
            fingerprint: Some(bound),
            rules: Vec::new(),
            call: json!(stored),
            expires: APPROVAL_TIMEOUT,
        };
        let entry = exec_approvals.request(ticket).await.map_err(|error| refused(&error.to_string()))?;
        self.await_decision(hub, exec_approvals, &entry.id);
        let text = format!(
            "The change of {paths} waits for the owner's approval (approval {id}), because such files run code or \
             instruct agents. The request expires after 5 minutes. Do not make the change again: you will receive the \
             result as a message. To allow it: /approve {id} allow-once",
            paths = proposal.paths,
            id = entry.id
        );
        Ok(ToolResult::text(text).with_details(json!({
            "status": "approval-pending", "approvalId": entry.id, "expiresAtMs": entry.expires_at_ms,
        })))
    }

    fn await_decision(&self, hub: &Hub, exec_approvals: &ExecApprovals, id: &str) {
        let (hub, exec_approvals, id, later) =
            (hub.clone(), exec_approvals.clone(), id.to_owned(), self.approved_change_runner(exec_approvals));
        task::spawn("approved change", async move { follow(&exec_approvals, &hub, &id, &later).await });
    }

    /// Returns the callback that applies approved changes.
    fn approved_change_runner(&self, exec_approvals: &ExecApprovals) -> ApprovedRunner {
        let (files, exec_approvals) = (self.clone(), exec_approvals.clone());
        ApprovedRunner::new(move |entry, _| {
            let (files, exec_approvals) = (files.clone(), exec_approvals.clone());
            async move { Followup::Ended(files.apply_approved(&exec_approvals, entry).await) }
        })
    }

    /// Applies an approved change if it is still the one that was shown; returns a report.
    pub(crate) async fn apply_approved(&self, exec_approvals: &ExecApprovals, entry: Approval) -> String {
        match self.try_apply_approved(exec_approvals, &entry).await {
            Ok(result) => format!("Change made (approval {}): {}", entry.id, text_of(&result)),
            Err(reason) => format!("Change not made (approval {}): {reason}", entry.id),
        }
    }

    async fn try_apply_approved(&self, exec_approvals: &ExecApprovals, entry: &Approval) -> Result<ToolResult, String> {
        let stored: PendingChange = serde_json::from_value(entry.call.clone()).map_err(|error| error.to_string())?;
        let Some(approved) = &entry.fingerprint else { return Err("the approval has no fingerprint".to_owned()) };
        let current =
            fingerprint(&stored.file_tool, &entry.command, &stored.workspace, &approved.session, &approved.run);
        let current = current.map_err(|error| error.to_string())?;
        exec_approvals.consume(&entry.id, current).await.map_err(|error| error.to_string())?;
        let consent = Consent::Given(entry.command.clone());
        let call = FileCall { workdir: stored.workspace, cancel: CancellationToken::new(), consent };
        self.run(&stored.file_tool, call, stored.arguments).await.map_err(|error| error.to_string())
    }
}

fn text_of(result: &ToolResult) -> String {
    result.content.iter().filter_map(|block| block.as_text()).collect::<Vec<_>>().join("\n")
}

/// Returns what the approval is bound to: the tool, the complete text that was shown, and the directory.
fn fingerprint(tool: &str, text: &str, workdir: &Path, session: &str, run: &str) -> io::Result<CommandFingerprint> {
    let found = fs::metadata(workdir)?;
    Ok(CommandFingerprint {
        argv: vec![tool.to_owned(), text.to_owned()],
        cwd: DirIdentity { path: workdir.to_string_lossy().into_owned(), dev: found.dev(), ino: found.ino() },
        env: fingerprint::digest([]),
        files: Vec::new(),
        session: session.to_owned(),
        run: run.to_owned(),
        profile: PROFILE.to_owned(),
        repository: None,
    })
}
