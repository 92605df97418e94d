//! Every folder `skills/<case>` is a test of discovery and parsing: adding one adds a test.
//!
//! - `extra/`, `plugin/`, `bundled/`, `managed/`, `personal/`, `project/`, `workspace/`: the roots; absent folders are
//!   absent roots.
//! - `expected.txt`: the skills and the problems. `$CASE` stands for the case's folder. Default values are not written.
//!
//! Limits are small here, so that a case which exceeds one is small too: see [`LIMITS`].
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use homard_workspace::skills::{
    DiscoveredSkills, DiscoveryLimits, ProblemLevel, Skill, SkillRequirements, SkillRoots, discover,
};

/// Small enough for cases to exceed.
const LIMITS: DiscoveryLimits = DiscoveryLimits { depth: 6, folders: 40, candidates: 8, file_bytes: 4_096 };

datatest_stable::harness! { { test = case, root = "tests/skills", pattern = r"expected\.txt$" } }

fn case(expected: &Path) -> datatest_stable::Result<()> {
    let folder = expected.parent().unwrap();
    let found = discover(&roots(folder), &LIMITS);
    let report = report(&found).replace(folder.to_str().unwrap(), "$CASE");
    assert!(report == fs::read_to_string(expected)?, "{} should hold, if this is right:\n{report}", expected.display());
    assert_eq!(discover(&roots(folder), &LIMITS), found, "a second look");
    Ok(())
}

fn roots(folder: &Path) -> SkillRoots {
    let root = |name: &str| -> PathBuf { folder.join(name) };
    SkillRoots {
        extra: vec![root("extra")],
        plugins: vec![root("plugin")],
        bundled: Some(root("bundled")),
        managed: root("managed"),
        personal: Some(root("personal")),
        project: Some(root("project")),
        workspace: root("workspace"),
    }
}

fn report(found: &DiscoveredSkills) -> String {
    let problems = found.problems.iter().map(|problem| {
        let level = match problem.level {
            ProblemLevel::Info => "info",
            ProblemLevel::Warning => "warning",
        };
        format!("{level}: {problem}\n")
    });
    let parts = found.skills.iter().map(describe).chain([problems.collect()]);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn describe(skill: &Skill) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| writeln!(text, "{key}: {value}").unwrap();
    line("name", format!("{:?}", skill.name));
    line("description", format!("{:?}", skill.description));
    line("file", skill.file.display().to_string());
    assert_eq!(skill.dir, skill.file.parent().unwrap());
    line("source", skill.source.name().to_owned());
    if skill.key != skill.name {
        line("key", skill.key.clone());
    }
    for (key, value) in [("homepage", &skill.homepage), ("primary env", &skill.primary_env), ("emoji", &skill.emoji)] {
        if let Some(value) = value {
            line(key, value.clone());
        }
    }
    let SkillRequirements { bins, any_bins, env, config } = &skill.requires;
    let lists = [("os", &skill.os), ("bins", bins), ("any bins", any_bins), ("env", env), ("config", config)];
    for (key, list) in lists {
        if !list.is_empty() {
            line(key, format!("{list:?}"));
        }
    }
    for installer in &skill.install {
        line("install", installer.to_string());
    }
    let flags = [
        ("always", skill.always),
        ("not user-invocable", !skill.is_user_invocable),
        ("hidden from model", skill.is_hidden_from_model),
    ];
    for (key, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        line(key, "yes".to_owned());
    }
    if let Some(dispatch) = &skill.dispatch {
        line("dispatch", dispatch.tool.clone());
    }
    text
}
