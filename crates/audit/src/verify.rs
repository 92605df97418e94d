//! Verifies a chain: its links, its signatures, and the stored end. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use crate::{
    anchor::{Break, BreakLedger},
    chain::{ChainHead, Digest, Link, signed},
    key::Key,
    record::AuditKind,
};

/// A problem of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogProblem {
    /// A line that is not a row.
    #[error("{location}: the line is not a valid row: it was changed or damaged")]
    NotARow {
        /// File name and line number.
        location: String,
    },
    /// A row whose sequence number is not the next one.
    #[error("{location}: found row {found} instead of row {expected}: rows were removed, inserted or moved")]
    OutOfOrder {
        /// File name and line number.
        location: String,
        /// Expected sequence number.
        expected: u64,
        /// Actual sequence number.
        found: u64,
    },
    /// A row whose digest of the preceding row does not match that row: the preceding row was changed.
    #[error("{location}: the row before row {seq} was changed after it was written")]
    Changed {
        /// File name and line number.
        location: String,
        /// Sequence number of the row that shows it.
        seq: u64,
    },
    /// Consecutive rows whose signature is not valid for the key of the log.
    #[error("{location}: rows {from} to {to} are not signed with the key of this log: they were changed or forged")]
    Forged {
        /// File name and line number of the first one.
        location: String,
        /// First row.
        from: u64,
        /// Last row.
        to: u64,
    },
    /// A row without a signature after signed rows.
    #[error(
        "{location}: row {seq} is not signed, but earlier rows are: it was inserted or written by an older version of Homard"
    )]
    Unsigned {
        /// File name and line number.
        location: String,
        /// Sequence number.
        seq: u64,
    },
    /// The key is missing.
    #[error("rows from {from} on cannot be checked: the key of this log is missing; restore audit.key from a backup")]
    NoKey {
        /// First signed row.
        from: u64,
    },
    /// The log is shorter than the journal recorded.
    #[error("the log was truncated: it has {found} rows, but the journal recorded {expected}")]
    Cut {
        /// Number of rows according to the journal.
        expected: u64,
        /// Actual number of rows.
        found: u64,
    },
    /// A row differs from the one that the journal has stored as the end of the log.
    #[error("row {seq} differs from the one recorded in the journal: it was changed")]
    NotAsAnchored {
        /// Sequence number.
        seq: u64,
    },
    /// A break that was recorded in the log when it was found.
    #[error("{location}: a break in the chain of rows was recorded at {}: {what}", iso(*.at_ms))]
    Recorded {
        /// File name and line number.
        location: String,
        /// Time of detection in milliseconds since the epoch.
        at_ms: u64,
        /// Description of the break.
        what: String,
    },
    /// Breaks recorded by the journal that no acknowledgement covers.
    #[error("the journal recorded {count} break(s) that are not acknowledged; the last at {}: {}", iso(.last.at_ms), .last.description())]
    InJournal {
        /// Number of breaks.
        count: u64,
        /// Last break.
        last: Break,
    },
    /// The journal has lost its information about this log.
    #[error("the journal has no record of this log: the journal was replaced or removed")]
    NoAnchor,
    /// The log does not contain the row of a checkpoint that was sent elsewhere.
    #[error("the checkpoint of row {seq} does not match: rows were removed or replaced, or an older copy was restored")]
    NotAsInCheckpoint {
        /// Sequence number.
        seq: u64,
    },
}

/// Evidence about a log from outside its files.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Key that rows are signed with.
    pub key: Option<Key>,
    /// End of the log that the anchor, the journal, has stored.
    pub stored_head: Option<ChainHead>,
    /// Breaks stored by the journal; `None` if it has never stored any, or was written by an older version.
    pub ledger: Option<BreakLedger>,
    /// Checkpoints, which are ends of the log that were sent elsewhere, oldest first.
    pub checkpoints: Vec<ChainHead>,
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
    pub problems: Vec<LogProblem>,
}

/// Result of verifying a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// End of the chain.
    pub head: ChainHead,
    /// Number of rows read.
    pub rows: u64,
    /// Problems that are not acknowledged, in order.
    pub problems: Vec<LogProblem>,
    /// Acknowledgements, in order.
    pub acknowledged: Vec<Acknowledgement>,
}

