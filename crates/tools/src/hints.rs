//! Explains failures that the sandbox caused, as far as the output shows; programs do not know that they run in one.

use rustix::process::geteuid;

use crate::sandbox::{ProcessWrapper, ResourceLimits};

/// Error messages for a write to a read-only or busy mount.
const READ_ONLY: [&str; 2] = ["Read-only file system", "Device or resource busy"];

/// Message of a shell for a file that is not executable, with [`NOT_EXECUTABLE`].
const DENIED: &str = "Permission denied";

/// Exit code of a shell that could not start a program.
const NOT_EXECUTABLE: i32 = 126;

/// Error messages for a failed memory allocation.
const NO_MEMORY: [&str; 3] = ["Cannot allocate memory", "MemoryError", "memory allocation of"];

/// Error messages for a failed `fork`.
const NO_PROCESS: [&str; 2] = ["fork: Resource temporarily unavailable", "fork: retry"];

/// Error messages for a file that exceeds the size limit.
const FILE_TOO_LARGE: [&str; 2] = ["File too large", "File size limit exceeded"];

/// Exit code after `SIGXFSZ`.
const KILLED_BY_XFSZ: i32 = 128 + libc::SIGXFSZ;

/// Error message for a full disk.
const DISK_FULL: &str = "No space left on device";

const MIB: u64 = 1024 * 1024;

/// Returns hints for the model about a command that failed in a sandbox.
pub(crate) fn hints(
    output: &str,
    exit_code: Option<i32>,
    wrapper: ProcessWrapper,
    limits: Option<&ResourceLimits>,
) -> Vec<String> {
    let mut hints = Vec::new();
    if READ_ONLY.iter().any(|message| output.contains(message)) {
        hints.push(
            "[The sandbox refuses changes outside the workspace and to protected files in it, such as AGENTS.md and \
             .git/config. To change a protected file, use the write or edit tool, which asks the owner for approval.]",
        );
    }
    if wrapper == ProcessWrapper::Supervisor && exit_code == Some(NOT_EXECUTABLE) && output.contains(DENIED) {
        hints.push(if geteuid().is_root() {
            "[Without bubblewrap, programs cannot make a file executable if the gateway runs as root: start a script \
             with its interpreter]"
        } else {
            "[Without bubblewrap, programs can set the mode of a file only to 700: use chmod 700 FILE, or start a \
             script with its interpreter]"
        });
    }
    let reached = limits.into_iter().flat_map(|limits| limit_hints(output, exit_code, limits));
    hints.into_iter().map(ToOwned::to_owned).chain(reached).collect()
}

/// Returns hints about resource limits that a command may have reached.
fn limit_hints(output: &str, exit_code: Option<i32>, limits: &ResourceLimits) -> Vec<String> {
    let output_contains = |messages: &[&str]| messages.iter().any(|messages| output.contains(messages));
    let is_too_large = exit_code == Some(KILLED_BY_XFSZ) || output_contains(&FILE_TOO_LARGE);
    let memory = limits
        .memory
        .filter(|_| output_contains(&NO_MEMORY))
        .map(|bytes| format!("[A command may use {} MiB of memory at most: tools.exec.limits.memoryMb]", bytes / MIB));
    let processes = limits.processes.filter(|_| output_contains(&NO_PROCESS)).map(|count| {
        format!("[A command may start {count} processes and threads at most: tools.exec.limits.processes]")
    });
    let file = limits
        .file
        .filter(|_| is_too_large)
        .map(|bytes| format!("[A command may write files of {} MiB at most: tools.exec.limits.fileMb]", bytes / MIB));
    let temporary = limits.temporary.filter(|_| output_contains(&[DISK_FULL])).map(|bytes| {
        format!("[A temporary directory of a command holds {} MiB at most: tools.exec.limits.tmpMb]", bytes / MIB)
    });
    [memory, processes, file, temporary].into_iter().flatten().collect()
}
