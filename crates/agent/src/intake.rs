//! Converts requests into [`Inbound`] messages: resolves sender, session and settings.

pub mod attachments;

use std::{path::PathBuf, time::Duration};

use homard_command::{Command, InlineQueue, OWNER, ParsedMessage, levels};
use homard_delivery::DeliveryRequest;
use homard_media::InboundFolder;
use homard_proto::{
    AgentId, ErrorShape, Route, RunId, SessionId, SessionKey, id,
    message::{Block, User},
    method::{
        Params,
        agent::AgentParams,
        chat::{Attachment, SendParams},
    },
};
use homard_queue::{
    settings::{QueueMode, QueueOverrides},
    slots::RunClass,
};
use homard_store::{Origin, PromptMode, ReplyDelivery, RunOverrides, Sender};
use serde::Serialize;
use sha2::{Digest, Sha256};

use self::attachments::Attachments;
use crate::{
    hub::{Hub, Inbound, InboundId, InboundOptions, InboundReply, InboundSender, InboundSession},
    profile::Profile,
    tool,
};

/// Method name of messages from chat platforms.
pub const CHANNEL: &str = "channel";

/// Maximum timeout of a run in seconds: a year, which stands for no limit. Larger values could overflow a clock.
const MAX_TIMEOUT: u64 = 365 * 24 * 60 * 60;

/// Channel names that a request may contain, whether or not the channel is configured: clients send one by default.
const CHANNELS: [&str; 22] = [
    "whatsapp",
    "telegram",
    "discord",
    "slack",
    "signal",
    "imessage",
    "webchat",
    "last",
    "msteams",
    "matrix",
    "mattermost",
    "googlechat",
    "line",
    "zalo",
    "zalouser",
    "bluebubbles",
    "feishu",
    "nextcloud-talk",
    "nostr",
    "tlon",
    "twitch",
    "irc",
];

/// Aliases of channel names.
const CHANNEL_ALIASES: [(&str, &str); 6] = [
    ("teams", "msteams"),
    ("imsg", "imessage"),
    ("google-chat", "googlechat"),
    ("gchat", "googlechat"),
    ("internet-relay-chat", "irc"),
    ("lark", "feishu"),
];

/// Builds an [`Inbound`] from the parameters of `agent`, or returns what is wrong with them.
pub async fn agent(hub: &Hub, principal: &str, mut params: AgentParams) -> Result<Inbound, ErrorShape> {
    let fingerprint = fingerprint(&params).map_err(|error| invalid(&error.to_string()))?;
    if params.message.trim().is_empty() {
        return Err(invalid("message must not be blank"));
    }
    let channel_name = reply_channel(hub, &params)?;
    let thinking = params.thinking.as_deref().map(thinking_level).transpose()?;
    let (key, session) =
        resolve(hub, params.agent_id.as_deref(), params.session_key.as_deref(), params.session_id.clone()).await?;
    let (attachments, run) = (std::mem::take(&mut params.attachments), &params.idempotency_key);
    let attached = attached(hub, principal, &key, attachments, run).await?;
    let request = delivery_request(&params, channel_name.as_deref());
    let (route, delivery) = plan_delivery(hub, &key, request, params.best_effort_deliver).await?;
    let ParsedMessage { command, text, .. } = hub.0.config.rules().parse(principal, params.message.trim());
    let written = WrittenText { full: params.message.trim(), remaining: text };
    let mut message = message(hub, run, command.as_ref(), written);
    attached.attach_to(&mut message);
    if let Some(provenance) = params.input_provenance.clone() {
        message.extra.insert("inputProvenance".to_owned(), provenance);
    }
    let profile = hub.agents().of(key.agent());
    let options = agent_options(hub, &profile, &key, &params).await?;
    // Names every field, so that a new parameter is not forgotten. Those without a name here were read above.
    let AgentParams {
        idempotency_key: run,
        label,
        spawned_by,
        expected_existing_session_id: expected,
        message: _,
        agent_id: _,
        session_key: _,
        session_id: _,
        thinking: _,
        channel: _,
        reply_channel: _,
        deliver: _,
        best_effort_deliver: _,
        to: _,
        reply_to: _,
        account_id: _,
        reply_account_id: _,
        thread_id: _,
        timeout: _,
        lane: _,
        extra_system_prompt: _,
        on_restart: _,
        strict: _,
        attachments: _,
        model: _,
        provider: _,
        cwd: _,
        prompt_mode: _,
        bootstrap_context_mode: _,
        disable_message_tool: _,
        input_provenance: _,
    } = params;
    Ok(Inbound {
        id: InboundId { run, fingerprint, origin: None },
        sender: InboundSender::new(principal, AgentParams::METHOD),
        session: InboundSession {
            // A request that expects a session id uses that transcript, stale or not.
            transcript: session.or_else(|| expected.clone()),
            expected,
            thinking,
            label: label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()),
            spawned_by,
            ..InboundSession::new(key)
        },
        message,
        command,
        is_literal: false,
        reply: InboundReply::new(route, delivery),
        queue: None,
        options,
    })
}

