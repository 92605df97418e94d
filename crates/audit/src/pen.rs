//! Adds rows to the file of the day. Several processes may: each holds the folder's lock while it writes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{
    chain::{Digest, Head},
    fact::{Fact, What},
    files,
};

/// No row is longer: its values are bounded.
const LONGEST_ROW: u64 = 64 * 1024;

/// Who writes.
#[derive(Debug)]
pub(crate) struct Pen {
    folder: PathBuf,
    /// Where the last row ends that this process knows of.
    end: Option<End>,
    /// How many bytes were cut off that a crash left of a row, and nobody was told of.
    torn: u64,
}

#[derive(Debug, Clone)]
struct End {
    path: PathBuf,
    length: u64,
    head: Head,
}

impl Pen {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, end: None, torn: 0 }
    }

    /// Where the chain ends now, whoever wrote last; `None` if there is none.
    pub(crate) fn end(&mut self) -> io::Result<Option<Head>> {
        if files::all(&self.folder)?.is_empty() {
            return Ok(None);
        }
        let lock = private().truncate(false).open(self.folder.join("lock"))?;
        lock.lock()?;
        let is_known = self.end.as_ref().is_some_and(|end| is_last(end, &self.folder));
        if !is_known {
            let (end, torn) = find(&self.folder)?;
            self.end = end;
            self.torn += torn;
        }
        Ok(self.end.as_ref().map(|end| end.head))
    }

    /// Adds rows and makes them safe, all or none. Returns where the chain ends.
    pub(crate) fn write(&mut self, facts: &[(u64, Fact)]) -> io::Result<Head> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let lock = private().truncate(false).open(self.folder.join("lock"))?;
        lock.lock()?;
        let end = match self.end.take().filter(|end| is_last(end, &self.folder)) {
            Some(end) => Some(end),
            None => {
                let (end, torn) = find(&self.folder)?;
                self.torn += torn;
                end
            }
        };
        let now = facts.last().map_or(0, |(at, _)| *at);
        let today = files::of_day(&self.folder, now);
        let is_new = end.as_ref().is_none_or(|end| end.path < today);
        // The file of a later day stays the last one, also when the clock goes back.
        let (path, length) = match &end {
            Some(end) if !is_new => (end.path.clone(), end.length),
            Some(_) | None => (today, 0),
        };
        let mut head = end.map_or_else(Head::default, |end| end.head);
        let mut text = String::new();
        let mended = Fact::new(What::Repaired).with("kind", "audit_tail").count("bytes", self.torn);
        let mended = (self.torn > 0).then_some((now, mended));
        for (at, fact) in mended.iter().chain(facts) {
            let (line, next) = head.next(fact, *at);
            text.push_str(&line);
            text.push('\n');
            head = next;
        }
        append(&path, length, text.as_bytes())?;
        if is_new {
            File::open(&self.folder)?.sync_all()?;
        }
        self.torn = 0;
        self.end = Some(End { path, length: length + text.len() as u64, head });
        Ok(head)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).read(true).mode(0o600);
    options
}

/// Adds bytes to a file of a known length. What could not be added whole is taken away again.
fn append(path: &Path, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = private().truncate(false).open(path)?;
    let written =
        file.seek(SeekFrom::Start(length)).and_then(|_| file.write_all(bytes)).and_then(|()| file.sync_data());
    written.inspect_err(|_| {
        // If this fails, too, the next writer finds a row that is not whole.
        file.set_len(length).ok();
    })
}

/// Whether nobody has written since.
fn is_last(end: &End, folder: &Path) -> bool {
    let is_newest = files::all(folder).is_ok_and(|files| files.last() == Some(&end.path));
    is_newest && fs::metadata(&end.path).is_ok_and(|found| found.len() == end.length)
}

/// Finds the last row, and cuts off what a crash left of another; says how many bytes that were.
fn find(folder: &Path) -> io::Result<(Option<End>, u64)> {
    let files = files::all(folder)?;
    let Some(newest) = files.last() else { return Ok((None, 0)) };
    let (length, torn) = mend(newest)?;
    let mut head = None;
    for path in files.iter().rev() {
        if let Some(line) = last_line(path)? {
            // A row that was made unreadable is still the one that the next one follows.
            head = Some(match Head::at(&line) {
                Some(head) => head,
                None => Head { rows: files::rows(folder)?.len() as u64, digest: Digest::of(&line) },
            });
            break;
        }
    }
    let head = head.unwrap_or_default();
    Ok((Some(End { path: newest.clone(), length, head }), torn))
}

