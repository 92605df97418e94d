//! End of absorbed messages together with their host run.

use homard_queue::inbox::Disposition;
use homard_store::RunState;

use super::{Lane, Ticket};
use crate::{event::RunEnd, tape::stored::run_row};

/// Ends the messages absorbed by a run together with it. The store knows which of them were absorbed; the others
/// are queued again for a run of their own, unless they were stopped with the run.
pub(super) async fn end_absorbed(lane: &mut Lane, absorbed: Vec<Ticket>, end: &RunEnd) {
    let mut unanswered = Vec::new();
    for ticket in absorbed {
        let row = match run_row(&*lane.hub.store, &ticket.inbound.id.run).await {
            Ok(Some(row)) => row,
            Ok(None) => {
                lane.drop_rejected(&ticket);
                continue;
            }
            Err(error) => {
                ticket.tape.mark_broken(&error.to_string());
                lane.hub.forget(&ticket.tape);
                continue;
            }
        };
        match &row.state {
            RunState::Ended(_) => {
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
                let at = end.ended_at;
                if let Some(ended) = row.ended(end) {
                    ticket.tape.emit_stored(at, ended);
                }
                lane.hub.forget(&ticket.tape);
            }
            RunState::Absorbed(_) | RunState::Held => {
                ticket.tape.mark_broken("the result of the run that answered this message could not be stored");
                lane.hub.forget(&ticket.tape);
            }
            RunState::Accepted | RunState::Running if ticket.reason.is_some() => {
                end_unstarted_boxed(lane, ticket).await;
            }
            RunState::Accepted | RunState::Running => unanswered.push(ticket),
        }
    }
    lane.inbox.put_back(unanswered);
}

/// [`Lane::end_unstarted`] for a message whose end is part of another run's end: boxed, because the future would
/// otherwise contain itself.
fn end_unstarted_boxed(lane: &mut Lane, ticket: Ticket) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>> {
    Box::pin(lane.end_unstarted(ticket))
}
