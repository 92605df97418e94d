//! A running command: started, read, and killed with everything that it has started.

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::{fs::fstat, io::Errno, process::Pid};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::{Receiver, Sender},
    process::Child,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    sandbox::{CommandTree, ExceededLimit, MARK, ProcessWrapper, SandboxResources, SandboxedCommand, Sweeper, Usage},
    terminal::PseudoTerminal,
};

/// How long to keep reading the output after the command has ended: a process left behind may hold the pipe open
/// forever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Time for a killed command to be reaped.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for building a sandbox. After that, the command counts as started.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between checks of resource usage.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between two sweeps of the workspace for files that a command must not create.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Ratio of the pause to the duration of the sweep before it, per running command: large workspaces are swept less
/// often.
const SWEEP_PAUSE_RATIO: u32 = 20;

/// How a command's standard streams are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdioMode {
    /// No input.
    NoInput,
    /// Input from a pipe.
    Piped,
    /// A pseudo-terminal.
    Terminal,
}

/// Input of a command.
#[derive(Debug)]
pub(crate) struct CommandInput {
    pub(crate) pipe: Sender,
    /// True for a terminal, where control keys have a meaning.
    pub(crate) is_terminal: bool,
}

/// A running command. Dropping it kills the whole process tree.
#[derive(Debug)]
pub(crate) struct CommandProcess {
    child: Child,
    output: Receiver,
    ready: Option<Receiver>,
    tree: CommandTree,
    /// Last field, so that it is dropped when nothing needs it any more.
    resources: SandboxResources,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum CommandEnd {
    /// It exited, or was killed by a foreign signal.
    Exited(ExitStatus),
    /// It reached its time limit.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It exceeded a resource limit.
    Exceeded(ExceededLimit),
    /// It recreated a file that the sandbox had moved to the quarantine.
    Planted(PathBuf),
    /// Its exit status could not be obtained.
    Lost(io::Error),
}

/// A finished command.
#[derive(Debug)]
pub(crate) struct FinishedProcess {
    pub(crate) end: CommandEnd,
    /// Number of processes it left behind, which were killed.
    pub(crate) leftover_processes: usize,
    /// Notes about its sandbox; `None` if it had none.
    pub(crate) notes: Option<Vec<String>>,
    /// What it was wrapped in.
    pub(crate) wrapper: ProcessWrapper,
    /// Its resource limits and usage, if it had a sandbox.
    pub(crate) usage: Option<Usage>,
}

impl CommandProcess {
    /// Starts a command as the leader of its process group.
    pub(crate) fn start(confined: SandboxedCommand, stdio: StdioMode) -> io::Result<(Self, Option<CommandInput>)> {
        let SandboxedCommand { mut command, wrapper, resources, inherited, ready } = confined;
        // Inode numbers of pipes and names of terminals are unique, so they identify the processes of this command
        // among those of others.
        let (output, input, mark);
        if stdio == StdioMode::Terminal {
            let terminal = PseudoTerminal::open()?;
            command.stdin(terminal.slave.try_clone()?).stdout(terminal.slave.try_clone()?).stderr(terminal.slave);
            (output, mark) = (terminal.output, terminal.name);
            input = Some(CommandInput { pipe: terminal.input, is_terminal: true });
        } else {
            // One pipe for both outputs preserves the order of writes.
            let (reader, writer) = io::pipe()?;
            mark = fstat(&reader)?.st_ino.to_string();
            output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
            command.stdout(writer.try_clone()?).stderr(writer);
            if stdio == StdioMode::Piped {
                let (read_end, write_end) = io::pipe()?;
                command.stdin(read_end);
                input =
                    Some(CommandInput { pipe: Sender::from_owned_fd(OwnedFd::from(write_end))?, is_terminal: false });
            } else {
                command.stdin(Stdio::null());
                input = None;
            }
        }
        let child = command.env(MARK, &mark).kill_on_drop(true).spawn()?;
        drop(inherited);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("the process has no process ID"))?;
        let tree = CommandTree::new(leader, &mark, wrapper);
        let ready = ready.map(|ready| Receiver::from_owned_fd(ready.into())).transpose()?;
        Ok((Self { child, output, ready, tree, resources }, input))
    }

    /// Waits until the sandbox is built. False if that failed, in which case the command has done nothing, the process
    /// has exited, and its output contains the reason.
    pub(crate) async fn wait_for_sandbox(&mut self) -> bool {
        let Some(mut ready) = self.ready.take() else { return true };
        let mut buffer = [0];
        tokio::select! {
            biased;
            read = ready.read(&mut buffer) => !matches!(read, Ok(0)),
            // It may have written and exited since the last poll.
            _ = self.child.wait() => !matches!(rustix::io::read(&ready, &mut buffer), Ok(0) | Err(Errno::AGAIN)),
            () = sleep(SANDBOX_TIMEOUT) => true,
        }
    }