/// Returns the channel that a request names for its reply, if any.
fn reply_channel(hub: &Hub, params: &AgentParams) -> Result<Option<String>, ErrorShape> {
    let [reply, channel_name] =
        [&params.reply_channel, &params.channel].map(|raw| raw.as_deref().map(|raw| channel(hub, raw)).transpose());
    Ok(reply?.or(channel_name?))
}

/// Returns what a request asks for about the delivery of its reply.
fn delivery_request(params: &AgentParams, channel: Option<&str>) -> DeliveryRequest {
    let to = params.reply_to.as_deref().or(params.to.as_deref());
    let account = params.reply_account_id.as_deref().or(params.account_id.as_deref());
    let route = Route::new(channel, to, account, params.thread_id.as_deref());
    DeliveryRequest { is_wanted: params.deliver == Some(true), route }
}

/// Returns the options of a request's run.
async fn agent_options(
    hub: &Hub,
    profile: &Profile,
    key: &SessionKey,
    params: &AgentParams,
) -> Result<InboundOptions, ErrorShape> {
    let model = profile.checked_model(params.provider.as_deref(), params.model.as_deref());
    let overrides = RunOverrides {
        model: model.map_err(|why| invalid(&why))?,
        prompt_mode: params.prompt_mode.as_deref().map(mode),
        without_bootstrap_files: params.bootstrap_context_mode.as_deref() == Some("lightweight"),
        without_message_tool: params.disable_message_tool == Some(true),
    };
    // A sandboxed session works in its sandbox workspace, wherever the request came from.
    let cwd = match &params.cwd {
        Some(cwd) if !profile.sandboxing.is_sandboxed(key) => Some(working_dir(hub, cwd, AgentParams::METHOD).await?),
        Some(_) | None => None,
    };
    Ok(InboundOptions {
        timeout: params.timeout.map(|seconds| limit(Duration::from_secs(seconds))),
        extra_prompt: params.extra_system_prompt.clone(),
        is_strict: params.strict == Some(true),
        reports_restart: params.on_restart.as_deref() == Some("interrupt"),
        cwd,
        overrides,
        ..InboundOptions::new(RunClass::choose(params.lane.as_deref(), key))
    })
}

/// Opens the attachments of a message: files are stored in the sender's folder of the agent's workspace.
async fn attached(
    hub: &Hub,
    principal: &str,
    key: &SessionKey,
    attachments: Vec<Attachment>,
    run: &RunId,
) -> Result<Attachments, ErrorShape> {
    if attachments.is_empty() {
        return Ok(Attachments::default());
    }
    let profile = hub.agents().of(key.agent());
    let origin = tool::RunOrigin { principal: principal.to_owned(), ..tool::RunOrigin::default() };
    let is_readable = profile.may_read_workspace(&origin, key);
    let folder = profile.prompt.workspace.as_deref();
    let folder = folder.map(|workspace| InboundFolder::new(workspace, &folder_name(principal), is_readable));
    attachments::open_all(attachments, folder, run.as_str()).await
}

