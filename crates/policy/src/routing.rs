//! Routing of channel messages: which agent answers, and in which session. Pure: equal origins give equal keys.
//!
//! Bindings select the agent; the most specific match wins, and among equals the first. The session key identifies the
//! conversation: by group, or by person unless the person is the owner. Different peers never share a key: ids are
//! escaped by `part`.

mod part;

use std::collections::BTreeMap;

use homard_proto::{
    AgentId, ChannelAccount, IdIssuer, SenderPattern, SessionKey, id::Error, identity::DEFAULT_ACCOUNT,
};

pub use self::part::folder_of;

/// Kind of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// With one person.
    Direct,
    /// In a group.
    Group,
    /// In a channel of a server or workspace.
    Channel,
}

impl PeerKind {
    /// Parses a kind of the config; `dm` is an older word for `direct`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_lowercase().as_str() {
            "direct" | "dm" => Some(Self::Direct),
            "group" => Some(Self::Group),
            "channel" => Some(Self::Channel),
            _ => None,
        }
    }

    /// Returns the name used in session keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }
}

/// Counterpart of a conversation on a platform: a person, a group or a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChannelPeer {
    /// Kind of the conversation.
    pub kind: PeerKind,
    /// Id on the platform.
    pub id: String,
}

/// A thread within a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ThreadId {
    /// A thread, by id.
    Thread(String),
    /// A topic of a forum, by number.
    Topic(String),
}

/// Origin of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageOrigin {
    /// Our account that received the message.
    pub at: ChannelAccount,
    /// Conversation that contains the message.
    pub peer: ChannelPeer,
    /// Id of the chat server that contains the channel, such as a Discord guild.
    pub guild: Option<String>,
    /// Id of the team or workspace that contains the channel, on platforms that have them.
    pub team: Option<String>,
    /// Thread in the conversation.
    pub thread: Option<ThreadId>,
    /// True if the owner wrote it. Only a channel that authenticates the sender may set it.
    pub is_owner: bool,
}

/// Accounts that a binding applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountFilter {
    /// The default account.
    Default,
    /// This account.
    Only(String),
    /// All accounts.
    Any,
}

impl AccountFilter {
    /// Parses an account of the config: nothing is the default one, `*` is any.
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

/// Config entry that assigns an agent to messages. All conditions that are set must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The agent.
    pub agent: AgentId,
    /// Platform that the message came from.
    pub channel: String,
    /// Accounts that received the message.
    pub account: AccountFilter,
    /// Conversation that contains the message.
    pub peer: Option<ChannelPeer>,
    /// Chat server, as in [`MessageOrigin::guild`].
    pub guild: Option<String>,
    /// Team, as in [`MessageOrigin::team`].
    pub team: Option<String>,
}

/// Session scope of direct messages: which direct messages share a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DmScope {
    /// Direct messages of the owner use the main session; any other person has a session as in `PerChannelPeer`. The
    /// default.
    #[default]
    OwnerInMain,
    /// All direct messages use the main session, so every authorized sender can read those of the others.
    Main,
    /// One session per person for all platforms. A person is a linked identity, or an id that a platform issued; an id
    /// that a program chose has a session as in `PerChannelPeer`.
    PerPeer,
    /// One session per platform and person, with separate sessions for accounts other than the default one.
    PerChannelPeer,
    /// One session per platform, account and person.
    PerAccountChannelPeer,
}

impl DmScope {
    /// Parses a scope of the config.
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

/// Routing configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingTable {
    /// Bindings in the order of the config.
    pub bindings: Vec<Binding>,
    /// Agent if no binding matches.
    pub default_agent: AgentId,
    /// Session scope of direct messages.
    pub dm_scope: DmScope,
    /// Linked identities: a name with its senders.
    pub identity_links: BTreeMap<String, Vec<SenderPattern>>,
}

/// The rule that selected the agent, most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteRule {
    /// A binding for the conversation; for a message in a thread, a binding for this thread.
    Peer,
    /// A binding for the conversation that contains the thread of the message.
    ParentPeer,
    /// A binding for the chat server that contains the channel, such as a Discord guild.
    Guild,
    /// A binding for the team or workspace that contains the channel.
    Team,
    /// A binding for the account that received the message.
    Account,
    /// A binding for all accounts of the platform.
    Channel,
    /// No binding matches, so the default agent answers.
    Default,
}

