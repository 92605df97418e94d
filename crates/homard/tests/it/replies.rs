//! Output of replies.

use homard_agent::REPLY_NUDGE;
use homard_testkit::fake_provider::{FakeAnswer, ProviderReply};
use serde_json::json;

use crate::scripted_model::ScriptedHome;

const SILENCE: &str = "(the agent chose not to answer)\n";

/// Creates a home whose model gives these answers, one per request, each in pieces; the last one is repeated.
async fn saying<const N: usize>(answers: [&'static [&'static str]; N]) -> ScriptedHome {
    let reply = move |number: usize| {
        let text = answers[number.min(N - 1)].iter().map(|&piece| piece.to_owned()).collect();
        ProviderReply { answer: FakeAnswer { text, ..FakeAnswer::default() }, ..ProviderReply::default() }
    };
    ScriptedHome::answering(json!({}), move |request| reply(request.number)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_and_directives_are_removed_from_the_reply() {
    let pieces = &["<thi", "nk>They greet</thi", "nk>[[reply_to_cur", "rent]] Hel", "lo\n\n  there"];
    let fixture = saying([pieces]).await;
    let output = fixture.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "Hello\n\n  there\n", ""));
    let gateway = fixture.home.gateway();
    let output = gateway.run(&["agent", "-m", "Hi"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "Hello\n\n  there\n", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_silent_replies_are_accepted_and_reported() {
    let fixture = saying([&["NO_", "REPLY"]]).await;
    let output = fixture.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "", SILENCE));
    let request_count = fixture.provider.requests();
    assert_eq!(request_count.len(), 2, "it is asked once more, because somebody waits");
    assert!(
        !request_count[0].body.contains("has not received a reply yet")
            && REPLY_NUDGE.contains("has not received a reply yet")
    );
    assert!(request_count[1].body.contains("has not received a reply yet"), "{}", request_count[1].body);
    assert_eq!(
        [&request_count[0], &request_count[1]].map(|request_count| request_count.json()["tool_choice"] == "none"),
        [false, true]
    );
    let document = fixture.home.run(&["agent", "-m", "Hi", "--json"]);
    assert_eq!((document.code, document.stderr.as_str()), (Some(0), ""));
    assert_eq!(document.json()["payloads"], json!([]));
    let gateway = fixture.home.gateway();
    let output = gateway.run(&["agent", "-m", "Hi"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "", SILENCE));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_after_a_nudge_is_delivered() {
    let fixture = saying([&["NO_REPLY"], &["Hello"]]).await;
    let output = fixture.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "Hello\n", ""));
}
