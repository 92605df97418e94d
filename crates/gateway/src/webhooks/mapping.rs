//! Mappings: which requests to custom paths they match, and the action they produce. Pure.

use homard_schedule::job::WakeMode;
use serde_json::{Map, Value};

use super::{
    action::{FieldOrigin, WebhookAction},
    rejection::WebhookRejection,
    template::{Template, TemplateValues},
};

/// Session key parts that denote a kind of session.
const RESERVED_PARTS: [&str; 7] = ["agent", "group", "channel", "direct", "dm", "thread", "topic"];

/// A mapping from webhook requests to an action.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapping {
    /// Identifier.
    pub id: Option<String>,
    /// Request path, relative to the path of the webhooks (`hooks.path`); any path if not set.
    pub path: Option<String>,
    /// Required value of the member `source` in the body; any value if not set.
    pub source: Option<String>,
    /// Action to perform.
    pub action: MappingAction,
    /// When the main session is informed.
    pub wake: WakeMode,
    /// Display name.
    pub name: Option<Template>,
    /// Agent that performs the action.
    pub agent: Option<String>,
    /// Session key. Each inserted value becomes a single part of the key.
    pub session_key: Option<Template>,
    /// Message for the agent.
    pub message: Option<Template>,
    /// Text for the main session.
    pub text: Option<Template>,
    /// Deliver the reply to a chat.
    pub deliver: Option<bool>,
    /// Trust the message like the owner's own text.
    pub allow_unsafe_external_content: bool,
    /// Channel of the delivery.
    pub channel: Option<String>,
    /// Recipient of the delivery.
    pub to: Option<Template>,
    /// Model as `provider/model`.
    pub model: Option<Template>,
    /// Thinking level.
    pub thinking: Option<Template>,
    /// Timeout in seconds.
    pub timeout_seconds: Option<u64>,
    /// Id of the event in its source system; an event is processed once.
    pub idempotency_key: Option<Template>,
    /// JavaScript function that modifies the resulting fields.
    pub transform: Option<Transform>,
}

/// Action of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MappingAction {
    /// Starts an agent run.
    #[default]
    Agent,
    /// Sends a text to the main session.
    Wake,
}

impl MappingAction {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Wake => "wake",
        }
    }
}

/// A JavaScript function that modifies the result of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// File of the module, below the directory of transforms.
    pub module: String,
    /// Name of the exported function; `default` or `transform` if not set.
    pub export: Option<String>,
}

impl Mapping {
    /// Returns the preset for Gmail notifications.
    pub fn gmail() -> Self {
        let template = |text| Some(Template::parse(text));
        Self {
            id: Some("gmail".to_owned()),
            path: Some("gmail".to_owned()),
            name: template("Gmail"),
            session_key: template("hook:gmail:{{messages[0].id}}"),
            message: template(
                "Mail from {{messages[0].from}}\nSubject: {{messages[0].subject}}\n\n{{messages[0].snippet}}\n\
                 {{messages[0].body}}",
            ),
            idempotency_key: template("{{messages[0].id}}"),
            ..Self::default()
        }
    }

    /// True if it matches a path.
    pub(super) fn matches_path(&self, request_path: &str) -> bool {
        self.path.as_deref().is_none_or(|path| path.trim().trim_matches('/') == request_path)
    }

    /// True if it matches a body.
    pub(super) fn matches_source(&self, payload: &Value) -> bool {
        self.source.as_deref().is_none_or(|source| payload["source"].as_str() == Some(source))
    }

    /// Fills the templates: returns an object in the format of `/agent` and `/wake`.
    pub(super) fn fill(&self, values: TemplateValues<'_>) -> Map<String, Value> {
        let fill_template = |template: &Option<Template>| template.as_ref().map(|template| template.fill(values));
        let key = self.session_key.as_ref().map(|template| template.fill_with(values, |value| escape_key_part(&value)));
        let wake = if self.wake == WakeMode::NextHeartbeat { "next-heartbeat" } else { "now" };
        let fields: [(&str, Value); 14] = [
            ("action", self.action.name().into()),
            ("wakeMode", wake.into()),
            ("name", fill_template(&self.name).into()),
            ("agentId", self.agent.clone().into()),
            ("sessionKey", key.into()),
            ("message", fill_template(&self.message).into()),
            ("text", fill_template(&self.text).into()),
            ("deliver", self.deliver.into()),
            ("channel", self.channel.clone().into()),
            ("to", fill_template(&self.to).into()),
            ("model", fill_template(&self.model).into()),
            ("thinking", fill_template(&self.thinking).into()),
            ("timeoutSeconds", self.timeout_seconds.into()),
            ("idempotencyKey", fill_template(&self.idempotency_key).into()),
        ];
        let mut action_fields: Map<String, Value> =
            fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        action_fields.insert("allowUnsafeExternalContent".to_owned(), self.allow_unsafe_external_content.into());
        action_fields
    }

