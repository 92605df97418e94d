//! Why a program failed in its sandbox, as far as its output tells: programs do not know that there is one.

use rustix::process::geteuid;

use crate::sandbox::Wrapper;

/// What programs say when they change what lies under a mount.
const READ_ONLY: [&str; 2] = ["Read-only file system", "Device or resource busy"];

/// What a shell says of a file that is not executable, with [`NOT_EXECUTABLE`].
const DENIED: &str = "Permission denied";

/// The exit code of a shell that could not start a program.
const NOT_EXECUTABLE: i32 = 126;

/// Sentences for a model about a command that ran in a sandbox.
pub(crate) fn hints(output: &str, exit_code: Option<i32>, wrapper: Wrapper) -> Vec<String> {
    let mut hints = Vec::new();
    if READ_ONLY.iter().any(|words| output.contains(words)) {
        hints.push(
            "[The sandbox refuses changes outside the workspace and of protected files in it, such as AGENTS.md and \
             .git/config. To change a protected file, use the write or edit tool: the owner is asked.]",
        );
    }
    if wrapper == Wrapper::Supervisor && exit_code == Some(NOT_EXECUTABLE) && output.contains(DENIED) {
        hints.push(if geteuid().is_root() {
            "[Without bubblewrap, programs cannot make a file executable where the gateway runs as root: start a script \
             with its interpreter]"
        } else {
            "[Without bubblewrap, programs cannot set the mode of a file, but for 700: use chmod 700 FILE, or start a \
             script with its interpreter]"
        });
    }
    hints.into_iter().map(ToOwned::to_owned).collect()
}
