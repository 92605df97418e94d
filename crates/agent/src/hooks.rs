//! Hook contexts, and messages that hooks may change before they are stored.

use std::sync::Arc;

pub(crate) use homard_hooks::Context;
use homard_hooks::{Event, Hooks, Persist, Point};
use homard_proto::{
    SessionId, SessionKey,
    message::{Block, Content, Message, ToolResult},
};
use serde_json::Value;

use crate::{hub::Inbound, lane::slots::Class, profile::Profile};

/// Replacement for text that a hook rejected.
const WITHHELD: &str = "[withheld by a hook]";

/// Builds the hook context of a session.
pub(crate) fn place(profile: &Profile, key: &SessionKey, session: Option<&SessionId>) -> Context {
    Context {
        agent_id: Some(key.agent().unwrap_or(&profile.id).to_string()),
        session_key: Some(key.to_string()),
        session_id: session.map(ToString::to_string),
        workspace_dir: Some(profile.home().clone()),
        ..Context::default()
    }
}

/// Builds the hook context of a message and its run.
pub(crate) fn place_of(profile: &Profile, session: Option<&SessionId>, inbound: &Inbound) -> Context {
    let route = &inbound.route;
    let surface = route.channel.clone().unwrap_or_else(|| "webchat".to_owned());
    Context {
        run_id: Some(inbound.run.to_string()),
        message_provider: Some(surface.clone()),
        channel: Some(surface.clone()),
        channel_id: Some(surface),
        chat_id: route.to.clone(),
        account_id: route.account.clone(),
        conversation_id: route.to.clone(),
        sender_id: Some(sender(inbound).to_owned()),
        message_id: message_id(inbound).map(str::to_owned),
        trigger: Some(trigger(inbound.class).to_owned()),
        ..place(profile, &inbound.key, session)
    }
}

/// Returns the sender's id on its channel, else the principal.
pub(crate) fn sender(inbound: &Inbound) -> &str {
    inbound.sender.as_ref().map_or(&inbound.principal, |sender| &sender.id)
}

/// Returns the message's id on its channel.
pub(crate) fn message_id(inbound: &Inbound) -> Option<&str> {
    inbound.post.as_ref().filter(|post| post.is_origin)?.reply_to.as_deref()
}

fn trigger(class: Class) -> &'static str {
    match class {
        Class::Main | Class::Nested | Class::Subagent => "user",
        Class::Cron => "cron",
        Class::Heartbeat => "heartbeat",
    }
}

/// Returns a tool's result to store, after hooks.
pub(crate) async fn persist(
    hooks: &Hooks,
    place: &Context,
    shown: Arc<ToolResult>,
    is_synthetic: bool,
) -> Arc<ToolResult> {
    if !hooks.has(Point::ToolResultPersist) && !hooks.has(Point::BeforeMessageWrite) {
        return shown;
    }
    let mut message = Message::ToolResult((*shown).clone());
    if hooks.has(Point::ToolResultPersist) {
        let event = Event::ToolResultPersist(Persist {
            tool_name: shown.tool_name.clone(),
            tool_call_id: shown.tool_call_id.clone(),
            message: as_value(&message),
            is_synthetic,
        });
        let place = Context {
            tool_name: Some(shown.tool_name.clone()),
            tool_call_id: Some(shown.tool_call_id.clone()),
            ..place.clone()
        };
        message = rewritten(message, hooks.ask(event, &place).await);
    }
    match write(hooks, place, message).await {
        Message::ToolResult(kept) if kept == *shown => shown,
        Message::ToolResult(kept) => Arc::new(kept),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => shown,
    }
}

/// Returns a message to store, after hooks.
pub(crate) async fn write(hooks: &Hooks, place: &Context, message: Message) -> Message {
    if !hooks.has(Point::BeforeMessageWrite) {
        return message;
    }
    let event = Event::BeforeMessageWrite { message: as_value(&message) };
    rewritten(message, hooks.ask(event, place).await)
}

fn as_value(message: &Message) -> Value {
    serde_json::to_value(message).unwrap_or_default()
}

fn rewritten(message: Message, outcome: homard_hooks::Outcome) -> Message {
    if outcome.refusal().is_some() {
        return withheld(message);
    }
    let Some(wanted) = outcome.answer.message else { return message };
    match serde_json::from_value::<Message>(wanted) {
        Ok(wanted) if is_same_step(&message, &wanted) => wanted,
        Ok(_) => {
            tracing::warn!("a hook wanted another kind of message, or other calls, in place of one; it stays as it is");
            message
        }
        Err(error) => {
            tracing::warn!(%error, "hook returned an invalid message; keeping the original");
            message
        }
    }
}

/// True if a message can replace another one: calls and results must still match.
fn is_same_step(before: &Message, after: &Message) -> bool {
    match (before, after) {
        (Message::User(_), Message::User(_)) => true,
        (Message::Assistant(before), Message::Assistant(after)) => before.tool_calls().eq(after.tool_calls()),
        (Message::ToolResult(before), Message::ToolResult(after)) => before.tool_call_id == after.tool_call_id,
        (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_), _) => false,
    }
}

/// Replaces the text of a message by the placeholder.
fn withheld(mut message: Message) -> Message {
    let placeholder = || Block::text(WITHHELD);
    match &mut message {
        Message::User(user) => user.content = Content::Text(WITHHELD.to_owned()),
        Message::Assistant(said) => {
            said.content.retain(|block| matches!(block, Block::ToolCall(_)));
            said.content.insert(0, placeholder());
        }
        Message::ToolResult(result) => {
            result.content = vec![placeholder()];
            result.details = None;
        }
        Message::Other(_) => {}
    }
    message
}
