//! Forty-odd situations.
#![expect(clippy::needless_pass_by_value, reason = "values are built in place")]

use crossterm::event::KeyCode;
use homard_chat::{
    composer::Image,
    link::LinkEvent,
    screen::Capabilities,
    state::{Effect, Event},
};
use serde_json::{Value, json};

use crate::chat::{Chat, SESSION, Terminal};

fn check(name: &str, chat: &mut Chat) {
    compare(name, &chat.picture());
}

fn check_styles(name: &str, chat: &mut Chat) {
    compare(name, &format!("{}\n{}", chat.picture(), chat.styles()));
}

fn compare(name: &str, picture: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, picture));
}

fn connected() -> Chat {
    Chat::connected(Terminal::WIDE)
}

const ANSWER: &str = "Here is the plan:\n\n1. Read `src/main.rs`\n2. Fix the **bug**\n\n```rust\nfn main() {\n    \
                      // start\n    println!(\"hi {}\", 42);\n}\n```\n\n| File | Lines |\n|---|---:|\n| main.rs | 12 |\n\n\
                      > Done is better than perfect.\n";

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
fn a_message_is_shown_at_once_and_waits_for_the_model() {
    let mut chat = connected();
    chat.say("What files are here?");
    check("sent", &mut chat);
    chat.answer("chat.send", json!({"status": "started", "disposition": "started"}));
    chat.start("run-1");
    chat.wait(2_300);
    check("spinner_before_the_first_token", &mut chat);
}

#[test]
fn an_answer_is_streamed() {
    let mut chat = connected();
    let run = chat.ask("Make a plan");
    chat.stream(&run, &ANSWER[..120], 7);
    check("streaming", &mut chat);
    chat.stream_more(&run, &ANSWER[..120], &ANSWER[120..], 11);
    chat.finish(&run, ANSWER);
    check_styles("answered", &mut chat);
}

#[test]
fn a_long_answer_scrolls_while_it_is_streamed() {
    let mut chat = Chat::connected(Terminal::sized(40, 12));
    let run = chat.ask("Count");
    let paragraphs: Vec<_> = (1..=20).map(|number| format!("Paragraph {number} of the answer.")).collect();
    chat.stream(&run, &paragraphs.join("\n\n"), 13);
    check("long_answer_streaming", &mut chat);
    chat.finish(&run, &paragraphs.join("\n\n"));
    check("long_answer", &mut chat);
}

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
fn reasoning_is_folded() {
    let mut chat = connected();
    let run = chat.ask("Think hard");
    chat.agent(
        &run,
        "thinking",
        json!({"text": "First I look.\nThen I decide", "delta": "First I look.\nThen I decide"}),
    );
    chat.wait(2_500);
    check("reasoning_streaming", &mut chat);
    chat.stream(&run, "Decided.", 20);
    chat.finish(&run, "Decided.");
    check("reasoning_folded", &mut chat);
    chat.ctrl('o');
    check("reasoning_in_the_pager", &mut chat);
}

fn approval(id: &str, command: &str) -> Value {
    json!({
        "id": id, "createdAtMs": 1, "expiresAtMs": 300_001, "request": {
            "command": command, "sessionKey": SESSION, "cwd": "/home/me/project",
            "allowedDecisions": ["allow-once", "allow-always", "deny"], "alwaysAllows": ["cargo publish"],
        },
    })
}

#[test]
fn approvals_are_answered_with_one_key() {
    let mut chat = connected();
    let run = chat.ask("Publish it");
    chat.event("exec.approval.requested", approval("a1", "cargo publish --dry-run"));
    chat.event("exec.approval.requested", approval("a2", "git push"));
    assert!(chat.effects.contains(&Effect::Bell));
    check_styles("approval", &mut chat);
    // A key that comes at once belongs to what is being typed.
    chat.typed("y");
    assert!(chat.calls.is_empty());
    check("approval_while_typing", &mut chat);
    chat.key(KeyCode::Backspace);
    chat.wait(500);
    chat.typed("y");
    let params = chat.answer("exec.approval.resolve", json!({"ok": true}));
    assert_eq!(params, json!({"id": "a1", "decision": "allow-once"}));
    chat.event("exec.approval.resolved", json!({"id": "a1", "decision": "allow-once"}));
    chat.tool(&run, "c1", "exec", json!({"command": "cargo publish --dry-run"}));
    chat.result(&run, "c1", "uploaded", json!({"exitCode": 0, "durationMs": 900}));
    chat.wait(500);
    chat.typed("n");
    let params = chat.answer("exec.approval.resolve", json!({"ok": true}));
    assert_eq!(params, json!({"id": "a2", "decision": "deny"}));
    chat.event("exec.approval.resolved", json!({"id": "a2", "decision": "deny"}));
    check("approvals_answered", &mut chat);
}

