//! Checks the config file.

use homard_settings::Config;

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Same as `homard config validate`.
pub fn check(context: &CheckContext) -> CheckReport {
    let file = &context.paths.config;
    let loaded = Config::read_file(file);
    let problem = |problem: &homard_config::ConfigProblem| {
        let remedy = "correct the file; if it can be parsed, you can also use: homard config set KEY VALUE";
        DoctorFinding::problem(problem.to_string(), remedy).at(file)
    };
    let warning = |warning: &homard_config::ConfigProblem| {
        let key = if warning.path.is_empty() { "KEY" } else { &warning.path };
        DoctorFinding::note(warning.to_string(), format!("to remove the key: homard config unset '{key}'")).at(file)
    };
    let summary = match file.exists() {
        true => format!("{} is valid", file.display()),
        false => format!("{} does not exist, so the defaults apply", file.display()),
    };
    let fault = |fault: &homard_config::ConfigFault| {
        let remedy = "correct the file; set missing environment variables where the gateway is started";
        DoctorFinding::problem(fault.to_string(), remedy).at(file)
    };
    let findings = loaded.problems.iter().map(problem).chain(loaded.faults.iter().map(fault));
    CheckReport::new(summary, findings.chain(loaded.warnings.iter().map(warning)).collect())
}
