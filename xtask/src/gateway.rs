//! The built gateway: started in a state directory of its own, on loopback, and surely stopped again.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::shell;

/// The shared secret of every gateway that is started here.
pub(crate) const TOKEN: &str = "token-of-a-gateway-on-loopback";

/// How long a gateway may take to become ready.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often readiness is asked for: well below what is measured.
const POLL: Duration = Duration::from_micros(500);

/// Which build of the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// What is shipped
    Dist,
    /// What a newcomer builds; quicker to build
    Release,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
        }
    }
}

/// Builds the binary and says where it is.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "homard", "--profile", profile.name()]))?;
    Ok(shell::root().join("target").join(profile.name()).join("homard"))
}

/// A running gateway. Dropping it ends the process and removes its state.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    port: u16,
    ready_after: Duration,
    folder: TempDir,
}

impl Gateway {
    /// Starts a gateway with this config and waits until it is ready. What it says goes to `log`.
    pub(crate) fn start(binary: &Path, config: &Value, log: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a directory for the gateway's state")?;
        let state = folder.path().join("state");
        fs::create_dir(&state).and_then(|()| fs::write(state.join("homard.json"), config.to_string()))?;
        let port = free_port()?;
        let log_file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(binary);
        command.args(["gateway", "run", "--port", &port.to_string()]);
        command.env("HOME", folder.path()).env("HOMARD_STATE_DIR", &state).env("HOMARD_GATEWAY_TOKEN", TOKEN);
        command.current_dir(folder.path()).stdout(log_file.try_clone()?).stderr(log_file);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        // From here on dropping ends the process, also when it never becomes ready.
        let mut gateway = Self { child, port, ready_after: Duration::ZERO, folder };
        gateway.wait_until_ready(start, log)?;
        gateway.ready_after = start.elapsed();
        Ok(gateway)
    }

    fn wait_until_ready(&mut self, start: Instant, log: &Path) -> Result<()> {
        while !is_ready(self.port) {
            let said = || fs::read_to_string(log).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended before it was ready ({status}):\n{}", said());
            }
            if start.elapsed() > PATIENCE {
                bail!("the gateway did not answer GET /readyz with 200 within {PATIENCE:?}:\n{}", said());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Where it listens, on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From the start of the process to the first good answer to `GET /readyz`.
    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("cannot end the gateway (process {}): {error}", self.child.id());
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether `GET /readyz` is answered with 200. Every failure means "not yet".
fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<[u8; 12]> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head)
    };
    ask().is_ok_and(|head| head == *b"HTTP/1.1 200")
}
