//! How much of the machine a command may use.
//!
//! The kernel bounds each process (`RLIMIT_*`) and each temporary directory in memory. It has no bound for the memory of all
//! processes together, for the number of root's processes and for the disk without a cgroup of our own, so [`Usage`]
//! looks at these from time to time.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::statvfs,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde::{Deserialize, Serialize};

use crate::tree::Tree;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// How much memory there is if the kernel does not say.
const UNKNOWN_MEMORY: u64 = 4 * GIB;

/// How many files a process may have open.
const OPEN_FILES: u64 = 65_536;

/// How readily the kernel ends a command when memory runs out: more than the gateway, which has 0.
const OUT_OF_MEMORY_SCORE: &str = "500";

/// How much of the machine a command may use; `None` is without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Bytes of memory that each process may have, and all of them together.
    pub memory: Option<u64>,
    /// How many processes and threads it may start.
    pub processes: Option<u64>,
    /// Bytes of the largest file that it may write.
    pub file: Option<u64>,
    /// Bytes that each temporary directory may hold, where these are its own.
    pub temporary: Option<u64>,
    /// Bytes that stay free on the disk of the workspace.
    pub disk_free: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let memory = total_memory();
        Self {
            memory: Some(memory / 4 * 3),
            processes: Some(1024),
            file: Some(8 * GIB),
            temporary: Some((memory / 4).min(2 * GIB)),
            disk_free: Some(GIB),
        }
    }
}

impl ResourceLimits {
    /// The limits in words, for people.
    pub(super) fn explained(&self) -> String {
        let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
        let parts = [
            self.memory.map(|bytes| format!("{} of memory", mib(bytes))),
            self.processes.map(|count| format!("{count} processes and threads")),
            self.file.map(|bytes| format!("files of {}", mib(bytes))),
            self.temporary.map(|bytes| format!("temporary directories of {}", mib(bytes))),
            self.disk_free.map(|bytes| format!("what leaves {} of the disk free", mib(bytes))),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }
}

/// The limits that a process sets itself before it becomes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessLimits {
    memory: Option<u64>,
    tasks: Option<u64>,
    file: Option<u64>,
}

impl ProcessLimits {
    /// The kernel counts the processes and threads of a user, not of a command: those that there are now come on top.
    pub(super) fn new(limits: &ResourceLimits) -> Self {
        let tasks = limits.processes.map(|processes| processes.saturating_add(tasks_now()));
        Self { memory: limits.memory, tasks, file: limits.file }
    }

    /// Sets them, for this process and all that it starts.
    pub(super) fn apply(&self) -> io::Result<()> {
        lower(Resource::Core, Some(0))?;
        lower(Resource::Data, self.memory)?;
        lower(Resource::Nproc, self.tasks)?;
        lower(Resource::Fsize, self.file)?;
        lower(Resource::Nofile, Some(OPEN_FILES))?;
        // Only a preference: if it cannot be set, the kernel chooses by size.
        fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE).ok();
        Ok(())
    }
}

/// Sets a limit, unless there is a lower one.
fn lower(resource: Resource, limit: Option<u64>) -> io::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let least = |present: Option<u64>| Some(present.map_or(limit, |present| present.min(limit)));
    let present = getrlimit(resource);
    Ok(setrlimit(resource, Rlimit { current: least(present.current), maximum: least(present.maximum) })?)
}

/// How many processes and threads there are on this machine.
fn tasks_now() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let counts = load.split_whitespace().nth(3).and_then(|counts| counts.split_once('/'));
    counts.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

/// Bytes of memory of this machine.
fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(UNKNOWN_MEMORY, |kib| kib.saturating_mul(1024))
}

/// A limit that a command has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// The memory of all its processes, in bytes.
    Memory(u64),
    /// How many processes it may have.
    Processes(u64),
    /// The space that has to stay free on the disk, in bytes.
    Disk(u64),
}

impl Exceeded {
    /// Why the command was stopped, as a sentence without its full stop.
    pub(crate) fn trouble(self) -> String {
        match self {
            Self::Memory(limit) => format!(
                "Command was stopped, because its processes used more than {} MiB of memory \
                 (tools.exec.limits.memoryMb)",
                limit / MIB
            ),
            Self::Processes(limit) => {
                format!("Command was stopped, because it had more than {limit} processes (tools.exec.limits.processes)")
            }
            Self::Disk(floor) => format!(
                "Command was stopped, because it left less than {} MiB free on the disk of the workspace \
                 (tools.exec.limits.diskFreeMb)",
                floor / MIB
            ),
        }
    }
}

/// What is looked at while a command runs.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    /// The limits of the command.
    pub(crate) limits: ResourceLimits,
    workspace: PathBuf,
    /// Bytes that have to stay free: fewer than the config says on a disk that had not twice as much.
    floor: Option<u64>,
}

impl Usage {
    /// Begins to look. Blocks.
    pub(super) fn new(limits: ResourceLimits, workspace: &Path) -> Self {
        let floor = limits.disk_free.zip(free(workspace)).map(|(floor, free)| floor.min(free / 2));
        Self { limits, workspace: workspace.to_owned(), floor }
    }

    /// A limit that the processes of a command exceed now. Blocks.
    pub(crate) fn exceeded(&self, tree: &Tree) -> Option<Exceeded> {
        let (count, bytes) = tree.usage(self.limits.memory.unwrap_or(u64::MAX));
        let memory = self.limits.memory.filter(|limit| bytes > *limit).map(Exceeded::Memory);
        let processes = self.limits.processes.filter(|limit| count as u64 > *limit).map(Exceeded::Processes);
        let disk = self.floor.filter(|floor| free(&self.workspace).is_some_and(|free| free < *floor));
        memory.or(processes).or(disk.map(Exceeded::Disk))
    }
}

/// Bytes that are free on the disk of a directory.
fn free(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;
    use crate::sandbox::Wrapper;

    #[test]
    fn m6_a_disk_that_gets_too_full_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let limits = ResourceLimits { memory: None, disk_free: Some(MIB), ..ResourceLimits::default() };
        let mut usage = Usage::new(limits, folder.path());
        let tree = Tree::new(getpid(), "of this test", Wrapper::None);
        assert_eq!((usage.floor, usage.exceeded(&tree)), (Some(MIB), None));
        usage.floor = Some(u64::MAX);
        assert_eq!(usage.exceeded(&tree), Some(Exceeded::Disk(u64::MAX)));
        // It is not the command that left less than that.
        let usage = Usage::new(ResourceLimits { disk_free: Some(u64::MAX), ..limits }, folder.path());
        assert!(usage.floor.unwrap() <= free(folder.path()).unwrap() && usage.exceeded(&tree).is_none());
    }
}
