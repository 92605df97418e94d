//! Runs of a store, and the rule that each is accepted once and ends once.

use std::collections::{HashMap, VecDeque};

use homard_proto::{CallId, EntryId, RunId, message::ToolResult, transcript::Entry};

use crate::{
    AbortReason, Accept, Attempt, Hold, Origin, ProcessEnd, Rec, RunQuery, RunRow, RunState, ToolClass, ToolRow,
    UnfinishedRun, Verdict, recovery::assistant,
};

/// Number of ended runs that are kept; the oldest are dropped first.
const MAX_ENDED_RUNS: usize = 10_000;

/// Runs of a store.
#[derive(Debug, Default)]
pub struct Ledger {
    runs: HashMap<RunId, LedgerRun>,
    /// Runs by the channel event that started them; dropped with the run.
    origins: HashMap<Origin, RunId>,
    accepted: u64,
    ended: VecDeque<RunId>,
    /// How the previous processes ended.
    processes: Vec<ProcessEnd>,
}

#[derive(Debug)]
struct LedgerRun {
    order: u64,
    row: RunRow,
    origin: Option<Origin>,
    /// Data that only an unfinished run needs.
    open: Option<Box<OpenRunState>>,
    /// Runs absorbed by this one.
    absorbed: Vec<RunId>,
}

#[derive(Debug)]
struct OpenRunState {
    accept: Accept,
    /// Start times, with the index of the process.
    attempts: Vec<(u64, usize)>,
    aborted: Option<AbortReason>,
    /// Entry of the run's own message.
    input: Option<EntryId>,
    tools: Vec<ToolRow>,
}

/// Runs whose [`Accept`] was refused in the current batch.
#[derive(Debug, Default)]
pub struct RefusedRuns(Vec<RunId>);

impl Ledger {
    /// Applies a record to the ledger and returns its verdict. Records with any verdict other than [`Verdict::Stored`]
    /// must not be applied elsewhere.
    pub fn apply(&mut self, rec: &Rec, refused: &mut RefusedRuns) -> Verdict {
        let Some(run) = rec.run() else { return Verdict::Stored };
        if refused.0.contains(run) {
            return Verdict::Skipped;
        }
        if let Rec::Accept(accept) = rec {
            return self.accept(accept, refused);
        }
        let Some(entry) = self.runs.get_mut(run) else { return Verdict::Skipped };
        if matches!(entry.row.state, RunState::Ended(_)) {
            return Verdict::Skipped;
        }
        if let Some(open) = &mut entry.open {
            open.note(rec, &entry.row, self.processes.len());
        }
        match rec {
            Rec::Start(start) => {
                entry.row.session = Some(start.header.id.clone());
                match entry.row.started_at {
                    Some(_) => entry.row.resumed_at.push(start.at),
                    None => entry.row.started_at = Some(start.at),
                }
                entry.row.state = RunState::Running;
            }
            Rec::Input(input) => {
                entry.row.hold.iter_mut().for_each(|hold| hold.is_reentered = hold.released_at.is_some());
                let waiting = |absorbed: &&RunId| {
                    self.runs.get(*absorbed).is_some_and(|absorbed| absorbed.row.state == RunState::Accepted)
                };
                let absorbed_runs: Vec<_> =
                    input.absorbs.iter().filter(|absorbed| *absorbed != run).filter(waiting).cloned().collect();
                let started_at = self.runs.get(run).and_then(|host| host.row.started_at);
                for absorbed in &absorbed_runs {
                    if let Some(absorbed) = self.runs.get_mut(absorbed) {
                        absorbed.row.state = RunState::Absorbed(run.clone());
                        absorbed.row.session = Some(input.session.clone());
                        absorbed.row.started_at = started_at;
                        absorbed.row.host = Some(run.clone());
                    }
                }
                if let Some(host) = self.runs.get_mut(run) {
                    host.absorbed.extend(absorbed_runs);
                }
            }
            Rec::Hold { at, .. } if entry.row.state == RunState::Running => {
                entry.row.state = RunState::Held;
                entry.row.hold = Some(Hold { held_at: *at, released_at: None, is_reentered: false });
            }
            Rec::Release { at, .. } if entry.row.state == RunState::Held => {
                entry.row.state = RunState::Accepted;
                entry.row.hold.iter_mut().for_each(|hold| hold.released_at = Some(*at));
            }
            Rec::Hold { .. } | Rec::Release { .. } => return Verdict::Skipped,
            Rec::Terminal { ended, .. } => {
                let mut ended_runs = std::mem::take(&mut entry.absorbed);
                ended_runs.retain(|absorbed| self.runs.get(absorbed).is_some_and(|absorbed| absorbed.open.is_some()));
                ended_runs.push(run.clone());
                for run in ended_runs {
                    self.end(run, RunState::Ended(ended.clone()));
                }
            }
            Rec::Accept(_)
            | Rec::Entry { .. }
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Patch { .. }
            | Rec::Delete { .. }
            | Rec::Queue(_)
            | Rec::Deliver { .. } => {}
        }
        Verdict::Stored
    }

