//! Tests of approval requests, decisions and rules.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_model::{candidates::Candidates, demo::Demo};
use homard_proto::AgentId;
use homard_store::{Error as StoreError, Fence, MemoryStore, Store};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    follow::{ApprovedRunner, Followup, follow, resume},
    store::{ApprovalStore, MemoryApprovalStore},
    *,
};
use crate::{Agents, Ambient, Hub, Patch, Profile, Slots, task};

const BEGIN: u64 = 1_800_000_000_000;

fn bound() -> CommandFingerprint {
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

fn ticket(command: &str) -> ApprovalParams {
    ApprovalParams {
        id: None,
        agent: AgentId::main(),
        command: command.to_owned(),
        fields: json!({"cwd": "/w", "sessionKey": "agent:main:main"}).as_object().unwrap().clone(),
        fingerprint: Some(bound()),
        rules: vec![ApprovalRule::exact(bound().argv)],
        call: json!({"command": command}),
        expires: APPROVAL_TIMEOUT,
    }
}

async fn desk_on(shelf: &Arc<MemoryApprovalStore>) -> ExecApprovals {
    ExecApprovals::open(shelf.clone(), Ambient::fixed(BEGIN)).await.unwrap()
}

async fn desk() -> ExecApprovals {
    desk_on(&Arc::default()).await
}

/// Requests and allows once.
async fn allowed(desk: &ExecApprovals) -> String {
    let id = desk.request(ticket("git push")).await.unwrap().id;
    desk.decide(&id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn what_was_allowed_runs_once() {
    let desk = desk().await;
    let id = allowed(&desk).await;
    let taken = desk.consume(&id, bound()).await.unwrap();
    assert_eq!(
        (taken.state, taken.used_at_ms, taken.call),
        (ApprovalState::AllowedOnce, Some(BEGIN), json!({"command": "git push"}))
    );
    assert_eq!(desk.consume(&id, bound()).await, Err(Error::Invalidated { id, why: "it was already used".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_that_is_not_what_was_allowed() {
    type FingerprintChange = fn(&mut CommandFingerprint);
    let changes: [(&str, FingerprintChange); 9] = [
        ("the command", |bound| bound.argv.push("--force".to_owned())),
        ("its working directory", |bound| bound.cwd.ino += 1),
        ("its working directory", |bound| bound.cwd.path = "/v".to_owned()),
        ("its environment", |bound| bound.env = fingerprint::digest([("PATH", "/tmp")])),
        ("a program or file that it names", |bound| bound.files[0].ino += 1),
        ("a program or file that it names", |bound| bound.files[0].changed += 1),
        ("its session", |bound| bound.session = "agent:main:other".to_owned()),
        ("its run", |bound| bound.run = "run-2".to_owned()),
        ("its sandbox", |bound| bound.profile = "full".to_owned()),
    ];
    for (what, change) in changes {
        let desk = desk().await;
        let id = allowed(&desk).await;
        let mut other = bound();
        change(&mut other);
        let why = format!("{what} has changed since the request");
        assert_eq!(desk.consume(&id, other).await, Err(Error::Invalidated { id: id.clone(), why }));
        // Nor if it is changed back.
        assert_eq!(
            desk.consume(&id, bound()).await,
            Err(Error::Invalidated { id, why: "it was already used".to_owned() })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_five_minutes() {
    let desk = desk().await;
    let id = allowed(&desk).await;
    tokio::time::advance(APPROVAL_TIMEOUT).await;
    assert_eq!(desk.consume(&id, bound()).await, Err(Error::Invalidated { id, why: "it has expired".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn what_was_not_allowed_does_not_run() {
    let desk = desk().await;
    let id = desk.request(ticket("git push")).await.unwrap().id;
    assert_eq!(desk.consume(&id, bound()).await, Err(Error::Settled(id.clone(), ApprovalState::Pending)));
    desk.decide(&id, ApprovalDecision::Deny, "ann").await.unwrap();
    assert_eq!(desk.consume(&id, bound()).await, Err(Error::Settled(id, ApprovalState::Denied)));
    let elsewhere = desk.request(ApprovalParams { fingerprint: None, ..ticket("ls") }).await.unwrap().id;
    desk.decide(&elsewhere, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    let why = "the client that requested it runs the command itself".to_owned();
    assert_eq!(desk.consume(&elsewhere, bound()).await, Err(Error::Invalidated { id: elsewhere, why }));
}

#[tokio::test(start_paused = true)]
async fn of_two_who_decide_at_once_one_is_the_first() {
    for _ in 0..50 {
        let desk = desk().await;
        let id = desk.request(ticket("git push")).await.unwrap().id;
        let (one, two) = tokio::join!(
            desk.decide(&id, ApprovalDecision::AllowOnce, "ann"),
            desk.decide(&id, ApprovalDecision::Deny, "bob")
        );
        let state = desk.get(&id).unwrap().state;
        match (one, two) {
            (Ok(first), Err(error)) | (Err(error), Ok(first)) => {
                assert_eq!((first.state, error), (state, Error::Settled(id, state)));
            }
            both => panic!("{both:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_who_use_it_at_once_one_does() {
    let desk = desk().await;
    let id = allowed(&desk).await;
    let (one, two) = tokio::join!(desk.consume(&id, bound()), desk.consume(&id, bound()));
    assert_eq!([one.is_ok(), two.is_ok()].into_iter().filter(|is_ok| *is_ok).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_what_waits_and_what_was_used() {
    let shelf = Arc::default();
    let before = desk_on(&shelf).await;
    let used = allowed(&before).await;
    before.consume(&used, bound()).await.unwrap();
    let open = allowed(&before).await;
    let waits = before.request(ticket("git push")).await.unwrap();
    let after = desk_on(&shelf).await;
    assert_eq!(after.pending(), std::slice::from_ref(&waits));
    let mut unfinished: Vec<_> = after.unfinished().into_iter().map(|entry| entry.id).collect();
    unfinished.sort();
    let mut expected = vec![open.clone(), waits.id.clone()];
    expected.sort();
    assert_eq!(unfinished, expected);
    assert_eq!(
        after.consume(&used, bound()).await,
        Err(Error::Invalidated { id: used, why: "it was already used".to_owned() })
    );
    assert!(after.consume(&open, bound()).await.is_ok());
    after.decide(&waits.id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    assert!(after.consume(&waits.id, bound()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_expired_while_nobody_was_there_has_expired() {
    let shelf = Arc::default();
    let id = desk_on(&shelf).await.request(ticket("git push")).await.unwrap().id;
    let later = BEGIN + 300_000;
    let desk = ExecApprovals::open(shelf, Ambient::fixed(later)).await.unwrap();
    assert_eq!(desk.pending(), []);
    assert_eq!(
        desk.decide(&id, ApprovalDecision::AllowOnce, "ann").await,
        Err(Error::Settled(id.clone(), ApprovalState::Expired))
    );
    assert_eq!(desk.wait(&id).await.unwrap().state, ApprovalState::Expired);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_ends_by_itself_and_everybody_hears_it() {
    let desk = desk().await;
    let stop = CancellationToken::new();
    let mut news = desk.subscribe();
    let running = task::spawn("desk", desk.clone().run(stop.clone()));
    let id = desk.request(ticket("git push")).await.unwrap().id;
    assert_eq!(news.recv().await.unwrap().0, "exec.approval.requested");
    let (event, payload) = news.recv().await.unwrap();
    assert_eq!((event, &payload["id"], &payload["decision"]), ("exec.approval.resolved", &json!(id), &json!("deny")));
    assert_eq!(payload["ts"], BEGIN + 300_000);
    assert_eq!(desk.get(&id).unwrap().state, ApprovalState::Expired);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_hears_the_answer_or_the_end() {
    let desk = desk().await;
    let answered = desk.request(ticket("a")).await.unwrap().id;
    let (heard, _) = tokio::join!(desk.wait(&answered), desk.decide(&answered, ApprovalDecision::Deny, "ann"));
    assert_eq!(heard.unwrap().decision()["decision"], "deny");
    let late = desk.request(ticket("b")).await.unwrap().id;
    assert_eq!(desk.wait(&late).await.unwrap().decision()["decision"], Value::Null);
    assert_eq!(desk.wait("nobody").await, None);
}

#[tokio::test(start_paused = true)]
async fn always_is_remembered_for_its_agent_and_offered_only_if_there_is_a_rule() {
    let shelf = Arc::new(MemoryApprovalStore::with_policy(r#"{"version": 1, "by": "another"}"#));
    let desk = desk_on(&shelf).await;
    let id = desk.request(ticket("git push")).await.unwrap().id;
    desk.decide(&id, ApprovalDecision::AllowAlways, "ann").await.unwrap();
    let rules = desk.rules().await.unwrap().policy.rules(&AgentId::main());
    assert_eq!(rules.len(), 1);
    assert!(rules[0].allows("/usr/bin/git", &["push".to_owned()], None));
    assert!(shelf.policy().await.unwrap().unwrap().contains("another"));
    assert!(desk.consume(&id, bound()).await.is_ok());
    let once = desk.request(ApprovalParams { rules: Vec::new(), ..ticket("sh x") }).await.unwrap();
    assert_eq!(once.offers(), [ApprovalDecision::AllowOnce, ApprovalDecision::Deny]);
    assert!(matches!(desk.decide(&once.id, ApprovalDecision::AllowAlways, "ann").await, Err(Error::Invalid(_))));
    assert_eq!(desk.get(&once.id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn always_without_readable_rules_allows_nothing() {
    let desk = desk_on(&Arc::new(MemoryApprovalStore::with_policy("{"))).await;
    let id = desk.request(ticket("git push")).await.unwrap().id;
    assert!(matches!(desk.decide(&id, ApprovalDecision::AllowAlways, "ann").await, Err(Error::Store(_))));
    assert_eq!(desk.get(&id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn hostile_names_are_refused_and_told_harmlessly() {
    let desk = desk().await;
    for id in ["", "../x", "a b", "a\u{202e}b", "é", "a/b", "a\0", "__proto__\n", &"x".repeat(129)] {
        let asked = desk.request(ApprovalParams { id: Some(id.to_owned()), ..ticket("ls") }).await;
        assert!(matches!(asked, Err(Error::Invalid(_))), "{id:?}");
        let told = desk.decide(id, ApprovalDecision::Deny, "ann").await.unwrap_err().to_string();
        assert!(told.len() < 300 && !told.chars().any(char::is_control), "{told:?}");
    }
    let named = ApprovalParams { id: Some("a.b:c_d-1".to_owned()), ..ticket("ls") };
    desk.request(named.clone()).await.unwrap();
    assert_eq!(desk.request(named).await, Err(Error::Settled("a.b:c_d-1".to_owned(), ApprovalState::Pending)));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_cannot_be_shown_whole_cannot_be_asked() {
    let desk = desk().await;
    let longest = desk.request(ticket(&"x".repeat(display::MAX_COMMAND_BYTES))).await.unwrap();
    assert_eq!(longest.requested()["request"]["command"].as_str().unwrap().len(), display::MAX_COMMAND_BYTES);
    assert!(matches!(desk.request(ticket(&"x".repeat(display::MAX_COMMAND_BYTES + 1))).await, Err(Error::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn l10_an_agent_and_all_that_it_started_have_one_share_of_the_queue() {
    let desk = desk().await;
    let of = |session: &str| ApprovalParams {
        fingerprint: Some(CommandFingerprint { session: session.to_owned(), ..bound() }),
        ..ticket("ls")
    };
    for number in 0..8 {
        desk.request(of(&format!("agent:main:subagent:{number}"))).await.unwrap();
        desk.request(of(&format!("agent:main:cron:job:{number}"))).await.unwrap();
    }
    for session in ["agent:main:subagent:99", "agent:main:cron:job:99"] {
        assert_eq!(desk.request(of(session)).await, Err(Error::Full), "{session}");
    }
    for session in ["agent:main:main", "agent:ops:subagent:1", "agent:main:telegram:direct:1"] {
        assert!(desk.request(of(session)).await.is_ok(), "{session}");
    }
}

#[tokio::test(start_paused = true)]
async fn l10_a_full_queue_makes_room_for_who_asks_less() {
    let desk = desk().await;
    let of = |session: usize| ApprovalParams {
        fingerprint: Some(CommandFingerprint { session: format!("agent:main:{session}"), ..bound() }),
        ..ticket("ls")
    };
    let mut asked = Vec::new();
    for session in 0..4 {
        for _ in 0..16 {
            asked.push(desk.request(of(session)).await.unwrap().id);
        }
    }
    let mut news = desk.subscribe();
    let mine = desk.request(of(9)).await.unwrap();
    let (event, payload) = news.recv().await.unwrap();
    let displaced = payload["id"].as_str().unwrap().to_owned();
    assert_eq!((event, asked.contains(&displaced)), ("exec.approval.resolved", true));
    assert_eq!(desk.get(&displaced).unwrap().state, ApprovalState::Expired);
    assert_eq!(desk.pending().len(), 64);
    // The smaller requester continues until all have about the same share, and is not displaced by a larger one.
    for _ in 0..10 {
        desk.request(of(9)).await.unwrap();
    }
    assert_eq!(desk.get(&mine.id).unwrap().state, ApprovalState::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_questions_is_stopped() {
    let desk = desk().await;
    let of = |session: usize| CommandFingerprint { session: format!("agent:main:{session}"), ..bound() };
    for session in 0..4 {
        for _ in 0..16 {
            desk.request(ApprovalParams { fingerprint: Some(of(session)), ..ticket("ls") }).await.unwrap();
        }
        assert_eq!(
            desk.request(ApprovalParams { fingerprint: Some(of(session)), ..ticket("ls") }).await,
            Err(Error::Full)
        );
    }
    tokio::time::advance(APPROVAL_TIMEOUT).await;
    assert!(desk.request(ticket("ls")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rules_are_replaced_only_by_who_has_read_them() {
    let desk = desk().await;
    let policy =
        |agent: &str| ApprovalPolicy::parse(&json!({"version": 1, "agents": {agent: {}}}).to_string()).unwrap();
    let first = desk.set_rules(policy("a"), None).await.unwrap();
    assert!(first.exists);
    assert!(matches!(desk.set_rules(policy("b"), None).await, Err(Error::Invalid(_))));
    assert!(matches!(desk.set_rules(policy("b"), Some("stale")).await, Err(Error::Invalid(_))));
    assert_eq!(desk.rules().await.unwrap(), first);
    let second = desk.set_rules(policy("b"), Some(&first.hash)).await.unwrap();
    assert_eq!(second.policy, policy("b"));
}

#[tokio::test(start_paused = true)]
async fn what_is_told_has_the_members_of_both_generations() {
    let desk = desk().await;
    let entry = desk.request(ticket("git push\u{202e}")).await.unwrap();
    let request = json!({
        "cwd": "/w", "sessionKey": "agent:main:main", "command": "git push\\u{202e}", "agentId": "main", "host": null,
        "security": null, "ask": null, "resolvedPath": null, "allowedDecisions": ["allow-once", "allow-always", "deny"],
        "alwaysAllows": ["/usr/bin/git push"],
    });
    let expires = BEGIN + 300_000;
    let id = &entry.id;
    let requested = json!({"id": id, "request": request, "createdAtMs": BEGIN, "expiresAtMs": expires});
    assert_eq!(entry.requested(), requested);
    let decided = desk.decide(id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    let resolved = json!({"id": id, "decision": "allow-once", "resolvedBy": "ann", "ts": BEGIN, "request": request});
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
async fn what_cannot_be_stored_has_not_happened() {
    let shelf = Arc::new(Full::default());
    let desk = ExecApprovals::open(shelf.clone(), Ambient::fixed(BEGIN)).await.unwrap();
    let id = allowed(&desk).await;
    let mut news = desk.subscribe();
    shelf.1.store(true, Ordering::Relaxed);
    let full = Error::Store(StoreError::Disk("full".to_owned()));
    assert_eq!(desk.consume(&id, bound()).await, Err(full.clone()));
    assert_eq!(desk.request(ticket("ls")).await, Err(full));
    assert!(news.try_recv().is_err());
    shelf.1.store(false, Ordering::Relaxed);
    assert!(desk.consume(&id, bound()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_stored_also_when_its_giver_leaves() {
    let desk = desk().await;
    let id = desk.request(ticket("git push")).await.unwrap().id;
    {
        let deciding = desk.decide(&id, ApprovalDecision::AllowOnce, "ann");
        tokio::pin!(deciding);
        let gone = tokio::time::timeout(Duration::ZERO, &mut deciding).await;
        drop(gone);
    }
    assert_eq!(desk.wait(&id).await.unwrap().state, ApprovalState::AllowedOnce);
}

/// A hub, with access to the command results reported to the main session.
struct TestHub {
    hub: Hub,
}

impl TestHub {
    fn new() -> Self {
        let store = (Arc::new(MemoryStore::default()) as Arc<dyn Store>, Fence::default());
        let profile = Profile::new(AgentId::main(), Candidates::single(Arc::new(Demo::default())));
        Self { hub: Hub::start(Ambient::fixed(BEGIN), store, Agents::new(profile, []), Slots::default()).0 }
    }

    async fn told(&self) -> Value {
        let history = self.hub.history(&AgentId::main().main_session()).await.unwrap();
        history.map(|(record, _)| record.extra.get("systemEvents").cloned().unwrap_or_default()).unwrap_or_default()
    }
}

/// Consumes the approval and says so.
fn later(desk: &ExecApprovals, bound: CommandFingerprint) -> ApprovedRunner {
    let desk = desk.clone();
    ApprovedRunner::new(move |entry, _| {
        let (desk, bound) = (desk.clone(), bound.clone());
        async move {
            match desk.consume(&entry.id, bound).await {
                Ok(entry) => Followup::Ended(format!("Exec finished: {}", entry.command)),
                Err(error) => Followup::Ended(format!("Exec denied: {error}")),
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_session_hears_what_came_of_its_question() {
    for (verdict, expected) in [
        (Some(ApprovalDecision::AllowOnce), "Exec finished: git push"),
        (Some(ApprovalDecision::Deny), "Exec denied (approval ID): git push"),
        (None, "Exec denied (approval ID, no decision in time): git push"),
    ] {
        let (desk, house) = (desk().await, TestHub::new());
        let id = desk.request(ticket("git push")).await.unwrap().id;
        let later = later(&desk, bound());
        let answer = async {
            if let Some(verdict) = verdict {
                desk.decide(&id, verdict, "ann").await.unwrap();
            }
        };
        tokio::join!(follow(&desk, &house.hub, &id, &later), answer);
        assert_eq!(house.told().await, json!([expected.replace("ID", &id)]));
    }
}

/// The run that requested the approval continued without a decision, so without a wake the session would stay silent until
/// its next message.
#[tokio::test(start_paused = true)]
async fn a_session_is_woken_for_what_came_of_its_question() {
    for (verdict, wakes, expected) in [
        (ApprovalDecision::AllowOnce, true, "System event: Exec finished: git push"),
        (ApprovalDecision::Deny, true, "System event: Exec denied (approval ID): git push"),
        (ApprovalDecision::AllowOnce, false, ""),
    ] {
        let (desk, house, key) = (desk().await, TestHub::new(), AgentId::main().main_session());
        house.hub.patch(&key, Patch::default()).await.unwrap();
        let call = json!({"command": "git push", "origin": {"principal": "owner"}});
        let id = desk.request(ApprovalParams { call, ..ticket("git push") }).await.unwrap().id;
        desk.decide(&id, verdict, "ann").await.unwrap();
        follow(&desk, &house.hub, &id, &later(&desk, bound()).waking(wakes)).await;
        // Later than the pause in which ends are gathered, and than everything that a run does.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (_, entries) = house.hub.history(&key).await.unwrap().unwrap();
        let text = format!("{entries:?}");
        assert_eq!(!entries.is_empty(), wakes, "{text}");
        assert!(text.contains(&expected.replace("ID", &id)), "{text}");
        assert_eq!(house.told().await, if wakes { Value::Null } else { json!(["Exec finished: git push"]) });
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_runs_what_was_allowed_and_has_not_run() {
    let shelf = Arc::default();
    let before = desk_on(&shelf).await;
    let done = allowed(&before).await;
    before.consume(&done, bound()).await.unwrap();
    allowed(&before).await;
    let (desk, house) = (desk_on(&shelf).await, TestHub::new());
    for task in resume(&desk, &house.hub, &later(&desk, bound())) {
        task.await.unwrap();
    }
    assert_eq!(house.told().await, json!(["Exec finished: git push"]));
    assert_eq!(desk.unfinished(), []);
}
