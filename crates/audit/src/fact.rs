//! Something that happened: who did what, and how it ended.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// How many bytes of a value are kept: a name, an address, a digest.
const LONGEST: usize = 256;
/// How many values a fact has at most besides the usual ones.
const MOST: usize = 12;

/// What can happen that is worth a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Somebody showed a wrong secret.
    AuthFailed,
    /// Somebody was wrong so often that nothing of theirs is looked at for a while.
    AuthLockedOut,
    /// A device belongs to the owner from here on.
    DevicePaired,
    /// A device that waited was sent away.
    DeviceRejected,
    /// A device was forgotten.
    DeviceRemoved,
    /// A device got another token, and with it perhaps other rights.
    DeviceTokenRotated,
    /// The token of a device is worth nothing any more.
    DeviceTokenRevoked,
    /// Somebody asked for what they may not do.
    ScopeDenied,
    /// Somebody on a channel asked to be let in.
    PairingAsked,
    /// Somebody on a channel was let in.
    PairingApproved,
    /// The config was changed.
    ConfigWritten,
    /// Somebody was asked whether a command may run.
    ApprovalAsked,
    /// That was answered, or ended without an answer.
    ApprovalDecided,
    /// The rules of what may run were changed.
    ApprovalRules,
    /// A command was started.
    ExecStarted,
    /// A command ended.
    ExecEnded,
    /// Somebody outside was asked for something.
    Egress,
    /// A tool was not allowed to do what it was asked to.
    PolicyDenied,
    /// Something was found broken and was put right.
    Repaired,
    /// It was decided what becomes of something that a crash left unfinished.
    Recovered,
    /// Rows could not be written.
    RowsLost,
    /// The journal keeps the end of the log from here on.
    Anchored,
    /// The log does not end where it should: rows were removed or replaced.
    Broken,
    /// The owner has acknowledged what is wrong with the log.
    Acknowledged,
}

impl What {
    /// Everything there is.
    pub const ALL: [Self; 24] = [
        Self::AuthFailed,
        Self::AuthLockedOut,
        Self::DevicePaired,
        Self::DeviceRejected,
        Self::DeviceRemoved,
        Self::DeviceTokenRotated,
        Self::DeviceTokenRevoked,
        Self::ScopeDenied,
        Self::PairingAsked,
        Self::PairingApproved,
        Self::ConfigWritten,
        Self::ApprovalAsked,
        Self::ApprovalDecided,
        Self::ApprovalRules,
        Self::ExecStarted,
        Self::ExecEnded,
        Self::Egress,
        Self::PolicyDenied,
        Self::Repaired,
        Self::Recovered,
        Self::RowsLost,
        Self::Anchored,
        Self::Broken,
        Self::Acknowledged,
    ];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::AuthFailed => "auth.failed",
            Self::AuthLockedOut => "auth.locked_out",
            Self::DevicePaired => "device.paired",
            Self::DeviceRejected => "device.rejected",
            Self::DeviceRemoved => "device.removed",
            Self::DeviceTokenRotated => "device.token_rotated",
            Self::DeviceTokenRevoked => "device.token_revoked",
            Self::ScopeDenied => "scope.denied",
            Self::PairingAsked => "pairing.asked",
            Self::PairingApproved => "pairing.approved",
            Self::ConfigWritten => "config.written",
            Self::ApprovalAsked => "approval.asked",
            Self::ApprovalDecided => "approval.decided",
            Self::ApprovalRules => "approval.rules",
            Self::ExecStarted => "exec.started",
            Self::ExecEnded => "exec.ended",
            Self::Egress => "egress",
            Self::PolicyDenied => "policy.denied",
            Self::Repaired => "repair",
            Self::Recovered => "recovery",
            Self::RowsLost => "audit.lost",
            Self::Anchored => "audit.anchored",
            Self::Broken => "audit.broken",
            Self::Acknowledged => "audit.acknowledged",
        }
    }
}

/// Something that happened. Its values are names and numbers, never what somebody said or wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    what: What,
    who: String,
    outcome: String,
    more: Map<String, Value>,
}

impl Fact {
    /// This happened, and went well.
    pub fn new(what: What) -> Self {
        Self { what, who: "house".to_owned(), outcome: "ok".to_owned(), more: Map::new() }
    }

    /// Who did it: an address, a device, a person of a channel, the session of an agent.
    pub fn by(mut self, who: &str) -> Self {
        self.who = short(who);
        self
    }

    /// How it ended, in a word.
    pub fn ended(mut self, outcome: &str) -> Self {
        self.outcome = short(outcome);
        self
    }

    /// With this name or word.
    pub fn with(self, name: &'static str, value: &str) -> Self {
        let value = short(value);
        self.having(name, value.into())
    }

    /// With this number.
    pub fn count(self, name: &'static str, value: u64) -> Self {
        self.having(name, value.into())
    }

    /// With the digest of something that is not told itself.
    pub fn digest(self, name: &'static str, of: &str) -> Self {
        self.having(name, digest_of(of).into())
    }

    /// What it is about.
    pub fn what(&self) -> What {
        self.what
    }

    fn having(mut self, name: &'static str, value: Value) -> Self {
        if self.more.len() < MOST {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    /// The fields of its row, without its place in the chain.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("what".to_owned(), self.what.name().into());
        fields.insert("who".to_owned(), self.who.clone().into());
        fields.insert("outcome".to_owned(), self.outcome.clone().into());
        if !self.more.is_empty() {
            fields.insert("more".to_owned(), self.more.clone().into());
        }
        fields
    }
}

/// The SHA-256 of a text, in hex.
pub fn digest_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value that fits, on one line, without anything that acts on a screen.
fn short(text: &str) -> String {
    let text: String = text.chars().map(|char| if acts(char) { '\u{fffd}' } else { char }).collect();
    match text.char_indices().find(|(at, char)| at + char.len_utf8() > LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Whether a character does something to a screen instead of being seen.
fn acts(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_short_and_do_nothing_to_a_screen() {
        let fact =
            Fact::new(What::Egress).by("a\r\n\u{1b}[2Jb\u{202e}").with("host", &"é".repeat(1000)).count("port", 443);
        let host = format!("{}…", "é".repeat(128));
        assert_eq!(
            Value::from(fact.fields()),
            json!({"what": "egress", "who": "a\u{fffd}\u{fffd}\u{fffd}[2Jb\u{fffd}", "outcome": "ok", "more": {"host": host, "port": 443}})
        );
    }

    #[test]
    fn every_name_is_another() {
        assert_eq!(What::ALL.map(|what| what as usize), std::array::from_fn(|place| place));
        let mut names = What::ALL.map(What::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), What::ALL.len());
    }
}
