//! Sandbox for commands: restricts files, network and system calls.
//!
//! There are three tiers; the best one that the machine supports is used, and never a weaker one silently: tier A is a
//! namespace (bubblewrap) with a system call filter and Landlock, tier B is Landlock and the filter alone, tier C
//! refuses to run commands. Start with `policy`, which says what is wanted; `layers` translates it to paths, and
//! `bubblewrap` and `enter` apply it. Nothing is ever added to the workspace; files that a command must not create
//! there are found by `watch`, while the command runs and after it has ended, and moved to the quarantine.

mod bubblewrap;
mod enter;
mod explain;
mod filter;
mod layers;
mod limits;
mod originals;
mod policy;
mod quarantine;
mod record;
mod relative_sockets;
pub(crate) mod repository;
mod supervise;
mod sweep;
mod tier;
mod watch;

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::process::Command;

use self::{
    enter::Confinement,
    filter::Sockets,
    watch::{Protection, Watch},
};
pub use self::{
    enter::{ENTER, EnterError, enter},
    explain::explain,
    limits::ResourceLimits,
    policy::{AccessMode, SandboxPolicy},
    tier::Tier,
    watch::tidy,
};
pub(crate) use self::{
    limits::{ExceededLimit, Usage},
    watch::{Sweeper, Watches},
};

/// Makes a program's standard input its controlling terminal, and the program a session leader. `setsid` does not fork,
/// because it is not a group leader itself.
const SETSID: [&str; 2] = ["setsid", "-c"];

/// A command that is ready to be started inside its sandbox.
#[derive(Debug)]
pub(crate) struct SandboxedCommand {
    /// The process to start, which leads its process group. Environment and input are still to be set.
    pub(crate) command: Command,
    /// Processes started before the command.
    pub(crate) wrapper: ProcessWrapper,
    /// Resources that must live until the command has ended.
    pub(crate) resources: SandboxResources,
    /// Descriptors that must be open when it starts, and no longer, because other processes started meanwhile inherit
    /// them too.
    pub(crate) inherited: Vec<OwnedFd>,
    /// Pipe on which it reports that its sandbox is built and the command starts; `None` if the command is started
    /// directly.
    pub(crate) ready: Option<io::PipeReader>,
}

/// Processes between the gateway and a command. They are not sent `SIGTERM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessWrapper {
    /// None.
    None,
    /// Those of a namespace: killing them kills everything below.
    Namespace,
    /// A supervisor that exits by itself after it has killed everything that the command left behind.
    Supervisor,
}

impl ProcessWrapper {
    /// Returns the number of process generations.
    pub(crate) fn generations(self) -> usize {
        match self {
            Self::None => 0,
            Self::Namespace => 2,
            Self::Supervisor => 1,
        }
    }
}

/// Resources that must live until a command has ended. Cleans up on drop.
#[derive(Debug, Default)]
pub(crate) struct SandboxResources {
    watch: Option<Watch>,
    temporary: Option<PathBuf>,
    usage: Option<Usage>,
}

/// Where a command runs.
#[derive(Debug)]
pub(crate) struct CommandLocation<'a> {
    /// The writable directory.
    pub(crate) workspace: &'a Path,
    /// Working directory, below `workspace`.
    pub(crate) cwd: &'a Path,
    /// The working directory, opened: its path could lead elsewhere by now.
    pub(crate) directory: &'a OwnedFd,
    /// True if it has a terminal.
    pub(crate) has_terminal: bool,
}

impl SandboxResources {
    /// Returns a private directory for temporary files, where `/tmp` is not private.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// Returns the resource usage to monitor; `None` for an unconfined command.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Returns the sweeper of the workspace while the command runs; `None` for an unconfined command.
    pub(crate) fn sweeper(&self) -> Option<Sweeper> {
        self.watch.as_ref().map(Watch::sweeper)
    }

    /// Finds out what the finished command did that it must not. Returns sentences for the model; `None` for an
    /// unconfined command. Blocks.
    pub(crate) fn finish(mut self) -> Option<Vec<String>> {
        self.watch.take().map(Watch::end)
    }
}

impl Drop for SandboxResources {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary
            && let Err(error) = fs::remove_dir_all(path)
        {
            tracing::warn!(path = %path.display(), %error, "failed to remove the temporary files of a command");
        }
    }
}

