//! Hook events of the hub: received and sent messages, and gateway start and stop.

use std::{sync::Arc, time::Duration};

use homard_hooks::{Called, Context, Event, Hooks, Point, Received, Sent, Signal};
use homard_proto::{CallId, SessionKey, session::Record};
use serde_json::{Map, Value, json};

use super::{Hub, Inbound, Shared};
use crate::{
    hooks::{message_id, place, place_of, sender},
    lane::slots::Class,
};

/// Time that hooks have to process the gateway's shutdown.
const FAREWELL: Duration = Duration::from_secs(5);

/// Hook event of a received message, sent once the message is accepted.
pub(super) struct Arrival {
    hooks: Hooks,
    event: Event,
    place: Context,
}

impl Hub {
    /// Builds the hook event of a message if a hook subscribes to it. Messages that the gateway sends to itself have
    /// none.
    pub(super) fn received(&self, inbound: &Inbound) -> Option<Arrival> {
        let hooks = self.rules().hooks.clone();
        let is_wanted = hooks.has(Point::MessageReceived) || hooks.is_heard("message", "received");
        if !is_wanted || inbound.class != Class::Main || inbound.is_of_house() {
            return None;
        }
        let route = &inbound.route;
        let surface = route.channel.as_deref().unwrap_or("webchat");
        let mut metadata = json!({
            "to": route.to, "provider": surface, "surface": surface, "threadId": route.thread,
            "originatingChannel": surface, "originatingTo": route.to, "senderId": sender(inbound),
        });
        if let Some(known) = &inbound.sender {
            (metadata["senderName"], metadata["senderUsername"]) = (json!(known.name), json!(known.username));
            metadata["messageId"] = json!(message_id(inbound));
        }
        let event = Event::MessageReceived(Received {
            from: route.to.clone().unwrap_or_else(|| inbound.principal.clone()),
            content: inbound.words.clone().unwrap_or_else(|| inbound.message.content.text()),
            timestamp: inbound.message.timestamp,
            session_key: inbound.key.to_string(),
            message_id: message_id(inbound).map(str::to_owned),
            sender_id: Some(sender(inbound).to_owned()),
            metadata: metadata.as_object().cloned().unwrap_or_default(),
        });
        let profile = self.agents().of(inbound.key.agent());
        Some(Arrival { hooks, event, place: place_of(&profile, None, inbound) })
    }

    /// True if hooks inspect outgoing messages and may change or suppress them.
    pub fn screens_messages(&self) -> bool {
        self.rules().hooks.has(Point::MessageSending)
    }

    /// Sends the hook event of an accepted message. Does not wait for the hooks.
    pub(super) fn tell_received(&self, arrival: Option<Arrival>) {
        let Some(Arrival { hooks, event, place }) = arrival else { return };
        hooks.tell(&event, &place);
        if hooks.is_heard("message", "received") {
            let (context, key) = (fields(&event), place.session_key.unwrap_or_default());
            let signal = self.happened(("message", "received"), key, context);
            self.0.spawn("hook", async move { hooks.signal(signal).await });
        }
    }

    /// Fires the hooks for a gateway that is up and listening.
    pub async fn gateway_started(&self, port: u16) {
        let hooks = self.rules().hooks.clone();
        let event = Event::GatewayStart { port };
        hooks.tell(&event, &Context { port: Some(port), ..Context::default() });
        let profile = self.agents().of(None);
        let context = Map::from_iter([("workspaceDir".to_owned(), json!(profile.home()))]);
        hooks.signal(self.happened(("gateway", "startup"), "gateway:startup".to_owned(), context)).await;
    }

    /// Fires the hooks for a gateway that is stopping, and gives them time to process all events.
    pub async fn gateway_stops(&self, reason: &str) {
        let hooks = self.rules().hooks.clone();
        hooks.tell(&Event::GatewayStop { reason: reason.to_owned() }, &Context::default());
        let context = Map::from_iter([("reason".to_owned(), reason.into())]);
        hooks.signal(self.happened(("gateway", "shutdown"), "gateway:shutdown".to_owned(), context)).await;
        hooks.flush(FAREWELL).await;
    }

