//! What the user does while a run is active.

use crossterm::event::KeyCode;
use serde_json::{Value, json};

use super::{check, connected};
use crate::chat::SESSION;

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
