//! Which agent answers a message from a chat platform, and in which session. Pure: the same origin gives the same key.
//!
//! Bindings say which agent; the most specific one that fits wins, and among equals the first. The key says where the
//! conversation is kept: a group's by the group, and a person's by the person, unless the person is the owner.

use std::collections::BTreeMap;

use homard_proto::{
    AgentId, ChannelAccount, IdIssuer, SenderPattern, SessionKey, id::Error, identity::DEFAULT_ACCOUNT,
};

/// What kind of conversation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// With one person.
    Direct,
    /// In a group.
    Group,
    /// In a room of a larger place.
    Channel,
}

impl PeerKind {
    /// Reads a kind as configs say it; `dm` is an older word for `direct`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_lowercase().as_str() {
            "direct" | "dm" => Some(Self::Direct),
            "group" => Some(Self::Group),
            "channel" => Some(Self::Channel),
            _ => None,
        }
    }

    /// Its word in a session key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }
}

/// Whom one talks to on a platform: a person, a group or a room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// What kind of conversation it is.
    pub kind: PeerKind,
    /// Its id there, as the platform writes it.
    pub id: String,
}

/// A conversation inside a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Thread {
    /// A thread, by its id.
    Thread(String),
    /// A topic of a forum, by its number.
    Topic(String),
}

/// Where a message comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The account that received it.
    pub at: ChannelAccount,
    /// The conversation.
    pub peer: Peer,
    /// The server that the room belongs to.
    pub guild: Option<String>,
    /// The team that the room belongs to.
    pub team: Option<String>,
    /// The thread in the conversation.
    pub thread: Option<Thread>,
    /// Whether the owner wrote it. Only a channel that knows the sender may say so.
    pub is_owner: bool,
}

/// Which accounts a binding is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// The one of a platform that has only one.
    Default,
    /// This one.
    Only(String),
    /// All of them.
    Any,
}

impl Account {
    /// Reads an account as configs say it: nothing is the default one, `*` is any.
    pub fn parse(text: Option<&str>) -> Self {
        match text.map(str::trim).unwrap_or_default() {
            "" => Self::Default,
            "*" => Self::Any,
            name => Self::Only(name.to_owned()),
        }
    }

    fn covers(&self, account: &str) -> bool {
        match self {
            Self::Default => account == DEFAULT_ACCOUNT,
            Self::Only(name) => clean(name) == account,
            Self::Any => true,
        }
    }
}

/// Says which agent answers what. Everything that it names must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Who answers.
    pub agent: AgentId,
    /// On this platform.
    pub channel: String,
    /// For these accounts.
    pub account: Account,
    /// In this conversation.
    pub peer: Option<Peer>,
    /// On this server.
    pub guild: Option<String>,
    /// In this team.
    pub team: Option<String>,
}

/// Where the conversation with one person is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DmScope {
    /// The owner's in the main session; anybody else's by platform and person. What holds when nobody chose.
    #[default]
    OwnerInMain,
    /// Everybody's in the main session. Whoever may write reads what the others wrote.
    Main,
    /// By person, whatever the platform.
    PerPeer,
    /// By platform and person.
    PerChannelPeer,
    /// By platform, account and person.
    PerAccountChannelPeer,
}

impl DmScope {
    /// Reads a scope as configs say it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "main" => Some(Self::Main),
            "per-peer" => Some(Self::PerPeer),
            "per-channel-peer" => Some(Self::PerChannelPeer),
            "per-account-channel-peer" => Some(Self::PerAccountChannelPeer),
            _ => None,
        }
    }
}

/// Everything that decides where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// In the order of the config.
    pub bindings: Vec<Binding>,
    /// Who answers when no binding fits.
    pub default_agent: AgentId,
    /// Where conversations with one person are kept.
    pub dm_scope: DmScope,
    /// People by name, each with the senders that they are.
    pub identity_links: BTreeMap<String, Vec<SenderPattern>>,
}

/// What decided who answers, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A binding of the conversation; in a thread, of the thread itself.
    Peer,
    /// A binding of the conversation that the thread is in.
    ParentPeer,
    /// A binding of the server.
    Guild,
    /// A binding of the team.
    Team,
    /// A binding of the account.
    Account,
    /// A binding of the whole platform.
    Channel,
    /// None: the default agent.
    Default,
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// Who answers.
    pub agent: AgentId,
    /// In which session.
    pub key: SessionKey,
    /// Why.
    pub matched: Rule,
}

/// Finds who answers a message and in which session. Fails on names that cannot be part of a session key.
pub fn route(routes: &Routes, origin: &Origin) -> Result<Routed, Error> {
    let channel = segment("channel", origin.at.channel())?;
    let account = segment("account id", origin.at.account())?;
    let fitting = routes.bindings.iter().filter(|binding| {
        clean(&binding.channel) == channel && binding.account.covers(&account) && binding.fits_place_of(origin)
    });
    // The first of the most specific ones.
    let best = fitting.filter_map(|binding| Some((binding.rule(origin)?, binding))).min_by_key(|(rule, _)| *rule);
    let (agent, matched) = match best {
        Some((rule, binding)) => (&binding.agent, rule),
        None => (&routes.default_agent, Rule::Default),
    };
    let rest = rest(routes, origin, &channel, &account)?;
    let key = SessionKey::parse(&format!("agent:{agent}:{rest}"), agent)?;
    Ok(Routed { agent: agent.clone(), key, matched })
}

