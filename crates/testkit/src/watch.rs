//! Whoever follows all runs: what a gateway would tell its clients, and what is on the tapes themselves.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{Cursor, Event, HubEvent, RunEvent, Tape, post::Delivered, wire::Projection};
use homard_proto::{RunId, event::Agent};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::clock::Clock;

/// One run as it was heard of.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) tape: Arc<Tape>,
    /// In which life of the hub, from 0.
    pub(crate) life: usize,
    /// What is on the tape, in order.
    pub(crate) events: Vec<Event>,
    cursor: Cursor,
    projection: Projection,
    /// When the words that were not told yet began to come.
    text_since: Option<Duration>,
}

/// A payload on its way to clients.
#[derive(Debug)]
pub(crate) struct Told {
    /// When it was heard, counted from the beginning.
    pub(crate) at: Duration,
    /// Whose it is: a place in [`Log::runs`].
    pub(crate) run: usize,
    pub(crate) payload: Agent,
}

/// Everything that was heard.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) runs: Vec<Heard>,
    pub(crate) told: Vec<Told>,
    /// What is on a tape and clients are not told: when, how many payloads were told before, whose, and what.
    pub(crate) untold: Vec<(Duration, usize, usize, String)>,
    /// What became of what was to be said on channels, and when that was told.
    pub(crate) delivered: Vec<(Duration, Delivered)>,
    /// When the hub died or stopped and began again, and how many payloads were told before.
    pub(crate) restarts: Vec<(Duration, usize)>,
}

impl Log {
    fn hear(&mut self, at: Duration, tape: Arc<Tape>) {
        let life = self.restarts.len();
        let known = self.runs.iter().position(|heard| Arc::ptr_eq(&heard.tape, &tape));
        let run = known.unwrap_or_else(|| {
            let (cursor, projection) = (Cursor::default(), Projection::new(&tape));
            self.runs.push(Heard { tape, life, events: Vec::new(), cursor, projection, text_since: None });
            self.runs.len() - 1
        });
        let heard = &mut self.runs[run];
        for event in heard.tape.read(&mut heard.cursor) {
            heard.events.push(event.clone());
            if let Some(text) = untold(&event.kind) {
                self.untold.push((at, self.told.len(), run, text));
            }
            let payloads = heard.projection.push(event);
            // Words that were kept back go first, and under their own time.
            let mut time = heard.text_since.filter(|_| !payloads.is_empty()).unwrap_or(at);
            for payload in payloads {
                self.told.push(Told { at: time, run, payload });
                time = at;
            }
            heard.text_since = heard.projection.has_text().then(|| heard.text_since.unwrap_or(at));
        }
    }

    /// The hub is gone. What could be seen of its runs was seen.
    pub(crate) fn restart(&mut self, at: Duration) {
        let life = self.restarts.len();
        let last: Vec<_> =
            self.runs.iter().filter(|heard| heard.life == life).map(|heard| heard.tape.clone()).collect();
        last.into_iter().for_each(|tape| self.hear(at, tape));
        self.flush();
        self.restarts.push((at, self.told.len()));
    }

    fn flush(&mut self) {
        for (run, heard) in self.runs.iter_mut().enumerate() {
            if let (Some(at), Some(payload)) = (heard.text_since.take(), heard.projection.flush()) {
                self.told.push(Told { at, run, payload });
            }
        }
    }

    fn has_text(&self) -> bool {
        self.runs.iter().any(|heard| heard.text_since.is_some())
    }
}

/// What clients are not told of an event, and whoever reads a snapshot wants to know.
fn untold(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Waited(time) => Some(format!("waited {}ms for a slot", time.as_millis())),
        RunEvent::Summarized(runs) => Some(format!("summarizes {}", names(runs))),
        RunEvent::Absorbed { by } => Some(format!("absorbed by {by}")),
        RunEvent::Rewound { message } => Some(format!("message {message} is void")),
        RunEvent::Block(block) => Some(format!("block {:?}", block.text)),
        RunEvent::Started { .. }
        | RunEvent::Placed(_)
        | RunEvent::Busy(_)
        | RunEvent::Answering { .. }
        | RunEvent::Retrying { .. }
        | RunEvent::Switched { .. }
        | RunEvent::Input(_)
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Assistant { .. }
        | RunEvent::ToolStarted { .. }
        | RunEvent::ToolProgress { .. }
        | RunEvent::Compacting
        | RunEvent::Compacted { .. }
        | RunEvent::NotCompacted { .. }
        | RunEvent::ToolEnded { .. }
        | RunEvent::Asking(_)
        | RunEvent::Heard
        | RunEvent::Discarded { .. }
        | RunEvent::Hooked(_)
        | RunEvent::Withheld(_)
        | RunEvent::Ended(_) => None,
    }
}

fn names(runs: &[RunId]) -> String {
    runs.iter().map(RunId::as_str).collect::<Vec<_>>().join(" ")
}

/// A log that survives those who write it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logbook(Arc<Mutex<Log>>);

impl Logbook {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows all runs until told to stop. Words of one instant are told together, so that the log does not depend on
    /// the order in which tasks happen to be polled.
    pub(crate) async fn follow(
        self,
        mut feed: mpsc::UnboundedReceiver<HubEvent>,
        clock: Clock,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let has_text = self.lock().has_text();
            tokio::select! {
                biased;
                Some(event) = feed.recv() => match event {
                    HubEvent::Run(tape) => self.lock().hear(clock.now(), tape),
                    HubEvent::Delivery(told) => self.lock().delivered.push((clock.now(), *told)),
                },
                () = sleep(Duration::from_millis(1)), if has_text => self.lock().flush(),
                // A sender that is gone also means that it is over.
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}
