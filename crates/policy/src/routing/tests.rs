//! Tests of agent selection and session keys.

use proptest::prelude::*;

use super::*;

fn peer(kind: PeerKind, id: &str) -> ChannelPeer {
    ChannelPeer { kind, id: id.to_owned() }
}

fn channel_account(channel: &str, account: &str) -> ChannelAccount {
    let issuer = if channel == "webhook" { IdIssuer::Peer } else { IdIssuer::Platform };
    ChannelAccount::new(channel, account, issuer, false)
}

fn origin(channel: &str, kind: PeerKind, id: &str) -> MessageOrigin {
    MessageOrigin {
        at: channel_account(channel, "default"),
        peer: peer(kind, id),
        guild: None,
        team: None,
        thread: None,
        is_owner: false,
    }
}

fn binding(agent: &str, channel: &str) -> Binding {
    Binding {
        agent: AgentId::normalize(agent),
        channel: channel.to_owned(),
        account: AccountFilter::Default,
        peer: None,
        guild: None,
        team: None,
    }
}

fn routes(bindings: Vec<Binding>) -> RoutingTable {
    RoutingTable {
        bindings,
        default_agent: AgentId::main(),
        dm_scope: DmScope::default(),
        identity_links: BTreeMap::new(),
    }
}

fn key(routes: &RoutingTable, origin: &MessageOrigin) -> String {
    route(routes, origin).unwrap().key.to_string()
}

#[test]
fn without_bindings_the_default_agent_answers() {
    let routed = route(&routes(Vec::new()), &origin("Telegram", PeerKind::Group, "-100AB")).unwrap();
    let expected = RoutingResult {
        agent: AgentId::main(),
        key: SessionKey::parse("agent:main:telegram:group:-100%41%42", &AgentId::main()).unwrap(),
        old_key: SessionKey::parse("agent:main:telegram:group:-100ab", &AgentId::main()).ok(),
        is_contestable: false,
        matched: RouteRule::Default,
    };
    assert_eq!(routed, expected);
}

#[test]
fn the_most_specific_binding_wins_at_any_position() {
    let parent = || Some(peer(PeerKind::Channel, "C1"));
    // From the least specific to the most, so that the order of the list never helps.
    let all = [
        (RouteRule::Channel, Binding { account: AccountFilter::Any, ..binding("channel", "slack") }),
        (RouteRule::Account, binding("account", "slack")),
        (RouteRule::Team, Binding { team: Some("T1".to_owned()), ..binding("team", "slack") }),
        (RouteRule::Guild, Binding { guild: Some("G1".to_owned()), ..binding("guild", "slack") }),
        (RouteRule::ParentPeer, Binding { peer: parent(), ..binding("parent", "slack") }),
        (RouteRule::Peer, Binding { peer: Some(peer(PeerKind::Channel, "t9")), ..binding("peer", "slack") }),
    ];
    let origin = MessageOrigin {
        guild: Some("G1".to_owned()),
        team: Some("T1".to_owned()),
        thread: Some(ThreadId::Thread("t9".to_owned())),
        ..origin("slack", PeerKind::Channel, "C1")
    };
    for count in 1..=all.len() {
        let (rule, last) = &all[count - 1];
        let routes = routes(all[..count].iter().map(|(_, binding)| binding.clone()).collect());
        let routed = route(&routes, &origin).unwrap();
        assert_eq!((&routed.agent, routed.matched), (&last.agent, *rule));
        assert_eq!(routed.key.as_str(), format!("agent:{}:slack:channel:%431:thread:t9", last.agent));
    }
}

#[test]
fn among_equals_the_first_binding_wins() {
    let routes = routes(vec![binding("first", "slack"), binding("second", "slack")]);
    assert_eq!(route(&routes, &origin("slack", PeerKind::Group, "g")).unwrap().agent.as_str(), "first");
}