    /// Runs the hooks for a tool call outside a run. Returns the arguments to use, or why the call is denied.
    pub async fn judge_call(
        &self,
        key: &SessionKey,
        (call, name): (&CallId, &str),
        arguments: Value,
    ) -> Result<Value, String> {
        let hooks = self.rules().hooks.clone();
        let (true, Value::Object(mut params)) = (hooks.has(Point::BeforeToolCall), arguments.clone()) else {
            return Ok(arguments);
        };
        let (tool_name, tool_call_id) = (name.to_owned(), call.to_string());
        let place = place(&self.agents().of(key.agent()), key, None);
        let place = Context { tool_name: Some(tool_name.clone()), tool_call_id: Some(tool_call_id.clone()), ..place };
        let called = Called { tool_name, params: params.clone(), run_id: String::new(), tool_call_id };
        let outcome = hooks.ask(Event::BeforeToolCall(called), &place).await;
        if let Some(why) = outcome.refusal() {
            return Err(why.to_owned());
        }
        params.extend(outcome.answer.params.unwrap_or_default());
        Ok(Value::Object(params))
    }

    /// Waits up to `patience` until hooks have processed all events so far.
    pub async fn flush_hooks(&self, patience: Duration) {
        self.rules().hooks.flush(patience).await;
    }

    fn happened(&self, (kind, action): (&str, &str), session_key: String, context: Map<String, Value>) -> Signal {
        Signal {
            kind: kind.to_owned(),
            action: action.to_owned(),
            session_key,
            context,
            timestamp: self.0.ambient.now_ms(),
            messages: Vec::new(),
        }
    }
}

impl Shared {
    /// Fires the command hooks for a command, from any entry path. Does not wait for them.
    pub(crate) fn tell_command(self: &Arc<Self>, inbound: &Inbound, record: Option<&Record>) {
        let rules = self.setup.rules();
        let Some(command) = inbound.command.as_ref() else { return };
        if !rules.hooks.is_heard("command", command.name()) {
            return;
        }
        let profile = self.setup.agents().of(inbound.key.agent());
        let context = Map::from_iter([
            ("sessionId".to_owned(), json!(record.map(|record| &record.session_id))),
            ("sessionEntry".to_owned(), json!(record)),
            ("commandSource".to_owned(), inbound.route.channel.as_deref().unwrap_or("webchat").into()),
            ("senderId".to_owned(), inbound.principal.as_str().into()),
            ("agentId".to_owned(), profile.id.to_string().into()),
            ("workspaceDir".to_owned(), json!(profile.home())),
        ]);
        let signal = Hub::of(self).happened(("command", command.name()), inbound.key.to_string(), context);
        let hooks = rules.hooks.clone();
        self.spawn("hook", async move { hooks.signal(signal).await });
    }

    /// Sends the hook event of a delivered or failed message. Does not wait for the hooks.
    pub(crate) fn tell_sent(self: &Arc<Self>, sent: Sent, place: &Context) {
        let hooks = self.setup.rules().hooks.clone();
        let event = Event::MessageSent(sent);
        hooks.tell(&event, place);
        if hooks.is_heard("message", "sent") {
            let mut context = fields(&event);
            context.insert("channelId".to_owned(), json!(place.channel_id));
            context.insert("conversationId".to_owned(), json!(place.conversation_id));
            let key = place.session_key.clone().unwrap_or_default();
            let signal = Hub::of(self).happened(("message", "sent"), key, context);
            self.spawn("hook", async move { hooks.signal(signal).await });
        }
    }
}

fn fields(event: &Event) -> Map<String, Value> {
    serde_json::to_value(event).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default()
}
