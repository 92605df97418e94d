//! Tests of the access rules, and their invariants.

use homard_proto::IdIssuer;
use proptest::prelude::*;

use super::*;
use crate::incoming::{MessageSender, Peer};

fn home() -> ChannelAccount {
    ChannelAccount::new("webhook", "default", IdIssuer::Peer, true)
}

fn list(entries: &[&str]) -> AllowList {
    AllowList::of(&home(), entries.iter().copied())
}

fn approved(ids: &[&str]) -> Vec<Identity> {
    ids.iter().map(|id| home().sender(id)).collect()
}

/// Decision about a message on the default account.
fn verdict_on(rules: &AccessRules, incoming: &Incoming, paired: &[Identity]) -> AccessDecision {
    let sender = home().sender(&incoming.sender.id);
    decide(rules, AccessRequest { incoming, sender: &sender, paired, activation: None, is_command: false })
}

fn said(kind: PeerKind, sender: &str) -> Incoming {
    Incoming {
        peer: Peer { kind, id: "-100".to_owned(), title: None },
        sender: MessageSender { id: sender.to_owned(), ..MessageSender::default() },
        text: "hello".to_owned(),
        ..Incoming::default()
    }
}

const IN: AccessDecision = AccessDecision::Admit { was_mentioned: true, may_command: true };

#[test]
fn a_dm_policy_decides_over_strangers_listed_and_approved() {
    let verdicts = |dm, allow: &[&str]| {
        let rules = AccessRules { dm, allow_from: list(allow), ..AccessRules::default() };
        let paired = approved(&["9", "*"]);
        ["7", "8", "9"].map(|id| verdict_on(&rules, &said(PeerKind::Direct, id), &paired))
    };
    let (no, pair) = (AccessDecision::Drop(DropReason::Sender), AccessDecision::Pair);
    assert_eq!(verdicts(DmPolicy::Pairing, &[" 7 "]), [IN, pair, IN]);
    assert_eq!(verdicts(DmPolicy::Allowlist, &["7"]), [IN, no, IN]);
    assert_eq!(verdicts(DmPolicy::Open, &["7"]), [IN, no, IN], "open needs a star in the list");
    assert_eq!(verdicts(DmPolicy::Open, &["*"]), [IN; 3]);
    assert_eq!(verdicts(DmPolicy::Disabled, &["*"]), [AccessDecision::Drop(DropReason::Disabled); 3]);
}

#[test]
fn a_name_or_a_bot_does_not_open_the_door() {
    let rules = AccessRules { allow_from: list(&["alice", "7"]), dm: DmPolicy::Allowlist, ..AccessRules::default() };
    let mut incoming = said(PeerKind::Direct, "8");
    incoming.sender.name = "alice".to_owned();
    incoming.sender.username = Some("alice".to_owned());
    assert_eq!(verdict_on(&rules, &incoming, &[]), AccessDecision::Drop(DropReason::Sender));
    let mut bot = said(PeerKind::Direct, "7");
    bot.sender.is_bot = true;
    assert_eq!(verdict_on(&rules, &bot, &[]), AccessDecision::Drop(DropReason::Bot));
    let rules = AccessRules { allow_from: list(&["", " ", "webhook:"]), ..rules };
    assert_eq!(verdict_on(&rules, &said(PeerKind::Direct, ""), &[]), AccessDecision::Drop(DropReason::Sender));
}

#[test]
fn a_chat_is_never_alone_with_us() {
    for (dm, allow) in [(DmPolicy::Pairing, "7"), (DmPolicy::Open, "*"), (DmPolicy::Allowlist, "7")] {
        let rules = AccessRules { dm, allow_from: list(&[allow]), ..AccessRules::default() };
        let mut incoming = said(PeerKind::Direct, "7");
        incoming.sender.is_chat = true;
        assert_eq!(verdict_on(&rules, &incoming, &approved(&["7"])), AccessDecision::Drop(DropReason::Sender));
    }
}