#[test]
fn a_long_command_shows_its_beginning_and_its_end() {
    let mut chat = connected();
    let command: Vec<_> = (1..=20).map(|line| format!("echo step {line}")).collect();
    chat.event("exec.approval.requested", approval("a1", &command.join("\n")));
    check("approval_of_a_long_command", &mut chat);
    chat.event("exec.approval.resolved", json!({"id": "a1", "decision": "deny", "resolvedBy": null}));
    check("approval_expired", &mut chat);
}

#[test]
fn escape_stops_the_run() {
    let mut chat = connected();
    let run = chat.ask("Count to a million");
    chat.stream(&run, "1, 2, 3", 20);
    chat.tool(&run, "c1", "exec", json!({"command": "seq 1000000"}));
    chat.key(KeyCode::Esc);
    check("stopping", &mut chat);
    let params = chat.answer("chat.abort", json!({"ok": true, "aborted": true, "runIds": [run]}));
    assert_eq!(params, json!({"sessionKey": SESSION, "runId": run}));
    chat.event("chat", json!({"runId": run, "sessionKey": SESSION, "state": "aborted", "stopReason": "rpc"}));
    chat.answer_all();
    check("stopped", &mut chat);
}

#[test]
fn a_message_steers_the_run() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On it.", 20);
    chat.typed("to staging");
    check("typing_during_a_run", &mut chat);
    chat.key(KeyCode::Enter);
    let params = chat.answer("chat.send", json!({"status": "started", "disposition": "steered"}));
    assert_eq!(params["queueMode"], Value::Null);
    check("steering", &mut chat);
    chat.event("chat", json!({"runId": "run-2", "sessionKey": SESSION, "seq": 1, "state": "final"}));
    chat.stream(&run, "To staging then.", 20);
    chat.finish(&run, "On it.\n\nTo staging then.");
    check("steered", &mut chat);
}

#[test]
fn a_message_is_queued_after_the_run_and_taken_back() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    for (text, position) in [("then test", 1), ("then announce", 2)] {
        chat.typed(text);
        chat.key(KeyCode::Tab);
        let params =
            chat.answer("chat.send", json!({"status": "started", "disposition": "queued", "position": position}));
        assert_eq!(params["queueMode"], "followup");
    }
    check("queued", &mut chat);
    chat.key(KeyCode::Up);
    let aborted = json!({"runId": "run-3", "sessionKey": SESSION, "state": "aborted", "stopReason": "rpc"});
    chat.event("chat", aborted);
    let params = chat.answer("chat.abort", json!({"ok": true, "aborted": true}));
    assert_eq!(params["runId"], "run-3");
    check("taken_back", &mut chat);
    chat.finish(&run, "Deployed.");
    chat.start("run-2");
    chat.stream("run-2", "Tested.", 20);
    chat.finish("run-2", "Tested.");
    check("queue_continues", &mut chat);
}

fn stored(id: u64, role: &str, run: &str, content: Value) -> Value {
    let mut message =
        json!({"role": role, "content": content, "__openclaw": {"id": format!("e{id}"), "seq": id, "runId": run}});
    if role == "user" {
        message["idempotencyKey"] = format!("{run}:user").into();
    }
    message
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn a_broken_connection_is_shown_and_nothing_typed_is_lost() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On it. First I", 20);
    chat.lose();
    chat.wait(700);
    chat.say("and tell me when it is done");
    chat.typed("half a mess");
    check("connection_lost", &mut chat);
}

