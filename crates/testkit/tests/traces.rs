//! Every file `traces/<topic>/<behaviour>.trace` is a test; its expected outcome is the `.snap` beside it.
//!
//! For how to write one and how to accept a snapshot, see the documentation of `homard_testkit`.

use std::{fs, path::Path};

use homard_testkit::{Trace, invariants, play, snapshot::format_snapshot};

datatest_stable::harness! { { test = case, root = "tests/traces", pattern = r"\.trace$" } }

fn case(path: &Path) -> datatest_stable::Result<()> {
    let trace = Trace::read(&path.display().to_string(), &fs::read_to_string(path)?)?;
    let result = play(&trace)?;
    let snapshot = format_snapshot(&result);
    let problems = invariants::violations(&result);
    if !problems.is_empty() {
        return Err(format!("{}:\n  {}\n\n{snapshot}", path.display(), problems.join("\n  ")).into());
    }
    assert_eq!(snapshot, format_snapshot(&play(&trace)?), "{} went another way the second time", path.display());

    let folder = path.parent().and_then(|folder| folder.canonicalize().ok()).ok_or("the trace is in no folder")?;
    let name = path.file_stem().and_then(|name| name.to_str()).ok_or("the trace has no name")?;
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, snapshot));
    Ok(())
}