    /// Returns the id of its first process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end of the command, or kills it. `on_output` receives all output.
    pub(crate) async fn finish(
        mut self,
        stop: &CancellationToken,
        limit: Duration,
        mut on_output: impl FnMut(&[u8]),
    ) -> FinishedProcess {
        let deadline = sleep(limit);
        tokio::pin!(deadline);
        let usage = self.resources.usage().cloned();
        let mut usage_tick = interval_at(Instant::now() + USAGE_INTERVAL, USAGE_INTERVAL);
        usage_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let planted = sweep_workspace(self.resources.sweeper());
        tokio::pin!(planted);
        let mut is_open = true;
        let mut buffer = vec![0; 64 * 1024];
        let end = loop {
            // The output is polled last, so that a flood of it cannot starve the other branches.
            tokio::select! {
                biased;
                () = stop.cancelled() => break CommandEnd::Cancelled,
                () = &mut deadline => break CommandEnd::TimedOut,
                status = self.child.wait() => break status.map_or_else(CommandEnd::Lost, CommandEnd::Exited),
                path = &mut planted => break CommandEnd::Planted(path),
                _ = usage_tick.tick(), if usage.is_some() => {
                    if let Some(exceeded) = exceeded(usage.clone(), self.tree.clone()).await {
                        break CommandEnd::Exceeded(exceeded);
                    }
                }
                read = self.output.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => on_output(&buffer[..count]),
                },
            }
        };
        let tree = self.tree.clone();
        let leftover = match &end {
            CommandEnd::Exited(_) => spawn_blocking(move || tree.kill_rest()).await.unwrap_or(0),
            CommandEnd::TimedOut
            | CommandEnd::Cancelled
            | CommandEnd::Exceeded(_)
            | CommandEnd::Planted(_)
            | CommandEnd::Lost(_) => {
                self.stop().await;
                0
            }
        };
        let drained = timeout(DRAIN_TIMEOUT, async {
            while let Ok(count @ 1..) = self.output.read(&mut buffer).await {
                on_output(&buffer[..count]);
            }
        });
        if is_open && drained.await.is_err() {
            tracing::debug!("another process holds the output of a finished command open");
        }
        // No process is left that could change anything more.
        let resources = std::mem::take(&mut self.resources);
        let notes = spawn_blocking(move || resources.finish()).await.unwrap_or_default();
        FinishedProcess { end, leftover_processes: leftover, notes, wrapper: self.tree.wrapper(), usage }
    }

    async fn stop(&mut self) {
        let tree = self.tree.clone();
        if let Err(error) = spawn_blocking(move || tree.terminate()).await {
            tracing::warn!(%error, "failed to stop a command gracefully; killing it");
            self.tree.kill();
        }
        // Only now: see `CommandTree` for why the leader is reaped last.
        if timeout(REAP_TIMEOUT, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.child.id(), "command was killed but has not exited");
        }
    }
}

/// Returns a limit that the command currently exceeds.
async fn exceeded(usage: Option<Usage>, tree: CommandTree) -> Option<ExceededLimit> {
    spawn_blocking(move || usage?.exceeded(&tree)).await.ok().flatten()
}

/// Sweeps the workspace while a command runs. Returns when the command recreated something that had been quarantined.
async fn sweep_workspace(sweeper: Option<Sweeper>) -> PathBuf {
    let Some(sweeper) = sweeper else { return std::future::pending().await };
    let mut pause = MIN_SWEEP_INTERVAL;
    loop {
        sleep(pause).await;
        let (sweeper, started) = (sweeper.clone(), Instant::now());
        let Ok(sweep) = spawn_blocking(move || sweeper.sweep()).await else { continue };
        if let Some(path) = sweep.recreated {
            return path;
        }
        let commands = u32::try_from(sweep.commands).unwrap_or(u32::MAX);
        pause = started.elapsed().saturating_mul(SWEEP_PAUSE_RATIO.saturating_mul(commands)).max(MIN_SWEEP_INTERVAL);
    }
}

impl Drop for CommandProcess {
    fn drop(&mut self) {
        // A process that was reaped has no id any more, and its tree was killed then.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs};

    use super::*;
    use crate::{
        path_guard::PathGuard,
        sandbox::{AccessMode, CommandLocation, PathRules, Sandbox, SandboxPolicy, Watches},
    };

    #[tokio::test]
    async fn output_is_received_while_the_command_runs() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let directory = PathGuard::open(root, PathRules::default()).unwrap().directory(".").unwrap();
        let location = CommandLocation { workspace: root, cwd: root, directory: &directory, has_terminal: false };
        let script = "echo one; until [ -e go ]; do sleep 0.01; done; echo two";
        let policy = SandboxPolicy { mode: AccessMode::Full, ..SandboxPolicy::default() };
        let sandbox = Sandbox { policy: &policy, tier: None, helper: None, watches: &Watches::default() };
        let confined = sandbox.command(&["/bin/sh", "-c", script].map(OsStr::new), &location).unwrap();
        let (process, input) = CommandProcess::start(confined, StdioMode::NoInput).unwrap();
        assert!(input.is_none());
        let mut received = Vec::new();
        let on_output = |bytes: &[u8]| {
            received.push(String::from_utf8(bytes.to_vec()).unwrap());
            fs::write(root.join("go"), "").unwrap();
        };
        let finished = process.finish(&CancellationToken::new(), Duration::from_secs(20), on_output).await;
        assert!(matches!(finished.end, CommandEnd::Exited(status) if status.success()), "{finished:?}");
        assert_eq!(received, ["one\n", "two\n"]);
    }
}
