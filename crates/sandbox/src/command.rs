//! A command and the sandbox around it: what is started, and what must live until it has ended.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::process::Command;

use crate::{
    bubblewrap,
    enter::{Confinement, ENTER},
    filter::{self, Sockets},
    limits::Usage,
    policy::{AccessMode, SandboxPolicy},
    tier::Tier,
    watch::{Protection, Sweeper, Watch, Watches},
};

/// Makes a program's standard input its controlling terminal, and the program a session leader. `setsid` does not fork,
/// because it is not a group leader itself.
const SETSID: [&str; 2] = ["setsid", "-c"];

/// A command that is ready to be started inside its sandbox.
#[derive(Debug)]
pub struct SandboxedCommand {
    /// The process to start, which leads its process group. Environment and input are still to be set.
    pub command: Command,
    /// Processes started before the command.
    pub wrapper: ProcessWrapper,
    /// Resources that must live until the command has ended.
    pub resources: SandboxResources,
    /// Descriptors that must be open when it starts, and no longer, because other processes started meanwhile inherit
    /// them too.
    pub inherited: Vec<OwnedFd>,
    /// Pipe on which it reports that its sandbox is built and the command starts; `None` if the command is started
    /// directly.
    pub ready: Option<io::PipeReader>,
}

/// Processes between the gateway and a command. They are not sent `SIGTERM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessWrapper {
    /// None.
    None,
    /// Those of a namespace: killing them kills everything below.
    Namespace,
    /// A supervisor that exits by itself after it has killed everything that the command left behind.
    Supervisor,
}

impl ProcessWrapper {
    /// Returns the number of process generations.
    pub fn generations(self) -> usize {
        match self {
            Self::None => 0,
            Self::Namespace => 2,
            Self::Supervisor => 1,
        }
    }
}

/// Resources that must live until a command has ended. Cleans up on drop.
#[derive(Debug, Default)]
pub struct SandboxResources {
    watch: Option<Watch>,
    temporary: Option<PathBuf>,
    usage: Option<Usage>,
}

/// Where a command runs.
#[derive(Debug)]
pub struct CommandLocation<'a> {
    /// The writable directory.
    pub workspace: &'a Path,
    /// Working directory, below `workspace`.
    pub cwd: &'a Path,
    /// The working directory, opened: its path could lead elsewhere by now.
    pub directory: &'a OwnedFd,
    /// True if it has a terminal.
    pub has_terminal: bool,
}

impl SandboxResources {
    /// Returns a private directory for temporary files, where `/tmp` is not private.
    pub fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// Returns the resource usage to monitor; `None` for an unconfined command.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Returns the sweeper of the workspace while the command runs; `None` for an unconfined command.
    pub fn sweeper(&self) -> Option<Sweeper> {
        self.watch.as_ref().map(Watch::sweeper)
    }

    /// Finds out what the finished command did that it must not. Returns sentences for the model; `None` for an
    /// unconfined command. Blocks.
    pub fn finish(mut self) -> Option<Vec<String>> {
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

/// Why a command was not prepared.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// This machine has no sandbox for it.
    #[error("no sandbox is available: {why}")]
    NoSandbox {
        /// What is missing.
        why: String,
    },
    /// Its sandbox could not be created.
    #[error("the sandbox could not be created: {0}")]
    Io(#[from] io::Error),
}

/// Prepares commands under one policy.
#[derive(Debug, Clone, Copy)]
pub struct Sandbox<'a> {
    /// What a command may access.
    pub policy: &'a SandboxPolicy,
    /// What this machine supports; needed unless the policy allows everything.
    pub tier: Option<&'a Tier>,
    /// Program that calls [`enter`](crate::enter) when its first argument is [`ENTER`].
    pub helper: Option<&'a Path>,
    /// The commands that currently run in the same workspaces.
    pub watches: &'a Watches,
}

impl Sandbox<'_> {
    /// Prepares a command. A command is never less confined than the policy and the tier say. Blocks.
    pub fn command(&self, argv: &[&OsStr], location: &CommandLocation<'_>) -> Result<SandboxedCommand, CommandError> {
        if self.policy.mode == AccessMode::Full {
            return Ok(unconfined(argv, location));
        }
        let confined = match (self.tier, self.helper) {
            (Some(Tier::A { bwrap, has_sizes }), _) => self.in_namespace(bwrap, *has_sizes, argv, location),
            (Some(Tier::B { .. }), Some(helper)) => self.self_confined(helper, argv, location),
            (Some(Tier::B { why } | Tier::C { why }), _) => return Err(CommandError::NoSandbox { why: why.clone() }),
            (None, _) => return Err(CommandError::NoSandbox { why: "its tier was not detected".to_owned() }),
        };
        Ok(confined?)
    }

