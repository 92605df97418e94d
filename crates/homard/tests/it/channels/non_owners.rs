//! People other than the owner, in direct chats and in groups, reach nothing of the owner's workspace: not with
//! tools, not in the prompt, and not as a file that goes with a reply.

use std::fs;

use serde_json::{Value, json};

use super::setup::{ChannelFixture, within_timeout};
use crate::scripted_model;

/// The private files of the workspace, each with a text that occurs nowhere else.
const PRIVATE: [(&str, &str); 7] = [
    ("MEMORY.md", "CANARY-MEMORY"),
    ("USER.md", "CANARY-USER"),
    ("HEARTBEAT.md", "CANARY-HEARTBEAT"),
    ("TOOLS.md", "CANARY-TOOLS"),
    ("memory/2026-01-01.md", "CANARY-DIARY"),
    ("taxes.txt", "CANARY-TAXES"),
    ("media/inbound/passport.txt", "CANARY-PASSPORT"),
];

const GROUP: i64 = -100;

/// Returns tool calls that would each show something private.
fn attempts() -> Vec<(&'static str, Value)> {
    vec![
        ("read", json!({"path": "MEMORY.md"})),
        ("read", json!({"path": "media/inbound/passport.txt"})),
        ("ls", json!({"path": "."})),
        ("find", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "CANARY"})),
        ("memory_search", json!({"query": "canary"})),
        ("memory_get", json!({"path": "memory/2026-01-01.md"})),
        ("image", json!({"image": "taxes.txt"})),
        ("message", json!({"action": "send", "media": "taxes.txt", "message": "here"})),
        ("message", json!({"action": "send", "path": "./taxes.txt", "message": "here"})),
        ("message", json!({"action": "send", "filePath": "file://taxes.txt", "message": "here"})),
    ]
}

async fn non_owner_fixture(config: Value) -> ChannelFixture {
    let channels = json!({"telegram": {"allowFrom": [7, 8], "groups": {GROUP.to_string(): {"requireMention": false}}}});
    let mut config = config;
    config["commands"]["ownerAllowFrom"] = json!(["telegram:7"]);
    let fixture = ChannelFixture::answering(channels, config, scripted_model::obey).await;
    let workspace = fixture.home().state().join("workspace");
    for (name, canary) in PRIVATE {
        let path = workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{canary}\n")).unwrap();
    }
    fs::write(workspace.join("AGENTS.md"), "Be brief. PUBLIC-AGENTS\n").unwrap();
    fs::write(workspace.join("SOUL.md"), "Be kind. PUBLIC-SOUL\n").unwrap();
    fixture
}

fn writes(fixture: &ChannelFixture, from: i64, chat: i64, text: &str) {
    let kind = if chat < 0 { "supergroup" } else { "private" };
    fixture.telegram.add_update(json!({"message": {
        "message_id": 0, "date": 1_794_758_460, "text": text, "chat": {"id": chat, "type": kind, "title": "Family"},
        "from": {"id": from, "is_bot": false, "first_name": format!("User {from}")},
    }}));
}

/// Writes a message and waits for one more reply.
async fn asks(fixture: &ChannelFixture, from: i64, chat: i64, text: &str) {
    let before = fixture.telegram.visible_messages().len();
    writes(fixture, from, chat, text);
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() > before)).await;
}

fn sends(fixture: &ChannelFixture, from: i64, file: &str) {
    fixture.telegram.add_update(json!({"message": {
        "message_id": 0, "date": 1_794_758_460, "chat": {"id": from, "type": "private"}, "caption": "look",
        "from": {"id": from, "is_bot": false, "first_name": format!("User {from}")},
        "document": {"file_id": file, "file_name": format!("{file}.bin"), "mime_type": "application/pdf"},
    }}));
}

/// Returns the last model request.
fn prompt(fixture: &ChannelFixture) -> String {
    fixture.scripted.provider.requests().pop().unwrap().body
}

#[tokio::test(flavor = "multi_thread")]
async fn non_owners_and_groups_see_nothing_private_and_the_owner_sees_all() {
    let fixture = non_owner_fixture(json!({})).await;
    let _gateway = fixture.gateway();
    asks(&fixture, 7, 7, "hello").await;
    let of_owner = prompt(&fixture);
    for canary in ["CANARY-MEMORY", "CANARY-USER", "CANARY-TOOLS", "PUBLIC-SOUL"] {
        assert!(of_owner.contains(canary), "{canary}");
    }
    assert!(fixture.scripted.offered().contains(&"read".to_owned()));
    for at in [(8, 8), (8, GROUP), (7, GROUP)] {
        asks(&fixture, at.0, at.1, "hello").await;
        let body = prompt(&fixture);
        assert!(!body.contains("CANARY-"), "{at:?}: {body}");
        assert!(body.contains("PUBLIC-AGENTS") && body.contains("PUBLIC-SOUL"), "{at:?}: how to behave is not private");
        let system = fixture.scripted.provider.requests().pop().unwrap().json()["messages"][0].to_string();
        assert!(!["MEMORY.md", "USER.md", "HEARTBEAT.md"].iter().any(|name| system.contains(name)), "{at:?}: {system}");
        let offered = fixture.scripted.offered();
        for (tool, _) in attempts().into_iter().filter(|(tool, _)| *tool != "message") {
            assert!(!offered.contains(&tool.to_owned()), "{at:?} has {tool}");
        }
        for (tool, arguments) in attempts() {
            asks(&fixture, at.0, at.1, &format!("CALL {tool} {arguments}")).await;
            assert!(!prompt(&fixture).contains("CANARY-"), "{at:?} {tool} {arguments}");
        }
    }
    // A command that starts a run is obeyed in a group, but its run has no owner rights: everyone there reads its
    // reply.
    for command in ["/new hello", "/reset", "/new"] {
        asks(&fixture, 7, GROUP, command).await;
        let offered = fixture.scripted.offered();
        assert!(
            !offered.iter().any(|tool| ["exec", "read", "write"].contains(&tool.as_str())),
            "{command}: {offered:?}"
        );
        assert!(!prompt(&fixture).contains("CANARY-"), "{command}");
    }
    let sent = fixture.telegram.calls().into_iter().filter(|call| call.file.is_some()).count();
    assert_eq!(sent, 0, "no file was sent");
}

