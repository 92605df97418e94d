//! A connection that breaks, and sessions that other clients use.

use crossterm::event::KeyCode;
use serde_json::{Value, json};

use super::{check, connected, stored, text};
use crate::chat::{Chat, SESSION, Terminal};

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
fn a_run_is_not_stopped_without_a_connection() {
    let mut chat = connected();
    let run = chat.ask("Deploy it");
    chat.stream(&run, "On it. ", 20);
    chat.lose();
    chat.key(KeyCode::Esc);
    let shown = chat.rows().join("\n");
    assert!(shown.contains("not connected; the run continues in the gateway"), "{shown}");
    chat.wait(5_000);
    chat.connect();
    chat.answer("chat.history", json!({"messages": []}));
    chat.answer("chat.resume", json!({"runs": [{"runId": run, "state": "running", "seq": 2, "events": []}]}));
    chat.answer_all();
    let shown = chat.rows().join("\n");
    assert!(!shown.contains("Stopping"), "{shown}");
    chat.key(KeyCode::Esc);
    assert_eq!(chat.answer("chat.abort", json!({"aborted": true}))["runId"], run.as_str());
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
fn a_message_of_another_client_that_comes_late_stands_before_its_answer() {
    let mut chat = connected();
    chat.start("r9");
    chat.stream("r9", "Hello, Telegram.", 20);
    chat.finish("r9", "Hello, Telegram.");
    let message = stored(1, "user", "r9", text("from Telegram"));
    chat.event("session.message", json!({"sessionKey": SESSION, "message": message}));
    check("late_message", &mut chat);
    // One that does not come is not awaited for long.
    chat.start("r10");
    chat.stream("r10", "Answer to nothing.", 20);
    assert!(chat.state.next_tick().is_some());
    chat.finish("r10", "Answer to nothing.");
    chat.wait(2_100);
    assert_eq!(chat.state.next_tick(), None);
    check("message_that_does_not_come", &mut chat);
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
