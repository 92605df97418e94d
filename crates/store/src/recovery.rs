//! Decides what a restart does with an unfinished run: a pure function of what is on disk.

use homard_proto::{
    CallId, RunId,
    message::{Assistant, Block, Message, STEERED_INTO, StopReason, ToolResult},
    transcript::{Entry, Kind},
};
use serde_json::Value;

use crate::{
    AbortReason, Failure, FailureKind, OnRestart, Outcome, ProcessEnd, RunRow, RunState, ToolClass, ToolRow,
    UnfinishedRun,
};

/// Age from which an unfinished run is not resumed: its sender no longer waits.
pub const MAX_AGE_MS: u64 = 60 * 60 * 1000;

/// Crash-loop guard: a run that was active at this many crashes in a row within [`CRASH_WINDOW_MS`] is held, because it
/// may be their cause.
pub const MAX_CRASHES: usize = 3;

/// The period in which crashes count as a loop.
pub const CRASH_WINDOW_MS: u64 = 5 * 60 * 1000;

/// A run that was active at this many crashes is held, however far apart they were.
pub const MAX_CRASHES_EVER: usize = 10;

/// A held run that was neither released nor dropped ends after this time.
pub const MAX_HOLD_MS: u64 = 24 * 60 * 60 * 1000;

/// Reason given for ending a held run that was not released.
pub const HOLD_EXPIRED: &str =
    "the run was active at several crashes in a row, was held, and was not released within a day";

/// Result that a model receives for a tool call that was active when the process ended.
const UNKNOWN_RESULT: &str = "The program was restarted while this call was running. Whether it took effect is not known; do \
                       not assume that it failed. Check before you repeat it.";

/// Treatment of an unfinished run.
#[derive(Debug, Clone, PartialEq)]
pub enum RecoveryPlan {
    /// It never started: it returns to the queue.
    Requeue,
    /// It was active: it resumes from what is on disk. These results complete open calls; the remaining calls are run
    /// again.
    Resume(Vec<ToolResult>),
    /// It was held and released: its message enters the transcript again, after the messages since.
    Reenter,
    /// It was active at several crashes in a row: it is held from now on. These results complete open calls; the
    /// remaining calls get the result of an aborted run.
    Hold(Vec<ToolResult>),
    /// It remains held.
    StayHeld,
    /// It ends now. These results complete open calls; the remaining calls get the result of an aborted run.
    End(Outcome, Vec<ToolResult>),
}

/// Decides about one run.
pub fn plan(run: &UnfinishedRun, now_ms: u64) -> RecoveryPlan {
    let own = own_entries(&run.row.run, &run.entries);
    let last = last_answer(own);
    let results = || last.map(|(at, assistant)| known_results(run, at, assistant, now_ms)).unwrap_or_default();
    let interrupted = |cause: &str| {
        let message = format!("INTERRUPTED: {cause}");
        RecoveryPlan::End(Outcome::Failed(Failure { kind: FailureKind::Internal, message }), results())
    };
    if let Some(reason) = run.aborted {
        return RecoveryPlan::End(Outcome::Aborted(reason), results());
    }
    match last {
        Some((_, assistant)) if assistant.stop_reason == StopReason::Error => {
            let message = assistant.error_message.clone().unwrap_or_else(|| "the model failed".to_owned());
            return RecoveryPlan::End(Outcome::Failed(Failure { kind: FailureKind::Model, message }), Vec::new());
        }
        Some((_, assistant)) if assistant.stop_reason == StopReason::Aborted => {
            return RecoveryPlan::End(Outcome::Aborted(AbortReason::User), Vec::new());
        }
        Some((_, assistant)) if assistant.tool_calls().next().is_none() => {
            return RecoveryPlan::End(Outcome::Done, Vec::new());
        }
        Some(_) | None => {}
    }
    let hold = run.row.hold;
    match (&run.row.state, hold) {
        (RunState::Held, Some(hold)) if now_ms.saturating_sub(hold.held_at) <= MAX_HOLD_MS => {
            return RecoveryPlan::StayHeld;
        }
        (RunState::Held, _) => return interrupted(HOLD_EXPIRED),
        (RunState::Accepted, Some(hold)) if hold.is_released() => return RecoveryPlan::Reenter,
        (RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Ended(_), _) => {}
    }
    if own.len() < run.entries.len() {
        return interrupted("the end of the run could not be stored, and the session continued without it");
    }
    if run.accept.options.on_restart == OnRestart::Interrupt {
        return interrupted("the program was restarted, and the sender requested an error instead of a resume");
    }
    if now_ms.saturating_sub(queued_at(&run.row)) > MAX_AGE_MS {
        return interrupted("the program was restarted, and the run was accepted more than an hour ago");
    }
    match run.row.state {
        RunState::Accepted => RecoveryPlan::Requeue,
        RunState::Running if is_crash_loop(run, now_ms) => RecoveryPlan::Hold(results()),
        RunState::Running | RunState::Absorbed(_) | RunState::Ended(_) | RunState::Held => {
            RecoveryPlan::Resume(results())
        }
    }
}