    /// Parses the filled object to an action.
    pub(super) fn parse_action(&self, fields: &Map<String, Value>) -> Result<WebhookAction, WebhookRejection> {
        // Transforms may call it `kind`, as OpenClaw's do.
        let action = fields.get("kind").or_else(|| fields.get("action")).and_then(Value::as_str);
        let mut parsed = match action {
            Some("wake") => WebhookAction::wake(fields, FieldOrigin::Owner)?,
            Some("agent") => WebhookAction::agent(fields, FieldOrigin::Owner)?,
            _ => return Err(WebhookRejection::invalid("action must be wake or agent")),
        };
        let name = self.id.as_deref().or(self.path.as_deref()).unwrap_or_default();
        let family = format!("mapping:{}", name.trim().trim_matches('/'));
        match &mut parsed {
            WebhookAction::Wake(wake) => wake.family = family,
            WebhookAction::Agent(job) => job.family = family,
        }
        Ok(parsed)
    }
}

/// Escapes a value to one part of a session key, injectively, so that it cannot address another session: keys are
/// divided by colons and case-insensitive.
fn escape_key_part(value: &str) -> String {
    let is_kind = RESERVED_PARTS.contains(&value);
    let mut part = String::with_capacity(value.len());
    for (at, byte) in value.bytes().enumerate() {
        if matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.') && !(at == 0 && is_kind) {
            part.push(char::from(byte));
        } else {
            part.push_str(&format!("%{byte:02x}"));
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn filled(mapping: &Mapping, payload: &Value) -> Map<String, Value> {
        let empty = BTreeMap::new();
        mapping.fill(TemplateValues { payload, headers: &empty, query: &empty, path: "gmail", now: "" })
    }

    #[test]
    fn a_mapping_matches_by_path_and_source() {
        let any = Mapping::default();
        assert!(any.matches_path("x") && any.matches_source(&json!({})) && any.matches_source(&json!([1])));
        let mapping = Mapping { path: Some("/git/hub/".to_owned()), source: Some("ci".to_owned()), ..any };
        assert_eq!(["git/hub", "git", "git/hub/x"].map(|path| mapping.matches_path(path)), [true, false, false]);
        let sources = [json!({"source": "ci"}), json!({"source": "CI"}), json!({}), json!("ci")];
        assert_eq!(sources.map(|payload| mapping.matches_source(&payload)), [true, false, false, false]);
    }

    #[test]
    fn gmail_messages_are_deduplicated_and_get_their_own_session() {
        let mail = json!({"messages": [{"id": "19a", "from": "ann", "subject": "Hi", "snippet": "s", "body": "b"}]});
        let WebhookAction::Agent(job) = Mapping::gmail().parse_action(&filled(&Mapping::gmail(), &mail)).unwrap()
        else {
            panic!()
        };
        assert_eq!(job.message, "Mail from ann\nSubject: Hi\n\ns\nb");
        assert_eq!(job.session, Some((FieldOrigin::Owner, "hook:gmail:19a".to_owned())));
        assert_eq!((job.name.as_str(), job.family.as_str()), ("Gmail", "mapping:gmail"));
        assert_eq!(job.key, Some(super::super::dedupe_key::IdempotencyKey::Event("19a".to_owned())));
        assert!(!job.is_trusted);
    }

    #[test]
    fn a_value_cannot_choose_the_session() {
        let mapping = Mapping { session_key: Some(Template::parse("{{k}}")), ..Mapping::default() };
        let key = |value: &str| filled(&mapping, &json!({"k": value}))["sessionKey"].as_str().unwrap().to_owned();
        assert_eq!(key("19a-b_c.d"), "19a-b_c.d");
        assert_eq!(key("agent:main:main"), "agent%3amain%3amain");
        assert_eq!(key("Ann ä"), "%41nn%20%c3%a4");
        assert_eq!((key("group").as_str(), key("thread").as_str()), ("%67roup", "%74hread"));
    }
}
