//! Properties of every channel, through the binary: queue modes, blocks, reasoning, silence, and messages sent by
//! tools.
//!
//! Each test runs against every channel; a new one is a variant of [`Side`].

use homard_testkit::fake_provider::{
    AnswerGate, FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, fault::ProviderFault as Broken,
};
use serde_json::{Value, json};

use super::stage::{SECRET, Stage, last_message, post_signed, said};
use crate::home::{RunningGateway, until};

/// A channel, from the side of the person there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Telegram,
    Webhook,
}

const SIDES: [Side; 2] = [Side::Telegram, Side::Webhook];

impl Side {
    fn channel(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Webhook => "webhook",
        }
    }

    /// Returns the sender's id.
    fn person(self) -> &'static str {
        match self {
            Self::Telegram => "7",
            Self::Webhook => "ann",
        }
    }

    /// Creates a home with this channel only.
    async fn stage(
        self,
        more: Value,
        config: Value,
        reply: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> Stage {
        let mut account = json!({"allowFrom": [self.person()]});
        account.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        Stage::answering(json!({self.channel(): account}), config, reply).await
    }

    /// Sends a message and waits until the hub has accepted it.
    fn says(self, stage: &Stage, gateway: &RunningGateway<'_>, text: &str) {
        match self {
            Self::Telegram => drop(stage.telegram.add_message(7, text)),
            Self::Webhook => {
                let message = said(&format!("m-{text}"), "ann", text);
                assert_eq!(
                    post_signed(gateway.port, "/channels/webhook", &message, SECRET).map(|(status, _)| status),
                    Some(200)
                );
            }
        }
        let spool = stage.home().state().join(format!("channels/{}-default.json", self.channel()));
        until("the hub has it", || {
            let kept = std::fs::read(&spool).ok().and_then(|kept| serde_json::from_slice::<Value>(&kept).ok());
            stage.telegram.pending_updates().is_empty() && kept.is_some_and(|kept| kept["waiting"] == json!([]))
        });
    }

    /// Returns the messages that the person received.
    fn reads(self, stage: &Stage) -> Vec<String> {
        match self {
            Self::Telegram => stage.answers().into_iter().map(|(_, text)| text).collect(),
            Self::Webhook => {
                let messages = stage.peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
                messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
            }
        }
    }

    fn until_reads(self, stage: &Stage, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        until(&format!("{self:?}: {what}"), || is_so(&self.reads(stage)));
        self.reads(stage)
    }
}

/// Returns which of these words the new messages contain.
fn among(asked: &ReceivedRequest) -> String {
    let messages = asked.json()["messages"].as_array().cloned().unwrap_or_default();
    let answered = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |at| at + 1);
    let new: String = messages[answered..].iter().map(|message| message["content"].to_string()).collect();
    ["one", "two", "three"].into_iter().filter(|word| new.contains(&format!("{word}."))).collect::<Vec<_>>().join("+")
}

