//! Verifies a chain: its links, its signatures, and the stored end. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use crate::{
    anchor::{Break, Ledger},
    chain::{Digest, Head, Link, signed},
    fact::What,
    key::Key,
};

/// A problem of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A line that is not a row.
    #[error("{place}: this line is no row: it was changed or damaged")]
    NoRow {
        /// File name and line number.
        place: String,
    },
    /// A row that is not the next one.
    #[error("{place}: row {found} stands where row {expected} belongs: rows were taken out, put in or moved")]
    OutOfOrder {
        /// File name and line number.
        place: String,
        /// Expected sequence number.
        expected: u64,
        /// Actual sequence number.
        found: u64,
    },
    /// The preceding row is not the one that this row followed.
    #[error("{place}: the row before row {seq} is not the one that was written: it was changed")]
    Changed {
        /// File name and line number.
        place: String,
        /// Sequence number of the row that shows it.
        seq: u64,
    },
    /// Rows with a signature of another key.
    #[error("{place}: rows {from} to {to} are not signed with the key of this log: they were changed or made anew")]
    Forged {
        /// File name and line number of the first one.
        place: String,
        /// First row.
        from: u64,
        /// Last row.
        to: u64,
    },
    /// A row without a signature after signed rows.
    #[error(
        "{place}: row {seq} is not signed, but earlier rows are: it was put in, or written by an older version of Homard"
    )]
    Unsigned {
        /// File name and line number.
        place: String,
        /// Sequence number.
        seq: u64,
    },
    /// The key is missing.
    #[error("rows from {from} on cannot be checked: the key of this log is missing; restore audit.key from a backup")]
    NoKey {
        /// First signed row.
        from: u64,
    },
    /// The end is missing.
    #[error("the end was cut off: there are {found} rows, and the journal knows of {expected}")]
    Cut {
        /// Number of rows according to the journal.
        expected: u64,
        /// Actual number of rows.
        found: u64,
    },
    /// The row stored by the journal differs.
    #[error("row {seq} is not the one that the journal knows: it was changed")]
    NotAsKept {
        /// Sequence number.
        seq: u64,
    },
    /// A break that was recorded in the log when it was found.
    #[error("{place}: a break was recorded at {}: {what}", iso(*.at_ms))]
    Recorded {
        /// File name and line number.
        place: String,
        /// Time of detection in milliseconds since the epoch.
        at_ms: u64,
        /// Description of the break.
        what: String,
    },
    /// Breaks recorded by the journal that no acknowledgement covers.
    #[error("the journal recorded {count} break(s) that are not acknowledged; the last at {}: {}", iso(.last.at_ms), .last.what())]
    InJournal {
        /// Number of breaks.
        count: u64,
        /// Last break.
        last: Break,
    },
    /// The journal has lost its information about this log.
    #[error("the journal does not know this log any more: it was replaced, or removed")]
    NoAnchor,
    /// A checkpoint does not belong to this log.
    #[error(
        "the checkpoint of row {seq} is not of this log: rows were removed or replaced, or an older copy was restored"
    )]
    NotAsShipped {
        /// Sequence number.
        seq: u64,
    },
}

/// Evidence about a log from outside its files.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Key that rows are signed with.
    pub key: Option<Key>,
    /// End stored by the journal.
    pub kept: Option<Head>,
    /// Breaks stored by the journal; `None` if it has never stored this log, or is of an older version.
    pub ledger: Option<Ledger>,
    /// Ends that were shipped elsewhere, oldest first.
    pub checkpoints: Vec<Head>,
}

/// Problems that the owner acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Sequence number of the acknowledging row.
    pub seq: u64,
    /// Time in milliseconds since the epoch.
    pub at_ms: u64,
    /// Reason given by the owner.
    pub reason: String,
    /// Problems that it covers.
    pub problems: Vec<Problem>,
}

/// Result of verifying a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// End of the chain.
    pub head: Head,
    /// Number of rows read.
    pub rows: u64,
    /// Problems that are not acknowledged, in order.
    pub problems: Vec<Problem>,
    /// Acknowledgements, in order.
    pub acknowledged: Vec<Acknowledgement>,
}