    /// Returns a command in a namespace (tier A).
    fn in_namespace(
        &self,
        bwrap: &Path,
        has_sizes: bool,
        argv: &[&OsStr],
        location: &CommandLocation<'_>,
    ) -> io::Result<SandboxedCommand> {
        let (layers, watch) = self.watches.begin(self.policy, location.workspace, Protection::Mounts)?;
        let (layers, limits) = (&layers, &self.policy.limits);
        let sockets = if layers.has_network { Sockets::Any } else { Sockets::Local };
        let filter = filter::in_memory(sockets)?;
        // The helper inherits the writing end and reports through it that the sandbox is built.
        let (reader, writer) = io::pipe()?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        let mut command = Command::new(bwrap);
        let size = limits.temporary.filter(|_| has_sizes);
        command.process_group(0).args(bubblewrap::arguments(layers, location, size));
        command.arg("--seccomp").arg(filter.as_raw_fd().to_string());
        if let Some(helper) = self.helper {
            command.arg("--ro-bind").arg(helper).arg(bubblewrap::HELPER);
        }
        command.arg("--");
        if self.helper.is_some() {
            // The system call filter is installed by then.
            let confinement = Confinement::inside(layers, limits, &writer);
            command.arg(bubblewrap::HELPER).arg(ENTER).arg(confinement.to_argument()?).arg("--");
        }
        // Inside the namespace, not around it: keys that kill a program would otherwise kill the process that holds
        // the namespace.
        command.args(location.has_terminal.then_some(SETSID).into_iter().flatten()).args(argv);
        let usage = Usage::new(*limits, location.workspace);
        let resources = SandboxResources { watch: Some(watch), temporary: None, usage: Some(usage) };
        let ready = self.helper.map(|_| reader);
        Ok(SandboxedCommand {
            command,
            wrapper: ProcessWrapper::Namespace,
            resources,
            inherited: vec![filter, writer.into()],
            ready,
        })
    }

    /// Returns a command that confines itself before it starts (tier B).
    fn self_confined(
        &self,
        helper: &Path,
        argv: &[&OsStr],
        location: &CommandLocation<'_>,
    ) -> io::Result<SandboxedCommand> {
        let (layers, watch) = self.watches.begin(self.policy, location.workspace, Protection::Copies)?;
        let temporary = create_temporary()?;
        let limits = &self.policy.limits;
        let confinement = Confinement::alone(&layers, limits, &temporary, location.has_terminal).to_argument();
        let usage = Usage::new(*limits, location.workspace);
        let resources = SandboxResources { watch: Some(watch), temporary: Some(temporary), usage: Some(usage) };
        let mut command = Command::new(helper);
        command.process_group(0).arg(ENTER).arg(confinement?).arg("--").args(argv);
        set_working_directory(&mut command, location);
        let (wrapper, inherited) = (ProcessWrapper::Supervisor, Vec::new());
        Ok(SandboxedCommand { command, wrapper, resources, inherited, ready: None })
    }
}

/// Returns an unconfined command.
fn unconfined(argv: &[&OsStr], location: &CommandLocation<'_>) -> SandboxedCommand {
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
