//! Short ways to say what a store is told.

use std::path::{Path, PathBuf};

use homard_journal::Journal;
use homard_proto::{
    AgentId, EntryId, RunId, SessionId, SessionKey,
    message::{Message, Usage, User},
    session::Record,
    transcript::{Entry, Header, Kind},
};
use homard_store::{Accept, Ended, Input, Outcome, Rec, Start, Store, Verdict};

/// The time at which all tests happen.
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

/// A line that the user said; its text is its id.
pub(crate) fn entry(id: &str) -> Entry {
    line(id, Message::User(User::text(id, NOW)))
}

pub(crate) fn line(id: &str, message: Message) -> Entry {
    let timestamp = "2026-11-15T02:32:41.000Z".to_owned();
    Entry { kind: Kind::message(message), id: EntryId::parse(id).unwrap(), parent_id: None, timestamp }
}

/// An [`entry`] that hangs on another.
pub(crate) fn under(parent: Option<&str>, id: &str) -> Entry {
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
        at: NOW,
    }))
}

pub(crate) fn start(name: &str, at: &str, id: &str) -> Rec {
    Rec::Start(Start { run: run(name), key: key(at), header: header(id), at: NOW })
}

pub(crate) fn input(name: &str, at: &str, absorbs: &[&str], entries: &[&str]) -> Rec {
    let absorbs = absorbs.iter().map(|name| run(name)).collect();
    let entries = entries.iter().map(|id| entry(id)).collect();
    Rec::Input(Input { run: run(name), key: key(at), absorbs, entries })
}

pub(crate) fn said(at: &str, id: &str) -> Rec {
    Rec::Entry { key: key(at), entry: Box::new(entry(id)) }
}

pub(crate) fn patch(at: &str, expect: Option<&str>, record: Record) -> Rec {
    Rec::Patch { key: key(at), expect: expect.map(session), record: Box::new(record) }
}

pub(crate) fn ended(outcome: Outcome) -> Ended {
    Ended {
        outcome,
        replies: Vec::new(),
        model: ("fake".to_owned(), "fake-1".to_owned()),
        usage: Usage::default(),
        started_at: Some(NOW),
        ended_at: NOW,
    }
}

pub(crate) fn terminal(name: &str, outcome: Outcome) -> Rec {
    Rec::Terminal { run: run(name), ended: Box::new(ended(outcome)) }
}

/// Commits a batch of which all must be stored.
pub(crate) async fn keep(journal: &Journal, batch: Vec<Rec>) {
    let all = vec![Verdict::Stored; batch.len()];
    assert_eq!(journal.commit(&journal.fence(), batch).await.unwrap(), all);
}

/// The lines of a session.
pub(crate) async fn lines(store: &dyn Store, at: &str) -> Vec<Entry> {
    store.load(&key(at)).await.unwrap().unwrap().entries
}