#[test]
fn all_fields_of_a_binding_must_match() {
    let full_binding = Binding {
        account: AccountFilter::Only("Work".to_owned()),
        peer: Some(peer(PeerKind::Channel, "C1")),
        guild: Some("G1".to_owned()),
        ..binding("ops", "discord")
    };
    let matching = MessageOrigin {
        at: channel_account("discord", "work"),
        guild: Some("G1".to_owned()),
        ..origin("discord", PeerKind::Channel, "C1")
    };
    let routes = routes(vec![full_binding]);
    let matched = |origin: &MessageOrigin| route(&routes, origin).unwrap().matched;
    assert_eq!(matched(&matching), RouteRule::Peer);
    for other in [
        MessageOrigin { at: channel_account("slack", "work"), ..matching.clone() },
        MessageOrigin { at: channel_account("discord", "default"), ..matching.clone() },
        MessageOrigin { at: channel_account("discord", "home"), ..matching.clone() },
        MessageOrigin { guild: None, ..matching.clone() },
        MessageOrigin { guild: Some("G2".to_owned()), ..matching.clone() },
        MessageOrigin { peer: peer(PeerKind::Channel, "C2"), ..matching.clone() },
        MessageOrigin { peer: peer(PeerKind::Group, "C1"), ..matching },
    ] {
        assert_eq!(matched(&other), RouteRule::Default, "{other:?}");
    }
}

#[test]
fn a_binding_without_an_account_is_for_the_default_one() {
    let accounts = |account: Option<&str>| {
        let account = AccountFilter::parse(account);
        ["default", "work"].map(|name| account.covers(name))
    };
    assert_eq!(accounts(None), [true, false]);
    assert_eq!(accounts(Some(" ")), [true, false]);
    assert_eq!(accounts(Some("default")), [true, false]);
    assert_eq!(accounts(Some("Work")), [false, true]);
    assert_eq!(accounts(Some("*")), [true, true]);
}

#[test]
fn a_topic_can_have_an_agent_of_its_own() {
    let topic = Binding { peer: Some(peer(PeerKind::Group, "-5:topic:7")), ..binding("topic", "telegram") };
    let group = Binding { peer: Some(peer(PeerKind::Group, "-5")), ..binding("group", "telegram") };
    let routes = routes(vec![group, topic]);
    let routed = |number: &str| {
        let thread = Some(ThreadId::Topic(number.to_owned()));
        let routed = route(&routes, &MessageOrigin { thread, ..origin("telegram", PeerKind::Group, "-5") }).unwrap();
        (routed.key.to_string(), routed.matched)
    };
    assert_eq!(routed("7"), ("agent:topic:telegram:group:-5:topic:7".to_owned(), RouteRule::Peer));
    assert_eq!(routed("8"), ("agent:group:telegram:group:-5:topic:8".to_owned(), RouteRule::ParentPeer));
}

#[test]
fn a_thread_id_in_a_direct_chat_does_not_match_a_peer_binding() {
    let direct_binding = Binding { peer: Some(peer(PeerKind::Direct, "42")), ..binding("private", "telegram") };
    let thread = Some(ThreadId::Thread("42".to_owned()));
    let routed =
        route(&routes(vec![direct_binding]), &MessageOrigin { thread, ..origin("telegram", PeerKind::Direct, "7") })
            .unwrap();
    assert_eq!((routed.agent, routed.matched), (AgentId::main(), RouteRule::Default));
}

#[test]
fn the_dm_scope_selects_the_session_of_a_direct_chat() {
    let key_for = |dm_scope: DmScope, is_owner: bool| {
        let origin = MessageOrigin {
            at: channel_account("telegram", "Work"),
            is_owner,
            ..origin("telegram", PeerKind::Direct, "alice")
        };
        key(&RoutingTable { dm_scope, ..routes(Vec::new()) }, &origin)
    };
    for (scope, owner, other) in [
        (DmScope::OwnerInMain, "agent:main:main", "agent:main:telegram:work:direct:alice"),
        (DmScope::Main, "agent:main:main", "agent:main:main"),
        (DmScope::PerPeer, "agent:main:direct:alice", "agent:main:direct:alice"),
        (DmScope::PerChannelPeer, "agent:main:telegram:work:direct:alice", "agent:main:telegram:work:direct:alice"),
        (
            DmScope::PerAccountChannelPeer,
            "agent:main:telegram:work:direct:alice",
            "agent:main:telegram:work:direct:alice",
        ),
    ] {
        assert_eq!((key_for(scope, true).as_str(), key_for(scope, false).as_str()), (owner, other), "{scope:?}");
    }
}

