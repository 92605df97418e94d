//! A program in a virtual terminal: tmux runs it, types, and reads the screen.

use std::{fs, path::PathBuf, process::Command, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::time::Instant;

use super::client::{ClientHome, OpenClawClient, PATH};

/// Polling interval of the screen.
const POLL: Duration = Duration::from_millis(200);

/// A terminal with a program in it. Dropping it kills the program and keeps the content of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    folder: TempDir,
    /// The program's home, kept while it runs.
    home: ClientHome,
    log: PathBuf,
}

impl Screen {
    /// Starts a client in a terminal of its own. `name` is the name of its log.
    pub(super) fn start(client: &OpenClawClient, name: &str, home: ClientHome, args: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a directory for tmux")?;
        let screen = Self { folder, home, log: client.logs.join(format!("{name}.screen")) };
        let mut command = screen.tmux(&["new-session", "-d", "-x", "160", "-y", "50", "env", "-i"]);
        let home = screen.home.folder();
        for (variable, value) in [
            ("PATH", PATH.into()),
            ("HOME", home.as_os_str().to_owned()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
            ("OPENCLAW_NO_RESPAWN", "1".into()),
        ] {
            let mut setting = std::ffi::OsString::from(variable);
            setting.push("=");
            setting.push(value);
            command.arg(setting);
        }
        command.arg(&client.node).arg(&client.script).args(args).current_dir(home);
        let output = command.output().context("tmux is needed to run a TUI; install it with: apt-get install tmux")?;
        ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        Ok(screen)
    }

    /// Returns the content of the screen.
    pub(super) fn text(&self) -> Result<String> {
        let output = self.tmux(&["capture-pane", "-p", "-S", "-300"]).output()?;
        ensure!(output.status.success(), "the program has exited: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        fs::write(&self.log, &text)?;
        Ok(text)
    }

    /// Waits until the screen satisfies a condition.
    pub(super) fn until(&self, what: &str, time_limit: Duration, condition: impl Fn(&str) -> bool) -> Result<String> {
        let end = Instant::now() + time_limit;
        loop {
            let text = self.text().with_context(|| format!("waiting for {what}"))?;
            if condition(&text) {
                return Ok(text);
            }
            if Instant::now() > end {
                let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
                let last = lines[lines.len().saturating_sub(4)..].join(" | ");
                bail!("{what} was not on the screen after {time_limit:?}; its last lines are: {last}");
            }
            thread::sleep(POLL);
        }
    }

    /// Types a text and Enter.
    pub(super) fn enter(&self, text: &str) -> Result<()> {
        self.keys(&["-l", text])?;
        // Fast typing looks like pasting, and Enter would become part of the text.
        thread::sleep(POLL * 2);
        self.keys(&["Enter"])
    }

    /// Presses keys.
    pub(super) fn keys(&self, keys: &[&str]) -> Result<()> {
        let output = self.tmux(&["send-keys"]).args(keys).output()?;
        ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns a command for the tmux server of this screen, which is not shared.
    fn tmux(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket")).args(["-f", "/dev/null"]).args(args);
        command.env_remove("TMUX");
        command
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Keeps what can be read; a program that has exited has closed its screen.
        self.text().ok();
        self.tmux(&["kill-server"]).output().ok();
    }
}
