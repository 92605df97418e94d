//! Informs the sender of a chat message that it is queued, steered into the active run, or summarized: by a reaction on
//! the message or a short line. Best effort: the message itself is safe in the queue.

use std::{sync::Arc, time::Duration};

use homard_agent::{QueueEvent, RunEvent, StoredEvent, Subscriber, Tape, activity::Busy};
use homard_channels::{Channel, ChannelAction, Destination, Outgoing};
use homard_queue::Disposition;
use homard_runtime::task;
use homard_settings::messages::QueueStatus;
use tokio_util::sync::CancellationToken;

/// The message whose sender is informed.
#[derive(Debug, Clone)]
pub(super) struct StatusTarget {
    pub destination: Destination,
    pub message: String,
}

/// An update for the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StatusUpdate {
    /// Replaces the current reaction; `None` removes it.
    React(Option<&'static str>),
    /// Sends this line.
    Send(String),
}

/// Follows a run from its acceptance to its end and reports the message's queue status to its sender.
pub(crate) fn show(
    channel: Arc<dyn Channel>,
    target: StatusTarget,
    mode: QueueStatus,
    tape: Arc<Tape>,
    stop: CancellationToken,
) {
    if mode == QueueStatus::Off {
        return;
    }
    let mut status = QueueStatusTracker { mode, has_reactions: channel.capabilities().has_reactions, shown: None };
    let first = status.disposition_changed(tape.disposition());
    // Ends with the run.
    drop(task::spawn("queue status", async move {
        let run = tape.run().clone();
        let mut subscriber = Subscriber::new(tape);
        let (mut updates, mut sent) = (Vec::from_iter(first), 0);
        loop {
            for update in updates.drain(..) {
                sent += 1;
                let result = match update {
                    StatusUpdate::React(emoji) => {
                        let (destination, message) = (target.destination.clone(), target.message.clone());
                        channel
                            .perform(ChannelAction::React { destination, message, emoji: emoji.map(str::to_owned) })
                            .await
                    }
                    StatusUpdate::Send(text) => {
                        let line = Outgoing {
                            id: format!("{run}-status-{sent}"),
                            destination: target.destination.clone(),
                            reply_to: Some(target.message.clone()),
                            text,
                            is_silent: true,
                            ..Outgoing::default()
                        };
                        channel.send(line).await
                    }
                };
                if let Err(failure) = result {
                    tracing::debug!(%run, %failure, "failed to send the queue status");
                }
            }
            let events = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                events = subscriber.next() => events,
            };
            let Some(events) = events else { return };
            updates.extend(events.iter().filter_map(|event| status.apply(&event.kind)));
        }
    }));
}

/// What the sender has been shown so far.
#[derive(Debug)]
struct QueueStatusTracker {
    mode: QueueStatus,
    has_reactions: bool,
    /// The current reaction on the message.
    shown: Option<&'static str>,
}

impl QueueStatusTracker {
    fn apply(&mut self, event: &RunEvent) -> Option<StatusUpdate> {
        match event {
            RunEvent::Queue(QueueEvent::DispositionChanged(disposition)) => self.disposition_changed(*disposition),
            RunEvent::Queue(QueueEvent::Busy(busy)) => Some(StatusUpdate::Send(busy_line(busy))),
            RunEvent::Stored(StoredEvent::Started { .. } | StoredEvent::Ended(_)) => self.react(None),
            RunEvent::Queue(QueueEvent::SlotWaited(_) | QueueEvent::Summarized(_) | QueueEvent::Absorbed { .. })
            | RunEvent::Model(_)
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Stored(
                StoredEvent::Input(_)
                | StoredEvent::Assistant { .. }
                | StoredEvent::ToolEnded { .. }
                | StoredEvent::Compacted { .. },
            )
            | RunEvent::Tool(_)
            | RunEvent::HookDecision(_)
            | RunEvent::Compaction(_)
            | RunEvent::Reply(_) => None,
        }
    }

