//! `homard config validate`: checks the file.

use anyhow::Result;
use homard_settings::{Config, change::issue, paths::Paths};
use serde_json::json;

use crate::{cli_error::CliError, render};

/// Prints all errors and warnings; fails if the file is invalid.
pub(super) fn run(paths: &Paths, json: bool) -> Result<()> {
    let loaded = Config::read_file(&paths.config);
    let file = paths.config.display();
    let (problems, warnings) = (&loaded.all_problems(), &loaded.warnings);
    if json {
        let [issues, warning_issues] = [problems, warnings].map(|list| list.iter().map(issue).collect::<Vec<_>>());
        render::print_json(&json!({
            "path": paths.config, "exists": paths.config.exists(), "valid": loaded.is_valid(), "issues": issues,
            "warnings": warning_issues,
        }))?;
    } else {
        for (kind, list) in [("problem", problems), ("warning", warnings)] {
            for entry in list {
                render::print(&render::strip_controls(&format!("{kind}: {entry}")))?;
            }
        }
    }
    let count = match problems.len() {
        0 if json => return Ok(()),
        0 if !paths.config.exists() => {
            return Ok(render::print(&format!("config file {file} does not exist; the defaults apply"))?);
        }
        0 => return Ok(render::print(&format!("config file {file} is valid"))?),
        count => render::count(count, "problem"),
    };
    Err(CliError::new("config", format!("config file {file} is not valid: {count}")).into())
}
