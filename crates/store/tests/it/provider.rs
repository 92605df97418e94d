//! Models of what providers reject, derived from their responses and not from the repair.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use homard_proto::message::{Assistant, Block, Content, Message, StopReason};
use homard_store::repair::ProviderPolicy;

/// A provider, and what it rejects.
pub(crate) struct FakeProvider {
    pub(crate) name: [&'static str; 3],
    accepts_id: fn(&str) -> bool,
    accepts_reused_ids: bool,
    accepts_blanks: bool,
    accepts_consecutive_users: bool,
    requires_user_first: bool,
}

/// A provider that accepts almost anything.
const LENIENT: FakeProvider = FakeProvider {
    name: ["openai-completions", "openai", "gpt-5"],
    accepts_id: |id| !id.trim().is_empty(),
    accepts_reused_ids: true,
    accepts_blanks: true,
    accepts_consecutive_users: true,
    requires_user_first: false,
};

pub(crate) const PROVIDERS: [FakeProvider; 7] = [
    LENIENT,
    FakeProvider { name: ["openai-responses", "openai", "gpt-5"], ..LENIENT },
    FakeProvider { name: ["openai-completions", "openrouter", "google/gemini-3"], accepts_blanks: false, ..LENIENT },
    FakeProvider {
        name: ["anthropic-messages", "anthropic", "claude"],
        accepts_id: |id| {
            (1..=64).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        },
        accepts_reused_ids: false,
        accepts_blanks: false,
        accepts_consecutive_users: false,
        ..LENIENT
    },
    FakeProvider {
        name: ["google-generative-ai", "google", "gemini-3"],
        accepts_id: |id| (1..=40).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric()),
        accepts_reused_ids: false,
        accepts_blanks: false,
        requires_user_first: true,
        ..LENIENT
    },
    FakeProvider {
        name: ["google-antigravity", "google-antigravity", "claude"],
        accepts_id: |id| (1..=40).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric()),
        accepts_reused_ids: false,
        accepts_blanks: false,
        requires_user_first: true,
        ..LENIENT
    },
    FakeProvider {
        name: ["openai-completions", "mistral", "mistral-large"],
        accepts_id: |id| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()),
        accepts_reused_ids: false,
        accepts_blanks: false,
        ..LENIENT
    },
];

impl FakeProvider {
    pub(crate) fn policy(&self) -> ProviderPolicy {
        let [api, provider, model] = self.name;
        ProviderPolicy::of(api, provider, model)
    }

    /// Checks a request; returns why it would be rejected.
    pub(crate) fn check(&self, request: &[Arc<Message>]) -> Result<(), String> {
        let mut due: VecDeque<&str> = VecDeque::new();
        let mut used = HashSet::new();
        let mut last = "";
        for (index, message) in request.iter().enumerate() {
            let reject = |reason: &str| Err(format!("{}: message {index}: {reason}", self.name.join("/")));
            if !matches!(&**message, Message::ToolResult(_)) && !due.is_empty() {
                return reject(&format!("calls {due:?} have no result right behind them"));
            }
            if !self.accepts_blanks && blocks(message).iter().any(is_blank) {
                return reject("a block of text is blank");
            }
            let role = match &**message {
                Message::User(_) if last == "user" && !self.accepts_consecutive_users => {
                    return reject("users in a row");
                }
                Message::User(_) => "user",
                Message::Assistant(assistant) => {
                    if let Some(reason) = self.rejection(assistant, last, &mut used) {
                        return reject(&reason);
                    }
                    due.extend(assistant.tool_calls().map(|call| call.id.as_str()));
                    "assistant"
                }
                Message::ToolResult(result) if due.pop_front() == Some(&result.tool_call_id) => "tool",
                Message::ToolResult(result) => return reject(&format!("result {} is not wanted", result.tool_call_id)),
                Message::Other(_) => return reject("unknown role"),
            };
            last = role;
        }
        match request.last().map(|last| &**last) {
            Some(Message::User(_)) => Ok(()),
            other => Err(format!("{}: the last message is {other:?}", self.name.join("/"))),
        }
    }

    fn rejection(&self, assistant: &Assistant, last: &str, used: &mut HashSet<String>) -> Option<String> {
        if matches!(assistant.stop_reason, StopReason::Error | StopReason::Aborted) {
            return Some("half an answer".to_owned());
        }
        if assistant.content.iter().all(|block| matches!(block, Block::Other(_))) {
            return Some("an answer without content".to_owned());
        }
        if self.requires_user_first && !["user", "tool"].contains(&last) {
            return Some(format!("an answer after {last:?}"));
        }
        if self.accepts_reused_ids {
            used.clear();
        }
        assistant.tool_calls().find_map(|call| match () {
            () if !(self.accepts_id)(&call.id) => Some(format!("id {:?}", call.id)),
            () if !used.insert(call.id.clone()) => Some(format!("id {:?} is used again", call.id)),
            () if !call.arguments.is_object() => Some(format!("arguments {}", call.arguments)),
            () => None,
        })
    }
}

fn blocks(message: &Message) -> Vec<Block> {
    match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => vec![Block::text(text)],
            Content::Blocks(blocks) => blocks.clone(),
        },
        Message::Assistant(assistant) => assistant.content.clone(),
        Message::ToolResult(result) => result.content.clone(),
        Message::Other(_) => Vec::new(),
    }
}

fn is_blank(block: &Block) -> bool {
    block.as_text().is_some_and(|text| text.trim().is_empty())
}
