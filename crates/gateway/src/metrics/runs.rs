//! Run metrics, counted from the events on run tapes.

use homard_agent::{
    AbortReason, CompactionEvent, Outcome, QueueEvent, RequestEvent, RunEvent, StoredEvent, Tape, TapeEvent, ToolEvent,
};
use homard_proto::{CallId, message::Assistant};

use super::text::{DurationHistogram, LabelledTable, MetricsPage};

/// Counters of all runs.
#[derive(Debug)]
pub(super) struct RunMetrics {
    ended: LabelledTable<f64>,
    duration: LabelledTable<DurationHistogram>,
    queue_wait: LabelledTable<DurationHistogram>,
    calls: LabelledTable<f64>,
    first_token: LabelledTable<DurationHistogram>,
    model_duration: LabelledTable<DurationHistogram>,
    tokens: LabelledTable<f64>,
    cost: LabelledTable<f64>,
    retries: LabelledTable<f64>,
    failovers: LabelledTable<f64>,
    tools: LabelledTable<f64>,
    tool_duration: LabelledTable<DurationHistogram>,
    hooks: LabelledTable<f64>,
    compactions: LabelledTable<f64>,
    pub(super) deliveries: LabelledTable<f64>,
}

impl Default for RunMetrics {
    fn default() -> Self {
        Self {
            ended: LabelledTable::new(&["outcome"]),
            duration: LabelledTable::new(&[]),
            queue_wait: LabelledTable::new(&[]),
            calls: LabelledTable::new(&["provider", "outcome"]),
            first_token: LabelledTable::new(&["provider"]),
            model_duration: LabelledTable::new(&["provider"]),
            tokens: LabelledTable::new(&["provider", "kind"]),
            cost: LabelledTable::new(&["provider"]),
            retries: LabelledTable::new(&["provider"]),
            failovers: LabelledTable::new(&["provider", "reason"]),
            tools: LabelledTable::new(&["tool", "outcome"]),
            tool_duration: LabelledTable::new(&["tool"]),
            hooks: LabelledTable::new(&["decision"]),
            compactions: LabelledTable::new(&["outcome"]),
            deliveries: LabelledTable::new(&["channel", "state"]),
        }
    }
}

/// State that is needed to count one run.
#[derive(Debug, Default)]
pub(crate) struct RunProgress {
    accepted_at: u64,
    started_at: Option<u64>,
    /// Provider of the current model request, and its start time.
    request: Option<(String, u64)>,
    tools: Vec<(CallId, u64)>,
    /// True if its message was absorbed by another run.
    is_absorbed: bool,
}

impl RunProgress {
    pub(crate) fn new(tape: &Tape) -> Self {
        Self { accepted_at: tape.accepted_at(), ..Self::default() }
    }
}

impl RunMetrics {
    /// Counts an event of a run. `is_tool` returns true for names of existing tools.
    pub(super) fn observe(
        &mut self,
        progress: &mut RunProgress,
        TapeEvent { at, kind }: &TapeEvent,
        is_tool: impl Fn(&str) -> bool,
    ) {
        match kind {
            RunEvent::Stored(StoredEvent::Started { .. }) => {
                self.queue_wait.at(&[]).add_ms(at.saturating_sub(progress.accepted_at));
                progress.started_at = Some(*at);
            }
            RunEvent::Queue(QueueEvent::Absorbed { .. }) => progress.is_absorbed = true,
            RunEvent::Model(event) => self.observe_request(progress, *at, event),
            RunEvent::Stored(StoredEvent::Assistant { message, .. }) => self.observe_answer(progress, *at, message),
            RunEvent::Tool(ToolEvent::Started { call, .. }) => progress.tools.push((call.clone(), *at)),
            RunEvent::Stored(StoredEvent::ToolEnded { call, result, .. }) => {
                // A model may call a tool that does not exist.
                let name = if is_tool(&result.tool_name) { result.tool_name.as_str() } else { "unknown" };
                let outcome = if result.is_error { "error" } else { "ok" };
                *self.tools.at(&[name, outcome]) += 1.0;
                if let Some(index) = progress.tools.iter().position(|(started, _)| started == call) {
                    let (_, started_at) = progress.tools.swap_remove(index);
                    self.tool_duration.at(&[name]).add_ms(at.saturating_sub(started_at));
                }
            }
            RunEvent::HookDecision(hook) => *self.hooks.at(&[hook.decision.label()]) += 1.0,
            RunEvent::Stored(StoredEvent::Compacted { .. }) => *self.compactions.at(&["ok"]) += 1.0,
            RunEvent::Compaction(CompactionEvent::Failed { .. }) => *self.compactions.at(&["failed"]) += 1.0,
            RunEvent::Stored(StoredEvent::Ended(_)) if progress.is_absorbed => *self.ended.at(&["absorbed"]) += 1.0,
            RunEvent::Stored(StoredEvent::Ended(end)) => {
                *self.ended.at(&[outcome(&end.outcome)]) += 1.0;
                if let Some(started_at) = progress.started_at {
                    self.duration.at(&[]).add_ms(at.saturating_sub(started_at));
                }
            }
            RunEvent::Queue(
                QueueEvent::SlotWaited(_)
                | QueueEvent::DispositionChanged(_)
                | QueueEvent::Busy(_)
                | QueueEvent::Summarized(_),
            )
            | RunEvent::Stored(StoredEvent::Input(_))
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Tool(ToolEvent::Progress { .. })
            | RunEvent::Compaction(CompactionEvent::Started)
            | RunEvent::Reply(_) => {}
        }
    }

