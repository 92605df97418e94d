//! Approval requests and their state transitions. Pure: time is a parameter, and a change returns a new state.

use std::{collections::BTreeMap, time::Duration};

use homard_proto::{AgentId, SessionKey};
use homard_store::Error as StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{display, fingerprint::CommandFingerprint, rule::ApprovalRule};

/// How long a request waits for a decision, and how long the decision is valid.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a settled request is kept, in milliseconds.
const RETENTION_MS: u64 = 3_600_000;
/// Maximum number of pending requests: more than people read, and bounded on disk.
const MAX_PENDING: usize = 64;
/// Maximum number of pending requests per session.
const MAX_PENDING_PER_REQUESTER: usize = 16;
/// Maximum length of a request id, in bytes.
const MAX_ID_BYTES: usize = 128;

/// Parameters of an approval request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalParams {
    /// Id, if the requester provides one.
    pub id: Option<String>,
    /// Agent whose rules apply.
    pub agent: AgentId,
    /// The command, as written.
    pub command: String,
    /// Further fields for clients, with their wire names: `cwd`, `host`, `sessionKey`, and so on.
    pub fields: Map<String, Value>,
    /// Fingerprint that the decision is bound to; `None` if a client runs the command.
    pub fingerprint: Option<CommandFingerprint>,
    /// Rules to store with `allow-always`; empty if the command cannot be allowed permanently.
    pub rules: Vec<ApprovalRule>,
    /// The tool call, to execute it later.
    pub call: Value,
    /// Time limit for a decision: at most [`APPROVAL_TIMEOUT`].
    pub expires: Duration,
}

/// An approval request and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id.
    pub id: String,
    /// Agent whose rules apply.
    pub agent: String,
    /// The command, as written.
    pub command: String,
    /// Further fields for clients.
    #[serde(rename = "told", default)]
    pub client_fields: Map<String, Value>,
    /// Fingerprint that the decision is bound to; `None` if a client runs the command.
    #[serde(rename = "bound", default)]
    pub fingerprint: Option<CommandFingerprint>,
    /// Rules to store with `allow-always`.
    #[serde(default)]
    rules: Vec<Value>,
    /// The tool call, to execute it later.
    #[serde(default)]
    pub call: Value,
    /// Time of the request, in milliseconds since the epoch.
    pub created_at_ms: u64,
    /// Time of expiry, in milliseconds since the epoch.
    pub expires_at_ms: u64,
    /// State of the request.
    pub state: ApprovalState,
    /// Principal that decided, such as `owner`; `None` for a pending or expired request.
    #[serde(default)]
    pub decided_by: Option<String>,
    /// Time of the decision, in milliseconds since the epoch.
    #[serde(default)]
    pub decided_at_ms: Option<u64>,
    /// Time at which the approval was used or invalidated, in milliseconds since the epoch.
    #[serde(default)]
    pub used_at_ms: Option<u64>,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalState {
    /// No decision yet.
    Pending,
    /// Allowed once.
    AllowedOnce,
    /// Allowed, and equal commands from now on.
    AllowedAlways,
    /// Denied.
    Denied,
    /// Not decided in time.
    Expired,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Allows the command once.
    AllowOnce,
    /// Allows it, and equal commands from now on.
    AllowAlways,
    /// Denies it.
    Deny,
}

/// Why an operation on an approval failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No request has this id.
    #[error("unknown or expired approval id {}", quoted(.0))]
    Unknown(String),
    /// The request exists already and is in this state, which does not allow the operation.
    #[error("approval {} is already {}", .0, .1.as_str())]
    Settled(String, ApprovalState),
    /// The approval cannot be used: it was used already, has expired, or does not match the command.
    #[error("approval {id} is no longer valid: {why}")]
    Invalidated {
        /// Id of the request.
        id: String,
        /// Reason.
        why: String,
    },
    /// The request or the decision is invalid.
    #[error("{0}")]
    Invalid(String),
    /// Too many requests are pending.
    #[error("too many approval requests are pending; decide some of them: homard approvals list")]
    Full,
    /// The change could not be stored; nothing has changed.
    #[error("the approval could not be stored: {0}")]
    Store(#[from] StoreError),
}

/// Formats an id from outside for an error: short and without control characters.
fn quoted(id: &str) -> String {
    let short: String = id.chars().take(40).collect();
    format!("\"{}\"", display::display_command(&short).unwrap_or_default())
}

impl ApprovalState {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::AllowedOnce => "allowed-once",
            Self::AllowedAlways => "allowed-always",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    /// Returns the decision's wire name; `None` if there is none.
    pub fn decision(self) -> Option<&'static str> {
        match self {
            Self::AllowedOnce => Some("allow-once"),
            Self::AllowedAlways => Some("allow-always"),
            Self::Denied => Some("deny"),
            Self::Pending | Self::Expired => None,
        }
    }
}

