//! Discord against a fake with real sockets: what is received, through which failures, and what is sent.

use std::{sync::Arc, time::Duration};

use homard_channels::{
    Attachment, AttachmentSource, Channel, ChannelAction, ChannelError, ChannelEvent, ConnectionState, Destination,
    HttpClients, Media, Outgoing, PeerKind, Poll, Secret,
    discord::{self, ConnectionTiming, Discord},
};
use homard_testkit::{
    FakeDiscord,
    fake_discord::{BOT, DiscordFault, GENERAL, SEND, THREAD, TOKEN},
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{RecordingSink, text_message};

/// Settings with short delays.
pub(crate) fn discord_at(root: String) -> discord::Settings {
    let mut settings = discord::Settings::new("main", Secret::from(TOKEN));
    settings.root = root;
    settings.timing =
        ConnectionTiming { initial_backoff: Duration::from_millis(1), max_backoff: Duration::from_millis(4) };
    settings
}

pub(crate) fn bot(fake: &FakeDiscord) -> Discord {
    Discord::new(HttpClients::default(), discord_at(fake.root())).unwrap()
}

/// A bot that receives. Ends on drop, like a killed process.
struct Receiving {
    sink: Arc<RecordingSink>,
    task: JoinHandle<ChannelError>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiving {
    fn start(bot: Discord, cursor: Option<String>) -> Self {
        let sink = Arc::new(RecordingSink::default());
        let task_sink = sink.clone();
        #[allow(clippy::disallowed_methods, reason = "the test aborts the task, and has no hub that could own it")]
        let task = tokio::spawn(async move { bot.receive(cursor, task_sink.as_ref()).await });
        Self { sink, task }
    }

    async fn until_texts(&self, texts: &[&str]) {
        within("the messages are stored", self.sink.until(|sink| sink.texts() == texts)).await;
    }

    async fn until_up(&self) {
        within("the bot is connected", self.sink.until(|sink| sink.notes().contains(&ConnectionState::Up))).await;
    }
}

/// Waits with a timeout.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

async fn connected(fake: &FakeDiscord) -> Receiving {
    let receiving = Receiving::start(bot(fake), None);
    receiving.until_up().await;
    within("the session has started", fake.until(|fake| !fake.calls_of("GET gateway/bot").is_empty())).await;
    receiving
}

#[tokio::test]
async fn messages_are_received_with_their_place_and_sender() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.set_roles(9, &["mod"]);
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    fake.add_mention(GENERAL, 9, "two");
    fake.add_message(THREAD, 9, "three", &json!({}));
    fake.add_message(GENERAL, 11, "four", &json!({"author": {"id": "11", "username": "b", "bot": true}}));
    receiving.until_texts(&["one", "two", "three", "four"]).await;
    let messages = receiving.sink.messages();
    let places: Vec<_> = messages
        .iter()
        .map(|message| (message.peer.kind, message.peer.id.as_str(), message.thread.as_deref(), message.was_mentioned))
        .collect();
    let (thread, general) = (THREAD.to_string(), GENERAL.to_string());
    assert_eq!(
        places,
        [
            (PeerKind::Direct, "9", None, false),
            (PeerKind::Group, general.as_str(), None, true),
            (PeerKind::Group, general.as_str(), Some(thread.as_str()), false),
            (PeerKind::Group, general.as_str(), None, false),
        ]
    );
    assert_eq!((messages[1].sender_roles.as_slice(), messages[3].sender.is_bot), (&["mod".to_owned()][..], true));
    assert!(messages.iter().skip(1).all(|message| message.server.as_deref() == Some("800")));
}

#[tokio::test]
async fn a_lost_connection_is_resumed_without_loss() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    receiving.until_texts(&["one"]).await;
    fake.disconnect(4000);
    fake.add_direct(9, "two");
    receiving.until_texts(&["one", "two"]).await;
    let logins = fake.logins();
    assert_eq!(logins.iter().map(|login| login["op"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 6]);
    assert!(logins[1]["d"]["seq"].as_u64().unwrap() >= 3, "{logins:?}");
    assert!(receiving.sink.notes().iter().any(|note| matches!(note, ConnectionState::Down { .. })));
}

#[tokio::test]
async fn a_restarted_bot_resumes_its_session() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    receiving.until_texts(&["one"]).await;
    let cursor = receiving.sink.cursor();
    drop(receiving);
    fake.add_direct(9, "two");
    let receiving = Receiving::start(bot(&fake), cursor);
    receiving.until_texts(&["two"]).await;
    assert_eq!(fake.logins().last().unwrap()["op"], 6);
}

