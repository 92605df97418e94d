//! The table once more, in the plainest words: what an inbox should answer, without a thought for speed.

use super::*;

/// What an inbox should hold.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) line: Vec<Waiting>,
    pub(super) dropped: Vec<Note>,
    settings: Settings,
    newest_at: u64,
    is_one_by_one: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) note: Note,
    /// It waits for a slot at most: it came first, or it is an interrupt.
    has_started: bool,
    /// Its sender was told that the run at work hears of it, and that run is still at work.
    is_steered: bool,
    is_shown: bool,
}

impl Waiting {
    fn new(note: Note) -> Self {
        Self { note, has_started: false, is_steered: false, is_shown: false }
    }

    fn mode(&self) -> Option<Mode> {
        self.note.settings.map(|settings| settings.mode)
    }

    /// Whether the cap and the collecting concern it.
    pub(super) fn is_queued(&self) -> bool {
        self.note.settings.is_some() && !self.has_started
    }
}

impl Model {
    pub(super) fn all(&self) -> Vec<Note> {
        self.dropped.iter().chain(self.line.iter().map(|waiting| &waiting.note)).cloned().collect()
    }

    pub(super) fn push(&mut self, note: Note, is_running: bool, now: u64) -> Pushed<Note> {
        let is_idle = !is_running && self.all().is_empty();
        let mut new = Waiting::new(note.clone());
        new.has_started = is_idle;
        let mut gone = Vec::new();
        let Some(settings) = note.settings else {
            self.is_one_by_one &= !self.all().is_empty();
            self.line.push(new);
            let placed = if is_idle { Placed::Started } else { Placed::Queued(self.line.len()) };
            return Pushed::In { placed, gone };
        };
        let is_interrupt = settings.mode == Mode::Interrupt && !is_idle;
        if is_interrupt {
            gone = self.take_out(|_| true);
            new.has_started = true;
        } else {
            let mut oldest: Vec<_> = (0..self.line.len()).filter(|&place| self.line[place].is_queued()).collect();
            oldest.truncate((oldest.len() + 1).saturating_sub(settings.cap));
            match settings.drop {
                Drop::New if !oldest.is_empty() => return Pushed::Full(note),
                Drop::New | Drop::Old => gone.extend(self.remove(&oldest)),
                Drop::Summarize => {
                    let dropped = self.remove(&oldest);
                    self.dropped.extend(dropped);
                }
            }
        }
        self.is_one_by_one &= !self.all().is_empty();
        new.is_steered = is_running && self.is_heard_behind_others(settings.mode);
        let is_steered = new.is_steered;
        self.line.push(new);
        (self.settings, self.newest_at) = (settings, now);
        let placed = match settings.mode {
            _ if is_idle => Placed::Started,
            _ if is_interrupt => Placed::Interrupted,
            _ if is_steered => Placed::Steered,
            Mode::Collect => Placed::Collected(self.line.len()),
            Mode::Steer | Mode::SteerBacklog | Mode::Followup | Mode::Interrupt => Placed::Queued(self.line.len()),
        };
        Pushed::In { placed, gone }
    }

    /// Whether the run at work can hear of the next message without its overtaking any.
    fn is_heard_behind_others(&self, mode: Mode) -> bool {
        let are_all_steered = self.line.iter().all(|other| other.is_steered && other.mode() == Some(Mode::Steer));
        let are_all_heard = self.line.iter().all(|other| other.is_steered || other.is_shown);
        self.dropped.is_empty()
            && match mode {
                Mode::Steer => are_all_steered,
                Mode::SteerBacklog => are_all_heard,
                Mode::Followup | Mode::Collect | Mode::Interrupt => false,
            }
    }

    fn remove(&mut self, places: &[usize]) -> Vec<Note> {
        let mut removed: Vec<_> = places.iter().rev().map(|&place| self.line.remove(place).note).collect();
        removed.reverse();
        removed
    }

