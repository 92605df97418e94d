//! Who answers a run: what to do after each failure, until somebody answered or everybody was asked.
//!
//! A value that the loop drives. It asks [`Failover::candidate`] with [`Failover::level`], and tells what came of it.
//!
//! | Failure | Same candidate | Then |
//! |---|---|---|
//! | no connection, overload, server error, not what the wire promises, cut off | again, within [`Limits`] | next |
//! | rate limit, timeout | again, within [`Limits`]; seldom while another is ready | next |
//! | 401, 403 | – | next; after 401 nobody with the same key |
//! | no money | – | next; nobody with the same key |
//! | unknown model (404, 410), wrong address or API | – | next |
//! | reasoning level refused, others offered | again with an offered level, each once | the end |
//! | conversation too long | again after compaction | the caller's bound |
//! | any other wrong request, content filter | – | the end: it would fail elsewhere too, or must not be asked around |
//! | a person stops the run | – | the end; the caller tells nothing here |
//!
//! After visible words a candidate may still be asked again or another one; the caller takes the words back first.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::{Error, ErrorKind, failure_of},
    retry::{Limits, Others, Retry, Spent, Wait},
    roster::{Candidate, NOBODY, Preferred, Roster},
    standing::{Blame, Reason, is_unknown_model},
    thinking::{self, Level},
};

/// Whether a credential is none that a session could prefer: none is needed, or it is not stored.
fn is_nobody(profile: &str) -> bool {
    profile == NOBODY || ["none:", "env:", "config:", "missing:"].iter().any(|kind| profile.starts_with(kind))
}

/// The least time that a silent model gets, however many wait behind it.
const LEAST_IDLE: Duration = Duration::from_secs(5);

/// How much of a failure's text goes into the list of all of them, in characters.
const WHY: usize = 300;

/// What a run brings along.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Which credential the session prefers.
    pub preferred: Preferred,
    /// How hard the model is to think.
    pub level: Level,
    /// When the run is over, in milliseconds since the epoch.
    pub deadline: Option<u64>,
    /// How often the same candidate is asked again.
    pub limits: Limits,
    /// Different for each run, so that runs do not come back at the same moment.
    pub seed: u64,
}

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask the same candidate again after this time.
    Wait(Wait),
    /// Ask the same candidate again at once, with this level.
    Think(Level),
    /// Ask the new candidate at once; the notes say why.
    Next,
    /// Make the conversation shorter, then ask the same candidate again.
    Compact,
    /// Nobody is left to ask; this goes to the person.
    End(Error),
}

/// Why a candidate did not answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// Who.
    pub candidate: Candidate,
    /// Whether it was asked.
    pub fate: Fate,
    /// Why, by OpenClaw's names.
    pub reason: String,
    /// Why, for people.
    pub why: String,
}

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was asked and failed.
    Failed,
    /// It was not asked. One that rests is asked after all if everybody else fails.
    Skipped,
}

/// Who answers a run.
#[derive(Debug)]
pub struct Failover {
    roster: Roster,
    terms: Terms,
    retry: Retry,
    current: Candidate,
    /// Who was not asked since the last answer, in the order of the chain.
    left: Vec<Candidate>,
    level: Level,
    tried: Vec<Level>,
    notes: Vec<Note>,
    /// The first note since the last answer.
    since: usize,
    /// When the candidate was asked that has said nothing yet.
    silent_since: Option<u64>,
}

/// What kind of remedy a failure calls for.
enum Remedy {
    Again,
    Next,
    Think,
    Compact,
    End,
}

impl Remedy {
    fn of(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::RateLimit | ErrorKind::Overloaded => Self::Again,
            ErrorKind::Server | ErrorKind::Malformed | ErrorKind::Truncated => Self::Again,
            ErrorKind::Auth | ErrorKind::Billing | ErrorKind::Misconfigured => Self::Next,
            ErrorKind::Overflow => Self::Compact,
            ErrorKind::Rejected if is_unknown_model(error) => Self::Next,
            ErrorKind::Rejected => Self::Think,
            ErrorKind::ContentFilter => Self::End,
        }
    }
}

impl Failover {
    /// Chooses the first candidate. Those that were passed over because they rest are in the notes.
    pub fn begin(roster: Roster, terms: Terms, now: u64) -> Self {
        let left = roster.chain(&roster.book.lock(), &terms.preferred);
        let mut failover = Self {
            retry: Retry::new(terms.limits, terms.seed),
            current: roster.first.clone(),
            left,
            level: terms.level,
            tried: Vec::new(),
            notes: Vec::new(),
            since: 0,
            silent_since: None,
            roster,
            terms,
        };
        failover.advance(now);
        failover
    }

