//! Repeated requests are processed once, also after a restart.

use serde_json::json;

use super::*;

/// Stops the gateway and starts another one with the same store.
async fn again(world: TestGateway, store: &Arc<MemoryStore>, change: impl FnOnce(&mut Webhooks)) -> TestGateway {
    world.hub.shut_down().await;
    world.stop.cancel();
    timeout(PATIENCE, world.serving).await.expect("the gateway does not stop").unwrap();
    world_over(store.clone(), change).await
}

// R46.
#[tokio::test]
async fn ten_sends_are_one_run() {
    let store = Arc::new(MemoryStore::default());
    let mut world = world_over(store.clone(), |_| {}).await;
    let bearer = format!("Bearer {HOOK_TOKEN}");
    let lower = format!("bearer   {HOOK_TOKEN}");
    let bodies = [
        r#"{"message":"look","name":"Shop","wakeMode":"next-heartbeat"}"#,
        r#"{ "wakeMode": "next-heartbeat", "name": "Sh\u006fp", "message": "l\u006fok" }"#,
    ];
    let mut runs = Vec::new();
    let mut count = 0;
    for sent in 0..10 {
        let mut headers = match sent % 3 {
            0 => vec![("Authorization", bearer.as_str()), ("Idempotency-Key", "order-7")],
            1 => vec![("x-openclaw-idempotency-key", " order-7 "), ("X-OpenClaw-Token", HOOK_TOKEN)],
            _ => vec![("idempotency-key", "order-7"), ("authorization", lower.as_str()), ("X-Attempt", "2")],
        };
        if sent % 2 == 0 {
            headers.reverse();
        }
        runs.push(send(world.address, "POST /hooks/agent", &headers, bodies[sent % 2]).await.run());
        if sent == 0 {
            assert_eq!(told(&world, 1).await, ["Hook Shop: all done"]);
        }
        if sent == 4 {
            count += asked(&world).len();
            world = again(world, &store, |_| {}).await;
        }
    }
    assert_eq!(runs, vec![runs[0].clone(); 10]);
    assert_eq!((count + asked(&world).len(), events(&world).await), (1, vec!["Hook Shop: all done".to_owned()]));
    // No session was created for the repetitions.
    assert_eq!(world.hub.sessions().await.unwrap().len(), 2);

    let other = [("Idempotency-Key", "order-7")];
    let conflict = post_with(&world, "agent", &other, r#"{"message": "something else"}"#).await;
    assert_eq!(conflict.status, 409, "{conflict:?}");
    let long = [("Idempotency-Key", &*"x".repeat(256))];
    assert_eq!(post_with(&world, "agent", &long, bodies[0]).await.status, 400);
    let new = [("Idempotency-Key", "order-8")];
    assert_ne!(post_with(&world, "agent", &new, bodies[0]).await.run(), runs[0]);
}

#[tokio::test]
async fn at_the_same_time_it_is_one_run_too() {
    let world = world(|_| {}).await;
    let body = r#"{"message": "look", "wakeMode": "next-heartbeat", "idempotencyKey": "k"}"#;
    let sends = (0..8).map(|_| post_with(&world, "agent", &[], body));
    let runs: Vec<_> = futures_util::future::join_all(sends).await.iter().map(Answer::run).collect();
    assert_eq!(runs, vec![runs[0].clone(); 8]);
    assert_eq!(told(&world, 1).await.len(), 1);
    assert_eq!(asked(&world).len(), 1);
}

#[tokio::test]
async fn an_event_that_is_told_again_in_other_words_is_one_run() {
    let store = Arc::new(MemoryStore::default());
    let mail = |time: u64| json!({"messages": [{"id": "19a", "from": "ann", "subject": "Hi"}], "historyId": time});
    let gmail = |webhooks: &mut Webhooks| {
        let gmail = homard_gateway::Mapping::gmail();
        let wake = homard_agent::schedule::job::WakeMode::NextHeartbeat;
        webhooks.mappings = vec![homard_gateway::Mapping { wake, ..gmail }];
    };
    let world = world_over(store.clone(), gmail).await;
    let run = post(&world, "gmail", mail(1)).await.run();
    assert_eq!(told(&world, 1).await, ["Hook Gmail: all done"]);
    // A key added to the headers by an intermediary does not make it a different event.
    let key = [("Idempotency-Key", "fresh")];
    assert_eq!(post_with(&world, "gmail/", &key, &mail(2).to_string()).await.run(), run);
    let world = again(world, &store, gmail).await;
    assert_eq!(post(&world, "gmail", mail(3)).await.run(), run);
    assert!(asked(&world).is_empty());
    assert_eq!(world.hub.session_of_run(&run).await.unwrap().unwrap().as_str(), "agent:main:hook:gmail:19a");
}

#[tokio::test]
async fn the_main_session_is_told_once() {
    let store = Arc::new(MemoryStore::default());
    let mut world = world_over(store.clone(), |_| {}).await;
    let body = r#"{"text": "the tea is ready", "mode": "next-heartbeat"}"#;
    for sent in 0..4 {
        let answer = post_with(&world, "wake", &[("Idempotency-Key", "tea")], body).await;
        assert_eq!(answer.json(), (200, json!({"ok": true, "mode": "next-heartbeat"})));
        if sent == 1 {
            world = again(world, &store, |_| {}).await;
        }
    }
    assert_eq!(events(&world).await, ["the tea is ready"]);
    let other = r#"{"text": "the tea is cold", "mode": "next-heartbeat"}"#;
    assert_eq!(post_with(&world, "wake", &[("Idempotency-Key", "tea")], other).await.status, 409);
    assert_eq!(events(&world).await, ["the tea is ready"]);
    post_with(&world, "wake", &[("Idempotency-Key", "cake")], body).await;
    assert_eq!(events(&world).await.len(), 2);
}

/// Runs recorded in the main session's record that are not reported yet.
async fn noted(world: &TestGateway) -> Option<Value> {
    let sessions = world.hub.sessions().await.unwrap();
    let main = sessions.iter().find(|(key, _)| *key == main_session());
    main.and_then(|(_, record)| record.extra.get("webhookRuns").cloned())
}

/// Waits until nothing is recorded.
async fn settled(world: &TestGateway) {
    let waiting = async {
        while noted(world).await.is_some() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("something stays noted");
}

#[tokio::test]
async fn a_run_of_which_nobody_heard_is_told_by_the_next_start() {
    let store = Arc::new(MemoryStore::default());
    let world = world_over(store.clone(), |_| {}).await;
    let run = post(&world, "agent", json!({"message": "look", "wakeMode": "next-heartbeat"})).await.run();
    assert_eq!(told(&world, 1).await, ["Hook Hook: all done"]);
    settled(&world).await;
    // As if the process had died after the end of one run, and another before its run was stored.
    let mark = json!({"name": "Shop", "wakeMode": "next-heartbeat"});
    let runs = json!({run.as_str(): mark, "hook-unknown": mark, "hook-strange": 7});
    let changes = [("systemEvents".to_owned(), Value::Null), ("webhookRuns".to_owned(), runs)];
    let patch = homard_agent::Patch { expected: None, changes: changes.into_iter().collect() };
    world.hub.patch(&main_session(), patch).await.unwrap();

    let world = again(world, &store, |_| {}).await;
    assert_eq!(told(&world, 1).await, ["Hook Shop: all done"]);
    let waiting = async {
        while noted(&world).await != Some(json!({"hook-strange": 7})) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("what was told stays noted");
    assert_eq!(events(&world).await.len(), 1);
}

#[tokio::test]
async fn what_is_not_taken_in_is_not_noted() {
    let world = world(|webhooks| webhooks.default_session_key = Some("hook:closed".to_owned())).await;
    let key = SessionKey::parse("hook:closed", &AgentId::main()).unwrap();
    let changes = [("sendPolicy".to_owned(), json!("deny"))].into_iter().collect();
    world.hub.patch(&key, homard_agent::Patch { expected: None, changes }).await.unwrap();
    let answer = post(&world, "agent", json!({"message": "look"})).await;
    assert_eq!(answer.json(), (403, json!({"ok": false, "error": "send blocked by session policy"})));
    assert_eq!(noted(&world).await, None);
}
