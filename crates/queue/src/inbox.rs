//! The queue of a session: decides what happens to messages that arrive while a run is active.
//!
//! Pure: no clock, no tasks, no I/O. Every message pushed comes out exactly once: as its own run, merged into another
//! run, steered into the active run, or returned to be ended.
//!
//! | mode | idle | others queued | run active |
//! |---|---|---|---|
//! | `steer` | starts | queued as its own run | offered to the run; if not taken, queued as its own run |
//! | `followup` | starts | queued as its own run | queued as its own run |
//! | `collect` | starts | merged with queued messages of the same route and authority | the same |
//! | `steer-backlog` | starts | queued as its own run | offered to the run and also queued as its own run |
//! | `interrupt` | starts | replaces everything queued | aborts the run and replaces everything queued |
//!
//! Order: runs start in order of arrival, and a run takes offered messages in order of arrival. A steer message
//! overtakes queued runs, but neither an earlier steer message of the same sender, which is then offered with it, nor
//! a boundary (a command that changes the transcript, or an interrupt).
//!
//! The cap counts messages that wait for a run. An offered message does not wait, so it is neither counted nor
//! dropped.

use std::{borrow::Cow, collections::VecDeque};

use homard_policy::tools::SenderRole;
use homard_proto::{Route, RunId};

use crate::settings::{DropPolicy, QueueMode, QueueSettings};

/// Upper bound on queued messages per session, regardless of settings.
pub const MAX_QUEUED: usize = 1_000;

/// Maximum characters per line in the summary of dropped messages.
const SUMMARY_LINE_CHARS: usize = 160;

/// Disposition of a message that the model gets only as a summary line.
pub const SUMMARIZED: &str = "summarized";

/// Maximum dropped messages in a summary. Of more, the oldest and the newest are listed and the others counted.
const MAX_SUMMARY_LINES: usize = 100;

/// What the queue needs to know about a message.
pub trait QueueItem {
    /// Id of the run.
    fn run(&self) -> &RunId;
    /// Text of the message.
    fn text(&self) -> Cow<'_, str>;
    /// Origin of the message and destination of its reply.
    fn route(&self) -> &Route;
    /// Authority of its run. Messages with different authority are never answered by one run.
    fn sender(&self) -> SenderRole;
    /// Queue settings; `None` for a request that always gets a run of its own: it is never delayed, merged, offered or
    /// dropped. Only an interrupt removes it.
    fn settings(&self) -> Option<&QueueSettings>;
    /// True if messages behind it belong to another context than the active run, as after `/new`: they are not offered
    /// to that run.
    fn is_boundary(&self) -> bool;
}

/// What happened to a message, as reported to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Starts at once.
    Started,
    /// Offered to the active run.
    Steered,
    /// Waiting for its own run, at this position.
    Queued(usize),
    /// Waiting to be merged with others, at this position.
    Collected(usize),
    /// Aborted the active run and replaced the queue.
    Interrupted,
    /// The queue was full: a later run gets a summary line instead of the message.
    Summarized,
    /// The queue is full; the message will not be answered.
    Rejected,
}

impl Disposition {
    /// Returns the serialized disposition, and the position in the queue if it has one.
    pub fn wire_name(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Started => ("started", None),
            Self::Steered => ("steered", None),
            Self::Queued(position) => ("queued", Some(position)),
            Self::Collected(position) => ("collected", Some(position)),
            Self::Interrupted => ("interrupted", None),
            Self::Summarized => (SUMMARIZED, None),
            Self::Rejected => ("rejected", None),
        }
    }
}

/// Result of a push.
#[derive(Debug, PartialEq)]
pub enum PushResult<L> {
    /// The message is in the queue.
    In {
        /// Its disposition.
        disposition: Disposition,
        /// Messages that were removed and will not be answered.
        removed: Vec<L>,
    },
    /// The queue is full.
    Full(L),
}

