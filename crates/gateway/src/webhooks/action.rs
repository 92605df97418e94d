//! The action that a webhook request asks for, parsed from its body or from the output of a mapping. Pure.

use std::time::Duration;

use homard_agent::external;
use homard_schedule::job::WakeMode;
use serde_json::{Map, Value};

use super::{dedupe_key::IdempotencyKey, rejection::WebhookRejection};

/// Maximum length of a webhook's name in characters.
const MAX_NAME_CHARS: usize = 80;
/// Maximum timeout of a run in seconds: one year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

/// Requested action.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WebhookAction {
    /// Sends a text to the main session.
    Wake(WakeText),
    /// Starts an agent run.
    Agent(Box<WebhookJob>),
}

/// A text for the main session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WakeText {
    /// Kind of request; idempotency keys are scoped by it.
    pub(super) family: String,
    pub(super) text: String,
    pub(super) wake: WakeMode,
    pub(super) agent: Option<String>,
    pub(super) key: Option<IdempotencyKey>,
}

/// A run for an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WebhookJob {
    /// Kind of request; idempotency keys are scoped by it.
    pub(super) family: String,
    pub(super) message: String,
    /// Display name of the webhook.
    pub(super) name: String,
    /// When the main session is informed of the result.
    pub(super) wake: WakeMode,
    pub(super) agent: Option<String>,
    pub(super) session: Option<(FieldOrigin, String)>,
    /// Where the reply is delivered; `None` if it is not.
    pub(super) target: Option<WebhookTarget>,
    pub(super) model: Option<String>,
    pub(super) thinking: Option<&'static str>,
    pub(super) timeout: Option<Duration>,
    /// True if the message is trusted like the owner's own text.
    pub(super) is_trusted: bool,
    pub(super) key: Option<IdempotencyKey>,
}

/// Delivery target. Missing parts are taken from the main session's last conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebhookTarget {
    pub(super) channel: Option<String>,
    pub(super) to: Option<String>,
}

/// Who set a field of a webhook action, which determines whether it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldOrigin {
    /// The request.
    Request,
    /// The owner, through a mapping or a transform.
    Owner,
}

impl WebhookAction {
    /// Parses `{text, mode}`.
    pub(super) fn wake(fields: &Map<String, Value>, sender: FieldOrigin) -> Result<Self, WebhookRejection> {
        let fields = FieldReader(fields);
        let mode = match sender {
            FieldOrigin::Request => "mode",
            FieldOrigin::Owner => "wakeMode",
        };
        Ok(Self::Wake(WakeText {
            family: "wake".to_owned(),
            text: external::clean(&fields.required("text")?),
            wake: fields.wake(mode)?,
            agent: fields.text("agentId")?,
            key: fields.key(sender)?,
        }))
    }

    /// Parses `{message, name, wakeMode, …}`.
    pub(super) fn agent(fields: &Map<String, Value>, sender: FieldOrigin) -> Result<Self, WebhookRejection> {
        let fields = FieldReader(fields);
        let thinking = fields.text("thinking")?;
        let parse_level = |level: String| {
            let levels = homard_command::levels::THINKING_LEVELS.join(", ");
            let unknown = || WebhookRejection::invalid(format!("thinking must be one of {levels}"));
            homard_command::levels::thinking(&level).ok_or_else(unknown)
        };
        let channel = fields.text("channel")?.filter(|channel| !channel.eq_ignore_ascii_case("last"));
        if channel.as_ref().is_some_and(|name| !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        {
            return Err(WebhookRejection::invalid("channel must be the name of a channel, such as telegram, or last"));
        }
        let target = WebhookTarget { channel, to: fields.text("to")? };
        let name =
            fields.text("name")?.map(|name| external::line(&name, MAX_NAME_CHARS)).filter(|name| !name.is_empty());
        Ok(Self::Agent(Box::new(WebhookJob {
            family: "agent".to_owned(),
            message: fields.required("message")?,
            name: name.unwrap_or_else(|| "Hook".to_owned()),
            wake: fields.wake("wakeMode")?,
            agent: fields.text("agentId")?,
            session: fields.text("sessionKey")?.map(|key| (sender, key)),
            target: fields.flag("deliver")?.unwrap_or(true).then_some(target),
            model: fields.text("model")?,
            thinking: thinking.map(parse_level).transpose()?,
            timeout: fields.seconds("timeoutSeconds")?,
            // A request cannot declare its own content trusted.
            is_trusted: sender == FieldOrigin::Owner && fields.flag("allowUnsafeExternalContent")?.unwrap_or(false),
            key: fields.key(sender)?,
        })))
    }
}

/// Typed access to the members of an object.
struct FieldReader<'a>(&'a Map<String, Value>);

impl FieldReader<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a string, or `None` if it is blank.
    fn text(&self, name: &str) -> Result<Option<String>, WebhookRejection> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Some(_) => Err(WebhookRejection::invalid(format!("{name} must be a string"))),
        }
    }

    fn required(&self, name: &str) -> Result<String, WebhookRejection> {
        self.text(name)?.ok_or_else(|| WebhookRejection::invalid(format!("{name} is required and must not be blank")))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, WebhookRejection> {
        let invalid = || WebhookRejection::invalid(format!("{name} must be true or false"));
        self.get(name).map(|value| value.as_bool().ok_or_else(invalid)).transpose()
    }

    fn wake(&self, name: &str) -> Result<WakeMode, WebhookRejection> {
        match self.text(name)?.as_deref() {
            None | Some("now") => Ok(WakeMode::Now),
            Some("next-heartbeat") => Ok(WakeMode::NextHeartbeat),
            Some(_) => Err(WebhookRejection::invalid(format!("{name} must be now or next-heartbeat"))),
        }
    }

    /// Parses a duration; zero means the agent's own limit.
    fn seconds(&self, name: &str) -> Result<Option<Duration>, WebhookRejection> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
            Some(seconds) => Ok((seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(MAX_SECONDS)))),
            None => Err(WebhookRejection::invalid(format!("{name} must be a number of seconds"))),
        }
    }

    fn key(&self, sender: FieldOrigin) -> Result<Option<IdempotencyKey>, WebhookRejection> {
        let key = self.text("idempotencyKey")?;
        Ok(key.map(|key| match sender {
            FieldOrigin::Request => IdempotencyKey::Sender(key),
            FieldOrigin::Owner => IdempotencyKey::Event(key),
        }))
    }
}

