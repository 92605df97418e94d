//! Tests of the wire projection.

use std::sync::Arc;

use homard_proto::{
    AgentId, CallId,
    message::{ImageBlock, ToolResult},
};

use super::*;

fn projection() -> Projection {
    Projection::new(&RunId::parse("r").unwrap(), &AgentId::main().main_session())
}

fn text(delta: &str) -> TapeEvent {
    TapeEvent { at: 7, kind: RunEvent::Text { message: 0, delta: delta.to_owned() } }
}

fn reset() -> TapeEvent {
    TapeEvent { at: 7, kind: RunEvent::Model(RequestEvent::MessageReset { message: 0 }) }
}

/// Processes an event and flushes. Returns the emitted data.
fn project(projection: &mut Projection, event: TapeEvent) -> Vec<(u64, Value)> {
    let events = projection.push(event).into_iter().chain(projection.flush());
    events.map(|step| (step.seq.unwrap(), step.data)).collect()
}

/// Cases 118 and 119.
#[test]
fn a_step_has_the_whole_text_and_the_new_part() {
    let mut projection = projection();
    assert_eq!(project(&mut projection, text("Hel")), [(1, json!({"text": "Hel", "delta": "Hel"}))]);
    assert_eq!(project(&mut projection, text("lo")), [(2, json!({"text": "Hello", "delta": "lo"}))]);
}

/// Case 121.
#[test]
fn discarded_text_is_reported_with_its_replacement() {
    let mut projection = projection();
    project(&mut projection, text("No"));
    assert_eq!(project(&mut projection, reset()), []);
    assert_eq!(project(&mut projection, text("Yes")), [(2, json!({"text": "Yes", "delta": "Yes", "replace": true}))]);
}

#[test]
fn a_model_that_does_not_respond_is_a_step_with_its_text() {
    let kind = RunEvent::Model(RequestEvent::NoResponse { model: "p/m".to_owned(), why: "POST http://h".to_owned() });
    let expected = json!({"phase": "no_response", "model": "p/m", "message": "POST http://h"});
    assert_eq!(project(&mut projection(), TapeEvent { at: 7, kind }), [(1, expected)]);
}

/// Case 124.
#[test]
fn long_results_are_truncated_and_images_replaced_by_their_size() {
    let image = ImageBlock { data: "A".repeat(400), mime_type: "image/png".to_owned(), ..ImageBlock::default() };
    let result = ToolResult {
        tool_call_id: "c".to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text("\u{e9}".repeat(10_000)), Block::Image(image)],
        details: Some(json!({"raw": "x".repeat(10_000), "size": 1})),
        is_error: false,
        timestamp: 7,
        extra: Map::new(),
    };
    let kind = RunEvent::Stored(StoredEvent::ToolEnded {
        call: CallId::parse("c").unwrap(),
        result: Arc::new(result),
        shown: None,
    });
    let cut = |repeated: &str| format!("{}\n\u{2026}(truncated)\u{2026}", repeated.repeat(MAX_TOOL_TEXT));
    let expected = json!({
        "phase": "result", "name": "read", "toolCallId": "c", "isError": false,
        "result": {
            "content": [
                {"type": "text", "text": cut("\u{e9}")},
                {"type": "image", "mimeType": "image/png", "bytes": 400, "omitted": true},
            ],
            "details": {"raw": cut("x"), "size": 1},
        },
    });
    assert_eq!(project(&mut projection(), TapeEvent { at: 7, kind }), [(1, expected)]);
}

#[test]
fn reasoning_is_emitted_before_later_events_and_in_few_steps() {
    let mut projection = projection();
    let reasoning = |delta: &str| TapeEvent { at: 7, kind: RunEvent::Thinking { message: 0, delta: delta.to_owned() } };
    assert_eq!(project(&mut projection, reasoning("Hm")), []);
    assert_eq!(project(&mut projection, reasoning("m.")), []);
    let events = project(&mut projection, text("Yes"));
    assert_eq!(events, [(1, json!({"text": "Hmm.", "delta": "Hmm."})), (2, json!({"text": "Yes", "delta": "Yes"})),]);
    assert_eq!(project(&mut projection, reasoning(&"x".repeat(REASONING_STEP))).len(), 1);
}
