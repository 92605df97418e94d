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
    Event, HubEvent, RunEvent, Tape,
    tape::State,
    wire::{News, Telling, whole},
};
use homard_proto::{
    Generation, RunId, SessionId, SessionKey,
    event::{Agent, Chat, Stream},
};
use serde::Serialize;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Board, Detail, Wish,
    log::brief,
    past::{Over, Past},
    story::Story,
};
use crate::{changes::Change, client::Client, message_feed::StoredMessage, metrics::Metrics, outbox::StateVersion};

/// A throttled kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    /// Text as `agent` events, for all clients.
    Steps,
    /// Text as `chat` deltas, for clients of one protocol version.
    Talk(Generation),
}

impl Beat {
    /// All kinds.
    pub(super) const ALL: [Self; 3] = [Self::Steps, Self::Talk(Generation::Three), Self::Talk(Generation::Four)];

    /// Minimum interval between two publications of a run's text.
    fn pace(self) -> Duration {
        Duration::from_millis(match self {
            Self::Steps => 50,
            Self::Talk(Generation::Three) => 150,
            Self::Talk(Generation::Four) => 75,
        })
    }

    /// Index into per-beat arrays.
    fn place(self) -> usize {
        match self {
            Self::Steps => 0,
            Self::Talk(Generation::Three) => 1,
            Self::Talk(Generation::Four) => 2,
        }
    }
}

/// State of the projector.
#[derive(Debug)]
pub(super) struct Teller {
    clients: HashMap<u64, Listener>,
    /// Number of clients registered so far.
    came: u64,
    watchers: HashMap<RunId, Vec<(u64, Detail)>>,
    stories: HashMap<RunId, Story>,
    pub(super) past: Past,
    /// For each beat: runs whose text was just published and when it may be published again. The interval is constant,
    /// so each queue is ordered by time.
    paced: [VecDeque<(Instant, RunId)>; Beat::ALL.len()],
    /// Runs whose events are delayed until the sender got its response.
    held: HashMap<RunId, Held>,
    /// Waiters for the next moment when everything is published.
    pub(super) drains: Vec<oneshot::Sender<()>>,
    /// Feeds of session changes and stored messages.
    board: Board,
    metrics: Metrics,
    /// Number of streams above which ended ones are swept.
    sweep_at: usize,
}

/// A registered client.
#[derive(Debug)]
struct Listener {
    client: Arc<Client>,
    /// Registration number.
    came: u64,
}

/// A run whose events are delayed, and its tape if it has published any.
#[derive(Debug, Default)]
struct Held {
    holders: usize,
    tape: Option<Arc<Tape>>,
}

impl Teller {
    /// Creates a projector state that reports to these feeds.
    pub(super) fn announcing(board: Board, metrics: Metrics) -> Self {
        Self {
            clients: HashMap::new(),
            came: 0,
            watchers: HashMap::new(),
            stories: HashMap::new(),
            past: Past::default(),
            paced: Default::default(),
            held: HashMap::new(),
            drains: Vec::new(),
            board,
            metrics,
            sweep_at: 0,
        }
    }

