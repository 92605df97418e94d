//! Requests for approval.

use crossterm::event::KeyCode;
use homard_chat::state::Effect;
use serde_json::{Value, json};

use super::{check, check_styles, connected, stored, text};
use crate::chat::SESSION;

pub(super) fn approval(id: &str, command: &str) -> Value {
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
fn a_command_that_can_only_be_allowed_once_says_so() {
    let mut chat = connected();
    let mut request = approval("a1", "sh -c 'rm -r build'");
    request["request"]["allowedDecisions"] = json!(["allow-once", "deny"]);
    chat.event("exec.approval.requested", request);
    chat.wait(500);
    chat.typed("a");
    assert!(chat.calls.is_empty());
    check("approval_once_only", &mut chat);
}

#[test]
fn a_request_for_approval_survives_a_lost_connection() {
    let mut chat = connected();
    chat.event("exec.approval.requested", approval("a1", "git push"));
    chat.lose();
    chat.wait(500);
    chat.typed("y");
    check("approval_without_a_connection", &mut chat);
    chat.wait(2_000);
    chat.connect();
    chat.answer("exec.approval.list", json!([approval("a1", "git push")]));
    chat.answer_all();
    chat.wait(500);
    chat.typed("a");
    let params = chat.answer("exec.approval.resolve", json!({"ok": true}));
    assert_eq!(params, json!({"id": "a1", "decision": "allow-always"}));
    chat.event("exec.approval.resolved", json!({"id": "a1", "decision": "allow-always"}));
    check("approval_always", &mut chat);
}

#[test]
fn the_output_of_an_allowed_command_is_shown_before_the_answer_to_it() {
    let mut chat = connected();
    let run = chat.ask("Publish it");
    chat.tool(&run, "c1", "exec", json!({"command": "cargo publish\n--dry-run"}));
    let pending = json!({"status": "approval-pending", "approvalId": "a1", "command": "cargo publish\n--dry-run"});
    chat.result(&run, "c1", "The command waits until it is approved", pending);
    chat.finish(&run, "It waits for you.");
    check("approval_pending", &mut chat);
    for (run, facts) in [("wake-1", "a1"), ("wake-2", "a1, exited with code 2")] {
        chat.start(run);
        chat.stream(run, "Published.", 20);
        chat.finish(run, "Published.");
        // The message that started the run is stored before its answer, and can arrive after it.
        let mut message = stored(1, "user", run, text("Your approval requests were decided."));
        message["inputProvenance"] = json!({"kind": "internal_system", "sourceTool": "exec"});
        let note = format!("System event: Exec finished (approval {facts}): cargo publish --dry-run uploaded 3 files");
        message["notes"] = json!([note, "System event: something else"]);
        chat.event("session.message", json!({"sessionKey": SESSION, "message": message}));
    }
    check("approved_output", &mut chat);
}