#[tokio::test]
async fn messages_that_were_missed_in_a_lost_session_are_fetched_in_order() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.add_message(GENERAL, 9, "before the bot", &json!({}));
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    fake.add_direct(8, "two");
    receiving.until_texts(&["one", "two"]).await;
    let cursor = receiving.sink.cursor();
    drop(receiving);
    fake.end_session();
    let missed: Vec<String> = (0..250).map(|n| format!("missed {n}")).collect();
    missed.iter().for_each(|text| drop(fake.add_direct(9, text)));
    fake.add_message(GENERAL, 9, "missed in the channel", &json!({}));
    // The first attempts fail, and nothing may be skipped for it.
    for fault in [DiscordFault::Page(502), DiscordFault::Cut, DiscordFault::Flood(0.01)] {
        fake.add_fault("GET channels/*/messages", fault);
    }
    let receiving = Receiving::start(bot(&fake), cursor);
    within("all are stored", receiving.sink.until(|sink| sink.texts().len() >= 251)).await;
    fake.add_direct(9, "three");
    within("the new one is stored", receiving.sink.until(|sink| sink.texts().contains(&"three".to_owned()))).await;
    let texts = receiving.sink.texts();
    let of_user: Vec<&String> = texts.iter().filter(|text| text.starts_with("missed ")).collect();
    assert_eq!(of_user[..250], missed.iter().collect::<Vec<_>>());
    assert_eq!(texts.iter().filter(|text| *text == "missed in the channel").count(), 1, "{texts:?}");
    assert!(!texts.contains(&"before the bot".to_owned()));
}

#[tokio::test]
async fn catching_up_continues_after_a_kill() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    receiving.until_texts(&["one"]).await;
    let cursor = receiving.sink.cursor();
    drop(receiving);
    fake.end_session();
    fake.add_direct(9, "two");
    fake.add_fault("GET channels/*/messages", DiscordFault::Silence);
    let receiving = Receiving::start(bot(&fake), cursor);
    receiving.until_up().await;
    within("it is asked", fake.until(|fake| !fake.calls_of("GET channels/*/messages").is_empty())).await;
    let cursor = receiving.sink.cursor();
    drop(receiving);
    let receiving = Receiving::start(bot(&fake), cursor);
    receiving.until_texts(&["two"]).await;
    assert_eq!(fake.logins().last().unwrap()["op"], 6, "the session is resumed, and the rest is still fetched");
}

#[tokio::test]
async fn roles_of_fetched_messages_are_asked_for_if_rules_need_them() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.set_roles(9, &["mod"]);
    fake.add_message(GENERAL, 9, "before", &json!({}));
    let receiving = connected(&fake).await;
    within(
        "the baseline is stored",
        receiving.sink.until(|sink| sink.cursor().is_some_and(|cursor| cursor.contains("last_messages"))),
    )
    .await;
    let cursor = receiving.sink.cursor();
    drop(receiving);
    fake.end_session();
    fake.add_message(GENERAL, 9, "missed", &json!({}));
    let settings = discord::Settings { needs_roles: true, ..discord_at(fake.root()) };
    let receiving = Receiving::start(Discord::new(HttpClients::default(), settings).unwrap(), cursor);
    receiving.until_texts(&["missed"]).await;
    assert_eq!(receiving.sink.messages()[0].sender_roles, ["mod"]);
}

#[tokio::test]
async fn an_event_is_acknowledged_only_once_it_is_stored() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.set_heartbeat_ms(20);
    let receiving = connected(&fake).await;
    receiving.sink.refuse(3);
    fake.add_interaction(9, 2, &json!({"name": "status", "type": 1}));
    receiving.until_texts(&["/status"]).await;
    let callback = "POST interactions/*/*/callback";
    within("it is acknowledged", fake.until(|fake| fake.calls_of(callback).len() == 1)).await;
    let call = &fake.calls_of(callback)[0];
    assert_eq!((&call.body["type"], &call.body["data"]["flags"]), (&json!(4), &json!(64)));
    let downs = receiving.sink.notes().into_iter().filter(|note| matches!(note, ConnectionState::Down { .. })).count();
    assert!(downs >= 3, "{:?}", receiving.sink.notes());
    let (_, last) = fake.heartbeats();
    within("a heartbeat names the stored event", fake.until(|fake| fake.heartbeats().1.as_u64() > last.as_u64())).await;
}

