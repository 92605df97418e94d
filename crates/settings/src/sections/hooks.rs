//! `hooks`: webhooks for other programs, and internal hooks.

use std::path::{Path, PathBuf};

use homard_gateway::{Mapping as Meant, MappingAction, Template, Transform as Module, WebhookError, Webhooks};
use homard_schedule::job::WakeMode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{internal_hooks::Internal, word::Word};
use crate::{
    Text,
    paths::{self, Paths},
};

/// Default path of webhooks.
const PATH: &str = "/hooks";
/// The only preset.
pub const GMAIL: &str = "gmail";

/// Webhooks, which start runs and post events, and internal hooks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Hooks {
    /// Enable webhooks. They require a token.
    pub enabled: bool,
    /// Error that disables webhooks, if they reference an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
    /// URL path of webhooks. Default: /hooks.
    pub path: Option<String>,
    /// Token that senders of webhooks must present. It must differ from the gateway's.
    pub token: Option<Text>,
    /// Maximum size of a request body in bytes. Default: 262144.
    pub max_body_bytes: Option<usize>,
    /// Session key of runs whose request sets none. Default: a new session for each run.
    pub default_session_key: Option<Text>,
    /// Allow requests to set the session key.
    pub allow_request_session_key: bool,
    /// Prefixes, such as `hook:`, one of which a session key set by a request must have. Default: any key is allowed.
    pub allowed_session_key_prefixes: Option<Vec<String>>,
    /// Agents that requests may name, besides the default one; `*` for all. Default: all.
    pub allowed_agent_ids: Option<Vec<String>>,
    /// Built-in mappings to enable: `gmail`. They are matched after `mappings`.
    pub presets: Vec<String>,
    /// Directory of transform modules. Default: the directory of the config file.
    pub transforms_dir: Option<Text>,
    /// Mappings for all paths except `wake` and `agent`; the first match applies.
    #[serde(deserialize_with = "super::objects")]
    pub mappings: Vec<Mapping>,
    /// Settings of the preset `gmail`.
    #[serde(deserialize_with = "super::object")]
    pub gmail: Gmail,
    /// Internal hooks: scripts that run on events of the gateway.
    #[serde(deserialize_with = "super::object")]
    pub internal: Internal,
}

/// Maps matching requests to an action.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Mapping {
    /// Name of the mapping.
    pub id: Option<String>,
    /// Requests that the mapping applies to. Default: all.
    #[serde(rename = "match", deserialize_with = "super::object")]
    pub meant: Match,
    /// `agent` to start a run, `wake` to post an event to the main session. Default: agent.
    pub action: Option<Word<MappingAction>>,
    /// When the main session handles the event: `now` or `next-heartbeat`. Default: now.
    pub wake_mode: Option<Word<WakeMode>>,
    /// Display name of the run. A template, like `sessionKey`, `messageTemplate`, `textTemplate`, `idempotencyKey`, `to`, `model` and `thinking`.
    pub name: Option<Text>,
    /// Agent that handles the request. Default: the default agent.
    pub agent_id: Option<String>,
    /// Session key of the run. A value that is filled in becomes one segment of the key.
    pub session_key: Option<Text>,
    /// Message to the agent, such as `New mail from {{from}}`.
    pub message_template: Option<Text>,
    /// Text of the event for the main session.
    pub text_template: Option<Text>,
    /// Id of the event at its sender, such as `{{id}}`: an event with the same id is processed once.
    pub idempotency_key: Option<Text>,
    /// Deliver the reply to a chat. Default: true.
    pub deliver: Option<bool>,
    /// Treat the message as written by the owner instead of as untrusted external content.
    pub allow_unsafe_external_content: bool,
    /// Channel to deliver to. Default: last, the channel where the owner wrote last.
    pub channel: Option<String>,
    /// Recipient on that channel: a person or group.
    pub to: Option<Text>,
    /// Model of the run, as `provider/model`.
    pub model: Option<Text>,
    /// Reasoning level of the run.
    pub thinking: Option<Text>,
    /// Maximum duration of the run in seconds. Default: the agent's own limit.
    pub timeout_seconds: Option<u64>,
    /// Module that transforms the result of the mapping.
    #[serde(deserialize_with = "super::maybe_object")]
    pub transform: Option<Transform>,
}

/// Conditions of a mapping.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Match {
    /// Path of the request, relative to the webhook path.
    pub path: Option<String>,
    /// Value of `source` in the body.
    pub source: Option<String>,
}

/// Module that transforms the result of a mapping.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Transform {
    /// Path of the module, relative to `hooks.transformsDir`.
    pub module: String,
    /// Exported function to call. Default: the module's default export.
    pub export: Option<String>,
}

/// Settings of the preset `gmail`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Gmail {
    /// Model of the run, as `provider/model`.
    pub model: Option<Text>,
    /// Reasoning level of the run.
    pub thinking: Option<Text>,
    /// Treat mails as written by the owner instead of as untrusted external content.
    pub allow_unsafe_external_content: bool,
}