    fn disposition_changed(&mut self, disposition: Disposition) -> Option<StatusUpdate> {
        // Telegram supports few reactions; these are among them.
        let (emoji, line) = match disposition {
            Disposition::Steered => ("👀", "The active run reads this message next.".to_owned()),
            Disposition::Queued(position) | Disposition::Collected(position) => {
                ("😴", format!("Queued, position {position}."))
            }
            Disposition::Summarized => (
                "🤷",
                "Too many messages are queued: the agent gets a summary of this one instead of its text.".to_owned(),
            ),
            Disposition::Started | Disposition::Interrupted | Disposition::Rejected => return self.react(None),
        };
        match self.mode {
            QueueStatus::Reaction => self.react(Some(emoji)),
            QueueStatus::Text => Some(StatusUpdate::Send(line)),
            QueueStatus::Off => None,
        }
    }

    /// Returns the reaction to set, unless it is already shown or unsupported.
    fn react(&mut self, emoji: Option<&'static str>) -> Option<StatusUpdate> {
        let is_new = self.has_reactions && self.shown != emoji;
        self.shown = emoji;
        is_new.then_some(StatusUpdate::React(emoji))
    }
}

fn busy_line(busy: &Busy) -> String {
    let seconds = |time: Duration| time.as_secs();
    format!("Still busy: {} for {} s. This message waits for its turn.", busy.activity, seconds(busy.lasts))
}

#[cfg(test)]
mod tests {
    use homard_agent::activity::Activity;
    use homard_proto::{RunId, SessionId};

    use super::*;

    fn status(mode: QueueStatus, has_reactions: bool) -> QueueStatusTracker {
        QueueStatusTracker { mode, has_reactions, shown: None }
    }

    #[test]
    fn a_reaction_follows_the_queue_position_and_is_removed_at_the_start() {
        let mut status = status(QueueStatus::Reaction, true);
        assert_eq!(status.disposition_changed(Disposition::Started), None);
        assert_eq!(status.disposition_changed(Disposition::Steered), Some(StatusUpdate::React(Some("👀"))));
        assert_eq!(
            status.apply(&RunEvent::Queue(QueueEvent::DispositionChanged(Disposition::Queued(2)))),
            Some(StatusUpdate::React(Some("😴")))
        );
        assert_eq!(status.apply(&RunEvent::Queue(QueueEvent::DispositionChanged(Disposition::Collected(1)))), None);
        let started = RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() });
        assert_eq!(status.apply(&started), Some(StatusUpdate::React(None)));
        assert_eq!(status.apply(&started), None);
    }

    #[test]
    fn a_message_that_another_run_reads_keeps_its_reaction_until_the_end() {
        let mut status = status(QueueStatus::Reaction, true);
        status.disposition_changed(Disposition::Steered);
        assert_eq!(status.apply(&RunEvent::Queue(QueueEvent::Absorbed { by: RunId::parse("r").unwrap() })), None);
        assert_eq!(status.shown, Some("👀"));
    }

    #[test]
    fn without_reactions_only_a_long_wait_is_reported() {
        let mut status = status(QueueStatus::Reaction, false);
        assert_eq!(status.disposition_changed(Disposition::Queued(1)), None);
        let activity = Activity::Tools(vec!["exec".to_owned()]);
        let busy = Busy { activity, lasts: Duration::from_secs(42), waited: Duration::from_secs(30) };
        let line = "Still busy: running exec for 42 s. This message waits for its turn.".to_owned();
        assert_eq!(status.apply(&RunEvent::Queue(QueueEvent::Busy(Arc::new(busy)))), Some(StatusUpdate::Send(line)));
    }

    #[test]
    fn a_status_line_names_the_queue_position() {
        let mut status = status(QueueStatus::Text, true);
        assert_eq!(
            status.disposition_changed(Disposition::Queued(2)),
            Some(StatusUpdate::Send("Queued, position 2.".to_owned()))
        );
        let line = "The active run reads this message next.".to_owned();
        assert_eq!(
            status.apply(&RunEvent::Queue(QueueEvent::DispositionChanged(Disposition::Steered))),
            Some(StatusUpdate::Send(line))
        );
    }
}
