//! M5: what leaves the machine without a web tool: messages to other chats, jobs that announce, media and previews of
//! replies.

use std::fs;

use serde_json::{Value, json};

use super::stage::{Stage, soon};
use crate::{
    home::until,
    scripted_model::{self, call},
};

async fn stage(mut config: Value) -> Stage {
    let channels = json!({"telegram": {"allowFrom": [7, 8], "groups": {"-100": {}}}});
    config["commands"]["ownerAllowFrom"] = json!(["telegram:7"]);
    Stage::answering(channels, config, scripted_model::obey).await
}

fn send(target: &str) -> Value {
    json!({"action": "send", "channel": "telegram", "target": target, "message": "words"})
}

/// Returns a job that announces its reply in this chat.
fn job(to: &str) -> Value {
    json!({
        "name": "beacon", "schedule": {"kind": "every", "everyMs": 3_600_000}, "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "look"},
        "delivery": {"mode": "announce", "channel": "telegram", "to": to},
    })
}

/// Returns the egress rows of the audit log: outcome and details.
fn noted(stage: &Stage) -> Vec<(String, Value)> {
    let folder = fs::read_dir(stage.home().state().join("audit")).into_iter().flatten().flatten();
    let files = folder.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let text: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    // The last line may be incomplete.
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let rows = rows.filter(|row| row["what"] == "egress");
    rows.map(|mut row| (row["outcome"].as_str().unwrap().to_owned(), row["more"].take())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_model_writes_only_to_chats_that_the_owner_named() {
    let stage = stage(json!({"tools": {"deny": ["group:web"]}})).await;
    let gateway = stage.gateway();
    let strange =
        ["31337", "telegram:31337", "@evilchannel", "t.me/evilchannel", "-100500", "-100500:topic:3", "+31337"];
    for target in strange {
        let told = call(&gateway, "message", &send(target));
        assert!(told.contains("tools.message.allowTo"), "{target}: {told}");
    }
    let many = json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "31337"], "message": "words"});
    assert!(call(&gateway, "message", &many).contains("tools.message.allowTo"));
    let added = call(&gateway, "cron", &json!({"action": "add", "job": job("31337")}));
    assert!(added.contains("tools.message.allowTo"), "{added}");
    let mut open = job("31337");
    open["delivery"].as_object_mut().unwrap().remove("channel");
    assert!(call(&gateway, "cron", &json!({"action": "add", "job": open})).contains("tools.message.allowTo"));
    let mut old = job("7");
    old.as_object_mut().unwrap().remove("delivery");
    old["payload"]["to"] = json!("31337");
    assert!(call(&gateway, "cron", &json!({"action": "add", "job": old})).contains("tools.message.allowTo"));
    assert_eq!(stage.telegram.visible_messages().len(), 0);

    let added: Value =
        serde_json::from_str(&call(&gateway, "cron", &json!({"action": "add", "job": job("8")}))).unwrap();
    let patch = json!({"action": "update", "jobId": added["id"], "patch": {"delivery": {"to": "31337"}}});
    assert!(call(&gateway, "cron", &patch).contains("tools.message.allowTo"));
    let jobs: Value = serde_json::from_str(&call(&gateway, "cron", &json!({"action": "list"}))).unwrap();
    let to: Vec<_> = jobs["jobs"].as_array().unwrap().iter().map(|job| job["delivery"]["to"].clone()).collect();
    assert_eq!(to, [json!("8")]);

    for target in ["7", "telegram:8", "-100", "-100:topic:3"] {
        let told = call(&gateway, "message", &send(target));
        assert!(told.contains("\"ok\": true"), "{target}: {told}");
    }
    assert_eq!(stage.telegram.visible_messages().len(), 4);
    for (tool, to, outcome) in [
        ("message", "31337", "refused"),
        ("message", "@evilchannel", "refused"),
        ("cron", "31337", "refused"),
        ("cron", "8", "scheduled"),
        ("message", "-100", "ok"),
    ] {
        let more = json!({"tool": tool, "channel": "telegram", "to": to});
        until("a row of the audit log", || noted(&stage).contains(&(outcome.to_owned(), more.clone())));
    }
    // A user at the command line may write to anyone.
    let sent = gateway.run(&["message", "send", "--to", "31337", "-m", "Hello."]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_list_opens_other_chats_for_all_agents_or_for_one() {
    let stage = stage(json!({
        "tools": {"message": {"allowTo": ["telegram:31337"]}},
        "agents": {"list": [
            {"id": "main", "default": true},
            {"id": "news", "tools": {"message": {"allowTo": ["telegram:@ournews"]}}},
        ]},
    }))
    .await;
    let gateway = stage.gateway();
    let by = |agent: &str, target: &str| {
        let said = gateway.run(&["agent", "--agent", agent, "-m", &format!("CALL message {}", send(target))]);
        said.stdout.contains("\"ok\": true")
    };
    assert!(by("main", "31337") && by("news", "31337") && by("news", "@ournews"));
    assert!(!by("main", "@ournews") && !by("news", "31338"));
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_without_web_tools_no_address_of_a_reply_is_loaded_and_with_them_it_is_noted() {
    for is_denied in [true, false] {
        let tools = if is_denied { json!({"deny": ["group:web"]}) } else { json!({}) };
        let stage = stage(json!({"tools": tools})).await;
        let gateway = stage.gateway();
        stage.telegram.add_message(7, "SAY See https://evil.example/?d=1");
        soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
        stage.telegram.add_message(7, "SAY look|MEDIA:https://pictures.example/a.png");
        soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
        let url = json!({"action": "send", "target": "7", "channel": "telegram", "message": "x", "media": "https://media.example/b.png"});
        let told = call(&gateway, "message", &url);
        assert_eq!(told.contains("web_fetch is not allowed here"), is_denied, "{told}");
        let calls = stage.telegram.calls();
        let written = calls.iter().filter(|call| ["sendMessage", "editMessageText"].contains(&call.method.as_str()));
        let shown: Vec<_> =
            written.filter(|call| call.params["text"].as_str().unwrap_or_default().contains("evil.example")).collect();
        assert!(!shown.is_empty());
        assert!(shown.iter().all(|call| (call.params["link_preview_options"]["is_disabled"] == true) == is_denied));
        let pictures = calls.iter().filter(|call| call.method == "sendPhoto").count();
        assert_eq!(pictures, if is_denied { 0 } else { 2 });
        if is_denied {
            assert!(stage.answers()[1].1.contains("was not sent"), "{:?}", stage.answers());
        }
        let asked = [("evil.example", "preview"), ("pictures.example", "media"), ("media.example", "media")];
        for (host, kind) in asked.into_iter().filter(|_| !is_denied) {
            let more = json!({"host": host, "channel": "telegram", "kind": kind});
            until("a row of the audit log", || noted(&stage).contains(&("asked".to_owned(), more.clone())));
        }
        assert!(!is_denied || noted(&stage).iter().all(|(_, more)| more["host"].is_null()));
    }
}