#[cfg(test)]
mod tests {
    use axum::{http::StatusCode, response::IntoResponse};
    use serde_json::json;

    use super::*;

    fn job(fields: &Value, sender: FieldOrigin) -> Result<WebhookJob, WebhookRejection> {
        match WebhookAction::agent(fields.as_object().unwrap(), sender)? {
            WebhookAction::Agent(job) => Ok(*job),
            WebhookAction::Wake(nudge) => panic!("{nudge:?}"),
        }
    }

    fn plain(message: &str) -> WebhookJob {
        WebhookJob {
            family: "agent".to_owned(),
            message: message.to_owned(),
            name: "Hook".to_owned(),
            wake: WakeMode::Now,
            agent: None,
            session: None,
            target: Some(WebhookTarget { channel: None, to: None }),
            model: None,
            thinking: None,
            timeout: None,
            is_trusted: false,
            key: None,
        }
    }

    #[test]
    fn a_job_has_defaults_for_all_but_its_message() {
        assert_eq!(
            job(&json!({"message": " look ", "channel": "last", "model": null}), FieldOrigin::Request),
            Ok(plain("look"))
        );
        let all = json!({
            "message": "look", "name": " My\nhook ", "wakeMode": "next-heartbeat", "agentId": "ops", "sessionKey": "hook:x",
            "deliver": true, "channel": "Telegram", "to": "7", "model": "p/m", "thinking": "max", "timeoutSeconds": 1.5,
            "allowUnsafeExternalContent": true, "idempotencyKey": "k",
        });
        let expected = WebhookJob {
            name: "My hook".to_owned(),
            wake: WakeMode::NextHeartbeat,
            agent: Some("ops".to_owned()),
            session: Some((FieldOrigin::Request, "hook:x".to_owned())),
            target: Some(WebhookTarget { channel: Some("Telegram".to_owned()), to: Some("7".to_owned()) }),
            model: Some("p/m".to_owned()),
            thinking: Some("high"),
            timeout: Some(Duration::from_millis(1500)),
            key: Some(IdempotencyKey::Sender("k".to_owned())),
            ..plain("look")
        };
        assert_eq!(job(&all, FieldOrigin::Request), Ok(expected.clone()));
        let owners = WebhookJob {
            session: Some((FieldOrigin::Owner, "hook:x".to_owned())),
            is_trusted: true,
            key: Some(IdempotencyKey::Event("k".to_owned())),
            ..expected
        };
        assert_eq!(job(&all, FieldOrigin::Owner), Ok(owners));
        assert_eq!(job(&json!({"message": "look", "deliver": false}), FieldOrigin::Request).unwrap().target, None);
    }

    #[test]
    fn invalid_action_fields_are_named() {
        for (fields, message) in [
            (json!({}), "message is required and must not be blank"),
            (json!({"message": "  "}), "message is required and must not be blank"),
            (json!({"message": 7}), "message must be a string"),
            (json!({"message": "m", "name": []}), "name must be a string"),
            (json!({"message": "m", "deliver": "yes"}), "deliver must be true or false"),
            (json!({"message": "m", "wakeMode": "later"}), "wakeMode must be now or next-heartbeat"),
            (json!({"message": "m", "timeoutSeconds": -1}), "timeoutSeconds must be a number of seconds"),
            (json!({"message": "m", "timeoutSeconds": "9"}), "timeoutSeconds must be a number of seconds"),
            (
                json!({"message": "m", "channel": "a b"}),
                "channel must be the name of a channel, such as telegram, or last",
            ),
            (
                json!({"message": "m", "thinking": "deeply"}),
                "thinking must be one of off, minimal, low, medium, high, xhigh",
            ),
        ] {
            let rejection = job(&fields, FieldOrigin::Request).unwrap_err();
            assert_eq!(rejection, WebhookRejection::invalid(message), "{fields}");
            assert_eq!(rejection.into_response().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn a_wake_action_is_parsed_from_requests_and_mappings() {
        let parse_wake = |fields: Value, sender| WebhookAction::wake(fields.as_object().unwrap(), sender);
        let expected = |wake| {
            let text = "tea is ready".to_owned();
            Ok(WebhookAction::Wake(WakeText { family: "wake".to_owned(), text, wake, agent: None, key: None }))
        };
        let text = " tea\u{202e} is ready ";
        assert_eq!(parse_wake(json!({"text": text}), FieldOrigin::Request), expected(WakeMode::Now));
        assert_eq!(
            parse_wake(json!({"text": text, "mode": "next-heartbeat"}), FieldOrigin::Request),
            expected(WakeMode::NextHeartbeat)
        );
        assert_eq!(
            parse_wake(json!({"text": text, "wakeMode": "next-heartbeat"}), FieldOrigin::Owner),
            expected(WakeMode::NextHeartbeat)
        );
        assert_eq!(
            parse_wake(json!({"text": text, "mode": 1}), FieldOrigin::Request),
            Err(WebhookRejection::invalid("mode must be a string"))
        );
    }
}
