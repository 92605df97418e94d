//! From the config to what decides about the messages of an account: who is let in, whose they are, where they go.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use homard_agent::{command::OWNER, routing::Routes};
use homard_channels::{
    access::{GroupRules, Rules},
    history,
    mention::Patterns,
};
use homard_proto::AgentId;
use homard_tools::FileAccess;
use jiff::tz::TimeZone;

use crate::{
    assemble::{office::workspace, routes::routes, tools::policy as sandbox_policy},
    config::{
        Config,
        channels::{Account, Group, Growth, Id, Reactions, Topic},
        typing::Typing,
    },
    paths::Paths,
};

/// How many megabytes a file has at most, where nobody says.
const MEDIA_MB: f64 = 5.0;
/// More than any platform hands over.
const MEDIA_MOST_MB: f64 = 100.0;

/// What decides about the messages of an account. Made anew when the config changes.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    /// Who is let in.
    pub(super) rules: Rules,
    /// Who answers, and in which session.
    pub(super) routes: Routes,
    /// The ids of the owner here, if the config says who that is anywhere.
    owners: Option<Vec<String>>,
    /// Whether the only person who is let in is the owner, if nobody says who is.
    knows_people: bool,
    /// How long somebody must be silent before what they wrote is one message.
    pub(super) debounce: Duration,
    /// How many messages of a group that were not for us are kept.
    pub(super) history: usize,
    /// When it is shown that an answer is being written.
    pub(super) typing: Typing,
    /// How an answer is shown while it is written, if it is.
    pub(super) growth: Option<Growth>,
    /// Which reactions are told.
    pub(super) reactions: Reactions,
    /// How many bytes a file may have.
    pub(super) media: usize,
    /// In whose time messages are dated.
    pub(super) zone: TimeZone,
    /// Where agents keep their files.
    pub(super) workspaces: BTreeMap<AgentId, PathBuf>,
    /// Which files may go out with messages.
    pub(super) files: FileAccess,
}

impl Policy {
    /// The policy of an account, and what is wrong with it.
    pub(super) fn of(config: &Config, paths: &Paths, (channel, account): (&str, &Account)) -> (Self, Vec<String>) {
        let ids = |ids: &Option<Vec<Id>>| ids.as_ref().map(|ids| ids.iter().map(|id| id.on(channel)).collect());
        let (patterns, wrong) = patterns(config);
        let groups = account.groups.iter().flatten();
        let rules = Rules {
            dm: account.dm_policy.map(|word| word.0).unwrap_or_default(),
            allow_from: ids(&account.allow_from).unwrap_or_default(),
            group: account.group_policy.map(|word| word.0).unwrap_or_default(),
            group_allow_from: ids(&account.group_allow_from),
            groups: groups.map(|(id, group)| (id.trim().to_owned(), group_rules(channel, group))).collect(),
            patterns,
        };
        let owners = &config.commands.owner_allow_from;
        let megabytes = account.media_max_mb.filter(|mb| mb.is_finite() && *mb >= 0.0).unwrap_or(MEDIA_MB);
        let zone = config.agents.defaults.user_timezone.as_deref().and_then(|name| TimeZone::get(name.trim()).ok());
        let members = config.agents.members();
        let policy = Self {
            rules,
            routes: routes(config),
            owners: (!owners.is_empty()).then(|| owners.iter().map(|id| id.on(channel)).collect()),
            // What a program calls its senders is the program's affair.
            knows_people: channel != "webhook",
            debounce: config.messages.inbound.debounce(channel),
            history: account.history_limit.unwrap_or(history::LIMIT),
            typing: Typing::of(&config.agents.defaults, &config.session),
            growth: account.growth(),
            reactions: account.reaction_notifications.map_or(Reactions::Own, |word| word.0),
            media: (megabytes.min(MEDIA_MOST_MB) * 1_000_000.0) as usize,
            zone: zone.unwrap_or_else(TimeZone::system),
            workspaces: members.iter().map(|agent| (agent.id.clone(), workspace(config, paths, agent))).collect(),
            files: FileAccess::new(&sandbox_policy(config, paths)),
        };
        (policy, wrong)
    }

    /// Whether somebody is the owner. `paired` are those who were approved.
    pub(super) fn is_owner(&self, sender: &str, paired: &[String]) -> bool {
        if let Some(owners) = &self.owners {
            return sender != "*" && owners.iter().any(|owner| owner == sender);
        }
        self.knows_people && self.only_person(paired) == Some(sender)
    }

