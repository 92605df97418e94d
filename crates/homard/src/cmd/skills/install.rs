//! `homard skills install`, `enable` and `disable`: a directory is copied into the state directory; the config says
//! which skills are used.

use std::{
    fs, io,
    path::{self, Path, PathBuf},
};

use anyhow::{Context, Result};
use homard_config::{edit, path::Path as Key};
use homard_settings::paths::Paths;
use homard_setup::edit_config;
use homard_workspace::skills::{DiscoveryLimits, Skill, SkillRoots, discover};
use serde_json::json;

use super::SkillList;
use crate::{cli_error::CliError, render};

/// Maximum number of files and bytes of a skill.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Copies a skill into the state directory. Nothing of it is run.
pub(super) fn install(paths: &Paths, source: &Path, force: bool, is_json: bool) -> Result<()> {
    let source = path::absolute(source).with_context(|| format!("cannot resolve {}", source.display()))?;
    let invalid = |why: &str| CliError::usage(format!("{} {why}", source.display()));
    if !source.is_dir() {
        return Err(invalid("is not a directory; pass the directory of a skill, which has a SKILL.md").into());
    }
    if !source.join("SKILL.md").is_file() {
        return Err(invalid("has no SKILL.md; create a skill with: homard skills new NAME").into());
    }
    let managed = paths.state.join("skills");
    fs::create_dir_all(&managed).with_context(|| format!("cannot create {}", managed.display()))?;
    let scratch = tempfile::Builder::new().prefix(".install-").tempdir_in(&managed);
    let scratch = scratch.with_context(|| format!("cannot write in {}", managed.display()))?;
    let folder = source.file_name().ok_or_else(|| invalid("has no name"))?;
    // In a directory of its own, so that only this skill is discovered.
    let root = scratch.path().join("new");
    let copied = root.join(folder);
    let mut budget = CopyBudget { files: MAX_FILES, bytes: MAX_BYTES };
    copy(&source, &copied, &mut budget)?;
    let skill = read(&root).ok_or_else(|| invalid("has a SKILL.md without a description; see: homard docs skills"))?;
    let target = managed.join(folder);
    let is_taken = target.symlink_metadata().is_ok();
    if is_taken && !force {
        return Err(
            CliError::new("exists", format!("{} already exists; replace it with --force", target.display())).into()
        );
    }
    let old = scratch.path().join("old");
    if is_taken {
        fs::rename(&target, &old).with_context(|| format!("cannot replace {}", target.display()))?;
    }
    if let Err(error) = fs::rename(&copied, &target) {
        if is_taken && let Err(error) = fs::rename(&old, &target) {
            // The old version must not be deleted with the temporary directory that contains it.
            let kept = scratch.keep();
            tracing::error!(%error, kept = %kept.display(), "failed to restore the previous version of a skill");
        }
        return Err(error).with_context(|| format!("cannot create {}", target.display()));
    }
    if is_json {
        let document = json!({"ok": true, "name": skill.name, "skillKey": skill.key, "path": target});
        return Ok(render::print_json(&document)?);
    }
    let name = &skill.name;
    let text = format!("installed {name} in {}\nsee what it needs with: homard skills info {name}", target.display());
    Ok(render::print(&render::strip_controls(&text))?)
}

/// Reads the one skill below a root.
fn read(root: &Path) -> Option<Skill> {
    let roots = SkillRoots { managed: root.to_owned(), ..SkillRoots::default() };
    discover(&roots, &DiscoveryLimits::default()).skills.into_iter().next()
}

/// What may still be copied.
struct CopyBudget {
    files: usize,
    bytes: u64,
}

/// Copies regular files and directories. A link could lead out of the directory, so it is rejected.
fn copy(from: &Path, to: &Path, budget: &mut CopyBudget) -> Result<()> {
    let failed = |action: &str, path: &Path| format!("cannot {action} {}", path.display());
    fs::create_dir_all(to).with_context(|| failed("create", to))?;
    let entries = fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.with_context(|| failed("read", from))? {
        let (source, target): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&source).with_context(|| failed("read", &source))?;
        if metadata.is_dir() {
            if entry.file_name() != ".git" {
                copy(&source, &target, budget)?;
            }
            continue;
        }
        if !metadata.is_file() {
            let text = format!("{} is a link or not a file; a skill may contain files only", source.display());
            return Err(CliError::usage(text).into());
        }
        let rest = budget.files.checked_sub(1).zip(budget.bytes.checked_sub(metadata.len()));
        let Some((files, bytes)) = rest else {
            let text = format!("the skill has more than {MAX_FILES} files or {} MiB", MAX_BYTES >> 20);
            return Err(CliError::usage(text).into());
        };
        *budget = CopyBudget { files, bytes };
        // Copies the permissions, too: scripts stay executable.
        fs::copy(&source, &target).with_context(|| failed("copy", &source))?;
    }
    Ok(())
}

/// Enables or disables a skill in the config. A running gateway applies it immediately.
pub(super) fn switch(list: &SkillList, paths: &Paths, name: &str, is_enabled: bool, is_json: bool) -> Result<()> {
    let skill = &list.skill(name)?.skill;
    let key = Key::root().key("skills").key("entries").key(&skill.key).key("enabled");
    let change = edit_config(paths, |text| edit::set(text, &key, &json!(is_enabled)))?;
    if is_json {
        return Ok(render::print_json(&json!({
            "ok": true, "name": skill.name, "skillKey": skill.key, "enabled": is_enabled, "changed": change.changed,
            "path": paths.config,
        }))?);
    }
    let state = if is_enabled { "enabled" } else { "disabled" };
    let text = match change.changed.is_empty() {
        true => format!("{} is already {state}; nothing changed", skill.name),
        false => format!("{} is now {state} in {}", skill.name, paths.config.display()),
    };
    Ok(render::print(&render::strip_controls(&text))?)
}
