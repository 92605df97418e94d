//! What the players share: where the gateway is, what just happened, and all that the clients were told.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{client::Target, secret::Secret};

/// How many problems are told; the others are counted.
const TOLD: usize = 20;

/// Something just happened, and a kill may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// A client read that its run is accepted.
    Accepted,
    /// The model said a word.
    Word,
    /// A client read that a tool begins.
    Tool,
    /// The model said the last word of a run.
    LastWord,
    /// A client read that its run ended.
    Ended,
}

impl Moment {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [Self::Accepted, Self::Word, Self::Tool, Self::LastWord, Self::Ended];
}

/// What a client was told of the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// It went well, and this is the reply.
    Done(String),
    /// It did not, and this is why.
    Failed(String),
}

/// A run as its client knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) session: String,
    /// Its place among the runs of its client: the next is sent only when this one is accepted.
    pub(super) place: usize,
    pub(super) is_accepted: bool,
    pub(super) told: Option<Told>,
    /// How often its end was announced.
    pub(super) ends: usize,
}

/// All that the clients know.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) runs: BTreeMap<String, Run>,
    /// How often the model was asked.
    pub(super) requests: usize,
    /// What must not happen and did, beside what is counted elsewhere.
    pub(super) problems: Vec<String>,
}

impl History {
    fn run(&mut self, id: &str) -> &mut Run {
        self.runs.entry(id.to_owned()).or_default()
    }

    /// Takes note of something that must not happen.
    pub(super) fn problem(&mut self, what: String) {
        self.problems.push(what);
    }

    /// Takes note of an answer; whoever asks again must hear the same.
    pub(super) fn told(&mut self, id: &str, told: Told) {
        let run = self.run(id);
        run.is_accepted = true;
        match &run.told {
            Some(before) if *before != told => {
                let what = format!("run {id} was told to end with {before:?} and later with {told:?}");
                self.problem(what);
            }
            Some(_) => {}
            None => run.told = Some(told),
        }
    }

    /// The first problems, and how many more there are.
    pub(super) fn some_problems(&self) -> Vec<String> {
        let more = self.problems.len().saturating_sub(TOLD);
        let told = self.problems.iter().take(TOLD).cloned();
        told.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }
}

/// What the players share.
#[derive(Debug)]
pub(super) struct Stage {
    /// Where the gateway listens while it does.
    pub(super) door: watch::Sender<Option<u16>>,
    /// Fires when no more runs are to be sent.
    pub(super) closing: CancellationToken,
    token: String,
    moments: mpsc::UnboundedSender<Moment>,
    history: Mutex<History>,
}

impl Stage {
    /// A stage for gateways with this token. Whoever kills listens to the moments.
    pub(super) fn new(token: String) -> (Self, mpsc::UnboundedReceiver<Moment>) {
        // Unbounded: it is emptied before every kill, and a killed gateway makes no moments.
        let (moments, listen) = mpsc::unbounded_channel();
        let (door, closing) = (watch::Sender::new(None), CancellationToken::new());
        (Self { door, closing, token, moments, history: Mutex::default() }, listen)
    }

    /// The gateway at a port, as clients call it.
    pub(super) fn target(&self, port: u16) -> Target {
        let secret = Some(Secret::Token(self.token.clone()));
        Target { url: format!("ws://127.0.0.1:{port}"), secret, pin: None, is_own: false, is_down: false }
    }

    /// Takes note of a moment.
    pub(super) fn notice(&self, moment: Moment) {
        // At the end nobody listens any more.
        self.moments.send(moment).ok();
    }

    /// What the clients know.
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a new run.
    pub(super) fn sends(&self, id: &str, session: &str, place: usize) {
        let run = Run { session: session.to_owned(), place, ..Run::default() };
        self.history().runs.insert(id.to_owned(), run);
    }

    /// Takes note of an acknowledgement.
    pub(super) fn accepted(&self, id: &str) {
        self.history().run(id).is_accepted = true;
        self.notice(Moment::Accepted);
    }

    /// Takes note of an answer.
    pub(super) fn told(&self, id: &str, told: Told) {
        self.history().told(id, told);
    }

    /// Takes note that the end of a run was announced.
    pub(super) fn ended(&self, id: &str) {
        self.history().run(id).ends += 1;
        self.notice(Moment::Ended);
    }

    /// Takes note that the model was asked, and what was wrong with that.
    pub(super) fn asked(&self, wrong: Option<String>) {
        let mut history = self.history();
        history.requests += 1;
        if let Some(wrong) = wrong {
            history.problem(format!("the model got a request with {wrong}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_answer_to_the_same_question_is_a_problem() {
        let mut history = History::default();
        history.told("1-1", Told::Done("a".to_owned()));
        history.told("1-1", Told::Done("a".to_owned()));
        assert_eq!(history.problems, Vec::<String>::new());
        history.told("1-1", Told::Failed("b".to_owned()));
        assert_eq!(history.problems, [r#"run 1-1 was told to end with Done("a") and later with Failed("b")"#]);
    }
}
