//! What becomes of messages that come while the agent is busy: the table of the queue modes, and nothing else.
//!
//! Pure: no clock, no tasks, no disk. Whatever is pushed comes out exactly once: as a turn of its own, as a part of
//! another's turn, handed to the run at work, or given back to be ended.
//!
//! | mode | nothing waits, nothing is at work | others wait | a run is at work |
//! |---|---|---|---|
//! | `steer` | starts | waits for a turn of its own | is offered to the run, whatever else waits; what it does not take gets a turn of its own |
//! | `followup` | starts | waits for a turn of its own | the same |
//! | `collect` | starts | waits; what shares a route and rights becomes one turn | the same |
//! | `steer-backlog` | starts | waits for a turn of its own | is shown to the run, whatever else waits, and gets a turn of its own as well |
//! | `interrupt` | starts | takes the place of everything | stops the run, and takes the place of everything |
//!
//! Order: turns start in the order of arrival, and a run takes offered messages in the order of arrival. A steer message
//! overtakes turns that wait, but not an earlier steer message from the same place, which is then offered with it, and not
//! a boundary (a command that changes the transcript, or an interrupt).
//!
//! The cap counts messages that wait for a turn. An offered message does not wait, so it is neither counted nor dropped.

use std::{borrow::Cow, collections::VecDeque};

use homard_proto::{Route, RunId};

use crate::{
    command::queue::{Drop, Mode, Settings},
    policy::Sender,
};

/// How many letters wait in one inbox at most, whatever its settings say.
pub(crate) const LIMIT: usize = 1_000;

/// How long a line of the summary of dropped messages is, in characters.
const SUMMARY_LINE: usize = 160;

/// The disposition of a message of which a model gets a summary instead of its text.
pub(crate) const SUMMARIZED: &str = "summarized";

/// How many dropped messages a summary lists. Of more, it lists the oldest and the newest, and counts those between.
const SUMMARY_LINES: usize = 100;

/// What an inbox has to know of a message.
pub(crate) trait Letter {
    /// The run that it asks for.
    fn run(&self) -> &RunId;
    /// What it says.
    fn text(&self) -> Cow<'_, str>;
    /// Where it came from, and where its answer goes.
    fn route(&self) -> &Route;
    /// Whose rights its run has. Messages of different rights are never answered by one run.
    fn sender(&self) -> Sender;
    /// How it is queued; `None` for a request that is always a run of its own: it is never held back, merged, offered
    /// or dropped. Only an interrupt makes it go.
    fn settings(&self) -> Option<&Settings>;
    /// Whether messages behind it belong to another context than the run at work, as behind `/new`: they are not
    /// offered to that run.
    fn is_boundary(&self) -> bool;
}

/// Where a message ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It is its turn at once.
    Started,
    /// It is offered to the run at work.
    Steered,
    /// It waits for a turn of its own, at this place in line.
    Queued(usize),
    /// It waits for a turn together with others, at this place in line.
    Collected(usize),
    /// What was at work and what waited makes way for it.
    Interrupted,
    /// Too many waited: a later turn gets a line about it instead of the message.
    Summarized,
    /// There is no room for it, and it will not be answered.
    Rejected,
}

impl Placed {
    /// As senders are told: the disposition, and the position in line if it has one.
    pub fn told(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Started => ("started", None),
            Self::Steered => ("steered", None),
            Self::Queued(place) => ("queued", Some(place)),
            Self::Collected(place) => ("collected", Some(place)),
            Self::Interrupted => ("interrupted", None),
            Self::Summarized => (SUMMARIZED, None),
            Self::Rejected => ("rejected", None),
        }
    }
}

/// What a push did.
#[derive(Debug, PartialEq)]
pub(crate) enum Pushed<L> {
    /// It is in the inbox.
    In {
        /// Where.
        placed: Placed,
        /// Messages that will not be answered any more.
        gone: Vec<L>,
    },
    /// It is not: the inbox is full.
    Full(L),
}

/// Whether a turn can begin.
#[derive(Debug, PartialEq)]
pub(crate) enum Ready<'a, L> {
    /// Nothing waits.
    Nothing,
    /// Something waits until this moment, in milliseconds, or longer if more comes.
    Later(u64),
    /// It can, and begins with this message.
    Now(&'a L),
}

/// A run's worth of messages.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn<L> {
    /// The message whose run it is.
    pub(crate) host: L,
    /// Messages that are answered by it, oldest first.
    pub(crate) guests: Vec<L>,
    /// What is said, if it is not just what the host says.
    pub(crate) prompt: Option<String>,
}

