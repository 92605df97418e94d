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
    for at in 0..history.len() {
        let changed = match &*history[at] {
            Message::Assistant(said) if said.tool_calls().next().is_some() => {
                if rule == IdForm::Any {
                    names = IdAllocator::new(rule);
                    names.reserve(&history[at..=at]);
                }
                let ids: Vec<_> = said.tool_calls().map(|call| names.assign(&call.id)).collect();
                let differs = said.tool_calls().zip(&ids).any(|(call, id)| call.id != *id);
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
            rename(Arc::make_mut(&mut history[at]), ids);
        }
    }
}

fn rename(message: &mut Message, ids: Vec<String>) {
    let mut ids = ids.into_iter();
    match message {
        Message::Assistant(said) => {
            for block in &mut said.content {
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
    taken: HashSet<String>,
    /// Last numeric suffix used for an id.
    numbers: HashMap<String, usize>,
}

impl IdAllocator {
    fn new(rule: IdForm) -> Self {
        Self { rule, reserved: HashSet::new(), taken: HashSet::new(), numbers: HashMap::new() }
    }

    fn reserve(&mut self, history: &[Arc<Message>]) {
        for message in history {
            if let Message::Assistant(said) = &**message {
                let fitting = said.tool_calls().filter(|call| self.rule.fits(&call.id));
                self.reserved.extend(fitting.map(|call| call.id.clone()));
            }
        }
    }

    /// Returns a unique id for one call.
    fn assign(&mut self, id: &str) -> String {
        if self.rule.fits(id) && self.taken.insert(id.to_owned()) {
            return id.to_owned();
        }
        let shape = self.rule.nearest_valid(id);
        if !self.reserved.contains(&shape) && self.taken.insert(shape.clone()) {
            return shape;
        }
        let number = self.numbers.entry(shape.clone()).or_insert(1);
        loop {
            *number += 1;
            let name = self.rule.numbered(&shape, *number);
            if !self.reserved.contains(&name) && self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

impl IdForm {
    fn fits(self, id: &str) -> bool {
        let is_made_of =
            |most: usize, allowed: fn(char) -> bool| !id.is_empty() && id.len() <= most && id.chars().all(allowed);
        match self {
            Self::Any => !id.trim().is_empty(),
            Self::Word => is_made_of(64, is_word),
            Self::Strict => is_made_of(40, |c| c.is_ascii_alphanumeric()),
            Self::Strict9 => id.len() == 9 && is_made_of(9, |c| c.is_ascii_alphanumeric()),
        }
    }

    /// Returns the nearest valid id.
    fn nearest_valid(self, id: &str) -> String {
        let made_of = |most: usize, allowed: fn(char) -> bool| {
            let id: String = id.chars().filter(|&c| allowed(c)).take(most).collect();
            if id.is_empty() { DEFAULT_ID.to_owned() } else { id }
        };
        match self {
            Self::Any if id.trim().is_empty() => DEFAULT_ID.to_owned(),
            Self::Any => id.to_owned(),
            Self::Word => made_of(64, is_word),
            Self::Strict => made_of(40, |c| c.is_ascii_alphanumeric()),
            Self::Strict9 => format!("{:0<9}", made_of(9, |c| c.is_ascii_alphanumeric())),
        }
    }

    /// Returns a valid id with a numeric suffix.
    fn numbered(self, shape: &str, number: usize) -> String {
        let cut = |most: usize| {
            let number = number.to_string();
            format!("{}{number}", &shape[..shape.len().min(most.saturating_sub(number.len()))])
        };
        match self {
            Self::Any => format!("{shape}_{number}"),
            Self::Word => cut(64),
            Self::Strict => cut(40),
            Self::Strict9 => cut(9),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