impl ApprovalDecision {
    /// Parses the wire name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "allow-once" => Some(Self::AllowOnce),
            "allow-always" => Some(Self::AllowAlways),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }

    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }

    fn state(self) -> ApprovalState {
        match self {
            Self::AllowOnce => ApprovalState::AllowedOnce,
            Self::AllowAlways => ApprovalState::AllowedAlways,
            Self::Deny => ApprovalState::Denied,
        }
    }
}

impl Approval {
    /// Returns the rules to store with `allow-always`.
    pub fn rules(&self) -> Vec<ApprovalRule> {
        self.rules.iter().map(ApprovalRule::parse).collect()
    }

    /// Returns the possible decisions. If a client runs the command, the client stores its own rules.
    pub fn offers(&self) -> &'static [ApprovalDecision] {
        if self.fingerprint.is_none() || !self.rules.is_empty() {
            &[ApprovalDecision::AllowOnce, ApprovalDecision::AllowAlways, ApprovalDecision::Deny]
        } else {
            &[ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
        }
    }

    /// True if it is allowed and not used yet.
    pub fn is_open(&self) -> bool {
        matches!(self.state, ApprovalState::AllowedOnce | ApprovalState::AllowedAlways) && self.used_at_ms.is_none()
    }
}

/// Unit of the per-requester limit: a session. An agent can start any number of sub-agents and scheduled runs, so all
/// of those of one agent count as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Requester {
    /// A client that runs the command itself.
    Client,
    /// A session, by its key.
    Session(String),
    /// Sub-agents and scheduled runs of an agent.
    StartedBy(AgentId),
}

impl Requester {
    /// Returns the requester of a command, from the session in its fingerprint. Without a fingerprint, a client runs
    /// the command.
    fn of(fingerprint: Option<&CommandFingerprint>) -> Self {
        let Some(fingerprint) = fingerprint else { return Self::Client };
        match SessionKey::parse(&fingerprint.session, &AgentId::main()) {
            Ok(key) if key.is_subagent() || key.is_cron() => {
                Self::StartedBy(key.agent().cloned().unwrap_or_else(AgentId::main))
            }
            Ok(_) | Err(_) => Self::Session(fingerprint.session.clone()),
        }
    }
}

/// Recent approval requests, by id.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ApprovalTable(pub(super) BTreeMap<String, Approval>);

impl ApprovalTable {
    /// Parses stored requests. Ones that cannot be parsed are ignored, so their commands stay unapproved.
    pub(super) fn read(values: Vec<Value>) -> Self {
        let entries = values.into_iter().filter_map(|entry| match serde_json::from_value::<Approval>(entry) {
            Ok(entry) => Some((entry.id.clone(), entry)),
            Err(error) => {
                tracing::warn!(%error, "failed to parse a stored approval; ignoring it");
                None
            }
        });
        Self(entries.collect())
    }

