//! Prerequisites of the tests besides Rust and Node: installed with the system's package manager if missing; and a
//! newer Node from npm if the machine's is too old.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::shell;

/// Programs, and the Debian packages that contain them.
const PREREQUISITES: [(&str, &str); 7] = [
    ("bwrap", "bubblewrap"),
    ("git", "git"),
    ("perl", "perl"),
    ("setsid", "util-linux"),
    ("strace", "strace"),
    ("systemd-analyze", "systemd"),
    ("tmux", "tmux"),
];

/// Installs what is missing, if this user may install packages. Tests whose prerequisites are still missing are
/// skipped.
pub(crate) fn run() {
    let missing: Vec<_> =
        PREREQUISITES.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    let names = missing.join(" ");
    println!("the tests need {names}; installing");
    if let Err(error) = install(&missing) {
        println!("cannot install {names}: {error:#}; tests that need them are skipped");
    }
}

/// Minimum version of Node for OpenClaw's plugins, and the package that is installed if the machine's is older.
const NODE: [u32; 2] = [22, 15];
const NEW_NODE: &str = "node@22";

/// Returns a Node that is new enough: the machine's, or one from npm in the target folder. `None` if there is none and
/// none can be installed; tests that need it are skipped then.
pub(crate) fn node() -> Option<PathBuf> {
    match find_node() {
        Ok(node) => Some(node),
        Err(error) => {
            println!("no Node {}.{} or newer: {error:#}; tests that need it are skipped", NODE[0], NODE[1]);
            None
        }
    }
}

fn find_node() -> Result<PathBuf> {
    if node_version("node").is_some_and(|version| version >= NODE) {
        return Ok(PathBuf::from("node"));
    }
    let folder = shell::root().join("target/node22");
    let program = folder.join("node_modules/node/bin/node");
    if node_version(&program.to_string_lossy()).is_some_and(|version| version >= NODE) {
        return Ok(program);
    }
    println!("the tests of plugins need Node {}.{} or newer; installing {NEW_NODE} in target/node22", NODE[0], NODE[1]);
    std::fs::create_dir_all(&folder)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"]).arg(&folder).arg(NEW_NODE);
    shell::run(&mut npm)?;
    Ok(program)
}

fn node_version(program: &str) -> Option<[u32; 2]> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches('v').to_owned();
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??])
}

/// Installs packages of the system.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !is_installed("apt-get") {
        bail!("{} must be installed with the system's packages", packages.join(" "));
    }
    let is_root = Path::new("/root").read_dir().is_ok();
    let apt = |args: &[&str]| {
        let mut command = if is_root { Command::new("apt-get") } else { Command::new("sudo") };
        if !is_root {
            command.args(["-n", "apt-get"]);
        }
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        shell::run(&mut command)
    };
    let install = [&["install", "-y", "--no-install-recommends"][..], packages].concat();
    // The package list may be outdated or missing.
    if apt(&install).is_err() {
        apt(&["update"])?;
        apt(&install)?;
    }
    Ok(())
}

/// True if a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$1\" >/dev/null", "sh", program]).status().is_ok_and(|it| it.success())
}
