//! The runs that a store knows, and the one rule about them: each is accepted once and ends once.

use std::collections::{HashMap, VecDeque};

use homard_proto::RunId;

use crate::{Accept, Rec, RunRow, RunState, Unfinished, Verdict};

/// How many ended runs are remembered; the oldest go first.
const REMEMBERED: usize = 10_000;

/// The runs that a store knows.
#[derive(Debug, Default)]
pub struct Ledger {
    runs: HashMap<RunId, Known>,
    accepted: u64,
    ended: VecDeque<RunId>,
}

#[derive(Debug)]
struct Known {
    order: u64,
    row: RunRow,
    /// Needed only until the run has ended.
    accept: Option<Accept>,
    /// Runs that end with this one.
    absorbed: Vec<RunId>,
}

/// Runs whose [`Accept`] was refused in the batch at hand.
#[derive(Debug, Default)]
pub struct Refused(Vec<RunId>);

impl Ledger {
    /// Takes note of a record and says what becomes of it. Anything but [`Verdict::Stored`] must not be applied.
    pub fn judge(&mut self, rec: &Rec, refused: &mut Refused) -> Verdict {
        let Some(run) = rec.run() else { return Verdict::Stored };
        if refused.0.contains(run) {
            return Verdict::Skipped;
        }
        if let Rec::Accept(accept) = rec {
            return self.accept(accept, refused);
        }
        let Some(known) = self.runs.get_mut(run) else { return Verdict::Skipped };
        if matches!(known.row.state, RunState::Ended(_)) {
            return Verdict::Skipped;
        }
        match rec {
            Rec::Start(start) => {
                known.row.session = Some(start.header.id.clone());
                known.row.state = RunState::Running;
            }
            Rec::Input(input) => {
                let waiting =
                    |guest: &&RunId| self.runs.get(*guest).is_some_and(|guest| guest.row.state == RunState::Accepted);
                let guests: Vec<_> = input.absorbs.iter().filter(waiting).cloned().collect();
                for guest in &guests {
                    if let Some(guest) = self.runs.get_mut(guest) {
                        guest.row.state = RunState::Absorbed(run.clone());
                    }
                }
                if let Some(host) = self.runs.get_mut(run) {
                    host.absorbed.extend(guests);
                }
            }
            Rec::Terminal { ended, .. } => {
                let mut over = std::mem::take(&mut known.absorbed);
                over.push(run.clone());
                for run in over {
                    self.end(run, RunState::Ended(ended.clone()));
                }
            }
            Rec::Accept(_) | Rec::Entry { .. } | Rec::ToolIntent { .. } | Rec::ToolDone { .. } | Rec::Patch { .. } => {}
        }
        Verdict::Stored
    }

    fn accept(&mut self, accept: &Accept, refused: &mut Refused) -> Verdict {
        if let Some(Known { row, .. }) = self.runs.get(&accept.run) {
            refused.0.push(accept.run.clone());
            let same = (&row.principal, &row.method, &row.fingerprint)
                == (&accept.principal, &accept.method, &accept.fingerprint);
            return if same { Verdict::Duplicate(Box::new(row.clone())) } else { Verdict::Conflict };
        }
        let row = RunRow {
            run: accept.run.clone(),
            principal: accept.principal.clone(),
            method: accept.method.clone(),
            fingerprint: accept.fingerprint.clone(),
            key: accept.key.clone(),
            session: None,
            accepted_at: accept.at,
            state: RunState::Accepted,
        };
        self.accepted += 1;
        let known = Known { order: self.accepted, row, accept: Some(accept.clone()), absorbed: Vec::new() };
        self.runs.insert(accept.run.clone(), known);
        Verdict::Stored
    }

    fn end(&mut self, run: RunId, state: RunState) {
        if let Some(known) = self.runs.get_mut(&run) {
            known.row.state = state;
            known.accept = None;
            self.ended.push_back(run);
        }
        if self.ended.len() > REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }

    /// What is known of a run.
    pub fn row(&self, run: &RunId) -> Option<RunRow> {
        self.runs.get(run).map(|known| known.row.clone())
    }

    /// The runs that have not ended, in the order in which they were accepted.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let mut open: Vec<_> =
            self.runs.values().filter(|known| !matches!(known.row.state, RunState::Absorbed(_))).collect();
        open.sort_by_key(|known| known.order);
        let unfinished = |known: &&Known| Some(Unfinished { row: known.row.clone(), accept: known.accept.clone()? });
        open.iter().filter_map(unfinished).collect()
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        AgentId,
        message::{Message, Usage, User},
    };

    use super::*;
    use crate::{AbortReason, Ended, Outcome};

    fn accept(run: &str, fingerprint: &str) -> Rec {
        Rec::Accept(Box::new(Accept {
            run: RunId::parse(run).unwrap(),
            principal: "owner".to_owned(),
            method: "agent".to_owned(),
            fingerprint: fingerprint.to_owned(),
            key: AgentId::main().main_session(),
            message: Message::User(User::text("hi", 1)),
            at: 1,
        }))
    }

    fn terminal(run: &str, outcome: Outcome) -> Rec {
        let ended = Ended {
            outcome,
            replies: Vec::new(),
            model: (String::new(), String::new()),
            usage: Usage::default(),
            started_at: None,
            ended_at: 2,
        };
        Rec::Terminal { run: RunId::parse(run).unwrap(), ended: Box::new(ended) }
    }

    #[test]
    fn a_run_is_accepted_once_and_ends_once() {
        let mut ledger = Ledger::default();
        let mut judge = |rec| ledger.judge(&rec, &mut Refused::default());
        assert_eq!(judge(terminal("a", Outcome::Done)), Verdict::Skipped);
        assert_eq!(judge(accept("a", "x")), Verdict::Stored);
        assert!(matches!(judge(accept("a", "x")), Verdict::Duplicate(_)));
        assert_eq!(judge(accept("a", "y")), Verdict::Conflict);
        assert_eq!(judge(terminal("a", Outcome::Done)), Verdict::Stored);
        assert_eq!(judge(terminal("a", Outcome::Aborted(AbortReason::User))), Verdict::Skipped);
        let Verdict::Duplicate(row) = judge(accept("a", "x")) else { panic!("forgotten") };
        let RunState::Ended(ended) = row.state else { panic!("not ended") };
        assert_eq!(ended.outcome, Outcome::Done);
    }

    #[test]
    fn a_refused_run_takes_its_records_with_it() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.judge(&accept("a", "x"), &mut Refused::default()), Verdict::Stored);
        let mut batch = Refused::default();
        assert!(matches!(ledger.judge(&accept("a", "x"), &mut batch), Verdict::Duplicate(_)));
        assert_eq!(ledger.judge(&terminal("a", Outcome::Aborted(AbortReason::Timeout)), &mut batch), Verdict::Skipped);
        assert_eq!(ledger.unfinished().len(), 1);
    }
}