/// Whether a run can start.
#[derive(Debug, PartialEq)]
pub enum Readiness<'a, L> {
    /// The queue is empty.
    Nothing,
    /// Debouncing until this time in milliseconds, or longer if more messages arrive.
    Later(u64),
    /// A run can start, beginning with this message.
    Now(&'a L),
}

/// The messages of one run.
#[derive(Debug, PartialEq)]
pub struct QueuedRun<L> {
    /// The message whose run it is.
    pub host: L,
    /// Messages absorbed by that run, oldest first.
    pub absorbed: Vec<L>,
    /// Text for the model, if it differs from the host's message.
    pub prompt: Option<String>,
}

/// What the active run is offered.
#[derive(Debug, PartialEq)]
pub enum SteerOffer<L> {
    /// A message to be absorbed by the run.
    Take(L),
    /// Text of a message that also gets a run of its own.
    Copy(String),
}

/// Queued messages of one session.
#[derive(Debug)]
pub struct Inbox<L> {
    items: VecDeque<QueueEntry<L>>,
    /// Messages dropped because the queue was full; a later run lists them in a summary.
    dropped: Vec<L>,
    /// Settings of the newest message that has any.
    settings: QueueSettings,
    /// Arrival time of the newest message, in milliseconds.
    newest_at: u64,
    /// True if a batch cannot be merged into one run: the rest of it is taken one by one.
    is_mixed: bool,
    /// Number of messages added so far.
    added: u64,
    /// Messages absorbed by the current run, each with its sequence number. The run may return them.
    absorbed: Vec<(RunId, u64)>,
}

#[derive(Debug)]
struct QueueEntry<L> {
    item: L,
    /// Sequence number in order of arrival. Items are sorted by it.
    number: u64,
    /// True if it arrived at an idle session, or is an interrupt that cleared the queue: nothing is ahead of it.
    is_first: bool,
    steer_state: SteerState,
}

/// Relation of a message to the active run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SteerState {
    /// Not offered to the run.
    Waits,
    /// The run may take it.
    Offered,
    /// A run has seen its text; it also gets a run of its own.
    Shown,
    /// A run absorbed and returned it: it gets a run of its own and is not offered to another run, which could fail
    /// because of it, too.
    Returned,
}

impl<L: QueueItem> QueueEntry<L> {
    fn mode(&self) -> Option<QueueMode> {
        self.item.settings().map(|settings| settings.mode)
    }

    /// True if it becomes a run of its own, unmerged and without delay, once it is at the head of the queue.
    fn is_own(&self) -> bool {
        self.is_first || self.item.settings().is_none()
    }

    /// True if it counts towards the cap.
    fn counts(&self) -> bool {
        !self.is_own() && self.steer_state != SteerState::Offered
    }

    fn can_steer(&self) -> bool {
        self.steer_state == SteerState::Waits
            && !self.is_first
            && matches!(self.mode(), Some(QueueMode::Steer | QueueMode::SteerBacklog))
    }

    /// True if no message behind it is offered to the active run.
    fn is_boundary(&self) -> bool {
        self.item.is_boundary() || self.mode() == Some(QueueMode::Interrupt)
    }
}

impl<L> Default for Inbox<L> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            dropped: Vec::new(),
            settings: QueueSettings::default(),
            newest_at: 0,
            is_mixed: false,
            added: 0,
            absorbed: Vec::new(),
        }
    }
}

impl<L: QueueItem> Inbox<L> {
    /// Number of queued messages.
    pub fn len(&self) -> usize {
        self.items.len() + self.dropped.len()
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the queued messages, oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.dropped.iter_mut().chain(self.items.iter_mut().map(|item| &mut item.item))
    }

    /// True if a message is offered to the active run.
    pub fn has_offer(&self) -> bool {
        self.offered().is_some()
    }