#[test]
fn linked_ids_share_one_session() {
    let links = ["telegram:111", "alice-at-irc", "webhook/door:a"].map(SenderPattern::parse).to_vec();
    let links = BTreeMap::from([("Alice".to_owned(), links)]);
    let routes = |dm_scope| RoutingTable { dm_scope, identity_links: links.clone(), ..routes(Vec::new()) };
    let key_for = |scope, channel, id| key(&routes(scope), &origin(channel, PeerKind::Direct, id));
    assert_eq!(key_for(DmScope::PerPeer, "telegram", "111"), "agent:main:direct:alice");
    assert_eq!(key_for(DmScope::PerPeer, "irc", "alice-at-irc"), "agent:main:direct:alice");
    // The same id on another platform is another person.
    assert_eq!(key_for(DmScope::PerPeer, "signal", "111"), "agent:main:direct:111");
    assert_eq!(key_for(DmScope::OwnerInMain, "telegram", "111"), "agent:main:telegram:direct:alice");
    assert_eq!(key_for(DmScope::Main, "telegram", "111"), "agent:main:main");
    // A group is not a person.
    let group = origin("telegram", PeerKind::Group, "111");
    assert_eq!(key(&routes(DmScope::PerPeer), &group), "agent:main:telegram:group:111");
}

#[test]
fn an_id_that_looks_like_a_link_or_a_peer_matches_neither() {
    let links = BTreeMap::from([("alice".to_owned(), ["telegram:111", "7"].map(SenderPattern::parse).to_vec())]);
    let direct_binding = Binding { peer: Some(peer(PeerKind::Direct, "boss")), ..binding("private", "webhook") };
    let group_binding = Binding { peer: Some(peer(PeerKind::Group, "board")), ..binding("private", "webhook") };
    let routes = RoutingTable {
        dm_scope: DmScope::PerPeer,
        identity_links: links,
        ..routes(vec![direct_binding, group_binding])
    };
    for id in ["telegram:111", "7"] {
        let key = key(&routes, &origin("webhook", PeerKind::Direct, id));
        assert_ne!(key, "agent:main:direct:alice", "{id}");
    }
    for id in [" boss", "boss ", "Boss", "webhook:boss"] {
        let routed = route(&routes, &origin("webhook", PeerKind::Direct, id)).unwrap();
        assert_eq!(routed.matched, RouteRule::Default, "{id:?}");
    }
    let thread = Some(ThreadId::Thread("board".to_owned()));
    let routed = route(&routes, &MessageOrigin { thread, ..origin("webhook", PeerKind::Group, "lobby") }).unwrap();
    assert_eq!(routed.matched, RouteRule::Default, "a thread that is called like a group");
}

#[test]
fn ordinary_keys_are_those_of_openclaw_and_of_earlier_versions() {
    let routes = routes(Vec::new());
    for (channel, kind, id, expected) in [
        ("telegram", PeerKind::Direct, "123456789", "agent:main:telegram:direct:123456789"),
        ("telegram", PeerKind::Group, "-1001234", "agent:main:telegram:group:-1001234"),
        ("webhook", PeerKind::Direct, "ann@example.org", "agent:main:webhook:direct:ann@example.org"),
    ] {
        let routed = route(&routes, &origin(channel, kind, id)).unwrap();
        assert_eq!((routed.key.as_str(), routed.old_key), (expected, None));
        assert_eq!(routed.is_contestable, channel == "webhook");
    }
    let old_key_of = |channel, account, id| {
        let origin = MessageOrigin { at: channel_account(channel, account), ..origin(channel, PeerKind::Direct, id) };
        route(&routes, &origin).unwrap().old_key.map(|key| key.to_string())
    };
    assert_eq!(old_key_of("telegram", "work", "7").as_deref(), Some("agent:main:telegram:direct:7"));
    assert_eq!(old_key_of("webhook", "default", " Ann").as_deref(), Some("agent:main:webhook:direct:ann"));
    assert_eq!(old_key_of("webhook", "default", "ann:thread:1"), None, "a thread of ann, or somebody of this name");
}

#[test]
fn an_id_does_not_collide_with_the_name_of_a_linked_person() {
    let links = BTreeMap::from([("ann".to_owned(), vec![SenderPattern::parse("webhook:x")])]);
    let routes = RoutingTable { identity_links: links, ..routes(Vec::new()) };
    let key_for = |id| key(&routes, &origin("webhook", PeerKind::Direct, id));
    assert_eq!([key_for("x"), key_for("ann")], ["agent:main:webhook:direct:ann", "agent:main:webhook:direct:%61nn"]);
}

