//! Shows a typing indicator in a chat while a reply is being written.

use std::{sync::Arc, time::Duration};

use homard_agent::{RunEvent, Subscriber, Tape, task};
use homard_channels::{Channel, ChannelAction, Destination};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::config::typing::Mode;

/// The indicator is hidden after this time without an event in the run.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Refreshes the indicator periodically until the run ends. Failures are only logged.
pub(super) fn show(
    channel: Arc<dyn Channel>,
    place: Destination,
    (mode, every): (Mode, Duration),
    tape: Arc<Tape>,
    stop: CancellationToken,
) {
    if mode == Mode::Never {
        return;
    }
    // Ends with the run.
    drop(task::spawn("typing", async move {
        let mut follower = Subscriber::new(tape);
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut signs, mut last) = (IndicatorState::new(mode), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                events = follower.next() => {
                    let Some(events) = events else { return };
                    last = Instant::now();
                    events.iter().for_each(|event| signs.apply(&event.kind));
                }
                _ = tick.tick(), if signs.is_shown() => {
                    if last.elapsed() > IDLE_TIMEOUT {
                        // The next event shows it again.
                        signs.hide();
                        continue;
                    }
                    if let Err(failure) = channel.perform(ChannelAction::Type(place.clone())).await {
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
        let begins = match event {
            RunEvent::Ended(_) | RunEvent::Absorbed { .. } => {
                self.state = Indicator::Ended;
                return;
            }
            RunEvent::Started { .. } => self.mode == Mode::Instant,
            RunEvent::Thinking { .. } => matches!(self.mode, Mode::Instant | Mode::Thinking),
            RunEvent::Text { delta, .. } => !delta.trim().is_empty(),
            RunEvent::ToolStarted { .. } | RunEvent::ToolProgress { .. } => true,
            RunEvent::SlotWaited(_)
            | RunEvent::DispositionChanged(_)
            | RunEvent::Busy(_)
            | RunEvent::Summarized(_)
            | RunEvent::ModelRequested(_)
            | RunEvent::FirstToken
            | RunEvent::AnswerDropped { .. }
            | RunEvent::Input(_)
            | RunEvent::ModelChanged { .. }
            | RunEvent::MessageReset { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::CandidateFailed { .. }
            | RunEvent::Assistant { .. }
            | RunEvent::ToolEnded { .. }
            | RunEvent::HookDecision(_)
            | RunEvent::Withheld(_)
            | RunEvent::Compacting
            | RunEvent::Compacted { .. }
            | RunEvent::NotCompacted { .. }
            | RunEvent::Block(_) => self.mode == Mode::Instant,
        };
        if begins && self.mode != Mode::Never && self.state == Indicator::Off {
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
        RunEvent::Started { session: SessionId::parse("s").unwrap() }
    }

    fn thinks() -> RunEvent {
        RunEvent::Thinking { message: 0, delta: "hm".to_owned() }
    }

    fn says(delta: &str) -> RunEvent {
        RunEvent::Text { message: 0, delta: delta.to_owned() }
    }

    fn tool() -> RunEvent {
        RunEvent::ToolStarted { call: CallId::parse("c").unwrap(), name: "exec".to_owned(), arguments: Value::Null }
    }

    /// Returns the event, counted from 1, after which the indicator is first shown; 0 if never.
    fn first(mode: Mode, events: &[RunEvent]) -> usize {
        let mut signs = IndicatorState::new(mode);
        let shown = events.iter().position(|event| {
            signs.apply(event);
            signs.is_shown()
        });
        shown.map_or(0, |at| at + 1)
    }

    #[test]
    fn it_is_shown_when_its_mode_says_so() {
        let spoken = [started(), thinks(), says(" "), says("Hi")];
        let modes = [Mode::Never, Mode::Instant, Mode::Thinking, Mode::Message];
        assert_eq!(modes.map(|mode| first(mode, &spoken)), [0, 1, 2, 4]);
        let at_work = [started(), tool()];
        assert_eq!(modes.map(|mode| first(mode, &at_work)), [0, 1, 2, 2]);
        assert_eq!(
            modes.map(|mode| first(mode, &[started()])),
            [0, 1, 0, 0],
            "a silent answer shows nothing in a group"
        );
    }

    // Pitfall 27.
    #[test]
    fn what_a_tool_says_late_does_not_bring_it_back() {
        let over = RunEvent::Absorbed { by: RunId::parse("other").unwrap() };
        let mut signs = IndicatorState::new(Mode::Instant);
        [started(), over, tool(), says("late"), started()].iter().for_each(|event| signs.apply(event));
        assert!(!signs.is_shown());
    }

    #[test]
    fn a_run_that_is_silent_for_long_rests_until_there_is_news() {
        let mut signs = IndicatorState::new(Mode::Message);
        signs.apply(&tool());
        signs.hide();
        assert!(!signs.is_shown());
        signs.apply(&tool());
        assert!(signs.is_shown());
    }
}
