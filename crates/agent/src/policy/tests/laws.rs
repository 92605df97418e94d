//! Properties that hold for every config.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

const ENTRIES: &[&str] = &[
    "read",
    "write",
    "exec",
    "bash",
    "apply_patch",
    "cron",
    "message",
    "image",
    "web_*",
    "*_search",
    "sessions_*",
    "*",
    "group:fs",
    "group:runtime",
    "group:sessions",
    "group:plugins",
    "weather",
    "forecast",
    "nobody",
    "",
];

/// Available tools: built-in ones, those of a plugin, and an unknown one.
fn tools() -> Vec<&'static str> {
    TOOLS.iter().copied().chain(["forecast", "weather__Now", "mystery", "automations"]).collect()
}

fn entries() -> impl Strategy<Value = Vec<String>> {
    vec(select(ENTRIES).prop_map(str::to_owned), 0..4)
}

/// Mostly empty policies: with many restrictions, no tool would be left to test.
fn policies() -> impl Strategy<Value = ToolPolicy> {
    let profiles = select(&[ToolProfile::Minimal, ToolProfile::Coding, ToolProfile::Messaging, ToolProfile::Full][..]);
    let seldom = || prop_oneof![4 => Just(Vec::new()), 1 => entries()];
    (option::weighted(0.2, profiles), seldom(), entries(), seldom())
        .prop_map(|(profile, allow, also_allow, deny)| ToolPolicy { profile, allow, also_allow, deny })
}

fn subagents() -> impl Strategy<Value = SubagentPolicy> {
    let spawner = proptest::sample::subsequence(tools(), 0..=tools().len());
    (0..4u32, 0..4u32, policies(), spawner).prop_map(|(depth, max_depth, policy, spawner)| SubagentPolicy {
        depth,
        max_depth,
        policy,
        spawner: spawner.into_iter().map(str::to_owned).collect(),
    })
}

prop_compose! {
    fn all_scopes()(
        sender in select(&[SenderRole::Owner, SenderRole::Operator, SenderRole::Other][..]),
        non_owner_allow in entries(),
        five in [policies(), policies(), policies(), policies(), policies()],
        sandbox in option::weighted(0.2, policies()),
        subagent in option::weighted(0.2, subagents()),
    ) -> PolicyScopes {
        let [global, by_provider, agent, agent_by_provider, group] = five;
        let plugins = BTreeMap::new();
        with_weather(PolicyScopes {
            sender,
            non_owner_allow,
            global,
            by_provider,
            agent,
            agent_by_provider,
            group,
            sandbox,
            subagent,
            plugins,
        })
    }
}

fn given(scopes: &PolicyScopes) -> BTreeSet<String> {
    resolve(scopes, &tools()).allowed
}

/// Selects a policy among the scopes. Not that of the sandbox, where a list replaces the default.
type PolicySelector = fn(&mut PolicyScopes) -> &mut ToolPolicy;

fn places() -> impl Strategy<Value = PolicySelector> {
    let places: &'static [PolicySelector] = &[
        |scopes| &mut scopes.global,
        |scopes| &mut scopes.by_provider,
        |scopes| &mut scopes.agent,
        |scopes| &mut scopes.agent_by_provider,
        |scopes| &mut scopes.group,
        |scopes| &mut scopes.subagent.get_or_insert_default().policy,
    ];
    select(places)
}

/// Returns what a list matches without other rules.
fn named(list: &[String]) -> BTreeSet<String> {
    let scopes = with_weather(globally(ToolPolicy { deny: list.to_vec(), ..ToolPolicy::default() }));
    resolve(&scopes, &tools()).denied.into_keys().collect()
}

/// The same for an allowlist, with implied tools.
fn admitted(list: &[String]) -> BTreeSet<String> {
    let mut named = named(list);
    if named.contains("exec") {
        named.insert("apply_patch".to_owned());
    }
    named
}

