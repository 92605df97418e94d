//! Allowed dependencies between crates. The table is the rule; ARCHITECTURE.md explains it.

use serde_json::Value;

/// What a crate may depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum AllowedDependencies {
    /// These, also in tests.
    Use(&'static [&'static str]),
    /// These; tests may use any crate.
    UseAndTestWithAny(&'static [&'static str]),
    /// Any crate.
    UseAny,
}

/// What every crate may depend on.
const EVERYWHERE: &str = "homard-stdx";

const ALLOWED: &[(&str, AllowedDependencies)] = &[
    ("homard-stdx", AllowedDependencies::Use(&[])),
    ("homard-egress", AllowedDependencies::Use(&[])),
    ("homard-sandbox", AllowedDependencies::Use(&[])),
    ("homard-service", AllowedDependencies::Use(&[])),
    ("homard-proto", AllowedDependencies::Use(&[])),
    ("homard-model", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-store", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-audit", AllowedDependencies::Use(&[])),
    ("homard-journal", AllowedDependencies::Use(&["homard-proto", "homard-store"])),
    ("homard-providers", AllowedDependencies::Use(&["homard-proto", "homard-model"])),
    ("homard-config", AllowedDependencies::Use(&[])),
    ("homard-workspace", AllowedDependencies::Use(&[])),
    ("homard-memory", AllowedDependencies::Use(&[])),
    ("homard-media", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-hooks", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-compact", AllowedDependencies::Use(&["homard-proto", "homard-model"])),
    ("homard-reply", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-channels", AllowedDependencies::UseAndTestWithAny(&["homard-proto"])),
    ("homard-chat", AllowedDependencies::Use(&[])),
    ("homard-runtime", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-policy", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-approvals", AllowedDependencies::Use(&["homard-proto", "homard-store", "homard-audit", "homard-runtime"])),
    ("homard-queue", AllowedDependencies::Use(&["homard-proto", "homard-policy"])),
    ("homard-command", AllowedDependencies::Use(&["homard-proto", "homard-approvals", "homard-queue"])),
    ("homard-secrets", AllowedDependencies::Use(&["homard-proto"])),
    ("homard-request-log", AllowedDependencies::Use(&[])),
    (
        "homard-prompt",
        AllowedDependencies::Use(&[
            "homard-proto",
            "homard-model",
            "homard-store",
            "homard-workspace",
            "homard-reply",
            "homard-command",
            "homard-secrets",
        ]),
    ),
    (
        "homard-events",
        AllowedDependencies::Use(&[
            "homard-proto",
            "homard-model",
            "homard-store",
            "homard-hooks",
            "homard-compact",
            "homard-reply",
            "homard-runtime",
            "homard-queue",
            "homard-command",
            "homard-secrets",
        ]),
    ),
    ("homard-budget", AllowedDependencies::Use(&["homard-proto", "homard-model", "homard-store", "homard-runtime"])),
    ("homard-delivery", AllowedDependencies::Use(&["homard-proto", "homard-store", "homard-reply"])),
    (
        "homard-agent",
        AllowedDependencies::Use(&[
            "homard-delivery",
            "homard-events",
            "homard-budget",
            "homard-proto",
            "homard-model",
            "homard-store",
            "homard-audit",
            "homard-workspace",
            "homard-media",
            "homard-hooks",
            "homard-compact",
            "homard-reply",
            "homard-runtime",
            "homard-policy",
            "homard-approvals",
            "homard-queue",
            "homard-command",
            "homard-prompt",
            "homard-request-log",
            "homard-secrets",
        ]),
    ),
    (
        "homard-schedule",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-proto",
            "homard-store",
            "homard-reply",
            "homard-runtime",
            "homard-queue",
            "homard-command",
            "homard-prompt",
            "homard-agent",
        ]),
    ),
    (
        "homard-tools",
        AllowedDependencies::Use(&[
            "homard-proto",
            "homard-egress",
            "homard-sandbox",
            "homard-audit",
            "homard-secrets",
            "homard-workspace",
            "homard-memory",
            "homard-media",
            "homard-reply",
            "homard-runtime",
            "homard-approvals",
            "homard-command",
            "homard-agent",
        ]),
    ),
    (
        "homard-plugins",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-proto",
            "homard-workspace",
            "homard-hooks",
            "homard-runtime",
            "homard-agent",
        ]),
    ),
    (
        "homard-gateway",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-proto",
            "homard-audit",
            "homard-runtime",
            "homard-queue",
            "homard-command",
            "homard-workspace",
            "homard-prompt",
            "homard-agent",
            "homard-request-log",
            "homard-schedule",
        ]),
    ),
    (
        "homard-settings",
        AllowedDependencies::Use(&[
            "homard-agent",
            "homard-audit",
            "homard-channels",
            "homard-command",
            "homard-compact",
            "homard-config",
            "homard-gateway",
            "homard-hooks",
            "homard-model",
            "homard-plugins",
            "homard-policy",
            "homard-proto",
            "homard-providers",
            "homard-queue",
            "homard-reply",
            "homard-runtime",
            "homard-sandbox",
            "homard-schedule",
            "homard-tools",
            "homard-workspace",
        ]),
    ),
    (
        "homard-credentials",
        AllowedDependencies::Use(&[
            "homard-gateway",
            "homard-model",
            "homard-proto",
            "homard-providers",
            "homard-runtime",
            "homard-settings",
        ]),
    ),
    (
        "homard-client",
        AllowedDependencies::Use(&[
            "homard-config",
            "homard-credentials",
            "homard-gateway",
            "homard-journal",
            "homard-proto",
            "homard-settings",
        ]),
    ),
    (
        "homard-chat-link",
        AllowedDependencies::Use(&[
            "homard-chat",
            "homard-client",
            "homard-journal",
            "homard-proto",
            "homard-runtime",
            "homard-settings",
        ]),
    ),
    ("homard-channel-host", AllowedDependencies::Use(&["homard-channels", "homard-plugins", "homard-runtime"])),
    (
        "homard-channel-runtime",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-agent",
            "homard-audit",
            "homard-channel-host",
            "homard-channels",
            "homard-command",
            "homard-config",
            "homard-delivery",
            "homard-egress",
            "homard-gateway",
            "homard-media",
            "homard-policy",
            "homard-proto",
            "homard-queue",
            "homard-reply",
            "homard-runtime",
            "homard-settings",
            "homard-store",
            "homard-tools",
        ]),
    ),
    (
        "homard-app",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-agent",
            "homard-approvals",
            "homard-audit",
            "homard-channel-runtime",
            "homard-channels",
            "homard-command",
            "homard-compact",
            "homard-config",
            "homard-credentials",
            "homard-delivery",
            "homard-egress",
            "homard-gateway",
            "homard-hooks",
            "homard-journal",
            "homard-media",
            "homard-model",
            "homard-plugins",
            "homard-policy",
            "homard-prompt",
            "homard-proto",
            "homard-providers",
            "homard-queue",
            "homard-request-log",
            "homard-runtime",
            "homard-schedule",
            "homard-secrets",
            "homard-sandbox",
            "homard-service",
            "homard-settings",
            "homard-store",
            "homard-tools",
            "homard-workspace",
        ]),
    ),
    (
        "homard-render",
        AllowedDependencies::Use(&[
            "homard-agent",
            "homard-config",
            "homard-model",
            "homard-plugins",
            "homard-prompt",
            "homard-proto",
            "homard-runtime",
            "homard-settings",
            "homard-store",
            "homard-workspace",
        ]),
    ),
    (
        "homard-logging",
        AllowedDependencies::UseAndTestWithAny(&["homard-app", "homard-gateway", "homard-runtime", "homard-settings"]),
    ),
    (
        "homard-transcripts",
        AllowedDependencies::Use(&[
            "homard-agent",
            "homard-client",
            "homard-config",
            "homard-gateway",
            "homard-journal",
            "homard-proto",
            "homard-render",
            "homard-runtime",
            "homard-secrets",
            "homard-store",
        ]),
    ),
    (
        "homard-backup",
        AllowedDependencies::Use(&["homard-journal", "homard-runtime", "homard-service", "homard-store"]),
    ),
    (
        "homard-doctor",
        AllowedDependencies::Use(&[
            "homard-app",
            "homard-audit",
            "homard-channel-host",
            "homard-client",
            "homard-config",
            "homard-gateway",
            "homard-journal",
            "homard-plugins",
            "homard-prompt",
            "homard-proto",
            "homard-render",
            "homard-runtime",
            "homard-sandbox",
            "homard-settings",
            "homard-setup",
            "homard-store",
        ]),
    ),
    (
        "homard-import",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-approvals",
            "homard-credentials",
            "homard-journal",
            "homard-proto",
            "homard-runtime",
            "homard-schedule",
            "homard-settings",
            "homard-store",
            "homard-workspace",
        ]),
    ),
    (
        "homard-setup",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-app",
            "homard-channels",
            "homard-config",
            "homard-credentials",
            "homard-model",
            "homard-proto",
            "homard-providers",
            "homard-runtime",
            "homard-settings",
            "homard-store",
        ]),
    ),
    (
        "homard-chaos",
        AllowedDependencies::Use(&["homard-client", "homard-credentials", "homard-runtime", "homard-settings"]),
    ),
    (
        "homard-testkit",
        AllowedDependencies::UseAndTestWithAny(&[
            "homard-proto",
            "homard-model",
            "homard-store",
            "homard-hooks",
            "homard-reply",
            "homard-runtime",
            "homard-queue",
            "homard-command",
            "homard-prompt",
            "homard-agent",
        ]),
    ),
    ("homard", AllowedDependencies::UseAny),
    ("homard-example-embed", AllowedDependencies::UseAny),
    ("homard-example-gateway", AllowedDependencies::UseAny),
    ("xtask", AllowedDependencies::Use(&[])),
];

