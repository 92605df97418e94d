//! Long texts: complete, in order, and in as few messages as the platform permits.

use std::sync::Arc;

use homard_testkit::{channel_double::ChannelDouble, fake_provider::ProviderReply};
use serde_json::json;

use crate::fixture::SuiteFixture;

/// Has the model answer with a text, and returns the messages that it arrives in.
async fn messages_of(platform: Arc<dyn ChannelDouble>, text: String, last_word: &str) -> Vec<String> {
    let fixture = SuiteFixture::with(platform, json!({}), move |_: &_| ProviderReply::text(text.clone())).await;
    let _gateway = fixture.gateway().await;
    fixture.say("tell me");
    let is_complete =
        |platform: &dyn ChannelDouble| platform.seen().iter().any(|message| message.text.contains(last_word));
    fixture.until("the last word", is_complete).await;
    fixture.platform.seen().into_iter().map(|message| message.text).collect()
}

/// Returns the words of a text without fences.
fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let words = texts.into_iter().flat_map(str::split_whitespace);
    words.filter(|word| !word.starts_with("```")).collect()
}

/// Lines of code, numbered.
fn code(characters: usize) -> String {
    let lines: Vec<String> =
        (0..characters / 40).map(|n| format!("let value_{n:05} = compute({n:05}, 7, 8);")).collect();
    lines.join("\n")
}

pub(crate) async fn a_long_answer_is_complete_and_in_order(platform: Arc<dyn ChannelDouble>) {
    let limit = platform.max_text();
    let text: Vec<String> = (0..limit * 5 / 20).map(|n| format!("word{n:06}")).collect();
    let messages = messages_of(platform, text.join(" "), text.last().unwrap()).await;
    assert!(
        messages.len() > 1 && messages.iter().all(|message| message.chars().count() <= limit),
        "{}",
        messages.len()
    );
    assert_eq!(words(messages.iter().map(String::as_str)), text);
}

/// Checks that a text with code arrives completely, in messages that are at least half full.
async fn code_is_cut_at_the_limit(platform: Arc<dyn ChannelDouble>, text: String, last_word: &str) {
    let limit = platform.max_text();
    let least = text.chars().count().div_ceil(limit);
    let messages = messages_of(platform, text.clone(), last_word).await;
    let lengths: Vec<usize> = messages.iter().map(|message| message.chars().count()).collect();
    assert!(lengths.iter().all(|length| *length <= limit), "{lengths:?}");
    assert!(messages.len() <= 2 * least, "{} messages, {least} would do: {lengths:?}", messages.len());
    assert_eq!(words(messages.iter().map(String::as_str)), words([text.as_str()]));
}

pub(crate) async fn a_text_that_starts_with_a_code_block_is_cut_at_the_limit(platform: Arc<dyn ChannelDouble>) {
    let code = code(platform.max_text() * 5 / 2);
    code_is_cut_at_the_limit(platform, format!("```rust\n{code}\n```\nThat is all."), "all.").await;
}

pub(crate) async fn a_code_block_between_texts_is_cut_at_the_limit(platform: Arc<dyn ChannelDouble>) {
    let code = code(platform.max_text() * 5 / 2);
    code_is_cut_at_the_limit(platform, format!("This is it:\n\n```rust\n{code}\n```\n\nThat is all."), "all.").await;
}
