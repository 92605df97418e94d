//! A command at work: started, listened to, and ended with everything that it has started.

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
    sandbox::{Confined, Exceeded, Keep, Sweeper, Usage, Wrapper},
    terminal::Terminal,
    tree::{MARK, Tree},
};

/// How long the output may stay open when the command is over: a process that it left behind may hold it for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// How long a killed command may take to be gone.
const REAP: Duration = Duration::from_secs(1);

/// How long a sandbox may take to be made. After that, the command is taken for one that has begun.
const BEGIN: Duration = Duration::from_secs(20);

/// How often it is looked how much of the machine a command uses.
const LOOK: Duration = Duration::from_secs(1);

/// How long between two sweeps of the workspace for what a command must not make there.
const SWEEP: Duration = Duration::from_millis(250);

/// How many times longer than a sweep the pause after it is, at least: large workspaces are swept less often.
const PAUSE: u32 = 20;

/// What a command is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// It has no input.
    Deaf,
    /// Its input is a pipe.
    Piped,
    /// It has a terminal.
    Terminal,
}

/// Where the input of a command goes.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) pipe: Sender,
    /// Whether it is a terminal, where keys mean something.
    pub(crate) is_terminal: bool,
}

/// A command at work. Dropped before its end, it takes all that it has started with it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: Receiver,
    begun: Option<Receiver>,
    tree: Tree,
    /// After all else: it goes when nothing is left that needs it.
    keep: Keep,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself, or by a signal that was not ours.
    Exited(ExitStatus),
    /// It took too long.
    TimedOut,
    /// It was not wanted any more.
    Cancelled,
    /// It used too much of the machine.
    Exceeded(Exceeded),
    /// It made something again that the sandbox had taken aside.
    Planted(PathBuf),
    /// The system would not say.
    Lost(io::Error),
}

/// A command that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: End,
    /// How many processes it left behind, which were ended.
    pub(crate) left: usize,
    /// What its sandbox has to say; nothing if it had none.
    pub(crate) notes: Option<Vec<String>>,
    /// What it ran in.
    pub(crate) wrapper: Wrapper,
    /// What it could use, if it had a sandbox.
    pub(crate) usage: Option<Usage>,
}

