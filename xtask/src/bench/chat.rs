//! The interactive chat on a pseudo-terminal: the first frame, a keystroke during a stream, memory. Beside it two other
//! terminal programs, as far as npm can install them and they start without an account.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{process, pseudo_terminal::TerminalProgram, report::BenchReport};
use crate::{
    conform::install,
    gateway::{RunningGateway, TOKEN},
    shell,
};

/// Number of starts.
const STARTS: usize = 15;
/// Number of measured keys.
const KEYS: usize = 100;
/// Pause between two keys: not a multiple of the interval of frames or chunks.
const KEY_PAUSE: Duration = Duration::from_millis(57);
/// Milliseconds between two chunks of the stream: 100 a second.
const CHUNK_PACE_MS: usize = 10;
/// Time before memory is read.
const IDLE: Duration = Duration::from_secs(3);
/// Time limit for everything that is shown.
const LIMIT: Duration = Duration::from_secs(20);
/// The composer of a chat that is ready for input, and the end of a frame.
const COMPOSER: &str = "Ask anything";
const FRAME_END: &str = "\x1b[?2026l";
/// What the chat says once its own gateway is connected.
const OWN_GATEWAY: &str = "one was started for this chat";
/// End of input: leaves the chat.
const LEAVE: &str = "\x04";

/// Figures of a terminal program.
#[derive(Debug, Default)]
pub(super) struct ChatFigures {
    pub(super) name: String,
    pub(super) first_frames: Vec<Duration>,
    /// Keys that were typed while nothing else happened.
    pub(super) idle_keys: Vec<Duration>,
    /// Keys that were typed during a stream.
    pub(super) streaming_keys: Vec<Duration>,
    pub(super) memory: Option<process::TreeMemory>,
}

/// Measures the chat: with a running gateway, and without.
pub(super) fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let gateway = RunningGateway::start(binary, config, &logs.join("gateway.log"))?;
    let shared = |args: &[&str]| {
        let mut command = chat(binary, &gateway.state(), args);
        command.env("HOMARD_GATEWAY_PORT", gateway.port().to_string()).env("HOMARD_GATEWAY_TOKEN", TOKEN);
        command
    };
    let mut figures = ChatFigures { name: "chat with a gateway".to_owned(), ..ChatFigures::default() };
    for _ in 0..STARTS {
        let mut program = TerminalProgram::start(shared(&["chat"]))?;
        figures.first_frames.push(first_frame(&mut program)?);
        leave(&mut program)?;
    }
    let mut program = TerminalProgram::start(shared(&["chat"]))?;
    program.wait_for(COMPOSER, LIMIT)?;
    thread::sleep(IDLE);
    figures.memory = Some(process::tree_total_memory(program.pid())?);
    figures.idle_keys = keys(&mut program)?;
    // Enough chunks for all keys.
    let chunks = KEYS * 3 * KEY_PAUSE.as_millis() as usize / CHUNK_PACE_MS;
    program.types(&format!("\x15chunks={chunks} pace={CHUNK_PACE_MS}"))?;
    program.types("\r")?;
    program.wait_for("tok5", LIMIT)?;
    figures.streaming_keys = keys(&mut program)?;
    report.chat(&figures);
    drop(program);
    drop(gateway);

    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    fs::create_dir(&state)?;
    fs::write(state.join("homard.json"), config.to_string())?;
    let own = || chat(binary, &state, &["chat"]);
    let mut figures = ChatFigures { name: "chat with its own gateway".to_owned(), ..ChatFigures::default() };
    let mut connected = Vec::new();
    for _ in 0..STARTS {
        let mut program = TerminalProgram::start(own())?;
        figures.first_frames.push(first_frame(&mut program)?);
        connected.push(program.wait_for(OWN_GATEWAY, LIMIT)?.duration_since(program.started_at()));
        leave(&mut program)?;
    }
    let mut program = TerminalProgram::start(own())?;
    program.wait_for(OWN_GATEWAY, LIMIT)?;
    thread::sleep(IDLE);
    figures.memory = Some(process::tree_total_memory(program.pid())?);
    leave(&mut program)?;
    report.chat(&figures);
    report.chat_connected(&connected);
    for peer in PEERS {
        match measure_peer(&peer) {
            Ok(figures) => report.chat(&figures),
            Err(error) => report.note(format!("{} {}: not measured: {error:#}", peer.name, peer.version)),
        }
    }
    Ok(())
}

fn chat(binary: &Path, state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    let home = state.parent().unwrap_or(state);
    command.args(args).current_dir(home).env("HOME", home).env("HOMARD_STATE_DIR", state);
    // Otherwise its memory cannot be read.
    command.env("HOMARD_DUMPABLE", "1").env_remove("TMUX").env_remove("NO_COLOR");
    command
}

