//! Full-text index: passages in a SQLite database, and their words in an FTS5 table.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, params};

use crate::{
    Error, MemoryHit, MemoryQuery, MemorySource,
    chunk::passages,
    excerpt::excerpt,
    words::{phrase, separate_cjk, words},
};

/// Schema version; another one causes the index to be rebuilt.
const VERSION: i64 = 1;

/// Tables of the index: the indexed texts, their passages, and the full-text index of the words of each passage.
///
/// `porter` finds "deploy" in "deployed"; without it only exact words would match. The FTS table is contentless, and
/// the passages are stored beside it, because CJK characters are indexed with spaces between them.
const TABLES: &str = "
    CREATE TABLE source(path TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE chunk(id INTEGER PRIMARY KEY, path TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        text TEXT NOT NULL);
    CREATE INDEX chunk_path ON chunk(path);
    CREATE VIRTUAL TABLE word USING fts5(text, content='', contentless_delete=1,
        tokenize='porter unicode61 remove_diacritics 2');
";

/// Timeout for a lock held by another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// An open index.
#[derive(Debug)]
pub(crate) struct MemoryIndex {
    db: Connection,
    /// Its file, with the device and inode number at opening.
    file: Option<(PathBuf, (u64, u64))>,
}

/// How well a passage matches a query.
#[derive(Default)]
struct PassageMatch {
    /// Sum of the weights of the matching words.
    weight: f64,
    /// Sum of the FTS ranks; lower is better.
    rank: f64,
}

impl MemoryIndex {
    /// Opens the index in a file or in memory; creates it if it does not exist.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let db = match path {
            None => Connection::open_in_memory()?,
            Some(path) => {
                create_file(path)?;
                let db = Connection::open(path)?;
                db.busy_timeout(BUSY_TIMEOUT)?;
                db.pragma_update(None, "journal_mode", "WAL")?;
                db.pragma_update(None, "synchronous", "NORMAL")?;
                db
            }
        };
        let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version == 0 {
            db.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
        } else if version != VERSION {
            return Err(Error::Format(version));
        }
        let file = path.and_then(|path| Some((path.to_owned(), identity(path)?)));
        Ok(Self { db, file })
    }

    /// True if its file was removed or replaced.
    pub(crate) fn is_replaced(&self) -> bool {
        self.file.as_ref().is_some_and(|(path, opened)| identity(path) != Some(*opened))
    }

    /// Updates the index: adds new sources, replaces changed ones and deletes those that are not in `sources`.
    pub(crate) fn refresh(
        &mut self,
        sources: &[MemorySource],
        read: &mut impl FnMut(&str) -> Option<String>,
    ) -> Result<(), Error> {
        // All indexed sources; those that still exist are removed from the map, so the deleted ones remain.
        let mut deleted = self.known()?;
        let changed: Vec<&MemorySource> =
            sources.iter().filter(|source| deleted.remove(&source.path).as_ref() != Some(&source.version)).collect();
        if changed.is_empty() && deleted.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction()?;
        for path in deleted.keys().chain(changed.iter().map(|source| &source.path)) {
            tx.execute("DELETE FROM word WHERE rowid IN (SELECT id FROM chunk WHERE path = ?1)", [path])?;
            tx.execute("DELETE FROM chunk WHERE path = ?1", [path])?;
            tx.execute("DELETE FROM source WHERE path = ?1", [path])?;
        }
        for source in changed {
            let Some(text) = read(&source.path) else { continue };
            tx.execute("INSERT INTO source VALUES (?1, ?2)", [&source.path, &source.version])?;
            for chunk in passages(&text) {
                let row = params![source.path, chunk.start as i64, chunk.end as i64, chunk.text];
                tx.execute("INSERT INTO chunk(path, first, last, text) VALUES (?1, ?2, ?3, ?4)", row)?;
                let row = params![tx.last_insert_rowid(), separate_cjk(chunk.text)];
                tx.execute("INSERT INTO word(rowid, text) VALUES (?1, ?2)", row)?;
            }
        }
        Ok(tx.commit()?)
    }

    fn known(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut all = self.db.prepare("SELECT path, mark FROM source")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the matching passages, best first.
    pub(crate) fn search(&self, query: &MemoryQuery) -> Result<Vec<MemoryHit>, Error> {
        let words = words(&query.text);
        let passage_count: i64 = self.db.query_row("SELECT count(*) FROM chunk", [], |row| row.get(0))?;
        let mut total_weight = 0.0;
        let mut matches: HashMap<i64, PassageMatch> = HashMap::new();
        for word in &words {
            let found = self.ranks(word)?;
            // Inverse document frequency: a rare word weighs more. One without matches weighs most, which lowers every
            // score.
            let weight = (1.0 + passage_count as f64 / (found.len() as f64).max(0.5)).ln();
            total_weight += weight;
            for (id, rank) in found {
                let passage_match = matches.entry(id).or_default();
                passage_match.weight += weight;
                passage_match.rank += rank;
            }
        }
        let score =
            |passage_match: &PassageMatch| if total_weight > 0.0 { passage_match.weight / total_weight } else { 0.0 };
        let mut matches: Vec<(i64, PassageMatch)> =
            matches.into_iter().filter(|(_, passage_match)| score(passage_match) >= query.min_score).collect();
        matches.sort_by(|(id_a, a), (id_b, b)| {
            b.weight.total_cmp(&a.weight).then(a.rank.total_cmp(&b.rank)).then(id_a.cmp(id_b))
        });
        matches.truncate(query.max_results);
        matches.iter().map(|(id, passage_match)| self.hit(*id, score(passage_match), &words)).collect()
    }

    fn ranks(&self, word: &str) -> Result<Vec<(i64, f64)>, Error> {
        let mut all = self.db.prepare("SELECT rowid, bm25(word) FROM word WHERE word MATCH ?1")?;
        let rows = all.query_map([phrase(word)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn hit(&self, id: i64, score: f64, words: &[String]) -> Result<MemoryHit, Error> {
        let hit = self.db.query_row("SELECT path, first, last, text FROM chunk WHERE id = ?1", [id], |row| {
            let text: String = row.get(3)?;
            Ok(MemoryHit {
                path: row.get(0)?,
                start: row.get::<_, i64>(1)?.unsigned_abs(),
                end: row.get::<_, i64>(2)?.unsigned_abs(),
                score,
                snippet: excerpt(&text, words),
            })
        })?;
        Ok(hit)
    }
}

/// Creates the file, readable by its owner only; SQLite gives its other files the same permissions.
fn create_file(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok(())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
