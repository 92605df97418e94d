//! Describes the state of skills, with remedies.

use homard_config::path::Path;
use homard_skills::{Judged, Requires, Skill};
use serde_json::Value;

use super::origin;
use crate::render;

/// Returns the state of a skill for a table.
pub(super) fn state(judged: &Judged) -> String {
    let verdict = &judged.verdict;
    let Requires { bins, any_bins, env, config } = &verdict.missing.requires;
    if verdict.is_disabled {
        "off".to_owned()
    } else if verdict.is_blocked_by_allowlist {
        "not allowed".to_owned()
    } else if !verdict.missing.os.is_empty() {
        format!("{} only", systems(&verdict.missing.os))
    } else if verdict.missing.fault.is_some() {
        "down".to_owned()
    } else if !verdict.is_eligible {
        let any = (!any_bins.is_empty()).then(|| any_bins.join(" or "));
        let needs: Vec<_> = bins.iter().chain(any.as_ref()).chain(env).chain(config).map(String::as_str).collect();
        format!("needs {}", needs.join(", "))
    } else if verdict.is_filtered_out {
        "not for this agent".to_owned()
    } else {
        "ready".to_owned()
    }
}

/// Returns what prevents an agent from using a skill, each with the remedy; empty if nothing does.
pub(super) fn obstacles(judged: &Judged, state: &Value, agent: &str) -> Vec<String> {
    let Judged { skill, verdict } = judged;
    let entry = entry(skill);
    let mut told = Vec::new();
    if verdict.is_disabled {
        told.push(format!("it is off; to switch it on: homard config set {} true", word(&entry.key("enabled"))));
    }
    if verdict.is_blocked_by_allowlist {
        told.push("it is not in skills.allowBundled; add it there, or make that list empty".to_owned());
    }
    if !verdict.missing.os.is_empty() {
        // Nothing that could be installed or set would help.
        told.push(format!("it works on {} only", systems(&verdict.missing.os)));
        return told;
    }
    told.extend(verdict.missing.fault.clone());
    let Requires { bins, any_bins, env, config } = &verdict.missing.requires;
    let labels = state["install"].as_array().into_iter().flatten().filter_map(|way| way["label"].as_str());
    let labels = labels.collect::<Vec<_>>().join("; ");
    let ways = if labels.is_empty() { String::new() } else { format!(" ({labels})") };
    match bins.as_slice() {
        [] => {}
        [one] => told.push(format!("install the program {one}{ways}")),
        several => told.push(format!("install the programs {}{ways}", several.join(", "))),
    }
    if !any_bins.is_empty() {
        told.push(format!("install one of the programs {}{ways}", any_bins.join(", ")));
    }
    told.extend(env.iter().map(|name| {
        let key =
            if skill.primary_env.as_ref() == Some(name) { entry.key("apiKey") } else { entry.key("env").key(name) };
        format!("set the variable {name}, or: homard config set {} VALUE", word(&key))
    }));
    told.extend(config.iter().map(|path| format!("set {path} in the config: homard config set {path} VALUE")));
    if verdict.is_filtered_out {
        told.push(format!("it is not in the list of skills that agent {agent} may use; add it there"));
    }
    told
}

/// Describes one skill in full.
pub(super) fn about(judged: &Judged, status: &Value, agent: &str) -> String {
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
    rows.extend(skill.primary_env.iter().map(|name| ("key goes into", name.clone())));
    if skill.is_hidden_from_model {
        rows.push(("models", "are not told of it; people call it by its name".to_owned()));
    }
    if !skill.is_user_invocable {
        rows.push(("people", "cannot call it by its name; models choose it".to_owned()));
    }
    rows.extend(obstacles(judged, status, agent).into_iter().map(|obstacle| ("to do", obstacle)));
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), render::harmless(&text)]).collect();
    render::table(&rows)
}

/// Truncates a text to at most `most` characters, ending in an ellipsis.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn entry(skill: &Skill) -> Path {
    Path::root().key("skills").key("entries").key(&skill.key)
}

