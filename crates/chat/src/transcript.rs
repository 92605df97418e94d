//! The conversation as it is shown: items that grow, settle, and then go to the terminal's scrollback.
//!
//! Lines that were committed to the scrollback are never changed. An item is committed when it is settled; of a streamed
//! answer, the stable lines are committed earlier if the screen has no room for them. The last tool call, and what
//! follows it, is committed later: as long as the screen has room for it, the call can be expanded and collapsed.

mod item;
mod tool_call;

use std::collections::VecDeque;

pub(crate) use self::{
    item::{Detail, ItemLayout, ModelText, Notice, Reasoning, TranscriptItem, UserMessage, duration},
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
    /// True if the item shows a call again that is in the scrollback.
    is_copy: bool,
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
        self.append(item, false)
    }

    fn append(&mut self, item: TranscriptItem, is_copy: bool) -> ItemId {
        self.version += 1;
        self.next_id += 1;
        self.entries.push(TranscriptEntry { id: self.next_id, item, is_copy });
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

    /// Returns the command of a call that waits for an approval.
    pub(crate) fn waiting_command(&self, approval: &str) -> Option<String> {
        let command = |entry: &TranscriptEntry| match &entry.item {
            TranscriptItem::Tool(tool) if tool.approval() == Some(approval) => Some(tool.summary().to_owned()),
            TranscriptItem::User(_)
            | TranscriptItem::ModelText(_)
            | TranscriptItem::Reasoning(_)
            | TranscriptItem::Tool(_)
            | TranscriptItem::Notice(_)
            | TranscriptItem::Awaited { .. } => None,
        };
        self.entries.iter().rev().find_map(command)
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

    /// Puts items in the place of the awaited message of a run. Returns them if it is not awaited.
    pub(crate) fn fill_awaited(&mut self, run: &str, items: Vec<TranscriptItem>) -> Result<(), Vec<TranscriptItem>> {
        let is_place =
            |entry: &TranscriptEntry| matches!(&entry.item, TranscriptItem::Awaited { run: of, .. } if of == run);
        let Some(index) = self.entries.iter().position(is_place) else { return Err(items) };
        self.version += 1;
        let first_id = self.next_id + 1;
        self.next_id += items.len() as ItemId;
        let entries = (first_id..).zip(items).map(|(id, item)| TranscriptEntry { id, item, is_copy: false });
        self.entries.splice(index..=index, entries);
        Ok(())
    }

    /// Stops waiting for messages whose time is over.
    pub(crate) fn expire_awaited(&mut self, now: u64) {
        let is_over =
            |entry: &TranscriptEntry| matches!(entry.item, TranscriptItem::Awaited { until, .. } if until <= now);
        if self.entries[self.committed..].iter().any(is_over) {
            self.version += 1;
            self.entries.retain(|entry| !is_over(entry));
        }
    }

    /// Returns when the first awaited message is not awaited any more.
    pub(crate) fn awaited_until(&self) -> Option<u64> {
        let until = |entry: &TranscriptEntry| match entry.item {
            TranscriptItem::Awaited { until, .. } => Some(until),
            TranscriptItem::User(_)
            | TranscriptItem::ModelText(_)
            | TranscriptItem::Reasoning(_)
            | TranscriptItem::Tool(_)
            | TranscriptItem::Notice(_) => None,
        };
        self.entries[self.committed..].iter().filter_map(until).min()
    }

    /// Settles all items: nothing changes them any more.
    pub(crate) fn settle(&mut self) {
        self.version += 1;
        for entry in &mut self.entries[self.committed..] {
            entry.item.settle();
        }
    }

    /// Expands the last tool call, or collapses it. A call that is in the scrollback is shown again, expanded. Returns
    /// false if there is no call.
    pub(crate) fn toggle_last_tool(&mut self) -> bool {
        let is_tool = |entry: &TranscriptEntry| matches!(entry.item, TranscriptItem::Tool(_));
        let Some(index) = self.entries.iter().rposition(is_tool) else { return false };
        let is_committed = self.is_committed(self.entries[index].id);
        self.version += 1;
        let entry = &mut self.entries[index];
        let TranscriptItem::Tool(tool) = &mut entry.item else { return false };
        if is_committed {
            let mut copy = tool.clone();
            copy.is_expanded = true;
            self.append(TranscriptItem::Tool(copy), true);
        } else if entry.is_copy {
            self.entries.remove(index);
        } else {
            tool.is_expanded = !tool.is_expanded;
        }
        true
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Renders everything in detail.
    pub(crate) fn all_lines(&mut self, columns: usize, now: u64) -> Vec<Line> {
        let layout = ItemLayout { columns, rows: usize::MAX, now, detail: Detail::Full };
        let mut lines = Vec::new();
        for index in 0..self.entries.len() {
            if !self.entries[index].is_copy {
                lines.extend(self.render(index, layout).0);
            }
        }
        lines
    }

    /// Commits everything, settled or not, and renders what was not committed before.
    pub(crate) fn finish(&mut self, columns: usize, now: u64) -> Vec<Line> {
        let layout = ItemLayout { columns, rows: usize::from(u16::MAX), now, detail: Detail::Compact };
        let mut lines = Vec::new();
        while self.committed < self.entries.len() {
            self.commit(layout, &mut lines);
        }
        lines
    }

    /// Renders what is not committed. First commits settled items, and then as many lines as exceed `room`: returns the
    /// committed lines and the others.
    pub(crate) fn lines(&mut self, columns: usize, room: usize, now: u64) -> (Vec<Line>, Vec<Line>) {
        // The gap before an item takes a row.
        let layout = ItemLayout { columns, rows: room.saturating_sub(1), now, detail: Detail::Compact };
        let mut committed = Vec::new();
        let last_tool = self.last_tool();
        while self.committed < last_tool.unwrap_or(usize::MAX) && self.is_next_settled() {
            self.commit(layout, &mut committed);
        }
        let mut items = VecDeque::new();
        for index in self.committed..self.entries.len() {
            let detail = if Some(index) == last_tool { Detail::Last } else { Detail::Compact };
            let (mut lines, mut stable) = self.render(index, ItemLayout { detail, ..layout });
            if index == self.committed {
                // After a change of the width, fewer lines than were committed may be left.
                let skipped = self.partial.min(lines.len());
                stable = stable.saturating_sub(skipped);
                lines.drain(..skipped);
            }
            items.push_back((lines, stable));
        }
        let count = |items: &VecDeque<(Vec<Line>, usize)>| items.iter().map(|(lines, _)| lines.len()).sum::<usize>();
        // Without room, the last tool call goes to the scrollback as well.
        while count(&items) > room && self.is_next_settled() {
            items.pop_front();
            self.commit(layout, &mut committed);
        }
        let excess = count(&items).saturating_sub(room);
        if let Some((lines, stable)) = items.front_mut() {
            let excess = excess.min(*stable);
            self.partial += excess;
            committed.extend(lines.drain(..excess));
        }
        (committed, items.into_iter().flat_map(|(lines, _)| lines).collect())
    }

    /// Returns the index of the last tool call of the last run.
    fn last_tool(&self) -> Option<usize> {
        let is_end = |item: &TranscriptItem| matches!(item, TranscriptItem::Tool(_) | TranscriptItem::User(_));
        let last = self.entries.iter().rposition(|entry| is_end(&entry.item));
        last.filter(|index| matches!(self.entries[*index].item, TranscriptItem::Tool(_)))
    }

    fn is_next_settled(&self) -> bool {
        self.entries.get(self.committed).is_some_and(|entry| entry.item.is_settled())
    }

    /// Commits the next item.
    fn commit(&mut self, layout: ItemLayout, committed: &mut Vec<Line>) {
        let (lines, _) = self.render(self.committed, layout);
        committed.extend(lines.into_iter().skip(self.partial));
        (self.committed, self.partial) = (self.committed + 1, 0);
    }

    /// Renders an item with the gap before it. Returns its lines, and how many of them are stable.
    fn render(&mut self, index: usize, layout: ItemLayout) -> (Vec<Line>, usize) {
        let is_awaited = |entry: &&TranscriptEntry| matches!(entry.item, TranscriptItem::Awaited { .. });
        let before = self.entries[..index].iter().rev().find(|entry| !is_awaited(entry));
        let has_gap = before.is_some_and(|before| !(before.item.is_compact() && self.entries[index].item.is_compact()));
        let (lines, stable) = self.entries[index].item.lines(layout);
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
    fn the_last_tool_call_can_be_expanded_as_long_as_there_is_room() {
        let mut transcript = Transcript::default();
        assert!(!transcript.toggle_last_tool());
        for call in ["c1", "c2"] {
            let mut tool = ToolCall::started(call, "read", &serde_json::json!({"path": call}), 0);
            tool.finish(&serde_json::json!({"content": [{"type": "text", "text": "a\nb"}]}), false, 0);
            transcript.push(TranscriptItem::Tool(Box::new(tool)));
        }
        let (committed, live) = transcript.lines(40, 10, 0);
        assert_eq!((texts(&committed), texts(&live)), (vec!["✓ read c1".to_owned()], vec!["✓ read c2".to_owned()]));
        assert!(transcript.toggle_last_tool());
        let (committed, live) = transcript.lines(40, 10, 0);
        assert_eq!(
            (texts(&committed), texts(&live)),
            (vec![], ["✓ read c2", "  │ a", "  │ b"].map(str::to_owned).to_vec())
        );
        assert!(transcript.toggle_last_tool());
        // The end of the conversation commits it; then it is shown again, and disappears when it is collapsed.
        assert_eq!(texts(&transcript.finish(40, 0)), ["✓ read c2"]);
        assert!(transcript.toggle_last_tool());
        assert_eq!(texts(&transcript.lines(40, 10, 0).1), ["✓ read c2", "  │ a", "  │ b"]);
        assert_eq!(transcript.all_lines(40, 0).len(), 6);
        assert!(transcript.toggle_last_tool());
        assert_eq!(transcript.lines(40, 10, 0), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_tool_call_without_room_goes_to_the_scrollback() {
        let mut transcript = Transcript::default();
        let mut tool = ToolCall::started("c", "read", &serde_json::json!({"path": "x"}), 0);
        tool.finish(&serde_json::Value::Null, false, 0);
        transcript.push(TranscriptItem::Tool(Box::new(tool)));
        transcript.push(TranscriptItem::ModelText(ModelText::streamed("r", "a\n\nb\n\nc")));
        let (committed, live) = transcript.lines(40, 5, 0);
        assert_eq!(texts(&committed), ["✓ read x", ""]);
        assert_eq!(texts(&live), ["a", "", "b", "", "c"]);
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
