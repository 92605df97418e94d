//! Imports skills: directories that are copied whole. An existing skill that differs is kept.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use homard_skills::{DiscoveryLimits, ProblemLevel, SkillRoots, discover};

use super::{
    copy,
    plan::{ImportOptions, ImportPlan},
    source::{self, OpenclawState},
    transcripts::ImportAction,
};
use crate::{assemble::factory::workspace, config::Config, paths::Paths};

/// Maximum number of files of a skill.
const MAX_FILES: usize = 2_000;

/// Maximum total size of a skill in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Plans all skills: the shared ones, and those in workspaces that Homard will not use itself.
pub(super) fn plan_skills(
    plan: &mut ImportPlan,
    (source, config): (&OpenclawState, &Config),
    paths: &Paths,
    wishes: ImportOptions,
) {
    folder(plan, &source.root.join("skills"), &paths.state.join("skills"), wishes);
    for agent in config.agents.members() {
        // A workspace that the config names is used in place, with its skills.
        let is_named =
            agent.config.workspace.is_some() || (agent.is_default && config.agents.defaults.workspace.is_some());
        if is_named {
            continue;
        }
        let theirs = match agent.is_default {
            true => source.root.join("workspace"),
            false => source.root.join(format!("workspace-{}", agent.id)),
        };
        let ours = workspace(config, paths, &agent);
        if theirs != ours {
            folder(plan, &theirs.join("skills"), &ours.join("skills"), wishes);
        }
    }
}

fn folder(plan: &mut ImportPlan, from: &Path, to: &Path, wishes: ImportOptions) {
    if !from.is_dir() {
        return;
    }
    let names = match source::listed(from) {
        Ok(names) => names,
        Err(why) => return plan.warn(&from.display(), &format!("not imported: {why:#}")),
    };
    let found =
        discover(&SkillRoots { extra: vec![from.to_owned()], ..SkillRoots::default() }, &DiscoveryLimits::default());
    for (name, path) in names.into_iter().filter(|(name, path)| path.is_dir() && !name.starts_with('.')) {
        let title = format!("skill {name}");
        let is_its = |other: &Path| other.starts_with(&path);
        for problem in found.problems.iter().filter(|one| one.level == ProblemLevel::Warning && is_its(&one.path)) {
            plan.warn(&title, &problem.message);
        }
        let read = match found.skills.iter().any(|skill| is_its(&skill.dir)) {
            true => contents(&path),
            false => Err("no usable SKILL.md".to_owned()),
        };
        let files = match read {
            Ok(files) => files,
            Err(why) => {
                plan.counts.skills.push(ImportAction::Broken);
                plan.warn(&title, &format!("not imported: {why}"));
                continue;
            }
        };
        let here = to.join(&name);
        let fate = match fate(&path, &here, &files) {
            ImportAction::Kept if wishes.replace_existing => ImportAction::Updated,
            fate @ (ImportAction::New
            | ImportAction::Updated
            | ImportAction::Same
            | ImportAction::Kept
            | ImportAction::Broken) => fate,
        };
        plan.counts.skills.push(fate);
        match fate {
            ImportAction::New | ImportAction::Updated => {
                for file in files.keys() {
                    let (from, to) = (path.join(file), here.join(file));
                    if !copy::is_same(&from, &to).unwrap_or(false) {
                        plan.copy(&from, &to);
                    }
                }
            }
            ImportAction::Kept => {
                plan.warn(&title, "a different skill of this name already exists; replace it with --force")
            }
            ImportAction::Same | ImportAction::Broken => {}
        }
    }
}

/// Returns the files of a skill with their sizes. An error says why it cannot be copied.
fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, u64>, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let listed = source::listed(&folder.join(&below)).map_err(|why| format!("{why:#}"))?;
        for (name, path) in listed {
            let below = below.join(name);
            let found = path.symlink_metadata().map_err(|why: io::Error| format!("{}: {why}", below.display()))?;
            if found.is_dir() {
                folders.push(below);
            } else if found.is_file() {
                files.insert(below, found.len());
            } else {
                return Err(format!("{} is a symlink or not a regular file", below.display()));
            }
            if files.len() + folders.len() > MAX_FILES || files.values().sum::<u64>() > MAX_BYTES {
                return Err(format!("more than {MAX_FILES} files or {} MiB", MAX_BYTES / 1024 / 1024));
            }
        }
    }
    Ok(files)
}

/// Returns the fate of a skill. If only a part of it exists here, and nothing else, an import was interrupted.
fn fate(from: &Path, to: &Path, files: &BTreeMap<PathBuf, u64>) -> ImportAction {
    if to.symlink_metadata().is_err() {
        return ImportAction::New;
    }
    let Ok(here) = contents(to) else { return ImportAction::Kept };
    let is_same = |file: &PathBuf| copy::is_same(&from.join(file), &to.join(file)).unwrap_or(false);
    match here.keys().all(|file| files.contains_key(file) && is_same(file)) {
        true if here.len() == files.len() => ImportAction::Same,
        true => ImportAction::Updated,
        false => ImportAction::Kept,
    }
}
