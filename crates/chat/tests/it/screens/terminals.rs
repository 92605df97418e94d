//! Sizes and capabilities of terminals.

use homard_chat::{screen::Capabilities, state::Event};
use serde_json::json;

use super::{ANSWER, check, check_styles, connected};
use crate::chat::{Chat, Terminal};

#[test]
fn a_resize_keeps_the_conversation() {
    let mut chat = connected();
    let run = chat.ask("Make a plan");
    chat.stream(&run, ANSWER, 11);
    chat.finish(&run, ANSWER);
    chat.typed("a message that is longer than the narrow screen will be after it was resized");
    chat.update(Event::Resize(50, 20));
    check("resize_narrow", &mut chat);
    chat.update(Event::Resize(100, 24));
    check("resize_wide", &mut chat);
}

#[test]
fn a_tiny_screen_still_works() {
    let mut chat = Chat::connected(Terminal::sized(20, 5));
    let run = chat.ask("Hello there, how are you?");
    chat.stream(&run, "Fine, thank you. And you?\n\nI have time.", 5);
    chat.typed("one two three four five six");
    check("tiny", &mut chat);
}

#[test]
fn no_color() {
    let capabilities = Capabilities { has_colors: false, ..Terminal::WIDE.capabilities };
    let mut chat = Chat::connected(Terminal { capabilities, ..Terminal::WIDE });
    let run = chat.ask("Make a plan");
    chat.stream(&run, ANSWER, 11);
    chat.finish(&run, ANSWER);
    let styles = chat.styles();
    for color in ["red", "green", "yellow", "blue", "magenta", "cyan"] {
        assert!(!styles.contains(color), "{color}");
    }
    check_styles("no_color", &mut chat);
}

#[test]
fn a_locale_without_unicode() {
    let capabilities = Capabilities { has_unicode: false, ..Terminal::WIDE.capabilities };
    let mut chat = Chat::connected(Terminal { capabilities, ..Terminal::WIDE });
    let run = chat.ask("Make a plan");
    chat.stream(&run, "• naïve “日本” — ok\n\n| a | b |\n|---|---|\n| 1 | 2 |", 11);
    chat.tool(&run, "c1", "exec", json!({"command": "ls"}));
    chat.result(&run, "c1", "x", json!({"exitCode": 0, "durationMs": 10}));
    let picture = chat.picture();
    assert!(picture.is_ascii());
    check("ascii", &mut chat);
}

#[test]
fn a_keystroke_redraws_only_what_changed() {
    let mut chat = connected();
    let run = chat.ask("Make a plan");
    chat.stream(&run, ANSWER, 11);
    chat.typed("x");
    let before = chat.bytes;
    chat.typed("y");
    assert!(chat.bytes - before < 200, "{} bytes", chat.bytes - before);
}
