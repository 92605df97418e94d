//! What a process used, as the kernel tells it. Linux only.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// The kernel tells processor time in hundredths of a second, whatever its own clock does.
const TICK: Duration = Duration::from_millis(10);

/// Processor time that a process has used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage(Duration);

impl Usage {
    /// Reads it.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let stat = read(pid, "stat")?;
        let ticks = ticks(&stat).with_context(|| format!("cannot understand /proc/{pid}/stat"))?;
        Ok(Self(TICK * ticks))
    }

    /// What was used since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Processor time that the threads of a process have used so far, to the nanosecond. Those that have ended do not count.
pub(super) fn threads(pid: u32) -> Result<Duration> {
    let mut used = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended in the meantime has nothing to tell.
        let stat = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        used += stat.split(' ').next().and_then(|used| used.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(used))
}

/// A process and all that it started, directly or not, as far as they still live.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // One that has ended in the meantime is in no tree.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent(&stat) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root];
    let mut seen = 0;
    while let Some(&above) = tree.get(seen) {
        seen += 1;
        tree.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
    }
    tree
}

/// Memory that a process and those below it hold, in bytes.
pub(super) fn tree_memory(root: u32) -> Result<u64> {
    let below: u64 = tree(root).into_iter().skip(1).filter_map(|pid| memory(pid).ok()).sum();
    Ok(memory(root)? + below)
}

/// Processor time that a process and those below it have used so far.
pub(super) fn tree_used(root: u32) -> Result<Duration> {
    let below: Duration = tree(root).into_iter().skip(1).filter_map(|pid| Usage::of(pid).ok()).map(|used| used.0).sum();
    Ok(Usage::of(root)?.0 + below)
}

/// How many files a process has open.
pub(super) fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Memory that a process holds, in bytes.
pub(super) fn memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    kilobytes(&status, "VmRSS:").with_context(|| format!("cannot understand /proc/{pid}/status"))
}

/// The most memory that a process held so far, in bytes.
pub(super) fn peak_memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    kilobytes(&status, "VmHWM:").with_context(|| format!("cannot understand /proc/{pid}/status"))
}

/// Bytes that a process caused to be written to disk so far.
pub(super) fn written(pid: u32) -> Result<u64> {
    let io = read(pid, "io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).with_context(|| format!("cannot understand /proc/{pid}/io"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}; did the process end?"))
}

/// User and system time. The name of the program, in brackets, may hold blanks; what follows it does not.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11).map(str::parse::<u32>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

/// Who started it.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// A number of the table, in bytes.
fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_understood() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 3 0 99 5000 600 18446744073709551615";
        assert_eq!((ticks(stat), parent(stat)), (Some(42), Some(1)));
        let status = "Name:\thomard\nVmHWM:\t  4096 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(["VmRSS:", "VmHWM:"].map(|name| kilobytes(status, name)), [Some(2 << 20), Some(4 << 20)]);
    }
}
