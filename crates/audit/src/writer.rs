//! Writer of the log: appends rows to the file of the day. Several processes may write; each holds the folder's lock
//! while it does.
//!
//! Before rows are appended, the end of the log is compared with the known one: the last row that this process wrote,
//! or the one stored by the [`Anchor`]. Rows that another process has added since are valid if they are signed and
//! follow it. Anything else is a break, which gets a row of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    anchor::{Anchor, Break, BreakLedger},
    chain::{ChainHead, Digest},
    files::{self, LogPaths},
    key::Key,
    record::{AuditKind, AuditRecord},
    verify::ChainVerifier,
};

/// Maximum length of a row in bytes. No row is longer, because the values of a record are bounded.
const MAX_ROW_BYTES: u64 = 64 * 1024;

/// Writer of a log.
pub(crate) struct AuditWriter {
    location: LogPaths,
    anchor: Option<Arc<dyn Anchor>>,
    expected: ExpectedEnd,
    /// Breaks of the log, and whether a row states that its end is anchored.
    ledger: BreakLedger,
    /// True if the ledger has changes that are not in the anchor.
    is_ledger_new: bool,
    /// Number of bytes of incomplete rows that were removed after a crash and are not recorded yet.
    torn: u64,
}

/// Expected end of the log.
enum ExpectedEnd {
    /// The anchor was not read yet.
    Unknown,
    /// No particular end is expected, because there is no anchor, or the anchor has not stored an end.
    AnyEnd,
    /// The anchor should have stored the end of this log, but has not: rows may be missing.
    Lost,
    /// The anchor stored this row: the log must end with it or with a later one.
    Row(ChainHead),
    /// The last row written by this process.
    End(LogEnd),
}

/// End of the log on disk.
#[derive(Debug, Clone)]
struct LogEnd {
    /// Newest file.
    path: PathBuf,
    /// Length of that file in bytes.
    length: u64,
    /// Length of the last row, with its line break; 0 if the file has none.
    row: u64,
    head: ChainHead,
}

/// Result of appending rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteResult {
    /// End of the log; `None` if there is no log.
    pub(crate) head: Option<ChainHead>,
    /// Break that was found.
    pub(crate) broken: Option<Break>,
}

/// Actual end, and the break if it is not the expected one.
struct ObservedEnd {
    end: Option<LogEnd>,
    /// The break, and the end that was expected.
    broken: Option<(Break, ChainHead)>,
    /// True if the next write must add an [`AuditKind::Anchored`] row, which states that the end is anchored.
    needs_mark: bool,
}

impl AuditWriter {
    pub(crate) fn new(location: LogPaths, anchor: Option<Arc<dyn Anchor>>) -> Self {
        let (expected, ledger) = (ExpectedEnd::Unknown, BreakLedger::default());
        Self { location, anchor, expected, ledger, is_ledger_new: false, torn: 0 }
    }

    /// Compares the end of the log with the expected one, records a break if rows were removed or replaced, and stores
    /// the end in the anchor, even if another process wrote the last row.
    pub(crate) fn catch_up(&mut self, now: u64) -> io::Result<WriteResult> {
        self.read_anchor()?;
        let is_empty = files::all(&self.location.folder)?.is_empty();
        if is_empty && matches!(self.expected, ExpectedEnd::AnyEnd) {
            return Ok(WriteResult { head: None, broken: None });
        }
        self.write(&[], now)
    }

    /// Appends rows and syncs them, all or none.
    pub(crate) fn write(&mut self, records: &[(u64, AuditRecord)], now: u64) -> io::Result<WriteResult> {
        let _lock = lock(&self.location.folder)?;
        self.write_locked(records, now)
    }

    /// Appends a row that acknowledges all current problems of the log.
    pub(crate) fn acknowledge(&mut self, reason: &str, actor: &str, now: u64) -> io::Result<WriteResult> {
        let _lock = lock(&self.location.folder)?;
        let before = self.write_locked(&[], now)?;
        let mut verifier = ChainVerifier::new(None);
        for (location, line) in files::lines(&self.location.folder)? {
            verifier.step(location, &line);
        }
        let record = AuditRecord::new(AuditKind::Acknowledged).actor(actor).with("reason", reason);
        let record = record.with("covers", &verifier.covered().to_string()).count("breaks", self.ledger.breaks);
        let after = self.write_locked(&[(now, record)], now)?;
        self.store_ledger(after.head);
        Ok(WriteResult { broken: before.broken, ..after })
    }

