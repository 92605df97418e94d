//! A command at work: started, listened to, and ended with everything that it has started.

use std::{
    io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::{fs::fstat, process::Pid};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    process::{Child, Command},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    output::Output,
    tree::{MARK, Tree},
};

/// How long between two pieces of news.
const NEWS: Duration = Duration::from_millis(100);

/// How long the output may stay open when the command is over: a process that it left behind may hold it for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// How long a killed command may take to be gone.
const REAP: Duration = Duration::from_secs(1);

/// A command at work. Dropped before its end, it takes all that it has started with it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pipe: Receiver,
    tree: Tree,
    output: Output,
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
    /// The system would not say.
    Lost(io::Error),
}

/// A command that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: End,
    pub(crate) output: Output,
    /// Whether a process that it left behind still has the output open.
    pub(crate) is_held: bool,
}

impl Process {
    /// Starts a command without input, in a process group of its own.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        // One pipe for both outputs keeps the order in which things were written.
        let (reader, writer) = io::pipe()?;
        // No two open pipes have the same number, so it can tell our processes from those of other commands.
        let mark = fstat(&reader)?.st_ino.to_string();
        let pipe = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        command.env(MARK, &mark).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { child, pipe, tree: Tree::new(leader, &mark), output: Output::default() })
    }

    /// Waits for the end of the command, or brings it about. `news` hears of new output now and then.
    pub(crate) async fn finish(
        mut self,
        cancel: &CancellationToken,
        limit: Duration,
        mut news: impl FnMut(&Output),
    ) -> Finished {
        let deadline = sleep(limit);
        tokio::pin!(deadline);
        let mut tick = interval(NEWS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_open, mut is_fresh) = (true, false);
        let mut buffer = vec![0; 64 * 1024];
        let end = loop {
            // The output comes last: a flood of it must not drown the rest.
            tokio::select! {
                biased;
                () = cancel.cancelled() => break End::Cancelled,
                () = &mut deadline => break End::TimedOut,
                status = self.child.wait() => break status.map_or_else(End::Lost, End::Exited),
                _ = tick.tick(), if is_fresh => {
                    news(&self.output);
                    is_fresh = false;
                }
                read = self.pipe.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => {
                        self.output.push(&buffer[..count]);
                        is_fresh = true;
                    }
                },
            }
        };
        if !matches!(end, End::Exited(_)) {
            self.stop().await;
        }
        let is_held = is_open && timeout(DRAIN, self.drain(&mut buffer)).await.is_err();
        Finished { end, output: std::mem::take(&mut self.output), is_held }
    }

    async fn drain(&mut self, buffer: &mut [u8]) {
        while let Ok(count @ 1..) = self.pipe.read(buffer).await {
            self.output.push(&buffer[..count]);
        }
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

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was waited for has no id any more. What it left behind on purpose may stay.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn news_of_output_comes_while_the_command_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("echo one; until [ -e go ]; do sleep 0.01; done; echo two").current_dir(folder.path());
        let mut heard = Vec::new();
        let process = Process::start(command).unwrap();
        let finished = process
            .finish(&CancellationToken::new(), Duration::from_secs(20), |output| {
                heard.push(output.text());
                fs::write(folder.path().join("go"), "").unwrap();
            })
            .await;
        assert!(matches!(finished.end, End::Exited(status) if status.success()), "{finished:?}");
        assert_eq!(finished.output.text(), "one\ntwo");
        assert_eq!(heard.first().map(String::as_str), Some("one"));
    }
}
