//! Who is let in, and which messages of a group are meant for us. Pure.
//!
//! A sender is an [`Identity`]: channel, account and id. Names that senders can choose decide nothing.

use std::collections::BTreeMap;

use homard_proto::{ChannelAccount, Identity, SenderPattern};

use crate::{
    incoming::{Incoming, PeerKind},
    mention::Patterns,
};

/// Who may write to us alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DmPolicy {
    /// Who is listed or was approved; others get a code that the owner can approve.
    #[default]
    Pairing,
    /// Who is listed or was approved.
    Allowlist,
    /// Everybody, if the list says so too with `*`; else as the list says.
    Open,
    /// Nobody.
    Disabled,
}

impl DmPolicy {
    /// Reads the setting `dmPolicy`.
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

/// Who may write to us in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupPolicy {
    /// Who is listed, in groups that are listed.
    #[default]
    Allowlist,
    /// Everybody, in groups that are listed; in all groups if none is.
    Open,
    /// Nobody.
    Disabled,
}

impl GroupPolicy {
    /// Reads the setting `groupPolicy`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "allowlist" => Some(Self::Allowlist),
            "open" => Some(Self::Open),
            "disabled" => Some(Self::Disabled),
            _ => None,
        }
    }
}

/// Which messages of a group we answer, as set with `/activation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Those that speak to us.
    Mention,
    /// All.
    Always,
}

/// Senders of one account, as a list of the config names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    has_everyone: bool,
    senders: Vec<Identity>,
}

impl AllowList {
    /// The senders whom an account's own list means. Entries of other channels and accounts mean nobody.
    pub fn of<'a>(at: &ChannelAccount, entries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for pattern in entries.into_iter().map(SenderPattern::parse) {
            list.has_everyone |= pattern == SenderPattern::Anyone;
            list.senders.extend(pattern.in_own_list(at));
        }
        list
    }

    /// Whether it has `*`.
    pub fn has_everyone(&self) -> bool {
        self.has_everyone
    }

    /// The senders that it names.
    pub fn senders(&self) -> &[Identity] {
        &self.senders
    }

    /// Whether it covers a sender, by `*` or by name.
    fn covers(&self, sender: &Identity) -> bool {
        self.has_everyone || self.senders.contains(sender)
    }
}

/// The rules of an account.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Who may write to us alone.
    pub dm: DmPolicy,
    /// The senders that may.
    pub allow_from: AllowList,
    /// Who may write to us in groups.
    pub group: GroupPolicy,
    /// The senders that may write in groups; none means those of `allow_from`.
    pub group_allow_from: Option<AllowList>,
    /// Groups that are listed, by id; `*` for all others.
    pub groups: BTreeMap<String, GroupRules>,
    /// What people write when they mean us.
    pub patterns: Patterns,
}

/// The rules of a group or of a topic. What is not set is as one level above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupRules {
    /// Whether we listen there at all.
    pub is_enabled: Option<bool>,
    /// Whether a message must speak to us.
    pub requires_mention: Option<bool>,
    /// The senders that may write there.
    pub allow_from: Option<AllowList>,
    /// Topics, by id.
    pub topics: BTreeMap<String, Self>,
}

/// A message at the door.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// What was said, and where.
    pub incoming: &'a Incoming,
    /// Who said it.
    pub sender: &'a Identity,
    /// The senders that were approved by pairing.
    pub paired: &'a [Identity],
    /// What the session of the group says.
    pub activation: Option<Activation>,
    /// Whether it is a command that the house knows.
    pub is_control: bool,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to an agent.
    Admit {
        /// Whether it speaks to us.
        was_mentioned: bool,
        /// Whether its sender may give commands.
        may_command: bool,
    },
    /// Its sender is told a code once; the message itself is not read.
    Pair,
    /// It is not for us, but may explain a later one.
    Remember,
    /// It is as if it had not come.
    Drop(Reason),
}

/// Why a message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A program sent it.
    Bot,
    /// Nobody may write there.
    Disabled,
    /// The group is not listed.
    Group,
    /// The sender is not listed.
    Sender,
    /// The sender may not give commands.
    Command,
}

