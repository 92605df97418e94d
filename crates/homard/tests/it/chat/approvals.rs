//! A command that waits for approval, with a real gateway: one key answers, and its output is shown.

use std::time::Duration;

use homard_testkit::fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest};
use serde_json::json;
use tokio::time::Instant;

use super::Tmux;
use crate::{
    home::{skip, until},
    scripted_model::ScriptedHome,
};

/// How long a request must be visible before a key answers it, with a margin.
const PAUSE: Duration = Duration::from_millis(600);

/// Calls `exec` for a message with COMMAND, and comments on its result.
fn reply(request: &ReceivedRequest) -> ProviderReply {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    let text = last["content"].to_string();
    if last["role"] == "tool" {
        return ProviderReply::text("It waits for you.");
    }
    if text.contains("sum is 42") {
        return ProviderReply::text("The command has run.");
    }
    match text.split_once("COMMAND ") {
        Some((_, command)) => {
            let command = command.trim_matches(['"', '\\', ']', '}']);
            let arguments = json!({"command": command});
            let calls =
                vec![FakeToolCall { id: format!("call_{}", request.number), name: "exec".to_owned(), arguments }];
            ProviderReply { answer: FakeAnswer { calls, ..FakeAnswer::default() }, ..ProviderReply::default() }
        }
        None => ProviderReply::text("It was denied."),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_allows_a_command_and_its_output_is_shown() {
    let config = json!({"tools": {"exec": {"ask": "always"}}});
    let fixture = ScriptedHome::answering(config, reply).await;
    let gateway = fixture.home.gateway();
    let Some(tmux) = Tmux::start(&fixture.home, "tmux", &["chat"]) else {
        return skip("an approval in the chat", "tmux is not installed");
    };
    tmux.shows("Ask anything");
    // What is printed differs from what was typed.
    tmux.types("COMMAND echo sum is $((40 + 2))", "Enter");
    tmux.shows("Allow this command?");
    tmux.shows("$ echo sum is $((40 + 2))");
    // The chat takes a key for typing that comes within 0.4 s of the request.
    let shown = Instant::now();
    until("the request was visible for a moment", || shown.elapsed() > PAUSE);
    tmux.run(&["send-keys", "y"]);
    tmux.shows("allowed once: echo sum is $((40 + 2))");
    tmux.shows("sum is 42");
    tmux.shows("The command has run.");
    drop(gateway);
}
