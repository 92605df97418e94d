//! Messages that a client asks to send: once per idempotency key.

use std::sync::Arc;

use homard_testkit::channel_double::{ChannelDouble, Feature, Operation, RequestFault};
use serde_json::{Value, json};

use crate::{fixture::SuiteFixture, has};

/// Returns the parameters of a request to send a message to the owner.
fn request(fixture: &SuiteFixture, key: &str, text: &str) -> Value {
    json!({
        "channel": fixture.platform.channel(), "to": fixture.owner_chat(), "message": text, "idempotencyKey": key,
    })
}

pub(crate) async fn a_message_with_a_key_is_sent_once_across_restarts(platform: Arc<dyn ChannelDouble>) {
    let mut fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    let hello = request(&fixture, "k1", "hello");
    let first = gateway.call("send", hello.clone()).await;
    assert_eq!(fixture.texts(1).await, ["hello"]);
    assert_eq!(first["messageId"], json!(fixture.platform.seen()[0].id));
    fixture.stop(gateway).await;
    let gateway = fixture.gateway().await;
    assert_eq!(gateway.call("send", hello.clone()).await, first);
    fixture.kill(gateway).await;
    let gateway = fixture.gateway().await;
    assert_eq!(gateway.call("send", hello).await, first);
    let conflict = gateway.try_call("send", request(&fixture, "k1", "something else")).await.unwrap_err();
    assert!(conflict.to_string().contains("idempotency_conflict"), "{conflict}");
    gateway.call("send", request(&fixture, "k2", "hello")).await;
    assert_eq!(fixture.texts(2).await, ["hello", "hello"]);
}

pub(crate) async fn a_message_that_had_no_effect_may_be_sent_again(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    let hello = request(&fixture, "k1", "hello");
    for fault in [RequestFault::Unavailable, RequestFault::Refused] {
        fixture.platform.fail_next(Operation::Send, fault);
        gateway.try_call("send", hello.clone()).await.unwrap_err();
    }
    assert_eq!(fixture.platform.seen(), []);
    gateway.call("send", hello.clone()).await;
    gateway.call("send", hello).await;
    fixture.say("hi");
    assert_eq!(fixture.texts(2).await, ["hello", "echo hi"]);
}

pub(crate) async fn a_message_that_a_kill_interrupts_is_reported_and_not_repeated(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::UnknownOutcomes]) {
        return;
    }
    let mut fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    let hello = request(&fixture, "k1", "hello");
    fixture.platform.fail_next(Operation::Send, RequestFault::NoResponse);
    {
        let sending = gateway.try_call("send", hello.clone());
        tokio::pin!(sending);
        let arrives = fixture.until("the message", |platform| platform.seen().len() == 1);
        tokio::select! {
            answer = &mut sending => panic!("the platform does not answer: {answer:?}"),
            () = arrives => {}
        }
    }
    fixture.kill(gateway).await;
    let gateway = fixture.gateway().await;
    let again = gateway.try_call("send", hello).await.unwrap_err().to_string();
    assert!(again.contains("may have been sent"), "{again}");
    let is_known = |row: &Value| row["outbox"]["unknown"].as_array().is_some_and(|unknown| unknown.len() == 1);
    let status = gateway.status_until(fixture.platform.channel(), is_known).await;
    let unknown = &status["outbox"]["unknown"][0];
    assert!(unknown["id"].as_str().unwrap().ends_with("send-k1"), "{unknown}");
    assert!(unknown["reason"].as_str().unwrap().contains("the process ended"), "{unknown}");
    fixture.say("hi");
    assert_eq!(fixture.texts(2).await, ["hello", "echo hi"]);
}