    /// Who is written to when nobody is named: the owner, if it is known who that is.
    pub(super) fn usual_to(&self, paired: &[String]) -> Option<String> {
        let named =
            self.owners.as_ref().map(|owners| owners.iter().find(|id| !id.contains(':') && *id != "*").cloned());
        named.unwrap_or_else(|| self.only_person(paired).filter(|_| self.knows_people).map(str::to_owned))
    }

    /// The only person who is let in. Of two, nobody knows which of them is the owner.
    fn only_person<'a>(&'a self, paired: &'a [String]) -> Option<&'a str> {
        let mut people = self.rules.allow_from.iter().chain(paired).map(|id| id.trim());
        let first = people.next().filter(|id| *id != "*" && !id.is_empty())?;
        people.all(|id| id == first).then_some(first)
    }
}

/// By whom something was said, as the hub knows people.
pub(super) fn principal(channel: &str, sender: &str, is_owner: bool) -> String {
    if is_owner { OWNER.to_owned() } else { format!("channel:{channel}:{sender}") }
}

/// What people write when they mean the agent.
fn patterns(config: &Config) -> (Patterns, Vec<String>) {
    if let Some(said) = &config.messages.group_chat.mention_patterns {
        return Patterns::new(said.iter().map(String::as_str));
    }
    let agent = config.agents.member(None);
    let identity = agent.as_ref().map(|agent| &agent.said.identity);
    let name = identity.and_then(|identity| identity.name.as_deref());
    (Patterns::of_identity(name, identity.and_then(|identity| identity.emoji.as_deref())), Vec::new())
}

fn group_rules(channel: &str, group: &Group) -> GroupRules {
    let ids = |ids: &Option<Vec<Id>>| ids.as_ref().map(|ids| ids.iter().map(|id| id.on(channel)).collect());
    let topic = |topic: &Topic| GroupRules {
        is_enabled: topic.enabled,
        requires_mention: topic.require_mention,
        allow_from: ids(&topic.allow_from),
        topics: BTreeMap::new(),
    };
    GroupRules {
        is_enabled: group.enabled,
        requires_mention: group.require_mention,
        allow_from: ids(&group.allow_from),
        topics: group.topics.iter().map(|(id, said)| (id.trim().to_owned(), topic(said))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str, channel: &str) -> Policy {
        let config = Config::parse(text).unwrap();
        let state = PathBuf::from("/nowhere");
        let paths = Paths { config: state.join("homard.json"), state };
        let account = config.channels[channel].described().remove("default").unwrap();
        Policy::of(&config, &paths, (channel, &account)).0
    }

    fn owners(text: &str, paired: &[&str]) -> Vec<&'static str> {
        let policy = policy(&format!("{{channels: {{telegram: {text}}}}}"), "telegram");
        let paired: Vec<_> = paired.iter().map(|id| (*id).to_owned()).collect();
        ["7", "8", "*", ""].into_iter().filter(|id| policy.is_owner(id, &paired)).collect()
    }

    #[test]
    fn the_only_person_who_is_let_in_is_the_owner() {
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
    fn whoever_is_named_as_the_owner_is_it_and_nobody_else() {
        let text = "{commands: {ownerAllowFrom: ['telegram:8', '*', 'webhook:ann']}, channels: {telegram: {allowFrom: [7]}, webhook: {secret: 's'}}}";
        let (telegram, webhook) = (policy(text, "telegram"), policy(text, "webhook"));
        let of = |policy: &Policy| ["7", "8", "*", "ann", "webhook:ann"].map(|id| policy.is_owner(id, &[]));
        assert_eq!(of(&telegram), [false, true, false, false, true], "no id on Telegram looks like the last one");
        assert_eq!(of(&webhook), [false, false, false, true, false]);
        assert_eq!((telegram.usual_to(&[]), webhook.usual_to(&[])), (Some("8".to_owned()), Some("ann".to_owned())));
    }

    #[test]
    fn a_program_is_the_owner_only_if_it_is_named() {
        let webhook = policy("{channels: {webhook: {secret: 's', allowFrom: ['ann']}}}", "webhook");
        assert!(!webhook.is_owner("ann", &[]));
        assert_eq!(webhook.usual_to(&[]), None);
    }
}
