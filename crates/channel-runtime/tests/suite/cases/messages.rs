//! Which messages are answered, where, and with what.

use std::{fs, sync::Arc};

use homard_testkit::{
    channel_double::{ChannelDouble, Feature, Place, User, UserMessage},
    fake_provider::{AnswerGate, ProviderReply, fault::ProviderFault},
};
use serde_json::json;

use crate::{
    fixture::{SuiteFixture, echo},
    has,
};

/// A GIF image of one pixel.
const PICTURE: &[u8] = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";

pub(crate) async fn direct_messages_are_answered_in_their_chat(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("one");
    assert_eq!(fixture.texts(1).await, ["echo one"]);
    fixture.say("two");
    assert_eq!(fixture.texts(2).await, ["echo one", "echo two"]);
    let seen = fixture.platform.seen();
    assert!(seen.iter().all(|message| message.chat == fixture.owner_chat() && message.thread.is_none()), "{seen:?}");
}

pub(crate) async fn each_sender_has_a_session(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("a secret of the owner");
    fixture.texts(1).await;
    fixture.post(&UserMessage::direct(User::Friend, "hello"));
    let answer = fixture.last(2).await;
    let friend = fixture.platform.chat_id(Place::Direct, User::Friend);
    assert_eq!((answer.text.as_str(), answer.chat), ("echo hello", friend));
    assert!(!fixture.model.requests()[1].body.contains("a secret of the owner"));
}

pub(crate) async fn a_group_is_answered_in_the_group(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Groups]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("said in private");
    fixture.texts(1).await;
    fixture.post(&UserMessage::group(Place::Group, "hello"));
    let answer = fixture.last(2).await;
    // The model reads who writes.
    assert!(answer.text.ends_with("hello") && answer.thread.is_none(), "{answer:?}");
    assert_eq!(answer.chat, fixture.platform.chat_id(Place::Group, User::Owner));
    assert!(!fixture.model.requests()[1].body.contains("said in private"));
}

pub(crate) async fn in_a_group_only_mentions_are_answered_and_the_rest_is_context(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Groups]) {
        return;
    }
    let groups = platform.group_config(true);
    let fixture = SuiteFixture::with(platform, groups, echo).await;
    let _gateway = fixture.gateway().await;
    fixture.post(&UserMessage { user: User::Friend, ..UserMessage::group(Place::Group, "I bought milk.") });
    fixture.post(&UserMessage::group(Place::Group, "what did I buy?").mentioning());
    let texts = fixture.texts(1).await;
    assert!(texts[0].ends_with("what did I buy?"), "{texts:?}");
    let requests = fixture.model.requests();
    assert!(requests.len() == 1 && requests[0].body.contains("I bought milk."), "{requests:?}");
}

pub(crate) async fn a_reply_to_the_agent_is_a_mention(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Groups, Feature::Replies]) {
        return;
    }
    let groups = platform.group_config(true);
    let fixture = SuiteFixture::with(platform, groups, echo).await;
    let _gateway = fixture.gateway().await;
    fixture.post(&UserMessage::group(Place::Group, "hello").mentioning());
    let answer = fixture.last(1).await;
    let reply = UserMessage { reply_to: Some(answer.id), ..UserMessage::group(Place::Group, "and you?") };
    fixture.post(&reply);
    assert_eq!(fixture.last(2).await.chat, fixture.platform.chat_id(Place::Group, User::Owner));
    assert!(fixture.model.requests()[1].body.contains("and you?"));
}

pub(crate) async fn threads_are_sessions_and_are_answered_in_the_thread(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Groups, Feature::Threads]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    for (number, text) in [(1, "apples"), (2, "pears")] {
        let place = Place::Thread(number);
        fixture.post(&UserMessage::group(place, text));
        let answer = fixture.last(usize::from(number)).await;
        assert!(answer.text.ends_with(text), "{answer:?}");
        let expected = (fixture.platform.chat_id(place, User::Owner), fixture.platform.thread_id(place));
        assert_eq!((answer.chat, answer.thread), expected);
    }
    assert!(!fixture.model.requests()[1].body.contains("apples"));
}

pub(crate) async fn an_edit_of_a_user_starts_no_run(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::UserEdits]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    let message = fixture.say("first");
    fixture.texts(1).await;
    fixture.platform.edit(&message, "first, corrected");
    fixture.say("second");
    assert_eq!(fixture.texts(2).await, ["echo first", "echo second"]);
    assert_eq!(fixture.model.requests().len(), 2);
}

