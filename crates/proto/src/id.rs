//! Identifier types that are validated once, at the boundary, and trusted inside.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty or blank.
    #[error("{0} must not be empty")]
    Empty(&'static str),
    /// The text exceeds the maximum length.
    #[error("{kind} is longer than {max} bytes")]
    TooLong {
        /// Kind of identifier.
        kind: &'static str,
        /// The limit in bytes.
        max: usize,
    },
    /// The text contains a character that its kind does not allow.
    #[error("{kind} must not contain {found:?}")]
    Character {
        /// Kind of identifier.
        kind: &'static str,
        /// The first invalid character.
        found: char,
    },
}

/// Validates a text; `allowed` gets each character and whether it is the first.
fn checked(
    kind: &'static str,
    max: usize,
    text: &str,
    allowed: impl Fn(char, bool) -> bool,
) -> Result<Arc<str>, Error> {
    if text.trim().is_empty() {
        return Err(Error::Empty(kind));
    }
    if text.len() > max {
        return Err(Error::TooLong { kind, max });
    }
    match text.char_indices().find(|&(at, c)| !allowed(c, at == 0)) {
        Some((_, found)) => Err(Error::Character { kind, found }),
        None => Ok(text.into()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $max:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Validates a text from outside.
            pub fn parse(text: &str) -> Result<Self, Error> {
                checked($kind, $max, text, $allowed).map(Self)
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// Run id: the client's idempotency key.
    RunId, "run id", 256, |c: char, _| !c.is_control()
);
name!(
    /// Tool call id within a run, chosen by the model.
    CallId, "tool call id", 512, |c: char, _| !c.is_control()
);
name!(
    /// Id of a transcript entry.
    EntryId, "entry id", 64, |c: char, _| c.is_ascii_alphanumeric() || c == '-'
);
name!(
    /// Session id. It becomes a file name, so it can neither leave its folder nor be hidden.
    SessionId, "session id", 128,
    |c: char, first| c.is_ascii_alphanumeric() || (!first && matches!(c, '.' | '_' | '-'))
);

/// Agent id: `[a-z0-9][a-z0-9_-]{0,63}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns the default agent of a config that names none.
    pub fn main() -> Self {
        Self("main".into())
    }

    /// Converts a text to the nearest valid id: lower case, at most 64 characters, with one dash for every sequence of
    /// invalid characters.
    ///
    /// Never fails: an empty result becomes `main`, as in OpenClaw.
    pub fn normalize(text: &str) -> Self {
        let mut id = String::new();
        for c in text.trim().to_lowercase().chars() {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                id.push(c);
            } else if !id.ends_with('-') {
                id.push('-');
            }
        }
        let id = id.trim_start_matches(['-', '_']);
        let id = id[..id.len().min(64)].trim_end_matches('-');
        if id.is_empty() { Self::main() } else { Self(id.into()) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key of this agent's main session.
    pub fn main_session(&self) -> SessionKey {
        SessionKey { agent: Some(self.clone()), text: format!("agent:{self}:main").into() }
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Session key in canonical form: `agent:<agentId>:<rest>`, `global` or `unknown`.
///
/// The direct-message marker is written `direct` and read as `dm` or `direct`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    agent: Option<AgentId>,
    text: Arc<str>,
}

impl SessionKey {
    const KIND: &'static str = "session key";
    const MAX: usize = 512;

    /// Canonicalizes a key from outside; a key without an agent belongs to `default_agent`.
    pub fn parse(text: &str, default_agent: &AgentId) -> Result<Self, Error> {
        let text = checked(Self::KIND, Self::MAX, text.trim(), |c, _| !c.is_control())?;
        let lower = text.to_lowercase();
        if lower == "global" || lower == "unknown" {
            return Ok(Self { agent: None, text: lower.into() });
        }
        let (agent, rest) = match lower.strip_prefix("agent:").and_then(|after_prefix| after_prefix.split_once(':')) {
            Some((agent, rest)) if !agent.trim().is_empty() && !rest.trim().is_empty() => {
                (AgentId::normalize(agent), rest)
            }
            _ => (default_agent.clone(), lower.as_str()),
        };
        Ok(Self { text: format!("agent:{agent}:{}", canonical_rest(rest)).into(), agent: Some(agent) })
    }

    /// Returns the key of a session that is known only by its id.
    pub fn explicit(agent: &AgentId, session: &SessionId) -> Self {
        let text = format!("agent:{agent}:explicit:{}", session.as_str().to_lowercase());
        Self { agent: Some(agent.clone()), text: text.into() }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the agent of the key; `None` for `global` and `unknown`.
    pub fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// Returns the part after `agent:<id>:`, or the whole key if it names no agent.
    pub fn rest(&self) -> &str {
        match &self.agent {
            Some(agent) => &self.text["agent:".len() + agent.as_str().len() + 1..],
            None => &self.text,
        }
    }

    /// True for an agent's main session.
    pub fn is_main(&self) -> bool {
        self.agent.is_some() && self.rest() == "main"
    }

    /// True for the session of a sub-agent.
    pub fn is_subagent(&self) -> bool {
        self.rest().starts_with("subagent:")
    }

    /// True for the session of a scheduled job.
    pub fn is_cron(&self) -> bool {
        self.rest().starts_with("cron:")
    }

    /// Returns the parent session of a thread: the text before the last `:thread:` or `:topic:`.
    pub fn thread_parent(&self) -> Option<Self> {
        let at = [":thread:", ":topic:"].iter().filter_map(|marker| self.text.rfind(marker)).max()?;
        let text = &self.text[..at];
        let is_whole = self.agent.as_ref().is_none_or(|agent| text.len() > "agent:".len() + agent.as_str().len() + 1);
        is_whole.then(|| Self { agent: self.agent.clone(), text: text.into() })
    }

    /// Returns the kind shown in lists: `direct`, `group`, `global` or `unknown`.
    pub fn kind(&self) -> &'static str {
        match &*self.text {
            "global" => "global",
            "unknown" => "unknown",
            _ if self.rest().split(':').any(|part| part == "group" || part == "channel") => "group",
            _ => "direct",
        }
    }
}

/// Replaces `dm`, the short marker of direct messages, by the canonical `direct`: in `dm:<peer>`, `<channel>:dm:<peer>`
/// and `<channel>:<account>:dm:<peer>`.
fn canonical_rest(rest: &str) -> String {
    let mut parts: Vec<&str> = rest.split(':').collect();
    let marker = parts.iter().take(3).position(|&part| part == "dm");
    if let Some(at) = marker.filter(|at| at + 1 < parts.len()) {
        parts[at] = "direct";
    }
    parts.join(":")
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

impl Serialize for SessionKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> String {
        SessionKey::parse(text, &AgentId::main()).unwrap().to_string()
    }

    #[test]
    fn aliases_become_canonical() {
        assert_eq!(key("main"), "agent:main:main");
        assert_eq!(key(" Agent:Ops:MAIN "), "agent:ops:main");
        assert_eq!(key("tui-7"), "agent:main:tui-7");
        assert_eq!(key("global"), "global");
        assert_eq!(key("agent:main"), "agent:main:agent:main");
        assert_eq!(key("agent:main:telegram:dm:42"), "agent:main:telegram:direct:42");
        assert_eq!(key("agent:main:dm:Alice"), "agent:main:direct:alice");
        assert_eq!(key("agent:main:slack:group:dm:thread:1"), "agent:main:slack:group:direct:thread:1");
    }

    #[test]
    fn kinds_and_parts() {
        let subagent = SessionKey::parse("agent:ops:subagent:u1", &AgentId::main()).unwrap();
        assert_eq!(
            (subagent.agent().unwrap().as_str(), subagent.rest(), subagent.is_subagent()),
            ("ops", "subagent:u1", true)
        );
        assert_eq!(SessionKey::parse("telegram:group:9", &AgentId::main()).unwrap().kind(), "group");
    }

    #[test]
    fn a_thread_knows_its_parent() {
        let parent = |text: &str| {
            let key = SessionKey::parse(text, &AgentId::main()).unwrap();
            key.thread_parent().map(|parent| parent.to_string())
        };
        assert_eq!(parent("agent:ops:slack:channel:c1:thread:9").as_deref(), Some("agent:ops:slack:channel:c1"));
        assert_eq!(parent("telegram:group:-5:topic:7").as_deref(), Some("agent:main:telegram:group:-5"));
        assert_eq!(parent("agent:main:main"), None);
    }

    #[test]
    fn a_session_id_cannot_leave_its_folder() {
        for hostile in ["../x", "a/b", ".hidden", "", "a\0b", "-rf"] {
            assert!(SessionId::parse(hostile).is_err(), "{hostile:?}");
        }
        assert!(SessionId::parse("f6905ce9-6b01-4aa1-b02e-ad419f161554").is_ok());
    }

    proptest! {
        #[test]
        fn parsing_a_key_twice_changes_nothing(text in "\\PC{1,40}") {
            if let Ok(once) = SessionKey::parse(&text, &AgentId::main()) {
                let twice = SessionKey::parse(once.as_str(), &AgentId::normalize("other")).unwrap();
                prop_assert_eq!(once, twice);
            }
        }

        #[test]
        fn a_normalized_agent_id_fits_its_grammar(text in "\\PC{0,80}") {
            let id = AgentId::normalize(&text);
            prop_assert!(id.as_str().starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
            prop_assert!(id.as_str().len() <= 64);
        }
    }
}