/// Verifies all rows, each with its location, against external evidence.
pub fn verify<'a>(lines: impl IntoIterator<Item = (String, &'a [u8])>, evidence: &Evidence) -> VerifyReport {
    let mut verifier = ChainVerifier::new(evidence.key.as_ref());
    let stored_heads = evidence.stored_head.iter().chain(&evidence.checkpoints).filter(|head| head.rows > 0);
    let wanted_rows: HashSet<u64> = stored_heads.map(|head| head.rows).collect();
    let mut digests_by_row = HashMap::new();
    for (location, line) in lines {
        verifier.step(location, line);
        if wanted_rows.contains(&verifier.head.rows) {
            digests_by_row.entry(verifier.head.rows).or_insert_with(Vec::new).push(verifier.head.digest);
        }
    }
    let contains = |head: &ChainHead| {
        head.rows == 0 || digests_by_row.get(&head.rows).is_some_and(|found| found.contains(&head.digest))
    };
    let ChainVerifier { head, rows, mut problems, acknowledged, acknowledged_breaks, is_anchored, .. } = verifier;
    if let Some(stored_head) = evidence.stored_head.filter(|stored_head| !contains(stored_head)) {
        problems.push(match head.rows < stored_head.rows {
            true => LogProblem::Cut { expected: stored_head.rows, found: head.rows },
            false => LogProblem::NotAsAnchored { seq: stored_head.rows },
        });
    }
    match &evidence.ledger {
        Some(BreakLedger { breaks, last: Some(last), .. }) if *breaks > acknowledged_breaks => {
            problems.push(LogProblem::InJournal { count: breaks - acknowledged_breaks, last: last.clone() });
        }
        None if is_anchored && evidence.stored_head.is_none() => problems.push(LogProblem::NoAnchor),
        Some(_) | None => {}
    }
    let missing: BTreeSet<_> =
        evidence.checkpoints.iter().filter(|head| !contains(head)).map(|head| head.rows).collect();
    problems.extend(missing.into_iter().map(|seq| LogProblem::NotAsInCheckpoint { seq }));
    VerifyReport { head, rows, problems, acknowledged }
}

/// Verification state, advanced row by row.
pub(crate) struct ChainVerifier<'a> {
    key: Option<&'a Key>,
    pub(crate) head: ChainHead,
    rows: u64,
    /// True once a row was signed: all later rows must be.
    is_signed: bool,
    is_missing_key_reported: bool,
    /// True if a row states that the journal anchors the end.
    pub(crate) is_anchored: bool,
    pub(crate) problems: Vec<LogProblem>,
    acknowledged: Vec<Acknowledgement>,
    /// Number of acknowledged breaks of the journal.
    acknowledged_breaks: u64,
    /// Hash of all lines so far: an acknowledgement covers exactly these.
    content: Sha256,
}

impl<'a> ChainVerifier<'a> {
    pub(crate) fn new(key: Option<&'a Key>) -> Self {
        Self {
            key,
            head: ChainHead::default(),
            rows: 0,
            is_signed: false,
            is_missing_key_reported: false,
            is_anchored: false,
            problems: Vec::new(),
            acknowledged: Vec::new(),
            acknowledged_breaks: 0,
            content: Sha256::new(),
        }
    }

    /// Starts a verification after a row.
    pub(crate) fn after(row: &[u8], head: ChainHead, key: &'a Key) -> Self {
        Self { head, is_signed: signed(row).is_some(), ..Self::new(Some(key)) }
    }

    /// True if every row follows its predecessor. Recorded breaks are allowed.
    pub(crate) fn is_intact(&self) -> bool {
        self.problems.iter().all(|problem| matches!(problem, LogProblem::Recorded { .. }))
    }

    /// Returns the digest of all lines so far.
    pub(crate) fn covered(&self) -> Digest {
        Digest::from(<[u8; 32]>::from(self.content.clone().finalize()))
    }

    pub(crate) fn step(&mut self, location: String, line: &[u8]) {
        self.rows += 1;
        let expected = self.head.rows + 1;
        let digest = Digest::of(line);
        match Link::read(line) {
            Some(link) => {
                let has_valid_signature = self.check_signature(&location, link.seq, line);
                self.check_position(&location, expected, &link, has_valid_signature);
                if has_valid_signature {
                    self.interpret(location, &link);
                }
                self.head = ChainHead { rows: link.seq, digest };
            }
            None => {
                self.problems.push(LogProblem::NotARow { location });
                self.head = ChainHead { rows: expected, digest };
            }
        }
        self.content.update(line);
        self.content.update(b"\n");
    }

