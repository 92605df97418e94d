//! A plugin's process: started with a clean environment and a memory limit, and ended with all its descendants.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    io,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use homard_runtime::task;
use homard_stdx::sync::Mutex;
use rustix::{fs::fstat, process::Pid};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    process::{Child, ChildStdin, ChildStdout, Command},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{
    process_tree::{MARK, ProcessTree},
    rpc::one_line,
};

/// Environment variables that every process gets, if set.
const COMMON_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ"];

/// Time a process has to exit after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);

/// Time a killed process has to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to wait for the final stderr output after a process has exited.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// Number of bytes of stderr that are kept: the end, which usually contains the reason of a crash.
const STDERR_BYTES: usize = 2000;

/// Maximum number of stderr lines logged within [`LOG_PERIOD`].
const MAX_LOG_LINES: u32 = 20;
/// Period of the log limit.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Shell script that sets the memory limit and then executes the command.
const LIMIT_SCRIPT: &str = "ulimit -v \"$0\" 2>/dev/null; exec \"$@\"";

/// How a process is started.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSpec {
    /// Name for logs.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) run: Vec<String>,
    /// Working directory.
    pub(crate) dir: PathBuf,
    /// Complete environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Memory limit in MiB; `None` if the program limits itself.
    pub(crate) memory_mb: Option<u64>,
}

/// Returns the environment of a process: the common variables, and the declared ones.
pub(crate) fn environment<'a>(
    own_env: &BTreeMap<String, String>,
    declared: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let names = COMMON_VARIABLES.iter().copied().chain(declared.map(String::as_str));
    let known = names.filter_map(|name| Some((name.to_owned(), own_env.get(name)?.clone())));
    // Python's bytecode cache would change the fingerprint of the plugin's files.
    known.chain([("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned())]).collect()
}

/// A running process. Dropping it kills all its descendants.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    tree: ProcessTree,
    stderr_tail: StderrTail,
    stderr_task: JoinHandle<()>,
}

/// The end of a process's stderr.
#[derive(Debug, Clone, Default)]
struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..excess);
    }

    /// Returns the last line that is not blank.
    fn last_line(&self) -> Option<String> {
        let tail: Vec<u8> = self.0.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&tail).into_owned();
        text.lines().rev().map(|line| one_line(line, 200)).find(|line| !line.is_empty())
    }
}

impl Process {
    /// Starts the process as the leader of a new process group.
    pub(crate) fn start(spec: &ProcessSpec) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let program = spec.run.first().map(String::as_str).unwrap_or_default();
        let program = find(program, &spec.dir, spec.env.get("PATH").map(String::as_str).unwrap_or_default())?;
        let mut command = match spec.memory_mb {
            Some(mb) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(LIMIT_SCRIPT).arg((mb * 1024).to_string()).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        let (reader, writer) = io::pipe()?;
        // Open pipes have distinct inode numbers, so the number identifies the processes of this plugin.
        let tag = fstat(&reader)?.st_ino.to_string();
        let errors = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        command.args(spec.run.iter().skip(1)).current_dir(&spec.dir);
        command.env_clear().envs(&spec.env).env(MARK, &tag).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn()?;
        // It holds the write end of the pipe, which would otherwise never close.
        drop(command);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("the process has no id"))?;
        let tree = ProcessTree::new(leader, &tag);
        let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
            tree.kill();
            return Err(io::Error::other("the process has no stdin or stdout"));
        };
        let stderr_tail = StderrTail::default();
        let stderr_task = task::spawn("plugin stderr", read_stderr(spec.name.clone(), errors, stderr_tail.clone()));
        Ok((Self { child, tree, stderr_tail, stderr_task }, stdout, stdin))
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process exits.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Describes how the process ended.
    pub(crate) async fn describe_exit(&mut self, status: &io::Result<ExitStatus>) -> String {
        // The final output may still arrive; if descendants hold the pipe, it is not awaited.
        timeout(STDERR_TIMEOUT, &mut self.stderr_task).await.ok();
        let description = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("the plugin process exited with status {code}"),
                (None, Some(signal)) => format!("the plugin process was killed by signal {signal}"),
                (None, None) => "the plugin process exited".to_owned(),
            },
            Err(error) => format!("failed to wait for the plugin process: {error}"),
        };
        match self.stderr_tail.last_line() {
            Some(line) => format!("{description}; its last line on stderr: {line}"),
            None => description,
        }
    }

    /// Ends what is left of the process: with SIGTERM first if it still runs and `is_gentle`, then with SIGKILL.
    pub(crate) async fn end(mut self, is_gentle: bool) {
        if is_gentle && self.child.id().is_some() {
            self.tree.terminate();
            // The rest is killed in either case.
            timeout(TERM_TIMEOUT, self.child.wait()).await.ok();
        }
        let tree = self.tree.clone();
        if let Err(error) = spawn_blocking(move || tree.kill()).await {
            tracing::warn!(%error, "failed to kill the processes of a plugin");
        }
        if timeout(KILL_TIMEOUT, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.child.id(), "killed plugin process has not exited");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stderr_task.abort();
        // A process that was reaped has no id any more, and its tree was killed then.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

/// Reads stderr continuously, so that the process never blocks on it.
async fn read_stderr(plugin: String, mut errors: Receiver, tail: StderrTail) {
    let mut buffer = vec![0; 4096];
    let (mut since, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        tail.push(&buffer[..count]);
        if since.elapsed() > LOG_PERIOD {
            if left_out > 0 {
                tracing::info!(plugin, left_out, "dropped stderr lines of a plugin");
            }
            (since, logged, left_out) = (Instant::now(), 0, 0);
        }
        for line in String::from_utf8_lossy(&buffer[..count]).lines().filter(|line| !line.trim().is_empty()) {
            if logged < MAX_LOG_LINES {
                logged += 1;
                tracing::info!(plugin, "{}", one_line(line, 500));
            } else {
                left_out += 1;
            }
        }
    }
}

/// Finds a program: relative to the plugin's directory if it contains a slash, otherwise in `PATH`.
pub fn find(program: &str, dir: &Path, path: &str) -> io::Result<PathBuf> {
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let missing = |problem: &str| io::Error::new(io::ErrorKind::NotFound, format!("the program {program} {problem}"));
    if program.contains('/') {
        let file = dir.join(program);
        return if is_program(&file) { Ok(file) } else { Err(missing("is missing or not executable")) };
    }
    let on_path = std::env::split_paths(OsStr::new(path)).map(|folder| folder.join(program)).find(is_program);
    on_path
        .ok_or_else(|| missing("was not found on the PATH; install it, or use its full path in the manifest's \"run\""))
}
