//! Chat platforms through the binary, over real HTTP: a fake Bot API, a fake peer of the webhook channel, a fake model.

mod stage;

use std::time::Duration;

use homard_testkit::fake_telegram::Fault;
use serde_json::json;

use self::stage::{Stage, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_from_a_phone_is_answered_once_and_typing_is_shown() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
    stage.telegram.writes(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| !telegram.seen().is_empty())).await;
    assert_eq!(stage.answers(), [(7, "echo hello".to_owned())]);
    assert_eq!(stage.sessions(&gateway), ["agent:main:main"], "the only person is the owner");
    assert!(!stage.telegram.calls_of("sendChatAction").is_empty());
}