    /// Checks the sequence number and the digest of the predecessor. The row that records a break may skip numbers:
    /// those of the missing rows are not used again.
    fn check_position(&mut self, location: &str, expected: u64, link: &Link, has_valid_signature: bool) {
        let may_skip_numbers =
            has_valid_signature && link.what == AuditKind::ChainBroken.name() && link.seq >= expected;
        if link.seq != expected && !may_skip_numbers {
            self.problems.push(LogProblem::OutOfOrder { location: location.to_owned(), expected, found: link.seq });
        } else if link.prev != self.head.digest.to_string() {
            self.problems.push(LogProblem::Changed { location: location.to_owned(), seq: link.seq });
        }
    }

    /// Checks the signature of a row and records a problem. Returns true if it is valid.
    fn check_signature(&mut self, location: &str, seq: u64, line: &[u8]) -> bool {
        let Some((body, signature)) = signed(line) else {
            if self.is_signed {
                self.problems.push(LogProblem::Unsigned { location: location.to_owned(), seq });
            }
            return false;
        };
        self.is_signed = true;
        let Some(key) = self.key else {
            if !std::mem::replace(&mut self.is_missing_key_reported, true) {
                self.problems.push(LogProblem::NoKey { from: seq });
            }
            return false;
        };
        if key.has_signed(&body, signature) {
            return true;
        }
        match self.problems.last_mut() {
            Some(LogProblem::Forged { to, .. }) if *to + 1 == seq => *to = seq,
            Some(_) | None => {
                self.problems.push(LogProblem::Forged { location: location.to_owned(), from: seq, to: seq })
            }
        }
        false
    }