    /// Like [`Self::write`], for a caller that holds the lock.
    ///
    /// Rows about the log itself come before the records: a break, the number of bytes of an incomplete row that were
    /// removed, and the statement that the end is anchored. The new end is then stored in the anchor: at once together
    /// with the ledger if that has changed, else soon.
    fn write_locked(&mut self, records: &[(u64, AuditRecord)], now: u64) -> io::Result<WriteResult> {
        self.read_anchor()?;
        let key = Key::load_or_create(&self.location.key)?;
        let ObservedEnd { end, broken, needs_mark } = self.observe_end(&key, now)?;
        if needs_mark && self.anchor.is_some() {
            // Stored first, so that a crash leaves no row about an anchor that was never stored.
            self.store_ledger(None);
        }
        let mut head = end.as_ref().map_or_else(ChainHead::default, |end| end.head);
        let mut text = String::new();
        let mut add = |(line, next): (String, ChainHead)| {
            text.push_str(&line);
            text.push('\n');
            next
        };
        if let Some((broken, expected)) = &broken {
            head = add(head.next_after_break(*expected, &broken.record(), now, &key));
        }
        let torn = AuditRecord::new(AuditKind::Repaired).with("kind", "audit_tail").count("bytes", self.torn);
        let torn = (self.torn > 0).then_some((now, torn));
        let mark = needs_mark.then(|| (now, AuditRecord::new(AuditKind::Anchored)));
        for (at, record) in torn.iter().chain(&mark).chain(records) {
            head = add(head.next(record, *at, &key));
        }
        let end = match text.is_empty() {
            true => end,
            false => Some(self.append(end, &text, head, now)?),
        };
        self.torn = 0;
        self.ledger.is_marked |= needs_mark;
        self.is_ledger_new |= needs_mark;
        if let Some((broken, _)) = &broken {
            self.ledger.breaks += 1;
            self.ledger.last = Some(broken.clone());
            self.is_ledger_new = true;
        }
        self.expected = end.clone().map_or(ExpectedEnd::AnyEnd, ExpectedEnd::End);
        let head = end.map(|end| end.head);
        if self.is_ledger_new {
            self.store_ledger(head);
        } else if let (Some(anchor), Some(head)) = (&self.anchor, head) {
            anchor.store_soon(head);
        }
        Ok(WriteResult { head, broken: broken.map(|(broken, _)| broken) })
    }

    /// Appends rows to the newest file, or to a new one if a new day has begun. `head` is the new end of the chain.
    fn append(&self, end: Option<LogEnd>, text: &str, head: ChainHead, now: u64) -> io::Result<LogEnd> {
        let folder = &self.location.folder;
        let today = files::of_day(folder, now);
        let is_new = end.as_ref().is_none_or(|end| end.path < today);
        // The file of a later day stays the last one, even if the clock is set back.
        let (path, length) = match end {
            Some(end) if !is_new => (end.path, end.length),
            Some(_) | None => (today, 0),
        };
        append(&path, length, text.as_bytes())?;
        if is_new {
            File::open(folder)?.sync_all()?;
        }
        let row = text.lines().last().map_or(0, |line| line.len() as u64 + 1);
        Ok(LogEnd { path, length: length + text.len() as u64, row, head })
    }

    /// Reads the expected end from the anchor, once.
    fn read_anchor(&mut self) -> io::Result<()> {
        let ExpectedEnd::Unknown = self.expected else { return Ok(()) };
        let Some(anchor) = &self.anchor else {
            self.expected = ExpectedEnd::AnyEnd;
            return Ok(());
        };
        let anchored = anchor.load().map_err(|reason| {
            io::Error::other(format!("cannot read the end of the audit log from the journal: {reason}"))
        })?;
        self.expected = match anchored.head.filter(|head| head.rows > 0) {
            Some(head) => ExpectedEnd::Row(head),
            None if anchored.ledger.is_none() && self.is_marked()? => ExpectedEnd::Lost,
            None => ExpectedEnd::AnyEnd,
        };
        self.ledger = anchored.ledger.unwrap_or_default();
        Ok(())
    }

