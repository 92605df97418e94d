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
    frame::{self, IncomingFrame},
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
fn golden_frames_round_trip() {
    let counts = check_wire(&golden().join("wire"));
    assert_eq!(counts.kinds(), WIRE);
}

#[test]
fn golden_transcripts_and_records_round_trip() {
    let counts = check_state(&golden().join("transcripts"));
    assert_eq!(counts.kinds(), STATE);
}

#[test]
fn every_recorded_frame_round_trips() {
    let Some(samples) = samples("every recorded frame") else { return };
    let counts = check_wire(&samples.join("wire"));
    println!("{counts:#?}");
    // Every recorded `sessions.list` was invalid, so only a golden file contains a valid one.
    let recorded: Vec<&str> = WIRE.iter().copied().filter(|kind| *kind != "sessions.list params").collect();
    assert_eq!(counts.kinds(), recorded);
}

#[test]
fn every_recorded_transcript_and_record_round_trips() {
    let Some(samples) = samples("every recorded transcript") else { return };
    let counts = check_state(&samples.join("state"));
    println!("{counts:#?}");
    assert_eq!(counts.kinds(), STATE);
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
fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        for path in entries.flatten().map(|item| item.path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
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

fn json(text: &str, location: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{location}: {error}\n{text}"))
}

/// Returns the lines of a JSONL file, each with a name for error messages.
fn lines(path: &Path) -> Vec<(String, Value)> {
    let parse_line = |(at, line): (usize, &str)| {
        let location = format!("{}:{}", path.display(), at + 1);
        let value = json(line, &location);
        (location, value)
    };
    text(path).lines().enumerate().map(parse_line).collect()
}

/// Decodes a value and checks that it encodes to the same JSON.
fn round_trip<T: DeserializeOwned + Serialize>(value: &Value, location: &str) -> T {
    let decoded: T =
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{location}: {error}\n{value}"));
    assert_eq!(&encode(&decoded, location), value, "{location}");
    decoded
}

fn encode<T: Serialize>(decoded: &T, location: &str) -> Value {
    serde_json::to_value(decoded).unwrap_or_else(|error| panic!("{location}: {error}"))
}

fn check_wire(dir: &Path) -> Tally {
    let mut counts = Tally::default();
    for path in files(dir, ".jsonl") {
        let generation = match path.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some("2026.2.9") => Generation::Three,
            Some("2026.9.6") => Generation::Four,
            other => panic!("{} lies under {other:?}, which is not a version", path.display()),
        };
        let recording = Recording { generation, frames: lines(&path) };
        for (at, (location, line)) in recording.frames.iter().enumerate() {
            let Some(frame) = line.get("frame") else { continue };
            if line["dir"] == "c>s" {
                recording.check_inbound(at, frame, location, &mut counts);
            } else {
                check_outbound(frame, location, &mut counts);
            }
        }
    }
    counts
}

/// One file: the frames on the wire, in order.
struct Recording {
    generation: Generation,
    frames: Vec<(String, Value)>,
}

impl Recording {
    fn check_inbound(&self, at: usize, frame: &Value, location: &str, counts: &mut Tally) {
        match frame::read(frame.to_string().as_bytes()) {
            IncomingFrame::Request(request) => {
                counts.count("request");
                assert_eq!(encode(&request, location), without_nulls(frame), "{location}");
                if self.answer(at, &frame["id"]).is_some_and(|answer| answer["ok"] == true) {
                    check_params(self.generation, request, location, counts);
                }
            }
            IncomingFrame::Malformed(error_response) => {
                if !self.is_connected(at) {
                    // Before `connect`, OpenClaw sends no useful error and closes; that is up to the gateway.
                    return;
                }
                counts.count("malformed request");
                let error_response = encode(&error_response, location);
                let Some(recorded) = self.answer(at, &error_response["id"]) else { panic!("{location}: not answered") };
                match self.generation {
                    Generation::Three => assert_eq!(&error_response, recorded, "{location}"),
                    // Newer versions of OpenClaw use other messages; clients read the code.
                    Generation::Four => {
                        assert_eq!(error_response["error"]["code"], recorded["error"]["code"], "{location}")
                    }
                }
            }
            IncomingFrame::NotJson(_) => panic!("{location}: a recorded frame is JSON"),
        }
    }

    /// True if the connection of a frame had received its `hello-ok` by then.
    fn is_connected(&self, at: usize) -> bool {
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

fn check_outbound(frame: &Value, location: &str, counts: &mut Tally) {
    if frame["type"] == "res" {
        counts.count("response");
        let response: frame::Response = round_trip(frame, location);
        if let Some(payload) = response.payload.filter(|payload| payload["type"] == "hello-ok") {
            counts.count("hello-ok");
            round_trip::<HelloOk>(&payload, location);
        }
        return;
    }
    counts.count("event");
    let event: frame::Event = round_trip(frame, location);
    let payload = event.payload.unwrap_or_default();
    match event.event.as_str() {
        "agent" => {
            counts.count("agent event");
            let agent: event::AgentEvent = round_trip(&payload, location);
            let known_streams = ["lifecycle", "assistant", "tool", "thinking"];
            let is_unrecognized =
                matches!(&agent.stream, event::Stream::Other(name) if known_streams.contains(&name.as_str()));
            assert!(!is_unrecognized, "{location}: {:?} is a stream of ours", agent.stream);
        }
        "connect.challenge" => {
            counts.count("challenge event");
            round_trip::<event::Challenge>(&payload, location);
        }
        "tick" => {
            counts.count("tick event");
            round_trip::<event::Tick>(&payload, location);
        }
        _ => {}
    }
}

/// Checks that parameters accepted by OpenClaw are accepted here.
fn check_params(generation: Generation, request: frame::Request, location: &str, counts: &mut Tally) {
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
        counts.count(kind);
        check(generation, request.params, location);
    }
}

/// Members without a field are ignored by design, so the result may have fewer; but nothing may be changed or added,
/// and the other side must be able to read it.
fn accept<T: Params + Serialize + PartialEq + Debug>(generation: Generation, params: Option<Value>, location: &str) {
    let decode = |params| T::decode(generation, params).unwrap_or_else(|error| panic!("{location}: {}", error.message));
    let decoded = decode(params.clone());
    let encoded = encode(&decoded, location);
    let sent = params.unwrap_or_default();
    for (name, value) in encoded.as_object().into_iter().flatten() {
        assert_eq!(sent.get(name), Some(value), "{location}: {name}");
    }
    assert_eq!(decode(Some(encoded)), decoded, "{location}");
}

fn check_state(dir: &Path) -> Tally {
    let mut counts = Tally::default();
    for path in files(dir, ".jsonl") {
        for (location, line) in lines(&path) {
            counts.count(check_line(&line, &location));
        }
    }
    for path in files(dir, "sessions.json") {
        let location = path.display().to_string();
        for (key, record) in json(&text(&path), &location).as_object().into_iter().flatten() {
            counts.count("session record");
            round_trip::<session::Record>(record, &format!("{location}: {key}"));
        }
    }
    counts
}

/// Checks that a line survives, and that our own lines are not parsed as foreign ones.
fn check_line(line: &Value, location: &str) -> &'static str {
    let kind = match round_trip(line, location) {
        Line::Header(_) => "header",
        Line::Entry(entry) => match entry.kind {
            Kind::Message(entry_message) => check_message(&entry_message.message, location),
            Kind::ModelChange(_) => "model change",
            Kind::Other(_) => "entry of another kind",
        },
    };
    let other_kinds = ["thinking_level_change", "custom", "compaction"];
    let is_other_kind = line["type"].as_str().is_some_and(|name| other_kinds.contains(&name));
    assert_eq!(kind == "entry of another kind", is_other_kind, "{location}: {}", line["type"]);
    kind
}

fn check_message(message: &Message, location: &str) -> &'static str {
    let (kind, blocks) = match message {
        Message::User(user) => match &user.content {
            Content::Text(_) => ("user", [].as_slice()),
            Content::Blocks(blocks) => ("user", blocks.as_slice()),
        },
        Message::Assistant(assistant) => ("assistant", assistant.content.as_slice()),
        Message::ToolResult(result) => ("tool result", result.content.as_slice()),
        Message::Other(fields) => panic!("{location}: no recorded message is foreign: {fields:?}"),
    };
    let unknown: Vec<&Block> = blocks.iter().filter(|block| matches!(block, Block::Other(_))).collect();
    assert!(unknown.is_empty(), "{location}: no recorded block is foreign: {unknown:?}");
    kind
}
