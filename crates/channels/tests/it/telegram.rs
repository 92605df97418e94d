//! Sending on Telegram over real HTTP.

use crate::support::{bot, text_message};
use homard_channels::{
    Attachment, AttachmentSource, Channel, ChannelAction, ChannelError, Destination, Media, Outgoing, Poll,
};
use homard_testkit::{
    FakeTelegram,
    fake_telegram::{TOKEN, TelegramFault},
};
use serde_json::json;

fn file(name: &str, mime: &str, bytes: &[u8]) -> Media {
    Media::Bytes { name: name.to_owned(), mime: Some(mime.to_owned()), bytes: bytes.to_vec() }
}

#[tokio::test]
async fn a_text_is_sent_with_styles_topic_and_reply() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut outgoing = text_message("1", "-100", "**hi** <there>");
    outgoing.destination.thread = Some("4".to_owned());
    outgoing.reply_to = Some("9".to_owned());
    outgoing.is_silent = true;
    let receipt = bot(&fake).send(outgoing).await.unwrap();
    assert_eq!(receipt.message.as_deref(), Some("1"));
    assert_eq!(receipt.details, json!({"chatId": -100, "messageIds": ["1"]}));
    let call = fake.calls_of("sendMessage").pop().unwrap();
    assert_eq!(
        call.params,
        json!({
            "chat_id": -100, "message_thread_id": 4,
            "reply_parameters": {"message_id": 9, "allow_sending_without_reply": true},
            "disable_notification": true, "text": "<b>hi</b> &lt;there&gt;", "parse_mode": "HTML",
        })
    );
    assert_eq!(fake.visible_messages()[0].text, "hi <there>");
}

#[tokio::test]
async fn rejected_markup_is_sent_as_plain_text() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    fake.add_fault(
        "sendMessage",
        TelegramFault::Denied(400, "Bad Request: can't parse entities: Unexpected end tag at byte 9"),
    );
    bot.send(text_message("1", "7", "**hi** [x](https://x.y)")).await.unwrap();
    let calls = fake.calls_of("sendMessage");
    assert_eq!(calls[1].params, json!({"chat_id": 7, "text": "hi x (https://x.y)"}));
    assert_eq!(fake.visible_messages().len(), 1);
}

#[tokio::test]
async fn a_long_text_is_split_without_loss() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let text: Vec<String> = (0..2000).map(|n| format!("word{n}")).collect();
    fake.add_fault("sendMessage", TelegramFault::Denied(400, "Bad Request: can't parse entities"));
    let mut outgoing = text_message("1", "7", &text.join(" "));
    outgoing.reply_to = Some("9".to_owned());
    let receipt = bot.send(outgoing).await.unwrap();
    let seen = fake.visible_messages();
    assert_eq!(receipt.details["messageIds"].as_array().map(Vec::len), Some(seen.len()));
    assert!(seen.len() > 2 && seen.iter().all(|seen| seen.text.len() <= 4096));
    let words: Vec<&str> = seen.iter().flat_map(|seen| seen.text.split_whitespace()).collect();
    assert_eq!(words, text);
    let answers: Vec<Option<i64>> = seen.iter().map(|seen| seen.reply_to).collect();
    assert_eq!((answers[0], answers[1]), (Some(9), None), "only the first one hangs on the message");
}

#[tokio::test]
async fn a_rate_limit_between_parts_is_waited_for_and_a_failure_is_reported() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let long = "word ".repeat(1500);
    let expected = ChannelError::RetryAfter {
        after: std::time::Duration::from_secs(5),
        why: "Telegram, sendMessage: too many requests".to_owned(),
    };
    fake.add_fault("sendMessage", TelegramFault::Flood(5));
    assert_eq!(bot.send(text_message("1", "7", &long)).await, Err(expected));
    assert_eq!(fake.visible_messages(), []);
    fake.add_fault("sendMessage", TelegramFault::Nothing);
    fake.add_fault("sendMessage", TelegramFault::Flood(0));
    bot.send(text_message("2", "7", &long)).await.unwrap();
    assert_eq!(fake.visible_messages().len(), 2);
    fake.add_fault("sendMessage", TelegramFault::Nothing);
    fake.add_fault("sendMessage", TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"));
    let error = bot.send(text_message("3", "7", &long)).await.unwrap_err();
    let reason = "sent 1 of 2 messages, then failed: Telegram, sendMessage: Forbidden: bot was blocked by the user";
    assert_eq!(error, ChannelError::Unknown(reason.to_owned()));
}

