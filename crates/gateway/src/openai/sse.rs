//! Streams a run as server-sent events in the format of either API.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{self, KeepAlive},
};
use futures_util::stream;
use serde_json::Value;

use super::stream::{ResponsePart, ResponseResult, RunResponse};

/// Interval of keep-alive comments while there is no output.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Final line of every stream.
pub(super) const DONE: &str = "[DONE]";

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseFrame {
    /// Event name; chat completions have none.
    pub(super) event: Option<&'static str>,
    /// A single line.
    pub(super) data: String,
}

impl SseFrame {
    /// Creates an event without a name.
    pub(super) fn plain(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    /// Creates the final event.
    pub(super) fn done() -> Self {
        Self { event: None, data: DONE.to_owned() }
    }
}

impl From<SseFrame> for sse::Event {
    fn from(frame: SseFrame) -> Self {
        let event = Self::default();
        // The name comes first, as in OpenAI's streams.
        let event = match frame.event {
            Some(name) => event.event(name),
            None => event,
        };
        event.data(frame.data)
    }
}

/// Event format of an API.
pub(super) trait EventFormat: Send + 'static {
    /// Events before any output.
    fn begin(&mut self) -> Vec<SseFrame>;
    /// Events for new text.
    fn text_delta(&mut self, new: &str) -> Vec<SseFrame>;
    /// Events for the end of the run.
    fn end(&mut self, result: &ResponseResult) -> Vec<SseFrame>;
}

/// Streams a run. A slow reader gets more text per event.
pub(super) fn stream(run: RunResponse, mut format: impl EventFormat) -> Response {
    let first_frames = VecDeque::from(format.begin());
    let frames = stream::unfold((run, format, first_frames), |(mut run, mut format, mut frames)| async move {
        loop {
            if let Some(frame) = frames.pop_front() {
                return Some((Ok::<_, Infallible>(sse::Event::from(frame)), (run, format, frames)));
            }
            frames.extend(match run.next().await? {
                ResponsePart::Text(text) => format.text_delta(&text),
                ResponsePart::End(result) => format.end(&result),
            });
        }
    });
    Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