/// Verifies all rows, each with its location, against external evidence.
pub fn verify<'a>(lines: impl IntoIterator<Item = (String, &'a [u8])>, evidence: &Evidence) -> Report {
    let mut check = Check::new(evidence.key.as_ref());
    let outside = evidence.kept.iter().chain(&evidence.checkpoints).filter(|head| head.rows > 0);
    let wanted: HashSet<u64> = outside.map(|head| head.rows).collect();
    let mut there = HashMap::new();
    for (place, line) in lines {
        check.step(place, line);
        if wanted.contains(&check.head.rows) {
            there.entry(check.head.rows).or_insert_with(Vec::new).push(check.head.digest);
        }
    }
    let has = |head: &Head| head.rows == 0 || there.get(&head.rows).is_some_and(|found| found.contains(&head.digest));
    let Check { head, rows, mut problems, acknowledged, acknowledged_breaks, is_anchored, .. } = check;
    if let Some(kept) = evidence.kept.filter(|kept| !has(kept)) {
        problems.push(match head.rows < kept.rows {
            true => Problem::Cut { expected: kept.rows, found: head.rows },
            false => Problem::NotAsKept { seq: kept.rows },
        });
    }
    match &evidence.ledger {
        Some(Ledger { breaks, last: Some(last), .. }) if *breaks > acknowledged_breaks => {
            problems.push(Problem::InJournal { count: breaks - acknowledged_breaks, last: last.clone() });
        }
        None if is_anchored && evidence.kept.is_none() => problems.push(Problem::NoAnchor),
        Some(_) | None => {}
    }
    let lost: BTreeSet<_> = evidence.checkpoints.iter().filter(|head| !has(head)).map(|head| head.rows).collect();
    problems.extend(lost.into_iter().map(|seq| Problem::NotAsShipped { seq }));
    Report { head, rows, problems, acknowledged }
}

/// Verification state, advanced row by row.
pub(crate) struct Check<'a> {
    key: Option<&'a Key>,
    pub(crate) head: Head,
    rows: u64,
    /// True once a row was signed: all later rows must be.
    is_signed: bool,
    is_key_missed: bool,
    /// True if a row states that the journal anchors the end.
    pub(crate) is_anchored: bool,
    pub(crate) problems: Vec<Problem>,
    acknowledged: Vec<Acknowledgement>,
    /// Number of acknowledged breaks of the journal.
    acknowledged_breaks: u64,
    /// Hash of all lines so far: an acknowledgement covers exactly these.
    content: Sha256,
}

impl<'a> Check<'a> {
    pub(crate) fn new(key: Option<&'a Key>) -> Self {
        Self {
            key,
            head: Head::default(),
            rows: 0,
            is_signed: false,
            is_key_missed: false,
            is_anchored: false,
            problems: Vec::new(),
            acknowledged: Vec::new(),
            acknowledged_breaks: 0,
            content: Sha256::new(),
        }
    }

    /// Starts a verification after a row.
    pub(crate) fn after(row: &[u8], head: Head, key: &'a Key) -> Self {
        Self { head, is_signed: signed(row).is_some(), ..Self::new(Some(key)) }
    }

    /// True if every row follows its predecessor. Recorded breaks are allowed.
    pub(crate) fn is_whole(&self) -> bool {
        self.problems.iter().all(|problem| matches!(problem, Problem::Recorded { .. }))
    }

    /// Returns the digest of all lines so far.
    pub(crate) fn covered(&self) -> Digest {
        Digest::from(<[u8; 32]>::from(self.content.clone().finalize()))
    }

    pub(crate) fn step(&mut self, place: String, line: &[u8]) {
        self.rows += 1;
        let expected = self.head.rows + 1;
        let digest = Digest::of(line);
        match Link::read(line) {
            Some(link) => {
                let is_valid = self.check_signature(&place, link.seq, line);
                self.check_place(&place, expected, &link, is_valid);
                if is_valid {
                    self.heed(place, &link);
                }
                self.head = Head { rows: link.seq, digest };
            }
            None => {
                self.problems.push(Problem::NoRow { place });
                self.head = Head { rows: expected, digest };
            }
        }
        self.content.update(line);
        self.content.update(b"\n");
    }

    fn check_place(&mut self, place: &str, expected: u64, link: &Link, is_valid: bool) {
        let is_after_break = is_valid && link.what == What::Broken.name() && link.seq >= expected;
        if link.seq != expected && !is_after_break {
            self.problems.push(Problem::OutOfOrder { place: place.to_owned(), expected, found: link.seq });
        } else if link.prev != self.head.digest.to_string() {
            self.problems.push(Problem::Changed { place: place.to_owned(), seq: link.seq });
        }
    }

