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
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_agent::task;
use rustix::{fs::fstat, process::Pid};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    process::{Child, ChildStdin, ChildStdout, Command},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{
    rpc::one_line,
    tree::{MARK, Tree},
};

/// Environment variables that every process gets, if set.
const ALWAYS: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ"];

/// Time a process has to exit after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// Time a killed process has to disappear.
const REAP: Duration = Duration::from_secs(2);

/// Time to wait for the final stderr output.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Number of bytes of stderr that are kept: the end, which usually contains the reason of a crash.
const KEPT: usize = 2000;

/// Maximum number of stderr lines logged within [`LOGGED_WITHIN`].
const LOGGED: u32 = 20;
/// Period of the log limit.
const LOGGED_WITHIN: Duration = Duration::from_secs(10);

/// Shell script that sets the memory limit and then executes the command.
const LIMIT: &str = "ulimit -v \"$0\" 2>/dev/null; exec \"$@\"";

/// How a process is started.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
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
    ours: &BTreeMap<String, String>,
    declared: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let names = ALWAYS.iter().copied().chain(declared.map(String::as_str));
    let known = names.filter_map(|name| Some((name.to_owned(), ours.get(name)?.clone())));
    // Python's bytecode cache would change the fingerprint of the plugin's files.
    known.chain([("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned())]).collect()
}

/// A running process. Dropping it kills all its descendants.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    tree: Tree,
    said: LastWords,
    listening: JoinHandle<()>,
}

/// The end of a process's stderr.
#[derive(Debug, Clone, Default)]
struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    fn hear(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
    }

    /// Returns the last line that is not blank.
    fn line(&self) -> Option<String> {
        let kept: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept).into_owned();
        text.lines().rev().map(|line| one_line(line, 200)).find(|line| !line.is_empty())
    }
}

impl Process {
    /// Starts the process as the leader of a new process group.
    pub(crate) fn start(recipe: &Recipe) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let program = recipe.run.first().map(String::as_str).unwrap_or_default();
        let program = find(program, &recipe.dir, recipe.env.get("PATH").map(String::as_str).unwrap_or_default())?;
        let mut command = match recipe.memory_mb {
            Some(mb) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(LIMIT).arg((mb * 1024).to_string()).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        let (reader, writer) = io::pipe()?;
        // Open pipes have distinct inode numbers, so the number identifies the processes of this plugin.
        let mark = fstat(&reader)?.st_ino.to_string();
        let errors = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        command.args(recipe.run.iter().skip(1)).current_dir(&recipe.dir);
        command.env_clear().envs(&recipe.env).env(MARK, &mark).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn()?;
        // It holds the write end of the pipe, which would otherwise never close.
        drop(command);
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("it has no process id"))?;
        let tree = Tree::new(leader, &mark);
        let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
            tree.kill();
            return Err(io::Error::other("it has no input or output"));
        };
        let said = LastWords::default();
        let listening = task::spawn("plugin stderr", listen(recipe.name.clone(), errors, said.clone()));
        Ok((Self { child, tree, said, listening }, stdout, stdin))
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process exits.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Describes how the process ended.
    pub(crate) async fn obituary(&mut self, status: &io::Result<ExitStatus>) -> String {
        // The final output may still arrive; if descendants hold the pipe, it is not awaited.
        timeout(LAST_WORDS, &mut self.listening).await.ok();
        let how = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("its process ended with status {code}"),
                (None, Some(signal)) => format!("its process was ended by signal {signal}"),
                (None, None) => "its process ended".to_owned(),
            },
            Err(error) => format!("its process is lost: {error}"),
        };
        match self.said.line() {
            Some(line) => format!("{how}; the last it said was: {line}"),
            None => how,
        }
    }

    /// Ends what is left of the process: with SIGTERM first if it still runs and `is_gentle`, then with SIGKILL.
    pub(crate) async fn end(mut self, is_gentle: bool) {
        if is_gentle && self.child.id().is_some() {
            self.tree.ask();
            // The rest is killed in either case.
            timeout(GRACE, self.child.wait()).await.ok();
        }
        let tree = self.tree.clone();
        if let Err(error) = spawn_blocking(move || tree.kill()).await {
            tracing::warn!(%error, "a plugin's processes were not killed");
        }
        if timeout(REAP, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.child.id(), "a plugin is killed but not gone");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.listening.abort();
        // A process that was reaped has no id any more, and its tree was killed then.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

/// Reads stderr continuously, so that the process never blocks on it.
async fn listen(plugin: String, mut errors: Receiver, said: LastWords) {
    let mut buffer = vec![0; 4096];
    let (mut since, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        said.hear(&buffer[..count]);
        if since.elapsed() > LOGGED_WITHIN {
            if left_out > 0 {
                tracing::info!(plugin, left_out, "a plugin said more on stderr than is logged");
            }
            (since, logged, left_out) = (Instant::now(), 0, 0);
        }
        for line in String::from_utf8_lossy(&buffer[..count]).lines().filter(|line| !line.trim().is_empty()) {
            if logged < LOGGED {
                logged += 1;
                tracing::info!(plugin, "{}", one_line(line, 500));
            } else {
                left_out += 1;
            }
        }
    }
}

/// Finds a program: relative to the plugin's directory if it contains a slash, otherwise in `PATH`.
pub(crate) fn find(program: &str, dir: &Path, path: &str) -> io::Result<PathBuf> {
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let missing =
        |place: &str| io::Error::new(io::ErrorKind::NotFound, format!("there is no program {program} {place}"));
    if program.contains('/') {
        let file = dir.join(program);
        return if is_program(&file) { Ok(file) } else { Err(missing("that can be run")) };
    }
    let on_path = std::env::split_paths(OsStr::new(path)).map(|folder| folder.join(program)).find(is_program);
    on_path.ok_or_else(|| missing("on the PATH; install it, or name it with its folder in the manifest's \"run\""))
}
