//! Access control: which senders are admitted, and which group messages are addressed to the agent. Pure.
//!
//! A sender is an [`Identity`]: channel, account and id. Names that senders can choose are never used for decisions.

use std::collections::BTreeMap;

use homard_proto::{ChannelAccount, Identity, SenderPattern};

use crate::{
    incoming::{Incoming, PeerKind},
    mention::MentionPatterns,
};

/// Policy for direct messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DmPolicy {
    /// Listed and paired senders; others get a pairing code that the owner can approve.
    #[default]
    Pairing,
    /// Listed and paired senders only.
    Allowlist,
    /// Everyone, if the allowlist contains `*`; otherwise as `Allowlist`.
    Open,
    /// No direct messages.
    Disabled,
}

impl DmPolicy {
    /// Parses the setting `dmPolicy`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "pairing" => Some(Self::Pairing),
            "allowlist" => Some(Self::Allowlist),
            "open" => Some(Self::Open),
            "disabled" => Some(Self::Disabled),
            _ => None,
        }
    }
}

/// Policy for group messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupPolicy {
    /// Listed senders in listed groups.
    #[default]
    Allowlist,
    /// Everyone in listed groups; in all groups if none is listed.
    Open,
    /// No group messages.
    Disabled,
}

impl GroupPolicy {
    /// Parses the setting `groupPolicy`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "allowlist" => Some(Self::Allowlist),
            "open" => Some(Self::Open),
            "disabled" => Some(Self::Disabled),
            _ => None,
        }
    }
}

/// Which group messages the agent answers, as set with `/activation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Messages that mention the agent.
    Mention,
    /// All messages.
    Always,
}

/// Allowlist of senders of one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    has_wildcard: bool,
    senders: Vec<Identity>,
    roles: Vec<String>,
}

impl AllowList {
    /// Builds the allowlist of an account from config entries. Entries for other channels and accounts match no sender.
    pub fn of<'a>(at: &ChannelAccount, entries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for pattern in entries.into_iter().map(SenderPattern::parse) {
            list.has_wildcard |= pattern == SenderPattern::Anyone;
            list.senders.extend(pattern.in_own_list(at));
        }
        list
    }

    /// Adds the senders with one of these roles on a server.
    pub fn with_roles(self, roles: impl IntoIterator<Item = String>) -> Self {
        Self { roles: roles.into_iter().collect(), ..self }
    }

    /// Returns true if it contains `*`.
    pub fn has_wildcard(&self) -> bool {
        self.has_wildcard
    }

    /// Returns the listed senders.
    pub fn senders(&self) -> &[Identity] {
        &self.senders
    }

    /// True if it covers a sender, by `*`, by id or by role.
    fn covers(&self, sender: &Identity, roles: &[String]) -> bool {
        self.has_wildcard || self.senders.contains(sender) || self.roles.iter().any(|role| roles.contains(role))
    }
}

/// Access rules of an account.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    /// Policy for direct messages.
    pub dm: DmPolicy,
    /// Allowlist for direct messages.
    pub allow_from: AllowList,
    /// Policy for groups.
    pub group: GroupPolicy,
    /// Allowlist for groups; `None` for `allow_from`.
    pub group_allow_from: Option<AllowList>,
    /// Rules of listed groups by id; `*` for all others.
    pub groups: BTreeMap<String, GroupRules>,
    /// Rules of listed servers by id; `*` for all others. They apply to the chats of a server instead of `groups`; the
    /// topics of a server are its chats. Without an allowlist, all members are admitted.
    pub servers: BTreeMap<String, GroupRules>,
    /// Mention patterns.
    pub mention_patterns: MentionPatterns,
}

/// Rules of a group or a topic. Unset values are inherited from the level above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupRules {
    /// Whether messages are accepted there at all.
    pub is_enabled: Option<bool>,
    /// Whether a message must mention the agent.
    pub requires_mention: Option<bool>,
    /// Whether messages that mention only others are not answered, even if no mention is required.
    pub ignores_other_mentions: Option<bool>,
    /// Allowlist there.
    pub allow_from: Option<AllowList>,
    /// Rules of topics by id.
    pub topics: BTreeMap<String, Self>,
}

/// A message to be checked.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The message.
    pub incoming: &'a Incoming,
    /// Its sender.
    pub sender: &'a Identity,
    /// Senders approved by pairing.
    pub paired: &'a [Identity],
    /// Activation set for the group's session.
    pub activation: Option<Activation>,
    /// True if it is a known command.
    pub is_command: bool,
}

/// Decision about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    /// It is passed to an agent.
    Admit {
        /// True if it mentions the agent.
        was_mentioned: bool,
        /// True if the sender may use commands.
        may_command: bool,
    },
    /// The sender is sent a pairing code once; the message itself is not processed.
    Pair,
    /// It is not addressed to the agent, but kept as context for a later one.
    KeepAsContext,
    /// It is dropped.
    Drop(DropReason),
}

/// Why a message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The sender is a bot.
    Bot,
    /// Messages are disabled there.
    Disabled,
    /// The group is not listed.
    Group,
    /// The sender is not listed.
    Sender,
    /// The sender may not use commands.
    Command,
}

/// Decides what happens to a message.
pub fn decide(rules: &AccessRules, caller: AccessRequest<'_>) -> AccessDecision {
    if caller.incoming.sender.is_bot {
        return AccessDecision::Drop(DropReason::Bot);
    }
    match caller.incoming.peer.kind {
        PeerKind::Direct if caller.incoming.sender.is_chat => AccessDecision::Drop(DropReason::Sender),
        PeerKind::Direct => direct(rules, caller),
        PeerKind::Group | PeerKind::Channel => group(rules, caller),
    }
}

