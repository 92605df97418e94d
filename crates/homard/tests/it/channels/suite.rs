//! Properties of every channel, through the binary: queue modes, blocks, reasoning, silence, and messages sent by
//! tools.
//!
//! Each test runs against every channel; a new one is a variant of [`Side`].

use homard_testkit::fake_provider::{
    AnswerGate, FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, fault::ProviderFault as Broken,
};
use serde_json::{Value, json};

use super::setup::{ChannelFixture, SECRET, last_message, post_signed, webhook_message};
use crate::home::{RunningGateway, until};

/// A channel, from the side of the person there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Platform {
    Telegram,
    Webhook,
}

const PLATFORMS: [Platform; 2] = [Platform::Telegram, Platform::Webhook];

impl Platform {
    fn channel(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Webhook => "webhook",
        }
    }

    /// Returns the sender's id.
    fn sender_id(self) -> &'static str {
        match self {
            Self::Telegram => "7",
            Self::Webhook => "ann",
        }
    }

    /// Creates a home with this channel only.
    async fn fixture_with(
        self,
        extra: Value,
        config: Value,
        reply: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> ChannelFixture {
        let mut account = json!({"allowFrom": [self.sender_id()]});
        account.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
        ChannelFixture::answering(json!({self.channel(): account}), config, reply).await
    }

    /// Sends a message and waits until the hub has accepted it.
    fn send(self, fixture: &ChannelFixture, gateway: &RunningGateway<'_>, text: &str) {
        match self {
            Self::Telegram => drop(fixture.telegram.add_message(7, text)),
            Self::Webhook => {
                let message = webhook_message(&format!("m-{text}"), "ann", text);
                assert_eq!(
                    post_signed(gateway.port, "/channels/webhook", &message, SECRET).map(|(status, _)| status),
                    Some(200)
                );
            }
        }
        let spool = fixture.home().state().join(format!("channels/{}-default.json", self.channel()));
        until("the hub has it", || {
            let stored = std::fs::read(&spool).ok().and_then(|stored| serde_json::from_slice::<Value>(&stored).ok());
            fixture.telegram.pending_updates().is_empty() && stored.is_some_and(|stored| stored["waiting"] == json!([]))
        });
    }

    /// Returns the messages that the person received.
    fn received(self, fixture: &ChannelFixture) -> Vec<String> {
        match self {
            Self::Telegram => fixture.answers().into_iter().map(|(_, text)| text).collect(),
            Self::Webhook => {
                let messages = fixture.peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
                messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
            }
        }
    }

    fn until_received(
        self,
        fixture: &ChannelFixture,
        description: &str,
        condition: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        until(&format!("{self:?}: {description}"), || condition(&self.received(fixture)));
        self.received(fixture)
    }
}

/// Returns which of these words the new messages contain.
fn among(request: &ReceivedRequest) -> String {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let answered = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |at| at + 1);
    let new: String = messages[answered..].iter().map(|message| message["content"].to_string()).collect();
    ["one", "two", "three"].into_iter().filter(|word| new.contains(&format!("{word}."))).collect::<Vec<_>>().join("+")
}

