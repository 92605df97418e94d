//! `hooks`: webhooks for other programs, and internal hooks.

use std::path::{Path, PathBuf};

use homard_agent::schedule::job::Wake;
use homard_gateway::{Action, Mapping as Meant, Template, Transform as Module, WebhookError, Webhooks};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{internal_hooks::Internal, word::Word};
use crate::{
    config::Text,
    paths::{self, Paths},
};

/// Default path of webhooks.
const PATH: &str = "/hooks";
/// The only preset.
pub(in crate::config) const GMAIL: &str = "gmail";

/// What other programs may send to agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Hooks {
    /// Whether webhooks are answered. They need a token.
    pub(crate) enabled: bool,
    /// Why webhooks must not be answered, if a variable that they need is not set.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
    /// Where they are. Default: /hooks.
    pub(crate) path: Option<String>,
    /// The token that whoever sends one must show. Not the gateway's.
    pub(crate) token: Option<Text>,
    /// How large one may be. Default: 262144.
    pub(crate) max_body_bytes: Option<usize>,
    /// The session of runs that name none. Default: each has its own.
    pub(crate) default_session_key: Option<Text>,
    /// Whether a request may name its session.
    pub(crate) allow_request_session_key: bool,
    /// How keys of sessions that are named must begin, such as `hook:`. Default: as they like.
    pub(crate) allowed_session_key_prefixes: Option<Vec<String>>,
    /// The agents that may be named besides the default one; `*` for all. Default: all.
    pub(crate) allowed_agent_ids: Option<Vec<String>>,
    /// Mappings that are there already: `gmail`. They come after those of `mappings`.
    pub(crate) presets: Vec<String>,
    /// The folder of modules that transform requests. Default: that of this file.
    pub(crate) transforms_dir: Option<Text>,
    /// What is done at other paths; the first that fits counts.
    #[serde(deserialize_with = "super::objects")]
    pub(crate) mappings: Vec<Mapping>,
    /// How the preset `gmail` answers.
    #[serde(deserialize_with = "super::object")]
    pub(crate) gmail: Gmail,
    /// What runs beside the agents when something happens.
    #[serde(deserialize_with = "super::object")]
    pub(crate) internal: Internal,
}

/// What is done with some requests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Mapping {
    /// What it is called.
    pub(crate) id: Option<String>,
    /// Which requests are meant. Default: all.
    #[serde(rename = "match", deserialize_with = "super::object")]
    pub(crate) meant: Match,
    /// `agent` to ask an agent, `wake` to tell the main session something. Default: agent.
    pub(crate) action: Option<Word<Action>>,
    /// When the main session hears of it: `now` or `next-heartbeat`. Default: now.
    pub(crate) wake_mode: Option<Word<Wake>>,
    /// What people call it. A template, as the others that follow.
    pub(crate) name: Option<Text>,
    /// Who does it. Default: the default agent.
    pub(crate) agent_id: Option<String>,
    /// In which session. What fills it is one part of the key.
    pub(crate) session_key: Option<Text>,
    /// What the agent is asked, such as `New mail from {{from}}`.
    pub(crate) message_template: Option<Text>,
    /// What the main session is told.
    pub(crate) text_template: Option<Text>,
    /// What the event is called by whoever tells of it, such as `{{id}}`: an event is dealt with once.
    pub(crate) idempotency_key: Option<Text>,
    /// Whether the answer is sent to a chat. Default: true.
    pub(crate) deliver: Option<bool>,
    /// Whether the message is taken for your own words, and not for a stranger's.
    pub(crate) allow_unsafe_external_content: bool,
    /// The chat platform. Default: last, where you talked last.
    pub(crate) channel: Option<String>,
    /// The person or group there.
    pub(crate) to: Option<Text>,
    /// Who answers, as `provider/model`.
    pub(crate) model: Option<Text>,
    /// How hard the model thinks.
    pub(crate) thinking: Option<Text>,
    /// How long it may take. Default: as long as the agent's other runs.
    pub(crate) timeout_seconds: Option<u64>,
    /// A module that changes all that.
    #[serde(deserialize_with = "super::maybe_object")]
    pub(crate) transform: Option<Transform>,
}

