//! Resource usage of a process, read from `/proc`. Linux only.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Resolution of CPU time in `/proc/<pid>/stat`, independent of the kernel's own clock.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTime(Duration);

impl CpuTime {
    /// Reads the current value.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let stat = read(pid, "stat")?;
        let ticks = ticks(&stat).with_context(|| format!("cannot parse /proc/{pid}/stat"))?;
        Ok(Self(TICK * ticks))
    }

    /// Returns the CPU time since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns the CPU time of a process's current threads, with a finer resolution than [`CpuTime`]. Threads that have
/// exited do not count.
pub(super) fn threads_cpu_time(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // The thread may have exited meanwhile.
        let stat = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanoseconds += stat.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Returns a process and all its living descendants.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The process may have exited meanwhile.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent(&stat) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root];
    let mut visited = 0;
    while let Some(&parent_pid) = tree.get(visited) {
        visited += 1;
        tree.extend(parents.iter().filter(|(_, parent)| *parent == parent_pid).map(|(pid, _)| *pid));
    }
    tree
}

/// Returns the memory of a process and its descendants, in bytes.
pub(super) fn tree_memory(root: u32) -> Result<u64> {
    let descendants: u64 = tree(root).into_iter().skip(1).filter_map(|pid| memory(pid).ok()).sum();
    Ok(memory(root)? + descendants)
}

/// Memory of a process and its descendants, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreeMemory {
    pub(super) processes: usize,
    /// Sum of their resident memory: pages that they share count for each.
    pub(super) resident: u64,
    /// Sum of their proportional shares: pages that they share count once.
    pub(super) proportional: u64,
}

/// Returns the memory of a process and its descendants, with shared pages counted once.
pub(super) fn tree_total_memory(root: u32) -> Result<TreeMemory> {
    let mut total = TreeMemory { processes: 0, resident: 0, proportional: 0 };
    for pid in tree(root) {
        let rollup = match read(pid, "smaps_rollup") {
            // A descendant may have exited meanwhile.
            Err(_ended) if pid != root => continue,
            rollup => rollup?,
        };
        let value = |name| kilobytes(&rollup, name).with_context(|| format!("cannot parse /proc/{pid}/smaps_rollup"));
        total.processes += 1;
        total.resident += value("Rss:")?;
        total.proportional += value("Pss:")?;
    }
    Ok(total)
}

/// Returns the CPU time of a process and its descendants so far.
pub(super) fn tree_cpu_time(root: u32) -> Result<Duration> {
    let descendants: Duration =
        tree(root).into_iter().skip(1).filter_map(|pid| CpuTime::of(pid).ok()).map(|used| used.0).sum();
    Ok(CpuTime::of(root)?.0 + descendants)
}

/// Returns the number of open files of a process.
pub(super) fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    kilobytes(&status, "VmRSS:").with_context(|| format!("cannot parse /proc/{pid}/status"))
}

/// Returns the peak resident memory of a process, in bytes.
pub(super) fn peak_memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    kilobytes(&status, "VmHWM:").with_context(|| format!("cannot parse /proc/{pid}/status"))
}

/// Returns the number of bytes that a process caused to be written to disk so far.
pub(super) fn written(pid: u32) -> Result<u64> {
    let io = read(pid, "io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).with_context(|| format!("cannot parse /proc/{pid}/io"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}; did the process end?"))
}

/// Returns user and system time. The command name, in parentheses, may contain spaces; the fields after it do not.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11).map(str::parse::<u32>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

/// Returns the parent process.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Returns a value of `/proc/<pid>/status`, in bytes.
fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 3 0 99 5000 600 18446744073709551615";
        assert_eq!((ticks(stat), parent(stat)), (Some(42), Some(1)));
        let status = "Name:\thomard\nVmHWM:\t  4096 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(["VmRSS:", "VmHWM:"].map(|name| kilobytes(status, name)), [Some(2 << 20), Some(4 << 20)]);
    }
}
