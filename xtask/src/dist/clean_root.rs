//! The packages in a clean Debian root, which `debootstrap` makes: the Debian package is installed and its first command
//! run; its service runs under a systemd of its own and survives an upgrade; the binary runs like in a container, with a
//! read-only root, as an ordinary user, and is killed.

mod reboot;
mod systemd;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use self::{reboot::InterruptedRuns, systemd::Systemd};
use super::Release;
use crate::shell;

/// Packages of the root, besides the base system.
const INCLUDED: &str = "bubblewrap,ca-certificates,dbus,systemd,systemd-sysv";
/// How long the systemd of the root may take to start, and everything that is waited for there.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Idle memory of the packaged gateway in bytes.
const MAX_IDLE: u64 = 25 * 1024 * 1024;

/// The packages that are tested.
pub(super) struct Packages<'a> {
    pub(super) deb: &'a Path,
    pub(super) release: &'a Release,
    /// True if the binary was built as it is published: only then its memory is compared with the limit.
    pub(super) is_own_build: bool,
}

/// Runs all tests; `root` is reused if it is there.
pub(super) fn test(packages: &Packages<'_>, root: Option<&Path>) -> Result<()> {
    let own = packages.release.out.join("clean-root");
    let root = root.unwrap_or(&own);
    if !root.join("usr/bin").exists() {
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", &format!("--include={INCLUDED}"), "bookworm"]).arg(root);
        shell::run(&mut debootstrap)?;
    }
    println!("ok   a clean Debian root: {}", root.display());
    let root = CleanRoot(root);
    root.install(packages.deb)?;
    root.first_command()?;
    root.container()?;
    root.service(packages)
}

/// A directory with a Debian system.
struct CleanRoot<'a>(&'a Path);