    /// When a turn can begin; `None` if nothing waits.
    pub(super) fn ready_at(&self, now: u64) -> Option<u64> {
        let has_own_front = self.line.first().is_some_and(|first| !first.is_queued());
        let has_plain = self.line.iter().any(|waiting| waiting.note.settings.is_none());
        let quiet = self.newest_at + self.settings.debounce.as_millis() as u64;
        match () {
            () if self.all().is_empty() => None,
            () if has_own_front || has_plain => Some(now),
            () => Some(quiet.max(now)),
        }
    }

    pub(super) fn next(&mut self, now: u64) -> Option<Turn<Note>> {
        if self.ready_at(now)? > now {
            return None;
        }
        if self.line.first().is_some_and(|first| !first.is_queued()) {
            return Some(alone(self.line.remove(0).note));
        }
        let batch = self.line.iter().take_while(|waiting| waiting.is_queued()).count();
        let mut routes: Vec<_> = self.line[..batch].iter().map(|waiting| waiting.note.route.clone()).collect();
        routes.extend(self.dropped.iter().map(|note| note.route.clone()));
        let is_one_route = routes.iter().all(|route| *route == routes[0]) && is_complete(&routes[0]);
        let is_collect = self.settings.mode == Mode::Collect;
        let mut notes = std::mem::take(&mut self.dropped);
        let summary = self.summary(&notes);
        if is_collect && is_one_route && !self.is_one_by_one {
            let mut prompt = "[Queued messages while agent was busy]".to_owned();
            summary.iter().for_each(|summary| prompt += &format!("\n\n{summary}"));
            for (place, waiting) in self.line.drain(..batch).enumerate() {
                prompt += &format!("\n\n---\nQueued #{}\n{}", place + 1, waiting.note.text);
                notes.push(waiting.note);
            }
            return notes.pop().map(|host| Turn { host, guests: notes, prompt: Some(prompt) });
        }
        self.is_one_by_one = is_collect;
        // A summary tells of one route.
        let route = notes.first().map(|note| note.route.clone());
        let (mut notes, others): (Vec<_>, _) = notes.into_iter().partition(|note| Some(&note.route) == route.as_ref());
        self.dropped = others;
        let summary = self.summary(&notes);
        match notes.pop() {
            Some(host) => Some(Turn { host, guests: notes, prompt: summary }),
            None => Some(alone(self.line.remove(0).note)),
        }
    }

    fn summary(&self, dropped: &[Note]) -> Option<String> {
        let start = match dropped.len() {
            0 => return None,
            1 => "[Queue overflow] Dropped 1 message due to cap.\nSummary:".to_owned(),
            count => format!("[Queue overflow] Dropped {count} messages due to cap.\nSummary:"),
        };
        let hidden = dropped.len().saturating_sub(self.settings.cap);
        Some(dropped[hidden..].iter().fold(start, |text, note| format!("{text}\n- {}", note.text)))
    }

    /// The message that the run at work is offered next.
    pub(super) fn offered(&self) -> Option<usize> {
        let place = self.line.iter().position(|waiting| !waiting.is_shown)?;
        (self.dropped.is_empty() && self.line[place].is_steered).then_some(place)
    }

    pub(super) fn offer(&mut self) -> Option<Offer<Note>> {
        let place = self.offered()?;
        if self.line[place].mode() == Some(Mode::SteerBacklog) {
            self.line[place].is_shown = true;
            return Some(Offer::Copy(self.line[place].note.text.clone()));
        }
        Some(Offer::Take(self.line.remove(place).note))
    }

    pub(super) fn put_back(&mut self, notes: &[Note]) {
        self.line.splice(..0, notes.iter().cloned().map(Waiting::new));
    }

    pub(super) fn withdraw_offers(&mut self) {
        self.line.iter_mut().for_each(|waiting| waiting.is_steered = false);
    }

    pub(super) fn take_out(&mut self, is_meant: impl Fn(&Note) -> bool) -> Vec<Note> {
        let out = self.all().into_iter().filter(&is_meant).collect();
        self.dropped.retain(|note| !is_meant(note));
        self.line.retain(|waiting| !is_meant(&waiting.note));
        out
    }
}

fn is_complete(route: &Route) -> bool {
    *route == Route::default() || (route.channel.is_some() && route.to.is_some())
}
