//! Typing a message.

use crossterm::event::KeyCode;
use homard_chat::{
    composer::Image,
    state::{Effect, Event},
};
use serde_json::json;

use super::{check, connected};

#[test]
fn a_paste_of_five_thousand_lines_is_a_chip() {
    let mut chat = connected();
    chat.typed("Explain ");
    let pasted: String = (1..=5_000).map(|line| format!("log line {line}\n")).collect();
    chat.paste(&pasted);
    chat.typed(" please");
    check("paste", &mut chat);
    chat.key(KeyCode::Enter);
    let params = chat.answer("chat.send", json!({"status": "started", "disposition": "started"}));
    assert_eq!(params["message"], format!("Explain {pasted} please"));
    chat.start("run-1");
    check("paste_sent", &mut chat);
}

#[test]
fn a_message_of_several_lines() {
    let mut chat = connected();
    chat.typed("First line");
    chat.ctrl('j');
    chat.typed("Second line\\");
    chat.key(KeyCode::Enter);
    chat.typed("Third line that is long enough to be wrapped at the right edge of the screen, twice if needed");
    check("several_lines", &mut chat);
    chat.key(KeyCode::Enter);
    let params = chat.answer("chat.send", json!({"status": "started"}));
    assert!(params["message"].as_str().unwrap().starts_with("First line\nSecond line\nThird line"));
}

#[test]
fn earlier_messages_are_recalled_and_searched() {
    let mut chat = connected();
    chat.typed("draft");
    chat.key(KeyCode::Up);
    check("recalled", &mut chat);
    chat.key(KeyCode::Down);
    chat.ctrl('r');
    chat.typed("mon");
    check("search", &mut chat);
    chat.key(KeyCode::Enter);
    check("search_accepted", &mut chat);
}

#[test]
fn commands_complete() {
    let mut chat = connected();
    chat.typed("/");
    check("commands", &mut chat);
    chat.typed("se");
    chat.key(KeyCode::Enter);
    check("sessions_loading", &mut chat);
}

#[test]
fn files_complete() {
    let mut chat = connected();
    chat.typed("look at @ma");
    assert!(chat.effects.contains(&Effect::ListFiles));
    chat.update(Event::Files(["src/main.rs", "docs/", "Makefile"].map(str::to_owned).to_vec()));
    check("files", &mut chat);
    chat.key(KeyCode::Down);
    chat.key(KeyCode::Tab);
    check("file_completed", &mut chat);
}

#[test]
fn pictures_are_attached() {
    let mut chat = connected();
    chat.typed("What is this? ");
    chat.paste("/tmp/shot.png");
    assert_eq!(chat.effects.last(), Some(&Effect::ReadImage("/tmp/shot.png".to_owned())));
    let image = Image { name: "shot.png".to_owned(), mime: "image/png".to_owned(), content: "AAAA".to_owned() };
    chat.update(Event::Image { pasted: "/tmp/shot.png".to_owned(), image: Ok(Some(image)) });
    check("picture", &mut chat);
    chat.key(KeyCode::Enter);
    let params = chat.answer("chat.send", json!({"status": "started"}));
    assert_eq!(
        params["attachments"],
        json!([{"type": "image", "mimeType": "image/png", "fileName": "shot.png", "content": "AAAA"}])
    );
}

#[test]
fn the_external_editor_edits_the_message() {
    let mut chat = connected();
    chat.typed("draft");
    chat.ctrl('g');
    assert_eq!(chat.effects.last(), Some(&Effect::OpenEditor("draft".to_owned())));
    chat.update(Event::Edited(Ok("edited\nin an editor\n".to_owned())));
    check("edited", &mut chat);
}
