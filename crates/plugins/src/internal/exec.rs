//! Hooks whose handler is a program: it reads the event as JSON from stdin and writes its result to stdout.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{BootstrapFile, HookError, InternalEvent, Listener, ListenerResult};
use homard_workspace::skills::HostEnvironment;
use rustix::{
    fs::fstat,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::Receiver,
    process::{Child, ChildStdin, Command},
    sync::Semaphore,
    task::spawn_blocking,
    try_join,
};

use super::{deadline, decide::HookEntry, hook_md::InternalHook};
use crate::process_tree::{MARK, ProcessTree};

/// Maximum size of a program's output.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// Number of bytes of stderr that are kept.
const STDERR_BYTES: usize = 4096;

/// Number of characters of stderr that are reported.
const STDERR_CHARS: usize = 300;

/// Maximum number of messages for the chat, and characters of each.
const MESSAGE_LIMITS: (usize, usize) = (16, 4000);

/// Maximum number of concurrent processes per hook, since every run may start one.
const MAX_CONCURRENT: usize = 4;

/// Environment variables that a program gets besides those it requires and those of its config entry.
const VARIABLES: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Default `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Member of an event's context that contains the whole config with its secrets. It is removed before a program gets
/// the event.
const CONFIG_KEY: &str = "cfg";

/// A hook whose handler is a program.
pub(super) struct ProgramListener {
    name: String,
    events: Vec<String>,
    deadline: Duration,
    path: PathBuf,
    dir: PathBuf,
    env: Vec<(String, String)>,
    /// Values that are redacted in its output.
    secrets: Vec<String>,
    /// Limits the number of concurrent processes.
    permits: Semaphore,
}

/// Output of a program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProgramOutput {
    messages: Vec<String>,
    bootstrap_files: Option<Vec<BootstrapFile>>,
}

impl ProgramListener {
    pub(super) fn new(hook: &InternalHook, path: &Path, entry: &HookEntry, host: &HostEnvironment) -> Self {
        let inherited = VARIABLES.iter().copied().chain(hook.requires.env.iter().map(String::as_str));
        let inherited = inherited.filter_map(|name| Some((name.to_owned(), host.env.get(name)?.clone())));
        let configured = entry.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        // The last of each name takes precedence.
        let all = [("PATH".to_owned(), DEFAULT_PATH.to_owned())].into_iter().chain(inherited).chain(configured);
        // Invalid variables would prevent the program from starting.
        let is_variable =
            |(name, value): &(String, String)| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        let required = hook.requires.env.iter().filter_map(|name| host.env.get(name));
        Self {
            name: hook.name.clone(),
            events: hook.events.clone(),
            deadline: deadline(hook),
            path: path.to_owned(),
            dir: hook.dir.clone(),
            env: all.filter(is_variable).collect(),
            secrets: entry.env.values().chain(required).filter(|value| value.len() >= 4).cloned().collect(),
            permits: Semaphore::new(MAX_CONCURRENT),
        }
    }

    /// Returns the end of stderr on one line, with secrets redacted.
    fn stderr_excerpt(&self, bytes: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        let line = homard_workspace::skills::on_one_line(&text);
        let length = line.chars().count();
        if length <= STDERR_CHARS { line } else { line.chars().skip(length - STDERR_CHARS).collect() }
    }

    async fn run(&self, input: Vec<u8>) -> Result<Vec<u8>, HookError> {
        let failed = |error: io::Error| HookError::Failed(format!("{} cannot be run: {error}", self.path.display()));
        let (mut running, stdin) = RunningProgram::start(self).map_err(failed)?;
        let (stdout, stderr) = (running.child.stdout.take(), running.stderr.take());
        let (tree, leader) = (running.tree.clone(), running.leader);
        let exit = async move {
            // Not reaped yet: its process id must stay reserved until its descendants are killed.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let waiter = spawn_blocking(move || {
                while waitid(WaitId::Pid(leader), options).is_err_and(|error| error == rustix::io::Errno::INTR) {}
                tree.kill();
            });
            waiter.await.map_err(io::Error::other)
        };
        let results =
            try_join!(write_input(stdin, input), read_stdout(stdout), read_stderr(stderr), exit).map_err(failed)?;
        let ((), output, remark, ()) = results;
        running.is_killed = true;
        let status = running.child.wait().await.map_err(failed)?;
        let remark = self.stderr_excerpt(&remark);
        if !status.success() {
            let remark = if remark.is_empty() { String::new() } else { format!(": {remark}") };
            return Err(HookError::Failed(format!("the program ended with {status}{remark}")));
        }
        if !remark.is_empty() {
            tracing::debug!(hook = self.name, %remark, "hook wrote to stderr");
        }
        Ok(output)
    }
}

#[async_trait]
impl Listener for ProgramListener {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let closed = |error: tokio::sync::AcquireError| HookError::Unavailable(error.to_string());
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let mut event = event.clone();
        event.context.remove(CONFIG_KEY);
        let serialise_error =
            |error: serde_json::Error| HookError::Failed(format!("failed to serialize the event: {error}"));
        let mut input = serde_json::to_vec(&event).map_err(serialise_error)?;
        input.push(b'\n');
        parse_output(&self.run(input).await?)
    }
}

fn parse_output(output: &[u8]) -> Result<ListenerResult, HookError> {
    if output.trim_ascii().is_empty() {
        return Ok(ListenerResult::default());
    }
    let invalid = |error: serde_json::Error| {
        HookError::Failed(format!(
            "the output on stdout is not {{\"messages\": […], \"bootstrapFiles\": […]}}: {error}; write other output \
             to stderr"
        ))
    };
    let parsed: ProgramOutput = serde_json::from_slice(output).map_err(invalid)?;
    let (max_messages, max_chars) = MESSAGE_LIMITS;
    let messages = parsed
        .messages
        .into_iter()
        .take(max_messages)
        .map(|message| message.chars().take(max_chars).collect())
        .collect();
    Ok(ListenerResult { messages, bootstrap_files: parsed.bootstrap_files })
}

/// A running program. Dropping it kills the whole process tree.
struct RunningProgram {
    child: Child,
    leader: Pid,
    tree: ProcessTree,
    stderr: Option<Receiver>,
    /// Pipe whose inode number is the mark: the number is unique while the pipe is open.
    _mark: io::PipeReader,
    /// True if the process tree is gone already.
    is_killed: bool,
}

impl RunningProgram {
    fn start(program: &ProgramListener) -> io::Result<(Self, Option<ChildStdin>)> {
        let (reader, writer) = io::pipe()?;
        // Open pipes have distinct inode numbers, so the number identifies these processes.
        let tag = fstat(&reader)?.st_ino.to_string();
        let stderr = Receiver::from_owned_fd(OwnedFd::from(reader.try_clone()?))?;
        let mut command = Command::new(&program.path);
        command.env_clear().envs(program.env.iter().cloned()).env(MARK, &tag).current_dir(&program.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        // It holds the write end of the pipe, which would otherwise never close.
        drop(command);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("the process has no id"))?;
        let stdin = child.stdin.take();
        let tree = ProcessTree::new(leader, &tag);
        Ok((Self { child, leader, tree, stderr: Some(stderr), _mark: reader, is_killed: false }, stdin))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if !self.is_killed {
            self.tree.kill();
        }
    }
}

/// Writes the input. A program that does not read it is not an error.
async fn write_input(stdin: Option<ChildStdin>, input: Vec<u8>) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    match stdin.write_all(&input).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads stdout up to the limit.
async fn read_stdout(stdout: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        stdout.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(&mut output).await?;
    }
    let too_much = || io::Error::other(format!("it wrote more than {MAX_OUTPUT_BYTES} bytes to stdout"));
    if output.len() > MAX_OUTPUT_BYTES { Err(too_much()) } else { Ok(output) }
}

/// Reads stderr and returns its end.
async fn read_stderr(stderr: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    let Some(mut stderr) = stderr else { return Ok(tail) };
    let mut buffer = vec![0; STDERR_BYTES];
    loop {
        match stderr.read(&mut buffer).await? {
            0 => return Ok(tail),
            count => {
                tail.extend_from_slice(&buffer[..count]);
                tail.drain(..tail.len().saturating_sub(STDERR_BYTES));
            }
        }
    }
}

#[cfg(test)]
mod tests;