/// Returns the time from the start to the first complete frame.
fn first_frame(program: &mut TerminalProgram) -> Result<Duration> {
    program.wait_for(COMPOSER, LIMIT)?;
    Ok(program.wait_for(FRAME_END, LIMIT)?.duration_since(program.started_at()))
}

fn leave(program: &mut TerminalProgram) -> Result<()> {
    program.types(LEAVE)?;
    program.wait(LIMIT)
}

/// Types keys one by one, and returns how long it took until the message with each was drawn.
fn keys(program: &mut TerminalProgram) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut typed = String::new();
    program.types("\x15")?;
    for key in 0..KEYS {
        thread::sleep(KEY_PAUSE);
        // Letters that no word of the stream contains in this order.
        let letter = char::from(b"qzxjvw"[key % 6]);
        // The message fits into a row.
        if typed.len() == 60 {
            program.types("\x15")?;
            typed.clear();
            thread::sleep(KEY_PAUSE);
        }
        typed.push(letter);
        program.forget();
        let at = program.types(&letter.to_string())?;
        times.push(program.wait_for(&typed, LIMIT)?.duration_since(at));
    }
    Ok(times)
}

/// Another terminal program.
#[derive(Debug, Clone, Copy)]
struct TerminalPeer {
    name: &'static str,
    package: &'static str,
    version: &'static str,
    program: &'static str,
    /// Configuration file below its home, and its text, so that it starts without an account.
    config: (&'static str, &'static str),
    args: &'static [&'static str],
    /// What it shows when it is ready for input.
    ready: &'static str,
}

const PEERS: [TerminalPeer; 2] = [
    TerminalPeer {
        name: "codex",
        package: "@openai/codex",
        version: "0.169.0",
        program: "codex",
        config: (
            ".codex/config.toml",
            "model = \"fake-1\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
             [model_providers.fake]\nname = \"fake\"\nbase_url = \"http://127.0.0.1:9/v1\"\nwire_api = \"responses\"\n\
             [projects.\"WORK\"]\ntrust_level = \"trusted\"\n",
        ),
        args: &[],
        ready: "Ask Codex",
    },
    TerminalPeer {
        name: "pi",
        package: "@mariozechner/pi-coding-agent",
        version: "0.73.1",
        program: "pi",
        config: (
            ".pi/agent/models.json",
            "{\"providers\": {\"fake\": {\"baseUrl\": \"http://127.0.0.1:9/v1\", \"api\": \"openai-completions\", \
             \"apiKey\": \"x\", \"models\": [{\"id\": \"fake-1\"}]}}}",
        ),
        args: &["--provider", "fake", "--model", "fake-1", "--offline"],
        ready: "fake-1",
    },
];

/// Installs a peer below `target`, and measures its start, a key while nothing else happens, and its memory.
fn measure_peer(peer: &TerminalPeer) -> Result<ChatFigures> {
    let folder = shell::root().join("target").join("bench").join(peer.name);
    fs::create_dir_all(&folder)?;
    let mut dependencies = serde_json::Map::new();
    dependencies.insert(peer.package.to_owned(), json!(peer.version));
    install::npm(&folder, &json!({"private": true, "dependencies": dependencies})).context("npm cannot install it")?;
    let program: PathBuf = folder.join("node_modules").join(".bin").join(peer.program);
    let home = tempfile::tempdir()?;
    let work = home.path().join("work");
    fs::create_dir(&work)?;
    let (name, text) = peer.config;
    let file = home.path().join(name);
    fs::create_dir_all(file.parent().context("the configuration has no directory")?)?;
    fs::write(&file, text.replace("WORK", &work.display().to_string()))?;
    let start = || {
        let mut command = Command::new(&program);
        command.args(peer.args).current_dir(&work).env("HOME", home.path());
        TerminalProgram::start(command)
    };
    let mut figures = ChatFigures { name: format!("{} {}", peer.name, peer.version), ..ChatFigures::default() };
    // The first start unpacks and writes files.
    for _ in 0..=STARTS / 3 {
        let mut program = start()?;
        figures.first_frames.push(program.wait_for(peer.ready, LIMIT)?.duration_since(program.started_at()));
    }
    figures.first_frames.remove(0);
    let mut program = start()?;
    program.wait_for(peer.ready, LIMIT)?;
    thread::sleep(IDLE);
    figures.memory = Some(process::tree_total_memory(program.pid())?);
    for _ in 0..KEYS / 5 {
        thread::sleep(KEY_PAUSE);
        program.forget();
        let at = program.types("Q")?;
        figures.idle_keys.push(program.wait_for("Q", LIMIT)?.duration_since(at));
    }
    Ok(figures)
}
