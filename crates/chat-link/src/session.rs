//! The session that a chat opens.

use std::{fs, path::Path};

use homard_proto::{AgentId, SessionKey};
use homard_runtime::Ambient;

use crate::Error;

/// Characters of the id of a new session.
const ID_CHARS: usize = 12;

/// Which session to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionChoice<'a> {
    /// The one with this key.
    Key(&'a str),
    /// The one that was used last.
    Last,
    /// A new one, of this agent or of the default agent.
    New(Option<&'a str>),
}

impl SessionChoice<'_> {
    /// Returns the session's key. `last` is the file with the key of the session that was used last.
    pub fn key(self, default: &AgentId, last: &Path, ambient: &Ambient) -> Result<SessionKey, Error> {
        let parse = |text: &str| SessionKey::parse(text, default).map_err(|error| Error::SessionKey(error.to_string()));
        match self {
            Self::Key(key) => parse(key),
            Self::Last => parse(fs::read_to_string(last).map_err(|_absent| Error::NothingToContinue)?.trim()),
            Self::New(agent) => {
                let agent = agent.map_or_else(|| default.clone(), AgentId::normalize);
                let id = ambient.run_id();
                let id: String = id.as_str().chars().filter(char::is_ascii_alphanumeric).take(ID_CHARS).collect();
                parse(&format!("agent:{agent}:chat-{}", id.to_lowercase()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_new_the_last_one_or_named() {
        let directory = tempfile::tempdir().unwrap();
        let last = directory.path().join("chat-session");
        let key = |choice: SessionChoice<'_>| {
            let key = choice.key(&AgentId::main(), &last, &Ambient::system());
            key.map(|key| key.to_string()).map_err(|error| error.to_string())
        };
        assert!(key(SessionChoice::Last).unwrap_err().starts_with("no chat to continue yet"));
        let new = key(SessionChoice::New(Some("Ops"))).unwrap();
        assert!(new.starts_with("agent:ops:chat-"), "{new}");
        assert_ne!(key(SessionChoice::New(None)), key(SessionChoice::New(None)));
        fs::write(&last, format!("{new}\n")).unwrap();
        assert_eq!(key(SessionChoice::Last), Ok(new));
        assert_eq!(key(SessionChoice::Key("work")).as_deref(), Ok("agent:main:work"));
    }
}
