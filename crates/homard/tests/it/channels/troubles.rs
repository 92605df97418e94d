//! Failures between the gateway and Telegram.

use homard_testkit::fake_telegram::TelegramFault;
use serde_json::{Value, json};

use super::setup::{ChannelFixture, within_timeout};
use crate::home::{RunningGateway, until};

fn account(gateway: &RunningGateway<'_>) -> Value {
    gateway.run(&["channels", "status", "--json"]).json()["channelAccounts"]["telegram"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_telegram_rejects_temporarily_is_retried() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = fixture.gateway();
    for fault in [TelegramFault::Flood(1), TelegramFault::Page(503), TelegramFault::Denied(503, "Service Unavailable")]
    {
        fixture.telegram.add_fault("sendMessage", fault);
    }
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(fixture.answers(), [(7, "echo hello".to_owned())]);
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_telegram_rejects_permanently_does_not_block_the_next() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_fault("sendMessage", TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"));
    fixture.telegram.add_message(7, "one");
    within_timeout("a try", fixture.telegram.until(|telegram| telegram.calls_of("sendMessage").len() == 1)).await;
    fixture.telegram.add_message(7, "two");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let notice =
        "⚠️ A message to you was not delivered, because the channel refused it. If an answer is missing, ask again.";
    assert_eq!(fixture.answers(), [(7, notice.to_owned()), (7, "echo two".to_owned())]);
    let logs = gateway.run(&["channels", "logs", "telegram"]).stdout;
    assert!(logs.contains("not sent: ") && logs.contains("blocked by the user"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_may_have_arrived_is_not_resent() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_fault("sendMessage", TelegramFault::AcceptThenDrop);
    fixture.telegram.add_message(7, "one");
    within_timeout("a try", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    fixture.telegram.add_message(7, "two");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    let notice = "⚠️ A message to you may not have arrived. If an answer is missing, ask again.";
    assert_eq!(fixture.answers(), ["echo one", notice, "echo two"].map(|text| (7, text.to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_poller_is_reported_and_polling_continues() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    for _ in 0..2 {
        fixture
            .telegram
            .add_fault("getUpdates", TelegramFault::Denied(409, "Conflict: terminated by other getUpdates request"));
    }
    let gateway = fixture.gateway();
    until("the rival is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|reason| reason.contains("terminated by other getUpdates"))
    });
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    until("all is well", || account(&gateway)["connected"] == true && account(&gateway)["lastError"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_token_is_reported_without_showing_it() {
    let invalid_token = "999:a-token-that-is-wrong";
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7], "botToken": invalid_token})).await;
    let gateway = fixture.gateway();
    until("it is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|reason| reason.contains("token is not valid"))
    });
    let status = gateway.run(&["channels", "status", "--probe"]).stdout;
    assert!(status.contains("stopped") && !status.contains("a-token-that-is-wrong"), "{status}");
    let without = json!({"channels": {"telegram": {"allowFrom": [7]}}});
    fixture.home().configure(&without.to_string());
    until("what is missing is told", || {
        account(&gateway)["lastError"].as_str().is_some_and(|reason| reason.contains("homard channels add telegram"))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn unordered_and_repeated_updates_cause_one_run_each() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    fixture.telegram.add_fault("getUpdates", TelegramFault::Disorder);
    fixture.telegram.add_fault("getUpdates", TelegramFault::Again);
    fixture.telegram.add_fault("getUpdates", TelegramFault::Again);
    for text in ["one", "two"] {
        fixture.telegram.add_message(7, text);
    }
    let _gateway = fixture.gateway();
    within_timeout("all is asked for", fixture.telegram.until(|telegram| telegram.calls_of("getUpdates").len() >= 4))
        .await;
    fixture.telegram.add_message(7, "three");
    let has_three = |fixture: &ChannelFixture| fixture.answers().iter().any(|(_, text)| text.contains("three"));
    until("the last answer", || has_three(&fixture));
    let runs = fixture.scripted.provider.requests();
    let last = runs.last().unwrap().body.clone();
    for text in ["one", "two", "three"] {
        assert_eq!(last.matches(&format!("] {text}")).count(), 1, "{text}: {last}");
    }
}
