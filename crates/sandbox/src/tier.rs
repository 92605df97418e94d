//! Detects which sandbox tier this machine supports.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use landlock::{Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use rustix::process::geteuid;

use crate::enter::{Confinement, ENTER, REQUIRED_ABI_ALONE};

/// Paths where bubblewrap is searched first, because system policies (such as AppArmor) allow it by its path.
const USUAL: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// Arguments of the trial run.
const TRIAL: [&str; 13] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--",
    "/bin/sh",
];

/// Number of these arguments before the command.
const LAYERS: usize = TRIAL.len() - 2;

/// Arguments of the first trial: versions before 0.7 do not support them.
const SIZE: [&str; 4] = ["--size", "65536", "--tmpfs", "/tmp"];

/// Sandbox tier of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tier {
    /// Namespaces, a system call filter and Landlock.
    A {
        /// Path of bubblewrap.
        bwrap: PathBuf,
        /// True if it can limit the size of a directory in memory.
        has_sizes: bool,
    },
    /// Landlock and a system call filter.
    B {
        /// Why tier A is not available.
        why: String,
    },
    /// No sandbox: commands are refused.
    C {
        /// What is missing.
        why: String,
    },
}

impl Tier {
    /// Detects the tier by trial runs. Blocks while one or two programs run.
    ///
    /// `helper` is a program that calls [`enter`](super::enter) when its first argument is [`ENTER`]; `path` is the
    /// search path for programs.
    pub fn detect(helper: Option<&Path>, path: &str) -> Self {
        let found =
            USUAL.iter().map(PathBuf::from).chain(std::env::split_paths(path).map(|folder| folder.join("bwrap")));
        let reason = match found.into_iter().find(|bwrap| bwrap.is_file()) {
            Some(bwrap) => {
                let has_sizes = works(
                    Command::new(&bwrap).args(&TRIAL[..LAYERS]).args(SIZE).args(&TRIAL[LAYERS..]).args(["-c", ":"]),
                )
                .is_ok();
                if has_sizes {
                    return Self::A { bwrap, has_sizes };
                }
                match works(Command::new(&bwrap).args(TRIAL).args(["-c", ":"])) {
                    Ok(()) => return Self::A { bwrap, has_sizes },
                    Err(reason) => format!("{} does not work here ({reason})", bwrap.display()),
                }
            }
            None => "bubblewrap is not installed".to_owned(),
        };
        Self::without_namespaces(helper, reason)
    }

    /// Returns what commands can do here but not in tier A, each as the end of a sentence that begins "commands can".
    pub fn gaps(&self) -> Vec<&'static str> {
        let Self::B { .. } = self else { return Vec::new() };
        let mut gaps = vec![
            "list other processes, and see that a hidden file exists, its size and its times",
            "change protected files of the workspace (.git/config, hooks, AGENTS.md) temporarily, until they are \
             restored",
        ];
        if !geteuid().is_root() {
            gaps.push("make your files outside the workspace private (mode 700)");
        }
        if !scopes_signals() {
            gaps.push("signal your other processes (this kernel is older than Linux 6.12)");
        }
        gaps
    }

    /// Returns the best tier without bubblewrap. `why` is the reason for not using bubblewrap.
    pub fn without_namespaces(helper: Option<&Path>, why: String) -> Self {
        let Some(helper) = helper else {
            return Self::C { why: format!("{why}, and the helper program for Landlock is missing") };
        };
        let trial = Confinement::trial().to_argument().map_err(|error| error.to_string());
        let succeeded = trial
            .and_then(|trial| works(Command::new(helper).arg(ENTER).arg(trial).args(["--", "/bin/sh", "-c", ":"])));
        match succeeded {
            Ok(()) => Self::B { why },
            Err(_) if !has_landlock() => {
                Self::C { why: format!("{why}, and Landlock is disabled or the kernel is older than Linux 6.2") }
            }
            Err(landlock) => Self::C { why: format!("{why}, and Landlock does not work either ({landlock})") },
        }
    }
}

/// Returns true if Landlock can protect files on this machine. Restricts nothing.
fn has_landlock() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.handle_access(AccessFs::from_all(REQUIRED_ABI_ALONE)).and_then(Ruleset::create).is_ok()
}

/// Returns true if Landlock can restrict signals on this kernel. Restricts nothing.
fn scopes_signals() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.scope(Scope::Signal).and_then(Ruleset::create).is_ok()
}

/// Runs a trial; `Err` contains its error output.
fn works(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).env_clear().output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.lines().next_back().map_or_else(|| output.status.to_string(), str::to_owned))
}
