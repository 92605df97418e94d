//! What `message` passes to the channel sender, and what it refuses.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use homard_agent::{
    channel_sender::{
        ChannelSender, ChannelTraits, MessageActionKind, OutgoingAction, OutgoingMedia, Poll, Receipt, Recipient,
        SendError,
    },
    tool::{Lender, ProgressSender, RunOrigin, Tool, ToolCx, ToolResult},
};
use homard_command::OWNER;
use homard_proto::{AgentId, CallId, Route, RunId};
use homard_tools::{MessageRules, MessageTool, Recipients};
use homard_workspace::skills::Variables;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A fake channel sender that records messages and rejects the recipient `nobody`.
#[derive(Default)]
struct RecordingSender(Mutex<Vec<OutgoingAction>>);

#[async_trait]
impl ChannelSender for RecordingSender {
    async fn deliver(&self, outgoing: OutgoingAction) -> Result<Receipt, SendError> {
        if outgoing.to == "nobody" {
            return Err(SendError::Refused("there is no nobody".to_owned()));
        }
        let mut messages = self.0.lock().unwrap();
        let channel = outgoing.channel.clone().unwrap_or_else(|| "telegram".to_owned());
        messages.push(outgoing);
        Ok(Receipt { message: Some(format!("m{}", messages.len())), channel, details: Value::Null })
    }

    fn traits(&self, _: &str) -> Option<ChannelTraits> {
        Some(ChannelTraits::default())
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, SendError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let id = text(&route.to).trim_start_matches("telegram:").to_owned();
        let is_known = !id.starts_with("stranger");
        Ok(Recipient { channel: text(&route.channel), account: text(&route.account), id, is_known })
    }
}

/// A test fixture with a channel sender, in conversation 42 on Telegram.
struct MessageFixture {
    sender: Arc<RecordingSender>,
    tool: MessageTool,
    origin: RunOrigin,
}

impl MessageFixture {
    fn new(principal: &str, rules: MessageRules) -> Self {
        let sender = Arc::new(RecordingSender::default());
        let route = Route::new(Some("telegram"), Some("42"), Some("bot"), Some("7"));
        let origin = RunOrigin { principal: principal.to_owned(), route, ..RunOrigin::default() };
        Self { tool: MessageTool::new(Some(sender.clone()), rules), sender, origin }
    }

    async fn call_in(&self, workdir: &Path, arguments: Value) -> ToolResult {
        let cx = ToolCx {
            run: RunId::parse("run").unwrap(),
            session: AgentId::main().main_session(),
            call: CallId::parse("call").unwrap(),
            workdir: workdir.to_owned(),
            sandbox: None,
            cancel: CancellationToken::new(),
            progress: ProgressSender::silent(),
            slot: Lender::default(),
            variables: Variables::default(),
            origin: self.origin.clone(),
            hub: None,
        };
        self.tool.call(cx, arguments).await
    }

    async fn call(&self, arguments: Value) -> ToolResult {
        self.call_in(Path::new("/nowhere"), arguments).await
    }

    /// Returns everything that was sent.
    fn sent(&self) -> Vec<OutgoingAction> {
        self.sender.0.lock().unwrap().clone()
    }
}

fn owner() -> MessageFixture {
    MessageFixture::new(OWNER, MessageRules::default())
}

fn here() -> OutgoingAction {
    OutgoingAction {
        id: "call".to_owned(),
        channel: Some("telegram".to_owned()),
        to: "42".to_owned(),
        account: Some("bot".to_owned()),
        thread: Some("7".to_owned()),
        ..OutgoingAction::default()
    }
}

