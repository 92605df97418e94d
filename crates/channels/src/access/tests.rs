//! Tests of the access rules, and their invariants.

use homard_proto::IdIssuer;
use proptest::prelude::*;

use super::*;
use crate::incoming::{MessageSender, Peer};

fn default_account() -> ChannelAccount {
    ChannelAccount::new("webhook", "default", IdIssuer::Peer, true)
}

fn list(entries: &[&str]) -> AllowList {
    AllowList::of(&default_account(), entries.iter().copied())
}

fn approved(ids: &[&str]) -> Vec<Identity> {
    ids.iter().map(|id| default_account().sender(id)).collect()
}

/// Decision about a message on the default account.
fn decision_on(rules: &AccessRules, incoming: &Incoming, paired: &[Identity]) -> AccessDecision {
    let sender = default_account().sender(&incoming.sender.id);
    decide(rules, AccessRequest { incoming, sender: &sender, paired, activation: None, is_command: false })
}

fn incoming_from(kind: PeerKind, sender: &str) -> Incoming {
    Incoming {
        peer: Peer { kind, id: "-100".to_owned(), title: None },
        sender: MessageSender { id: sender.to_owned(), ..MessageSender::default() },
        text: "hello".to_owned(),
        ..Incoming::default()
    }
}

const ADMIT: AccessDecision = AccessDecision::Admit { was_mentioned: true, may_command: true };

#[test]
fn dm_policies_decide_about_unknown_listed_and_approved_senders() {
    let decisions = |dm, allow: &[&str]| {
        let rules = AccessRules { dm, allow_from: list(allow), ..AccessRules::default() };
        let paired = approved(&["9", "*"]);
        ["7", "8", "9"].map(|id| decision_on(&rules, &incoming_from(PeerKind::Direct, id), &paired))
    };
    let (no, pair) = (AccessDecision::Drop(DropReason::Sender), AccessDecision::Pair);
    assert_eq!(decisions(DmPolicy::Pairing, &[" 7 "]), [ADMIT, pair, ADMIT]);
    assert_eq!(decisions(DmPolicy::Allowlist, &["7"]), [ADMIT, no, ADMIT]);
    assert_eq!(decisions(DmPolicy::Open, &["7"]), [ADMIT, no, ADMIT], "open needs a star in the list");
    assert_eq!(decisions(DmPolicy::Open, &["*"]), [ADMIT; 3]);
    assert_eq!(decisions(DmPolicy::Disabled, &["*"]), [AccessDecision::Drop(DropReason::Disabled); 3]);
}

#[test]
fn names_and_bots_are_not_admitted() {
    let rules = AccessRules { allow_from: list(&["alice", "7"]), dm: DmPolicy::Allowlist, ..AccessRules::default() };
    let mut incoming = incoming_from(PeerKind::Direct, "8");
    incoming.sender.name = "alice".to_owned();
    incoming.sender.username = Some("alice".to_owned());
    assert_eq!(decision_on(&rules, &incoming, &[]), AccessDecision::Drop(DropReason::Sender));
    let mut bot = incoming_from(PeerKind::Direct, "7");
    bot.sender.is_bot = true;
    assert_eq!(decision_on(&rules, &bot, &[]), AccessDecision::Drop(DropReason::Bot));
    let rules = AccessRules { allow_from: list(&["", " ", "webhook:"]), ..rules };
    assert_eq!(
        decision_on(&rules, &incoming_from(PeerKind::Direct, ""), &[]),
        AccessDecision::Drop(DropReason::Sender)
    );
}

#[test]
fn a_chat_as_sender_is_never_admitted_to_a_direct_message() {
    for (dm, allow) in [(DmPolicy::Pairing, "7"), (DmPolicy::Open, "*"), (DmPolicy::Allowlist, "7")] {
        let rules = AccessRules { dm, allow_from: list(&[allow]), ..AccessRules::default() };
        let mut incoming = incoming_from(PeerKind::Direct, "7");
        incoming.sender.is_chat = true;
        assert_eq!(decision_on(&rules, &incoming, &approved(&["7"])), AccessDecision::Drop(DropReason::Sender));
    }
}

