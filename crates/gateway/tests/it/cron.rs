//! Scheduled jobs as clients of both protocol versions see them.

use serde_json::{Value, json};

use crate::support::{TestClient, TestGateway, says};

async fn error_of(socket: &mut TestClient, method: &str, params: Value) -> String {
    let answer = socket.ask("refused", method, params).await;
    assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")), "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

/// Returns the next matching event of this name.
async fn event(socket: &mut TestClient, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut frame = socket.next().await;
        if frame["event"] == name && is_wanted(&frame["payload"]) {
            return frame["payload"].take();
        }
    }
}

fn daily() -> Value {
    json!({
        "name": "Daily", "schedule": {"kind": "every", "everyMs": 86_400_000}, "sessionTarget": "isolated",
        "wakeMode": "now", "payload": {"kind": "agentTurn", "message": "look"}, "delivery": {"mode": "none"},
    })
}

async fn add(socket: &mut TestClient, job: Value) -> Value {
    let answer = socket.ask("add", "cron.add", job).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].clone()
}

/// Takes a number out of a value, so that the rest can be compared.
fn take_number(value: &mut Value) -> u64 {
    value.take().as_u64().unwrap()
}

#[tokio::test]
async fn a_job_is_created_updated_found_and_removed() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    let status = socket.ask("1", "cron.status", json!({})).await["payload"].take();
    assert_eq!(status, json!({"enabled": true, "storePath": "memory", "jobs": 0, "nextWakeAtMs": null}));

    let mut job = add(&mut socket, daily()).await;
    let id = job["id"].as_str().unwrap().to_owned();
    let next = job["state"]["nextRunAtMs"].as_u64().unwrap();
    let created = take_number(&mut job["createdAtMs"]);
    assert_eq!((take_number(&mut job["updatedAtMs"]), next), (created, created + 86_400_000));
    let mut expected = daily();
    expected["id"] = json!(id);
    expected["enabled"] = json!(true);
    expected["createdAtMs"] = Value::Null;
    expected["updatedAtMs"] = Value::Null;
    expected["state"] = json!({"nextRunAtMs": next});
    assert_eq!(job, expected);

    let status = socket.ask("2", "cron.status", json!({})).await["payload"].take();
    assert_eq!((&status["jobs"], &status["nextWakeAtMs"]), (&json!(1), &json!(next)));
    let patch = json!({"jobId": id, "patch": {"enabled": false, "name": "Never"}});
    let off = socket.ask("3", "cron.update", patch).await["payload"].take();
    assert_eq!(
        (&off["name"], &off["enabled"], off["state"].get("nextRunAtMs")),
        (&json!("Never"), &json!(false), None)
    );
    assert_eq!(socket.ask("4", "cron.list", json!({})).await["payload"], json!({"jobs": []}));
    let all = socket.ask("5", "cron.list", json!({"includeDisabled": true})).await["payload"].take();
    assert_eq!(all, json!({"jobs": [off]}));
    assert_eq!(socket.ask("6", "cron.get", json!({"id": id})).await["payload"], off);
    assert_eq!(
        socket.ask("7", "cron.remove", json!({"id": id})).await["payload"],
        json!({"ok": true, "removed": true})
    );
    assert_eq!(
        socket.ask("8", "cron.remove", json!({"id": id})).await["payload"],
        json!({"ok": true, "removed": false})
    );
}

#[tokio::test]
async fn newer_clients_get_pages_of_one_revision() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    for name in ["b", "a", "c"] {
        let mut job = daily();
        job["name"] = json!(name);
        add(&mut socket, job).await;
    }
    let params = json!({"limit": 2, "sortBy": "name", "trigger": "all", "scheduleKind": "all"});
    let mut first = socket.ask("1", "cron.list", params).await["payload"].take();
    let names: Vec<_> = first["jobs"].as_array().unwrap().iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    first["jobs"] = json!([]);
    let expected = json!({
        "jobs": [], "total": 3, "offset": 0, "limit": 2, "hasMore": true, "nextOffset": 2, "snapshotRevision": "4",
    });
    assert_eq!(first, expected);
    let rest = json!({"limit": 2, "offset": 2, "sortBy": "name", "sortDir": "asc", "enabled": "all"});
    let rest = socket.ask("2", "cron.list", rest).await["payload"].take();
    assert_eq!(
        (&rest["jobs"][0]["name"], &rest["hasMore"], &rest["nextOffset"]),
        (&json!("c"), &json!(false), &Value::Null)
    );
    let found = socket.ask("3", "cron.list", json!({"query": "B"})).await["payload"].take();
    assert_eq!((&found["total"], &found["jobs"][0]["name"]), (&json!(1), &json!("b")));
}