fn error_text(result: &ToolResult) -> String {
    assert!(result.is_error, "{result:?}");
    result.details.as_ref().unwrap()["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_target_a_message_goes_to_the_current_conversation() {
    let fixture = owner();
    let result = fixture.call(json!({"action": "send", "message": " Hello. ", "silent": true})).await;
    assert_eq!(fixture.sent(), [OutgoingAction { text: "Hello.".to_owned(), is_silent: true, ..here() }]);
    let details = json!({"ok": true, "action": "send", "channel": "telegram", "to": "42", "messageId": "m1"});
    assert_eq!((result.details, result.is_error), (Some(details), false));
}

#[tokio::test]
async fn each_action_is_passed_to_the_sender() {
    let fixture = owner();
    for arguments in [
        json!({"action": "reply", "message": "Yes.", "replyTo": "m9"}),
        json!({"action": "thread-reply", "message": "Here.", "threadId": "8"}),
        json!({"action": "react", "messageId": "m9", "emoji": "👍"}),
        json!({"action": "react", "messageId": "m9", "remove": true}),
        json!({"action": "read", "limit": 1_000_000}),
        json!({"action": "edit", "messageId": "m9", "message": "No."}),
        json!({"action": "delete", "messageId": "m9"}),
        json!({"action": "poll", "pollQuestion": "Pizza?", "pollOption": ["Yes", " ", "No"], "pollMulti": true}),
        json!({"action": "send", "media": "https://a.example/b.ogg", "asVoice": true}),
    ] {
        let result = fixture.call(arguments).await;
        assert!(!result.is_error, "{result:?}");
    }
    let (text, nine) = (|text: &str| text.to_owned(), Some("m9".to_owned()));
    let pizza = Poll { question: text("Pizza?"), options: vec![text("Yes"), text("No")], is_multiple: true };
    let expected = [
        OutgoingAction { action: MessageActionKind::Reply, text: text("Yes."), reply_to: nine.clone(), ..here() },
        OutgoingAction {
            action: MessageActionKind::ThreadReply,
            text: text("Here."),
            thread: Some(text("8")),
            ..here()
        },
        OutgoingAction {
            action: MessageActionKind::React, reply_to: nine.clone(), emoji: Some(text("👍")), ..here()
        },
        OutgoingAction { action: MessageActionKind::Unreact, reply_to: nine.clone(), ..here() },
        OutgoingAction { action: MessageActionKind::Read, limit: Some(100), ..here() },
        OutgoingAction { action: MessageActionKind::Edit, reply_to: nine.clone(), text: text("No."), ..here() },
        OutgoingAction { action: MessageActionKind::Delete, reply_to: nine, ..here() },
        OutgoingAction { action: MessageActionKind::Poll, poll: Some(pizza), ..here() },
        OutgoingAction { media: vec![OutgoingMedia::Url(text("https://a.example/b.ogg"))], is_voice: true, ..here() },
    ];
    assert_eq!(fixture.sent(), expected);
}

#[tokio::test]
async fn missing_arguments_are_named_and_nothing_is_sent() {
    let fixture = owner();
    for (arguments, missing) in [
        (json!({"action": "send"}), "message is missing: send needs it"),
        (json!({"action": "send", "message": "  "}), "message is missing: send needs it"),
        (json!({"action": "reply", "message": "x"}), "replyTo is missing: reply needs it"),
        (json!({"action": "thread-reply", "message": "x"}), "threadId is missing: thread-reply needs it"),
        (json!({"action": "react", "emoji": "x"}), "messageId is missing: react needs it"),
        (json!({"action": "react", "messageId": "m"}), "emoji is missing: react needs it"),
        (json!({"action": "edit", "messageId": "m"}), "message is missing: edit needs it"),
        (json!({"action": "delete"}), "messageId is missing: delete needs it"),
        (json!({"action": "poll", "pollOption": ["a", "b"]}), "pollQuestion is missing: poll needs it"),
        (json!({"action": "poll", "pollQuestion": "x?", "pollOption": ["a"]}), "pollOption must have 2 to 12 answers"),
        (json!({"action": "broadcast", "message": "x"}), "targets is empty: name the recipients"),
        (
            json!({"action": "send", "message": "x", "targets": ["1", "2"]}),
            "name one target, or use the action broadcast",
        ),
        (json!({"action": "send", "message": "x", "channel": "slack"}), "target is missing: name the recipient"),
    ] {
        assert_eq!(error_text(&fixture.call(arguments).await), missing);
    }
    assert_eq!(fixture.sent(), []);
}

#[tokio::test]
async fn without_a_sender_a_call_fails() {
    let fixture = MessageFixture { tool: MessageTool::new(None, MessageRules::default()), ..owner() };
    let error = error_text(&fixture.call(json!({"action": "send", "message": "x"})).await);
    assert!(error.starts_with("no channel is configured, so nothing can be sent: reply here instead."), "{error}");
}

#[tokio::test]
async fn a_broadcast_reports_each_recipient() {
    let fixture = owner();
    let targets = json!(["1", "nobody", "2"]);
    let result = fixture.call(json!({"action": "broadcast", "message": "All.", "targets": targets})).await;
    let row = |to: &str, id: &str| json!({"ok": true, "channel": "telegram", "to": to, "messageId": id});
    let failed = json!({"ok": false, "channel": "telegram", "to": "nobody", "error": "there is no nobody"});
    let expected = json!({"ok": true, "action": "broadcast", "results": [row("1", "m1"), failed, row("2", "m2")]});
    assert_eq!((result.details, result.is_error), (Some(expected), false));
    assert!(fixture.call(json!({"action": "send", "message": "x", "target": "nobody"})).await.is_error);
    let quiet = MessageFixture::new(OWNER, MessageRules { broadcast: false, ..MessageRules::default() });
    let error = error_text(&quiet.call(json!({"action": "broadcast", "message": "x", "targets": ["1"]})).await);
    assert_eq!(error, "broadcasts are disabled (tools.message.broadcast)");
}

#[tokio::test]
async fn a_dry_run_sends_nothing() {
    let fixture = owner();
    let result = fixture.call(json!({"action": "send", "message": "x", "target": "43", "dryRun": true})).await;
    let to = json!([{"channel": "telegram", "to": "43"}]);
    assert_eq!(result.details, Some(json!({"ok": true, "dryRun": true, "action": "send", "targets": to})));
    assert_eq!(fixture.sent(), []);
}

#[tokio::test]
async fn a_conversation_stays_on_its_platform_unless_the_owner_says_otherwise() {
    let other_channel = json!({"action": "send", "message": "x", "channel": "Slack", "target": "C1"});
    let other_chat = json!({"action": "send", "message": "x", "target": "43"});
    let sent = async |rules: MessageRules| {
        let fixture = MessageFixture::new(OWNER, rules);
        (
            fixture.call(other_chat.clone()).await.is_error,
            fixture.call(other_channel.clone()).await.is_error,
            fixture.sent().len(),
        )
    };
    let default_rules = MessageRules::default();
    assert_eq!(sent(default_rules).await, (false, true, 1));
    assert_eq!(sent(MessageRules { within_channel: false, ..default_rules }).await, (true, true, 0));
    assert_eq!(sent(MessageRules { across_channels: true, ..default_rules }).await, (false, false, 2));
    // A run that was not started from a chat belongs to no platform.
    let mut local = owner();
    local.origin.route = Route::default();
    assert!(!local.call(other_channel).await.is_error);
}

#[tokio::test]
async fn non_owners_write_only_to_the_current_chat() {
    let wide = MessageRules { across_channels: true, ..MessageRules::default() };
    let fixture = MessageFixture::new("telegram:42", wide);
    for arguments in [
        json!({"action": "send", "message": "x", "target": "43"}),
        json!({"action": "send", "message": "x", "channel": "slack", "target": "42"}),
        json!({"action": "broadcast", "message": "x", "targets": ["42", "43"]}),
        json!({"action": "send", "message": "x", "target": "42", "threadId": "8"}),
        json!({"action": "send", "message": "x", "accountId": "other"}),
        json!({"action": "read", "target": "43"}),
    ] {
        assert!(fixture.call(arguments.clone()).await.is_error, "{arguments}");
    }
    assert_eq!(fixture.sent(), []);
    assert!(!fixture.call(json!({"action": "send", "message": "x", "target": "@42"})).await.is_error);
}

// A20, R62.
#[tokio::test]
async fn files_come_from_the_workspace_only() {
    let outside = tempfile::tempdir().unwrap();
    let workdir = outside.path().join("workspace");
    fs::create_dir(&workdir).unwrap();
    fs::write(workdir.join("a.png"), "picture").unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path().join("secret"), workdir.join("link")).unwrap();
    let fixture = owner();
    for path in ["../secret", "link", "/etc/passwd", "file:///etc/passwd", "missing", "/proc/self/environ", "."] {
        let result = fixture.call_in(&workdir, json!({"action": "send", "media": path})).await;
        assert!(result.is_error, "{path}");
    }
    assert_eq!(fixture.sent(), []);
    for arguments in [
        json!({"action": "send", "media": "a.png", "filename": "../b.png", "mimeType": "image/png"}),
        json!({"action": "send", "path": "./a.png", "caption": "Look."}),
        json!({"action": "send", "media": "https://example.org/c.png"}),
        json!({"action": "send", "buffer": "data:text/plain;base64,aGk="}),
    ] {
        let result = fixture.call_in(&workdir, arguments).await;
        assert!(!result.is_error, "{result:?}");
    }
    let file = |name: &str, mime: Option<&str>, bytes: &str| {
        vec![OutgoingMedia::Bytes { name: name.to_owned(), mime: mime.map(str::to_owned), bytes: bytes.into() }]
    };
    let expected = [
        file(".._b.png", Some("image/png"), "picture"),
        file("a.png", None, "picture"),
        vec![OutgoingMedia::Url("https://example.org/c.png".to_owned())],
        file("file", Some("text/plain"), "hi"),
    ];
    assert_eq!(fixture.sent().into_iter().map(|sent| sent.media).collect::<Vec<_>>(), expected);
    let broken = fixture.call(json!({"action": "send", "buffer": "%%"})).await;
    assert!(error_text(&broken).starts_with("buffer is not Base64"), "{broken:?}");
}

