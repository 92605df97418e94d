//! The crash sweep: a trace is played again and again, and each time the process dies at another commit.
//!
//! After the death the hub is started again over the same store, the rest of the trace is played, every run comes to its
//! end, and each session takes one more message; then all [laws](crate::laws) must hold.

use std::collections::BTreeMap;

use homard_model::{Request, stream::Done};
use homard_proto::message::{Message, StopReason, Usage};

use crate::{
    faults::Death,
    play::{Played, play, play_out},
    script::{Step, Turn},
    trace::Trace,
};

/// Where the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// At which commit, counted from 1.
    pub commit: u64,
    /// Before or after it took effect.
    pub death: Death,
}

/// A trace that was played once without a death, so that it is known what the model says to what.
#[derive(Debug)]
pub struct Rehearsed {
    trace: Trace,
    said: BTreeMap<Question, Turn>,
    commits: u64,
}

/// What a model is asked, as far as its script minds: for which message, and after how many answers to it.
pub(crate) type Question = (String, usize);

impl Rehearsed {
    /// Plays a trace by its script.
    pub fn new(trace: &Trace) -> anyhow::Result<Self> {
        let played = play(trace)?;
        let mut said = BTreeMap::new();
        for (seen, turn) in played.seen.iter().zip(&trace.turns) {
            said.entry(question(&seen.request)).or_insert_with(|| turn.clone());
        }
        Ok(Self { trace: trace.clone(), said, commits: played.commits })
    }

    /// Every place where the process can die.
    pub fn points(&self) -> Vec<Point> {
        let at = |commit| [Death::Unstored, Death::Stored].map(|death| Point { commit, death });
        (1..=self.commits).flat_map(at).collect()
    }

    /// Plays the trace with a death in it.
    pub fn crash(&self, Point { commit, death }: Point) -> anyhow::Result<Played> {
        let mut trace = self.trace.clone();
        trace.faults.entry(commit).or_default().death = Some(death);
        let said = self.said.clone();
        play_out(&trace, Box::new(move |request| said.get(&question(request)).cloned().unwrap_or_else(fine)))
    }
}

/// What the request asks.
pub(crate) fn question(request: &Request) -> Question {
    let mut asked = (String::new(), 0);
    for message in &request.messages {
        match &**message {
            Message::User(user) => {
                let key = user.extra.get("idempotencyKey").and_then(|key| key.as_str());
                // What nobody sent is known by how it begins.
                let start = || user.content.text().chars().take(40).collect();
                asked = (key.map_or_else(start, str::to_owned), 0);
            }
            Message::Assistant(_) => asked.1 += 1,
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    asked
}

/// What the model says to what no script foresaw.
pub(crate) fn fine() -> Turn {
    let done = Done { stop: StopReason::Stop, usage: Usage::default() };
    Turn(vec![Step::Text("ok".to_owned()), Step::Done(done)])
}