/// Reports dependencies between our crates that the table does not allow.
pub(super) fn check(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            problems
                .push(format!("{name}: not in the table of crates; declare what it may use in tidy/dependencies.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let is_allowed = used == EVERYWHERE || allows(*allowed, used, dependency["kind"] == "dev");
            if ours.contains(&used) && !is_allowed {
                problems.push(format!(
                    "{name}: must not use {used}; the table in tidy/dependencies.rs does not declare it"
                ));
            }
        }
    }
    problems
}

fn allows(allowed: AllowedDependencies, used: &str, in_tests: bool) -> bool {
    match allowed {
        AllowedDependencies::Use(names) => names.contains(&used),
        AllowedDependencies::UseAndTestWithAny(names) => in_tests || names.contains(&used),
        AllowedDependencies::UseAny => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems_of(user: &str, used: &str, kind: Option<&str>) -> Vec<String> {
        check(&json!({"packages": [
            {"name": user, "dependencies": [{"name": "serde", "kind": null}, {"name": used, "kind": kind}]},
            {"name": "homard-proto", "dependencies": []},
            {"name": "homard-gateway", "dependencies": []},
        ]}))
    }

    #[test]
    fn only_declared_edges_pass() {
        let refused = |name: &str| {
            vec![format!("{name}: must not use homard-gateway; the table in tidy/dependencies.rs does not declare it")]
        };
        assert_eq!(problems_of("homard-agent", "homard-proto", None), Vec::<String>::new());
        assert_eq!(problems_of("homard-agent", "homard-gateway", None), refused("homard-agent"));
        assert_eq!(problems_of("homard-agent", "homard-gateway", Some("dev")), refused("homard-agent"));
        assert_eq!(problems_of("homard-testkit", "homard-gateway", None), refused("homard-testkit"));
        assert_eq!(problems_of("homard-testkit", "homard-gateway", Some("dev")), Vec::<String>::new());
        assert_eq!(problems_of("homard", "homard-gateway", None), Vec::<String>::new());
    }

    #[test]
    fn a_crate_outside_the_table_is_reported() {
        assert_eq!(
            problems_of("homard-annex", "homard-proto", None),
            ["homard-annex: not in the table of crates; declare what it may use in tidy/dependencies.rs"]
        );
    }
}