super::word::words! {
    MappingAction: "agent" => Self::Agent, "wake" => Self::Wake;
    WakeMode: "now" => Self::Now, "next-heartbeat" => Self::NextHeartbeat;
}

fn template(text: &Option<Text>) -> Option<Template> {
    text.as_ref().map(|text| Template::parse(text.as_str()))
}

impl Hooks {
    /// Returns the directory of transform modules.
    pub fn transforms(&self, paths: &Paths) -> PathBuf {
        let config_dir = || paths.config.parent().map(Path::to_path_buf).unwrap_or_default();
        let configured = self
            .transforms_dir
            .as_ref()
            .map(|folder| paths::expand(Path::new(folder.as_str()), paths::home().as_deref()));
        configured.map_or_else(config_dir, |folder| config_dir().join(folder))
    }

    /// Returns the webhooks to serve, if enabled; an error says why they cannot be served.
    pub fn webhooks(&self) -> Result<Option<Webhooks>, WebhookError> {
        if !self.enabled || self.fault.is_some() {
            return Ok(None);
        }
        let token = self.token.as_ref().map_or("", Text::as_str);
        let mut webhooks = Webhooks::new(token, self.path.as_deref().unwrap_or(PATH))?;
        webhooks.max_body = self.max_body_bytes.unwrap_or(webhooks.max_body);
        webhooks.default_session_key = self.default_session_key.as_ref().map(|key| key.as_str().to_owned());
        webhooks.allow_request_session_key = self.allow_request_session_key;
        webhooks.allowed_session_key_prefixes.clone_from(&self.allowed_session_key_prefixes);
        webhooks.allowed_agent_ids.clone_from(&self.allowed_agent_ids);
        webhooks.mappings = self.mappings.iter().map(Mapping::to_mapping).collect();
        if self.presets.iter().any(|preset| preset == GMAIL) {
            webhooks.mappings.push(self.gmail.to_mapping());
        }
        Ok(Some(webhooks))
    }
}

impl Mapping {
    fn to_mapping(&self) -> Meant {
        let module =
            |transform: &Transform| Module { module: transform.module.clone(), export: transform.export.clone() };
        Meant {
            id: self.id.clone(),
            path: self.meant.path.clone(),
            source: self.meant.source.clone(),
            action: self.action.map(|action| action.0).unwrap_or_default(),
            wake: self.wake_mode.clone().map(|wake| wake.0).unwrap_or_default(),
            name: template(&self.name),
            agent: self.agent_id.clone(),
            session_key: template(&self.session_key),
            message: template(&self.message_template),
            text: template(&self.text_template),
            deliver: self.deliver,
            allow_unsafe_external_content: self.allow_unsafe_external_content,
            channel: self.channel.clone(),
            to: template(&self.to),
            model: template(&self.model),
            thinking: template(&self.thinking),
            timeout_seconds: self.timeout_seconds,
            idempotency_key: template(&self.idempotency_key),
            transform: self.transform.as_ref().map(module),
        }
    }
}

impl Gmail {
    fn to_mapping(&self) -> Meant {
        Meant {
            model: template(&self.model),
            thinking: template(&self.thinking),
            allow_unsafe_external_content: self.allow_unsafe_external_content,
            ..Meant::gmail()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<Option<Webhooks>, WebhookError> {
        Config::read(std::path::Path::new("homard.json"), text).config.hooks.webhooks()
    }

    #[test]
    fn webhooks_are_disabled_until_enabled_with_a_token() {
        assert!(read("{}").unwrap().is_none());
        assert!(read("{hooks: {token: 't'}}").unwrap().is_none());
        assert!(read("{hooks: {enabled: true, token: 't'}}").unwrap().is_some());
        for text in ["{hooks: {enabled: true}}", "{hooks: {enabled: true, token: ' '}}"] {
            assert_eq!(read(text).unwrap_err(), WebhookError::NoToken, "{text}");
        }
    }

    #[test]
    fn webhook_settings_are_taken_from_the_config() {
        let text = "{hooks: {enabled: true, token: 't', presets: ['gmail'], gmail: {model: 'p/m'}, mappings: [
            {id: 'ci', match: {path: 'ci', source: 's'}, action: 'wake', wakeMode: 'next-heartbeat', textTemplate: '{{a}}',
             transform: {module: 'ci.mjs'}}]}}";
        let ci = Meant {
            id: Some("ci".to_owned()),
            path: Some("ci".to_owned()),
            source: Some("s".to_owned()),
            action: MappingAction::Wake,
            wake: WakeMode::NextHeartbeat,
            text: Some(Template::parse("{{a}}")),
            transform: Some(Module { module: "ci.mjs".to_owned(), export: None }),
            ..Meant::default()
        };
        let gmail = Meant { model: Some(Template::parse("p/m")), ..Meant::gmail() };
        assert_eq!(read(text).unwrap().unwrap().mappings, [ci, gmail]);
    }
}
