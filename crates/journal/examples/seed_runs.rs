//! Fills a state directory with many runs and one long session, through the store. Used by `cargo xtask bench runs`.

use std::{env, error::Error, path::PathBuf};

use homard_journal::Journal;
use homard_proto::{
    AgentId, EntryId, RunId, SessionId, SessionKey,
    message::{Message, Usage, User},
    session::Record,
    transcript::{Entry, Header, Kind},
};
use homard_store::{
    Accept, EndRecord, Failure, FailureKind, Input, Options, Outcome, Rec, RunTimeline, SpanKind, Start, StoreWriter,
    TimelineSpan,
    timeline::{ModelRequestSpan, PromptStats},
};

/// Time of the first run, in milliseconds since the epoch.
const FIRST_AT: u64 = 1_794_709_960_355;

/// Number of runs in a commit.
const BATCH: usize = 500;

/// Number of sessions that the runs use in turn.
const SESSIONS: usize = 200;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [state, runs, messages] = &args[..] else { return Err("usage: seed_runs STATE RUNS MESSAGES".into()) };
    let (runs, messages): (usize, usize) = (runs.parse()?, messages.parse()?);
    let journal = Journal::open(&PathBuf::from(state), || FIRST_AT)?;
    for first in (0..runs).step_by(BATCH) {
        let mut batch = Vec::new();
        for at in first..runs.min(first + BATCH) {
            batch.extend(run(at)?);
        }
        journal.commit(&journal.fence(), batch).await?;
        journal.flush().await?;
    }
    journal.commit(&journal.fence(), long_session(messages)?).await?;
    journal.flush().await?;
    Ok(())
}

/// Returns the key and the id of a session: direct chats of a person with many contacts.
fn session(at: usize) -> Result<(SessionKey, SessionId)> {
    let key = SessionKey::parse(&format!("agent:main:telegram:direct:{}", 1_000 + at), &AgentId::main())?;
    Ok((key, SessionId::parse(&format!("00000000-0000-4000-8000-{at:012}"))?))
}

/// Returns the records of a run with a model request. Every hundredth fails.
fn run(at: usize) -> Result<Vec<Rec>> {
    let (key, session) = session(at % SESSIONS)?;
    let (run, time) = (RunId::parse(&format!("seeded-{at:08}"))?, FIRST_AT + at as u64 * 1_000);
    let message = Message::User(User::text("What is new?", time));
    let accept = Accept {
        run: run.clone(),
        principal: "owner".to_owned(),
        method: "agent".to_owned(),
        fingerprint: "f".to_owned(),
        key: key.clone(),
        message: message.clone(),
        options: Options::default(),
        origin: None,
        at: time,
    };
    let header = Header::new(session.clone(), timestamp(), "/".to_owned());
    let start = Start { run: run.clone(), key: key.clone(), header, at: time };
    let entries = vec![entry(&format!("{at:08}"), message)?];
    let input = Input { run: run.clone(), key, session, absorbs: Vec::new(), entries };
    let terminal = Rec::Terminal { run, ended: Box::new(ended(at, time)) };
    Ok(vec![Rec::Accept(Box::new(accept)), Rec::Start(start), Rec::Input(input), terminal])
}

fn ended(at: usize, time: u64) -> EndRecord {
    let message = format!("HTTP 529: overloaded, request {at}");
    let sections = (0..18).map(|at| (format!("A section of the prompt {at}"), 1_000)).collect();
    let prompt =
        PromptStats { sections, system: 20_000, tools: 25, messages: 12, tokens: 9_000, ..PromptStats::default() };
    let request = ModelRequestSpan {
        provider: "anthropic".to_owned(),
        model: "claude-opus-5-2".to_owned(),
        prompt,
        ..ModelRequestSpan::default()
    };
    let span = |from: u64, to: u64, what| TimelineSpan { from: time + from, to: time + to, what };
    EndRecord {
        outcome: match at % 100 {
            0 => Outcome::Failed(Failure { kind: FailureKind::Model, message }),
            _ => Outcome::Done,
        },
        replies: Vec::new(),
        model: ("anthropic".to_owned(), "claude-opus-5-2".to_owned()),
        usage: Usage::default(),
        steps: RunTimeline::new(vec![
            span(0, 1, SpanKind::Queued { slot_ms: 0 }),
            span(1, 3, SpanKind::Prepared),
            span(3, 800, SpanKind::Model(Box::new(request))),
            span(800, 802, SpanKind::Finished),
        ]),
        ended_at: time + 802,
        command_reply: None,
        payloads: None,
    }
}

/// Returns the records of a session with this many messages of about 500 characters.
fn long_session(messages: usize) -> Result<Vec<Rec>> {
    let key = SessionKey::parse("agent:main:long", &AgentId::main())?;
    let session = SessionId::parse("00000000-0000-4000-9000-000000000000")?;
    let mut batch: Vec<Rec> = Vec::new();
    for at in 0..messages {
        let text = format!("Message {at}. {}", "Some words of a long conversation. ".repeat(14));
        let entry = entry(&format!("long{at:08}"), Message::User(User::text(text, FIRST_AT + at as u64)))?;
        batch.push(Rec::Entry { run: None, key: key.clone(), session: session.clone(), entry: Box::new(entry) });
    }
    let record = Box::new(Record::new(session, FIRST_AT + messages as u64));
    batch.push(Rec::Patch { run: None, key, expect: None, record });
    Ok(batch)
}

fn entry(id: &str, message: Message) -> Result<Entry> {
    Ok(Entry { kind: Kind::message(message), id: EntryId::parse(id)?, parent_id: None, timestamp: timestamp() })
}

fn timestamp() -> String {
    "2026-11-15T02:32:40.355Z".to_owned()
}