/// Returns an unconfined command.
pub(crate) fn unconfined(argv: &[&OsStr], location: &CommandLocation<'_>) -> SandboxedCommand {
    let mut command = terminal(location.has_terminal, argv[0]);
    command.args(&argv[1..]);
    set_working_directory(&mut command, location);
    SandboxedCommand {
        command,
        wrapper: ProcessWrapper::None,
        resources: SandboxResources::default(),
        inherited: Vec::new(),
        ready: None,
    }
}

/// Returns a command in a namespace (tier A).
pub(crate) fn in_namespace(
    (bwrap, has_sizes): (&Path, bool),
    helper: Option<&Path>,
    (argv, location): (&[&OsStr], &CommandLocation<'_>),
    (policy, watches): (&SandboxPolicy, &Watches),
) -> io::Result<SandboxedCommand> {
    let (layers, watch) = watches.begin(policy, location.workspace, Protection::Mounts)?;
    let layers = &layers;
    let sockets = if layers.has_network { Sockets::Any } else { Sockets::Local };
    let filter = filter::in_memory(sockets)?;
    // The helper inherits the writing end and reports through it that the sandbox is built.
    let (reader, writer) = io::pipe()?;
    fcntl_setfd(&writer, FdFlags::empty())?;
    let mut command = Command::new(bwrap);
    let size = policy.limits.temporary.filter(|_| has_sizes);
    command.process_group(0).args(bubblewrap::arguments(layers, location, size));
    command.arg("--seccomp").arg(filter.as_raw_fd().to_string());
    if let Some(helper) = helper {
        command.arg("--ro-bind").arg(helper).arg(bubblewrap::HELPER);
    }
    command.arg("--");
    if helper.is_some() {
        // The system call filter is installed by then.
        let confinement = Confinement::inside(layers, &policy.limits, &writer);
        command.arg(bubblewrap::HELPER).arg(ENTER).arg(confinement.to_argument()?).arg("--");
    }
    // Inside the namespace, not around it: keys that kill a program would otherwise kill the process that holds the
    // namespace.
    command.args(location.has_terminal.then_some(SETSID).into_iter().flatten()).args(argv);
    let usage = Usage::new(policy.limits, location.workspace);
    let resources = SandboxResources { watch: Some(watch), temporary: None, usage: Some(usage) };
    let ready = helper.map(|_| reader);
    Ok(SandboxedCommand {
        command,
        wrapper: ProcessWrapper::Namespace,
        resources,
        inherited: vec![filter, writer.into()],
        ready,
    })
}

/// Returns a command that confines itself before it starts (tier B).
pub(crate) fn self_confined(
    helper: &Path,
    (argv, location): (&[&OsStr], &CommandLocation<'_>),
    (policy, watches): (&SandboxPolicy, &Watches),
) -> io::Result<SandboxedCommand> {
    let (layers, watch) = watches.begin(policy, location.workspace, Protection::Copies)?;
    let temporary = create_temporary()?;
    let confinement = Confinement::alone(&layers, &policy.limits, &temporary, location.has_terminal).to_argument();
    let usage = Usage::new(policy.limits, location.workspace);
    let resources = SandboxResources { watch: Some(watch), temporary: Some(temporary), usage: Some(usage) };
    let mut command = Command::new(helper);
    command.process_group(0).arg(ENTER).arg(confinement?).arg("--").args(argv);
    set_working_directory(&mut command, location);
    Ok(SandboxedCommand { command, wrapper: ProcessWrapper::Supervisor, resources, inherited: Vec::new(), ready: None })
}

/// Sets the opened directory as working directory. It is closed on exec, after the change.
fn set_working_directory(command: &mut Command, location: &CommandLocation<'_>) {
    command.current_dir(format!("/proc/self/fd/{}", location.directory.as_raw_fd()));
}

/// Returns a program that leads its process group, with its input as controlling terminal if it has one.
fn terminal(has_terminal: bool, program: &OsStr) -> Command {
    if !has_terminal {
        let mut command = Command::new(program);
        command.process_group(0);
        return command;
    }
    let [setsid, option] = SETSID;
    let mut command = Command::new(setsid);
    command.arg(option).arg(program);
    command
}

/// Creates a directory that only this user can open.
fn create_temporary() -> io::Result<PathBuf> {
    for number in 0.. {
        let path = PathBuf::from(format!("/tmp/homard-exec-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return path.canonicalize(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("there are too many temporary directories"))
}

/// Returns the canonical paths of those that exist.
fn real(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Converts arguments of a command line.
fn words<const N: usize>(argv: [&str; N]) -> impl Iterator<Item = OsString> {
    argv.map(OsString::from).into_iter()
}
