//! The action that a webhook request asks for, parsed from its body or from the output of a mapping. Pure.

use std::time::Duration;

use homard_agent::{external, intake, schedule::job::Wake};
use serde_json::{Map, Value};

use super::{once::Key, refusal::Refusal};

/// Maximum length of a webhook's name in characters.
const NAME: usize = 80;
/// Maximum timeout of a run in seconds: one year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

/// Requested action.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Errand {
    /// Sends a text to the main session.
    Wake(Nudge),
    /// Starts an agent run.
    Agent(Box<Job>),
}

/// A text for the main session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Nudge {
    /// Kind of request; idempotency keys are scoped by it.
    pub(super) family: String,
    pub(super) text: String,
    pub(super) wake: Wake,
    pub(super) agent: Option<String>,
    pub(super) key: Option<Key>,
}

/// A run for an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    /// Kind of request; idempotency keys are scoped by it.
    pub(super) family: String,
    pub(super) message: String,
    /// Display name of the webhook.
    pub(super) name: String,
    /// When the main session is informed of the result.
    pub(super) wake: Wake,
    pub(super) agent: Option<String>,
    pub(super) session: Option<(Sender, String)>,
    /// Where the reply is delivered; `None` if it is not.
    pub(super) target: Option<Target>,
    pub(super) model: Option<String>,
    pub(super) thinking: Option<&'static str>,
    pub(super) timeout: Option<Duration>,
    /// True if the message is trusted like the owner's own text.
    pub(super) is_trusted: bool,
    pub(super) key: Option<Key>,
}

/// Delivery target. Missing parts are taken from the main session's last conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) channel: Option<String>,
    pub(super) to: Option<String>,
}

/// Origin of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The request.
    Request,
    /// The owner, through a mapping or a transform.
    Owner,
}

impl Errand {
    /// Parses `{text, mode}`.
    pub(super) fn wake(fields: &Map<String, Value>, sender: Sender) -> Result<Self, Refusal> {
        let fields = Fields(fields);
        let mode = match sender {
            Sender::Request => "mode",
            Sender::Owner => "wakeMode",
        };
        Ok(Self::Wake(Nudge {
            family: "wake".to_owned(),
            text: external::clean(&fields.needed("text")?),
            wake: fields.wake(mode)?,
            agent: fields.text("agentId")?,
            key: fields.key(sender)?,
        }))
    }

    /// Parses `{message, name, wakeMode, …}`.
    pub(super) fn agent(fields: &Map<String, Value>, sender: Sender) -> Result<Self, Refusal> {
        let fields = Fields(fields);
        let thinking = fields.text("thinking")?;
        let known = |word: String| {
            let levels = intake::THINKING_LEVELS.join(", ");
            let unknown = || Refusal::invalid(format!("thinking must be one of {levels}"));
            intake::thinking(&word).ok_or_else(unknown)
        };
        let channel = fields.text("channel")?.filter(|channel| !channel.eq_ignore_ascii_case("last"));
        if channel.as_ref().is_some_and(|name| !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        {
            return Err(Refusal::invalid("channel must be the name of one, such as telegram, or last"));
        }
        let target = Target { channel, to: fields.text("to")? };
        let name = fields.text("name")?.map(|name| external::line(&name, NAME)).filter(|name| !name.is_empty());
        Ok(Self::Agent(Box::new(Job {
            family: "agent".to_owned(),
            message: fields.needed("message")?,
            name: name.unwrap_or_else(|| "Hook".to_owned()),
            wake: fields.wake("wakeMode")?,
            agent: fields.text("agentId")?,
            session: fields.text("sessionKey")?.map(|key| (sender, key)),
            target: fields.flag("deliver")?.unwrap_or(true).then_some(target),
            model: fields.text("model")?,
            thinking: thinking.map(known).transpose()?,
            timeout: fields.seconds("timeoutSeconds")?,
            // A request cannot declare its own content trusted.
            is_trusted: sender == Sender::Owner && fields.flag("allowUnsafeExternalContent")?.unwrap_or(false),
            key: fields.key(sender)?,
        })))
    }
}

/// Typed access to the members of an object.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a string, or `None` if it is blank.
    fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Some(_) => Err(Refusal::invalid(format!("{name} must be a text"))),
        }
    }

    fn needed(&self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| Refusal::invalid(format!("{name} is missing: a text that is not blank")))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        let wrong = || Refusal::invalid(format!("{name} must be true or false"));
        self.get(name).map(|value| value.as_bool().ok_or_else(wrong)).transpose()
    }

    fn wake(&self, name: &str) -> Result<Wake, Refusal> {
        match self.text(name)?.as_deref() {
            None | Some("now") => Ok(Wake::Now),
            Some("next-heartbeat") => Ok(Wake::NextHeartbeat),
            Some(_) => Err(Refusal::invalid(format!("{name} must be now or next-heartbeat"))),
        }
    }

    /// Parses a duration; zero means the agent's own limit.
    fn seconds(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
            Some(seconds) => Ok((seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(MAX_SECONDS)))),
            None => Err(Refusal::invalid(format!("{name} must be a number of seconds"))),
        }
    }

    fn key(&self, sender: Sender) -> Result<Option<Key>, Refusal> {
        let key = self.text("idempotencyKey")?;
        Ok(key.map(|key| match sender {
            Sender::Request => Key::Sender(key),
            Sender::Owner => Key::Event(key),
        }))
    }
}

