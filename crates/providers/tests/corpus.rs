//! Recorded responses, conversations and errors of every wire, with the expected results; see corpus/README.md.

#[path = "corpus/case.rs"]
mod case;
#[path = "corpus/mutate.rs"]
mod mutate;
#[path = "corpus/oracle.rs"]
mod oracle;

use std::{path::Path, time::Duration};

use case::{Case, Outcome, compare};
use homard_model::{ModelAnswer, ModelEvent, classify::classify};
use homard_providers::Wire;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Maximum time for reading one stream: a thousand times the usual one.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

datatest_stable::harness! {
    { test = a_stream_decodes_to_its_events, root = "tests/corpus", pattern = r"stream\.sse$" },
    { test = a_stream_is_the_same_however_it_is_split, root = "tests/corpus", pattern = r"stream\.sse$" },
    { test = a_damaged_stream_ends_exactly_once, root = "tests/corpus", pattern = r"stream\.sse$" },
    { test = a_truncated_stream_is_not_a_success, root = "tests/corpus", pattern = r"stream\.sse$" },
    { test = an_answer_is_replayed, root = "tests/corpus", pattern = r"replay\.json$" },
    { test = a_history_encodes_to_its_request, root = "tests/corpus", pattern = r"history\.json$" },
    { test = a_growing_conversation_keeps_its_prefix, root = "tests/corpus", pattern = r"history\.json$" },
    { test = an_error_response_is_classified, root = "tests/corpus", pattern = r"error\.json$" },
}

fn a_stream_decodes_to_its_events(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let events = read(case.wire, [case.bytes("stream.sse")?.as_slice()]);
    compare(&case.file("events.json"), &events.iter().map(case::event_json).collect())
}

fn a_stream_is_the_same_however_it_is_split(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let bytes = case.bytes("stream.sse")?;
    let whole = read(case.wire, [bytes.as_slice()]);
    for size in [1, 2, 3, 7, 37, 64] {
        assert_eq!(read(case.wire, bytes.chunks(size)), whole, "in pieces of {size}");
    }
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(read(case.wire, [head, tail]), whole, "split at {at}");
    }
    Ok(())
}

fn a_damaged_stream_ends_exactly_once(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let bytes = case.bytes("stream.sse")?;
    for seed in mutate::seeds() {
        let damaged = mutate::damaged(&bytes, seed);
        let start = Instant::now();
        let events = read(case.wire, damaged.chunks(61));
        assert!(start.elapsed() < READ_TIMEOUT, "seed {seed} took {:?}", start.elapsed());
        let ends = events.iter().filter(|event| is_last(event)).count();
        assert!(ends == 1 && events.last().is_some_and(is_last), "seed {seed}: {events:?}");
        if let Some(ModelEvent::Done(_)) = events.last() {
            assert_eq!(oracle::silent_success(case.wire, &damaged), None, "seed {seed}: {events:?}");
        }
    }
    Ok(())
}

fn a_truncated_stream_is_not_a_success(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let bytes = case.bytes("stream.sse")?;
    let whole = read(case.wire, [bytes.as_slice()]);
    // Only the end of a line changes the state.
    let line_ends = (0..bytes.len()).filter(|at| matches!(bytes[*at], b'\n' | b'\r'));
    for end in line_ends {
        let events = read(case.wire, [&bytes[..end]]);
        let is_done = matches!(events.last(), Some(ModelEvent::Done(_)));
        assert!(
            !is_done || content_events(&events) == content_events(&whole),
            "cut at {end}, this is taken for all of it: {events:?}"
        );
    }
    Ok(())
}

/// Returns the events without the final one and heartbeats.
fn content_events(events: &[ModelEvent]) -> Vec<&ModelEvent> {
    events.iter().filter(|event| !is_last(event) && **event != ModelEvent::Heartbeat).collect()
}

fn an_answer_is_replayed(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let mut answer = ModelAnswer::default();
    for event in read(case.wire, [case.bytes("stream.sse")?.as_slice()]) {
        match event {
            ModelEvent::Text(delta) => answer.text(&delta),
            ModelEvent::Thinking(delta) => answer.thinking(&delta),
            ModelEvent::Call(delta) => answer.call(delta),
            ModelEvent::Signature(signature) => answer.sign(signature),
            ModelEvent::Heartbeat | ModelEvent::NoResponse(_) | ModelEvent::Done(_) => {}
            ModelEvent::Failed(error) => return Err(error.into()),
        }
    }
    let blocks = serde_json::to_value(answer.into_blocks())?;
    let body = case.encode(&case::conversation(&blocks))?;
    compare(path, &json!({"blocks": blocks, "request": body}))
}

fn a_history_encodes_to_its_request(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    compare(&case.file("request.json"), &case.encode(&case.json("history.json")?)?)
}

/// Providers cache the beginning of a request, so it must not change as a conversation grows.
fn a_growing_conversation_keeps_its_prefix(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let mut history = case.json("history.json")?;
    let mut later = case.prompt(&history)?;
    let messages = history["messages"].as_array().cloned().unwrap_or_default();
    for answer in (1..messages.len()).rev().filter(|at| is_answer(&messages[*at]) && is_input(&messages[at - 1])) {
        history["messages"] = messages[..answer].into();
        let earlier = case.prompt(&history)?;
        assert!(later.starts_with(&earlier), "after {answer} messages it began with {earlier:#?}, then {later:#?}");
        later = earlier;
    }
    Ok(())
}

fn is_input(message: &Value) -> bool {
    message["role"] == "user" || message["role"] == "toolResult"
}

fn is_answer(message: &Value) -> bool {
    message["role"] == "assistant" && message["stopReason"] != "error" && message["stopReason"] != "aborted"
}

fn an_error_response_is_classified(path: &Path) -> Outcome {
    let case = Case::at(path)?;
    let recorded = case.json("error.json")?;
    let status = recorded["status"].as_u64().map(u16::try_from).transpose()?;
    let headers = recorded["headers"].as_object().into_iter().flatten();
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    let body = recorded["body"].as_str().map_or_else(|| recorded["body"].to_string(), str::to_owned);
    compare(&case.file("failure.json"), &case::event_json(&ModelEvent::Failed(classify(status, &headers, &body))))
}

fn read<'a>(wire: Wire, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<ModelEvent> {
    let mut reader = wire.reader();
    let mut events: Vec<_> = pieces.into_iter().flat_map(|piece| reader.push(piece)).collect();
    events.extend(reader.finish());
    assert_eq!((reader.push(b"data: {}\n\n"), reader.finish()), (Vec::new(), None), "it goes on after its end");
    events
}

fn is_last(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Done(_) | ModelEvent::Failed(_))
}
