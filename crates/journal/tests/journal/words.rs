//! Helpers that build records for the store tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_journal::Journal;
use homard_proto::{
    AgentId, CallId, EntryId, RunId, SessionId, SessionKey,
    message::{Block, Message, ToolResult, Usage, User},
    session::Record,
    transcript::{Entry, Header, Kind},
};
use homard_store::{
    AbortReason, Accept, Delivery, DeliveryState, DeliveryTarget, EndRecord, Error, Input, Options, Origin, Outcome,
    Rec, RunTimeline, Start, Store, StoreWriter, ToolClass, Verdict, usage::UsageQuery,
};
use serde_json::json;

/// Time used by all tests.
pub(crate) const NOW: u64 = 1_794_709_960_355;

pub(crate) fn open(state: &Path) -> Journal {
    Journal::open(state, || NOW).unwrap()
}

pub(crate) fn sessions(state: &Path) -> PathBuf {
    state.join("agents/main/sessions")
}

pub(crate) fn key(text: &str) -> SessionKey {
    SessionKey::parse(text, &AgentId::main()).unwrap()
}

pub(crate) fn session(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn run(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

pub(crate) fn record(id: &str) -> Record {
    Record::new(session(id), NOW)
}

pub(crate) fn header(id: &str) -> Header {
    let timestamp = "2026-11-15T02:32:40.355Z".to_owned();
    Header::new(session(id), timestamp, "/w".to_owned())
}

/// A user entry; its text is its id.
pub(crate) fn entry(id: &str) -> Entry {
    line(id, Message::User(User::text(id, NOW)))
}

pub(crate) fn line(id: &str, message: Message) -> Entry {
    let timestamp = "2026-11-15T02:32:41.000Z".to_owned();
    Entry { kind: Kind::message(message), id: EntryId::parse(id).unwrap(), parent_id: None, timestamp }
}

/// An [`entry`] with a parent.
pub(crate) fn child_entry(parent: Option<&str>, id: &str) -> Entry {
    Entry { parent_id: parent.map(|parent| EntryId::parse(parent).unwrap()), ..entry(id) }
}

pub(crate) fn accept(name: &str, fingerprint: &str) -> Rec {
    Rec::Accept(Box::new(Accept {
        run: run(name),
        principal: "owner".to_owned(),
        method: "agent".to_owned(),
        fingerprint: fingerprint.to_owned(),
        key: key("main"),
        message: Message::User(User::text("hi", NOW)),
        options: Options { extra_prompt: Some("be brief".to_owned()), ..Options::default() },
        origin: None,
        at: NOW,
    }))
}

/// An accepted message from a channel event.
pub(crate) fn accept_event(name: &str, event: &str) -> Rec {
    let Rec::Accept(mut accept) = accept(name, name) else { unreachable!() };
    let (channel, account) = ("telegram".to_owned(), "default".to_owned());
    accept.origin = Some(Origin { channel, account, event: event.to_owned(), message: None });
    Rec::Accept(accept)
}

pub(crate) fn start(name: &str, at: &str, id: &str) -> Rec {
    Rec::Start(Start { run: run(name), key: key(at), header: header(id), at: NOW })
}

/// Entries that enter the transcript of this session.
pub(crate) fn input(name: &str, [at, id]: [&str; 2], absorbs: &[&str], entries: &[&str]) -> Rec {
    let absorbs = absorbs.iter().map(|name| run(name)).collect();
    let entries = entries.iter().map(|id| entry(id)).collect();
    Rec::Input(Input { run: run(name), key: key(at), session: session(id), absorbs, entries })
}

/// An entry that belongs to no run.
pub(crate) fn append([at, transcript]: [&str; 2], id: &str) -> Rec {
    Rec::Entry { run: None, key: key(at), session: session(transcript), entry: Box::new(entry(id)) }
}

/// An entry of a run.
pub(crate) fn append_by(name: &str, [at, transcript]: [&str; 2], id: &str) -> Rec {
    Rec::Entry { run: Some(run(name)), key: key(at), session: session(transcript), entry: Box::new(entry(id)) }
}

pub(crate) fn patch(at: &str, expect: Option<&str>, record: Record) -> Rec {
    Rec::Patch { run: None, key: key(at), expect: expect.map(session), record: Box::new(record) }
}

pub(crate) fn delete(at: &str, expect: &str) -> Rec {
    Rec::Delete { key: key(at), expect: session(expect) }
}

/// A delivery, queued by a run or by none.
pub(crate) fn delivery(id: &str, to: &str, name: Option<&str>) -> Delivery {
    let target = DeliveryTarget { channel: "telegram".to_owned(), account: "default".to_owned(), to: to.to_owned() };
    let (id, key, payload) = (id.to_owned(), format!("key-{id}"), json!({"text": "hello"}));
    Delivery {
        id,
        run: name.map(run),
        target,
        part: 0,
        key,
        is_idempotent: false,
        payload,
        at: NOW,
        is_immediate: false,
    }
}

pub(crate) fn queue(delivery: &Delivery) -> Rec {
    Rec::Queue(Box::new(delivery.clone()))
}

pub(crate) fn deliver(id: &str, state: DeliveryState) -> Rec {
    Rec::Deliver { id: id.to_owned(), state, at: NOW }
}

pub(crate) fn sent() -> DeliveryState {
    DeliveryState::sent(vec!["16".to_owned(), "17".to_owned()])
}

/// The end of a run with this many input tokens.
pub(crate) fn end_with_usage(name: &str, tokens: u64) -> Rec {
    let usage = Usage { input: tokens, ..Usage::default() };
    Rec::Terminal { run: run(name), ended: Box::new(EndRecord { usage, ..ended(Outcome::Done) }) }
}

/// Returns the number of runs and their input tokens.
pub(crate) async fn usage_sum(store: &dyn Store, period: &UsageQuery) -> (u64, u64) {
    let sums = store.usage(period).await.unwrap();
    (sums.iter().map(|sum| sum.runs).sum(), sums.iter().map(|sum| sum.usage.input).sum())
}

pub(crate) fn intent(name: &str, call: &str, class: ToolClass) -> Rec {
    Rec::ToolIntent { run: run(name), call: CallId::parse(call).unwrap(), class }
}

pub(crate) fn result(call: &str, text: &str) -> ToolResult {
    ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text(text)],
        details: None,
        is_error: false,
        timestamp: NOW,
        extra: serde_json::Map::new(),
    }
}

