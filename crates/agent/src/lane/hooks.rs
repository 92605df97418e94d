//! Hooks in the life of a session: new transcripts, ended runs, outgoing replies.

use std::sync::Arc;

use homard_hooks::{
    AgentEnd, HookContext, HookEvent, HookPoint, Hooks, InternalEvent, OutgoingMessage, SentMessage, SessionEnd,
    SessionReset, SessionStart,
};
use homard_proto::{SessionId, message::Message};
use homard_reply::payload::Payload;
use serde_json::{Map, Value, json};

use super::{Lane, Ticket, ticket::ActiveRun};
use crate::{
    event::{Outcome, RunEnd, RunEvent, StoredEvent},
    hooks::{hook_context, message_context},
    hub::Inbound,
    profile::Profile,
};

/// Why a session got a new transcript, and the one it replaces.
#[derive(Debug, Clone)]
pub(super) struct TranscriptChange {
    /// Previous transcript and its number of messages; `None` for a new session.
    pub(super) before: Option<(SessionId, usize)>,
    /// One of: new, reset, idle, daily, deleted.
    pub(super) reason: &'static str,
}

/// Cause of a new transcript, or of a session that replaces another.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResetCause<'a> {
    /// A chat command.
    Command(&'a Ticket),
    /// A method of the gateway.
    Method(&'static str),
    /// The session was idle for too long.
    Stale,
}

impl Ticket {
    /// Returns the command word that asked for a new transcript.
    pub(super) fn reset_reason(&self) -> &'static str {
        let text = self.inbound.message.content.text();
        let is_reset = text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("/reset"));
        if is_reset { "reset" } else { "new" }
    }
}

fn hooks(lane: &Lane) -> Hooks {
    lane.hub.config.rules().hooks.clone()
}

fn context_of(lane: &Lane, session: Option<&SessionId>) -> HookContext {
    hook_context(&lane.hub.config.agents().of(lane.key.agent()), &lane.key, session)
}

/// Runs hooks before the session gets a new transcript. Returns messages for the chat.
pub(super) async fn before_reset(lane: &mut Lane, reason: &str, cause: ResetCause<'_>) -> Vec<String> {
    let hooks = hooks(lane);
    let has_listener = hooks.has_listener("command", reason) || hooks.has_listener("session", "auto-reset");
    if !hooks.has(HookPoint::BeforeReset) && !has_listener {
        return Vec::new();
    }
    if let Err(error) = lane.open().await {
        tracing::warn!(key = %lane.key, %error, "failed to read the session");
    }
    let session = lane.session.as_ref();
    let id = session.map(|session| session.record.session_id.clone());
    let file = id.as_ref().and_then(|id| lane.hub.store.transcript_path(&lane.key, id));
    if hooks.has(HookPoint::BeforeReset) && session.is_some_and(|session| !session.history.is_empty()) {
        let messages = session.map(|session| session.history.to_vec()).unwrap_or_default();
        let event =
            HookEvent::BeforeReset(SessionReset { session_file: file.clone(), messages, reason: reason.to_owned() });
        hooks.call(event, &context_of(lane, id.as_ref())).await;
    }
    let record = session.and_then(|session| serde_json::to_value(&session.record).ok()).unwrap_or_default();
    let mut context = Map::from_iter([
        ("previousSessionEntry".to_owned(), record.clone()),
        ("sessionEntry".to_owned(), record),
        ("sessionFile".to_owned(), json!(file)),
    ]);
    let (kind, action) = match cause {
        ResetCause::Command(ticket) => {
            let source = ticket.inbound.reply.route.channel.as_deref().unwrap_or("webchat");
            context.insert("commandSource".to_owned(), source.into());
            context.insert("senderId".to_owned(), ticket.inbound.sender.principal.as_str().into());
            ("command", reason)
        }
        ResetCause::Method(method) => {
            context.insert("commandSource".to_owned(), format!("gateway:{method}").into());
            ("command", reason)
        }
        ResetCause::Stale => {
            context.insert("reason".to_owned(), reason.into());
            ("session", "auto-reset")
        }
    };
    signal(lane, kind, action, context).await
}

/// Fires an internal hook and waits for it. Returns messages for the chat.
pub(super) async fn signal(lane: &Lane, kind: &str, action: &str, mut context: Map<String, Value>) -> Vec<String> {
    let hooks = hooks(lane);
    if !hooks.has_listener(kind, action) {
        return Vec::new();
    }
    let profile = lane.hub.config.agents().of(lane.key.agent());
    context.insert("agentId".to_owned(), profile.id.to_string().into());
    context.insert("workspaceDir".to_owned(), json!(profile.home()));
    let signal = InternalEvent {
        kind: kind.to_owned(),
        action: action.to_owned(),
        session_key: lane.key.to_string(),
        context,
        timestamp: lane.hub.ambient.now_ms(),
        messages: Vec::new(),
    };
    hooks.emit(signal).await.messages
}

/// Fires the hooks of an accepted command. Commands that start a new transcript fire theirs in
/// [`before_reset`].
pub(super) fn fire_command(lane: &Lane, inbound: &Inbound) {
    if !inbound.starts_transcript() {
        lane.hub.fire_command(inbound, lane.session.as_ref().map(|session| &session.record));
    }
}

