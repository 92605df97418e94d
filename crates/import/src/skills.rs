//! Imports skills: directories that are copied whole. An existing skill that differs is kept.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use homard_settings::{Config, agent_directories::workspace, paths::Paths};
use homard_workspace::skills::{DiscoveryLimits, ProblemLevel, SkillRoots, discover};

use super::{
    copy,
    plan::{ImportOptions, ImportPlan},
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// Maximum number of files of a skill.
const MAX_FILES: usize = 2_000;

/// Maximum total size of a skill in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Plans all skills: the shared ones, and those in workspaces that Homard will not use itself.
pub(super) fn plan_skills(
    plan: &mut ImportPlan,
    source: &OpenclawState,
    config: &Config,
    paths: &Paths,
    options: ImportOptions,
) {
    folder(plan, &source.root.join("skills"), &paths.state.join("skills"), options);
    for agent in config.agents.members() {
        // A workspace that the config names is used in place, with its skills.
        let is_named =
            agent.config.workspace.is_some() || (agent.is_default && config.agents.defaults.workspace.is_some());
        if is_named {
            continue;
        }
        let source_workspace = match agent.is_default {
            true => source.root.join("workspace"),
            false => source.root.join(format!("workspace-{}", agent.id)),
        };
        let target_workspace = workspace(config, paths, &agent);
        if source_workspace != target_workspace {
            folder(plan, &source_workspace.join("skills"), &target_workspace.join("skills"), options);
        }
    }
}

fn folder(plan: &mut ImportPlan, from: &Path, to: &Path, options: ImportOptions) {
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
        let is_inside = |candidate: &Path| candidate.starts_with(&path);
        for problem in
            found.problems.iter().filter(|listed| listed.level == ProblemLevel::Warning && is_inside(&listed.path))
        {
            plan.warn(&title, &problem.message);
        }
        let read = match found.skills.iter().any(|skill| is_inside(&skill.dir)) {
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
        let target = to.join(&name);
        let action = match skill_action(&path, &target, &files) {
            ImportAction::Kept if options.replace_existing => ImportAction::Updated,
            action @ (ImportAction::New
            | ImportAction::Updated
            | ImportAction::Same
            | ImportAction::Kept
            | ImportAction::Broken) => action,
        };
        plan.counts.skills.push(action);
        match action {
            ImportAction::New | ImportAction::Updated => {
                for file in files.keys() {
                    let (from, to) = (path.join(file), target.join(file));
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
    while let Some(relative) = folders.pop() {
        let listed = source::listed(&folder.join(&relative)).map_err(|why| format!("{why:#}"))?;
        for (name, path) in listed {
            let relative = relative.join(name);
            let found = path.symlink_metadata().map_err(|why: io::Error| format!("{}: {why}", relative.display()))?;
            if found.is_dir() {
                folders.push(relative);
            } else if found.is_file() {
                files.insert(relative, found.len());
            } else {
                return Err(format!("{} is a symlink or not a regular file", relative.display()));
            }
            if files.len() + folders.len() > MAX_FILES || files.values().sum::<u64>() > MAX_BYTES {
                return Err(format!("more than {MAX_FILES} files or {} MiB", MAX_BYTES / 1024 / 1024));
            }
        }
    }
    Ok(files)
}

/// Returns the import action for a skill. If only some of its files exist here, and no others, an earlier import was
/// interrupted.
fn skill_action(from: &Path, to: &Path, files: &BTreeMap<PathBuf, u64>) -> ImportAction {
    if to.symlink_metadata().is_err() {
        return ImportAction::New;
    }
    let Ok(existing) = contents(to) else { return ImportAction::Kept };
    let is_same = |file: &PathBuf| copy::is_same(&from.join(file), &to.join(file)).unwrap_or(false);
    match existing.keys().all(|file| files.contains_key(file) && is_same(file)) {
        true if existing.len() == files.len() => ImportAction::Same,
        true => ImportAction::Updated,
        false => ImportAction::Kept,
    }
}
