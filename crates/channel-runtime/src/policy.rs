//! Builds the access policy of an account from the config: who has access, who is the owner, and where messages are
//! routed.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use homard_channels::{
    Incoming,
    access::{AccessRules, AllowList, GroupRules},
    history,
    mention::MentionPatterns,
};
use homard_command::OWNER;
use homard_policy::routing::RoutingTable;
use homard_proto::{AgentId, ChannelAccount, IdIssuer, Identity, SenderPattern};
use homard_settings::{
    Config,
    agent_directories::workspace,
    channel_kinds::sender_entry,
    channels::{Account, Group, Guild, GuildChannel, Id, Reactions, StreamingMode, Topic},
    messages::QueueStatus,
    paths::Paths,
    routes::routes,
    sandbox_policy,
    typing::Typing,
};
use homard_tools::FileAccess;
use jiff::tz::TimeZone;

/// Default maximum file size in megabytes.
const DEFAULT_MEDIA_MB: f64 = 5.0;
/// Upper bound of the file size in megabytes: more than any platform delivers.
const MAX_MEDIA_MB: f64 = 100.0;

/// The access policy of an account. Rebuilt when the config changes.
#[derive(Debug, Clone)]
pub(super) struct ChannelPolicy {
    pub account: ChannelAccount,
    /// Access rules for senders and groups.
    pub rules: AccessRules,
    /// Routing to agents and sessions.
    pub routes: RoutingTable,
    /// The owners on this account, if the config names owners anywhere.
    owners: Option<Vec<Identity>>,
    /// Silence after which consecutive messages of a sender are merged.
    pub debounce: Duration,
    /// Maximum group messages not addressed to the agent that are kept as context.
    pub history: usize,
    /// When the typing indicator is shown.
    pub(super) typing: Typing,
    /// How senders are informed that their messages are queued.
    pub(super) queue_status: QueueStatus,
    /// How replies are streamed, if they are.
    pub streaming: Option<StreamingMode>,
    /// Which reactions are recorded.
    pub reactions: Reactions,
    /// Maximum file size in bytes.
    pub(super) max_media_bytes: usize,
    /// Time zone of message timestamps.
    pub time_zone: TimeZone,
    /// Workspace of each agent.
    pub workspaces: BTreeMap<AgentId, PathBuf>,
    /// Which files may be attached to messages.
    pub files: FileAccess,
}

impl ChannelPolicy {
    /// Builds the policy of an account. Also returns warnings.
    pub(crate) fn of(config: &Config, paths: &Paths, at: ChannelAccount, account: &Account) -> (Self, Vec<String>) {
        let list = |ids: &Option<Vec<Id>>| allow_list(&at, ids);
        let (patterns, warnings) = patterns(config);
        let groups = account.groups.iter().flatten();
        let rules = AccessRules {
            dm: account.direct_policy(),
            allow_from: list(&account.direct_senders().cloned()).unwrap_or_default(),
            group: account.group_policy.map(|word| word.0).unwrap_or_default(),
            group_allow_from: list(&account.group_allow_from),
            groups: groups.map(|(id, group)| (id.trim().to_owned(), group_rules(&at, group))).collect(),
            servers: servers(&at, account),
            mention_patterns: patterns,
        };
        let named = &config.commands.owner_allow_from;
        let owners = || named.iter().filter_map(|id| SenderPattern::parse(&id.0).in_global_list(&at)).collect();
        let megabytes = account.media_max_mb.filter(|mb| mb.is_finite() && *mb >= 0.0).unwrap_or(DEFAULT_MEDIA_MB);
        let zone = config.agents.defaults.user_timezone.as_deref().and_then(|name| TimeZone::get(name.trim()).ok());
        let members = config.agents.members();
        let policy = Self {
            rules,
            routes: routes(config),
            owners: (!named.is_empty()).then(owners),
            debounce: config.messages.inbound.debounce(at.channel()),
            history: account.history_limit.unwrap_or(history::DEFAULT_LIMIT),
            typing: Typing::of(&config.agents.defaults, &config.session),
            queue_status: config.messages.queue_status(),
            streaming: account.streaming_mode(),
            reactions: account.reaction_notifications.map_or(Reactions::Own, |word| word.0),
            max_media_bytes: (megabytes.min(MAX_MEDIA_MB) * 1_000_000.0) as usize,
            time_zone: zone.unwrap_or_else(TimeZone::system),
            workspaces: members.iter().map(|agent| (agent.id.clone(), workspace(config, paths, agent))).collect(),
            account: at,
            files: FileAccess::new(&sandbox_policy(config, paths)),
        };
        (policy, warnings)
    }

