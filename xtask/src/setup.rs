//! What the tests need beside Rust and Node: installed if it is absent, with the system's own packages.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::shell;

/// Programs, and the Debian packages that have them.
const NEEDED: [(&str, &str); 4] = [("bwrap", "bubblewrap"), ("git", "git"), ("perl", "perl"), ("setsid", "util-linux")];

/// Installs what is absent.
pub(crate) fn run() -> Result<()> {
    let absent: Vec<_> = NEEDED.iter().filter(|(program, _)| !is_there(program)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = absent.iter().map(|(_, package)| *package).collect();
    let names = packages.join(" ");
    println!("the tests need {names}; installing");
    install(&packages)
}

/// Installs packages of the system.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !is_there("apt-get") {
        bail!("{} must be installed with the system's packages", packages.join(" "));
    }
    let is_root = Path::new("/root").read_dir().is_ok();
    let apt = |words: &[&str]| {
        let mut command = if is_root { Command::new("apt-get") } else { Command::new("sudo") };
        if !is_root {
            command.args(["-n", "apt-get"]);
        }
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        shell::run(&mut command)
    };
    let install = [&["install", "-y", "--no-install-recommends"][..], packages].concat();
    // The list of packages may be old or not there at all.
    if apt(&install).is_err() {
        apt(&["update"])?;
        apt(&install)?;
    }
    Ok(())
}

/// Whether a program is there.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$1\" >/dev/null", "sh", program]).status().is_ok_and(|it| it.success())
}