    fn accept(&mut self, accept: &Accept, refused: &mut RefusedRuns) -> Verdict {
        let previous = accept.origin.as_ref().and_then(|origin| self.origins.get(origin));
        if let Some(LedgerRun { row, .. }) = previous.and_then(|run| self.runs.get(run)) {
            refused.0.push(accept.run.clone());
            return Verdict::Duplicate(Box::new(row.clone()));
        }
        if let Some(LedgerRun { row, .. }) = self.runs.get(&accept.run) {
            refused.0.push(accept.run.clone());
            let is_same_request = (&row.principal, &row.method, &row.fingerprint)
                == (&accept.principal, &accept.method, &accept.fingerprint);
            return if is_same_request { Verdict::Duplicate(Box::new(row.clone())) } else { Verdict::Conflict };
        }
        let row = RunRow {
            run: accept.run.clone(),
            principal: accept.principal.clone(),
            method: accept.method.clone(),
            fingerprint: accept.fingerprint.clone(),
            origin: accept.origin.clone(),
            key: accept.key.clone(),
            session: None,
            accepted_at: accept.at,
            started_at: None,
            resumed_at: Vec::new(),
            host: None,
            hold: None,
            state: RunState::Accepted,
        };
        self.accepted += 1;
        let open = OpenRunState {
            accept: accept.clone(),
            attempts: Vec::new(),
            aborted: None,
            input: None,
            tools: Vec::new(),
        };
        let origin = accept.origin.clone();
        self.origins.extend(origin.clone().map(|origin| (origin, accept.run.clone())));
        let entry = LedgerRun { order: self.accepted, row, origin, open: Some(Box::new(open)), absorbed: Vec::new() };
        self.runs.insert(accept.run.clone(), entry);
        Verdict::Stored
    }

    fn end(&mut self, run: RunId, state: RunState) {
        if let Some(entry) = self.runs.get_mut(&run) {
            entry.row.state = state;
            entry.open = None;
            self.ended.push_back(run);
        }
        if self.ended.len() > MAX_ENDED_RUNS
            && let Some(oldest) = self.ended.pop_front()
            && let Some(LedgerRun { origin: Some(origin), .. }) = self.runs.remove(&oldest)
        {
            self.origins.remove(&origin);
        }
    }

    /// Records the end of the process that had the store open.
    pub fn process_ended(&mut self, end: ProcessEnd) {
        self.processes.push(end);
    }

    /// Returns the row of a run.
    pub fn row(&self, run: &RunId) -> Option<RunRow> {
        self.runs.get(run).map(|entry| entry.row.clone())
    }

    /// Returns stored runs, newest first.
    pub fn list(&self, query: &RunQuery) -> Vec<RunRow> {
        let before_order =
            query.before.as_ref().map_or(u64::MAX, |run| self.runs.get(run).map_or(0, |entry| entry.order));
        let is_match = |entry: &&LedgerRun| {
            entry.order < before_order
                && query.key.as_ref().is_none_or(|key| entry.row.key == *key)
                && query.filter.matches(&entry.row)
        };
        let mut found: Vec<_> = self.runs.values().filter(is_match).collect();
        found.sort_by_key(|entry| std::cmp::Reverse(entry.order));
        found.into_iter().take(query.limit).map(|entry| entry.row.clone()).collect()
    }

    /// Returns the run started by a channel event, or else by the message with this id. On channels whose ids are unique
    /// only within a chat, events are stored as `<id>#[<chat>]`; `event` may then be the id alone.
    pub fn find_by_event(&self, event: &str) -> Option<RunId> {
        let matches_event =
            |name: &str| name.strip_prefix(event).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with("#["));
        let of_event = self.origins.iter().find(|(origin, _)| matches_event(&origin.event));
        let of_message = || self.origins.iter().find(|(origin, _)| origin.message.as_deref() == Some(event));
        of_event.or_else(of_message).map(|(_, run)| run.clone())
    }

    /// Returns the unfinished runs in the order of acceptance. `after` returns the transcript entries that follow a
    /// run's message.
    pub fn unfinished(&self, after: impl Fn(&RunRow, &EntryId) -> Vec<Entry>) -> Vec<UnfinishedRun> {
        // An absorbed run may have ended on its own.
        let is_absorbed = |row: &RunRow| matches!(row.state, RunState::Absorbed(_));
        let is_independent = |entry: &&LedgerRun| !matches!(entry.row.state, RunState::Absorbed(_));
        let mut open: Vec<_> = self.runs.values().filter(is_independent).collect();
        open.sort_by_key(|entry| entry.order);
        let unfinished = |entry: &LedgerRun| {
            let open = entry.open.as_ref()?;
            Some(UnfinishedRun {
                row: entry.row.clone(),
                accept: open.accept.clone(),
                attempts: open
                    .attempts
                    .iter()
                    .map(|&(started_at, process)| self.attempt(started_at, process))
                    .collect(),
                aborted: open.aborted,
                entries: open.input.as_ref().map(|input| after(&entry.row, input)).unwrap_or_default(),
                tools: open.tools.clone(),
                absorbed: self.in_order(&entry.absorbed).filter(is_absorbed).collect(),
                deliveries: Vec::new(),
            })
        };
        open.into_iter().filter_map(unfinished).collect()
    }

    fn attempt(&self, started_at: u64, process: usize) -> Attempt {
        Attempt { started_at, process: self.processes.get(process).copied().unwrap_or(ProcessEnd::Running) }
    }

    /// Returns the rows of these runs in the order of acceptance.
    fn in_order(&self, runs: &[RunId]) -> impl Iterator<Item = RunRow> {
        let mut entries: Vec<_> = runs.iter().filter_map(|run| self.runs.get(run)).collect();
        entries.sort_by_key(|entry| entry.order);
        entries.into_iter().map(|entry| entry.row.clone())
    }
}

