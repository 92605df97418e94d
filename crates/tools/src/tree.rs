//! The processes that a command has started, wherever they went.
//!
//! A process group is not enough: `setsid` leaves it. A tree of parents is not enough either: a daemon's parent is gone.
//! So a process belongs to a command if it is in its group, descends from one that belongs, or carries the command's
//! mark in its environment. One that sheds all three escapes; only a sandbox could hold it.

use std::{collections::HashSet, fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable that marks the processes of a command.
pub(crate) const MARK: &str = "HOMARD_EXEC";

/// How long processes may take to end when asked.
const GRACE: Duration = Duration::from_millis(250);

/// How often we look whether they have.
const LOOK: Duration = Duration::from_millis(5);

/// How often they are killed before we give up: what is left then does not react to signals at all.
const KILLS: usize = 40;

/// The processes that a command has started.
///
/// The leader must not be reaped while this is used, so that its number means the same process all the time.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    leader: Pid,
    mark: String,
}

struct Seen {
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    is_alive: bool,
}

impl Tree {
    /// The tree of a process that leads its own group and whose environment has `MARK` set to `mark`.
    pub(crate) fn new(leader: Pid, mark: &str) -> Self {
        Self { leader, mark: format!("{MARK}={mark}") }
    }

    /// Asks all to end, and kills what has not after a while. Blocks.
    pub(crate) fn end(&self) {
        self.signal(Signal::TERM);
        for _ in 0..GRACE.as_millis() / LOOK.as_millis() {
            if self.living().is_empty() {
                return;
            }
            thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Kills all, again and again until no child is left that was born meanwhile. Blocks, but not for long.
    pub(crate) fn kill(&self) {
        for _ in 0..KILLS {
            if self.signal(Signal::KILL) == 0 {
                return;
            }
            thread::sleep(LOOK);
        }
        tracing::warn!(leader = ?self.leader, "processes of a command could not be killed");
    }

    /// Sends a signal to all and says how many there were.
    fn signal(&self, signal: Signal) -> usize {
        // Whoever is gone already needs no signal: errors mean nothing here.
        kill_process_group(self.leader, signal).ok();
        let living = self.living();
        for stray in living.iter().filter(|one| one.group != Some(self.leader)) {
            kill_process(stray.pid, signal).ok();
        }
        living.len()
    }

    fn living(&self) -> Vec<Seen> {
        let mut seen: Vec<Seen> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?))
            .collect();
        let is_root = |one: &&Seen| one.group == Some(self.leader) || self.is_marked(one.pid);
        let mut ours: HashSet<Pid> = seen.iter().filter(is_root).map(|one| one.pid).collect();
        ours.insert(self.leader);
        loop {
            let known = ours.len();
            let descends = |one: &&Seen| one.parent.is_some_and(|parent| ours.contains(&parent));
            let found: Vec<Pid> = seen.iter().filter(descends).map(|one| one.pid).collect();
            ours.extend(found);
            if ours.len() == known {
                break;
            }
        }
        seen.retain(|one| one.is_alive && ours.contains(&one.pid));
        seen
    }

    fn is_marked(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }
}

/// What the kernel says of a process; `None` if it is gone.
fn look(pid: i32) -> Option<Seen> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name comes first, in brackets, and may hold anything, brackets too.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    let (parent, group): (i32, i32) = (number()?, number()?);
    Some(Seen { pid: Pid::from_raw(pid)?, parent: Pid::from_raw(parent), group: Pid::from_raw(group), is_alive })
}
