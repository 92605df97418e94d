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
    ScriptedHome::answering(json!({}), move |asked| reply(asked.number)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_and_directives_are_no_part_of_the_answer() {
    let pieces = &["<thi", "nk>They greet</thi", "nk>[[reply_to_cur", "rent]] Hel", "lo\n\n  there"];
    let puppet = saying([pieces]).await;
    let said = puppet.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "Hello\n\n  there\n", ""));
    let gateway = puppet.home.gateway();
    let said = gateway.run(&["agent", "-m", "Hi"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "Hello\n\n  there\n", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_insists_on_silence_gets_it_and_that_is_said() {
    let puppet = saying([&["NO_", "REPLY"]]).await;
    let said = puppet.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", SILENCE));
    let asked = puppet.provider.requests();
    assert_eq!(asked.len(), 2, "it is asked once more, because somebody waits");
    assert!(
        !asked[0].body.contains("has not received a reply yet") && REPLY_NUDGE.contains("has not received a reply yet")
    );
    assert!(asked[1].body.contains("has not received a reply yet"), "{}", asked[1].body);
    assert_eq!([&asked[0], &asked[1]].map(|asked| asked.json()["tool_choice"] == "none"), [false, true]);
    let document = puppet.home.run(&["agent", "-m", "Hi", "--json"]);
    assert_eq!((document.code, document.stderr.as_str()), (Some(0), ""));
    assert_eq!(document.json()["payloads"], json!([]));
    let gateway = puppet.home.gateway();
    let said = gateway.run(&["agent", "-m", "Hi"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", SILENCE));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_finds_words_when_asked_again_is_heard() {
    let puppet = saying([&["NO_REPLY"], &["Hello"]]).await;
    let said = puppet.home.run(&["agent", "-m", "Hi"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "Hello\n", ""));
}
