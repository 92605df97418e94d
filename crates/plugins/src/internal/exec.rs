//! Hooks whose handler is a program: it reads the event as JSON from stdin and writes its result to stdout.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{BootstrapFile, Heard, HookError, Listener, Signal};
use homard_skills::Host;
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

use super::{deadline, hook_md::Hook, judge::Entry};
use crate::tree::{MARK, Tree};

/// Maximum size of a program's output.
const MOST: usize = 1024 * 1024;

/// Number of bytes of stderr that are kept.
const KEPT: usize = 4096;

/// Number of characters of stderr that are reported.
const TOLD: usize = 300;

/// Maximum number of messages for the chat, and characters of each.
const MESSAGES: (usize, usize) = (16, 4000);

/// Maximum number of concurrent processes per hook, since every run may start one.
const AT_ONCE: usize = 4;

/// Environment variables that a program gets besides those it requires and those of its entry.
const VARIABLES: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Default `PATH`.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Key of a context that contains the whole config, including secrets.
const CONFIG: &str = "cfg";

/// A hook whose handler is a program.
pub(super) struct Program {
    name: String,
    events: Vec<String>,
    deadline: Duration,
    path: PathBuf,
    dir: PathBuf,
    env: Vec<(String, String)>,
    /// Values that are redacted in its output.
    secrets: Vec<String>,
    turns: Semaphore,
}

/// Output of a program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Said {
    messages: Vec<String>,
    bootstrap_files: Option<Vec<BootstrapFile>>,
}

impl Program {
    pub(super) fn new(hook: &Hook, path: &Path, entry: &Entry, host: &Host) -> Self {
        let usual = VARIABLES.iter().copied().chain(hook.requires.env.iter().map(String::as_str));
        let usual = usual.filter_map(|name| Some((name.to_owned(), host.env.get(name)?.clone())));
        let given = entry.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        // The last of each name takes precedence.
        let all = [("PATH".to_owned(), PATH.to_owned())].into_iter().chain(usual).chain(given);
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
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Returns the end of stderr on one line, with secrets redacted.
    fn remark(&self, bytes: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        let line = homard_skills::on_one_line(&text);
        let length = line.chars().count();
        if length <= TOLD { line } else { line.chars().skip(length - TOLD).collect() }
    }

    async fn run(&self, input: Vec<u8>) -> Result<Vec<u8>, HookError> {
        let failed = |error: io::Error| HookError::Failed(format!("{} cannot be run: {error}", self.path.display()));
        let (mut running, stdin) = Running::start(self).map_err(failed)?;
        let (stdout, stderr) = (running.child.stdout.take(), running.stderr.take());
        let (tree, leader) = (running.tree.clone(), running.leader);
        let ended = async move {
            // Not reaped yet: its process id must stay reserved until its descendants are killed.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let awaited = spawn_blocking(move || {
                while waitid(WaitId::Pid(leader), options).is_err_and(|error| error == rustix::io::Errno::INTR) {}
                tree.kill();
            });
            awaited.await.map_err(io::Error::other)
        };
        let talked = try_join!(feed(stdin, input), all(stdout), rest(stderr), ended).map_err(failed)?;
        let ((), output, remark, ()) = talked;
        running.is_over = true;
        let status = running.child.wait().await.map_err(failed)?;
        let remark = self.remark(&remark);
        if !status.success() {
            let remark = if remark.is_empty() { String::new() } else { format!(": {remark}") };
            return Err(HookError::Failed(format!("it ended with {status}{remark}")));
        }
        if !remark.is_empty() {
            tracing::debug!(hook = self.name, %remark, "a hook said something");
        }
        Ok(output)
    }
}

#[async_trait]
impl Listener for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        let gone = |error: tokio::sync::AcquireError| HookError::Gone(error.to_string());
        let _turn = self.turns.acquire().await.map_err(gone)?;
        let mut signal = signal.clone();
        signal.context.remove(CONFIG);
        let wrong = |error: serde_json::Error| HookError::Failed(format!("the signal cannot be written: {error}"));
        let mut input = serde_json::to_vec(&signal).map_err(wrong)?;
        input.push(b'\n');
        heard(&self.run(input).await?)
    }
}

fn heard(output: &[u8]) -> Result<Heard, HookError> {
    if output.trim_ascii().is_empty() {
        return Ok(Heard::default());
    }
    let wrong = |error: serde_json::Error| {
        HookError::Failed(format!(
            "what it wrote to stdout is not {{\"messages\": […], \"bootstrapFiles\": […]}}: {error}; other words belong on stderr"
        ))
    };
    let said: Said = serde_json::from_slice(output).map_err(wrong)?;
    let (most, chars) = MESSAGES;
    let messages = said.messages.into_iter().take(most).map(|message| message.chars().take(chars).collect()).collect();
    Ok(Heard { messages, bootstrap_files: said.bootstrap_files })
}

/// A running program. Dropping it kills the whole process tree.
struct Running {
    child: Child,
    leader: Pid,
    tree: Tree,
    stderr: Option<Receiver>,
    /// Pipe whose inode number is the mark: the number is unique while the pipe is open.
    _mark: io::PipeReader,
    /// True if the process tree is gone already.
    is_over: bool,
}

impl Running {
    fn start(program: &Program) -> io::Result<(Self, Option<ChildStdin>)> {
        let (reader, writer) = io::pipe()?;
        // Open pipes have distinct inode numbers, so the number identifies these processes.
        let mark = fstat(&reader)?.st_ino.to_string();
        let stderr = Receiver::from_owned_fd(OwnedFd::from(reader.try_clone()?))?;
        let mut command = Command::new(&program.path);
        command.env_clear().envs(program.env.iter().cloned()).env(MARK, &mark).current_dir(&program.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        // It holds the write end of the pipe, which would otherwise never close.
        drop(command);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("it has no process id"))?;
        let stdin = child.stdin.take();
        let tree = Tree::new(leader, &mark);
        Ok((Self { child, leader, tree, stderr: Some(stderr), _mark: reader, is_over: false }, stdin))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.tree.kill();
        }
    }
}

/// Writes the input. A program that does not read it is not an error.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    match stdin.write_all(&input).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads stdout up to the limit.
async fn all(stdout: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(stdout) = stdout {
        stdout.take(MOST as u64 + 1).read_to_end(&mut said).await?;
    }
    let too_much = || io::Error::other(format!("it wrote more than {MOST} bytes"));
    if said.len() > MOST { Err(too_much()) } else { Ok(said) }
}

/// Reads stderr and returns its end.
async fn rest(stderr: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut stderr) = stderr else { return Ok(kept) };
    let mut buffer = vec![0; KEPT];
    loop {
        match stderr.read(&mut buffer).await? {
            0 => return Ok(kept),
            count => {
                kept.extend_from_slice(&buffer[..count]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
        }
    }
}

#[cfg(test)]
mod tests;
