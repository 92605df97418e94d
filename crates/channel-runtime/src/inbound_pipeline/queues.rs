//! Queues of messages to submit to the hub: one per chat, so that no chat waits for the downloads of another.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::task::JoinSet;

use super::{AdmittedMessage, InboundPipeline, chat_key};

/// Maximum messages that are submitted concurrently.
const MAX_CONCURRENT: usize = 16;

/// Messages waiting to be submitted, by chat.
#[derive(Default)]
pub(super) struct SubmitQueues {
    waiting: HashMap<String, VecDeque<Vec<AdmittedMessage>>>,
    /// Chats of which a message is being submitted.
    busy: HashSet<String>,
    /// Commands, which do not wait in a queue.
    urgent: Vec<Vec<AdmittedMessage>>,
    submissions: JoinSet<Option<String>>,
}

impl SubmitQueues {
    /// Adds a message at the end of its chat's queue.
    pub(crate) fn push(&mut self, group: Vec<AdmittedMessage>) {
        let Some(first) = group.first() else { return };
        if first.is_control {
            self.urgent.push(group);
        } else {
            self.waiting.entry(chat_key(&first.incoming)).or_default().push_back(group);
        }
    }

    /// Starts the submissions that are possible: one message per chat at a time.
    pub(crate) fn start(&mut self, pipeline: &Arc<InboundPipeline>) {
        for group in self.urgent.drain(..) {
            let pipeline = pipeline.clone();
            self.submissions.spawn(async move {
                pipeline.submit_group(group).await;
                None
            });
        }
        let free: Vec<_> = self.waiting.keys().filter(|chat| !self.busy.contains(*chat)).cloned().collect();
        for chat in free {
            if self.busy.len() >= MAX_CONCURRENT {
                return;
            }
            let Some(line) = self.waiting.get_mut(&chat) else { continue };
            let group = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&chat);
            }
            if let Some(group) = group {
                let pipeline = pipeline.clone();
                self.busy.insert(chat.clone());
                self.submissions.spawn(async move {
                    pipeline.submit_group(group).await;
                    Some(chat)
                });
            }
        }
    }

    /// Waits until a submission ends. If its task panicked, its chat is unknown; its messages are still in the spool.
    /// Never returns while no submission is active.
    pub(super) async fn next_finished(&mut self) {
        match self.submissions.join_next().await {
            Some(Ok(Some(chat))) => drop(self.busy.remove(&chat)),
            Some(Ok(None)) => {}
            Some(Err(_)) => {
                tracing::error!("failed to submit a message; retrying at the next start");
                if self.submissions.is_empty() {
                    self.busy.clear();
                }
            }
            None => std::future::pending().await,
        }
    }
}
