//! What can go wrong with an answer.

use super::dialect::{Dialect, Event};
use crate::chance::Dice;

/// In how many places of an answer something can go wrong.
pub const PLACES: u64 = 20;

/// What goes wrong. A place is a twentieth of the answer; before the first even the head is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing more comes, and the connection stays.
    Stall(u64),
    /// The connection breaks, between any two bytes.
    Cut(u64),
    /// Bytes that mean nothing, and then the end of the body.
    Garbage(u64),
    /// An error as the wire tells it in a stream.
    InStream(u64),
    /// An event comes twice. Only one that a reader could know again: pieces of words bear no number on most wires.
    Twice(u64),
    /// An event comes after the next one.
    Disorder(u64),
    /// 429; `true` with the time to wait.
    TooMany(bool),
    /// 429 and a wait that nobody wants to wait for.
    TooManyForLong,
    /// Another refusal, by its status.
    Refused(u16),
    /// A page of a hotel's network, called a success.
    Page,
}

impl Fault {
    /// Every fault, at a place where that matters.
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

    /// Any of them.
    pub fn any(dice: &mut Dice) -> Self {
        let place = dice.below(PLACES);
        *dice.pick(&Self::all(place))
    }
}

/// The events of an answer after something went wrong with them.
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
