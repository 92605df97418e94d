//! Recorded data of OpenClaw survives a round trip: decoding and encoding yields the same JSON.
//!
//! `golden/` contains short recordings and is always checked. The full recordings are beside the checkout, in
//! `../shared/samples`; if they are absent, the test says so on stderr and checks nothing.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use homard_proto::{
    Generation, event,
    frame::{self, Inbound},
    message::{Block, Content, Message},
    method::{
        Params,
        agent::{AgentParams, WaitParams},
        chat::{AbortParams, HistoryParams},
        connect::{ConnectParams, HelloOk},
        gateway::{HealthParams, StatusParams},
        sessions::ListParams,
    },
    session,
    transcript::{Kind, Line},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Kinds that must occur at least once, or the check proves nothing.
const WIRE: &[&str] = &[
    "agent event",
    "agent params",
    "agent.wait params",
    "challenge event",
    "chat.abort params",
    "chat.history params",
    "connect params",
    "event",
    "health params",
    "hello-ok",
    "malformed request",
    "request",
    "response",
    "sessions.list params",
    "status params",
    "tick event",
];
const STATE: &[&str] =
    &["assistant", "entry of another kind", "header", "model change", "session record", "tool result", "user"];

/// Number of checked values by kind.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn count(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_default() += 1;
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.0.keys().copied().collect()
    }
}

#[test]
fn golden_frames_survive() {
    let tally = check_wire(&golden().join("wire"));
    assert_eq!(tally.kinds(), WIRE);
}

#[test]
fn golden_transcripts_and_records_survive() {
    let tally = check_state(&golden().join("transcripts"));
    assert_eq!(tally.kinds(), STATE);
}

#[test]
fn every_recorded_frame_survives() {
    let Some(samples) = samples("every recorded frame") else { return };
    let tally = check_wire(&samples.join("wire"));
    println!("{tally:#?}");
    // Every recorded `sessions.list` was invalid, so only a golden file contains a valid one.
    let recorded: Vec<&str> = WIRE.iter().copied().filter(|kind| *kind != "sessions.list params").collect();
    assert_eq!(tally.kinds(), recorded);
}

#[test]
fn every_recorded_transcript_and_record_survives() {
    let Some(samples) = samples("every recorded transcript") else { return };
    let tally = check_state(&samples.join("state"));
    println!("{tally:#?}");
    assert_eq!(tally.kinds(), STATE);
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Returns the path of the full recordings, if present. Writes past the test harness, which hides the output of passing
/// tests.
fn samples(check: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    if path.is_dir() {
        return Some(path);
    }
    let line = format!("skipped: {check}: ../shared/samples is not here\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap_or_else(|error| panic!("stderr is closed: {error}"));
    None
}

/// Returns the files under a folder with this suffix, in a fixed order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let listing = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in listing.flatten().map(|item| item.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(text: &str, whence: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{whence}: {error}\n{text}"))
}

/// Returns the lines of a JSONL file, each with a name for error messages.
fn lines(path: &Path) -> Vec<(String, Value)> {
    let named = |(at, line): (usize, &str)| {
        let whence = format!("{}:{}", path.display(), at + 1);
        let value = json(line, &whence);
        (whence, value)
    };
    text(path).lines().enumerate().map(named).collect()
}

/// Decodes a value and checks that it encodes to the same JSON.
fn survive<T: DeserializeOwned + Serialize>(value: &Value, whence: &str) -> T {
    let decoded: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{whence}: {error}\n{value}"));
    assert_eq!(&encode(&decoded, whence), value, "{whence}");
    decoded
}

fn encode<T: Serialize>(decoded: &T, whence: &str) -> Value {
    serde_json::to_value(decoded).unwrap_or_else(|error| panic!("{whence}: {error}"))
}

fn check_wire(folder: &Path) -> Tally {
    let mut tally = Tally::default();
    for path in files(folder, ".jsonl") {
        let generation = match path.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some("2026.2.9") => Generation::Three,
            Some("2026.9.6") => Generation::Four,
            other => panic!("{} lies under {other:?}, which is not a version", path.display()),
        };
        let recording = Recording { generation, frames: lines(&path) };
        for (at, (whence, line)) in recording.frames.iter().enumerate() {
            let Some(frame) = line.get("frame") else { continue };
            if line["dir"] == "c>s" {
                recording.check_inbound(at, frame, whence, &mut tally);
            } else {
                check_outbound(frame, whence, &mut tally);
            }
        }
    }
    tally
}

