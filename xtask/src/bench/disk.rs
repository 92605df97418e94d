//! Disk writes of a plain run: number of syncs, write calls and bytes, as `strace` sees them. Without it, the kernel's
//! own count of written bytes.

use std::{ffi::OsString, fs, path::Path, rc::Rc, thread, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{client::BenchClient, process, report::BenchReport};
use crate::{
    gateway::{self, GatewayHome, RunningGateway},
    setup,
};

/// Number of measured plain runs, sequential in one session.
const RUNS: usize = 50;
/// Chunks of a plain run.
const CHUNKS: usize = 20;
/// System calls that write to a file, and those that sync it.
const WRITES: [&str; 4] = ["write", "pwrite64", "writev", "pwritev"];
const SYNCS: [&str; 3] = ["fsync", "fdatasync", "sync_file_range"];
/// Time to wait for background work, which belongs to the runs before it.
const BACKGROUND_TIME: Duration = Duration::from_secs(2);

/// Writes to files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileWrites {
    pub(super) syncs: u64,
    pub(super) calls: u64,
    pub(super) bytes: u64,
}

/// Measures a gateway of its own.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let home = GatewayHome::new(binary, config, &logs.join("disk.log"))?;
    let trace = logs.join("strace.txt");
    if !setup::is_installed("strace") {
        let gateway = RunningGateway::start_at(Rc::new(home))?;
        let before = process::written(gateway.pid())?;
        runs(&gateway).await?;
        report.bytes_only((process::written(gateway.pid())? - before) / RUNS as u64);
        return Ok(());
    }
    let state = home.state();
    let gateway = RunningGateway::start_at(Rc::new(home.started_by(strace(&trace))))?;
    let read = || anyhow::Ok(count(&fs::read_to_string(&trace).context("cannot read the output of strace")?, &state));
    warm_up(&gateway).await?;
    let before = read()?;
    runs(&gateway).await?;
    let after = read()?;
    let each = |after: u64, before: u64| (after - before) as f64 / RUNS as f64;
    report.written(each(after.syncs, before.syncs), each(after.calls, before.calls), each(after.bytes, before.bytes));
    Ok(())
}

/// Makes a run that creates the session, and waits for its background work.
async fn warm_up(gateway: &RunningGateway) -> Result<()> {
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    client.run("agent:main:disk", CHUNKS).await?;
    thread::sleep(BACKGROUND_TIME);
    Ok(())
}

async fn runs(gateway: &RunningGateway) -> Result<()> {
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    for _ in 0..RUNS {
        client.run("agent:main:disk", CHUNKS).await?;
    }
    thread::sleep(BACKGROUND_TIME);
    Ok(())
}

/// Returns the strace command line. The tracer runs in the background, so that the process that is started, and killed,
/// is the gateway itself.
pub(super) fn strace(trace: &Path) -> Vec<OsString> {
    let calls = [&WRITES[..], &SYNCS[..]].concat().join(",");
    let filter = format!("trace={calls}");
    let args = ["strace", "-D", "-f", "-y", "-e", &filter, "-o"].map(OsString::from);
    args.into_iter().chain([trace.as_os_str().to_owned()]).collect()
}

/// Counts the calls on files below a folder. A call interrupted by another thread has two lines, of which the first
/// names the file and the second the result.
pub(super) fn count(trace: &str, folder: &Path) -> FileWrites {
    let mut written = FileWrites::default();
    let folder = folder.display().to_string();
    let mut unfinished = std::collections::HashMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let (call, is_ours) = match rest.strip_prefix("<... ") {
            Some(resumed) => match unfinished.remove(thread) {
                Some(is_ours) => (resumed.split(' ').next().unwrap_or_default(), is_ours),
                None => continue,
            },
            None => (rest.split('(').next().unwrap_or_default(), rest.contains(&format!("<{folder}/"))),
        };
        if rest.ends_with("<unfinished ...>") {
            unfinished.insert(thread, is_ours);
            continue;
        }
        let result = rest.rsplit(" = ").next().and_then(|result| result.split(' ').next()?.parse::<u64>().ok());
        match result {
            Some(_) if is_ours && SYNCS.contains(&call) => written.syncs += 1,
            Some(bytes) if is_ours && WRITES.contains(&call) => {
                written.calls += 1;
                written.bytes += bytes;
            }
            Some(_) | None => {}
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_calls_on_our_files_are_counted() {
        let trace = "\
7 pwrite64(9</s/journal/journal.db-wal>, \"a = 1\"..., 4096, 32) = 4096
7 write(3<socket:[1]>, \"x\"..., 100) = 100
8 fdatasync(9</s/journal/journal.db-wal> <unfinished ...>
7 write(12</s/agents/main/sessions/x.jsonl>, \"{\"..., 200) = 200
8 <... fdatasync resumed>) = 0
7 write(12</s/agents/main/sessions/x.jsonl>, \"{\"..., 200) = -1 ENOSPC (No space left on device)
9 write(5</elsewhere/file>, \"x\", 1) = 1
";
        assert_eq!(count(trace, Path::new("/s")), FileWrites { syncs: 1, calls: 2, bytes: 4296 });
    }
}
