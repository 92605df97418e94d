//! The conversation as it is shown: items that grow, settle, and then go to the terminal's scrollback.
//!
//! Lines that were committed to the scrollback are never shown again. An item is committed when it is settled; of a
//! streamed answer, the stable lines are committed earlier if the screen has no room for them.

mod item;
mod tool_call;

pub(crate) use self::{
    item::{Detail, ModelText, Notice, Reasoning, TranscriptItem, UserMessage, duration},
    tool_call::ToolCall,
};
use crate::style::Line;

/// Maximum number of items that are kept for the pager.
const MAX_ITEMS: usize = 4_000;

/// Identifies an item.
pub(crate) type ItemId = u64;

#[derive(Debug)]
struct TranscriptEntry {
    id: ItemId,
    item: TranscriptItem,
}

/// The items, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    entries: Vec<TranscriptEntry>,
    next_id: ItemId,
    /// Number of items that were committed.
    committed: usize,
    /// Number of lines of the next one that were committed.
    partial: usize,
    /// Changes with every change of an item.
    version: u64,
}

impl Transcript {
    /// Appends an item.
    pub(crate) fn push(&mut self, item: TranscriptItem) -> ItemId {
        self.version += 1;
        self.next_id += 1;
        self.entries.push(TranscriptEntry { id: self.next_id, item });
        if self.committed > MAX_ITEMS {
            let excess = self.committed - MAX_ITEMS;
            self.entries.drain(..excess);
            self.committed -= excess;
        }
        self.next_id
    }

    /// Returns an item to change it.
    pub(crate) fn get_mut(&mut self, id: ItemId) -> Option<&mut TranscriptItem> {
        self.version += 1;
        self.entries.iter_mut().rev().find(|entry| entry.id == id).map(|entry| &mut entry.item)
    }

    /// Returns the ids of the items that satisfy a condition, oldest first.
    pub(crate) fn find(&self, condition: impl Fn(&TranscriptItem) -> bool) -> Vec<ItemId> {
        self.entries.iter().filter(|entry| condition(&entry.item)).map(|entry| entry.id).collect()
    }

    /// Returns the newest tool call with an id.
    pub(crate) fn tool(&self, call: &str) -> Option<ItemId> {
        let is_call = |entry: &&TranscriptEntry| matches!(&entry.item, TranscriptItem::Tool(tool) if tool.call == call);
        self.entries.iter().rev().find(is_call).map(|entry| entry.id)
    }

    /// True if part of an item is in the scrollback.
    pub(crate) fn is_committed(&self, id: ItemId) -> bool {
        match self.entries.iter().position(|entry| entry.id == id) {
            Some(index) => index < self.committed || (index == self.committed && self.partial > 0),
            None => true,
        }
    }

    /// Removes an item of which nothing was committed.
    pub(crate) fn remove(&mut self, id: ItemId) {
        if !self.is_committed(id) {
            self.version += 1;
            self.entries.retain(|entry| entry.id != id);
        }
    }

    /// Settles all items: nothing changes them any more.
    pub(crate) fn settle(&mut self) {
        self.version += 1;
        for entry in &mut self.entries[self.committed..] {
            entry.item.settle();
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Renders everything in detail.
    pub(crate) fn all_lines(&mut self, columns: usize, now: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        for index in 0..self.entries.len() {
            lines.extend(self.render(index, columns, now, Detail::Full).0);
        }
        lines
    }

    /// Renders what is not committed. First commits settled items, and then as many stable lines as exceed `room`:
    /// returns the committed lines and the others.
    pub(crate) fn lines(&mut self, columns: usize, room: usize, now: u64) -> (Vec<Line>, Vec<Line>) {
        let mut committed = Vec::new();
        while let Some(entry) = self.entries.get(self.committed)
            && entry.item.is_settled()
        {
            let (lines, _) = self.render(self.committed, columns, now, Detail::Compact);
            committed.extend(lines.into_iter().skip(self.partial));
            (self.committed, self.partial) = (self.committed + 1, 0);
        }
        let mut live = Vec::new();
        let mut stable = 0;
        for index in self.committed..self.entries.len() {
            let (lines, stable_lines) = self.render(index, columns, now, Detail::Compact);
            if index == self.committed {
                // After a change of the width, fewer lines than were committed may be left.
                let skipped = self.partial.min(lines.len());
                stable = stable_lines.saturating_sub(skipped);
                live.extend(lines.into_iter().skip(skipped));
            } else {
                live.extend(lines);
            }
        }
        let excess = live.len().saturating_sub(room).min(stable);
        self.partial += excess;
        committed.extend(live.drain(..excess));
        (committed, live)
    }

    /// Renders an item with the gap before it. Returns its lines, and how many of them are stable.
    fn render(&mut self, index: usize, columns: usize, now: u64, detail: Detail) -> (Vec<Line>, usize) {
        let has_gap =
            index > 0 && !(self.entries[index - 1].item.is_compact() && self.entries[index].item.is_compact());
        let (lines, stable) = self.entries[index].item.lines(columns, now, detail);
        if !has_gap || lines.is_empty() {
            return (lines, stable);
        }
        (std::iter::once(Line::default()).chain(lines).collect(), if stable > 0 { stable + 1 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn settled_items_are_committed_once() {
        let mut transcript = Transcript::default();
        transcript.push(TranscriptItem::User(UserMessage::of("hi")));
        let answer = transcript.push(TranscriptItem::ModelText(ModelText::streamed("r", "One.")));
        let (committed, live) = transcript.lines(40, 10, 0);
        assert_eq!(
            (texts(&committed), texts(&live)),
            (vec!["› hi".to_owned()], vec![String::new(), "One.".to_owned()])
        );
        transcript.get_mut(answer).unwrap().settle();
        let (committed, live) = transcript.lines(40, 10, 0);
        assert_eq!((texts(&committed), texts(&live)), (vec![String::new(), "One.".to_owned()], Vec::new()));
        assert_eq!(transcript.lines(40, 10, 0), (Vec::new(), Vec::new()));
        assert_eq!(transcript.all_lines(40, 0).len(), 3);
    }

    #[test]
    fn stable_lines_without_room_are_committed_early() {
        let mut transcript = Transcript::default();
        let answer = transcript.push(TranscriptItem::ModelText(ModelText::streamed("r", "a\n\nb\n\nc\n\nd\n")));
        let (committed, live) = transcript.lines(40, 4, 0);
        assert_eq!(texts(&committed), ["a", "", "b"]);
        assert_eq!(texts(&live), ["", "c", "", "d"]);
        let Some(TranscriptItem::ModelText(streamed)) = transcript.get_mut(answer) else { panic!() };
        streamed.text.set("a\n\nb\n\nc\n\nd\ne");
        streamed.is_settled = true;
        let (committed, live) = transcript.lines(40, 4, 0);
        assert_eq!((texts(&committed), live), (["", "c", "", "d", "e"].map(str::to_owned).to_vec(), Vec::new()));
    }
}
