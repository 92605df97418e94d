//! The last step before a command starts, in its own process: Landlock, the system call filter and limits.
//!
//! A process can only confine itself. So the gateway's own program is started again with [`ENTER`] as its first
//! argument, drops its rights here, and executes the command. Without a namespace it is started twice: the first
//! process supervises the second.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
    path_beneath_rules,
};
use rustix::{
    fs::Mode,
    io::Errno,
    process::{Signal, geteuid, ioctl_tiocsctty, set_parent_process_death_signal, setsid, umask},
    termios::ttyname,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    filter::{self, Sockets},
    layers::{Layer, Layers},
    limits::{ProcessLimits, ResourceLimits},
    supervise::supervise,
};

/// First argument of a program that is started to call [`enter`].
pub const ENTER: &str = "__sandbox-exec";

/// Requested Landlock ABI version; an older kernel enforces less, a newer one the same.
const REQUESTED_ABI: ABI = ABI::V9;

/// Required Landlock ABI version if Landlock alone protects the files: with an older one, a file that is only readable
/// could be truncated.
pub(crate) const REQUIRED_ABI_ALONE: ABI = ABI::V3;

/// Harmless devices. Of terminals only the process's own (`/dev/tty`) is listed, and shared memory is not: both are
/// used by the user's other programs.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/fd"];

/// Byte that is written when a command starts.
const READY_BYTE: [u8; 1] = [b'\n'];

/// Path of this program, valid even if the file was replaced in the meantime.
const SELF: &str = "/proc/self/exe";

/// Reason why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// Invalid arguments.
    #[error("internal command of Homard; usage: {ENTER} CONFINEMENT -- PROGRAM [ARGUMENT…]")]
    Usage,
    /// The kernel refused a restriction.
    #[error("the command could not be confined: {0}")]
    Confine(String),
    /// The program could not be started.
    #[error("{program} could not be started: {source}")]
    Start {
        /// Program to start.
        program: String,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// Restrictions that a process applies to itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Readable paths, except the hidden ones in them.
    read: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Readable paths inside writable ones. Excluded from writing only where a writable path has to be split anyway.
    kept: Vec<PathBuf>,
    /// Sockets that the system call filter allows; `None` if the filter is already active.
    sockets: Option<Sockets>,
    limits: ProcessLimits,
    stage: Stage,
}

/// Role of a process on the way to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Confines itself inside a namespace. Writes to this descriptor first: from then on, the command may have had an
    /// effect.
    Inside { begun: i32 },
    /// Supervises another process, for the gateway with this process id.
    Supervisor { gateway: u32, has_terminal: bool },
    /// Confines itself, without any other protection. Its input may be a terminal of its own.
    Alone { has_terminal: bool },
}

impl Confinement {
    /// Returns the confinement inside a namespace, which repeats by Landlock what mounts hide and protect.
    ///
    /// For hidden files it also adds protection: a mount is lost when its file is replaced from outside, and the new
    /// file is not covered by the rules made at the start. Files that the system itself replaces (`/etc`) stay
    /// readable.
    pub(crate) fn inside(layers: &Layers, limits: &ResourceLimits, ready: &impl AsRawFd) -> Self {
        let readable = layers.of(Layer::Writable).chain(layers.of(Layer::Readable)).cloned();
        let write = layers.of(Layer::Writable).chain(layers.of(Layer::Private)).cloned();
        let hidden = layers.of(Layer::Hidden).filter(|path| !path.starts_with("/etc"));
        Self {
            read: [PathBuf::from("/")].into_iter().chain(readable).collect(),
            hidden: hidden.cloned().collect(),
            write: write.chain([PathBuf::from("/dev"), PathBuf::from("/proc/self")]).collect(),
            kept: Vec::new(),
            sockets: None,
            limits: ProcessLimits::new(limits),
            stage: Stage::Inside { begun: ready.as_raw_fd() },
        }
    }

