//! Describes the state of skills, with remedies.

use homard_config::path::Path;
use homard_workspace::skills::{JudgedSkill, Skill, SkillRequirements, SkillSource};
use serde_json::Value;

use crate::{Table, shell_quote, strip_controls};

/// Returns the state of a skill for a table.
pub fn state(judged: &JudgedSkill) -> String {
    let eligibility = &judged.verdict;
    let SkillRequirements { bins, any_bins, env, config } = &eligibility.missing.requires;
    if eligibility.is_disabled {
        "off".to_owned()
    } else if eligibility.is_blocked_by_allowlist {
        "not allowed".to_owned()
    } else if !eligibility.missing.os.is_empty() {
        format!("{} only", systems(&eligibility.missing.os))
    } else if eligibility.missing.fault.is_some() {
        "down".to_owned()
    } else if !eligibility.is_eligible {
        let any = (!any_bins.is_empty()).then(|| any_bins.join(" or "));
        let needs: Vec<_> = bins.iter().chain(any.as_ref()).chain(env).chain(config).map(String::as_str).collect();
        format!("needs {}", needs.join(", "))
    } else if eligibility.is_filtered_out {
        "not for this agent".to_owned()
    } else {
        "ready".to_owned()
    }
}

/// Returns what prevents an agent from using a skill, each with the remedy; empty if nothing does.
pub fn blockers(judged: &JudgedSkill, state: &Value, agent: &str) -> Vec<String> {
    let JudgedSkill { skill, verdict: eligibility } = judged;
    let entry = entry(skill);
    let mut lines = Vec::new();
    if eligibility.is_disabled {
        lines.push(format!(
            "disabled; enable it with: homard config set {} true",
            shell_quote(&entry.key("enabled").to_string())
        ));
    }
    if eligibility.is_blocked_by_allowlist {
        lines.push("not in skills.allowBundled; add it there, or make that list empty".to_owned());
    }
    if !eligibility.missing.os.is_empty() {
        // Nothing that could be installed or set would help.
        lines.push(format!("supported on {} only", systems(&eligibility.missing.os)));
        return lines;
    }
    lines.extend(eligibility.missing.fault.clone());
    let SkillRequirements { bins, any_bins, env, config } = &eligibility.missing.requires;
    let labels = state["install"].as_array().into_iter().flatten().filter_map(|option| option["label"].as_str());
    let labels = labels.collect::<Vec<_>>().join("; ");
    let install_hint = if labels.is_empty() { String::new() } else { format!(" ({labels})") };
    match bins.as_slice() {
        [] => {}
        [single] => lines.push(format!("install the program {single}{install_hint}")),
        several => lines.push(format!("install the programs {}{install_hint}", several.join(", "))),
    }
    if !any_bins.is_empty() {
        lines.push(format!("install one of the programs {}{install_hint}", any_bins.join(", ")));
    }
    lines.extend(env.iter().map(|name| {
        let key =
            if skill.primary_env.as_ref() == Some(name) { entry.key("apiKey") } else { entry.key("env").key(name) };
        format!("set the environment variable {name}, or: homard config set {} VALUE", shell_quote(&key.to_string()))
    }));
    lines.extend(config.iter().map(|path| format!("set {path} in the config: homard config set {path} VALUE")));
    if eligibility.is_filtered_out {
        lines.push(format!("not in the skill list of agent {agent}; add it there"));
    }
    lines
}

/// Describes one skill in full.
pub fn describe(judged: &JudgedSkill, status: &Value, agent: &str) -> Table {
    let skill = &judged.skill;
    let mut rows = vec![
        ("skill", skill.name.clone()),
        ("state", state(judged)),
        ("for", skill.description.split_whitespace().collect::<Vec<_>>().join(" ")),
        ("from", origin(skill.source).to_owned()),
        ("file", skill.file.display().to_string()),
        ("in the config", entry(skill).to_string()),
    ];
    rows.extend(skill.homepage.iter().map(|page| ("homepage", page.clone())));
    rows.extend(skill.primary_env.iter().map(|name| ("key variable", name.clone())));
    if skill.is_hidden_from_model {
        rows.push(("models", "do not see the skill; users invoke it by name".to_owned()));
    }
    if !skill.is_user_invocable {
        rows.push(("users", "cannot invoke it by name; models choose it".to_owned()));
    }
    rows.extend(blockers(judged, status, agent).into_iter().map(|blocker| ("to do", blocker)));
    Table::fields(rows.into_iter().map(|(name, text)| vec![name.to_owned(), strip_controls(&text)]).collect())
}

fn entry(skill: &Skill) -> Path {
    Path::root().key("skills").key("entries").key(&skill.key)
}

