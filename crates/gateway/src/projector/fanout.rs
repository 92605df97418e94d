//! The projector's state: run streams, clients, and text throttling.
//!
//! Text is throttled. The first text of a message is published at once as an `agent` event, further text at most every
//! 50 ms. `chat` deltas follow what the `agent` events contained: at once if the last one is longer ago than the
//! interval of the protocol version, otherwise when it has elapsed, and always before the end. A delta is built once
//! for all clients of a protocol version; a client that has not received all previous ones, because it is slow or new,
//! gets the full text instead.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use homard_agent::{
    HubEvent, RunEvent, StoredEvent, Tape, TapeEvent,
    tape::TapeState,
    wire::{ClientEvent, RunProjection, whole},
};
use homard_proto::{
    Generation, RunId, SessionId, SessionKey,
    event::{AgentEvent, ChatEvent, Stream},
};
use serde::Serialize;
use tokio::{sync::oneshot, time::Instant};

use super::{
    ProjectorCommand, SessionFeeds, ToolDetail,
    finished::{FinishedRun, FinishedRuns},
    log::brief,
    run_stream::RunStream,
};
use crate::{
    client::Client, message_feed::StoredMessage, metrics::Metrics, send_queue::StateVersion,
    session_changes::SessionChange,
};

/// A throttled kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThrottledOutput {
    /// Text as `agent` events, for all clients.
    AgentText,
    /// Text as `chat` deltas, for clients of one protocol version.
    ChatText(Generation),
}

impl ThrottledOutput {
    /// All kinds.
    pub(super) const ALL: [Self; 3] =
        [Self::AgentText, Self::ChatText(Generation::Three), Self::ChatText(Generation::Four)];

    /// Minimum interval between two publications of a run's text.
    fn interval(self) -> Duration {
        Duration::from_millis(match self {
            Self::AgentText => 50,
            Self::ChatText(Generation::Three) => 150,
            Self::ChatText(Generation::Four) => 75,
        })
    }

    /// Index into arrays with one element per kind of throttled output.
    fn index(self) -> usize {
        match self {
            Self::AgentText => 0,
            Self::ChatText(Generation::Three) => 1,
            Self::ChatText(Generation::Four) => 2,
        }
    }
}

/// State of the projector.
#[derive(Debug)]
pub(super) struct Fanout {
    clients: HashMap<u64, RegisteredClient>,
    /// Number of clients registered so far.
    registered: u64,
    watchers: HashMap<RunId, Vec<(u64, ToolDetail)>>,
    streams: HashMap<RunId, RunStream>,
    pub(super) finished: FinishedRuns,
    /// For each kind of throttled output: runs whose text was just published and when it may be published again. The interval is constant,
    /// so each queue is ordered by time.
    throttled: [VecDeque<(Instant, RunId)>; ThrottledOutput::ALL.len()],
    /// Runs whose events are delayed until the sender got its response.
    gated: HashMap<RunId, GatedRun>,
    /// Waiters for the next moment when everything is published.
    pub(super) drains: Vec<oneshot::Sender<()>>,
    /// Feeds of session changes and stored messages.
    feeds: SessionFeeds,
    metrics: Metrics,
    /// Number of streams above which ended ones are swept.
    sweep_at: usize,
}

/// A registered client.
#[derive(Debug)]
struct RegisteredClient {
    client: Arc<Client>,
    /// Registration number.
    number: u64,
}

/// A run whose events are delayed, and its tape if it has published any.
#[derive(Debug, Default)]
struct GatedRun {
    holders: usize,
    tape: Option<Arc<Tape>>,
}

impl Fanout {
    /// Creates a projector state that reports to these feeds.
    pub(super) fn with_feeds(feeds: SessionFeeds, metrics: Metrics) -> Self {
        Self {
            clients: HashMap::new(),
            registered: 0,
            watchers: HashMap::new(),
            streams: HashMap::new(),
            finished: FinishedRuns::default(),
            throttled: Default::default(),
            gated: HashMap::new(),
            drains: Vec::new(),
            feeds,
            metrics,
            sweep_at: 0,
        }
    }

