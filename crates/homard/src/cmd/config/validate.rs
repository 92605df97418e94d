//! `homard config validate`: checks the file.

use anyhow::Result;
use serde_json::json;

use crate::{
    config::{Config, change::issue},
    failure::Failure,
    paths::Paths,
    render,
};

/// Prints all errors and warnings; fails if the file is invalid.
pub(super) fn run(paths: &Paths, json: bool) -> Result<()> {
    let loaded = Config::read_file(&paths.config);
    let file = paths.config.display();
    let (problems, warnings) = (&loaded.wrong(), &loaded.warnings);
    if json {
        let [issues, remarks] = [problems, warnings].map(|told| told.iter().map(issue).collect::<Vec<_>>());
        render::print_json(&json!({
            "path": paths.config, "exists": paths.config.exists(), "valid": loaded.is_valid(), "issues": issues,
            "warnings": remarks,
        }))?;
    } else {
        for (kind, told) in [("problem", problems), ("warning", warnings)] {
            for one in told {
                render::print(&render::harmless(&format!("{kind}: {one}")))?;
            }
        }
    }
    let count = match problems.len() {
        0 if json => return Ok(()),
        0 if !paths.config.exists() => {
            return Ok(render::print(&format!("there is no config file at {file}; the defaults hold"))?);
        }
        0 => return Ok(render::print(&format!("config file {file} is valid"))?),
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    Err(Failure::new("config", format!("config file {file} is not valid: {count}")).into())
}
