//! Audit records: who did what, and the outcome.

use homard_stdx::text::affects_terminal;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Maximum number of bytes of a value: a name, an address, a digest.
const MAX_VALUE_BYTES: usize = 256;
/// Maximum number of additional values of a record.
const MAX_VALUES: usize = 12;

/// Kinds of audited events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditKind {
    /// An authentication attempt failed.
    AuthFailed,
    /// A client was locked out after too many failed attempts.
    AuthLockedOut,
    /// A device was paired with the owner.
    DevicePaired,
    /// A pairing request of a device was rejected.
    DeviceRejected,
    /// A device was removed.
    DeviceRemoved,
    /// The token of a device was rotated, possibly with other scopes.
    DeviceTokenRotated,
    /// The token of a device was revoked.
    DeviceTokenRevoked,
    /// A request was denied for lack of a scope.
    ScopeDenied,
    /// A sender on a channel requested pairing.
    PairingRequested,
    /// A sender on a channel was approved.
    PairingApproved,
    /// The config was changed.
    ConfigWritten,
    /// An approval for a command was requested.
    ApprovalRequested,
    /// An approval request was decided or expired.
    ApprovalDecided,
    /// The exec policy was changed.
    PolicyChanged,
    /// A command was started.
    ExecStarted,
    /// A command ended.
    ExecEnded,
    /// An outbound network request was made.
    Egress,
    /// A tool was denied by policy.
    PolicyDenied,
    /// Damage was found and repaired.
    Repaired,
    /// It was decided whether a run that an earlier process left unfinished is resumed, requeued, held or ended.
    Recovered,
    /// Rows could not be written.
    RowsLost,
    /// From this row on, the journal stores the end of the log, so that a truncated log is detected.
    Anchored,
    /// The log does not end where it should: rows were removed or replaced.
    ChainBroken,
    /// The owner acknowledged the problems of the log.
    Acknowledged,
}

impl AuditKind {
    /// All kinds.
    pub const ALL: [Self; 24] = [
        Self::AuthFailed,
        Self::AuthLockedOut,
        Self::DevicePaired,
        Self::DeviceRejected,
        Self::DeviceRemoved,
        Self::DeviceTokenRotated,
        Self::DeviceTokenRevoked,
        Self::ScopeDenied,
        Self::PairingRequested,
        Self::PairingApproved,
        Self::ConfigWritten,
        Self::ApprovalRequested,
        Self::ApprovalDecided,
        Self::PolicyChanged,
        Self::ExecStarted,
        Self::ExecEnded,
        Self::Egress,
        Self::PolicyDenied,
        Self::Repaired,
        Self::Recovered,
        Self::RowsLost,
        Self::Anchored,
        Self::ChainBroken,
        Self::Acknowledged,
    ];

    /// Returns its name in the file.
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
            Self::PairingRequested => "pairing.asked",
            Self::PairingApproved => "pairing.approved",
            Self::ConfigWritten => "config.written",
            Self::ApprovalRequested => "approval.asked",
            Self::ApprovalDecided => "approval.decided",
            Self::PolicyChanged => "approval.rules",
            Self::ExecStarted => "exec.started",
            Self::ExecEnded => "exec.ended",
            Self::Egress => "egress",
            Self::PolicyDenied => "policy.denied",
            Self::Repaired => "repair",
            Self::Recovered => "recovery",
            Self::RowsLost => "audit.lost",
            Self::Anchored => "audit.anchored",
            Self::ChainBroken => "audit.broken",
            Self::Acknowledged => "audit.acknowledged",
        }
    }
}

/// An audited event. Its values are names and numbers, never content of messages or files.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    kind: AuditKind,
    actor: String,
    outcome: String,
    more: Map<String, Value>,
}

impl AuditRecord {
    /// Creates a record with the outcome `ok` and the gateway itself as the actor.
    pub fn new(kind: AuditKind) -> Self {
        Self { kind, actor: "homard".to_owned(), outcome: "ok".to_owned(), more: Map::new() }
    }

    /// Sets the actor: an address, a device, a sender on a channel, the session of an agent.
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = sanitize(actor);
        self
    }

    /// Sets the outcome, as one word.
    pub fn outcome(mut self, outcome: &str) -> Self {
        self.outcome = sanitize(outcome);
        self
    }

    /// Adds a string value.
    pub fn with(self, name: &'static str, value: &str) -> Self {
        let value = sanitize(value);
        self.with_value(name, value.into())
    }

    /// Adds a number.
    pub fn count(self, name: &'static str, value: u64) -> Self {
        self.with_value(name, value.into())
    }

    /// Adds the digest of a text that must not be stored itself.
    pub fn digest(self, name: &'static str, text: &str) -> Self {
        self.with_value(name, digest_of(text).into())
    }

    /// Returns the kind.
    pub fn kind(&self) -> AuditKind {
        self.kind
    }

    /// Adds a value, unless the record already has [`MAX_VALUES`].
    fn with_value(mut self, name: &'static str, value: Value) -> Self {
        if self.more.len() < MAX_VALUES {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    /// Returns the fields of its row, without those of the chain.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("what".to_owned(), self.kind.name().into());
        fields.insert("who".to_owned(), self.actor.clone().into());
        fields.insert("outcome".to_owned(), self.outcome.clone().into());
        if !self.more.is_empty() {
            fields.insert("more".to_owned(), self.more.clone().into());
        }
        fields
    }
}

/// Returns the SHA-256 of a text, in hex.
pub fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Truncates a value, and replaces line breaks and control characters.
fn sanitize(text: &str) -> String {
    let text: String = text.chars().map(|char| if affects_terminal(char) { '\u{fffd}' } else { char }).collect();
    match text.char_indices().find(|(offset, char)| offset + char.len_utf8() > MAX_VALUE_BYTES) {
        Some((offset, _)) => format!("{}…", &text[..offset]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_truncated_and_sanitized() {
        let record = AuditRecord::new(AuditKind::Egress)
            .actor("a\r\n\u{1b}[2Jb\u{202e}")
            .with("host", &"é".repeat(1000))
            .count("port", 443);
        let host = format!("{}…", "é".repeat(128));
        assert_eq!(
            Value::from(record.fields()),
            json!({"what": "egress", "who": "a\u{fffd}\u{fffd}\u{fffd}[2Jb\u{fffd}", "outcome": "ok", "more": {"host": host, "port": 443}})
        );
    }

    #[test]
    fn kind_names_are_unique() {
        assert_eq!(AuditKind::ALL.map(|kind| kind as usize), std::array::from_fn(|index| index));
        let mut names = AuditKind::ALL.map(AuditKind::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), AuditKind::ALL.len());
    }
}