/// Which requests are meant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Match {
    /// The path beneath that of all webhooks.
    pub(crate) path: Option<String>,
    /// What `source` in the body is.
    pub(crate) source: Option<String>,
}

/// A module that changes what is made of requests.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct Transform {
    /// Its file, beneath `hooks.transformsDir`.
    pub(crate) module: String,
    /// The function. Default: the module's own.
    pub(crate) export: Option<String>,
}

/// How the preset `gmail` answers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gmail {
    /// Who answers, as `provider/model`.
    pub(crate) model: Option<Text>,
    /// How hard the model thinks.
    pub(crate) thinking: Option<Text>,
    /// Whether mails are taken for your own words, and not for strangers'.
    pub(crate) allow_unsafe_external_content: bool,
}

super::word::words! {
    Action: "agent" => Self::Agent, "wake" => Self::Wake;
    Wake: "now" => Self::Now, "next-heartbeat" => Self::NextHeartbeat;
}

fn template(text: &Option<Text>) -> Option<Template> {
    text.as_ref().map(|text| Template::parse(text.as_str()))
}

impl Hooks {
    /// Returns the directory of transform modules.
    pub(crate) fn transforms(&self, paths: &Paths) -> PathBuf {
        let beside = || paths.config.parent().map(Path::to_path_buf).unwrap_or_default();
        let said = self
            .transforms_dir
            .as_ref()
            .map(|folder| paths::expand(Path::new(folder.as_str()), paths::home().as_deref()));
        said.map_or_else(beside, |folder| beside().join(folder))
    }

    /// Returns the webhooks to serve, if enabled; an error says why they cannot be served.
    pub(crate) fn webhooks(&self) -> Result<Option<Webhooks>, WebhookError> {
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
        webhooks.mappings = self.mappings.iter().map(Mapping::meant).collect();
        if self.presets.iter().any(|preset| preset == GMAIL) {
            webhooks.mappings.push(self.gmail.meant());
        }
        Ok(Some(webhooks))
    }
}

impl Mapping {
    fn meant(&self) -> Meant {
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
    fn meant(&self) -> Meant {
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
    use crate::config::Config;

    fn read(text: &str) -> Result<Option<Webhooks>, WebhookError> {
        Config::read(std::path::Path::new("homard.json"), text).config.hooks.webhooks()
    }

    #[test]
    fn webhooks_are_off_until_they_are_put_on_with_a_token() {
        assert!(read("{}").unwrap().is_none());
        assert!(read("{hooks: {token: 't'}}").unwrap().is_none());
        assert!(read("{hooks: {enabled: true, token: 't'}}").unwrap().is_some());
        for text in ["{hooks: {enabled: true}}", "{hooks: {enabled: true, token: ' '}}"] {
            assert_eq!(read(text).unwrap_err(), WebhookError::NoToken, "{text}");
        }
    }

    #[test]
    fn what_the_file_says_is_what_is_done() {
        let text = "{hooks: {enabled: true, token: 't', presets: ['gmail'], gmail: {model: 'p/m'}, mappings: [
            {id: 'ci', match: {path: 'ci', source: 's'}, action: 'wake', wakeMode: 'next-heartbeat', textTemplate: '{{a}}',
             transform: {module: 'ci.mjs'}}]}}";
        let ci = Meant {
            id: Some("ci".to_owned()),
            path: Some("ci".to_owned()),
            source: Some("s".to_owned()),
            action: Action::Wake,
            wake: Wake::NextHeartbeat,
            text: Some(Template::parse("{{a}}")),
            transform: Some(Module { module: "ci.mjs".to_owned(), export: None }),
            ..Meant::default()
        };
        let gmail = Meant { model: Some(Template::parse("p/m")), ..Meant::gmail() };
        assert_eq!(read(text).unwrap().unwrap().mappings, [ci, gmail]);
    }
}
