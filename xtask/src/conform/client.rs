//! An installed client, run in a home of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Deserializer, Value, json};
use tempfile::TempDir;
use tokio::process;

/// Time limit of a client's command; the newer client needs half a minute for a simple request.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);

/// `PATH` of clients.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Protocol version of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProtocolVersion {
    Three,
    Four,
}

/// An installed client.
#[derive(Debug)]
pub(super) struct OpenClawClient {
    pub(super) version: &'static str,
    pub(super) protocol: ProtocolVersion,
    pub(super) node: PathBuf,
    pub(super) script: PathBuf,
    /// Folder for its output.
    pub(super) logs: PathBuf,
}

/// A fresh home of a client.
#[derive(Debug)]
pub(super) struct ClientHome(TempDir);

impl ClientHome {
    /// Creates a home that is configured for a gateway on loopback.
    pub(super) fn new(port: u16, token: &str) -> Result<Self> {
        let home = Self::without_gateway()?;
        let url = format!("ws://127.0.0.1:{port}");
        let config = json!({"gateway": {"mode": "remote", "remote": {"url": url, "token": token}}});
        fs::write(home.state().join("openclaw.json"), config.to_string())?;
        Ok(home)
    }

    /// Creates a home without a gateway, with an empty state directory.
    pub(super) fn without_gateway() -> Result<Self> {
        let home = Self(tempfile::tempdir().context("cannot create a home directory for the client")?);
        fs::create_dir(home.state())?;
        Ok(home)
    }

    /// Returns the user's home directory, as the client sees it.
    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Returns the client's state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.0.path().join(".openclaw")
    }
}

/// Output of a client's command.
#[derive(Debug)]
pub(super) struct ClientOutput {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl ClientOutput {
    /// Fails unless the exit code is 0.
    pub(super) fn succeeded(self) -> Result<Self> {
        ensure!(self.code == Some(0), "exit code {:?}: {}", self.code, self.tail());
        Ok(self)
    }

    /// Returns the JSON object on stdout; a client may print other text around it.
    pub(super) fn json(&self) -> Result<Value> {
        let start = self.stdout.lines().position(|line| line.starts_with('{')).context("no JSON on stdout")?;
        let text: Vec<&str> = self.stdout.lines().skip(start).collect();
        let text = text.join("\n");
        let first = Deserializer::from_str(&text).into_iter().next().context("no JSON on stdout")?;
        first.context("invalid JSON on stdout")
    }

    /// Returns all output, for a search.
    pub(super) fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    fn tail(&self) -> String {
        let all = self.all();
        let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }
}

impl OpenClawClient {
    /// Returns the folder of its package.
    pub(super) fn package(&self) -> &Path {
        self.script.parent().unwrap_or(&self.script)
    }

    /// Returns the version that it reports. Also empties its log folder for the new session.
    pub(super) fn reported_version(&self) -> Result<String> {
        super::empty_folder(&self.logs)?;
        let home = tempfile::tempdir()?;
        let output = self.command(home.path(), &["--version"]).output().context("cannot start the client")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command of the client to its end. `name` is the name of its log.
    pub(super) fn call(&self, name: &str, home: &ClientHome, args: &[&str]) -> Result<ClientOutput> {
        let output = self.output_with_timeout(home, args)?;
        let client_output = ClientOutput {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let ClientOutput { code, stdout, stderr } = &client_output;
        let log = format!("$ openclaw {}\n# exit {code:?}\n# stdout\n{stdout}\n# stderr\n{stderr}\n", args.join(" "));
        fs::write(self.logs.join(format!("{name}.log")), log).context("cannot write the client's log")?;
        Ok(client_output)
    }

    /// Runs a command with a time limit; uses tokio, because std has no wait with a timeout.
    fn output_with_timeout(&self, home: &ClientHome, args: &[&str]) -> Result<Output> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut command = process::Command::from(self.command(home.0.path(), args));
            let output = tokio::time::timeout(COMMAND_TIMEOUT, command.kill_on_drop(true).output()).await;
            output
                .with_context(|| format!("the client did not exit within {COMMAND_TIMEOUT:?}"))?
                .context("cannot start the client")
        })
    }

    /// Builds a command with a clean environment: no API keys that could bypass the gateway.
    fn command(&self, home: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.script).args(args).current_dir(home).stdin(Stdio::null());
        command.env_clear().env("PATH", PATH).env("HOME", home);
        // A single process, so that killing it kills the client; and plain text.
        command.env("OPENCLAW_NO_RESPAWN", "1").env("NO_COLOR", "1");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_found_between_other_text() {
        let json_of =
            |stdout: &str| ClientOutput { code: Some(0), stdout: stdout.to_owned(), stderr: String::new() }.json();
        assert_eq!(json_of("hello\n{\n  \"a\": 1\n}\nbye\n").unwrap(), json!({"a": 1}));
        assert_eq!(json_of("hello {\"a\": 1}").unwrap_err().to_string(), "no JSON on stdout");
    }
}