#[test]
fn entries_and_approvals_of_another_channel_or_account_admit_no_sender() {
    let entries = ["telegram:1", "tg:1", "telegram/default:1", "webhook/shop:1", "Telegram:1"];
    let rules = AccessRules { allow_from: list(&entries), dm: DmPolicy::Allowlist, ..AccessRules::default() };
    let shop_account = ChannelAccount::new("webhook", "shop", IdIssuer::Peer, false);
    let telegram = ChannelAccount::new("telegram", "default", IdIssuer::Platform, true);
    let approvals_elsewhere = [shop_account.sender("1"), telegram.sender("1")];
    for id in entries.into_iter().chain(["1", "shop:1", "webhook:1"]) {
        let incoming = incoming_from(PeerKind::Direct, id);
        assert_eq!(
            decision_on(&rules, &incoming, &approvals_elsewhere),
            AccessDecision::Drop(DropReason::Sender),
            "{id}"
        );
    }
}

#[test]
fn a_group_and_its_sender_must_be_listed() {
    let mut incoming = incoming_from(PeerKind::Group, "7");
    incoming.was_mentioned = true;
    let decision = |group, groups: &[&str], senders: Option<&[&str]>, sender: &str| {
        incoming.sender.id = sender.to_owned();
        let groups = groups.iter().map(|id| ((*id).to_owned(), GroupRules::default())).collect();
        let group_allow_from = senders.map(list);
        let allow_from = list(&["7"]);
        decision_on(
            &AccessRules { group, groups, group_allow_from, allow_from, ..AccessRules::default() },
            &incoming,
            &[],
        )
    };
    let mut decision = decision;
    assert_eq!(decision(GroupPolicy::Allowlist, &["-100"], None, "7"), ADMIT, "falls back to allowFrom");
    assert_eq!(decision(GroupPolicy::Allowlist, &["*"], None, "8"), AccessDecision::Drop(DropReason::Sender));
    assert_eq!(decision(GroupPolicy::Allowlist, &["*"], Some(&["8"]), "8"), ADMIT);
    assert_eq!(decision(GroupPolicy::Allowlist, &["*"], Some(&["8"]), "7"), AccessDecision::Drop(DropReason::Sender));
    assert_eq!(decision(GroupPolicy::Allowlist, &[], None, "7"), AccessDecision::Drop(DropReason::Group));
    assert_eq!(decision(GroupPolicy::Open, &["-200"], None, "7"), AccessDecision::Drop(DropReason::Group));
    let admit_without_commands = AccessDecision::Admit { was_mentioned: true, may_command: false };
    assert_eq!(decision(GroupPolicy::Open, &[], None, "8"), admit_without_commands);
    assert_eq!(decision(GroupPolicy::Disabled, &["*"], None, "7"), AccessDecision::Drop(DropReason::Disabled));
}

#[test]
fn an_approval_for_direct_messages_does_not_apply_to_groups() {
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, ..AccessRules::default() };
    let decision = decision_on(&rules, &incoming_from(PeerKind::Group, "9"), &approved(&["9"]));
    assert_eq!(decision, AccessDecision::Drop(DropReason::Sender));
}

#[test]
fn the_most_specific_rule_of_topic_and_group_applies() {
    let group_rules =
        |is_enabled, requires_mention| GroupRules { is_enabled, requires_mention, ..GroupRules::default() };
    let mut listed_group = group_rules(None, Some(false));
    listed_group.topics =
        [("5".to_owned(), group_rules(None, Some(true))), ("6".to_owned(), group_rules(Some(false), None))].into();
    let groups = [("-100".to_owned(), listed_group), ("*".to_owned(), group_rules(Some(true), Some(true)))].into();
    let rules = AccessRules { groups, allow_from: list(&["7"]), ..AccessRules::default() };
    let decision = |group: &str, thread: Option<&str>| {
        let mut incoming = incoming_from(PeerKind::Group, "7");
        incoming.peer.id = group.to_owned();
        incoming.thread = thread.map(str::to_owned);
        decision_on(&rules, &incoming, &[])
    };
    let admit = AccessDecision::Admit { was_mentioned: false, may_command: true };
    assert_eq!(decision("-100", None), admit);
    assert_eq!(decision("-100", Some("4")), admit);
    assert_eq!(decision("-100", Some("5")), AccessDecision::KeepAsContext);
    assert_eq!(decision("-100", Some("6")), AccessDecision::Drop(DropReason::Disabled));
    assert_eq!(decision("-200", None), AccessDecision::KeepAsContext);
}