/// One file: the frames on the wire, in order.
struct Recording {
    generation: Generation,
    frames: Vec<(String, Value)>,
}

impl Recording {
    fn check_inbound(&self, at: usize, frame: &Value, whence: &str, tally: &mut Tally) {
        match frame::read(frame.to_string().as_bytes()) {
            Inbound::Request(request) => {
                tally.count("request");
                assert_eq!(encode(&request, whence), without_nulls(frame), "{whence}");
                if self.answer(at, &frame["id"]).is_some_and(|answer| answer["ok"] == true) {
                    check_params(self.generation, request, whence, tally);
                }
            }
            Inbound::Malformed(complaint) => {
                if !self.greeted(at) {
                    // Before `connect`, OpenClaw sends no useful error and closes; that is up to the gateway.
                    return;
                }
                tally.count("malformed request");
                let complaint = encode(&complaint, whence);
                let Some(recorded) = self.answer(at, &complaint["id"]) else { panic!("{whence}: not answered") };
                match self.generation {
                    Generation::Three => assert_eq!(&complaint, recorded, "{whence}"),
                    // Newer versions of OpenClaw use other messages; clients read the code.
                    Generation::Four => assert_eq!(complaint["error"]["code"], recorded["error"]["code"], "{whence}"),
                }
            }
            Inbound::NotJson(_) => panic!("{whence}: a recorded frame is JSON"),
        }
    }

    /// True if the connection of a frame had received its `hello-ok` by then.
    fn greeted(&self, at: usize) -> bool {
        let conn = &self.frames[at].1["conn"];
        self.frames[..at]
            .iter()
            .any(|(_, line)| &line["conn"] == conn && line["frame"]["payload"]["type"] == "hello-ok")
    }

    /// Returns the first response with that id after a frame, on the same connection.
    fn answer(&self, at: usize, id: &Value) -> Option<&Value> {
        let conn = &self.frames[at].1["conn"];
        let later = self.frames[at..].iter().map(|(_, line)| line);
        later
            .filter(|line| &line["conn"] == conn && line["dir"] == "s>c")
            .filter_map(|line| line.get("frame"))
            .find(|frame| frame["type"] == "res" && &frame["id"] == id)
    }
}

/// Removes `null` members of a frame: they mean the same as absent ones, and are not written.
fn without_nulls(frame: &Value) -> Value {
    let members = frame.as_object().into_iter().flatten();
    members.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn check_outbound(frame: &Value, whence: &str, tally: &mut Tally) {
    if frame["type"] == "res" {
        tally.count("response");
        let response: frame::Response = survive(frame, whence);
        if let Some(payload) = response.payload.filter(|payload| payload["type"] == "hello-ok") {
            tally.count("hello-ok");
            survive::<HelloOk>(&payload, whence);
        }
        return;
    }
    tally.count("event");
    let event: frame::Event = survive(frame, whence);
    let payload = event.payload.unwrap_or_default();
    match event.event.as_str() {
        "agent" => {
            tally.count("agent event");
            let agent: event::AgentEvent = survive(&payload, whence);
            let own = ["lifecycle", "assistant", "tool", "thinking"];
            let taken_for_foreign = matches!(&agent.stream, event::Stream::Other(name) if own.contains(&name.as_str()));
            assert!(!taken_for_foreign, "{whence}: {:?} is a stream of ours", agent.stream);
        }
        "connect.challenge" => {
            tally.count("challenge event");
            survive::<event::Challenge>(&payload, whence);
        }
        "tick" => {
            tally.count("tick event");
            survive::<event::Tick>(&payload, whence);
        }
        _ => {}
    }
}

/// Checks that parameters accepted by OpenClaw are accepted here.
fn check_params(generation: Generation, request: frame::Request, whence: &str, tally: &mut Tally) {
    type Check = fn(Generation, Option<Value>, &str);
    let checks: HashMap<&str, (&'static str, Check)> = HashMap::from([
        (ConnectParams::METHOD, ("connect params", accept::<ConnectParams> as Check)),
        (AgentParams::METHOD, ("agent params", accept::<AgentParams>)),
        (WaitParams::METHOD, ("agent.wait params", accept::<WaitParams>)),
        (HistoryParams::METHOD, ("chat.history params", accept::<HistoryParams>)),
        (AbortParams::METHOD, ("chat.abort params", accept::<AbortParams>)),
        (ListParams::METHOD, ("sessions.list params", accept::<ListParams>)),
        (HealthParams::METHOD, ("health params", accept::<HealthParams>)),
        (StatusParams::METHOD, ("status params", accept::<StatusParams>)),
    ]);
    if let Some((kind, check)) = checks.get(request.method.as_str()) {
        tally.count(kind);
        check(generation, request.params, whence);
    }
}

