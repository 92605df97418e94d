//! From a request to something that the hub takes: whose message, which session, which settings.

pub mod attachments;

use std::time::Duration;

use homard_proto::{
    AgentId, ErrorShape, Route, RunId, SessionId, SessionKey, id,
    message::{Block, User},
    method::{Params, agent::AgentParams, chat::SendParams},
};
use homard_store::{Authority, Origin, Post, Sender};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    command::{
        Command, Inline, OWNER, Parsed,
        queue::{Mode, Overrides},
    },
    hub::{Hub, Inbound},
    lane::slots::Class,
    post::plan::Wish,
};

/// The method of messages from chat platforms.
pub const CHANNEL: &str = "channel";

/// The longest that a run may ask for, in seconds: a year, which is as long as it takes. Beyond it a clock would
/// overflow some day.
const MAX_TIMEOUT: u64 = 365 * 24 * 60 * 60;

/// The thinking levels, weakest first.
pub const THINKING_LEVELS: [&str; 6] = ["off", "minimal", "low", "medium", "high", "xhigh"];

/// Channel names that a request may carry, whether or not such a channel is set up: clients send one by default.
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

/// What people also call them.
const CHANNEL_ALIASES: [(&str, &str); 6] = [
    ("teams", "msteams"),
    ("imsg", "imessage"),
    ("google-chat", "googlechat"),
    ("gchat", "googlechat"),
    ("internet-relay-chat", "irc"),
    ("lark", "feishu"),
];

/// Makes an [`Inbound`] of the parameters of `agent`, or says what is wrong with them.
pub async fn agent(hub: &Hub, principal: &str, params: AgentParams) -> Result<Inbound, ErrorShape> {
    let text = params.message.trim();
    if text.is_empty() {
        return Err(wrong("message must not be blank"));
    }
    let pictures = attachments::pictures(params.attachments.clone()).await?;
    let named = [&params.reply_channel, &params.channel].map(Option::as_deref);
    let named = named.map(|raw| raw.map(|raw| channel(hub, raw)).transpose());
    let [replied, given] = named;
    let given = replied?.or(given?);
    let thinking = params.thinking.as_deref().map(thinking_level).transpose()?;
    let (key, session) = resolve(hub, &params).await?;
    let (route, post) = post(hub, &key, &params, given).await?;
    let class = Class::choose(params.lane.as_deref(), &key);
    let Parsed { command, text, .. } = hub.rules().read(principal, text);
    let mut message = message(hub, &params.idempotency_key, command.as_ref(), (params.message.trim(), text));
    attachments::attach(&mut message, pictures);
    Ok(Inbound {
        run: params.idempotency_key.clone(),
        principal: principal.to_owned(),
        method: AgentParams::METHOD.to_owned(),
        fingerprint: fingerprint(&params).map_err(|error| wrong(&error.to_string()))?,
        key,
        session,
        message,
        class,
        timeout: params.timeout.map(|seconds| limit(Duration::from_secs(seconds))),
        thinking,
        label: params.label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()),
        spawned_by: params.spawned_by,
        extra_prompt: params.extra_system_prompt,
        is_strict: params.strict == Some(true),
        reports_restart: params.on_restart.as_deref() == Some("interrupt"),
        command,
        is_literal: false,
        route,
        post,
        queue: None,
        blocks: None,
        client_tools: Vec::new(),
        origin: None,
        sender: None,
        words: None,
        cwd: None,
        authority: Authority::Full,
    })
}

