//! The API that plugins may call. They receive the config without its secrets, and nothing else that they could not get
//! through an agent.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use homard_agent::{Hub, Inbound, InboundSender, Subscriber, hub::SubmitOutcome, tape::TapeState};
use homard_model::{ModelAnswer, ModelEvent, Request};
use homard_plugins::{Host, HostMethod};
use homard_proto::{
    SessionKey,
    message::{Message, User, join_text},
};
use homard_queue::RunClass;
use serde_json::{Value, json};

/// Sender of the messages that plugins submit. Not the owner: a plugin's text is not parsed as a command, and its runs
/// have no owner rights.
const PLUGIN_SENDER: &str = "plugin";

/// Handles the requests of plugins to the gateway: reading the config, adding an event to a session, starting a run,
/// and requesting a completion from a model.
pub(super) struct PluginApi {
    /// Set when the gateway is ready; until then all requests but reading the config fail.
    pub hub: Arc<OnceLock<Hub>>,
    /// The config without its secrets.
    pub config: Value,
}

#[async_trait]
impl Host for PluginApi {
    async fn handle(&self, plugin: &str, method: HostMethod, params: Value) -> Result<Value, String> {
        match method {
            HostMethod::ConfigGet => Ok(self.config.clone()),
            HostMethod::SystemEvent => self.event(&params).await,
            HostMethod::AgentRun => self.run(plugin, &params).await,
            HostMethod::LlmComplete => self.complete(&params).await,
            HostMethod::ConfigWrite | HostMethod::GatewayRequest | HostMethod::MemorySearch | HostMethod::MemoryGet => {
                Err(format!("{} is not available to plugins", method.name()))
            }
        }
    }
}

impl PluginApi {
    fn hub(&self) -> Result<&Hub, String> {
        self.hub.get().ok_or_else(|| "the gateway is not ready yet".to_owned())
    }

    /// Adds an event to a session, by default the main session. The session's next run contains it.
    async fn event(&self, params: &Value) -> Result<Value, String> {
        let hub = self.hub()?;
        let text = text(params, "text").ok_or("the event has no text")?;
        let key = session(hub, text_or(params, "sessionKey", "main"))?;
        hub.sessions().note_event(&key, text.to_owned()).await.map_err(|error| error.to_string())?;
        Ok(json!({"ok": true}))
    }

    /// Runs an agent and returns its replies. The run gets a new session unless the plugin names one.
    async fn run(&self, plugin: &str, params: &Value) -> Result<Value, String> {
        let hub = self.hub()?;
        let prompt = text(params, "prompt").or_else(|| text(params, "message")).ok_or("prompt is missing")?;
        let run = hub.ambient().run_id();
        let default_key = format!("plugin:{plugin}:{run}");
        let key = session(hub, text_or(params, "sessionKey", &default_key))?;
        if hub.runs().has_live(&key) {
            // The active run may be waiting for this very plugin; the two would deadlock.
            return Err(format!("session {key} has an active run; use another session, or retry later"));
        }
        let message = User::text(prompt, hub.ambient().now_ms());
        let mut inbound = Inbound::plain(run, InboundSender::new(PLUGIN_SENDER, "plugin"), key, message);
        inbound.options.class = RunClass::Nested;
        inbound.options.extra_prompt = text(params, "extraSystemPrompt").map(str::to_owned);
        let accepted = hub.submit(inbound).await.map_err(|error| error.to_string())?;
        let SubmitOutcome::New(tape) = accepted.outcome else {
            return Err("the run was already started".to_owned());
        };
        match Subscriber::new(tape).end().await {
            TapeState::Ended(end) => match end.outcome.error() {
                Some(why) => Err(why.to_owned()),
                None => {
                    let payloads: Vec<_> = end.replies.iter().map(|reply| json!({"text": reply.text})).collect();
                    Ok(json!({"payloads": payloads}))
                }
            },
            TapeState::Broken(why) => Err(why),
            TapeState::Queued | TapeState::Running | TapeState::Rejected => Err("the run did not end".to_owned()),
        }
    }

    /// Sends one request to the default agent's model, without tools and without a session.
    async fn complete(&self, params: &Value) -> Result<Value, String> {
        let hub = self.hub()?;
        let prompt = text(params, "prompt").ok_or("prompt is missing")?;
        let agents = hub.agents();
        let profile = agents.get(agents.default_id()).ok_or("no agent is configured")?;
        let candidates = match text(params, "model") {
            Some(name) => (profile.resolve_model)(name)?,
            None => profile.candidates.clone(),
        };
        let message = Message::User(User::text(prompt, hub.ambient().now_ms()));
        let system = text(params, "system").unwrap_or_default().into();
        let request = Request { system, messages: vec![Arc::new(message)], ..Request::default() };
        let (mut answer, mut stream) = (ModelAnswer::default(), candidates.first().stream(request));
        while let Some(event) = stream.next().await {
            match event {
                ModelEvent::Text(delta) => answer.text(&delta),
                ModelEvent::Thinking(delta) => answer.thinking(&delta),
                ModelEvent::Call(_) | ModelEvent::Signature(_) | ModelEvent::Heartbeat | ModelEvent::NoResponse(_) => {}
                ModelEvent::Done(_) => break,
                ModelEvent::Failed(error) => return Err(error.message),
            }
        }
        Ok(json!({"text": join_text(&answer.into_blocks())}))
    }
}

fn session(hub: &Hub, key: &str) -> Result<SessionKey, String> {
    SessionKey::parse(key, hub.agents().default_id()).map_err(|error| error.to_string())
}

fn text<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params[name].as_str().filter(|text| !text.trim().is_empty())
}

fn text_or<'a>(params: &'a Value, name: &str, otherwise: &'a str) -> &'a str {
    text(params, name).unwrap_or(otherwise)
}
