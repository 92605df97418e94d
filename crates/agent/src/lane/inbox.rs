//! What becomes of messages that come while the agent is busy: the table of the queue modes, and nothing else.
//!
//! Pure: no clock, no tasks, no disk. Whatever is pushed comes out exactly once: as a turn of its own, as a part of
//! another's turn, handed to the run at work, or given back to be ended.
//!
//! | mode | nothing waits, nothing is at work | others wait | a run is at work |
//! |---|---|---|---|
//! | `steer` | starts | waits for a turn of its own | is offered to the run; what it does not take gets a turn of its own |
//! | `followup` | starts | waits for a turn of its own | the same |
//! | `collect` | starts | waits; what shares a route and rights becomes one turn | the same |
//! | `steer-backlog` | starts | waits for a turn of its own | is shown to the run, and gets a turn of its own as well |
//! | `interrupt` | starts | takes the place of everything | stops the run, and takes the place of everything |

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
    /// or dropped, and nothing overtakes it. Only an interrupt makes it go.
    fn settings(&self) -> Option<&Settings>;
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
    /// There is no room for it, and it will not be answered.
    Rejected,
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
}

#[derive(Debug)]
struct Item<L> {
    letter: L,
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
}

impl<L: Letter> Item<L> {
    fn mode(&self) -> Option<Mode> {
        self.letter.settings().map(|settings| settings.mode)
    }

    /// Whether it is a turn of its own, as it is and at once, when it is at the head of the line.
    fn is_own(&self) -> bool {
        self.is_first || self.letter.settings().is_none()
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
        self.dropped.is_empty() && self.offered().is_some()
    }

    /// Takes a message in.
    pub(crate) fn push(&mut self, letter: L, is_running: bool, now: u64) -> Pushed<L> {
        let is_first = !is_running && self.is_empty();
        let Some(settings) = letter.settings().cloned() else {
            if self.len() >= LIMIT {
                return Pushed::Full(letter);
            }
            let place = self.add(Item { letter, is_first, standing: Standing::Waits });
            let placed = if is_first { Placed::Started } else { Placed::Queued(place) };
            return Pushed::In { placed, gone: Vec::new() };
        };
        let mode = settings.mode;
        let mut gone = Vec::new();
        if mode == Mode::Interrupt && !is_first {
            gone = self.clear();
        } else if !self.make_room(&settings, &mut gone) {
            return Pushed::Full(letter);
        }
        (self.settings, self.newest_at) = (settings, now);
        let is_steered = is_running && self.can_steer(mode);
        let standing = if is_steered { Standing::Offered } else { Standing::Waits };
        let place = self.add(Item { letter, is_first: is_first || mode == Mode::Interrupt, standing });
        let placed = match mode {
            _ if is_first => Placed::Started,
            Mode::Interrupt => Placed::Interrupted,
            _ if is_steered => Placed::Steered,
            Mode::Collect => Placed::Collected(place),
            Mode::Steer | Mode::SteerBacklog | Mode::Followup => Placed::Queued(place),
        };
        Pushed::In { placed, gone }
    }

    /// Adds to the end of the line; returns the place there.
    fn add(&mut self, item: Item<L>) -> usize {
        // What comes to an empty inbox is another batch.
        self.is_mixed &= !self.is_empty();
        self.items.push_back(item);
        self.items.len()
    }

    /// Whether the run at work can hear of one more without its overtaking another.
    fn can_steer(&self, mode: Mode) -> bool {
        let mut others = self.items.iter();
        self.dropped.is_empty()
            && match mode {
                Mode::Steer => {
                    others.all(|item| item.standing == Standing::Offered && item.mode() == Some(Mode::Steer))
                }
                Mode::SteerBacklog => others.all(|item| item.standing != Standing::Waits),
                Mode::Followup | Mode::Collect | Mode::Interrupt => false,
            }
    }

    /// Makes room for one more by its own settings; returns whether there is. The first has started, so it is not asked.
    fn make_room(&mut self, settings: &Settings, gone: &mut Vec<L>) -> bool {
        let waiting = self.items.iter().filter(|item| !item.is_own()).count();
        let surplus = (waiting + 1).saturating_sub(settings.cap.max(1));
        if self.len() >= LIMIT || (surplus > 0 && settings.drop == Drop::New) {
            return false;
        }
        for _ in 0..surplus {
            let oldest = self.items.iter().position(|item| !item.is_own());
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
        let batch: Vec<_> = self.items.drain(..self.batch()).map(|item| item.letter).collect();
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
        let told = self.dropped.iter().skip(count.saturating_sub(self.settings.cap.max(1)));
        lines.extend(told.map(|letter| format!("- {}", summary_line(&letter.text()))));
        Some(lines.join("\n"))
    }

    /// The place of the message that the run at work may take: the oldest that no run has seen, so that none is overtaken.
    fn offered(&self) -> Option<usize> {
        let next = self.items.iter().position(|item| item.standing != Standing::Shown)?;
        (self.items[next].standing == Standing::Offered).then_some(next)
    }

    /// Hands the next message to the run at work. What it does not take has to be put back.
    pub(crate) fn offer(&mut self) -> Option<Offer<L>> {
        if !self.dropped.is_empty() {
            return None;
        }
        let place = self.offered()?;
        let item = &mut self.items[place];
        if item.mode() == Some(Mode::SteerBacklog) {
            item.standing = Standing::Shown;
            return Some(Offer::Copy(item.letter.text().into_owned()));
        }
        self.items.remove(place).map(|item| Offer::Take(item.letter))
    }

    /// Puts messages that the run did not take back to the head of the line, in this order.
    pub(crate) fn put_back(&mut self, letters: impl IntoIterator<Item = L, IntoIter: DoubleEndedIterator>) {
        for letter in letters.into_iter().rev() {
            self.items.push_front(Item { letter, is_first: false, standing: Standing::Waits });
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
fn is_alike<L: Letter>(one: &L, other: &L) -> bool {
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
