//! A systemd of the clean root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::wait_for;
use crate::shell;

/// A systemd in namespaces of its own. Everything that it started ends with it.
pub(super) struct Systemd {
    outer: Child,
    pid: u32,
}

impl Systemd {
    pub(super) fn boot(root: &Path) -> Result<Self> {
        let script = shell::root().join("xtask/packaging/boot-in-namespace.sh");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net", "--fork", "--kill-child=KILL"])
            .arg(script)
            .arg(root);
        let outer = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start unshare")?;
        let children = PathBuf::from(format!("/proc/{0}/task/{0}/children", outer.id()));
        let mut systemd = Self { outer, pid: 0 };
        wait_for("the systemd of the root", || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            systemd.pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
            Ok(systemd.pid > 0 && systemd.run(&["systemctl", "is-active", "basic.target"]).is_ok())
        })?;
        Ok(systemd)
    }

    /// Runs a command as root in the system; returns its stdout.
    pub(super) fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().context("cannot start nsenter")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(
            output.status.success(),
            "`{}` failed: {}{}",
            args.join(" "),
            text(&output.stdout),
            text(&output.stderr)
        );
        Ok(text(&output.stdout))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.pid.to_string(),
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
            "--net",
            "--",
        ]);
        command.args(args).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        command
    }

    /// Returns what `homard gateway status` tells. Its exit code says whether a gateway runs.
    pub(super) fn status(&self) -> Result<Value> {
        let output = self.command(&["homard", "gateway", "status", "--system", "--json"]).output()?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no status: {}", String::from_utf8_lossy(&output.stderr)))
    }

    pub(super) fn idle_memory(&self, status: &Value) -> Result<u64> {
        let pid = status["gateway"]["pid"].as_u64().context("the gateway has no process id")?;
        let text = self.run(&["grep", "VmRSS", &format!("/proc/{pid}/status")])?;
        let kilobytes = text.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
        Ok(kilobytes.context("the process has no size")? * 1024)
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        // The namespace ends with its first process. Before that was found, `unshare` is killed, and its child with it
        // (--kill-child); 0 would be the process group of this program.
        let killed = match self.pid {
            0 => self.outer.kill(),
            pid => Command::new("kill").args(["-KILL", &pid.to_string()]).status().map(drop),
        };
        killed.and_then(|()| self.outer.wait()).map(drop).unwrap_or_default();
    }
}
