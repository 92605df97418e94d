//! A run as server-sent events, in the words of one API or another.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{self, KeepAlive},
};
use futures_util::stream;
use serde_json::Value;

use super::talk::{Ending, News, Talk};

/// How often a caller hears that we are here while nothing is said.
const STILL_HERE: Duration = Duration::from_secs(15);

/// The last line of every stream.
pub(super) const DONE: &str = "[DONE]";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its name; chat completions have none.
    pub(super) event: Option<&'static str>,
    /// One line.
    pub(super) data: String,
}

impl Frame {
    /// An event without a name.
    pub(super) fn plain(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    /// The last one.
    pub(super) fn done() -> Self {
        Self { event: None, data: DONE.to_owned() }
    }
}

impl From<Frame> for sse::Event {
    fn from(frame: Frame) -> Self {
        let event = Self::default();
        // The name first, as OpenAI has it.
        let event = match frame.event {
            Some(name) => event.event(name),
            None => event,
        };
        event.data(frame.data)
    }
}

/// How an API tells a run.
pub(super) trait Dialect: Send + 'static {
    /// Before anything is said.
    fn begin(&mut self) -> Vec<Frame>;
    /// When more is said.
    fn words(&mut self, new: &str) -> Vec<Frame>;
    /// When it is over.
    fn end(&mut self, ending: &Ending) -> Vec<Frame>;
}

/// Tells a run as it goes. A slow reader finds more words in the next event.
pub(super) fn tell(talk: Talk, mut dialect: impl Dialect) -> Response {
    let begun = VecDeque::from(dialect.begin());
    let frames = stream::unfold((talk, dialect, begun), |(mut talk, mut dialect, mut frames)| async move {
        loop {
            if let Some(frame) = frames.pop_front() {
                return Some((Ok::<_, Infallible>(sse::Event::from(frame)), (talk, dialect, frames)));
            }
            frames.extend(match talk.next().await? {
                News::Words(new) => dialect.words(&new),
                News::Over(ending) => dialect.end(&ending),
            });
        }
    });
    Sse::new(frames).keep_alive(KeepAlive::new().interval(STILL_HERE)).into_response()
}
