//! `homard plugins doctor`: examines each enabled plugin and starts it briefly.

use anyhow::Result;
use homard_app::plugins::PluginList;
use homard_doctor::plugins::examine;

use crate::{cli_error::CliError, render};

/// Examines and starts all enabled plugins. Fails if one of them is unusable.
pub(super) async fn run(list: &PluginList, wants_json: bool) -> Result<()> {
    let checks = examine(list).await;
    match wants_json {
        true => render::print_json(&checks.document())?,
        false => render::print(&checks.text())?,
    }
    match checks.problem_count() {
        0 => Ok(()),
        problems => {
            let count = render::count(problems, "problem");
            Err(CliError::new("plugins", format!("not all enabled plugins can be used: {count}")).into())
        }
    }
}
