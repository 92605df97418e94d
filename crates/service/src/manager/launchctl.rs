//! launchd, through `launchctl`.

use std::path::PathBuf;

use super::{InstallReport, Locations, ServiceState, remove, write};
use crate::{
    Error, command,
    launchd::{LABEL, property_list},
    spec::{Scope, ServiceSpec},
};

/// The launchd domain of the machine or of a user.
#[derive(Debug)]
pub struct Launchctl {
    domain: String,
    folder: PathBuf,
}

impl Launchctl {
    pub(super) fn new(scope: &Scope, locations: &Locations) -> Self {
        match scope {
            Scope::User => Self {
                domain: format!("gui/{}", rustix::process::getuid().as_raw()),
                folder: locations.home.join("Library/LaunchAgents"),
            },
            Scope::System(_) => Self { domain: "system".to_owned(), folder: "/Library/LaunchDaemons".into() },
        }
    }

    pub(super) fn install(&self, spec: &ServiceSpec) -> Result<InstallReport, Error> {
        write(&self.file(), &property_list(spec)?)?;
        Ok(InstallReport { files: vec![self.file()], warnings: Vec::new() })
    }

    pub(super) fn uninstall(&self) -> Result<Vec<PathBuf>, Error> {
        if self.state().pid.is_some() {
            self.stop()?;
        }
        remove(vec![self.file()])
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        run(&["bootstrap", &self.domain, &self.file().to_string_lossy()])
    }

    pub(super) fn stop(&self) -> Result<(), Error> {
        run(&["bootout", &self.target()])
    }

    pub(super) fn restart(&self) -> Result<(), Error> {
        run(&["kickstart", "-k", &self.target()])
    }

    /// Returns the state. A job that is not loaded has none.
    pub(super) fn state(&self) -> ServiceState {
        let text = command::run("launchctl", &["print", &self.target()]).unwrap_or_default();
        let is_installed = self.file().exists();
        ServiceState { manager: "launchd".to_owned(), is_installed, is_enabled: is_installed, ..parse(&text) }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(format!("{LABEL}.plist"))
    }

    fn target(&self) -> String {
        format!("{}/{LABEL}", self.domain)
    }
}

fn run(args: &[&str]) -> Result<(), Error> {
    command::run("launchctl", args).map(drop)
}

/// Reads the output of `launchctl print`.
fn parse(text: &str) -> ServiceState {
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.trim().split_once(" = "))
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    };
    let activity = match value("state") {
        Some("running") => "active",
        Some(_) | None => "inactive",
    };
    ServiceState {
        activity: activity.to_owned(),
        pid: value("pid").and_then(|pid| pid.parse().ok()),
        restarts: value("runs").and_then(|runs| runs.parse::<u32>().ok()).unwrap_or(0).saturating_sub(1),
        last_exit: value("last exit code")
            .filter(|code| *code != "(never exited)")
            .map(|code| format!("exit code {code}")),
        ..ServiceState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_job_is_its_state() {
        let text = "gui/501/ai.homard.gateway = {\n\tstate = running\n\tpid = 77\n\truns = 3\n\tlast exit code = 1\n}";
        let state = parse(text);
        assert_eq!((state.activity.as_str(), state.pid, state.restarts), ("active", Some(77), 2));
        assert_eq!(state.last_exit.as_deref(), Some("exit code 1"));
        assert_eq!(parse("last exit code = (never exited)").last_exit, None);
    }
}