/// Returns the name of a sender's folder.
fn folder_name(principal: &str) -> String {
    principal.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Parses a prompt mode; the schema allows no other words.
fn mode(name: &str) -> PromptMode {
    match name {
        "none" => PromptMode::None,
        "minimal" => PromptMode::Minimal,
        _ => PromptMode::Full,
    }
}

/// Checks the working directory of a request.
async fn working_dir(hub: &Hub, requested: &str, method: &str) -> Result<PathBuf, ErrorShape> {
    let path = PathBuf::from(requested);
    if !path.is_absolute() {
        return Err(invalid_in(method, &format!("cwd: \"{requested}\" is not an absolute path")));
    }
    hub.0.config.rules().working_dirs.check(path).await.map_err(|why| invalid_in(method, &format!("cwd: {why}")))
}

/// Builds an [`Inbound`] from the parameters of `chat.send`, or returns what is wrong with them.
pub async fn chat(hub: &Hub, principal: &str, params: SendParams) -> Result<Inbound, ErrorShape> {
    let invalid_send = |why: &str| invalid_in(SendParams::METHOD, why);
    let fingerprint = fingerprint(&params).map_err(|error| invalid_send(&error.to_string()))?;
    let origin_route = params.route();
    let SendParams {
        session_key,
        message: raw_text,
        idempotency_key: run,
        agent_id,
        session_id: expected_session,
        thinking,
        deliver,
        queue_mode,
        originating_channel: _,
        originating_to: _,
        originating_account_id: _,
        originating_thread_id: _,
        timeout_ms,
        suppress_command_interpretation,
        cwd,
        attachments,
        expected_leaf_entry_id: _,
    } = params;
    let text = raw_text.trim();
    if text.is_empty() && attachments.is_empty() {
        return Err(ErrorShape::invalid("message or attachment required"));
    }
    let thinking = thinking.as_deref().map(thinking_level).transpose()?;
    let agent = agent_id.as_deref().map(|id| known_agent(hub, id, SendParams::METHOD)).transpose()?;
    let key = parse_key(hub, session_key.trim(), agent.as_ref(), SendParams::METHOD)?;
    let cwd = match cwd {
        Some(cwd) if !hub.agents().of(key.agent()).sandboxing.is_sandboxed(&key) => {
            Some(working_dir(hub, &cwd, SendParams::METHOD).await?)
        }
        Some(_) | None => None,
    };
    let attached = attached(hub, principal, &key, attachments, &run).await?;
    let is_literal = suppress_command_interpretation == Some(true);
    let ParsedMessage { command, inline, text } = if is_literal {
        ParsedMessage { command: None, inline: InlineQueue::Nothing, text: text.to_owned() }
    } else {
        hub.0.config.rules().parse(principal, text)
    };
    let (route, delivery) =
        match hub.deliveries().reply_delivery(&key, &origin_route).filter(|_| deliver != Some(false)) {
            Some(delivery) => (origin_route, Some(delivery)),
            None if deliver == Some(true) && origin_route == Route::default() => {
                let request = DeliveryRequest { is_wanted: true, route: origin_route };
                // The sender reads the reply on its own connection, so delivery is best effort.
                hub.deliveries()
                    .plan(&key, &request, true)
                    .await
                    .map_err(|why| invalid_send(&why))?
                    .map(|(route, delivery)| (route, Some(delivery)))
                    .unwrap_or_default()
            }
            None => (origin_route, None),
        };
    let mode = queue_mode.as_deref().and_then(QueueMode::parse);
    let requested_queue =
        mode.map(|mode| InlineQueue::Set(QueueOverrides { mode: Some(mode), ..QueueOverrides::default() }));
    let mut message = message(hub, &run, command.as_ref(), WrittenText { full: raw_text.trim(), remaining: text });
    attached.attach_to(&mut message);
    Ok(Inbound {
        id: InboundId { run, fingerprint, origin: None },
        sender: InboundSender::new(principal, SendParams::METHOD),
        options: InboundOptions {
            timeout: timeout_ms.map(|ms| limit(Duration::from_millis(ms))),
            cwd,
            ..InboundOptions::new(RunClass::choose(None, &key))
        },
        session: InboundSession { expected: expected_session, thinking, ..InboundSession::new(key) },
        message,
        command,
        is_literal,
        reply: InboundReply::new(route, delivery),
        queue: Some(if inline == InlineQueue::Nothing { requested_queue.unwrap_or_default() } else { inline }),
    })
}

/// A message from a chat platform, from an authorized sender.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelMessage {
    /// The event that brought it. An event never leads to two runs.
    pub origin: Origin,
    /// Principal of the sender.
    pub principal: String,
    /// Sender as known to the platform.
    pub sender: Sender,
    /// Key of the session.
    pub key: SessionKey,
    /// Text as written.
    pub text: String,
    /// Attached pictures.
    pub pictures: Vec<Block>,
    /// Origin of the message and destination of its reply.
    pub route: Route,
    /// Id of the message on the platform.
    pub message: String,
    /// When it was sent, in milliseconds since the epoch.
    pub at: u64,
}

