//! Streamed replies: the draft becomes the reply exactly once, whatever happens.

use homard_testkit::{
    fake_provider::{AnswerGate, FakeAnswer, ProviderReply, ReceivedRequest, fault::ProviderFault as Broken},
    fake_telegram::{FakeTelegram, TelegramFault},
};
use serde_json::{Value, json};

use super::setup::{ChannelFixture, last_message, within_timeout};

const FIRST: &str = "The first half of a long answer is here, ";
const WHOLE: &str = "The first half of a long answer is here, and so is the second.";

/// Returns a reply that stops in the middle until the gate is opened.
fn gated_reply(gate: &AnswerGate) -> ProviderReply {
    let text = vec![FIRST.to_owned(), WHOLE[FIRST.len()..].to_owned()];
    ProviderReply {
        answer: FakeAnswer { text, ..FakeAnswer::default() },
        gate: Some(gate.clone()),
        ..ProviderReply::default()
    }
}

async fn draft_fixture(account: Value, gate: &AnswerGate) -> ChannelFixture {
    let gate = gate.clone();
    let mut account = account;
    account["allowFrom"] = json!([7]);
    ChannelFixture::answering(json!({"telegram": account}), json!({}), move |_| gated_reply(&gate)).await
}

fn texts(telegram: &FakeTelegram) -> Vec<String> {
    telegram.visible_messages().into_iter().map(|seen| seen.text).collect()
}

fn draft() -> String {
    format!("{} …", FIRST.trim_end())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_edited_while_streaming_and_becomes_the_reply() {
    let gate = AnswerGate::default();
    let fixture = draft_fixture(json!({"streaming": "partial", "replyToMode": "first"}), &gate).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "tell me");
    within_timeout("a draft", fixture.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    gate.open();
    within_timeout("the answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
    assert_eq!(fixture.telegram.visible_messages()[0].reply_to, Some(1), "it hangs on what it answers");
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
    fixture.telegram.add_message(7, "and again");
    within_timeout("another answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE, WHOLE])).await;
    assert!(fixture.telegram.calls_of("deleteMessage").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_recovered_after_a_crash_reuses_its_draft() {
    let gate = AnswerGate::default();
    let fixture = draft_fixture(json!({"streamMode": "partial"}), &gate).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "tell me");
    within_timeout("a draft", fixture.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    crate::home::until("it is on disk which message it is", || {
        std::fs::read_to_string(fixture.home().state().join("channels/drafts.json"))
            .is_ok_and(|text| text.contains(r#""message":"#))
    });
    drop(gateway);
    gate.open();
    let _gateway = fixture.gateway();
    within_timeout("the answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "nothing is said twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_draft_of_an_aborted_run_is_deleted() {
    let reply = |request: &ReceivedRequest| match last_message(request).as_str() {
        "begin" => ProviderReply { fault: Some(Broken::Stall(15)), ..ProviderReply::text("x".repeat(500)) },
        text => ProviderReply::text(format!("echo {text}")),
    };
    let account = json!({"telegram": {"allowFrom": [7], "streaming": true}});
    let fixture = ChannelFixture::answering(account, json!({}), reply).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "begin");
    let is_draft = |telegram: &FakeTelegram| texts(telegram).iter().any(|text| text.ends_with('…'));
    within_timeout("a draft", fixture.telegram.until(is_draft)).await;
    fixture.telegram.add_message(7, "/stop");
    within_timeout("no draft", fixture.telegram.until(|telegram| !is_draft(telegram))).await;
    fixture.telegram.add_message(7, "and now?");
    let is_echo = |telegram: &FakeTelegram| texts(telegram).last().is_some_and(|text| text == "echo and now?");
    within_timeout("an answer", fixture.telegram.until(is_echo)).await;
    assert!(
        texts(&fixture.telegram)[0].contains("topped") && fixture.telegram.visible_messages().len() == 2,
        "{:?}",
        fixture.answers()
    );
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_pauses_the_draft_and_an_edit_with_unknown_outcome_sends_a_new_message() {
    let gate = AnswerGate::default();
    let fixture = draft_fixture(json!({"streaming": "partial"}), &gate).await;
    fixture.telegram.add_fault("sendMessage", TelegramFault::Flood(1));
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "tell me");
    within_timeout("a draft", fixture.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 2, "once more, after the pause");
    // The platform performs the edit, but its response is lost.
    fixture.telegram.add_fault("editMessageText", TelegramFault::AcceptThenDrop);
    gate.open();
    within_timeout("the answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_cannot_be_edited_loses_no_text() {
    let gate = AnswerGate::default();
    let fixture = draft_fixture(json!({"streaming": "partial"}), &gate).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "tell me");
    within_timeout("a draft", fixture.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    fixture.telegram.add_fault("editMessageText", TelegramFault::Denied(400, "Bad Request: message to edit not found"));
    gate.open();
    within_timeout("the answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_drafts_a_reply_is_sent_whole() {
    let gate = AnswerGate::default();
    gate.open();
    for account in [json!({}), json!({"streaming": "off"})] {
        let fixture = draft_fixture(account, &gate).await;
        let _gateway = fixture.gateway();
        fixture.telegram.add_message(7, "tell me");
        within_timeout("the answer", fixture.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
        assert!(fixture.telegram.calls_of("editMessageText").is_empty());
    }
}