impl CleanRoot<'_> {
    /// Returns a command that runs as root in the directory.
    fn inside(&self, args: &[&str]) -> Command {
        let mut command = Command::new("bwrap");
        command
            .arg("--bind")
            .arg(self.0)
            .args(["/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
        command.args(["--cap-add", "ALL", "--chdir", "/tmp", "--die-with-parent", "--"]).args(args);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        command
    }

    fn install(&self, deb: &Path) -> Result<()> {
        fs::copy(deb, self.0.join("homard.deb")).context("cannot copy the package")?;
        shell::run(self.inside(&["dpkg", "--install", "/homard.deb"]).stdout(Stdio::null()))?;
        shell::run(self.inside(&["dpkg", "--verify", "homard"]).stdout(Stdio::null()))?;
        println!("ok   the Debian package is installed");
        Ok(())
    }

    fn first_command(&self) -> Result<()> {
        let mut command = self.inside(&["homard", "agent", "--message", "hello"]);
        let output = shell::output(&mut command)?;
        ensure!(!String::from_utf8_lossy(&output).trim().is_empty(), "the first command printed nothing");
        println!("ok   the first command answers: {}", String::from_utf8_lossy(&output).trim());
        Ok(())
    }

    /// Runs the gateway like a container does: nothing but the volume and `/tmp` is writable, and it is killed.
    fn container(&self) -> Result<()> {
        let volume = tempfile::tempdir()?;
        for start in 1..=2 {
            let mut gateway = Container(
                self.contained(volume.path(), &["gateway", "run", "--port", "0"]).stderr(Stdio::null()).spawn()?,
            );
            wait_for("the health check of the container", || {
                Ok(self.contained(volume.path(), &["health"]).stderr(Stdio::null()).status()?.success())
            })?;
            if start == 1 {
                let mut agent = self.contained(volume.path(), &["agent", "--message", "hello"]);
                shell::output(&mut agent).context("the agent in the container")?;
            } else {
                let sessions = shell::output(&mut self.contained(volume.path(), &["sessions", "--json"]))?;
                let sessions: Value = serde_json::from_slice(&sessions)?;
                let count = sessions["sessions"].as_array().map_or(0, Vec::len);
                ensure!(count == 1, "after SIGKILL the container has {count} sessions instead of 1");
            }
            gateway.0.kill()?;
            gateway.0.wait()?;
        }
        println!("ok   it runs read-only as user 10001 and survives SIGKILL");
        Ok(())
    }

    fn contained(&self, volume: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("bwrap");
        command.arg("--ro-bind").arg(self.0).args(["/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        command.arg("--bind").arg(volume).args([
            "/var/lib/homard",
            "--unshare-user",
            "--uid",
            "10001",
            "--gid",
            "10001",
        ]);
        command.args([
            "--chdir",
            "/tmp",
            "--die-with-parent",
            "--clearenv",
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
            "--setenv",
            "HOME",
        ]);
        command.args(["/var/lib/homard", "--setenv", "HOMARD_STATE_DIR", "/var/lib/homard", "--", "homard"]).args(args);
        command.stdout(Stdio::piped());
        command
    }

    /// Starts a systemd in the root, installs the service there, restarts and upgrades it, and kills everything.
    fn service(&self, packages: &Packages<'_>) -> Result<()> {
        fs::copy(packages.deb, self.0.join("homard.deb")).context("cannot copy the package")?;
        let state = self.0.join("var/lib/homard");
        let systemd = Systemd::boot(self.0)?;
        systemd.run(&["homard", "gateway", "install", "--system"])?;
        let before = systemd.status()?;
        ensure!(before["service"]["activity"] == "active", "the service is not active: {before}");
        println!("ok   the service runs under systemd: process {}", before["gateway"]["pid"]);
        let memory = systemd.idle_memory(&before)?;
        ensure!(
            memory <= MAX_IDLE || !packages.is_own_build,
            "the idle gateway uses {memory} bytes; at most {MAX_IDLE} are allowed"
        );
        println!("ok   idle memory: {:.1} MB", memory as f64 / 1e6);
        let sandbox = systemd.run(&["sh", "-c", AGENT_IN_SANDBOX])?;
        ensure!(sandbox.contains("uid="), "the sandbox does not work in the service: {sandbox}");
        println!("ok   commands run in their sandbox under the hardening of the unit: {}", sandbox.trim());
        systemd.run(&["homard", "gateway", "restart", "--system"])?;
        systemd.run(&["systemctl", "reload", "homard.service"])?;
        systemd.run(&["dpkg", "--install", "/homard.deb"])?;
        wait_for("the upgraded gateway", || Ok(systemd.status()?["running"] == true))?;
        let after = systemd.status()?;
        ensure!(after["gateway"]["pid"] == before["gateway"]["pid"], "a restart ended the process: {after}");
        ensure!(after["service"]["restarts"] == 0, "the service failed: {after}");
        println!("ok   it was replaced three times without an end: process {}", after["gateway"]["pid"]);
        let interrupted = InterruptedRuns::start(&systemd)?;
        // Everything ends at once, as in a power failure.
        drop(systemd);
        let systemd = Systemd::boot(self.0)?;
        wait_for("the service after a reboot", || Ok(systemd.status()?["running"] == true))?;
        interrupted.check(&systemd, &state)?;
        println!("ok   it starts after a reboot, and {interrupted} are answered once");
        systemd.run(&["homard", "gateway", "uninstall", "--system"])?;
        Ok(())
    }
}

/// Has an agent run a command through the service's gateway, which puts it into a sandbox.
const AGENT_IN_SANDBOX: &str = "cd /var/lib/homard/workspace 2>/dev/null || cd /; \
    HOMARD_STATE_DIR=/var/lib/homard homard agent --message 'run `id`'";

/// A gateway in a container, which is killed on drop.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        self.0.kill().and_then(|()| self.0.wait()).map(drop).unwrap_or_default();
    }
}

fn wait_for(what: &str, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let started_at = Instant::now();
    while !is_done()? {
        ensure!(started_at.elapsed() < TIMEOUT, "{what}: not after {TIMEOUT:?}");
        thread::sleep(POLL);
    }
    Ok(())
}