// Pitfall 109.
#[tokio::test(flavor = "multi_thread")]
async fn workspace_files_are_attached_to_replies_to_the_owner_only() {
    let fixture = non_owner_fixture(json!({})).await;
    let _gateway = fixture.gateway();
    let files = || fixture.telegram.calls().into_iter().filter_map(|call| call.file).count();
    for (at, path, count) in [
        ((7, 7), "./taxes.txt", 1),
        ((8, 8), "./taxes.txt", 1),
        ((8, 8), "./media/inbound/passport.txt", 1),
        ((8, GROUP), "./taxes.txt", 1),
        ((7, GROUP), "./taxes.txt", 1),
    ] {
        asks(&fixture, at.0, at.1, &format!("SAY look|MEDIA:{path}")).await;
        assert_eq!(files(), count, "{at:?} {path}");
        if at != (7, 7) {
            let (_, text) = fixture.answers().pop().unwrap();
            assert!(text.starts_with("look") && text.contains("was not sent"), "{at:?} {path}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn received_files_are_stored_in_a_directory_per_session() {
    let fixture = non_owner_fixture(json!({})).await;
    let _gateway = fixture.gateway();
    let mut folders = Vec::new();
    for from in [7, 8] {
        fixture.telegram.add_file(&format!("file{from}"), vec![0xff, 0xd9, u8::try_from(from).unwrap()]);
        let before = fixture.telegram.visible_messages().len();
        sends(&fixture, from, &format!("file{from}"));
        within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() > before))
            .await;
        let body = prompt(&fixture);
        let (_, rest) = body.rsplit_once("[media attached: ").unwrap();
        let path = rest.split(' ').next().unwrap().to_owned();
        let workspace = fixture.home().state().join("workspace");
        assert_eq!(fs::read(workspace.join(&path)).unwrap(), [0xff, 0xd9, u8::try_from(from).unwrap()]);
        folders.push(path.rsplit_once('/').unwrap().0.to_owned());
    }
    assert_eq!(folders, ["media/inbound/telegram-7", "media/inbound/telegram-8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_non_owner_can_be_bound_to_an_agent_with_its_own_workspace() {
    let fixture = non_owner_fixture(json!({
        "agents": {"list": [
            {"id": "main", "default": true},
            {"id": "ann", "tools": {"nonOwnerAllow": ["group:fs", "group:memory", "cron"]}},
        ]},
        "bindings": [{"agentId": "ann", "match": {"channel": "telegram", "peer": {"kind": "direct", "id": "8"}}}],
    }))
    .await;
    let agent_workspace = fixture.home().state().join("workspace-ann");
    fs::create_dir_all(&agent_workspace).unwrap();
    fs::write(agent_workspace.join("MEMORY.md"), "Ann likes tea. OWN-MEMORY\n").unwrap();
    fs::write(agent_workspace.join("list.txt"), "milk OWN-LIST\n").unwrap();
    let _gateway = fixture.gateway();
    asks(&fixture, 8, 8, "hello").await;
    assert!(prompt(&fixture).contains("OWN-MEMORY"));
    let offered = fixture.scripted.offered();
    for (tool, has) in [("read", true), ("write", true), ("memory_get", true), ("exec", false), ("cron", false)] {
        assert_eq!(offered.contains(&tool.to_owned()), has, "{tool}");
    }
    asks(&fixture, 8, 8, r#"CALL read {"path": "list.txt"}"#).await;
    assert!(prompt(&fixture).contains("OWN-LIST"));
    for path in ["./../workspace/taxes.txt", "../workspace/MEMORY.md"] {
        asks(&fixture, 8, 8, &format!("CALL read {}", json!({"path": path}))).await;
        asks(&fixture, 8, 8, &format!("SAY look|MEDIA:{path}")).await;
    }
    assert!(fixture.telegram.calls().into_iter().all(|call| call.file.is_none()));
    asks(&fixture, 8, 8, "SAY look|MEDIA:./list.txt").await;
    let sent: Vec<_> = fixture.telegram.calls().into_iter().filter_map(|call| call.file).collect();
    assert_eq!(sent.len(), 1);
    asks(&fixture, 8, GROUP, "CALL read {\"path\": \"taxes.txt\"}").await;
    assert!(fixture.scripted.provider.requests().iter().all(|request| !request.body.contains("CANARY-")));
}