pub(crate) fn done(name: &str, call: &str, text: &str) -> Rec {
    Rec::ToolDone { run: run(name), result: Box::new(result(call, text)) }
}

pub(crate) fn abort(name: &str, reason: AbortReason) -> Rec {
    Rec::Abort { run: run(name), reason }
}

pub(crate) fn ended(outcome: Outcome) -> EndRecord {
    EndRecord {
        outcome,
        replies: Vec::new(),
        model: ("fake".to_owned(), "fake-1".to_owned()),
        usage: Usage::default(),
        command_reply: None,
        payloads: None,
        steps: RunTimeline::default(),
        ended_at: NOW,
    }
}

pub(crate) fn terminal(name: &str, outcome: Outcome) -> Rec {
    Rec::Terminal { run: run(name), ended: Box::new(ended(outcome)) }
}

/// Commits a batch; every record must be stored.
pub(crate) async fn commit_all(journal: &Journal, batch: Vec<Rec>) {
    let all = vec![Verdict::Stored; batch.len()];
    assert_eq!(journal.commit(&journal.fence(), batch).await.unwrap(), all);
}

/// Removes the archive paths from verdicts, because the memory store has none.
pub(crate) fn without_archive_paths(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    for verdict in &mut verdicts {
        if let Verdict::Archived(path) = verdict {
            *path = None;
        }
    }
    verdicts
}

/// Returns the entries of a session.
pub(crate) async fn lines(store: &dyn Store, at: &str) -> Vec<Entry> {
    store.load(&key(at)).await.unwrap().unwrap().entries
}

/// The main session and its first transcript.
pub(crate) const MAIN: [&str; 2] = ["main", "s1"];

/// Copies the directory as a crash at this moment would leave it; the writing process does not see the copy.
pub(crate) fn crash(state: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(state, copy.path());
    copy
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy_folder(&item.path(), &target);
        } else {
            fs::copy(item.path(), target).unwrap();
        }
    }
}

/// Returns the files in a folder whose names contain a text.
pub(crate) fn files_named(folder: &Path, text: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let mut found: Vec<_> = paths.filter(|path| path.file_name().unwrap().to_string_lossy().contains(text)).collect();
    found.sort();
    found
}

pub(crate) async fn list_sessions(store: &dyn Store) -> Result<Vec<(SessionKey, Record)>, Error> {
    Ok(store.list().await?.into_iter().map(|(key, record)| (key, Arc::unwrap_or_clone(record))).collect())
}
