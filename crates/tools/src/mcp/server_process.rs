//! A server that runs as a child process, with everything that it starts.

use std::{collections::VecDeque, io, os::fd::OwnedFd, path::Path, process::Stdio, sync::Arc, time::Duration};

use homard_runtime::task;
use homard_stdx::sync::Mutex;
use rustix::{fs::fstat, process::Pid};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    process::{Child as Process, ChildStdin, ChildStdout, Command},
    task::{AbortHandle, spawn_blocking},
    time::timeout,
};

use crate::{
    external,
    sandbox::{CommandTree, MARK, ProcessWrapper},
};

/// Time for a server to exit by itself after its input was closed.
const GRACE: Duration = Duration::from_secs(1);

/// Time for a killed server to be reaped.
const REAP: Duration = Duration::from_secs(1);

/// Bytes kept of a server's standard error: the end, which usually contains the reason for an exit.
const STDERR_BYTES: usize = 2000;

/// A running server process. Dropping it kills the whole process tree.
#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Process,
    tree: CommandTree,
    stderr: ServerStderr,
    listening: AbortHandle,
}

/// The last bytes of a server's standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerStderr(Arc<Mutex<VecDeque<u8>>>);

impl ServerStderr {
    fn append(&self, bytes: &[u8]) {
        let mut buffer = self.0.lock();
        buffer.extend(bytes);
        let excess = buffer.len().saturating_sub(STDERR_BYTES);
        buffer.drain(..excess);
    }

    /// Returns them as one line.
    pub(super) fn last(&self) -> String {
        let bytes: Vec<u8> = self.0.lock().iter().copied().collect();
        external::line(&String::from_utf8_lossy(&bytes), STDERR_BYTES)
    }
}

impl ServerProcess {
    /// Starts a command as the leader of a new process group, with exactly this environment.
    pub(super) fn start(
        command: &str,
        args: &[String],
        env: impl Iterator<Item = (String, String)>,
        cwd: Option<&Path>,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let (reader, writer) = io::pipe()?;
        // The pipe's inode number is unique, so it identifies the processes of this command among those of others.
        let mark = fstat(&reader)?.st_ino.to_string();
        let mut errors = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let mut started = Command::new(command);
        started.args(args).env_clear().envs(env).env(MARK, &mark).process_group(0).kill_on_drop(true);
        started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        if let Some(cwd) = cwd {
            started.current_dir(cwd);
        }
        let mut process = started.spawn()?;
        // `started` holds the write end of the pipe, which would otherwise never close.
        drop(started);
        let leader = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("the process has no process ID"))?;
        let tree = CommandTree::new(leader, &mark, ProcessWrapper::None);
        let (Some(stdout), Some(stdin)) = (process.stdout.take(), process.stdin.take()) else {
            tree.kill();
            return Err(io::Error::other("the process has no standard input or output"));
        };
        let stderr_buffer = ServerStderr::default();
        let reader_buffer = stderr_buffer.clone();
        let listening = task::spawn("mcp stderr", async move {
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut buffer).await {
                reader_buffer.append(&buffer[..count]);
            }
        });
        Ok((Self { process, tree, stderr: stderr_buffer, listening: listening.abort_handle() }, stdout, stdin))
    }

    /// Returns its standard error.
    pub(super) fn stderr(&self) -> ServerStderr {
        self.stderr.clone()
    }

    /// Stops the server, whose input is closed, and everything that it has started.
    pub(super) async fn end(mut self) {
        let tree = self.tree.clone();
        let is_over = timeout(GRACE, self.process.wait()).await.is_ok();
        let ended = spawn_blocking(move || {
            if is_over {
                tree.kill_rest();
            } else {
                tree.terminate();
            }
        });
        if let Err(error) = ended.await {
            tracing::warn!(%error, "failed to stop an MCP server gracefully");
        }
        // Only now: see `CommandTree` for why the leader is reaped last.
        if !is_over && timeout(REAP, self.process.wait()).await.is_err() {
            tracing::warn!(pid = self.process.id(), "MCP server was killed but has not exited");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.listening.abort();
        // A process that was reaped has no id any more, and its tree was killed then.
        if self.process.id().is_some() {
            self.tree.kill();
        }
    }
}
