//! Approval requests and their state transitions. Pure: time is a parameter, and a change returns a new state.

use std::{collections::BTreeMap, time::Duration};

use homard_proto::{AgentId, SessionKey};
use homard_store::Error as StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{bound::Bound, display, rule::Rule};

/// How long a request waits for a decision, and how long the decision is valid.
pub const EXPIRES: Duration = Duration::from_secs(300);
/// How long a settled request is kept, in milliseconds.
const KEPT_MS: u64 = 3_600_000;
/// Maximum number of pending requests: more than people read, and bounded on disk.
const MOST: usize = 64;
/// Maximum number of pending requests per session.
const MOST_OF_ONE: usize = 16;
/// Maximum length of a request id, in bytes.
const LONGEST_ID: usize = 128;

/// Parameters of an approval request.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket {
    /// Id, if the requester provides one.
    pub id: Option<String>,
    /// Agent whose rules apply.
    pub agent: AgentId,
    /// The command, as written.
    pub command: String,
    /// Further fields for clients, with their wire names: `cwd`, `host`, `sessionKey`, and so on.
    pub told: Map<String, Value>,
    /// Fingerprint that the decision is bound to; `None` if a client runs the command.
    pub bound: Option<Bound>,
    /// Rules to store with `allow-always`; empty if the command cannot be allowed permanently.
    pub rules: Vec<Rule>,
    /// The tool call, to execute it later.
    pub call: Value,
    /// Time limit for a decision: at most [`EXPIRES`].
    pub expires: Duration,
}

/// An approval request and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Id.
    pub id: String,
    /// Agent whose rules apply.
    pub agent: String,
    /// The command, as written.
    pub command: String,
    /// Further fields for clients.
    #[serde(default)]
    pub told: Map<String, Value>,
    /// Fingerprint that the decision is bound to; `None` if a client runs the command.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// Rules to store with `allow-always`.
    #[serde(default)]
    rules: Vec<Value>,
    /// The tool call.
    #[serde(default)]
    pub call: Value,
    /// When it was requested.
    pub created_at_ms: u64,
    /// When it expires.
    pub expires_at_ms: u64,
    /// State.
    pub state: State,
    /// Who decided.
    #[serde(default)]
    pub decided_by: Option<String>,
    /// When it was decided.
    #[serde(default)]
    pub decided_at_ms: Option<u64>,
    /// When the approval was used or invalidated.
    #[serde(default)]
    pub used_at_ms: Option<u64>,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
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
pub enum Verdict {
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
    /// It is already settled.
    #[error("approval {} is already {}", .0, .1.as_str())]
    Settled(String, State),
    /// It was used already, or the command has changed.
    #[error("approval {id} counts no more: {why}")]
    Void {
        /// Id of the request.
        id: String,
        /// Reason.
        why: String,
    },
    /// The request or the decision is invalid.
    #[error("{0}")]
    Invalid(String),
    /// Too many requests are pending.
    #[error("too many commands wait for an answer; answer some: homard approvals list")]
    Full,
    /// It could not be stored; nothing has changed.
    #[error("the approval could not be stored: {0}")]
    Store(#[from] StoreError),
}

/// Formats an id from outside for an error: short and without control characters.
fn quoted(id: &str) -> String {
    let short: String = id.chars().take(40).collect();
    format!("\"{}\"", display::shown(&short).unwrap_or_default())
}

impl State {
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

impl Verdict {
    /// Parses the wire name.
    pub fn read(word: &str) -> Option<Self> {
        match word {
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

    fn state(self) -> State {
        match self {
            Self::AllowOnce => State::AllowedOnce,
            Self::AllowAlways => State::AllowedAlways,
            Self::Deny => State::Denied,
        }
    }
}

impl Entry {
    /// Returns the rules to store with `allow-always`.
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.iter().map(Rule::read).collect()
    }

    /// Returns the possible decisions. If a client runs the command, the client stores its own rules.
    pub fn offers(&self) -> &'static [Verdict] {
        if self.bound.is_none() || !self.rules.is_empty() {
            &[Verdict::AllowOnce, Verdict::AllowAlways, Verdict::Deny]
        } else {
            &[Verdict::AllowOnce, Verdict::Deny]
        }
    }

    /// True if it is allowed and not used yet.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::AllowedOnce | State::AllowedAlways) && self.used_at_ms.is_none()
    }
}

/// Unit of the per-requester limit: a session. An agent can start any number of sub-agents and scheduled runs, so all
/// of those of one agent count as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asker {
    /// A client that runs the command itself.
    Client,
    /// A session, by its key.
    Session(String),
    /// Sub-agents and scheduled runs of an agent.
    StartedBy(AgentId),
}

impl Asker {
    fn of(bound: Option<&Bound>) -> Self {
        let Some(bound) = bound else { return Self::Client };
        match SessionKey::parse(&bound.session, &AgentId::main()) {
            Ok(key) if key.is_subagent() || key.is_cron() => {
                Self::StartedBy(key.agent().cloned().unwrap_or_else(AgentId::main))
            }
            Ok(_) | Err(_) => Self::Session(bound.session.clone()),
        }
    }
}

/// Recent approval requests, by id.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Book(pub(super) BTreeMap<String, Entry>);