proptest! {
    #[test]
    fn every_tool_is_either_allowed_or_has_a_reason(scopes in all_scopes()) {
        let ResolvedTools { allowed, denied: because, .. } = resolve(&scopes, &tools());
        let because: BTreeSet<_> = because.into_keys().collect();
        prop_assert!(allowed.is_disjoint(&because));
        prop_assert_eq!(&allowed | &because, tools().into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn what_is_denied_anywhere_is_denied(scopes in all_scopes(), place in places(), list in entries()) {
        let mut denied = scopes;
        place(&mut denied).deny.clone_from(&list);
        prop_assert!(given(&denied).is_disjoint(&named(&list)));
    }

    #[test]
    fn where_tools_are_listed_no_others_are_allowed(scopes in all_scopes(), place in places(), list in entries()) {
        let mut listed = scopes;
        // Includes a built-in tool, because a list of plugins only may be ignored.
        let list = [list, words("read")].concat();
        let policy = place(&mut listed);
        (policy.allow, policy.also_allow) = (list.clone(), Vec::new());
        prop_assert!(given(&listed).is_subset(&admitted(&list)));
    }

    #[test]
    fn another_list_never_allows_more(scopes in all_scopes(), place in places(), allow in entries(), deny in entries()) {
        let mut without = scopes;
        let policy = place(&mut without);
        policy.allow.clear();
        policy.deny.clear();
        let mut with = without.clone();
        let policy = place(&mut with);
        (policy.allow, policy.deny) = (allow, deny);
        prop_assert!(given(&with).is_subset(&given(&without)));
    }

    #[test]
    fn neither_a_sandbox_nor_being_a_sub_agent_allows_more(scopes in all_scopes()) {
        let free = PolicyScopes { sandbox: None, subagent: None, ..scopes.clone() };
        prop_assert!(given(&scopes).is_subset(&given(&free)));
    }

    #[test]
    fn only_what_is_allowed_besides_is_added(scopes in all_scopes(), place in places(), list in entries()) {
        let mut without = scopes;
        place(&mut without).also_allow.clear();
        let mut with = without.clone();
        place(&mut with).also_allow.clone_from(&list);
        prop_assert!(given(&with).is_subset(&(&given(&without) | &admitted(&list))));
    }

    #[test]
    fn others_never_have_more_than_the_owner(scopes in all_scopes()) {
        let by = |sender| given(&PolicyScopes { sender, ..scopes.clone() });
        let [owner, operator, other] = [SenderRole::Owner, SenderRole::Operator, SenderRole::Other].map(by);
        prop_assert!(other.is_subset(&owner) && operator.is_subset(&owner));
        for limited in [other, operator] {
            prop_assert!(limited.is_disjoint(&set("cron automations gateway nodes")));
        }
    }

    #[test]
    fn a_sub_agent_never_has_more_than_its_spawner(scopes in all_scopes(), child in all_scopes()) {
        let spawner = given(&scopes);
        let subagent = Some(SubagentPolicy { spawner: spawner.clone(), ..child.subagent.clone().unwrap_or_default() });
        // Two names of one tool are one tool.
        let right = |tools: BTreeSet<String>| tools.iter().map(|tool| names::canonical(tool)).collect::<BTreeSet<_>>();
        let child = given(&PolicyScopes { subagent, ..child });
        prop_assert!(right(child).is_subset(&right(spawner)));
    }

    #[test]
    fn the_order_within_a_list_and_of_the_tools_says_nothing(scopes in all_scopes()) {
        let mut turned = scopes.clone();
        let policies = [&mut turned.global, &mut turned.by_provider, &mut turned.agent, &mut turned.agent_by_provider];
        let others = turned.sandbox.iter_mut().chain(turned.subagent.iter_mut().map(|subagent| &mut subagent.policy));
        for policy in policies.into_iter().chain([&mut turned.group]).chain(others) {
            policy.allow.reverse();
            policy.also_allow.reverse();
            policy.deny.reverse();
        }
        let backwards: Vec<_> = tools().into_iter().rev().collect();
        // Of two matching entries the first is reported, so only the scope is the same.
        let rules = |resolved: ResolvedTools| {
            let told = resolved.denied.into_iter().map(|(tool, rule)| match rule {
                DenyRule::Denied(scope, _) => (tool, DenyRule::Denied(scope, String::new())),
                DenyRule::OwnerOnly | DenyRule::AdminScope | DenyRule::NonOwner | DenyRule::Profile(..) | DenyRule::NotAllowed(_) => (tool, rule),
                DenyRule::Subagent | DenyRule::Leaf | DenyRule::Spawner => (tool, rule),
            });
            (resolved.allowed, told.collect::<BTreeMap<_, _>>())
        };
        prop_assert_eq!(rules(resolve(&scopes, &tools())), rules(resolve(&turned, &backwards)));
    }
}
