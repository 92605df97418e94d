//! Whoever follows all runs: what a gateway would tell its clients, and what is on the tapes themselves.

use std::{sync::Arc, time::Duration};

use homard_agent::{Cursor, Event, HubEvent, Tape, wire::Projection};
use homard_proto::event::Agent;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

/// One run as it was heard of.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) tape: Arc<Tape>,
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
}

impl Log {
    fn hear(&mut self, at: Duration, tape: Arc<Tape>) {
        let known = self.runs.iter().position(|heard| Arc::ptr_eq(&heard.tape, &tape));
        let run = known.unwrap_or_else(|| {
            let projection = Projection::new(&tape);
            self.runs.push(Heard { tape, events: Vec::new(), cursor: Cursor::default(), projection, text_since: None });
            self.runs.len() - 1
        });
        let heard = &mut self.runs[run];
        for event in heard.tape.read(&mut heard.cursor) {
            heard.events.push(event.clone());
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

/// Follows all runs until told to stop. Words of one instant are told together, so that the log does not depend on the
/// order in which tasks happen to be polled.
pub(crate) async fn follow(
    mut feed: mpsc::UnboundedReceiver<HubEvent>,
    origin: Instant,
    mut stop: watch::Receiver<bool>,
) -> Log {
    let mut log = Log::default();
    loop {
        tokio::select! {
            biased;
            Some(HubEvent::Run(tape)) = feed.recv() => log.hear(origin.elapsed(), tape),
            () = sleep(Duration::from_millis(1)), if log.has_text() => log.flush(),
            // A sender that is gone also means that it is over.
            _ = stop.wait_for(|stop| *stop) => return log,
        }
    }
}
