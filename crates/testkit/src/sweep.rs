//! Crash sweep: runs a trace repeatedly, each time with a crash at another commit.
//!
//! After the crash the hub is restarted with the same store, the rest of the trace is executed, every run finishes, and
//! each session accepts one more message; then all [invariants](crate::invariants) must hold.

use std::collections::BTreeMap;

use homard_model::{Request, stream::AnswerEnd};
use homard_proto::message::{Message, StopReason, Usage};

use crate::{
    faults::CrashPoint,
    runner::{TraceResult, play, play_out},
    script::{AnswerStep, ScriptedAnswer},
    trace::Trace,
};

/// Where the process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPoint {
    /// Number of the commit, from 1.
    pub commit: u64,
    /// Before or after it took effect.
    pub crash: CrashPoint,
}

/// A trace that was executed once without a crash, to learn the model's answer to each request.
#[derive(Debug)]
pub struct RehearsedTrace {
    trace: Trace,
    answers: BTreeMap<RequestId, ScriptedAnswer>,
    commits: u64,
}

/// A model request as far as the script distinguishes it: its message, and the number of answers so far.
pub(crate) type RequestId = (String, usize);

impl RehearsedTrace {
    /// Executes a trace by its script.
    pub fn new(trace: &Trace) -> anyhow::Result<Self> {
        let result = play(trace)?;
        let mut answers = BTreeMap::new();
        for (recorded, turn) in result.requests.iter().zip(&trace.turns) {
            answers.entry(request_id(&recorded.request)).or_insert_with(|| turn.clone());
        }
        Ok(Self { trace: trace.clone(), answers, commits: result.commits })
    }

    /// Returns every possible crash point.
    pub fn points(&self) -> Vec<SweepPoint> {
        let at = |commit| [CrashPoint::BeforeCommit, CrashPoint::AfterCommit].map(|crash| SweepPoint { commit, crash });
        (1..=self.commits).flat_map(at).collect()
    }

    /// Executes the trace with a crash.
    pub fn crash(&self, SweepPoint { commit, crash }: SweepPoint) -> anyhow::Result<TraceResult> {
        let mut trace = self.trace.clone();
        trace.faults.entry(commit).or_default().crash = Some(crash);
        let answers = self.answers.clone();
        play_out(
            &trace,
            Box::new(move |request| answers.get(&request_id(request)).cloned().unwrap_or_else(default_answer)),
        )
    }
}

/// Identifies a request.
pub(crate) fn request_id(request: &Request) -> RequestId {
    let mut id = (String::new(), 0);
    for message in &request.messages {
        match &**message {
            Message::User(user) => {
                let key = user.extra.get("idempotencyKey").and_then(|key| key.as_str());
                // A message without an idempotency key is identified by its beginning.
                let start = || user.content.text().chars().take(40).collect();
                id = (key.map_or_else(start, str::to_owned), 0);
            }
            Message::Assistant(_) => id.1 += 1,
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    id
}

/// Answer to a request that the script does not know.
pub(crate) fn default_answer() -> ScriptedAnswer {
    let done = AnswerEnd { stop: StopReason::Stop, usage: Usage::default() };
    ScriptedAnswer(vec![AnswerStep::Text("ok".to_owned()), AnswerStep::Done(done)])
}
