//! Tests of environment variables for commands, and of secrecy.

use std::collections::BTreeMap;

use homard_skills::{SkillEntry, environment};
use serde_json::json;

use crate::bench::{Bench, entry};

#[test]
fn variables_are_those_of_usable_skills_and_what_is_set_counts_first() {
    let mut bench = Bench::new();
    let set = [("SET", "ours"), ("B_TOKEN", "asked"), ("OTHER", "not asked")];
    bench.host.env = BTreeMap::from(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    bench.skill("a", "metadata: {openclaw: {primaryEnv: A_KEY}}");
    bench.skill("b", "metadata: {openclaw: {primaryEnv: TWICE, requires: {env: [B_TOKEN]}}}");
    bench.skill("c", "metadata: {openclaw: {primaryEnv: 'C=KEY'}}");
    bench.skill("lacking", "metadata: {openclaw: {primaryEnv: L_KEY, requires: {bins: [x]}}}");
    let key = |key: &str, env: &[(&str, &str)]| SkillEntry { api_key: Some(key.to_owned()), ..entry(env) };
    bench.rules.entries = [
        ("a", key("a-key", &[("SET", "no"), ("EMPTY", ""), ("TWICE", "first"), ("NUL", "\0")])),
        ("b", key("b-key", &[("TWICE", "second"), ("B", "b")])),
        ("c", key("c-key", &[])),
        ("lacking", key("l-key", &[("L", "l")])),
        ("absent", key("x-key", &[("X", "x")])),
    ]
    .map(|(name, entry)| (name.to_owned(), entry))
    .into();
    let told: Vec<_> = environment(&bench.book()).into_iter().collect();
    let expected = [("A_KEY", "a-key"), ("B", "b"), ("B_TOKEN", "asked"), ("SET", "ours"), ("TWICE", "first")];
    assert_eq!(told, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn no_secret_is_shown_for_debugging() {
    let mut bench = Bench::new();
    bench.skill("a", "");
    bench.host.config = json!({"channels": {"token": "secret-1"}});
    let entry = SkillEntry { api_key: Some("secret-2".to_owned()), ..entry(&[("NAME", "secret-3")]) };
    assert_eq!(format!("{entry:?}"), r#"SkillEntry { enabled: None, api_key: Some("…"), env: ["NAME"] }"#);
    bench.rules.entries.insert("a".to_owned(), entry);
    let shown = format!("{:?}", bench.book());
    assert!(!shown.contains("secret"), "{shown}");
}
