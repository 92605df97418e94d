//! Checks the config file.

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::config::Config;

/// Same as `homard config validate`.
pub(super) fn look(scene: &Scene) -> Report {
    let file = &scene.paths.config;
    let loaded = Config::read_file(file);
    let problem = |problem: &homard_config::Problem| {
        let to_do = "correct it in the file, or with: homard config set KEY VALUE";
        Finding::wrong(problem.to_string(), to_do).at(file)
    };
    let warning = |warning: &homard_config::Problem| {
        let key = if warning.path.is_empty() { "KEY" } else { &warning.path };
        Finding::note(warning.to_string(), format!("if it is not meant: homard config unset '{key}'")).at(file)
    };
    let summary = match file.exists() {
        true => format!("{} is valid", file.display()),
        false => format!("there is no {}, so the defaults hold", file.display()),
    };
    let fault = |fault: &homard_config::Fault| {
        let to_do = "correct the file; a variable is set where the gateway is started";
        Finding::wrong(fault.to_string(), to_do).at(file)
    };
    let wrong = loaded.problems.iter().map(problem).chain(loaded.faults.iter().map(fault));
    Report::new(summary, wrong.chain(loaded.warnings.iter().map(warning)).collect())
}
