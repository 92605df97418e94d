//! What happens to an answer that the platform does not accept, or that it may have accepted.

use std::sync::Arc;

use homard_testkit::{
    channel_double::{ChannelDouble, Feature, Operation, RequestFault, User, UserMessage},
    fake_provider::ProviderReply,
};
use serde_json::{Value, json};

use crate::{fixture::SuiteFixture, has};

/// Begins the text of a notice about a message that did not arrive, or may not have.
pub(crate) const NOTICE: &str = "⚠️ A message to you";

/// Has the first answer fail, and waits until a second one arrives. Returns all texts, without notices.
async fn texts_after(fixture: &SuiteFixture, fault: RequestFault) -> Vec<String> {
    fixture.platform.fail_next(Operation::Send, fault);
    fixture.say("one");
    let is_tried = |platform: &dyn ChannelDouble| platform.requests(Operation::Send) > 0;
    fixture.until("an attempt", is_tried).await;
    fixture.say("two");
    let is_answered = |platform: &dyn ChannelDouble| platform.seen().iter().any(|message| message.text == "echo two");
    fixture.until("the second answer", is_answered).await;
    let texts = fixture.platform.seen().into_iter().map(|message| message.text);
    texts.filter(|text| !text.starts_with(NOTICE)).collect()
}

/// Returns true if the platform shows a notice about a lost message.
fn has_notice(fixture: &SuiteFixture) -> bool {
    fixture.platform.seen().iter().any(|message| message.text.starts_with(NOTICE))
}

pub(crate) async fn a_rate_limit_delays_the_answer(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    assert_eq!(texts_after(&fixture, RequestFault::RateLimited(1)).await, ["echo one", "echo two"]);
    assert_eq!(fixture.platform.requests(Operation::Send), 3);
}

pub(crate) async fn an_unavailable_platform_is_asked_again(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    assert_eq!(texts_after(&fixture, RequestFault::Unavailable).await, ["echo one", "echo two"]);
}

pub(crate) async fn a_refused_answer_is_reported_and_the_next_is_sent(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    assert_eq!(texts_after(&fixture, RequestFault::Refused).await, ["echo two"]);
    assert!(has_notice(&fixture), "{:?}", fixture.platform.seen());
    let is_failed = |row: &Value| row["outbox"]["failed"].as_array().is_some_and(|failed| failed.len() == 1);
    let status = gateway.status_until(fixture.platform.channel(), is_failed).await;
    assert!(status["outbox"]["failed"][0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{status}");
}

/// The ids that users see lead to the run, and the run shows them.
pub(crate) async fn a_trace_knows_the_ids_of_the_platform(platform: Arc<dyn ChannelDouble>) {
    let text = "word ".repeat(platform.max_text() / 2);
    let answer = text.trim_end().to_owned();
    let fixture = SuiteFixture::with(platform, json!({}), move |_: &_| ProviderReply::text(answer.clone())).await;
    let gateway = fixture.gateway().await;
    let message = fixture.say("tell me");
    fixture.texts(2).await;
    let is_sent = |trace: &Value| {
        trace["deliveries"].as_array().is_some_and(|rows| rows.iter().all(|row| row["status"] == "sent"))
    };
    let trace = gateway.call_until("runs.trace", json!({"id": "last"}), is_sent).await;
    let rows = trace["deliveries"].as_array().unwrap().iter();
    let known: Vec<&str> =
        rows.flat_map(|row| row["messageIds"].as_array().unwrap()).map(|id| id.as_str().unwrap()).collect();
    let seen: Vec<String> = fixture.platform.seen().into_iter().map(|message| message.id).collect();
    assert_eq!(known, seen, "{trace}");
    for id in seen.iter().chain([&message]) {
        let found = gateway.call("runs.trace", json!({"id": id})).await;
        assert_eq!(found["run"]["runId"], trace["run"]["runId"], "{id}");
    }
}

/// Checks that an answer whose outcome is unknown is sent once at most, and reported with a reason.
async fn is_reported_once(platform: Arc<dyn ChannelDouble>, fault: RequestFault) {
    if !has(&platform, &[Feature::UnknownOutcomes]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    let texts = texts_after(&fixture, fault).await;
    assert!(texts == ["echo two"] || texts == ["echo one", "echo two"], "{texts:?}");
    assert!(has_notice(&fixture), "{:?}", fixture.platform.seen());
    let is_known = |row: &Value| row["outbox"]["unknown"].as_array().is_some_and(|unknown| unknown.len() == 1);
    let status = gateway.status_until(fixture.platform.channel(), is_known).await;
    let unknown = status["outbox"]["unknown"][0].clone();
    // The timeline says what happened, not what might have.
    let trace = gateway.call("runs.trace", json!({"id": unknown["id"]})).await;
    let delivery = trace["deliveries"][0].clone();
    assert_eq!((&delivery["status"], &delivery["reason"]), (&json!("unknown"), &unknown["reason"]), "{trace}");
    let reason = delivery["reason"].as_str().unwrap().to_lowercase();
    assert!(["connection", "reset", "closed"].iter().any(|word| reason.contains(word)), "{reason}");
    assert!(!reason.contains("the process ended"), "{reason}");
}

pub(crate) async fn an_answer_whose_confirmation_is_lost_is_not_repeated(platform: Arc<dyn ChannelDouble>) {
    is_reported_once(platform, RequestFault::LostResponse).await;
}

pub(crate) async fn an_answer_whose_connection_is_reset_is_not_repeated(platform: Arc<dyn ChannelDouble>) {
    is_reported_once(platform, RequestFault::Reset).await;
}

/// The fault has no effect, but the channel cannot know that. Either it knows from the platform's documentation that it
/// may repeat the request, or it reports the answer.
pub(crate) async fn a_server_error_repeats_nothing_that_may_have_arrived(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    let texts = texts_after(&fixture, RequestFault::ServerError).await;
    let is_reported = texts == ["echo two"] && has_notice(&fixture);
    assert!(is_reported || texts == ["echo one", "echo two"], "{texts:?}");
}

pub(crate) async fn an_unknown_chat_is_reported_as_such(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::UnknownChats]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let gateway = fixture.gateway().await;
    fixture.platform.fail_next(Operation::Send, RequestFault::UnknownChat);
    fixture.post(&UserMessage::direct(User::Friend, "hello"));
    let is_failed = |row: &Value| row["outbox"]["failed"].as_array().is_some_and(|failed| !failed.is_empty());
    let status = gateway.status_until(fixture.platform.channel(), is_failed).await;
    let reason = status["outbox"]["failed"][0]["reason"].to_string().to_lowercase();
    assert!(reason.contains("chat") || reason.contains("channel"), "{reason}");
    assert!(!reason.contains("token"), "{reason}");
}
