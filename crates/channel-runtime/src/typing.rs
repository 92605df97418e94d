//! Shows a typing indicator in a chat while a reply is being written.

use std::{sync::Arc, time::Duration};

use homard_agent::{QueueEvent, RunEvent, StoredEvent, Subscriber, Tape};
use homard_channels::{Channel, ChannelAction, Destination};
use homard_runtime::task;
use homard_settings::typing::Mode;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The indicator is hidden after this time without an event in the run.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// When the indicator is visible, and how often it is refreshed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refresh {
    pub(crate) mode: Mode,
    pub(crate) period: Duration,
}

/// Refreshes the indicator periodically until the run ends. Failures are only logged.
pub(crate) fn show(
    channel: Arc<dyn Channel>,
    destination: Destination,
    refresh: Refresh,
    tape: Arc<Tape>,
    stop: CancellationToken,
) {
    let Refresh { mode, period } = refresh;
    if mode == Mode::Never {
        return;
    }
    // Ends with the run.
    drop(task::spawn("typing", async move {
        let mut subscriber = Subscriber::new(tape);
        let mut tick = interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut indicator, mut last_event) = (IndicatorState::new(mode), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                events = subscriber.next() => {
                    let Some(events) = events else { return };
                    last_event = Instant::now();
                    events.iter().for_each(|event| indicator.apply(&event.kind));
                }
                _ = tick.tick(), if indicator.is_shown() => {
                    if last_event.elapsed() > IDLE_TIMEOUT {
                        // The next event shows it again.
                        indicator.hide();
                        continue;
                    }
                    if let Err(failure) = channel.perform(ChannelAction::Type(destination.clone())).await {
                        tracing::debug!(%failure, "failed to send the typing indicator");
                    }
                }
            }
        }
    }));
}

/// Decides from a run's events whether the indicator is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndicatorState {
    mode: Mode,
    state: Indicator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indicator {
    Off,
    On,
    /// The run has ended: late events do not show it again.
    Ended,
}

impl IndicatorState {
    fn new(mode: Mode) -> Self {
        Self { mode, state: Indicator::Off }
    }

    fn is_shown(self) -> bool {
        self.state == Indicator::On
    }

    fn hide(&mut self) {
        if self.state == Indicator::On {
            self.state = Indicator::Off;
        }
    }

    fn apply(&mut self, event: &RunEvent) {
        let starts_typing = match event {
            RunEvent::Stored(StoredEvent::Ended(_)) | RunEvent::Queue(QueueEvent::Absorbed { .. }) => {
                self.state = Indicator::Ended;
                return;
            }
            RunEvent::Stored(StoredEvent::Started { .. }) => self.mode == Mode::Instant,
            RunEvent::Thinking { .. } => matches!(self.mode, Mode::Instant | Mode::Thinking),
            RunEvent::Text { delta, .. } => !delta.trim().is_empty(),
            RunEvent::Tool(_) => true,
            RunEvent::Queue(
                QueueEvent::SlotWaited(_)
                | QueueEvent::DispositionChanged(_)
                | QueueEvent::Busy(_)
                | QueueEvent::Summarized(_),
            )
            | RunEvent::Model(_)
            | RunEvent::Stored(
                StoredEvent::Input(_)
                | StoredEvent::Assistant { .. }
                | StoredEvent::ToolEnded { .. }
                | StoredEvent::Compacted { .. },
            )
            | RunEvent::HookDecision(_)
            | RunEvent::Reply(_)
            | RunEvent::Compaction(_) => self.mode == Mode::Instant,
        };
        if starts_typing && self.mode != Mode::Never && self.state == Indicator::Off {
            self.state = Indicator::On;
        }
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{CallId, RunId, SessionId};
    use serde_json::Value;

    use super::*;

    fn started() -> RunEvent {
        RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() })
    }

    fn reasoning_event() -> RunEvent {
        RunEvent::Thinking { message: 0, delta: "hm".to_owned() }
    }

    fn text_event(delta: &str) -> RunEvent {
        RunEvent::Text { message: 0, delta: delta.to_owned() }
    }

    fn tool() -> RunEvent {
        RunEvent::Tool(homard_agent::ToolEvent::Started {
            call: CallId::parse("c").unwrap(),
            name: "exec".to_owned(),
            arguments: Value::Null,
        })
    }

    /// Returns the event, counted from 1, after which the indicator is first shown; 0 if never.
    fn first(mode: Mode, events: &[RunEvent]) -> usize {
        let mut indicator = IndicatorState::new(mode);
        let position = events.iter().position(|event| {
            indicator.apply(event);
            indicator.is_shown()
        });
        position.map_or(0, |at| at + 1)
    }

    #[test]
    fn the_typing_mode_decides_when_typing_starts() {
        let reply = [started(), reasoning_event(), text_event(" "), text_event("Hi")];
        let modes = [Mode::Never, Mode::Instant, Mode::Thinking, Mode::Message];
        assert_eq!(modes.map(|mode| first(mode, &reply)), [0, 1, 2, 4]);
        let tool_use = [started(), tool()];
        assert_eq!(modes.map(|mode| first(mode, &tool_use)), [0, 1, 2, 2]);
        assert_eq!(
            modes.map(|mode| first(mode, &[started()])),
            [0, 1, 0, 0],
            "a silent answer shows nothing in a group"
        );
    }

    // Pitfall 27.
    #[test]
    fn late_tool_output_does_not_restart_typing() {
        let absorbed = RunEvent::Queue(QueueEvent::Absorbed { by: RunId::parse("other").unwrap() });
        let mut indicator = IndicatorState::new(Mode::Instant);
        [started(), absorbed, tool(), text_event("late"), started()].iter().for_each(|event| indicator.apply(event));
        assert!(!indicator.is_shown());
    }

    #[test]
    fn typing_stops_when_idle_and_resumes_at_the_next_event() {
        let mut indicator = IndicatorState::new(Mode::Message);
        indicator.apply(&tool());
        indicator.hide();
        assert!(!indicator.is_shown());
        indicator.apply(&tool());
        assert!(indicator.is_shown());
    }
}