    /// True if the log contains an [`AuditKind::Anchored`] row, which states that its end is stored in the anchor.
    /// Reads the whole log.
    fn is_marked(&self) -> io::Result<bool> {
        let key = Key::load(&self.location.key)?;
        let mut verifier = ChainVerifier::new(key.as_ref());
        for (location, line) in files::lines(&self.location.folder)? {
            verifier.step(location, &line);
        }
        Ok(verifier.is_anchored)
    }

    /// Finds the end of the log, and reports a break if it is not the expected one. Also decides whether the next write
    /// must add an [`AuditKind::Anchored`] row. Must be called with the lock held.
    fn observe_end(&mut self, key: &Key, now: u64) -> io::Result<ObservedEnd> {
        let needs_mark = self.anchor.is_some() && !self.ledger.is_marked;
        if let ExpectedEnd::End(end) = &self.expected
            && is_last(end, &self.location.folder)?
        {
            return Ok(ObservedEnd { end: Some(end.clone()), broken: None, needs_mark });
        }
        let (end, torn) = find_end(&self.location.folder)?;
        self.torn += torn;
        let found = end.as_ref().map_or_else(ChainHead::default, |end| end.head);
        let expected = match &self.expected {
            ExpectedEnd::Unknown | ExpectedEnd::AnyEnd => Ok(()),
            ExpectedEnd::Lost => Err(None),
            ExpectedEnd::Row(head) | ExpectedEnd::End(LogEnd { head, .. }) => {
                if self.follows(*head, found, key)? {
                    Ok(())
                } else {
                    Err(Some(*head))
                }
            }
        };
        let broken = expected.err().map(|expected| (Break::new(now, expected, found), expected.unwrap_or_default()));
        // After a crash between writing that row and storing `is_marked` in the anchor, the row exists already.
        let needs_mark = needs_mark && broken.is_none() && !self.is_marked()?;
        self.ledger.is_marked |= !needs_mark && self.anchor.is_some();
        Ok(ObservedEnd { end, broken, needs_mark })
    }

    /// True if `row` still exists, and all rows after it belong to the chain. `found` is the actual end of the log.
    fn follows(&self, row: ChainHead, found: ChainHead, key: &Key) -> io::Result<bool> {
        if row == found {
            return Ok(true);
        }
        let Some(rest) = files::after(&self.location.folder, row.digest)? else { return Ok(false) };
        if ChainHead::at(&rest.row) != Some(row) {
            return Ok(false);
        }
        let mut verifier = ChainVerifier::after(&rest.row, row, key);
        rest.lines.iter().for_each(|line| verifier.step(String::new(), line));
        Ok(verifier.is_intact())
    }

    /// Stores the ledger in the anchor, with the end of the log if it is given. A failure is logged, and the next write
    /// tries again.
    fn store_ledger(&mut self, head: Option<ChainHead>) {
        let Some(anchor) = &self.anchor else {
            self.is_ledger_new = false;
            return;
        };
        self.is_ledger_new = match anchor.store_now(head, &self.ledger) {
            Ok(()) => false,
            Err(error) => {
                tracing::error!("failed to store the end of the audit log in the journal: {error}");
                true
            }
        };
    }
}

