//! Makes tool call ids valid and unique for the provider.
//!
//! A result has its call's id. The history must be paired: the results of a message's calls follow it, in the order of
//! the calls.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use homard_proto::message::{Block, Message};

use super::policy::IdForm;

/// Id for a call without a usable one.
const DEFAULT_ID: &str = "call";

/// Renames the calls whose ids the provider would not accept, and their results with them.
///
/// The first use of a valid id keeps it, whatever other ids would be shortened to.
pub(super) fn make_valid(history: &mut [Arc<Message>], rule: IdForm) {
    let mut names = IdAllocator::new(rule);
    if rule != IdForm::Any {
        names.reserve(history);
    }
    let mut due = std::collections::VecDeque::new();
    for index in 0..history.len() {
        let changed = match &*history[index] {
            Message::Assistant(assistant) if assistant.tool_calls().next().is_some() => {
                if rule == IdForm::Any {
                    names = IdAllocator::new(rule);
                    names.reserve(&history[index..=index]);
                }
                let ids: Vec<_> = assistant.tool_calls().map(|call| names.assign(&call.id)).collect();
                let differs = assistant.tool_calls().zip(&ids).any(|(call, id)| call.id != *id);
                due = ids.iter().cloned().collect();
                differs.then_some(ids)
            }
            Message::ToolResult(result) => {
                let id = due.pop_front();
                id.filter(|id| *id != result.tool_call_id).map(|id| vec![id])
            }
            Message::Assistant(_) | Message::User(_) | Message::Other(_) => None,
        };
        if let Some(ids) = changed {
            rename(Arc::make_mut(&mut history[index]), ids);
        }
    }
}

fn rename(message: &mut Message, ids: Vec<String>) {
    let mut ids = ids.into_iter();
    match message {
        Message::Assistant(assistant) => {
            for block in &mut assistant.content {
                if let Block::ToolCall(call) = block
                    && let Some(id) = ids.next()
                {
                    call.id = id;
                }
            }
        }
        Message::ToolResult(result) => result.tool_call_id = ids.next().unwrap_or_default(),
        Message::User(_) | Message::Other(_) => {}
    }
}

/// Ids in use.
struct IdAllocator {
    rule: IdForm,
    /// Ids that are valid as they are and must not be assigned to other calls.
    reserved: HashSet<String>,
    used: HashSet<String>,
    /// Last numeric suffix used for an id.
    numbers: HashMap<String, usize>,
}

impl IdAllocator {
    fn new(rule: IdForm) -> Self {
        Self { rule, reserved: HashSet::new(), used: HashSet::new(), numbers: HashMap::new() }
    }

    fn reserve(&mut self, history: &[Arc<Message>]) {
        for message in history {
            if let Message::Assistant(assistant) = &**message {
                let valid = assistant.tool_calls().filter(|call| self.rule.fits(&call.id));
                self.reserved.extend(valid.map(|call| call.id.clone()));
            }
        }
    }

    /// Returns a unique id for one call.
    fn assign(&mut self, id: &str) -> String {
        if self.rule.fits(id) && self.used.insert(id.to_owned()) {
            return id.to_owned();
        }
        let base = self.rule.nearest_valid(id);
        if !self.reserved.contains(&base) && self.used.insert(base.clone()) {
            return base;
        }
        let number = self.numbers.entry(base.clone()).or_insert(1);
        loop {
            *number += 1;
            let name = self.rule.numbered(&base, *number);
            if !self.reserved.contains(&name) && self.used.insert(name.clone()) {
                return name;
            }
        }
    }
}

impl IdForm {
    fn fits(self, id: &str) -> bool {
        let matches = |max_length: usize, allowed: fn(char) -> bool| {
            !id.is_empty() && id.len() <= max_length && id.chars().all(allowed)
        };
        match self {
            Self::Any => !id.trim().is_empty(),
            Self::Word => matches(64, is_word),
            Self::Strict => matches(40, |c| c.is_ascii_alphanumeric()),
            Self::Strict9 => id.len() == 9 && matches(9, |c| c.is_ascii_alphanumeric()),
        }
    }

    /// Returns the nearest valid id.
    fn nearest_valid(self, id: &str) -> String {
        let filtered = |max_length: usize, allowed: fn(char) -> bool| {
            let id: String = id.chars().filter(|&c| allowed(c)).take(max_length).collect();
            if id.is_empty() { DEFAULT_ID.to_owned() } else { id }
        };
        match self {
            Self::Any if id.trim().is_empty() => DEFAULT_ID.to_owned(),
            Self::Any => id.to_owned(),
            Self::Word => filtered(64, is_word),
            Self::Strict => filtered(40, |c| c.is_ascii_alphanumeric()),
            Self::Strict9 => format!("{:0<9}", filtered(9, |c| c.is_ascii_alphanumeric())),
        }
    }

    /// Returns a valid id with a numeric suffix.
    fn numbered(self, base: &str, number: usize) -> String {
        let truncated = |max_length: usize| {
            let number = number.to_string();
            format!("{}{number}", &base[..base.len().min(max_length.saturating_sub(number.len()))])
        };
        match self {
            Self::Any => format!("{base}_{number}"),
            Self::Word => truncated(64),
            Self::Strict => truncated(40),
            Self::Strict9 => truncated(9),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
