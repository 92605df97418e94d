//! Resource limits of commands.
//!
//! The kernel limits each process (`RLIMIT_*`) and each temporary directory in memory. Without a cgroup it cannot limit
//! the memory of all processes together, the number of root's processes, or the disk usage, so [`Usage`] checks these
//! periodically.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::statvfs,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde::{Deserialize, Serialize};

use crate::command_tree::CommandTree;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Assumed memory size if the kernel does not report it.
const UNKNOWN_MEMORY: u64 = 4 * GIB;

/// Maximum number of open files per process.
const OPEN_FILES: u64 = 65_536;

/// OOM score of a command: the kernel kills it before the gateway, which has 0.
const OUT_OF_MEMORY_SCORE: &str = "500";

/// Resource limits of a command; `None` is without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Maximum memory of each process, and of all of them together, in bytes.
    pub memory: Option<u64>,
    /// Maximum number of processes and threads.
    pub processes: Option<u64>,
    /// Maximum file size in bytes.
    pub file: Option<u64>,
    /// Maximum size of each private temporary directory in bytes.
    pub temporary: Option<u64>,
    /// Space that must stay free on the disk of the workspace, in bytes.
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
    /// Returns the limits as text for the user.
    pub(crate) fn explained(&self) -> String {
        let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
        let parts = [
            self.memory.map(|bytes| format!("{} of memory", mib(bytes))),
            self.processes.map(|count| format!("{count} processes and threads")),
            self.file.map(|bytes| format!("files of {}", mib(bytes))),
            self.temporary.map(|bytes| format!("temporary directories of {}", mib(bytes))),
            self.disk_free.map(|bytes| format!("{} of the disk kept free", mib(bytes))),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

/// Limits that a process sets for itself before it executes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessLimits {
    memory: Option<u64>,
    tasks: Option<u64>,
    file: Option<u64>,
}

impl ProcessLimits {
    /// Creates the limits. The kernel counts the processes and threads of a user, not of a command, so the number that
    /// now exists on the machine is added.
    pub(crate) fn new(limits: &ResourceLimits) -> Self {
        let tasks = limits.processes.map(|processes| processes.saturating_add(tasks_now()));
        Self { memory: limits.memory, tasks, file: limits.file }
    }

    /// Applies them to this process and its descendants.
    pub(crate) fn apply(&self) -> io::Result<()> {
        lower(Resource::Core, Some(0))?;
        lower(Resource::Data, self.memory)?;
        lower(Resource::Nproc, self.tasks)?;
        lower(Resource::Fsize, self.file)?;
        lower(Resource::Nofile, Some(OPEN_FILES))?;
        // Optional: if it cannot be set, the kernel chooses by size.
        fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE).ok();
        Ok(())
    }
}

/// Sets a limit, unless the present one is lower.
fn lower(resource: Resource, limit: Option<u64>) -> io::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let least = |present: Option<u64>| Some(present.map_or(limit, |present| present.min(limit)));
    let present = getrlimit(resource);
    Ok(setrlimit(resource, Rlimit { current: least(present.current), maximum: least(present.maximum) })?)
}

/// Returns the number of processes and threads on this machine.
fn tasks_now() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let counts = load.split_whitespace().nth(3).and_then(|counts| counts.split_once('/'));
    counts.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

/// Returns the memory size of this machine in bytes.
fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(UNKNOWN_MEMORY, |kib| kib.saturating_mul(1024))
}

/// A limit that a command has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// Memory of all its processes, in bytes.
    Memory(u64),
    /// Number of processes.
    Processes(u64),
    /// Space that must stay free on the disk, in bytes.
    Disk(u64),
}

impl ExceededLimit {
    /// Returns why the command was stopped, as a sentence without its full stop.
    pub fn trouble(self) -> String {
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

/// Periodic check of the limits while a command runs.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Limits of the command.
    pub limits: ResourceLimits,
    workspace: PathBuf,
    /// Bytes that must stay free: at most half of what was free at the start.
    floor: Option<u64>,
}

impl Usage {
    /// Creates the check. Blocks.
    pub(crate) fn new(limits: ResourceLimits, workspace: &Path) -> Self {
        let floor = limits.disk_free.zip(free(workspace)).map(|(floor, free)| floor.min(free / 2));
        Self { limits, workspace: workspace.to_owned(), floor }
    }

    /// Returns a limit that the processes of a command currently exceed. Blocks.
    pub fn exceeded(&self, tree: &CommandTree) -> Option<ExceededLimit> {
        let (count, bytes) = tree.usage(self.limits.memory.unwrap_or(u64::MAX));
        let memory = self.limits.memory.filter(|limit| bytes > *limit).map(ExceededLimit::Memory);
        let processes = self.limits.processes.filter(|limit| count as u64 > *limit).map(ExceededLimit::Processes);
        let disk = self.floor.filter(|floor| free(&self.workspace).is_some_and(|free| free < *floor));
        memory.or(processes).or(disk.map(ExceededLimit::Disk))
    }
}

/// Returns the free space on the disk of a directory in bytes.
fn free(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;
    use crate::ProcessWrapper;

    #[test]
    fn low_disk_space_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let limits = ResourceLimits { memory: None, disk_free: Some(MIB), ..ResourceLimits::default() };
        let mut usage = Usage::new(limits, folder.path());
        let tree = CommandTree::new(getpid(), "of this test", ProcessWrapper::None);
        assert_eq!((usage.floor, usage.exceeded(&tree)), (Some(MIB), None));
        usage.floor = Some(u64::MAX);
        assert_eq!(usage.exceeded(&tree), Some(ExceededLimit::Disk(u64::MAX)));
        // Less space than that was free before the command started.
        let usage = Usage::new(ResourceLimits { disk_free: Some(u64::MAX), ..limits }, folder.path());
        assert!(usage.floor.unwrap() <= free(folder.path()).unwrap() && usage.exceeded(&tree).is_none());
    }
}
