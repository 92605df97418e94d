//! Follows all runs: records what a gateway would send to its clients, and the events on the tapes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{
    Cursor, HubEvent, QueueEvent, ReplyEvent, RequestEvent, RunEvent, Tape, TapeEvent, delivery::DeliveryReport,
    wire::Projection,
};
use homard_proto::{RunId, event::AgentEvent};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::clock::TraceClock;

/// A recorded run.
#[derive(Debug)]
pub(crate) struct RecordedRun {
    pub(crate) tape: Arc<Tape>,
    /// Hub lifetime, from 0.
    pub(crate) lifetime: usize,
    /// Events of the tape, in order.
    pub(crate) events: Vec<TapeEvent>,
    cursor: Cursor,
    projection: Projection,
    /// Arrival time of the first text that was not emitted yet.
    text_since: Option<Duration>,
}

/// A payload for clients.
#[derive(Debug)]
pub(crate) struct RecordedPayload {
    /// Time of arrival since the beginning.
    pub(crate) at: Duration,
    /// Its run: an index into [`RunLog::runs`].
    pub(crate) run: usize,
    pub(crate) payload: AgentEvent,
}

/// Everything that was recorded.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    pub(crate) runs: Vec<RecordedRun>,
    pub(crate) payloads: Vec<RecordedPayload>,
    /// Tape events that clients do not receive: time, number of payloads before, run, and text.
    pub(crate) tape_only: Vec<(Duration, usize, usize, String)>,
    /// Results of deliveries, with the time when they were published.
    pub(crate) delivered: Vec<(Duration, DeliveryReport)>,
    /// Times of restarts, with the number of payloads before.
    pub(crate) restarts: Vec<(Duration, usize)>,
}

impl RunLog {
    fn record(&mut self, at: Duration, tape: Arc<Tape>) {
        let lifetime = self.restarts.len();
        let known = self.runs.iter().position(|recorded_run| Arc::ptr_eq(&recorded_run.tape, &tape));
        let run = known.unwrap_or_else(|| {
            let (cursor, projection) = (Cursor::default(), Projection::new(tape.run(), tape.key()));
            self.runs.push(RecordedRun { tape, lifetime, events: Vec::new(), cursor, projection, text_since: None });
            self.runs.len() - 1
        });
        let recorded_run = &mut self.runs[run];
        for event in recorded_run.tape.read(&mut recorded_run.cursor) {
            recorded_run.events.push(event.clone());
            if let Some(text) = format_tape_only(&event.kind) {
                self.tape_only.push((at, self.payloads.len(), run, text));
            }
            let payloads = recorded_run.projection.push(event);
            // Buffered text goes first, with its own time.
            let mut time = recorded_run.text_since.filter(|_| !payloads.is_empty()).unwrap_or(at);
            for payload in payloads {
                self.payloads.push(RecordedPayload { at: time, run, payload });
                time = at;
            }
            recorded_run.text_since = recorded_run.projection.has_text().then(|| recorded_run.text_since.unwrap_or(at));
        }
    }

    /// The hub is gone: reads the remaining events of its runs.
    pub(crate) fn restart(&mut self, at: Duration) {
        let lifetime = self.restarts.len();
        let last: Vec<_> = self
            .runs
            .iter()
            .filter(|recorded_run| recorded_run.lifetime == lifetime)
            .map(|recorded_run| recorded_run.tape.clone())
            .collect();
        last.into_iter().for_each(|tape| self.record(at, tape));
        self.flush();
        self.restarts.push((at, self.payloads.len()));
    }

    fn flush(&mut self) {
        for (run, recorded_run) in self.runs.iter_mut().enumerate() {
            if let (Some(at), Some(payload)) = (recorded_run.text_since.take(), recorded_run.projection.flush()) {
                self.payloads.push(RecordedPayload { at, run, payload });
            }
        }
    }

    fn has_text(&self) -> bool {
        self.runs.iter().any(|recorded_run| recorded_run.text_since.is_some())
    }
}

/// Formats events that clients do not receive, but that are useful in a snapshot.
fn format_tape_only(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Queue(QueueEvent::SlotWaited(time)) => Some(format!("waited {}ms for a slot", time.as_millis())),
        RunEvent::Queue(QueueEvent::Summarized(runs)) => Some(format!("summarizes {}", names(runs))),
        RunEvent::Queue(QueueEvent::Absorbed { by }) => Some(format!("absorbed by {by}")),
        RunEvent::Model(RequestEvent::MessageReset { message }) => Some(format!("message {message} is void")),
        RunEvent::Reply(ReplyEvent::Block(block)) => Some(format!("block {:?}", block.text)),
        RunEvent::Stored(_)
        | RunEvent::Queue(QueueEvent::DispositionChanged(_) | QueueEvent::Busy(_))
        | RunEvent::Model(
            RequestEvent::Changed { .. }
            | RequestEvent::Retrying { .. }
            | RequestEvent::CandidateFailed { .. }
            | RequestEvent::Requested(_)
            | RequestEvent::FirstToken
            | RequestEvent::NoResponse { .. }
            | RequestEvent::AnswerDropped { .. },
        )
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Tool(_)
        | RunEvent::Compaction(_)
        | RunEvent::HookDecision(_)
        | RunEvent::Reply(ReplyEvent::Withheld(_)) => None,
    }
}

fn names(runs: &[RunId]) -> String {
    runs.iter().map(RunId::as_str).collect::<Vec<_>>().join(" ")
}

/// A log that outlives the tasks that write it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedRunLog(Arc<Mutex<RunLog>>);

impl SharedRunLog {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RunLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows all runs until stopped. Text of one instant is emitted together, so that the log does not depend on the
    /// order in which tasks are polled.
    pub(crate) async fn follow(
        self,
        mut feed: mpsc::UnboundedReceiver<HubEvent>,
        clock: TraceClock,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let has_text = self.lock().has_text();
            tokio::select! {
                biased;
                Some(event) = feed.recv() => match event {
                    HubEvent::Run(tape) => self.lock().record(clock.now(), tape),
                    HubEvent::Delivery(report) => self.lock().delivered.push((clock.now(), *report)),
                },
                () = sleep(Duration::from_millis(1)), if has_text => self.lock().flush(),
                // A dropped sender also means that it is over.
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}
