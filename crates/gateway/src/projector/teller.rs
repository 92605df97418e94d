//! Everything that is being told, and to whom.
//!
//! Words are paced. The first of a message go out at once as a step, later ones at most every 50 ms. A conversation
//! hears what the steps have told: at once if it has heard nothing for as long as its generation's pace, else when that
//! is over, and all of it before the end. A delta is made for all clients of a generation at once; one that has not heard
//! all before it, because it is slow or new, is told everything instead.

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

/// Something that is told at a pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    /// The words of a run as steps, for all.
    Steps,
    /// The words of a run as a conversation, for clients of one generation.
    Talk(Generation),
}

impl Beat {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Steps, Self::Talk(Generation::Three), Self::Talk(Generation::Four)];

    /// How often a run's words are told at most.
    fn pace(self) -> Duration {
        Duration::from_millis(match self {
            Self::Steps => 50,
            Self::Talk(Generation::Three) => 150,
            Self::Talk(Generation::Four) => 75,
        })
    }

    /// Its place in a list of all beats.
    fn place(self) -> usize {
        match self {
            Self::Steps => 0,
            Self::Talk(Generation::Three) => 1,
            Self::Talk(Generation::Four) => 2,
        }
    }
}

/// Everything that is being told, and to whom.
#[derive(Debug)]
pub(super) struct Teller {
    clients: HashMap<u64, Listener>,
    /// How many clients have come.
    came: u64,
    watchers: HashMap<RunId, Vec<(u64, Detail)>>,
    stories: HashMap<RunId, Story>,
    pub(super) past: Past,
    /// For each beat the runs whose words were told a moment ago, and when they may be told again. A beat has one pace, so
    /// they are in order.
    paced: [VecDeque<(Instant, RunId)>; Beat::ALL.len()],
    /// Runs whose senders were not answered yet.
    held: HashMap<RunId, Held>,
    /// Who wants to know when all that was announced is told.
    pub(super) drains: Vec<oneshot::Sender<()>>,
    /// Where changes of conversations, and what is said in them, are announced.
    board: Board,
    /// Where runs are counted.
    metrics: Metrics,
    /// How many stories make it worth while to look for those that are over.
    sweep_at: usize,
}

/// Somebody who is told.
#[derive(Debug)]
struct Listener {
    client: Arc<Client>,
    /// How many had come when it had.
    came: u64,
}

/// A run whose sender was not answered yet, and its tape if that has news.
#[derive(Debug, Default)]
struct Held {
    holders: usize,
    tape: Option<Arc<Tape>>,
}

impl Teller {
    /// One that announces here what becomes of conversations.
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
                // A story that is not over has news to come: whatever its tape holds unread was announced.
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

    /// Whether anybody wants to hear what is said in a conversation. Mostly a look at two numbers.
    fn is_followed(&self, key: &SessionKey) -> bool {
        self.board.is_followed() && self.clients.values().any(|one| one.client.hears_messages(key))
    }

    /// Has a message that was stored published, if anybody subscribed to it.
    fn note_stored(&self, key: &SessionKey, session: &SessionId, message: StoredMessage) {
        match self.is_followed(key) {
            true => self.board.messages.changed(key, session, message),
            false => self.board.messages.passed(key, session),
        }
    }

    /// Tells who is here. A client that is slow hears it the next time somebody comes or goes.
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

    /// The story of a tape: the one that was begun, or a new one.
    pub(super) fn story(&mut self, tape: &Arc<Tape>) -> &mut Story {
        let new = || Story::new(tape, self.came);
        let story = self.stories.entry(tape.run().clone()).or_insert_with(new);
        if !std::ptr::eq(story.tape.as_ptr(), Arc::as_ptr(tape)) {
            *story = Story::new(tape, self.came);
        }
        story
    }

    /// Tells what is new in the house.
    pub(super) fn hear(&mut self, event: &HubEvent) {
        self.metrics.hear(event);
        match event {
            HubEvent::Run(tape) => self.read(tape),
            // No event of the protocol tells of it; the log does.
            HubEvent::Delivery(_) => {}
        }
    }

    /// Reads what is new on a tape and tells it.
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
        // One that does not know its transcript has written nothing: a restart found it, and what it wrote before is old.
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

    /// When words that wait may be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paced.iter().filter_map(|queue| queue.front().map(|(at, _)| *at)).min()
    }

    /// Tells the words that have waited long enough.
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

    /// Tells those who follow a conversation what is new in it, if they have not heard of it a moment ago.
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

    /// Whether anybody of that generation hears of runs.
    fn listeners(&self, generation: Generation) -> bool {
        self.clients.values().any(|one| one.client.generation == generation && one.client.hears_runs())
    }

    fn pace(&mut self, run: &RunId, beat: Beat) {
        if let Some(story) = self.stories.get_mut(run) {
            story.paced[beat.place()] = true;
        }
        self.paced[beat.place()].push_back((Instant::now() + beat.pace(), run.clone()));
    }

    /// Sends news to whom they concern: what tools do to those who watch, everything else to all.
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

    /// Tells a delta to clients of a generation. One that is slow can do without it: the next one says it all again.
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

    /// Answers those who waited for the end of a run, and forgets what was needed to tell it and runs that nobody can ask
    /// about any more.
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
        // Now and then, so that the cost of an end does not grow with the runs at work.
        if self.stories.len() > self.sweep_at {
            self.stories.retain(|_, story| story.tape.strong_count() > 0);
            self.sweep_at = 64 + 2 * self.stories.len();
        }
    }
}

fn write(event: &impl Serialize) -> Arc<str> {
    // An event is made of what JSON can say.
    serde_json::to_string(event).unwrap_or_default().into()
}
