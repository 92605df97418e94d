//! Tests of eligibility.

use std::{collections::BTreeMap, fs, path::PathBuf};

use homard_workspace::skills::{Eligibility, MissingRequirements, PromptLimits, SkillEntry, SkillRequirements, block};
use serde_json::json;

use crate::skills::fixture::{Fixture, entry, strings};

fn eligible() -> Eligibility {
    Eligibility { is_eligible: true, ..Eligibility::default() }
}

fn lacks(requires: SkillRequirements) -> Eligibility {
    Eligibility {
        missing: MissingRequirements { requires, ..MissingRequirements::default() },
        ..Eligibility::default()
    }
}

#[test]
fn a_program_is_an_executable_file_on_the_path() {
    let mut fixture = Fixture::new();
    fixture.program("there", 0o755);
    fixture.program("plain", 0o644);
    fs::create_dir(fixture.path("bin/folder")).unwrap();
    fixture.skill("s", "metadata: {openclaw: {requires: {bins: [there, plain, folder, absent, ../bin/there]}}}");
    let missing = SkillRequirements {
        bins: strings(&["plain", "folder", "absent", "../bin/there"]),
        ..SkillRequirements::default()
    };
    assert_eq!(fixture.verdict("s"), lacks(missing));

    fixture.host.path.insert(0, PathBuf::new());
    fixture.skill("s", "metadata: {openclaw: {requires: {bins: [there]}}}");
    assert_eq!(fixture.verdict("s"), eligible());
}

#[test]
fn one_of_any_bins_is_enough() {
    let fixture = Fixture::new();
    fixture.skill("s", "metadata: {openclaw: {requires: {anyBins: [a, b]}}}");
    assert_eq!(
        fixture.verdict("s"),
        lacks(SkillRequirements { any_bins: strings(&["a", "b"]), ..SkillRequirements::default() })
    );
    fixture.program("b", 0o755);
    assert_eq!(fixture.verdict("s"), eligible());
}

#[test]
fn a_variable_may_come_from_the_machine_the_entry_or_the_key() {
    let mut fixture = Fixture::new();
    fixture.skill("s", "metadata: {openclaw: {primaryEnv: KEY, requires: {env: [SET, GIVEN, EMPTY, KEY, NONE]}}}");
    fixture.host.env = BTreeMap::from([("SET".to_owned(), "x".to_owned())]);
    let given = entry(&[("GIVEN", "x"), ("EMPTY", "")]);
    fixture.rules.entries.insert("s".to_owned(), SkillEntry { api_key: Some("k".to_owned()), ..given });
    assert_eq!(
        fixture.verdict("s"),
        lacks(SkillRequirements { env: strings(&["EMPTY", "NONE"]), ..SkillRequirements::default() })
    );
}

#[test]
fn a_config_path_must_be_set() {
    let mut fixture = Fixture::new();
    let paths = "a.yes, a.no, a.null, a.zero, a.one, a.blank, a.text, a.list, a, a.gone, gone.too, \
                 browser.enabled, browser.evaluateEnabled";
    fixture.skill("s", &format!("metadata: {{openclaw: {{requires: {{config: \"{paths}\"}}}}}}"));
    fixture.host.config = json!({
        "a": {"yes": true, "no": false, "null": null, "zero": 0, "one": 1, "blank": " ", "text": "x", "list": []},
        "browser": {"enabled": false},
    });
    let missing = ["a.no", "a.null", "a.zero", "a.blank", "a.gone", "gone.too", "browser.enabled"];
    assert_eq!(
        fixture.verdict("s"),
        lacks(SkillRequirements { config: strings(&missing), ..SkillRequirements::default() })
    );
}

#[test]
fn always_overrides_all_requirements_except_the_os() {
    let fixture = Fixture::new();
    fixture.skill("here", "metadata: {openclaw: {always: true, os: [linux], requires: {bins: [x], env: [Y]}}}");
    fixture.skill("there", "metadata: {openclaw: {always: true, os: [darwin, win32], requires: {bins: [x]}}}");
    assert_eq!(fixture.verdict("here"), eligible());
    let missing = MissingRequirements { os: strings(&["darwin", "win32"]), ..MissingRequirements::default() };
    assert_eq!(fixture.verdict("there"), Eligibility { missing, ..Eligibility::default() });
}

#[test]
fn an_entry_disables_a_skill_by_its_key() {
    let mut fixture = Fixture::new();
    fixture.skill("off", "metadata: {openclaw: {skillKey: other, always: true}}");
    fixture.skill("other", "metadata: {openclaw: {skillKey: third}}");
    fixture.rules.entries.insert("other".to_owned(), SkillEntry { enabled: Some(false), ..SkillEntry::default() });
    assert_eq!(fixture.verdict("off"), Eligibility { is_disabled: true, ..Eligibility::default() });
    assert_eq!(fixture.verdict("other"), eligible());
}

#[test]
fn the_allowlist_applies_to_bundled_skills_only() {
    let mut fixture = Fixture::new();
    fixture.bundled("by-name", "");
    fixture.bundled("by-key", "metadata: {openclaw: {skillKey: key}}");
    fixture.bundled("neither", "metadata: {openclaw: {always: true}}");
    fixture.skill("own", "");
    fixture.rules.allow_bundled = strings(&["by-name", "key"]);
    assert_eq!(fixture.verdict("by-name"), eligible());
    assert_eq!(fixture.verdict("by-key"), eligible());
    assert_eq!(fixture.verdict("neither"), Eligibility { is_blocked_by_allowlist: true, ..Eligibility::default() });
    assert_eq!(fixture.verdict("own"), eligible());
}

#[test]
fn an_agent_may_be_limited_to_some_names_or_none() {
    let mut fixture = Fixture::new();
    fixture.skill("a", "");
    fixture.skill("b", "");
    fixture.rules.only = Some(strings(&["b"]));
    assert_eq!(fixture.verdict("a"), Eligibility { is_filtered_out: true, ..eligible() });
    assert_eq!(fixture.skill_set().usable().map(|skill| skill.name.clone()).collect::<Vec<_>>(), ["b"]);
    fixture.rules.only = Some(Vec::new());
    assert_eq!(fixture.skill_set().usable().count(), 0);
    assert_eq!(block(&fixture.skill_set(), &PromptLimits::default(), None), "");
}