/// Returns the time at which the run was accepted, or released after it was held.
fn queued_at(row: &RunRow) -> u64 {
    row.hold.and_then(|hold| hold.released_at).unwrap_or(row.accepted_at)
}

/// True if a run was active at enough crashes to be their likely cause. A crash is dated by the run's next start.
fn is_crash_loop(run: &UnfinishedRun, now_ms: u64) -> bool {
    let since = queued_at(&run.row);
    let attempts: Vec<_> = run.attempts.iter().filter(|attempt| attempt.started_at >= since).collect();
    let crash_time = |n: usize| attempts.get(n + 1).map_or(now_ms, |next| next.started_at);
    let crashed = |n: &usize| attempts[*n].process == ProcessEnd::Crashed;
    let in_a_row: Vec<_> = (0..attempts.len()).rev().take_while(crashed).map(crash_time).collect();
    let is_recent = |at: &u64| now_ms.saturating_sub(*at) <= CRASH_WINDOW_MS;
    in_a_row.len() >= MAX_CRASHES_EVER || in_a_row.get(MAX_CRASHES - 1).is_some_and(is_recent)
}

/// Returns the entries that belong to a run among those after its message: up to a later message that was not steered
/// into it. Such a message exists only if the disk failed when the run should have ended.
pub fn own_entries<'a>(run: &RunId, entries: &'a [Entry]) -> &'a [Entry] {
    let is_next = |entry: &Entry| match message(entry) {
        Some(Message::User(user)) => user.extra.get(STEERED_INTO).and_then(Value::as_str) != Some(run.as_str()),
        Some(Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_)) | None => false,
    };
    &entries[..entries.iter().position(is_next).unwrap_or(entries.len())]
}

/// Returns the last assistant message of the run and its position; `None` if a user message follows it.
fn last_answer(entries: &[Entry]) -> Option<(usize, &Assistant)> {
    let last =
        entries.iter().rposition(|entry| matches!(message(entry), Some(Message::User(_) | Message::Assistant(_))))?;
    assistant(&entries[last]).map(|assistant| (last, assistant))
}

/// Returns the assistant message of an entry, if it is one.
pub fn assistant(entry: &Entry) -> Option<&Assistant> {
    match message(entry)? {
        Message::Assistant(assistant) => Some(assistant),
        Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
    }
}

fn message(entry: &Entry) -> Option<&Message> {
    match &entry.kind {
        Kind::Message(entry_message) => Some(&entry_message.message),
        Kind::ModelChange(_) | Kind::Other(_) => None,
    }
}

/// Returns the known results of calls in `assistant` that are not in the transcript yet: results of finished tools, and
/// "unknown" for calls with side effects that were active.
fn known_results(run: &UnfinishedRun, position: usize, assistant: &Assistant, now_ms: u64) -> Vec<ToolResult> {
    let is_written = |id: &str| {
        let results = run.entries[position..].iter().filter_map(message);
        results.into_iter().any(|message| matches!(message, Message::ToolResult(result) if result.tool_call_id == id))
    };
    let open = assistant.tool_calls().filter(|call| !is_written(&call.id));
    open.filter_map(|call| {
        let id = CallId::parse(&call.id).ok()?;
        // A model may reuse an id in a later message, so the last row counts.
        match run.tools.iter().rev().find(|row| row.call == id)? {
            ToolRow { result: Some(result), .. } => Some(result.clone()),
            ToolRow { class: ToolClass::Effect, .. } => Some(unknown(&call.id, &call.name, now_ms)),
            ToolRow { class: ToolClass::Read | ToolClass::Idempotent, .. } => None,
        }
    })
    .collect()
}