#[tokio::test]
async fn a_migrated_group_is_followed() {
    let fake = FakeTelegram::start().await.unwrap();
    fake.add_fault("sendMessage", TelegramFault::Moved(-1007));
    let receipt = bot(&fake).send(text_message("1", "-7", "hi")).await.unwrap();
    assert_eq!(receipt.details["chatId"], -1007);
    assert_eq!(fake.visible_messages()[0].chat, -1007);
}

#[tokio::test]
async fn media_are_sent_by_kind_with_a_caption() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let binary: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let media = vec![
        file("a.png", "image/png", &binary),
        Media::Url("https://x.y/b.pdf".to_owned()),
        file("c.ogg", "audio/ogg", b"ogg"),
    ];
    let outgoing =
        Outgoing { media, is_voice: true, reply_to: Some("9".to_owned()), ..text_message("1", "7", "*see*") };
    let receipt = bot.send(outgoing).await.unwrap();
    assert_eq!(receipt.message.as_deref(), Some("3"));
    let methods: Vec<(String, String, Option<i64>)> =
        fake.visible_messages().into_iter().map(|seen| (seen.method, seen.text, seen.reply_to)).collect();
    let expected = [("sendPhoto", "see", Some(9)), ("sendDocument", "", None), ("sendVoice", "", None)];
    assert_eq!(methods, expected.map(|(method, text, reply)| (method.to_owned(), text.to_owned(), reply)));
    let photo = fake.calls_of("sendPhoto").pop().unwrap();
    assert_eq!(photo.file, Some(("photo".to_owned(), "a.png".to_owned(), binary)));
    assert_eq!(fake.calls_of("sendDocument").pop().unwrap().params["document"], "https://x.y/b.pdf");
}

#[tokio::test]
async fn an_unsupported_image_is_sent_as_a_file() {
    let fake = FakeTelegram::start().await.unwrap();
    fake.add_fault("sendPhoto", TelegramFault::Denied(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"));
    let outgoing = Outgoing { media: vec![file("a.png", "image/png", b"x")], ..text_message("1", "7", "") };
    bot(&fake).send(outgoing).await.unwrap();
    assert_eq!(fake.visible_messages().iter().map(|seen| seen.method.as_str()).collect::<Vec<_>>(), ["sendDocument"]);
    let local = Outgoing { media: vec![Media::Url("file:///etc/passwd".to_owned())], ..text_message("2", "7", "") };
    assert!(matches!(bot(&fake).send(local).await, Err(ChannelError::Refused(_))));
}

#[tokio::test]
async fn a_poll_is_sent() {
    let fake = FakeTelegram::start().await.unwrap();
    let poll =
        Poll { question: "Tea?".to_owned(), options: vec!["yes".to_owned(), "no".to_owned()], is_multiple: false };
    bot(&fake).send(Outgoing { poll: Some(poll), ..text_message("1", "7", "") }).await.unwrap();
    let params = fake.calls_of("sendPoll").pop().unwrap().params;
    let options = json!([{"text": "yes"}, {"text": "no"}]);
    assert_eq!(params, json!({"chat_id": 7, "question": "Tea?", "options": options, "allows_multiple_answers": false}));
}

#[tokio::test]
async fn previews_are_hidden_in_messages_and_edits_on_request() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let text = "https://evil.example/?d=1";
    for hides_previews in [true, false] {
        let message =
            bot.send(Outgoing { hides_previews, ..text_message("1", "7", text) }).await.unwrap().message.unwrap();
        let destination = Destination { to: "7".to_owned(), thread: None };
        bot.perform(ChannelAction::Edit { destination, message, text: format!("{text}2"), hides_previews })
            .await
            .unwrap();
        for method in ["sendMessage", "editMessageText"] {
            let preview = fake.calls_of(method).pop().unwrap().params["link_preview_options"].clone();
            assert_eq!(preview == json!({"is_disabled": true}), hides_previews, "{method}");
        }
    }
}

#[tokio::test]
async fn a_chat_has_one_id_in_all_spellings() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    for (to, id) in [
        ("7", "7"),
        (" telegram:7", "7"),
        ("+7", "7"),
        ("-1007:topic:5", "-1007"),
        ("@news", "@news"),
        ("https://t.me/news", "@news"),
    ] {
        assert_eq!(bot.recipient(to).unwrap(), id, "{to}");
    }
    assert!(bot.recipient("somebody else").is_err());
}

