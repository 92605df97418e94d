//! Tests of the demo model with plain requests.

use std::sync::Arc;

use futures_util::StreamExt;
use homard_proto::message::{Block, User};
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::{ModelAnswer, ToolSpec};

fn request(tools: &[&str], messages: Vec<Message>) -> Request {
    let tool = |name: &&str| ToolSpec { name: (*name).to_owned(), description: String::new(), parameters: json!({}) };
    Request {
        system: "You are Homard.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: tools.iter().map(tool).collect(),
        ..Request::default()
    }
}

fn user(text: &str) -> Message {
    Message::User(User::text(text, 1))
}

fn tool_result(text: &str, is_error: bool) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: "demo_1".to_owned(),
        tool_name: "any".to_owned(),
        content: vec![Block::text(text)],
        details: None,
        is_error,
        timestamp: 1,
        extra: Map::new(),
    })
}

const TOOLS: &[&str] = &["edit", "exec", "grep", "ls", "read", "write"];

fn step_for(text: &str) -> DemoStep {
    next_step(&request(TOOLS, vec![user(text)]))
}

fn after(text: &str, results: &[(&str, bool)]) -> DemoStep {
    let results = results.iter().map(|(text, is_error)| tool_result(text, *is_error));
    next_step(&request(TOOLS, [user(text)].into_iter().chain(results).collect()))
}

fn say(text: &str) -> DemoStep {
    DemoStep::Say(text.to_owned())
}

fn ls(path: &str) -> DemoStep {
    DemoStep::Call("ls", json!({"path": path}))
}

fn read(path: &str) -> DemoStep {
    DemoStep::Call("read", json!({"path": path}))
}

fn exec(command: &str) -> DemoStep {
    DemoStep::Call("exec", json!({"command": command}))
}

fn grep(text: &str, path: &str) -> DemoStep {
    DemoStep::Call("grep", json!({"pattern": text, "literal": true, "path": path, "limit": 50}))
}

fn write(path: &str, content: &str) -> DemoStep {
    DemoStep::Call("write", json!({"path": path, "content": content}))
}

