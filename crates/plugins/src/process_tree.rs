//! The process tree of a plugin.
//!
//! A process belongs to it if it is in its process group, or has its mark in the environment because it left the group.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Environment variable that contains the mark.
pub(crate) const MARK: &str = "HOMARD_PLUGIN";

/// Maximum number of rounds of SIGKILL: what is left then does not react to signals at all.
const MAX_ROUNDS: usize = 40;

/// Delay between two rounds.
const ROUND_DELAY: Duration = Duration::from_millis(5);

/// The process tree of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct ProcessTree {
    leader: Pid,
    mark: String,
    /// Start time of the leader in kernel ticks: older processes do not belong to it.
    started_at: u64,
}

impl ProcessTree {
    /// The tree of a process that leads its own group and whose environment has [`MARK`] set to `mark`.
    pub(crate) fn new(leader: Pid, tag: &str) -> Self {
        let started_at = read_stat(leader.as_raw_nonzero().get()).map_or(0, |stat| stat.started_at);
        Self { leader, mark: format!("{MARK}={tag}"), started_at }
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        // The group may be gone already.
        kill_process_group(self.leader, Signal::TERM).ok();
    }

    /// Kills all processes repeatedly, until no newly forked one is left. Blocks briefly.
    pub(crate) fn kill(&self) {
        for _ in 0..MAX_ROUNDS {
            let alive = self.living();
            if alive.is_empty() {
                return;
            }
            for pid in alive {
                kill_process(pid, Signal::KILL).ok();
            }
            thread::sleep(ROUND_DELAY);
        }
        tracing::warn!(leader = ?self.leader, "failed to kill the processes of a plugin");
    }

    /// Returns the running processes.
    pub(crate) fn living(&self) -> Vec<Pid> {
        let all = fs::read_dir("/proc").into_iter().flatten();
        let all = all.filter_map(|entry| read_stat(entry.ok()?.file_name().to_str()?.parse().ok()?));
        let is_ours = |stat: &ProcessStat| {
            stat.is_alive
                && stat.started_at >= self.started_at
                && (stat.group == Some(self.leader) || self.is_marked(stat.pid))
        };
        all.filter(is_ours).map(|stat| stat.pid).collect()
    }

    fn is_marked(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }
}

struct ProcessStat {
    pid: Pid,
    group: Option<Pid>,
    is_alive: bool,
    started_at: u64,
}

/// Reads `/proc/PID/stat`; `None` if the process is gone.
fn read_stat(pid: i32) -> Option<ProcessStat> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The command name, in parentheses, may contain any character, including parentheses. After it: state (0), process
    // group (2), start time in clock ticks (19).
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // -1 if the process is exiting.
    let group: i32 = fields.get(2)?.parse().ok()?;
    let is_alive = !matches!(*fields.first()?, "Z" | "X");
    let started_at = fields.get(19)?.parse().ok()?;
    Some(ProcessStat { pid: Pid::from_raw(pid)?, group: Pid::from_raw(group.max(0)), is_alive, started_at })
}
