//! Tests of approval requests, decisions and rules.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::AgentId;
use homard_runtime::{Ambient, task};
use homard_store::Error as StoreError;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    store::{ApprovalStore, MemoryApprovalStore},
    *,
};

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

#[tokio::test(start_paused = true)]
async fn an_approval_is_used_once() {
    let approvals = approvals().await;
    let id = allowed(&approvals).await;
    let consumed = approvals.consume(&id, test_fingerprint()).await.unwrap();
    assert_eq!(
        (consumed.state, consumed.used_at_ms, consumed.call),
        (ApprovalState::AllowedOnce, Some(START_MS), json!({"command": "git push"}))
    );
    assert_eq!(
        approvals.consume(&id, test_fingerprint()).await,
        Err(Error::Invalidated { id, why: "it was already used".to_owned() })
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_command_invalidates_its_approval() {
    type FingerprintChange = fn(&mut CommandFingerprint);
    let changes: [(&str, FingerprintChange); 9] = [
        ("the command", |changed| changed.argv.push("--force".to_owned())),
        ("its working directory", |changed| changed.cwd.ino += 1),
        ("its working directory", |changed| changed.cwd.path = "/v".to_owned()),
        ("its environment", |changed| changed.env = fingerprint::digest([("PATH", "/tmp")])),
        ("a program or file that it names", |changed| changed.files[0].ino += 1),
        ("a program or file that it names", |changed| changed.files[0].changed += 1),
        ("its session", |changed| changed.session = "agent:main:other".to_owned()),
        ("its run", |changed| changed.run = "run-2".to_owned()),
        ("its sandbox", |changed| changed.profile = "full".to_owned()),
    ];
    for (part, change) in changes {
        let approvals = approvals().await;
        let id = allowed(&approvals).await;
        let mut current = test_fingerprint();
        change(&mut current);
        let reason = format!("{part} has changed since the request");
        assert_eq!(approvals.consume(&id, current).await, Err(Error::Invalidated { id: id.clone(), why: reason }));
        // It stays invalid even if the change is reverted.
        assert_eq!(
            approvals.consume(&id, test_fingerprint()).await,
            Err(Error::Invalidated { id, why: "it was already used".to_owned() })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_valid_for_five_minutes() {
    let approvals = approvals().await;
    let id = allowed(&approvals).await;
    tokio::time::advance(APPROVAL_TIMEOUT).await;
    assert_eq!(
        approvals.consume(&id, test_fingerprint()).await,
        Err(Error::Invalidated { id, why: "it has expired".to_owned() })
    );
}

#[tokio::test(start_paused = true)]
async fn pending_denied_and_client_approvals_cannot_be_consumed() {
    let approvals = approvals().await;
    let id = approvals.request(params("git push")).await.unwrap().id;
    assert_eq!(
        approvals.consume(&id, test_fingerprint()).await,
        Err(Error::Settled(id.clone(), ApprovalState::Pending))
    );
    approvals.decide(&id, ApprovalDecision::Deny, "ann").await.unwrap();
    assert_eq!(approvals.consume(&id, test_fingerprint()).await, Err(Error::Settled(id, ApprovalState::Denied)));
    let client_id = approvals.request(ApprovalParams { fingerprint: None, ..params("ls") }).await.unwrap().id;
    approvals.decide(&client_id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    let reason = "it is for a command that the requesting client runs itself, not the gateway".to_owned();
    assert_eq!(
        approvals.consume(&client_id, test_fingerprint()).await,
        Err(Error::Invalidated { id: client_id, why: reason })
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_concurrent_decisions_counts() {
    for _ in 0..50 {
        let approvals = approvals().await;
        let id = approvals.request(params("git push")).await.unwrap().id;
        let (one, two) = tokio::join!(
            approvals.decide(&id, ApprovalDecision::AllowOnce, "ann"),
            approvals.decide(&id, ApprovalDecision::Deny, "bob")
        );
        let state = approvals.get(&id).unwrap().state;
        match (one, two) {
            (Ok(first), Err(error)) | (Err(error), Ok(first)) => {
                assert_eq!((first.state, error), (state, Error::Settled(id, state)));
            }
            both => panic!("{both:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_one_of_two_concurrent_uses_succeeds() {
    let approvals = approvals().await;
    let id = allowed(&approvals).await;
    let (one, two) =
        tokio::join!(approvals.consume(&id, test_fingerprint()), approvals.consume(&id, test_fingerprint()));
    assert_eq!([one.is_ok(), two.is_ok()].into_iter().filter(|is_ok| *is_ok).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_restores_pending_and_used_approvals() {
    let store = Arc::default();
    let before = approvals_on(&store).await;
    let used = allowed(&before).await;
    before.consume(&used, test_fingerprint()).await.unwrap();
    let open = allowed(&before).await;
    let pending = before.request(params("git push")).await.unwrap();
    let after = approvals_on(&store).await;
    assert_eq!(after.pending(), std::slice::from_ref(&pending));
    let mut unfinished: Vec<_> = after.unfinished().into_iter().map(|entry| entry.id).collect();
    unfinished.sort();
    let mut expected = vec![open.clone(), pending.id.clone()];
    expected.sort();
    assert_eq!(unfinished, expected);
    assert_eq!(
        after.consume(&used, test_fingerprint()).await,
        Err(Error::Invalidated { id: used, why: "it was already used".to_owned() })
    );
    assert!(after.consume(&open, test_fingerprint()).await.is_ok());
    after.decide(&pending.id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    assert!(after.consume(&pending.id, test_fingerprint()).await.is_ok());
}

#[test]
fn an_approval_is_stored_under_its_first_names() {
    let stored = json!({
        "id": "a", "agent": "main", "command": "ls", "told": {"cwd": "/w"}, "bound": null, "rules": [], "call": null,
        "createdAtMs": 1, "expiresAtMs": 2, "state": "pending", "decidedBy": null, "decidedAtMs": null, "usedAtMs": null,
    });
    let approval: Approval = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(approval.client_fields["cwd"], "/w");
    assert_eq!(serde_json::to_value(&approval).unwrap(), stored);
}

#[tokio::test(start_paused = true)]
async fn requests_expire_while_the_process_is_down() {
    let store = Arc::default();
    let id = approvals_on(&store).await.request(params("git push")).await.unwrap().id;
    let later = START_MS + 300_000;
    let approvals = ExecApprovals::open(store, Ambient::fixed(later)).await.unwrap();
    assert_eq!(approvals.pending(), []);
    assert_eq!(
        approvals.decide(&id, ApprovalDecision::AllowOnce, "ann").await,
        Err(Error::Settled(id.clone(), ApprovalState::Expired))
    );
    assert_eq!(approvals.wait(&id).await.unwrap().state, ApprovalState::Expired);
}

#[tokio::test(start_paused = true)]
async fn an_undecided_request_expires_and_publishes_an_event() {
    let approvals = approvals().await;
    let stop = CancellationToken::new();
    let mut events = approvals.subscribe();
    let running = task::spawn("desk", approvals.clone().run(stop.clone()));
    let id = approvals.request(params("git push")).await.unwrap().id;
    assert_eq!(events.recv().await.unwrap().0, "exec.approval.requested");
    let (event, payload) = events.recv().await.unwrap();
    assert_eq!((event, &payload["id"], &payload["decision"]), ("exec.approval.resolved", &json!(id), &json!("deny")));
    assert_eq!(payload["ts"], START_MS + 300_000);
    assert_eq!(approvals.get(&id).unwrap().state, ApprovalState::Expired);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wait_returns_the_decision_or_the_expiry() {
    let approvals = approvals().await;
    let answered = approvals.request(params("a")).await.unwrap().id;
    let (settled, _) =
        tokio::join!(approvals.wait(&answered), approvals.decide(&answered, ApprovalDecision::Deny, "ann"));
    assert_eq!(settled.unwrap().decision()["decision"], "deny");
    let late = approvals.request(params("b")).await.unwrap().id;
    assert_eq!(approvals.wait(&late).await.unwrap().decision()["decision"], Value::Null);
    assert_eq!(approvals.wait("nobody").await, None);
}

#[tokio::test(start_paused = true)]
async fn allow_always_stores_rules_for_the_agent_and_needs_a_rule() {
    let store = Arc::new(MemoryApprovalStore::with_policy(r#"{"version": 1, "by": "another"}"#));
    let approvals = approvals_on(&store).await;
    let id = approvals.request(params("git push")).await.unwrap().id;
    approvals.decide(&id, ApprovalDecision::AllowAlways, "ann").await.unwrap();
    let rules = approvals.rules().await.unwrap().policy.rules(&AgentId::main());
    assert_eq!(rules.len(), 1);
    assert!(rules[0].allows("/usr/bin/git", &["push".to_owned()], None));
    assert!(store.policy().await.unwrap().unwrap().contains("another"));
    assert!(approvals.consume(&id, test_fingerprint()).await.is_ok());
    let once = approvals.request(ApprovalParams { rules: Vec::new(), ..params("sh x") }).await.unwrap();
    assert_eq!(once.offers(), [ApprovalDecision::AllowOnce, ApprovalDecision::Deny]);
    assert!(matches!(approvals.decide(&once.id, ApprovalDecision::AllowAlways, "ann").await, Err(Error::Invalid(_))));
    assert_eq!(approvals.get(&once.id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn allow_always_fails_without_readable_rules() {
    let approvals = approvals_on(&Arc::new(MemoryApprovalStore::with_policy("{"))).await;
    let id = approvals.request(params("git push")).await.unwrap().id;
    assert!(matches!(approvals.decide(&id, ApprovalDecision::AllowAlways, "ann").await, Err(Error::Store(_))));
    assert_eq!(approvals.get(&id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn invalid_ids_are_rejected_with_sanitized_errors() {
    let approvals = approvals().await;
    for id in ["", "../x", "a b", "a\u{202e}b", "é", "a/b", "a\0", "__proto__\n", &"x".repeat(129)] {
        let requested = approvals.request(ApprovalParams { id: Some(id.to_owned()), ..params("ls") }).await;
        assert!(matches!(requested, Err(Error::Invalid(_))), "{id:?}");
        let error = approvals.decide(id, ApprovalDecision::Deny, "ann").await.unwrap_err().to_string();
        assert!(error.len() < 300 && !error.chars().any(char::is_control), "{error:?}");
    }
    let named = ApprovalParams { id: Some("a.b:c_d-1".to_owned()), ..params("ls") };
    approvals.request(named.clone()).await.unwrap();
    assert_eq!(approvals.request(named).await, Err(Error::Settled("a.b:c_d-1".to_owned(), ApprovalState::Pending)));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_too_long_to_display_is_rejected() {
    let approvals = approvals().await;
    let longest = approvals.request(params(&"x".repeat(display::MAX_COMMAND_BYTES))).await.unwrap();
    assert_eq!(longest.requested()["request"]["command"].as_str().unwrap().len(), display::MAX_COMMAND_BYTES);
    assert!(matches!(
        approvals.request(params(&"x".repeat(display::MAX_COMMAND_BYTES + 1))).await,
        Err(Error::Invalid(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn subagents_and_cron_runs_of_an_agent_share_one_queue_limit() {
    let approvals = approvals().await;
    let params_of = |session: &str| ApprovalParams {
        fingerprint: Some(CommandFingerprint { session: session.to_owned(), ..test_fingerprint() }),
        ..params("ls")
    };
    for number in 0..8 {
        approvals.request(params_of(&format!("agent:main:subagent:{number}"))).await.unwrap();
        approvals.request(params_of(&format!("agent:main:cron:job:{number}"))).await.unwrap();
    }
    for session in ["agent:main:subagent:99", "agent:main:cron:job:99"] {
        assert_eq!(approvals.request(params_of(session)).await, Err(Error::Full), "{session}");
    }
    for session in ["agent:main:main", "agent:ops:subagent:1", "agent:main:telegram:direct:1"] {
        assert!(approvals.request(params_of(session)).await.is_ok(), "{session}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_displaces_the_largest_requester() {
    let approvals = approvals().await;
    let params_of = |session: usize| ApprovalParams {
        fingerprint: Some(CommandFingerprint { session: format!("agent:main:{session}"), ..test_fingerprint() }),
        ..params("ls")
    };
    let mut ids = Vec::new();
    for session in 0..4 {
        for _ in 0..16 {
            ids.push(approvals.request(params_of(session)).await.unwrap().id);
        }
    }
    let mut events = approvals.subscribe();
    let own = approvals.request(params_of(9)).await.unwrap();
    let (event, payload) = events.recv().await.unwrap();
    let displaced = payload["id"].as_str().unwrap().to_owned();
    assert_eq!((event, ids.contains(&displaced)), ("exec.approval.resolved", true));
    assert_eq!(approvals.get(&displaced).unwrap().state, ApprovalState::Expired);
    assert_eq!(approvals.pending().len(), 64);
    // The smaller requester continues until all have about the same share, and is not displaced by a larger one.
    for _ in 0..10 {
        approvals.request(params_of(9)).await.unwrap();
    }
    assert_eq!(approvals.get(&own.id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn pending_requests_per_session_are_limited() {
    let approvals = approvals().await;
    let fingerprint_of =
        |session: usize| CommandFingerprint { session: format!("agent:main:{session}"), ..test_fingerprint() };
    for session in 0..4 {
        for _ in 0..16 {
            approvals
                .request(ApprovalParams { fingerprint: Some(fingerprint_of(session)), ..params("ls") })
                .await
                .unwrap();
        }
        assert_eq!(
            approvals.request(ApprovalParams { fingerprint: Some(fingerprint_of(session)), ..params("ls") }).await,
            Err(Error::Full)
        );
    }
    tokio::time::advance(APPROVAL_TIMEOUT).await;
    assert!(approvals.request(params("ls")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rules_are_replaced_only_with_the_current_hash() {
    let approvals = approvals().await;
    let policy =
        |agent: &str| ApprovalPolicy::parse(&json!({"version": 1, "agents": {agent: {}}}).to_string()).unwrap();
    let first = approvals.set_rules(policy("a"), None).await.unwrap();
    assert!(first.exists);
    assert!(matches!(approvals.set_rules(policy("b"), None).await, Err(Error::Invalid(_))));
    assert!(matches!(approvals.set_rules(policy("b"), Some("stale")).await, Err(Error::Invalid(_))));
    assert_eq!(approvals.rules().await.unwrap(), first);
    let second = approvals.set_rules(policy("b"), Some(&first.hash)).await.unwrap();
    assert_eq!(second.policy, policy("b"));
}

#[tokio::test(start_paused = true)]
async fn event_payloads_have_the_fields_of_both_protocol_generations() {
    let approvals = approvals().await;
    // A character that changes the text direction is shown as an escape sequence.
    let entry = approvals.request(params("git push\u{202e}")).await.unwrap();
    let request = json!({
        "cwd": "/w", "sessionKey": "agent:main:main", "command": "git push\\u{202e}", "agentId": "main", "host": null,
        "security": null, "ask": null, "resolvedPath": null, "allowedDecisions": ["allow-once", "allow-always", "deny"],
        "alwaysAllows": ["/usr/bin/git push"],
    });
    let expires = START_MS + 300_000;
    let id = &entry.id;
    let requested = json!({"id": id, "request": request, "createdAtMs": START_MS, "expiresAtMs": expires});
    assert_eq!(entry.requested(), requested);
    let decided = approvals.decide(id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    let resolved = json!({"id": id, "decision": "allow-once", "resolvedBy": "ann", "ts": START_MS, "request": request});
    // `ts` is the time of the decision; the time 7 would be used only for a request without one.
    assert_eq!(decided.resolved(7), resolved);
}

/// A store whose disk can be set to full.
#[derive(Debug, Default)]
struct Full(MemoryApprovalStore, AtomicBool);

#[async_trait]
impl ApprovalStore for Full {
    fn location(&self) -> String {
        self.0.location()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.0.load().await
    }

    async fn save(&self, approvals: Vec<Value>) -> Result<(), StoreError> {
        if self.1.load(Ordering::Relaxed) {
            Err(StoreError::Disk("full".to_owned()))
        } else {
            self.0.save(approvals).await
        }
    }

    async fn policy(&self) -> Result<Option<String>, StoreError> {
        self.0.policy().await
    }

    async fn set_policy(&self, text: String) -> Result<(), StoreError> {
        self.0.set_policy(text).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_stored_has_no_effect() {
    let store = Arc::new(Full::default());
    let approvals = ExecApprovals::open(store.clone(), Ambient::fixed(START_MS)).await.unwrap();
    let id = allowed(&approvals).await;
    let mut events = approvals.subscribe();
    store.1.store(true, Ordering::Relaxed);
    let full = Error::Store(StoreError::Disk("full".to_owned()));
    assert_eq!(approvals.consume(&id, test_fingerprint()).await, Err(full.clone()));
    assert_eq!(approvals.request(params("ls")).await, Err(full));
    assert!(events.try_recv().is_err());
    store.1.store(false, Ordering::Relaxed);
    assert!(approvals.consume(&id, test_fingerprint()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_stored_even_if_its_caller_is_dropped() {
    let approvals = approvals().await;
    let id = approvals.request(params("git push")).await.unwrap().id;
    {
        let deciding = approvals.decide(&id, ApprovalDecision::AllowOnce, "ann");
        tokio::pin!(deciding);
        let dropped = tokio::time::timeout(Duration::ZERO, &mut deciding).await;
        drop(dropped);
    }
    assert_eq!(approvals.wait(&id).await.unwrap().state, ApprovalState::AllowedOnce);
}
