//! Run metrics, counted from the events on run tapes.

use homard_agent::{AbortReason, Event, Outcome, RunEvent, Tape};
use homard_proto::CallId;

use super::text::{Durations, MetricsPage, Table};

/// Counters of all runs.
#[derive(Debug)]
pub(super) struct Runs {
    ended: Table<f64>,
    took: Table<Durations>,
    waited: Table<Durations>,
    calls: Table<f64>,
    first: Table<Durations>,
    answered: Table<Durations>,
    tokens: Table<f64>,
    cost: Table<f64>,
    retries: Table<f64>,
    failovers: Table<f64>,
    tools: Table<f64>,
    tool_took: Table<Durations>,
    hooks: Table<f64>,
    compactions: Table<f64>,
    pub(super) deliveries: Table<f64>,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            ended: Table::new(&["outcome"]),
            took: Table::new(&[]),
            waited: Table::new(&[]),
            calls: Table::new(&["provider", "outcome"]),
            first: Table::new(&["provider"]),
            answered: Table::new(&["provider"]),
            tokens: Table::new(&["provider", "kind"]),
            cost: Table::new(&["provider"]),
            retries: Table::new(&["provider"]),
            failovers: Table::new(&["provider", "reason"]),
            tools: Table::new(&["tool", "outcome"]),
            tool_took: Table::new(&["tool"]),
            hooks: Table::new(&["decision"]),
            compactions: Table::new(&["outcome"]),
            deliveries: Table::new(&["channel", "state"]),
        }
    }
}

/// State that is needed to count one run.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    accepted_at: u64,
    began_at: Option<u64>,
    /// Provider of the current model request, and its start time.
    asked: Option<(String, u64)>,
    tools: Vec<(CallId, u64)>,
    /// True if its message was absorbed by another run.
    is_guest: bool,
}

impl Watch {
    pub(crate) fn new(tape: &Tape) -> Self {
        Self { accepted_at: tape.accepted_at(), ..Self::default() }
    }
}

impl Runs {
    /// Counts an event of a run. `knows` returns true for names of existing tools.
    pub(super) fn see(&mut self, watch: &mut Watch, Event { at, kind }: &Event, knows: impl Fn(&str) -> bool) {
        match kind {
            RunEvent::Started { .. } => {
                self.waited.at(&[]).add_ms(at.saturating_sub(watch.accepted_at));
                watch.began_at = Some(*at);
            }
            RunEvent::Absorbed { .. } => watch.is_guest = true,
            RunEvent::Asking(asked) => watch.asked = Some((asked.provider.clone(), *at)),
            RunEvent::Heard => {
                if let Some((provider, since)) = &watch.asked {
                    self.first.at(&[provider]).add_ms(at.saturating_sub(*since));
                }
            }
            RunEvent::Assistant { said, .. } => {
                // Without a model request, the text was written by the gateway itself.
                let Some((provider, since)) = watch.asked.take() else { return };
                let outcome = if said.error_message.is_none() { "ok" } else { "error" };
                *self.calls.at(&[&provider, outcome]) += 1.0;
                self.answered.at(&[&provider]).add_ms(at.saturating_sub(since));
                let usage = &said.usage;
                let kinds = [
                    ("input", usage.input),
                    ("output", usage.output),
                    ("cache_read", usage.cache_read),
                    ("cache_write", usage.cache_write),
                ];
                for (kind, count) in kinds {
                    *self.tokens.at(&[&provider, kind]) += count as f64;
                }
                *self.cost.at(&[&provider]) += usage.cost.total;
            }
            RunEvent::Retrying { .. } => {
                let provider = watch.asked.take().map_or_else(|| "unknown".to_owned(), |(provider, _)| provider);
                *self.calls.at(&[&provider, "error"]) += 1.0;
                *self.retries.at(&[&provider]) += 1.0;
            }
            RunEvent::Switched { from, reason, .. } => {
                let provider = from.split('/').next().unwrap_or_default();
                if watch.asked.take().is_some() {
                    *self.calls.at(&[provider, "error"]) += 1.0;
                }
                *self.failovers.at(&[provider, reason]) += 1.0;
            }
            RunEvent::ToolStarted { call, .. } => watch.tools.push((call.clone(), *at)),
            RunEvent::ToolEnded { call, result, .. } => {
                // A model may call a tool that does not exist.
                let name = if knows(&result.tool_name) { result.tool_name.as_str() } else { "unknown" };
                let outcome = if result.is_error { "error" } else { "ok" };
                *self.tools.at(&[name, outcome]) += 1.0;
                if let Some(place) = watch.tools.iter().position(|(begun, _)| begun == call) {
                    let (_, since) = watch.tools.swap_remove(place);
                    self.tool_took.at(&[name]).add_ms(at.saturating_sub(since));
                }
            }
            RunEvent::Hooked(note) => *self.hooks.at(&[note.decision.word()]) += 1.0,
            RunEvent::Compacted { .. } => *self.compactions.at(&["ok"]) += 1.0,
            RunEvent::NotCompacted { .. } => *self.compactions.at(&["failed"]) += 1.0,
            RunEvent::Ended(_) if watch.is_guest => *self.ended.at(&["absorbed"]) += 1.0,
            RunEvent::Ended(end) => {
                *self.ended.at(&[outcome(&end.outcome)]) += 1.0;
                if let Some(began_at) = watch.began_at {
                    self.took.at(&[]).add_ms(at.saturating_sub(began_at));
                }
            }
            RunEvent::Waited(_)
            | RunEvent::Placed(_)
            | RunEvent::Busy(_)
            | RunEvent::Summarized(_)
            | RunEvent::Input(_)
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::Discarded { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Compacting
            | RunEvent::Withheld(_)
            | RunEvent::Block(_) => {}
        }
    }

    /// Counts a run whose records could not be stored.
    pub(super) fn broke(&mut self) {
        *self.ended.at(&["broken"]) += 1.0;
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.table("homard_runs_total", "Runs that are over, by how they ended.", &self.ended);
        page.durations("homard_run_seconds", "How long runs took, from their beginning.", &self.took);
        page.durations("homard_queue_wait_seconds", "How long messages waited for their run to begin.", &self.waited);
        page.table("homard_model_calls_total", "Calls of models.", &self.calls);
        page.durations("homard_model_first_token_seconds", "How long until a model began to answer.", &self.first);
        page.durations("homard_model_call_seconds", "How long models took to answer.", &self.answered);
        page.table("homard_model_tokens_total", "Tokens by kind.", &self.tokens);
        page.table("homard_model_cost_dollars_total", "What calls of models cost, in US dollars.", &self.cost);
        page.table("homard_model_retries_total", "Calls that failed and were made again.", &self.retries);
        page.table("homard_model_failovers_total", "How often the next model was asked instead.", &self.failovers);
        page.table("homard_tool_calls_total", "Calls of tools.", &self.tools);
        page.durations("homard_tool_seconds", "How long tools took.", &self.tool_took);
        page.table("homard_hook_decisions_total", "What hooks decided, also by not answering in time.", &self.hooks);
        page.table("homard_compactions_total", "Conversations that were made short.", &self.compactions);
        page.table("homard_deliveries_total", "What became of messages for channels.", &self.deliveries);
    }
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "ok",
        Outcome::Failed(_) => "failed",
        Outcome::Aborted(AbortReason::User | AbortReason::Stop) => "aborted",
        Outcome::Aborted(AbortReason::Timeout) => "timeout",
        Outcome::Aborted(AbortReason::Interrupted) => "interrupted",
        Outcome::Aborted(AbortReason::Dropped) => "dropped",
    }
}
