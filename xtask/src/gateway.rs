//! The built gateway: started in a state directory of its own, on loopback, and surely stopped again.

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
    /// What is built all day; no figures are taken of it
    #[value(skip)]
    Debug,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
            Self::Debug => "dev",
        }
    }

    /// Where cargo puts what it builds.
    fn folder(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
            Self::Debug => "debug",
        }
    }
}

/// Builds the binary and says where it is.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "homard", "--profile", profile.name()]))?;
    Ok(shell::target()?.join(profile.folder()).join("homard"))
}

/// Where a gateway lives: it may be started here more than once. Dropping it removes the state.
#[derive(Debug)]
pub(crate) struct Home {
    program: Vec<OsString>,
    folder: TempDir,
    log: PathBuf,
}

impl Home {
    /// A home for a gateway with this config. What it says goes to `log`.
    pub(crate) fn new(binary: &Path, config: &Value, log: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a directory for the gateway's state")?;
        let home = Self { program: vec![binary.as_os_str().to_owned()], folder, log: log.to_owned() };
        fs::create_dir(home.state()).and_then(|()| fs::write(home.state().join("homard.json"), config.to_string()))?;
        Ok(home)
    }

    /// The same home, whose gateway is started by another program, which gets it as its last arguments.
    pub(crate) fn below(mut self, program: Vec<OsString>) -> Self {
        self.program.splice(0..0, program);
        self
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

/// A running gateway. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    port: u16,
    ready_after: Duration,
    home: Rc<Home>,
}

impl Gateway {
    /// Starts a gateway with this config and waits until it is ready. What it says goes to `log`.
    pub(crate) fn start(binary: &Path, config: &Value, log: &Path) -> Result<Self> {
        Self::start_at(Rc::new(Home::new(binary, config, log)?))
    }

    /// Kills it, and starts another one in the same home.
    pub(crate) fn kill_and_start_again(self) -> Result<Self> {
        let home = self.home.clone();
        drop(self);
        Self::start_at(home)
    }

    /// Starts a gateway in a home and waits until it is ready.
    pub(crate) fn start_at(home: Rc<Home>) -> Result<Self> {
        let (folder, port) = (home.folder.path(), free_port()?);
        let log = File::create(&home.log).with_context(|| format!("cannot write {}", home.log.display()))?;
        let Some((program, args)) = home.program.split_first() else { bail!("nothing to start") };
        let mut command = Command::new(program);
        // It is killed so often that it would hold back what it finds, unless it is told not to.
        command.args(args).args(["gateway", "run", "--recover", "--port", &port.to_string()]);
        command.env("HOME", folder).env("HOMARD_STATE_DIR", home.state()).env("HOMARD_GATEWAY_TOKEN", TOKEN);
        // Benchmarks look at its open files and at what it writes.
        command.env("HOMARD_DUMPABLE", "1");
        command.current_dir(folder).stdout(log.try_clone()?).stderr(log);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        // From here on dropping ends the process, also when it never becomes ready.
        let mut gateway = Self { child, port, ready_after: Duration::ZERO, home };
        gateway.wait_until_ready(start)?;
        gateway.ready_after = start.elapsed();
        Ok(gateway)
    }

    fn wait_until_ready(&mut self, start: Instant) -> Result<()> {
        while !is_ready(self.port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended before it was ready ({status}):\n{}", self.said());
            }
            if start.elapsed() > PATIENCE {
                bail!("the gateway did not answer GET /readyz with 200 within {PATIENCE:?}:\n{}", self.said());
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
        self.home.state()
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.home.log).unwrap_or_default()
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
