//! The skills that OpenClaw ships: Homard finds the same ones in its folders, with the same status.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::client::{ClientHome, OpenClawClient, PATH};
use crate::shell;

/// Compared fields of each skill.
const COMPARED_FIELDS: [&str; 4] = ["eligible", "disabled", "blockedByAllowlist", "missing"];

/// Skills that a version ships but does not find itself, because a colon in their descriptions is not valid YAML. The
/// newer version reads the same files, as Homard does.
const KNOWN_MISSING: &[(&str, &[&str])] = &[("2026.2.9", &["discord", "food-order"])];

/// Minimum number of skills, and of those that are ready: with fewer, nothing would be compared.
const MIN_SKILLS: (usize, usize) = (40, 1);

/// Compares the status of a client's skills: as they are, with some of their requirements met, and with an allowlist.
pub(super) fn check(client: &OpenClawClient, binary: &Path) -> Result<()> {
    let entries = json!({
        "openai-whisper-api": {"apiKey": "a key"},
        "trello": {"env": {"TRELLO_API_KEY": "a key", "TRELLO_TOKEN": "a token"}},
        "notion": {"env": {"NOTION_API_KEY": ""}},
        "weather": {"enabled": false},
    });
    let scenarios = [
        ("bare", json!({})),
        ("entries", json!({"skills": {"entries": entries}})),
        ("allowed", json!({"skills": {"allowBundled": ["weather", "github", "healthcheck"]}})),
    ];
    for (name, config) in &scenarios {
        compare(client, binary, name, config).with_context(|| format!("scenario {name}"))?;
    }
    Ok(())
}

fn compare(client: &OpenClawClient, binary: &Path, scenario: &str, config: &Value) -> Result<()> {
    let home = ClientHome::without_gateway()?;
    fs::write(home.state().join("openclaw.json"), config.to_string())?;
    let theirs =
        client.call(&format!("skills-{scenario}"), &home, &["skills", "list", "--json"])?.succeeded()?.json()?;
    let ours = ours(client, binary, &home, config)?;
    fs::write(client.logs.join(format!("skills-{scenario}-homard.log")), format!("{ours:#}\n"))?;
    let (theirs, mut ours) = (status_by_name(&theirs)?, status_by_name(&ours)?);
    for name in KNOWN_MISSING.iter().filter(|(version, _)| *version == client.version).flat_map(|(_, names)| *names) {
        ensure!(!theirs.contains_key(*name), "OpenClaw now finds {name}; remove it from KNOWN_MISSING");
        ensure!(ours.remove(*name).is_some(), "Homard should find {name}, which OpenClaw does not find");
    }
    let ready = theirs.values().filter(|state| state["eligible"] == true).count();
    ensure!(
        theirs.len() >= MIN_SKILLS.0 && ready >= MIN_SKILLS.1,
        "only {} skills were found, {ready} of them ready",
        theirs.len()
    );
    let found = differences(&theirs, &ours);
    if !found.is_empty() {
        bail!("{} differences:\n{}", found.len(), found.join("\n"));
    }
    Ok(())
}

/// Returns Homard's view of the same folders in the same home.
fn ours(client: &OpenClawClient, binary: &Path, home: &ClientHome, config: &Value) -> Result<Value> {
    let package = client.script.parent().context("the client's script has no parent directory")?;
    let state = home.folder().join(".homard");
    fs::create_dir(&state)?;
    let mut config = config.clone();
    config["skills"]["load"] = json!({"extraDirs": plugins(home)?});
    fs::write(state.join("homard.json"), config.to_string())?;
    let mut command = Command::new(binary);
    command.args(["skills", "list", "--json"]).env_clear().env("PATH", PATH).env("HOME", home.folder());
    command.env("HOMARD_BUNDLED_SKILLS_DIR", bundled(package, home)?).current_dir(home.folder());
    serde_json::from_slice(&shell::output(&mut command)?).context("the output of homard skills list is not JSON")
}

/// Returns the folder of bundled skills. The newer client has a second one, for a system maintenance agent; it counts
/// as bundled there, so both are merged here.
fn bundled(package: &Path, home: &ClientHome) -> Result<PathBuf> {
    let (skills, second) = (package.join("skills"), package.join("custodian-skills"));
    if !second.exists() {
        return Ok(skills);
    }
    let both = home.folder().join("bundled");
    fs::create_dir(&both)?;
    for folder in [skills, second] {
        shell::run(Command::new("cp").arg("-R").args([folder.join("."), both.clone()]))?;
    }
    Ok(both)
}

/// Returns the folders of plugins' skills, which the newer client links into its state.
fn plugins(home: &ClientHome) -> Result<Vec<PathBuf>> {
    let Ok(links) = fs::read_dir(home.state().join("plugin-skills")) else { return Ok(Vec::new()) };
    let resolve = |link: std::io::Result<fs::DirEntry>| fs::canonicalize(link?.path());
    links.map(resolve).collect::<std::io::Result<_>>().context("cannot resolve the link of a plugin's skill")
}

/// Returns the status of each skill, by name.
fn status_by_name(list: &Value) -> Result<BTreeMap<String, Value>> {
    let skills = list["skills"].as_array().context("the list should have `skills`")?;
    let state = |skill: &Value| {
        let status: Value = COMPARED_FIELDS.iter().map(|&what| (what.to_owned(), skill[what].clone())).collect();
        Ok((skill["name"].as_str().context("a skill has no name")?.to_owned(), status))
    };
    skills.iter().map(state).collect()
}

fn differences(theirs: &BTreeMap<String, Value>, ours: &BTreeMap<String, Value>) -> Vec<String> {
    let missed = theirs.keys().filter(|name| !ours.contains_key(*name)).map(|name| format!("only OpenClaw has {name}"));
    let added = ours.keys().filter(|name| !theirs.contains_key(*name)).map(|name| format!("only Homard has {name}"));
    let changed = theirs.iter().filter_map(|(name, theirs)| {
        let ours = ours.get(name).filter(|ours| *ours != theirs)?;
        Some(format!("{name}: OpenClaw says {theirs}, Homard says {ours}"))
    });
    missed.chain(added).chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_added_and_changed_skills_are_reported() {
        let list = |skills: Value| status_by_name(&json!({"skills": skills})).unwrap();
        let theirs = list(json!([{"name": "a", "eligible": true}, {"name": "b", "eligible": true}]));
        let ours = list(json!([{"name": "b", "eligible": false, "other": 1}, {"name": "c"}]));
        let status = |eligible: bool| json!({"eligible": eligible, "disabled": null, "blockedByAllowlist": null, "missing": null});
        assert_eq!(
            differences(&theirs, &ours),
            [
                "only OpenClaw has a".to_owned(),
                "only Homard has c".to_owned(),
                format!("b: OpenClaw says {}, Homard says {}", status(true), status(false)),
            ]
        );
        assert_eq!(differences(&theirs, &theirs), Vec::<String>::new());
    }
}