pub(crate) async fn pictures_reach_the_model(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::MediaIn]) {
        return;
    }
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.post(&UserMessage { picture: Some(PICTURE.to_vec()), ..UserMessage::direct(User::Owner, "look") });
    fixture.texts(1).await;
    let body = fixture.model.requests()[0].body.clone();
    assert!(body.contains("data:image/gif;base64,") && body.contains("look"), "{body}");
}

pub(crate) async fn files_reach_the_user(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::MediaOut]) {
        return;
    }
    let answer = |_: &_| ProviderReply::text("Here it is.\nMEDIA:./dot.gif");
    let fixture = SuiteFixture::with(platform, json!({}), answer).await;
    let _gateway = fixture.gateway().await;
    let workspace = fixture.state().join("workspace");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("dot.gif"), PICTURE).unwrap();
    fixture.say("show me");
    fixture.until("the file", |platform| platform.seen().iter().any(|message| message.file.is_some())).await;
    let seen = fixture.platform.seen();
    assert!(seen.iter().any(|message| message.file.as_deref() == Some(PICTURE)), "{seen:?}");
    assert!(seen.iter().any(|message| message.text == "Here it is."), "{seen:?}");
}

pub(crate) async fn commands_are_answered_without_the_model(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("/status");
    let status = fixture.texts(1).await;
    assert!(status[0].contains("puppet/m"), "{status:?}");
    assert_eq!(fixture.model.requests().len(), 0);
}

pub(crate) async fn a_new_session_forgets_the_conversation(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::new(platform).await;
    let _gateway = fixture.gateway().await;
    fixture.say("my name is Ann");
    fixture.texts(1).await;
    fixture.say("/new");
    fixture.texts(2).await;
    fixture.say("who am I?");
    let is_answered =
        |platform: &dyn ChannelDouble| platform.seen().iter().any(|message| message.text == "echo who am I?");
    fixture.until("an answer", is_answered).await;
    assert!(!fixture.model.requests().pop().unwrap().body.contains("my name is Ann"));
}

pub(crate) async fn typing_is_shown_while_the_model_answers(platform: Arc<dyn ChannelDouble>) {
    if !has(&platform, &[Feature::Typing]) {
        return;
    }
    let gate = AnswerGate::default();
    let model_gate = gate.clone();
    let reply = move |_: &_| ProviderReply { gate: Some(model_gate.clone()), ..ProviderReply::text("done") };
    let fixture = SuiteFixture::with(platform, json!({}), reply).await;
    let _gateway = fixture.gateway().await;
    fixture.say("think");
    let chat = fixture.owner_chat();
    fixture.until("a typing indicator", |platform| platform.typing(&chat) > 0).await;
    assert_eq!(fixture.platform.seen(), []);
    gate.open();
    assert_eq!(fixture.texts(1).await, ["done"]);
}

pub(crate) async fn a_stop_ends_the_run(platform: Arc<dyn ChannelDouble>) {
    let reply = |request: &_| match echo(request) {
        begin if begin == ProviderReply::text("echo begin") => {
            ProviderReply { fault: Some(ProviderFault::Stall(0)), ..ProviderReply::text("never said") }
        }
        echo => echo,
    };
    let fixture = SuiteFixture::with(platform, json!({}), reply).await;
    let _gateway = fixture.gateway().await;
    fixture.say("begin");
    fixture.until_asked(1).await;
    fixture.say("/stop");
    let stopped = fixture.texts(1).await;
    assert!(stopped[0].contains("topped"), "{stopped:?}");
    fixture.say("go on");
    assert_eq!(fixture.texts(2).await[1], "echo go on");
}

pub(crate) async fn a_stranger_in_an_allowlisted_chat_is_ignored(platform: Arc<dyn ChannelDouble>) {
    let fixture = SuiteFixture::with(platform, json!({"dmPolicy": "allowlist"}), echo).await;
    let gateway = fixture.gateway().await;
    fixture.post(&UserMessage::direct(User::Stranger, "let me in"));
    fixture.say("hello");
    assert_eq!(fixture.texts(1).await, ["echo hello"]);
    assert_eq!(fixture.model.requests().len(), 1);
    let logs = gateway.call("channels.logs", json!({"channel": fixture.platform.channel()})).await.to_string();
    let ignored = format!("ignored {}", fixture.platform.user_id(User::Stranger));
    assert!(logs.contains(&ignored) && !logs.contains("let me in"), "{logs}");
}