#[test]
fn names_that_are_invalid_in_a_key_are_rejected() {
    let error_of = |origin: MessageOrigin| route(&routes(Vec::new()), &origin).unwrap_err().to_string();
    let valid = || origin("telegram", PeerKind::Direct, "1");
    assert_eq!(error_of(MessageOrigin { at: channel_account(" ", ""), ..valid() }), "channel must not be empty");
    assert_eq!(error_of(MessageOrigin { at: channel_account("a:b", ""), ..valid() }), "channel must not contain ':'");
    assert_eq!(
        error_of(MessageOrigin { at: channel_account("a", "a:b"), ..valid() }),
        "account id must not contain ':'"
    );
    assert_eq!(error_of(origin("telegram", PeerKind::Group, "")), "peer id must not be empty");
    assert_eq!(
        error_of(MessageOrigin { thread: Some(ThreadId::Thread(String::new())), ..valid() }),
        "thread id must not be empty"
    );
    assert_eq!(error_of(origin(&"a".repeat(600), PeerKind::Group, "1")), "session key is longer than 512 bytes");
}

#[test]
fn peer_kinds_and_dm_scopes_are_parsed() {
    let kinds = ["dm", "Direct", "group", "channel", "room"].map(PeerKind::parse);
    let (direct, group, channel) = (Some(PeerKind::Direct), Some(PeerKind::Group), Some(PeerKind::Channel));
    assert_eq!(kinds, [direct, direct, group, channel, None]);
    let scopes = ["main", "per-peer", "per-channel-peer", "per-account-channel-peer", "mine"].map(DmScope::parse);
    assert_eq!(
        scopes,
        [
            Some(DmScope::Main),
            Some(DmScope::PerPeer),
            Some(DmScope::PerChannelPeer),
            Some(DmScope::PerAccountChannelPeer),
            None,
        ]
    );
}

fn any_kind() -> impl Strategy<Value = PeerKind> {
    prop_oneof![Just(PeerKind::Direct), Just(PeerKind::Group), Just(PeerKind::Channel)]
}

fn any_scope() -> impl Strategy<Value = DmScope> {
    prop_oneof![
        Just(DmScope::OwnerInMain),
        Just(DmScope::Main),
        Just(DmScope::PerPeer),
        Just(DmScope::PerChannelPeer),
        Just(DmScope::PerAccountChannelPeer),
    ]
}

prop_compose! {
    fn any_origin()(
        // Without an m: no platform is called main or dm.
        channel in "[A-La-l]{1,8}",
        account in "[A-La-l0-9_-]{0,8}",
        kind in any_kind(),
        id in "[A-Za-zÀ-ž0-9@._+-]{1,20}(:[0-9]{1,6})?",
        thread in prop::option::of(prop_oneof![
            "[A-Za-z0-9.]{1,8}".prop_map(ThreadId::Thread),
            "[0-9]{1,4}".prop_map(ThreadId::Topic),
        ]),
        is_owner: bool,
    ) -> MessageOrigin {
        MessageOrigin { at: channel_account(&channel, &account), thread, is_owner, ..origin(&channel, kind, &id) }
    }
}

prop_compose! {
    /// Similar origins: few letters, and everything that could be misread.
    fn hostile_origin()(
        channel in prop::sample::select(vec!["telegram", "webhook"]),
        account in prop::sample::select(vec!["default", "shop", "direct", "thread", "group"]),
        kind in any_kind(),
        id in "[aA :%]{1,3}|a:thread:[ab]|direct|dm|group|thread|topic|shop|%41|\\PC{1,6}",
        thread in prop::option::of(("[aA :%]{1,2}|thread|group", any::<bool>()).prop_map(|(id, is_topic)| {
            if is_topic { ThreadId::Topic(id) } else { ThreadId::Thread(id) }
        })),
    ) -> MessageOrigin {
        MessageOrigin { at: channel_account(channel, account), thread, ..origin(channel, kind, &id) }
    }
}

prop_compose! {
    fn any_routes()(
        dm_scope in any_scope(),
        agents in prop::collection::vec(("[a-z]{1,5}", "[A-La-l]", any::<bool>()), 0..4),
        names in prop::collection::btree_map("[A-Za-z]{1,6}", prop::collection::vec("[a-z0-9]{1,3}", 0..3), 0..3),
    ) -> RoutingTable {
        let bindings = agents.into_iter().map(|(agent, channel, is_any)| {
            let account = if is_any { AccountFilter::Any } else { AccountFilter::Default };
            Binding { account, ..binding(&agent, &channel) }
        });
        let links = |ids: Vec<String>| ids.iter().map(|id| SenderPattern::parse(id)).collect();
        let identity_links = names.into_iter().map(|(name, ids)| (name, links(ids))).collect();
        RoutingTable { dm_scope, identity_links, ..routes(bindings.collect()) }
    }
}