/// Result of routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingResult {
    /// The agent.
    pub agent: AgentId,
    /// Key of the session.
    pub key: SessionKey,
    /// Key that earlier versions gave this origin. `None` if it equals `key`, or if an id contains a colon, because the
    /// old key could then be that of a thread. Earlier versions may have given the old key to other peers, too.
    pub old_key: Option<SessionKey>,
    /// True if a session under `key` may belong to another peer, so that the caller must check whose it is. A program
    /// chose the id, and earlier versions ignored the account and the id's case and surrounding blanks.
    pub is_contestable: bool,
    /// The rule that matched.
    pub matched: RouteRule,
}

/// Selects the agent and the session of a message. Fails for names that cannot be part of a session key.
pub fn route(routes: &RoutingTable, origin: &MessageOrigin) -> Result<RoutingResult, Error> {
    route_spelled(routes, origin, 0)
}

/// Like [`route`], with another spelling of the peer in the key, for an origin whose key is used by a session of an
/// earlier version: the first `forced` bytes of the peer's id are escaped. Every spelling is unique to this origin.
pub fn route_spelled(routes: &RoutingTable, origin: &MessageOrigin, forced: usize) -> Result<RoutingResult, Error> {
    let channel = segment("channel", origin.at.channel())?;
    let account = segment("account id", origin.at.account())?;
    let matching = routes.bindings.iter().filter(|binding| {
        clean(&binding.channel) == channel && binding.account.covers(&account) && binding.matches_guild_and_team(origin)
    });
    // The first of the most specific ones.
    let best = matching.filter_map(|binding| Some((binding.rule(origin)?, binding))).min_by_key(|(rule, _)| *rule);
    let (agent, matched) = match best {
        Some((rule, binding)) => (&binding.agent, rule),
        None => (&routes.default_agent, RouteRule::Default),
    };
    let parse = |rest: String| SessionKey::parse(&format!("agent:{agent}:{rest}"), agent);
    let key = parse(key_suffix(routes, origin, forced)?)?;
    let old_key = old_key_suffix(routes, origin).and_then(|rest| parse(rest).ok()).filter(|old| *old != key);
    let is_contestable =
        origin.at.issuer() == IdIssuer::Peer && !routes.is_in_main(origin) && routes.linked(origin).is_none();
    Ok(RoutingResult { agent: agent.clone(), key, old_key, is_contestable, matched })
}

impl Binding {
    /// True if the message comes from the binding's server and team, if it has any.
    fn matches_guild_and_team(&self, origin: &MessageOrigin) -> bool {
        let fits = |expected: &Option<String>, actual: &Option<String>| {
            non_empty(expected).is_none_or(|expected| non_empty(actual) == Some(expected))
        };
        fits(&self.guild, &origin.guild) && fits(&self.team, &origin.team)
    }

    /// Returns how specific the binding is for this message; `None` if it is for another conversation.
    fn rule(&self, origin: &MessageOrigin) -> Option<RouteRule> {
        if let Some(peer) = &self.peer {
            return peer.rule(origin);
        }
        Some(match (non_empty(&self.guild), non_empty(&self.team), &self.account) {
            (Some(_), _, _) => RouteRule::Guild,
            (None, Some(_), _) => RouteRule::Team,
            (None, None, AccountFilter::Default | AccountFilter::Only(_)) => RouteRule::Account,
            (None, None, AccountFilter::Any) => RouteRule::Channel,
        })
    }
}

impl ChannelPeer {
    /// Returns the rule by which a binding for this conversation matches.
    fn rule(&self, origin: &MessageOrigin) -> Option<RouteRule> {
        let (kind, id) = (origin.peer.kind, &origin.peer.id);
        if self.kind != kind {
            return None;
        }
        let thread_peer = match (&origin.thread, kind) {
            (None, _) => return (self.id.trim() == id).then_some(RouteRule::Peer),
            // The id of a thread with one person may be the id of another person.
            (Some(_), PeerKind::Direct) => None,
            // A program may give a thread the id of any group.
            (Some(_), PeerKind::Group | PeerKind::Channel) if origin.at.issuer() == IdIssuer::Peer => None,
            (Some(ThreadId::Thread(thread)), PeerKind::Group | PeerKind::Channel) => Some(thread.trim().to_owned()),
            (Some(ThreadId::Topic(topic)), PeerKind::Group | PeerKind::Channel) => {
                Some(format!("{id}:topic:{}", topic.trim()))
            }
        };
        if thread_peer.as_deref() == Some(self.id.trim()) {
            Some(RouteRule::Peer)
        } else {
            (self.id.trim() == id).then_some(RouteRule::ParentPeer)
        }
    }
}

