//! Tests of the tool policy and its reasons.

use super::*;

mod laws;

/// The tools of OpenClaw 2026.2.9, and ours.
const TOOLS: &[&str] = &[
    "read",
    "edit",
    "write",
    "apply_patch",
    "ls",
    "find",
    "grep",
    "exec",
    "process",
    "browser",
    "canvas",
    "nodes",
    "cron",
    "message",
    "tts",
    "gateway",
    "agents_list",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "session_status",
    "subagents",
    "web_search",
    "web_fetch",
    "image",
    "memory_search",
    "memory_get",
];

/// Tools that only OpenClaw 2026.9.6 has.
const NEWER: &str = "agents_wait ask_user automations computer conversations_list conversations_send conversations_turn \
    create_goal dashboard dir_fetch dir_list file_fetch file_write get_goal intent mobile_ui node_inference openclaw \
    pdf plugins portal progress_card secrets sessions sessions_search sessions_yield skill_workshop talk_voice terminal \
    theme transcripts update_goal view_image";

fn strings(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn set(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn allow(text: &str) -> ToolPolicy {
    ToolPolicy { allow: strings(text), ..ToolPolicy::default() }
}

fn also(text: &str) -> ToolPolicy {
    ToolPolicy { also_allow: strings(text), ..ToolPolicy::default() }
}

fn deny(text: &str) -> ToolPolicy {
    ToolPolicy { deny: strings(text), ..ToolPolicy::default() }
}

fn profile(profile: ToolProfile) -> ToolPolicy {
    ToolPolicy { profile: Some(profile), ..ToolPolicy::default() }
}

fn owner() -> PolicyScopes {
    PolicyScopes { sender: SenderRole::Owner, ..PolicyScopes::default() }
}

fn globally(policy: ToolPolicy) -> PolicyScopes {
    PolicyScopes { global: policy, ..owner() }
}

fn with_weather(scopes: PolicyScopes) -> PolicyScopes {
    PolicyScopes { plugins: BTreeMap::from([("weather".to_owned(), strings("forecast weather__Now"))]), ..scopes }
}

fn subagent(depth: u32, max_depth: u32) -> SubagentPolicy {
    SubagentPolicy {
        depth,
        max_depth,
        policy: ToolPolicy::default(),
        spawner: TOOLS.iter().copied().map(str::to_owned).collect(),
    }
}

fn allowed(scopes: &PolicyScopes) -> BTreeSet<String> {
    resolve(scopes, TOOLS).allowed
}

fn denied_tools(scopes: &PolicyScopes) -> BTreeSet<String> {
    resolve(scopes, TOOLS).denied.into_keys().collect()
}

fn all() -> BTreeSet<String> {
    TOOLS.iter().copied().map(str::to_owned).collect()
}

fn problem(path: &str, text: &str) -> PolicyProblem {
    PolicyProblem { path: path.to_owned(), what: text.to_owned() }
}

#[test]
fn an_owner_without_policies_may_use_all_tools() {
    assert_eq!(resolve(&owner(), TOOLS), ResolvedTools { allowed: all(), ..ResolvedTools::default() });
}

#[test]
fn filters_apply_in_the_documented_order() {
    // Changes the scopes so that the rule no longer denies the tool, and the next rule in the order does.
    type LiftRule = fn(&mut PolicyScopes);
    let minimal = || ToolPolicy { deny: strings("cron"), ..profile(ToolProfile::Minimal) };
    let mut scopes = PolicyScopes {
        sender: SenderRole::Other,
        non_owner_allow: Vec::new(),
        global: minimal(),
        by_provider: minimal(),
        agent: minimal(),
        agent_by_provider: minimal(),
        group: minimal(),
        sandbox: Some(ToolPolicy { profile: Some(ToolProfile::Minimal), ..ToolPolicy::default() }),
        subagent: Some(SubagentPolicy { policy: minimal(), spawner: BTreeSet::new(), ..subagent(1, 1) }),
        plugins: BTreeMap::new(),
    };
    let cron = |scope| DenyRule::Denied(scope, "cron".to_owned());
    let by_profile = |scope| DenyRule::Profile(scope, ToolProfile::Minimal);
    let steps: &[(DenyRule, LiftRule)] = &[
        (DenyRule::OwnerOnly, |scopes| scopes.sender = SenderRole::Owner),
        (by_profile(PolicyScope::Agent), |scopes| scopes.agent.profile = None),
        (by_profile(PolicyScope::Global), |scopes| scopes.agent.profile = Some(ToolProfile::Full)),
        (by_profile(PolicyScope::AgentByProvider), |scopes| scopes.agent_by_provider.profile = None),
        (by_profile(PolicyScope::ByProvider), |scopes| scopes.by_provider.profile = None),
        (cron(PolicyScope::Global), |scopes| scopes.global = allow("read")),
        (DenyRule::NotAllowed(PolicyScope::Global), |scopes| scopes.global = ToolPolicy::default()),
        (cron(PolicyScope::ByProvider), |scopes| scopes.by_provider = ToolPolicy::default()),
        (cron(PolicyScope::Agent), |scopes| scopes.agent = ToolPolicy::default()),
        (cron(PolicyScope::AgentByProvider), |scopes| scopes.agent_by_provider = ToolPolicy::default()),
        (by_profile(PolicyScope::Group), |scopes| scopes.group.profile = None),
        (cron(PolicyScope::Group), |scopes| scopes.group = ToolPolicy::default()),
        (by_profile(PolicyScope::Sandbox), |scopes| scopes.sandbox = Some(ToolPolicy::default())),
        (cron(PolicyScope::Sandbox), |scopes| scopes.sandbox = None),
        (DenyRule::Subagent, |_| {}),
    ];
    for (rule, lift) in steps {
        assert_eq!(resolve(&scopes, &["cron"]).denied, BTreeMap::from([("cron".to_owned(), rule.clone())]));
        lift(&mut scopes);
    }
}

#[test]
fn subagent_filters_apply_last() {
    let rule_for = |subagent| {
        let scopes = PolicyScopes { subagent: Some(subagent), ..owner() };
        resolve(&scopes, &["sessions_spawn"]).denied.into_values().next()
    };
    let none = || SubagentPolicy { spawner: BTreeSet::new(), policy: deny("sessions_*"), ..subagent(1, 2) };
    assert_eq!(rule_for(SubagentPolicy { max_depth: 1, ..none() }), Some(DenyRule::Leaf));
    assert_eq!(rule_for(none()), Some(DenyRule::Denied(PolicyScope::Subagent, "sessions_*".to_owned())));
    assert_eq!(
        rule_for(SubagentPolicy { policy: allow("read"), ..none() }),
        Some(DenyRule::NotAllowed(PolicyScope::Subagent))
    );
    assert_eq!(rule_for(SubagentPolicy { policy: ToolPolicy::default(), ..none() }), Some(DenyRule::Spawner));
    assert_eq!(rule_for(subagent(1, 2)), None);
}

#[test]
fn profiles_have_the_tools_of_the_spec() {
    let coding = "read write edit apply_patch ls find grep exec process sessions_list sessions_history sessions_send \
        sessions_spawn session_status subagents memory_search memory_get image";
    let messaging = "message sessions_list sessions_history sessions_send session_status";
    assert_eq!(allowed(&globally(profile(ToolProfile::Minimal))), set("session_status"));
    assert_eq!(allowed(&globally(profile(ToolProfile::Coding))), set(coding));
    assert_eq!(allowed(&globally(profile(ToolProfile::Messaging))), set(messaging));
    assert_eq!(allowed(&globally(profile(ToolProfile::Full))), all());
}

#[test]
fn profile_names_round_trip() {
    for profile in [ToolProfile::Minimal, ToolProfile::Coding, ToolProfile::Messaging, ToolProfile::Full] {
        assert_eq!(ToolProfile::parse(&format!(" {} ", profile.name())), Some(profile));
    }
    assert_eq!(ToolProfile::parse("everything"), None);
}

#[test]
fn groups_contain_the_tools_of_the_spec() {
    let native = "browser canvas nodes cron message gateway agents_list sessions_list sessions_history sessions_send \
        sessions_spawn session_status subagents memory_search memory_get web_search web_fetch image tts";
    let groups = [
        ("group:fs", "read write edit apply_patch ls find grep"),
        ("group:runtime", "exec process"),
        ("group:web", "web_search web_fetch"),
        ("group:memory", "memory_search memory_get"),
        ("group:sessions", "sessions_list sessions_history sessions_send sessions_spawn session_status subagents"),
        ("group:ui", "browser canvas"),
        ("group:automation", "cron gateway"),
        ("group:messaging", "message"),
        ("group:nodes", "nodes"),
        ("group:agents", "agents_list"),
        ("group:media", "image tts"),
        ("group:openclaw", native),
        ("group:moltbot", native),
        (" Group:FS ", "read write edit apply_patch ls find grep"),
    ];
    for (group, tools) in groups {
        let scopes = globally(ToolPolicy { deny: vec![group.to_owned()], ..ToolPolicy::default() });
        assert_eq!(denied_tools(&scopes), set(tools), "{group}");
        assert!(is_known(group), "{group}");
    }
}

#[test]
fn the_tools_of_both_generations_are_known() {
    let names = TOOLS.iter().copied().chain(NEWER.split_whitespace());
    assert_eq!(names.filter(|name| !is_known(name)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn tools_match_by_alias_and_canonical_name() {
    let cases = [
        ("bash", "exec"),
        ("apply-patch", "apply_patch"),
        ("cron", "automations"),
        ("automations", "cron"),
        ("auto*", "automations"),
        ("group:automation", "automations"),
        ("view_image", "image"),
        ("image", "view_image"),
        (" EXEC ", "exec"),
        ("exec", "Exec"),
    ];
    for (entry, tool) in cases {
        let scopes = globally(ToolPolicy { deny: vec![entry.to_owned()], ..ToolPolicy::default() });
        let denied =
            BTreeMap::from([(tool.to_owned(), DenyRule::Denied(PolicyScope::Global, entry.trim().to_owned()))]);
        assert_eq!(resolve(&scopes, &[tool]), ResolvedTools { denied, ..ResolvedTools::default() }, "{entry} {tool}");
    }
}

#[test]
fn a_star_matches_anything() {
    assert_eq!(denied_tools(&globally(deny("*"))), all());
    let twice_s = "process message agents_list sessions_list sessions_history sessions_send sessions_spawn \
        session_status subagents";
    let cases = [
        ("web_*", "web_search web_fetch"),
        ("*_search", "web_search memory_search"),
        ("*s*s*", twice_s),
        ("s*_s*", "sessions_send sessions_spawn session_status"),
        ("read*", "read"),
        ("exec*exec", ""),
        ("web_searc", ""),
        ("eb_search", ""),
        ("web?search", ""),
        ("", ""),
    ];
    for (pattern, tools) in cases {
        let scopes = globally(ToolPolicy { deny: vec![pattern.to_owned()], ..ToolPolicy::default() });
        assert_eq!(denied_tools(&scopes), set(tools), "{pattern}");
    }
}

#[test]
fn allowing_exec_allows_apply_patch_unless_denied() {
    assert_eq!(allowed(&globally(allow("exec"))), set("exec apply_patch"));
    assert_eq!(allowed(&globally(allow("bash"))), set("exec apply_patch"));
    assert_eq!(allowed(&globally(ToolPolicy { deny: strings("apply_patch"), ..allow("exec") })), set("exec"));
    assert_eq!(allowed(&globally(allow("apply_patch"))), set("apply_patch"));
    let child = SubagentPolicy { spawner: set("exec"), ..subagent(1, 1) };
    assert_eq!(allowed(&PolicyScopes { subagent: Some(child), ..owner() }), set("exec"));
}

#[test]
fn also_allow_extends_the_profile_only() {
    let minimal = ToolPolicy { also_allow: strings("web_*"), ..profile(ToolProfile::Minimal) };
    let in_global = globally(minimal.clone());
    assert_eq!(allowed(&in_global), set("session_status web_search web_fetch"));

    // The more specific list replaces the general one.
    let specific = PolicyScopes { agent: also("read"), ..in_global.clone() };
    assert_eq!(allowed(&specific), set("session_status read"));

    // Without a profile all tools are allowed, so there is nothing to add.
    assert_eq!(allowed(&globally(also("read"))), all());

    // It neither extends the `allow` of another scope nor allows a denied tool.
    let closed = PolicyScopes { global: allow("read"), agent: also("exec"), ..owner() };
    assert_eq!(allowed(&closed), set("read"));
    let denied = PolicyScopes { agent: deny("web_fetch"), ..in_global };
    assert_eq!(allowed(&denied), set("session_status web_search"));

    // The `alsoAllow` of a provider extends the provider's profile only.
    let provider = PolicyScopes { global: profile(ToolProfile::Minimal), by_provider: minimal, ..owner() };
    assert_eq!(allowed(&provider), set("session_status"));
}

#[test]
fn the_agent_profile_replaces_the_global_one() {
    let scopes =
        PolicyScopes { global: profile(ToolProfile::Minimal), agent: profile(ToolProfile::Messaging), ..owner() };
    assert_eq!(allowed(&scopes), set("message sessions_list sessions_history sessions_send session_status"));
    let scopes = PolicyScopes { by_provider: profile(ToolProfile::Minimal), ..scopes };
    assert_eq!(allowed(&scopes), set("session_status"));
}

#[test]
fn unknown_names_in_an_allowlist_allow_nothing() {
    let resolved = resolve(&globally(allow("exce")), &["exec", "read"]);
    let denied = ["exec", "read"].map(|tool| (tool.to_owned(), DenyRule::NotAllowed(PolicyScope::Global))).into();
    assert_eq!(resolved, ResolvedTools { allowed: BTreeSet::new(), denied });
    assert_eq!(allowed(&globally(allow("read reed"))), set("read"));
}

#[test]
fn known_names_without_plugins() {
    let known_names = ["read", " Bash ", "apply-patch", "group:fs", "GROUP:plugins", "group:moltbot", "portal"];
    assert_eq!(known_names.map(is_known), [true; 7]);
    assert_eq!(["exce", "group:all", "group:", "", "weather__now", "read*"].map(is_known), [false; 6]);
    let names: BTreeSet<_> = known().collect();
    assert_eq!(names.len(), known().count(), "twice the same");
}

#[test]
fn a_blank_allowlist_allows_nothing() {
    let blank = ToolPolicy { allow: vec![" ".to_owned()], ..ToolPolicy::default() };
    assert_eq!(allowed(&globally(blank)), BTreeSet::new());
}

#[test]
fn plugin_tools_match_by_id_by_name_and_by_group() {
    let tools = ["read", "forecast", "weather__Now"];
    let assert_denied = |entry, expected| {
        let denied: BTreeSet<_> = resolve(&with_weather(globally(deny(entry))), &tools).denied.into_keys().collect();
        assert_eq!(denied, set(expected), "{entry}");
    };
    assert_denied("weather", "forecast weather__Now");
    assert_denied("group:plugins", "forecast weather__Now");
    assert_denied("weather__now", "weather__Now");
    assert_denied("weather__*", "weather__Now");
    assert_denied("group:openclaw", "");
}

#[test]
fn a_global_allowlist_of_plugin_tools_only_is_ignored() {
    let tools = ["read", "forecast"];
    let only_plugins = || with_weather(globally(allow("weather forecast group:plugins")));
    let resolved = resolve(&only_plugins(), &tools);
    assert_eq!(resolved, ResolvedTools { allowed: set("read forecast"), ..ResolvedTools::default() });

    // A list with an unknown name is applied, because the name may be a misspelled built-in tool.
    let mixed = with_weather(globally(allow("forecast reed")));
    assert_eq!(resolve(&mixed, &tools).allowed, set("forecast"));
    // Without plugins, `group:plugins` is an unknown name, and the list is applied.
    assert_eq!(resolve(&globally(allow("group:plugins")), &tools).allowed, BTreeSet::new());
    // In the scopes of groups, sandboxes and sub-agents, a list of plugin tools only is applied.
    let group = with_weather(PolicyScopes { group: allow("forecast"), ..owner() });
    assert_eq!(resolve(&group, &tools).allowed, set("forecast"));
    let sandbox = with_weather(PolicyScopes { sandbox: Some(allow("forecast")), ..owner() });
    assert_eq!(resolve(&sandbox, &tools).allowed, set("forecast"));
    let child = SubagentPolicy { policy: allow("forecast"), spawner: set("read forecast"), ..subagent(1, 1) };
    let subagent = with_weather(PolicyScopes { subagent: Some(child), ..owner() });
    assert_eq!(resolve(&subagent, &tools).allowed, set("forecast"));
}

#[test]
fn plugin_names_cannot_grant_other_tools() {
    let hostile = BTreeMap::from([
        ("read".to_owned(), strings("steal exec")),
        ("group:web".to_owned(), strings("*")),
        ("WEB".to_owned(), strings("group:fs")),
        ("web".to_owned(), strings("w*")),
    ]);
    let tools = ["read", "exec", "steal", "*", "group:fs", "w*", "web_search"];
    let allowed_with = |policy| resolve(&PolicyScopes { plugins: hostile.clone(), ..globally(policy) }, &tools).allowed;
    assert_eq!(allowed_with(allow("read group:web")), set("read web_search"));
    assert_eq!(allowed_with(allow("ls group:plugins")), set("steal * group:fs w*"));
    assert_eq!(allowed_with(deny("exec group:plugins")), set("read web_search"));
    assert_eq!(allowed_with(allow("ls web")), set("group:fs w*"));
}

#[test]
fn non_owners_have_no_tools_for_files_memory_commands_and_the_gateway() {
    let resolved = resolve(&PolicyScopes::default(), TOOLS);
    let non_owner = |tool: &str| (tool.to_owned(), DenyRule::NonOwner);
    let owner_only = |tool: &str| (tool.to_owned(), DenyRule::OwnerOnly);
    let expected = BTreeMap::from([
        non_owner("exec"),
        non_owner("process"),
        non_owner("write"),
        non_owner("edit"),
        non_owner("apply_patch"),
        non_owner("read"),
        non_owner("ls"),
        non_owner("find"),
        non_owner("grep"),
        non_owner("image"),
        non_owner("memory_search"),
        non_owner("memory_get"),
        non_owner("browser"),
        non_owner("canvas"),
        owner_only("cron"),
        owner_only("gateway"),
        owner_only("nodes"),
    ]);
    assert_eq!(resolved.denied, expected);

    // An unknown tool may do anything.
    let unknown = resolve(&with_weather(PolicyScopes::default()), &["forecast", "mystery"]);
    assert_eq!(unknown.denied, BTreeMap::from([non_owner("forecast"), non_owner("mystery")]));
}

#[test]
fn a_group_grants_tools_to_non_owners_but_not_owner_only_ones() {
    let tools = ["exec", "forecast", "cron", "automations", "secrets"];
    let in_group = |group| resolve(&with_weather(PolicyScopes { group, ..PolicyScopes::default() }), &tools).allowed;
    assert_eq!(in_group(also("exec forecast cron automations secrets")), set("exec forecast"));
    assert_eq!(in_group(also("*")), set("exec forecast"));
    assert_eq!(in_group(allow("*")), BTreeSet::new());
    assert_eq!(in_group(ToolPolicy { deny: strings("exec"), ..also("*") }), set("forecast"));

    // Only groups grant tools: a profile for all says nothing about the sender.
    let granting_policy = ToolPolicy { also_allow: strings("*"), ..profile(ToolProfile::Coding) };
    let scopes = PolicyScopes { global: granting_policy.clone(), agent: granting_policy, ..PolicyScopes::default() };
    assert_eq!(resolve(&scopes, &tools).allowed, BTreeSet::new());
}

#[test]
fn an_agent_grants_tools_to_non_owners_but_not_owner_only_ones() {
    let granting = |list: &str| PolicyScopes { non_owner_allow: strings(list), ..PolicyScopes::default() };
    let plain = allowed(&PolicyScopes::default());
    let granted = |list: &str| &allowed(&granting(list)) - &plain;
    assert_eq!(granted("read group:memory"), set("read memory_search memory_get"));
    assert_eq!(granted("cron gateway nodes"), BTreeSet::new());
    assert_eq!(&granted("*") & &set("cron gateway nodes"), BTreeSet::new());
    let denied = PolicyScopes { agent: deny("read"), ..granting("group:fs") };
    assert!(!allowed(&denied).contains("read"), "a grant does not overrule a deny");
    assert_eq!(
        allowed(&PolicyScopes { sender: SenderRole::Owner, ..granting("read") }),
        all(),
        "the owner is not concerned"
    );
}

#[test]
fn sub_agents_have_fewer_tools_and_leaves_the_fewest() {
    let never = "gateway agents_list session_status cron sessions_send memory_search memory_get";
    let leaf = "sessions_list sessions_history sessions_spawn subagents";
    let denied_at =
        |depth, max_depth| denied_tools(&PolicyScopes { subagent: Some(subagent(depth, max_depth)), ..owner() });
    let deepest = &set(never) | &set(leaf);
    assert_eq!(denied_at(1, 2), set(never));
    assert_eq!(denied_at(2, 2), deepest);
    assert_eq!(denied_at(3, 2), deepest);
    assert_eq!(denied_at(1, 1), deepest);
    assert_eq!(denied_at(1, 0), deepest);
}

#[test]
fn a_subagent_list_cannot_allow_denied_tools() {
    let child = |policy| PolicyScopes { subagent: Some(SubagentPolicy { policy, ..subagent(1, 1) }), ..owner() };
    assert_eq!(allowed(&child(allow("read cron sessions_spawn"))), set("read"));
    assert_eq!(allowed(&child(ToolPolicy { deny: strings("read"), ..allow("read grep") })), set("grep"));
    assert_eq!(allowed(&child(also("cron"))), allowed(&child(ToolPolicy::default())));
}

#[test]
fn a_sub_agent_has_no_tool_that_its_spawner_lacks() {
    let child = SubagentPolicy { spawner: set("read bash automations"), ..subagent(1, 1) };
    let resolved = resolve(&PolicyScopes { subagent: Some(child), ..owner() }, &["read", "exec", "write"]);
    let denied = BTreeMap::from([("write".to_owned(), DenyRule::Spawner)]);
    assert_eq!(resolved, ResolvedTools { allowed: set("read exec"), denied });
}

#[test]
fn a_sandbox_has_default_lists_unless_configured() {
    let sandboxed = |policy| PolicyScopes { sandbox: Some(policy), ..owner() };
    let defaults = "exec process read write edit apply_patch ls find grep image sessions_list sessions_history \
        sessions_send sessions_spawn session_status subagents";
    assert_eq!(allowed(&sandboxed(ToolPolicy::default())), set(defaults));
    assert_eq!(allowed(&sandboxed(allow("browser read"))), set("read"));
    assert_eq!(allowed(&sandboxed(ToolPolicy { deny: strings("exec"), ..allow("browser read") })), set("browser read"));
    assert_eq!(allowed(&sandboxed(also("web_*"))), &set(defaults) | &set("web_search web_fetch"));
}

#[test]
fn a_model_policy_overrides_its_provider_policy() {
    let names = ["OpenAI", "openai/gpt-5", "anthropic/claude", "router/anthropic/opus"];
    let policies: BTreeMap<_, _> = names.map(|name| (name.to_owned(), deny(name))).into();
    let found = |provider, model| by_model(&policies, provider, model).map(|policy| policy.deny.join(" "));
    assert_eq!(found("openai", "GPT-5").as_deref(), Some("openai/gpt-5"));
    assert_eq!(found("openai", "gpt-4").as_deref(), Some("OpenAI"));
    assert_eq!(found("router", "anthropic/opus").as_deref(), Some("router/anthropic/opus"));
    assert_eq!(found("router", "anthropic/claude").as_deref(), Some("anthropic/claude"));
    assert_eq!(found("anthropic", "opus"), None);
}

#[test]
fn allow_and_also_allow_in_one_scope_are_a_problem() {
    let both = ToolPolicy { also_allow: strings("exec"), ..allow("read") };
    let text = "cannot be combined with allow; add its tools to allow, or use a profile with alsoAllow";
    assert_eq!(both.check("agents.list[1].tools"), Some(problem("agents.list[1].tools.alsoAllow", text)));
    assert_eq!(allow("read").check("tools"), None);
    assert_eq!(also("read").check("tools"), None);
    // If it is used regardless, both lists apply.
    assert_eq!(allowed(&globally(both)), set("read exec apply_patch"));
}

#[test]
fn every_rule_names_its_setting() {
    let rules = [
        DenyRule::OwnerOnly,
        DenyRule::NonOwner,
        DenyRule::Profile(PolicyScope::Agent, ToolProfile::Minimal),
        DenyRule::Denied(PolicyScope::Global, "group:fs".to_owned()),
        DenyRule::Denied(PolicyScope::Sandbox, "browser".to_owned()),
        DenyRule::NotAllowed(PolicyScope::ByProvider),
        DenyRule::NotAllowed(PolicyScope::Subagent),
        DenyRule::Subagent,
        DenyRule::Leaf,
        DenyRule::Spawner,
    ];
    let expected = [
        "only the owner may use it",
        "only the owner may use it, unless agents.list[].tools.nonOwnerAllow names it",
        "agents.list[].tools.profile is minimal, which does not include it; add it to alsoAllow next to the profile",
        "tools.deny names group:fs",
        "it is not allowed in the sandbox; see tools.sandbox.tools",
        "tools.byProvider.*.allow does not name it",
        "tools.subagents.tools.allow does not name it",
        "sub-agents may not use it",
        "only sub-agents that can start others may use it; see agents.defaults.subagents.maxSpawnDepth",
        "the session that started this sub-agent may not use it",
    ];
    assert_eq!(rules.map(|rule| rule.to_string()), expected);
}