/// Runs three messages: the model waits at a gate with its first answer while two more arrive.
async fn three_messages(platform: Platform, mode: &str) -> Vec<String> {
    let gate = AnswerGate::default();
    let model_gate = gate.clone();
    let reply = move |request: &ReceivedRequest| ProviderReply {
        gate: (request.number == 0).then(|| model_gate.clone()),
        answer: FakeAnswer { text: vec!["I heard ".to_owned(), among(request)], ..FakeAnswer::default() },
        ..ProviderReply::default()
    };
    let config = json!({"messages": {"queue": {"mode": mode, "debounceMs": 0}}});
    let fixture = platform.fixture_with(json!({}), config, reply).await;
    let gateway = fixture.gateway();
    platform.send(&fixture, &gateway, "one.");
    until("the model is asked", || fixture.request_count() == 1);
    platform.send(&fixture, &gateway, "two.");
    platform.send(&fixture, &gateway, "three.");
    until("all are taken in", || {
        let listed = gateway.run(&["trace", "list", "--json"]).json();
        listed["runs"].as_array().is_some_and(|runs| runs.len() == 3)
    });
    gate.open();
    platform.until_received(&fixture, "the last answer", |read| read.iter().any(|text| text.contains("three")))
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_during_a_run_are_queued_by_mode() {
    for platform in PLATFORMS {
        let expected = [
            ("followup", &["I heard one", "I heard two", "I heard three"][..]),
            ("collect", &["I heard one", "I heard two+three"]),
            ("steer", &["I heard one", "I heard two+three"]),
        ];
        for (mode, expected) in expected {
            assert_eq!(three_messages(platform, mode).await, expected, "{platform:?} {mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_interrupts_the_run_in_interrupt_mode() {
    for platform in PLATFORMS {
        let reply = |request: &ReceivedRequest| match request.number {
            0 => ProviderReply {
                fault: Some(Broken::Stall(15)),
                ..ProviderReply::text("I heard one and never come to an end")
            },
            _ => ProviderReply::text(format!("I heard {}", last_message(request))),
        };
        let config = json!({"messages": {"queue": {"mode": "interrupt", "debounceMs": 0}}});
        let fixture = platform.fixture_with(json!({}), config, reply).await;
        let gateway = fixture.gateway();
        platform.send(&fixture, &gateway, "one.");
        until("the model is asked", || fixture.request_count() == 1);
        platform.send(&fixture, &gateway, "two.");
        let read = platform.until_received(&fixture, "an answer", |read| !read.is_empty());
        assert_eq!(read, ["I heard two."], "{platform:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_sent_once_and_in_order() {
    let paragraphs: Vec<String> = (0..12).map(|n| format!("{n}. {}", "word ".repeat(30).trim_end())).collect();
    let config = json!({"agents": {"defaults": {
        "blockStreamingChunk": {"minChars": 1, "maxChars": 400},
        "blockStreamingCoalesce": {"minChars": 1, "maxChars": 400, "idleMs": 1},
    }}});
    for platform in PLATFORMS {
        let answer = paragraphs.join("\n\n");
        let reply = move |_: &ReceivedRequest| ProviderReply::text(answer.clone());
        let fixture = platform.fixture_with(json!({"blockStreaming": true}), config.clone(), reply).await;
        let gateway = fixture.gateway();
        platform.send(&fixture, &gateway, "tell me");
        let read = platform.until_received(&fixture, "all of it", |read| read.iter().any(|text| text.contains("11. ")));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&read.join(" ")), words(&paragraphs.join(" ")), "{platform:?}");
        assert!(read.len() > 3, "{platform:?}: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_sent_only_if_enabled() {
    for platform in PLATFORMS {
        for (level, expected) in [("off", &["Fine."][..]), ("on", &["Reasoning:\nA long thought.", "Fine."])] {
            let reply = |_: &ReceivedRequest| ProviderReply {
                answer: FakeAnswer {
                    thinking: Some("A long thought.".to_owned()),
                    text: vec!["<think>And one in tags.</think>Fine.".to_owned()],
                    ..FakeAnswer::default()
                },
                ..ProviderReply::default()
            };
            let config = json!({"agents": {"defaults": {"reasoningDefault": level}}});
            let fixture = platform.fixture_with(json!({}), config, reply).await;
            let gateway = fixture.gateway();
            platform.send(&fixture, &gateway, "how are you?");
            let read =
                platform.until_received(&fixture, "an answer", |read| read.iter().any(|text| text.contains("Fine.")));
            let plain: Vec<_> = read.iter().map(|text| text.replace('_', "")).collect();
            assert_eq!(plain, expected, "{platform:?} {level}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_not_sent() {
    for platform in PLATFORMS {
        let reply = |request: &ReceivedRequest| match last_message(request).as_str() {
            "quiet" => ProviderReply::text("NO_REPLY"),
            // The model is asked for confirmation.
            text if text.contains("NO_REPLY once more") => ProviderReply::text("NO_REPLY"),
            text => ProviderReply::text(format!("echo {text}")),
        };
        let fixture = platform.fixture_with(json!({}), json!({}), reply).await;
        let gateway = fixture.gateway();
        platform.send(&fixture, &gateway, "quiet");
        until("the model is asked twice", || fixture.request_count() == 2);
        platform.send(&fixture, &gateway, "loud");
        let read = platform.until_received(&fixture, "an answer", |read| !read.is_empty());
        assert_eq!(read, ["echo loud"], "{platform:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_sent_by_a_tool_is_not_sent_again() {
    for platform in PLATFORMS {
        let reply = move |request: &ReceivedRequest| {
            let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
            let is_answered = messages.last().is_some_and(|last| last["role"] == "tool");
            match last_message(request).as_str() {
                _ if is_answered => ProviderReply::text("Dinner is ready, come all of you."),
                "tell me with your tool" => {
                    let arguments = json!({
                        "action": "send", "target": platform.sender_id(), "message": "Dinner is ready, come all of you.",
                    });
                    let call = FakeToolCall { id: "call_1".to_owned(), name: "message".to_owned(), arguments };
                    ProviderReply {
                        answer: FakeAnswer { calls: vec![call], ..FakeAnswer::default() },
                        ..ProviderReply::default()
                    }
                }
                text => ProviderReply::text(format!("echo {text}")),
            }
        };
        let fixture = platform.fixture_with(json!({}), json!({}), reply).await;
        let gateway = fixture.gateway();
        platform.send(&fixture, &gateway, "tell me with your tool");
        until("the model is asked twice", || fixture.request_count() == 2);
        // Otherwise the next message would be steered into this run.
        until("the run is over", || gateway.run(&["trace", "last", "--json"]).json()["run"]["status"] == "ok");
        platform.send(&fixture, &gateway, "next");
        let read = platform.until_received(&fixture, "an answer", |read| read.iter().any(|text| text == "echo next"));
        assert_eq!(read, ["Dinner is ready, come all of you.", "echo next"], "{platform:?}");
    }
}
