//! Tests of update parsing.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn me() -> BotIdentity {
    BotIdentity { id: 1, username: Some("Claw_bot".to_owned()), name: "Claw".to_owned(), can_read_groups: true }
}

fn event(update: &Value) -> Option<ChannelEvent> {
    read(update, &me(), "main")
}

fn group_message(extra_fields: &Value) -> Value {
    let mut message = json!({
        "message_id": 3, "date": 1_700_000_000,
        "chat": {"id": -100, "type": "supergroup", "title": "Family"},
        "from": {"id": 7, "first_name": "Ann", "last_name": "Lee", "username": "ann", "is_bot": false},
    });
    if let (Some(message), Some(extra_fields)) = (message.as_object_mut(), extra_fields.as_object()) {
        message.extend(extra_fields.clone());
    }
    json!({"update_id": 5, "message": message})
}

fn incoming(extra_fields: &Value) -> Incoming {
    match event(&group_message(extra_fields)) {
        Some(ChannelEvent::Message(incoming)) => *incoming,
        other => panic!("{other:?}"),
    }
}

fn plain() -> Incoming {
    Incoming {
        event: "5".to_owned(),
        message: "3".to_owned(),
        account: "main".to_owned(),
        peer: Peer { kind: PeerKind::Group, id: "-100".to_owned(), title: Some("Family".to_owned()) },
        sender: MessageSender {
            id: "7".to_owned(),
            name: "Ann Lee".to_owned(),
            username: Some("ann".to_owned()),
            is_bot: false,
            is_chat: false,
        },
        text: "hi".to_owned(),
        timestamp_ms: 1_700_000_000_000,
        ..Incoming::default()
    }
}

#[test]
fn all_fields_of_a_message_are_read() {
    assert_eq!(incoming(&json!({"text": "hi"})), plain());
    let direct = json!({"update_id": 6, "message": {
        "message_id": 4, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "first_name": "Ann"}, "text": "hi",
    }});
    let Some(ChannelEvent::Message(direct)) = event(&direct) else { panic!() };
    assert_eq!((direct.peer.kind, direct.peer.id.as_str(), direct.sender.id.as_str()), (PeerKind::Direct, "7", "7"));
}

#[test]
fn edits_and_channel_posts_are_distinguished() {
    let mut update = group_message(&json!({"text": "hi"}));
    let message = update["message"].take();
    let edited = event(&json!({"update_id": 5, "edited_message": message}));
    assert_eq!(edited, Some(ChannelEvent::Edited(Box::new(plain()))));
    let post = json!({"update_id": 8, "channel_post": {
        "message_id": 4, "date": 1, "chat": {"id": -9, "type": "channel", "title": "News"},
        "sender_chat": {"id": -9, "title": "News"}, "text": "hi",
    }});
    let Some(ChannelEvent::Message(post)) = event(&post) else { panic!() };
    assert_eq!((post.peer.kind, post.sender.id.as_str(), post.sender.name.as_str()), (PeerKind::Channel, "-9", "News"));
}

#[test]
fn a_topic_is_a_thread_and_a_chain_of_replies_is_not() {
    let thread = |extra_fields: &Value| incoming(extra_fields).thread;
    let topic = json!({"text": "hi", "message_thread_id": 4, "is_topic_message": true});
    assert_eq!(thread(&topic), Some("4".to_owned()));
    assert_eq!(thread(&json!({"text": "hi", "message_thread_id": 4})), None);
    let general = json!({"text": "hi", "chat": {"id": -100, "type": "supergroup", "is_forum": true}});
    assert_eq!(thread(&general), Some("1".to_owned()));
}