#[test]
fn the_same_gateway_continues_from_the_last_event() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On it. First I", 20);
    chat.lose();
    chat.wait(2_000);
    chat.connect();
    chat.answer("chat.history", json!({"messages": []}));
    let resume = chat.calls.iter().find(|call| call.params["runId"] == run.as_str()).unwrap().params.clone();
    assert_eq!(resume, json!({"sessionKey": SESSION, "runId": run, "afterSeq": 2}));
    // An event before the response is part of the response.
    let event = json!({"text": "On it. First I build", "delta": " build"});
    chat.event("agent", json!({"runId": run, "sessionKey": SESSION, "seq": 3, "stream": "assistant", "data": event}));
    let replaced =
        json!({"text": "On it. First I build, then", "delta": "On it. First I build, then", "replace": true});
    let events = json!([{"runId": run, "sessionKey": SESSION, "seq": 4, "stream": "assistant", "data": replaced}]);
    chat.answer("chat.resume", json!({"runs": [{"runId": run, "state": "running", "seq": 4, "events": events}]}));
    chat.answer("chat.resume", json!({"runs": []}));
    let more = json!({"text": "On it. First I build, then I ship.", "delta": " I ship."});
    chat.event("agent", json!({"runId": run, "sessionKey": SESSION, "seq": 5, "stream": "assistant", "data": more}));
    chat.finish(&run, "On it. First I build, then I ship.");
    check("reconnected", &mut chat);
}

#[test]
fn a_killed_gateway_continues_the_run_and_nothing_is_doubled() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On it.", 20);
    chat.tool(&run, "c1", "exec", json!({"command": "make"}));
    chat.result(&run, "c1", "built", json!({"exitCode": 0, "durationMs": 10}));
    chat.stream(&run, "Now I sh", 20);
    chat.typed("queued before");
    chat.key(KeyCode::Tab);
    chat.answer("chat.send", json!({"status": "started", "disposition": "queued", "position": 1}));
    chat.lose();
    chat.say("sent while it was down");
    chat.wait(1_000);
    chat.restart_gateway();
    chat.wait(1_000);
    chat.connect();
    chat.answer("chat.history", json!({"messages": [
        stored(1, "user", &run, text("Deploy it")),
        stored(2, "assistant", &run, json!([
            {"type": "text", "text": "On it."}, {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "make"}},
        ])),
        json!({"role": "toolResult", "toolCallId": "c1", "toolName": "exec", "content": text("built"), "isError": false,
               "__openclaw": {"id": "e3", "seq": 3, "runId": run}}),
    ]}));
    check("gateway_killed", &mut chat);
    // The gateway has the queued message already; it gets the other one now.
    assert_eq!(chat.answer("chat.send", json!({"status": "in_flight"}))["idempotencyKey"], "run-2");
    let sent = chat.answer("chat.send", json!({"status": "started", "disposition": "queued", "position": 2}));
    assert_eq!((&sent["idempotencyKey"], &sent["message"]), (&json!("run-3"), &json!("sent while it was down")));
    let start =
        json!({"runId": run, "sessionKey": SESSION, "seq": 1, "stream": "lifecycle", "data": {"phase": "start"}});
    chat.answer("chat.resume", json!({"runs": [{"runId": run, "state": "running", "seq": 1, "events": [start]}]}));
    chat.answer_all();
    let ships = json!({"text": "Now I ship it.", "delta": "Now I ship it."});
    chat.event("agent", json!({"runId": run, "sessionKey": SESSION, "seq": 2, "stream": "assistant", "data": ships}));
    chat.finish(&run, "On it.\n\nNow I ship it.");
    for (run, answer) in [("run-2", "Answer two."), ("run-3", "Answer three.")] {
        chat.start(run);
        chat.stream(run, answer, 20);
        chat.finish(run, answer);
    }
    check("killed_gateway_continued", &mut chat);
}

#[test]
fn a_run_that_ended_during_the_outage_is_shown_once() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On", 20);
    chat.lose();
    chat.restart_gateway();
    chat.wait(5_000);
    chat.connect();
    chat.answer(
        "chat.history",
        json!({"messages": [
            stored(1, "user", &run, text("Deploy it")), stored(2, "assistant", &run, text("On it. Done.")),
        ]}),
    );
    let last = json!({
        "runId": run, "sessionKey": SESSION, "state": "final", "message": {"role": "assistant", "content": text("On it. Done.")},
    });
    chat.answer("chat.resume", json!({"runs": [{"runId": run, "state": "ended", "events": [], "last": last}]}));
    chat.answer_all();
    check("ended_during_the_outage", &mut chat);
}

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

