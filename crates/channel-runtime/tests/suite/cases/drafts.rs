//! Replies that are streamed into a message: the draft becomes the reply, or is reported.

use std::sync::Arc;

use homard_testkit::{
    channel_double::{ChannelDouble, Feature, Operation, RequestFault},
    fake_provider::{AnswerGate, FakeAnswer, ProviderReply},
};
use serde_json::{Value, json};

use crate::{
    fixture::{SuiteFixture, SuiteGateway},
    has,
};

const FIRST: &str = "The first half of a long answer is here, ";
const WHOLE: &str = "The first half of a long answer is here, and so is the second.";

/// Creates a fixture whose model pauses in the middle of its answer until the gate is opened.
async fn streaming(platform: Arc<dyn ChannelDouble>, gate: &AnswerGate) -> SuiteFixture {
    let gate = gate.clone();
    let reply = move |_: &_| ProviderReply {
        answer: FakeAnswer { text: vec![FIRST.to_owned(), WHOLE[FIRST.len()..].to_owned()], ..FakeAnswer::default() },
        gate: Some(gate.clone()),
        ..ProviderReply::default()
    };
    SuiteFixture::with(platform, json!({"streaming": "partial"}), reply).await
}

fn is_draft(text: &str) -> bool {
    text.ends_with('…')
}

/// Waits until the reply is complete, and returns all texts.
async fn texts_with_reply(fixture: &SuiteFixture) -> Vec<String> {
    let is_complete = |platform: &dyn ChannelDouble| platform.seen().iter().any(|message| message.text == WHOLE);
    fixture.until("the reply", is_complete).await;
    fixture.platform.seen().into_iter().map(|message| message.text).collect()
}

/// Checks that a draft that is left is reported: in the channel's state and in the timeline.
async fn is_reported(fixture: &SuiteFixture, gateway: &SuiteGateway, reason: &str) {
    let is_known = |row: &Value| row["outbox"]["unknown"].as_array().is_some_and(|unknown| unknown.len() == 1);
    let status = gateway.status_until(fixture.platform.channel(), is_known).await;
    let unknown = &status["outbox"]["unknown"][0];
    let text = unknown["reason"].as_str().unwrap();
    assert!(text.contains("draft") && text.contains(reason), "{unknown}");
    // The run may end before the draft is known to be lost.
    let is_traced = |trace: &Value| {
        let rows = trace["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.iter().any(|row| row["status"] == "unknown" && row["reason"] == unknown["reason"])
    };
    gateway.call_until("runs.trace", json!({"id": "last"}), is_traced).await;
}

pub(crate) async fn a_draft_becomes_the_reply(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Edits]) {
        return;
    }
    let gate = AnswerGate::default();
    let fixture = streaming(platform, &gate).await;
    let _gateway = fixture.gateway().await;
    fixture.say("tell me");
    assert!(is_draft(&fixture.texts(1).await[0]));
    gate.open();
    assert_eq!(texts_with_reply(&fixture).await, [WHOLE]);
}

pub(crate) async fn a_draft_whose_confirmation_is_lost_is_not_left_unreported(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Edits, Feature::UnknownOutcomes]) {
        return;
    }
    let gate = AnswerGate::default();
    let fixture = streaming(platform, &gate).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, RequestFault::LostResponse);
    fixture.say("tell me");
    fixture.texts(1).await;
    gate.open();
    let texts = texts_with_reply(&fixture).await;
    if texts.iter().any(|text| is_draft(text)) {
        is_reported(&fixture, &gateway, "").await;
    }
}

pub(crate) async fn a_draft_that_a_kill_interrupts_is_not_left_unreported(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Edits, Feature::UnknownOutcomes]) {
        return;
    }
    let gate = AnswerGate::default();
    let mut fixture = streaming(platform, &gate).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, RequestFault::NoResponse);
    fixture.say("tell me");
    fixture.texts(1).await;
    fixture.kill(gateway).await;
    gate.open();
    let gateway = fixture.gateway().await;
    let texts = texts_with_reply(&fixture).await;
    if texts.iter().any(|text| is_draft(text)) {
        is_reported(&fixture, &gateway, "the process ended").await;
    }
}

pub(crate) async fn a_draft_whose_edit_is_lost_leaves_one_message(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Edits]) {
        return;
    }
    let gate = AnswerGate::default();
    let fixture = streaming(platform, &gate).await;
    let _gateway = fixture.gateway().await;
    fixture.say("tell me");
    fixture.texts(1).await;
    fixture.platform.fail_next(Operation::Edit, RequestFault::LostResponse);
    gate.open();
    assert_eq!(texts_with_reply(&fixture).await, [WHOLE]);
}
