//! Starting, leaving and help.

use crossterm::event::KeyCode;
use homard_chat::{link::LinkEvent, state::Effect};
use serde_json::json;

use super::{check, connected};
use crate::chat::{Chat, Terminal};

#[test]
fn first_start() {
    let mut chat = Chat::new(Terminal::WIDE);
    check("first_start_connecting", &mut chat);
    chat.connect();
    chat.answer_all();
    check("first_start", &mut chat);
}

#[test]
fn a_remark_tells_that_no_gateway_runs() {
    let mut chat = Chat::new(Terminal::WIDE);
    chat.link(LinkEvent::Remark("no gateway is running; one was started for this chat".to_owned()));
    let place = homard_chat::link::Place::OwnGateway;
    chat.link(LinkEvent::Connected { hello: json!({}), place });
    chat.answer_all();
    check("own_gateway", &mut chat);
}

#[test]
fn leaving_keeps_the_conversation_in_the_scrollback() {
    let mut chat = connected();
    let run = chat.ask("Hi");
    chat.finish(&run, "Hello.");
    chat.ctrl('c');
    check("leaving", &mut chat);
    chat.ctrl('c');
    assert_eq!(chat.effects.last(), Some(&Effect::Quit));
    chat.leave();
    check("left", &mut chat);
}

#[test]
fn ctrl_c_clears_then_stops_then_leaves() {
    let mut chat = connected();
    let run = chat.ask("Hi");
    chat.typed("not this");
    chat.ctrl('c');
    assert!(chat.calls.is_empty());
    chat.ctrl('c');
    assert_eq!(chat.answer("chat.abort", json!({"ok": true, "aborted": true}))["runId"], run.as_str());
    chat.key(KeyCode::Up);
    check("cleared_message_is_recalled", &mut chat);
}

#[test]
fn help_and_an_unknown_key() {
    let mut chat = connected();
    chat.key(KeyCode::F(5));
    chat.say("/help");
    check("help", &mut chat);
}