impl Process {
    /// Starts a command as the first of its process group.
    pub(crate) fn start(confined: Confined, wiring: Wiring) -> io::Result<(Self, Option<Input>)> {
        let Confined { mut command, wrapper, keep, opened, begun } = confined;
        // No two open files of a kind have the same number, so it can tell our processes from those of other commands.
        let (output, input, mark);
        if wiring == Wiring::Terminal {
            let terminal = Terminal::open()?;
            command.stdin(terminal.theirs.try_clone()?).stdout(terminal.theirs.try_clone()?).stderr(terminal.theirs);
            (output, mark) = (terminal.shown, terminal.name);
            input = Some(Input { pipe: terminal.typed, is_terminal: true });
        } else {
            // One pipe for both outputs keeps the order in which things were written.
            let (reader, writer) = io::pipe()?;
            mark = fstat(&reader)?.st_ino.to_string();
            output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
            command.stdout(writer.try_clone()?).stderr(writer);
            if wiring == Wiring::Piped {
                let (theirs, ours) = io::pipe()?;
                command.stdin(theirs);
                input = Some(Input { pipe: Sender::from_owned_fd(OwnedFd::from(ours))?, is_terminal: false });
            } else {
                command.stdin(Stdio::null());
                input = None;
            }
        }
        let child = command.env(MARK, &mark).kill_on_drop(true).spawn()?;
        drop(opened);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("it has no process id"))?;
        let tree = Tree::new(leader, &mark, wrapper);
        let begun = begun.map(|begun| Receiver::from_owned_fd(begun.into())).transpose()?;
        Ok((Self { child, output, begun, tree, keep }, input))
    }

    /// Waits until the sandbox is made. False if it could not be made, so that the command has done nothing: then the
    /// process is over, and its output says why.
    pub(crate) async fn has_begun(&mut self) -> bool {
        let Some(mut begun) = self.begun.take() else { return true };
        let mut buffer = [0];
        tokio::select! {
            biased;
            read = begun.read(&mut buffer) => !matches!(read, Ok(0)),
            // It may have written and ended since the runtime looked.
            _ = self.child.wait() => !matches!(rustix::io::read(&begun, &mut buffer), Ok(0) | Err(Errno::AGAIN)),
            () = sleep(BEGIN) => true,
        }
    }

    /// The number of its first process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end of the command, or brings it about. `hear` gets all that it writes.
    pub(crate) async fn finish(
        mut self,
        stop: &CancellationToken,
        limit: Duration,
        mut hear: impl FnMut(&[u8]),
    ) -> Finished {
        let deadline = sleep(limit);
        tokio::pin!(deadline);
        let usage = self.keep.usage().cloned();
        let mut look = interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let planted = planted(self.keep.sweeper());
        tokio::pin!(planted);
        let mut is_open = true;
        let mut buffer = vec![0; 64 * 1024];
        let end = loop {
            // The output comes last: a flood of it must not drown the rest.
            tokio::select! {
                biased;
                () = stop.cancelled() => break End::Cancelled,
                () = &mut deadline => break End::TimedOut,
                status = self.child.wait() => break status.map_or_else(End::Lost, End::Exited),
                path = &mut planted => break End::Planted(path),
                _ = look.tick(), if usage.is_some() => {
                    if let Some(exceeded) = exceeded(usage.clone(), self.tree.clone()).await {
                        break End::Exceeded(exceeded);
                    }
                }
                read = self.output.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => hear(&buffer[..count]),
                },
            }
        };
        let tree = self.tree.clone();
        let left = match &end {
            End::Exited(_) => spawn_blocking(move || tree.end_rest()).await.unwrap_or(0),
            End::TimedOut | End::Cancelled | End::Exceeded(_) | End::Planted(_) | End::Lost(_) => {
                self.stop().await;
                0
            }
        };
        let drained = timeout(DRAIN, async {
            while let Ok(count @ 1..) = self.output.read(&mut buffer).await {
                hear(&buffer[..count]);
            }
        });
        if is_open && drained.await.is_err() {
            tracing::debug!("somebody holds the output of a command that is over");
        }
        // Nothing of it is left that could do more.
        let keep = std::mem::take(&mut self.keep);
        let notes = spawn_blocking(move || keep.look()).await.unwrap_or_default();
        Finished { end, left, notes, wrapper: self.tree.wrapper(), usage }
    }

    async fn stop(&mut self) {
        let tree = self.tree.clone();
        if let Err(error) = spawn_blocking(move || tree.end()).await {
            tracing::warn!(%error, "a command was not stopped gently");
            self.tree.kill();
        }
        // Only now: see `Tree` for why the leader is reaped last.
        if timeout(REAP, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.child.id(), "a command is killed but not gone");
        }
    }
}

/// A limit that a command exceeds now.
async fn exceeded(usage: Option<Usage>, tree: Tree) -> Option<Exceeded> {
    spawn_blocking(move || usage?.exceeded(&tree)).await.ok().flatten()
}

/// Sweeps the workspace as long as a command runs. Ends when the command made something again that was taken aside before.
async fn planted(sweeper: Option<Sweeper>) -> PathBuf {
    let Some(sweeper) = sweeper else { return std::future::pending().await };
    let mut pause = SWEEP;
    loop {
        sleep(pause).await;
        let (sweeper, started) = (sweeper.clone(), Instant::now());
        let Ok(swept) = spawn_blocking(move || sweeper.sweep()).await else { continue };
        if let Some(path) = swept.again {
            return path;
        }
        let commands = u32::try_from(swept.commands).unwrap_or(u32::MAX);
        pause = started.elapsed().saturating_mul(PAUSE.saturating_mul(commands)).max(SWEEP);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was waited for has no id any more, and its tree was ended then.
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
        beneath::Beneath,
        sandbox::{Place, unconfined},
    };

    #[tokio::test]
    async fn output_is_heard_while_the_command_runs() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let directory = Beneath::open(root, crate::path_rules::PathRules::default()).unwrap().directory(".").unwrap();
        let place = Place { workspace: root, cwd: root, directory: &directory, has_terminal: false };
        let script = "echo one; until [ -e go ]; do sleep 0.01; done; echo two";
        let confined = unconfined(&["/bin/sh", "-c", script].map(OsStr::new), &place);
        let (process, input) = Process::start(confined, Wiring::Deaf).unwrap();
        assert!(input.is_none());
        let mut heard = Vec::new();
        let hear = |bytes: &[u8]| {
            heard.push(String::from_utf8(bytes.to_vec()).unwrap());
            fs::write(root.join("go"), "").unwrap();
        };
        let finished = process.finish(&CancellationToken::new(), Duration::from_secs(20), hear).await;
        assert!(matches!(finished.end, End::Exited(status) if status.success()), "{finished:?}");
        assert_eq!(heard, ["one\n", "two\n"]);
    }
}