/// Quotes a path for a shell.
fn word(path: &Path) -> String {
    let path = path.to_string();
    if path.contains(['[', '"', '\'', '$']) { format!("'{}'", path.replace('\'', "'\\''")) } else { path }
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

    use homard_skills::{Missing, Source, Verdict};
    use serde_json::json;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn judged(verdict: Verdict) -> Judged {
        let skill = Skill {
            name: "maps".to_owned(),
            description: "Find\n the way.".to_owned(),
            homepage: None,
            key: "a map".to_owned(),
            primary_env: Some("MAPS_KEY".to_owned()),
            emoji: None,
            os: Vec::new(),
            always: false,
            requires: Requires::default(),
            install: Vec::new(),
            is_user_invocable: true,
            is_hidden_from_model: false,
            dispatch: None,
            dir: PathBuf::from("/s/maps"),
            file: PathBuf::from("/s/maps/SKILL.md"),
            source: Source::Managed,
        };
        Judged { skill, verdict }
    }

    #[test]
    fn every_obstacle_has_its_way_out() {
        let requires = Requires {
            bins: texts(&["gps"]),
            any_bins: texts(&["a", "b"]),
            env: texts(&["MAPS_KEY", "MAPS_URL"]),
            config: texts(&["channels.slack"]),
        };
        let abroad = Missing { os: texts(&["darwin", "win32"]), requires: requires.clone(), fault: None };
        let lacking = judged(Verdict { missing: Missing { requires, ..Missing::default() }, ..Verdict::default() });
        let install = json!({"install": [{"label": "Install gps (brew)"}]});
        assert_eq!(
            obstacles(&lacking, &install, "main"),
            [
                "install the program gps (Install gps (brew))",
                "install one of the programs a, b (Install gps (brew))",
                "set the variable MAPS_KEY, or: homard config set 'skills.entries[\"a map\"].apiKey' VALUE",
                "set the variable MAPS_URL, or: homard config set 'skills.entries[\"a map\"].env.MAPS_URL' VALUE",
                "set channels.slack in the config: homard config set channels.slack VALUE",
            ]
        );
        let abroad = judged(Verdict { missing: abroad, ..Verdict::default() });
        assert_eq!(obstacles(&abroad, &install, "main"), ["it works on macOS or Windows only"]);
        let barred =
            Verdict { is_disabled: true, is_blocked_by_allowlist: true, is_filtered_out: true, ..Verdict::default() };
        assert_eq!(
            obstacles(&judged(barred), &json!({}), "ops"),
            [
                "it is off; to switch it on: homard config set 'skills.entries[\"a map\"].enabled' true",
                "it is not in skills.allowBundled; add it there, or make that list empty",
                "it is not in the list of skills that agent ops may use; add it there",
            ]
        );
    }

    #[test]
    fn a_state_is_a_few_words() {
        let told = |verdict: Verdict| state(&judged(verdict));
        let ready = Verdict { is_eligible: true, ..Verdict::default() };
        assert_eq!(told(ready.clone()), "ready");
        assert_eq!(told(Verdict { is_filtered_out: true, ..ready }), "not for this agent");
        assert_eq!(told(Verdict { is_disabled: true, ..Verdict::default() }), "off");
        assert_eq!(told(Verdict { is_blocked_by_allowlist: true, ..Verdict::default() }), "not allowed");
        let requires = Requires { bins: texts(&["gps"]), any_bins: texts(&["a", "b"]), ..Requires::default() };
        let missing = Missing { requires, ..Missing::default() };
        assert_eq!(told(Verdict { missing, ..Verdict::default() }), "needs gps, a or b");
        let missing = Missing { os: texts(&["darwin"]), ..Missing::default() };
        assert_eq!(told(Verdict { missing, ..Verdict::default() }), "macOS only");
    }

    #[test]
    fn a_skill_is_told_with_its_file_and_its_place_in_the_config() {
        let about = about(&judged(Verdict { is_eligible: true, ..Verdict::default() }), &json!({}), "main");
        assert_eq!(
            about,
            "skill          maps\n\
             state          ready\n\
             for            Find the way.\n\
             from           state directory\n\
             file           /s/maps/SKILL.md\n\
             in the config  skills.entries[\"a map\"]\n\
             key goes into  MAPS_KEY"
        );
    }
}
