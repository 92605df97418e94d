//! The processes that a command has started, including detached ones.
//!
//! A process group is not sufficient: `setsid` leaves it. The parent relation is not sufficient either: a daemon's
//! parent has exited. So a process belongs to a command if it is in its group, descends from one that belongs, or has
//! the command's mark in its environment. One that sheds all three escapes; only a sandbox could hold it.

use std::{collections::HashSet, fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::ProcessWrapper;

/// Environment variable that identifies the processes of a command, because children inherit it.
pub const MARK: &str = "HOMARD_EXEC";

/// Time for processes to exit after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_millis(250);

/// Polling interval while waiting for processes to exit.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of rounds of `SIGKILL`: processes that survive do not react to signals at all.
const MAX_KILL_ROUNDS: usize = 40;

/// The processes that a command has started.
///
/// The leader must not be reaped while this is used, so that its process id stays valid.
#[derive(Debug, Clone)]
pub struct CommandTree {
    leader: Pid,
    mark: String,
    /// Kind of the first processes, which are not sent `SIGTERM`.
    wrapper: ProcessWrapper,
    /// Start time of the leader in kernel ticks: older processes do not belong to it.
    started: u64,
}

struct TreeProcess {
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    is_alive: bool,
    started: u64,
}

impl CommandTree {
    /// Creates the tree of a process that leads its own group and whose environment has `MARK` set to `mark`.
    pub fn new(leader: Pid, mark: &str, wrapper: ProcessWrapper) -> Self {
        let started = read_process(leader.as_raw_nonzero().get()).map_or(0, |process| process.started);
        Self { leader, mark: format!("{MARK}={mark}"), wrapper, started }
    }

    /// Returns the kind of the first processes.
    pub fn wrapper(&self) -> ProcessWrapper {
        self.wrapper
    }

    /// Sends `SIGTERM` to all, and `SIGKILL` to those that remain after a grace period. Blocks.
    pub fn terminate(&self) {
        self.send_term();
        for _ in 0..TERM_GRACE.as_millis() / POLL_INTERVAL.as_millis() {
            if self.live_processes(&[self.leader]).is_empty() {
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.kill();
    }

    /// Kills what is left after the leader was reaped; returns the number of processes. Blocks.
    pub fn kill_rest(&self) -> usize {
        // The leader's process id may have been reused by now.
        let mut processes = self.live_processes(&[]);
        // When its wrapper has exited, a command is already being killed: the number of remaining processes is
        // arbitrary.
        let is_wrapped = self.wrapper != ProcessWrapper::None;
        let (leftover, signal) = if is_wrapped { (0, Signal::KILL) } else { (processes.len(), Signal::TERM) };
        signal_all(&processes, signal);
        let grace_polls = TERM_GRACE.div_duration_f64(POLL_INTERVAL) as usize;
        for poll in 0..grace_polls + MAX_KILL_ROUNDS {
            if processes.is_empty() {
                return leftover;
            }
            if poll > grace_polls {
                signal_all(&processes, Signal::KILL);
            }
            thread::sleep(if poll == 0 { POLL_INTERVAL / 5 } else { POLL_INTERVAL });
            processes = self.live_processes(&[]);
        }
        tracing::warn!(leader = ?self.leader, "failed to kill processes that a command left running");
        leftover
    }

    /// Kills all, repeatedly until no child is left that was forked meanwhile. Blocks briefly.
    pub fn kill(&self) {
        for _ in 0..MAX_KILL_ROUNDS {
            let mut processes = self.live_processes(&[self.leader]);
            if self.wrapper == ProcessWrapper::Supervisor {
                // The supervisor exits after the others, and until then none of them can leave the tree.
                processes.retain(|process| process.pid != self.leader);
            } else {
                // The group first and at once, so that none of it can fork meanwhile. Errors for exited processes are
                // ignored.
                kill_process_group(self.leader, Signal::KILL).ok();
                processes = self.live_processes(&[self.leader]);
            }
            if processes.is_empty() {
                return;
            }
            signal_all(&processes, Signal::KILL);
            thread::sleep(POLL_INTERVAL);
        }
        tracing::warn!(leader = ?self.leader, "failed to kill the processes of a command");
    }

    /// Returns the number of processes and their anonymous memory in bytes. Blocks.
    ///
    /// Pages shared after a fork are first counted for each process; only if that exceeds `limit` are they counted
    /// proportionally, which is slower.
    pub fn usage(&self, limit: u64) -> (usize, u64) {
        let processes = self.live_processes(&[self.leader]);
        let resident_sum: u64 = processes.iter().filter_map(|process| resident(process.pid)).sum();
        if resident_sum <= limit {
            return (processes.len(), resident_sum);
        }
        // A process that cannot be inspected, or has exited, is counted by its resident size.
        let sizes = processes.iter().filter_map(|process| proportional(process.pid).or_else(|| resident(process.pid)));
        (processes.len(), sizes.sum())
    }

    /// Sends `SIGTERM` to all processes except the wrappers between the gateway and the command.
    fn send_term(&self) {
        let mut processes = self.live_processes(&[self.leader]);
        let mut wrappers = HashSet::from([self.leader]);
        for _ in 0..self.wrapper.generations() {
            processes.retain(|process| !wrappers.contains(&process.pid));
            let is_child = |process: &&TreeProcess| process.parent.is_some_and(|parent| wrappers.contains(&parent));
            let children: Vec<Pid> = processes.iter().filter(is_child).map(|process| process.pid).collect();
            wrappers.extend(children);
        }
        signal_all(&processes, Signal::TERM);
    }

    /// Returns all living processes: those of the group, those with the mark, and descendants of these or of `others`.
    fn live_processes(&self, others: &[Pid]) -> Vec<TreeProcess> {
        let mut processes: Vec<TreeProcess> = all().filter(|process| process.started >= self.started).collect();
        let is_root = |process: &&TreeProcess| process.group == Some(self.leader) || self.is_marked(process.pid);
        let mut tree: HashSet<Pid> = processes.iter().filter(is_root).map(|process| process.pid).collect();
        tree.extend(others);
        loop {
            let size = tree.len();
            let descends = |process: &&TreeProcess| process.parent.is_some_and(|parent| tree.contains(&parent));
            let found: Vec<Pid> = processes.iter().filter(descends).map(|process| process.pid).collect();
            tree.extend(found);
            if tree.len() == size {
                break;
            }
        }
        processes.retain(|process| process.is_alive && tree.contains(&process.pid));
        processes
    }

    fn is_marked(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }
}

/// Sends a signal to each. Errors are ignored, because the process may have exited.
fn signal_all(processes: &[TreeProcess], signal: Signal) {
    for process in processes {
        kill_process(process.pid, signal).ok();
    }
}

/// Returns the anonymous resident memory of a process in bytes.
fn resident(pid: Pid) -> Option<u64> {
    kibibytes(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// Like [`resident`], but shared pages count proportionally.
fn proportional(pid: Pid) -> Option<u64> {
    kibibytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Anon:")
}

/// Returns the value of a line of a `/proc` file, in bytes.
fn kibibytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Returns the children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists: Result<Vec<String>, _> = tasks.map(|task| fs::read_to_string(task.path().join("children"))).collect();
    match lists {
        Ok(lists) if !lists.is_empty() => {
            let pids = lists.iter().flat_map(|list| list.split_whitespace());
            pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
        }
        // The kernel was built without that file.
        Ok(_) | Err(_) => all().filter(|process| process.parent == Some(parent)).map(|process| process.pid).collect(),
    }
}

/// Returns all processes.
fn all() -> impl Iterator<Item = TreeProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| read_process(entry.ok()?.file_name().to_str()?.parse().ok()?))
}

/// Reads the state of a process; `None` if it has exited.
fn read_process(pid: i32) -> Option<TreeProcess> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The command name comes first, in parentheses, and may contain anything, including parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    let (parent, group): (i32, i32) = (number()?, number()?);
    // A process that is exiting has the group -1.
    let (parent, group) = (Pid::from_raw(parent.max(0)), Pid::from_raw(group.max(0)));
    let started = fields.nth(16)?.parse().ok()?;
    Some(TreeProcess { pid: Pid::from_raw(pid)?, parent, group, is_alive, started })
}