    /// Returns the confinement without a namespace.
    pub(crate) fn alone(layers: &Layers, limits: &ResourceLimits, temporary: &Path, has_terminal: bool) -> Self {
        let readable = layers.of(Layer::Writable).chain(layers.of(Layer::Readable)).cloned();
        let write = layers.of(Layer::Writable).cloned().chain([temporary.to_owned()]);
        let hidden = layers.of(Layer::Hidden).chain(layers.of(Layer::Private)).cloned();
        Self {
            read: [PathBuf::from("/")].into_iter().chain(readable).collect(),
            hidden: hidden.chain([PathBuf::from("/dev")]).collect(),
            write: write.collect(),
            kept: layers.of(Layer::Readable).cloned().collect(),
            sockets: Some(if layers.has_network { Sockets::Outward } else { Sockets::No }),
            limits: ProcessLimits::new(limits),
            stage: Stage::Supervisor { gateway: std::process::id(), has_terminal },
        }
    }

    /// Returns a confinement for testing whether Landlock and the filter work.
    pub(crate) fn trial() -> Self {
        let (read, hidden) = (vec!["/".into()], vec!["/dev".into()]);
        let stage = Stage::Supervisor { gateway: std::process::id(), has_terminal: false };
        let limits = ProcessLimits::new(&ResourceLimits::default());
        Self { read, hidden, write: Vec::new(), kept: Vec::new(), sockets: Some(Sockets::No), limits, stage }
    }

    /// Returns it as one command line argument.
    pub(crate) fn to_argument(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }

    fn apply(&self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        self.limits.apply().map_err(|error| format!("cannot set resource limits: {error}"))?;
        let mut devices = Vec::new();
        if let Stage::Alone { has_terminal } = self.stage {
            // Without a namespace, this ends the command together with its supervisor.
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| text(&error))?;
            devices = DEVICES.map(PathBuf::from).into();
            devices.extend(leave_terminal(has_terminal).map_err(|error| text(&error))?);
            // Programs cannot set other modes later: see `filter::ungoverned`.
            umask(Mode::RWXG | Mode::RWXO);
            drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
        }
        self.restrict_files(&devices)?;
        if let Some(sockets) = self.sockets {
            let program = filter::program(sockets).map_err(|error| text(&error))?;
            seccompiler::apply_filter(&program).map_err(|error| text(&error))?;
        }
        if let Stage::Alone { .. } = self.stage {
            for program in filter::ungoverned::programs(geteuid().is_root()).map_err(|error| text(&error))? {
                seccompiler::apply_filter(&program).map_err(|error| text(&error))?;
            }
        }
        Ok(())
    }

    fn restrict_files(&self, devices: &[PathBuf]) -> Result<(), String> {
        let mut readable = BTreeSet::new();
        let hidden: BTreeSet<_> = self.hidden.iter().cloned().collect();
        for path in &self.read {
            around(path, &hidden, &mut readable);
        }
        // With mounts, no path has to be excluded. Without them, a directory that contains something hidden can be
        // listed, but nothing can be created directly in it, because Landlock would allow that for everything below.
        let (mut writable, mut split) = (BTreeSet::new(), BTreeSet::new());
        let excluded: BTreeSet<_> = hidden.iter().chain(&self.kept).cloned().collect();
        let is_inside = matches!(self.stage, Stage::Inside { .. });
        for path in &self.write {
            if !is_inside && hidden.iter().any(|hidden_path| hidden_path.starts_with(path)) {
                around(path, &excluded, &mut writable);
                split.insert(path);
            } else {
                writable.insert(path.clone());
            }
        }
        // With mounts, a hidden directory is empty, so listing it reveals nothing.
        let listed = is_inside.then_some("/");
        let required = if is_inside { ABI::V1 } else { REQUIRED_ABI_ALONE };
        let restrict = || {
            Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(required))?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(REQUESTED_ABI))?
                .scope(Scope::from_all(REQUESTED_ABI))?
                .create()?
                .add_rules(path_beneath_rules(&readable, AccessFs::from_read(REQUESTED_ABI)))?
                .add_rules(path_beneath_rules(&writable, AccessFs::from_all(REQUESTED_ABI)))?
                .add_rules(path_beneath_rules(&split, AccessFs::ReadDir))?
                .add_rules(path_beneath_rules(listed, AccessFs::ReadDir))?
                .add_rules(path_beneath_rules(devices, AccessFs::from_all(REQUESTED_ABI)))?
                .restrict_self()
        };
        let status: Result<_, landlock::RulesetError> = restrict();
        match status.map_err(|error| error.to_string())?.ruleset {
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
            RulesetStatus::NotEnforced => Err("Landlock is not enabled in this kernel".to_owned()),
        }
    }
}

