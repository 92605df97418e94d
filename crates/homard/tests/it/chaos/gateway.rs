//! A gateway that will be killed, and the state on disk afterwards.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use futures_util::SinkExt;
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    home::{Home, Process},
    socket::{Socket, connect, connect_as, next_frame, send_frame},
};

/// Returns true if the full grids are requested, as `cargo xtask chaos` does, and not a slice.
#[allow(clippy::disallowed_methods, reason = "whoever runs the tests says how much of the grids they want")]
pub(crate) fn is_long() -> bool {
    std::env::var("GRID").is_ok_and(|value| value == "all")
}

/// One process of a gateway, and a client of it.
pub(crate) struct GatewayUnderTest {
    pub(crate) process: Process,
    pub(crate) socket: Socket,
    pub(crate) port: u16,
    request_count: usize,
}

impl GatewayUnderTest {
    /// Starts a gateway on the state of a home. With `--recover`, because after several crashes it would hold its runs.
    pub(crate) async fn begin(home: &Home, extra_args: &[&str]) -> Self {
        let args = [&["gateway", "run", "--port", "0", "--recover"], extra_args].concat();
        let process = Process(home.command(&args).stderr(Stdio::null()).spawn().unwrap());
        Self::of(home, process).await.ok().expect("it ended before it listened")
    }

    /// Same as `begin`, with a client that has these capabilities.
    pub(crate) async fn begin_with(home: &Home, caps: &[&str]) -> Self {
        let mut gateway = Self::begin(home, &[]).await;
        let token = fs::read_to_string(home.state().join("gateway-token")).unwrap();
        let scopes = ["operator.admin", "operator.read", "operator.write"];
        gateway.socket = connect_as(gateway.port, token.trim(), 4, &scopes, caps).await;
        gateway
    }

    /// Connects to a gateway that was just started; returns the process alone if it ended before it listened.
    pub(crate) async fn of(home: &Home, mut process: Process) -> Result<Self, Process> {
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let listening = |line: String| line.split_once("ws://127.0.0.1:").map(|(_, port)| port.trim().parse().unwrap());
        let Some(port) = lines.find_map(|line| listening(line.unwrap())) else { return Err(process) };
        // Further output must not fill the pipe.
        thread::spawn(move || lines.count());
        let token = home.state().join("gateway-token");
        let seen =
            Path::new("/proc").join(process.0.id().to_string()).join("root").join(token.strip_prefix("/").unwrap());
        let token = fs::read_to_string(&token).or_else(|_| fs::read_to_string(seen)).unwrap();
        let socket = connect(port, token.trim()).await;
        Ok(Self { process, socket, port, request_count: 0 })
    }

    pub(crate) async fn ask(&mut self, method: &str, params: &Value) -> String {
        self.request_count += 1;
        let id = self.request_count.to_string();
        send_frame(&mut self.socket, &json!({"type": "req", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Sends a request to a gateway that may be about to end; `None` if it is gone.
    pub(crate) async fn try_ask(&mut self, method: &str, params: &Value) -> Option<String> {
        self.request_count += 1;
        let id = self.request_count.to_string();
        let request = json!({"type": "req", "id": id, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).await.ok().map(|()| id)
    }

    /// Returns the next response to a request.
    pub(crate) async fn answer(&mut self, id: &str) -> Value {
        self.first_answer(id).await.expect("the gateway went away")
    }

    /// Returns the first response to a request; `None` if the gateway went away.
    pub(crate) async fn first_answer(&mut self, id: &str) -> Option<Value> {
        loop {
            let frame = next_frame(&mut self.socket).await?;
            if frame["type"] == "res" && frame["id"] == id {
                return Some(frame);
            }
        }
    }

    /// Sends a run and waits until it is accepted.
    pub(crate) async fn accept(&mut self, run: &Value) -> String {
        let id = self.ask("agent", run).await;
        assert_eq!(self.answer(&id).await["payload"]["status"], "accepted");
        id
    }

    pub(crate) async fn wait(&mut self, run: &str) -> Value {
        let id = self.ask("agent.wait", &json!({"runId": run, "timeoutMs": 60_000})).await;
        self.answer(&id).await["payload"].clone()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(self) {
        self.end(Signal::KILL);
    }

    /// Ends it and returns its exit code.
    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        self.end_in_place(signal)
    }

    /// Same as `end`, for a gateway that is a part of something.
    pub(crate) fn end_in_place(&mut self, signal: Signal) -> Option<i32> {
        self.process.signal(signal);
        self.process.0.wait().unwrap().code()
    }
}

/// A gateway under `strace`, which detaches itself: the process is the gateway's own.
pub(crate) struct TracedGateway {
    process: Process,
    /// The stderr of the gateway and `strace`; complete when both have ended.
    stderr: thread::JoinHandle<String>,
}

impl TracedGateway {
    /// Starts it. `None` without `strace`, and for ordinary users: the gateway is not dumpable, so `strace` could not
    /// read what it writes.
    pub(crate) fn begin(home: &Home, strace_args: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let plain = home.command(&["gateway", "run", "--port", "0", "--recover"]);
        let mut command = Command::new("strace");
        command.args(["-D", "-f"]).args(strace_args).arg(plain.get_program()).args(plain.get_args()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(home.work());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().ok()?);
        let mut stderr = process.0.stderr.take().unwrap();
        let stderr_reader = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Some(Self { process, stderr: stderr_reader })
    }

    /// Returns a client of it and its stderr; the process alone if it ended before it listened.
    pub(crate) async fn listen(self, home: &Home) -> (Result<GatewayUnderTest, Process>, thread::JoinHandle<String>) {
        (GatewayUnderTest::of(home, self.process).await, self.stderr)
    }
}

pub(crate) fn run(key: &str, session: &str, message: &str) -> Value {
    json!({"message": message, "sessionKey": session, "idempotencyKey": key})
}

/// Creates a FIFO by which a command reports that it runs, and returns its reader.
pub(crate) fn run_signal(home: &Home) -> impl FnOnce() -> String {
    let wait_for_signal = run_signal_in(&home.state().join("workspace"));
    move || wait_for_signal()
}

/// Same as `run_signal`, for repeated use.
pub(crate) fn run_signal_in(workspace: &Path) -> impl Fn() -> String + use<> {
    let path = workspace.join("doorbell");
    fs::create_dir_all(workspace).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    move || {
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

/// Returns the messages of every transcript, each with its role.
pub(crate) fn transcripts(home: &Home) -> Vec<Vec<Value>> {
    let files = fs::read_dir(home.state().join("agents/main/sessions")).unwrap().map(|item| item.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    files.map(|path| messages(&path)).collect()
}

fn messages(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] == "message").map(|line| line["message"].clone()).collect()
}

pub(crate) fn messages_of(role: &str, messages: &[Value]) -> Vec<Value> {
    messages.iter().filter(|message| message["role"] == role).cloned().collect()
}
