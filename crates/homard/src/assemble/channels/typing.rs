//! Showing in a chat that an answer is being written, for as long as it is.

use std::{sync::Arc, time::Duration};

use homard_agent::{Follower, RunEvent, Tape, task};
use homard_channels::{Act, Channel, Place};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often it is shown again.
const AGAIN: Duration = Duration::from_secs(6);
/// How long nothing may happen in a run until it is not shown any more.
const SILENCE: Duration = Duration::from_secs(120);

/// When it is first shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// At once: somebody waits for the answer.
    AtOnce,
    /// When there are words, or a tool is at work: perhaps nothing is said at all.
    WithWords,
}

/// Shows it until the run is over. That it cannot be shown is nobody's trouble.
pub(super) fn show(channel: Arc<dyn Channel>, place: Place, (tape, when): (Arc<Tape>, When), stop: CancellationToken) {
    // Ends with the run.
    drop(task::spawn("typing", async move {
        let mut follower = Follower::new(tape);
        let mut tick = interval(AGAIN);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_shown, mut last) = (when == When::AtOnce, Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                events = follower.next() => {
                    let Some(events) = events else { return };
                    last = Instant::now();
                    is_shown |= events.iter().any(|event| speaks(&event.kind));
                }
                _ = tick.tick(), if is_shown => {
                    if last.elapsed() > SILENCE {
                        return;
                    }
                    if let Err(failure) = channel.act(Act::Type(place.clone())).await {
                        tracing::debug!(%failure, "that an answer is being written cannot be shown");
                    }
                }
            }
        }
    }));
}

fn speaks(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Text { .. } | RunEvent::ToolStarted { .. } | RunEvent::ToolProgress { .. })
}