    /// Returns all requests for the store. One that cannot be serialized is an error, because it would be lost.
    pub(super) fn values(&self) -> Result<Vec<Value>, Error> {
        let value =
            |entry| serde_json::to_value(entry).map_err(|error| Error::Store(StoreError::Disk(error.to_string())));
        self.0.values().map(value).collect()
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = &Approval> {
        self.0.values().filter(|entry| entry.state == ApprovalState::Pending)
    }

    /// Adds a request. Its id is the nonce, unless the requester provides one.
    pub(super) fn add_request(&mut self, params: ApprovalParams, nonce: String, now: u64) -> Result<Approval, Error> {
        let id = params.id.unwrap_or(nonce);
        if !is_valid_id(&id) {
            let message = "an approval id may contain only letters, digits and . _ : -, and at most 128 characters";
            return Err(Error::Invalid(message.to_owned()));
        }
        if let Some(known) = self.0.get(&id) {
            return Err(Error::Settled(id, known.state));
        }
        if display::display_command(&params.command).is_none() {
            return Err(Error::Invalid(format!(
                "a command of {} bytes is too long to be shown in full, so it cannot be approved; put it into a file \
                 of the workspace and run that file",
                params.command.len()
            )));
        }
        let description_bytes =
            params.fields.iter().map(|(name, value)| name.len() + value.to_string().len()).sum::<usize>();
        if description_bytes > 8 * display::MAX_COMMAND_BYTES {
            return Err(Error::Invalid(format!(
                "the description of the command has {description_bytes} bytes, which is too long to review"
            )));
        }
        self.make_room(&Requester::of(params.fingerprint.as_ref()), now)?;
        let expires = homard_stdx::time::millis(params.expires.min(APPROVAL_TIMEOUT));
        let entry = Approval {
            id: id.clone(),
            agent: params.agent.as_str().to_owned(),
            command: params.command,
            client_fields: params.fields,
            fingerprint: params.fingerprint,
            rules: params.rules.iter().map(ApprovalRule::to_value).collect(),
            call: params.call,
            created_at_ms: now,
            expires_at_ms: now.saturating_add(expires),
            state: ApprovalState::Pending,
            decided_by: None,
            decided_at_ms: None,
            used_at_ms: None,
        };
        self.0.insert(id, entry.clone());
        Ok(entry)
    }

    /// Makes room for one more request. If the queue is full, the requester with the most pending requests loses its
    /// newest, so that none can block the others.
    fn make_room(&mut self, requester: &Requester, now: u64) -> Result<(), Error> {
        let mut counts: BTreeMap<Requester, usize> = BTreeMap::new();
        for entry in self.pending() {
            *counts.entry(Requester::of(entry.fingerprint.as_ref())).or_default() += 1;
        }
        let own = counts.get(requester).copied().unwrap_or_default();
        if own >= MAX_PENDING_PER_REQUESTER {
            return Err(Error::Full);
        }
        if counts.values().sum::<usize>() < MAX_PENDING {
            return Ok(());
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count);
        // Otherwise two requesters would displace each other forever.
        let Some((largest, _)) = largest.filter(|(_, count)| *count > own + 1) else { return Err(Error::Full) };
        let of_largest = |entry: &&mut Approval| {
            entry.state == ApprovalState::Pending && Requester::of(entry.fingerprint.as_ref()) == largest
        };
        let newest = self.0.values_mut().filter(of_largest).max_by_key(|entry| (entry.created_at_ms, entry.id.clone()));
        if let Some(newest) = newest {
            newest.expires_at_ms = newest.expires_at_ms.min(now);
        }
        Ok(())
    }

    /// Decides a request. The first decision counts.
    pub(super) fn decide(
        &mut self,
        id: &str,
        decision: ApprovalDecision,
        by: &str,
        now: u64,
    ) -> Result<Approval, Error> {
        let entry = self.0.get_mut(id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        if entry.state != ApprovalState::Pending {
            return Err(Error::Settled(id.to_owned(), entry.state));
        }
        if !entry.offers().contains(&decision) {
            return Err(Error::Invalid(format!(
                "{} is not available for {id}: the command can run arbitrary other commands; use allow-once or deny",
                decision.as_str()
            )));
        }
        entry.state = decision.state();
        entry.decided_by = Some(by.to_owned());
        entry.decided_at_ms = Some(now);
        Ok(entry.clone())
    }

    /// Consumes an approval, once. An approval whose command has changed is consumed, too.
    pub(super) fn consume(&mut self, id: &str, current: &CommandFingerprint, now: u64) -> Result<Approval, Error> {
        let entry = self.0.get_mut(id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        let invalidated = |reason: String| Error::Invalidated { id: id.to_owned(), why: reason };
        if !matches!(entry.state, ApprovalState::AllowedOnce | ApprovalState::AllowedAlways) {
            return Err(Error::Settled(id.to_owned(), entry.state));
        }
        if entry.used_at_ms.is_some() {
            return Err(invalidated("it was already used".to_owned()));
        }
        if now >= entry.expires_at_ms {
            return Err(invalidated("it has expired".to_owned()));
        }
        let Some(approved) = &entry.fingerprint else {
            return Err(invalidated(
                "it is for a command that the requesting client runs itself, not the gateway".to_owned(),
            ));
        };
        let difference = approved.difference(current);
        entry.used_at_ms = Some(now);
        match difference {
            Some(changed_part) => Err(invalidated(format!("{changed_part} has changed since the request"))),
            None => Ok(entry.clone()),
        }
    }

    /// Expires overdue requests and removes old settled ones. Returns the expired ones.
    pub(super) fn expire(&mut self, now: u64) -> Vec<Approval> {
        self.0.retain(|_, entry| {
            entry.state == ApprovalState::Pending || now < entry.expires_at_ms.saturating_add(RETENTION_MS)
        });
        let is_overdue = |entry: &&mut Approval| entry.state == ApprovalState::Pending && now >= entry.expires_at_ms;
        let expired = self.0.values_mut().filter(is_overdue).map(|entry| {
            entry.state = ApprovalState::Expired;
            entry.clone()
        });
        expired.collect()
    }
}

fn is_valid_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(is_plain)
}
