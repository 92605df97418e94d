//! Tier B filter: calls through which a process could reach beyond its workspace although Landlock is active.
//!
//! Landlock controls opening, creating, moving and removing files, but not their metadata, and of other processes only
//! signals and tracing. A filter sees numbers, but no paths. So calls that cannot be restricted by numbers are refused,
//! reported as unsupported (as on a file system that lacks them), or ignored (as on one without modes, like `quiet` of
//! vfat), whichever lets most programs continue.

use std::{collections::BTreeMap, io};

use seccompiler::{BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::compiled;

/// The only mode that programs can set, unless they run as root: it only removes access of others. It allows compilers
/// and scripts to make their output executable.
const PRIVATE: u64 = 0o700;

/// System V shared memory, message queues and semaphores, and POSIX message queues, which programs share; file events,
/// which reveal the names of hidden files; and `process_mrelease`, which affects other processes.
const REFUSED: [i64; 16] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_init,
    libc::SYS_process_mrelease,
];

/// Calls that change the process given by the first argument; 0 is the caller.
const OF_A_PROCESS: [i64; 7] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// Calls that change the process given by the second argument, with the required kind of target in the first.
const OF_A_KIND: [(i64, u64); 2] =
    [(libc::SYS_setpriority, libc::PRIO_PROCESS as u64), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)];

const IOPRIO_WHO_PROCESS: u64 = 1;

/// Calls that set a mode, with the index of the mode argument.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
];

/// Calls that set owners and times.
const IGNORED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
];

/// Calls that set extended attributes.
const UNSUPPORTED: [i64; 8] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

// These have the same number on all architectures.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

/// File system requests for which a read-only descriptor is sufficient: flags, versions, encryption, subvolumes. Each
/// row has the type letter of the requests and the harmless ones among them, which only read.
const REQUESTS: [(u64, &[u64]); 4] = [
    (b'f' as u64, &[FS_IOC_GETFLAGS, FS_IOC_FIEMAP]),
    (b'X' as u64, &[FS_IOC_FSGETXATTR]),
    (b'v' as u64, &[FS_IOC_GETVERSION]),
    (BTRFS, &[]),
];

const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_FIEMAP: u64 = 0xC020_660B;
const FS_IOC_FSGETXATTR: u64 = 0x801C_581F;
const FS_IOC_GETVERSION: u64 = 0x8008_7601;
const BTRFS: u64 = 0x94;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the seccomp programs that refuse calls, ignore them, or report them as unsupported. All three are installed.
pub(crate) fn programs(is_root: bool) -> io::Result<[BpfProgram; 3]> {
    let rules = || Ok::<_, BackendError>([refused()?, ignored(is_root)?, unsupported()?]);
    let [refused, ignored, unsupported] = rules().map_err(io::Error::other)?;
    Ok([compiled(refused, libc::EPERM)?, compiled(ignored, 0)?, compiled(unsupported, libc::EOPNOTSUPP)?])
}

fn refused() -> Result<Rules, BackendError> {
    let mut rules = always(&REFUSED);
    for call in OF_A_PROCESS {
        rules.insert(call, vec![rule([word(0, SeccompCmpOp::Ne, 0)])?]);
    }
    for (call, kind) in OF_A_KIND {
        let rows = [rule([word(0, SeccompCmpOp::Ne, kind)])?, rule([word(1, SeccompCmpOp::Ne, 0)])?];
        rules.insert(call, rows.into());
    }
    Ok(rules)
}

fn ignored(is_root: bool) -> Result<Rules, BackendError> {
    let mut rules = always(IGNORED);
    for (call, at) in MODES {
        // Matches any bit that differs from that mode; there is no single comparison for that.
        let bits = (0..12).map(|bit| 1 << bit);
        let other = bits.map(|bit: u64| rule([word(*at, SeccompCmpOp::MaskedEq(bit), bit & !PRIVATE)]));
        let rows = if is_root { Vec::new() } else { other.collect::<Result<_, _>>()? };
        rules.insert(*call, rows);
    }
    Ok(rules)
}

fn unsupported() -> Result<Rules, BackendError> {
    let mut rules = always(&UNSUPPORTED);
    let requests = REQUESTS.iter().map(|(kind, harmless)| {
        let is_of_kind = word(1, SeccompCmpOp::MaskedEq(0xFF00), kind << 8);
        rule(std::iter::once(is_of_kind).chain(harmless.iter().map(|request| word(1, SeccompCmpOp::Ne, *request))))
    });
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn word(at: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value)
}

/// Returns a rule that matches if all conditions hold.
fn rule(
    conditions: impl IntoIterator<Item = Result<SeccompCondition, BackendError>>,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}