/// Returns where a skill was found.
pub fn origin(source: SkillSource) -> &'static str {
    match source {
        SkillSource::Extra => "extraDirs",
        SkillSource::Plugin => "plugin",
        SkillSource::Bundled => "bundled",
        SkillSource::Managed => "state directory",
        SkillSource::Personal => "~/.agents",
        SkillSource::Project => "workspace/.agents",
        SkillSource::Workspace => "workspace",
    }
}

fn systems(names: &[String]) -> String {
    let name = |name: &String| match name.as_str() {
        "darwin" => "macOS".to_owned(),
        "linux" => "Linux".to_owned(),
        "win32" => "Windows".to_owned(),
        other => other.to_owned(),
    };
    names.iter().map(name).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use homard_workspace::skills::{Eligibility, MissingRequirements, SkillSource};
    use serde_json::json;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn judged(eligibility: Eligibility) -> JudgedSkill {
        let skill = Skill {
            name: "maps".to_owned(),
            description: "Find\n the way.".to_owned(),
            homepage: None,
            key: "a map".to_owned(),
            primary_env: Some("MAPS_KEY".to_owned()),
            emoji: None,
            os: Vec::new(),
            always: false,
            requires: SkillRequirements::default(),
            install: Vec::new(),
            is_user_invocable: true,
            is_hidden_from_model: false,
            dispatch: None,
            dir: PathBuf::from("/s/maps"),
            file: PathBuf::from("/s/maps/SKILL.md"),
            source: SkillSource::Managed,
        };
        JudgedSkill { skill, verdict: eligibility }
    }

    #[test]
    fn every_blocker_has_a_remedy() {
        let requires = SkillRequirements {
            bins: texts(&["gps"]),
            any_bins: texts(&["a", "b"]),
            env: texts(&["MAPS_KEY", "MAPS_URL"]),
            config: texts(&["channels.slack"]),
        };
        let other_os = MissingRequirements { os: texts(&["darwin", "win32"]), requires: requires.clone(), fault: None };
        let unmet = judged(Eligibility {
            missing: MissingRequirements { requires, ..MissingRequirements::default() },
            ..Eligibility::default()
        });
        let install = json!({"install": [{"label": "Install gps (brew)"}]});
        assert_eq!(
            blockers(&unmet, &install, "main"),
            [
                "install the program gps (Install gps (brew))",
                "install one of the programs a, b (Install gps (brew))",
                "set the environment variable MAPS_KEY, or: homard config set 'skills.entries[\"a map\"].apiKey' VALUE",
                "set the environment variable MAPS_URL, or: homard config set 'skills.entries[\"a map\"].env.MAPS_URL' VALUE",
                "set channels.slack in the config: homard config set channels.slack VALUE",
            ]
        );
        let other_os = judged(Eligibility { missing: other_os, ..Eligibility::default() });
        assert_eq!(blockers(&other_os, &install, "main"), ["supported on macOS or Windows only"]);
        let blocked = Eligibility {
            is_disabled: true,
            is_blocked_by_allowlist: true,
            is_filtered_out: true,
            ..Eligibility::default()
        };
        assert_eq!(
            blockers(&judged(blocked), &json!({}), "ops"),
            [
                "disabled; enable it with: homard config set 'skills.entries[\"a map\"].enabled' true",
                "not in skills.allowBundled; add it there, or make that list empty",
                "not in the skill list of agent ops; add it there",
            ]
        );
    }

    #[test]
    fn every_skill_state_has_a_short_text() {
        let state_of = |eligibility: Eligibility| state(&judged(eligibility));
        let ready = Eligibility { is_eligible: true, ..Eligibility::default() };
        assert_eq!(state_of(ready.clone()), "ready");
        assert_eq!(state_of(Eligibility { is_filtered_out: true, ..ready }), "not for this agent");
        assert_eq!(state_of(Eligibility { is_disabled: true, ..Eligibility::default() }), "off");
        assert_eq!(state_of(Eligibility { is_blocked_by_allowlist: true, ..Eligibility::default() }), "not allowed");
        let requires =
            SkillRequirements { bins: texts(&["gps"]), any_bins: texts(&["a", "b"]), ..SkillRequirements::default() };
        let missing = MissingRequirements { requires, ..MissingRequirements::default() };
        assert_eq!(state_of(Eligibility { missing, ..Eligibility::default() }), "needs gps, a or b");
        let missing = MissingRequirements { os: texts(&["darwin"]), ..MissingRequirements::default() };
        assert_eq!(state_of(Eligibility { missing, ..Eligibility::default() }), "macOS only");
    }

    #[test]
    fn a_skill_is_described_with_its_file_and_config_path() {
        let description =
            describe(&judged(Eligibility { is_eligible: true, ..Eligibility::default() }), &json!({}), "main")
                .to_string();
        assert_eq!(
            description,
            "skill          maps\n\
             state          ready\n\
             for            Find the way.\n\
             from           state directory\n\
             file           /s/maps/SKILL.md\n\
             in the config  skills.entries[\"a map\"]\n\
             key variable   MAPS_KEY"
        );
    }
}
