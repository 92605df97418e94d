//! A batch on its way to disk: planned in memory, written, and only then known.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use homard_proto::{
    AgentId, SessionId, SessionKey,
    session::Record,
    transcript::{Entry, Header},
};
use homard_store::{Error, Rec, Verdict, ledger::Refused};
use serde::Serialize;

use crate::{
    Known, Room,
    append::{Appends, Target},
    disk,
    layout::{self, Layout},
    log::{self, Change},
    rehearsal,
    transcript::{self, Tail},
};

/// What a batch is going to do.
#[derive(Default)]
struct Plan {
    answers: Vec<Answer>,
    transcripts: BTreeMap<PathBuf, Lines>,
    /// New records, in the order in which they came.
    records: Vec<(SessionKey, Arc<Record>)>,
    /// The headers that runs brought along.
    headers: HashMap<SessionId, Header>,
}

/// What is said to one record.
enum Answer {
    Known(Verdict),
    /// The record belongs to a run, so the ledger hears of it once the disk has it.
    OfLedger(Box<Rec>),
}

/// What is added to one transcript.
struct Lines {
    agent: AgentId,
    /// Written if the transcript is new.
    header: Header,
    entries: Vec<Entry>,
}

impl Room {
    /// Stores a batch, whole or not at all.
    pub(crate) fn commit(&self, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let mut tails = self.tails();
        let mut plan = Plan::of(&self.known(), &self.layout, batch);
        let mut appends = Appends::default();
        let written = self.write(&mut plan, &tails, &mut appends).and_then(|grown| appends.sync().map(|()| grown));
        let grown = written.inspect_err(|_| appends.undo())?;
        tails.extend(grown);
        let records_changed = !plan.records.is_empty();
        let verdicts = self.known().learn(plan);
        if records_changed {
            self.changed.notify_one();
        }
        Ok(verdicts)
    }

    /// Writes what is planned and returns the new ends of the transcripts.
    fn write(
        &self,
        plan: &mut Plan,
        tails: &HashMap<PathBuf, Tail>,
        appends: &mut Appends,
    ) -> Result<Vec<(PathBuf, Tail)>, Error> {
        let mut grown = Vec::new();
        for (path, lines) in std::mem::take(&mut plan.transcripts) {
            self.layout.make_sessions(&lines.agent)?;
            let mut target = Target::open(&path)?;
            let mut tail = match tails.get(&path) {
                Some(tail) if tail.length == target.length => tail.clone(),
                _ => transcript::read(&path, &target.file, target.length)?.tail,
            };
            if tail.length < target.length {
                transcript::set_torn_aside(&mut target, tail.length, (self.now_ms)())?;
            }
            let text = lines.encode(&mut tail)?;
            if !text.is_empty() {
                appends.add(target, &text)?;
                grown.push((path, tail));
            }
        }
        let mut logs: BTreeMap<AgentId, Vec<u8>> = BTreeMap::new();
        for (key, record) in &plan.records {
            write_line(logs.entry(layout::home(key)).or_default(), &Change { key, record })?;
        }
        for (agent, text) in logs {
            self.layout.make_sessions(&agent)?;
            appends.add(Target::open(&log::path(&self.layout.sessions(&agent)))?, &text)?;
        }
        Ok(grown)
    }
}

impl Plan {
    fn of(known: &Known, layout: &Layout, batch: Vec<Rec>) -> Self {
        let stored = rehearsal::stored(&known.ledger, &batch);
        let mut plan = Self::default();
        let mut begun = Vec::new();
        for (rec, _) in batch.iter().zip(&stored).filter(|(_, stored)| **stored) {
            if let Rec::Start(start) = rec {
                plan.headers.insert(start.header.id.clone(), start.header.clone());
                begun.push(start.key.clone());
            }
        }
        for (rec, stored) in batch.into_iter().zip(stored) {
            let answer = plan.take(known, layout, rec, stored);
            plan.answers.push(answer);
        }
        for key in begun {
            plan.begin(known, layout, &key);
        }
        plan
    }

