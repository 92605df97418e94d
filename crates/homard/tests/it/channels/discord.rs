//! Discord through the binary: setting it up, what is imported from OpenClaw, slash commands and buttons.

use std::{fs, process::Stdio};

use homard_testkit::{
    FakeDiscord,
    fake_discord::{BOT, GENERAL, SERVER, TOKEN},
    fake_provider::{ProviderReply, ReceivedRequest},
};
use serde_json::{Value, json};

use super::setup::{last_message, within_timeout};
use crate::{
    home::{Home, RunningGateway, until},
    scripted_model::ScriptedHome,
};

fn echo(request: &ReceivedRequest) -> ProviderReply {
    match last_message(request).as_str() {
        "ask" => ProviderReply::text("Waiting. To allow it: /approve a-1 allow-once"),
        text => ProviderReply::text(format!("echo {text}")),
    }
}

async fn started() -> FakeDiscord {
    let fake = FakeDiscord::start().await.unwrap();
    fake.keep_early_events();
    fake
}

/// A home whose config has this section for Discord.
async fn home_with(fake: &FakeDiscord, section: Value) -> ScriptedHome {
    let mut discord = json!({"apiRoot": fake.root()});
    discord.as_object_mut().unwrap().extend(section.as_object().cloned().unwrap());
    ScriptedHome::answering(json!({"channels": {"discord": discord}}), echo).await
}

fn gateway(home: &Home) -> RunningGateway<'_> {
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    command.stderr(Stdio::null());
    home.listening(command)
}