#[test]
fn a_reply_to_the_bot_counts_as_a_mention() {
    let reply = |from: i64, extra_fields: Value| {
        let mut original = json!({"message_id": 2, "from": {"id": from, "first_name": "Claw"}, "text": "before"});
        if let (Some(original), Some(extra_fields)) = (original.as_object_mut(), extra_fields.as_object()) {
            original.extend(extra_fields.clone());
        }
        incoming(&json!({"text": "hi", "reply_to_message": original}))
    };
    let reply_to_us = reply(1, json!({}));
    let (message, sender, text) = ("2".to_owned(), Some("Claw".to_owned()), "before".to_owned());
    assert_eq!(reply_to_us.reply_to, Some(QuotedMessage { message, sender, text, is_ours: true }));
    assert!(reply_to_us.was_mentioned && !reply(8, json!({})).was_mentioned);
    let topic = reply(1, json!({"forum_topic_created": {"name": "x"}}));
    assert_eq!((topic.reply_to, topic.was_mentioned), (None, false), "the start of a topic is not what is answered");
    let part = incoming(&json!({
        "text": "hi", "quote": {"text": "fore"},
        "reply_to_message": {"message_id": 2, "from": {"id": 8, "first_name": "Bob"}, "text": "before"},
    }));
    assert_eq!(part.reply_to.map(|quoted| quoted.text), Some("fore".to_owned()));
}

#[test]
fn mentions_of_the_bot_and_of_others_are_distinguished() {
    let mentions = |text: &str, entities: Value| {
        let incoming = incoming(&json!({"text": text, "entities": entities}));
        (incoming.was_mentioned, incoming.mentions_others)
    };
    let at = |kind: &str, offset: usize, length: usize| json!({"type": kind, "offset": offset, "length": length});
    assert_eq!(mentions("@claw_BOT hi", json!([at("mention", 0, 9)])), (true, false));
    assert_eq!(mentions("😀 @claw_bot hi", json!([at("mention", 3, 9)])), (true, false), "counted in UTF-16");
    assert_eq!(mentions("@bob hi", json!([at("mention", 0, 4)])), (false, true));
    assert_eq!(mentions("@bob @claw_bot", json!([at("mention", 0, 4), at("mention", 5, 9)])), (true, true));
    let person = |id: i64| json!([{"type": "text_mention", "offset": 0, "length": 2, "user": {"id": id}}]);
    assert_eq!((mentions("hi", person(1)), mentions("hi", person(9))), ((true, false), (false, true)));
    assert_eq!(
        mentions("x", json!([at("mention", 9, 9), {"type": "bold"}, 5])),
        (false, false),
        "nonsense is no mention"
    );
    let below = incoming(&json!({
        "photo": [{"file_id": "f", "width": 1, "height": 1}], "caption": "@claw_bot",
        "caption_entities": [at("mention", 0, 9)],
    }));
    assert!(below.was_mentioned);
}

#[test]
fn a_command_for_another_bot_is_ignored() {
    let command = |text: &str, length: usize| {
        let entities = json!([{"type": "bot_command", "offset": 0, "length": length}]);
        match event(&group_message(&json!({"text": text, "entities": entities}))) {
            Some(ChannelEvent::Message(incoming)) => Some((incoming.text, incoming.is_command, incoming.was_mentioned)),
            _ => None,
        }
    };
    assert_eq!(command("/status now", 7), Some(("/status now".to_owned(), true, false)));
    assert_eq!(command("/status@claw_bot now", 16), Some(("/status now".to_owned(), true, true)));
    assert_eq!(command("/status@other_bot now", 17), None);
    assert!(incoming(&json!({"text": "/think high"})).is_command);
    assert!(!incoming(&json!({"text": "and/or"})).is_command);
}