#[tokio::test]
async fn a_non_owner_may_edit_but_not_delete() {
    let fixture = MessageFixture::new("channel:telegram:42", MessageRules::default());
    let deleted = fixture.call(json!({"action": "delete", "messageId": "m9"})).await;
    assert_eq!(error_text(&deleted), "only the owner's runs may delete messages");
    let edited = fixture.call(json!({"action": "edit", "messageId": "m9", "message": "x"})).await;
    assert!(!edited.is_error, "{edited:?}");
    assert_eq!(fixture.sent().len(), 1);
}

#[tokio::test]
async fn only_the_current_chat_and_listed_recipients_are_written_to() {
    let mut fixture = owner();
    let send = |target: &str| json!({"action": "send", "channel": "telegram", "target": target, "message": "x"});
    for target in ["stranger", "telegram:stranger", "stranger:topic:5", "stranger2"] {
        let error = error_text(&fixture.call(send(target)).await);
        assert!(error.contains("tools.message.allowTo") && error.contains("may not write to stranger"), "{error}");
    }
    for action in ["react", "edit", "poll", "read", "delete"] {
        let call = json!({
            "action": action, "target": "stranger", "messageId": "1", "emoji": "x", "message": "x", "pollQuestion": "x",
            "pollOption": ["a", "b"],
        });
        assert!(error_text(&fixture.call(call).await).contains("tools.message.allowTo"), "{action}");
    }
    let many = json!({"action": "broadcast", "targets": ["7", "stranger"], "message": "x"});
    assert!(error_text(&fixture.call(many).await).contains("tools.message.allowTo"));
    assert_eq!(fixture.sent(), [], "a broadcast with one of them goes to nobody");
    assert!(!fixture.call(send("7")).await.is_error);

    let listed = |all: &[&str], agent_entries: &[&str]| {
        let texts = |list: &[&str]| list.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        let sender: Arc<dyn ChannelSender> = fixture.sender.clone();
        Recipients::new(Some(sender), texts(all), [(AgentId::main(), texts(agent_entries))].into())
    };
    let (all, agent_entries) = (listed(&["telegram:stranger"], &[]), listed(&[], &["telegram:stranger"]));
    let other = listed(&["webhook:stranger"], &["telegram/work:stranger"]);
    for (recipients, is_error) in [(all, false), (agent_entries, false), (other, true)] {
        fixture.tool = fixture.tool.clone().with_recipients(recipients);
        assert_eq!(fixture.call(send("stranger")).await.is_error, is_error);
    }

    fixture.tool = MessageTool::new(Some(fixture.sender.clone()), MessageRules::default());
    fixture.origin.route = Route::new(Some("telegram"), Some("stranger"), Some("bot"), None);
    assert!(!fixture.call(send("telegram:stranger")).await.is_error, "the chat that is answered, in another spelling");
}
