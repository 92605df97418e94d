//! A home for the binary: its own state, working directory and port.

use std::{
    fs::{self, DirBuilder, File},
    io::{BufRead, BufReader, Lines, Read, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpSocket, time::Instant};

/// A home. Nothing listens on its port, and no other process can take it.
pub(crate) struct Home {
    folder: TempDir,
    /// Bound and not listening: the port is ours, and it refuses connections.
    _reserved_port: TcpSocket,
    pub(crate) port: u16,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Parses stdout as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let reserved_port = TcpSocket::new_v4().unwrap();
        reserved_port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = reserved_port.local_addr().unwrap().port();
        Self { folder, _reserved_port: reserved_port, port }
    }

    /// Returns the working directory of commands.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn configure(&self, text: &str) {
        let config = self.state().join("homard.json");
        DirBuilder::new().recursive(true).mode(0o700).create(self.state()).unwrap();
        fs::write(&config, text).unwrap();
        // As `homard config set` leaves it.
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homard"));
        command.args(args).current_dir(self.work()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.folder.path());
        command.env("HOMARD_STATE_DIR", self.state()).env("HOMARD_GATEWAY_PORT", self.port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run_command(self.command(args))
    }

    /// Runs a command whose stdout is a terminal of this width; returns what it shows.
    pub(crate) fn on_terminal(&self, columns: u16, args: &[&str]) -> String {
        let (master, slave) = terminal();
        tcsetwinsize(&slave, Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut command = self.command(args);
        let mut child = command.stdout(slave).stderr(Stdio::null()).spawn().unwrap();
        // Otherwise the terminal stays open on this side, and reading it never ends.
        drop(command);
        let (mut master, mut screen, mut buffer) = (File::from(master), Vec::new(), [0; 4096]);
        // Once the program has ended, Linux reports EIO.
        while let Ok(count @ 1..) = master.read(&mut buffer) {
            screen.extend(&buffer[..count]);
        }
        child.wait().unwrap();
        String::from_utf8(screen).unwrap().replace("\r\n", "\n")
    }

    /// Starts a gateway on a port that the system chooses.
    pub(crate) fn gateway(&self) -> RunningGateway<'_> {
        self.gateway_with_log(Stdio::null(), "warn")
    }

    /// Same as `gateway`, with a log.
    pub(crate) fn gateway_with_log(&self, log: impl Into<Stdio>, level: &str) -> RunningGateway<'_> {
        let mut command = self.command(&["gateway", "run", "--port", "0"]);
        command.stderr(log).env("HOMARD_LOG", level);
        self.listening(command)
    }

    /// Starts a gateway whose process can be inspected.
    pub(crate) fn dumpable_gateway(&self) -> RunningGateway<'_> {
        let mut command = self.command(&["gateway", "run", "--port", "0"]);
        command.stderr(Stdio::null()).env("HOMARD_LOG", "warn").env("HOMARD_DUMPABLE", "1");
        self.listening(command)
    }

    /// Starts a gateway that must refuse to run; returns its exit code and stderr.
    pub(crate) fn refused_start(&self) -> (Option<i32>, String) {
        let mut process = Process(self.command(&["gateway", "run", "--port", "0"]).spawn().unwrap());
        let greeting = BufReader::new(process.0.stdout.take().unwrap()).lines().next();
        assert!(greeting.is_none(), "the gateway started: {greeting:?}");
        let mut stderr = String::new();
        process.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (process.0.wait().unwrap().code(), stderr)
    }

    /// Starts a gateway by this command and waits until it listens.
    pub(crate) fn listening(&self, mut command: Command) -> RunningGateway<'_> {
        let mut process = Process(command.spawn().unwrap());
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let mut greeting = Vec::new();
        let port = loop {
            let line = lines.next().expect("the gateway ended before it listened").unwrap();
            let port = line.split("s://127.0.0.1:").nth(1).map(|port| port.trim().parse().unwrap());
            greeting.push(line);
            if let Some(port) = port {
                break port;
            }
        };
        RunningGateway { home: self, process, port, greeting, lines }
    }
}

/// Timeout for background work of a running gateway.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the condition holds.
pub(crate) fn until(description: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{description}: not after {PATIENCE:?}");
    }
}

/// Returns true if there is a Node of any version. If not, the test is listed as skipped.
pub(crate) fn has_node(test: &str) -> bool {
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_node {
        skip(test, "there is no Node");
    }
    has_node
}

/// Lists a test as skipped. `cargo xtask test` collects these lines; written past the capture of the test harness.
pub(crate) fn skip(test: &str, reason: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes()).unwrap();
}

/// Opens a pseudo-terminal: our side, and the program's side.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    (master, slave)
}

/// Runs a command to its end.
pub(crate) fn run_command(mut command: Command) -> CommandOutput {
    let output = command.output().unwrap();
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A process that is killed on drop.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Waits for its end and reads its output.
    pub(crate) fn output(&mut self) -> CommandOutput {
        let read = |stream: Option<&mut dyn Read>| {
            let mut text = String::new();
            stream.map(|stream| stream.read_to_string(&mut text)).transpose().unwrap();
            text
        };
        // The output fits into the pipes, so one can be read after the other.
        let stdout = read(self.0.stdout.as_mut().map(|stream| stream as &mut dyn Read));
        let stderr = read(self.0.stderr.as_mut().map(|stream| stream as &mut dyn Read));
        CommandOutput { code: self.0.wait().unwrap().code(), stdout, stderr }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// A running gateway.
pub(crate) struct RunningGateway<'a> {
    home: &'a Home,
    pub(crate) process: Process,
    pub(crate) port: u16,
    greeting: Vec<String>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RunningGateway<'_> {
    /// Returns a command whose environment names this gateway. A turn works in the current directory; here that is the
    /// agent's workspace, if it is at its default place.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command.env("HOMARD_GATEWAY_PORT", self.port.to_string());
        let workspace = self.home.state().join("workspace");
        if args.first() == Some(&"agent") && workspace.is_dir() {
            command.current_dir(workspace);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run_command(self.command(args))
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.home.state().join("gateway-token")).unwrap().trim().to_owned()
    }

    /// Returns the output up to the listen address.
    pub(crate) fn greeting(&self) -> String {
        self.greeting.join("\n")
    }

    /// Returns the next line of output.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("the gateway ended").unwrap()
    }

    /// Waits for its end; returns its exit code and stdout.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let remaining = self.lines.by_ref().map(Result::unwrap);
        let lines: Vec<_> = self.greeting.drain(..).chain(remaining).collect();
        (self.process.0.wait().unwrap().code(), lines.join("\n"))
    }
}