    pub(super) fn execute(&mut self, command: ProjectorCommand) {
        match command {
            ProjectorCommand::Join(client) => {
                self.registered += 1;
                self.clients.insert(client.id, RegisteredClient { client, number: self.registered });
            }
            ProjectorCommand::Leave(client_id) => self.remove_client(client_id),
            ProjectorCommand::Watch { run, client, detail } => self.watch(run, client, detail),
            ProjectorCommand::Unwatch { run, client } => self.unwatch(&run, client),
            ProjectorCommand::RespondAtEnd(tape, waiter) => {
                if tape.state() == TapeState::Rejected {
                    return waiter.respond(&tape);
                }
                let stream = self.stream(&tape);
                // A stream that has not ended will be read again: every unread event on its tape has been signalled.
                match &stream.projection {
                    Some(_) => stream.waiters.push(waiter),
                    None => waiter.respond(&tape),
                }
            }
            ProjectorCommand::Resume(resume) => self.resume(resume),
            ProjectorCommand::Gate(run) => self.gated.entry(run).or_default().holders += 1,
            ProjectorCommand::Ungate(run) => {
                let Entry::Occupied(mut gate) = self.gated.entry(run) else { return };
                gate.get_mut().holders -= 1;
                if gate.get().holders == 0
                    && let Some(tape) = gate.remove().tape
                {
                    self.read(&tape);
                }
            }
            ProjectorCommand::Publish(event, payload, audience) => {
                for RegisteredClient { client, .. } in
                    self.clients.values().filter(|registered| audience.includes(&registered.client))
                {
                    client.send_queue.send(event, payload.clone());
                }
            }
            ProjectorCommand::PublishPresence(payload, state) => self.publish_presence(&payload, state),
            ProjectorCommand::PublishSessionChange(payload) => {
                for RegisteredClient { client, .. } in
                    self.clients.values().filter(|registered| registered.client.is_subscribed())
                {
                    client.send_queue.send("sessions.changed", payload.clone());
                }
            }
            ProjectorCommand::MessageStored(key, session, message) => self.message_stored(&key, &session, message),
            ProjectorCommand::PublishMessage(key, payload) => {
                for RegisteredClient { client, .. } in
                    self.clients.values().filter(|registered| registered.client.receives_messages(&key))
                {
                    client.send_queue.send("session.message", payload.clone());
                }
            }
            ProjectorCommand::Drain(done) => self.drains.push(done),
        }
    }

    /// True if any client is subscribed to a session's messages. Usually decided by two counters.
    fn has_subscribers(&self, key: &SessionKey) -> bool {
        self.feeds.has_subscribers() && self.clients.values().any(|registered| registered.client.receives_messages(key))
    }