async fn until_texts(fake: &FakeDiscord, count: usize) -> Vec<String> {
    within_timeout("the messages", fake.until(|fake| fake.visible_messages().len() >= count)).await;
    fake.visible_messages().into_iter().map(|message| message.text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_added_paired_and_answers() {
    let fake = started().await;
    let scripted = home_with(&fake, json!({})).await;
    let home = &scripted.home;
    for (arguments, expected) in [
        (vec!["--token", "123456:ABCdefGHIjkl"], "three parts with dots"),
        (vec![], "discord.com/developers/applications"),
        (vec!["--secret", "sixteen-or-more-letters"], "--token"),
    ] {
        let output = home.run(&[&["channels", "add", "discord"], arguments.as_slice()].concat());
        assert!(output.code == Some(2) && output.stderr.contains(expected), "{output:?}");
    }
    let listed = home.run(&["channels", "list"]).stdout;
    assert!(listed.contains("no token: homard channels add discord --token TOKEN"), "{listed}");
    let added = home.run(&["channels", "add", "discord", "--token", TOKEN]);
    assert!(added.code == Some(0) && added.stdout.contains("Message Content Intent"), "{added:?}");
    let gateway = gateway(home);
    fake.add_direct(7, "hello?");
    let texts = until_texts(&fake, 1).await;
    let code = texts[0].split("Pairing code: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let approved = gateway.run(&["pairing", "approve", "discord", &code]);
    assert!(approved.stdout.contains("approved 7 on Discord") && approved.stdout.contains("the owner"), "{approved:?}");
    fake.add_direct(7, "hello");
    assert_eq!(until_texts(&fake, 2).await[1], "echo hello");
    let status = gateway.run(&["channels", "status", "--probe"]).stdout;
    assert!(status.contains("discord default: authenticated as @fake-bot"), "{status}");
    // The command of a menu and the button of an approval are commands of the owner.
    fake.add_interaction(7, 2, &json!({"name": "status", "type": 1}));
    let report = until_texts(&fake, 3).await[2].clone();
    assert!(report.contains("Model") && !report.starts_with("echo"), "{report}");
    fake.add_direct(7, "ask");
    until_texts(&fake, 4).await;
    let button = fake.visible_messages()[3].buttons[2].1.clone();
    fake.add_interaction(7, 3, &json!({"custom_id": button, "component_type": 2}));
    let answer = until_texts(&fake, 5).await[4].clone();
    assert!(answer.contains("a-1") && !answer.starts_with("echo"), "{answer}");
    let registered = fake.calls_of("PUT applications/*/commands");
    assert!(registered[0].body.to_string().contains("\"status\""), "{registered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_without_the_intent_says_how_to_enable_it() {
    let fake = started().await;
    fake.reject_logins(Some(4014));
    let scripted = home_with(&fake, json!({"token": TOKEN})).await;
    let gateway = gateway(&scripted.home);
    until("the status names the intent", || {
        gateway.run(&["channels", "status"]).stdout.contains("enable the Message Content Intent")
    });
    let doctor = gateway.run(&["doctor"]).stdout;
    assert!(doctor.contains("Message Content Intent"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_of_openclaw_works_without_its_token_being_typed_again() {
    let fake = started().await;
    let scripted = ScriptedHome::answering(json!({}), echo).await;
    let own: Value =
        serde_json::from_str(&fs::read_to_string(scripted.home.state().join("homard.json")).unwrap()).unwrap();
    let server = json!({
        "slug": "friends", "requireMention": true, "ignoreOtherMentions": true, "users": ["8"], "roles": [],
        "reactionNotifications": "own",
        "channels": {GENERAL.to_string(): {"enabled": true, "users": ["user:8"]}},
    });
    let discord = json!({
        "enabled": true, "token": TOKEN, "apiRoot": fake.root(), "dmPolicy": "pairing", "allowFrom": ["discord:7"],
        "groupPolicy": "allowlist", "guilds": {SERVER.to_string(): server}, "historyLimit": 20, "replyToMode": "batched",
        "streaming": {"mode": "off"}, "mediaMaxMb": 8, "textChunkLimit": 2000, "maxLinesPerMessage": 17,
        "commands": {"native": "auto"}, "slashCommand": {"ephemeral": true}, "actions": {"reactions": true},
        "intents": {"presence": false}, "dm": {"enabled": true},
    });
    let source = tempfile::tempdir().unwrap();
    let config = json!({"models": own["models"], "agents": own["agents"], "channels": {"discord": discord}});
    fs::write(source.path().join("openclaw.json"), config.to_string()).unwrap();
    fs::create_dir(source.path().join("credentials")).unwrap();
    let approved = json!({"version": 1, "allowFrom": ["9", "ann"]});
    fs::write(source.path().join("credentials/discord-allowFrom.json"), approved.to_string()).unwrap();
    let home = Home::new();
    let imported = home.run(&["import", "openclaw", source.path().to_str().unwrap(), "--json"]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let warnings = imported.json()["warnings"].to_string();
    assert!(warnings.contains("sender ann on discord") && !warnings.contains("channels.discord: is not"), "{warnings}");
    assert!(!imported.stdout.contains(TOKEN));
    let gateway = gateway(&home);
    fake.add_direct(7, "one");
    assert_eq!(until_texts(&fake, 1).await, ["echo one"]);
    fake.add_direct(9, "two");
    assert_eq!(until_texts(&fake, 2).await[1], "echo two");
    fake.add_message(
        GENERAL,
        7,
        &format!("<@{BOT}> not listed there"),
        &json!({"mentions": [{"id": BOT.to_string(), "username": "fake-bot"}]}),
    );
    fake.add_message(GENERAL, 8, "no mention", &json!({}));
    fake.add_mention(GENERAL, 8, "three");
    let texts = until_texts(&fake, 3).await;
    assert!(texts.len() == 3 && texts[2].contains("three"), "{texts:?}");
    let sessions = gateway.run(&["sessions", "--json"]).stdout;
    for key in ["agent:main:discord:direct:9".to_owned(), format!("agent:main:discord:channel:{GENERAL}")] {
        assert!(sessions.contains(&key), "{key}: {sessions}");
    }
    let logged = gateway.run(&["channels", "logs", "discord"]).stdout;
    assert!(logged.contains(&format!("channels.discord.guilds.{SERVER}.users")), "{logged}");
}
