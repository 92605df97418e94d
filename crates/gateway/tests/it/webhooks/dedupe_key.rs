//! Repeated requests are processed once, also after a restart.

use serde_json::json;

use super::*;

/// Stops the gateway and starts another one with the same store.
async fn restart(gateway: TestGateway, store: &Arc<MemoryStore>, change: impl FnOnce(&mut Webhooks)) -> TestGateway {
    gateway.hub.lifecycle().shut_down().await;
    gateway.stop.cancel();
    timeout(PATIENCE, gateway.serving).await.expect("the gateway does not stop").unwrap();
    gateway_over(store.clone(), change).await
}

// R46.
#[tokio::test]
async fn ten_repeated_requests_are_one_run() {
    let store = Arc::new(MemoryStore::default());
    let mut gateway = gateway_over(store.clone(), |_| {}).await;
    let bearer = format!("Bearer {HOOK_TOKEN}");
    let lower = format!("bearer   {HOOK_TOKEN}");
    let bodies = [
        r#"{"message":"look","name":"Shop","wakeMode":"next-heartbeat"}"#,
        r#"{ "wakeMode": "next-heartbeat", "name": "Sh\u006fp", "message": "l\u006fok" }"#,
    ];
    let mut runs = Vec::new();
    let mut count = 0;
    for attempt in 0..10 {
        let mut headers = match attempt % 3 {
            0 => vec![("Authorization", bearer.as_str()), ("Idempotency-Key", "order-7")],
            1 => vec![("x-openclaw-idempotency-key", " order-7 "), ("X-OpenClaw-Token", HOOK_TOKEN)],
            _ => vec![("idempotency-key", "order-7"), ("authorization", lower.as_str()), ("X-Attempt", "2")],
        };
        if attempt % 2 == 0 {
            headers.reverse();
        }
        runs.push(send(gateway.address, "POST /hooks/agent", &headers, bodies[attempt % 2]).await.run());
        if attempt == 0 {
            assert_eq!(wait_for_events(&gateway, 1).await, ["Hook Shop: all done"]);
        }
        if attempt == 4 {
            count += prompts(&gateway).len();
            gateway = restart(gateway, &store, |_| {}).await;
        }
    }
    assert_eq!(runs, vec![runs[0].clone(); 10]);
    assert_eq!((count + prompts(&gateway).len(), events(&gateway).await), (1, vec!["Hook Shop: all done".to_owned()]));
    // No session was created for the repetitions.
    assert_eq!(gateway.hub.sessions().list().await.unwrap().len(), 2);

    let other = [("Idempotency-Key", "order-7")];
    let conflict = post_with(&gateway, "agent", &other, r#"{"message": "something else"}"#).await;
    assert_eq!(conflict.status, 409, "{conflict:?}");
    let long = [("Idempotency-Key", &*"x".repeat(256))];
    assert_eq!(post_with(&gateway, "agent", &long, bodies[0]).await.status, 400);
    let new = [("Idempotency-Key", "order-8")];
    assert_ne!(post_with(&gateway, "agent", &new, bodies[0]).await.run(), runs[0]);
}

#[tokio::test]
async fn concurrent_repeated_requests_are_one_run() {
    let gateway = gateway(|_| {}).await;
    let body = r#"{"message": "look", "wakeMode": "next-heartbeat", "idempotencyKey": "k"}"#;
    let sends = (0..8).map(|_| post_with(&gateway, "agent", &[], body));
    let runs: Vec<_> = futures_util::future::join_all(sends).await.iter().map(Answer::run).collect();
    assert_eq!(runs, vec![runs[0].clone(); 8]);
    assert_eq!(wait_for_events(&gateway, 1).await.len(), 1);
    assert_eq!(prompts(&gateway).len(), 1);
}

// R46.
#[tokio::test]
async fn an_event_sent_again_in_another_form_is_one_run() {
    let store = Arc::new(MemoryStore::default());
    let mail = |time: u64| json!({"messages": [{"id": "19a", "from": "ann", "subject": "Hi"}], "historyId": time});
    let gmail = |webhooks: &mut Webhooks| {
        let gmail = homard_gateway::Mapping::gmail();
        let wake = homard_schedule::job::WakeMode::NextHeartbeat;
        webhooks.mappings = vec![homard_gateway::Mapping { wake, ..gmail }];
    };
    let gateway = gateway_over(store.clone(), gmail).await;
    let run = post(&gateway, "gmail", mail(1)).await.run();
    assert_eq!(wait_for_events(&gateway, 1).await, ["Hook Gmail: all done"]);
    // A key added to the headers by an intermediary does not make it a different event.
    let key = [("Idempotency-Key", "fresh")];
    assert_eq!(post_with(&gateway, "gmail/", &key, &mail(2).to_string()).await.run(), run);
    let gateway = restart(gateway, &store, gmail).await;
    assert_eq!(post(&gateway, "gmail", mail(3)).await.run(), run);
    assert!(prompts(&gateway).is_empty());
    assert_eq!(gateway.hub.runs().find_session(&run).await.unwrap().unwrap().as_str(), "agent:main:hook:gmail:19a");
}

#[tokio::test]
async fn a_repeated_wake_is_delivered_once() {
    let store = Arc::new(MemoryStore::default());
    let mut gateway = gateway_over(store.clone(), |_| {}).await;
    let body = r#"{"text": "the tea is ready", "mode": "next-heartbeat"}"#;
    for attempt in 0..4 {
        let answer = post_with(&gateway, "wake", &[("Idempotency-Key", "tea")], body).await;
        assert_eq!(answer.json(), (200, json!({"ok": true, "mode": "next-heartbeat"})));
        if attempt == 1 {
            gateway = restart(gateway, &store, |_| {}).await;
        }
    }
    assert_eq!(events(&gateway).await, ["the tea is ready"]);
    let other = r#"{"text": "the tea is cold", "mode": "next-heartbeat"}"#;
    assert_eq!(post_with(&gateway, "wake", &[("Idempotency-Key", "tea")], other).await.status, 409);
    assert_eq!(events(&gateway).await, ["the tea is ready"]);
    post_with(&gateway, "wake", &[("Idempotency-Key", "cake")], body).await;
    assert_eq!(events(&gateway).await.len(), 2);
}

/// Runs recorded in the main session's record that are not reported yet.
async fn pending_runs(gateway: &TestGateway) -> Option<Value> {
    let sessions = gateway.hub.sessions().list().await.unwrap();
    let main = sessions.iter().find(|(key, _)| *key == main_session());
    main.and_then(|(_, record)| record.extra.get("webhookRuns").cloned())
}

/// Waits until nothing is recorded.
async fn wait_until_reported(gateway: &TestGateway) {
    let poll = async {
        while pending_runs(gateway).await.is_some() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, poll).await.expect("something stays noted");
}

#[tokio::test]
async fn an_unreported_run_is_reported_at_the_next_start() {
    let store = Arc::new(MemoryStore::default());
    let gateway = gateway_over(store.clone(), |_| {}).await;
    let run = post(&gateway, "agent", json!({"message": "look", "wakeMode": "next-heartbeat"})).await.run();
    assert_eq!(wait_for_events(&gateway, 1).await, ["Hook Hook: all done"]);
    wait_until_reported(&gateway).await;
    // As if the process had died after the end of one run, and another before its run was stored.
    let report = json!({"name": "Shop", "wakeMode": "next-heartbeat"});
    let runs = json!({run.as_str(): report, "hook-unknown": report, "hook-strange": 7});
    let changes = [("systemEvents".to_owned(), Value::Null), ("webhookRuns".to_owned(), runs)];
    let patch = homard_agent::Patch { expected: None, changes: changes.into_iter().collect() };
    gateway.hub.sessions().patch(&main_session(), patch).await.unwrap();

    let gateway = restart(gateway, &store, |_| {}).await;
    assert_eq!(wait_for_events(&gateway, 1).await, ["Hook Shop: all done"]);
    let poll = async {
        while pending_runs(&gateway).await != Some(json!({"hook-strange": 7})) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, poll).await.expect("what was told stays noted");
    assert_eq!(events(&gateway).await.len(), 1);
}

#[tokio::test]
async fn a_rejected_run_leaves_no_pending_report() {
    let gateway = gateway(|webhooks| webhooks.default_session_key = Some("hook:closed".to_owned())).await;
    let key = SessionKey::parse("hook:closed", &AgentId::main()).unwrap();
    let changes = [("sendPolicy".to_owned(), json!("deny"))].into_iter().collect();
    gateway.hub.sessions().patch(&key, homard_agent::Patch { expected: None, changes }).await.unwrap();
    let answer = post(&gateway, "agent", json!({"message": "look"})).await;
    assert_eq!(answer.json(), (403, json!({"ok": false, "error": "send blocked by session policy"})));
    assert_eq!(pending_runs(&gateway).await, None);
}