    /// Returns the sender of a message.
    pub(crate) fn sender(&self, incoming: &Incoming) -> Identity {
        self.account.sender(&incoming.sender.id)
    }

    /// Returns true if the owner sent the message. `paired` are the approved senders.
    pub(crate) fn is_owner(&self, incoming: &Incoming, paired: &[Identity]) -> bool {
        let sender = self.sender(incoming);
        let is_named = match &self.owners {
            Some(owners) => owners.contains(&sender),
            None => self.sole_sender(paired) == Some(&sender),
        };
        is_named && !incoming.sender.is_chat
    }

    /// Returns the default recipient: the owner, if known.
    pub(super) fn default_recipient(&self, paired: &[Identity]) -> Option<String> {
        let owner = match &self.owners {
            Some(owners) => owners.first(),
            None => self.sole_sender(paired),
        };
        owner.map(|owner| owner.id().to_owned())
    }

    /// Returns true if the owner has named this chat: as an owner, as an allowed sender, or as a group; or has approved
    /// it by pairing. Access by the wildcard `*` does not count.
    pub(super) fn is_known_chat(&self, id: &str, paired: &[Identity]) -> bool {
        let peer = self.account.sender(id);
        let lists = [Some(&self.rules.allow_from), self.rules.group_allow_from.as_ref()];
        let mut named = lists.into_iter().flatten().flat_map(AllowList::senders).chain(self.owners.iter().flatten());
        named.any(|sender| *sender == peer)
            || paired.contains(&peer)
            || (id != "*" && self.rules.groups.contains_key(id))
    }

    /// Returns the only person who has access. With two it is unknown which of them is the owner; and if the peer
    /// chooses the ids, they prove nothing.
    fn sole_sender<'a>(&'a self, paired: &'a [Identity]) -> Option<&'a Identity> {
        let mut senders = self.rules.allow_from.senders().iter().chain(paired);
        let first = senders.next()?;
        let is_known = self.account.issuer() == IdIssuer::Platform && !self.rules.allow_from.has_wildcard();
        (is_known && senders.all(|sender| sender == first)).then_some(first)
    }
}

/// Returns the hub's principal for a sender.
pub(crate) fn principal(sender: &Identity, is_owner: bool) -> String {
    if is_owner { OWNER.to_owned() } else { format!("channel:{sender}") }
}

/// Returns the patterns that count as a mention of the agent.
fn patterns(config: &Config) -> (MentionPatterns, Vec<String>) {
    if let Some(configured) = &config.messages.group_chat.mention_patterns {
        return MentionPatterns::new(configured.iter().map(String::as_str));
    }
    let agent = config.agents.member(None);
    let identity = agent.as_ref().map(|agent| &agent.config.identity);
    let name = identity.and_then(|identity| identity.name.as_deref());
    (MentionPatterns::of_identity(name, identity.and_then(|identity| identity.emoji.as_deref())), Vec::new())
}

fn allow_list(at: &ChannelAccount, ids: &Option<Vec<Id>>) -> Option<AllowList> {
    ids.as_ref().map(|ids| AllowList::of(at, ids.iter().map(|id| sender_entry(at.channel(), &id.0))))
}