#[test]
fn c1_an_entry_or_an_approval_of_another_channel_or_account_admits_nobody() {
    let entries = ["telegram:1", "tg:1", "telegram/default:1", "webhook/shop:1", "Telegram:1"];
    let rules = AccessRules { allow_from: list(&entries), dm: DmPolicy::Allowlist, ..AccessRules::default() };
    let shop = ChannelAccount::new("webhook", "shop", IdIssuer::Peer, false);
    let telegram = ChannelAccount::new("telegram", "default", IdIssuer::Platform, true);
    let elsewhere = [shop.sender("1"), telegram.sender("1")];
    for id in entries.into_iter().chain(["1", "shop:1", "webhook:1"]) {
        let incoming = said(PeerKind::Direct, id);
        assert_eq!(verdict_on(&rules, &incoming, &elsewhere), AccessDecision::Drop(DropReason::Sender), "{id}");
    }
}

#[test]
fn a_group_and_its_sender_must_be_listed() {
    let mut incoming = said(PeerKind::Group, "7");
    incoming.was_mentioned = true;
    let verdict = |group, groups: &[&str], senders: Option<&[&str]>, sender: &str| {
        incoming.sender.id = sender.to_owned();
        let groups = groups.iter().map(|id| ((*id).to_owned(), GroupRules::default())).collect();
        let group_allow_from = senders.map(list);
        let allow_from = list(&["7"]);
        verdict_on(
            &AccessRules { group, groups, group_allow_from, allow_from, ..AccessRules::default() },
            &incoming,
            &[],
        )
    };
    let mut verdict = verdict;
    assert_eq!(verdict(GroupPolicy::Allowlist, &["-100"], None, "7"), IN, "falls back to allowFrom");
    assert_eq!(verdict(GroupPolicy::Allowlist, &["*"], None, "8"), AccessDecision::Drop(DropReason::Sender));
    assert_eq!(verdict(GroupPolicy::Allowlist, &["*"], Some(&["8"]), "8"), IN);
    assert_eq!(verdict(GroupPolicy::Allowlist, &["*"], Some(&["8"]), "7"), AccessDecision::Drop(DropReason::Sender));
    assert_eq!(verdict(GroupPolicy::Allowlist, &[], None, "7"), AccessDecision::Drop(DropReason::Group));
    assert_eq!(verdict(GroupPolicy::Open, &["-200"], None, "7"), AccessDecision::Drop(DropReason::Group));
    let guest = AccessDecision::Admit { was_mentioned: true, may_command: false };
    assert_eq!(verdict(GroupPolicy::Open, &[], None, "8"), guest);
    assert_eq!(verdict(GroupPolicy::Disabled, &["*"], None, "7"), AccessDecision::Drop(DropReason::Disabled));
}

#[test]
fn an_approved_dm_is_no_seat_in_a_group() {
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, ..AccessRules::default() };
    let verdict = verdict_on(&rules, &said(PeerKind::Group, "9"), &approved(&["9"]));
    assert_eq!(verdict, AccessDecision::Drop(DropReason::Sender));
}

#[test]
fn the_nearest_rule_of_topic_and_group_holds() {
    let on = |is_enabled, requires_mention| GroupRules { is_enabled, requires_mention, ..GroupRules::default() };
    let mut named = on(None, Some(false));
    named.topics = [("5".to_owned(), on(None, Some(true))), ("6".to_owned(), on(Some(false), None))].into();
    let groups = [("-100".to_owned(), named), ("*".to_owned(), on(Some(true), Some(true)))].into();
    let rules = AccessRules { groups, allow_from: list(&["7"]), ..AccessRules::default() };
    let verdict = |group: &str, thread: Option<&str>| {
        let mut incoming = said(PeerKind::Group, "7");
        incoming.peer.id = group.to_owned();
        incoming.thread = thread.map(str::to_owned);
        verdict_on(&rules, &incoming, &[])
    };
    let heard = AccessDecision::Admit { was_mentioned: false, may_command: true };
    assert_eq!(verdict("-100", None), heard);
    assert_eq!(verdict("-100", Some("4")), heard);
    assert_eq!(verdict("-100", Some("5")), AccessDecision::KeepAsContext);
    assert_eq!(verdict("-100", Some("6")), AccessDecision::Drop(DropReason::Disabled));
    assert_eq!(verdict("-200", None), AccessDecision::KeepAsContext);
}

