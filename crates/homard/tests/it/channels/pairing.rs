//! Pairing: codes, approval, the owner, and the five steps of the docs.

use std::fs;

use homard_testkit::{FakeTelegram, fake_telegram::TOKEN};
use serde_json::json;

use super::setup::{ChannelFixture, within_timeout};
use crate::home::{CommandOutput, until};

/// Returns the code in the message to an unknown sender.
fn code(text: &str) -> String {
    text.split("Pairing code: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

fn ok(output: CommandOutput) -> CommandOutput {
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_sender_gets_one_code_and_is_admitted_after_approval() {
    let fixture = ChannelFixture::telegram(json!({})).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "a secret of the stranger");
    within_timeout("a code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    fixture.telegram.add_message(7, "hello?");
    fixture.telegram.add_message(8, "me too");
    within_timeout("another code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let replies = fixture.answers();
    assert_eq!([replies[0].0, replies[1].0], [7, 8], "nobody is told twice: {replies:?}");
    let (first, second) = (code(&replies[0].1), code(&replies[1].1));
    let listed = ok(gateway.run(&["pairing", "list"])).stdout;
    assert!(listed.contains(&first) && listed.contains(&second), "{listed}");
    let approved_as_guest = gateway.run(&["pairing", "approve", "telegram", &second, "--guest"]);
    assert!(
        approved_as_guest.code == Some(1) && approved_as_guest.stderr.contains("no owner is configured yet"),
        "{approved_as_guest:?}"
    );
    let approved = ok(gateway.run(&["pairing", "approve", "telegram", &first.to_lowercase()])).stdout;
    assert!(approved.contains("approved 7 on Telegram") && approved.contains("the owner"), "{approved}");
    ok(gateway.run(&["pairing", "approve", "telegram", &second, "--guest", "--notify"]));
    let output = gateway.run(&["pairing", "approve", "telegram", &second]);
    assert!(output.code == Some(1) && output.stderr.contains("no pending pairing request has the code"), "{output:?}");
    within_timeout("a word", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    fixture.telegram.add_message(7, "hello");
    fixture.telegram.add_message(8, "hi");
    within_timeout("answers", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 5)).await;
    let mut answers = fixture.answers().split_off(3);
    answers.sort();
    assert_eq!(answers, [(7, "echo hello".to_owned()), (8, "echo hi".to_owned())]);
    assert_eq!(fixture.sessions(&gateway), ["agent:main:main", "agent:main:telegram:direct:8"]);
    assert!(
        fixture.scripted.provider.requests().iter().all(|request| !request.body.contains("a secret of the stranger"))
    );
    ok(gateway.run(&["pairing", "revoke", "telegram", "8"]));
    fixture.telegram.add_message(8, "still here?");
    within_timeout("a new code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 6)).await;
    assert!(fixture.answers()[5].1.contains("Pairing code: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dismissed_sender_is_not_admitted_and_may_request_again() {
    let fixture = ChannelFixture::telegram(json!({})).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "hello?");
    within_timeout("a code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let code = code(&fixture.answers()[0].1);
    let call = |params: serde_json::Value| {
        gateway.run(&["gateway", "call", "channels.pairing.dismiss", "--params", &params.to_string()])
    };
    let refused = call(json!({"channel": "telegram", "accountId": "other", "requestId": code}));
    assert!(refused.stderr.contains("belongs to account default, not to account other"), "{refused:?}");
    let params = json!({"channel": "telegram", "accountId": "default", "requestId": code});
    assert_eq!(ok(call(params.clone())).json(), json!({"requestId": code, "senderId": "7"}));
    let again = call(params);
    assert!(again.code == Some(1) && again.stderr.contains("no pending pairing request has the code"), "{again:?}");
    let nameless = call(json!({"channel": "telegram"}));
    assert!(nameless.stderr.contains("must have required property 'requestId'"), "{nameless:?}");
    fixture.telegram.add_message(7, "hello again?");
    within_timeout("a new code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert!(fixture.answers()[1].1.contains("Pairing code: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn pairing_works_without_a_gateway_and_persists() {
    let fixture = ChannelFixture::telegram(json!({})).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "hello");
    within_timeout("a code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    drop(gateway);
    let code = code(&fixture.answers()[0].1);
    ok(fixture.home().run(&["pairing", "approve", "telegram", &code]));
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "and now?");
    // If the gateway ended before it had stored that the code had arrived, the code is sent again first.
    let is_answered = |telegram: &FakeTelegram| {
        telegram.visible_messages().last().is_some_and(|message| message.text == "echo and now?")
    };
    within_timeout("an answer", fixture.telegram.until(is_answered)).await;
}

/// Returns the commands of the docs, in order.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/channels/telegram.md")).unwrap();
    let steps = page.split("## Connect in five steps").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    steps.lines().map(str::trim).filter(|line| line.starts_with("homard ")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_five_steps_of_the_docs_lead_to_a_reply() {
    let steps = commands();
    let [add, run, approve] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(run, "homard gateway run");
    // The only difference from a new user's config: the address of Telegram.
    let fixture = ChannelFixture::with(json!({"telegram": {"botToken": "x"}}), json!({})).await;
    ok(fixture.home().run(&["config", "unset", "channels.telegram.botToken"]));
    let args = |line: &str, from: &str, to: &str| -> Vec<String> {
        assert!(line.contains(from), "{line}");
        line.replace(from, to).split(' ').skip(1).map(str::to_owned).collect()
    };
    let command = args(add, "123456:ABC…", TOKEN);
    let added = ok(fixture.home().run(&command.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(!added.stdout.contains(TOKEN), "{added:?}");
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "any message");
    within_timeout("a code", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let command = args(approve, "ABCD2345", &code(&fixture.answers()[0].1));
    ok(gateway.run(&command.iter().map(String::as_str).collect::<Vec<_>>()));
    fixture.telegram.add_message(7, "another message");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(fixture.answers()[1], (7, "echo another message".to_owned()));
    let status = ok(gateway.run(&["channels", "status", "--probe"])).stdout;
    assert!(status.contains("connected") && status.contains("authenticated as @fake_bot"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_connects_and_disconnects_channels_as_the_config_changes() {
    let fixture =
        ChannelFixture::with(json!({"telegram": {"botToken": "x", "allowFrom": [7], "enabled": false}}), json!({}))
            .await;
    let gateway = fixture.gateway();
    let listed = ok(gateway.run(&["channels", "list"])).stdout;
    assert!(listed.contains("telegram") && listed.contains("off"), "{listed}");
    let output = gateway.run(&["channels", "add", "telegram", "--token", "nonsense"]);
    assert!(output.code == Some(2) && output.stderr.contains("does not look like"), "{output:?}");
    ok(gateway.run(&["channels", "add", "telegram", "--token", TOKEN]));
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let logs = ok(gateway.run(&["channels", "logs", "telegram"])).stdout;
    assert!(logs.contains("default connected"), "{logs}");
    ok(gateway.run(&["channels", "remove", "telegram"]));
    until("nobody is connected", || {
        gateway.run(&["channels", "status", "--json"]).json()["channelAccounts"] == json!({})
    });
    let removed = gateway.run(&["channels", "remove", "telegram"]);
    assert!(removed.code == Some(1) && removed.stderr.contains("is not in"), "{removed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_disconnects_the_account_and_keeps_the_rest_of_the_config() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let gateway = fixture.gateway();
    until("it is connected", || {
        gateway.run(&["channels", "status", "--json"]).json()["channels"]["telegram"]["connected"] == true
    });
    let logout = ["gateway", "call", "channels.logout", "--params", r#"{"channel": "telegram"}"#];
    let out = ok(gateway.run(&logout)).json();
    assert_eq!(
        out,
        json!({"channel": "telegram", "accountId": "default", "cleared": true, "loggedOut": true}),
        "{out}"
    );
    let row = gateway.run(&["channels", "status", "--json"]).json()["channels"]["telegram"].clone();
    assert_eq!((&row["configured"], &row["connected"]), (&json!(false), &json!(false)), "{row}");
    let status = ok(gateway.run(&["channels", "status"])).stdout;
    assert!(status.contains("not configured") && status.contains("homard channels add telegram"), "{status}");
    assert_eq!(ok(gateway.run(&logout)).json()["cleared"], json!(false));
    let stored = fs::read_to_string(fixture.home().state().join("homard.json")).unwrap();
    assert!(stored.contains("allowFrom") && !stored.contains(TOKEN), "{stored}");
}
