//! End of absorbed messages together with their host run.

use std::sync::Arc;

use homard_store::RunState;

use super::{Lane, Queued, inbox::Placed};
use crate::event::{End, RunEvent};

impl Lane {
    /// Ends the messages absorbed by a run together with it. The store knows which of them were absorbed; the others
    /// are queued again for a turn of their own, unless they were stopped with the run.
    pub(super) async fn see_off(&mut self, guests: Vec<Queued>, end: &End) {
        let mut left = Vec::new();
        for guest in guests {
            match self.hub.store.run(&guest.inbound.run).await.map(|row| row.map(|row| row.state)) {
                Ok(Some(RunState::Ended(_))) => {
                    // It was answered by the host run; later requests for its result get that answer.
                    let whole = Some(end.payloads().to_vec());
                    let is_summarized = guest.tape.placed() == Placed::Summarized;
                    let end =
                        End { replies: Vec::new(), whole, usage: Default::default(), is_summarized, ..end.clone() };
                    guest.tape.pass(end.ended_at, RunEvent::Ended(Arc::new(end)));
                    self.hub.forget(&guest.tape);
                }
                Ok(Some(RunState::Absorbed(_) | RunState::Held)) => {
                    guest.tape.break_off("the end of the run that it became a part of could not be stored");
                    self.hub.forget(&guest.tape);
                }
                Ok(Some(RunState::Accepted | RunState::Running)) if guest.reason.is_some() => {
                    self.decline(guest).await;
                }
                Ok(Some(RunState::Accepted | RunState::Running)) => left.push(guest),
                Ok(None) => self.never_was(&guest),
                Err(error) => {
                    guest.tape.break_off(&error.to_string());
                    self.hub.forget(&guest.tape);
                }
            }
        }
        self.inbox.put_back(left);
    }

    /// [`turn_down`](Self::turn_down) for a message whose end is part of another run's end.
    fn decline(&mut self, guest: Queued) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.turn_down(guest))
    }
}