#[cfg(test)]
mod tests {
    use axum::{http::StatusCode, response::IntoResponse};
    use serde_json::json;

    use super::*;

    fn job(fields: &Value, sender: Sender) -> Result<Job, Refusal> {
        match Errand::agent(fields.as_object().unwrap(), sender)? {
            Errand::Agent(job) => Ok(*job),
            Errand::Wake(nudge) => panic!("{nudge:?}"),
        }
    }

    fn plain(message: &str) -> Job {
        Job {
            family: "agent".to_owned(),
            message: message.to_owned(),
            name: "Hook".to_owned(),
            wake: Wake::Now,
            agent: None,
            session: None,
            target: Some(Target { channel: None, to: None }),
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
            job(&json!({"message": " look ", "channel": "last", "model": null}), Sender::Request),
            Ok(plain("look"))
        );
        let all = json!({
            "message": "look", "name": " My\nhook ", "wakeMode": "next-heartbeat", "agentId": "ops", "sessionKey": "hook:x",
            "deliver": true, "channel": "Telegram", "to": "7", "model": "p/m", "thinking": "max", "timeoutSeconds": 1.5,
            "allowUnsafeExternalContent": true, "idempotencyKey": "k",
        });
        let expected = Job {
            name: "My hook".to_owned(),
            wake: Wake::NextHeartbeat,
            agent: Some("ops".to_owned()),
            session: Some((Sender::Request, "hook:x".to_owned())),
            target: Some(Target { channel: Some("Telegram".to_owned()), to: Some("7".to_owned()) }),
            model: Some("p/m".to_owned()),
            thinking: Some("high"),
            timeout: Some(Duration::from_millis(1500)),
            key: Some(Key::Sender("k".to_owned())),
            ..plain("look")
        };
        assert_eq!(job(&all, Sender::Request), Ok(expected.clone()));
        let owners = Job {
            session: Some((Sender::Owner, "hook:x".to_owned())),
            is_trusted: true,
            key: Some(Key::Event("k".to_owned())),
            ..expected
        };
        assert_eq!(job(&all, Sender::Owner), Ok(owners));
        assert_eq!(job(&json!({"message": "look", "deliver": false}), Sender::Request).unwrap().target, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, why) in [
            (json!({}), "message is missing: a text that is not blank"),
            (json!({"message": "  "}), "message is missing: a text that is not blank"),
            (json!({"message": 7}), "message must be a text"),
            (json!({"message": "m", "name": []}), "name must be a text"),
            (json!({"message": "m", "deliver": "yes"}), "deliver must be true or false"),
            (json!({"message": "m", "wakeMode": "later"}), "wakeMode must be now or next-heartbeat"),
            (json!({"message": "m", "timeoutSeconds": -1}), "timeoutSeconds must be a number of seconds"),
            (json!({"message": "m", "timeoutSeconds": "9"}), "timeoutSeconds must be a number of seconds"),
            (json!({"message": "m", "channel": "a b"}), "channel must be the name of one, such as telegram, or last"),
            (
                json!({"message": "m", "thinking": "deeply"}),
                "thinking must be one of off, minimal, low, medium, high, xhigh",
            ),
        ] {
            let refusal = job(&fields, Sender::Request).unwrap_err();
            assert_eq!(refusal, Refusal::invalid(why), "{fields}");
            assert_eq!(refusal.into_response().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn a_nudge_is_read_in_both_ways() {
        let nudge = |fields: Value, sender| Errand::wake(fields.as_object().unwrap(), sender);
        let expected = |wake| {
            let text = "tea is ready".to_owned();
            Ok(Errand::Wake(Nudge { family: "wake".to_owned(), text, wake, agent: None, key: None }))
        };
        let text = " tea\u{202e} is ready ";
        assert_eq!(nudge(json!({"text": text}), Sender::Request), expected(Wake::Now));
        assert_eq!(
            nudge(json!({"text": text, "mode": "next-heartbeat"}), Sender::Request),
            expected(Wake::NextHeartbeat)
        );
        assert_eq!(
            nudge(json!({"text": text, "wakeMode": "next-heartbeat"}), Sender::Owner),
            expected(Wake::NextHeartbeat)
        );
        assert_eq!(
            nudge(json!({"text": text, "mode": 1}), Sender::Request),
            Err(Refusal::invalid("mode must be a text"))
        );
    }
}
