//! Faults of an answer.

use super::dialect::{Dialect, Event};
use crate::chance::Dice;

/// Number of positions in an answer at which a fault can occur.
pub const PLACES: u64 = 20;

/// A fault. A position is a twentieth of the answer; at position 0 even the response head is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Sends nothing more, and keeps the connection open.
    Stall(u64),
    /// Drops the connection, between any two bytes.
    Cut(u64),
    /// Sends invalid bytes and ends the body.
    Garbage(u64),
    /// Sends an error event of the wire format.
    InStream(u64),
    /// Sends an event twice; only one that a reader can recognize, because most wire formats do not number deltas.
    Twice(u64),
    /// Swaps an event with the next one.
    Disorder(u64),
    /// 429; `true` includes the time to wait.
    TooMany(bool),
    /// 429 with an unacceptably long time to wait.
    TooManyForLong,
    /// Another error status.
    Refused(u16),
    /// An HTML page with status 200, like that of a captive portal.
    Page,
}

impl Fault {
    /// Returns every fault, at this position where that matters.
    pub fn all(place: u64) -> Vec<Self> {
        let mut all = vec![
            Self::Stall(place),
            Self::Cut(place),
            Self::Garbage(place),
            Self::InStream(place),
            Self::Twice(place),
            Self::Disorder(place),
            Self::TooMany(true),
            Self::TooMany(false),
            Self::TooManyForLong,
            Self::Page,
        ];
        all.extend([500, 401, 402, 413].map(Self::Refused));
        all
    }

    /// Returns a random fault.
    pub fn any(dice: &mut Dice) -> Self {
        let place = dice.below(PLACES);
        *dice.pick(&Self::all(place))
    }
}

/// Applies a fault to the events of an answer.
pub(super) fn spoil(fault: Option<Fault>, dialect: Dialect, mut events: Vec<Event>) -> Vec<Event> {
    let at = |place: u64| (events.len() as u64 * place / PLACES) as usize;
    match fault {
        Some(Fault::Garbage(place)) => {
            events.truncate(at(place));
            events.push(Event::sign("data: {\"cho\u{0}\u{1f}[[\n\ndata: \u{fffd}\n\n".to_owned()));
        }
        Some(Fault::InStream(place)) => {
            events.truncate(at(place));
            events.push(Event::sign(dialect.error("overloaded_error", "too much to do")));
        }
        Some(Fault::Twice(place)) => {
            let is_known_again = |event: &&Event| dialect == Dialect::Responses || !event.is_piece;
            let begin = at(place);
            if let Some(found) = events[begin..].iter().position(|event| is_known_again(&event)) {
                events.insert(begin + found, events[begin + found].clone());
            }
        }
        Some(Fault::Disorder(place)) => {
            let first = at(place).min(events.len().saturating_sub(2));
            events.swap(first, first + 1);
        }
        Some(
            Fault::Stall(_)
            | Fault::Cut(_)
            | Fault::TooMany(_)
            | Fault::TooManyForLong
            | Fault::Refused(_)
            | Fault::Page,
        )
        | None => {}
    }
    events
}