    /// The record of a key as the batch has left it so far.
    fn record(&self, known: &Known, key: &SessionKey) -> Option<Arc<Record>> {
        let changed = self.records.iter().rev().find(|(changed, _)| changed == key);
        changed.map_or_else(|| known.index.get(key), |(_, record)| Some(Arc::clone(record)))
    }

    fn take(&mut self, known: &Known, layout: &Layout, mut rec: Rec, stored: bool) -> Answer {
        match rec {
            Rec::Entry { key, entry } => {
                self.append(known, layout, &key, *entry);
                Answer::Known(Verdict::Stored)
            }
            Rec::Patch { key, expect, record } => {
                let current = self.record(known, &key).map(|record| record.session_id.clone());
                if current != expect {
                    return Answer::Known(Verdict::Conflict);
                }
                self.records.push((key, Arc::from(record)));
                Answer::Known(Verdict::Stored)
            }
            Rec::Input(ref mut input) => {
                let entries = std::mem::take(&mut input.entries);
                for entry in entries.into_iter().filter(|_| stored) {
                    self.append(known, layout, &input.key, entry);
                }
                Answer::OfLedger(Box::new(rec))
            }
            Rec::Accept(_) | Rec::Start(_) | Rec::ToolIntent { .. } | Rec::ToolDone { .. } | Rec::Terminal { .. } => {
                Answer::OfLedger(Box::new(rec))
            }
        }
    }

    fn append(&mut self, known: &Known, layout: &Layout, key: &SessionKey, entry: Entry) {
        let Some(record) = self.record(known, key) else { return };
        let header = || header_for(&record.session_id, &entry);
        let header = self.headers.get(&record.session_id).cloned().unwrap_or_else(header);
        self.lines(layout.transcript(key, &record), key, header).entries.push(entry);
    }

    /// Sees to it that the transcript of a run that begins is there, even if the run has nothing to say yet.
    fn begin(&mut self, known: &Known, layout: &Layout, key: &SessionKey) {
        let Some(record) = self.record(known, key) else { return };
        if let Some(header) = self.headers.get(&record.session_id).cloned() {
            self.lines(layout.transcript(key, &record), key, header);
        }
    }

    fn lines(&mut self, path: PathBuf, key: &SessionKey, header: Header) -> &mut Lines {
        let agent = layout::home(key);
        self.transcripts.entry(path).or_insert_with(|| Lines { agent, header, entries: Vec::new() })
    }
}

/// A header for a transcript whose first line does not come from a run, so that nobody said where the agent works.
fn header_for(session: &SessionId, first: &Entry) -> Header {
    Header::new(session.clone(), first.timestamp.clone(), String::new())
}

impl Lines {
    /// The text to append to a transcript that ends at `tail`, which moves to the new end.
    fn encode(self, tail: &mut Tail) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        if tail.length == 0 {
            write_line(&mut text, &self.header)?;
        }
        for mut entry in self.entries {
            entry.parent_id = tail.leaf.replace(entry.id.clone());
            write_line(&mut text, &entry)?;
        }
        tail.length += text.len() as u64;
        Ok(text)
    }
}

fn write_line(text: &mut Vec<u8>, line: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *text, line).map_err(|reason| disk::unwritable(&reason))?;
    text.push(b'\n');
    Ok(())
}

impl Known {
    /// Takes note of a batch that is on disk.
    fn learn(&mut self, plan: Plan) -> Vec<Verdict> {
        for (key, record) in plan.records {
            self.index.put(key, record);
        }
        let mut refused = Refused::default();
        let verdict = |answer| match answer {
            Answer::Known(verdict) => verdict,
            Answer::OfLedger(rec) => self.ledger.judge(&rec, &mut refused),
        };
        plan.answers.into_iter().map(verdict).collect()
    }
}