/// Makes an [`Inbound`] of the parameters of `chat.send`, or says what is wrong with them.
pub async fn chat(hub: &Hub, principal: &str, params: SendParams) -> Result<Inbound, ErrorShape> {
    let wrong = |why: &str| ErrorShape::invalid(format!("invalid chat.send params: {why}"));
    let text = params.message.trim();
    let pictures = attachments::pictures(params.attachments.clone()).await?;
    if text.is_empty() && pictures.is_empty() {
        return Err(ErrorShape::invalid("message or attachment required"));
    }
    let thinking = params.thinking.as_deref().map(thinking_level).transpose()?;
    let key = SessionKey::parse(params.session_key.trim(), hub.agents().default_id())
        .map_err(|error| wrong(&format!("sessionKey: {error}")))?;
    if let Some(agent) = key.agent() {
        known_agent(hub, agent.as_str())?;
    }
    let Parsed { command, inline, text } = match params.suppress_command_interpretation {
        Some(true) => Parsed { command: None, inline: Inline::Nothing, text: text.to_owned() },
        Some(false) | None => hub.rules().read(principal, text),
    };
    let route = params.route();
    let (route, post) = match hub.post_back(&key, &route).filter(|_| params.deliver != Some(false)) {
        Some(post) => (route, Some(post)),
        None if params.deliver == Some(true) && route == Route::default() => {
            let wish = Wish { is_wanted: true, route };
            // Whoever sends it reads the answer where they are.
            hub.plan_post(&key, &wish, true).await.map_err(|why| wrong(&why))?.map_or_else(Default::default, some)
        }
        None => (route, None),
    };
    let mode = params.queue_mode.as_deref().and_then(Mode::parse);
    let asked = mode.map(|mode| Inline::Set(Overrides { mode: Some(mode), ..Overrides::default() }));
    let mut message = message(hub, &params.idempotency_key, command.as_ref(), (params.message.trim(), text));
    attachments::attach(&mut message, pictures);
    Ok(Inbound {
        run: params.idempotency_key.clone(),
        principal: principal.to_owned(),
        method: SendParams::METHOD.to_owned(),
        fingerprint: fingerprint(&params).map_err(|error| wrong(&error.to_string()))?,
        class: Class::choose(None, &key),
        key,
        session: None,
        message,
        timeout: params.timeout_ms.map(|ms| limit(Duration::from_millis(ms))),
        thinking,
        label: None,
        spawned_by: None,
        extra_prompt: None,
        is_strict: false,
        reports_restart: false,
        command,
        is_literal: params.suppress_command_interpretation == Some(true),
        route,
        post,
        queue: Some(if inline == Inline::Nothing { asked.unwrap_or_default() } else { inline }),
        blocks: None,
        client_tools: Vec::new(),
        origin: None,
        sender: None,
        words: None,
        cwd: None,
        authority: Authority::Full,
    })
}

/// A message from a chat platform, from somebody who was let in.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrived {
    /// The event that brought it. The same event never leads to two runs.
    pub origin: Origin,
    /// Who said it, as the hub knows people.
    pub principal: String,
    /// Who said it, as the platform does.
    pub sender: Sender,
    /// The session.
    pub key: SessionKey,
    /// What was said, as it was written.
    pub words: String,
    /// The pictures that came with it.
    pub pictures: Vec<Block>,
    /// Where it came from and its answer goes.
    pub route: Route,
    /// What the platform calls it.
    pub message: String,
    /// When it was said, in milliseconds since the epoch.
    pub at: u64,
}