/// What becomes of a message.
pub fn judge(rules: &Rules, caller: Caller<'_>) -> Verdict {
    if caller.incoming.sender.is_bot {
        return Verdict::Drop(Reason::Bot);
    }
    match caller.incoming.peer.kind {
        PeerKind::Direct if caller.incoming.sender.is_chat => Verdict::Drop(Reason::Sender),
        PeerKind::Direct => direct(rules, caller),
        PeerKind::Group | PeerKind::Channel => group(rules, caller),
    }
}

fn direct(rules: &Rules, caller: Caller<'_>) -> Verdict {
    let is_known = rules.allow_from.covers(caller.sender) || caller.paired.contains(caller.sender);
    match rules.dm {
        DmPolicy::Disabled => Verdict::Drop(Reason::Disabled),
        DmPolicy::Pairing | DmPolicy::Allowlist | DmPolicy::Open if is_known => {
            Verdict::Admit { was_mentioned: true, may_command: true }
        }
        DmPolicy::Pairing => Verdict::Pair,
        DmPolicy::Allowlist | DmPolicy::Open => Verdict::Drop(Reason::Sender),
    }
}

fn group(rules: &Rules, caller: Caller<'_>) -> Verdict {
    let incoming = caller.incoming;
    let levels = match levels(rules, incoming) {
        Ok(levels) => levels,
        Err(reason) => return Verdict::Drop(reason),
    };
    let sender = caller.sender;
    let own_list = levels.iter().find_map(|level| level.allow_from.as_ref());
    let list = own_list.or(rules.group_allow_from.as_ref()).unwrap_or(&rules.allow_from);
    let is_open = rules.group == GroupPolicy::Open && own_list.is_none();
    if !is_open && !list.covers(sender) {
        return Verdict::Drop(Reason::Sender);
    }
    // Everybody may talk in an open group; who may give orders is another question.
    let may_command = list.covers(sender) || rules.allow_from.covers(sender) || caller.paired.contains(sender);
    if caller.is_control && !may_command {
        return Verdict::Drop(Reason::Command);
    }
    let was_mentioned = speaks_to_us(rules, incoming);
    let requires_mention = match caller.activation {
        Some(Activation::Always) => false,
        Some(Activation::Mention) => true,
        None => levels.iter().find_map(|level| level.requires_mention).unwrap_or(true),
    };
    if requires_mention && !was_mentioned && !caller.is_control {
        return Verdict::Remember;
    }
    Verdict::Admit { was_mentioned, may_command }
}

/// The rules that hold for a message of a group, the nearest first.
fn levels<'a>(rules: &'a Rules, incoming: &Incoming) -> Result<Vec<&'a GroupRules>, Reason> {
    let (named, rest) = (rules.groups.get(&incoming.peer.id), rules.groups.get("*"));
    let is_listed = named.is_some() || rest.is_some();
    let needs_listing = match rules.group {
        GroupPolicy::Disabled => return Err(Reason::Disabled),
        GroupPolicy::Allowlist => true,
        GroupPolicy::Open => !rules.groups.is_empty(),
    };
    if needs_listing && !is_listed {
        return Err(Reason::Group);
    }
    let topic = |level: &'a GroupRules| {
        let thread = incoming.thread.as_deref()?;
        level.topics.get(thread).or_else(|| level.topics.get("*"))
    };
    let levels: Vec<&GroupRules> =
        [named.and_then(topic), named, rest.and_then(topic), rest].into_iter().flatten().collect();
    // A group that is named is on unless its own entry says otherwise: `"*": {enabled: false}` is about the others.
    let own = [named.and_then(topic), named].into_iter().flatten();
    let others = [rest.and_then(topic), rest].into_iter().flatten().filter(|_| named.is_none());
    match own.chain(others).find_map(|level| level.is_enabled) {
        Some(false) => Err(Reason::Disabled),
        Some(true) | None => Ok(levels),
    }
}

/// Whether a message speaks to us. Who mentions only others does not mean us, whatever else the words say.
fn speaks_to_us(rules: &Rules, incoming: &Incoming) -> bool {
    incoming.was_mentioned || (!incoming.mentions_others && rules.patterns.find_in(&incoming.text))
}

#[cfg(test)]
mod tests;
