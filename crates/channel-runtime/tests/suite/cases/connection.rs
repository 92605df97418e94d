//! Events that come twice or late, lost connections, and gateways that end.

use std::sync::Arc;

use homard_testkit::{
    channel_double::{ChannelDouble, Feature, Operation, RequestFault},
    fake_provider::{AnswerGate, ProviderReply, ReceivedRequest},
};
use serde_json::json;

use super::delivery::NOTICE;
use crate::{
    fixture::{SuiteFixture, echo},
    has,
};

pub(crate) async fn repeated_events_cause_one_answer(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("one");
    fixture.texts(1).await;
    fixture.platform.repeat_events();
    fixture.say("two");
    fixture.texts(2).await;
    fixture.platform.repeat_events();
    fixture.say("three");
    assert_eq!(fixture.texts(3).await, ["echo one", "echo two", "echo three"]);
    assert_eq!(fixture.model.requests().len(), 3);
}

pub(crate) async fn messages_during_a_disconnect_are_answered(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Connection]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("one");
    fixture.texts(1).await;
    fixture.platform.disconnect();
    fixture.say("two");
    assert_eq!(fixture.texts(2).await, ["echo one", "echo two"]);
    fixture.say("three");
    assert_eq!(fixture.texts(3).await, ["echo one", "echo two", "echo three"]);
}

pub(crate) async fn messages_while_the_gateway_is_down_are_answered(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Connection]) {
        return;
    }
    let mut fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.say("one");
    fixture.texts(1).await;
    fixture.stop(gateway).await;
    fixture.say("two");
    let _gateway = fixture.gateway().await;
    assert_eq!(fixture.texts(2).await, ["echo one", "echo two"]);
    fixture.say("three");
    assert_eq!(fixture.texts(3).await[2], "echo three");
}

pub(crate) async fn a_forgotten_position_loses_and_repeats_nothing(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Cursor]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("one");
    fixture.texts(1).await;
    fixture.until("all events are delivered", |platform| platform.is_drained()).await;
    fixture.platform.reset_cursor();
    fixture.say("two");
    fixture.texts(2).await;
    fixture.say("three");
    assert_eq!(fixture.texts(3).await, ["echo one", "echo two", "echo three"]);
}

pub(crate) async fn a_kill_while_the_model_answers_leads_to_one_answer(platform: Arc<dyn ChannelDouble>) {
    let gate = AnswerGate::default();
    let reply = move |request: &ReceivedRequest| match request.number {
        0 => ProviderReply { gate: Some(gate.clone()), ..ProviderReply::text("never said") },
        _ => echo(request),
    };
    let mut fixture = SuiteFixture::with(platform, json!({}), reply).await;
    let gateway = fixture.gateway().await;
    fixture.say("one");
    fixture.until_asked(1).await;
    fixture.kill(gateway).await;
    let _gateway = fixture.gateway().await;
    assert_eq!(fixture.texts(1).await, ["echo one"]);
    fixture.say("two");
    assert_eq!(fixture.texts(2).await, ["echo one", "echo two"]);
}

pub(crate) async fn a_kill_during_the_delivery_is_reported(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::UnknownOutcomes]) {
        return;
    }
    let mut fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, RequestFault::NoResponse);
    fixture.say("one");
    fixture.texts(1).await;
    fixture.kill(gateway).await;
    let gateway = fixture.gateway().await;
    let texts = fixture.texts(2).await;
    assert!(texts[0] == "echo one" && texts[1].starts_with(NOTICE), "{texts:?}");
    let trace = gateway.call("runs.trace", json!({"id": "last"})).await;
    assert!(trace["deliveries"][0]["reason"].as_str().unwrap().contains("the process ended"), "{trace}");
    fixture.say("two");
    assert_eq!(fixture.texts(3).await[2], "echo two");
}
