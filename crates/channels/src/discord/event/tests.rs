//! Tests of decoding the events.

use serde_json::json;

use super::*;
use crate::incoming::{Peer, PeerKind};

const ME: &str = "100";

fn place(kind: PeerKind) -> ChatPlace {
    let peer = Peer { kind, id: "5".to_owned(), title: None };
    ChatPlace { peer, thread: None, server: Some("8".to_owned()) }
}

fn read(event: &Value) -> Option<Incoming> {
    let place = place(PeerKind::Group);
    message(event, EventContext { me: ME, own_role: Some("77"), account: "main", place: &place })
}

fn written(extra: &Value) -> Value {
    let author = json!({"id": "9", "username": "ann", "global_name": "Ann"});
    let mut event = json!({
        "id": "1441000000000000000", "channel_id": "5", "guild_id": "8", "type": 0, "author": author,
        "content": "hi", "mentions": [], "mention_roles": [], "attachments": [], "member": {"roles": ["3", "4"]},
    });
    event.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
    event
}

#[test]
fn a_message_is_read_with_its_sender_and_its_place() {
    let incoming = read(&written(&json!({"member": {"roles": ["3"], "nick": "Annie"}}))).unwrap();
    let expected = Incoming {
        event: "1441000000000000000".to_owned(),
        message: "1441000000000000000".to_owned(),
        account: "main".to_owned(),
        sender: MessageSender {
            id: "9".to_owned(),
            name: "Annie".to_owned(),
            username: Some("ann".to_owned()),
            is_bot: false,
            is_chat: false,
        },
        text: "hi".to_owned(),
        peer: place(PeerKind::Group).peer,
        server: Some("8".to_owned()),
        sender_roles: vec!["3".to_owned()],
        timestamp_ms: (1_441_000_000_000_000_000 >> 22) + ID_EPOCH_MS,
        ..Incoming::default()
    };
    assert_eq!(incoming, expected);
}

#[test]
fn a_mention_of_the_bot_or_of_its_role_addresses_it() {
    let of = |extra: Value| {
        let incoming = read(&written(&extra)).unwrap();
        (incoming.text, incoming.was_mentioned, incoming.mentions_others)
    };
    let (us, bob) = (json!({"id": ME, "username": "bot"}), json!({"id": "10", "username": "bob"}));
    let text = |text: &str| text.to_owned();
    assert_eq!(of(json!({"content": "<@100> hello", "mentions": [us]})), (text("hello"), true, false));
    assert_eq!(
        of(json!({"content": "hey <@!100>, see <@10>", "mentions": [us, bob]})),
        (text("hey @bot, see @bob"), true, true)
    );
    assert_eq!(of(json!({"content": "<@10> hello", "mentions": [bob]})), (text("@bob hello"), false, true));
    assert_eq!(of(json!({"content": "<@&77> hi", "mention_roles": ["77"]})), (text("<@&77> hi"), true, false));
    assert_eq!(of(json!({"content": "<@&78> hi", "mention_roles": ["78"]})), (text("<@&78> hi"), false, true));
    let ours = json!({"id": "44", "author": {"id": ME, "username": "bot"}, "content": "I said"});
    let incoming = read(&written(&json!({"type": 19, "referenced_message": ours}))).unwrap();
    assert!(incoming.was_mentioned);
    assert_eq!(
        incoming.reply_to.map(|quoted| (quoted.message, quoted.text, quoted.is_ours)),
        Some((text("44"), text("I said"), true))
    );
    let bobs = json!({"id": "45", "author": bob, "content": "x"});
    let reply = json!({"type": 19, "referenced_message": bobs, "mentions": [bob]});
    assert_eq!(of(reply), (text("hi"), false, false), "the answered author is mentioned by the reply only");
}

#[test]
fn notices_and_own_messages_are_ignored() {
    for extra in [
        json!({"author": {"id": ME, "username": "bot", "bot": true}}),
        json!({"type": 7}),
        json!({"content": ""}),
        json!({"author": {}}),
    ] {
        assert_eq!(read(&written(&extra)), None, "{extra}");
    }
    for bot in [json!({"webhook_id": "1"}), json!({"author": {"id": "11", "username": "b", "bot": true}})] {
        assert!(read(&written(&bot)).unwrap().sender.is_bot);
    }
}

#[test]
fn an_attachment_is_named_by_its_message() {
    let file =
        json!({"id": "6", "filename": "a.ogg", "content_type": "audio/ogg; x=1", "size": 5, "url": "https://evil/"});
    let incoming = read(&written(&json!({"content": "", "attachments": [file, {"id": 5}], "flags": 1 << 13}))).unwrap();
    let expected = Attachment {
        source: AttachmentSource::Platform("5/1441000000000000000/6".to_owned()),
        name: Some("a.ogg".to_owned()),
        mime: Some("audio/ogg".to_owned()),
        size: Some(5),
        is_voice: true,
    };
    assert_eq!(incoming.media, [expected]);
}

#[test]
fn an_update_without_an_edit_is_ignored() {
    let place = place(PeerKind::Direct);
    let context = EventContext { me: ME, own_role: None, account: "main", place: &place };
    assert_eq!(edited(&written(&json!({"edited_timestamp": null})), context), None);
    let event = edited(&written(&json!({"edited_timestamp": "2026-01-01T00:00:00+00:00"})), context).unwrap();
    assert_eq!(event.event, "1441000000000000000:2026-01-01T00:00:00+00:00");
}

#[test]
fn a_reaction_names_its_sender_and_its_emoji() {
    let place = place(PeerKind::Group);
    let context = EventContext { me: ME, own_role: None, account: "main", place: &place };
    let event = |user: &str, emoji: Value| json!({"user_id": user, "message_id": "44", "emoji": emoji});
    let custom = reaction(&event("9", json!({"id": "3", "name": "claw"})), context, true, 7).unwrap();
    assert_eq!((custom.event.as_str(), custom.added), ("44:9:claw:7", vec![":claw:".to_owned()]));
    let removed = reaction(&event("9", json!({"id": null, "name": "👍"})), context, false, 8).unwrap();
    assert_eq!((removed.sender.id.as_str(), removed.removed), ("9", vec!["👍".to_owned()]));
    assert_eq!(reaction(&event(ME, json!({"name": "👍"})), context, true, 9), None);
}

#[test]
fn an_interaction_is_a_message_of_its_user() {
    let place = place(PeerKind::Direct);
    let context = EventContext { me: ME, own_role: None, account: "main", place: &place };
    let command = json!({"id": "55", "type": 2, "token": "t", "data": {"name": "status"}, "user": {"id": "9", "username": "ann"}});
    let incoming = interaction(&command, context).unwrap();
    assert_eq!((incoming.event.as_str(), incoming.text.as_str(), incoming.is_command), ("55", "/status", true));
    assert_eq!((incoming.sender.id.as_str(), incoming.was_mentioned), ("9", true));
}
