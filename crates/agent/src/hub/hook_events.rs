//! Hook events of the hub: received and sent messages, and gateway start and stop.

use std::{sync::Arc, time::Duration};

use homard_hooks::{
    HookContext, HookEvent, HookPoint, Hooks, InternalEvent, ReceivedMessage, SentMessage, ToolCallStart,
};
use homard_proto::{CallId, SessionKey, session::Record};
use homard_queue::slots::RunClass;
use serde_json::{Map, Value, json};

use super::{Hub, Inbound, Shared};
use crate::hooks::{hook_context, message_context, message_id, sender};

/// Time that hooks have to process the gateway's shutdown.
const STOP_HOOKS_TIMEOUT: Duration = Duration::from_secs(5);

/// Hook event of a received message, sent once the message is accepted.
pub(super) struct ReceivedEvent {
    hooks: Hooks,
    event: HookEvent,
    hook_context: HookContext,
}

/// Hook events of a hub that do not come from a run. What [`Hub::hooks`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubHooks<'a> {
    pub(super) hub: &'a Hub,
}

impl HubHooks<'_> {
    /// Builds the hook event of a message if a hook subscribes to it. Messages that the gateway sends to itself have
    /// none.
    pub(super) fn received_event(self, inbound: &Inbound) -> Option<ReceivedEvent> {
        let hooks = self.hub.0.config.rules().hooks.clone();
        let is_wanted = hooks.has(HookPoint::MessageReceived) || hooks.has_listener("message", "received");
        if !is_wanted || inbound.options.class != RunClass::Main || inbound.is_internal() {
            return None;
        }
        let route = &inbound.reply.route;
        let surface = route.channel.as_deref().unwrap_or("webchat");
        let mut metadata = json!({
            "to": route.to, "provider": surface, "surface": surface, "threadId": route.thread,
            "originatingChannel": surface, "originatingTo": route.to, "senderId": sender(inbound),
        });
        if let Some(sender_info) = &inbound.sender.on_channel {
            (metadata["senderName"], metadata["senderUsername"]) =
                (json!(sender_info.name), json!(sender_info.username));
            metadata["messageId"] = json!(message_id(inbound));
        }
        let event = HookEvent::MessageReceived(ReceivedMessage {
            from: route.to.clone().unwrap_or_else(|| inbound.sender.principal.clone()),
            content: inbound.sender.text.clone().unwrap_or_else(|| inbound.message.content.text()),
            timestamp: inbound.message.timestamp,
            session_key: inbound.session.key.to_string(),
            message_id: message_id(inbound).map(str::to_owned),
            sender_id: Some(sender(inbound).to_owned()),
            metadata: metadata.as_object().cloned().unwrap_or_default(),
        });
        let profile = self.hub.agents().of(inbound.session.key.agent());
        Some(ReceivedEvent { hooks, event, hook_context: message_context(&profile, None, inbound) })
    }

    /// True if hooks inspect outgoing messages and may change or suppress them.
    pub fn screens_messages(self) -> bool {
        self.hub.0.config.rules().hooks.has(HookPoint::MessageSending)
    }

    /// Sends the hook event of an accepted message. Does not wait for the hooks.
    pub(super) fn fire_received(self, received: Option<ReceivedEvent>) {
        let Some(ReceivedEvent { hooks, event, hook_context }) = received else { return };
        hooks.notify(&event, &hook_context);
        if hooks.has_listener("message", "received") {
            let (context, key) = (fields(&event), hook_context.session_key.unwrap_or_default());
            let signal = self.hub.0.signal("message", "received", key, context);
            self.hub.0.spawn("hook", async move { hooks.emit(signal).await });
        }
    }

    /// Fires the hooks for a gateway that is up and listening.
    pub async fn gateway_started(self, port: u16) {
        let hooks = self.hub.0.config.rules().hooks.clone();
        let event = HookEvent::GatewayStart { port };
        hooks.notify(&event, &HookContext { port: Some(port), ..HookContext::default() });
        let profile = self.hub.agents().of(None);
        let context = Map::from_iter([("workspaceDir".to_owned(), json!(profile.home()))]);
        hooks.emit(self.hub.0.signal("gateway", "startup", "gateway:startup".to_owned(), context)).await;
    }

    /// Fires the hooks for a gateway that is stopping, and gives them time to process all events.
    pub async fn gateway_stopping(self, reason: &str) {
        let hooks = self.hub.0.config.rules().hooks.clone();
        hooks.notify(&HookEvent::GatewayStop { reason: reason.to_owned() }, &HookContext::default());
        let context = Map::from_iter([("reason".to_owned(), reason.into())]);
        hooks.emit(self.hub.0.signal("gateway", "shutdown", "gateway:shutdown".to_owned(), context)).await;
        hooks.flush(STOP_HOOKS_TIMEOUT).await;
    }

    /// Runs the hooks for a tool call outside a run. Returns the arguments to use, or why the call is denied.
    pub async fn before_call(
        self,
        key: &SessionKey,
        call: &CallId,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let hooks = self.hub.0.config.rules().hooks.clone();
        let (true, Value::Object(mut params)) = (hooks.has(HookPoint::BeforeToolCall), arguments.clone()) else {
            return Ok(arguments);
        };
        let (tool_name, tool_call_id) = (name.to_owned(), call.to_string());
        let context = hook_context(&self.hub.agents().of(key.agent()), key, None);
        let context =
            HookContext { tool_name: Some(tool_name.clone()), tool_call_id: Some(tool_call_id.clone()), ..context };
        let call_start = ToolCallStart { tool_name, params: params.clone(), run_id: String::new(), tool_call_id };
        let outcome = hooks.call(HookEvent::BeforeToolCall(call_start), &context).await;
        if let Some(why) = outcome.block_reason() {
            return Err(why.to_owned());
        }
        params.extend(outcome.answer.params.unwrap_or_default());
        Ok(Value::Object(params))
    }

    /// Waits up to `timeout` until hooks have processed all events so far.
    pub async fn flush(self, timeout: Duration) {
        self.hub.0.config.rules().hooks.flush(timeout).await;
    }
}

