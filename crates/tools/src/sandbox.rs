//! What holds a command: which files it sees and may change, whether it reaches the network, which system calls it may use.
//!
//! Three tiers, the best that the machine has is taken, and never a worse one in silence: A is a namespace of its own
//! (bubblewrap) with a system call filter and Landlock, B is Landlock and the filter alone, C refuses to run anything.
//! Start with `policy`, which says what is wanted; `layers` turns that into paths, `bubblewrap` and `enter` into deeds.
//! Nothing is ever put into the workspace; what a command must not make there is found by `watch`, while the command runs
//! and when it is over, and taken aside.

mod aside;
mod bubblewrap;
mod enter;
mod explain;
mod filter;
mod layers;
mod limits;
mod originals;
mod policy;
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
    policy::{Mode, SandboxPolicy},
    tier::Tier,
    watch::tidy,
};
pub(crate) use self::{
    limits::{Exceeded, Usage},
    watch::{Sweeper, Watches},
};

/// Makes the input of a program its controlling terminal, and the program the leader of its group. Does not fork,
/// because it does not lead one itself.
const TERMINAL: [&str; 2] = ["setsid", "-c"];

/// A command that is ready to be started inside its sandbox.
#[derive(Debug)]
pub(crate) struct Confined {
    /// What is started, and leads its process group. Environment and input are still to be set.
    pub(crate) command: Command,
    /// What is started before the command.
    pub(crate) wrapper: Wrapper,
    /// What has to stay until the command is over.
    pub(crate) keep: Keep,
    /// What it needs open when it starts, and not any longer: others that are started meanwhile inherit it too.
    pub(crate) opened: Vec<OwnedFd>,
    /// Where it says that its sandbox is made and the command begins; `None` if the command is started directly.
    pub(crate) begun: Option<io::PipeReader>,
}

/// The processes between the gateway and a command. They are not asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapper {
    /// There are none.
    None,
    /// Those of a namespace: their end is a hard end for all below.
    Namespace,
    /// One that ends by itself, when it has killed all that the command left.
    Supervisor,
}

impl Wrapper {
    /// How many generations of processes it is.
    pub(crate) fn generations(self) -> usize {
        match self {
            Self::None => 0,
            Self::Namespace => 2,
            Self::Supervisor => 1,
        }
    }
}

/// What has to stay until a command is over. Tidies up when dropped.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    watch: Option<Watch>,
    temporary: Option<PathBuf>,
    usage: Option<Usage>,
}

/// Where a command runs.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The directory that may be changed.
    pub(crate) workspace: &'a Path,
    /// Where the command starts, below `workspace`.
    pub(crate) cwd: &'a Path,
    /// The same, opened: a name could lead elsewhere by now.
    pub(crate) directory: &'a OwnedFd,
    /// Whether it has a terminal of its own.
    pub(crate) has_terminal: bool,
}

impl Keep {
    /// A directory for temporary files that only this command has, where `/tmp` is not private.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// What is looked at while the command runs; nothing if nothing holds it.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// What looks at the workspace while the command runs; nothing if nothing holds it.
    pub(crate) fn sweeper(&self) -> Option<Sweeper> {
        self.watch.as_ref().map(Watch::sweeper)
    }

    /// Looks what the command did that it should not, now that it is over. Says so in sentences, and nothing at all
    /// about a command that nothing held. Blocks.
    pub(crate) fn look(mut self) -> Option<Vec<String>> {
        self.watch.take().map(Watch::end)
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary
            && let Err(error) = fs::remove_dir_all(path)
        {
            tracing::warn!(path = %path.display(), %error, "temporary files of a command stay");
        }
    }
}

/// A command that nothing holds.
pub(crate) fn unconfined(words: &[&OsStr], place: &Place<'_>) -> Confined {
    let mut command = terminal(place.has_terminal, words[0]);
    command.args(&words[1..]);
    at(&mut command, place);
    Confined { command, wrapper: Wrapper::None, keep: Keep::default(), opened: Vec::new(), begun: None }
}

/// A command in a namespace of its own.
pub(crate) fn in_namespace(
    (bwrap, has_sizes): (&Path, bool),
    helper: Option<&Path>,
    (words, place): (&[&OsStr], &Place<'_>),
    (policy, watches): (&SandboxPolicy, &Watches),
) -> io::Result<Confined> {
    let (layers, watch) = watches.begin(policy, place.workspace, Protection::Mounts)?;
    let layers = &layers;
    let sockets = if layers.has_network { Sockets::Any } else { Sockets::Local };
    let filter = filter::in_memory(sockets)?;
    let (reader, writer) = io::pipe()?;
    fcntl_setfd(&writer, FdFlags::empty())?;
    let mut command = Command::new(bwrap);
    let size = policy.limits.temporary.filter(|_| has_sizes);
    command.process_group(0).args(bubblewrap::arguments(layers, place, size));
    command.arg("--seccomp").arg(filter.as_raw_fd().to_string());
    if let Some(helper) = helper {
        command.arg("--ro-bind").arg(helper).arg(bubblewrap::HELPER);
    }
    command.arg("--");
    if helper.is_some() {
        // The filter is in place by then.
        let confinement = Confinement::inside(layers, &policy.limits, &writer);
        command.arg(bubblewrap::HELPER).arg(ENTER).arg(confinement.spelled()?).arg("--");
    }
    // Not around the namespace: the keys that end a program would end what holds it.
    command.args(place.has_terminal.then_some(TERMINAL).into_iter().flatten()).args(words);
    let usage = Usage::new(policy.limits, place.workspace);
    let keep = Keep { watch: Some(watch), temporary: None, usage: Some(usage) };
    let begun = helper.map(|_| reader);
    Ok(Confined { command, wrapper: Wrapper::Namespace, keep, opened: vec![filter, writer.into()], begun })
}

/// A command that confines itself before it starts.
pub(crate) fn by_itself(
    helper: &Path,
    (words, place): (&[&OsStr], &Place<'_>),
    (policy, watches): (&SandboxPolicy, &Watches),
) -> io::Result<Confined> {
    let (layers, watch) = watches.begin(policy, place.workspace, Protection::Copies)?;
    let temporary = temporary()?;
    let confinement = Confinement::alone(&layers, &policy.limits, &temporary, place.has_terminal).spelled();
    let usage = Usage::new(policy.limits, place.workspace);
    let keep = Keep { watch: Some(watch), temporary: Some(temporary), usage: Some(usage) };
    let mut command = Command::new(helper);
    command.process_group(0).arg(ENTER).arg(confinement?).arg("--").args(words);
    at(&mut command, place);
    Ok(Confined { command, wrapper: Wrapper::Supervisor, keep, opened: Vec::new(), begun: None })
}

/// Starts in the opened directory, which is closed when the program starts, after the change.
fn at(command: &mut Command, place: &Place<'_>) {
    command.current_dir(format!("/proc/self/fd/{}", place.directory.as_raw_fd()));
}

/// A program that leads its process group, with its input as its controlling terminal if it has one.
fn terminal(has_terminal: bool, program: &OsStr) -> Command {
    if !has_terminal {
        let mut command = Command::new(program);
        command.process_group(0);
        return command;
    }
    let [setsid, option] = TERMINAL;
    let mut command = Command::new(setsid);
    command.arg(option).arg(program);
    command
}

/// Makes a directory that only this user can open.
fn temporary() -> io::Result<PathBuf> {
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

/// Paths as they are on the disk, without those that are not there.
fn real(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Words of a command line.
fn words<const N: usize>(words: [&str; N]) -> impl Iterator<Item = OsString> {
    words.map(OsString::from).into_iter()
}