#[test]
fn media_have_name_type_and_size() {
    let media = |extra_fields: &Value| {
        let [attachment] = <[Attachment; 1]>::try_from(incoming(extra_fields).media).unwrap();
        let AttachmentSource::Platform(id) = attachment.source else { panic!() };
        (id, attachment.name, attachment.mime.unwrap_or_default(), attachment.size, attachment.is_voice)
    };
    let photo = json!({"photo": [
        {"file_id": "small", "width": 9, "height": 9}, {"file_id": "large", "width": 99, "height": 99, "file_size": 5},
    ]});
    assert_eq!(media(&photo), ("large".to_owned(), None, "image/jpeg".to_owned(), Some(5), false));
    let document = json!({"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}});
    assert_eq!(media(&document), ("d".to_owned(), Some("a.pdf".to_owned()), "application/pdf".to_owned(), None, false));
    let voice = json!({"voice": {"file_id": "v"}});
    assert_eq!(media(&voice), ("v".to_owned(), None, "audio/ogg".to_owned(), None, true));
    let sticker = json!({"sticker": {"file_id": "s"}});
    assert_eq!(media(&sticker).2, "image/webp");
    let location = incoming(&json!({"location": {"latitude": 1.5, "longitude": 2.5}, "venue": {"title": "Home"}}));
    assert_eq!(location.text, "Location: 1.5, 2.5 (Home)");
}

#[test]
fn a_sender_posting_as_a_group_is_that_group() {
    let anonymous = incoming(&json!({
        "text": "hi", "from": {"id": 1_087_968_824, "is_bot": true, "first_name": "Group"},
        "sender_chat": {"id": -100, "title": "Family"},
    }));
    assert_eq!((anonymous.sender.id.as_str(), anonymous.sender.is_bot), ("-100", false));
}

#[test]
fn a_chat_never_has_the_id_of_a_person() {
    let message = |sender: Value| {
        let mut message = json!({"message_id": 3, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "hi"});
        message.as_object_mut().unwrap().extend(sender.as_object().cloned().unwrap());
        event(&json!({"update_id": 5, "message": message}))
    };
    for sender in [
        json!({}),
        json!({"sender_chat": {"id": 7}}),
        json!({"sender_chat": {"id": 7}, "from": {"id": 7}}),
        json!({"sender_chat": {"id": "7"}, "from": {"id": 7}}),
        json!({"from": {"id": -7}}),
        json!({"from": {"id": 0}}),
    ] {
        assert_eq!(message(sender.clone()), None, "{sender}");
    }
    let anonymous = incoming(&json!({"text": "hi", "sender_chat": {"id": -7}}));
    assert_eq!((anonymous.sender.id.as_str(), anonymous.sender.is_chat), ("-7", true));
    assert!(
        matches!(message(json!({"from": {"id": 7}})), Some(ChannelEvent::Message(incoming)) if !incoming.sender.is_chat)
    );
}

#[test]
fn reactions_and_membership_are_read() {
    let chat = json!({"id": -100, "type": "group", "title": "Family"});
    let emoji = |emoji: &str| json!({"type": "emoji", "emoji": emoji});
    let reaction = json!({"update_id": 5, "message_reaction": {
        "chat": chat, "message_id": 3, "user": {"id": 7, "first_name": "Ann"}, "date": 1,
        "old_reaction": [emoji("👍"), emoji("👀")], "new_reaction": [emoji("👀"), emoji("🔥"), {"type": "paid"}],
    }});
    let Some(ChannelEvent::Reacted(reaction)) = event(&reaction) else { panic!() };
    let fields = (reaction.message.as_str(), reaction.sender.id.as_str(), reaction.added, reaction.removed);
    assert_eq!(fields, ("3", "7", vec!["🔥".to_owned()], vec!["👍".to_owned()]));
    let member = |status: &str| {
        let change = json!({"chat": chat, "from": {"id": 7}, "date": 1, "new_chat_member": {"status": status}});
        match event(&json!({"update_id": 5, "my_chat_member": change})) {
            Some(ChannelEvent::Membership(membership)) => membership.is_member,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        ["member", "administrator", "kicked", "left", "restricted"].map(member),
        [true, true, false, false, false]
    );
}

#[test]
fn updates_without_content_are_no_event() {
    for update in [
        json!({}),
        json!({"update_id": "5", "message": {}}),
        json!({"update_id": 5}),
        json!({"update_id": 5, "message": {}}),
        json!({"update_id": 5, "callback_query": {}}),
        group_message(&json!({"new_chat_title": "x"})),
        group_message(&json!({"text": "hi", "chat": {"id": 1, "type": "moon"}})),
        json!(null),
    ] {
        assert_eq!(event(&update), None, "{update}");
    }
}

proptest! {
    /// Arbitrary entity offsets never cause a panic.
    #[test]
    fn no_entity_makes_it_panic(text in "\\PC{0,12}", offset: u64, length: u64, small in 0u64..14, short in 0u64..14) {
        for (offset, length) in [(offset, length), (small, short), (0, short)] {
            let entities = json!([{"type": "bot_command", "offset": offset, "length": length},
                {"type": "mention", "offset": offset, "length": length}]);
            event(&group_message(&json!({"text": text, "entities": entities})));
        }
    }
}
