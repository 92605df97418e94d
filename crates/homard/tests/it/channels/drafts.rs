//! Streamed replies: the draft becomes the reply exactly once, whatever happens.

use homard_testkit::{
    fake_provider::{AnswerGate, FakeAnswer, ProviderReply, ReceivedRequest, fault::ProviderFault as Broken},
    fake_telegram::{FakeTelegram, TelegramFault},
};
use serde_json::{Value, json};

use super::stage::{Stage, last_message, soon};

const FIRST: &str = "The first half of a long answer is here, ";
const WHOLE: &str = "The first half of a long answer is here, and so is the second.";

/// Returns a reply that stops in the middle until the gate is opened.
fn halting(gate: &AnswerGate) -> ProviderReply {
    let text = vec![FIRST.to_owned(), WHOLE[FIRST.len()..].to_owned()];
    ProviderReply {
        answer: FakeAnswer { text, ..FakeAnswer::default() },
        gate: Some(gate.clone()),
        ..ProviderReply::default()
    }
}

async fn stage(account: Value, gate: &AnswerGate) -> Stage {
    let gate = gate.clone();
    let mut account = account;
    account["allowFrom"] = json!([7]);
    Stage::answering(json!({"telegram": account}), json!({}), move |_| halting(&gate)).await
}

fn texts(telegram: &FakeTelegram) -> Vec<String> {
    telegram.visible_messages().into_iter().map(|seen| seen.text).collect()
}

fn draft() -> String {
    format!("{} …", FIRST.trim_end())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_grows_and_its_draft_becomes_the_answer() {
    let gate = AnswerGate::default();
    let stage = stage(json!({"streaming": "partial", "replyToMode": "first"}), &gate).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "tell me");
    soon("a draft", stage.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    gate.open();
    soon("the answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
    assert_eq!(stage.telegram.visible_messages()[0].reply_to, Some(1), "it hangs on what it answers");
    assert_eq!(stage.telegram.calls_of("sendMessage").len(), 1);
    stage.telegram.add_message(7, "and again");
    soon("another answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE, WHOLE])).await;
    assert!(stage.telegram.calls_of("deleteMessage").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_after_a_crash_finds_its_draft() {
    let gate = AnswerGate::default();
    let stage = stage(json!({"streamMode": "partial"}), &gate).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "tell me");
    soon("a draft", stage.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    crate::home::until("it is on disk which message it is", || {
        std::fs::read_to_string(stage.home().state().join("channels/drafts.json"))
            .is_ok_and(|text| text.contains("telegram"))
    });
    drop(gateway);
    gate.open();
    let _gateway = stage.gateway();
    soon("the answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
    assert_eq!(stage.telegram.calls_of("sendMessage").len(), 1, "nothing is said twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_is_taken_back() {
    let reply = |asked: &ReceivedRequest| match last_message(asked).as_str() {
        "begin" => ProviderReply { fault: Some(Broken::Stall(15)), ..ProviderReply::text("x".repeat(500)) },
        text => ProviderReply::text(format!("echo {text}")),
    };
    let account = json!({"telegram": {"allowFrom": [7], "streaming": true}});
    let stage = Stage::answering(account, json!({}), reply).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "begin");
    let is_draft = |telegram: &FakeTelegram| texts(telegram).iter().any(|text| text.ends_with('…'));
    soon("a draft", stage.telegram.until(is_draft)).await;
    stage.telegram.add_message(7, "/stop");
    soon("no draft", stage.telegram.until(|telegram| !is_draft(telegram))).await;
    stage.telegram.add_message(7, "and now?");
    let is_echo = |telegram: &FakeTelegram| texts(telegram).last().is_some_and(|text| text == "echo and now?");
    soon("an answer", stage.telegram.until(is_echo)).await;
    assert!(
        texts(&stage.telegram)[0].contains("topped") && stage.telegram.visible_messages().len() == 2,
        "{:?}",
        stage.answers()
    );
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_pauses_the_draft_and_an_edit_whose_fate_is_unknown_makes_a_new_message() {
    let gate = AnswerGate::default();
    let stage = stage(json!({"streaming": "partial"}), &gate).await;
    stage.telegram.add_fault("sendMessage", TelegramFault::Flood(1));
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "tell me");
    soon("a draft", stage.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    assert_eq!(stage.telegram.calls_of("sendMessage").len(), 2, "once more, after the pause");
    // The platform performs the edit, but its response is lost.
    stage.telegram.add_fault("editMessageText", TelegramFault::AcceptThenDrop);
    gate.open();
    soon("the answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_cannot_be_edited_is_no_loss() {
    let gate = AnswerGate::default();
    let stage = stage(json!({"streaming": "partial"}), &gate).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "tell me");
    soon("a draft", stage.telegram.until(|telegram| texts(telegram) == [draft()])).await;
    stage.telegram.add_fault("editMessageText", TelegramFault::Denied(400, "Bad Request: message to edit not found"));
    gate.open();
    soon("the answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_wish_for_drafts_comes_whole() {
    let gate = AnswerGate::default();
    gate.open();
    for account in [json!({}), json!({"streaming": "off"})] {
        let stage = stage(account, &gate).await;
        let _gateway = stage.gateway();
        stage.telegram.add_message(7, "tell me");
        soon("the answer", stage.telegram.until(|telegram| texts(telegram) == [WHOLE])).await;
        assert!(stage.telegram.calls_of("editMessageText").is_empty());
    }
}
