//! An output item under construction: a message, reasoning or a call.
//!
//! Its text arrives in deltas, then completely with the end of its part, again with the end of the item, and once more
//! with the end of the answer. Servers omit any of these, so the emitted part is tracked and only the remainder is
//! emitted.

use std::collections::BTreeMap;

use homard_model::{ModelEvent, Signature, stream::CallDelta};
use serde_json::json;

use super::chunk::{Output, OutputPart, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
}

impl Kind {
    /// Returns the kind for a name of the API. Other kinds are the provider's own tools, which are not requested.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "message" => Some(Self::Message),
            "reasoning" => Some(Self::Reasoning),
            "function_call" => Some(Self::Call),
            _ => None,
        }
    }
}

/// Position in an item: reasoning has a summary and contents, the others only contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartPosition {
    Summary(u64),
    Content(u64),
}

#[derive(Debug)]
pub(super) struct Item {
    /// Position in the answer.
    pub(super) index: u64,
    pub(super) kind: Kind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    phase: Option<String>,
    /// The complete item as JSON, as received. Later requests send a reasoning item back to the provider unchanged.
    json: Option<String>,
    parts: BTreeMap<PartPosition, PartText>,
    /// Index of the call in the answer, once it was emitted.
    call: Option<usize>,
    /// True once the event with the start of the item was received.
    pub(super) has_begun: bool,
    /// True once the complete item was received.
    pub(super) is_complete: bool,
    /// True once the complete item was emitted.
    pub(super) is_emitted: bool,
}

/// Text of one part of an item, and how much of it was emitted.
#[derive(Debug, Default)]
struct PartText {
    text: String,
    /// Number of bytes that were emitted.
    emitted: usize,
    /// True once the complete text was received.
    is_whole: bool,
}

impl PartText {
    /// Sets the complete text. If it contradicts what was emitted, the old text stays.
    fn complete(&mut self, whole: String) {
        if whole.len() >= self.text.len() && whole.starts_with(&self.text[..self.emitted]) {
            self.text = whole;
        }
        self.is_whole = true;
    }

    /// Returns the part that was not emitted yet.
    fn take_unemitted(&mut self) -> String {
        let rest = self.text[self.emitted..].to_owned();
        self.emitted = self.text.len();
        rest
    }
}

impl Item {
    pub(super) fn new(index: u64, kind: Kind) -> Self {
        Self {
            index,
            kind,
            id: None,
            call_id: None,
            name: None,
            phase: None,
            json: None,
            parts: BTreeMap::new(),
            call: None,
            has_begun: false,
            is_complete: false,
            is_emitted: false,
        }
    }

    /// Appends text to a part. Deltas after the part is complete are ignored, because the complete text contains them.
    pub(super) fn add(&mut self, position: PartPosition, delta: &str) {
        let part = self.parts.entry(position).or_default();
        if !part.is_whole && !self.is_complete {
            part.text.push_str(delta);
        }
    }

    /// Sets the complete text of a part.
    pub(super) fn complete(&mut self, position: PartPosition, whole: String) {
        if !self.is_complete {
            self.parts.entry(position).or_default().complete(whole);
        }
    }

    /// Fills in the ids, name and phase of the item; values that are already set are kept.
    pub(super) fn begin(&mut self, output: &Output) {
        let fill = |field: &mut Option<String>, value: &Option<String>| {
            if field.as_ref().is_none_or(String::is_empty) {
                field.clone_from(value);
            }
        };
        fill(&mut self.id, &output.id);
        fill(&mut self.call_id, &output.call_id);
        fill(&mut self.name, &output.name);
        fill(&mut self.phase, &output.phase);
    }

    /// Sets the complete item, also as JSON.
    pub(super) fn end(&mut self, output: Output, json: &str) {
        if self.is_complete {
            return;
        }
        self.begin(&output);
        let parts = |list: Option<Vec<OutputPart>>| (0..).zip(list.unwrap_or_default());
        for (at, part) in parts(output.summary) {
            self.complete(PartPosition::Summary(at), part.into_text());
        }
        for (at, part) in parts(output.content) {
            self.complete(PartPosition::Content(at), part.into_text());
        }
        if let Some(arguments) = output.arguments {
            self.complete(PartPosition::Content(0), text(arguments));
        }
        self.json = Some(json.to_owned());
        self.is_complete = true;
    }

    /// Emits what was not emitted yet, as far as nothing before it is missing. `calls` counts the calls of the answer.
    pub(super) fn emit(&mut self, calls: &mut usize, events: &mut Vec<ModelEvent>) {
        match self.kind {
            Kind::Message | Kind::Reasoning => self.emit_text(events),
            Kind::Call => self.emit_call(calls, events),
        }
        if self.is_complete && !self.is_emitted {
            events.extend(self.signature().map(ModelEvent::Signature));
            self.is_emitted = true;
        }
    }

    fn emit_text(&mut self, events: &mut Vec<ModelEvent>) {
        let mut has_text = false;
        for part in self.parts.values_mut() {
            let is_first = part.emitted == 0;
            let mut rest = part.take_unemitted();
            if !rest.is_empty() {
                match self.kind {
                    Kind::Reasoning => {
                        if has_text && is_first {
                            rest.insert_str(0, "\n\n");
                        }
                        events.push(ModelEvent::Thinking(rest));
                    }
                    Kind::Message | Kind::Call => events.push(ModelEvent::Text(rest)),
                }
            }
            has_text |= part.emitted > 0;
            if !part.is_whole && !self.is_complete {
                break;
            }
        }
    }

    fn emit_call(&mut self, calls: &mut usize, events: &mut Vec<ModelEvent>) {
        let arguments = self.parts.entry(PartPosition::Content(0)).or_default();
        match self.call {
            Some(index) => {
                let arguments = arguments.take_unemitted();
                if !arguments.is_empty() {
                    events.push(ModelEvent::Call(CallDelta { index, arguments, ..CallDelta::default() }));
                }
            }
            // A call is emitted only with its ids and name, which the start of the item contains. If the item is
            // complete and they were missing, it is emitted without them.
            None if self.has_begun || self.is_complete => {
                let index = *calls;
                *calls += 1;
                self.call = Some(index);
                let arguments = arguments.take_unemitted();
                events.push(ModelEvent::Call(CallDelta {
                    index,
                    id: self.joined_id(),
                    name: self.name.clone(),
                    arguments,
                }));
            }
            None => {}
        }
    }

    /// Returns a call's id for transcripts: the call id that links its result, and the item id.
    fn joined_id(&self) -> Option<String> {
        let non_empty = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
        match (non_empty(&self.call_id), non_empty(&self.id)) {
            (Some(call), Some(item)) => Some(format!("{call}|{item}")),
            (call, item) => call.or(item),
        }
    }

    fn signature(&self) -> Option<Signature> {
        match self.kind {
            Kind::Message => {
                let id = self.id.as_ref().filter(|id| !id.is_empty())?;
                let has_text = self.parts.values().any(|part| part.emitted > 0);
                let value = match &self.phase {
                    Some(phase) => json!({"v": 1, "id": id, "phase": phase}).to_string(),
                    None => id.clone(),
                };
                has_text.then_some(Signature::Text(value))
            }
            Kind::Reasoning => self.json.clone().map(Signature::Thinking),
            Kind::Call => None,
        }
    }
}
