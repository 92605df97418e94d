//! Tests of the execution after a decision.

use std::{sync::Arc, time::Duration};

use homard_approvals::{
    APPROVAL_TIMEOUT, ApprovalDecision, ApprovalParams, ApprovalRule, CommandFingerprint, DirIdentity, FileIdentity,
    fingerprint, store::MemoryApprovalStore,
};
use homard_model::{candidates::Candidates, demo::Demo};
use homard_proto::AgentId;
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_store::{Fence, MemoryStore};
use serde_json::{Value, json};

use super::*;
use crate::{Agents, FencedStore, HubRules, Patch, Profile};

const START_MS: u64 = 1_800_000_000_000;

fn test_fingerprint() -> CommandFingerprint {
    let file = FileIdentity { path: "/usr/bin/git".to_owned(), dev: 1, ino: 2, size: 3, written: 4, changed: 5 };
    CommandFingerprint {
        argv: vec!["/usr/bin/git".to_owned(), "push".to_owned()],
        cwd: DirIdentity { path: "/w".to_owned(), dev: 1, ino: 9 },
        env: fingerprint::digest([("PATH", "/usr/bin")]),
        files: vec![file],
        session: "agent:main:main".to_owned(),
        run: "run-1".to_owned(),
        profile: "guarded".to_owned(),
        repository: None,
    }
}

fn params(command: &str) -> ApprovalParams {
    ApprovalParams {
        id: None,
        agent: AgentId::main(),
        command: command.to_owned(),
        fields: json!({"cwd": "/w", "sessionKey": "agent:main:main"}).as_object().unwrap().clone(),
        fingerprint: Some(test_fingerprint()),
        rules: vec![ApprovalRule::exact(test_fingerprint().argv)],
        call: json!({"command": command}),
        expires: APPROVAL_TIMEOUT,
    }
}

async fn approvals_on(store: &Arc<MemoryApprovalStore>) -> ExecApprovals {
    ExecApprovals::open(store.clone(), Ambient::fixed(START_MS)).await.unwrap()
}

async fn approvals() -> ExecApprovals {
    approvals_on(&Arc::default()).await
}

/// Requests and allows once.
async fn allowed(approvals: &ExecApprovals) -> String {
    let id = approvals.request(params("git push")).await.unwrap().id;
    approvals.decide(&id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    id
}

/// A hub, with access to the command results reported to the main session.
struct TestHub {
    hub: Hub,
}

impl TestHub {
    fn new() -> Self {
        let store = FencedStore::new(Arc::new(MemoryStore::default()), Fence::default());
        let profile = Profile::new(AgentId::main(), Candidates::single(Arc::new(Demo::default())));
        Self {
            hub: Hub::start(
                Ambient::fixed(START_MS),
                store,
                Agents::new(profile, []),
                Slots::default(),
                HubRules::default(),
            )
            .0,
        }
    }

    async fn reported_events(&self) -> Value {
        let history = self.hub.sessions().history(&AgentId::main().main_session()).await.unwrap();
        history.map(|(record, _)| record.extra.get("systemEvents").cloned().unwrap_or_default()).unwrap_or_default()
    }
}

/// A runner that only consumes the approval and reports the result.
fn consuming_runner(approvals: &ExecApprovals, fingerprint: CommandFingerprint) -> ApprovedRunner {
    let approvals = approvals.clone();
    ApprovedRunner::new(move |entry, _| {
        let (approvals, fingerprint) = (approvals.clone(), fingerprint.clone());
        async move {
            match approvals.consume(&entry.id, fingerprint).await {
                Ok(entry) => Followup::Ended(format!("Exec finished: {}", entry.command)),
                Err(error) => Followup::Ended(format!("Exec denied: {error}")),
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_an_approval_is_reported_to_its_session() {
    for (decision, expected) in [
        (Some(ApprovalDecision::AllowOnce), "Exec finished: git push"),
        (Some(ApprovalDecision::Deny), "Exec denied (approval ID): git push"),
        (None, "Exec denied (approval ID, no decision in time): git push"),
    ] {
        let (approvals, test_hub) = (approvals().await, TestHub::new());
        let id = approvals.request(params("git push")).await.unwrap().id;
        let runner = consuming_runner(&approvals, test_fingerprint());
        let answer = async {
            if let Some(decision) = decision {
                approvals.decide(&id, decision, "ann").await.unwrap();
            }
        };
        tokio::join!(follow(&approvals, &test_hub.hub, &id, &runner), answer);
        assert_eq!(test_hub.reported_events().await, json!([expected.replace("ID", &id)]));
    }
}

/// The run that requested the approval continued without a decision, so without a wake the session would stay silent
/// until its next message.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_an_approval_wakes_its_session() {
    for (decision, wakes, expected) in [
        (ApprovalDecision::AllowOnce, true, "System event: Exec finished: git push"),
        (ApprovalDecision::Deny, true, "System event: Exec denied (approval ID): git push"),
        (ApprovalDecision::AllowOnce, false, ""),
    ] {
        let (approvals, test_hub, key) = (approvals().await, TestHub::new(), AgentId::main().main_session());
        test_hub.hub.sessions().patch(&key, Patch::default()).await.unwrap();
        let call = json!({"command": "git push", "origin": {"principal": "owner"}});
        let id = approvals.request(ApprovalParams { call, ..params("git push") }).await.unwrap().id;
        approvals.decide(&id, decision, "ann").await.unwrap();
        follow(&approvals, &test_hub.hub, &id, &consuming_runner(&approvals, test_fingerprint()).waking(wakes)).await;
        // Longer than the delay that collects results, and than the run.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (_, entries) = test_hub.hub.sessions().history(&key).await.unwrap().unwrap();
        let text = format!("{entries:?}");
        assert_eq!(!entries.is_empty(), wakes, "{text}");
        assert!(text.contains(&expected.replace("ID", &id)), "{text}");
        assert_eq!(
            test_hub.reported_events().await,
            if wakes { Value::Null } else { json!(["Exec finished: git push"]) }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_runs_approved_commands_that_have_not_run() {
    let store = Arc::default();
    let before = approvals_on(&store).await;
    let done = allowed(&before).await;
    before.consume(&done, test_fingerprint()).await.unwrap();
    allowed(&before).await;
    let (approvals, test_hub) = (approvals_on(&store).await, TestHub::new());
    for task in resume(&approvals, &test_hub.hub, &consuming_runner(&approvals, test_fingerprint())) {
        task.await.unwrap();
    }
    assert_eq!(test_hub.reported_events().await, json!(["Exec finished: git push"]));
    assert_eq!(approvals.unfinished(), []);
}