impl OpenRunState {
    /// Updates the state from a record of the run. `row` is the run before the record; `process` is the index of the
    /// current process.
    fn note(&mut self, rec: &Rec, row: &RunRow, process: usize) {
        match rec {
            Rec::Start(start) => self.attempts.push((start.at, process)),
            // The first input is the run's own message, and so is the first one after a release. Others were steered
            // into the active run.
            Rec::Input(input) if self.input.is_none() || row.hold.is_some_and(|hold| hold.is_released()) => {
                self.input = input.entries.last().map(|entry| entry.id.clone());
            }
            Rec::ToolIntent { call, class, .. } => {
                self.tools.push(ToolRow { call: call.clone(), class: *class, result: None });
            }
            Rec::ToolDone { result, .. } => self.store_result(result),
            Rec::Abort { reason, .. } => {
                self.aborted.get_or_insert(*reason);
            }
            // A new assistant message: all earlier calls have results, and the model may reuse their ids.
            Rec::Entry { entry, .. } if assistant(entry).is_some() => self.tools.clear(),
            // The transcript of a held run is complete: no call is open.
            Rec::Hold { .. } if row.state == RunState::Running => self.tools.clear(),
            Rec::Accept(_)
            | Rec::Input(_)
            | Rec::Entry { .. }
            | Rec::Hold { .. }
            | Rec::Release { .. }
            | Rec::Terminal { .. }
            | Rec::Patch { .. }
            | Rec::Delete { .. }
            | Rec::Queue(_)
            | Rec::Deliver { .. } => {}
        }
    }

    /// Stores the result of the last open call with its id, because a model may reuse an id.
    fn store_result(&mut self, result: &ToolResult) {
        let Ok(call) = CallId::parse(&result.tool_call_id) else { return };
        match self.tools.iter_mut().rev().find(|row| row.call == call && row.result.is_none()) {
            Some(row) => row.result = Some(result.clone()),
            None => self.tools.push(ToolRow { call, class: ToolClass::Read, result: Some(result.clone()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        AgentId,
        message::{Message, Usage, User},
    };

    use super::*;
    use crate::{EndRecord, Outcome};

    fn accept(run: &str, fingerprint: &str) -> Rec {
        Rec::Accept(Box::new(Accept {
            run: RunId::parse(run).unwrap(),
            principal: "owner".to_owned(),
            method: "agent".to_owned(),
            fingerprint: fingerprint.to_owned(),
            key: AgentId::main().main_session(),
            message: Message::User(User::text("hi", 1)),
            options: crate::Options::default(),
            origin: None,
            at: 1,
        }))
    }

    fn terminal(run: &str, outcome: Outcome) -> Rec {
        let ended = EndRecord {
            outcome,
            replies: Vec::new(),
            model: (String::new(), String::new()),
            usage: Usage::default(),
            steps: crate::RunTimeline::default(),
            ended_at: 2,
            command_reply: None,
            payloads: None,
        };
        Rec::Terminal { run: RunId::parse(run).unwrap(), ended: Box::new(ended) }
    }

    // R3: of several ends, the first one counts.
    #[test]
    fn a_run_is_accepted_once_and_ends_once() {
        let mut ledger = Ledger::default();
        let mut judge = |rec| ledger.apply(&rec, &mut RefusedRuns::default());
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
    fn records_of_a_refused_run_are_skipped() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.apply(&accept("a", "x"), &mut RefusedRuns::default()), Verdict::Stored);
        let mut batch = RefusedRuns::default();
        assert!(matches!(ledger.apply(&accept("a", "x"), &mut batch), Verdict::Duplicate(_)));
        assert_eq!(ledger.apply(&terminal("a", Outcome::Aborted(AbortReason::Timeout)), &mut batch), Verdict::Skipped);
        assert_eq!(ledger.unfinished(|_, _| Vec::new()).len(), 1);
    }
}
