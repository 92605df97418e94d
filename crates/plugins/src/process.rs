//! A plugin's process: started with a clean environment and little memory, listened to, and ended with everything that
//! it has started.

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

/// What every process finds in its environment, if we have it.
const ALWAYS: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ"];

/// How long a process may take to end after it was asked with a signal.
const GRACE: Duration = Duration::from_millis(500);

/// How long a killed process may take to be gone.
const REAP: Duration = Duration::from_secs(2);

/// How long the last words of a process may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How much is kept of what a process says beside its answers, in bytes: the end, where the reason for its end is.
const KEPT: usize = 2000;

/// How many lines beside its answers go to the log…
const LOGGED: u32 = 20;
/// …within this time.
const LOGGED_WITHIN: Duration = Duration::from_secs(10);

/// Started before the command, it limits the memory and then becomes the command.
const LIMIT: &str = "ulimit -v \"$0\" 2>/dev/null; exec \"$@\"";

/// How a process is started.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// What it is called in logs.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) run: Vec<String>,
    /// Where it works.
    pub(crate) dir: PathBuf,
    /// All of its environment.
    pub(crate) env: BTreeMap<String, String>,
    /// How much memory it may have, in MiB; none if it looks after that itself.
    pub(crate) memory_mb: Option<u64>,
}

/// The variables of ours that a process gets: the usual ones, and those with these names.
pub(crate) fn environment<'a>(
    ours: &BTreeMap<String, String>,
    declared: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let names = ALWAYS.iter().copied().chain(declared.map(String::as_str));
    let known = names.filter_map(|name| Some((name.to_owned(), ours.get(name)?.clone())));
    // What Python writes beside a plugin's files would make it another one than was installed.
    known.chain([("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned())]).collect()
}

/// A process at work. Dropped before its end, it takes all that it has started with it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    tree: Tree,
    said: LastWords,
    listening: JoinHandle<()>,
}

/// The end of what a process said beside its answers.
#[derive(Debug, Clone, Default)]
struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    fn hear(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
    }

    /// The last line that says something.
    fn line(&self) -> Option<String> {
        let kept: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept).into_owned();
        text.lines().rev().map(|line| one_line(line, 200)).find(|line| !line.is_empty())
    }
}

impl Process {
    /// Starts it as the first of its process group.
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
        // No two open files of a kind have the same number, so it tells our processes from those of other plugins.
        let mark = fstat(&reader)?.st_ino.to_string();
        let errors = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        command.args(recipe.run.iter().skip(1)).current_dir(&recipe.dir);
        command.env_clear().envs(&recipe.env).env(MARK, &mark).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn()?;
        // It holds the writing end of the pipe, which would never close.
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

    /// Its number.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// How it ended, in words.
    pub(crate) async fn obituary(&mut self, status: &io::Result<ExitStatus>) -> String {
        // Its last words may still be on their way; if others hold the pipe, they are not waited for.
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

    /// Ends what is left of it: gently if it still runs and `is_gentle`, then not.
    pub(crate) async fn end(mut self, is_gentle: bool) {
        if is_gentle && self.child.id().is_some() {
            self.tree.ask();
            // Whether it ended or not: the rest is killed.
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
        // A process that was waited for has no id any more, and its tree was ended then.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

/// Hears what a process says beside its answers. It always reads, so that the process never waits for us.
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

/// Where a program is: beneath the plugin's folder if it has a slash, else on the path.
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