/// Confines this process and executes the command, or supervises it; `arguments` are those after [`ENTER`].
///
/// Returns the exit code of the supervised command, or an error if none was started. Call it first in `main`, while
/// there is only one thread.
pub fn enter(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, EnterError> {
    let mut arguments = arguments.into_iter();
    let confinement = arguments.next().and_then(|text| serde_json::from_str(text.to_str()?).ok());
    let confinement: Confinement = confinement.ok_or(EnterError::Usage)?;
    let program = arguments.next().filter(|argument| argument == "--").and_then(|_| arguments.next());
    let program = program.ok_or(EnterError::Usage)?;
    if let Stage::Supervisor { gateway, has_terminal } = confinement.stage {
        let confinement = Confinement { stage: Stage::Alone { has_terminal }, ..confinement };
        let text = |error: io::Error| EnterError::Confine(error.to_string());
        let mut command = Command::new(SELF);
        command.arg(ENTER).arg(confinement.to_argument().map_err(text)?).arg("--").arg(program).args(arguments);
        return supervise(gateway, &mut command).map_err(text);
    }
    if let Stage::Inside { begun: ready } = confinement.stage {
        let written = fs::write(format!("/proc/self/fd/{ready}"), READY_BYTE);
        written.map_err(|error| EnterError::Confine(format!("cannot notify the gateway: {error}")))?;
    }
    confinement.apply().map_err(EnterError::Confine)?;
    let source = Command::new(&program).args(arguments).exec();
    Err(EnterError::Start { program: program.to_string_lossy().into_owned(), source })
}

/// Leaves the session of the gateway, whose terminal would be accessible otherwise. If standard input is a terminal, it
/// becomes the controlling terminal, and its path is returned.
fn leave_terminal(has_terminal: bool) -> io::Result<Option<PathBuf>> {
    setsid()?;
    if !has_terminal {
        return Ok(None);
    }
    ioctl_tiocsctty(io::stdin())?;
    let path = ttyname(io::stdin(), Vec::new())?;
    Ok(Some(PathBuf::from(OsStr::from_bytes(path.as_bytes()))))
}

/// Adds the largest subtrees of `path` that contain nothing hidden, because Landlock rules can only allow.
fn around(path: &Path, hidden: &BTreeSet<PathBuf>, into: &mut BTreeSet<PathBuf>) {
    if hidden.contains(path) {
        return;
    }
    if !hidden.iter().any(|hidden_path| hidden_path.starts_with(path)) {
        into.insert(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A symlink is resolved when it is used; the rules apply to its target.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            around(&entry.path(), hidden, into);
        }
    }
}

/// Drops all capabilities, and verifies that they are gone.
fn drop_capabilities() -> io::Result<()> {
    let may_lower = capabilities(None)?.effective.contains(CapabilitySet::SETPCAP);
    // Without the right to lower the bounding set, it is harmless: programs gain no new rights (`no_new_privs`).
    for capability in CapabilitySet::all().iter().filter(|_| may_lower) {
        match remove_capability_from_bounding_set(capability) {
            // An older kernel does not know all of them.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    set_no_new_privs(true)?;
    if capabilities(None)? == none { Ok(()) } else { Err(io::Error::other("some capabilities remain")) }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

    use super::*;

    /// Drops the capabilities of a thread that has a filter.
    fn drop_with(rules: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
        let program = filter::compiled(rules, libc::EPERM).unwrap();
        let dropping = thread::spawn(move || {
            seccompiler::apply_filter(&program).unwrap();
            drop_capabilities()
        });
        dropping.join().unwrap()
    }

    #[test]
    fn capabilities_that_cannot_be_dropped_are_an_error() {
        assert!(drop_with(BTreeMap::from([(libc::SYS_capset, Vec::new())])).is_err());
        let lowers = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::PR_CAPBSET_DROP as u64);
        let lowers = SeccompRule::new(vec![lowers.unwrap()]).unwrap();
        let has_any = !capabilities(None).unwrap().effective.is_empty();
        assert_eq!(drop_with(BTreeMap::from([(libc::SYS_prctl, vec![lowers])])).is_err(), has_any);
        let dropped = thread::spawn(|| (drop_capabilities().is_ok(), capabilities(None).unwrap().permitted.is_empty()));
        assert_eq!(dropped.join().unwrap(), (true, true));
    }
}
