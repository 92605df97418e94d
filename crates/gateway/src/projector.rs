//! Tells all clients what happens in all runs: one task, so that everybody hears everything in one order.
//!
//! It reads each run's tape once, and tells it twice: as `agent` events and as the `chat` events that go with them. An
//! event is serialised once, whoever listens. Words are paced: the first of a message go out at once, later ones at most
//! every 50 ms, because each time all of the message is told.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Weak},
    time::Duration,
};

use homard_agent::{
    Cursor, Event, HubEvent, RunEvent, Tape,
    schedule::Schedule,
    tape::State,
    task,
    wire::{News, Reported, Telling},
};
use homard_proto::{
    ErrorShape, RunId,
    event::{Agent, ChatState, Stream},
    frame::Response,
};
use serde_json::{Value, json};
use tokio::{
    sync::{
        broadcast::error::RecvError,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{connection::Client, news::Audience};

/// How often a run's words are told at most.
const PACE: Duration = Duration::from_millis(50);

/// How much a client is told of a tool's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// That it began and ended.
    Brief,
    /// What it said, too.
    Full,
}

/// A handle on the projector. What is sent here is heeded before any news of a run that began later.
#[derive(Debug, Clone)]
pub(crate) struct Projector {
    // Unbounded: every request sends a few, and a connection's requests are bounded.
    wishes: UnboundedSender<Wish>,
}

/// What a connection wants.
#[derive(Debug)]
enum Wish {
    Join(Arc<Client>),
    Leave(u64),
    Watch {
        run: RunId,
        client: u64,
        detail: Detail,
    },
    Unwatch {
        run: RunId,
        client: u64,
    },
    Answer(Arc<Tape>, Waiter),
    /// The run's news wait until its sender was answered.
    Hold(RunId),
    Release(RunId),
    /// Everybody in the audience is told this event.
    Tell(&'static str, Arc<str>, Audience),
    /// Everything that was announced so far is told; then this is.
    Drain(oneshot::Sender<()>),
}

/// Somebody who waits for a run's end.
#[derive(Debug)]
struct Waiter {
    client: Arc<Client>,
    request: String,
}

/// A run's news wait while this lives: whoever sends a message hears that it was accepted before anything of its run.
#[derive(Debug)]
pub(crate) struct Hold {
    run: RunId,
    projector: Projector,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.projector.wish(Wish::Release(self.run.clone()));
    }
}

/// A client's place among those who are told; dropping it is leaving.
#[derive(Debug)]
pub(crate) struct Joined {
    client: u64,
    projector: Projector,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.projector.wish(Wish::Leave(self.client));
    }
}

/// A projector that has not started yet: what it is asked for waits.
#[derive(Debug)]
pub(crate) struct Unstarted {
    projector: Projector,
    wished: UnboundedReceiver<Wish>,
}

impl Unstarted {
    pub(crate) fn new() -> Self {
        let (wishes, wished) = mpsc::unbounded_channel();
        Self { projector: Projector { wishes }, wished }
    }

    /// A handle on what it will be.
    pub(crate) fn projector(&self) -> Projector {
        self.projector.clone()
    }

    /// Starts telling.
    pub(crate) fn start(self, feed: UnboundedReceiver<HubEvent>) -> (Projector, JoinHandle<()>) {
        (self.projector, task::spawn("projector", run(feed, self.wished)))
    }
}

impl Projector {
    /// From here on the client is told what it may hear.
    pub(crate) fn join(&self, client: Arc<Client>) -> Joined {
        let joined = Joined { client: client.id, projector: self.clone() };
        self.wish(Wish::Join(client));
        joined
    }

    /// Keeps back the news of a run that is about to be accepted.
    pub(crate) fn hold(&self, run: RunId) -> Hold {
        self.wish(Wish::Hold(run.clone()));
        Hold { run, projector: self.clone() }
    }

    /// The client shall hear of the tools of a run that is about to begin.
    pub(crate) fn watch(&self, run: RunId, client: &Client, detail: Detail) {
        self.wish(Wish::Watch { run, client: client.id, detail });
    }

    /// The run did not begin after all, or began for somebody else.
    pub(crate) fn unwatch(&self, run: RunId, client: &Client) {
        self.wish(Wish::Unwatch { run, client: client.id });
    }

    /// Answers the request once more when the run is over, after everybody was told so; at once if it is over.
    pub(crate) fn answer_at_end(&self, tape: Arc<Tape>, client: Arc<Client>, request: String) {
        self.wish(Wish::Answer(tape, Waiter { client, request }));
    }

    /// Tells everybody what the schedule does, for as long as the handle lives.
    pub(crate) fn follow(&self, schedule: &Schedule) -> AbortOnDropHandle<()> {
        let (projector, mut news) = (self.clone(), schedule.listen());
        AbortOnDropHandle::new(task::spawn("schedule news", async move {
            loop {
                match news.recv().await {
                    Ok((event, payload)) => projector.tell(event, &payload, Audience::READERS),
                    Err(RecvError::Lagged(count)) => tracing::warn!(count, "news of the schedule were lost"),
                    Err(RecvError::Closed) => return,
                }
            }
        }))
    }

