//! Chooses the cut: what is summarized and what is kept.
//!
//! A call and all its results form one unit and are never separated. The newest request is kept verbatim: in the kept
//! part, or, if what follows it is too long, quoted beside the summary.

use std::ops::Range;

use homard_proto::message::Message;

use crate::line::{History, HistoryLine};

/// How much of the newest lines is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// This many tokens, and at least the last unit.
    Recent(u64),
    /// None of them.
    None,
}

/// Which lines are summarized, kept and quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Lines to summarize.
    pub history: Range<usize>,
    /// Lines to summarize separately: the beginning of the turn whose end is kept.
    pub prefix: Range<usize>,
    /// Index of the first kept line; the number of lines if none is kept.
    pub kept: usize,
    /// Index of the newest request, if it is among the summarized lines and must be quoted.
    pub request: Option<usize>,
}

/// Why there is nothing to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NothingToCompact {
    /// There are no messages since the last compaction.
    #[error("already compacted")]
    Compacted,
    /// Everything is recent.
    #[error("the conversation is too short to compact")]
    Short,
}

/// Decides which lines are summarized, kept and quoted.
pub fn plan(history: &History<'_>, keep: Keep) -> Result<CompactionPlan, NothingToCompact> {
    let lines = history.lines;
    let request = lines.iter().rposition(is_user);
    let cuts = UnitBoundaries::of(lines);
    let cut = match keep {
        Keep::None => lines.len(),
        Keep::Recent(tokens) => {
            let cut = cuts.between_turns(lines, cuts.within(tokens));
            // Keeps the last two turns whole, or else the last one, if that takes at most twice `tokens`. The turn
            // before the last is included because the last one may refer to it.
            let previous_request = request.and_then(|request| lines[..request].iter().rposition(is_user));
            let mut whole = [previous_request, request].into_iter().flatten().map(|request| cuts.at_or_before(request));
            whole.find(|&whole| whole < cut && cuts.tail(whole) <= tokens.saturating_mul(2)).unwrap_or(cut)
        }
    };
    // If only the newest request were summarized, nothing would become shorter, because it is quoted verbatim.
    let would_only_quote = keep != Keep::None && cut == 1 && request == Some(0);
    if cut == 0 || would_only_quote {
        return Err(if history.is_just_compacted() { NothingToCompact::Compacted } else { NothingToCompact::Short });
    }
    let quoted = request.filter(|&request| request < cut);
    let turn = turn_of(lines, cut);
    Ok(CompactionPlan {
        history: 0..turn,
        // A request alone needs no summary beside its quotation.
        prefix: if quoted.is_some_and(|index| index + 1 == cut && index == turn) { cut..cut } else { turn..cut },
        kept: cut,
        request: quoted,
    })
}

fn is_user(line: &HistoryLine) -> bool {
    matches!(*line.message, Message::User(_))
}

/// Returns the start of the turn that contains the cut; the cut itself if it is between two turns.
fn turn_of(lines: &[HistoryLine], cut: usize) -> usize {
    if lines.get(cut).is_some_and(is_user) {
        return cut;
    }
    // Without a request, it continues a turn that was summarized before.
    lines[..cut].iter().rposition(is_user).unwrap_or(cut)
}

/// Positions between units, each with the tokens of the lines after it; the last position first.
struct UnitBoundaries(Vec<(usize, u64)>);

impl UnitBoundaries {
    fn of(lines: &[HistoryLine]) -> Self {
        let mut cuts = Vec::new();
        let mut tail = 0;
        // True after a tool result until the message with its call is reached (the loop goes backwards): no cut between
        // them.
        let mut is_inside = false;
        for (index, line) in lines.iter().enumerate().rev() {
            tail += line.tokens;
            match &*line.message {
                Message::ToolResult(_) => is_inside = true,
                Message::Assistant(_) => {
                    is_inside = false;
                    cuts.push((index, tail));
                }
                Message::User(_) | Message::Other(_) if is_inside => {}
                Message::User(_) | Message::Other(_) => cuts.push((index, tail)),
            }
        }
        Self(cuts)
    }

    /// Returns the first position after which the lines have at most `tokens`, else the last position.
    fn within(&self, tokens: u64) -> usize {
        let fitting = self.0.partition_point(|&(_, tail)| tail <= tokens);
        self.0.get(fitting.saturating_sub(1)).map_or(0, |&(index, _)| index)
    }

    /// Returns the first position between two turns from `cut` on, if at least half of the tokens after `cut` are also
    /// after it.
    fn between_turns(&self, lines: &[HistoryLine], cut: usize) -> usize {
        let later_cuts = self.0.iter().rev().skip_while(|&&(index, _)| index < cut);
        let next = later_cuts.copied().find(|&(index, _)| cut > 0 && matches!(*lines[index].message, Message::User(_)));
        next.filter(|&(_, tail)| tail >= self.tail(cut) / 2).map_or(cut, |(index, _)| index)
    }

    fn at_or_before(&self, line: usize) -> usize {
        let position = self.0.partition_point(|&(index, _)| index > line);
        self.0.get(position).map_or(0, |&(index, _)| index)
    }

    fn tail(&self, cut: usize) -> u64 {
        let position = self.0.partition_point(|&(index, _)| index > cut);
        self.0.get(position).map_or(u64::MAX, |&(_, tail)| tail)
    }
}

#[cfg(test)]
mod tests;
