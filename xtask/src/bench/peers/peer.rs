//! The gateways that are measured: each in a home of its own, started the same way, used by the same client, and
//! reliably killed.

use std::{
    ffi::OsString,
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bench::{client::BenchClient, process},
    conform::InstalledOpenClaw,
    gateway::TOKEN,
};

/// Time limit for a gateway to accept a handshake after its start.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for one attempt to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts.
const POLL: Duration = Duration::from_micros(500);
/// `PATH` of the peers.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// A RAM disk.
const RAM_DISK: &str = "/dev/shm";

/// A gateway that is measured.
#[derive(Debug)]
pub(super) enum Peer {
    Floor(PathBuf),
    Homard(PathBuf),
    OpenClaw(InstalledOpenClaw),
}

/// Where a gateway keeps its files.
#[derive(Debug, Clone, Copy)]
pub(super) enum StorageKind {
    Disk,
    /// Excludes the time that a disk takes to sync.
    Memory,
}

impl Peer {
    /// Returns the title of its column.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Floor(_) => "floor".to_owned(),
            Self::Homard(_) => "Homard".to_owned(),
            Self::OpenClaw(installed) => format!("OpenClaw {}", installed.version),
        }
    }

    /// True if it makes thousands of runs in a few seconds.
    pub(super) fn is_quick(&self) -> bool {
        !matches!(self, Self::OpenClaw(_))
    }

    fn protocol(&self) -> u8 {
        match self {
            Self::Floor(_) | Self::Homard(_) => 4,
            Self::OpenClaw(installed) => installed.protocol,
        }
    }

    /// Creates a home for it, with a model on this port and this context window.
    pub(super) fn home(&self, storage: StorageKind, model: u16, window: u32) -> Result<PeerHome<'_>> {
        let folder = match storage {
            StorageKind::Disk => tempfile::tempdir(),
            StorageKind::Memory => tempfile::tempdir_in(RAM_DISK),
        };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let home = PeerHome { peer: self, folder: folder.context("cannot create a home directory")?, model, port };
        fs::create_dir(home.state())?;
        let mut config = config(model, window);
        let name = match self {
            Self::Floor(_) => return Ok(home),
            Self::Homard(_) => "homard.json",
            Self::OpenClaw(_) => {
                let auth = json!({"mode": "token", "token": TOKEN});
                // The older version reads the port only from the config.
                config["gateway"] = json!({"mode": "local", "bind": "loopback", "port": home.port, "auth": auth});
                config["logging"] = json!({"file": home.folder.path().join("openclaw.log")});
                "openclaw.json"
            }
        };
        fs::write(home.state().join(name), config.to_string())?;
        Ok(home)
    }
}

/// Returns the config common to all peers.
pub(super) fn config(model: u16, window: u32) -> Value {
    let fake = json!({
        "id": "fake-1", "name": "Fake One", "reasoning": false, "input": ["text"], "maxTokens": 4096,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": window,
    });
    let url = format!("http://127.0.0.1:{model}/v1");
    let provider = json!({"baseUrl": url, "apiKey": "none", "api": "openai-completions", "models": [fake]});
    json!({
        "models": {"mode": "merge", "providers": {"fake": provider}},
        "agents": {"defaults": {"model": {"primary": "fake/fake-1"}}},
    })
}

/// Home directory of a peer. Dropping it removes everything.
#[derive(Debug)]
pub(super) struct PeerHome<'a> {
    peer: &'a Peer,
    folder: TempDir,
    model: u16,
    /// Port of its gateway, which was free a moment ago.
    port: u16,
}