/// Cuts off a row that is not whole: how long the file is then, and how much that was.
fn mend(path: &Path) -> io::Result<(u64, u64)> {
    let (from, tail) = tail(path)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (length, torn) = (from + whole as u64, (tail.len() - whole) as u64);
    if torn > 0 {
        OpenOptions::new().write(true).open(path)?.set_len(length)?;
    }
    Ok((length, torn))
}

/// The last whole line of a file.
fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (_, tail) = tail(path)?;
    let Some(whole) = tail.strip_suffix(b"\n") else { return Ok(None) };
    Ok(whole.rsplit(|byte| *byte == b'\n').next().map(<[u8]>::to_vec))
}

/// The end of a file, and where that begins.
fn tail(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(LONGEST_ROW);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(LONGEST_ROW).read_to_end(&mut tail)?;
    Ok((from, tail))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Problem, rows, verify_folder};

    const DAY: u64 = 24 * 60 * 60 * 1000;

    fn fact(n: u64) -> Fact {
        Fact::new(What::ExecStarted).count("n", n)
    }

    fn told(folder: &Path) -> Vec<(String, String)> {
        let row =
            |row: crate::Row| (row.place, format!("{} {}", row.said["seq"], row.said["what"].as_str().unwrap_or("?")));
        rows(folder).unwrap().into_iter().map(row).collect()
    }

    #[test]
    fn each_day_has_a_file_and_the_chain_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("audit");
        let mut pen = Pen::new(folder.clone());
        pen.write(&[(0, fact(1)), (1, fact(2))]).unwrap();
        pen.write(&[(DAY, fact(3))]).unwrap();
        // The clock went back.
        let head = pen.write(&[(5, fact(4))]).unwrap();
        let told = told(&folder);
        let places: Vec<_> = told.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "audit-19700101.jsonl line 1",
                "audit-19700101.jsonl line 2",
                "audit-19700102.jsonl line 1",
                "audit-19700102.jsonl line 2"
            ]
        );
        let report = verify_folder(&folder, Some(head)).unwrap();
        assert_eq!((report.rows, report.problems), (4, vec![]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("audit-19700101.jsonl"))), (0o700, 0o600));
    }

    #[test]
    fn processes_take_turns_and_go_on_where_the_other_was() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (Pen::new(folder.path().into()), Pen::new(folder.path().into()));
        for n in 0..5 {
            one.write(&[(n, fact(n))]).unwrap();
            other.write(&[(n, fact(n))]).unwrap();
        }
        let head = one.write(&[(9, fact(9))]).unwrap();
        let report = verify_folder(folder.path(), Some(head)).unwrap();
        assert_eq!((report.head, report.rows, report.problems), (head, 11, vec![]));
    }

    #[test]
    fn r89_a_row_that_a_crash_left_half_written_is_cut_off_and_told() {
        let folder = tempfile::tempdir().unwrap();
        Pen::new(folder.path().into()).write(&[(0, fact(1))]).unwrap();
        let file = folder.path().join("audit-19700101.jsonl");
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend(b"{\"seq\":2,\"at");
        fs::write(&file, bytes).unwrap();
        let head = Pen::new(folder.path().into()).write(&[(1, fact(2))]).unwrap();
        let told: Vec<_> = told(folder.path()).into_iter().map(|(_, row)| row).collect();
        assert_eq!(told, ["1 exec.started", "2 repair", "3 exec.started"]);
        assert_eq!(verify_folder(folder.path(), Some(head)).unwrap().problems, []);
    }

    #[test]
    fn what_was_changed_shows_also_after_more_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut pen = Pen::new(folder.path().into());
        pen.write(&[(0, fact(1)), (0, fact(2))]).unwrap();
        let file = folder.path().join("audit-19700101.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("\"n\":2", "\"n\":7", 1)).unwrap();
        let head = pen.write(&[(0, fact(3))]).unwrap();
        let place = "audit-19700101.jsonl line 3".to_owned();
        assert_eq!(verify_folder(folder.path(), Some(head)).unwrap().problems, [Problem::Changed { place, seq: 3 }]);
        fs::write(&file, "no row\n").unwrap();
        let head = pen.write(&[(0, fact(4))]).unwrap();
        let place = "audit-19700101.jsonl line 1".to_owned();
        assert_eq!(verify_folder(folder.path(), Some(head)).unwrap().problems, [Problem::NoRow { place }]);
    }
}