impl Binding {
    /// Whether the message comes from the server and the team that it names, if it names any.
    fn fits_place_of(&self, origin: &Origin) -> bool {
        let fits = |named: &Option<String>, found: &Option<String>| {
            filled(named).is_none_or(|named| filled(found) == Some(named))
        };
        fits(&self.guild, &origin.guild) && fits(&self.team, &origin.team)
    }

    /// How specific it is for a message from its place; `None` if it is for another conversation.
    fn rule(&self, origin: &Origin) -> Option<Rule> {
        if let Some(peer) = &self.peer {
            return peer.rule(origin);
        }
        Some(match (filled(&self.guild), filled(&self.team), &self.account) {
            (Some(_), _, _) => Rule::Guild,
            (None, Some(_), _) => Rule::Team,
            (None, None, Account::Default | Account::Only(_)) => Rule::Account,
            (None, None, Account::Any) => Rule::Channel,
        })
    }
}

impl Peer {
    /// As what a binding of this conversation fits.
    fn rule(&self, origin: &Origin) -> Option<Rule> {
        let (kind, id) = (origin.peer.kind, &origin.peer.id);
        if self.kind != kind {
            return None;
        }
        let own = match (&origin.thread, kind) {
            (None, _) => return (self.id.trim() == id).then_some(Rule::Peer),
            // The id of a thread with one person may well be the id of another person.
            (Some(_), PeerKind::Direct) => None,
            // A program may give a thread the id of any group.
            (Some(_), PeerKind::Group | PeerKind::Channel) if origin.at.issuer() == IdIssuer::Peer => None,
            (Some(Thread::Thread(thread)), PeerKind::Group | PeerKind::Channel) => Some(thread.trim().to_owned()),
            (Some(Thread::Topic(topic)), PeerKind::Group | PeerKind::Channel) => {
                Some(format!("{id}:topic:{}", topic.trim()))
            }
        };
        if own.as_deref() == Some(self.id.trim()) {
            Some(Rule::Peer)
        } else {
            (self.id.trim() == id).then_some(Rule::ParentPeer)
        }
    }
}

/// What follows the agent in the session key.
fn rest(routes: &Routes, origin: &Origin, channel: &str, account: &str) -> Result<String, Error> {
    let peer = part("peer id", &origin.peer.id)?;
    let person = || routes.linked(origin).unwrap_or_else(|| peer.clone());
    let base = match (origin.peer.kind, routes.dm_scope) {
        (PeerKind::Group | PeerKind::Channel, _) => format!("{channel}:{}:{peer}", origin.peer.kind.name()),
        (PeerKind::Direct, DmScope::Main) => "main".to_owned(),
        (PeerKind::Direct, DmScope::OwnerInMain) if origin.is_owner => "main".to_owned(),
        (PeerKind::Direct, DmScope::OwnerInMain | DmScope::PerChannelPeer) => format!("{channel}:direct:{}", person()),
        (PeerKind::Direct, DmScope::PerPeer) => format!("direct:{}", person()),
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => format!("{channel}:{account}:direct:{}", person()),
    };
    Ok(match &origin.thread {
        None => base,
        Some(Thread::Thread(id)) => format!("{base}:thread:{}", part("thread id", id)?),
        Some(Thread::Topic(id)) => format!("{base}:topic:{}", part("topic id", id)?),
    })
}

impl Routes {
    /// The name under which the sender of a direct message is linked with other senders.
    fn linked(&self, origin: &Origin) -> Option<String> {
        let sender = Some(origin.at.sender(&origin.peer.id));
        let is_theirs = |pattern: &SenderPattern| pattern.in_global_list(&origin.at) == sender;
        let named = self.identity_links.iter().filter(|(name, _)| !clean(name).is_empty());
        named.into_iter().find(|(_, patterns)| patterns.iter().any(is_theirs)).map(|(name, _)| clean(name))
    }
}

fn clean(text: &str) -> String {
    text.trim().to_lowercase()
}

fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// A part of a key with something in it.
fn part(kind: &'static str, text: &str) -> Result<String, Error> {
    let text = clean(text);
    if text.is_empty() { Err(Error::Empty(kind)) } else { Ok(text) }
}

/// A part of a key that is one word: with a colon in it, one key could mean two origins.
fn segment(kind: &'static str, text: &str) -> Result<String, Error> {
    let text = part(kind, text)?;
    if text.contains(':') { Err(Error::Character { kind, found: ':' }) } else { Ok(text) }
}

#[cfg(test)]
mod tests;