#[tokio::test]
async fn a_button_is_the_command_that_it_stands_for() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    let bot = bot(&fake);
    bot.send(text_message("1", "9", "Waiting. To allow it: /approve a-1 allow-once")).await.unwrap();
    let buttons = fake.visible_messages()[0].buttons.clone();
    assert_eq!(
        buttons.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>(),
        ["Allow once", "Always allow", "Deny"]
    );
    fake.add_interaction(9, 3, &json!({"custom_id": buttons[2].1, "component_type": 2}));
    receiving.until_texts(&["/approve a-1 deny"]).await;
    within("it is acknowledged", fake.until(|fake| fake.calls_of("POST interactions/*/*/callback").len() == 1)).await;
}

#[tokio::test]
async fn a_gateway_that_does_not_acknowledge_heartbeats_is_left() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.set_heartbeat_ms(20);
    fake.set_acknowledges(false);
    let receiving = connected(&fake).await;
    within("it connects again", fake.until(|fake| fake.logins().len() >= 2)).await;
    assert_eq!(fake.logins()[1]["op"], 6);
    fake.set_acknowledges(true);
    fake.add_direct(9, "one");
    receiving.until_texts(&["one"]).await;
}

#[tokio::test]
async fn a_gateway_that_is_gone_is_tried_again() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    fake.add_direct(9, "one");
    receiving.until_texts(&["one"]).await;
    fake.set_offline(true);
    fake.disconnect(1012);
    within("it is down", receiving.sink.until(|sink| sink.notes().len() > 5)).await;
    fake.add_direct(9, "two");
    fake.set_offline(false);
    receiving.until_texts(&["one", "two"]).await;
}

#[tokio::test]
async fn a_rejected_bot_says_what_to_do() {
    for (code, remedy) in
        [(4014, "enable the Message Content Intent"), (4004, "channels.discord.token"), (4013, "update")]
    {
        let fake = FakeDiscord::start().await.unwrap();
        fake.reject_logins(Some(code));
        let mut receiving = Receiving::start(bot(&fake), None);
        let failure = within("it ends", &mut receiving.task).await.unwrap();
        assert!(matches!(&failure, ChannelError::Refused(why) if why.contains(remedy)), "{failure}");
    }
    let fake = FakeDiscord::start().await.unwrap();
    let settings = discord::Settings { token: Secret::from("wrong-token"), ..discord_at(fake.root()) };
    let mut receiving = Receiving::start(Discord::new(HttpClients::default(), settings).unwrap(), None);
    let failure = within("it ends", &mut receiving.task).await.unwrap();
    assert!(failure.to_string().contains("channels.discord.token"), "{failure}");
    assert!(!failure.to_string().contains("wrong-token"));
}

#[tokio::test]
async fn commands_are_registered_once() {
    let fake = FakeDiscord::start().await.unwrap();
    let commands = Some(vec![("status".to_owned(), "show the status".to_owned())]);
    for text in ["one", "two"] {
        let settings = discord::Settings { commands: commands.clone(), ..discord_at(fake.root()) };
        let receiving = Receiving::start(Discord::new(HttpClients::default(), settings).unwrap(), None);
        receiving.until_up().await;
        // It is stored after the registration.
        fake.add_direct(9, text);
        receiving.until_texts(&[text]).await;
    }
    let registrations = fake.calls_of("PUT applications/*/commands");
    assert_eq!(registrations.len(), 1, "unchanged commands are not registered again");
    assert_eq!(registrations[0].body[0]["name"], "status");
}