/// What the run at work is offered.
#[derive(Debug, PartialEq)]
pub(crate) enum Offer<L> {
    /// A message that becomes a part of the run.
    Take(L),
    /// The words of a message that gets a turn of its own as well.
    Copy(String),
}

/// The messages of one session that wait for their turn.
#[derive(Debug)]
pub(crate) struct Inbox<L> {
    items: VecDeque<Item<L>>,
    /// Messages for which there was no room; a later turn sums them up.
    dropped: Vec<L>,
    /// Those of the newest message that has any.
    settings: Settings,
    /// When the newest message came, in milliseconds.
    newest_at: u64,
    /// Whether a batch was found that cannot be one turn: then the rest of it is taken one by one.
    is_mixed: bool,
    /// How many messages were added so far.
    added: u64,
    /// The messages that the current run has beside its own, each with its number in the order of arrival. The run may
    /// give them back.
    handed: Vec<(RunId, u64)>,
}

#[derive(Debug)]
struct Item<L> {
    letter: L,
    /// Its number in the order of arrival. Items are sorted by it.
    number: u64,
    /// Whether it found nothing to wait for, or made it go away.
    is_first: bool,
    standing: Standing,
}

/// How a message stands to the run at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// That run does not hear of it.
    Waits,
    /// That run may take it.
    Offered,
    /// A run has seen it; it gets a turn of its own as well.
    Shown,
    /// A run gave it back: it gets a turn of its own and is offered to no other run, which could fail by it, too.
    Returned,
}

impl<L: Letter> Item<L> {
    fn mode(&self) -> Option<Mode> {
        self.letter.settings().map(|settings| settings.mode)
    }

    /// Whether it is a turn of its own, as it is and at once, when it is at the head of the line.
    fn is_own(&self) -> bool {
        self.is_first || self.letter.settings().is_none()
    }

    /// Whether the cap counts it.
    fn counts(&self) -> bool {
        !self.is_own() && self.standing != Standing::Offered
    }

    fn can_steer(&self) -> bool {
        self.standing == Standing::Waits
            && !self.is_first
            && matches!(self.mode(), Some(Mode::Steer | Mode::SteerBacklog))
    }

    /// Whether nothing behind it is offered to the run at work.
    fn is_boundary(&self) -> bool {
        self.letter.is_boundary() || self.mode() == Some(Mode::Interrupt)
    }
}

impl<L> Default for Inbox<L> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            dropped: Vec::new(),
            settings: Settings::default(),
            newest_at: 0,
            is_mixed: false,
            added: 0,
            handed: Vec::new(),
        }
    }
}

