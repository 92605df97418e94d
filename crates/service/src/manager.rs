//! The service manager of this machine: installs, starts, stops and inspects the service.

mod launchctl;
mod systemctl;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use self::{launchctl::Launchctl, systemctl::Systemctl};
use crate::{
    Error,
    spec::{Scope, ServiceSpec},
};

/// The service manager of the machine or of a user.
#[derive(Debug)]
pub enum Manager {
    /// systemd.
    Systemd(Systemctl),
    /// launchd.
    Launchd(Launchctl),
}

/// The state of the service, as its manager sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    /// The manager: `systemd (user)`, `systemd`, `launchd` or `supervisor`.
    pub manager: String,
    /// True if the service is installed.
    pub is_installed: bool,
    /// True if the service starts with the machine, or with the user's first session.
    pub is_enabled: bool,
    /// What the service does: `active`, `inactive`, `failed` and others.
    pub activity: String,
    /// Process id of the gateway.
    pub pid: Option<u32>,
    /// How often the manager restarted the gateway after a failure.
    pub restarts: u32,
    /// How the gateway ended last, if it did.
    pub last_exit: Option<String>,
}

/// Where services are installed.
#[derive(Debug, Clone)]
pub struct Locations {
    /// The user's home directory.
    pub home: PathBuf,
    /// The user's directory for configuration.
    pub config: PathBuf,
}

impl Manager {
    /// Finds the running manager for this kind of service; `None` if there is none.
    pub fn find(scope: &Scope, locations: &Locations) -> Option<Self> {
        if cfg!(target_os = "macos") {
            return Some(Self::Launchd(Launchctl::new(scope, locations)));
        }
        Systemctl::find(scope, locations).map(Self::Systemd)
    }

    /// Writes the files of the service and enables it. Returns the files, and warnings.
    pub fn install(&self, spec: &ServiceSpec) -> Result<InstallReport, Error> {
        match self {
            Self::Systemd(systemd) => systemd.install(spec),
            Self::Launchd(launchd) => launchd.install(spec),
        }
    }

    /// Stops the service and removes its files. Returns the files.
    pub fn uninstall(&self) -> Result<Vec<PathBuf>, Error> {
        match self {
            Self::Systemd(systemd) => systemd.uninstall(),
            Self::Launchd(launchd) => launchd.uninstall(),
        }
    }

    /// Starts the service.
    pub fn start(&self) -> Result<(), Error> {
        match self {
            Self::Systemd(systemd) => systemd.start(),
            Self::Launchd(launchd) => launchd.start(),
        }
    }

    /// Stops the service.
    pub fn stop(&self) -> Result<(), Error> {
        match self {
            Self::Systemd(systemd) => systemd.stop(),
            Self::Launchd(launchd) => launchd.stop(),
        }
    }

    /// Stops and starts the service.
    pub fn restart(&self) -> Result<(), Error> {
        match self {
            Self::Systemd(systemd) => systemd.restart(),
            Self::Launchd(launchd) => launchd.restart(),
        }
    }

    /// Returns the state of the service.
    pub fn state(&self) -> Result<ServiceState, Error> {
        match self {
            Self::Systemd(systemd) => systemd.state(),
            Self::Launchd(launchd) => Ok(launchd.state()),
        }
    }
}

/// The files of a service, and what could not be set up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// The files.
    pub files: Vec<PathBuf>,
    /// What does not work, and how to correct it.
    pub warnings: Vec<String>,
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
    }
    fs::write(path, text).map_err(Error::file("write", path))
}

/// Removes the files that exist and returns them.
fn remove(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    let existing: Vec<_> = files.into_iter().filter(|path| path.exists()).collect();
    for path in &existing {
        fs::remove_file(path).map_err(Error::file("remove", path))?;
    }
    Ok(existing)
}
