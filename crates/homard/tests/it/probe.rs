//! Plugins and hooks in a real gateway, with a real Node: what they receive, what they add, and what they cannot break.
//!
//! Ours are in `fixtures`; those that recorded OpenClaw are tested, too, if available.

mod faults;
mod keys;
mod routes;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

use homard_testkit::fake_provider::{ProviderReply, ReceivedRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    home::skip,
    scripted_model::{self, ScriptedHome},
};

/// The oldest Node that runs OpenClaw's plugins.
const NODE: [u32; 2] = [22, 15];

/// Returns a Node that is new enough: from the environment, installed by `xtask test`, or the machine's. Without one,
/// the test is listed as skipped, past the test harness, which hides the output of passing tests.
pub(crate) fn node(test: &str) -> Option<PathBuf> {
    let configured = std::env::vars().find(|(name, _)| name == "HOMARD_NODE").map(|(_, path)| PathBuf::from(path));
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node22/node_modules/node/bin/node");
    let found = configured.into_iter().chain([installed, PathBuf::from("node")]).find(|node| is_new(node));
    if found.is_none() {
        skip(test, "there is no Node 22.15 or newer; cargo xtask test installs one");
    }
    found
}

fn is_new(node: &Path) -> bool {
    let Ok(output) = Command::new(node).arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches('v').to_owned();
    let numbers: Vec<u32> = text.split('.').map_while(|number| number.parse().ok()).collect();
    numbers.get(..2).is_some_and(|version| version >= NODE.as_slice())
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe/fixtures")
}

/// Returns the plugins that recorded OpenClaw and their recordings, if available.
fn samples(test: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    if path.is_dir() {
        return Some(path);
    }
    skip(test, "../shared/samples is not here");
    None
}

/// A home with the probe plugin and the probe hook of a directory, and a scripted model.
struct Probe {
    scripted: ScriptedHome,
    /// Directory of the files that plugin and hook write.
    out: TempDir,
}

impl Probe {
    async fn new(node: &Path, plugin: &Path, hook: &Path) -> Self {
        let out = tempfile::tempdir().unwrap();
        let hooks = out.path().join("hooks");
        copy(hook, &hooks.join("probe-hook"));
        let (received, events_file) = (out.path().join("probe.jsonl"), out.path().join("internal.jsonl"));
        let fixture = ScriptedHome::answering(
            json!({
                "agents": {"defaults": {"compaction": {"keepRecentTokens": 200}}},
                "plugins": {
                    "node": node, "load": {"paths": [plugin]},
                    "entries": {"probe": {"enabled": true, "config": {"out": received}}},
                },
                "hooks": {"internal": {
                    "enabled": true, "load": {"extraDirs": [hooks]},
                    "entries": {"probe-hook": {"enabled": true, "env": {"PROBE_HOOK_OUT": events_file}}},
                }},
            }),
            probe_model,
        )
        .await;
        Self { scripted: fixture, out }
    }

    /// Uses our own fixtures.
    async fn ours(node: &Path) -> Self {
        Self::new(node, &fixtures().join("probe"), &fixtures().join("probe-hook")).await
    }

    /// Returns what the plugin has written so far.
    fn heard(&self) -> Vec<Value> {
        lines(&self.out.path().join("probe.jsonl"))
    }

    /// Returns what the hook has written so far.
    fn internal_events(&self) -> Vec<Value> {
        lines(&self.out.path().join("internal.jsonl"))
    }

    /// Returns the plugin's lines of one kind.
    fn of(&self, kind: &str) -> Vec<Value> {
        self.heard().into_iter().filter(|line| line["kind"] == kind).collect()
    }

    /// Returns the number of calls of a hook.
    fn count(&self, hook: &str) -> usize {
        self.of("hook").iter().filter(|line| line["hook"] == hook).count()
    }
}

/// Answers like the scripted model, except for compaction requests, whose text is not a command: they have no tools.
fn probe_model(request: &ReceivedRequest) -> ProviderReply {
    if request.json()["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
        scripted_model::reply(request)
    } else {
        ProviderReply::text("## Goal\nTo see what hooks hear.")
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Returns the objects of a JSONL file; empty without a file. An incomplete last line is skipped.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Requests a page from a gateway; returns the whole response.
fn get(port: u16, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