    /// Handles a row about the log itself: the start of anchoring, a break, or an acknowledgement. An acknowledgement
    /// counts only if its digest covers exactly the rows before it. Other rows are ignored.
    fn interpret(&mut self, location: String, link: &Link) {
        if link.what == AuditKind::Anchored.name() {
            self.is_anchored = true;
        } else if link.what == AuditKind::ChainBroken.name() {
            self.is_anchored = true;
            let found = Break::of(link);
            self.problems.push(LogProblem::Recorded { location, at_ms: link.at, what: found.description() });
        } else if link.what == AuditKind::Acknowledged.name() && link.text("covers") == self.covered().to_string() {
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
    use crate::AuditRecord;

    const KEY: u8 = 7;

    fn record(n: u64) -> AuditRecord {
        AuditRecord::new(AuditKind::Egress).actor("agent:main:main").count("port", n)
    }

    fn chain(rows: u64) -> (Vec<Vec<u8>>, ChainHead) {
        let mut head = ChainHead::default();
        let mut lines = Vec::new();
        for index in 0..rows {
            let (line, next) = head.next(&record(index), index, &Key::fixed(KEY));
            lines.push(line.into_bytes());
            head = next;
        }
        (lines, head)
    }

    fn problems(lines: &[Vec<u8>], stored_head: Option<ChainHead>) -> Vec<LogProblem> {
        let located = lines.iter().enumerate().map(|(at, line)| (format!("line {}", at + 1), line.as_slice()));
        verify(located, &Evidence { key: Some(Key::fixed(KEY)), stored_head, ..Evidence::default() }).problems
    }

    /// Returns the problems other than invalid signatures.
    fn problems_without_forgeries(lines: &[Vec<u8>], stored_head: Option<ChainHead>) -> Vec<LogProblem> {
        let mut remaining = problems(lines, stored_head);
        remaining.retain(|problem| !matches!(problem, LogProblem::Forged { .. }));
        remaining
    }

    #[test]
    fn a_chain_head_round_trips() {
        let (_, head) = chain(3);
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in ["", "3", "3:", "x:00", &format!("3:{}", "g".repeat(64)), &format!("3:{}", "é".repeat(32))] {
            assert_eq!(wrong.parse::<ChainHead>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn an_unchanged_chain_has_no_problems() {
        let (lines, head) = chain(100);
        assert_eq!(problems(&lines, Some(head)), []);
        // The stored end may lag behind.
        assert_eq!(problems(&lines, Some(chain(60).1)), []);
        assert_eq!(problems(&[], None), []);
        assert_eq!(problems(&[], Some(ChainHead::default())), []);
    }

    #[test]
    fn r75_each_of_a_thousand_changed_rows_is_found() {
        let (mut lines, head) = chain(3000);
        for line in lines.iter_mut().skip(1).step_by(3) {
            let at = line.iter().position(|byte| *byte == b'm').unwrap();
            line[at] ^= 1;
        }
        let changed = |seq| LogProblem::Changed { location: format!("line {seq}"), seq };
        assert_eq!(
            problems_without_forgeries(&lines, Some(head)),
            (3..=3000).step_by(3).map(changed).collect::<Vec<_>>()
        );
    }

    #[test]
    fn r75_each_of_a_thousand_removed_rows_is_found() {
        let (lines, head) = chain(3001);
        let remaining: Vec<_> =
            lines.into_iter().enumerate().filter(|(index, _)| index % 3 != 1).map(|(_, line)| line).collect();
        let found = problems(&remaining, Some(head));
        let gaps: Vec<_> = found
            .iter()
            .map(|problem| matches!(problem, LogProblem::OutOfOrder { expected, found, .. } if expected + 1 == *found))
            .collect();
        assert_eq!(gaps, vec![true; 1000]);
    }

    #[test]
    fn r75_each_of_a_thousand_moved_rows_is_found() {
        let (mut lines, head) = chain(3000);
        for index in (1..2999).step_by(3) {
            lines.swap(index, index + 1);
        }
        let found = problems(&lines, Some(head));
        for index in (1..2999u64).step_by(3) {
            let expected = LogProblem::OutOfOrder {
                location: format!("line {}", index + 1),
                expected: index + 1,
                found: index + 2,
            };
            assert!(found.contains(&expected), "{expected}");
        }
    }

    #[test]
    fn r75_any_flipped_bit_is_detected() {
        let (lines, head) = chain(6);
        for row in 0..lines.len() {
            for byte in 0..lines[row].len() {
                let mut lines = lines.clone();
                lines[row][byte] ^= 1 << (byte % 8);
                assert_ne!(problems(&lines, Some(head)), [], "row {row} byte {byte}");
            }
        }
    }

    #[test]
    fn r75_a_truncated_end_is_detected_by_the_anchor() {
        let (mut lines, head) = chain(1000);
        for row_count in (0..1000u64).rev().step_by(97) {
            lines.truncate(usize::try_from(row_count).unwrap());
            assert_eq!(problems(&lines, Some(head)), [LogProblem::Cut { expected: 1000, found: row_count }]);
        }
        // A forged end of the same length differs from the stored one.
        let mut forged = ChainHead::default();
        let lines: Vec<_> = (0..1000)
            .map(|at| {
                let (line, next) = forged.next(&AuditRecord::new(AuditKind::Egress), at, &Key::fixed(KEY));
                forged = next;
                line.into_bytes()
            })
            .collect();
        assert_eq!(problems(&lines, Some(head)), [LogProblem::NotAsAnchored { seq: 1000 }]);
    }

    #[test]
    fn a_chain_forged_without_the_key_is_detected() {
        let mut head = ChainHead::default();
        let (mut lines, _) = chain(2);
        let (end, _) = chain(2);
        lines.clear();
        for index in 0..5 {
            let (line, next) = head.next(&record(index), index, &Key::fixed(8));
            lines.push(line.into_bytes());
            head = next;
        }
        let location = "line 1".to_owned();
        assert_eq!(problems(&lines, None), [LogProblem::Forged { location, from: 1, to: 5 }]);
        // Unsigned rows must not follow signed ones.
        let mut lines = end;
        lines.push(format!("{{\"seq\":3,\"at\":0,\"prev\":\"{}\"}}", Digest::of(&lines[1])).into_bytes());
        assert_eq!(problems(&lines, None), [LogProblem::Unsigned { location: "line 3".to_owned(), seq: 3 }]);
        let located = lines.iter().map(|line| ("line".to_owned(), line.as_slice()));
        let without_key = verify(located, &Evidence::default()).problems;
        assert_eq!(without_key[0], LogProblem::NoKey { from: 1 });
    }

    #[test]
    fn a_checkpoint_finds_an_older_copy_that_was_restored() {
        let (lines, _) = chain(9);
        let checkpoints = [chain(5).1, chain(9).1];
        let check = |lines: &[Vec<u8>]| {
            let located = lines.iter().map(|line| ("line".to_owned(), line.as_slice()));
            // The journal was restored as well, so its stored end matches the older copy.
            let stored_head = ChainHead::at(lines.last().unwrap());
            let key = Some(Key::fixed(KEY));
            verify(located, &Evidence { key, stored_head, ledger: None, checkpoints: checkpoints.to_vec() }).problems
        };
        assert_eq!(check(&lines), []);
        assert_eq!(check(&lines[..7]), [LogProblem::NotAsInCheckpoint { seq: 9 }]);
        assert_eq!(
            check(&lines[..4]),
            [LogProblem::NotAsInCheckpoint { seq: 5 }, LogProblem::NotAsInCheckpoint { seq: 9 }]
        );
    }
}
