//! What a hosted channel promises: nothing is lost, nothing is sent twice, and outcomes are distinguished.

use std::time::Duration;

use homard_channel_host::PluginHttpCall;
use homard_channels::{Attachment, AttachmentSource, Channel as _, ChannelError, Media, PeerKind};
use serde_json::json;

use crate::support::{Account, Installation, Platform, node, text};

fn kill(pid: u32) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_stored_before_they_are_confirmed_and_replies_carry_their_ids() {
    let Some(node) = node().await else { return };
    let (installation, mut platform) = (Installation::new(node), Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": platform.port, "dmPolicy": "pairing", "secret": "s"}));
    account.up().await;
    let hello = platform.heard("hello").await;
    let env: Vec<_> = hello["env"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(env, ["HOMARD_PLUGIN", "IRC_NICK", "OPENCLAW_STATE_DIR", "PATH"]);
    assert_eq!(hello["section"]["irc"]["secret"], "s");
    assert_eq!(account.channel.identity().await.unwrap().username.as_deref(), Some("fake"));
    assert_eq!(account.channel.capabilities().text_limit, 50);
    assert!(host.memory().is_some_and(|bytes| bytes > 10 << 20));

    account.sink.refuse(1);
    platform.tell(&json!({"id": "1", "text": "/status", "from": "alice"})).await;
    platform.tell(&json!({"id": "2", "text": "hi all", "from": "bob", "chat": "#ops", "mentioned": true})).await;
    account.sink.until("messages", |sink| sink.messages().len() == 2).await;
    let messages = account.sink.messages();
    let first = messages.iter().find(|message| message.message == "1").unwrap();
    let second = messages.iter().find(|message| message.message == "2").unwrap();
    assert_eq!(
        (first.peer.kind, first.peer.id.as_str(), first.sender.id.as_str()),
        (PeerKind::Direct, "alice", "alice")
    );
    assert_eq!((second.peer.kind, second.peer.id.as_str(), second.was_mentioned), (PeerKind::Channel, "#ops", true));
    assert!(first.is_command && !second.is_command);

    let sending = account.channel.send(text("#ops", "hello"));
    let answer = async {
        let sent = platform.heard("send").await;
        assert_eq!(sent["send"]["to"], "#ops");
        platform.tell(&json!({"n": sent["n"], "sent": "m1"})).await;
    };
    assert_eq!(tokio::join!(sending, answer).0.unwrap().message.as_deref(), Some("m1"));

    platform.tell(&json!({"id": "1", "text": "/status", "from": "alice"})).await;
    loop {
        let ack = platform.heard("ack").await;
        if ack["duplicate"] == true {
            break assert_eq!(ack["ack"], "1");
        }
    }
    assert_eq!(account.sink.messages().len(), 2);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_host_loses_nothing_and_a_send_in_flight_is_unknown() {
    let Some(node) = node().await else { return };
    let (installation, mut platform) = (Installation::new(node), Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": platform.port}));
    account.up().await;
    // Stored, but the gateway refuses it until the process is gone.
    account.sink.refuse(usize::MAX);
    platform.tell(&json!({"id": "1", "text": "kept", "from": "alice"})).await;
    platform.heard("ack").await;
    let sending = account.channel.send(text("alice", "in flight"));
    let killing = async {
        platform.heard("send").await;
        kill(host.pid().unwrap());
    };
    let (result, ()) = tokio::join!(sending, killing);
    assert!(matches!(result, Err(ChannelError::Unknown(_))), "{result:?}");
    let down = account.channel.send(text("alice", "later")).await;
    assert!(matches!(down, Err(ChannelError::Unavailable(_))), "{down:?}");
    account.sink.refuse(0);
    account.sink.until("the message", |sink| sink.messages().len() == 1).await;
    assert_eq!(account.sink.messages()[0].text, "kept");
    account.up().await;
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_sending_are_told_apart() {
    let Some(node) = node().await else { return };
    let (installation, mut platform) = (Installation::new(node), Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": platform.port}));
    account.up().await;
    for (failure, expected) in [
        ("PlatformMessageRejectedError", ChannelError::Refused("PlatformMessageRejectedError".to_owned())),
        ("ECONNREFUSED", ChannelError::Unavailable("ECONNREFUSED".to_owned())),
        ("not connected", ChannelError::Unavailable("not connected".to_owned())),
        ("something else", ChannelError::Unknown("something else".to_owned())),
    ] {
        let sending = account.channel.send(text("alice", "hi"));
        let answer = async {
            let sent = platform.heard("send").await;
            platform.tell(&json!({"n": sent["n"], "failed": failure})).await;
        };
        assert_eq!(tokio::join!(sending, answer).0.unwrap_err(), expected);
    }
    // Of a text in two parts the second one fails: it must not be repeated.
    let long = "x".repeat(80);
    let sending = account.channel.send(text("alice", &long));
    let answer = async {
        let first = platform.heard("send").await;
        platform.tell(&json!({"n": first["n"], "sent": "a"})).await;
        let second = platform.heard("send").await;
        platform.tell(&json!({"n": second["n"], "failed": "PlatformMessageRejectedError"})).await;
    };
    let (result, ()) = tokio::join!(sending, answer);
    assert!(matches!(result, Err(ChannelError::Unknown(why)) if why.contains("only a part")));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_http_requests_pass_in_both_directions() {
    let Some(node) = node().await else { return };
    let (installation, mut platform) = (Installation::new(node), Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": platform.port}));
    account.up().await;
    platform.tell(&json!({"id": "1", "text": "", "from": "alice", "saves": "picture"})).await;
    account.sink.until("the message", |sink| sink.messages().len() == 1).await;
    let received = account.sink.messages().remove(0);
    assert_eq!(account.channel.fetch(&received.media[0], 100).await.unwrap(), b"picture");
    assert!(account.channel.fetch(&received.media[0], 3).await.is_err());

    let mut outgoing = text("alice", "look");
    outgoing.media = vec![Media::Bytes { name: "a.txt".to_owned(), mime: None, bytes: b"file".to_vec() }];
    let sending = account.channel.send(outgoing);
    let answer = async {
        let sent = platform.heard("send").await;
        assert_eq!((&sent["send"]["file"]["name"], &sent["send"]["file"]["text"]), (&json!("a.txt"), &json!("file")));
        platform.tell(&json!({"n": sent["n"], "sent": "m"})).await;
    };
    tokio::join!(sending, answer).0.unwrap();

    assert!(host.has_route("/fake/hook") && !host.has_route("/fake/hook/x"));
    let call =
        PluginHttpCall { method: "POST".to_owned(), url: "/fake/hook?a=1".to_owned(), ..PluginHttpCall::default() };
    let reply = host.handle_http("/fake/hook", call).await.unwrap();
    assert_eq!((reply.status, reply.body), (200, b"POST /fake/hook?a=1".to_vec()));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_account_and_a_lost_connection_are_started_again() {
    let Some(node) = node().await else { return };
    let (installation, mut first, mut second) =
        (Installation::new(node), Platform::start().await, Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": first.port}));
    account.up().await;
    first.disconnect().await;
    account.sink.until("the outage", |sink| !sink.failures().is_empty()).await;
    account.up().await;
    let changed = Account::start(&host, json!({"port": second.port}));
    changed.up().await;
    second.heard("hello").await;
    second.tell(&json!({"id": "1", "text": "hi", "from": "alice"})).await;
    changed.sink.until("the message", |sink| sink.messages().len() == 1).await;
    assert!(account.sink.messages().is_empty());
    tokio::time::timeout(Duration::from_secs(20), host.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_does_not_fit_is_refused_with_the_remedy() {
    let Some(node) = node().await else { return };
    let installation = Installation::new(node);
    let manifest = installation.dir().join("packages/node_modules/openclaw/package.json");
    std::fs::write(manifest, json!({"version": "2027.1.1"}).to_string()).unwrap();
    let host = installation.host();
    let account = Account::start(&host, json!({}));
    account.sink.until("the refusal", |sink| !sink.failures().is_empty()).await;
    let why = account.sink.failures().remove(0);
    assert!(why.contains("openclaw 2027.1.1 is installed") && why.contains("homard channels add irc"), "{why}");
    let outside = AttachmentSource::Platform("/etc/passwd".to_owned());
    let attachment = Attachment { source: outside, name: None, mime: None, size: None, is_voice: false };
    assert!(account.channel.fetch(&attachment, 1 << 20).await.is_err());
    host.close().await;
}