/// Why a channel event cannot become a message.
#[derive(Debug, thiserror::Error)]
pub enum ChannelMessageError {
    /// The channel's name cannot be part of a run id.
    #[error(transparent)]
    Channel(#[from] id::Error),
    /// The event has no unique fingerprint.
    #[error("failed to compute the fingerprint of the event: {0}")]
    Fingerprint(#[from] serde_json::Error),
}

/// Builds an [`Inbound`] from a message of a chat platform. `build_text` builds the model's text from the sender's; a
/// command is kept as written. Fails for a channel whose name cannot be part of a run id.
pub fn channel_message(
    hub: &Hub,
    incoming: ChannelMessage,
    build_text: impl FnOnce(&str) -> String,
) -> Result<Inbound, ChannelMessageError> {
    let ChannelMessage { origin, principal, sender, key, text: written, pictures, route, message: message_id, at } =
        incoming;
    let run = run_of(&origin)?;
    let ParsedMessage { command, inline, text } = hub.0.config.rules().parse(&principal, written.trim());
    let text = if command.is_some() { written.trim().to_owned() } else { build_text(&text) };
    let mut message = User::text(text, at);
    message.extra.insert("idempotencyKey".to_owned(), format!("{run}:user").into());
    attachments::attach(&mut message, pictures);
    let delivery = hub
        .deliveries()
        .reply_delivery(&key, &route)
        .map(|delivery| ReplyDelivery { reply_to: Some(message_id), ..delivery });
    let sender =
        InboundSender { on_channel: Some(sender), text: Some(written), ..InboundSender::new(&principal, CHANNEL) };
    let mut inbound = Inbound {
        command,
        is_literal: false,
        reply: InboundReply::new(route, delivery),
        queue: Some(inline),
        ..Inbound::plain(run, sender, key, message)
    };
    inbound.id.origin = Some(origin);
    Ok(inbound)
}

/// True if this text is a command when the owner writes it.
pub fn is_command(hub: &Hub, text: &str) -> bool {
    hub.0.config.rules().parse(OWNER, text.trim()).command.is_some()
}

/// Returns the run id of an event: equal for equal events, so that a repeated event is a duplicate.
fn run_of(origin: &Origin) -> Result<RunId, ChannelMessageError> {
    // The event alone identifies the run, as in versions that did not store the message.
    let event = Origin { message: None, ..origin.clone() };
    Ok(RunId::parse(&format!("{}-{}", event.channel, &fingerprint(&event)?[..32]))?)
}

/// Text of a message.
struct WrittenText<'a> {
    full: &'a str,
    /// Without its queue directives.
    remaining: String,
}

/// Builds the message: a command as a whole, or a text without its queue directives.
fn message(hub: &Hub, run: &RunId, command: Option<&Command>, text: WrittenText<'_>) -> User {
    let text = if command.is_some() { text.full.to_owned() } else { text.remaining };
    let mut message = User::text(text, hub.ambient().now_ms());
    // Clients of protocol 4 find their own message in the history by this key.
    message.extra.insert("idempotencyKey".to_owned(), format!("{run}:user").into());
    message
}

/// Returns the time limit for a requested one: zero means no limit.
fn limit(requested: Duration) -> Duration {
    let max = Duration::from_secs(MAX_TIMEOUT);
    if requested.is_zero() { max } else { requested.min(max) }
}

/// Resolves the session of a request: its key, else its agent's main session, else the session with that id, else the
/// default agent's main session.
async fn resolve(
    hub: &Hub,
    agent: Option<&str>,
    key: Option<&str>,
    id: Option<SessionId>,
) -> Result<(SessionKey, Option<SessionId>), ErrorShape> {
    let requested = agent.map(|id| known_agent(hub, id, AgentParams::METHOD)).transpose()?;
    let default = requested.clone().unwrap_or_else(|| hub.agents().default_id().clone());
    if let Some(text) = key.map(str::trim).filter(|key| !key.is_empty()) {
        return parse_key(hub, text, requested.as_ref(), AgentParams::METHOD).map(|key| (key, None));
    }
    match (requested, id) {
        (Some(agent), _) => Ok((agent.main_session(), None)),
        (None, Some(id)) => {
            let found = hub.sessions().find(&id).await.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
            let key = match found {
                Some(key) => key,
                None => {
                    let found_agent = hub.sessions().find_transcript(&id).await;
                    let agent = found_agent.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
                    SessionKey::explicit(&agent.unwrap_or(default), &id)
                }
            };
            Ok((key, Some(id)))
        }
        (None, None) => Ok((default.main_session(), None)),
    }
}

/// Parses a session key, with this agent if it names none. The key of another agent is rejected.
fn parse_key(hub: &Hub, text: &str, requested: Option<&AgentId>, method: &str) -> Result<SessionKey, ErrorShape> {
    let key = SessionKey::parse(text, requested.unwrap_or(hub.agents().default_id()))
        .map_err(|error| invalid_in(method, &format!("sessionKey: {error}")))?;
    match (requested, key.agent()) {
        (Some(requested), Some(owner)) if requested != owner => {
            Err(invalid_in(method, &format!("agent \"{requested}\" does not match session key agent \"{owner}\"")))
        }
        (None, Some(owner)) => known_agent(hub, owner.as_str(), method).map(|_| key),
        _ => Ok(key),
    }
}

fn known_agent(hub: &Hub, raw: &str, method: &str) -> Result<AgentId, ErrorShape> {
    let id = AgentId::normalize(raw);
    match hub.agents().get(&id) {
        Some(_) => Ok(id),
        None => Err(invalid_in(method, &format!("unknown agent id \"{}\"", raw.trim()))),
    }
}

/// Resolves a channel name or alias.
fn channel(hub: &Hub, raw: &str) -> Result<String, ErrorShape> {
    let name = raw.trim().to_lowercase();
    let alias = CHANNEL_ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name.as_str(), |(_, channel)| channel);
    let is_known = name.is_empty() || CHANNELS.contains(&name) || hub.deliveries().channel_traits(name).is_some();
    if is_known { Ok(name.to_owned()) } else { Err(invalid(&format!("unknown channel: {name}"))) }
}