/// Returns the rules of the servers of an account.
fn servers(at: &ChannelAccount, account: &Account) -> BTreeMap<String, GroupRules> {
    let rules = |guild: &Guild| GroupRules {
        requires_mention: guild.require_mention,
        ignores_other_mentions: guild.ignore_other_mentions,
        allow_from: members(at, &guild.users, &guild.roles),
        topics: guild.channels.iter().map(|(id, channel)| (id.trim().to_owned(), channel_rules(at, channel))).collect(),
        ..GroupRules::default()
    };
    account.guilds.iter().flatten().map(|(id, guild)| (id.trim().to_owned(), rules(guild))).collect()
}

fn channel_rules(at: &ChannelAccount, channel: &GuildChannel) -> GroupRules {
    GroupRules {
        is_enabled: channel.enabled.or(channel.allow),
        requires_mention: channel.require_mention,
        ignores_other_mentions: channel.ignore_other_mentions,
        allow_from: members(at, &channel.users, &channel.roles),
        topics: BTreeMap::new(),
    }
}

/// Returns the users and roles that may write; `None` for all members.
fn members(at: &ChannelAccount, users: &Option<Vec<Id>>, roles: &Option<Vec<Id>>) -> Option<AllowList> {
    // An empty list is one that is not filled in yet, as in OpenClaw.
    let is_listed = |ids: &Option<Vec<Id>>| ids.as_ref().is_some_and(|ids| !ids.is_empty());
    let role_ids = || roles.iter().flatten().map(|role| role.0.trim().to_owned());
    (is_listed(users) || is_listed(roles)).then(|| allow_list(at, users).unwrap_or_default().with_roles(role_ids()))
}

fn group_rules(at: &ChannelAccount, group: &Group) -> GroupRules {
    let topic = |topic: &Topic| GroupRules {
        is_enabled: topic.enabled,
        requires_mention: topic.require_mention,
        allow_from: allow_list(at, &topic.allow_from),
        ..GroupRules::default()
    };
    GroupRules {
        is_enabled: group.enabled,
        requires_mention: group.require_mention,
        allow_from: allow_list(at, &group.allow_from),
        topics: group.topics.iter().map(|(id, rules)| (id.trim().to_owned(), topic(rules))).collect(),
        ..GroupRules::default()
    }
}

#[cfg(test)]
mod tests {
    use homard_channels::{MessageSender, access::GroupPolicy};

    use super::*;
    use homard_settings::channel_kinds::issuer;

    fn policy_of(text: &str, channel: &str, account: &str) -> ChannelPolicy {
        let config = Config::parse(text).unwrap();
        let state = PathBuf::from("/nowhere");
        let paths = Paths { config: state.join("homard.json"), state };
        let mut accounts = config.channels[channel].resolved_accounts();
        let at = ChannelAccount::new(channel, account, issuer(channel), accounts.len() == 1);
        ChannelPolicy::of(&config, &paths, at, &accounts.remove(account).unwrap()).0
    }

    fn policy(text: &str, channel: &str) -> ChannelPolicy {
        policy_of(text, channel, "default")
    }

