//! The chain: each row holds the digest of the row before it. Pure.

use std::{fmt, str::FromStr};

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::fact::Fact;

/// The SHA-256 of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of a row, without the end of its line.
    pub fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).or(Err(()))?;
        }
        Ok(Self(bytes))
    }
}

/// Where a chain ends: how many rows it has, and the digest of the last. Written as `12:abc…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// How many rows there are.
    pub rows: u64,
    /// The digest of the last; zeros if there is none.
    pub digest: Digest,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rows, self.digest)
    }
}

impl FromStr for Head {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (rows, digest) = text.split_once(':').ok_or(())?;
        Ok(Self { rows: rows.parse().or(Err(()))?, digest: digest.parse()? })
    }
}

impl Head {
    /// The row that says this, after this head; and where the chain ends with it.
    pub(crate) fn next(self, fact: &Fact, at_ms: u64) -> (String, Self) {
        let rows = self.rows + 1;
        let mut row = Map::new();
        row.insert("seq".to_owned(), rows.into());
        row.insert("at".to_owned(), at_ms.into());
        row.extend(fact.fields());
        row.insert("prev".to_owned(), self.digest.to_string().into());
        let line = Value::from(row).to_string();
        let digest = Digest::of(line.as_bytes());
        (line, Self { rows, digest })
    }

    /// Where a chain ends whose last row is this one; `None` if it is no row.
    pub(crate) fn at(line: &[u8]) -> Option<Self> {
        let link: Link = serde_json::from_slice(line).ok()?;
        Some(Self { rows: link.seq, digest: Digest::of(line) })
    }
}

/// What makes a row a link.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: String,
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is a line that is no row.
    #[error("{place}: this line is no row: it was changed or damaged")]
    NoRow {
        /// The file and the line.
        place: String,
    },
    /// The row is not the one that follows.
    #[error("{place}: row {found} stands where row {expected} belongs: rows were taken out, put in or moved")]
    OutOfOrder {
        /// The file and the line.
        place: String,
        /// Which row belongs there.
        expected: u64,
        /// Which row is there.
        found: u64,
    },
    /// The row before is not the one that this row followed.
    #[error("{place}: the row before row {seq} is not the one that was written: it was changed")]
    Changed {
        /// The file and the line.
        place: String,
        /// The row that shows it.
        seq: u64,
    },
    /// The end is missing.
    #[error("the end was cut off: there are {found} rows, and the journal knows of {expected}")]
    Cut {
        /// How many rows there were.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The row that the journal knows is another.
    #[error("row {seq} is not the one that the journal knows: it was changed")]
    NotAsKept {
        /// The row.
        seq: u64,
    },
}

/// What a look at a chain found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Where it ends.
    pub head: Head,
    /// How many rows were read.
    pub rows: u64,
    /// What is wrong, in order.
    pub problems: Vec<Problem>,
}

/// Looks at all rows, each with its place, and at what is kept elsewhere of the end.
pub fn verify<'a>(lines: impl IntoIterator<Item = (String, &'a [u8])>, kept: Option<Head>) -> Report {
    let mut report = Report { head: Head::default(), rows: 0, problems: Vec::new() };
    let mut is_as_kept = None;
    for (place, line) in lines {
        report.rows += 1;
        report.step(place, line);
        if kept.is_some_and(|kept| kept.rows == report.head.rows) {
            is_as_kept = kept.map(|kept| kept.digest == report.head.digest);
        }
    }
    let Some(kept) = kept.filter(|kept| kept.rows > 0) else { return report };
    match is_as_kept {
        Some(true) => {}
        Some(false) => report.problems.push(Problem::NotAsKept { seq: kept.rows }),
        None => report.problems.push(Problem::Cut { expected: kept.rows, found: report.rows }),
    }
    report
}

impl Report {
    fn step(&mut self, place: String, line: &[u8]) {
        let expected = self.head.rows + 1;
        let digest = Digest::of(line);
        let Ok(link) = serde_json::from_slice::<Link>(line) else {
            self.problems.push(Problem::NoRow { place });
            self.head = Head { rows: expected, digest };
            return;
        };
        let follows = link.prev == self.head.digest.to_string();
        if link.seq != expected {
            self.problems.push(Problem::OutOfOrder { place, expected, found: link.seq });
        } else if !follows {
            self.problems.push(Problem::Changed { place, seq: link.seq });
        }
        self.head = Head { rows: link.seq, digest };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::What;

    fn chain(rows: u64) -> (Vec<Vec<u8>>, Head) {
        let mut head = Head::default();
        let mut lines = Vec::new();
        for at in 0..rows {
            let fact = Fact::new(What::Egress).by("agent:main:main").count("port", at);
            let (line, next) = head.next(&fact, at);
            lines.push(line.into_bytes());
            head = next;
        }
        (lines, head)
    }

    fn problems(lines: &[Vec<u8>], kept: Option<Head>) -> Vec<Problem> {
        let placed = lines.iter().enumerate().map(|(at, line)| (format!("line {}", at + 1), line.as_slice()));
        verify(placed, kept).problems
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
        // What is kept elsewhere may lag behind.
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
        assert_eq!(problems(&lines, Some(head)), (3..=3000).step_by(3).map(changed).collect::<Vec<_>>());
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
        // A forged end of the same length is not the one that was kept.
        let mut forged = Head::default();
        let lines: Vec<_> = (0..1000)
            .map(|at| {
                let (line, next) = forged.next(&Fact::new(What::Egress), at);
                forged = next;
                line.into_bytes()
            })
            .collect();
        assert_eq!(problems(&lines, Some(head)), [Problem::NotAsKept { seq: 1000 }]);
    }
}
