//! What was asked, and what may follow on what. No clock and no disk: time is passed in, and a change is a new book.

use std::{collections::BTreeMap, time::Duration};

use homard_proto::{AgentId, SessionKey};
use homard_store::Error as StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{bound::Bound, display, rule::Rule};

/// How long an answer is waited for, and how long it counts.
pub const EXPIRES: Duration = Duration::from_secs(300);
/// How long one that is settled is remembered, in milliseconds.
const KEPT_MS: u64 = 3_600_000;
/// How many may wait at a time: more than people read, and not more than fits on a disk.
const MOST: usize = 64;
/// How many of a session may wait at a time.
const MOST_OF_ONE: usize = 16;
/// The longest name of one, in bytes.
const LONGEST_ID: usize = 128;

/// Something to ask about.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket {
    /// Its name, if whoever asks gives one.
    pub id: Option<String>,
    /// Whose rules are meant.
    pub agent: AgentId,
    /// What is asked about, as it was written.
    pub command: String,
    /// What else people are told, in the wire's words: `cwd`, `host`, `sessionKey`, and so on.
    pub told: Map<String, Value>,
    /// What the decision is about; `None` for what somebody else runs.
    pub bound: Option<Bound>,
    /// What would be remembered; nothing if it cannot be allowed for good.
    pub rules: Vec<Rule>,
    /// The call as it was made, to make it again.
    pub call: Value,
    /// How long an answer is waited for: [`EXPIRES`] at most.
    pub expires: Duration,
}

/// Something that was asked, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its name.
    pub id: String,
    /// Whose rules are meant.
    pub agent: String,
    /// What is asked about, as it was written.
    pub command: String,
    /// What else people are told.
    #[serde(default)]
    pub told: Map<String, Value>,
    /// What the decision is about; `None` for what somebody else runs.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// What would be remembered.
    #[serde(default)]
    rules: Vec<Value>,
    /// The call as it was made.
    #[serde(default)]
    pub call: Value,
    /// When it was asked.
    pub created_at_ms: u64,
    /// Until when an answer counts.
    pub expires_at_ms: u64,
    /// What came of it.
    pub state: State,
    /// Who decided.
    #[serde(default)]
    pub decided_by: Option<String>,
    /// When.
    #[serde(default)]
    pub decided_at_ms: Option<u64>,
    /// When it was used, or lost what it was about.
    #[serde(default)]
    pub used_at_ms: Option<u64>,
}

/// What came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nobody has answered.
    Pending,
    /// It may run.
    AllowedOnce,
    /// It may run, and what is like it from now on.
    AllowedAlways,
    /// It may not.
    Denied,
    /// Nobody answered in time.
    Expired,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    AllowOnce,
    /// It may run, and what is like it from now on.
    AllowAlways,
    /// It may not.
    Deny,
}

/// Why something about an approval was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none of that name.
    #[error("unknown or expired approval id {}", quoted(.0))]
    Unknown(String),
    /// It is settled.
    #[error("approval {} is already {}", .0, .1.as_str())]
    Settled(String, State),
    /// It was used, or what it was about has changed.
    #[error("approval {id} counts no more: {why}")]
    Void {
        /// Which.
        id: String,
        /// What happened.
        why: String,
    },
    /// It cannot be asked, or not be answered so.
    #[error("{0}")]
    Invalid(String),
    /// Too many wait.
    #[error("too many commands wait for an answer; answer some: homard approvals list")]
    Full,
    /// It could not be stored, and nothing has changed.
    #[error("the approval could not be stored: {0}")]
    Store(#[from] StoreError),
}

/// Somebody's name for something, in an answer: short and harmless.
fn quoted(id: &str) -> String {
    let short: String = id.chars().take(40).collect();
    format!("\"{}\"", display::shown(&short).unwrap_or_default())
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::AllowedOnce => "allowed-once",
            Self::AllowedAlways => "allowed-always",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    /// The decision in the wire's word; none where nobody decided.
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
    /// Reads the wire's word.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "allow-once" => Some(Self::AllowOnce),
            "allow-always" => Some(Self::AllowAlways),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }

    /// The wire's word.
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
    /// What would be remembered.
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.iter().map(Rule::read).collect()
    }

    /// What can be answered. For what somebody else runs, that one knows what to remember.
    pub fn offers(&self) -> &'static [Verdict] {
        if self.bound.is_none() || !self.rules.is_empty() {
            &[Verdict::AllowOnce, Verdict::AllowAlways, Verdict::Deny]
        } else {
            &[Verdict::AllowOnce, Verdict::Deny]
        }
    }

    /// Whether it may run and has not.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::AllowedOnce | State::AllowedAlways) && self.used_at_ms.is_none()
    }
}

/// Whose questions are counted together: a session. An agent can start sub-agents and scheduled runs as it likes, so all of
/// one agent count as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asker {
    /// A client that runs the command itself.
    Client,
    /// A conversation, by its session key.
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

/// Everything that was asked lately, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Book(pub(super) BTreeMap<String, Entry>);

impl Book {
    /// What is on the shelf. What cannot be read was not allowed.
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

    /// All entries for the shelf. One that cannot be serialised is an error: it would be forgotten.
    pub(super) fn values(&self) -> Result<Vec<Value>, Error> {
        let value =
            |entry| serde_json::to_value(entry).map_err(|error| Error::Store(StoreError::Disk(error.to_string())));
        self.0.values().map(value).collect()
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().filter(|entry| entry.state == State::Pending)
    }

    /// Asks. The name is one that nobody can guess, unless the ticket has its own.
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

    /// Makes room for one more question of an asker. If the queue is full, an asker that has more questions in it loses
    /// its newest, so none can keep the others from asking.
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
        // Otherwise two askers would displace each other for ever.
        let Some((largest, _)) = largest.filter(|(_, count)| *count > own + 1) else { return Err(Error::Full) };
        let of_largest =
            |entry: &&mut Entry| entry.state == State::Pending && Asker::of(entry.bound.as_ref()) == largest;
        let newest = self.0.values_mut().filter(of_largest).max_by_key(|entry| (entry.created_at_ms, entry.id.clone()));
        if let Some(newest) = newest {
            newest.expires_at_ms = newest.expires_at_ms.min(now);
        }
        Ok(())
    }

    /// Answers. The first answer counts.
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

    /// Uses an answer, once. One that is not about this any more is used up, too.
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

    /// Ends what nobody answered in time, and forgets what is long settled. Returns what ended.
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
