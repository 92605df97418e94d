//! Findings about plugins that need no start, with remedies.

use std::collections::{BTreeMap, BTreeSet};

use homard_plugins::{Candidate, NAMES, config_problems, fingerprint};

use super::{
    super::{
        Shown,
        words::{entry, word},
    },
    Checkup, Finding,
};
use crate::config::Text;

/// Returns findings about an enabled plugin: its config, files and variables.
pub(super) fn at(shown: &Shown, candidate: &Candidate) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(config(shown, candidate));
    found.extend(changed(shown, candidate));
    found.extend(variables(shown, candidate));
    found
}

fn config(shown: &Shown, candidate: &Candidate) -> Vec<Finding> {
    let id = &candidate.manifest.id;
    let config = shown.setup.settings.entries.get(id).map(|said| said.config.clone()).unwrap_or_default();
    let path = entry(id).key("config");
    let to_do = format!(
        "set it with: homard config set {} VALUE; what it takes is in configSchema of: homard plugins info {} --json",
        word(&path.key("NAME").to_string()),
        word(id)
    );
    let wrong = config_problems(&candidate.manifest, &config).into_iter();
    wrong.map(|wrong| Finding::grave(format!("{path} does not fit: {wrong}"), to_do.clone())).collect()
}

/// Returns a finding if the files differ from the installed ones.
fn changed(shown: &Shown, candidate: &Candidate) -> Option<Finding> {
    let (id, root) = (&candidate.manifest.id, candidate.root.display());
    let install = shown.loaded.config.plugins.installs.get(id)?;
    let hash = install.hash.as_ref()?;
    let what = match fingerprint(&candidate.root) {
        Ok(now) if now == *hash => return None,
        Ok(_) => "its files have changed since it was installed, so it is not started".to_owned(),
        Err(error) => format!("its files cannot be read: {error}"),
    };
    let source = install.source_path.as_ref().map_or("PATH", Text::as_str);
    let to_do = format!("look at {root}; if all is well: homard plugins install {} --force", word(source));
    Some(Finding::grave(what, to_do))
}

/// Returns declared variables that are not set, and variables that are set but not declared.
fn variables(shown: &Shown, candidate: &Candidate) -> Vec<Finding> {
    let manifest = &candidate.manifest;
    let Some(rights) = &manifest.rights else { return Vec::new() };
    let given = shown.setup.settings.entries.get(&manifest.id).map(|said| said.env.clone()).unwrap_or_default();
    let env = entry(&manifest.id).key("env");
    let is_missing = |name: &&String| !given.contains_key(*name) && !shown.setup.env.contains_key(*name);
    let missing = rights.env.iter().filter(is_missing).map(|name| {
        let key = word(&env.key(name).to_string());
        let to_do = format!("if it needs it, set it, or: homard config set {key} VALUE");
        Finding::odd(format!("it reads the variable {name}, which is not set"), to_do)
    });
    let in_vain = given.keys().filter(|name| !rights.env.contains(name)).map(|name| {
        let file = candidate.root.join(NAMES[0]);
        let what = format!("{} is not given to it: its manifest does not declare it", env.key(name));
        Finding::odd(what, format!("list it in {} under rights.env, or unset it", file.display()))
    });
    missing.chain(in_vain).collect()
}

/// Returns one finding per reason for registrations that were denied.
pub(super) fn denied(candidate: &Candidate, denied: &[String]) -> Vec<Finding> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (what, why) in denied.iter().map(|denied| denied.split_once(": ").unwrap_or((denied, "it may not"))) {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, all)) => all.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    let finding = |(why, all): (&str, Vec<&str>)| {
        Finding::odd(format!("denied: {}: {why}", all.join(", ")), let_in(candidate, why))
    };
    reasons.into_iter().map(finding).collect()
}

/// Returns what is needed to allow a registration.
fn let_in(candidate: &Candidate, why: &str) -> String {
    let file = candidate.root.join(NAMES[0]);
    if why.contains("does not declare") {
        format!("if it may have it, list it in {} under \"rights\"; else there is nothing to do", file.display())
    } else if why.contains("allowPromptInjection") {
        let key = entry(&candidate.manifest.id).key("hooks").key("allowPromptInjection").to_string();
        format!("if it may put words into prompts: homard config set {} true", word(&key))
    } else {
        "tell its author; the rest of it works".to_owned()
    }
}

/// Returns the finding for a plugin that does not start.
pub(super) fn no_start(candidate: &Candidate, why: &str) -> Finding {
    let run = match (&candidate.manifest.run, &candidate.entry) {
        (Some(run), _) => run.iter().map(|part| word(part)).collect::<Vec<_>>().join(" "),
        (None, Some(entry)) => format!("node {}", word(&entry.display().to_string())),
        (None, None) => String::new(),
    };
    let id = word(&candidate.manifest.id);
    let root = word(&candidate.root.display().to_string());
    let to_do = format!(
        "see all that it says with: HOMARD_LOG=info homard plugins doctor; it is started in {root} as: {run}; \
         to do without it: homard plugins disable {id}"
    );
    let why = why.strip_prefix("it did not start: ").unwrap_or(why);
    Finding::grave(format!("it does not start: {why}"), to_do)
}

/// Returns findings for plugins that the config enables and that do not exist.
pub(super) fn missing(shown: &Shown) -> Vec<Finding> {
    let settings = &shown.setup.settings;
    if settings.enabled == Some(false) {
        return Vec::new();
    }
    let is_there = |id: &str| shown.plugins.iter().any(|(_, status)| status.id == id);
    let is_off = |id: &str| settings.entries.get(id).is_some_and(|entry| entry.enabled == Some(false));
    let entered = settings.entries.iter().filter(|(_, entry)| entry.enabled == Some(true)).map(|(id, _)| id);
    let wanted: BTreeSet<&String> = entered.chain(&settings.allow).filter(|id| !is_there(id) && !is_off(id)).collect();
    let finding = |id: &String| {
        let to_do = format!("install it: homard plugins install PATH; or do without it: {}", without(shown, id));
        Finding::grave(format!("{id} is switched on in the config, but there is no such plugin"), to_do)
    };
    wanted.into_iter().map(finding).collect()
}

fn without(shown: &Shown, id: &str) -> String {
    match shown.setup.settings.entries.contains_key(id) {
        true => format!("homard plugins disable {}", word(id)),
        false => "take it out of plugins.allow".to_owned(),
    }
}

/// Returns findings for files and directories that are not valid plugins.
pub(super) fn files(shown: &Shown) -> Vec<Finding> {
    let to_do = "mend it or take it away; what a manifest must have is in docs/plugins.md";
    shown.problems.iter().map(|problem| Finding::odd(problem.clone(), to_do)).collect()
}

/// Adds findings for duplicate names, of which only the first is used.
pub(super) fn namesakes(checkups: &mut [Checkup]) {
    let mut owners = BTreeMap::<String, String>::new();
    for checkup in checkups {
        let registered = checkup.trial.iter().flat_map(|trial| &trial.registered);
        let is_single = |what: &&String| ["tool ", "command ", "method "].iter().any(|kind| what.starts_with(kind));
        let mut found = Vec::new();
        for what in registered.filter(is_single) {
            match owners.get(what) {
                Some(owner) if *owner != checkup.id => {
                    let to_do = format!("do without one of them: homard plugins disable {}", word(&checkup.id));
                    found
                        .push(Finding::odd(format!("{what} is not used: {owner} has it, too, and comes first"), to_do));
                }
                Some(_) => {}
                None => drop(owners.insert(what.clone(), checkup.id.clone())),
            }
        }
        checkup.findings.extend(found);
    }
}
