//! What waits to be handed over to the hub: one line a conversation, so that nobody waits for somebody else's files.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::task::JoinSet;

use super::{Admitted, Desk, room};

/// How many messages are on their way to the hub at once.
const AT_ONCE: usize = 16;

/// What waits to be handed over, by conversation.
#[derive(Default)]
pub(super) struct Lines {
    waiting: HashMap<String, VecDeque<Vec<Admitted>>>,
    /// The conversations of which a message is on its way.
    busy: HashSet<String>,
    /// Commands, which wait for nobody.
    urgent: Vec<Vec<Admitted>>,
    at_work: JoinSet<Option<String>>,
}

impl Lines {
    /// Puts a message at the end of its conversation's line.
    pub(super) fn put(&mut self, group: Vec<Admitted>) {
        let Some(first) = group.first() else { return };
        if first.is_control {
            self.urgent.push(group);
        } else {
            self.waiting.entry(room(&first.incoming)).or_default().push_back(group);
        }
    }

    /// Hands over what may go: one message of a conversation at a time.
    pub(super) fn start(&mut self, desk: &Arc<Desk>) {
        for group in self.urgent.drain(..) {
            let desk = desk.clone();
            self.at_work.spawn(async move {
                desk.bring(group).await;
                None
            });
        }
        let free: Vec<_> = self.waiting.keys().filter(|room| !self.busy.contains(*room)).cloned().collect();
        for room in free {
            if self.busy.len() >= AT_ONCE {
                return;
            }
            let Some(line) = self.waiting.get_mut(&room) else { continue };
            let group = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&room);
            }
            if let Some(group) = group {
                let desk = desk.clone();
                self.busy.insert(room.clone());
                self.at_work.spawn(async move {
                    desk.bring(group).await;
                    Some(room)
                });
            }
        }
    }

    /// Waits until one was handed over. If that broke, nobody knows which, and what it held is in the spool. Never returns
    /// while none is on its way.
    pub(super) async fn ended(&mut self) {
        match self.at_work.join_next().await {
            Some(Ok(Some(room))) => drop(self.busy.remove(&room)),
            Some(Ok(None)) => {}
            Some(Err(_)) => {
                tracing::error!("a message could not be handed over; it is taken up at the next start");
                if self.at_work.is_empty() {
                    self.busy.clear();
                }
            }
            None => std::future::pending().await,
        }
    }
}