    /// Returns those ids that count as the owner.
    fn owners_of(policy: &ChannelPolicy, ids: &[&'static str], paired: &[&str]) -> Vec<&'static str> {
        let paired: Vec<_> = paired.iter().map(|id| policy.account.sender(id)).collect();
        ids.iter().copied().filter(|id| policy.is_owner(&from(id), &paired)).collect()
    }

    fn from(id: &str) -> Incoming {
        let sender = MessageSender { id: id.to_owned(), ..MessageSender::default() };
        Incoming { sender, ..Incoming::default() }
    }

    #[test]
    fn a_chat_is_never_the_owner() {
        for text in [
            "{channels: {telegram: {allowFrom: [7]}}}",
            "{commands: {ownerAllowFrom: ['telegram:7']}, channels: {telegram: {}}}",
        ] {
            let policy = policy(text, "telegram");
            let mut incoming = from("7");
            assert!(policy.is_owner(&incoming, &[]));
            incoming.sender.is_chat = true;
            assert!(!policy.is_owner(&incoming, &[]));
        }
    }

    #[test]
    fn the_only_allowed_sender_is_the_owner() {
        let owners = |text: &str, paired: &[&str]| {
            let policy = policy(&format!("{{channels: {{telegram: {text}}}}}"), "telegram");
            owners_of(&policy, &["7", "8", "*", ""], paired)
        };
        assert_eq!(owners("{}", &["7"]), ["7"]);
        assert_eq!(owners("{allowFrom: [7]}", &["7"]), ["7"]);
        for (text, paired) in [
            ("{}", &[][..]),
            ("{allowFrom: [7, 8]}", &[]),
            ("{allowFrom: [7]}", &["8"]),
            ("{allowFrom: ['*']}", &["7"]),
            ("{}", &["7", "8"]),
        ] {
            assert_eq!(owners(text, paired), Vec::<&str>::new(), "{text} {paired:?}");
        }
    }

    #[test]
    fn a_configured_owner_is_the_owner_on_that_channel_only() {
        let text = "{commands: {ownerAllowFrom: ['telegram:8', '*', 'webhook:ann', 9]}, channels: {telegram: {allowFrom: [7]}, webhook: {secret: 's'}}}";
        let (telegram, webhook) = (policy(text, "telegram"), policy(text, "webhook"));
        let ids = ["7", "8", "9", "*", "ann", "webhook:ann", "telegram:8", "tg:8", "telegram/default:8", ""];
        assert_eq!(owners_of(&telegram, &ids, &["7"]), ["8", "9"]);
        assert_eq!(owners_of(&webhook, &ids, &["7"]), ["ann"]);
        assert_eq!(
            (telegram.default_recipient(&[]), webhook.default_recipient(&[])),
            (Some("8".to_owned()), Some("ann".to_owned()))
        );
    }

    #[test]
    fn an_owner_on_one_account_of_a_program_is_unknown_on_the_others() {
        let text = "{commands: {ownerAllowFrom: ['webhook:ann', 'webhook/bank:bob']},
            channels: {webhook: {secret: 's', accounts: {bank: {}, shop: {}}}}}";
        let owners = |account| owners_of(&policy_of(text, "webhook", account), &["ann", "bob"], &[]);
        assert_eq!([owners("default"), owners("bank"), owners("shop")], [vec!["ann"], vec!["bob"], vec![]]);
        let text =
            "{commands: {ownerAllowFrom: ['webhook:ann']}, channels: {webhook: {accounts: {door: {secret: 's'}}}}}";
        assert_eq!(owners_of(&policy_of(text, "webhook", "door"), &["ann"], &[]), ["ann"], "the only account");
    }

    #[test]
    fn a_program_is_the_owner_only_if_it_is_named() {
        let webhook = policy("{channels: {webhook: {secret: 's', allowFrom: ['ann']}}}", "webhook");
        assert_eq!(owners_of(&webhook, &["ann"], &[]), Vec::<&str>::new());
        assert_eq!(webhook.default_recipient(&[]), None);
    }

    #[test]
    fn groups_history_and_reactions_are_those_of_the_config() {
        let text = "{channels: {telegram: {groupPolicy: 'disabled', historyLimit: 3, reactionNotifications: 'all'}}}";
        let configured = policy(text, "telegram");
        let defaults = policy("{channels: {telegram: {}}}", "telegram");
        assert_eq!((configured.history, configured.reactions), (3, Reactions::All));
        assert_eq!((defaults.history, defaults.reactions), (history::DEFAULT_LIMIT, Reactions::Own));
        assert_eq!(configured.rules.group, GroupPolicy::Disabled);
        assert_ne!(defaults.rules.group, GroupPolicy::Disabled);
    }
}