    /// True if the row has a valid signature.
    fn check_signature(&mut self, place: &str, seq: u64, line: &[u8]) -> bool {
        let Some((body, signature)) = signed(line) else {
            if self.is_signed {
                self.problems.push(Problem::Unsigned { place: place.to_owned(), seq });
            }
            return false;
        };
        self.is_signed = true;
        let Some(key) = self.key else {
            if !std::mem::replace(&mut self.is_key_missed, true) {
                self.problems.push(Problem::NoKey { from: seq });
            }
            return false;
        };
        if key.has_signed(&body, signature) {
            return true;
        }
        match self.problems.last_mut() {
            Some(Problem::Forged { to, .. }) if *to + 1 == seq => *to = seq,
            Some(_) | None => self.problems.push(Problem::Forged { place: place.to_owned(), from: seq, to: seq }),
        }
        false
    }

    /// Interprets a signed row about the log itself.
    fn heed(&mut self, place: String, link: &Link) {
        if link.what == What::Anchored.name() {
            self.is_anchored = true;
        } else if link.what == What::Broken.name() {
            self.is_anchored = true;
            let found = Break::of(link);
            self.problems.push(Problem::Recorded { place, at_ms: link.at, what: found.what() });
        } else if link.what == What::Acknowledged.name() && link.text("covers") == self.covered().to_string() {
            let breaks = link.more.get("breaks").and_then(serde_json::Value::as_u64).unwrap_or_default();
            self.acknowledged_breaks = self.acknowledged_breaks.max(breaks);
            self.acknowledged.push(Acknowledgement {
                seq: link.seq,
                at_ms: link.at,
                reason: link.text("reason").to_owned(),
                problems: std::mem::take(&mut self.problems),
            });
        }
    }
}

