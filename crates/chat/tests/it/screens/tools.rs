//! Tool calls, and the pager.

use crossterm::event::KeyCode;
use homard_chat::state::Event;
use serde_json::{Value, json};

use super::{check, check_styles, connected};
use crate::chat::{Chat, Terminal};

#[test]
fn tools_are_compact_lines() {
    let mut chat = connected();
    let run = chat.ask("Run the tests");
    chat.stream(&run, "I run them.", 20);
    chat.tool(&run, "c1", "exec", json!({"command": "cargo test"}));
    chat.wait(3_000);
    let partial = json!({"content": [{"type": "text", "text": "Compiling x\nrunning 3 tests"}]});
    chat.agent(&run, "tool", json!({"phase": "update", "toolCallId": "c1", "name": "exec", "partialResult": partial}));
    check("tool_running", &mut chat);
    let output: Vec<_> = (1..=12).map(|test| format!("test case_{test} ... ok")).collect();
    chat.result(&run, "c1", &output.join("\n"), json!({"exitCode": 0, "durationMs": 4_200}));
    chat.tool(&run, "c2", "read", json!({"path": "src/lib.rs"}));
    chat.result(&run, "c2", "fn main() {}", Value::Null);
    chat.stream(&run, "All 12 tests pass.", 20);
    chat.finish(&run, "I run them.\n\nAll 12 tests pass.");
    check_styles("tools", &mut chat);
}

#[test]
fn a_failed_tool_shows_its_exit_code_and_output() {
    let mut chat = connected();
    let run = chat.ask("Build");
    chat.tool(&run, "c1", "exec", json!({"command": "make\nmake install"}));
    chat.result(&run, "c1", "make: *** No rule to make target 'x'.  Stop.", json!({"exitCode": 2, "durationMs": 120}));
    chat.tool(&run, "c2", "read", json!({"path": "missing.txt"}));
    chat.result(&run, "c2", "missing.txt does not exist", json!("error"));
    check_styles("tool_failed", &mut chat);
}

#[test]
fn parallel_tools_are_shown_together() {
    let mut chat = connected();
    let run = chat.ask("Look");
    chat.tool(&run, "c1", "exec", json!({"command": "sleep 9"}));
    chat.tool(&run, "c2", "read", json!({"path": "a"}));
    chat.result(&run, "c2", "a", Value::Null);
    chat.wait(1_500);
    check("parallel_tools", &mut chat);
}

#[test]
fn an_edit_shows_a_diff() {
    let mut chat = connected();
    let run = chat.ask("Rename it");
    chat.tool(&run, "c1", "edit", json!({"path": "src/lib.rs"}));
    let diff = "--- src/lib.rs\n+++ src/lib.rs\n@@ -1,3 +1,3 @@\n fn a() {}\n-fn old() {}\n+fn new() {}\n";
    chat.result(&run, "c1", "Edited", json!({"diff": diff}));
    chat.tool(&run, "c2", "apply_patch", json!({"input": "*** Begin Patch\n*** Add File: x\n+line\n*** End Patch"}));
    chat.result(&run, "c2", "A x", json!({"summary": {}}));
    check_styles("diff", &mut chat);
}

#[test]
fn the_pager_shows_everything() {
    let mut chat = Chat::connected(Terminal::sized(60, 12));
    let run = chat.ask("List");
    chat.tool(&run, "c1", "exec", json!({"command": "seq 30"}));
    let output: Vec<_> = (1..=30).map(|line| line.to_string()).collect();
    chat.result(&run, "c1", &output.join("\n"), json!({"exitCode": 0, "durationMs": 5}));
    chat.finish(&run, "Listed.");
    chat.ctrl('o');
    check("pager_end", &mut chat);
    chat.key(KeyCode::Home);
    check("pager_start", &mut chat);
    chat.key(KeyCode::Char('q'));
    check("pager_closed", &mut chat);
}

#[test]
fn the_last_tool_call_expands_and_collapses() {
    let mut chat = connected();
    let run = chat.ask("Run the tests");
    chat.ctrl('t');
    check("no_tool_to_expand", &mut chat);
    chat.tool(&run, "c1", "exec", json!({"command": "cd crates/chat\ncargo test --all"}));
    let output: Vec<_> = (1..=12).map(|test| format!("test case_{test} ... ok")).collect();
    chat.result(&run, "c1", &output.join("\n"), json!({"exitCode": 0, "durationMs": 4_200}));
    chat.stream(&run, "All 12 tests", 20);
    check("tool_collapsed", &mut chat);
    chat.ctrl('t');
    check("tool_expanded", &mut chat);
    // It stays expanded while the answer continues, and until it has to make room.
    chat.stream_more(&run, "All 12 tests", " pass.", 20);
    chat.finish(&run, "All 12 tests pass.");
    check("tool_expanded_with_its_answer", &mut chat);
    chat.ctrl('t');
    check("tool_collapsed_again", &mut chat);
}

#[test]
fn a_long_output_is_expanded_as_far_as_it_fits() {
    let mut chat = Chat::connected(Terminal::sized(60, 14));
    let run = chat.ask("Count");
    chat.tool(&run, "c1", "exec", json!({"command": "seq 100"}));
    let output: Vec<_> = (1..=100).map(|line| line.to_string()).collect();
    chat.result(&run, "c1", &output.join("\n"), json!({"exitCode": 0, "durationMs": 5}));
    chat.ctrl('t');
    check("long_output_expanded", &mut chat);
    chat.update(Event::Resize(60, 24));
    check("long_output_after_a_resize", &mut chat);
    chat.tool(&run, "c2", "read", json!({"path": "a.txt"}));
    chat.result(&run, "c2", "first line\nsecond line", Value::Null);
    chat.ctrl('t');
    check("read_expanded", &mut chat);
}

#[test]
fn a_tool_call_in_the_scrollback_is_shown_again() {
    let mut chat = Chat::connected(Terminal::sized(60, 16));
    let run = chat.ask("List the files");
    chat.tool(&run, "c1", "exec", json!({"command": "ls"}));
    chat.result(&run, "c1", "Cargo.toml\nsrc", json!({"exitCode": 0, "durationMs": 5}));
    let paragraphs: Vec<_> = (1..=8).map(|number| format!("Paragraph {number} of the answer.")).collect();
    chat.stream(&run, &paragraphs.join("\n\n"), 13);
    chat.finish(&run, &paragraphs.join("\n\n"));
    chat.ctrl('t');
    check("tool_shown_again", &mut chat);
    chat.ctrl('t');
    check("tool_hidden_again", &mut chat);
}
