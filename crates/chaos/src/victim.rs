//! The gateway that is killed: this program as a child process with its own state directory.

use std::{
    env,
    fs::{self, OpenOptions},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use homard_settings::paths;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, timeout},
};

use super::script;

/// Timeout for a gateway to become ready, and to stop on request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of the log's end that are shown if it does not come back.
const LOG_TAIL_BYTES: usize = 2_000;

/// The directory and settings of the gateway.
#[derive(Debug)]
pub(super) struct Victim {
    program: PathBuf,
    folder: PathBuf,
    token: String,
}

/// A running gateway. It is killed on drop.
#[derive(Debug)]
pub(super) struct ChaosGateway {
    process: Child,
    pub port: u16,
    /// Time from the start of the process to the first good response.
    pub(super) ready_after: Duration,
}

impl Victim {
    /// Prepares a directory for a gateway whose model listens on this loopback port.
    pub(crate) fn new(folder: &Path, token: &str, model: u16, slots: usize) -> Result<Self> {
        let victim = Self {
            program: env::current_exe().context("cannot find this program")?,
            folder: folder.to_owned(),
            token: token.to_owned(),
        };
        let config = json!({
            "models": {"providers": {"chaos": {
                "baseUrl": format!("http://127.0.0.1:{model}/v1"), "apiKey": "none", "api": "openai-completions",
                "models": [{"id": "scripted", "contextWindow": 1_000_000, "maxTokens": 4096}],
            }}},
            "agents": {"defaults": {
                "model": {"primary": "chaos/scripted"}, "workspace": victim.workspace(), "maxConcurrent": slots,
            }},
        });
        let created = fs::create_dir_all(victim.state()).and_then(|()| fs::create_dir_all(victim.workspace()));
        created
            .and_then(|()| fs::write(victim.state().join("homard.json"), config.to_string()))
            .and_then(|()| fs::write(victim.workspace().join(script::NOTES), "nothing to see\n"))
            .with_context(|| format!("cannot prepare {}", folder.display()))?;
        Ok(victim)
    }

    /// Returns the state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Returns the workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    /// Starts the gateway and waits until it answers.
    pub(crate) async fn start(&self) -> Result<ChaosGateway> {
        let started_at = Instant::now();
        let mut process = self.spawn()?;
        let port = match timeout(TIMEOUT, ready(&mut process)).await {
            Ok(Ok(port)) => port,
            Ok(Err(why)) => bail!("the gateway did not start: {why:#}\n{}", self.log_tail()),
            Err(_) => bail!("the gateway was not ready within {TIMEOUT:?}\n{}", self.log_tail()),
        };
        Ok(ChaosGateway { process, port, ready_after: started_at.elapsed() })
    }

    /// Starts the gateway and kills it after a delay, usually before it is ready.
    pub(super) async fn start_and_kill(&self, delay: Duration) -> Result<()> {
        let mut process = self.spawn()?;
        tokio::time::sleep(delay).await;
        process.kill().await.context("cannot kill the gateway")
    }

    fn spawn(&self) -> Result<Child> {
        let log = OpenOptions::new().append(true).create(true).open(self.log()).context("cannot write the log")?;
        let mut command = Command::new(&self.program);
        // After this many crashes in a short time it would hold its runs, unless recovery is requested.
        command.args(["gateway", "run", "--port", "0", "--recover"]).current_dir(&self.folder).env_clear();
        command.envs(paths::env("PATH").map(|path| ("PATH", path))).env("HOME", &self.folder);
        command
            .env("HOMARD_STATE_DIR", self.state())
            .env("HOMARD_GATEWAY_TOKEN", &self.token)
            .env("HOMARD_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command.spawn().with_context(|| format!("cannot start {}", self.program.display()))
    }

    fn log(&self) -> PathBuf {
        self.folder.join("gateway.log")
    }

    fn log_tail(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }
}

impl ChaosGateway {
    /// Kills it with SIGKILL, like a power cut.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.process.kill().await.context("cannot kill the gateway")
    }

    /// Asks it to stop and waits for its exit.
    pub(crate) async fn stop(mut self) -> Result<ExitStatus> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).context("cannot stop the gateway")?;
        }
        let status = timeout(TIMEOUT, self.process.wait()).await;
        Ok(status.with_context(|| format!("the gateway did not stop within {TIMEOUT:?}"))??)
    }
}

/// Reads the port from its output and waits for the first good response.
async fn ready(process: &mut Child) -> Result<u16> {
    let mut lines = BufReader::new(process.stdout.take().context("the gateway has no stdout")?).lines();
    let port = loop {
        let line = lines.next_line().await?.context("the gateway exited before it was listening")?;
        if let Some((_, port)) = line.split_once("ws://127.0.0.1:") {
            break port.trim().parse()?;
        }
    };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // Not /readyz, which also reports whether models and channels work: the gateway answers once unfinished runs are
    // resumed.
    let request = format!("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the health check failed: {answer}");
    Ok(port)
}
