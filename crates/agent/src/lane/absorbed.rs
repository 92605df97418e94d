//! End of absorbed messages together with their host run.

use std::sync::Arc;

use homard_queue::inbox::Disposition;
use homard_store::RunState;

use super::{Lane, Ticket};
use crate::event::{RunEnd, StoredEvent};

impl Lane {
    /// Ends the messages absorbed by a run together with it. The store knows which of them were absorbed; the others
    /// are queued again for a turn of their own, unless they were stopped with the run.
    pub(super) async fn end_absorbed(&mut self, absorbed: Vec<Ticket>, end: &RunEnd) {
        let mut unanswered = Vec::new();
        for ticket in absorbed {
            match self.hub.store.run(&ticket.inbound.id.run).await.map(|row| row.map(|row| row.state)) {
                Ok(Some(RunState::Ended(_))) => {
                    // It was answered by the host run; later requests for its result get that answer.
                    let reply = Some(end.payloads().to_vec());
                    let is_summarized = ticket.tape.disposition() == Disposition::Summarized;
                    let end = RunEnd {
                        replies: Vec::new(),
                        complete_reply: reply,
                        usage: Default::default(),
                        is_summarized,
                        ..end.clone()
                    };
                    ticket.tape.emit_stored(end.ended_at, StoredEvent::Ended(Arc::new(end)));
                    self.hub.forget(&ticket.tape);
                }
                Ok(Some(RunState::Absorbed(_) | RunState::Held)) => {
                    ticket.tape.mark_broken("the result of the run that answered this message could not be stored");
                    self.hub.forget(&ticket.tape);
                }
                Ok(Some(RunState::Accepted | RunState::Running)) if ticket.reason.is_some() => {
                    self.end_unstarted_boxed(ticket).await;
                }
                Ok(Some(RunState::Accepted | RunState::Running)) => unanswered.push(ticket),
                Ok(None) => self.drop_rejected(&ticket),
                Err(error) => {
                    ticket.tape.mark_broken(&error.to_string());
                    self.hub.forget(&ticket.tape);
                }
            }
        }
        self.inbox.put_back(unanswered);
    }

    /// [`end_unstarted`](Self::end_unstarted) for a message whose end is part of another run's end: boxed, because the
    /// future would otherwise contain itself.
    fn end_unstarted_boxed(&mut self, ticket: Ticket) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.end_unstarted(ticket))
    }
}
