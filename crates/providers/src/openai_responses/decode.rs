//! Decoder for responses of the Responses API.
//!
//! Items are emitted in order: content of a later item waits until the earlier one is complete.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use homard_model::{Error, ErrorKind, ModelEvent, classify::classify, stream::AnswerEnd};
use homard_proto::message::{StopReason, Usage};

use super::{
    chunk::{self, Chunk, Output, Response, text},
    item::{Item, Kind, PartPosition},
};
use crate::{
    sse::Frame,
    wire::{Decode, malformed_event, truncated_event},
};

/// Decoder state.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Items in the order of the answer.
    items: Vec<Item>,
    calls: usize,
    /// Sequence numbers of the events so far, with a hash of each.
    numbers: HashMap<i64, u64>,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) {
        if frame.data.trim() == "[DONE]" {
            events.push(truncated_event());
            return;
        }
        let result = serde_json::from_str(&frame.data).and_then(|chunk| self.chunk(chunk, frame, events));
        if let Err(error) = result {
            events.push(malformed_event(frame, &error));
        }
    }

    fn finish(&mut self) -> ModelEvent {
        truncated_event()
    }
}

impl Decoder {
    fn chunk(&mut self, mut chunk: Chunk<'_>, frame: &Frame, events: &mut Vec<ModelEvent>) -> serde_json::Result<()> {
        if self.is_repeated(chunk.sequence_number, &frame.data) {
            return Ok(());
        }
        let name = chunk.r#type.take().unwrap_or_else(|| frame.event.clone());
        match name.as_str() {
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                return self.end(&name, &chunk, events);
            }
            "response.output_item.added" => self.begin_item(&chunk)?,
            "response.output_item.done" => self.end_item(&chunk)?,
            name if name == "error" || chunk.error.is_some() => {
                events.push(ModelEvent::Failed(classify(None, &[], &frame.data)));
            }
            name => match (part_of_event(name, &chunk), name.rsplit('.').next()) {
                (Some((kind, position)), Some("delta")) => {
                    let delta = chunk.delta.take().map(text).unwrap_or_default();
                    self.item(&chunk, kind).add(position, &delta);
                }
                (Some((kind, position)), Some("done")) => {
                    let whole = chunk.whole();
                    let name = chunk.name.take();
                    let item = self.item(&chunk, kind);
                    item.name = item.name.take().or(name);
                    item.complete(position, whole);
                }
                (Some(_), _) => {}
                // `response.created`, `response.in_progress`, heartbeats, and unrequested events.
                (None, _) => events.push(ModelEvent::Heartbeat),
            },
        }
        self.emit(events);
        Ok(())
    }

    /// True if an event was received before. Some servers give all events the same number, so an equal event counts as
    /// repeated only if other numbers were seen.
    fn is_repeated(&mut self, number: Option<i64>, data: &str) -> bool {
        let Some(number) = number else { return false };
        let mut hasher = DefaultHasher::new();
        data.hash(&mut hasher);
        let hash = hasher.finish();
        self.numbers.insert(number, hash) == Some(hash) && self.numbers.len() > 1
    }

    /// Emits all complete items from the beginning, and the available part of the next one.
    fn emit(&mut self, events: &mut Vec<ModelEvent>) {
        for item in &mut self.items {
            if item.is_emitted {
                continue;
            }
            item.emit(&mut self.calls, events);
            if !item.is_complete {
                break;
            }
        }
    }

    /// Handles `response.output_item.added`: sets the ids and names of the item, which is created if necessary.
    fn begin_item(&mut self, chunk: &Chunk<'_>) -> serde_json::Result<()> {
        let Some((kind, output)) = read(chunk.item)? else { return Ok(()) };
        // Deltas that arrived earlier may have created the item. One that has already begun is a different item.
        let index = chunk.output_index;
        let existing = self.with_id(kind, output.id.as_deref()).or_else(|| {
            let is_same = |item: &Item| item.kind == kind && Some(item.index) == index && !item.has_begun;
            self.items.iter().rposition(is_same)
        });
        let at = existing.unwrap_or_else(|| self.insert(index, kind));
        self.items[at].begin(&output);
        self.items[at].has_begun = true;
        Ok(())
    }

    fn end_item(&mut self, chunk: &Chunk<'_>) -> serde_json::Result<()> {
        let (Some((kind, output)), Some(json)) = (read(chunk.item)?, chunk.item) else { return Ok(()) };
        let at = self.find(kind, output.id.as_deref(), chunk.output_index);
        let at = at.unwrap_or_else(|| self.insert(chunk.output_index, kind));
        self.items[at].end(output, json.get());
        Ok(())
    }

    /// Returns the item of an event; creates it if the event is the first.
    fn item(&mut self, chunk: &Chunk<'_>, kind: Kind) -> &mut Item {
        let at = self.find(kind, chunk.item_id.as_deref(), chunk.output_index);
        let at = at.unwrap_or_else(|| {
            let at = self.insert(chunk.output_index, kind);
            self.items[at].id.clone_from(&chunk.item_id);
            at
        });
        &mut self.items[at]
    }

    /// Finds an item by its id, or else by its position: some servers use another id in every event.
    fn find(&self, kind: Kind, id: Option<&str>, index: Option<u64>) -> Option<usize> {
        self.with_id(kind, id).or_else(|| {
            let is_at_index = |item: &Item| match index {
                Some(index) => item.index == index,
                None => id.is_none() || item.id.is_none(),
            };
            self.items.iter().rposition(|item| item.kind == kind && is_at_index(item))
        })
    }

    fn with_id(&self, kind: Kind, id: Option<&str>) -> Option<usize> {
        let id = id.filter(|id| !id.is_empty())?;
        self.items.iter().position(|item| item.kind == kind && item.id.as_deref() == Some(id))
    }

    /// Inserts an item at its position, or at the end if that is unknown.
    fn insert(&mut self, index: Option<u64>, kind: Kind) -> usize {
        let next = || self.items.last().map_or(0, |last| last.index.saturating_add(1));
        let index = index.unwrap_or_else(next);
        let at = self.items.partition_point(|item| item.index <= index);
        self.items.insert(at, Item::new(index, kind));
        at
    }

    fn end(&mut self, name: &str, chunk: &Chunk<'_>, events: &mut Vec<ModelEvent>) -> serde_json::Result<()> {
        let response = match chunk.response {
            Some(json) => serde_json::from_str(json.get())?,
            None => Response::default(),
        };
        let status = response.status.as_deref().unwrap_or(name.trim_start_matches("response."));
        if matches!(status, "failed" | "cancelled") || name == "response.failed" {
            let error = response.error.map_or("null", |error| error.get());
            events.push(ModelEvent::Failed(classify(None, &[], &format!("{{\"error\":{error}}}"))));
            return Ok(());
        }
        for (index, json) in (0..).zip(response.output.iter().flatten()) {
            self.merge_final(index, json)?;
        }
        for item in &mut self.items {
            item.is_complete = true;
        }
        self.emit(events);
        let reason = response.incomplete_details.and_then(|details| details.reason);
        let is_incomplete = status == "incomplete" || name == "response.incomplete";
        let stop = match (is_incomplete, reason.as_deref()) {
            (true, Some("content_filter")) => {
                let message = "the provider's content filter stopped the answer";
                events.push(ModelEvent::Failed(Error::new(ErrorKind::ContentFilter, message)));
                return Ok(());
            }
            (true, _) => StopReason::Length,
            (false, _) if self.calls > 0 => StopReason::ToolUse,
            (false, _) => StopReason::Stop,
        };
        // An empty end event without any item is not an answer.
        let is_answer = chunk.response.is_some() || !self.items.is_empty();
        let usage = response.usage.map(Usage::from).unwrap_or_default();
        events.push(if is_answer { ModelEvent::Done(AnswerEnd { stop, usage }) } else { truncated_event() });
        Ok(())
    }

    /// Merges an item of the list at the end of the answer, unless it is known: servers number that list differently.
    fn merge_final(&mut self, index: u64, json: &serde_json::value::RawValue) -> serde_json::Result<()> {
        let Some((kind, output)) = read(Some(json))? else { return Ok(()) };
        let has_call_id = |item: &Item| output.call_id.is_some() && item.call_id == output.call_id;
        let is_at_index = |item: &Item| item.kind == kind && item.index == index;
        let existing = self.with_id(kind, output.id.as_deref());
        let existing = existing
            .or_else(|| self.items.iter().position(has_call_id))
            .or_else(|| self.items.iter().position(is_at_index));
        let is_free = self.items.iter().all(|item| item.index != index);
        if let Some(at) = existing.or_else(|| is_free.then(|| self.insert(Some(index), kind))) {
            self.items[at].end(output, json.get());
        }
        Ok(())
    }
}