    pub(super) fn heed(&mut self, wish: Wish) {
        match wish {
            Wish::Join(client) => {
                self.came += 1;
                self.clients.insert(client.id, Listener { client, came: self.came });
            }
            Wish::Leave(gone) => self.part_with(gone),
            Wish::Watch { run, client, detail } => self.watch(run, client, detail),
            Wish::Unwatch { run, client } => self.unwatch(&run, client),
            Wish::Answer(tape, waiter) => {
                if tape.state() == State::Refused {
                    return waiter.answer(&tape);
                }
                let story = self.story(&tape);
                // A stream that has not ended will be read again: every unread event on its tape has been signalled.
                match &story.telling {
                    Some(_) => story.waiters.push(waiter),
                    None => waiter.answer(&tape),
                }
            }
            Wish::Resume(resume) => self.resume(resume),
            Wish::Hold(run) => self.held.entry(run).or_default().holders += 1,
            Wish::Release(run) => {
                let Entry::Occupied(mut held) = self.held.entry(run) else { return };
                held.get_mut().holders -= 1;
                if held.get().holders == 0
                    && let Some(tape) = held.remove().tape
                {
                    self.read(&tape);
                }
            }
            Wish::Tell(event, payload, audience) => {
                for Listener { client, .. } in self.clients.values().filter(|one| audience.includes(&one.client)) {
                    client.outbox.tell(event, payload.clone());
                }
            }
            Wish::TellPresence(payload, state) => self.tell_presence(&payload, state),
            Wish::TellFollowers(payload) => {
                for Listener { client, .. } in self.clients.values().filter(|one| one.client.follows()) {
                    client.outbox.tell("sessions.changed", payload.clone());
                }
            }
            Wish::MessageStored(key, session, message) => self.note_stored(&key, &session, message),
            Wish::TellSaid(key, payload) => {
                for Listener { client, .. } in self.clients.values().filter(|one| one.client.hears_messages(&key)) {
                    client.outbox.tell("session.message", payload.clone());
                }
            }
            Wish::Drain(done) => self.drains.push(done),
        }
    }

    /// True if any client is subscribed to a session's messages. Usually decided by two counters.
    fn is_followed(&self, key: &SessionKey) -> bool {
        self.board.is_followed() && self.clients.values().any(|one| one.client.hears_messages(key))
    }