proptest! {
    #[test]
    fn a_key_is_canonical_and_belongs_to_its_agent(routes in any_routes(), origin in any_origin()) {
        let routed = route(&routes, &origin).unwrap();
        prop_assert_eq!(routed.key.agent(), Some(&routed.agent));
        prop_assert_eq!(routed.key.as_str().to_lowercase(), routed.key.as_str());
        let again = SessionKey::parse(routed.key.as_str(), &AgentId::normalize("other")).unwrap();
        prop_assert_eq!(again, routed.key);
    }

    #[test]
    fn the_case_of_a_channel_or_an_account_changes_nothing(routes in any_routes(), origin in any_origin()) {
        let other = MessageOrigin {
            at: channel_account(&format!(" {} ", origin.at.channel()), &origin.at.account().to_uppercase()),
            ..origin.clone()
        };
        prop_assert_eq!(route(&routes, &origin), route(&routes, &other));
    }

    #[test]
    fn only_the_owner_uses_the_main_session_by_default(routes in any_routes(), origin in any_origin()) {
        let key = route(&routes, &origin).unwrap().key;
        let is_main = key.rest().split(':').next() == Some("main");
        let is_direct = origin.peer.kind == PeerKind::Direct;
        let expected = match routes.dm_scope {
            DmScope::Main => is_direct,
            DmScope::OwnerInMain => is_direct && origin.is_owner,
            DmScope::PerPeer | DmScope::PerChannelPeer | DmScope::PerAccountChannelPeer => false,
        };
        prop_assert_eq!(is_main, expected);
    }

    /// A key consists of a channel, an account, a peer and a thread, and of nothing else: equal keys mean equal
    /// origins.
    #[test]
    fn different_origins_never_have_one_key(
        mut routes in any_routes(), a in hostile_origin(), b in hostile_origin(), spelling in (0_usize..3, 0_usize..3),
    ) {
        routes.bindings.clear();
        prop_assume!(routes.dm_scope != DmScope::Main);
        let is_linked = |origin: &MessageOrigin| origin.peer.kind == PeerKind::Direct && routes.linked(origin).is_some();
        prop_assume!(!is_linked(&a) || !is_linked(&b));
        let key = |origin: &MessageOrigin, forced| route_spelled(&routes, origin, forced).unwrap().key;
        // With `per-peer`, ids of platforms are intentionally not distinguished by platform or account.
        let location = |origin: &MessageOrigin| match (routes.dm_scope, origin.peer.kind, origin.at.issuer()) {
            (DmScope::PerPeer, PeerKind::Direct, IdIssuer::Platform) => None,
            _ => Some((origin.at.channel().to_owned(), origin.at.account().to_owned())),
        };
        let identity = |origin: &MessageOrigin| (location(origin), origin.peer.clone(), origin.thread.clone());
        prop_assert_eq!(key(&a, spelling.0) == key(&b, spelling.0), identity(&a) == identity(&b));
        prop_assert!(key(&a, spelling.0) != key(&b, spelling.1) || identity(&a) == identity(&b));
    }

    #[test]
    fn a_key_has_the_kind_and_the_parent_of_its_origin(origin in hostile_origin()) {
        let routes = routes(Vec::new());
        let key = route(&routes, &origin).unwrap().key;
        prop_assert_eq!(key.kind(), if origin.peer.kind == PeerKind::Direct { "direct" } else { "group" });
        let parent = MessageOrigin { thread: None, ..origin.clone() };
        let expected = origin.thread.as_ref().map(|_| route(&routes, &parent).unwrap().key);
        prop_assert_eq!(key.thread_parent(), expected);
    }

    #[test]
    fn any_text_can_be_routed(channel in "\\PC{0,30}", id in any::<String>(), thread in any::<String>(), is_owner: bool) {
        let thread = Some(ThreadId::Thread(thread));
        let origin = MessageOrigin { thread, is_owner, ..origin(&channel, PeerKind::Direct, &id) };
        if let Ok(routed) = route(&routes(Vec::new()), &origin) {
            prop_assert_eq!(routed.agent, AgentId::main());
        }
    }
}