    /// Iterates over the queued messages with their current dispositions, without those that are about to start.
    pub fn dispositions(&self) -> impl Iterator<Item = (&L, Disposition)> {
        let dropped = self.dropped.iter().map(|message| (message, Disposition::Summarized));
        let items = self.items.iter().scan(0, |position, item| {
            *position += usize::from(item.steer_state != SteerState::Offered);
            let disposition = match (item.steer_state, item.mode()) {
                (SteerState::Offered | SteerState::Shown, _) => Disposition::Steered,
                (SteerState::Waits | SteerState::Returned, Some(QueueMode::Collect)) => {
                    Disposition::Collected(*position)
                }
                (SteerState::Waits | SteerState::Returned, _) => Disposition::Queued(*position),
            };
            Some((!item.is_first).then_some((&item.item, disposition)))
        });
        dropped.chain(items.flatten())
    }

    /// Adds a message.
    pub fn push(&mut self, message: L, is_running: bool, now: u64) -> PushResult<L> {
        let is_first = !is_running && self.is_empty();
        let Some(settings) = message.settings().cloned() else {
            if self.len() >= MAX_QUEUED {
                return PushResult::Full(message);
            }
            let position = self.add(message, is_first, SteerState::Waits);
            let disposition = if is_first { Disposition::Started } else { Disposition::Queued(position) };
            return PushResult::In { disposition, removed: Vec::new() };
        };
        let mode = settings.mode;
        let is_steered = is_running
            && matches!(mode, QueueMode::Steer | QueueMode::SteerBacklog)
            && !self.items.iter().any(QueueEntry::is_boundary);
        let mut removed = Vec::new();
        if mode == QueueMode::Interrupt && !is_first {
            removed = self.clear();
        } else if self.len() >= MAX_QUEUED || !(is_steered || self.make_room(&settings, &mut removed)) {
            return PushResult::Full(message);
        }
        (self.settings, self.newest_at) = (settings, now);
        if is_steered {
            // A later steer also offers the earlier waiting messages of the same sender to the run.
            let earlier = self.items.iter_mut().filter(|item| item.can_steer() && is_alike(&item.item, &message));
            earlier.for_each(|item| item.steer_state = SteerState::Offered);
        }
        let steer_state = if is_steered { SteerState::Offered } else { SteerState::Waits };
        let position = self.add(message, is_first || mode == QueueMode::Interrupt, steer_state);
        let disposition = match mode {
            _ if is_first => Disposition::Started,
            QueueMode::Interrupt => Disposition::Interrupted,
            _ if is_steered => Disposition::Steered,
            QueueMode::Collect => Disposition::Collected(position),
            QueueMode::Steer | QueueMode::SteerBacklog | QueueMode::Followup => Disposition::Queued(position),
        };
        PushResult::In { disposition, removed }
    }

    /// Appends an item. Returns its position among the messages that wait for a run.
    fn add(&mut self, message: L, is_first: bool, steer_state: SteerState) -> usize {
        // A message in an empty queue starts a new batch.
        self.is_mixed &= !self.is_empty();
        self.added += 1;
        self.items.push_back(QueueEntry { item: message, number: self.added, is_first, steer_state });
        self.items.iter().filter(|item| item.steer_state != SteerState::Offered).count()
    }

    /// Makes room for one more message according to its settings. Returns true if there is room.
    fn make_room(&mut self, settings: &QueueSettings, removed: &mut Vec<L>) -> bool {
        let waiting = self.items.iter().filter(|item| item.counts()).count();
        let surplus = (waiting + 1).saturating_sub(settings.cap.max(1));
        if surplus > 0 && settings.drop == DropPolicy::New {
            return false;
        }
        for _ in 0..surplus {
            let oldest = self.items.iter().position(QueueEntry::counts);
            let Some(item) = oldest.and_then(|oldest| self.items.remove(oldest)) else { break };
            match settings.drop {
                DropPolicy::Summarize => self.dropped.push(item.item),
                DropPolicy::Old | DropPolicy::New => removed.push(item.item),
            }
        }
        true
    }

