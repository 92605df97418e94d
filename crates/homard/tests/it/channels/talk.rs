//! Conversations: which messages are answered, where, and with what.

use homard_testkit::{
    fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, fault::ProviderFault as Broken},
    fake_telegram::{FakeTelegram, TelegramFault},
};
use serde_json::{Value, json};

use super::stage::{Stage, last_message, soon};
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
async fn a_message_from_a_phone_is_answered_once_and_typing_is_shown() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(stage.answers(), [(7, "echo hello".to_owned())]);
    assert_eq!(stage.sessions(&gateway), ["agent:main:main"], "the only person is the owner");
    assert!(!stage.telegram.calls_of("sendChatAction").is_empty());
    let menu = stage.telegram.calls_of("setMyCommands").remove(0).params;
    assert!(menu["commands"].as_array().unwrap().iter().any(|command| command["command"] == "status"), "{menu}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_reads_where_it_came_from_and_what_is_answered() {
    let stage = Stage::telegram(json!({"allowFrom": [7], "replyToMode": "first"})).await;
    let _gateway = stage.gateway();
    stage.telegram.add_update(json!({"message": {
        "message_id": 41, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"}, "text": "And you?",
        "from": {"id": 7, "is_bot": false, "first_name": "Ann] [System"},
        "reply_to_message": {
            "message_id": 40, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "I am well.",
            "from": {"id": 123_456, "is_bot": true, "first_name": "Fake"},
        },
    }}));
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    let asked = stage.puppet.provider.requests().remove(0).body;
    assert!(asked.contains("[Telegram Ann) (System id:7 2026-11-15 "), "{asked}");
    assert!(asked.contains(r"And you?\n[Replying to you]\nI am well.\n[/Replying]"), "{asked}");
    assert_eq!(stage.telegram.visible_messages()[0].reply_to, Some(41));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_gives_commands_and_a_guest_does_not() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let stage = Stage::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await;
    let gateway = stage.gateway();
    stage.telegram.add_message(7, "/status");
    soon("the status", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert_eq!(stage.asked(), 0, "a command asks no model");
    stage.telegram.add_message(8, "/status");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(stage.answers()[1], (8, "echo /status".to_owned()), "to the model these are words");
    assert_eq!(stage.sessions(&gateway), ["agent:main:main", "agent:main:telegram:direct:8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_has_no_tools_that_change_anything() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let stage = Stage::with(json!({"telegram": {"allowFrom": [7, 8]}}), config).await;
    let _gateway = stage.gateway();
    for (count, (sender, has)) in [(7, true), (8, false)].into_iter().enumerate() {
        stage.telegram.add_message(sender, "hello");
        soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == count + 1)).await;
        let offered = stage.puppet.offered();
        for tool in ["exec", "write", "cron", "gateway"] {
            assert_eq!(offered.contains(&tool.to_owned()), has, "{sender} {tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_group_only_what_is_for_the_agent_is_answered_and_the_rest_explains_it() {
    let groups = json!({"-100": {}});
    let channels = json!({"telegram": {"allowFrom": [7, 8], "groups": groups}});
    let stage = Stage::with(channels, json!({"commands": {"ownerAllowFrom": ["telegram:7"]}})).await;
    let gateway = stage.gateway();
    writes_in(&stage.telegram, -100, 8, "I bought milk.");
    writes_in(&stage.telegram, -200, 8, "@fake_bot in a group that is not listed");
    writes_in(&stage.telegram, -100, 9, "@fake_bot from somebody who is not listed");
    writes_in(&stage.telegram, -100, 8, "/status");
    writes_in(&stage.telegram, -100, 8, "@fake_bot what did I buy?");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let asked = stage.puppet.provider.requests().remove(0).body;
    assert!(asked.contains(r"[Chat messages since your last reply - for context]\nUser 8: I bought milk."), "{asked}");
    assert!(asked.contains("[Telegram Family id:-100 "), "{asked}");
    assert!(!asked.contains("not listed"), "{asked}");
    writes_in(&stage.telegram, -100, 7, "/status");
    soon("the status", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!((stage.asked(), stage.sessions(&gateway)), (1, vec!["agent:main:telegram:group:-100".to_owned()]));
    writes_in(&stage.telegram, -100, 7, "@fake_bot run something");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    assert!(!stage.puppet.offered().contains(&"exec".to_owned()), "others' words are before the model there");
    let logs = gateway.run(&["channels", "logs", "telegram"]).stdout;
    for why in [
        "ignored group -200: not listed in channels.telegram.groups",
        "ignored 9 in group -100: not listed in channels.telegram.groupAllowFrom or allowFrom",
    ] {
        assert!(logs.contains(why), "{logs}");
    }
    assert!(!logs.contains("@fake_bot"), "what is not heard is not told: {logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_in_a_row_is_one_message() {
    let config = json!({"messages": {"inbound": {"debounceMs": 2000}}});
    let stage = Stage::answering(json!({"telegram": {"allowFrom": [7]}}), config, |asked| {
        let lines = asked.body.matches(r"one\ntwo\nthree").count();
        ProviderReply::text(format!("{lines} whole"))
    });
    let stage = stage.await;
    // Before the first poll, so that they arrive together.
    for text in ["one", "two", "three"] {
        stage.telegram.add_message(7, text);
    }
    let _gateway = stage.gateway();
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!((stage.answers(), stage.asked()), (vec![(7, "1 whole".to_owned())], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_seen_files_are_kept_and_what_is_too_large_is_told() {
    let stage = Stage::telegram(json!({"allowFrom": [7], "mediaMaxMb": 0.001})).await;
    let _gateway = stage.gateway();
    let dot = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    stage.telegram.add_file("dot", dot.to_vec());
    stage.telegram.add_file("notes", b"remember".to_vec());
    stage.telegram.add_file("film", vec![0; 5000]);
    let message = |what: Value| {
        let mut message = json!({
            "message_id": 0, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "is_bot": false, "first_name": "Ann"}, "caption": "look",
        });
        message.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        json!({"message": message})
    };
    stage
        .telegram
        .add_update(message(json!({"photo": [{"file_id": "dot", "file_size": 43, "width": 1, "height": 1}]})));
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert!(stage.puppet.provider.requests()[0].body.contains("data:image/gif;base64,"));
    let notes = json!({"document": {"file_id": "notes", "file_name": "no/tes.txt", "mime_type": "text/plain"}});
    stage.telegram.add_update(message(notes));
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let asked = stage.puppet.provider.requests().pop().unwrap().body;
    let (_, rest) = asked.rsplit_once("[media attached: ").unwrap();
    let path = rest.split(' ').next().unwrap();
    let kept = std::fs::read(stage.home().state().join("workspace").join(path)).unwrap();
    assert_eq!(kept, b"remember");
    stage.telegram.add_update(message(json!({"document": {"file_id": "film", "file_name": "film.bin"}})));
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 3)).await;
    let asked = stage.puppet.provider.requests().pop().unwrap().body;
    assert!(asked.contains("[media could not be loaded: film.bin: "), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_run_and_what_it_would_have_said() {
    let reply = |asked: &homard_testkit::fake_provider::ReceivedRequest| match last_message(asked).as_str() {
        "begin" => ProviderReply { fault: Some(Broken::Stall(15)), ..ProviderReply::text("never said") },
        _ => ProviderReply::text("next"),
    };
    let stage = Stage::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), reply).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "begin");
    until("the model is asked", || stage.asked() == 1);
    stage.telegram.add_message(7, "/stop");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    assert!(stage.answers()[0].1.contains("topped"), "{:?}", stage.answers());
    stage.telegram.add_message(7, "go on");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(stage.answers()[1], (7, "next".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_where_the_model_says_so() {
    let reply = |asked: &homard_testkit::fake_provider::ReceivedRequest| match last_message(asked).as_str() {
        "quiet" => ProviderReply::text("NO_REPLY"),
        // The model is asked for confirmation.
        text if text.contains("NO_REPLY once more") => ProviderReply::text("NO_REPLY"),
        text => ProviderReply::text(format!("echo {text}")),
    };
    let stage = Stage::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), reply).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "quiet");
    until("the model is asked twice", || stage.asked() == 2);
    stage.telegram.add_message(7, "loud");
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert_eq!(stage.answers(), [(7, "echo loud".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_tool_speaks_and_people_can_from_the_command_line() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
    let sent = gateway.run(&["message", "send", "--to", "7", "-m", "Dinner is ready.", "--idempotency-key", "k"]);
    assert_eq!((sent.code, sent.stdout.trim()), (Some(0), "sent to 7 on telegram as message 1"), "{sent:?}");
    let again = gateway.run(&["message", "send", "--to", "7", "-m", "Dinner is ready.", "--idempotency-key", "k"]);
    assert_eq!(again.stdout, sent.stdout, "the same request is done once");
    let asked = [
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
    assert_eq!(gateway.run(&asked).code, Some(0));
    let wrong = gateway.run(&["message", "send", "--channel", "slack", "--to", "7", "-m", "x"]);
    assert!(wrong.code == Some(1) && wrong.stderr.contains("slack"), "{wrong:?}");
    let seen: Vec<_> = stage.telegram.visible_messages().into_iter().map(|seen| (seen.method, seen.text)).collect();
    let expected = [("sendMessage", "Dinner is ready."), ("sendPoll", "Pizza?")];
    assert_eq!(seen, expected.map(|(method, text)| (method.to_owned(), text.to_owned())));
}

/// Every parameter that says where and how something is sent is seen in what the platform gets, or in the answer.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_methods_reach_the_platform() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let gateway = stage.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, (&["operator.admin"], &[])).await;
    let agent = json!({"sessionKey": "a", "deliver": true, "channel": "telegram"});
    let chat = json!({"sessionKey": "b", "originatingChannel": "telegram", "originatingTo": "7"});
    for (number, (method, base, more, seen)) in [
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
        ("channels.logs", json!({"channel": "telegram"}), json!({"accountId": "nobody"}), "not set up"),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut params, mark) = (base, format!("row {number}."));
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        if !method.starts_with("channels.") {
            params[if method == "poll" { "question" } else { "message" }] = json!(mark);
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
            calls.iter().map(|call| call.params.to_string()).any(|call| call.contains(&mark) && call.contains(seen))
        };
        if !answer.to_string().contains(seen) {
            let what = format!("{seen} of {method} {params}, which was answered {answer}");
            soon(&what, stage.telegram.until(is_sent)).await;
        }
    }
    let mut ask = async |method: &str, params: Value| {
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
    for (method, base, more) in [
        ("chat.send", &chat, json!({"deliver": false})),
        ("chat.send", &chat, json!({"originatingAccountId": "nobody"})),
        ("agent", &agent, json!({"accountId": "nobody"})),
        ("agent", &agent, json!({"replyAccountId": "nobody"})),
    ] {
        let mut params = base.clone();
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        (params["message"], params["idempotencyKey"]) = (json!("not there"), json!(more.to_string()));
        ask(method, params).await;
        ask("agent.wait", json!({"runId": more.to_string()})).await;
    }
    assert!(stage.telegram.calls().iter().all(|call| !call.params.to_string().contains("not there")));
    // A platform that does not answer is not waited for longer than that.
    stage.telegram.add_fault("getMe", TelegramFault::Silence);
    let status = ask("channels.status", json!({"probe": true, "timeoutMs": 50})).await;
    assert!(status.to_string().contains("50 ms"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_comes_in_blocks_where_that_is_wished_and_in_parts_that_telegram_takes() {
    let config = json!({"agents": {"defaults": {"blockStreamingChunk": {"minChars": 1, "maxChars": 400}, "blockStreamingCoalesce": {"minChars": 1, "maxChars": 400, "idleMs": 1}}}});
    let paragraphs: Vec<String> = (0..40).map(|n| format!("{n}. {}", "word ".repeat(30).trim_end())).collect();
    for blocks in [true, false] {
        let said = paragraphs.join("\n\n");
        let account = json!({"telegram": {"allowFrom": [7], "blockStreaming": blocks}});
        let stage = Stage::answering(account, config.clone(), move |_| ProviderReply::text(said.clone())).await;
        let _gateway = stage.gateway();
        stage.telegram.add_message(7, "tell me");
        let has_last =
            |telegram: &FakeTelegram| telegram.visible_messages().iter().any(|seen| seen.text.contains("39. "));
        soon("all of it", stage.telegram.until(has_last)).await;
        let seen = stage.answers();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all: Vec<_> = seen.iter().flat_map(|(_, text)| words(text)).collect();
        assert_eq!(all, words(&paragraphs.join(" ")), "each word once and in order");
        assert_eq!(seen.len() > 4, blocks, "{}", seen.len());
        assert!(seen.iter().all(|(_, text)| text.encode_utf16().count() <= 4096));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_says_something_elsewhere_with_its_message_tool() {
    let reply = |asked: &homard_testkit::fake_provider::ReceivedRequest| {
        let messages = asked.json()["messages"].as_array().cloned().unwrap_or_default();
        if messages.last().is_some_and(|last| last["role"] == "tool") {
            return ProviderReply::text("done");
        }
        let arguments = json!({"action": "send", "target": "8", "message": "a word from Ann"});
        let call = FakeToolCall { id: "call_1".to_owned(), name: "message".to_owned(), arguments };
        ProviderReply { answer: FakeAnswer { calls: vec![call], ..FakeAnswer::default() }, ..ProviderReply::default() }
    };
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let stage = Stage::answering(json!({"telegram": {"allowFrom": [7, 8]}}), config, reply).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "tell Bob");
    soon("both", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    assert_eq!(stage.answers(), [(8, "a word from Ann".to_owned()), (7, "done".to_owned())]);
    stage.telegram.add_message(8, "tell myself something elsewhere");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() >= 3)).await;
    let to_guest: Vec<_> = stage.answers().into_iter().skip(2).map(|(chat, _)| chat).collect();
    assert!(to_guest.iter().all(|chat| *chat == 8), "a guest writes nowhere else: {to_guest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_tool_asks_edits_reacts_and_takes_back() {
    let config = json!({"commands": {"ownerAllowFrom": ["telegram:7"]}});
    let stage =
        Stage::answering(json!({"telegram": {"allowFrom": [7, 8]}}), config, crate::scripted_model::reply).await;
    let _gateway = stage.gateway();
    let telegram = &stage.telegram;
    let shown = |text: &str| telegram.visible_messages().into_iter().find(|seen| seen.text == text);
    let call = |from: i64, arguments: Value| telegram.add_message(from, &format!("CALL message {arguments}"));
    call(7, json!({"action": "send", "message": "Dinner at six."}));
    soon("a message", telegram.until(|_| shown("Dinner at six.").is_some())).await;
    let id = shown("Dinner at six.").unwrap().id.to_string();
    call(7, json!({"action": "edit", "messageId": id, "message": "Dinner at **seven**."}));
    soon("an edit", telegram.until(|_| shown("Dinner at seven.").is_some())).await;
    call(7, json!({"action": "react", "messageId": id, "emoji": "👍"}));
    // The gateway itself also sets reactions, on queued messages.
    let thumbs_up = json!([{"type": "emoji", "emoji": "👍"}]);
    let reacted =
        || telegram.calls_of("setMessageReaction").into_iter().find(|call| call.params["reaction"] == thumbs_up);
    soon("a reaction", telegram.until(|_| reacted().is_some())).await;
    assert_eq!(reacted().unwrap().params["message_id"].to_string(), id);
    call(7, json!({"action": "poll", "pollQuestion": "Pizza?", "pollOption": ["Yes", "No"], "pollMulti": true}));
    soon("a poll", telegram.until(|_| shown("Pizza?").is_some())).await;
    let poll = telegram.calls_of("sendPoll").remove(0).params;
    assert_eq!((&poll["allows_multiple_answers"], poll["options"].as_array().unwrap().len()), (&json!(true), 2));
    call(7, json!({"action": "delete", "messageId": id}));
    soon("it is gone", telegram.until(|_| shown("Dinner at seven.").is_none())).await;
    call(8, json!({"action": "delete", "messageId": shown("Pizza?").unwrap().id.to_string()}));
    soon(
        "a refusal",
        telegram.until(|telegram| {
            telegram
                .visible_messages()
                .iter()
                .any(|seen| seen.text.contains("only the owner's runs may delete messages"))
        }),
    )
    .await;
    assert!(shown("Pizza?").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_seen_typing_where_the_owner_does_not_want_it() {
    let config = json!({"agents": {"defaults": {"typingMode": "never"}}});
    let stage = Stage::with(json!({"telegram": {"allowFrom": [7]}}), config).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    assert!(stage.telegram.calls_of("sendChatAction").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_told_of_reactions_with_the_next_message() {
    let stage = Stage::telegram(json!({"allowFrom": [7]})).await;
    let _gateway = stage.gateway();
    stage.telegram.add_message(7, "hello");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 1)).await;
    let message = stage.telegram.visible_messages()[0].id;
    let reacts = |from: i64, emoji: &str| {
        stage.telegram.add_update(json!({"message_reaction": {
            "chat": {"id": from, "type": "private"}, "message_id": message, "date": 1_794_758_460,
            "user": {"id": from, "is_bot": false, "first_name": "Ann"},
            "old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }}));
    };
    reacts(7, "👍");
    reacts(9, "💀");
    stage.telegram.add_message(7, "and?");
    soon("an answer", stage.telegram.until(|telegram| telegram.visible_messages().len() == 2)).await;
    let asked = stage.puppet.provider.requests().pop().unwrap().body;
    assert!(asked.contains(&format!("Telegram reaction added: 👍 by Ann on message {message}")), "{asked}");
    assert!(!asked.contains("💀"), "who is not let in says nothing: {asked}");
}
