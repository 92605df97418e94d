//! Tests of text that providers send repeatedly and that must be emitted once.

use homard_model::ModelEvent;
use homard_providers::Wire;

/// Returns the text events of an answer.
fn texts(wire: Wire, frames: &[&str]) -> Vec<String> {
    let mut reader = wire.reader();
    let mut events: Vec<_> =
        frames.iter().flat_map(|frame| reader.push(format!("data: {frame}\n\n").as_bytes())).collect();
    events.extend(reader.finish());
    assert!(matches!(events.last(), Some(ModelEvent::Done(_))), "{events:?}");
    let texts = events.into_iter().filter_map(|event| match event {
        ModelEvent::Text(text) => Some(text),
        ModelEvent::Thinking(_)
        | ModelEvent::Call(_)
        | ModelEvent::Signature(_)
        | ModelEvent::Heartbeat
        | ModelEvent::NoResponse(_)
        | ModelEvent::Done(_)
        | ModelEvent::Failed(_) => None,
    });
    texts.filter(|text| !text.is_empty()).collect()
}

/// Case 120: the end event of a text repeats all of it, and so do those of the enclosing objects.
#[test]
fn a_text_repeated_by_end_events_is_emitted_once() {
    let item = r#"{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Hello."}]}"#;
    let begin = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","role":"assistant","content":[]}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"Hel"}"#,
        r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"lo."}"#,
    ];
    let text_done =
        r#"{"type":"response.output_text.done","item_id":"m","output_index":0,"content_index":0,"text":"Hello."}"#;
    let item_done = format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
    let completed = format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{item}]}}}}"#);
    let frames = [&begin[..], &[text_done, text_done, &item_done, &completed]].concat();
    assert_eq!(texts(Wire::OpenAiResponses, &frames), ["Hel", "lo."]);
    // A text that is only contained in its end event is emitted as well.
    assert_eq!(texts(Wire::OpenAiResponses, &[begin[0], text_done, &item_done, &completed]), ["Hello."]);
}