/// Plans the delivery of a reply. For the main session it is best effort by default, because the reply is also visible
/// there.
async fn plan_delivery(
    hub: &Hub,
    key: &SessionKey,
    request: DeliveryRequest,
    is_best_effort: Option<bool>,
) -> Result<(Route, Option<ReplyDelivery>), ErrorShape> {
    let is_best_effort = is_best_effort.unwrap_or(key.is_main() || key.kind() == "global");
    let planned = hub.deliveries().plan(key, &request, is_best_effort).await.map_err(|why| invalid(&why))?;
    Ok(planned.map(|(route, delivery)| (route, Some(delivery))).unwrap_or_default())
}

/// Parses a thinking level.
fn thinking_level(raw: &str) -> Result<String, ErrorShape> {
    let unknown =
        || invalid(&format!("unknown thinking level \"{}\" (use {})", raw.trim(), levels::THINKING_LEVELS.join("|")));
    levels::thinking(raw).map(str::to_owned).ok_or_else(unknown)
}

fn invalid(why: &str) -> ErrorShape {
    invalid_in(AgentParams::METHOD, why)
}

fn invalid_in(method: &str, why: &str) -> ErrorShape {
    ErrorShape::invalid(format!("invalid {method} params: {why}"))
}

/// Returns the digest of a request: the same id with another digest is another request. An error if the request cannot
/// be serialized, because all such requests would have the same digest.
fn fingerprint(params: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_vec(params)?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod fingerprint_tests {
    use serde::{Serializer, ser::Error as _};

    use super::*;

    struct UnserializableValue;

    impl Serialize for UnserializableValue {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("broken"))
        }
    }

    #[test]
    fn an_unserializable_value_has_no_fingerprint() {
        assert_ne!(fingerprint(&"a").unwrap(), fingerprint(&"b").unwrap());
        assert_eq!(fingerprint(&UnserializableValue).unwrap_err().to_string(), "broken");
    }
}