/// Parses an item, if its kind is supported.
fn read(json: Option<&serde_json::value::RawValue>) -> serde_json::Result<Option<(Kind, Output)>> {
    let Some(json) = json else { return Ok(None) };
    let chunk::Kind { r#type } = serde_json::from_str(json.get())?;
    let Some(kind) = r#type.as_deref().and_then(Kind::named) else { return Ok(None) };
    Ok(Some((kind, serde_json::from_str(json.get())?)))
}

/// Returns the part of an item that an event is about.
fn part_of_event(name: &str, chunk: &Chunk<'_>) -> Option<(Kind, PartPosition)> {
    let content = PartPosition::Content(chunk.content_index.unwrap_or(0));
    let part = chunk.part.as_ref().and_then(|part| part.r#type.as_deref());
    let (what, _) = name.strip_prefix("response.")?.rsplit_once('.')?;
    match (what, part) {
        ("content_part", Some("reasoning_text")) | ("reasoning_text", _) => Some((Kind::Reasoning, content)),
        ("content_part" | "output_text" | "refusal", _) => Some((Kind::Message, content)),
        ("reasoning_summary_text" | "reasoning_summary_part", _) => {
            Some((Kind::Reasoning, PartPosition::Summary(chunk.summary_index.unwrap_or(0))))
        }
        ("function_call_arguments", _) => Some((Kind::Call, PartPosition::Content(0))),
        _ => None,
    }
}
