//! The processes that a command has started, wherever they went.
//!
//! A process group is not enough: `setsid` leaves it. A tree of parents is not enough either: a daemon's parent is gone.
//! So a process belongs to a command if it is in its group, descends from one that belongs, or carries the command's
//! mark in its environment. One that sheds all three escapes; only a sandbox could hold it.

use std::{collections::HashSet, fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::sandbox::Wrapper;

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
    /// What the first processes are: they are not asked to end.
    wrapper: Wrapper,
    /// When the leader was born, in ticks of the kernel: nobody who is older belongs to it.
    born: u64,
}

struct Seen {
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    is_alive: bool,
    born: u64,
}

impl Tree {
    /// The tree of a process that leads its own group and whose environment has `MARK` set to `mark`.
    pub(crate) fn new(leader: Pid, mark: &str, wrapper: Wrapper) -> Self {
        let born = look(leader.as_raw_nonzero().get()).map_or(0, |seen| seen.born);
        Self { leader, mark: format!("{MARK}={mark}"), wrapper, born }
    }

    /// What the first processes are.
    pub(crate) fn wrapper(&self) -> Wrapper {
        self.wrapper
    }

    /// Asks all to end, and kills what has not after a while. Blocks.
    pub(crate) fn end(&self) {
        self.ask();
        for _ in 0..GRACE.as_millis() / LOOK.as_millis() {
            if self.living(&[self.leader]).is_empty() {
                return;
            }
            thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Ends what is left when the leader is over and reaped, and says how many that were. Blocks.
    pub(crate) fn end_rest(&self) -> usize {
        // The number of the leader may be another's by now.
        let mut living = self.living(&[]);
        // Without its wrapper, a command is being killed already: how many are left is chance.
        let is_wrapped = self.wrapper != Wrapper::None;
        let (left, signal) = if is_wrapped { (0, Signal::KILL) } else { (living.len(), Signal::TERM) };
        each(&living, signal);
        let looks = GRACE.div_duration_f64(LOOK) as usize;
        for look in 0..looks + KILLS {
            if living.is_empty() {
                return left;
            }
            if look > looks {
                each(&living, Signal::KILL);
            }
            thread::sleep(if look == 0 { LOOK / 5 } else { LOOK });
            living = self.living(&[]);
        }
        tracing::warn!(leader = ?self.leader, "processes that a command left could not be killed");
        left
    }

    /// Kills all, again and again until no child is left that was born meanwhile. Blocks, but not for long.
    pub(crate) fn kill(&self) {
        for _ in 0..KILLS {
            let mut living = self.living(&[self.leader]);
            if self.wrapper == Wrapper::Supervisor {
                // It ends when the others have, and until then none of them can leave the tree.
                living.retain(|one| one.pid != self.leader);
            } else {
                // The group first and at once, so that none of it can fork meanwhile. Whoever is gone needs no signal.
                kill_process_group(self.leader, Signal::KILL).ok();
                living = self.living(&[self.leader]);
            }
            if living.is_empty() {
                return;
            }
            each(&living, Signal::KILL);
            thread::sleep(LOOK);
        }
        tracing::warn!(leader = ?self.leader, "processes of a command could not be killed");
    }

    /// How many processes it has, and how many bytes of memory these have for themselves. Blocks.
    ///
    /// What processes share after a fork counts for each of them at first; only if that is more than `limit` it is
    /// counted once, which takes longer.
    pub(crate) fn usage(&self, limit: u64) -> (usize, u64) {
        let living = self.living(&[self.leader]);
        let at_most: u64 = living.iter().filter_map(|one| resident(one.pid)).sum();
        if at_most <= limit {
            return (living.len(), at_most);
        }
        // One that cannot be looked at, or is gone, counts as it did.
        let parts = living.iter().filter_map(|one| proportional(one.pid).or_else(|| resident(one.pid)));
        (living.len(), parts.sum())
    }

    /// Asks all to end that are not wrappers.
    fn ask(&self) {
        let mut living = self.living(&[self.leader]);
        let mut wrappers = HashSet::from([self.leader]);
        for _ in 0..self.wrapper.generations() {
            living.retain(|one| !wrappers.contains(&one.pid));
            let is_below = |one: &&Seen| one.parent.is_some_and(|parent| wrappers.contains(&parent));
            let below: Vec<Pid> = living.iter().filter(is_below).map(|one| one.pid).collect();
            wrappers.extend(below);
        }
        each(&living, Signal::TERM);
    }

    /// All that run: those of the group, those with the mark, and what descends from them or from `others`.
    fn living(&self, others: &[Pid]) -> Vec<Seen> {
        let mut seen: Vec<Seen> = all().filter(|one| one.born >= self.born).collect();
        let is_root = |one: &&Seen| one.group == Some(self.leader) || self.is_marked(one.pid);
        let mut ours: HashSet<Pid> = seen.iter().filter(is_root).map(|one| one.pid).collect();
        ours.extend(others);
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

/// Sends a signal to each. Whoever is gone already needs none: errors mean nothing here.
fn each(living: &[Seen], signal: Signal) {
    for one in living {
        kill_process(one.pid, signal).ok();
    }
}

/// Bytes of a process in memory that are no file's.
fn resident(pid: Pid) -> Option<u64> {
    kibibytes(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// The same, where a page that several processes have counts for each in part.
fn proportional(pid: Pid) -> Option<u64> {
    kibibytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Anon:")
}

/// Bytes that a line of a file says.
fn kibibytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// The children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists: Result<Vec<String>, _> = tasks.map(|task| fs::read_to_string(task.path().join("children"))).collect();
    match lists {
        Ok(lists) if !lists.is_empty() => {
            let pids = lists.iter().flat_map(|list| list.split_whitespace());
            pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
        }
        // The kernel was built without that file.
        Ok(_) | Err(_) => all().filter(|one| one.parent == Some(parent)).map(|one| one.pid).collect(),
    }
}

/// All processes.
fn all() -> impl Iterator<Item = Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?))
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
    // A process that is going away has -1 for a group.
    let (parent, group) = (Pid::from_raw(parent.max(0)), Pid::from_raw(group.max(0)));
    let born = fields.nth(16)?.parse().ok()?;
    Some(Seen { pid: Pid::from_raw(pid)?, parent, group, is_alive, born })
}
