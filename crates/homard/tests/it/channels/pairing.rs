//! Pairing: codes, approval, the owner, and the five steps of the docs.

use std::fs;

use homard_testkit::fake_telegram::TOKEN;
use serde_json::json;

use super::stage::{Stage, soon};
use crate::home::{CommandOutput, until};

/// Returns the code in the message to an unknown sender.
fn code(text: &str) -> String {
    text.split("Pairing code: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

fn ok(said: CommandOutput) -> CommandOutput {
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_one_code_and_is_heard_when_it_is_approved() {
    let stage = Stage::telegram(json!({})).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "a secret of the stranger");
    soon("a code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    stage.telegram.add_message(7, "hello?");
    stage.telegram.add_message(8, "me too");
    soon("another code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let told = stage.answers();
    assert_eq!([told[0].0, told[1].0], [7, 8], "nobody is told twice: {told:?}");
    let (first, second) = (code(&told[0].1), code(&told[1].1));
    let listed = ok(gateway.run(&["pairing", "list"])).stdout;
    assert!(listed.contains(&first) && listed.contains(&second), "{listed}");
    let guest = gateway.run(&["pairing", "approve", "telegram", &second, "--guest"]);
    assert!(guest.code == Some(1) && guest.stderr.contains("no owner is configured yet"), "{guest:?}");
    let approved = ok(gateway.run(&["pairing", "approve", "telegram", &first.to_lowercase()])).stdout;
    assert!(approved.contains("approved 7 on Telegram") && approved.contains("the owner"), "{approved}");
    ok(gateway.run(&["pairing", "approve", "telegram", &second, "--guest", "--notify"]));
    let wrong = gateway.run(&["pairing", "approve", "telegram", &second]);
    assert!(wrong.code == Some(1) && wrong.stderr.contains("no pending pairing request has the code"), "{wrong:?}");
    soon("a word", stage.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    stage.telegram.add_message(7, "hello");
    stage.telegram.add_message(8, "hi");
    soon("answers", stage.telegram.until(|telegram| telegram.visible_messages().len() == 5)).await;
    let mut answers = stage.answers().split_off(3);
    answers.sort();
    assert_eq!(answers, [(7, "echo hello".to_owned()), (8, "echo hi".to_owned())]);
    assert_eq!(stage.sessions(&gateway), ["agent:main:main", "agent:main:telegram:direct:8"]);
    assert!(stage.puppet.provider.requests().iter().all(|asked| !asked.body.contains("a secret of the stranger")));
    ok(gateway.run(&["pairing", "revoke", "telegram", "8"]));
    stage.telegram.add_message(8, "still here?");
    soon("a new code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 6)).await;
    assert!(stage.answers()[5].1.contains("Pairing code: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_dismissed_is_not_in_and_may_ask_again() {
    let stage = Stage::telegram(json!({})).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "hello?");
    soon("a code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let code = code(&stage.answers()[0].1);
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
    stage.telegram.add_message(7, "hello again?");
    soon("a new code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert!(stage.answers()[1].1.contains("Pairing code: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn pairing_works_without_a_gateway_and_is_there_afterwards() {
    let stage = Stage::telegram(json!({})).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "hello");
    soon("a code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    drop(gateway);
    let code = code(&stage.answers()[0].1);
    ok(stage.home().run(&["pairing", "approve", "telegram", &code]));
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "and now?");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(stage.answers()[1], (7, "echo and now?".to_owned()));
}

/// Returns the commands of the docs, in order.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/channels/telegram.md")).unwrap();
    let steps = page.split("## Connect in five steps").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    steps.lines().map(str::trim).filter(|line| line.starts_with("homard ")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_five_steps_of_the_docs_lead_to_an_answer() {
    let steps = commands();
    let [add, run, approve] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(run, "homard gateway run");
    // The only difference from a new user's config: the address of Telegram.
    let stage = Stage::with(json!({"telegram": {"botToken": "x"}}), json!({})).await;
    ok(stage.home().run(&["config", "unset", "channels.telegram.botToken"]));
    let typed = |line: &str, from: &str, to: &str| -> Vec<String> {
        assert!(line.contains(from), "{line}");
        line.replace(from, to).split(' ').skip(1).map(str::to_owned).collect()
    };
    let command = typed(add, "123456:ABC…", TOKEN);
    let added = ok(stage.home().run(&command.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(!added.stdout.contains(TOKEN), "{added:?}");
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "any message");
    soon("a code", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let command = typed(approve, "ABCD2345", &code(&stage.answers()[0].1));
    ok(gateway.run(&command.iter().map(String::as_str).collect::<Vec<_>>()));
    stage.telegram.add_message(7, "another message");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(stage.answers()[1], (7, "echo another message".to_owned()));
    let status = ok(gateway.run(&["channels", "status", "--probe"])).stdout;
    assert!(status.contains("connected") && status.contains("authenticated as @fake_bot"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_at_work_connects_and_disconnects_as_the_config_changes() {
    let stage =
        Stage::with(json!({"telegram": {"botToken": "x", "allowFrom": [7], "enabled": false}}), json!({})).await;
    let gateway = stage.gateway();
    let listed = ok(gateway.run(&["channels", "list"])).stdout;
    assert!(listed.contains("telegram") && listed.contains("off"), "{listed}");
    let wrong = gateway.run(&["channels", "add", "telegram", "--token", "nonsense"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("does not look like"), "{wrong:?}");
    ok(gateway.run(&["channels", "add", "telegram", "--token", TOKEN]));
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let logs = ok(gateway.run(&["channels", "logs", "telegram"])).stdout;
    assert!(logs.contains("default connected"), "{logs}");
    ok(gateway.run(&["channels", "remove", "telegram"]));
    until("nobody is connected", || {
        gateway.run(&["channels", "status", "--json"]).json()["channelAccounts"] == json!({})
    });
    let gone = gateway.run(&["channels", "remove", "telegram"]);
    assert!(gone.code == Some(1) && gone.stderr.contains("is not in"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_logs_out_is_disconnected_and_the_rest_of_the_config_stays() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
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
    let kept = fs::read_to_string(stage.home().state().join("homard.json")).unwrap();
    assert!(kept.contains("allowFrom") && !kept.contains(TOKEN), "{kept}");
}
