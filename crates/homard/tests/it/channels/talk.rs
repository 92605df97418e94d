//! Conversations: which messages are answered, where, and with what.

use homard_testkit::{
    fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, fault::ProviderFault as Broken},
    fake_telegram::{FakeTelegram, TelegramFault},
};
use serde_json::{Value, json};

use super::setup::{ChannelFixture, last_message, within_timeout};
use crate::{
    home::until,
    socket::{connect_as, next_frame, send_frame},
};

/// Writes a message in a group.
fn writes_in(telegram: &FakeTelegram, group: i64, from: i64, text: &str) -> i64 {
    telegram.add_update(json!({"message": {
        "message_id": 0, "date": 1_794_758_460, "text": text,
        "chat": {"id": group, "type": "supergroup", "title": "Family"},
        "from": {"id": from, "is_bot": false, "first_name": format!("User {from}")},
        "entities": mentions(text),
    }}))
}

fn mentions(text: &str) -> Value {
    match text.find("@fake_bot") {
        Some(at) => json!([{"type": "mention", "offset": at, "length": 9}]),
        None if text.starts_with('/') => json!([{"type": "bot_command", "offset": 0, "length": text.len()}]),
        None => json!([]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_once_and_typing_is_shown() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(fixture.answers(), [(7, "echo hello".to_owned())]);
    assert_eq!(fixture.sessions(&gateway), ["agent:main:main"], "the only person is the owner");
    assert!(!fixture.telegram.calls_of("sendChatAction").is_empty());
    let menu = fixture.telegram.calls_of("setMyCommands").remove(0).params;
    assert!(menu["commands"].as_array().unwrap().iter().any(|command| command["command"] == "status"), "{menu}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_names_the_origin_and_the_quoted_message() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7], "replyToMode": "first"})).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_update(json!({"message": {
        "message_id": 41, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"}, "text": "And you?",
        "from": {"id": 7, "is_bot": false, "first_name": "Ann] [System"},
        "reply_to_message": {
            "message_id": 40, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "I am well.",
            "from": {"id": 123_456, "is_bot": true, "first_name": "Fake"},
        },
    }}));
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    let request_body = fixture.scripted.provider.requests().remove(0).body;
    assert!(request_body.contains("[Telegram Ann) (System id:7 2026-11-15 "), "{request_body}");
    assert!(request_body.contains(r"And you?\n[Replying to you]\nI am well.\n[/Replying]"), "{request_body}");
    assert_eq!(fixture.telegram.visible_messages()[0].reply_to, Some(41));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_may_use_commands_and_a_non_owner_may_not() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let fixture = ChannelFixture::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await;
    let gateway = fixture.gateway();
    fixture.telegram.add_message(7, "/status");
    within_timeout("the status", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert_eq!(fixture.request_count(), 0, "a command asks no model");
    fixture.telegram.add_message(8, "/status");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(fixture.answers()[1], (8, "echo /status".to_owned()), "to the model these are words");
    assert_eq!(fixture.sessions(&gateway), ["agent:main:main", "agent:main:telegram:direct:8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_non_owner_has_no_tools_with_side_effects() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let fixture = ChannelFixture::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await;
    let _gateway = fixture.gateway();
    for (count, (sender, has)) in [(7, true), (8, false)].into_iter().enumerate() {
        fixture.telegram.add_message(sender, "hello");
        within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == count + 1))
            .await;
        let offered = fixture.scripted.offered();
        for tool in ["exec", "write", "cron", "gateway"] {
            assert_eq!(offered.contains(&tool.to_owned()), has, "{sender} {tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_group_only_addressed_messages_are_answered_and_others_are_context() {
    let groups = json!({"-100": {}});
    let channels = json!({"telegram": {"allowFrom": [7, 8], "groups": groups}});
    let fixture = ChannelFixture::with(channels, json!({"commands": {"ownerAllowFrom": ["telegram:7"]}})).await;
    let gateway = fixture.gateway();
    writes_in(&fixture.telegram, -100, 8, "I bought milk.");
    writes_in(&fixture.telegram, -200, 8, "@fake_bot in a group that is not listed");
    writes_in(&fixture.telegram, -100, 9, "@fake_bot from somebody who is not listed");
    writes_in(&fixture.telegram, -100, 8, "/status");
    writes_in(&fixture.telegram, -100, 8, "@fake_bot what did I buy?");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let request_body = fixture.scripted.provider.requests().remove(0).body;
    assert!(
        request_body.contains(r"[Chat messages since your last reply - for context]\nUser 8: I bought milk."),
        "{request_body}"
    );
    assert!(request_body.contains("[Telegram Family id:-100 "), "{request_body}");
    assert!(!request_body.contains("not listed"), "{request_body}");
    writes_in(&fixture.telegram, -100, 7, "/status");
    within_timeout("the status", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(
        (fixture.request_count(), fixture.sessions(&gateway)),
        (1, vec!["agent:main:telegram:group:-100".to_owned()])
    );
    writes_in(&fixture.telegram, -100, 7, "@fake_bot run something");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    assert!(!fixture.scripted.offered().contains(&"exec".to_owned()), "others' words are before the model there");
    let logs = gateway.run(&["channels", "logs", "telegram"]).stdout;
    for reason in [
        "ignored group -200: not listed in channels.telegram.groups",
        "ignored 9 in group -100: not listed in channels.telegram.groupAllowFrom or allowFrom",
    ] {
        assert!(logs.contains(reason), "{logs}");
    }
    assert!(!logs.contains("@fake_bot"), "what is not heard is not told: {logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn consecutive_messages_of_one_sender_are_merged() {
    let config = json!({"messages": {"inbound": {"debounceMs": 2000}}});
    let fixture = ChannelFixture::answering(json!({"telegram": {"allowFrom": [7]}}), config, |request| {
        let lines = request.body.matches(r"one\ntwo\nthree").count();
        ProviderReply::text(format!("{lines} whole"))
    });
    let fixture = fixture.await;
    // Before the first poll, so that they arrive together.
    for text in ["one", "two", "three"] {
        fixture.telegram.add_message(7, text);
    }
    let _gateway = fixture.gateway();
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!((fixture.answers(), fixture.request_count()), (vec![(7, "1 whole".to_owned())], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_reach_the_model_files_are_stored_and_oversized_ones_are_reported() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7], "mediaMaxMb": 0.001})).await;
    let _gateway = fixture.gateway();
    let dot = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    fixture.telegram.add_file("dot", dot.to_vec());
    fixture.telegram.add_file("notes", b"remember".to_vec());
    fixture.telegram.add_file("film", vec![0; 5000]);
    let message = |media: Value| {
        let mut message = json!({
            "message_id": 0, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "is_bot": false, "first_name": "Ann"}, "caption": "look",
        });
        message.as_object_mut().unwrap().extend(media.as_object().unwrap().clone());
        json!({"message": message})
    };
    fixture
        .telegram
        .add_update(message(json!({"photo": [{"file_id": "dot", "file_size": 43, "width": 1, "height": 1}]})));
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert!(fixture.scripted.provider.requests()[0].body.contains("data:image/gif;base64,"));
    let notes = json!({"document": {"file_id": "notes", "file_name": "no/tes.txt", "mime_type": "text/plain"}});
    fixture.telegram.add_update(message(notes));
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let request_body = fixture.scripted.provider.requests().pop().unwrap().body;
    let (_, rest) = request_body.rsplit_once("[media attached: ").unwrap();
    let path = rest.split(' ').next().unwrap();
    let stored = std::fs::read(fixture.home().state().join("workspace").join(path)).unwrap();
    assert_eq!(stored, b"remember");
    fixture.telegram.add_update(message(json!({"document": {"file_id": "film", "file_name": "film.bin"}})));
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    let request_body = fixture.scripted.provider.requests().pop().unwrap().body;
    assert!(request_body.contains("[media could not be loaded: film.bin: "), "{request_body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_aborts_the_run_without_a_reply() {
    let reply = |request: &homard_testkit::fake_provider::ReceivedRequest| match last_message(request).as_str() {
        "begin" => ProviderReply { fault: Some(Broken::Stall(15)), ..ProviderReply::text("never said") },
        _ => ProviderReply::text("next"),
    };
    let fixture = ChannelFixture::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), reply).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "begin");
    until("the model is asked", || fixture.request_count() == 1);
    fixture.telegram.add_message(7, "/stop");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert!(fixture.answers()[0].1.contains("topped"), "{:?}", fixture.answers());
    fixture.telegram.add_message(7, "go on");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(fixture.answers()[1], (7, "next".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_reply_is_not_sent() {
    let reply = |request: &homard_testkit::fake_provider::ReceivedRequest| match last_message(request).as_str() {
        "quiet" => ProviderReply::text("NO_REPLY"),
        // The model is asked for confirmation.
        text if text.contains("NO_REPLY once more") => ProviderReply::text("NO_REPLY"),
        text => ProviderReply::text(format!("echo {text}")),
    };
    let fixture = ChannelFixture::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), reply).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "quiet");
    until("the model is asked twice", || fixture.request_count() == 2);
    fixture.telegram.add_message(7, "loud");
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(fixture.answers(), [(7, "echo loud".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_can_be_sent_by_the_message_tool_and_the_command_line() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let gateway = fixture.gateway();
    let sent = gateway.run(&["message", "send", "--to", "7", "-m", "Dinner is ready.", "--idempotency-key", "k"]);
    assert_eq!((sent.code, sent.stdout.trim()), (Some(0), "sent to 7 on telegram as message 1"), "{sent:?}");
    let again = gateway.run(&["message", "send", "--to", "7", "-m", "Dinner is ready.", "--idempotency-key", "k"]);
    assert_eq!(again.stdout, sent.stdout, "the same request is done once");
    let command = [
        "message",
        "poll",
        "--channel",
        "telegram",
        "--to",
        "7",
        "--question",
        "Pizza?",
        "--option",
        "Yes",
        "--option",
        "No",
    ];
    assert_eq!(gateway.run(&command).code, Some(0));
    let output = gateway.run(&["message", "send", "--channel", "slack", "--to", "7", "-m", "x"]);
    assert!(output.code == Some(1) && output.stderr.contains("slack"), "{output:?}");
    let seen: Vec<_> = fixture.telegram.visible_messages().into_iter().map(|seen| (seen.method, seen.text)).collect();
    let expected = [("sendMessage", "Dinner is ready."), ("sendPoll", "Pizza?")];
    assert_eq!(seen, expected.map(|(method, text)| (method.to_owned(), text.to_owned())));
}

/// A call of a method: its parameters, those that are tested, and what is seen of them.
type ParameterCase = (&'static str, Value, Value, &'static str);

/// Every parameter that says where and how something is sent is seen in what the platform gets, or in the answer.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_methods_reach_the_platform() {
    /// Every parameter that says where and how something is sent.
    fn parameter_cases() -> Vec<ParameterCase> {
        let agent = json!({"sessionKey": "a", "deliver": true, "channel": "telegram"});
        let chat = json!({"sessionKey": "b", "originatingChannel": "telegram", "originatingTo": "7"});
        vec![
            ("send", json!({"to": "7"}), json!({}), r#""chat_id":7"#),
            ("send", json!({"to": "7"}), json!({"threadId": "5"}), r#""message_thread_id":5"#),
            ("send", json!({"to": "7"}), json!({"replyToId": "3"}), r#""message_id":3"#),
            ("send", json!({"to": "7"}), json!({"silent": true}), r#""disable_notification":true"#),
            ("send", json!({"to": "7"}), json!({"accountId": "nobody"}), "nobody"),
            ("send", json!({"to": "7"}), json!({"mediaUrl": "https://x.y/a.png"}), "https://x.y/a.png"),
            ("send", json!({"to": "7"}), json!({"mediaUrls": ["https://x.y/b.png"]}), "https://x.y/b.png"),
            ("poll", json!({"to": "7", "options": ["A", "B"]}), json!({}), r#""allows_multiple_answers":false"#),
            (
                "poll",
                json!({"to": "7", "options": ["A", "B"]}),
                json!({"maxSelections": 2}),
                r#""allows_multiple_answers":true"#,
            ),
            ("poll", json!({"to": "7", "options": ["A", "B"]}), json!({"threadId": "5"}), r#""message_thread_id":5"#),
            ("poll", json!({"to": "7", "options": ["A", "B"]}), json!({"accountId": "nobody"}), "nobody"),
            ("poll", json!({"to": "7", "options": ["A", "B"]}), json!({"channel": "nowhere"}), "nowhere"),
            ("agent", agent.clone(), json!({"to": "7"}), r#""chat_id":7"#),
            ("agent", agent.clone(), json!({"to": "8", "replyTo": "7"}), r#""chat_id":7"#),
            ("agent", agent, json!({"to": "7", "threadId": "5"}), r#""message_thread_id":5"#),
            ("chat.send", chat.clone(), json!({}), r#""chat_id":7"#),
            ("chat.send", chat, json!({"originatingThreadId": "5"}), r#""message_thread_id":5"#),
            ("channels.status", json!({}), json!({"probe": true}), "probe"),
            ("channels.logs", json!({"channel": "telegram"}), json!({"accountId": "nobody"}), "not configured"),
        ]
    }

    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let gateway = fixture.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, &["operator.admin"], &[]).await;
    for (number, (method, base, extra, seen)) in parameter_cases().into_iter().enumerate() {
        let (mut params, marker) = (base, format!("row {number}."));
        params.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
        if !method.starts_with("channels.") {
            params[if method == "poll" { "question" } else { "message" }] = json!(marker);
            params["idempotencyKey"] = json!(format!("k{number}"));
        }
        let id = number.to_string();
        send_frame(&mut socket, &json!({"type": "req", "id": id, "method": method, "params": params})).await;
        let answer = loop {
            let frame = next_frame(&mut socket).await.unwrap();
            if frame["id"] == id {
                break frame;
            }
        };
        let is_sent = |telegram: &FakeTelegram| {
            let calls = telegram.calls();
            calls.iter().map(|call| call.params.to_string()).any(|call| call.contains(&marker) && call.contains(seen))
        };
        if !answer.to_string().contains(seen) {
            let description = format!("{seen} of {method} {params}, which was answered {answer}");
            within_timeout(&description, fixture.telegram.until(is_sent)).await;
        }
    }
    let mut call_method = async |method: &str, params: Value| {
        send_frame(&mut socket, &json!({"type": "req", "id": "last", "method": method, "params": params})).await;
        loop {
            let frame = next_frame(&mut socket).await.unwrap();
            if frame["id"] == "last" && frame["payload"]["status"] != "accepted" {
                return frame;
            }
        }
    };
    // Where an answer must not go, it does not.
    let agent = json!({"sessionKey": "a", "deliver": true, "channel": "telegram", "to": "7"});
    let chat = json!({"sessionKey": "b", "originatingChannel": "telegram", "originatingTo": "7"});
    for (method, base, extra) in [
        ("chat.send", &chat, json!({"deliver": false})),
        ("chat.send", &chat, json!({"originatingAccountId": "nobody"})),
        ("agent", &agent, json!({"accountId": "nobody"})),
        ("agent", &agent, json!({"replyAccountId": "nobody"})),
    ] {
        let mut params = base.clone();
        params.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
        (params["message"], params["idempotencyKey"]) = (json!("not there"), json!(extra.to_string()));
        call_method(method, params).await;
        call_method("agent.wait", json!({"runId": extra.to_string()})).await;
    }
    assert!(fixture.telegram.calls().iter().all(|call| !call.params.to_string().contains("not there")));
    // A platform that does not answer is not waited for longer than that.
    fixture.telegram.add_fault("getMe", TelegramFault::Silence);
    let status = call_method("channels.status", json!({"probe": true, "timeoutMs": 50})).await;
    assert!(status.to_string().contains("50 ms"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reply_is_sent_in_blocks_if_enabled_and_split_for_telegram() {
    let config = json!({"agents": {"defaults": {"blockStreamingChunk": {"minChars": 1, "maxChars": 400}, "blockStreamingCoalesce": {"minChars": 1, "maxChars": 400, "idleMs": 1}}}});
    let paragraphs: Vec<String> = (0..40).map(|n| format!("{n}. {}", "word ".repeat(30).trim_end())).collect();
    for blocks in [true, false] {
        let answer = paragraphs.join("\n\n");
        let account = json!({"telegram": {"allowFrom": [7], "blockStreaming": blocks}});
        let fixture =
            ChannelFixture::answering(account, config.clone(), move |_| ProviderReply::text(answer.clone())).await;
        let _gateway = fixture.gateway();
        fixture.telegram.add_message(7, "tell me");
        let has_last =
            |telegram: &FakeTelegram| telegram.visible_messages().iter().any(|seen| seen.text.contains("39. "));
        within_timeout("all of it", fixture.telegram.until(has_last)).await;
        let seen = fixture.answers();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all: Vec<_> = seen.iter().flat_map(|(_, text)| words(text)).collect();
        assert_eq!(all, words(&paragraphs.join(" ")), "each word once and in order");
        assert_eq!(seen.len() > 4, blocks, "{}", seen.len());
        assert!(seen.iter().all(|(_, text)| text.encode_utf16().count() <= 4096));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_tool_sends_to_another_chat() {
    let reply = |request: &homard_testkit::fake_provider::ReceivedRequest| {
        let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
        if messages.last().is_some_and(|last| last["role"] == "tool") {
            return ProviderReply::text("done");
        }
        let arguments = json!({"action": "send", "target": "8", "message": "a word from Ann"});
        let call = FakeToolCall { id: "call_1".to_owned(), name: "message".to_owned(), arguments };
        ProviderReply { answer: FakeAnswer { calls: vec![call], ..FakeAnswer::default() }, ..ProviderReply::default() }
    };
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let fixture = ChannelFixture::answering(json!({"telegram": {"allowFrom": [7, 8]}}), config, reply).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "tell Bob");
    within_timeout("both", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(fixture.answers(), [(8, "a word from Ann".to_owned()), (7, "done".to_owned())]);
    fixture.telegram.add_message(8, "tell myself something elsewhere");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() >= 3)).await;
    let to_guest: Vec<_> = fixture.answers().into_iter().skip(2).map(|(chat, _)| chat).collect();
    assert!(to_guest.iter().all(|chat| *chat == 8), "a guest writes nowhere else: {to_guest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_tool_polls_edits_reacts_and_deletes() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let fixture =
        ChannelFixture::answering(json!({"telegram": {"allowFrom": [7, 8]}}), config, crate::scripted_model::reply)
            .await;
    let _gateway = fixture.gateway();
    let telegram = &fixture.telegram;
    let find_message = |text: &str| telegram.visible_messages().into_iter().find(|seen| seen.text == text);
    let call = |from: i64, arguments: Value| telegram.add_message(from, &format!("CALL message {arguments}"));
    call(7, json!({"action": "send", "message": "Dinner at six."}));
    within_timeout("a message", telegram.until(|_| find_message("Dinner at six.").is_some())).await;
    let id = find_message("Dinner at six.").unwrap().id.to_string();
    call(7, json!({"action": "edit", "messageId": id, "message": "Dinner at **seven**."}));
    within_timeout("an edit", telegram.until(|_| find_message("Dinner at seven.").is_some())).await;
    call(7, json!({"action": "react", "messageId": id, "emoji": "👍"}));
    // The gateway itself also sets reactions, on queued messages.
    let thumbs_up = json!([{"type": "emoji", "emoji": "👍"}]);
    let reacted =
        || telegram.calls_of("setMessageReaction").into_iter().find(|call| call.params["reaction"] == thumbs_up);
    within_timeout("a reaction", telegram.until(|_| reacted().is_some())).await;
    assert_eq!(reacted().unwrap().params["message_id"].to_string(), id);
    call(7, json!({"action": "poll", "pollQuestion": "Pizza?", "pollOption": ["Yes", "No"], "pollMulti": true}));
    within_timeout("a poll", telegram.until(|_| find_message("Pizza?").is_some())).await;
    let poll = telegram.calls_of("sendPoll").remove(0).params;
    assert_eq!((&poll["allows_multiple_answers"], poll["options"].as_array().unwrap().len()), (&json!(true), 2));
    call(7, json!({"action": "delete", "messageId": id}));
    within_timeout("it is gone", telegram.until(|_| find_message("Dinner at seven.").is_none())).await;
    call(8, json!({"action": "delete", "messageId": find_message("Pizza?").unwrap().id.to_string()}));
    within_timeout(
        "a refusal",
        telegram.until(|telegram| {
            telegram
                .visible_messages()
                .iter()
                .any(|seen| seen.text.contains("only the owner's runs may delete messages"))
        }),
    )
    .await;
    assert!(find_message("Pizza?").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn typing_is_not_shown_if_disabled() {
    let config = json!({"agents": {"defaults": {"typingMode": "never"}}});
    let fixture = ChannelFixture::with(json!({"telegram": {"allowFrom": [7]}}), config).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert!(fixture.telegram.calls_of("sendChatAction").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn reactions_are_added_to_the_next_message() {
    let fixture = ChannelFixture::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = fixture.gateway();
    fixture.telegram.add_message(7, "hello");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let message = fixture.telegram.visible_messages()[0].id;
    let reacts = |from: i64, emoji: &str| {
        fixture.telegram.add_update(json!({"message_reaction": {
            "chat": {"id": from, "type": "private"}, "message_id": message, "date": 1_794_758_460,
            "user": {"id": from, "is_bot": false, "first_name": "Ann"},
            "old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }}));
    };
    reacts(7, "👍");
    reacts(9, "💀");
    fixture.telegram.add_message(7, "and?");
    within_timeout("an answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let request_body = fixture.scripted.provider.requests().pop().unwrap().body;
    assert!(
        request_body.contains(&format!("Telegram reaction added: 👍 by Ann on message {message}")),
        "{request_body}"
    );
    assert!(!request_body.contains("💀"), "who is not let in says nothing: {request_body}");
}