    /// Hands a stored message to the feed, if any client is subscribed to it.
    fn message_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        match self.has_subscribers(key) {
            true => self.feeds.messages.changed(key, session, message),
            false => self.feeds.messages.skipped(key, session),
        }
    }

    /// Publishes the presence list. A slow client receives it with the next change.
    fn publish_presence(&self, payload: &Arc<str>, state: StateVersion) {
        for RegisteredClient { client, .. } in self.clients.values() {
            if client.receives_run_events()
                && client.presence.load(Ordering::Relaxed) < state.presence
                && client.send_queue.try_send_state("presence", payload.clone(), state)
            {
                client.presence.store(state.presence, Ordering::Relaxed);
            }
        }
    }

    fn remove_client(&mut self, client_id: u64) {
        self.clients.remove(&client_id);
        for watchers in self.watchers.values_mut() {
            watchers.retain(|(client, _)| *client != client_id);
        }
        self.watchers.retain(|_, watchers| !watchers.is_empty());
        for stream in self.streams.values_mut() {
            stream.waiters.retain(|waiter| waiter.client.id != client_id);
            stream.lagging.remove(&client_id);
        }
    }

    pub(super) fn watch(&mut self, run: RunId, client: u64, detail: ToolDetail) {
        self.watchers.entry(run).or_default().push((client, detail));
    }

    pub(super) fn unwatch(&mut self, run: &RunId, client: u64) {
        if let Some(watchers) = self.watchers.get_mut(run) {
            watchers.retain(|(watcher, _)| *watcher != client);
        }
    }

    /// Returns the stream of a tape, creating it if necessary.
    pub(super) fn stream(&mut self, tape: &Arc<Tape>) -> &mut RunStream {
        let new = || RunStream::new(tape, self.registered);
        let stream = self.streams.entry(tape.run().clone()).or_insert_with(new);
        if !std::ptr::eq(stream.tape.as_ptr(), Arc::as_ptr(tape)) {
            *stream = RunStream::new(tape, self.registered);
        }
        stream
    }

    /// Processes a hub event.
    pub(super) fn handle_hub_event(&mut self, event: &HubEvent) {
        self.metrics.observe_hub(event);
        match event {
            HubEvent::Run(tape) => self.read(tape),
            // The protocol has no event for deliveries; they are logged.
            HubEvent::Delivery(_) => {}
        }
    }

    /// Reads new events from a tape and publishes them.
    pub(super) fn read(&mut self, tape: &Arc<Tape>) {
        if let Some(gate) = self.gated.get_mut(tape.run()) {
            gate.tape = Some(tape.clone());
            return;
        }
        let metrics = self.metrics.clone();
        let mut stored = None;
        let stream = self.stream(tape);
        let Some(projection) = &mut stream.projection else { return };
        let mut has_ended = false;
        let mut events = Vec::new();
        let mut is_first = false;
        let mut has_started = false;
        for event in tape.read(&mut stream.cursor) {
            if let TapeEvent { kind: RunEvent::Text { message: number, .. }, .. } = &event
                && stream.message.replace(*number) != Some(*number)
            {
                is_first = true;
            }
            has_ended |= matches!(event.kind, RunEvent::Stored(StoredEvent::Ended(_)));
            has_started |= matches!(event.kind, RunEvent::Stored(StoredEvent::Started { .. }));
            if let RunEvent::Stored(StoredEvent::Started { session }) = &event.kind {
                stream.session = Some(session.clone());
            }
            if let RunEvent::Stored(StoredEvent::Ended(end)) = &event.kind {
                stream.session = end.session.clone();
            }
            metrics.observe(&mut stream.metrics, &event);
            stored = stored.or_else(|| StoredMessage::of(&event.kind));
            events.extend(projection.push(event));
        }
        let is_throttled = stream.throttled[ThrottledOutput::AgentText.index()];
        let text = if is_first || !is_throttled { projection.flush() } else { None };
        let must_throttle = text.is_some() && !is_throttled;
        events.extend(text);
        if let TapeState::Broken(why) = tape.state() {
            events.extend(projection.break_off(&why));
            metrics.run_broken();
            has_ended = true;
        }
        // A run whose transcript is unknown has written nothing in this process: it was found at a restart, and what it
        // wrote before is old.
        let stored = stored.zip(stream.session.clone());
        self.publish(tape.run(), events);
        if let Some((message, session)) = stored {
            self.message_stored(tape.key(), &session, message);
        }
        if has_ended || has_started {
            let reason = if has_ended { "agent.run.ended" } else { "agent.run.started" };
            self.feeds.session_changed(SessionChange { key: tape.key().clone(), reason });
        }
        if has_ended {
            return self.end(tape);
        }
        if must_throttle {
            self.throttle(tape.run(), ThrottledOutput::AgentText);
        }
        self.publish_deltas(tape.run());
    }

    /// Time when the next throttled text may be published.
    pub(super) fn due(&self) -> Option<Instant> {
        self.throttled.iter().filter_map(|queue| queue.front().map(|(at, _)| *at)).min()
    }

    /// Publishes text whose interval has elapsed.
    pub(super) fn publish_due_text(&mut self, now: Instant) {
        for output in ThrottledOutput::ALL {
            while let Some((_, run)) = self.throttled[output.index()].pop_front_if(|(at, _)| *at <= now) {
                let Some(stream) = self.streams.get_mut(&run) else { continue };
                stream.throttled[output.index()] = false;
                match output {
                    ThrottledOutput::AgentText => {
                        if let Some(text) = stream.projection.as_mut().and_then(RunProjection::flush) {
                            self.publish(&run, vec![text]);
                            self.throttle(&run, ThrottledOutput::AgentText);
                            self.publish_deltas(&run);
                        }
                    }
                    ThrottledOutput::ChatText(_) => self.publish_deltas(&run),
                }
            }
        }
    }

    /// Publishes `chat` deltas of a run, unless the interval has not elapsed.
    fn publish_deltas(&mut self, run: &RunId) {
        for generation in [Generation::Three, Generation::Four] {
            let output = ThrottledOutput::ChatText(generation);
            if !self.has_clients(generation) {
                continue;
            }
            let Some(stream) = self.streams.get_mut(run).filter(|stream| !stream.throttled[output.index()]) else {
                continue;
            };
            if let Some(delta) = stream.projection.as_mut().and_then(|projection| projection.delta(generation)) {
                self.publish(run, vec![delta]);
                self.throttle(run, output);
            }
        }
    }

    /// True if any client of that protocol version receives run events.
    fn has_clients(&self, generation: Generation) -> bool {
        self.clients
            .values()
            .any(|registered| registered.client.generation == generation && registered.client.receives_run_events())
    }

    fn throttle(&mut self, run: &RunId, output: ThrottledOutput) {
        if let Some(stream) = self.streams.get_mut(run) {
            stream.throttled[output.index()] = true;
        }
        self.throttled[output.index()].push_back((Instant::now() + output.interval(), run.clone()));
    }

    /// Sends events to their audience: tool events to watchers, all others to every client.
    fn publish(&mut self, run: &RunId, events: Vec<ClientEvent>) {
        for events in events {
            match events {
                ClientEvent::Agent(event) => {
                    if event.stream == Stream::Tool {
                        self.send_to_watchers(self.watchers.get(run).map(Vec::as_slice).unwrap_or_default(), &event);
                    } else {
                        self.send_to_all("agent", &event);
                    }
                    if let Some(stream) = self.streams.get_mut(run) {
                        stream.log.append(event);
                    }
                }
                ClientEvent::Delta(generation, delta) => self.send_delta(run, generation, &delta),
                ClientEvent::Chat(last) => {
                    self.send_to_all("chat", &last);
                    if let Some(stream) = self.streams.get_mut(run) {
                        stream.last = Some(last);
                    }
                }
            }
        }
    }

    fn send_to_all(&self, name: &'static str, event: &impl Serialize) {
        let mut clients = self.clients.values().filter(|registered| registered.client.receives_run_events()).peekable();
        if clients.peek().is_some() {
            let payload = write(event);
            clients.for_each(|RegisteredClient { client, .. }| client.send_queue.send(name, payload.clone()));
        }
    }

    /// Sends a delta to the clients of a protocol version. A slow client may miss it: the next one then carries the
    /// full text.
    fn send_delta(&mut self, run: &RunId, generation: Generation, delta: &ChatEvent) {
        let Some(stream) = self.streams.get_mut(run) else { return };
        let published_to = &mut stream.clients_at_publish[ThrottledOutput::ChatText(generation).index()];
        let (mut payload, mut full_payload) = (None, None);
        for RegisteredClient { client, number: registered_as } in self.clients.values() {
            if client.generation != generation || !client.receives_run_events() {
                continue;
            }
            let is_behind = stream.lagging.remove(&client.id) || *registered_as > *published_to;
            let payload = if is_behind {
                full_payload.get_or_insert_with(|| write(&whole(delta)))
            } else {
                payload.get_or_insert_with(|| write(delta))
            };
            if !client.send_queue.try_send("chat", payload.clone()) {
                stream.lagging.insert(client.id);
            }
        }
        *published_to = self.registered;
    }

    fn send_to_watchers(&self, watchers: &[(u64, ToolDetail)], event: &AgentEvent) {
        for level in [ToolDetail::Full, ToolDetail::Brief] {
            let mut clients = watchers.iter().filter(|(_, detail)| *detail == level).peekable();
            if clients.peek().is_none() {
                continue;
            }
            let payload = match level {
                ToolDetail::Full => write(event),
                ToolDetail::Brief => write(&brief(event)),
            };
            for RegisteredClient { client, .. } in clients.filter_map(|(client, _)| self.clients.get(client)) {
                client.send_queue.send("agent", payload.clone());
            }
        }
    }

    /// Answers requests that waited for the end of a run, releases its stream, and occasionally sweeps streams whose
    /// tapes are gone.
    fn end(&mut self, tape: &Tape) {
        self.metrics.run_ended(tape);
        self.watchers.remove(tape.run());
        if let Some(stream) = self.streams.get_mut(tape.run()) {
            let seq = stream.projection.take().map(|projection| projection.seq()).unwrap_or_default();
            let log = std::mem::take(&mut stream.log);
            if let Some(last) = stream.last.take() {
                self.finished.add(FinishedRun::new(tape.run().clone(), log, seq, last));
            }
            stream.waiters.drain(..).for_each(|waiter| waiter.respond(tape));
        }
        // Amortised, so that the cost of an end does not grow with the number of active runs.
        if self.streams.len() > self.sweep_at {
            self.streams.retain(|_, stream| stream.tape.strong_count() > 0);
            self.sweep_at = 64 + 2 * self.streams.len();
        }
    }
}

fn write(event: &impl Serialize) -> Arc<str> {
    // Events consist of JSON values, so serialisation does not fail.
    serde_json::to_string(event).unwrap_or_default().into()
}