    /// Hands a stored message to the feed, if any client is subscribed to it.
    fn note_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        match self.is_followed(key) {
            true => self.board.messages.changed(key, session, message),
            false => self.board.messages.passed(key, session),
        }
    }

    /// Publishes the presence list. A slow client receives it with the next change.
    fn tell_presence(&self, payload: &Arc<str>, state: StateVersion) {
        for Listener { client, .. } in self.clients.values() {
            if client.hears_runs()
                && client.presence.load(Ordering::Relaxed) < state.presence
                && client.outbox.tell_state_if_room("presence", payload.clone(), state)
            {
                client.presence.store(state.presence, Ordering::Relaxed);
            }
        }
    }

    fn part_with(&mut self, gone: u64) {
        self.clients.remove(&gone);
        for watchers in self.watchers.values_mut() {
            watchers.retain(|(client, _)| *client != gone);
        }
        self.watchers.retain(|_, watchers| !watchers.is_empty());
        for story in self.stories.values_mut() {
            story.waiters.retain(|waiter| waiter.client.id != gone);
            story.behind.remove(&gone);
        }
    }

    pub(super) fn watch(&mut self, run: RunId, client: u64, detail: Detail) {
        self.watchers.entry(run).or_default().push((client, detail));
    }

    pub(super) fn unwatch(&mut self, run: &RunId, client: u64) {
        if let Some(watchers) = self.watchers.get_mut(run) {
            watchers.retain(|(watcher, _)| *watcher != client);
        }
    }

    /// Returns the stream of a tape, creating it if necessary.
    pub(super) fn story(&mut self, tape: &Arc<Tape>) -> &mut Story {
        let new = || Story::new(tape, self.came);
        let story = self.stories.entry(tape.run().clone()).or_insert_with(new);
        if !std::ptr::eq(story.tape.as_ptr(), Arc::as_ptr(tape)) {
            *story = Story::new(tape, self.came);
        }
        story
    }

    /// Processes a hub event.
    pub(super) fn hear(&mut self, event: &HubEvent) {
        self.metrics.hear(event);
        match event {
            HubEvent::Run(tape) => self.read(tape),
            // The protocol has no event for deliveries; they are logged.
            HubEvent::Delivery(_) => {}
        }
    }

    /// Reads new events from a tape and publishes them.
    pub(super) fn read(&mut self, tape: &Arc<Tape>) {
        if let Some(held) = self.held.get_mut(tape.run()) {
            held.tape = Some(tape.clone());
            return;
        }
        let metrics = self.metrics.clone();
        let mut stored = None;
        let story = self.story(tape);
        let Some(telling) = &mut story.telling else { return };
        let mut is_over = false;
        let mut told = Vec::new();
        let mut is_first = false;
        let mut has_begun = false;
        for event in tape.read(&mut story.cursor) {
            if let Event { kind: RunEvent::Text { message: speaking, .. }, .. } = &event
                && story.message.replace(*speaking) != Some(*speaking)
            {
                is_first = true;
            }
            is_over |= matches!(event.kind, RunEvent::Ended(_));
            has_begun |= matches!(event.kind, RunEvent::Started { .. });
            if let RunEvent::Started { session } = &event.kind {
                story.session = Some(session.clone());
            }
            if let RunEvent::Ended(end) = &event.kind {
                story.session = end.session.clone();
            }
            metrics.see(&mut story.watch, &event);
            stored = stored.or_else(|| StoredMessage::of(&event.kind));
            told.extend(telling.push(event));
        }
        let is_paced = story.paced[Beat::Steps.place()];
        let words = if is_first || !is_paced { telling.flush() } else { None };
        let needs_pace = words.is_some() && !is_paced;
        told.extend(words);
        if let State::Broken(why) = tape.state() {
            told.extend(telling.break_off(&why));
            metrics.broke();
            is_over = true;
        }
        // A run whose transcript is unknown has written nothing in this process: it was found at a restart, and what it
        // wrote before is old.
        let stored = stored.zip(story.session.clone());
        self.tell(tape.run(), told);
        if let Some((message, session)) = stored {
            self.note_stored(tape.key(), &session, message);
        }
        if is_over || has_begun {
            let reason = if is_over { "agent.run.ended" } else { "agent.run.started" };
            self.board.session_changed(Change { key: tape.key().clone(), reason });
        }
        if is_over {
            return self.end(tape);
        }
        if needs_pace {
            self.pace(tape.run(), Beat::Steps);
        }
        self.go_on(tape.run());
    }

    /// Time when the next throttled text may be published.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paced.iter().filter_map(|queue| queue.front().map(|(at, _)| *at)).min()
    }

    /// Publishes text whose interval has elapsed.
    pub(super) fn tell_words(&mut self, now: Instant) {
        for beat in Beat::ALL {
            while let Some((_, run)) = self.paced[beat.place()].pop_front_if(|(at, _)| *at <= now) {
                let Some(story) = self.stories.get_mut(&run) else { continue };
                story.paced[beat.place()] = false;
                match beat {
                    Beat::Steps => {
                        if let Some(words) = story.telling.as_mut().and_then(Telling::flush) {
                            self.tell(&run, vec![words]);
                            self.pace(&run, Beat::Steps);
                            self.go_on(&run);
                        }
                    }
                    Beat::Talk(_) => self.go_on(&run),
                }
            }
        }
    }

    /// Publishes `chat` deltas of a run, unless the interval has not elapsed.
    fn go_on(&mut self, run: &RunId) {
        for generation in [Generation::Three, Generation::Four] {
            let beat = Beat::Talk(generation);
            if !self.listeners(generation) {
                continue;
            }
            let Some(story) = self.stories.get_mut(run).filter(|story| !story.paced[beat.place()]) else { continue };
            if let Some(delta) = story.telling.as_mut().and_then(|telling| telling.delta(generation)) {
                self.tell(run, vec![delta]);
                self.pace(run, beat);
            }
        }
    }

    /// True if any client of that protocol version receives run events.
    fn listeners(&self, generation: Generation) -> bool {
        self.clients.values().any(|one| one.client.generation == generation && one.client.hears_runs())
    }

    fn pace(&mut self, run: &RunId, beat: Beat) {
        if let Some(story) = self.stories.get_mut(run) {
            story.paced[beat.place()] = true;
        }
        self.paced[beat.place()].push_back((Instant::now() + beat.pace(), run.clone()));
    }

    /// Sends events to their audience: tool events to watchers, all others to every client.
    fn tell(&mut self, run: &RunId, news: Vec<News>) {
        for news in news {
            match news {
                News::Agent(event) => {
                    if event.stream == Stream::Tool {
                        self.tell_watchers(self.watchers.get(run).map(Vec::as_slice).unwrap_or_default(), &event);
                    } else {
                        self.tell_all("agent", &event);
                    }
                    if let Some(story) = self.stories.get_mut(run) {
                        story.log.note(event);
                    }
                }
                News::Delta(generation, delta) => self.tell_delta(run, generation, &delta),
                News::Chat(last) => {
                    self.tell_all("chat", &last);
                    if let Some(story) = self.stories.get_mut(run) {
                        story.last = Some(last);
                    }
                }
            }
        }
    }

    fn tell_all(&self, name: &'static str, event: &impl Serialize) {
        let mut clients = self.clients.values().filter(|one| one.client.hears_runs()).peekable();
        if clients.peek().is_some() {
            let payload = write(event);
            clients.for_each(|Listener { client, .. }| client.outbox.tell(name, payload.clone()));
        }
    }

    /// Sends a delta to the clients of a protocol version. A slow client may miss it: the next one then carries the
    /// full text.
    fn tell_delta(&mut self, run: &RunId, generation: Generation, delta: &Chat) {
        let Some(story) = self.stories.get_mut(run) else { return };
        let heard = &mut story.heard[Beat::Talk(generation).place()];
        let (mut payload, mut entire) = (None, None);
        for Listener { client, came } in self.clients.values() {
            if client.generation != generation || !client.hears_runs() {
                continue;
            }
            let is_behind = story.behind.remove(&client.id) || *came > *heard;
            let payload = if is_behind {
                entire.get_or_insert_with(|| write(&whole(delta)))
            } else {
                payload.get_or_insert_with(|| write(delta))
            };
            if !client.outbox.tell_if_room("chat", payload.clone()) {
                story.behind.insert(client.id);
            }
        }
        *heard = self.came;
    }

    fn tell_watchers(&self, watchers: &[(u64, Detail)], event: &Agent) {
        for level in [Detail::Full, Detail::Brief] {
            let mut clients = watchers.iter().filter(|(_, detail)| *detail == level).peekable();
            if clients.peek().is_none() {
                continue;
            }
            let payload = match level {
                Detail::Full => write(event),
                Detail::Brief => write(&brief(event)),
            };
            for Listener { client, .. } in clients.filter_map(|(client, _)| self.clients.get(client)) {
                client.outbox.tell("agent", payload.clone());
            }
        }
    }

    /// Answers requests that waited for the end of a run, releases its stream, and occasionally sweeps streams whose
    /// tapes are gone.
    fn end(&mut self, tape: &Tape) {
        self.metrics.ended(tape);
        self.watchers.remove(tape.run());
        if let Some(story) = self.stories.get_mut(tape.run()) {
            let seq = story.telling.take().map(|telling| telling.seq()).unwrap_or_default();
            let log = std::mem::take(&mut story.log);
            if let Some(last) = story.last.take() {
                self.past.keep(Over::new(tape.run().clone(), log, seq, last));
            }
            story.waiters.drain(..).for_each(|waiter| waiter.answer(tape));
        }
        // Amortised, so that the cost of an end does not grow with the number of active runs.
        if self.stories.len() > self.sweep_at {
            self.stories.retain(|_, story| story.tape.strong_count() > 0);
            self.sweep_at = 64 + 2 * self.stories.len();
        }
    }
}

fn write(event: &impl Serialize) -> Arc<str> {
    // Events consist of JSON values, so serialisation does not fail.
    serde_json::to_string(event).unwrap_or_default().into()
}