    /// Tells everybody in the audience.
    pub(crate) fn tell(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.wish(Wish::Tell(event, payload.to_string().into(), audience));
    }

    /// Waits until everything that happened so far was told.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.wish(Wish::Drain(done));
        // Without a projector there is nothing left to tell.
        drained.await.ok();
    }

    fn wish(&self, wish: Wish) {
        // Without a projector the server has stopped, and nobody is told anything any more.
        self.wishes.send(wish).ok();
    }
}

async fn run(mut feed: UnboundedReceiver<HubEvent>, mut wishes: UnboundedReceiver<Wish>) {
    let mut teller = Teller::default();
    loop {
        let due = teller.paced.front().map(|(at, _)| *at);
        tokio::select! {
            // Wishes first: a client that watches a run must be known before the run's first news is read.
            biased;
            wish = wishes.recv() => match wish {
                Some(wish) => teller.heed(wish),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => teller.tell_words(),
            Some(HubEvent::Run(tape)) = feed.recv() => {
                while let Ok(wish) = wishes.try_recv() {
                    teller.heed(wish);
                }
                teller.read(&tape);
            }
        }
        if !teller.drains.is_empty() {
            while let Ok(HubEvent::Run(tape)) = feed.try_recv() {
                teller.read(&tape);
            }
            for done in teller.drains.drain(..) {
                // Whoever asked may have gone, and that is fine.
                done.send(()).ok();
            }
        }
    }
}

/// Everything that is being told, and to whom.
#[derive(Debug, Default)]
struct Teller {
    clients: HashMap<u64, Arc<Client>>,
    watchers: HashMap<RunId, Vec<(u64, Detail)>>,
    stories: HashMap<RunId, Story>,
    /// Runs whose words were told a moment ago, and when they may be told again. The pace is one, so it is in order.
    paced: VecDeque<(Instant, RunId)>,
    /// Runs whose senders were not answered yet.
    held: HashMap<RunId, Held>,
    /// Who wants to know when all that was announced is told.
    drains: Vec<oneshot::Sender<()>>,
    /// How many stories make it worth while to look for those that are over.
    sweep_at: usize,
}

/// A run whose sender was not answered yet, and its tape if that has news.
#[derive(Debug, Default)]
struct Held {
    holders: usize,
    tape: Option<Arc<Tape>>,
}

/// One run on its way to clients.
#[derive(Debug)]
struct Story {
    /// Not held: whoever can still ask about the run holds it, and when nobody does the story is forgotten.
    tape: Weak<Tape>,
    cursor: Cursor,
    /// `None` when the story is over.
    telling: Option<Telling>,
    /// Whose words are being told.
    message: Option<u32>,
    is_paced: bool,
    waiters: Vec<Waiter>,
}

impl Story {
    fn new(tape: &Arc<Tape>) -> Self {
        Self {
            tape: Arc::downgrade(tape),
            cursor: Cursor::default(),
            telling: Some(Telling::new(tape)),
            message: None,
            is_paced: false,
            waiters: Vec::new(),
        }
    }
}

impl Teller {
    fn heed(&mut self, wish: Wish) {
        match wish {
            Wish::Join(client) => {
                self.clients.insert(client.id, client);
            }
            Wish::Leave(gone) => {
                self.clients.remove(&gone);
                for watchers in self.watchers.values_mut() {
                    watchers.retain(|(client, _)| *client != gone);
                }
                self.watchers.retain(|_, watchers| !watchers.is_empty());
                for story in self.stories.values_mut() {
                    story.waiters.retain(|waiter| waiter.client.id != gone);
                }
            }
            Wish::Watch { run, client, detail } => self.watchers.entry(run).or_default().push((client, detail)),
            Wish::Unwatch { run, client } => {
                if let Some(watchers) = self.watchers.get_mut(&run) {
                    watchers.retain(|(watcher, _)| *watcher != client);
                }
            }
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
                for client in self.clients.values().filter(|client| audience.includes(client)) {
                    client.outbox.tell(event, payload.clone());
                }
            }
            Wish::Drain(done) => self.drains.push(done),
        }
    }

    /// The story of a tape: the one that was begun, or a new one.
    fn story(&mut self, tape: &Arc<Tape>) -> &mut Story {
        let story = self.stories.entry(tape.run().clone()).or_insert_with(|| Story::new(tape));
        if !std::ptr::eq(story.tape.as_ptr(), Arc::as_ptr(tape)) {
            *story = Story::new(tape);
        }
        story
    }

    /// Reads what is new on a tape and tells it.
    fn read(&mut self, tape: &Arc<Tape>) {
        if let Some(held) = self.held.get_mut(tape.run()) {
            held.tape = Some(tape.clone());
            return;
        }
        let story = self.story(tape);
        let Some(mut telling) = story.telling.take() else { return };
        let (mut message, is_paced) = (story.message, story.is_paced);
        let mut is_over = false;
        let mut told = Vec::new();
        let mut is_first = false;
        for event in tape.read(&mut story.cursor) {
            if let Event { kind: RunEvent::Text { message: speaking, .. }, .. } = &event
                && message.replace(*speaking) != Some(*speaking)
            {
                is_first = true;
            }
            is_over |= matches!(event.kind, RunEvent::Ended(_));
            told.extend(telling.push(event));
        }
        let flushed = if is_first || !is_paced { telling.flush() } else { Vec::new() };
        let needs_pace = !flushed.is_empty() && !is_paced;
        told.extend(flushed);
        story.message = message;
        story.is_paced |= needs_pace;
        if let State::Broken(why) = tape.state() {
            told.extend(telling.break_off(&why));
            is_over = true;
        }
        if is_over {
            let waiters = std::mem::take(&mut story.waiters);
            self.tell(tape.run(), &told);
            waiters.iter().for_each(|waiter| waiter.answer(tape));
            return self.forget(tape);
        }
        story.telling = Some(telling);
        self.tell(tape.run(), &told);
        if needs_pace {
            self.pace(tape.run().clone());
        }
    }

    /// Tells the words that have waited long enough.
    fn tell_words(&mut self) {
        let now = Instant::now();
        while let Some((_, run)) = self.paced.pop_front_if(|(at, _)| *at <= now) {
            let Some(story) = self.stories.get_mut(&run) else { continue };
            let words = story.telling.as_mut().map(Telling::flush).unwrap_or_default();
            if words.is_empty() {
                story.is_paced = false;
            } else {
                self.tell(&run, &words);
                self.pace(run);
            }
        }
    }

    fn pace(&mut self, run: RunId) {
        self.paced.push_back((Instant::now() + PACE, run));
    }

    /// Sends news to whom they concern: what tools do to those who watch, everything else to all.
    fn tell(&self, run: &RunId, news: &[News]) {
        for news in news {
            match news {
                News::Agent(event) if event.stream == Stream::Tool => {
                    self.tell_watchers(self.watchers.get(run).map(Vec::as_slice).unwrap_or_default(), event);
                }
                News::Agent(_) | News::Chat(_) => self.tell_all(news),
            }
        }
    }

    fn tell_all(&self, news: &News) {
        let mut clients = self.clients.values().filter(|client| client.hears_runs()).peekable();
        if clients.peek().is_none() {
            return;
        }
        let payload = match news {
            News::Agent(event) => write(event),
            // An event is made of what JSON can say.
            News::Chat(event) => serde_json::to_string(event).unwrap_or_default().into(),
        };
        for client in clients {
            match news {
                News::Agent(_) => client.outbox.tell("agent", payload.clone()),
                // The next one says it all again.
                News::Chat(event) if event.state == ChatState::Delta => {
                    client.outbox.tell_if_room("chat", payload.clone());
                }
                News::Chat(_) => client.outbox.tell("chat", payload.clone()),
            }
        }
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
            for client in clients.filter_map(|(client, _)| self.clients.get(client)) {
                client.outbox.tell("agent", payload.clone());
            }
        }
    }

    /// Forgets what was needed to tell the run, and runs that nobody can ask about any more.
    fn forget(&mut self, tape: &Tape) {
        self.watchers.remove(tape.run());
        // Now and then, so that the cost of an end does not grow with the runs at work.
        if self.stories.len() > self.sweep_at {
            self.stories.retain(|_, story| story.tape.strong_count() > 0);
            self.sweep_at = 64 + 2 * self.stories.len();
        }
    }
}

impl Waiter {
    /// The last answer, once the run's story is over.
    fn answer(&self, tape: &Tape) {
        let failed = |why: String| {
            let payload = json!({"runId": tape.run(), "status": "error", "summary": why});
            (payload, Some(ErrorShape::unavailable(why)))
        };
        let (payload, error) = match tape.state() {
            State::Ended(end) => Reported::of(tape.run(), tape.key(), &end).response(self.client.generation),
            State::Broken(why) => failed(why),
            // A row without an end, and nobody at work on it.
            State::Refused => failed("the run was interrupted; send the message again under a new id".to_owned()),
            // Not over: then somebody else's news will end it.
            State::Queued | State::Running => return,
        };
        let ok = error.is_none();
        self.client.outbox.respond(&Response { id: self.request.as_str().into(), ok, payload: Some(payload), error });
    }
}

fn write(event: &Agent) -> Arc<str> {
    // An event is made of what JSON can say.
    serde_json::to_string(event).unwrap_or_default().into()
}

/// A tool's step without what the tool said.
fn brief(event: &Agent) -> Agent {
    let mut brief = event.clone();
    if let Some(data) = brief.data.as_object_mut() {
        data.shift_remove("result");
        data.shift_remove("partialResult");
    }
    brief
}