/// Formats a time for people.
fn iso(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fact;

    const KEY: u8 = 7;

    fn fact(n: u64) -> Fact {
        Fact::new(What::Egress).by("agent:main:main").count("port", n)
    }

    fn chain(rows: u64) -> (Vec<Vec<u8>>, Head) {
        let mut head = Head::default();
        let mut lines = Vec::new();
        for at in 0..rows {
            let (line, next) = head.next(&fact(at), at, &Key::fixed(KEY));
            lines.push(line.into_bytes());
            head = next;
        }
        (lines, head)
    }

    fn problems(lines: &[Vec<u8>], kept: Option<Head>) -> Vec<Problem> {
        let placed = lines.iter().enumerate().map(|(at, line)| (format!("line {}", at + 1), line.as_slice()));
        verify(placed, &Evidence { key: Some(Key::fixed(KEY)), kept, ..Evidence::default() }).problems
    }

    /// Returns the problems other than invalid signatures.
    fn places(lines: &[Vec<u8>], kept: Option<Head>) -> Vec<Problem> {
        let mut found = problems(lines, kept);
        found.retain(|problem| !matches!(problem, Problem::Forged { .. }));
        found
    }

    #[test]
    fn a_head_is_read_as_it_is_written() {
        let (_, head) = chain(3);
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in ["", "3", "3:", "x:00", &format!("3:{}", "g".repeat(64)), &format!("3:{}", "é".repeat(32))] {
            assert_eq!(wrong.parse::<Head>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn what_was_not_touched_is_in_order() {
        let (lines, head) = chain(100);
        assert_eq!(problems(&lines, Some(head)), []);
        // The stored end may lag behind.
        assert_eq!(problems(&lines, Some(chain(60).1)), []);
        assert_eq!(problems(&[], None), []);
        assert_eq!(problems(&[], Some(Head::default())), []);
    }

    #[test]
    fn r75_each_of_a_thousand_changed_rows_is_found() {
        let (mut lines, head) = chain(3000);
        for line in lines.iter_mut().skip(1).step_by(3) {
            let at = line.iter().position(|byte| *byte == b'm').unwrap();
            line[at] ^= 1;
        }
        let changed = |seq| Problem::Changed { place: format!("line {seq}"), seq };
        assert_eq!(places(&lines, Some(head)), (3..=3000).step_by(3).map(changed).collect::<Vec<_>>());
    }

    #[test]
    fn r75_each_of_a_thousand_rows_that_were_taken_out_is_found() {
        let (lines, head) = chain(3001);
        let left: Vec<_> = lines.into_iter().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, line)| line).collect();
        let found = problems(&left, Some(head));
        let gaps: Vec<_> = found
            .iter()
            .map(|problem| matches!(problem, Problem::OutOfOrder { expected, found, .. } if expected + 1 == *found))
            .collect();
        assert_eq!(gaps, vec![true; 1000]);
    }

    #[test]
    fn r75_each_of_a_thousand_rows_that_were_moved_is_found() {
        let (mut lines, head) = chain(3000);
        for at in (1..2999).step_by(3) {
            lines.swap(at, at + 1);
        }
        let found = problems(&lines, Some(head));
        for at in (1..2999u64).step_by(3) {
            let told = Problem::OutOfOrder { place: format!("line {}", at + 1), expected: at + 1, found: at + 2 };
            assert!(found.contains(&told), "{told}");
        }
    }

    #[test]
    fn r75_any_bit_of_any_row_shows() {
        let (lines, head) = chain(6);
        for row in 0..lines.len() {
            for at in 0..lines[row].len() {
                let mut lines = lines.clone();
                lines[row][at] ^= 1 << (at % 8);
                assert_ne!(problems(&lines, Some(head)), [], "row {row} byte {at}");
            }
        }
    }

    #[test]
    fn r75_an_end_that_was_cut_off_shows_by_what_is_kept_elsewhere() {
        let (mut lines, head) = chain(1000);
        for left in (0..1000u64).rev().step_by(97) {
            lines.truncate(usize::try_from(left).unwrap());
            assert_eq!(problems(&lines, Some(head)), [Problem::Cut { expected: 1000, found: left }]);
        }
        // A forged end of the same length differs from the stored one.
        let mut forged = Head::default();
        let lines: Vec<_> = (0..1000)
            .map(|at| {
                let (line, next) = forged.next(&Fact::new(What::Egress), at, &Key::fixed(KEY));
                forged = next;
                line.into_bytes()
            })
            .collect();
        assert_eq!(problems(&lines, Some(head)), [Problem::NotAsKept { seq: 1000 }]);
    }

    #[test]
    fn h3_a_chain_that_was_made_anew_without_the_key_shows_by_itself() {
        let mut head = Head::default();
        let (mut lines, _) = chain(2);
        let (end, _) = chain(2);
        lines.clear();
        for at in 0..5 {
            let (line, next) = head.next(&fact(at), at, &Key::fixed(8));
            lines.push(line.into_bytes());
            head = next;
        }
        let place = "line 1".to_owned();
        assert_eq!(problems(&lines, None), [Problem::Forged { place, from: 1, to: 5 }]);
        // Unsigned rows must not follow signed ones.
        let mut lines = end;
        lines.push(format!("{{\"seq\":3,\"at\":0,\"prev\":\"{}\"}}", Digest::of(&lines[1])).into_bytes());
        assert_eq!(problems(&lines, None), [Problem::Unsigned { place: "line 3".to_owned(), seq: 3 }]);
        let placed = lines.iter().map(|line| ("line".to_owned(), line.as_slice()));
        let without_key = verify(placed, &Evidence::default()).problems;
        assert_eq!(without_key[0], Problem::NoKey { from: 1 });
    }

    #[test]
    fn h3_a_checkpoint_finds_an_older_copy_that_was_restored() {
        let (lines, _) = chain(9);
        let shipped = [chain(5).1, chain(9).1];
        let check = |lines: &[Vec<u8>]| {
            let placed = lines.iter().map(|line| ("line".to_owned(), line.as_slice()));
            // The journal was restored as well: it knows of no more rows.
            let kept = Head::at(lines.last().unwrap());
            let key = Some(Key::fixed(KEY));
            verify(placed, &Evidence { key, kept, ledger: None, checkpoints: shipped.to_vec() }).problems
        };
        assert_eq!(check(&lines), []);
        assert_eq!(check(&lines[..7]), [Problem::NotAsShipped { seq: 9 }]);
        assert_eq!(check(&lines[..4]), [Problem::NotAsShipped { seq: 5 }, Problem::NotAsShipped { seq: 9 }]);
    }
}
