//! A simple reference model of the inbox, without regard to speed.

use super::*;

/// Expected content of an inbox.
#[derive(Debug, Default)]
pub(super) struct InboxModel {
    pub(super) queue: Vec<Waiting>,
    pub(super) dropped: Vec<Note>,
    settings: QueueSettings,
    newest_at: u64,
    is_one_by_one: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) note: Note,
    /// Waits at most for a slot: it arrived first, or it is an interrupt.
    has_started: bool,
    /// Offered to the active run.
    is_steered: bool,
    is_shown: bool,
    /// A run had it and returned it.
    is_returned: bool,
}

impl Waiting {
    fn new(note: Note) -> Self {
        Self { note, has_started: false, is_steered: false, is_shown: false, is_returned: false }
    }

    fn mode(&self) -> Option<QueueMode> {
        self.note.settings.map(|settings| settings.mode)
    }

    /// True if it can be collected.
    pub(super) fn is_queued(&self) -> bool {
        self.note.settings.is_some() && !self.has_started
    }

    /// True if it counts towards the cap.
    pub(super) fn is_counted(&self) -> bool {
        self.is_queued() && !self.is_steered
    }

    fn could_steer(&self) -> bool {
        let is_new = !self.has_started && !self.is_steered && !self.is_shown && !self.is_returned;
        is_new && matches!(self.mode(), Some(QueueMode::Steer | QueueMode::SteerBacklog))
    }
}

impl InboxModel {
    pub(super) fn all(&self) -> Vec<Note> {
        self.dropped.iter().chain(self.queue.iter().map(|waiting| &waiting.note)).cloned().collect()
    }

    pub(super) fn push(&mut self, note: Note, is_running: bool, now: u64) -> PushResult<Note> {
        let is_idle = !is_running && self.all().is_empty();
        let mut new = Waiting::new(note.clone());
        new.has_started = is_idle;
        let mut removed = Vec::new();
        let Some(settings) = note.settings else {
            self.is_one_by_one &= !self.all().is_empty();
            self.queue.push(new);
            let disposition = if is_idle { Disposition::Started } else { Disposition::Queued(self.waiting()) };
            return PushResult::In { disposition, removed };
        };
        let is_interrupt = settings.mode == QueueMode::Interrupt && !is_idle;
        let is_boundary = |other: &Waiting| other.note.is_boundary || other.mode() == Some(QueueMode::Interrupt);
        let is_steered = is_running
            && [QueueMode::Steer, QueueMode::SteerBacklog].contains(&settings.mode)
            && !self.queue.iter().any(is_boundary);
        if is_interrupt {
            removed = self.take_out(|_| true);
            new.has_started = true;
        } else if !is_steered {
            let mut oldest: Vec<_> = (0..self.queue.len()).filter(|&index| self.queue[index].is_counted()).collect();
            oldest.truncate((oldest.len() + 1).saturating_sub(settings.cap));
            match settings.drop {
                DropPolicy::New if !oldest.is_empty() => return PushResult::Full(note),
                DropPolicy::New | DropPolicy::Old => removed.extend(self.remove(&oldest)),
                DropPolicy::Summarize => {
                    let dropped = self.remove(&oldest);
                    self.dropped.extend(dropped);
                }
            }
        }
        self.is_one_by_one &= !self.all().is_empty();
        if is_steered {
            let is_same_sender =
                |other: &&mut Waiting| (&other.note.route, other.note.sender) == (&note.route, note.sender);
            let earlier = self.queue.iter_mut().filter(|other| other.could_steer()).filter(is_same_sender);
            earlier.for_each(|other| other.is_steered = true);
        }
        new.is_steered = is_steered;
        self.queue.push(new);
        (self.settings, self.newest_at) = (settings, now);
        let disposition = match settings.mode {
            _ if is_idle => Disposition::Started,
            _ if is_interrupt => Disposition::Interrupted,
            _ if is_steered => Disposition::Steered,
            QueueMode::Collect => Disposition::Collected(self.waiting()),
            QueueMode::Steer | QueueMode::SteerBacklog | QueueMode::Followup | QueueMode::Interrupt => {
                Disposition::Queued(self.waiting())
            }
        };
        PushResult::In { disposition, removed }
    }

    /// Number of messages that wait for a run.
    fn waiting(&self) -> usize {
        self.queue.iter().filter(|waiting| !waiting.is_steered).count()
    }

    fn remove(&mut self, indexes: &[usize]) -> Vec<Note> {
        let mut removed: Vec<_> = indexes.iter().rev().map(|&index| self.queue.remove(index).note).collect();
        removed.reverse();
        removed
    }

