//! Where a conversation is cut: what is summed up, what stays as it is.
//!
//! A call and all its results are one unit and are never parted. The newest request stays word for word: in the part
//! that is kept, or, if what came after it is too long, quoted beside the summary.

use std::ops::Range;

use homard_proto::message::Message;

use crate::line::{History, Line};

/// How much of the newest lines stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As many tokens, and at least the last unit.
    Recent(u64),
    /// None of them.
    None,
}

/// What becomes of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What is summed up.
    pub history: Range<usize>,
    /// What is summed up apart: the beginning of the turn whose end is kept.
    pub prefix: Range<usize>,
    /// The first line that stays; as many as there are lines if none does.
    pub kept: usize,
    /// The newest request, if it is among what is summed up and must be quoted.
    pub request: Option<usize>,
}

/// Why there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nothing {
    /// Nothing was said since.
    #[error("already compacted")]
    Compacted,
    /// Everything is recent.
    #[error("the conversation is short")]
    Short,
}

/// Decides what becomes of the lines. One pass.
pub fn plan(history: &History<'_>, keep: Keep) -> Result<Plan, Nothing> {
    let lines = history.lines;
    let request = lines.iter().rposition(is_user);
    let cuts = Cuts::of(lines);
    let cut = match keep {
        Keep::None => lines.len(),
        Keep::Recent(tokens) => {
            let cut = cuts.between_turns(lines, cuts.within(tokens));
            // Rather than to split them, the newest turn is kept whole if it is not much larger, and so is the one before,
            // which it goes on from.
            let before = request.and_then(|request| lines[..request].iter().rposition(is_user));
            let mut whole = [before, request].into_iter().flatten().map(|request| cuts.at_or_before(request));
            whole.find(|&whole| whole < cut && cuts.tail(whole) <= tokens.saturating_mul(2)).unwrap_or(cut)
        }
    };
    // A request that is only moved into a quotation makes nothing shorter.
    let is_moved = keep != Keep::None && cut == 1 && request == Some(0);
    if cut == 0 || is_moved {
        return Err(if history.is_just_compacted() { Nothing::Compacted } else { Nothing::Short });
    }
    let quoted = request.filter(|&request| request < cut);
    let turn = turn_of(lines, cut);
    Ok(Plan {
        history: 0..turn,
        // A request alone needs no summary beside its quotation.
        prefix: if quoted.is_some_and(|at| at + 1 == cut && at == turn) { cut..cut } else { turn..cut },
        kept: cut,
        request: quoted,
    })
}

fn is_user(line: &Line) -> bool {
    matches!(*line.message, Message::User(_))
}

/// Where the turn begins that the cut is in; the cut itself if that is between two turns.
fn turn_of(lines: &[Line], cut: usize) -> usize {
    if lines.get(cut).is_some_and(is_user) {
        return cut;
    }
    // Without a request it goes on from a turn that was summed up before.
    lines[..cut].iter().rposition(is_user).unwrap_or(cut)
}

/// Places between units, each with what the lines behind it weigh; the last place first.
struct Cuts(Vec<(usize, u64)>);

impl Cuts {
    fn of(lines: &[Line]) -> Self {
        let mut cuts = Vec::new();
        let mut tail = 0;
        // Whether a result follows before the next answer: it belongs to a call that stands before.
        let mut is_inside = false;
        for (at, line) in lines.iter().enumerate().rev() {
            tail += line.weight;
            match &*line.message {
                Message::ToolResult(_) => is_inside = true,
                Message::Assistant(_) => {
                    is_inside = false;
                    cuts.push((at, tail));
                }
                Message::User(_) | Message::Other(_) if is_inside => {}
                Message::User(_) | Message::Other(_) => cuts.push((at, tail)),
            }
        }
        Self(cuts)
    }

    /// The first place behind which the lines weigh no more than `tokens`, or else the last place.
    fn within(&self, tokens: u64) -> usize {
        let fits = self.0.partition_point(|&(_, tail)| tail <= tokens);
        self.0.get(fits.saturating_sub(1)).map_or(0, |&(at, _)| at)
    }

    /// The first place between two turns from `cut` on, if half of what stands behind `cut` also stands behind it.
    fn between_turns(&self, lines: &[Line], cut: usize) -> usize {
        let behind = self.0.iter().rev().skip_while(|&&(at, _)| at < cut);
        let next = behind.copied().find(|&(at, _)| cut > 0 && matches!(*lines[at].message, Message::User(_)));
        next.filter(|&(_, tail)| tail >= self.tail(cut) / 2).map_or(cut, |(at, _)| at)
    }

    fn at_or_before(&self, line: usize) -> usize {
        let behind = self.0.partition_point(|&(at, _)| at > line);
        self.0.get(behind).map_or(0, |&(at, _)| at)
    }

    fn tail(&self, cut: usize) -> u64 {
        let behind = self.0.partition_point(|&(at, _)| at > cut);
        self.0.get(behind).map_or(u64::MAX, |&(_, tail)| tail)
    }
}

#[cfg(test)]
mod tests;