/// Runs three messages: the model waits at a gate with its first answer while two more arrive.
async fn three_messages(side: Side, mode: &str) -> Vec<String> {
    let gate = AnswerGate::default();
    let waits = gate.clone();
    let reply = move |asked: &ReceivedRequest| ProviderReply {
        gate: (asked.number == 0).then(|| waits.clone()),
        answer: FakeAnswer { text: vec!["I heard ".to_owned(), among(asked)], ..FakeAnswer::default() },
        ..ProviderReply::default()
    };
    let config = json!({"messages": {"queue": {"mode": mode, "debounceMs": 0}}});
    let stage = side.stage(json!({}), config, reply).await;
    let gateway = stage.gateway();
    side.says(&stage, &gateway, "one.");
    until("the model is asked", || stage.asked() == 1);
    side.says(&stage, &gateway, "two.");
    side.says(&stage, &gateway, "three.");
    until("all are taken in", || {
        let listed = gateway.run(&["trace", "list", "--json"]).json();
        listed["runs"].as_array().is_some_and(|runs| runs.len() == 3)
    });
    gate.open();
    side.until_reads(&stage, "the last answer", |read| read.iter().any(|text| text.contains("three")))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_the_agent_is_at_work_is_queued_as_the_mode_says() {
    for side in SIDES {
        let expected = [
            ("followup", &["I heard one", "I heard two", "I heard three"][..]),
            ("collect", &["I heard one", "I heard two+three"]),
            ("steer", &["I heard one", "I heard two+three"]),
        ];
        for (mode, expected) in expected {
            assert_eq!(three_messages(side, mode).await, expected, "{side:?} {mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_interrupts_the_run_where_that_is_the_mode() {
    for side in SIDES {
        let reply = |asked: &ReceivedRequest| match asked.number {
            0 => ProviderReply {
                fault: Some(Broken::Stall(15)),
                ..ProviderReply::text("I heard one and never come to an end")
            },
            _ => ProviderReply::text(format!("I heard {}", last_message(asked))),
        };
        let config = json!({"messages": {"queue": {"mode": "interrupt", "debounceMs": 0}}});
        let stage = side.stage(json!({}), config, reply).await;
        let gateway = stage.gateway();
        side.says(&stage, &gateway, "one.");
        until("the model is asked", || stage.asked() == 1);
        side.says(&stage, &gateway, "two.");
        let read = side.until_reads(&stage, "an answer", |read| !read.is_empty());
        assert_eq!(read, ["I heard two."], "{side:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_come_once_and_in_order() {
    let paragraphs: Vec<String> = (0..12).map(|n| format!("{n}. {}", "word ".repeat(30).trim_end())).collect();
    let config = json!({"agents": {"defaults": {
        "blockStreamingChunk": {"minChars": 1, "maxChars": 400},
        "blockStreamingCoalesce": {"minChars": 1, "maxChars": 400, "idleMs": 1},
    }}});
    for side in SIDES {
        let said = paragraphs.join("\n\n");
        let reply = move |_: &ReceivedRequest| ProviderReply::text(said.clone());
        let stage = side.stage(json!({"blockStreaming": true}), config.clone(), reply).await;
        let gateway = stage.gateway();
        side.says(&stage, &gateway, "tell me");
        let read = side.until_reads(&stage, "all of it", |read| read.iter().any(|text| text.contains("11. ")));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&read.join(" ")), words(&paragraphs.join(" ")), "{side:?}");
        assert!(read.len() > 3, "{side:?}: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_read_only_where_it_is_wanted() {
    for side in SIDES {
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
            let stage = side.stage(json!({}), config, reply).await;
            let gateway = stage.gateway();
            side.says(&stage, &gateway, "how are you?");
            let read = side.until_reads(&stage, "an answer", |read| read.iter().any(|text| text.contains("Fine.")));
            let plain: Vec<_> = read.iter().map(|text| text.replace('_', "")).collect();
            assert_eq!(plain, expected, "{side:?} {level}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_not_sent() {
    for side in SIDES {
        let reply = |asked: &ReceivedRequest| match last_message(asked).as_str() {
            "quiet" => ProviderReply::text("NO_REPLY"),
            // The model is asked for confirmation.
            text if text.contains("NO_REPLY once more") => ProviderReply::text("NO_REPLY"),
            text => ProviderReply::text(format!("echo {text}")),
        };
        let stage = side.stage(json!({}), json!({}), reply).await;
        let gateway = stage.gateway();
        side.says(&stage, &gateway, "quiet");
        until("the model is asked twice", || stage.asked() == 2);
        side.says(&stage, &gateway, "loud");
        let read = side.until_reads(&stage, "an answer", |read| !read.is_empty());
        assert_eq!(read, ["echo loud"], "{side:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_has_said_is_not_said_again() {
    for side in SIDES {
        let reply = move |asked: &ReceivedRequest| {
            let messages = asked.json()["messages"].as_array().cloned().unwrap_or_default();
            let is_answered = messages.last().is_some_and(|last| last["role"] == "tool");
            match last_message(asked).as_str() {
                _ if is_answered => ProviderReply::text("Dinner is ready, come all of you."),
                "tell me with your tool" => {
                    let arguments = json!({
                        "action": "send", "target": side.person(), "message": "Dinner is ready, come all of you.",
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
        let stage = side.stage(json!({}), json!({}), reply).await;
        let gateway = stage.gateway();
        side.says(&stage, &gateway, "tell me with your tool");
        until("the model is asked twice", || stage.asked() == 2);
        // Otherwise the next message would be steered into this run.
        until("the run is over", || gateway.run(&["trace", "last", "--json"]).json()["run"]["status"] == "ok");
        side.says(&stage, &gateway, "next");
        let read = side.until_reads(&stage, "an answer", |read| read.iter().any(|text| text == "echo next"));
        assert_eq!(read, ["Dinner is ready, come all of you.", "echo next"], "{side:?}");
    }
}
