//! Crash sweep: runs a trace repeatedly, each time with a crash at another commit.
//!
//! After the crash the hub is restarted with the same store, the rest of the trace is executed, every run finishes, and
//! each session accepts one more message; then all [invariants](crate::laws) must hold.

use std::collections::BTreeMap;

use homard_model::{Request, stream::Done};
use homard_proto::message::{Message, StopReason, Usage};

use crate::{
    faults::Death,
    play::{Played, play, play_out},
    script::{Step, Turn},
    trace::Trace,
};

/// Where the process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Number of the commit, from 1.
    pub commit: u64,
    /// Before or after it took effect.
    pub death: Death,
}

/// A trace that was executed once without a crash, to learn the model's answer to each request.
#[derive(Debug)]
pub struct Rehearsed {
    trace: Trace,
    said: BTreeMap<Question, Turn>,
    commits: u64,
}

/// A model request as far as the script distinguishes it: its message, and the number of answers so far.
pub(crate) type Question = (String, usize);

impl Rehearsed {
    /// Executes a trace by its script.
    pub fn new(trace: &Trace) -> anyhow::Result<Self> {
        let played = play(trace)?;
        let mut said = BTreeMap::new();
        for (seen, turn) in played.seen.iter().zip(&trace.turns) {
            said.entry(question(&seen.request)).or_insert_with(|| turn.clone());
        }
        Ok(Self { trace: trace.clone(), said, commits: played.commits })
    }

    /// Returns every possible crash point.
    pub fn points(&self) -> Vec<Point> {
        let at = |commit| [Death::Unstored, Death::Stored].map(|death| Point { commit, death });
        (1..=self.commits).flat_map(at).collect()
    }

    /// Executes the trace with a crash.
    pub fn crash(&self, Point { commit, death }: Point) -> anyhow::Result<Played> {
        let mut trace = self.trace.clone();
        trace.faults.entry(commit).or_default().death = Some(death);
        let said = self.said.clone();
        play_out(&trace, Box::new(move |request| said.get(&question(request)).cloned().unwrap_or_else(fine)))
    }
}

/// Identifies a request.
pub(crate) fn question(request: &Request) -> Question {
    let mut asked = (String::new(), 0);
    for message in &request.messages {
        match &**message {
            Message::User(user) => {
                let key = user.extra.get("idempotencyKey").and_then(|key| key.as_str());
                // A message without an idempotency key is identified by its beginning.
                let start = || user.content.text().chars().take(40).collect();
                asked = (key.map_or_else(start, str::to_owned), 0);
            }
            Message::Assistant(_) => asked.1 += 1,
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    asked
}

/// Answer to a request that the script does not know.
pub(crate) fn fine() -> Turn {
    let done = Done { stop: StopReason::Stop, usage: Usage::default() };
    Turn(vec![Step::Text("ok".to_owned()), Step::Done(done)])
}
