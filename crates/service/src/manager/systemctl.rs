//! systemd, through `systemctl`.

use std::{collections::BTreeMap, path::PathBuf};

use super::{InstallReport, Locations, ServiceState, remove, write};
use crate::{
    Error, command,
    spec::{NAME, Scope, ServiceSpec},
    systemd,
};

/// States of a manager that can start services.
const RUNNING: [&str; 5] = ["running", "degraded", "starting", "initializing", "maintenance"];

/// The systemd of the machine or of a user.
#[derive(Debug)]
pub struct Systemctl {
    is_user: bool,
    folder: PathBuf,
}

impl Systemctl {
    pub(super) fn find(scope: &Scope, locations: &Locations) -> Option<Self> {
        let systemd = match scope {
            Scope::User => Self { is_user: true, folder: locations.config.join("systemd/user") },
            Scope::System(_) => Self { is_user: false, folder: "/etc/systemd/system".into() },
        };
        // The exit code also reports failed units.
        let output = command::output("systemctl", &systemd.args(&["is-system-running"])).ok()?;
        RUNNING.contains(&command::text(&output.stdout).as_str()).then_some(systemd)
    }

    pub(super) fn install(&self, spec: &ServiceSpec) -> Result<InstallReport, Error> {
        let [service, socket] = self.files();
        let units = (systemd::service(spec)?, systemd::socket(spec));
        write(&service, &units.0)?;
        let mut installed = InstallReport { files: vec![service], warnings: Vec::new() };
        match units.1 {
            Some(unit) => {
                write(&socket, &unit)?;
                installed.files.push(socket);
            }
            None => drop(remove(vec![socket])?),
        }
        self.run(&["daemon-reload"])?;
        self.run(&["enable", &unit("service")])?;
        // Without it the manager of a user ends with the user's last session.
        if self.is_user
            && let Err(error) = command::run("loginctl", &["enable-linger"])
        {
            let text =
                format!("the service stops when you log out: {error}; to change that: sudo loginctl enable-linger");
            installed.warnings.push(text);
        }
        Ok(installed)
    }

    pub(super) fn uninstall(&self) -> Result<Vec<PathBuf>, Error> {
        let files = self.files();
        let existing: Vec<_> = files.iter().filter(|path| path.exists()).collect();
        let units: Vec<_> =
            existing.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
        if !units.is_empty() {
            self.run(&[&["disable", "--now"], &units.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat())?;
        }
        let removed = remove(files.to_vec())?;
        self.run(&["daemon-reload"])?;
        Ok(removed)
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        self.run(&["start", &unit("service")])
    }

    /// The socket first: otherwise the next connection would start the service again.
    pub(super) fn stop(&self) -> Result<(), Error> {
        let [_, socket] = self.files();
        if socket.exists() {
            self.run(&["stop", &unit("socket"), &unit("service")])
        } else {
            self.run(&["stop", &unit("service")])
        }
    }

    pub(super) fn restart(&self) -> Result<(), Error> {
        self.run(&["restart", &unit("service")])
    }

    pub(super) fn state(&self) -> Result<ServiceState, Error> {
        let properties = "--property=LoadState,UnitFileState,ActiveState,MainPID,NRestarts,ExecMainCode,ExecMainStatus";
        let text = command::run("systemctl", &self.args(&["show", &unit("service"), properties]))?;
        Ok(ServiceState { manager: self.name().to_owned(), ..parse(&text) })
    }

    fn name(&self) -> &'static str {
        if self.is_user { "systemd (user)" } else { "systemd" }
    }

    fn files(&self) -> [PathBuf; 2] {
        ["service", "socket"].map(|kind| self.folder.join(unit(kind)))
    }

    fn run(&self, args: &[&str]) -> Result<(), Error> {
        command::run("systemctl", &self.args(args)).map(drop)
    }

    fn args<'a>(&self, args: &[&'a str]) -> Vec<&'a str> {
        let user: &[&str] = if self.is_user { &["--user"] } else { &[] };
        [user, args].concat()
    }
}

fn unit(kind: &str) -> String {
    format!("{NAME}.{kind}")
}

/// Reads the output of `systemctl show`.
fn parse(text: &str) -> ServiceState {
    let values: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let text = |name: &str| values.get(name).copied().unwrap_or_default();
    let number = |name: &str| text(name).parse::<u32>().unwrap_or(0);
    // The codes of waitid(2).
    let last_exit = match (number("ExecMainCode"), number("ExecMainStatus")) {
        (0, _) => None,
        (1, status) => Some(format!("exit code {status}")),
        (_, signal) => Some(format!("signal {signal}")),
    };
    ServiceState {
        manager: String::new(),
        is_installed: text("LoadState") == "loaded",
        is_enabled: text("UnitFileState") == "enabled",
        activity: text("ActiveState").to_owned(),
        pid: Some(number("MainPID")).filter(|pid| *pid > 0),
        restarts: number("NRestarts"),
        last_exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_of_a_unit_are_its_state() {
        let text = "MainPID=812\nNRestarts=2\nExecMainCode=0\nExecMainStatus=0\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled";
        let expected = ServiceState {
            is_installed: true,
            is_enabled: true,
            activity: "active".to_owned(),
            pid: Some(812),
            restarts: 2,
            ..ServiceState::default()
        };
        assert_eq!(parse(text), expected);
        let ended = |code, status| parse(&format!("ExecMainCode={code}\nExecMainStatus={status}")).last_exit;
        assert_eq!((ended(1, 78), ended(2, 9)), (Some("exit code 78".to_owned()), Some("signal 9".to_owned())));
        let missing = parse("LoadState=not-found\nActiveState=inactive\nMainPID=0");
        assert_eq!((missing.is_installed, missing.pid, missing.activity.as_str()), (false, None, "inactive"));
    }
}
