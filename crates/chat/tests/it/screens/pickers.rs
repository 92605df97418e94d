//! Choosing a session, a model, an agent, a level.

use crossterm::event::KeyCode;
use serde_json::json;

use super::{check, connected, stored, text};
use crate::chat::SESSION;

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
