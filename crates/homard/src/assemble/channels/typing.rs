//! Shows a typing indicator in a chat while a reply is being written.

use std::{sync::Arc, time::Duration};

use homard_agent::{Follower, RunEvent, Tape, task};
use homard_channels::{Act, Channel, Place};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::config::typing::Mode;

/// The indicator is hidden after this time without an event in the run.
const SILENCE: Duration = Duration::from_secs(120);

/// Refreshes the indicator periodically until the run ends. Failures are only logged.
pub(super) fn show(
    channel: Arc<dyn Channel>,
    place: Place,
    (mode, every): (Mode, Duration),
    tape: Arc<Tape>,
    stop: CancellationToken,
) {
    if mode == Mode::Never {
        return;
    }
    // Ends with the run.
    drop(task::spawn("typing", async move {
        let mut follower = Follower::new(tape);
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut signs, mut last) = (Signs::new(mode), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                events = follower.next() => {
                    let Some(events) = events else { return };
                    last = Instant::now();
                    events.iter().for_each(|event| signs.hear(&event.kind));
                }
                _ = tick.tick(), if signs.is_shown() => {
                    if last.elapsed() > SILENCE {
                        // The next event shows it again.
                        signs.rest();
                        continue;
                    }
                    if let Err(failure) = channel.act(Act::Type(place.clone())).await {
                        tracing::debug!(%failure, "that an answer is being written cannot be shown");
                    }
                }
            }
        }
    }));
}

/// Decides from a run's events whether the indicator is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signs {
    mode: Mode,
    state: Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Off,
    On,
    /// The run has ended: late events do not show it again.
    Sealed,
}

impl Signs {
    fn new(mode: Mode) -> Self {
        Self { mode, state: Sign::Off }
    }

    fn is_shown(self) -> bool {
        self.state == Sign::On
    }

    fn rest(&mut self) {
        if self.state == Sign::On {
            self.state = Sign::Off;
        }
    }

    fn hear(&mut self, event: &RunEvent) {
        let begins = match event {
            RunEvent::Ended(_) | RunEvent::Absorbed { .. } => {
                self.state = Sign::Sealed;
                return;
            }
            RunEvent::Started { .. } => self.mode == Mode::Instant,
            RunEvent::Thinking { .. } => matches!(self.mode, Mode::Instant | Mode::Thinking),
            RunEvent::Text { delta, .. } => !delta.trim().is_empty(),
            RunEvent::ToolStarted { .. } | RunEvent::ToolProgress { .. } => true,
            RunEvent::Waited(_)
            | RunEvent::Placed(_)
            | RunEvent::Busy(_)
            | RunEvent::Summarized(_)
            | RunEvent::Asking(_)
            | RunEvent::Heard
            | RunEvent::Discarded { .. }
            | RunEvent::Input(_)
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::Switched { .. }
            | RunEvent::Assistant { .. }
            | RunEvent::ToolEnded { .. }
            | RunEvent::Hooked(_)
            | RunEvent::Withheld(_)
            | RunEvent::Compacting
            | RunEvent::Compacted { .. }
            | RunEvent::NotCompacted { .. }
            | RunEvent::Block(_) => self.mode == Mode::Instant,
        };
        if begins && self.mode != Mode::Never && self.state == Sign::Off {
            self.state = Sign::On;
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
        let mut signs = Signs::new(mode);
        let shown = events.iter().position(|event| {
            signs.hear(event);
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
        let mut signs = Signs::new(Mode::Instant);
        [started(), over, tool(), says("late"), started()].iter().for_each(|event| signs.hear(event));
        assert!(!signs.is_shown());
    }

    #[test]
    fn a_run_that_is_silent_for_long_rests_until_there_is_news() {
        let mut signs = Signs::new(Mode::Message);
        signs.hear(&tool());
        signs.rest();
        assert!(!signs.is_shown());
        signs.hear(&tool());
        assert!(signs.is_shown());
    }
}
