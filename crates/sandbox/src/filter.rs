//! System call filter: calls that commands do not need, but attacks on the kernel or on other processes do.

pub(crate) mod ungoverned;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek, Write},
    os::fd::OwnedFd,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use serde::{Deserialize, Serialize};

/// Socket families that may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sockets {
    /// None. Without a network namespace, every socket leads out of the sandbox, Unix sockets included.
    No,
    /// Unix and internet sockets, which are confined to an empty network namespace.
    Local,
    /// All but Unix sockets, if there is no network namespace: programs of the user listen on Unix sockets, which are
    /// outside the sandbox.
    Outward,
    /// All.
    Any,
}

/// Calls that are refused with any arguments.
const REFUSED: [i64; 36] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_open_by_handle_at,
    libc::SYS_acct,
];

/// Flags of `clone` that create namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests that insert input into a terminal as if it were typed.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// First refused call number. From here on there are calls that have not been reviewed, beginning with
/// `open_tree_attr`, and those of the x32 ABI, which would bypass the list.
const STRANGE: u32 = 467;

/// Returns the filter as a BPF program.
pub(crate) fn program(sockets: Sockets) -> io::Result<BpfProgram> {
    let other_rules = compiled(rules(sockets).map_err(io::Error::other)?, libc::EPERM)?;
    Ok(unknown().into_iter().chain(other_rules).collect())
}

/// Returns a filter that fails matching calls with `errno` (0 for success without an effect) and allows all others.
pub(crate) fn compiled(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<BpfProgram> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?,
    );
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

/// Returns the filter as a sealed memory file that a child inherits.
pub(crate) fn in_memory(sockets: Sockets) -> io::Result<OwnedFd> {
    let bytes: Vec<u8> = program(sockets)?.iter().flat_map(encode).collect();
    let mut file = File::from(memfd_create("seccomp", MemfdFlags::ALLOW_SEALING)?);
    file.write_all(&bytes)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

fn rules(sockets: Sockets) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let word = |at, operator, value| SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        SeccompRule::new(vec![word(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    let typing = TYPING.iter().map(|request| SeccompRule::new(vec![word(1, SeccompCmpOp::Eq, *request)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    match sockets {
        Sockets::No => {
            rules.insert(libc::SYS_socket, Vec::new());
        }
        Sockets::Local => {
            let allowed_families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
            let others =
                allowed_families.iter().map(|family| word(0, SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
            let raw = word(1, SeccompCmpOp::MaskedEq(0xF), u64::from(libc::SOCK_RAW.cast_unsigned()))?;
            let rows = vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?, SeccompRule::new(vec![raw])?];
            rules.insert(libc::SYS_socket, rows);
        }
        Sockets::Outward => {
            let local = word(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.cast_unsigned()))?;
            rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![local])?]);
        }
        Sockets::Any => {}
    }
    Ok(rules)
}

/// Returns the first part of the filter: calls that fail with `ENOSYS`. The flags of `clone3` are in memory and cannot
/// be inspected; programs then fall back to `clone`.
fn unknown() -> [sock_filter; 4] {
    let is = |code: u32, k, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    [
        is(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, STRANGE, 1, 0),
        is(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone3 as u32, 0, 1),
        is(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
    ]
}

fn encode(instruction: &sock_filter) -> [u8; 8] {
    let [a, b] = instruction.code.to_ne_bytes();
    let [c, d, e, f] = instruction.k.to_ne_bytes();
    [a, b, instruction.jt, instruction.jf, c, d, e, f]
}
