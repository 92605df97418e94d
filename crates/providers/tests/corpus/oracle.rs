//! Oracle for successful ends of answers, independent of the decoders.

use homard_model::ModelEvent;
use homard_providers::{Wire, sse::Parser};
use serde::de::IgnoredAny;

/// Returns why an answer reported as successful should not have been; `None` if it is right.
///
/// Every event up to the end must be valid, and one of them must state the end.
pub(crate) fn silent_success(wire: Wire, bytes: &[u8]) -> Option<String> {
    let (mut reader, mut parser) = (wire.reader(), Parser::default());
    let mut has_end = false;
    for line in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        let events = reader.push(line);
        for frame in parser.push(line).ok()? {
            let is_done_marker = wire == Wire::OpenAiCompletions && frame.data.trim() == "[DONE]";
            if !is_done_marker && serde_json::from_str::<IgnoredAny>(&frame.data).is_err() {
                return Some(format!("it went on after {:?}", frame.data));
            }
            has_end |=
                is_done_marker || ends(wire).iter().any(|marker| frame.data.contains(marker) || frame.event == *marker);
        }
        if events.iter().any(|event| matches!(event, ModelEvent::Done(_) | ModelEvent::Failed(_))) {
            break;
        }
    }
    (!has_end).then(|| "nothing said that it was the end".to_owned())
}

/// Returns the strings that state the end of an answer.
fn ends(wire: Wire) -> &'static [&'static str] {
    match wire {
        Wire::AnthropicMessages => &["message_stop", "stop_reason"],
        Wire::OpenAiCompletions => &["finish_reason"],
        Wire::OpenAiResponses => &["response.completed", "response.incomplete", "response.done"],
        Wire::GoogleGenerativeAi => &["finishReason"],
    }
}