/// Why an event of a channel cannot be taken as a message.
#[derive(Debug, thiserror::Error)]
pub enum ArrivedError {
    /// The channel's name cannot be part of a run's.
    #[error(transparent)]
    Channel(#[from] id::Error),
    /// It cannot be told apart from other events.
    #[error("the event has no fingerprint: {0}")]
    Fingerprint(#[from] serde_json::Error),
}

/// Makes an [`Inbound`] of a message from a chat platform. `told` makes what a model reads of what was said; a command is
/// kept as it was written. Fails on a channel whose name cannot be part of a run's.
pub fn arrived(hub: &Hub, arrived: Arrived, told: impl FnOnce(&str) -> String) -> Result<Inbound, ArrivedError> {
    let Arrived { origin, principal, sender, key, words, pictures, route, message: said, at } = arrived;
    let run = run_of(&origin)?;
    let Parsed { command, inline, text } = hub.rules().read(&principal, words.trim());
    let text = if command.is_some() { words.trim().to_owned() } else { told(&text) };
    let mut message = User::text(text, at);
    message.extra.insert("idempotencyKey".to_owned(), format!("{run}:user").into());
    attachments::attach(&mut message, pictures);
    let post = hub.post_back(&key, &route).map(|post| Post { reply_to: Some(said), ..post });
    Ok(Inbound {
        command,
        is_literal: false,
        queue: Some(inline),
        origin: Some(origin),
        sender: Some(sender),
        words: Some(words),
        route,
        post,
        ..Inbound::plain(run, (&principal, CHANNEL), key, message)
    })
}

/// Whether the owner would give a command with this text.
pub fn is_command(hub: &Hub, text: &str) -> bool {
    hub.rules().read(OWNER, text.trim()).command.is_some()
}

/// The run of an event: the same for the same event, however often it comes.
fn run_of(origin: &Origin) -> Result<RunId, ArrivedError> {
    Ok(RunId::parse(&format!("{}-{}", origin.channel, &fingerprint(origin)?[..32]))?)
}

/// What is said: all of a command, or what is left of a text without what it says about the queue.
fn message(hub: &Hub, run: &RunId, command: Option<&Command>, (whole, left): (&str, String)) -> User {
    let text = if command.is_some() { whole.to_owned() } else { left };
    let mut message = User::text(text, hub.ambient().now_ms());
    // Clients of protocol 4 find their own message in the history by this.
    message.extra.insert("idempotencyKey".to_owned(), format!("{run}:user").into());
    message
}

/// How long a run may take that asks for so long: zero means as long as it takes.
fn limit(asked: Duration) -> Duration {
    let most = Duration::from_secs(MAX_TIMEOUT);
    if asked.is_zero() { most } else { asked.min(most) }
}

/// Which session a request means: its key, else its agent's main session, else the session with that id, else the
/// default agent's main session.
async fn resolve(hub: &Hub, params: &AgentParams) -> Result<(SessionKey, Option<SessionId>), ErrorShape> {
    let named = params.agent_id.as_deref().map(|id| known_agent(hub, id)).transpose()?;
    let default = named.clone().unwrap_or_else(|| hub.agents().default_id().clone());
    let key = params.session_key.as_deref().map(str::trim).filter(|key| !key.is_empty());
    if let Some(text) = key {
        let key = SessionKey::parse(text, &default).map_err(|error| wrong(&format!("sessionKey: {error}")))?;
        return match (&named, key.agent()) {
            (Some(named), Some(owner)) if named != owner => {
                Err(wrong(&format!("agent \"{named}\" does not match session key agent \"{owner}\"")))
            }
            (None, Some(owner)) => known_agent(hub, owner.as_str()).map(|_| (key, None)),
            _ => Ok((key, None)),
        };
    }
    match (named, &params.session_id) {
        (Some(agent), _) => Ok((agent.main_session(), None)),
        (None, Some(id)) => {
            let known = hub.find_session(id).await.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
            let key = match known {
                Some(key) => key,
                None => {
                    let left = hub.find_transcript(id).await;
                    let agent = left.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
                    SessionKey::explicit(&agent.unwrap_or(default), id)
                }
            };
            Ok((key, Some(id.clone())))
        }
        (None, None) => Ok((default.main_session(), None)),
    }
}

fn known_agent(hub: &Hub, raw: &str) -> Result<AgentId, ErrorShape> {
    let id = AgentId::normalize(raw);
    match hub.agents().get(&id) {
        Some(_) => Ok(id),
        None => Err(wrong(&format!("unknown agent id \"{}\"", raw.trim()))),
    }
}

/// The channel that a word means.
fn channel(hub: &Hub, raw: &str) -> Result<String, ErrorShape> {
    let name = raw.trim().to_lowercase();
    let alias = CHANNEL_ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name.as_str(), |(_, channel)| channel);
    let is_known = name.is_empty() || CHANNELS.contains(&name) || hub.manner(name).is_some();
    if is_known { Ok(name.to_owned()) } else { Err(wrong(&format!("unknown channel: {name}"))) }
}

/// Where the answer of a request goes, and that it goes there. Whoever asks the main session reads it there, too.
async fn post(
    hub: &Hub,
    key: &SessionKey,
    params: &AgentParams,
    channel: Option<String>,
) -> Result<(Route, Option<Post>), ErrorShape> {
    let to = params.reply_to.as_deref().or(params.to.as_deref());
    let account = params.reply_account_id.as_deref().or(params.account_id.as_deref());
    let route = Route::new(channel.as_deref(), to, account, params.thread_id.as_deref());
    let wish = Wish { is_wanted: params.deliver == Some(true), route };
    let is_best_effort = params.best_effort_deliver.unwrap_or(key.is_main() || key.kind() == "global");
    let planned = hub.plan_post(key, &wish, is_best_effort).await.map_err(|why| wrong(&why))?;
    Ok(planned.map_or_else(Default::default, some))
}

fn some((route, post): (Route, Post)) -> (Route, Option<Post>) {
    (route, Some(post))
}

/// The level that a word means.
fn thinking_level(raw: &str) -> Result<String, ErrorShape> {
    let unknown = || wrong(&format!("unknown thinking level \"{}\" (use {})", raw.trim(), THINKING_LEVELS.join("|")));
    thinking(raw).map(str::to_owned).ok_or_else(unknown)
}

/// The thinking level that a word means, if it means one.
pub fn thinking(word: &str) -> Option<&'static str> {
    let word = word.trim().to_lowercase();
    let level = match word.as_str() {
        "on" | "enable" | "enabled" | "thinkhard" => "low",
        "min" | "think" => "minimal",
        "mid" | "med" | "harder" | "thinkharder" => "medium",
        "ultra" | "ultrathink" | "highest" | "max" => "high",
        "x-high" => "xhigh",
        other => other,
    };
    THINKING_LEVELS.into_iter().find(|known| *known == level)
}

fn wrong(why: &str) -> ErrorShape {
    ErrorShape::invalid(format!("invalid agent params: {why}"))
}

/// A digest of what was asked: the same id with another digest is another request. What cannot be serialised has none:
/// all such requests would be the same.
fn fingerprint(params: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_vec(params)?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod fingerprint_tests {
    use serde::{Serializer, ser::Error as _};

    use super::*;

    struct Broken;

    impl Serialize for Broken {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("broken"))
        }
    }

    #[test]
    fn what_cannot_be_serialised_has_no_fingerprint() {
        assert_ne!(fingerprint(&"a").unwrap(), fingerprint(&"b").unwrap());
        assert_eq!(fingerprint(&Broken).unwrap_err().to_string(), "broken");
    }
}