#[test]
fn a_session_is_picked() {
    let mut chat = connected();
    chat.say("/sessions");
    chat.answer(
        "sessions.list",
        json!({"ts": 10_000_000, "sessions": [
            {"key": SESSION, "updatedAt": 1},
            {"key": "agent:main:main", "updatedAt": 9_700_000, "label": "Daily work", "model": "large"},
            {"key": "agent:main:chat-7", "updatedAt": 2_000_000, "model": "small"},
        ]}),
    );
    check("session_picker", &mut chat);
    chat.typed("daily");
    chat.key(KeyCode::Enter);
    let calls: Vec<_> = chat.calls.iter().map(|call| (call.method, call.params["key"].clone())).collect();
    assert!(calls.contains(&("sessions.messages.unsubscribe", json!(SESSION))), "{calls:?}");
    chat.answer("chat.history", json!({"messages": [
        stored(1, "user", "r1", text("What is in here?")),
        stored(2, "assistant", "r1", json!([
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I look."}, {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {"path": "."}},
        ])),
        json!({"role": "toolResult", "toolCallId": "c1", "content": text("a\nb"), "__openclaw": {"id": "e3", "seq": 3}}),
        stored(4, "assistant", "r1", text("Two files.")),
    ], "hasMore": true, "sessionInfo": {"key": "agent:main:main", "label": "Daily work", "model": "large"}}));
    chat.answer_all();
    check("session_opened", &mut chat);
}

#[test]
fn a_model_is_picked() {
    let mut chat = connected();
    chat.say("/model");
    chat.answer(
        "models.list",
        json!({"models": [
            {"provider": "acme", "id": "small", "contextWindow": 32_000},
            {"provider": "acme", "id": "large", "contextWindow": 200_000, "reasoning": true},
        ]}),
    );
    check("model_picker", &mut chat);
    chat.key(KeyCode::Up);
    chat.key(KeyCode::Enter);
    let params = chat.answer("chat.send", json!({"status": "started"}));
    assert_eq!(params["message"], "/model acme/small");
    // A command is answered without a run.
    chat.finish("run-1", "Model set to `acme/small`.");
    check("model_chosen", &mut chat);
}

#[test]
fn an_agent_and_a_level_are_picked() {
    let mut chat = connected();
    chat.say("/agents");
    chat.answer("agents.list", json!({"agents": [
        {"id": "main", "model": {"primary": "acme/large"}}, {"id": "ops", "name": "Operations", "model": {"primary": "acme/small"}},
    ]}));
    check("agent_picker", &mut chat);
    chat.typed("oper");
    chat.key(KeyCode::Enter);
    assert_eq!(chat.state.session_key(), "agent:ops:chat-run1");
    chat.answer_all();
    chat.say("/think");
    check("level_picker", &mut chat);
    chat.key(KeyCode::Esc);
    chat.say("/new");
    assert_eq!(chat.state.session_key(), "agent:ops:chat-run2");
}

#[test]
fn errors_are_shown_and_the_message_comes_back() {
    let mut chat = connected();
    chat.say("/model nothing/there");
    chat.refuse("chat.send", "unknown model nothing/there");
    check("refused", &mut chat);
}

#[test]
fn a_failed_model() {
    let mut chat = connected();
    let run = chat.ask("Hello");
    let why = "acme (models.example.com): HTTP 529: overloaded";
    let retry = json!({"phase": "retry", "model": "acme/large", "attempt": 2, "maxAttempts": 5, "afterMs": 3_400, "error": why});
    chat.agent(&run, "lifecycle", retry);
    chat.wait(500);
    check("retrying", &mut chat);
    let next = json!({"phase": "fallback_step", "model": "acme/large", "reason": "overloaded", "error": why});
    chat.agent(&run, "lifecycle", next);
    chat.agent(&run, "lifecycle", json!({"phase": "model", "provider": "acme", "model": "small"}));
    chat.event("chat", json!({"runId": run, "sessionKey": SESSION, "state": "error", "errorMessage": "no model answered: acme/small: HTTP 401: invalid key"}));
    chat.answer_all();
    check("failed_model", &mut chat);
}

#[test]
fn a_discarded_text_is_replaced() {
    let mut chat = connected();
    let run = chat.ask("Hello");
    chat.stream(&run, "Half an ans", 20);
    chat.agent(&run, "assistant", json!({"text": "A whole answer.", "delta": "A whole answer.", "replace": true}));
    chat.finish(&run, "A whole answer.");
    check("replaced", &mut chat);
}