    /// Who is asked now.
    pub fn candidate(&self) -> &Candidate {
        &self.current
    }

    /// Everybody who may be asked before somebody answers: who is asked now, then the others.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(&self.current).chain(&self.left)
    }

    /// How hard it is asked to think.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Who did not answer so far, and why, oldest first. It only ever grows.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// How long the same candidates are asked again, over all of them, before the run fails.
    pub fn retry_time(&self) -> Duration {
        self.terms.limits.total
    }

    /// How long the candidate may say nothing: its own patience, but no more than its share of the time that is left,
    /// so that everybody can be asked before the deadline.
    pub fn idle(&self, now: u64) -> Duration {
        let idle = self.current.model.spec().idle;
        // The last one has all the time that is left: the run's own end is the end of it.
        let Some(deadline) = self.terms.deadline.filter(|_| !self.left.is_empty()) else { return idle };
        let share = deadline.saturating_sub(now) / (self.left.len() as u64 + 1);
        idle.min(Duration::from_millis(share).max(LEAST_IDLE))
    }

    /// The credential that the session is to prefer next time; `None` if a fallback answered, because a fallback is
    /// for one run.
    pub fn sticky(&self) -> Option<&Arc<str>> {
        let (first, current) = (self.roster.first.model.spec(), self.current.model.spec());
        let is_first_choice = (&first.provider, &first.model) == (&current.provider, &current.model);
        is_first_choice.then_some(&self.current.profile).filter(|profile| !is_nobody(profile))
    }

    /// The candidate gave a whole answer. It stays; whoever failed before may be asked again later in the run.
    pub fn succeeded(&mut self, now: u64) {
        let Candidate { profile, model, .. } = &self.current;
        self.roster.book.change(|standing| standing.succeeded(profile, &model.spec().model, now));
        self.retry.succeeded();
        self.left = self.roster.chain(&self.roster.book.lock(), &self.terms.preferred);
        self.left.retain(|candidate| *candidate != self.current);
        self.since = self.notes.len();
    }

    /// The candidate is asked now.
    pub fn asked(&mut self, now: u64) {
        self.silent_since = Some(now);
    }

    /// The candidate has said something: from here on it is not silent.
    pub fn heard(&mut self) {
        self.silent_since = None;
    }

    /// The candidate failed: what now?
    pub fn failed(&mut self, error: &Error, now: u64) -> Step {
        match Remedy::of(error) {
            Remedy::Compact => Step::Compact,
            Remedy::Again => {
                let since = self.silent_since.take().unwrap_or(now);
                match self.retry.wait(error, (since, now), self.terms.deadline, self.others(now)) {
                    Some(wait) => Step::Wait(wait),
                    None => self.next(&self.exhausted(error, now), now),
                }
            }
            Remedy::Next => self.next(error, now),
            Remedy::Think => {
                let has = &self.current.model.spec().thinking;
                let mut offered = thinking::offered(error).into_iter();
                match offered.find(|&level| !self.tried.contains(&level.clamp(has))) {
                    Some(level) => {
                        self.think(level);
                        Step::Think(level)
                    }
                    None => Step::End(self.give_up(error, now)),
                }
            }
            Remedy::End => Step::End(self.give_up(error, now)),
        }
    }

    /// The candidate is not asked, because it could not take the request: that is nobody's fault, and somebody else may.
    pub fn pass_over(&mut self, error: &Error, now: u64) -> Step {
        self.skip(self.current.clone(), Reason::of(error).as_str().to_owned(), error.cause().to_owned());
        if self.advance(now) { Step::Next } else { Step::End(self.sum_up(error)) }
    }

    /// The candidate failed and nobody else is to be asked, as when a conversation cannot be made shorter.
    pub fn give_up(&mut self, error: &Error, now: u64) -> Error {
        self.leave(error, now);
        self.sum_up(error)
    }

    /// The run's time is up while the candidate was at work: that counts as its failure.
    pub fn timed_out(&mut self, now: u64) {
        self.leave(&Error::new(ErrorKind::Timeout, "the run's time was up"), now);
    }

    fn others(&self, now: u64) -> Others {
        let standing = self.roster.book.lock();
        let is_ready = |candidate: &Candidate| self.terms.preferred.turn(candidate, &standing, now) == 0;
        if self.left.iter().any(is_ready) { Others::Ready } else { Others::None }
    }

    /// A failure after which the candidate is not asked again, with what was spent on it.
    fn exhausted(&self, error: &Error, now: u64) -> Error {
        let asks = error.retry_after.filter(|asked| *asked > self.terms.limits.total.min(self.terms.limits.longest));
        let asks = asks.map(|asked| format!("it asks to wait {} s", asked.as_secs()));
        let spent = self.retry.spent(now);
        let spent = spent.map(|Spent { attempts, time }| format!("{attempts} attempts in {} s", time.as_secs()));
        let facts: Vec<_> = spent.into_iter().chain(asks).collect();
        if facts.is_empty() {
            return error.clone();
        }
        let cause = error.cause();
        let advice =
            if cause.len() < error.message.len() { format!("; {}", error.kind.advice()) } else { String::new() };
        Error { message: format!("{cause} ({}){advice}", facts.join(", ")), ..error.clone() }
    }

    fn next(&mut self, error: &Error, now: u64) -> Step {
        self.leave(error, now);
        if self.terms.deadline.is_some_and(|deadline| deadline <= now) {
            for candidate in std::mem::take(&mut self.left) {
                self.skip(candidate, Reason::Timeout.as_str().to_owned(), "no time was left".to_owned());
            }
        }
        if self.advance(now) { Step::Next } else { Step::End(self.sum_up(error)) }
    }

    /// Holds a failure against whom it concerns.
    fn leave(&mut self, error: &Error, now: u64) {
        let candidate = self.current.clone();
        let (profile, model) = (candidate.profile.clone(), candidate.model.clone());
        let reason = Reason::of(error).as_str().to_owned();
        self.roster.book.change(|standing| standing.failed(&profile, &model.spec().model, error, now));
        let same: Vec<_> = match Blame::of(error) {
            Blame::Profile => self.left.extract_if(.., |other| other.profile == profile).collect(),
            Blame::Model | Blame::Nobody => Vec::new(),
        };
        let why = error.cause().to_owned();
        self.notes.push(Note { candidate, fate: Fate::Failed, reason: reason.clone(), why });
        for other in same {
            self.skip(other, reason.clone(), format!("not asked, {profile} was just refused"));
        }
    }

    /// Goes to the first of the chain that does not rest, else to the one whose rest ends first.
    fn advance(&mut self, now: u64) -> bool {
        let standing = self.roster.book.lock();
        let turn = |(_, candidate): &(usize, &Candidate)| self.terms.preferred.turn(candidate, &standing, now);
        let Some((place, _)) = self.left.iter().enumerate().min_by_key(turn) else { return false };
        let resting = |candidate: &Candidate| Some((candidate.clone(), candidate.rest(&standing, now)?));
        let passed: Vec<_> = self.left[..place].iter().filter_map(resting).collect();
        drop(standing);
        for (candidate, rest) in passed {
            if !self.notes[self.since..].iter().any(|note| note.candidate == candidate) {
                let why = format!("not asked, it rests for another {} s", (rest.until - now).div_ceil(1000));
                self.skip(candidate, rest.reason, why);
            }
        }
        self.current = self.left.remove(place);
        self.retry.switched();
        self.tried.clear();
        self.think(self.terms.level);
        true
    }

    fn think(&mut self, level: Level) {
        self.level = level;
        self.tried.push(level.clamp(&self.current.model.spec().thinking));
    }

    fn skip(&mut self, candidate: Candidate, reason: String, why: String) {
        self.notes.push(Note { candidate, fate: Fate::Skipped, reason, why });
    }

    /// One failure for all: the only one as it is, else a list of who did not answer and why.
    fn sum_up(&self, last: &Error) -> Error {
        let notes = &self.notes[self.since..];
        let is_latest =
            |(place, note): &(usize, &Note)| !notes[place + 1..].iter().any(|later| later.candidate == note.candidate);
        let lines: Vec<_> = notes.iter().enumerate().filter(is_latest).map(|(_, note)| note.to_string()).collect();
        if lines.len() < 2 {
            return last.clone();
        }
        let message =
            format!("no model answered: {}; try again later, or see `homard models status`", lines.join(" | "));
        Error { message, ..last.clone() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why: String = self.why.trim_end_matches('.').chars().take(WHY).collect();
        let failure = failure_of(&self.candidate.to_string(), &why);
        match self.reason.as_str() {
            reason if reason == Reason::Unknown.as_str() => write!(f, "{failure}"),
            reason => write!(f, "{failure} ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests;
