//! Tests of environment variables for commands, and of secrecy.

use std::collections::BTreeMap;

use homard_workspace::skills::{SkillEntry, environment};
use serde_json::json;

use crate::skills::fixture::{Fixture, entry};

#[test]
fn variables_of_usable_skills_are_set_and_the_environment_takes_precedence() {
    let mut fixture = Fixture::new();
    let set = [("SET", "ours"), ("B_TOKEN", "asked"), ("OTHER", "not asked")];
    fixture.host.env = BTreeMap::from(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    fixture.skill("a", "metadata: {openclaw: {primaryEnv: A_KEY}}");
    fixture.skill("b", "metadata: {openclaw: {primaryEnv: TWICE, requires: {env: [B_TOKEN]}}}");
    fixture.skill("c", "metadata: {openclaw: {primaryEnv: 'C=KEY'}}");
    fixture.skill("lacking", "metadata: {openclaw: {primaryEnv: L_KEY, requires: {bins: [x]}}}");
    let key = |key: &str, env: &[(&str, &str)]| SkillEntry { api_key: Some(key.to_owned()), ..entry(env) };
    fixture.rules.entries = [
        ("a", key("a-key", &[("SET", "no"), ("EMPTY", ""), ("TWICE", "first"), ("NUL", "\0")])),
        ("b", key("b-key", &[("TWICE", "second"), ("B", "b")])),
        ("c", key("c-key", &[])),
        ("lacking", key("l-key", &[("L", "l")])),
        ("absent", key("x-key", &[("X", "x")])),
    ]
    .map(|(name, entry)| (name.to_owned(), entry))
    .into();
    let variables: Vec<_> = environment(&fixture.skill_set()).into_iter().collect();
    let expected = [("A_KEY", "a-key"), ("B", "b"), ("B_TOKEN", "asked"), ("SET", "ours"), ("TWICE", "first")];
    assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn debug_output_omits_secrets() {
    let mut fixture = Fixture::new();
    fixture.skill("a", "");
    fixture.host.config = json!({"channels": {"token": "secret-1"}});
    let entry = SkillEntry { api_key: Some("secret-2".to_owned()), ..entry(&[("NAME", "secret-3")]) };
    assert_eq!(format!("{entry:?}"), r#"SkillEntry { enabled: None, api_key: Some("…"), env: ["NAME"] }"#);
    fixture.rules.entries.insert("a".to_owned(), entry);
    let debug = format!("{:?}", fixture.skill_set());
    assert!(!debug.contains("secret"), "{debug}");
}
