//! A message while it waits ([`Ticket`]), and once its run is active ([`ActiveRun`]).

use std::sync::Arc;

use homard_command::Command;
use homard_delivery::run_output::RunOutput;
use homard_proto::{EntryId, RunId, SessionId, message::ToolResult};
use homard_queue::settings::QueueSettings;
use homard_store::{DeliveryRow, Hold};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{output, start::ResumeState};
use crate::{
    event::AbortReason,
    hub::{Admission, Inbound},
    run::SharedFlag,
    tape::{Acceptance, Tape},
    writer::CommitWriter,
};

/// A message in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) inbound: Inbound,
    pub(super) tape: Arc<Tape>,
    pub(super) acceptance: Acceptance,
    pub(super) cancel: CancellationToken,
    pub(super) reason: Option<AbortReason>,
    /// Queue settings; `None` for a request that always gets a run of its own.
    pub(super) settings: Option<QueueSettings>,
    /// Start of the wait; cleared once its sender got a busy event.
    pub(super) waits_since: Option<Instant>,
    /// Recovered messages that its run had absorbed before the restart.
    absorbed: Vec<Self>,
    /// True if the message was on disk before this process started.
    pub(super) is_recovered: bool,
    /// Set for a run that was active at the restart, until it is resumed.
    pub(super) resume: Option<ResumeState>,
    pub(super) is_resumed: bool,
    /// Set for a run that was held and released.
    pub(super) reentry: Option<Hold>,
    /// Deliveries of its run from before a restart.
    pub(super) earlier_deliveries: Vec<DeliveryRow>,
}

/// A run that was taken from the queue, until it has ended.
#[derive(Debug)]
pub(super) struct ActiveRun {
    pub(super) ticket: Ticket,
    /// Text for the model, if other messages are merged into this one.
    pub(super) prompt: Option<String>,
    /// Messages absorbed by the run.
    pub(super) absorbed: Vec<Ticket>,
    pub(super) progress: RunProgress,
    /// True if system events were added to its prompt.
    pub(super) has_events: bool,
    /// True while the run compacts the context.
    pub(super) compacting: SharedFlag,
    /// Cancelled when another request waits for the run to end.
    pub(super) hurry: CancellationToken,
    /// Channel output of the run, once opened.
    pub(super) output: Option<Arc<RunOutput>>,
    /// Messages of hooks to be sent with the answer.
    pub(super) hook_messages: Vec<String>,
}

/// What the lane knows about a run's transcript.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// Transcript of the run, once it has started.
    pub(super) session: Option<SessionId>,
    /// Entry of its message in that transcript, once it started in this process.
    pub(super) input_entry: Option<EntryId>,
    /// Times of its earlier starts, in other processes.
    pub(super) earlier_starts: Vec<u64>,
    /// Number of assistant messages before the restart.
    pub(super) prior_answers: u32,
    /// Known results for open calls of the last one.
    pub(super) known_results: Vec<ToolResult>,
}

impl Ticket {
    /// A new message.
    pub(crate) fn new(
        inbound: Inbound,
        tape: Arc<Tape>,
        admit: watch::Sender<Admission>,
        stopping: &CancellationToken,
    ) -> Self {
        Self {
            inbound,
            tape,
            acceptance: Acceptance::new(admit),
            cancel: stopping.child_token(),
            reason: None,
            settings: None,
            waits_since: None,
            absorbed: Vec::new(),
            is_recovered: false,
            resume: None,
            is_resumed: false,
            reentry: None,
            earlier_deliveries: Vec::new(),
        }
    }

    /// Marks a run that was active when the process ended.
    pub(crate) fn resuming(mut self, resume: ResumeState) -> Self {
        // A command that is answered at once starts no run, so text that looks like one was meant literally: the bare
        // word "stop" is a command only while a run is active.
        if self.is_control(true) {
            self.inbound.command = None;
        }
        self.reentry = resume.reentry;
        self.resume = Some(resume);
        self.is_resumed = true;
        self
    }

    /// Sets the run's deliveries from before a restart.
    pub(crate) fn with_deliveries(self, deliveries: Vec<DeliveryRow>) -> Self {
        Self { earlier_deliveries: deliveries, ..self }
    }

    /// Adds recovered runs that were absorbed by this one.
    pub(crate) fn host(&mut self, absorbed: impl IntoIterator<Item = Self>) {
        self.absorbed.extend(absorbed);
    }

    /// Marks a recovered message.
    pub(crate) fn recovered(mut self) -> Self {
        self.is_recovered = true;
        self.acceptance = self.acceptance.recovered();
        self
    }

    /// True if the message is known to be rejected.
    pub(super) fn is_refused(&self) -> bool {
        self.acceptance.is_rejected()
    }

    /// Queues the message for the writer, if not done yet.
    pub(super) fn accept(&mut self, writer: &CommitWriter) {
        self.acceptance.send(&self.tape, writer);
    }

    /// Waits for the message's admission. Returns true if it was accepted.
    pub(super) async fn is_admitted(&self) -> bool {
        self.acceptance.is_admitted().await
    }

    /// Returns the fixed answer of a command that needs no model.
    pub(super) fn fixed_reply(&self) -> Option<&'static str> {
        self.inbound.command.as_ref().and_then(Command::fixed_reply)
    }

    /// Cancels the run; the first reason counts.
    pub(super) fn stop(&mut self, reason: AbortReason) {
        self.reason.get_or_insert(reason);
        self.cancel.cancel();
    }
}

impl From<Ticket> for ActiveRun {
    fn from(mut ticket: Ticket) -> Self {
        let absorbed = std::mem::take(&mut ticket.absorbed);
        Self {
            ticket,
            prompt: None,
            absorbed,
            progress: RunProgress::default(),
            has_events: false,
            compacting: SharedFlag::default(),
            hurry: CancellationToken::new(),
            output: None,
            hook_messages: Vec::new(),
        }
    }
}

impl ActiveRun {
    /// Id of the run.
    pub(super) fn run(&self) -> &RunId {
        &self.ticket.inbound.id.run
    }

    /// Cancels the run; the first reason counts.
    pub(super) fn stop(&mut self, reason: AbortReason) {
        let reason = *self.ticket.reason.get_or_insert(reason);
        if let Some(output) = self.output.as_ref().filter(|_| output::is_unwanted(reason)) {
            output.abort();
        }
        self.ticket.cancel.cancel();
    }
}