fn direct(rules: &AccessRules, caller: AccessRequest<'_>) -> AccessDecision {
    let is_known = rules.allow_from.covers(caller.sender, &[]) || caller.paired.contains(caller.sender);
    match rules.dm {
        DmPolicy::Disabled => AccessDecision::Drop(DropReason::Disabled),
        DmPolicy::Pairing | DmPolicy::Allowlist | DmPolicy::Open if is_known => {
            AccessDecision::Admit { was_mentioned: true, may_command: true }
        }
        DmPolicy::Pairing => AccessDecision::Pair,
        DmPolicy::Allowlist | DmPolicy::Open => AccessDecision::Drop(DropReason::Sender),
    }
}

fn group(rules: &AccessRules, caller: AccessRequest<'_>) -> AccessDecision {
    let incoming = caller.incoming;
    let found = match &incoming.server {
        Some(server) => server_rules(rules, server, incoming),
        None => applicable_rules(rules, incoming),
    };
    let levels = match found {
        Ok(levels) => levels,
        Err(reason) => return AccessDecision::Drop(reason),
    };
    let (sender, roles) = (caller.sender, incoming.sender_roles.as_slice());
    let own_list = levels.iter().find_map(|level| level.allow_from.as_ref());
    let list = own_list.or(rules.group_allow_from.as_ref()).unwrap_or(&rules.allow_from);
    let is_open = (rules.group == GroupPolicy::Open || incoming.server.is_some()) && own_list.is_none();
    if !is_open && !list.covers(sender, roles) {
        return AccessDecision::Drop(DropReason::Sender);
    }
    // In an open group everyone may talk; commands need more.
    let may_command =
        list.covers(sender, roles) || rules.allow_from.covers(sender, roles) || caller.paired.contains(sender);
    if caller.is_command && !may_command {
        return AccessDecision::Drop(DropReason::Command);
    }
    let was_mentioned = is_addressed(rules, incoming);
    let requires_mention = match caller.activation {
        Some(Activation::Always) => false,
        Some(Activation::Mention) => true,
        None => levels.iter().find_map(|level| level.requires_mention).unwrap_or(true),
    };
    let ignores_others = levels.iter().find_map(|level| level.ignores_other_mentions).unwrap_or(false);
    let is_for_others = ignores_others && incoming.mentions_others;
    if (requires_mention || is_for_others) && !was_mentioned && !caller.is_command {
        return AccessDecision::KeepAsContext;
    }
    AccessDecision::Admit { was_mentioned, may_command }
}

/// Returns the rules that apply to a group message, most specific first.
fn applicable_rules<'a>(rules: &'a AccessRules, incoming: &Incoming) -> Result<Vec<&'a GroupRules>, DropReason> {
    let (group_entry, wildcard) = (rules.groups.get(&incoming.peer.id), rules.groups.get("*"));
    let is_listed = group_entry.is_some() || wildcard.is_some();
    let needs_listing = match rules.group {
        GroupPolicy::Disabled => return Err(DropReason::Disabled),
        GroupPolicy::Allowlist => true,
        GroupPolicy::Open => !rules.groups.is_empty(),
    };
    if needs_listing && !is_listed {
        return Err(DropReason::Group);
    }
    let topic = |level: &'a GroupRules| {
        let thread = incoming.thread.as_deref()?;
        level.topics.get(thread).or_else(|| level.topics.get("*"))
    };
    let levels: Vec<&GroupRules> =
        [group_entry.and_then(topic), group_entry, wildcard.and_then(topic), wildcard].into_iter().flatten().collect();
    // A listed group is enabled unless its own entry says otherwise: `"*": {enabled: false}` applies to the others.
    let own_rules = [group_entry.and_then(topic), group_entry].into_iter().flatten();
    let fallback_rules = [wildcard.and_then(topic), wildcard].into_iter().flatten().filter(|_| group_entry.is_none());
    match own_rules.chain(fallback_rules).find_map(|level| level.is_enabled) {
        Some(false) => Err(DropReason::Disabled),
        Some(true) | None => Ok(levels),
    }
}

/// Returns the rules that apply to a message on a server, most specific first.
fn server_rules<'a>(
    rules: &'a AccessRules,
    server: &str,
    incoming: &Incoming,
) -> Result<Vec<&'a GroupRules>, DropReason> {
    let server = rules.servers.get(server).or_else(|| rules.servers.get("*"));
    match (rules.group, server) {
        (GroupPolicy::Disabled, _) => return Err(DropReason::Disabled),
        (GroupPolicy::Allowlist, None) => return Err(DropReason::Group),
        (GroupPolicy::Open, None) => return Ok(Vec::new()),
        (GroupPolicy::Allowlist | GroupPolicy::Open, Some(_)) => {}
    }
    let chats = server.map(|server| &server.topics);
    let chat = chats.and_then(|chats| {
        // A thread is covered by the chat that it belongs to, unless it is listed itself.
        let thread = incoming.thread.as_ref().and_then(|thread| chats.get(thread));
        thread.or_else(|| chats.get(&incoming.peer.id)).or_else(|| chats.get("*"))
    });
    if chat.is_none() && chats.is_some_and(|chats| !chats.is_empty()) {
        return Err(DropReason::Group);
    }
    let levels: Vec<&GroupRules> = [chat, server].into_iter().flatten().collect();
    match levels.iter().find_map(|level| level.is_enabled) {
        Some(false) => Err(DropReason::Disabled),
        Some(true) | None => Ok(levels),
    }
}

/// True if a message is addressed to the agent. A message that mentions only others is not, even if a pattern matches.
fn is_addressed(rules: &AccessRules, incoming: &Incoming) -> bool {
    incoming.was_mentioned || (!incoming.mentions_others && rules.mention_patterns.matches(&incoming.text))
}

#[cfg(test)]
mod tests;
