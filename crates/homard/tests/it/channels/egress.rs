//! What leaves the machine without a web tool: messages to other chats, jobs that announce, media and previews of
//! replies.

use std::fs;

use serde_json::{Value, json};

use super::setup::{ChannelFixture, within_timeout};
use crate::{
    home::until,
    scripted_model::{self, call},
};

async fn egress_fixture(mut config: Value) -> ChannelFixture {
    let channels = json!({"telegram": {"allowFrom": [7, 8], "groups": {"-100": {}}}});
    config["commands"]["ownerAllowFrom"] = json!(["telegram:7"]);
    ChannelFixture::answering(channels, config, scripted_model::obey).await
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
fn egress_records(fixture: &ChannelFixture) -> Vec<(String, Value)> {
    let folder = fs::read_dir(fixture.home().state().join("audit")).into_iter().flatten().flatten();
    let files = folder.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let text: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    // The last line may be incomplete.
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let rows = rows.filter(|row| row["what"] == "egress");
    rows.map(|mut row| (row["outcome"].as_str().unwrap().to_owned(), row["more"].take())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_writes_only_to_chats_listed_by_the_owner() {
    let fixture = egress_fixture(json!({"tools": {"deny": ["group:web"]}})).await;
    let gateway = fixture.gateway();
    let unknown_chats =
        ["31337", "telegram:31337", "@evilchannel", "t.me/evilchannel", "-100500", "-100500:topic:3", "+31337"];
    for target in unknown_chats {
        let output = call(&gateway, "message", &send(target));
        assert!(output.contains("tools.message.allowTo"), "{target}: {output}");
    }
    let broadcast =
        json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "31337"], "message": "words"});
    assert!(call(&gateway, "message", &broadcast).contains("tools.message.allowTo"));
    let added = call(&gateway, "cron", &json!({"action": "add", "job": job("31337")}));
    assert!(added.contains("tools.message.allowTo"), "{added}");
    let mut open = job("31337");
    open["delivery"].as_object_mut().unwrap().remove("channel");
    assert!(call(&gateway, "cron", &json!({"action": "add", "job": open})).contains("tools.message.allowTo"));
    let mut old = job("7");
    old.as_object_mut().unwrap().remove("delivery");
    old["payload"]["to"] = json!("31337");
    assert!(call(&gateway, "cron", &json!({"action": "add", "job": old})).contains("tools.message.allowTo"));
    assert_eq!(fixture.telegram.visible_messages().len(), 0);

    let added: Value =
        serde_json::from_str(&call(&gateway, "cron", &json!({"action": "add", "job": job("8")}))).unwrap();
    let patch = json!({"action": "update", "jobId": added["id"], "patch": {"delivery": {"to": "31337"}}});
    assert!(call(&gateway, "cron", &patch).contains("tools.message.allowTo"));
    let jobs: Value = serde_json::from_str(&call(&gateway, "cron", &json!({"action": "list"}))).unwrap();
    let to: Vec<_> = jobs["jobs"].as_array().unwrap().iter().map(|job| job["delivery"]["to"].clone()).collect();
    assert_eq!(to, [json!("8")]);

    for target in ["7", "telegram:8", "-100", "-100:topic:3"] {
        let output = call(&gateway, "message", &send(target));
        assert!(output.contains("\"ok\": true"), "{target}: {output}");
    }
    assert_eq!(fixture.telegram.visible_messages().len(), 4);
    for (tool, to, outcome) in [
        ("message", "31337", "refused"),
        ("message", "@evilchannel", "refused"),
        ("cron", "31337", "refused"),
        ("cron", "8", "scheduled"),
        ("message", "-100", "ok"),
    ] {
        let expected_detail = json!({"tool": tool, "channel": "telegram", "to": to});
        until("a row of the audit log", || {
            egress_records(&fixture).contains(&(outcome.to_owned(), expected_detail.clone()))
        });
    }
    // A user at the command line may write to anyone.
    let sent = gateway.run(&["message", "send", "--to", "31337", "-m", "Hello."]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_opens_other_chats_for_all_agents_or_for_one() {
    let fixture = egress_fixture(json!({
        "tools": {"message": {"allowTo": ["telegram:31337"]}},
        "agents": {"list": [
            {"id": "main", "default": true},
            {"id": "news", "tools": {"message": {"allowTo": ["telegram:@ournews"]}}},
        ]},
    }))
    .await;
    let gateway = fixture.gateway();
    let send_as = |agent: &str, target: &str| {
        let output = gateway.run(&["agent", "--agent", agent, "-m", &format!("CALL message {}", send(target))]);
        output.stdout.contains("\"ok\": true")
    };
    assert!(send_as("main", "31337") && send_as("news", "31337") && send_as("news", "@ournews"));
    assert!(!send_as("main", "@ournews") && !send_as("news", "31338"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_recipient_of_a_channel_may_be_written_to() {
    let channels = json!({"telegram": {"allowFrom": [7], "defaultTo": "31337"}});
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let fixture = ChannelFixture::answering(channels, config, scripted_model::obey).await;
    let gateway = fixture.gateway();
    assert!(call(&gateway, "message", &send("31337")).contains("\"ok\": true"));
    assert!(call(&gateway, "message", &send("31338")).contains("tools.message.allowTo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_web_tools_no_url_of_a_reply_is_loaded_and_with_them_it_is_audited() {
    for is_denied in [true, false] {
        let tools = if is_denied { json!({"deny": ["group:web"]}) } else { json!({}) };
        let fixture = egress_fixture(json!({"tools": tools})).await;
        let gateway = fixture.gateway();
        fixture.telegram.add_message(7, "SAY See https://evil.example/?d=1");
        within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
        fixture.telegram.add_message(7, "SAY look|MEDIA:https://pictures.example/a.png");
        within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
        let url = json!({"action": "send", "target": "7", "channel": "telegram", "message": "x", "media": "https://media.example/b.png"});
        let output = call(&gateway, "message", &url);
        assert_eq!(output.contains("web_fetch is not allowed here"), is_denied, "{output}");
        let calls = fixture.telegram.calls();
        let written = calls.iter().filter(|call| ["sendMessage", "editMessageText"].contains(&call.method.as_str()));
        let visible: Vec<_> =
            written.filter(|call| call.params["text"].as_str().unwrap_or_default().contains("evil.example")).collect();
        assert!(!visible.is_empty());
        assert!(visible.iter().all(|call| (call.params["link_preview_options"]["is_disabled"] == true) == is_denied));
        let pictures = calls.iter().filter(|call| call.method == "sendPhoto").count();
        assert_eq!(pictures, if is_denied { 0 } else { 2 });
        if is_denied {
            assert!(fixture.answers()[1].1.contains("was not sent"), "{:?}", fixture.answers());
        }
        let expected_requests =
            [("evil.example", "preview"), ("pictures.example", "media"), ("media.example", "media")];
        for (host, kind) in expected_requests.into_iter().filter(|_| !is_denied) {
            let expected_detail = json!({"host": host, "channel": "telegram", "kind": kind});
            until("a row of the audit log", || {
                egress_records(&fixture).contains(&("asked".to_owned(), expected_detail.clone()))
            });
        }
        assert!(
            !is_denied || egress_records(&fixture).iter().all(|(_, expected_detail)| expected_detail["host"].is_null())
        );
    }
}
