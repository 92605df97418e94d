//! Status of all skills, as returned by `skills.status` and `skills list --json`.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::skills::{
    eligibility::{HostEnvironment, MissingRequirements},
    front_matter::lookup,
    skill::{Skill, SkillRequirements, SkillSource, as_list, as_text},
    skill_set::{JudgedSkill, SkillSet},
};

/// Installer kinds that clients know, in order of preference.
const INSTALLERS: [&str; 5] = ["uv", "node", "brew", "go", "download"];

/// Builds the report about a workspace's skills for clients.
///
/// For each config path that a skill requires, the report contains whether it is set, but not its value: the value may
/// be a secret, such as the token of a channel.
pub fn report(skills: &SkillSet, workspace: &Path, managed: &Path) -> Value {
    json!({
        "workspaceDir": workspace.to_string_lossy(),
        "managedSkillsDir": managed.to_string_lossy(),
        "skills": skills.skills.iter().map(|skill| state(skill, &skills.host)).collect::<Vec<_>>(),
    })
}

fn state(judged: &JudgedSkill, host: &HostEnvironment) -> Value {
    let JudgedSkill { skill, verdict } = judged;
    let mut state = json!({
        "name": skill.name,
        "description": skill.description,
        "source": skill.source.name(),
        "bundled": skill.source == SkillSource::Bundled,
        "filePath": skill.file.to_string_lossy(),
        "baseDir": skill.dir.to_string_lossy(),
        "skillKey": skill.key,
    });
    let optional = [("primaryEnv", &skill.primary_env), ("emoji", &skill.emoji), ("homepage", &skill.homepage)];
    for (key, value) in optional {
        if let Some(value) = value {
            state[key] = json!(value);
        }
    }
    let MissingRequirements { os, requires, fault } = &verdict.missing;
    let config_check = |path: &String| json!({"path": path, "satisfied": host.has_config(path)});
    let rest = json!({
        "always": skill.always,
        "disabled": verdict.is_disabled,
        "blockedByAllowlist": verdict.is_blocked_by_allowlist,
        "blockedByAgentFilter": verdict.is_filtered_out,
        "eligible": verdict.is_eligible,
        "platformIncompatible": !os.is_empty(),
        "modelVisible": judged.is_usable() && !skill.is_hidden_from_model,
        "userInvocable": skill.is_user_invocable,
        "commandVisible": judged.is_usable() && skill.is_user_invocable,
        "requirements": requirements_json(&skill.requires, &skill.os),
        "missing": requirements_json(requires, os),
        "configChecks": skill.requires.config.iter().map(config_check).collect::<Vec<_>>(),
        "install": installers(skill, host),
    });
    if let (Value::Object(state), Value::Object(rest)) = (&mut state, rest) {
        state.extend(rest);
    }
    if let Some(fault) = fault {
        state["fault"] = json!(fault);
    }
    state
}

fn requirements_json(requires: &SkillRequirements, os: &[String]) -> Value {
    let SkillRequirements { bins, any_bins, env, config } = requires;
    json!({"bins": bins, "anyBins": any_bins, "env": env, "config": config, "os": os})
}

/// Returns the preferred installer of a skill; all of them if there are only downloads, which belong together.
fn installers(skill: &Skill, host: &HostEnvironment) -> Vec<Value> {
    let candidates: Vec<Installer<'_>> =
        skill.install.iter().filter_map(Installer::read).filter(|installer| installer.is_for(&host.os)).collect();
    if !skill.os.is_empty() && !skill.os.contains(&host.os) {
        return Vec::new();
    }
    let prefs = &host.config["skills"]["install"];
    let manager = prefs["nodeManager"].as_str().unwrap_or("npm");
    let render = |(at, installer): (usize, &Installer<'_>)| installer.to_json(at, manager);
    if candidates.iter().all(|installer| installer.kind == "download") {
        return candidates.iter().enumerate().map(render).collect();
    }
    let (has_brew, prefers_brew) = (host.has_program("brew"), prefs["preferBrew"].as_bool().unwrap_or(true));
    let rank = |installer: &Installer<'_>| match installer.kind {
        "brew" if has_brew && prefers_brew => 0,
        "brew" if !has_brew => INSTALLERS.len() + 1,
        kind => 1 + INSTALLERS.iter().position(|known| *known == kind).unwrap_or(INSTALLERS.len()),
    };
    candidates.iter().enumerate().min_by_key(|(at, installer)| (rank(installer), *at)).map(render).into_iter().collect()
}

/// One of a skill's `install` entries.
#[derive(Debug)]
struct Installer<'a> {
    kind: &'static str,
    fields: &'a Map<String, Value>,
}

impl<'a> Installer<'a> {
    fn read(value: &'a Value) -> Option<Self> {
        let fields = value.as_object()?;
        let kind_name = lookup(fields, "kind").or_else(|| lookup(fields, "type")).and_then(as_text)?.to_lowercase();
        let kind = INSTALLERS.into_iter().find(|kind| *kind == kind_name)?;
        Some(Self { kind, fields })
    }

    /// Returns the items of a list field; empty if it is missing.
    fn list(&self, key: &str) -> Vec<String> {
        lookup(self.fields, key).map(as_list).unwrap_or_default()
    }

    fn text(&self, key: &str) -> Option<String> {
        lookup(self.fields, key).and_then(as_text)
    }

    /// True if the installer supports an operating system: it lists that one, or none at all.
    fn is_for(&self, os: &str) -> bool {
        let systems = self.list("os");
        systems.is_empty() || systems.iter().any(|system| system == os)
    }

    fn to_json(&self, at: usize, manager: &str) -> Value {
        let install_label =
            |subject: &str, tool: &str| self.text(subject).map(|subject| format!("Install {subject} ({tool})"));
        let last = |url: String| url.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default().to_owned();
        let author_label = self.text("label");
        let label = match self.kind {
            // The package manager is the user's choice, so an author's label would be wrong about it.
            "node" => install_label("package", manager).or(author_label),
            "brew" => author_label.or_else(|| install_label("formula", "brew")),
            "go" => author_label.or_else(|| install_label("module", "go")),
            "uv" => author_label.or_else(|| install_label("package", "uv")),
            _ => author_label.or_else(|| self.text("url").map(|url| format!("Download {}", last(url)))),
        };
        json!({
            "id": self.text("id").unwrap_or_else(|| format!("{}-{at}", self.kind)),
            "kind": self.kind,
            "label": label.unwrap_or_else(|| format!("Install with {}", self.kind)),
            "bins": self.list("bins"),
        })
    }
}
