//! Tests of workspaces on a real disk: creation, what is part of a prompt, and skills.
#![cfg(test)]

mod bootstrap;
mod skills;
mod starter;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// Creates a workspace with these files.
fn workspace(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// True if permissions apply to this user. Otherwise the test is run again as an unprivileged user, which must succeed.
fn is_plain_user(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    // The program may be in a folder that only root can enter.
    let home = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program: PathBuf = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let run = Command::new("setpriv").args(user).arg(&program).args(["--exact", test]).output().unwrap();
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && stdout.contains("1 passed"), "{stdout}{}", String::from_utf8_lossy(&run.stderr));
    false
}
