//! Which agent answers a message from a chat platform, and in which session. Pure: the same origin gives the same key.
//!
//! Bindings say which agent; the most specific one that fits wins, and among equals the first. The key says where the
//! conversation is kept: a group's by the group, and a person's by the person, unless the person is the owner.
//! Different peers never have one key: ids are escaped by `part`.

mod part;

use std::collections::BTreeMap;

use homard_proto::{
    AgentId, ChannelAccount, IdIssuer, SenderPattern, SessionKey, id::Error, identity::DEFAULT_ACCOUNT,
};

pub use self::part::folder_of;

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
    /// The key that earlier versions gave this origin, if it was another one and could be no other kind of origin's. Other
    /// peers may have had it, too.
    pub old_key: Option<SessionKey>,
    /// Whether earlier versions gave `key` to other peers, too: ids that differed in case or blanks, or of other accounts.
    pub is_contestable: bool,
    /// Why.
    pub matched: Rule,
}

/// Finds who answers a message and in which session. Fails on names that cannot be part of a session key.
pub fn route(routes: &Routes, origin: &Origin) -> Result<Routed, Error> {
    route_spelled(routes, origin, 0)
}

/// The same with another spelling of the peer in the key, for an origin whose key is taken by a session of an earlier
/// version: the first `forced` bytes of the peer's id are escaped. Every spelling is of this origin alone.
pub fn route_spelled(routes: &Routes, origin: &Origin, forced: usize) -> Result<Routed, Error> {
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
    let parse = |rest: String| SessionKey::parse(&format!("agent:{agent}:{rest}"), agent);
    let key = parse(rest(routes, origin, forced)?)?;
    let old_key = old_rest(routes, origin).and_then(|rest| parse(rest).ok()).filter(|old| *old != key);
    let is_contestable =
        origin.at.issuer() == IdIssuer::Peer && !routes.is_in_main(origin) && routes.linked(origin).is_none();
    Ok(Routed { agent: agent.clone(), key, old_key, is_contestable, matched })
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
fn rest(routes: &Routes, origin: &Origin, forced: usize) -> Result<String, Error> {
    if origin.peer.id.is_empty() {
        return Err(Error::Empty("peer id"));
    }
    let (channel, account) = (origin.at.channel(), part::escape(origin.at.account(), 0));
    let place = if origin.at.is_default() { channel.to_owned() } else { format!("{channel}:{account}") };
    let peer = || part::escape(&origin.peer.id, forced);
    let linked = routes.linked(origin);
    let person = || match &linked {
        Some(name) => part::escape(name, 0),
        // A person's name must not be taken by somebody who is called so.
        None if routes.is_name(&peer()) => part::escape(&origin.peer.id, forced.max(1)),
        None => peer(),
    };
    let base = match (origin.peer.kind, routes.dm_scope) {
        (PeerKind::Group | PeerKind::Channel, _) => format!("{place}:{}:{}", origin.peer.kind.name(), peer()),
        (PeerKind::Direct, _) if routes.is_in_main(origin) => "main".to_owned(),
        // An id that a program chose says nothing of a person elsewhere.
        (PeerKind::Direct, DmScope::PerPeer) if linked.is_some() || origin.at.issuer() == IdIssuer::Platform => {
            format!("direct:{}", person())
        }
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => format!("{channel}:{account}:direct:{}", person()),
        (PeerKind::Direct, DmScope::Main | DmScope::OwnerInMain | DmScope::PerPeer | DmScope::PerChannelPeer) => {
            format!("{place}:direct:{}", person())
        }
    };
    let (word, id) = match &origin.thread {
        None => return Ok(base),
        Some(Thread::Thread(id)) => ("thread", id),
        Some(Thread::Topic(id)) => ("topic", id),
    };
    if id.is_empty() {
        return Err(Error::Empty("thread id"));
    }
    Ok(format!("{base}:{word}:{}", part::escape(id, 0)))
}

/// What followed the agent in the keys of earlier versions: ids without blanks around them, in lower case, and no account.
/// `None` where an id has a colon, for such a key could be that of a thread.
fn old_rest(routes: &Routes, origin: &Origin) -> Option<String> {
    let Origin { at, peer, thread, .. } = origin;
    let (word, thread) = match thread {
        None => ("", ""),
        Some(Thread::Thread(id)) => (":thread:", id.as_str()),
        Some(Thread::Topic(id)) => (":topic:", id.as_str()),
    };
    let id = Some(clean(&peer.id)).filter(|id| !id.is_empty() && !id.contains(':') && !thread.contains(':'))?;
    let person = || routes.linked(origin).unwrap_or_else(|| id.clone());
    let channel = at.channel();
    let base = match (peer.kind, routes.dm_scope) {
        (PeerKind::Group | PeerKind::Channel, _) => format!("{channel}:{}:{id}", peer.kind.name()),
        (PeerKind::Direct, _) if routes.is_in_main(origin) => "main".to_owned(),
        (PeerKind::Direct, DmScope::PerPeer) => format!("direct:{}", person()),
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => format!("{channel}:{}:direct:{}", at.account(), person()),
        (PeerKind::Direct, DmScope::Main | DmScope::OwnerInMain | DmScope::PerChannelPeer) => {
            format!("{channel}:direct:{}", person())
        }
    };
    Some(format!("{base}{word}{}", clean(thread)))
}

impl Routes {
    /// The name under which the sender of a direct message is linked with other senders.
    fn linked(&self, origin: &Origin) -> Option<String> {
        let sender = Some(origin.at.sender(&origin.peer.id));
        let is_theirs = |pattern: &SenderPattern| pattern.in_global_list(&origin.at) == sender;
        let named = self.identity_links.iter().filter(|(name, _)| !clean(name).is_empty());
        named.into_iter().find(|(_, patterns)| patterns.iter().any(is_theirs)).map(|(name, _)| clean(name))
    }

    /// Whether a part of a key is that of a linked person's name.
    fn is_name(&self, part: &str) -> bool {
        self.identity_links.keys().any(|name| part::escape(&clean(name), 0) == part)
    }

    /// Whether a message goes to its agent's main session.
    fn is_in_main(&self, origin: &Origin) -> bool {
        let shares_main = match self.dm_scope {
            DmScope::Main => true,
            DmScope::OwnerInMain => origin.is_owner,
            DmScope::PerPeer | DmScope::PerChannelPeer | DmScope::PerAccountChannelPeer => false,
        };
        origin.peer.kind == PeerKind::Direct && shares_main
    }
}

fn clean(text: &str) -> String {
    text.trim().to_lowercase()
}

fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// A name that is one part of a key: with a colon in it, one key could mean two origins.
fn segment(kind: &'static str, text: &str) -> Result<String, Error> {
    match clean(text) {
        text if text.is_empty() => Err(Error::Empty(kind)),
        text if text.contains(':') => Err(Error::Character { kind, found: ':' }),
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests;
