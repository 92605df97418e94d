//! The processes that a plugin has started, wherever they went.
//!
//! One belongs to it if it is in its process group, or carries its mark in the environment because it left the group.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable that marks them.
pub(crate) const MARK: &str = "HOMARD_PLUGIN";

/// How often they are killed before we give up: what is left then does not react to signals at all.
const KILLS: usize = 40;

/// How long we wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The processes that a plugin has started.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    leader: Pid,
    mark: String,
    /// When the leader was born, in ticks of the kernel: nobody who is older belongs to it.
    born: u64,
}

impl Tree {
    /// The tree of a process that leads its own group and whose environment has [`MARK`] set to `mark`.
    pub(crate) fn new(leader: Pid, mark: &str) -> Self {
        let born = look(leader.as_raw_nonzero().get()).map_or(0, |seen| seen.born);
        Self { leader, mark: format!("{MARK}={mark}"), born }
    }

    /// Asks the group to end.
    pub(crate) fn ask(&self) {
        // Whoever is gone already needs no signal.
        kill_process_group(self.leader, Signal::TERM).ok();
    }

    /// Kills all, again and again until no child is left that was born meanwhile. Blocks, but not for long.
    pub(crate) fn kill(&self) {
        for _ in 0..KILLS {
            let living = self.living();
            if living.is_empty() {
                return;
            }
            for pid in living {
                kill_process(pid, Signal::KILL).ok();
            }
            thread::sleep(LOOK);
        }
        tracing::warn!(leader = ?self.leader, "processes of a plugin could not be killed");
    }

    /// Those that run.
    pub(crate) fn living(&self) -> Vec<Pid> {
        let all = fs::read_dir("/proc").into_iter().flatten();
        let all = all.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?));
        let is_ours = |one: &Seen| {
            one.is_alive && one.born >= self.born && (one.group == Some(self.leader) || self.is_marked(one.pid))
        };
        all.filter(is_ours).map(|one| one.pid).collect()
    }

    fn is_marked(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }
}

struct Seen {
    pid: Pid,
    group: Option<Pid>,
    is_alive: bool,
    born: u64,
}

/// What the kernel says of a process; `None` if it is gone.
fn look(pid: i32) -> Option<Seen> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name comes first, in brackets, and may hold anything, brackets too.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // A process that is going away has -1 for a group.
    let group: i32 = fields.get(2)?.parse().ok()?;
    let is_alive = !matches!(*fields.first()?, "Z" | "X");
    let born = fields.get(19)?.parse().ok()?;
    Some(Seen { pid: Pid::from_raw(pid)?, group: Pid::from_raw(group.max(0)), is_alive, born })
}
