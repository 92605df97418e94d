//! Parses destinations as people and configs write them.

use serde_json::{Map, Value, json};

use super::GENERAL_TOPIC;
use crate::{ChannelError, Destination};

/// A chat and a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TelegramTarget {
    /// A number, or `@name`.
    pub(super) chat: Value,
    pub(super) topic: Option<i64>,
}

impl TelegramTarget {
    /// Parses `7`, `-1007`, `@name`, `telegram:7`, `t.me/name` and `-1007:topic:5`.
    pub(super) fn parse(destination: &Destination) -> Result<Self, ChannelError> {
        let refused = |problem: &str| {
            let excerpt: String = destination.to.chars().filter(|c| !c.is_control()).take(80).collect();
            ChannelError::Refused(format!(
                "Telegram: {excerpt} is not {problem}; use a user id such as 123456, a group id such as -1001234567890, or \
                 the @name of a public group or channel"
            ))
        };
        let mut to = destination.to.trim();
        for prefix in ["https://", "telegram:", "tg:", "group:", "direct:", "dm:"] {
            to = to.strip_prefix(prefix).unwrap_or(to);
        }
        let (chat, own_topic) = match to.split_once(":topic:") {
            Some((chat, topic)) => (chat, Some(topic)),
            None => (to, None),
        };
        let topic = destination.thread.as_deref().or(own_topic).map(str::trim).filter(|topic| !topic.is_empty());
        let topic = topic.map(|topic| topic.parse::<i64>().map_err(|_nan| refused("a chat with a numeric topic id")));
        let topic = topic.transpose()?;
        if let Ok(id) = chat.parse::<i64>() {
            return Ok(Self { chat: json!(id), topic });
        }
        let name = chat.strip_prefix("t.me/").or_else(|| chat.strip_prefix('@')).unwrap_or_default();
        let is_name = name.len() >= 4 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return Err(refused("a valid chat"));
        }
        Ok(Self { chat: json!(format!("@{name}")), topic })
    }

    /// Parameters for sending. The general topic must not be named.
    pub(super) fn params(&self) -> Map<String, Value> {
        let topic = self.topic.filter(|topic| *topic != GENERAL_TOPIC);
        params([("chat_id", self.chat.clone()), ("message_thread_id", json!(topic))])
    }

    /// Parameters for chat actions. The general topic must be named.
    pub(super) fn all_params(&self) -> Map<String, Value> {
        params([("chat_id", self.chat.clone()), ("message_thread_id", json!(self.topic))])
    }
}

/// Builds parameters, omitting those that are null.
pub(super) fn params<const N: usize>(params: [(&str, Value); N]) -> Map<String, Value> {
    params.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(to: &str, thread: Option<&str>) -> Option<(Value, Option<i64>)> {
        let destination = Destination { to: to.to_owned(), thread: thread.map(str::to_owned) };
        TelegramTarget::parse(&destination).ok().map(|target| (target.chat, target.topic))
    }

    #[test]
    fn a_chat_is_parsed_in_all_its_spellings() {
        assert_eq!(read(" 7", None), Some((json!(7), None)));
        assert_eq!(read("telegram:-1007", Some("5")), Some((json!(-1007), Some(5))));
        assert_eq!(read("telegram:group:-1007:topic:5", None), Some((json!(-1007), Some(5))));
        assert_eq!(read("@some_name", Some(" ")), Some((json!("@some_name"), None)));
        assert_eq!(read("https://t.me/some_name", None), Some((json!("@some_name"), None)));
        for invalid in ["", "bob", "@", "@a b c d", "7x", "-"] {
            assert_eq!(read(invalid, None), None, "{invalid}");
        }
        assert_eq!(read("7", Some("x")), None);
    }

    #[test]
    fn the_general_topic_is_named_only_where_required() {
        let target = TelegramTarget { chat: json!(7), topic: Some(GENERAL_TOPIC) };
        assert_eq!(Value::Object(target.params()), json!({"chat_id": 7}));
        assert_eq!(Value::Object(target.all_params()), json!({"chat_id": 7, "message_thread_id": 1}));
    }
}