    /// Returns whether a run can start, provided that no run is active.
    pub fn ready(&self, now: u64) -> Readiness<'_, L> {
        let first = self.items.front();
        if let Some(single) = first.filter(|item| item.is_own()) {
            return Readiness::Now(&single.item);
        }
        match (self.dropped.first().or(first.map(|item| &item.item)), self.debounce_until(now)) {
            (None, _) => Readiness::Nothing,
            (Some(_), Some(at)) => Readiness::Later(at),
            (Some(message), None) => Readiness::Now(message),
        }
    }

    /// Returns when the debounce ends; `None` if it has. If a request that always gets its own run is queued, nothing
    /// more can join the messages before it, so they are not debounced and do not delay it.
    fn debounce_until(&self, now: u64) -> Option<u64> {
        if self.items.iter().any(QueueEntry::is_own) {
            return None;
        }
        let debounce = homard_stdx::time::millis(self.settings.debounce);
        let at = self.newest_at.saturating_add(debounce);
        (now < at).then_some(at)
    }

    /// Removes the next run, if one can start.
    pub fn next(&mut self, now: u64) -> Option<QueuedRun<L>> {
        let Readiness::Now(_) = self.ready(now) else { return None };
        self.absorbed.clear();
        if self.items.front().is_some_and(QueueEntry::is_own) {
            self.pop()
        } else if self.settings.mode == QueueMode::Collect && !self.is_mixed && self.is_uniform() {
            self.collect()
        } else {
            // In collect mode the messages could not be merged, so the others of this batch are not merged either.
            self.is_mixed = self.settings.mode == QueueMode::Collect;
            if self.dropped.is_empty() { self.pop() } else { self.summary_run() }
        }
    }

    fn pop(&mut self) -> Option<QueuedRun<L>> {
        let host = self.items.pop_front()?.item;
        Some(QueuedRun { host, absorbed: Vec::new(), prompt: None })
    }

    /// Number of messages at the head that may be merged: up to the first request that always gets its own run.
    fn batch(&self) -> usize {
        self.items.iter().take_while(|item| !item.is_own()).count()
    }

    /// True if all messages to be collected have the same route and authority.
    fn is_uniform(&self) -> bool {
        let batch = self.items.iter().take(self.batch()).map(|item| &item.item);
        let mut messages = batch.chain(&self.dropped);
        let first = messages.next();
        first.is_none_or(|first| first.route().is_complete() && messages.all(|message| is_alike(first, message)))
    }

    fn collect(&mut self) -> Option<QueuedRun<L>> {
        let summary = self.summary();
        let mut absorbed = std::mem::take(&mut self.dropped);
        let batch = self.batch();
        self.absorbed.extend(self.items.iter().take(batch).map(|item| (item.item.run().clone(), item.number)));
        let batch: Vec<_> = self.items.drain(..batch).map(|item| item.item).collect();
        let mut blocks = vec!["[Queued messages while agent was busy]".to_owned()];
        blocks.extend(summary);
        blocks.extend((1..).zip(&batch).map(|(number, message)| {
            let text = format!("---\nQueued #{number}\n{}", message.text());
            text.trim().to_owned()
        }));
        absorbed.extend(batch);
        let host = absorbed.pop()?;
        Some(QueuedRun { host, absorbed, prompt: Some(blocks.join("\n\n")) })
    }

    /// Removes a run with the summary of dropped messages, hosted by the newest of them. Dropped messages of another
    /// route or authority get a summary run of their own, so that senders cannot read each other's messages.
    fn summary_run(&mut self) -> Option<QueuedRun<L>> {
        let mut dropped = std::mem::take(&mut self.dropped).into_iter();
        let first = dropped.next()?;
        let (alike, others): (Vec<_>, _) = dropped.partition(|message| is_alike(&first, message));
        self.dropped = std::iter::once(first).chain(alike).collect();
        let prompt = self.summary();
        let mut absorbed = std::mem::replace(&mut self.dropped, others);
        let host = absorbed.pop()?;
        Some(QueuedRun { host, absorbed, prompt })
    }

    fn summary(&self) -> Option<String> {
        let count = self.dropped.len();
        if count == 0 {
            return None;
        }
        let plural = if count == 1 { "" } else { "s" };
        let mut lines =
            vec![format!("[Queue overflow] Dropped {count} message{plural} due to cap."), "Summary:".to_owned()];
        let hidden = count.saturating_sub(MAX_SUMMARY_LINES);
        let first = (count - hidden).div_ceil(2);
        let line = |message: &L| format!("- {}", summary_line(&message.text()));
        lines.extend(self.dropped[..first].iter().map(line));
        if hidden > 0 {
            lines.push(format!("- … {hidden} more …"));
        }
        lines.extend(self.dropped[first + hidden..].iter().map(line));
        Some(lines.join("\n"))
    }

    /// Position of the oldest message that is offered to the active run.
    fn offered(&self) -> Option<usize> {
        self.items.iter().position(|item| item.steer_state == SteerState::Offered)
    }

    /// Hands the next offered message to the active run. If the run cannot use it, the caller has to call
    /// [`put_back`](Self::put_back).
    pub fn offer(&mut self) -> Option<SteerOffer<L>> {
        let index = self.offered()?;
        let waiting = self.items.iter().filter(|item| item.counts()).count();
        let item = &mut self.items[index];
        // A backlog message that exceeds the cap is absorbed by the run instead.
        let has_room =
            |settings: &QueueSettings| settings.mode == QueueMode::SteerBacklog && waiting < settings.cap.max(1);
        if item.item.settings().is_some_and(has_room) {
            item.steer_state = SteerState::Shown;
            return Some(SteerOffer::Copy(item.item.text().into_owned()));
        }
        self.absorbed.push((item.item.run().clone(), item.number));
        self.items.remove(index).map(|item| SteerOffer::Take(item.item))
    }

    /// Queues messages again that a run had absorbed and returned, each at its former position. Messages that the run
    /// knew only from the summary of dropped messages have no position and go to the head of the queue.
    pub fn put_back(&mut self, messages: impl IntoIterator<Item = L>) {
        for message in messages {
            let absorbed = self.absorbed.iter().find(|(run, _)| run == message.run());
            let number = absorbed.map_or(0, |(_, number)| *number);
            let index = self.items.partition_point(|item| item.number <= number);
            self.items.insert(
                index,
                QueueEntry { item: message, number, is_first: false, steer_state: SteerState::Returned },
            );
        }
    }

    /// Withdraws all offers after the end of the run: these messages wait for runs of their own.
    pub fn withdraw_offers(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.steer_state == SteerState::Offered) {
            item.steer_state = SteerState::Waits;
        }
    }

    /// Removes the messages that match, oldest first.
    pub fn take_out(&mut self, matches: impl Fn(&L) -> bool) -> Vec<L> {
        let mut messages: Vec<_> = self.dropped.extract_if(.., |message| matches(message)).collect();
        let (removed, kept) = std::mem::take(&mut self.items).into_iter().partition(|item| matches(&item.item));
        self.items = kept;
        let removed: VecDeque<QueueEntry<L>> = removed;
        messages.extend(removed.into_iter().map(|item| item.item));
        messages
    }

    /// Removes all messages, oldest first.
    pub fn clear(&mut self) -> Vec<L> {
        self.take_out(|_| true)
    }
}

/// True if two messages have the same route and authority.
pub fn is_alike<L: QueueItem>(first: &L, second: &L) -> bool {
    first.route() == second.route() && first.sender() == second.sender()
}

/// Shortens a message to one line.
fn summary_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SUMMARY_LINE_CHARS {
        return line;
    }
    let short: String = line.chars().take(SUMMARY_LINE_CHARS - 1).collect();
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests;