#[tokio::test]
async fn reactions_and_edits_are_received() {
    let fake = FakeDiscord::start().await.unwrap();
    let receiving = connected(&fake).await;
    let place = json!({"channel_id": GENERAL.to_string(), "guild_id": "800", "message_id": "44", "user_id": "9"});
    let mut added = place.clone();
    added["emoji"] = json!({"id": null, "name": "👍"});
    added["member"] = json!({"user": {"id": "9", "username": "ann"}});
    fake.add_event("MESSAGE_REACTION_ADD", &added);
    let author = json!({"id": "9", "username": "ann"});
    fake.add_event(
        "MESSAGE_UPDATE",
        &json!({
            "id": "1441000000000000000", "channel_id": GENERAL.to_string(), "content": "better", "author": author,
            "edited_timestamp": "2026-01-01T00:00:00+00:00",
        }),
    );
    within("both are stored", receiving.sink.until(|sink| sink.ids().len() == 2)).await;
    let ids = receiving.sink.ids();
    assert!(ids[0].starts_with("44:9:👍:") && ids[1].ends_with("2026-01-01T00:00:00+00:00"), "{ids:?}");
    let events = receiving.sink.events();
    let [ChannelEvent::Reacted(reaction), ChannelEvent::Edited(edited)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((reaction.added.as_slice(), edited.text.as_str()), (&["👍".to_owned()][..], "better"));
}

#[tokio::test]
async fn attachments_are_fetched_from_a_fresh_url() {
    let fake = FakeDiscord::start().await.unwrap();
    let file = fake.add_file(6, "a.txt", b"content".to_vec());
    let receiving = connected(&fake).await;
    fake.add_message(FakeDiscord::direct_channel(9), 9, "", &json!({"attachments": [file]}));
    within("it is stored", receiving.sink.until(|sink| sink.messages().len() == 1)).await;
    let bot = bot(&fake);
    let attachment = receiving.sink.messages()[0].media[0].clone();
    assert_eq!(bot.fetch(&attachment, 100).await.unwrap(), b"content");
    assert!(matches!(bot.fetch(&attachment, 3).await, Err(ChannelError::Refused(why)) if why.contains("limit of 3")));
    let gone = Attachment { source: AttachmentSource::Platform("1/2/3".to_owned()), ..attachment };
    assert!(matches!(bot.fetch(&gone, 100).await, Err(ChannelError::Refused(_))));
}

#[tokio::test]
async fn a_message_is_sent_to_a_user_a_channel_or_a_thread() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = bot(&fake);
    let (general, thread) = (GENERAL.to_string(), THREAD.to_string());
    for to in ["user:9", "9", &format!("channel:{general}"), &general] {
        bot.send(text_message(to, to, to)).await.unwrap();
    }
    let destination = Destination { to: general, thread: Some(thread) };
    let reply = Outgoing {
        id: "r".to_owned(),
        destination,
        reply_to: Some("44".to_owned()),
        text: "r".to_owned(),
        ..Outgoing::default()
    };
    bot.send(reply).await.unwrap();
    let sent = fake.visible_messages();
    let channels: Vec<u64> = sent.iter().map(|message| message.channel).collect();
    let direct = FakeDiscord::direct_channel(9);
    assert_eq!(channels, [direct, direct, GENERAL, GENERAL, THREAD]);
    assert_eq!(sent[4].reply_to.as_deref(), Some("44"));
    assert_eq!(fake.calls_of("POST users/@me/channels").len(), 1, "the channel of a direct chat is remembered");
    assert!(matches!(bot.send(text_message("x", "999", "x")).await, Err(ChannelError::Refused(_))));
}

#[tokio::test]
async fn a_long_text_arrives_in_order_with_its_code_blocks() {
    let fake = FakeDiscord::start().await.unwrap();
    let code: Vec<String> = (0..100).map(|n| format!("let line_{n} = {n}; // a comment of some length")).collect();
    let text = format!("Look:\n\n```rust\n{}\n```\nThat is all.", code.join("\n"));
    // In the middle of a split message a pause is waited for.
    fake.add_fault(SEND, DiscordFault::Nothing);
    fake.add_fault(SEND, DiscordFault::Flood(0.01));
    let receipt = bot(&fake).send(text_message("1", "9", &text)).await.unwrap();
    let sent = fake.visible_messages();
    assert!(sent.len() > 2 && sent.iter().all(|message| message.text.matches("```").count() % 2 == 0));
    let lines: Vec<&str> =
        sent.iter().flat_map(|message| message.text.lines()).filter(|line| line.starts_with("let ")).collect();
    assert_eq!(lines, code);
    let ids: Vec<_> = sent.iter().map(|message| json!(message.id)).collect();
    assert_eq!(
        (&receipt.details["messageIds"], receipt.message.as_ref()),
        (&json!(ids), sent.last().map(|last| &last.id))
    );
}

#[tokio::test]
async fn a_repeated_message_is_recognized_by_its_nonce() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = bot(&fake);
    fake.add_fault(SEND, DiscordFault::AcceptThenDrop);
    assert!(matches!(bot.send(text_message("1", "9", "once")).await, Err(ChannelError::Unknown(_))));
    bot.send(text_message("1", "9", "once")).await.unwrap();
    assert_eq!(fake.visible_messages().len(), 1);
}