/// Fires the hooks for the end of a transcript and the start of the next one.
pub(super) fn fire_transcript_change(lane: &Lane, change: &TranscriptChange, now: Option<&SessionId>) {
    let hooks = hooks(lane);
    let key = lane.key.to_string();
    if let Some((before, message_count)) = &change.before {
        let event = HookEvent::SessionEnd(SessionEnd {
            session_id: before.to_string(),
            session_key: key.clone(),
            message_count: *message_count,
            duration_ms: None,
            reason: change.reason.to_owned(),
            next_session_id: now.map(ToString::to_string),
        });
        hooks.notify(&event, &context_of(lane, Some(before)));
    }
    if let Some(now) = now {
        let event = HookEvent::SessionStart(SessionStart {
            session_id: now.to_string(),
            session_key: key,
            resumed_from: change.before.as_ref().map(|(before, _)| before.to_string()),
        });
        hooks.notify(&event, &context_of(lane, Some(now)));
    }
}

/// Fires the hooks for the end of a run.
pub(super) fn fire_agent_end(lane: &Lane, ticket: &Ticket, profile: &Profile, end: &RunEnd) {
    let hooks = hooks(lane);
    // Commands that are answered without a model have no agent run.
    let has_agent = ticket.task().is_none() && ticket.fixed_reply().is_none();
    if !hooks.has(HookPoint::AgentEnd) || !has_agent {
        return;
    }
    let messages = match &lane.session {
        Some(session) => session.history.to_vec(),
        None => run_messages(ticket),
    };
    let started_at = end.started_at.unwrap_or(end.ended_at);
    let event = HookEvent::AgentEnd(AgentEnd {
        messages,
        success: end.outcome == Outcome::Done,
        error: end.outcome.error().map(str::to_owned),
        duration_ms: end.ended_at.saturating_sub(started_at),
        run_id: ticket.inbound.id.run.to_string(),
    });
    let (provider, model) = end.model.clone();
    let context = message_context(profile, end.session.as_ref(), &ticket.inbound);
    let context = HookContext { model_provider_id: Some(provider), model_id: Some(model), ..context };
    hooks.notify(&event, &context);
}

/// Runs hooks on outgoing replies, which may change or drop them.
pub(super) async fn before_sending(
    lane: &Lane,
    active: &ActiveRun,
    profile: &Profile,
    replies: Vec<Payload>,
) -> Vec<Payload> {
    let hooks = hooks(lane);
    // For channel deliveries the hooks run when they are sent.
    if !hooks.has(HookPoint::MessageSending) || active.output.is_some() {
        return replies;
    }
    let context = message_context(profile, active.progress.session.as_ref(), &active.ticket.inbound);
    let mut sent = Vec::new();
    for mut reply in replies {
        let event = HookEvent::MessageSending(OutgoingMessage {
            to: recipient(&active.ticket),
            content: reply.text.clone(),
            reply_to_id: None,
            metadata: Map::from_iter([("channel".to_owned(), json!(context.channel_id))]),
        });
        let outcome = hooks.call(event, &context).await;
        for note in &outcome.notes {
            active.ticket.tape.emit_silent(lane.hub.ambient.now_ms(), Arc::new(note.clone()));
        }
        if outcome.block_reason().is_some() {
            continue;
        }
        reply.text = outcome.answer.content.unwrap_or(reply.text);
        sent.push(reply);
    }
    sent
}

/// Fires the hooks for delivered replies.
pub(super) fn fire_sent(lane: &Lane, active: &ActiveRun, profile: &Profile, end: &RunEnd) {
    if active.output.is_some() {
        return;
    }
    let context = message_context(profile, end.session.as_ref(), &active.ticket.inbound);
    for reply in &end.replies {
        let (to, content) = (recipient(&active.ticket), reply.text.clone());
        let sent = SentMessage { to, content, success: true, error: None, message_id: None };
        lane.hub.fire_sent(sent, &context);
    }
}

/// Returns the recipient of a run's replies.
fn recipient(ticket: &Ticket) -> String {
    ticket.inbound.reply.route.to.clone().unwrap_or_else(|| ticket.inbound.sender.principal.clone())
}

/// Returns the messages that a run added to its transcript, from its tape.
fn run_messages(ticket: &Ticket) -> Vec<Arc<Message>> {
    let events = ticket.tape.events();
    let messages = events.iter().filter_map(|event| match &event.kind {
        RunEvent::Stored(StoredEvent::Input(message)) => Some(message.clone()),
        RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) => {
            Some(Arc::new(Message::Assistant((**answer).clone())))
        }
        RunEvent::Stored(StoredEvent::ToolEnded { result, .. }) => {
            Some(Arc::new(Message::ToolResult((**result).clone())))
        }
        RunEvent::Stored(StoredEvent::Started { .. } | StoredEvent::Compacted { .. } | StoredEvent::Ended(_))
        | RunEvent::Queue(_)
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Model(_)
        | RunEvent::Tool(_)
        | RunEvent::HookDecision(_)
        | RunEvent::Reply(_)
        | RunEvent::Compaction(_) => None,
    });
    messages.collect()
}
