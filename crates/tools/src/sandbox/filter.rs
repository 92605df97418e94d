//! The system calls that a command has no use for, but an attack on the kernel or on other processes has.

pub(super) mod ungoverned;

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

/// Which sockets may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sockets {
    /// None: where there is no network namespace, any of them leads out, those with a path too.
    No,
    /// Those for local use, and the internet's: they end in the network namespace, where there is nobody.
    Local,
    /// Those that lead to other machines, where there is no network namespace: not those with a path, behind which
    /// programs of the user listen.
    Outward,
    /// Any.
    Any,
}

/// Calls that are refused whatever is asked of them.
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

/// The flags of `clone` that make namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests that put words into a terminal as if they were typed.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// From here on, numbers mean calls that nobody has looked at yet, from `open_tree_attr` on, or those of another
/// convention (x32), which would pass by all that is listed here.
const STRANGE: u32 = 467;

/// The filter as the kernel takes it.
pub(super) fn program(sockets: Sockets) -> io::Result<BpfProgram> {
    let rest = compiled(rules(sockets).map_err(io::Error::other)?, libc::EPERM)?;
    Ok(unknown().into_iter().chain(rest).collect())
}

/// A filter that answers the calls that match with an error, or with success if that is 0, and lets others pass.
pub(super) fn compiled(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<BpfProgram> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?,
    );
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

/// The same in a file of its own, which a child inherits.
pub(super) fn in_memory(sockets: Sockets) -> io::Result<OwnedFd> {
    let bytes: Vec<u8> = program(sockets)?.iter().flat_map(spelled).collect();
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
            let known = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
            let others = known.iter().map(|family| word(0, SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
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

/// What comes first: calls that are said not to exist. Of `clone3` the flags cannot be seen; programs then use `clone`.
fn unknown() -> [sock_filter; 4] {
    let is = |code: u32, k, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    [
        is(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, STRANGE, 1, 0),
        is(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone3 as u32, 0, 1),
        is(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
    ]
}

fn spelled(one: &sock_filter) -> [u8; 8] {
    let [a, b] = one.code.to_ne_bytes();
    let [c, d, e, f] = one.k.to_ne_bytes();
    [a, b, one.jt, one.jf, c, d, e, f]
}
