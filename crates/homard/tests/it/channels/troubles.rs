//! Failures between the gateway and Telegram.

use homard_testkit::fake_telegram::TelegramFault;
use serde_json::{Value, json};

use super::stage::{Stage, soon};
use crate::home::{RunningGateway, until};

fn account(gateway: &RunningGateway<'_>) -> Value {
    gateway.run(&["channels", "status", "--json"]).json()["channelAccounts"]["telegram"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_telegram_does_not_take_is_sent_again_until_it_does() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = stage.gateway();
    for fault in [TelegramFault::Flood(1), TelegramFault::Page(503), TelegramFault::Denied(503, "Service Unavailable")]
    {
        stage.telegram.add_fault("sendMessage", fault);
    }
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(stage.answers(), [(7, "echo hello".to_owned())]);
    assert_eq!(stage.telegram.calls_of("sendMessage").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_telegram_never_takes_is_given_up_and_does_not_keep_the_next_from_going() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
    stage.telegram.add_fault("sendMessage", TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"));
    stage.telegram.add_message(7, "one");
    soon("a try", stage.telegram.until(|telegram| telegram.calls_of("sendMessage").len() == 1)).await;
    stage.telegram.add_message(7, "two");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let notice =
        "⚠️ A message to you was not delivered, because the channel refused it. If an answer is missing, ask again.";
    assert_eq!(stage.answers(), [(7, notice.to_owned()), (7, "echo two".to_owned())]);
    let logs = gateway.run(&["channels", "logs", "telegram"]).stdout;
    assert!(logs.contains("not sent: ") && logs.contains("blocked by the user"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_arrived_is_not_sent_again() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = stage.gateway();
    stage.telegram.add_fault("sendMessage", TelegramFault::AcceptThenDrop);
    stage.telegram.add_message(7, "one");
    soon("a try", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    stage.telegram.add_message(7, "two");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    let notice = "⚠️ A message to you may not have arrived. If an answer is missing, ask again.";
    assert_eq!(stage.answers(), ["echo one", notice, "echo two"].map(|text| (7, text.to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_poller_is_told_and_borne_with() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    for _ in 0..2 {
        stage
            .telegram
            .add_fault("getUpdates", TelegramFault::Denied(409, "Conflict: terminated by other getUpdates request"));
    }
    let gateway = stage.gateway();
    until("the rival is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|why| why.contains("terminated by other getUpdates"))
    });
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    until("all is well", || account(&gateway)["connected"] == true && account(&gateway)["lastError"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_wrong_is_told_without_showing_it() {
    let wrong = "999:a-token-that-is-wrong";
    let stage = Stage::telegram(json!({"allowFrom": [7], "botToken": wrong})).await;
    let gateway = stage.gateway();
    until("it is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|why| why.contains("token is not valid"))
    });
    let status = gateway.run(&["channels", "status", "--probe"]).stdout;
    assert!(status.contains("stopped") && !status.contains("a-token-that-is-wrong"), "{status}");
    let without = json!({"channels": {"telegram": {"allowFrom": [7]}}});
    stage.home().configure(&without.to_string());
    until("what is missing is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|why| why.contains("homard channels add telegram"))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_in_disorder_and_again_lead_to_one_run_each() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    stage.telegram.add_fault("getUpdates", TelegramFault::Disorder);
    stage.telegram.add_fault("getUpdates", TelegramFault::Again);
    stage.telegram.add_fault("getUpdates", TelegramFault::Again);
    for text in ["one", "two"] {
        stage.telegram.add_message(7, text);
    }
    let _gateway = stage.gateway();
    soon("all is asked for", stage.telegram.until(|telegram| telegram.calls_of("getUpdates").len() >= 4)).await;
    stage.telegram.add_message(7, "three");
    let has_three = |stage: &Stage| stage.answers().iter().any(|(_, text)| text.contains("three"));
    until("the last answer", || has_three(&stage));
    let runs = stage.puppet.provider.requests();
    let last = runs.last().unwrap().body.clone();
    for text in ["one", "two", "three"] {
        assert_eq!(last.matches(&format!("] {text}")).count(), 1, "{text}: {last}");
    }
}