/// Locks a folder; creates it if it is missing.
fn lock(folder: &Path) -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let lock = private().truncate(false).open(folder.join("lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).read(true).mode(0o600);
    options
}

/// Appends bytes to a file of a known length. A partial write is truncated again.
fn append(path: &Path, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = private().truncate(false).open(path)?;
    let written =
        file.seek(SeekFrom::Start(length)).and_then(|_| file.write_all(bytes)).and_then(|()| file.sync_data());
    written.inspect_err(|_| {
        // If this fails as well, the next writer finds an incomplete row.
        file.set_len(length).ok();
    })
}

/// True if the log still ends with the row that this process wrote. Reads only that row.
fn is_last(end: &LogEnd, folder: &Path) -> io::Result<bool> {
    let is_newest = files::all(folder)?.last() == Some(&end.path);
    if !is_newest || end.row == 0 {
        return Ok(false);
    }
    let mut file = File::open(&end.path)?;
    if file.metadata()?.len() != end.length {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(end.length.saturating_sub(end.row)))?;
    let mut row = Vec::new();
    file.take(end.row).read_to_end(&mut row)?;
    Ok(row.strip_suffix(b"\n").is_some_and(|row| Digest::of(row) == end.head.digest))
}

/// Finds the end of the log, and truncates an incomplete last row; returns the number of bytes removed.
fn find_end(folder: &Path) -> io::Result<(Option<LogEnd>, u64)> {
    let files = files::all(folder)?;
    let Some(newest) = files.last() else { return Ok((None, 0)) };
    let (length, torn) = cut_torn_row(newest)?;
    let (mut head, mut row) = (None, 0);
    for path in files.iter().rev() {
        if let Some(line) = last_line(path)? {
            row = if path == newest { line.len() as u64 + 1 } else { 0 };
            // A row that was made unreadable is still the predecessor of the next one.
            head = Some(match ChainHead::at(&line) {
                Some(head) => head,
                None => ChainHead { rows: files::rows(folder)?.len() as u64, digest: Digest::of(&line) },
            });
            break;
        }
    }
    let head = head.unwrap_or_default();
    Ok((Some(LogEnd { path: newest.clone(), length, row, head }), torn))
}

/// Truncates an incomplete last row; returns the new length of the file and the number of bytes removed.
fn cut_torn_row(path: &Path) -> io::Result<(u64, u64)> {
    let (from, tail) = files::tail(path, MAX_ROW_BYTES)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (length, torn) = (from + whole as u64, (tail.len() - whole) as u64);
    if torn > 0 {
        OpenOptions::new().write(true).open(path)?.set_len(length)?;
    }
    Ok((length, torn))
}

/// Returns the last complete line of a file.
fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (_, tail) = files::tail(path, MAX_ROW_BYTES)?;
    let Some(whole) = tail.strip_suffix(b"\n") else { return Ok(None) };
    Ok(whole.rsplit(|byte| *byte == b'\n').next().map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{
        Evidence, LogProblem, VerifyReport,
        anchor::{AnchorState, memory::MemoryAnchor},
        rows, verify_folder,
    };

    const DAY: u64 = 24 * 60 * 60 * 1000;
    const FILE: &str = "audit-19700101.jsonl";

    fn record(n: u64) -> AuditRecord {
        AuditRecord::new(AuditKind::ExecStarted).count("n", n)
    }

    fn records(numbers: std::ops::Range<u64>) -> Vec<(u64, AuditRecord)> {
        numbers.map(|n| (n, record(n))).collect()
    }

    /// A state directory, its log, and its anchor.
    struct Log {
        _state: tempfile::TempDir,
        location: LogPaths,
        anchor: Arc<MemoryAnchor>,
    }

    impl Log {
        fn new() -> Self {
            let state = tempfile::tempdir().unwrap();
            let location = LogPaths::in_state(state.path());
            Self { _state: state, location, anchor: Arc::default() }
        }

        /// Creates a log with this many rows, the first of which states that the end is anchored.
        fn with_rows(count: u64) -> Self {
            let log = Self::new();
            log.gateway_writer().write(&records(1..count), 0).unwrap();
            log
        }

        /// Writer of the gateway, which owns the state directory and has the anchor.
        fn gateway_writer(&self) -> AuditWriter {
            AuditWriter::new(self.location.clone(), Some(self.anchor.clone()))
        }

        /// Writer of a CLI command, which has no anchor.
        fn cli_writer(&self) -> AuditWriter {
            AuditWriter::new(self.location.clone(), None)
        }

        fn file(&self) -> PathBuf {
            self.location.folder.join(FILE)
        }

        fn lines(&self) -> Vec<String> {
            fs::read_to_string(self.file()).unwrap().lines().map(str::to_owned).collect()
        }

        fn put(&self, lines: &[String]) {
            fs::write(self.file(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        }

        fn row_summaries(&self) -> Vec<String> {
            let summary =
                |row: crate::LogRow| format!("{} {}", row.content["seq"], row.content["what"].as_str().unwrap_or("?"));
            rows(&self.location.folder).unwrap().into_iter().map(summary).collect()
        }

        fn verify(&self) -> VerifyReport {
            let (anchored, key) = (self.anchor.load().unwrap(), Key::load(&self.location.key).unwrap());
            let evidence =
                Evidence { key, stored_head: anchored.head, ledger: anchored.ledger, checkpoints: Vec::new() };
            verify_folder(&self.location.folder, &evidence).unwrap()
        }
    }

    #[test]
    fn each_day_has_a_file_and_the_chain_continues() {
        let log = Log::new();
        let mut writer = log.cli_writer();
        writer.write(&[(0, record(1)), (1, record(2))], 1).unwrap();
        writer.write(&[(DAY, record(3))], DAY).unwrap();
        // The clock was set back.
        writer.write(&[(5, record(4))], 5).unwrap();
        let locations: Vec<_> = rows(&log.location.folder).unwrap().into_iter().map(|row| row.location).collect();
        assert_eq!(
            locations,
            [
                "audit-19700101.jsonl line 1",
                "audit-19700101.jsonl line 2",
                "audit-19700102.jsonl line 1",
                "audit-19700102.jsonl line 2"
            ]
        );
        assert_eq!((log.verify().rows, log.verify().problems), (4, vec![]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = [mode(&log.location.folder), mode(&log.file()), mode(&log.location.key)];
        assert_eq!(modes, [0o700, 0o600, 0o600]);
    }

    #[test]
    fn processes_alternate_and_continue_one_chain() {
        let log = Log::new();
        let (mut one, mut other) = (log.gateway_writer(), log.cli_writer());
        for n in 0..5 {
            assert_eq!(one.write(&[(n, record(n))], n).unwrap().broken, None);
            assert_eq!(other.write(&[(n * DAY, record(n))], n * DAY).unwrap().broken, None);
        }
        let head = one.write(&[(9, record(9))], 9).unwrap().head;
        let report = log.verify();
        assert_eq!((Some(report.head), report.rows, report.problems), (head, 12, vec![]));
    }

    #[test]
    fn r89_a_row_left_incomplete_by_a_crash_is_truncated_and_recorded() {
        let log = Log::new();
        log.gateway_writer().write(&[(0, record(1))], 0).unwrap();
        let mut bytes = fs::read(log.file()).unwrap();
        bytes.extend(b"{\"seq\":2,\"at");
        fs::write(log.file(), bytes).unwrap();
        assert_eq!(log.gateway_writer().write(&[(1, record(2))], 1).unwrap().broken, None);
        assert_eq!(log.row_summaries(), ["1 audit.anchored", "2 exec.started", "3 repair", "4 exec.started"]);
        assert_eq!(log.verify().problems, []);
    }

    #[test]
    fn a_changed_row_is_detected_after_later_writes() {
        let log = Log::with_rows(4);
        let mut writer = log.gateway_writer();
        writer.catch_up(0).unwrap();
        let mut lines = log.lines();
        lines[2] = lines[2].replacen("\"n\":2", "\"n\":7", 1);
        log.put(&lines);
        writer.write(&[(0, record(4))], 0).unwrap();
        let location = |line: u64| format!("{FILE} line {line}");
        let changed = [
            LogProblem::Forged { location: location(3), from: 3, to: 3 },
            LogProblem::Changed { location: location(4), seq: 4 },
        ];
        assert_eq!(log.verify().problems, changed);
    }

    /// A change of the lines of a log of eight rows.
    type LogChange = fn(&mut Vec<String>);

    const ATTACKS: [(&str, LogChange); 6] = [
        ("the end is cut off", |lines| lines.truncate(4)),
        ("all rows are removed", Vec::clear),
        ("the last row is changed", |lines| lines[7] = lines[7].replace("exec.started", "exec.elapsed")),
        ("the last row is no row", |lines| lines[7] = "no row".to_owned()),
        ("rows are added that are not signed", |lines| {
            let prev = Digest::of(lines[7].as_bytes());
            lines.push(format!("{{\"seq\":9,\"at\":0,\"what\":\"egress\",\"prev\":\"{prev}\"}}"));
        }),
        ("the chain is made anew, without a key, with more rows", |lines| {
            let mut prev = Digest::default();
            *lines = (1..=12)
                .map(|seq| {
                    let line = format!("{{\"seq\":{seq},\"at\":0,\"what\":\"egress\",\"prev\":\"{prev}\"}}");
                    prev = Digest::of(line.as_bytes());
                    line
                })
                .collect();
        }),
    ];

    #[test]
    fn a_changed_end_stays_a_break_after_the_next_row() {
        for (attack, change) in ATTACKS {
            for is_running in [false, true] {
                let log = Log::with_rows(8);
                let mut writer = log.gateway_writer();
                if is_running {
                    writer.catch_up(0).unwrap();
                }
                let mut lines = log.lines();
                change(&mut lines);
                log.put(&lines);
                assert_ne!(log.verify().problems, [], "{attack}, before a row follows");
                let added = writer.write(&[(5, record(9))], 5).unwrap();
                assert!(added.broken.is_some(), "{attack}, running: {is_running}");
                for _ in 0..3 {
                    // Another start and more rows find nothing new.
                    assert_eq!(log.gateway_writer().write(&[(6, record(10))], 6).unwrap().broken, None, "{attack}");
                }
                let found = log.verify().problems;
                assert!(
                    found.iter().any(|problem| matches!(problem, LogProblem::Recorded { .. })),
                    "{attack}: {found:?}"
                );
                assert!(
                    found.iter().any(|problem| matches!(problem, LogProblem::InJournal { count: 1, .. })),
                    "{attack}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn a_repeated_row_is_out_of_order() {
        let log = Log::with_rows(3);
        let mut lines = log.lines();
        lines.push(lines[2].clone());
        log.put(&lines);
        log.gateway_writer().write(&records(4..6), 4).unwrap();
        let location = format!("{FILE} line 4");
        assert_eq!(log.verify().problems, [LogProblem::OutOfOrder { location, expected: 4, found: 3 }]);
    }

    #[test]
    fn a_deleted_log_is_detected_at_start_and_numbering_continues() {
        for is_folder in [false, true] {
            let log = Log::with_rows(7);
            if is_folder { fs::remove_dir_all(&log.location.folder) } else { fs::remove_file(log.file()) }.unwrap();
            assert!(log.gateway_writer().catch_up(9).unwrap().broken.is_some());
            assert_eq!(log.row_summaries(), ["8 audit.broken"]);
            let [LogProblem::Recorded { what, .. }, LogProblem::InJournal { .. }] = &log.verify().problems[..] else {
                panic!("{:?}", log.verify())
            };
            assert_eq!(what, "the log ended with row 0, not with row 7: rows were removed");
        }
    }

    #[test]
    fn breaks_in_the_journal_stay_when_old_files_are_restored() {
        let log = Log::with_rows(8);
        let lines = log.lines();
        log.put(&lines[..5]);
        log.gateway_writer().write(&[(5, record(9))], 5).unwrap();
        log.put(&lines);
        log.gateway_writer().write(&[(5, record(9))], 5).unwrap();
        let Some(LogProblem::InJournal { count: 2, .. }) = log.verify().problems.pop() else {
            panic!("{:?}", log.verify())
        };
    }

    #[test]
    fn a_journal_that_was_replaced_is_a_break() {
        let mut log = Log::with_rows(3);
        log.put(&log.lines()[..2]);
        log.anchor = Arc::default();
        assert_eq!(log.verify().problems, [LogProblem::NoAnchor]);
        assert!(log.gateway_writer().catch_up(1).unwrap().broken.is_some());
        assert_eq!(log.row_summaries(), ["1 audit.anchored", "2 exec.started", "3 audit.broken"]);
        let problems = log.verify().problems;
        assert!(
            matches!(&problems[..], [LogProblem::Recorded { .. }, LogProblem::InJournal { count: 1, .. }]),
            "{problems:?}"
        );
    }

    #[test]
    fn an_acknowledgement_covers_only_the_problems_at_that_time() {
        let log = Log::with_rows(8);
        let mut lines = log.lines();
        lines[2] = lines[2].replacen("\"n\":2", "\"n\":7", 1);
        log.put(&lines[..6]);
        let mut writer = log.gateway_writer();
        writer.acknowledge("disk was restored", "owner", 5).unwrap();
        writer.write(&[(6, record(9))], 6).unwrap();
        let report = log.verify();
        assert_eq!((&report.problems[..], report.acknowledged[0].problems.len()), (&[][..], 3), "{report:?}");
        let lines = log.lines();
        assert!(lines[7].contains("disk was restored"), "{lines:?}");
        // The acknowledgement does not cover another change before it.
        for row in 0..7 {
            let mut changed = lines.clone();
            changed[row] = changed[row].replacen(":", ": ", 1);
            log.put(&changed);
            assert_ne!(log.verify().problems, [], "row {row}");
        }
        log.put(&lines);
        assert_eq!(log.verify().problems, []);
        // Nor does it cover a later break.
        log.put(&lines[..8]);
        assert!(log.gateway_writer().catch_up(7).unwrap().broken.is_some());
        assert_eq!(log.verify().problems.len(), 2);
    }

    #[test]
    fn a_crash_between_file_and_anchor_is_not_a_break() {
        let before = Log::new();
        before.gateway_writer().write(&records(0..3), 0).unwrap();
        let (anchored, old_bytes) = (before.anchor.load().unwrap(), fs::read(before.file()).unwrap());
        before.gateway_writer().write(&records(3..6), 0).unwrap();
        let (new_bytes, key) = (fs::read(before.file()).unwrap(), fs::read(&before.location.key).unwrap());
        // Any part of the new rows may be on disk, while the anchor is unchanged. Tested are all lengths that end with
        // a whole row, and every 29th length.
        let ends = (old_bytes.len()..=new_bytes.len()).filter(|end| new_bytes[..*end].ends_with(b"\n"));
        for length in ends.chain((old_bytes.len()..new_bytes.len()).step_by(29)) {
            let mut log = Log::new();
            fs::create_dir(&log.location.folder).unwrap();
            fs::write(&log.location.key, &key).unwrap();
            fs::write(log.file(), &new_bytes[..length]).unwrap();
            log.anchor = Arc::new(MemoryAnchor::with(anchored.clone()));
            assert_eq!(log.gateway_writer().catch_up(1).unwrap().broken, None, "{length}");
            assert_eq!(log.gateway_writer().write(&records(7..8), 1).unwrap().broken, None, "{length}");
            assert_eq!(log.verify().problems, [], "{length}");
        }
    }

    #[test]
    fn a_crash_at_the_first_rows_is_not_a_lost_journal() {
        // Deferred writes are lost in every crash; immediate ones are not.
        let log = Log { anchor: Arc::new(MemoryAnchor::late()), ..Log::new() };
        for n in 0..3 {
            assert_eq!(log.gateway_writer().write(&records(n..n + 1), n).unwrap().broken, None);
        }
        // The row about the anchor exists, but the mark was not stored.
        let ledger = Some(BreakLedger::default());
        let log = Log { anchor: Arc::new(MemoryAnchor::with(AnchorState { head: None, ledger })), ..log };
        assert_eq!(log.gateway_writer().write(&records(4..5), 4).unwrap().broken, None);
        assert_eq!(log.row_summaries().iter().filter(|row| row.contains("anchored")).count(), 1);
        assert_eq!(log.verify().problems, []);
    }

    #[test]
    fn rows_of_the_unsigned_format_are_still_valid() {
        let head: ChainHead = include_str!("../tests/unsigned/head").trim_end().parse().unwrap();
        let log =
            Log { anchor: Arc::new(MemoryAnchor::with(AnchorState { head: Some(head), ledger: None })), ..Log::new() };
        fs::create_dir(&log.location.folder).unwrap();
        let file = log.location.folder.join("audit-20260101.jsonl");
        fs::write(&file, include_str!("../tests/unsigned/audit-20260101.jsonl")).unwrap();
        assert_eq!(log.verify().problems, []);
        let now = 1_767_225_600_100;
        assert_eq!(log.gateway_writer().write(&[(now, record(1))], now).unwrap().broken, None);
        let rows = log.row_summaries();
        assert_eq!(rows[3..], ["4 config.written", "5 audit.anchored", "6 exec.started"]);
        assert_eq!(log.verify().problems, []);
        // The signed rows are protected as well.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("wrong token", "right token", 1)).unwrap();
        let location = "audit-20260101.jsonl line 4".to_owned();
        assert_eq!(log.verify().problems, [LogProblem::Changed { location, seq: 4 }]);
    }

    #[test]
    fn the_last_row_is_found_in_a_long_file_without_reading_it_whole() {
        let log = Log::with_rows(2);
        let mut writer = log.gateway_writer();
        writer.write(&records(0..2000), 0).unwrap();
        let head = writer.write(&[], 0).unwrap().head.unwrap();
        log.cli_writer().write(&records(0..2000), 0).unwrap();
        let rest = files::after(&log.location.folder, head.digest).unwrap().unwrap();
        assert_eq!((ChainHead::at(&rest.row), rest.lines.len()), (Some(head), 2000));
        assert_eq!(files::after(&log.location.folder, Digest::of(b"never written")).unwrap(), None);
        assert_eq!(writer.write(&records(0..1), 0).unwrap().broken, None);
    }
}
