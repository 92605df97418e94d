//! Hook contexts, and messages that hooks may change before they are stored.

use std::sync::Arc;

use homard_hooks::{HookEvent, HookPoint, Hooks, ToolResultWrite};
use homard_proto::{
    SessionId, SessionKey,
    message::{Block, Content, Message, ToolResult},
};
use homard_queue::slots::RunClass;
use serde_json::Value;

use crate::{hub::Inbound, profile::Profile};

pub(crate) use homard_hooks::HookContext;

/// Replacement for text that a hook rejected.
const WITHHELD: &str = "[withheld by a hook]";

/// Builds the hook context of a session.
pub(crate) fn hook_context(profile: &Profile, key: &SessionKey, session: Option<&SessionId>) -> HookContext {
    HookContext {
        agent_id: Some(key.agent().unwrap_or(&profile.id).to_string()),
        session_key: Some(key.to_string()),
        session_id: session.map(ToString::to_string),
        workspace_dir: Some(profile.home().clone()),
        ..HookContext::default()
    }
}

/// Builds the hook context of a message and its run.
pub(crate) fn message_context(profile: &Profile, session: Option<&SessionId>, inbound: &Inbound) -> HookContext {
    let route = &inbound.reply.route;
    let surface = route.channel.clone().unwrap_or_else(|| "webchat".to_owned());
    HookContext {
        run_id: Some(inbound.id.run.to_string()),
        message_provider: Some(surface.clone()),
        channel: Some(surface.clone()),
        channel_id: Some(surface),
        chat_id: route.to.clone(),
        account_id: route.account.clone(),
        conversation_id: route.to.clone(),
        sender_id: Some(sender(inbound).to_owned()),
        message_id: message_id(inbound).map(str::to_owned),
        trigger: Some(trigger(inbound.options.class).to_owned()),
        ..hook_context(profile, &inbound.session.key, session)
    }
}

/// Returns the sender's id on its channel, else the principal.
pub(crate) fn sender(inbound: &Inbound) -> &str {
    inbound.sender.on_channel.as_ref().map_or(&inbound.sender.principal, |sender| &sender.id)
}

/// Returns the message's id on its channel.
pub(crate) fn message_id(inbound: &Inbound) -> Option<&str> {
    inbound.reply.delivery.as_ref().filter(|delivery| delivery.is_origin)?.reply_to.as_deref()
}

fn trigger(class: RunClass) -> &'static str {
    match class {
        RunClass::Main | RunClass::Nested | RunClass::Subagent => "user",
        RunClass::Cron => "cron",
        RunClass::Heartbeat => "heartbeat",
    }
}

/// Returns a tool's result to store, after hooks.
pub(crate) async fn persist(
    hooks: &Hooks,
    context: &HookContext,
    result: Arc<ToolResult>,
    is_synthetic: bool,
) -> Arc<ToolResult> {
    if !hooks.has(HookPoint::ToolResultPersist) && !hooks.has(HookPoint::BeforeMessageWrite) {
        return result;
    }
    let mut message = Message::ToolResult((*result).clone());
    if hooks.has(HookPoint::ToolResultPersist) {
        let event = HookEvent::ToolResultPersist(ToolResultWrite {
            tool_name: result.tool_name.clone(),
            tool_call_id: result.tool_call_id.clone(),
            message: as_value(&message),
            is_synthetic,
        });
        let context = HookContext {
            tool_name: Some(result.tool_name.clone()),
            tool_call_id: Some(result.tool_call_id.clone()),
            ..context.clone()
        };
        message = rewritten(message, hooks.call(event, &context).await);
    }
    match before_write(hooks, context, message).await {
        Message::ToolResult(stored) if stored == *result => result,
        Message::ToolResult(stored) => Arc::new(stored),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => result,
    }
}

/// Returns a message to store, after hooks.
pub(crate) async fn before_write(hooks: &Hooks, context: &HookContext, message: Message) -> Message {
    if !hooks.has(HookPoint::BeforeMessageWrite) {
        return message;
    }
    let event = HookEvent::BeforeMessageWrite { message: as_value(&message) };
    rewritten(message, hooks.call(event, context).await)
}

fn as_value(message: &Message) -> Value {
    serde_json::to_value(message).unwrap_or_default()
}

fn rewritten(message: Message, outcome: homard_hooks::HookOutcome) -> Message {
    if outcome.block_reason().is_some() {
        return withheld(message);
    }
    let Some(replacement) = outcome.answer.message else { return message };
    match serde_json::from_value::<Message>(replacement) {
        Ok(replacement) if is_same_step(&message, &replacement) => replacement,
        Ok(_) => {
            tracing::warn!("hook returned a message of another kind or with other tool calls; keeping the original");
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
        Message::Assistant(assistant) => {
            assistant.content.retain(|block| matches!(block, Block::ToolCall(_)));
            assistant.content.insert(0, placeholder());
        }
        Message::ToolResult(result) => {
            result.content = vec![placeholder()];
            result.details = None;
        }
        Message::Other(_) => {}
    }
    message
}
