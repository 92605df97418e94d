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
    let mostly_empty = || prop_oneof![4 => Just(Vec::new()), 1 => entries()];
    (option::weighted(0.2, profiles), mostly_empty(), entries(), mostly_empty())
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

fn allowed_tools(scopes: &PolicyScopes) -> BTreeSet<String> {
    resolve(scopes, &tools()).allowed
}

/// Selects a policy among the scopes. Not that of the sandbox, where a list replaces the default.
type PolicySelector = fn(&mut PolicyScopes) -> &mut ToolPolicy;

fn policy_selectors() -> impl Strategy<Value = PolicySelector> {
    let selectors: &'static [PolicySelector] = &[
        |scopes| &mut scopes.global,
        |scopes| &mut scopes.by_provider,
        |scopes| &mut scopes.agent,
        |scopes| &mut scopes.agent_by_provider,
        |scopes| &mut scopes.group,
        |scopes| &mut scopes.subagent.get_or_insert_default().policy,
    ];
    select(selectors)
}

/// Returns what a list matches without other rules.
fn matched_tools(list: &[String]) -> BTreeSet<String> {
    let scopes = with_weather(globally(ToolPolicy { deny: list.to_vec(), ..ToolPolicy::default() }));
    resolve(&scopes, &tools()).denied.into_keys().collect()
}

/// The same for an allowlist, with implied tools.
fn admitted(list: &[String]) -> BTreeSet<String> {
    let mut matched = matched_tools(list);
    if matched.contains("exec") {
        matched.insert("apply_patch".to_owned());
    }
    matched
}

proptest! {
    #[test]
    fn every_tool_is_either_allowed_or_has_a_reason(scopes in all_scopes()) {
        let ResolvedTools { allowed, denied, .. } = resolve(&scopes, &tools());
        let denied: BTreeSet<_> = denied.into_keys().collect();
        prop_assert!(allowed.is_disjoint(&denied));
        prop_assert_eq!(&allowed | &denied, tools().into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn a_deny_in_any_scope_denies(
        scopes in all_scopes(), select_policy in policy_selectors(), list in entries(),
    ) {
        let mut denied = scopes;
        select_policy(&mut denied).deny.clone_from(&list);
        prop_assert!(allowed_tools(&denied).is_disjoint(&matched_tools(&list)));
    }

    #[test]
    fn an_allowlist_allows_only_its_tools(
        scopes in all_scopes(), select_policy in policy_selectors(), list in entries(),
    ) {
        let mut listed = scopes;
        // Includes a built-in tool, because a list of plugins only may be ignored.
        let list = [list, strings("read")].concat();
        let policy = select_policy(&mut listed);
        (policy.allow, policy.also_allow) = (list.clone(), Vec::new());
        prop_assert!(allowed_tools(&listed).is_subset(&admitted(&list)));
    }

    #[test]
    fn another_list_never_allows_more(
        scopes in all_scopes(), select_policy in policy_selectors(), allow in entries(), deny in entries(),
    ) {
        let mut without = scopes;
        let policy = select_policy(&mut without);
        policy.allow.clear();
        policy.deny.clear();
        let mut with = without.clone();
        let policy = select_policy(&mut with);
        (policy.allow, policy.deny) = (allow, deny);
        prop_assert!(allowed_tools(&with).is_subset(&allowed_tools(&without)));
    }

    #[test]
    fn sandboxes_and_sub_agents_never_allow_more(scopes in all_scopes()) {
        let free = PolicyScopes { sandbox: None, subagent: None, ..scopes.clone() };
        prop_assert!(allowed_tools(&scopes).is_subset(&allowed_tools(&free)));
    }

    #[test]
    fn also_allow_adds_only_its_tools(
        scopes in all_scopes(), select_policy in policy_selectors(), list in entries(),
    ) {
        let mut without = scopes;
        select_policy(&mut without).also_allow.clear();
        let mut with = without.clone();
        select_policy(&mut with).also_allow.clone_from(&list);
        prop_assert!(allowed_tools(&with).is_subset(&(&allowed_tools(&without) | &admitted(&list))));
    }

    #[test]
    fn non_owners_never_have_more_than_the_owner(scopes in all_scopes()) {
        let allowed_as = |sender| allowed_tools(&PolicyScopes { sender, ..scopes.clone() });
        let [owner, operator, other] = [SenderRole::Owner, SenderRole::Operator, SenderRole::Other].map(allowed_as);
        prop_assert!(other.is_subset(&owner) && operator.is_subset(&owner));
        for limited in [other, operator] {
            prop_assert!(limited.is_disjoint(&set("cron automations gateway nodes")));
        }
    }

    #[test]
    fn a_sub_agent_never_has_more_than_its_spawner(scopes in all_scopes(), child in all_scopes()) {
        let spawner = allowed_tools(&scopes);
        let subagent = Some(SubagentPolicy { spawner: spawner.clone(), ..child.subagent.clone().unwrap_or_default() });
        // Two names of one tool are one tool.
        let canonical =
            |tools: BTreeSet<String>| tools.iter().map(|tool| names::canonical(tool)).collect::<BTreeSet<_>>();
        let child = allowed_tools(&PolicyScopes { subagent, ..child });
        prop_assert!(canonical(child).is_subset(&canonical(spawner)));
    }

    #[test]
    fn the_order_of_lists_and_tools_does_not_matter(scopes in all_scopes()) {
        let mut reversed = scopes.clone();
        let policies =
            [&mut reversed.global, &mut reversed.by_provider, &mut reversed.agent, &mut reversed.agent_by_provider];
        let others =
            reversed.sandbox.iter_mut().chain(reversed.subagent.iter_mut().map(|subagent| &mut subagent.policy));
        for policy in policies.into_iter().chain([&mut reversed.group]).chain(others) {
            policy.allow.reverse();
            policy.also_allow.reverse();
            policy.deny.reverse();
        }
        let reversed_tools: Vec<_> = tools().into_iter().rev().collect();
        // Of two matching entries the first is reported, so only the scope is the same.
        let rules = |resolved: ResolvedTools| {
            let normalized = resolved.denied.into_iter().map(|(tool, rule)| match rule {
                DenyRule::Denied(scope, _) => (tool, DenyRule::Denied(scope, String::new())),
                DenyRule::OwnerOnly | DenyRule::AdminScope | DenyRule::NonOwner | DenyRule::Profile(..) | DenyRule::NotAllowed(_) => (tool, rule),
                DenyRule::Subagent | DenyRule::Leaf | DenyRule::Spawner => (tool, rule),
            });
            (resolved.allowed, normalized.collect::<BTreeMap<_, _>>())
        };
        prop_assert_eq!(rules(resolve(&scopes, &tools())), rules(resolve(&reversed, &reversed_tools)));
    }
}