    fn observe_request(&mut self, progress: &mut RunProgress, at: u64, event: &RequestEvent) {
        match event {
            RequestEvent::Requested(request) => progress.request = Some((request.provider.clone(), at)),
            RequestEvent::FirstToken => {
                if let Some((provider, requested_at)) = &progress.request {
                    self.first_token.at(&[provider]).add_ms(at.saturating_sub(*requested_at));
                }
            }
            RequestEvent::Retrying { .. } => {
                let provider = progress.request.take().map_or_else(|| "unknown".to_owned(), |(provider, _)| provider);
                *self.calls.at(&[&provider, "error"]) += 1.0;
                *self.retries.at(&[&provider]) += 1.0;
            }
            RequestEvent::CandidateFailed { from, reason, .. } => {
                let provider = from.split('/').next().unwrap_or_default();
                if progress.request.take().is_some() {
                    *self.calls.at(&[provider, "error"]) += 1.0;
                }
                *self.failovers.at(&[provider, reason]) += 1.0;
            }
            RequestEvent::Changed { .. }
            | RequestEvent::NoResponse { .. }
            | RequestEvent::MessageReset { .. }
            | RequestEvent::AnswerDropped { .. } => {}
        }
    }

    fn observe_answer(&mut self, progress: &mut RunProgress, at: u64, message: &Assistant) {
        // Without a model request, the text was written by the gateway itself.
        let Some((provider, requested_at)) = progress.request.take() else { return };
        let outcome = if message.error_message.is_none() { "ok" } else { "error" };
        *self.calls.at(&[&provider, outcome]) += 1.0;
        self.model_duration.at(&[&provider]).add_ms(at.saturating_sub(requested_at));
        let usage = &message.usage;
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

    /// Counts a run whose records could not be stored.
    pub(super) fn run_broken(&mut self) {
        *self.ended.at(&["broken"]) += 1.0;
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.table("homard_runs_total", "Finished runs, by outcome.", &self.ended);
        page.durations("homard_run_seconds", "Duration of runs, without the time in the queue.", &self.duration);
        page.durations(
            "homard_queue_wait_seconds",
            "Time from accepting a message to the start of its run.",
            &self.queue_wait,
        );
        page.table("homard_model_calls_total", "Model requests.", &self.calls);
        page.durations(
            "homard_model_first_token_seconds",
            "Time to the first token of a model request.",
            &self.first_token,
        );
        page.durations("homard_model_call_seconds", "Duration of model requests.", &self.model_duration);
        page.table("homard_model_tokens_total", "Tokens by kind.", &self.tokens);
        page.table("homard_model_cost_dollars_total", "Cost of model requests, in US dollars.", &self.cost);
        page.table("homard_model_retries_total", "Model requests that failed and were retried.", &self.retries);
        page.table("homard_model_failovers_total", "Failovers to the next model candidate.", &self.failovers);
        page.table("homard_tool_calls_total", "Tool calls.", &self.tools);
        page.durations("homard_tool_seconds", "Duration of tool calls.", &self.tool_duration);
        page.table("homard_hook_decisions_total", "Hook decisions, including timeouts.", &self.hooks);
        page.table("homard_compactions_total", "Compactions, by outcome.", &self.compactions);
        page.table("homard_deliveries_total", "Channel deliveries, by outcome.", &self.deliveries);
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
