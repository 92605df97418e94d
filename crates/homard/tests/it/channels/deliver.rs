//! Replies to someone other than the sender: of `homard agent --deliver`, and of cron jobs.

use homard_testkit::fake_telegram::{FakeTelegram, TelegramFault};
use serde_json::json;

use super::setup::{ChannelFixture, within_timeout};
use crate::home::{CommandOutput, RunningGateway, until};

/// Creates a home whose owner has written on Telegram.
async fn spoken() -> ChannelFixture {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    ChannelFixture::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await
}

async fn hello(fixture: &ChannelFixture) {
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
}

/// Returns the messages after the first reply.
fn later(fixture: &ChannelFixture) -> Vec<(i64, String)> {
    fixture.answers().split_off(1)
}

fn agent(gateway: &RunningGateway<'_>, extra_args: &[&str]) -> CommandOutput {
    gateway.run(&[&["agent", "-m", "ping", "--deliver"], extra_args].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_delivered_to_the_sessions_last_chat_or_the_requested_target() {
    let fixture = spoken().await;
    let gateway = fixture.gateway();
    hello(&fixture).await;
    let output = agent(&gateway, &[]);
    assert_eq!((output.code, output.stdout.trim()), (Some(0), "echo ping"), "{output:?}");
    assert_eq!(later(&fixture), [(7, "echo ping".to_owned())], "it is there when the command ends");
    let output = agent(&gateway, &["--reply-channel", "telegram", "--reply-to", "8", "--json"]);
    assert_eq!((output.code, &output.json()["delivery"]), (Some(0), &json!({"status": "delivered"})), "{output:?}");
    assert_eq!(later(&fixture)[1..], [(8, "echo ping".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_delivery_is_reported() {
    let fixture = spoken().await;
    let gateway = fixture.gateway();
    hello(&fixture).await;
    let output = agent(&gateway, &["--reply-channel", "signal", "--reply-to", "+1"]);
    assert!(output.code == Some(2) && output.stderr.contains("channel signal is not configured"), "{output:?}");
    let seen = fixture.telegram.visible_messages().len();
    fixture.telegram.add_fault("sendMessage", TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"));
    let output = agent(&gateway, &[]);
    assert_eq!((output.code, output.stdout.trim()), (Some(1), "echo ping"), "{output:?}");
    assert!(output.stderr.contains("the reply was not delivered to telegram:7") && output.stderr.contains("blocked"));
    // The next fault is for the next answer, not for the notice about this one.
    within_timeout("the notice", fixture.telegram.until(|telegram| telegram.visible_messages().len() == seen + 1))
        .await;
    fixture.telegram.add_fault("sendMessage", TelegramFault::AcceptThenDrop);
    let output = agent(&gateway, &[]);
    assert_eq!((output.code, output.stdout.trim()), (Some(0), "echo ping"), "{output:?}");
    assert!(output.stderr.contains("it is not known whether the reply was delivered to telegram:7"), "{output:?}");
    let status = gateway.run(&["channels", "status"]).stdout;
    assert!(status.contains("1 message may not have been delivered") && status.contains(": 7"), "{status}");
}

fn job(gateway: &RunningGateway<'_>, extra_args: &[&str]) -> String {
    let args = ["cron", "add", "--name", "look", "--every", "24h", "-m", "look", "--json"];
    let added = gateway.run(&[&args[..], extra_args].concat());
    let id = added.json()["id"].as_str().unwrap_or_else(|| panic!("{added:?}")).to_owned();
    let run = gateway.run(&["cron", "run", &id]);
    assert_eq!(run.code, Some(0), "{run:?}");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_result_is_announced_to_its_target_or_the_agents_last_chat() {
    let fixture = spoken().await;
    let gateway = fixture.gateway();
    hello(&fixture).await;
    let has = |count: usize| move |telegram: &FakeTelegram| telegram.visible_messages().len() == count;
    job(&gateway, &["--announce"]);
    within_timeout("the answer", fixture.telegram.until(has(2))).await;
    job(&gateway, &["--announce", "--channel", "telegram", "--to", "8"]);
    within_timeout("the answer", fixture.telegram.until(has(3))).await;
    let chats: Vec<_> = later(&fixture).into_iter().map(|(chat, text)| (chat, text.contains("look"))).collect();
    assert_eq!(chats, [(7, true), (8, true)]);
    // One job without an announcement, and one that cannot be delivered.
    let quiet = job(&gateway, &[]);
    let undeliverable = job(&gateway, &["--announce", "--channel", "signal", "--to", "+1"]);
    let runs = |id: &str| gateway.run(&["cron", "runs", id, "--json"]).stdout;
    until("both are over", || [&quiet, &undeliverable].iter().all(|id| runs(id).contains("\"ran\"")));
    assert!(runs(&quiet).contains("\"ok\""), "{}", runs(&quiet));
    assert!(runs(&undeliverable).contains("channel signal is not configured"), "{}", runs(&undeliverable));
    assert_eq!(fixture.telegram.visible_messages().len(), 3);
}