/// Members without a field are ignored by design, so the result may have fewer; but nothing may be changed or added,
/// and the other side must be able to read it.
fn accept<T: Params + Serialize + PartialEq + Debug>(generation: Generation, params: Option<Value>, whence: &str) {
    let decode = |params| T::decode(generation, params).unwrap_or_else(|error| panic!("{whence}: {}", error.message));
    let decoded = decode(params.clone());
    let encoded = encode(&decoded, whence);
    let sent = params.unwrap_or_default();
    for (name, value) in encoded.as_object().into_iter().flatten() {
        assert_eq!(sent.get(name), Some(value), "{whence}: {name}");
    }
    assert_eq!(decode(Some(encoded)), decoded, "{whence}");
}

fn check_state(folder: &Path) -> Tally {
    let mut tally = Tally::default();
    for path in files(folder, ".jsonl") {
        for (whence, line) in lines(&path) {
            tally.count(check_line(&line, &whence));
        }
    }
    for path in files(folder, "sessions.json") {
        let whence = path.display().to_string();
        for (key, record) in json(&text(&path), &whence).as_object().into_iter().flatten() {
            tally.count("session record");
            survive::<session::Record>(record, &format!("{whence}: {key}"));
        }
    }
    tally
}

/// Checks that a line survives, and that our own lines are not parsed as foreign ones.
fn check_line(line: &Value, whence: &str) -> &'static str {
    let kind = match survive(line, whence) {
        Line::Header(_) => "header",
        Line::Entry(entry) => match entry.kind {
            Kind::Message(said) => check_message(&said.message, whence),
            Kind::ModelChange(_) => "model change",
            Kind::Other(_) => "entry of another kind",
        },
    };
    let foreign = ["thinking_level_change", "custom", "compaction"];
    let is_foreign = line["type"].as_str().is_some_and(|name| foreign.contains(&name));
    assert_eq!(kind == "entry of another kind", is_foreign, "{whence}: {}", line["type"]);
    kind
}

fn check_message(message: &Message, whence: &str) -> &'static str {
    let (kind, blocks) = match message {
        Message::User(user) => match &user.content {
            Content::Text(_) => ("user", [].as_slice()),
            Content::Blocks(blocks) => ("user", blocks.as_slice()),
        },
        Message::Assistant(assistant) => ("assistant", assistant.content.as_slice()),
        Message::ToolResult(result) => ("tool result", result.content.as_slice()),
        Message::Other(fields) => panic!("{whence}: no recorded message is foreign: {fields:?}"),
    };
    let foreign: Vec<&Block> = blocks.iter().filter(|block| matches!(block, Block::Other(_))).collect();
    assert!(foreign.is_empty(), "{whence}: no recorded block is foreign: {foreign:?}");
    kind
}
