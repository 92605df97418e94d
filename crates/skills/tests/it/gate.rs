//! Tests of eligibility.

use std::{collections::BTreeMap, fs, path::PathBuf};

use homard_skills::{Eligibility, MissingRequirements, PromptLimits, SkillEntry, SkillRequirements, block};
use serde_json::json;

use crate::bench::{Bench, entry, strings};

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
    let mut bench = Bench::new();
    bench.program("there", 0o755);
    bench.program("plain", 0o644);
    fs::create_dir(bench.path("bin/folder")).unwrap();
    bench.skill("s", "metadata: {openclaw: {requires: {bins: [there, plain, folder, absent, ../bin/there]}}}");
    let missing = SkillRequirements {
        bins: strings(&["plain", "folder", "absent", "../bin/there"]),
        ..SkillRequirements::default()
    };
    assert_eq!(bench.verdict("s"), lacks(missing));

    bench.host.path.insert(0, PathBuf::new());
    bench.skill("s", "metadata: {openclaw: {requires: {bins: [there]}}}");
    assert_eq!(bench.verdict("s"), eligible());
}

#[test]
fn one_of_any_bins_is_enough() {
    let bench = Bench::new();
    bench.skill("s", "metadata: {openclaw: {requires: {anyBins: [a, b]}}}");
    assert_eq!(
        bench.verdict("s"),
        lacks(SkillRequirements { any_bins: strings(&["a", "b"]), ..SkillRequirements::default() })
    );
    bench.program("b", 0o755);
    assert_eq!(bench.verdict("s"), eligible());
}

#[test]
fn a_variable_may_come_from_the_machine_the_entry_or_the_key() {
    let mut bench = Bench::new();
    bench.skill("s", "metadata: {openclaw: {primaryEnv: KEY, requires: {env: [SET, GIVEN, EMPTY, KEY, NONE]}}}");
    bench.host.env = BTreeMap::from([("SET".to_owned(), "x".to_owned())]);
    let given = entry(&[("GIVEN", "x"), ("EMPTY", "")]);
    bench.rules.entries.insert("s".to_owned(), SkillEntry { api_key: Some("k".to_owned()), ..given });
    assert_eq!(
        bench.verdict("s"),
        lacks(SkillRequirements { env: strings(&["EMPTY", "NONE"]), ..SkillRequirements::default() })
    );
}

#[test]
fn a_config_path_must_hold_something() {
    let mut bench = Bench::new();
    let paths = "a.yes, a.no, a.null, a.zero, a.one, a.blank, a.text, a.list, a, a.gone, gone.too, \
                 browser.enabled, browser.evaluateEnabled";
    bench.skill("s", &format!("metadata: {{openclaw: {{requires: {{config: \"{paths}\"}}}}}}"));
    bench.host.config = json!({
        "a": {"yes": true, "no": false, "null": null, "zero": 0, "one": 1, "blank": " ", "text": "x", "list": []},
        "browser": {"enabled": false},
    });
    let missing = ["a.no", "a.null", "a.zero", "a.blank", "a.gone", "gone.too", "browser.enabled"];
    assert_eq!(
        bench.verdict("s"),
        lacks(SkillRequirements { config: strings(&missing), ..SkillRequirements::default() })
    );
}

#[test]
fn always_helps_against_everything_but_the_system() {
    let bench = Bench::new();
    bench.skill("here", "metadata: {openclaw: {always: true, os: [linux], requires: {bins: [x], env: [Y]}}}");
    bench.skill("there", "metadata: {openclaw: {always: true, os: [darwin, win32], requires: {bins: [x]}}}");
    assert_eq!(bench.verdict("here"), eligible());
    let missing = MissingRequirements { os: strings(&["darwin", "win32"]), ..MissingRequirements::default() };
    assert_eq!(bench.verdict("there"), Eligibility { missing, ..Eligibility::default() });
}

#[test]
fn an_entry_switches_a_skill_off_by_its_key() {
    let mut bench = Bench::new();
    bench.skill("off", "metadata: {openclaw: {skillKey: other, always: true}}");
    bench.skill("other", "metadata: {openclaw: {skillKey: third}}");
    bench.rules.entries.insert("other".to_owned(), SkillEntry { enabled: Some(false), ..SkillEntry::default() });
    assert_eq!(bench.verdict("off"), Eligibility { is_disabled: true, ..Eligibility::default() });
    assert_eq!(bench.verdict("other"), eligible());
}

#[test]
fn the_allowlist_is_for_bundled_skills_only() {
    let mut bench = Bench::new();
    bench.bundled("by-name", "");
    bench.bundled("by-key", "metadata: {openclaw: {skillKey: key}}");
    bench.bundled("neither", "metadata: {openclaw: {always: true}}");
    bench.skill("own", "");
    bench.rules.allow_bundled = strings(&["by-name", "key"]);
    assert_eq!(bench.verdict("by-name"), eligible());
    assert_eq!(bench.verdict("by-key"), eligible());
    assert_eq!(bench.verdict("neither"), Eligibility { is_blocked_by_allowlist: true, ..Eligibility::default() });
    assert_eq!(bench.verdict("own"), eligible());
}

#[test]
fn an_agent_may_be_limited_to_some_names_or_none() {
    let mut bench = Bench::new();
    bench.skill("a", "");
    bench.skill("b", "");
    bench.rules.only = Some(strings(&["b"]));
    assert_eq!(bench.verdict("a"), Eligibility { is_filtered_out: true, ..eligible() });
    assert_eq!(bench.book().usable().map(|skill| skill.name.clone()).collect::<Vec<_>>(), ["b"]);
    bench.rules.only = Some(Vec::new());
    assert_eq!(bench.book().usable().count(), 0);
    assert_eq!(block(&bench.book(), &PromptLimits::default(), None), "");
}
