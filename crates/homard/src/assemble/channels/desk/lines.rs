//! Queues of messages to submit to the hub: one per chat, so that no chat waits for the downloads of another.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::task::JoinSet;

use super::{Admitted, Desk, room};

/// Maximum messages that are submitted concurrently.
const AT_ONCE: usize = 16;

/// Messages waiting to be submitted, by chat.
#[derive(Default)]
pub(super) struct Lines {
    waiting: HashMap<String, VecDeque<Vec<Admitted>>>,
    /// Chats of which a message is being submitted.
    busy: HashSet<String>,
    /// Commands, which do not wait in a queue.
    urgent: Vec<Vec<Admitted>>,
    at_work: JoinSet<Option<String>>,
}

impl Lines {
    /// Adds a message at the end of its chat's queue.
    pub(super) fn put(&mut self, group: Vec<Admitted>) {
        let Some(first) = group.first() else { return };
        if first.is_control {
            self.urgent.push(group);
        } else {
            self.waiting.entry(room(&first.incoming)).or_default().push_back(group);
        }
    }

    /// Starts the submissions that are possible: one message per chat at a time.
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

    /// Waits until a submission ends. If its task panicked, its chat is unknown; its messages are still in the spool.
    /// Never returns while no submission is active.
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