#[test]
fn the_wildcard_can_disable_all_groups_except_listed_ones() {
    let rule = |is_enabled| GroupRules { is_enabled, requires_mention: Some(false), ..GroupRules::default() };
    let groups = [("-100".to_owned(), rule(None)), ("*".to_owned(), rule(Some(false)))].into();
    let rules = AccessRules { groups, allow_from: list(&["7"]), ..AccessRules::default() };
    let decision = |group: &str| {
        let mut incoming = incoming_from(PeerKind::Group, "7");
        incoming.peer.id = group.to_owned();
        decision_on(&rules, &incoming, &[])
    };
    assert_eq!(decision("-100"), AccessDecision::Admit { was_mentioned: false, may_command: true });
    assert_eq!(decision("-200"), AccessDecision::Drop(DropReason::Disabled));
}

#[test]
fn a_message_that_mentions_only_others_is_not_addressed_to_the_agent() {
    let (patterns, _) = MentionPatterns::new(["claw"]);
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, allow_from: list(&["*"]), mention_patterns: patterns, ..AccessRules::default() };
    let decision = |text: &str, to_us: bool, to_others: bool| {
        let mut incoming = incoming_from(PeerKind::Group, "7");
        incoming.text = text.to_owned();
        incoming.was_mentioned = to_us;
        incoming.mentions_others = to_others;
        decision_on(&rules, &incoming, &[])
    };
    assert_eq!(decision("hello", false, false), AccessDecision::KeepAsContext);
    assert_eq!(decision("Claw?", false, false), ADMIT);
    assert_eq!(decision("@bob tell claw", false, true), AccessDecision::KeepAsContext);
    assert_eq!(decision("@bob and @us", true, true), ADMIT);
}

#[test]
fn activation_wins_over_the_config_and_commands_over_both() {
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, group: GroupPolicy::Open, allow_from: list(&["7"]), ..AccessRules::default() };
    let decision = |sender, activation, is_command| {
        let incoming = incoming_from(PeerKind::Group, sender);
        let sender = default_account().sender(sender);
        decide(&rules, AccessRequest { incoming: &incoming, sender: &sender, paired: &[], activation, is_command })
    };
    let admit = |may_command| AccessDecision::Admit { was_mentioned: false, may_command };
    assert_eq!(decision("7", None, false), AccessDecision::KeepAsContext);
    assert_eq!(decision("7", Some(Activation::Always), false), admit(true));
    assert_eq!(decision("8", Some(Activation::Always), false), admit(false));
    assert_eq!(decision("7", Some(Activation::Mention), false), AccessDecision::KeepAsContext);
    assert_eq!(decision("7", Some(Activation::Mention), true), admit(true));
    assert_eq!(decision("8", None, true), AccessDecision::Drop(DropReason::Command));
}

#[test]
fn policies_are_parsed_in_any_case() {
    assert_eq!(["pairing", "Allowlist", " open", "disabled", "all"].map(DmPolicy::parse), {
        use DmPolicy::*;
        [Some(Pairing), Some(Allowlist), Some(Open), Some(Disabled), None]
    });
    assert_eq!(["allowlist", "OPEN", "disabled", ""].map(GroupPolicy::parse), {
        use GroupPolicy::*;
        [Some(Allowlist), Some(Open), Some(Disabled), None]
    });
}

proptest! {
    /// Without an open policy, an unlisted sender is never admitted, whatever the message, the activation and the other
    /// rules are. `DmPolicy::Open` is not open here, because the allowlist does not contain `*`.
    #[test]
    fn an_unlisted_sender_is_admitted_only_by_an_open_policy(
        dm in prop::sample::select(vec![DmPolicy::Pairing, DmPolicy::Allowlist, DmPolicy::Open, DmPolicy::Disabled]),
        group in prop::sample::select(vec![GroupPolicy::Allowlist, GroupPolicy::Disabled]),
        listed in prop::collection::vec("[1-6]", 0..4),
        kind in prop::sample::select(vec![PeerKind::Direct, PeerKind::Group, PeerKind::Channel]),
        is_control: bool,
        always: bool,
        was_mentioned: bool,
    ) {
        let groups = [("*".to_owned(), GroupRules::default())].into();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let rules = AccessRules { dm, group, groups, allow_from: list(&listed), ..AccessRules::default() };
        let mut incoming = incoming_from(kind, "stranger");
        incoming.was_mentioned = was_mentioned;
        let activation = always.then_some(Activation::Always);
        let (sender, paired) = (default_account().sender("stranger"), approved(&listed));
        let request =
            AccessRequest { incoming: &incoming, sender: &sender, paired: &paired, activation, is_command: is_control };
        let decision = decide(&rules, request);
        prop_assert!(matches!(decision, AccessDecision::Drop(_) | AccessDecision::Pair), "{:?}", decision);
    }
}