#[tokio::test]
async fn an_incomplete_message_is_not_sent_again() {
    let fake = FakeDiscord::start().await.unwrap();
    fake.add_fault(SEND, DiscordFault::Nothing);
    fake.add_fault(SEND, DiscordFault::Denied(403, 50013, "Missing Permissions"));
    let failure = bot(&fake).send(text_message("1", "9", &"word ".repeat(600))).await.unwrap_err();
    assert!(matches!(&failure, ChannelError::Unknown(why) if why.contains("sent 1 of 2")), "{failure}");
}

#[tokio::test]
async fn an_empty_bucket_is_waited_for() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = bot(&fake);
    fake.add_fault(SEND, DiscordFault::Bucket(0, 0.05));
    let started = tokio::time::Instant::now();
    bot.send(text_message("1", "9", "one")).await.unwrap();
    bot.send(text_message("2", "9", "two")).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(50));
    fake.add_fault(SEND, DiscordFault::GlobalFlood(60.0));
    for id in ["3", "4"] {
        let failure = bot.send(text_message(id, "9", "later")).await.unwrap_err();
        assert!(matches!(failure, ChannelError::RetryAfter { after, .. } if after > Duration::from_secs(50)));
    }
    assert_eq!(fake.calls_of(SEND).len(), 3, "a blocked request is not sent");
}

#[tokio::test]
async fn files_polls_and_flags_are_sent() {
    let fake = FakeDiscord::start().await.unwrap();
    let bytes = |name: &str| Media::Bytes { name: name.to_owned(), mime: None, bytes: name.as_bytes().to_vec() };
    let poll =
        Poll { question: "Pizza?".to_owned(), options: vec!["Yes".to_owned(), "No".to_owned()], is_multiple: false };
    let outgoing = Outgoing {
        media: vec![bytes("a.png"), bytes("b.txt")],
        poll: Some(poll),
        is_silent: true,
        hides_previews: true,
        ..text_message("1", "9", "look")
    };
    bot(&fake).send(outgoing).await.unwrap();
    let calls = fake.calls_of(SEND);
    let names: Vec<_> = calls[0].files.iter().map(|(field, name, _)| (field.as_str(), name.as_str())).collect();
    assert_eq!(names, [("files[0]", "a.png"), ("files[1]", "b.txt")]);
    assert_eq!((&calls[0].body["content"], &calls[0].body["flags"]), (&json!("look"), &json!(1 << 2 | 1 << 12)));
    assert_eq!(calls[1].body["poll"]["answers"][1]["poll_media"]["text"], "No");
}

#[tokio::test]
async fn messages_are_edited_deleted_and_reacted_to() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = bot(&fake);
    let message = bot.send(text_message("1", "9", "first")).await.unwrap().message.unwrap();
    let destination = || Destination { to: "9".to_owned(), thread: None };
    let react = |emoji: Option<&str>| ChannelAction::React {
        destination: destination(),
        message: message.clone(),
        emoji: emoji.map(str::to_owned),
    };
    let edit = |text: String| ChannelAction::Edit {
        destination: destination(),
        message: message.clone(),
        text,
        hides_previews: false,
    };
    bot.perform(ChannelAction::Type(destination())).await.unwrap();
    bot.perform(edit("second".to_owned())).await.unwrap();
    assert_eq!(fake.visible_messages()[0].text, "second");
    assert!(matches!(bot.perform(edit("x".repeat(2001))).await, Err(ChannelError::Refused(_))));
    for emoji in [Some("👀"), Some("✅"), None] {
        bot.perform(react(emoji)).await.unwrap();
    }
    let route = |method: &str| fake.calls_of(&format!("{method} channels/*/messages/*/reactions/*/@me")).len();
    assert_eq!((route("PUT"), route("DELETE")), (2, 2), "a new reaction replaces the last one");
    let delete = ChannelAction::Delete { destination: destination(), message: message.clone() };
    bot.perform(delete.clone()).await.unwrap();
    bot.perform(delete).await.unwrap();
    assert!(fake.visible_messages().is_empty());
}

#[tokio::test]
async fn a_probe_names_the_bot_and_what_is_missing() {
    let fake = FakeDiscord::start().await.unwrap();
    let identity = bot(&fake).identity().await.unwrap();
    let expected = (BOT.to_string(), Some("fake-bot".to_owned()), Vec::<String>::new());
    assert_eq!((identity.id, identity.username, identity.hints), expected);
}