fn check(table: &[(&str, DemoStep)]) {
    let wrong: Vec<_> = table.iter().filter(|(text, step)| step_for(text) != *step).collect();
    let actual: Vec<_> = wrong.iter().map(|(text, _)| step_for(text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{actual:#?}");
}

#[test]
fn files_are_listed() {
    check(&[
        ("What files are here?", ls(".")),
        ("what files are there", ls(".")),
        ("Which files are in the docs folder?", ls("docs")),
        ("What files do I have?", ls(".")),
        ("list the files in src", ls("src")),
        ("List all files.", ls(".")),
        ("list all of the files that are in the src folder", ls("src")),
        ("Could you please list the files in the src folder?", ls("src")),
        ("LIST FILES IN Docs PLEASE", ls("Docs")),
        ("show me the directory", ls(".")),
        ("Show me the files in this directory, please.", ls(".")),
        ("show me the contents of the src folder", ls("src")),
        ("list the files in this project", ls(".")),
        ("ls", ls(".")),
        ("ls docs", ls("docs")),
        ("ls ..", ls("..")),
        ("ls ./crates/model/", ls("./crates/model/")),
        ("What's in src?", ls("src")),
        ("What is in the \"my stuff\" folder?", ls("my stuff")),
        ("Hey Homard, what is in this folder?", ls(".")),
        ("Hello! Which files are in the current directory? Thanks!", ls(".")),
        ("tell me what files are in here", ls(".")),
        ("[Sun 2026-11-15 02:24 UTC] What files are here?", ls(".")),
    ]);
}

#[test]
fn files_are_read() {
    check(&[
        ("read README.md", read("README.md")),
        ("Read README.md.", read("README.md")),
        ("Please read the file src/main.rs for me", read("src/main.rs")),
        ("show me Cargo.toml", read("Cargo.toml")),
        ("Can you show me the contents of Cargo.toml?", read("Cargo.toml")),
        ("what is in notes.txt?", read("notes.txt")),
        ("What's in the file notes?", read("notes")),
        ("what does LICENSE say?", read("LICENSE")),
        ("What are the contents of a/b.c?", read("a/b.c")),
        ("open the file x", read("x")),
        ("cat x", read("x")),
        ("cat 'my notes.txt'", read("my notes.txt")),
        ("I'd like to see Makefile", read("Makefile")),
        ("show me what's in README.md", read("README.md")),
        ("What is in README?", read("README")),
        ("cat a", read("a")),
        ("open a file called b", read("b")),
        ("look at .gitignore", read(".gitignore")),
    ]);
}

#[test]
fn text_is_searched() {
    check(&[
        ("search for TODO", grep("TODO", ".")),
        ("Search for the word TODO in the src folder, please!", grep("TODO", "src")),
        ("find 'fn main' in src", grep("fn main", "src")),
        ("find “fn main” in src.", grep("fn main", "src")),
        ("find fn main in src", grep("fn main", "src")),
        ("find 'a in b'", grep("a in b", ".")),
        ("grep foo", grep("foo", ".")),
        ("look for foo::bar() in crates/model", grep("foo::bar()", "crates/model")),
        ("search src for TODO", grep("TODO", "src")),
        ("search the code for TODO", grep("TODO", ".")),
        ("where is Lobster mentioned?", grep("Lobster", ".")),
        ("Which files mention Homard?", grep("Homard", ".")),
        ("find in src", grep("in src", ".")),
    ]);
}

#[test]
fn a_search_term_stays_data() {
    check(&[
        ("search for $(touch x)", grep("$(touch x)", ".")),
        ("search for `touch x`", grep("touch x", ".")),
        ("grep a`id`b", grep("a`id`b", ".")),
        ("find it's", grep("it's", ".")),
        ("find '; rm -rf / #", grep("'; rm -rf / #", ".")),
        ("find x in '$(id)'", grep("x", "$(id)")),
        ("search for -e", grep("-e", ".")),
    ]);
}

#[test]
fn files_are_edited() {
    let edit = |path: &str, old: &str, new: &str| {
        DemoStep::Call("edit", json!({"path": path, "oldText": old, "newText": new}))
    };
    check(&[
        ("replace 'hello' with 'goodbye' in hello.txt", edit("hello.txt", "hello", "goodbye")),
        ("Please change the word red to blue in the file notes.md", edit("notes.md", "red", "blue")),
        ("replace 'a in b' with 'c' in src/x.rs", edit("src/x.rs", "a in b", "c")),
    ]);
}

#[test]
fn files_are_written() {
    check(&[
        ("save 'hello' to hello.txt", write("hello.txt", "hello\n")),
        ("Write hello world to hello.txt", write("hello.txt", "hello world\n")),
        ("please put Thanks for all. into the file thanks", write("thanks", "Thanks for all.\n")),
        ("write 'x' to a file called y", write("y", "x\n")),
        ("create a file x with y", write("x", "y\n")),
        ("Create a new file called a.txt with the text Say please", write("a.txt", "Say please\n")),
        ("create todo.md containing \"one\ntwo\"", write("todo.md", "one\ntwo\n")),
        ("make an empty file named x.txt", write("x.txt", "")),
    ]);
    assert_eq!(after("create a file x with y", &[("Successfully wrote 2 bytes to x", false)]), say("Wrote x."));
}

#[test]
fn a_note_is_appended_to_the_old_notes() {
    let phrases = [
        "write a note: buy milk",
        "Could you make a note to buy milk",
        "note that buy milk",
        "Note: buy milk",
        "remember to buy milk",
        "Remember: buy milk",
        "please don’t forget to buy milk",
        "add buy milk to my notes",
    ];
    for phrase in phrases {
        assert_eq!(step_for(phrase), read("notes.md"), "{phrase}");
        assert_eq!(after(phrase, &[("- eggs\n", false)]), write("notes.md", "- eggs\n- buy milk\n"), "{phrase}");
    }
    let noted = |old: &str, is_error| after("note: a", &[(old, is_error)]);
    assert_eq!(noted("notes.md does not exist: use ls to see what does", true), write("notes.md", "- a\n"));
    assert_eq!(noted("(empty file)", false), write("notes.md", "- a\n"));
    assert_eq!(noted("no end", false), write("notes.md", "no end\n- a\n"));
    assert_eq!(after("note: a", &[("- b\n", false), ("Successfully wrote", false)]), say("Noted in notes.md."));
}

#[test]
fn incomplete_notes_are_not_overwritten() {
    let refused = "notes.md is too long for me, or not plain text, so nothing was written. Start a new one.";
    for old in ["x".repeat(40_001), "\n".repeat(1901), "a\u{fffd}".to_owned()] {
        assert_eq!(after("note: a", &[(&old, false)]), say(refused));
    }
    assert_eq!(
        after("note: a", &[("notes.md is a directory", true)]),
        say("notes.md cannot be read, so nothing was written: notes.md is a directory")
    );
}

#[test]
fn commands_and_the_clock_go_through_the_shell() {
    check(&[
        ("run `ls -la`", exec("ls -la")),
        ("Run `ls -la`.", exec("ls -la")),
        ("execute make", exec("make")),
        ("run the command date", exec("date")),
        ("Can you run the following command: echo 'a b' | wc -c", exec("echo 'a b' | wc -c")),
        ("run ls ..", exec("ls ..")),
        ("What time is it?", exec("date")),
        ("what is today's date?", exec("date")),
        ("What's the date today?", exec("date")),
        ("tell me the time", exec("date")),
        ("what day is it", exec("date")),
    ]);
}

#[test]
fn answers_come_from_the_results() {
    assert_eq!(after("What files are here?", &[("a.txt\nsrc/", false)]), say("a.txt\nsrc/"));
    assert_eq!(after("read a.txt", &[("hello\n", false)]), say("hello\n"));
    assert_eq!(after("search for x", &[("(no matches)\n", false)]), say("Nothing mentions x."));
    assert_eq!(
        after("what time is it", &[("Sun Nov 15 02:24:00 UTC 2026\n", false)]),
        say("Sun Nov 15 02:24:00 UTC 2026\n")
    );
    assert_eq!(
        after("read a.txt", &[("a.txt does not exist: use ls to see what does", true)]),
        say("That did not work: a.txt does not exist: use ls to see what does")
    );
}

#[test]
fn the_last_request_counts() {
    let messages = vec![user("read a.txt"), tool_result("hello", false), user("ls")];
    assert_eq!(next_step(&request(TOOLS, messages)), ls("."));
}

#[test]
fn a_greeting_is_answered_with_help() {
    for text in ["help", "Hello!", "hi there", "Hey Homard", "What can you do?", "who are you?", "can you help me?"] {
        assert_eq!(step_for(text), say(HELP), "{text}");
    }
}

#[test]
fn anything_else_gets_the_unknown_reply() {
    let huge = format!("read {}", "“ x ".repeat(500_000));
    let texts = [
        "",
        "  ",
        "?",
        "[",
        "Write me a poem about the sea",
        "show me love",
        "What is love?",
        "What's in a name?",
        "note:",
        "what's the weather?",
        "delete a.txt",
        "why is the sky blue in summer",
        "put milk in the fridge",
        "run",
        "run the tests",
        "find",
        "🦞",
        "read",
        &huge,
    ];
    for text in texts {
        assert_eq!(step_for(text), say(UNKNOWN), "{}", &text[..text.len().min(40)]);
    }
    assert_eq!(next_step(&request(TOOLS, Vec::new())), say(UNKNOWN));
}

#[test]
fn an_unavailable_tool_is_not_called() {
    let step = next_step(&request(&["read"], vec![user("ls")]));
    assert_eq!(step, say("I would need the tool `ls` for this, and it is not available here."));
}

#[tokio::test]
async fn an_answer_is_streamed_word_by_word() {
    let messages = vec![user("read a.txt"), tool_result("one two\nthree", false)];
    let events: Vec<_> = Demo::default().stream(request(TOOLS, messages)).collect().await;
    let words = ["one ", "two\n", "three"].map(|word| ModelEvent::Text(word.to_owned()));
    let usage = Usage { input: 9, output: 3, total_tokens: 12, ..Usage::default() };
    assert_eq!(events[..3], words);
    assert_eq!(events[3..], [ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage })]);
}

#[tokio::test]
async fn a_call_becomes_a_tool_call_block() {
    let events: Vec<_> = Demo::default().stream(request(TOOLS, vec![user("ls docs")])).collect().await;
    let [ModelEvent::Call(call), ModelEvent::Done(AnswerEnd { stop: StopReason::ToolUse, .. })] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    let mut answer = ModelAnswer::default();
    answer.call(call.clone());
    let blocks = serde_json::to_value(answer.into_blocks()).unwrap();
    assert_eq!(blocks, json!([{"type": "toolCall", "id": "demo_1", "name": "ls", "arguments": {"path": "docs"}}]));
}

proptest! {
    #[test]
    fn any_message_gets_a_step(words in proptest::collection::vec(prop_oneof![
        Just("find".to_owned()), Just("create".to_owned()), Just("in".to_owned()), Just("with".to_owned()),
        Just("show".to_owned()), Just("the".to_owned()), Just("“".to_owned()), Just("'".to_owned()), "\\PC{0,5}",
    ], 0..12)) {
        let text = words.join(" ");
        let is_empty = matches!(step_for(&text), DemoStep::Say(reply) if reply.is_empty());
        prop_assert!(!is_empty);
    }
}