/// Decision about a message of a member with the role `mod` in the chat `-100` of a server.
fn decision_on_server(rules: &AccessRules, change: impl FnOnce(&mut Incoming)) -> AccessDecision {
    let mut incoming = incoming_from(PeerKind::Group, "7");
    (incoming.server, incoming.sender_roles) = (Some("s".to_owned()), vec!["mod".to_owned()]);
    incoming.was_mentioned = true;
    change(&mut incoming);
    decision_on(rules, &incoming, &[])
}

#[test]
fn the_rules_of_a_server_admit_its_members() {
    let with = |group, server: GroupRules| AccessRules {
        group,
        servers: BTreeMap::from([("s".to_owned(), server)]),
        ..AccessRules::default()
    };
    let admitted = AccessDecision::Admit { was_mentioned: true, may_command: false };
    let no = AccessDecision::Drop;
    let decide_with = |group, server: GroupRules| decision_on_server(&with(group, server), |_| {});
    let open = GroupRules::default();
    assert_eq!(decide_with(GroupPolicy::Allowlist, open.clone()), admitted, "without a list everyone is admitted");
    assert_eq!(decide_with(GroupPolicy::Disabled, open.clone()), no(DropReason::Disabled));
    let elsewhere =
        |group| decision_on_server(&with(group, open.clone()), |incoming| incoming.server = Some("t".to_owned()));
    assert_eq!([elsewhere(GroupPolicy::Allowlist), elsewhere(GroupPolicy::Open)], [no(DropReason::Group), admitted]);
    let listed = |list: AllowList| GroupRules { allow_from: Some(list), ..GroupRules::default() };
    let may_command = AccessDecision::Admit { was_mentioned: true, may_command: true };
    for group in [GroupPolicy::Allowlist, GroupPolicy::Open] {
        assert_eq!(decide_with(group, listed(list(&["8"]))), no(DropReason::Sender));
        assert_eq!(decide_with(group, listed(list(&["7"]))), may_command);
        assert_eq!(decide_with(group, listed(list(&["8"]).with_roles(["mod".to_owned()]))), may_command);
    }
}

#[test]
fn a_chat_of_a_server_has_rules_of_its_own() {
    let chats = |entries: &[(&str, GroupRules)]| {
        let topics = entries.iter().map(|(id, rules)| ((*id).to_owned(), rules.clone())).collect();
        let server = GroupRules { topics, requires_mention: Some(false), ..GroupRules::default() };
        AccessRules { servers: BTreeMap::from([("s".to_owned(), server)]), ..AccessRules::default() }
    };
    let quiet = |incoming: &mut Incoming| incoming.was_mentioned = false;
    let admitted = AccessDecision::Admit { was_mentioned: false, may_command: false };
    let asks = GroupRules { requires_mention: Some(true), ..GroupRules::default() };
    let off = GroupRules { is_enabled: Some(false), ..GroupRules::default() };
    let polite = GroupRules { ignores_other_mentions: Some(true), ..GroupRules::default() };
    assert_eq!(decision_on_server(&chats(&[]), quiet), admitted);
    assert_eq!(decision_on_server(&chats(&[("-100", asks.clone())]), quiet), AccessDecision::KeepAsContext);
    assert_eq!(decision_on_server(&chats(&[("-200", asks)]), quiet), AccessDecision::Drop(DropReason::Group));
    assert_eq!(decision_on_server(&chats(&[("*", off)]), quiet), AccessDecision::Drop(DropReason::Disabled));
    let to_others = |incoming: &mut Incoming| (incoming.was_mentioned, incoming.mentions_others) = (false, true);
    assert_eq!(decision_on_server(&chats(&[("*", polite)]), to_others), AccessDecision::KeepAsContext);
    let rules = chats(&[("5", GroupRules::default())]);
    let in_thread = |incoming: &mut Incoming| incoming.thread = Some("5".to_owned());
    assert!(
        matches!(decision_on_server(&rules, in_thread), AccessDecision::Admit { .. }),
        "a thread can be listed itself"
    );
}