#[test]
fn compaction() {
    let mut chat = connected();
    let run = chat.ask("/compact");
    chat.agent(&run, "compaction", json!({"phase": "start"}));
    chat.wait(1_200);
    check("compacting", &mut chat);
    chat.agent(
        &run,
        "compaction",
        json!({"phase": "end", "completed": true, "tokensBefore": 182_000, "tokensAfter": 9_300}),
    );
    chat.finish(&run, "");
    check("compacted", &mut chat);
}

#[test]
fn hostile_escape_sequences_do_nothing() {
    let mut chat = connected();
    let run = chat.ask("Show me");
    let hostile = "Look\x1b]0;pwned\x07 \x1b[2J\x1b[H\x1b[31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07\u{202e}evil\u{9b}5A end";
    chat.stream(&run, hostile, 3);
    chat.tool(&run, "c1", "exec\x1b[2J", json!({"command": "cat x\x1b[3;3H\r\nrm -rf /"}));
    chat.result(&run, "c1", "out\x1b[1;1Hput\x1bc\r10%\r90%", json!({"exitCode": 0}));
    chat.event("exec.approval.requested", approval("a1", "echo \x1b[8mhidden\x1b[0m\u{202e}"));
    let error = json!({"phase": "fallback_step", "model": "m\x1b[2J", "reason": "x", "error": "bad\x1b]0;x\x07"});
    chat.agent(&run, "lifecycle", error);
    check("hostile", &mut chat);
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
fn help_and_an_unknown_key() {
    let mut chat = connected();
    chat.key(KeyCode::F(5));
    chat.say("/help");
    check("help", &mut chat);
}

#[test]
fn a_trace_is_shown() {
    let mut chat = connected();
    let run = chat.ask("Hi");
    chat.finish(&run, "Hello.");
    chat.say("/trace");
    let params = chat.answer(
        "runs.trace",
        json!({
            "run": {"runId": run, "status": "ok", "provider": "acme", "model": "large"}, "totalMs": 1_840,
            "steps": [
                {"atMs": 0, "ms": 3, "aside": false, "what": "queued"},
                {"atMs": 3, "ms": 1_700, "aside": false, "what": "model", "model": "acme/large", "tokens": 812},
            ],
        }),
    );
    assert_eq!(params, json!({"id": run}));
    check("trace", &mut chat);
}

#[test]
fn messages_of_other_clients_are_shown() {
    let mut chat = connected();
    let message = stored(1, "user", "r9", text("from Telegram"));
    chat.event("session.message", json!({"sessionKey": SESSION, "message": message}));
    chat.start("r9");
    chat.stream("r9", "Hello, Telegram.", 20);
    chat.finish("r9", "Hello, Telegram.");
    chat.event(
        "session.message",
        json!({"sessionKey": "agent:main:other", "message": stored(1, "user", "x", text("elsewhere"))}),
    );
    check("other_clients", &mut chat);
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
fn an_opened_session_with_an_active_run_is_not_doubled() {
    let mut chat = Chat::new(Terminal::WIDE);
    chat.connect();
    chat.answer("chat.history", json!({"messages": [
        stored(1, "user", "r1", text("Deploy")),
        stored(2, "assistant", "r1", json!([
            {"type": "text", "text": "On it."}, {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "make"}},
        ])),
    ], "sessionInfo": {"key": SESSION, "hasActiveRun": true}}));
    let event = |seq: u64, stream: &str, data: Value| json!({"runId": "r1", "sessionKey": SESSION, "seq": seq, "stream": stream, "data": data});
    chat.answer("chat.resume", json!({"runs": [{"runId": "r1", "state": "running", "seq": 4, "events": [
        event(1, "lifecycle", json!({"phase": "start"})), event(2, "assistant", json!({"text": "On it.", "delta": "On it."})),
        event(3, "tool", json!({"phase": "start", "toolCallId": "c1", "name": "exec", "args": {"command": "make"}})),
    ]}]}));
    chat.answer_all();
    chat.event("agent", event(5, "tool", json!({"phase": "result", "toolCallId": "c1", "name": "exec", "result": {"content": text("ok"), "details": {"exitCode": 0}}})));
    chat.event("agent", event(6, "assistant", json!({"text": "Built.", "delta": "Built."})));
    chat.finish("r1", "On it.\n\nBuilt.");
    check("opened_with_an_active_run", &mut chat);
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
