//! Pairing: codes for unknown senders, and what happens if a code cannot be sent.

use std::sync::Arc;

use homard_testkit::channel_double::{ChannelDouble, Operation, RequestFault, User, UserMessage};
use serde_json::json;

use crate::fixture::SuiteFixture;

/// Returns the code in a message.
fn code(text: &str) -> String {
    text.split("Pairing code: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

fn stranger(text: &str) -> UserMessage {
    UserMessage::direct(User::Stranger, text)
}

pub(crate) async fn a_stranger_gets_one_code_and_is_admitted_after_approval(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.post(&stranger("a secret of the stranger"));
    let code = code(&fixture.texts(1).await[0]);
    fixture.post(&stranger("hello?"));
    fixture.say("hi");
    assert_eq!(fixture.texts(2).await[1], "echo hi");
    let params = json!({"channel": fixture.platform.channel(), "code": code, "notify": false, "guest": true});
    gateway.call("channels.pairing.approve", params).await;
    fixture.post(&stranger("thank you"));
    assert_eq!(fixture.texts(3).await[2], "echo thank you");
    assert!(fixture.model.requests().iter().all(|request| !request.body.contains("a secret of the stranger")));
}

/// Checks that a code whose sending fails arrives nevertheless, and that it is valid.
async fn a_code_arrives_after(platform: Arc<dyn ChannelDouble>, fault: RequestFault) {
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, fault);
    fixture.post(&stranger("let me in"));
    let is_tried = |platform: &dyn ChannelDouble| platform.requests(Operation::Send) > 0;
    fixture.until("an attempt", is_tried).await;
    fixture.post(&stranger("hello?"));
    fixture.until("a second attempt", |platform| platform.requests(Operation::Send) > 1).await;
    let code = code(&fixture.texts(1).await[0]);
    let params = json!({"channel": fixture.platform.channel(), "code": code, "notify": false, "guest": true});
    gateway.call("channels.pairing.approve", params).await;
    fixture.post(&stranger("thank you"));
    let is_answered =
        |platform: &dyn ChannelDouble| platform.seen().iter().any(|message| message.text == "echo thank you");
    fixture.until("an answer", is_answered).await;
}

pub(crate) async fn a_code_arrives_after_a_rate_limit(platform: Arc<dyn ChannelDouble>) {
    a_code_arrives_after(platform, RequestFault::RateLimited(1)).await;
}

pub(crate) async fn a_code_arrives_after_a_server_error(platform: Arc<dyn ChannelDouble>) {
    a_code_arrives_after(platform, RequestFault::ServerError).await;
}

pub(crate) async fn a_code_arrives_after_a_reset(platform: Arc<dyn ChannelDouble>) {
    a_code_arrives_after(platform, RequestFault::Reset).await;
}

pub(crate) async fn a_code_arrives_after_a_kill(platform: Arc<dyn ChannelDouble>) {
    let mut fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, RequestFault::Unavailable);
    fixture.platform.fail_next(Operation::Send, RequestFault::NoResponse);
    fixture.post(&stranger("let me in"));
    fixture.until("a second attempt", |platform| platform.requests(Operation::Send) > 1).await;
    fixture.kill(gateway).await;
    let gateway = fixture.gateway().await;
    fixture.until("a third attempt", |platform| platform.requests(Operation::Send) > 2).await;
    let listed = gateway.call("channels.pairing.list", json!({"channel": fixture.platform.channel()})).await;
    let known = listed["requests"][0]["requestId"].as_str().unwrap().to_owned();
    assert_eq!(code(&fixture.texts(1).await[0]), known);
}