/// Returns the error result of a call that a crash interrupted: the model must find out whether it took effect.
fn unknown(call: &str, name: &str, timestamp: u64) -> ToolResult {
    ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: name.to_owned(),
        content: vec![Block::text(UNKNOWN_RESULT)],
        details: None,
        is_error: true,
        timestamp,
        extra: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        AgentId, EntryId, RunId, SessionId,
        message::{ToolCall, User},
    };

    use super::*;
    use crate::{Accept, Attempt, Hold, Options};

    const NOW: u64 = 10_000_000;

    fn unfinished_run(state: RunState) -> UnfinishedRun {
        let (run, key) = (RunId::parse("r").unwrap(), AgentId::main().main_session());
        UnfinishedRun {
            row: RunRow {
                run: run.clone(),
                principal: "owner".to_owned(),
                method: "agent".to_owned(),
                fingerprint: "f".to_owned(),
                origin: None,
                key: key.clone(),
                session: Some(SessionId::parse("s").unwrap()),
                accepted_at: NOW - 1000,
                host: None,
                started_at: None,
                resumed_at: Vec::new(),
                hold: None,
                state,
            },
            accept: Accept {
                run,
                principal: "owner".to_owned(),
                method: "agent".to_owned(),
                fingerprint: "f".to_owned(),
                key,
                message: Message::User(User::text("hi", 0)),
                options: Options::default(),
                origin: None,
                at: NOW - 1000,
            },
            attempts: vec![attempt(NOW - 500, ProcessEnd::Crashed)],
            aborted: None,
            entries: Vec::new(),
            tools: Vec::new(),
            absorbed: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    fn attempt(started_at: u64, process: ProcessEnd) -> Attempt {
        Attempt { started_at, process }
    }

    fn entry(message: Message) -> Entry {
        let (id, timestamp) = (EntryId::parse("e").unwrap(), String::new());
        Entry { kind: Kind::message(message), id, parent_id: None, timestamp }
    }

    fn assistant_entry(calls: &[&str], stop_reason: StopReason) -> Entry {
        let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "t".to_owned(), ..ToolCall::default() };
        let content = calls.iter().map(|id| Block::ToolCall(call(id))).collect();
        entry(Message::Assistant(Assistant { content, stop_reason, ..Assistant::default() }))
    }

    fn tool_result(id: &str) -> ToolResult {
        ToolResult { content: vec![Block::text("done")], is_error: false, ..unknown(id, "t", 1) }
    }

    fn row(id: &str, class: ToolClass, result: Option<ToolResult>) -> ToolRow {
        ToolRow { call: CallId::parse(id).unwrap(), class, result }
    }

    #[test]
    fn unstarted_runs_are_requeued_and_active_ones_resume() {
        assert_eq!(plan(&unfinished_run(RunState::Accepted), NOW), RecoveryPlan::Requeue);
        assert_eq!(plan(&unfinished_run(RunState::Running), NOW), RecoveryPlan::Resume(Vec::new()));
    }

    #[test]
    fn a_run_with_a_final_answer_is_not_resumed() {
        let mut done = unfinished_run(RunState::Running);
        done.entries = vec![assistant_entry(&[], StopReason::Stop)];
        assert_eq!(plan(&done, NOW), RecoveryPlan::End(Outcome::Done, Vec::new()));
    }

    #[test]
    fn side_effects_are_not_repeated_and_results_are_kept() {
        let mut run = unfinished_run(RunState::Running);
        run.entries = vec![
            assistant_entry(&["a", "b", "c", "d"], StopReason::ToolUse),
            entry(Message::ToolResult(tool_result("a"))),
        ];
        run.tools = vec![
            row("a", ToolClass::Effect, Some(tool_result("a"))),
            row("b", ToolClass::Effect, None),
            row("c", ToolClass::Read, Some(tool_result("c"))),
            row("d", ToolClass::Idempotent, None),
        ];
        assert_eq!(plan(&run, NOW), RecoveryPlan::Resume(vec![unknown("b", "t", NOW), tool_result("c")]));
    }

    #[test]
    fn aborted_old_interrupting_and_abandoned_runs_end() {
        let ended = |run: &UnfinishedRun| match plan(run, NOW) {
            RecoveryPlan::End(outcome, _) => outcome.error().unwrap().to_owned(),
            other @ (RecoveryPlan::Requeue
            | RecoveryPlan::Resume(_)
            | RecoveryPlan::Reenter
            | RecoveryPlan::Hold(_)
            | RecoveryPlan::StayHeld) => {
                panic!("{other:?}")
            }
        };
        let mut stopped = unfinished_run(RunState::Running);
        stopped.aborted = Some(AbortReason::User);
        assert_eq!(ended(&stopped), "aborted");
        let mut old = unfinished_run(RunState::Accepted);
        old.row.accepted_at = NOW - MAX_AGE_MS - 1;
        assert!(ended(&old).starts_with("INTERRUPTED"));
        let mut interrupting = unfinished_run(RunState::Running);
        interrupting.accept.options.on_restart = OnRestart::Interrupt;
        assert!(ended(&interrupting).starts_with("INTERRUPTED"));
        let mut abandoned = unfinished_run(RunState::Running);
        abandoned.entries = vec![entry(Message::User(User::text("next", 0))), assistant_entry(&[], StopReason::Stop)];
        assert!(ended(&abandoned).contains("continued without it"));
    }

    // D72
    #[test]
    fn only_a_run_that_was_active_at_every_crash_of_a_loop_is_held() {
        use ProcessEnd::{Crashed, Stopped};
        let minute = 60_000;
        let is_held = |state, starts: &[(u64, ProcessEnd)]| {
            let mut run = unfinished_run(state);
            run.row.accepted_at = NOW - 59 * minute;
            run.attempts = starts.iter().map(|&(ago, process)| attempt(NOW - ago, process)).collect();
            plan(&run, NOW) == RecoveryPlan::Hold(Vec::new())
        };
        let loop_of_three = [(30 * minute, Crashed), (2 * minute, Crashed), (minute, Crashed)];
        assert!(is_held(RunState::Running, &loop_of_three), "the first start may be long ago, the crashes are not");
        assert!(!is_held(RunState::Accepted, &[]));
        assert!(!is_held(RunState::Running, &loop_of_three[1..]), "two crashes");
        assert!(!is_held(RunState::Running, &[(3 * minute, Crashed), (2 * minute, Stopped), (minute, Crashed)]));
        let spread_out: Vec<_> = (1..=9).rev().map(|n| (n * 6 * minute, Crashed)).collect();
        assert!(!is_held(RunState::Running, &spread_out), "crashes that are far apart");
        let mut ten = spread_out;
        ten.insert(0, (58 * minute, Crashed));
        assert!(is_held(RunState::Running, &ten), "ten of them");
    }

    #[test]
    fn a_held_run_waits_a_day_and_a_released_one_starts_over() {
        let mut run = unfinished_run(RunState::Held);
        run.row.accepted_at = 0;
        run.row.hold = Some(Hold { held_at: NOW - 5, released_at: None, is_reentered: false });
        assert_eq!(plan(&run, NOW), RecoveryPlan::StayHeld);
        assert!(matches!(plan(&run, NOW + MAX_HOLD_MS), RecoveryPlan::End(Outcome::Failed(_), _)));
        run.row.state = RunState::Accepted;
        run.row.hold = Some(Hold { held_at: NOW - 5, released_at: Some(NOW - 1), is_reentered: false });
        assert_eq!(plan(&run, NOW), RecoveryPlan::Reenter);
        run.row.state = RunState::Running;
        run.row.hold = Some(Hold { held_at: NOW - 5, released_at: Some(NOW - 1), is_reentered: true });
        run.attempts = (1..=4).map(|ago| attempt(NOW - 2 - ago, ProcessEnd::Crashed)).collect();
        assert_eq!(plan(&run, NOW), RecoveryPlan::Resume(Vec::new()), "crashes before the release do not count");
    }
}