/// Builds the part of the session key after the agent. The first `forced` bytes of the peer id are escaped even if they
/// need not be: another key for a peer whose usual key is taken (see [`part::escape`]).
fn key_suffix(routes: &RoutingTable, origin: &MessageOrigin, forced: usize) -> Result<String, Error> {
    if origin.peer.id.is_empty() {
        return Err(Error::Empty("peer id"));
    }
    let (channel, account) = (origin.at.channel(), part::escape(origin.at.account(), 0));
    let prefix = if origin.at.is_default() { channel.to_owned() } else { format!("{channel}:{account}") };
    let peer = || part::escape(&origin.peer.id, forced);
    let linked = routes.linked(origin);
    let person = || match &linked {
        Some(name) => part::escape(name, 0),
        // A peer whose id equals the name of a linked identity must not get its key.
        None if routes.is_name(&peer()) => part::escape(&origin.peer.id, forced.max(1)),
        None => peer(),
    };
    let base = match (origin.peer.kind, routes.dm_scope) {
        (PeerKind::Group | PeerKind::Channel, _) => format!("{prefix}:{}:{}", origin.peer.kind.name(), peer()),
        (PeerKind::Direct, _) if routes.is_in_main(origin) => "main".to_owned(),
        // An id chosen by a program does not identify a person on other platforms.
        (PeerKind::Direct, DmScope::PerPeer) if linked.is_some() || origin.at.issuer() == IdIssuer::Platform => {
            format!("direct:{}", person())
        }
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => format!("{channel}:{account}:direct:{}", person()),
        (PeerKind::Direct, DmScope::Main | DmScope::OwnerInMain | DmScope::PerPeer | DmScope::PerChannelPeer) => {
            format!("{prefix}:direct:{}", person())
        }
    };
    let (kind, id) = match &origin.thread {
        None => return Ok(base),
        Some(ThreadId::Thread(id)) => ("thread", id),
        Some(ThreadId::Topic(id)) => ("topic", id),
    };
    if id.is_empty() {
        return Err(Error::Empty("thread id"));
    }
    Ok(format!("{base}:{kind}:{}", part::escape(id, 0)))
}

/// Builds the part of the session key after the agent as earlier versions did: with ids trimmed and in lower case, and
/// without the account. `None` if an id contains a colon, because the key could then be that of a thread.
fn old_key_suffix(routes: &RoutingTable, origin: &MessageOrigin) -> Option<String> {
    let MessageOrigin { at, peer, thread, .. } = origin;
    let (kind, thread) = match thread {
        None => ("", ""),
        Some(ThreadId::Thread(id)) => (":thread:", id.as_str()),
        Some(ThreadId::Topic(id)) => (":topic:", id.as_str()),
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
    Some(format!("{base}{kind}{}", clean(thread)))
}

impl RoutingTable {
    /// Returns the name under which the sender of a direct message is linked.
    fn linked(&self, origin: &MessageOrigin) -> Option<String> {
        let sender = Some(origin.at.sender(&origin.peer.id));
        let is_sender = |pattern: &SenderPattern| pattern.in_global_list(&origin.at) == sender;
        let links = self.identity_links.iter().filter(|(name, _)| !clean(name).is_empty());
        links.into_iter().find(|(_, patterns)| patterns.iter().any(is_sender)).map(|(name, _)| clean(name))
    }

    /// True if a part of a key equals the name of a linked identity.
    fn is_name(&self, part: &str) -> bool {
        self.identity_links.keys().any(|name| part::escape(&clean(name), 0) == part)
    }

    /// True if a message goes to its agent's main session.
    fn is_in_main(&self, origin: &MessageOrigin) -> bool {
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

fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// Normalizes a name that becomes one part of a key. A colon is rejected, because one key could then mean two origins.
fn segment(kind: &'static str, text: &str) -> Result<String, Error> {
    match clean(text) {
        text if text.is_empty() => Err(Error::Empty(kind)),
        text if text.contains(':') => Err(Error::Character { kind, found: ':' }),
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests;
