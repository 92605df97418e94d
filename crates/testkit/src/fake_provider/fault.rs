//! Faults of an answer.

use super::dialect::{StreamEvent, WireFormat};
use homard_stdx::SeededRng;

/// Number of positions in an answer at which a fault can occur.
pub const POSITIONS: u64 = 20;

/// A fault of the provider while it answers.
///
/// A position is a number of twentieths of the answer, see [`POSITIONS`]. At position 0, `Stall` and `Cut` do not even
/// send the response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFault {
    /// From this position on, sends nothing more and keeps the connection open.
    Stall(u64),
    /// Drops the connection at this position, between any two bytes.
    Cut(u64),
    /// Sends invalid bytes at this position and ends the body.
    Garbage(u64),
    /// Sends an error event of the wire format at this position and ends the body.
    InStream(u64),
    /// Sends an event twice: the first one from this position on of which a reader can recognize the repetition. A
    /// repeated delta can only be recognized in the Responses format, which numbers its events.
    Twice(u64),
    /// Swaps the event at this position with the next one.
    Disorder(u64),
    /// Status 429; with `true`, the response contains the time to wait.
    TooMany(bool),
    /// Status 429 with an unacceptably long time to wait.
    TooManyForLong,
    /// This error status.
    Refused(u16),
    /// An HTML page with status 200, like that of a captive portal.
    Page,
}

impl ProviderFault {
    /// Returns every fault, at this position where that matters.
    pub fn all(position: u64) -> Vec<Self> {
        let mut all = vec![
            Self::Stall(position),
            Self::Cut(position),
            Self::Garbage(position),
            Self::InStream(position),
            Self::Twice(position),
            Self::Disorder(position),
            Self::TooMany(true),
            Self::TooMany(false),
            Self::TooManyForLong,
            Self::Page,
        ];
        all.extend([500, 401, 402, 413].map(Self::Refused));
        all
    }

    /// Returns a random fault.
    pub fn any(rng: &mut SeededRng) -> Self {
        let position = rng.below(POSITIONS);
        *rng.pick(&Self::all(position))
    }
}

/// Applies a fault to the events of an answer.
pub(super) fn apply_fault(
    fault: Option<ProviderFault>,
    dialect: WireFormat,
    mut events: Vec<StreamEvent>,
) -> Vec<StreamEvent> {
    let at = |position: u64| (events.len() as u64 * position / POSITIONS) as usize;
    match fault {
        Some(ProviderFault::Garbage(position)) => {
            events.truncate(at(position));
            events.push(StreamEvent::marker("data: {\"cho\u{0}\u{1f}[[\n\ndata: \u{fffd}\n\n".to_owned()));
        }
        Some(ProviderFault::InStream(position)) => {
            events.truncate(at(position));
            events.push(StreamEvent::marker(dialect.error("overloaded_error", "too much to do")));
        }
        Some(ProviderFault::Twice(position)) => {
            let is_recognizable = |event: &&StreamEvent| dialect == WireFormat::Responses || !event.is_delta;
            let begin = at(position);
            if let Some(found) = events[begin..].iter().position(|event| is_recognizable(&event)) {
                events.insert(begin + found, events[begin + found].clone());
            }
        }
        Some(ProviderFault::Disorder(position)) => {
            let first = at(position).min(events.len().saturating_sub(2));
            events.swap(first, first + 1);
        }
        Some(
            ProviderFault::Stall(_)
            | ProviderFault::Cut(_)
            | ProviderFault::TooMany(_)
            | ProviderFault::TooManyForLong
            | ProviderFault::Refused(_)
            | ProviderFault::Page,
        )
        | None => {}
    }
    events
}
