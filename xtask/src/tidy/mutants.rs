//! Checks that the seeded bugs of `chaos/mutants` apply to the tree: one that does not apply tests nothing.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

/// Reports the patches that no longer apply.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("chaos").join("mutants");
    let listing = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut problems = Vec::new();
    for item in listing {
        let path = item?.path();
        if path.extension().is_none_or(|ending| ending != "patch") {
            continue;
        }
        let checked = Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root).output();
        let checked = checked.context("cannot start git, which checks whether the seeded bugs apply")?;
        if !checked.status.success() {
            let error = String::from_utf8_lossy(&checked.stderr).trim().replace('\n', "; ");
            problems.push(format!("{}: the patch no longer applies; recreate it ({error})", path.display()));
        }
    }
    problems.sort();
    Ok(problems)
}