    /// Returns when a run can start; `None` if the queue is empty.
    pub(super) fn ready_at(&self, now: u64) -> Option<u64> {
        let has_own_front = self.queue.first().is_some_and(|first| !first.is_queued());
        let has_plain = self.queue.iter().any(|waiting| waiting.note.settings.is_none());
        let debounced_at = self.newest_at + self.settings.debounce.as_millis() as u64;
        match () {
            () if self.all().is_empty() => None,
            () if has_own_front || has_plain => Some(now),
            () => Some(debounced_at.max(now)),
        }
    }

    pub(super) fn next(&mut self, now: u64) -> Option<QueuedRun<Note>> {
        if self.ready_at(now)? > now {
            return None;
        }
        if self.queue.first().is_some_and(|first| !first.is_queued()) {
            return Some(single_run(self.queue.remove(0).note));
        }
        let batch = self.queue.iter().take_while(|waiting| waiting.is_queued()).count();
        let mut routes: Vec<_> = self.queue[..batch].iter().map(|waiting| waiting.note.route.clone()).collect();
        routes.extend(self.dropped.iter().map(|note| note.route.clone()));
        let is_one_route = routes.iter().all(|route| *route == routes[0]) && is_complete(&routes[0]);
        let is_collect = self.settings.mode == QueueMode::Collect;
        let mut notes = std::mem::take(&mut self.dropped);
        let summary = self.summary(&notes);
        if is_collect && is_one_route && !self.is_one_by_one {
            let mut prompt = "[Queued messages while agent was busy]".to_owned();
            summary.iter().for_each(|summary| prompt += &format!("\n\n{summary}"));
            for (index, waiting) in self.queue.drain(..batch).enumerate() {
                prompt += &format!("\n\n---\nQueued #{}\n{}", index + 1, waiting.note.text);
                notes.push(waiting.note);
            }
            return notes.pop().map(|host| QueuedRun { host, absorbed: notes, prompt: Some(prompt) });
        }
        self.is_one_by_one = is_collect;
        // A summary covers one route.
        let route = notes.first().map(|note| note.route.clone());
        let (mut notes, others): (Vec<_>, _) = notes.into_iter().partition(|note| Some(&note.route) == route.as_ref());
        self.dropped = others;
        let summary = self.summary(&notes);
        match notes.pop() {
            Some(host) => Some(QueuedRun { host, absorbed: notes, prompt: summary }),
            None => Some(single_run(self.queue.remove(0).note)),
        }
    }

    fn summary(&self, dropped: &[Note]) -> Option<String> {
        let start = match dropped.len() {
            0 => return None,
            1 => "[Queue overflow] Dropped 1 message due to cap.\nSummary:".to_owned(),
            count => format!("[Queue overflow] Dropped {count} messages due to cap.\nSummary:"),
        };
        Some(dropped.iter().fold(start, |text, note| format!("{text}\n- {}", note.text)))
    }

    /// Position of the message that the active run is offered next.
    pub(super) fn offered(&self) -> Option<usize> {
        self.queue.iter().position(|waiting| waiting.is_steered)
    }

    pub(super) fn offer(&mut self) -> Option<SteerOffer<Note>> {
        let index = self.offered()?;
        let counted = self.queue.iter().filter(|waiting| waiting.is_counted()).count();
        let entry = &mut self.queue[index];
        let has_room = entry.note.settings.is_some_and(|settings| counted < settings.cap);
        if entry.mode() == Some(QueueMode::SteerBacklog) && has_room {
            (entry.is_steered, entry.is_shown) = (false, true);
            return Some(SteerOffer::Copy(entry.note.text.clone()));
        }
        Some(SteerOffer::Take(self.queue.remove(index).note))
    }

    pub(super) fn put_back(&mut self, notes: &[Note]) {
        for note in notes {
            self.queue.push(Waiting { is_returned: true, ..Waiting::new(note.clone()) });
        }
        self.queue.sort_by_key(|waiting| waiting.note.text.parse::<usize>().unwrap());
    }

    pub(super) fn withdraw_offers(&mut self) {
        self.queue.iter_mut().for_each(|waiting| waiting.is_steered = false);
    }

    pub(super) fn take_out(&mut self, matches: impl Fn(&Note) -> bool) -> Vec<Note> {
        let removed = self.all().into_iter().filter(&matches).collect();
        self.dropped.retain(|note| !matches(note));
        self.queue.retain(|waiting| !matches(&waiting.note));
        removed
    }
}

fn is_complete(route: &Route) -> bool {
    *route == Route::default() || (route.channel.is_some() && route.to.is_some())
}