#[tokio::test]
async fn a_manually_started_job_is_published_to_all_clients() {
    let gateway = TestGateway::new(says(&["all quiet"])).await;
    let (mut old, mut new) = (gateway.client(3, json!({})).await, gateway.client(4, json!({})).await);
    let id = add(&mut old, daily()).await["id"].as_str().unwrap().to_owned();
    assert_eq!(event(&mut new, "cron", |_| true).await["action"], "added");
    let not_due = json!({"ok": true, "ran": false, "reason": "not-due"});
    assert_eq!(old.ask("1", "cron.run", json!({"id": id, "mode": "due"})).await["payload"], not_due);
    assert_eq!(old.ask("2", "cron.run", json!({"id": id})).await["payload"], json!({"ok": true, "ran": true}));
    let finished = event(&mut new, "cron", |cron| cron["action"] == "finished").await;
    assert_eq!((&finished["jobId"], &finished["status"]), (&json!(id), &json!("ok")));
    assert_eq!(
        (&finished["summary"], &finished["sessionKey"]),
        (&json!("all quiet"), &json!(format!("agent:main:cron:{id}")))
    );
    let entries = old.ask("3", "cron.runs", json!({"id": id})).await["payload"].take();
    assert_eq!(entries, json!({"entries": [finished]}));

    let again = new.ask("4", "cron.run", json!({"jobId": id, "mode": "force"})).await["payload"].take();
    assert_eq!((&again["ok"], &again["enqueued"]), (&json!(true), &json!(true)));
    let finished = event(&mut new, "cron", |cron| cron["action"] == "finished").await;
    assert_eq!(finished["runId"], again["runId"]);
    let runs = json!({"scope": "all", "limit": 1, "status": "all", "deliveryStatus": "unknown"});
    let page = new.ask("5", "cron.runs", runs).await["payload"].take();
    let expected = json!({
        "entries": [finished], "total": 2, "offset": 0, "limit": 1, "hasMore": true, "nextOffset": 1,
    });
    assert_eq!(page, expected);
    let oldest = json!({"scope": "all", "limit": 1, "sortDir": "asc"});
    assert_eq!(new.ask("6", "cron.runs", oldest).await["payload"]["entries"], entries["entries"]);
    for (statuses, count) in [(json!(["ok", "error"]), 2), (json!(["error"]), 0)] {
        let page = new.ask("7", "cron.runs", json!({"scope": "all", "statuses": statuses})).await;
        assert_eq!(page["payload"]["total"], count, "{page}");
    }
}

#[tokio::test]
async fn a_wake_reaches_the_main_session() {
    let gateway = TestGateway::new(says(&["HEARTBEAT_OK"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    assert_eq!(socket.ask("1", "last-heartbeat", json!({})).await["payload"], Value::Null);
    let wake = json!({"mode": "now", "text": "the post came"});
    assert_eq!(socket.ask("2", "wake", wake.clone()).await["payload"], json!({"ok": true}));
    let mut heartbeat = event(&mut socket, "heartbeat", |_| true).await;
    assert_eq!(socket.ask("3", "last-heartbeat", json!({})).await["payload"], heartbeat);
    take_number(&mut heartbeat["ts"]);
    take_number(&mut heartbeat["durationMs"]);
    let expected = json!({"ts": null, "status": "ok-token", "reason": "wake", "agentId": "main", "durationMs": null});
    assert_eq!(heartbeat, expected);
    let sessions = socket.ask("4", "sessions.list", json!({})).await["payload"].take();
    assert_eq!(sessions["sessions"][0]["key"], "agent:main:main");
    let off = socket.ask("5", "set-heartbeats", json!({"enabled": false})).await["payload"].take();
    assert_eq!(off, json!({"ok": true, "enabled": false}));
    socket.ask("6", "wake", wake).await;
    assert_eq!(event(&mut socket, "heartbeat", |_| true).await["reason"], "disabled");
}

#[tokio::test]
async fn invalid_cron_requests_are_rejected_with_a_message() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    let with = |name: &str, value: Value| {
        let mut job = daily();
        job[name] = value;
        job
    };
    for (method, params, why) in [
        (
            "cron.add",
            json!({"name": "x"}),
            "must have required property 'schedule'; must have required property 'payload'",
        ),
        ("cron.add", with("name", json!(" ")), "name must not be blank"),
        ("cron.add", with("agentId", json!("nobody")), "unknown agent id \"nobody\""),
        ("cron.add", with("trigger", json!({})), "at root: unexpected property 'trigger'"),
        (
            "cron.add",
            with("schedule", json!({"kind": "cron", "expr": "0 7 * * *", "tz": "Mars/Base"})),
            "schedule.tz \"Mars/Base\" is not a time zone; write one as Europe/Berlin",
        ),
        (
            "cron.add",
            with("schedule", json!({"kind": "at", "at": "soon"})),
            "schedule.at \"soon\" is not a time; write it as 2026-11-15T08:30:00Z",
        ),
        ("cron.update", json!({"id": "j9", "patch": {}}), "unknown cron job id: j9"),
        ("cron.run", json!({"id": "j9"}), "unknown cron job id: j9"),
        ("cron.get", json!({"id": "j9"}), "unknown cron job id: j9"),
        ("cron.remove", json!({}), "missing id"),
        ("cron.runs", json!({}), "missing id"),
        ("wake", json!({"mode": "now", "text": " "}), "text must not be blank"),
    ] {
        assert_eq!(error_of(&mut old, method, params).await, format!("invalid {method} params: {why}"));
    }
    let mut new = gateway.client(4, json!({})).await;
    let job = with("trigger", json!({"script": "true"}));
    assert_eq!(
        error_of(&mut new, "cron.add", job).await,
        "invalid cron.add params: trigger is not supported; leave it out"
    );
    let wake = json!({"mode": "now", "text": "x", "sessionKey": "agent:nobody:main"});
    assert_eq!(error_of(&mut new, "wake", wake).await, "invalid wake params: unknown agent id \"nobody\"");
}

#[tokio::test]
async fn reading_cron_needs_fewer_scopes_than_changing_it() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut reader = gateway.client(3, json!({"scopes": ["operator.read"]})).await;
    for method in ["cron.status", "cron.list", "last-heartbeat"] {
        assert_eq!(reader.ask("1", method, json!({})).await["ok"], true, "{method}");
    }
    let mut writer = gateway.client(3, json!({"scopes": ["operator.write"]})).await;
    assert_eq!(error_of(&mut reader, "wake", json!({})).await, "missing scope: operator.write");
    for method in ["cron.add", "cron.update", "cron.remove", "cron.run", "set-heartbeats"] {
        assert_eq!(error_of(&mut writer, method, json!({})).await, "missing scope: operator.admin", "{method}");
    }
}