impl Shared {
    fn signal(&self, kind: &str, action: &str, session_key: String, context: Map<String, Value>) -> InternalEvent {
        InternalEvent {
            kind: kind.to_owned(),
            action: action.to_owned(),
            session_key,
            context,
            timestamp: self.ambient.now_ms(),
            messages: Vec::new(),
        }
    }

    /// Fires the command hooks for a command, from any entry path. Does not wait for them.
    pub(crate) fn fire_command(self: &Arc<Self>, inbound: &Inbound, record: Option<&Record>) {
        let rules = self.config.rules();
        let Some(command) = inbound.command.as_ref() else { return };
        if !rules.hooks.has_listener("command", command.name()) {
            return;
        }
        let profile = self.config.agents().of(inbound.session.key.agent());
        let context = Map::from_iter([
            ("sessionId".to_owned(), json!(record.map(|record| &record.session_id))),
            ("sessionEntry".to_owned(), json!(record)),
            ("commandSource".to_owned(), inbound.reply.route.channel.as_deref().unwrap_or("webchat").into()),
            ("senderId".to_owned(), inbound.sender.principal.as_str().into()),
            ("agentId".to_owned(), profile.id.to_string().into()),
            ("workspaceDir".to_owned(), json!(profile.home())),
        ]);
        let signal = self.signal("command", command.name(), inbound.session.key.to_string(), context);
        let hooks = rules.hooks.clone();
        self.spawn("hook", async move { hooks.emit(signal).await });
    }

    /// Sends the hook event of a delivered or failed message. Does not wait for the hooks.
    pub(crate) fn fire_sent(self: &Arc<Self>, sent: SentMessage, hook_context: &HookContext) {
        let hooks = self.config.rules().hooks.clone();
        let event = HookEvent::MessageSent(sent);
        hooks.notify(&event, hook_context);
        if hooks.has_listener("message", "sent") {
            let mut context = fields(&event);
            context.insert("channelId".to_owned(), json!(hook_context.channel_id));
            context.insert("conversationId".to_owned(), json!(hook_context.conversation_id));
            let key = hook_context.session_key.clone().unwrap_or_default();
            let signal = self.signal("message", "sent", key, context);
            self.spawn("hook", async move { hooks.emit(signal).await });
        }
    }
}

fn fields(event: &HookEvent) -> Map<String, Value> {
    serde_json::to_value(event).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default()
}