#[tokio::test]
async fn messages_can_be_edited_deleted_and_reacted_to() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let destination = || Destination { to: "7".to_owned(), thread: Some("1".to_owned()) };
    let message = bot.send(text_message("1", "7", "draft")).await.unwrap().message.unwrap();
    let edit = |text: &str| {
        let (destination, message, text) = (destination(), message.clone(), text.to_owned());
        ChannelAction::Edit { destination, message, text, hides_previews: false }
    };
    bot.perform(edit("**better**")).await.unwrap();
    bot.perform(edit("better")).await.unwrap();
    fake.add_fault("editMessageText", TelegramFault::Denied(400, "Bad Request: can't parse entities"));
    bot.perform(edit("*best*")).await.unwrap();
    assert_eq!(fake.visible_messages()[0].text, "best");
    assert!(matches!(bot.perform(edit(&"x".repeat(5000))).await, Err(ChannelError::Refused(_))));
    bot.perform(ChannelAction::Type(destination())).await.unwrap();
    assert_eq!(
        fake.calls_of("sendChatAction").pop().unwrap().params,
        json!({"chat_id": 7, "message_thread_id": 1, "action": "typing"})
    );
    let react = |emoji: Option<&str>| ChannelAction::React {
        destination: destination(),
        message: message.clone(),
        emoji: emoji.map(str::to_owned),
    };
    bot.perform(react(Some("👍"))).await.unwrap();
    bot.perform(react(None)).await.unwrap();
    let reactions: Vec<_> =
        fake.calls_of("setMessageReaction").into_iter().map(|call| call.params["reaction"].clone()).collect();
    assert_eq!(reactions, [json!([{"type": "emoji", "emoji": "👍"}]), json!([])]);
    let delete = || ChannelAction::Delete { destination: destination(), message: message.clone() };
    bot.perform(delete()).await.unwrap();
    bot.perform(delete()).await.unwrap();
    assert_eq!(fake.visible_messages(), []);
    fake.add_fault("deleteMessage", TelegramFault::AcceptThenDrop);
    assert!(matches!(bot.perform(delete()).await, Err(ChannelError::Unavailable(_))), "it may be tried again");
}

#[tokio::test]
async fn a_file_is_downloaded_within_its_limit() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    fake.add_file("voice", vec![7; 1000]);
    let attachment_from = |source| Attachment { source, name: None, mime: None, size: None, is_voice: false };
    let voice = attachment_from(AttachmentSource::Platform("voice".to_owned()));
    assert_eq!(bot.fetch(&voice, 1000).await, Ok(vec![7; 1000]));
    let error = bot.fetch(&voice, 999).await.unwrap_err();
    assert_eq!(error.to_string(), "Telegram: the file exceeds the limit of 999 bytes");
    assert!(matches!(
        bot.fetch(&attachment_from(AttachmentSource::Platform("gone".to_owned())), 9).await,
        Err(ChannelError::Refused(_))
    ));
    let result = bot.fetch(&attachment_from(AttachmentSource::Url("http://169.254.169.254/".to_owned())), 9).await;
    assert!(matches!(result, Err(ChannelError::Unsupported { .. })));
}

#[tokio::test]
async fn a_probe_returns_the_identity_and_hints() {
    let fake = FakeTelegram::start().await.unwrap();
    let probe = bot(&fake).identity().await.unwrap();
    assert_eq!(
        (probe.id.as_str(), probe.username.as_deref(), probe.name.as_str()),
        ("123456", Some("fake_bot"), "Fake")
    );
    assert!(probe.hints[0].starts_with("privacy mode is on"));
}

#[tokio::test]
async fn no_failure_shows_the_token() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut bots = vec![bot(&fake)];
    bots.extend(homard_channels::telegram::Telegram::new(
        homard_channels::HttpClients::default(),
        crate::support::telegram_at("http://127.0.0.1:1".to_owned()),
    ));
    let faults = [
        TelegramFault::Denied(404, "Not Found: /bot123456:fake-Token_of_the_testkit/sendMessage"),
        TelegramFault::Denied(400, "Bad Request"),
        TelegramFault::Page(200),
        TelegramFault::Page(502),
        TelegramFault::Cut,
        TelegramFault::AcceptThenHalf,
        TelegramFault::Flood(1),
    ];
    let mut failures = Vec::new();
    for fault in faults {
        fake.add_fault("sendMessage", fault);
        failures.push(bots[0].send(text_message("1", "7", "hi")).await.unwrap_err());
    }
    failures.push(bots[1].send(text_message("1", "7", "hi")).await.unwrap_err());
    let failures: Vec<String> = failures.iter().map(|failure| format!("{failure} {failure:?}")).collect();
    assert!(
        failures.iter().all(|failures| failures.contains("sendMessage") && !failures.contains(&TOKEN[7..])),
        "{failures:#?}"
    );
}