impl Book {
    /// Reads stored requests. Unreadable ones are not allowed.
    pub(super) fn read(kept: Vec<Value>) -> Self {
        let entries = kept.into_iter().filter_map(|entry| match serde_json::from_value::<Entry>(entry) {
            Ok(entry) => Some((entry.id.clone(), entry)),
            Err(error) => {
                tracing::warn!(%error, "an approval cannot be read; it counts for nothing");
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

    pub(super) fn pending(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().filter(|entry| entry.state == State::Pending)
    }

    /// Adds a request. Its id is unguessable, unless the ticket has its own.
    pub(super) fn ask(&mut self, ticket: Ticket, nonce: String, now: u64) -> Result<Entry, Error> {
        let id = ticket.id.unwrap_or(nonce);
        if !is_name(&id) {
            let why = "an approval id has letters, digits and . _ : - only, and 128 of them at most";
            return Err(Error::Invalid(why.to_owned()));
        }
        if let Some(known) = self.0.get(&id) {
            return Err(Error::Settled(id, known.state));
        }
        if display::shown(&ticket.command).is_none() {
            return Err(Error::Invalid(format!(
                "a command of {} bytes cannot be shown whole, so nobody can allow it; put it into a file of the \
                 workspace and run that",
                ticket.command.len()
            )));
        }
        let told = ticket.told.iter().map(|(name, value)| name.len() + value.to_string().len()).sum::<usize>();
        if told > 8 * display::LONGEST {
            return Err(Error::Invalid(format!("what is told of the command has {told} bytes, which nobody reads")));
        }
        self.make_room(&Asker::of(ticket.bound.as_ref()), now)?;
        let expires = u64::try_from(ticket.expires.min(EXPIRES).as_millis()).unwrap_or(u64::MAX);
        let entry = Entry {
            id: id.clone(),
            agent: ticket.agent.as_str().to_owned(),
            command: ticket.command,
            told: ticket.told,
            bound: ticket.bound,
            rules: ticket.rules.iter().map(Rule::durable).collect(),
            call: ticket.call,
            created_at_ms: now,
            expires_at_ms: now.saturating_add(expires),
            state: State::Pending,
            decided_by: None,
            decided_at_ms: None,
            used_at_ms: None,
        };
        self.0.insert(id, entry.clone());
        Ok(entry)
    }

    /// Makes room for one more request. If the queue is full, the requester with the most pending requests loses its
    /// newest, so that none can block the others.
    fn make_room(&mut self, asker: &Asker, now: u64) -> Result<(), Error> {
        let mut counts: BTreeMap<Asker, usize> = BTreeMap::new();
        for entry in self.pending() {
            *counts.entry(Asker::of(entry.bound.as_ref())).or_default() += 1;
        }
        let own = counts.get(asker).copied().unwrap_or_default();
        if own >= MOST_OF_ONE {
            return Err(Error::Full);
        }
        if counts.values().sum::<usize>() < MOST {
            return Ok(());
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count);
        // Otherwise two requesters would displace each other forever.
        let Some((largest, _)) = largest.filter(|(_, count)| *count > own + 1) else { return Err(Error::Full) };
        let of_largest =
            |entry: &&mut Entry| entry.state == State::Pending && Asker::of(entry.bound.as_ref()) == largest;
        let newest = self.0.values_mut().filter(of_largest).max_by_key(|entry| (entry.created_at_ms, entry.id.clone()));
        if let Some(newest) = newest {
            newest.expires_at_ms = newest.expires_at_ms.min(now);
        }
        Ok(())
    }

    /// Decides a request. The first decision counts.
    pub(super) fn decide(&mut self, id: &str, verdict: Verdict, by: &str, now: u64) -> Result<Entry, Error> {
        let entry = self.0.get_mut(id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        if entry.state != State::Pending {
            return Err(Error::Settled(id.to_owned(), entry.state));
        }
        if !entry.offers().contains(&verdict) {
            return Err(Error::Invalid(format!(
                "{} cannot be answered for {id}: what it runs may run anything else; allow it once, or deny it",
                verdict.as_str()
            )));
        }
        entry.state = verdict.state();
        entry.decided_by = Some(by.to_owned());
        entry.decided_at_ms = Some(now);
        Ok(entry.clone())
    }

    /// Consumes an approval, once. An approval whose command has changed is consumed, too.
    pub(super) fn take(&mut self, id: &str, bound: &Bound, now: u64) -> Result<Entry, Error> {
        let entry = self.0.get_mut(id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        let void = |why: String| Error::Void { id: id.to_owned(), why };
        if !matches!(entry.state, State::AllowedOnce | State::AllowedAlways) {
            return Err(Error::Settled(id.to_owned(), entry.state));
        }
        if entry.used_at_ms.is_some() {
            return Err(void("it was used".to_owned()));
        }
        if now >= entry.expires_at_ms {
            return Err(void("it has expired".to_owned()));
        }
        let Some(meant) = &entry.bound else { return Err(void("somebody else runs it".to_owned())) };
        let difference = meant.difference(bound);
        entry.used_at_ms = Some(now);
        match difference {
            Some(what) => Err(void(format!("{what} has changed since it was asked"))),
            None => Ok(entry.clone()),
        }
    }

    /// Expires overdue requests and removes old settled ones. Returns the expired ones.
    pub(super) fn tidy(&mut self, now: u64) -> Vec<Entry> {
        self.0.retain(|_, entry| entry.state == State::Pending || now < entry.expires_at_ms.saturating_add(KEPT_MS));
        let late = |entry: &&mut Entry| entry.state == State::Pending && now >= entry.expires_at_ms;
        let ended = self.0.values_mut().filter(late).map(|entry| {
            entry.state = State::Expired;
            entry.clone()
        });
        ended.collect()
    }
}

fn is_name(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(is_plain)
}
