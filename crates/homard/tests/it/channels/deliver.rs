//! Replies to someone other than the sender: of `homard agent --deliver`, and of cron jobs.

use homard_testkit::fake_telegram::{FakeTelegram, TelegramFault};
use serde_json::json;

use super::stage::{Stage, soon};
use crate::home::{CommandOutput, RunningGateway, until};

/// Creates a home whose owner has written on Telegram.
async fn spoken() -> Stage {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    Stage::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await
}

async fn hello(stage: &Stage) {
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
}

/// Returns the messages after the first reply.
fn later(stage: &Stage) -> Vec<(i64, String)> {
    stage.answers().split_off(1)
}

fn agent(gateway: &RunningGateway<'_>, more: &[&str]) -> CommandOutput {
    gateway.run(&[&["agent", "-m", "ping", "--deliver"], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_delivered_where_its_session_was_spoken_to_or_where_it_is_said() {
    let stage = spoken().await;
    let gateway = stage.gateway();
    hello(&stage).await;
    let said = agent(&gateway, &[]);
    assert_eq!((said.code, said.stdout.trim()), (Some(0), "echo ping"), "{said:?}");
    assert_eq!(later(&stage), [(7, "echo ping".to_owned())], "it is there when the command ends");
    let said = agent(&gateway, &["--reply-channel", "telegram", "--reply-to", "8", "--json"]);
    assert_eq!((said.code, &said.json()["delivery"]), (Some(0), &json!({"status": "delivered"})), "{said:?}");
    assert_eq!(later(&stage)[1..], [(8, "echo ping".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_arrive_is_told() {
    let stage = spoken().await;
    let gateway = stage.gateway();
    hello(&stage).await;
    let said = agent(&gateway, &["--reply-channel", "signal", "--reply-to", "+1"]);
    assert!(said.code == Some(2) && said.stderr.contains("the channel signal is not set up"), "{said:?}");
    let seen = stage.telegram.visible_messages().len();
    stage.telegram.add_fault("sendMessage", TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"));
    let said = agent(&gateway, &[]);
    assert_eq!((said.code, said.stdout.trim()), (Some(1), "echo ping"), "{said:?}");
    assert!(said.stderr.contains("the reply was not delivered to telegram:7") && said.stderr.contains("blocked"));
    // The next fault is for the next answer, not for the notice about this one.
    soon("the notice", stage.telegram.until(|telegram| telegram.visible_messages().len() == seen + 1)).await;
    stage.telegram.add_fault("sendMessage", TelegramFault::AcceptThenDrop);
    let said = agent(&gateway, &[]);
    assert_eq!((said.code, said.stdout.trim()), (Some(0), "echo ping"), "{said:?}");
    assert!(said.stderr.contains("it is not known whether the reply was delivered to telegram:7"), "{said:?}");
    let status = gateway.run(&["channels", "status"]).stdout;
    assert!(status.contains("1 message may not have been delivered") && status.contains(": 7"), "{status}");
}

fn job(gateway: &RunningGateway<'_>, more: &[&str]) -> String {
    let typed = ["cron", "add", "--name", "look", "--every", "24h", "-m", "look", "--json"];
    let added = gateway.run(&[&typed[..], more].concat());
    let id = added.json()["id"].as_str().unwrap_or_else(|| panic!("{added:?}")).to_owned();
    let run = gateway.run(&["cron", "run", &id]);
    assert_eq!(run.code, Some(0), "{run:?}");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_job_is_announced_where_it_says_or_where_its_agent_was_spoken_to() {
    let stage = spoken().await;
    let gateway = stage.gateway();
    hello(&stage).await;
    let has = |count: usize| move |telegram: &FakeTelegram| telegram.visible_messages().len() == count;
    job(&gateway, &["--announce"]);
    soon("the answer", stage.telegram.until(has(2))).await;
    job(&gateway, &["--announce", "--channel", "telegram", "--to", "8"]);
    soon("the answer", stage.telegram.until(has(3))).await;
    let chats: Vec<_> = later(&stage).into_iter().map(|(chat, text)| (chat, text.contains("look"))).collect();
    assert_eq!(chats, [(7, true), (8, true)]);
    // One job without an announcement, and one that cannot be delivered.
    let quiet = job(&gateway, &[]);
    let lost = job(&gateway, &["--announce", "--channel", "signal", "--to", "+1"]);
    let story = |id: &str| gateway.run(&["cron", "runs", id, "--json"]).stdout;
    until("both are over", || [&quiet, &lost].iter().all(|id| story(id).contains("\"ran\"")));
    assert!(story(&quiet).contains("\"ok\""), "{}", story(&quiet));
    assert!(story(&lost).contains("the channel signal is not set up"), "{}", story(&lost));
    assert_eq!(stage.telegram.visible_messages().len(), 3);
}
