//! The built gateway: started with a state directory of its own, on loopback, and reliably killed.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    rc::Rc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::shell;

/// Token of every gateway that is started here.
pub(crate) const TOKEN: &str = "token-of-a-gateway-on-loopback";

/// Time limit until a gateway is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15);

/// Polling interval for readiness: well below the measured times.
const POLL: Duration = Duration::from_micros(500);

/// Build profile of the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BuildProfile {
    /// As distributed
    Dist,
    /// As built by newcomers; faster to build
    Release,
    /// As used during development; not for measurements
    #[value(skip)]
    Debug,
}

impl BuildProfile {
    fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
            Self::Debug => "dev",
        }
    }

    /// Returns cargo's output folder for the profile.
    fn folder(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
            Self::Debug => "debug",
        }
    }
}

/// Builds the binary and returns its path.
pub(crate) fn build(profile: BuildProfile) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "homard", "--profile", profile.name()]))?;
    Ok(shell::target()?.join(profile.folder()).join("homard"))
}

/// Home of a gateway, in which it may be started more than once. Dropping it removes the state.
#[derive(Debug)]
pub(crate) struct GatewayHome {
    program: Vec<OsString>,
    folder: TempDir,
    log: PathBuf,
}

impl GatewayHome {
    /// Creates a home for a gateway with this config. Its output goes to `log`.
    pub(crate) fn new(binary: &Path, config: &Value, log: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a state directory for the gateway")?;
        let home = Self { program: vec![binary.as_os_str().to_owned()], folder, log: log.to_owned() };
        fs::create_dir(home.state()).and_then(|()| fs::write(home.state().join("homard.json"), config.to_string()))?;
        Ok(home)
    }

    /// Starts the gateway through another program that gets the command as its last arguments.
    pub(crate) fn started_by(mut self, program: Vec<OsString>) -> Self {
        self.program.splice(0..0, program);
        self
    }

    /// Returns the state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

/// A running gateway. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct RunningGateway {
    child: Child,
    port: u16,
    ready_after: Duration,
    home: Rc<GatewayHome>,
}

impl RunningGateway {
    /// Starts a gateway with this config and waits until it is ready. Its output goes to `log`.
    pub(crate) fn start(binary: &Path, config: &Value, log: &Path) -> Result<Self> {
        Self::start_at(Rc::new(GatewayHome::new(binary, config, log)?))
    }

    /// Kills it, and starts another one in the same home.
    pub(crate) fn kill_and_start_again(self) -> Result<Self> {
        let home = self.home.clone();
        drop(self);
        Self::start_at(home)
    }

    /// Starts a gateway in a home and waits until it is ready.
    pub(crate) fn start_at(home: Rc<GatewayHome>) -> Result<Self> {
        let (folder, port) = (home.folder.path(), free_port()?);
        let log = File::create(&home.log).with_context(|| format!("cannot write {}", home.log.display()))?;
        let Some((program, args)) = home.program.split_first() else { bail!("nothing to start") };
        let mut command = Command::new(program);
        // Without `--recover`, runs would be held after repeated kills.
        command.args(args).args(["gateway", "run", "--recover", "--port", &port.to_string()]);
        command.env("HOME", folder).env("HOMARD_STATE_DIR", home.state()).env("HOMARD_GATEWAY_TOKEN", TOKEN);
        // Benchmarks inspect its open files and writes.
        command.env("HOMARD_DUMPABLE", "1");
        command.current_dir(folder).stdout(log.try_clone()?).stderr(log);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        // From here on dropping kills the process, even if it never becomes ready.
        let mut gateway = Self { child, port, ready_after: Duration::ZERO, home };
        gateway.wait_until_ready(start)?;
        gateway.ready_after = start.elapsed();
        Ok(gateway)
    }

    fn wait_until_ready(&mut self, start: Instant) -> Result<()> {
        while !is_ready(self.port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway exited before it was ready ({status}):\n{}", self.output());
            }
            if start.elapsed() > READY_TIMEOUT {
                bail!("the gateway did not answer GET /readyz with 200 within {READY_TIMEOUT:?}:\n{}", self.output());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns its port on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the time from process start to the first successful response of `GET /readyz`.
    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Returns its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.home.state()
    }

    /// Returns its output so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.home.log).unwrap_or_default()
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("cannot end the gateway (process {}): {error}", self.child.id());
        }
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// True if `GET /readyz` is answered with 200. Every failure means "not yet".
fn is_ready(port: u16) -> bool {
    let request = || -> std::io::Result<[u8; 12]> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head)
    };
    request().is_ok_and(|head| head == *b"HTTP/1.1 200")
}