impl<L: Letter> Inbox<L> {
    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.items.len() + self.dropped.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages that wait, oldest first.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.dropped.iter_mut().chain(self.items.iter_mut().map(|item| &mut item.letter))
    }

    /// Whether the run at work has something to take.
    pub(crate) fn has_offer(&self) -> bool {
        self.offered().is_some()
    }

    /// The messages that wait, each with its current place: what its sender should know. Without those whose turn it is.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&L, Placed)> {
        let dropped = self.dropped.iter().map(|letter| (letter, Placed::Summarized));
        let items = self.items.iter().scan(0, |place, item| {
            *place += usize::from(item.standing != Standing::Offered);
            let placed = match (item.standing, item.mode()) {
                (Standing::Offered | Standing::Shown, _) => Placed::Steered,
                (Standing::Waits | Standing::Returned, Some(Mode::Collect)) => Placed::Collected(*place),
                (Standing::Waits | Standing::Returned, _) => Placed::Queued(*place),
            };
            Some((!item.is_first).then_some((&item.letter, placed)))
        });
        dropped.chain(items.flatten())
    }

    /// Takes a message in.
    pub(crate) fn push(&mut self, letter: L, is_running: bool, now: u64) -> Pushed<L> {
        let is_first = !is_running && self.is_empty();
        let Some(settings) = letter.settings().cloned() else {
            if self.len() >= LIMIT {
                return Pushed::Full(letter);
            }
            let place = self.add(letter, is_first, Standing::Waits);
            let placed = if is_first { Placed::Started } else { Placed::Queued(place) };
            return Pushed::In { placed, gone: Vec::new() };
        };
        let mode = settings.mode;
        let is_steered =
            is_running && matches!(mode, Mode::Steer | Mode::SteerBacklog) && !self.items.iter().any(Item::is_boundary);
        let mut gone = Vec::new();
        if mode == Mode::Interrupt && !is_first {
            gone = self.clear();
        } else if self.len() >= LIMIT || !(is_steered || self.make_room(&settings, &mut gone)) {
            return Pushed::Full(letter);
        }
        (self.settings, self.newest_at) = (settings, now);
        if is_steered {
            // A later steer also offers the earlier waiting messages of the same sender to the run.
            let earlier = self.items.iter_mut().filter(|item| item.can_steer() && is_alike(&item.letter, &letter));
            earlier.for_each(|item| item.standing = Standing::Offered);
        }
        let standing = if is_steered { Standing::Offered } else { Standing::Waits };
        let place = self.add(letter, is_first || mode == Mode::Interrupt, standing);
        let placed = match mode {
            _ if is_first => Placed::Started,
            Mode::Interrupt => Placed::Interrupted,
            _ if is_steered => Placed::Steered,
            Mode::Collect => Placed::Collected(place),
            Mode::Steer | Mode::SteerBacklog | Mode::Followup => Placed::Queued(place),
        };
        Pushed::In { placed, gone }
    }

    /// Adds to the end of the line; returns the place among those that wait for a turn.
    fn add(&mut self, letter: L, is_first: bool, standing: Standing) -> usize {
        // What comes to an empty inbox is another batch.
        self.is_mixed &= !self.is_empty();
        self.added += 1;
        self.items.push_back(Item { letter, number: self.added, is_first, standing });
        self.items.iter().filter(|item| item.standing != Standing::Offered).count()
    }

    /// Makes room for one more by its own settings; returns whether there is.
    fn make_room(&mut self, settings: &Settings, gone: &mut Vec<L>) -> bool {
        let waiting = self.items.iter().filter(|item| item.counts()).count();
        let surplus = (waiting + 1).saturating_sub(settings.cap.max(1));
        if surplus > 0 && settings.drop == Drop::New {
            return false;
        }
        for _ in 0..surplus {
            let oldest = self.items.iter().position(Item::counts);
            let Some(item) = oldest.and_then(|oldest| self.items.remove(oldest)) else { break };
            match settings.drop {
                Drop::Summarize => self.dropped.push(item.letter),
                Drop::Old | Drop::New => gone.push(item.letter),
            }
        }
        true
    }

    /// Whether a turn can begin, when no run is at work.
    pub(crate) fn ready(&self, now: u64) -> Ready<'_, L> {
        let first = self.items.front();
        if let Some(own) = first.filter(|item| item.is_own()) {
            return Ready::Now(&own.letter);
        }
        match (self.dropped.first().or(first.map(|item| &item.letter)), self.quiet_at(now)) {
            (None, _) => Ready::Nothing,
            (Some(_), Some(at)) => Ready::Later(at),
            (Some(letter), None) => Ready::Now(letter),
        }
    }

    /// When it will have been quiet for long enough; `None` if it is. Nothing more can join those before a request that
    /// is always a run of its own, so they do not wait for more, and do not hold it back.
    fn quiet_at(&self, now: u64) -> Option<u64> {
        if self.items.iter().any(Item::is_own) {
            return None;
        }
        let debounce = u64::try_from(self.settings.debounce.as_millis()).unwrap_or(u64::MAX);
        let at = self.newest_at.saturating_add(debounce);
        (now < at).then_some(at)
    }

    /// The next turn, if one can begin.
    pub(crate) fn next(&mut self, now: u64) -> Option<Turn<L>> {
        let Ready::Now(_) = self.ready(now) else { return None };
        self.handed.clear();
        if self.items.front().is_some_and(Item::is_own) {
            self.pop()
        } else if self.settings.mode == Mode::Collect && !self.is_mixed && self.is_uniform() {
            self.collect()
        } else {
            self.is_mixed = self.settings.mode == Mode::Collect;
            if self.dropped.is_empty() { self.pop() } else { self.sum_up() }
        }
    }

    fn pop(&mut self) -> Option<Turn<L>> {
        let host = self.items.pop_front()?.letter;
        Some(Turn { host, guests: Vec::new(), prompt: None })
    }

    /// How many messages at the head of the line may be merged: requests that are always a run of their own may not.
    fn batch(&self) -> usize {
        self.items.iter().take_while(|item| !item.is_own()).count()
    }

    /// Whether all that would be collected goes to the same place, with the same rights.
    fn is_uniform(&self) -> bool {
        let batch = self.items.iter().take(self.batch()).map(|item| &item.letter);
        let mut letters = batch.chain(&self.dropped);
        let first = letters.next();
        first.is_none_or(|first| first.route().is_whole() && letters.all(|letter| is_alike(first, letter)))
    }

    fn collect(&mut self) -> Option<Turn<L>> {
        let summary = self.summary();
        let mut guests = std::mem::take(&mut self.dropped);
        let batch = self.batch();
        self.handed.extend(self.items.iter().take(batch).map(|item| (item.letter.run().clone(), item.number)));
        let batch: Vec<_> = self.items.drain(..batch).map(|item| item.letter).collect();
        let mut blocks = vec!["[Queued messages while agent was busy]".to_owned()];
        blocks.extend(summary);
        blocks.extend((1..).zip(&batch).map(|(number, letter)| {
            let text = format!("---\nQueued #{number}\n{}", letter.text());
            text.trim().to_owned()
        }));
        guests.extend(batch);
        let host = guests.pop()?;
        Some(Turn { host, guests, prompt: Some(blocks.join("\n\n")) })
    }

    /// A turn that tells of what was dropped, as the newest of it. What came from elsewhere gets another one: nobody reads
    /// what others wrote.
    fn sum_up(&mut self) -> Option<Turn<L>> {
        let mut dropped = std::mem::take(&mut self.dropped).into_iter();
        let first = dropped.next()?;
        let (own, others): (Vec<_>, _) = dropped.partition(|letter| is_alike(&first, letter));
        self.dropped = std::iter::once(first).chain(own).collect();
        let prompt = self.summary();
        let mut guests = std::mem::replace(&mut self.dropped, others);
        let host = guests.pop()?;
        Some(Turn { host, guests, prompt })
    }

    fn summary(&self) -> Option<String> {
        let count = self.dropped.len();
        if count == 0 {
            return None;
        }
        let plural = if count == 1 { "" } else { "s" };
        let mut lines =
            vec![format!("[Queue overflow] Dropped {count} message{plural} due to cap."), "Summary:".to_owned()];
        let hidden = count.saturating_sub(SUMMARY_LINES);
        let first = (count - hidden).div_ceil(2);
        let line = |letter: &L| format!("- {}", summary_line(&letter.text()));
        lines.extend(self.dropped[..first].iter().map(line));
        if hidden > 0 {
            lines.push(format!("- … {hidden} more …"));
        }
        lines.extend(self.dropped[first + hidden..].iter().map(line));
        Some(lines.join("\n"))
    }

    /// The place of the message that the run at work may take: the oldest that is offered to it.
    fn offered(&self) -> Option<usize> {
        self.items.iter().position(|item| item.standing == Standing::Offered)
    }

    /// Hands the next message to the run at work. What it does not take has to be put back.
    pub(crate) fn offer(&mut self) -> Option<Offer<L>> {
        let place = self.offered()?;
        let waiting = self.items.iter().filter(|item| item.counts()).count();
        let item = &mut self.items[place];
        // A backlog message for which there is no room to wait becomes a part of the run instead.
        let has_room = |settings: &Settings| settings.mode == Mode::SteerBacklog && waiting < settings.cap.max(1);
        if item.letter.settings().is_some_and(has_room) {
            item.standing = Standing::Shown;
            return Some(Offer::Copy(item.letter.text().into_owned()));
        }
        self.handed.push((item.letter.run().clone(), item.number));
        self.items.remove(place).map(|item| Offer::Take(item.letter))
    }

    /// Puts messages that the run did not take back to where they were in line. Those that were dropped before were at
    /// its head.
    pub(crate) fn put_back(&mut self, letters: impl IntoIterator<Item = L>) {
        for letter in letters {
            let handed = self.handed.iter().find(|(run, _)| run == letter.run());
            let number = handed.map_or(0, |(_, number)| *number);
            let place = self.items.partition_point(|item| item.number <= number);
            self.items.insert(place, Item { letter, number, is_first: false, standing: Standing::Returned });
        }
    }

    /// The run that messages were offered to is over: what it left waits for turns of its own.
    pub(crate) fn withdraw_offers(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.standing == Standing::Offered) {
            item.standing = Standing::Waits;
        }
    }

    /// Takes out the messages that somebody means, oldest first.
    pub(crate) fn take_out(&mut self, is_meant: impl Fn(&L) -> bool) -> Vec<L> {
        let mut out: Vec<_> = self.dropped.extract_if(.., |letter| is_meant(letter)).collect();
        let (meant, kept) = std::mem::take(&mut self.items).into_iter().partition(|item| is_meant(&item.letter));
        self.items = kept;
        let meant: VecDeque<Item<L>> = meant;
        out.extend(meant.into_iter().map(|item| item.letter));
        out
    }

    /// Takes everything out, oldest first.
    pub(crate) fn clear(&mut self) -> Vec<L> {
        self.take_out(|_| true)
    }
}

/// Whether two messages come from the same place and have the same rights.
pub(super) fn is_alike<L: Letter>(one: &L, other: &L) -> bool {
    one.route() == other.route() && one.sender() == other.sender()
}

/// A message in one line.
fn summary_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SUMMARY_LINE {
        return line;
    }
    let short: String = line.chars().take(SUMMARY_LINE - 1).collect();
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests;
