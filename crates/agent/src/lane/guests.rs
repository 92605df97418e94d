//! What becomes of messages that a run answered beside its own, when it is over.

use std::sync::Arc;

use homard_store::RunState;

use super::{Lane, Queued, inbox::Placed};
use crate::event::{End, RunEvent};

impl Lane {
    /// Ends the guests of a run together with it. The store knows which of them became a part of it: the others are
    /// still messages, and get a turn of their own, unless somebody stopped them with it.
    pub(super) async fn see_off(&mut self, guests: Vec<Queued>, end: &End) {
        let mut left = Vec::new();
        for guest in guests {
            match self.hub.store.run(&guest.inbound.run).await.map(|row| row.map(|row| row.state)) {
                Ok(Some(RunState::Ended(_))) => {
                    // It is answered with the run, and whoever asks for it later gets that answer.
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

    /// [`turn_down`](Self::turn_down), for one whose end is a part of another's.
    fn decline(&mut self, guest: Queued) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.turn_down(guest))
    }
}