#[test]
fn groups_can_be_off_except_those_that_are_named() {
    let rule = |is_enabled| GroupRules { is_enabled, requires_mention: Some(false), ..GroupRules::default() };
    let groups = [("-100".to_owned(), rule(None)), ("*".to_owned(), rule(Some(false)))].into();
    let rules = AccessRules { groups, allow_from: list(&["7"]), ..AccessRules::default() };
    let verdict = |group: &str| {
        let mut incoming = said(PeerKind::Group, "7");
        incoming.peer.id = group.to_owned();
        verdict_on(&rules, &incoming, &[])
    };
    assert_eq!(verdict("-100"), AccessDecision::Admit { was_mentioned: false, may_command: true });
    assert_eq!(verdict("-200"), AccessDecision::Drop(DropReason::Disabled));
}

#[test]
fn a_message_that_speaks_to_others_only_is_not_for_us() {
    let (patterns, _) = MentionPatterns::new(["claw"]);
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, allow_from: list(&["*"]), mention_patterns: patterns, ..AccessRules::default() };
    let verdict = |text: &str, to_us: bool, to_others: bool| {
        let mut incoming = said(PeerKind::Group, "7");
        incoming.text = text.to_owned();
        incoming.was_mentioned = to_us;
        incoming.mentions_others = to_others;
        verdict_on(&rules, &incoming, &[])
    };
    assert_eq!(verdict("hello", false, false), AccessDecision::KeepAsContext);
    assert_eq!(verdict("Claw?", false, false), IN);
    assert_eq!(verdict("@bob tell claw", false, true), AccessDecision::KeepAsContext);
    assert_eq!(verdict("@bob and @us", true, true), IN);
}

#[test]
fn activation_wins_over_the_config_and_commands_over_both() {
    let groups = [("*".to_owned(), GroupRules::default())].into();
    let rules = AccessRules { groups, group: GroupPolicy::Open, allow_from: list(&["7"]), ..AccessRules::default() };
    let verdict = |sender, activation, is_control| {
        let incoming = said(PeerKind::Group, sender);
        let sender = home().sender(sender);
        decide(
            &rules,
            AccessRequest { incoming: &incoming, sender: &sender, paired: &[], activation, is_command: is_control },
        )
    };
    let heard = |may_command| AccessDecision::Admit { was_mentioned: false, may_command };
    assert_eq!(verdict("7", None, false), AccessDecision::KeepAsContext);
    assert_eq!(verdict("7", Some(Activation::Always), false), heard(true));
    assert_eq!(verdict("8", Some(Activation::Always), false), heard(false));
    assert_eq!(verdict("7", Some(Activation::Mention), false), AccessDecision::KeepAsContext);
    assert_eq!(verdict("7", Some(Activation::Mention), true), heard(true));
    assert_eq!(verdict("8", None, true), AccessDecision::Drop(DropReason::Command));
}

#[test]
fn settings_are_read_in_any_case() {
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
    /// Whatever else the rules say, an unlisted sender is admitted only if a policy is open.
    #[test]
    fn a_stranger_is_heard_only_through_an_open_door(
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
        let mut incoming = said(kind, "stranger");
        incoming.was_mentioned = was_mentioned;
        let activation = always.then_some(Activation::Always);
        let (sender, paired) = (home().sender("stranger"), approved(&listed));
        let caller = AccessRequest { incoming: &incoming, sender: &sender, paired: &paired, activation, is_command: is_control };
        let verdict = decide(&rules, caller);
        prop_assert!(matches!(verdict, AccessDecision::Drop(_) | AccessDecision::Pair), "{:?}", verdict);
    }
}
