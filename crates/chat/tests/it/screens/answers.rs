//! What comes from the model: text, reasoning, failures, compaction.

use serde_json::json;

use super::{ANSWER, approvals::approval, check, check_styles, connected};
use crate::chat::{Chat, SESSION, Terminal};

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
fn a_model_that_does_not_answer() {
    let mut chat = connected();
    let run = chat.ask("Hello");
    let why = "POST http://127.0.0.1:8000/v1/chat/completions (openai-completions) has not answered for 4 s; still waiting, as a \
               model may need time. If the address or the API is wrong, correct models.providers.acme.baseUrl or \
               models.providers.acme.api";
    for _ in 0..2 {
        chat.agent(&run, "lifecycle", json!({"phase": "no_response", "model": "acme/large", "message": why}));
    }
    chat.wait(500);
    check("no_response", &mut chat);
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