impl PeerHome<'_> {
    /// Returns the whole directory.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.path().join(match self.peer {
            Peer::Floor(_) | Peer::Homard(_) => "state",
            Peer::OpenClaw(_) => ".openclaw",
        })
    }

    /// Starts the gateway and waits until a handshake succeeds.
    pub(super) async fn start(&self) -> Result<RunningPeer> {
        self.start_through(&[]).await
    }

    /// Like [`Self::start`], through another program that gets the command as its last arguments.
    pub(super) async fn start_through(&self, program: &[OsString]) -> Result<RunningPeer> {
        let (port, number) = (self.port, self.port.to_string());
        let model = self.model.to_string();
        let args: Vec<&str> = match self.peer {
            Peer::Floor(_) => vec!["serve", &number, &model],
            Peer::Homard(_) => vec!["gateway", "run", "--recover", "--port", &number],
            Peer::OpenClaw(_) => vec!["gateway", "run", "--port", &number],
        };
        let log = self.folder.path().join("said.log");
        let log_file = File::create(&log)?;
        let mut command = self.command(program, &args);
        command.stdout(log_file.try_clone()?).stderr(log_file).process_group(0);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", self.peer.name()))?;
        let mut running =
            RunningPeer { child, port, protocol: self.peer.protocol(), startup_time: Duration::ZERO, log };
        running.wait_for_handshake(start).await?;
        Ok(running)
    }

    /// Returns the command that sends one message to the model, without a gateway.
    pub(super) fn once(&self, text: &str) -> Command {
        let model = self.model.to_string();
        match self.peer {
            Peer::Floor(_) => self.command(&[], &["once", &model, text]),
            Peer::Homard(_) => self.command(&[], &["agent", "--local", "-m", text]),
            Peer::OpenClaw(_) => self.command(&[], &["agent", "--local", "--agent", "main", "--message", text]),
        }
    }

    /// Builds a command with a clean environment.
    fn command(&self, wrapper: &[OsString], args: &[&str]) -> Command {
        let program: Vec<OsString> = match self.peer {
            Peer::Floor(binary) | Peer::Homard(binary) => vec![binary.into()],
            Peer::OpenClaw(installed) => vec![(&installed.node).into(), (&installed.script).into()],
        };
        let all: Vec<OsString> =
            wrapper.iter().cloned().chain(program).chain(args.iter().map(OsString::from)).collect();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env_clear().env("PATH", PATH).env("HOME", self.folder.path()).env("NO_COLOR", "1");
        match self.peer {
            Peer::Floor(_) => {}
            Peer::Homard(_) => {
                command.env("HOMARD_STATE_DIR", self.state()).env("HOMARD_GATEWAY_TOKEN", TOKEN);
            }
            Peer::OpenClaw(_) => {
                command.env("OPENCLAW_NO_RESPAWN", "1");
            }
        }
        command
    }
}

/// A running gateway. Dropping it kills its processes.
#[derive(Debug)]
pub(super) struct RunningPeer {
    child: Child,
    port: u16,
    protocol: u8,
    startup_time: Duration,
    log: PathBuf,
}

impl RunningPeer {
    async fn wait_for_handshake(&mut self, start: Instant) -> Result<()> {
        loop {
            if let Ok(Ok(_)) = timeout(ATTEMPT_TIMEOUT, self.client()).await {
                self.startup_time = start.elapsed();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the process exited before the handshake ({status}): {}", self.log_tail());
            }
            if start.elapsed() > HANDSHAKE_TIMEOUT {
                bail!("no handshake within {HANDSHAKE_TIMEOUT:?}: {}", self.log_tail());
            }
            sleep(POLL).await;
        }
    }

    /// Returns the time from process start to the first accepted handshake.
    pub(super) fn startup_time(&self) -> Duration {
        self.startup_time
    }

    /// Opens a new connection.
    pub(super) async fn client(&self) -> Result<BenchClient> {
        BenchClient::connect_as(self.port, TOKEN, self.protocol).await
    }

    /// Returns the memory of its processes in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
        process::tree_memory(self.child.id())
    }

    /// Returns the CPU time of its processes so far.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        process::tree_cpu_time(self.child.id())
    }

    /// Returns the number of its open files.
    pub(super) fn open_files(&self) -> Result<usize> {
        process::open_files(self.child.id())
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // Some processes may have left the group; they are found as long as the first one lives.
        let pids = process::tree(self.child.id()).into_iter().skip(1).map(|pid| pid.to_string());
        let targets: Vec<String> = pids.chain([group]).collect();
        // Fails for processes that have already exited.
        Command::new("kill").args(["-KILL", "--"]).args(targets).stderr(Stdio::null()).status().ok();
        self.child.wait().ok();
    }
}
