//! Tests that notes are found, whatever happens to the index.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    cell::RefCell,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use homard_memory::{Memory, MemoryHit, MemoryQuery, MemorySource};

/// Texts by name.
type Texts<'a> = &'a [(&'a str, &'a str)];

/// Runs a query, and returns which texts were read for it.
fn query(memory: &mut Memory, texts: Texts<'_>, terms: &str) -> (Vec<MemoryHit>, Vec<String>) {
    let sources: Vec<MemorySource> = texts
        .iter()
        .map(|(path, text)| MemorySource { path: (*path).to_owned(), version: format!("{}{text:.9}", text.len()) })
        .collect();
    let read_paths = RefCell::new(Vec::new());
    let read = |path: &str| {
        read_paths.borrow_mut().push(path.to_owned());
        texts.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    };
    let query = MemoryQuery { text: terms.to_owned(), max_results: 6, min_score: 0.0 };
    (memory.search(&sources, read, &query).unwrap(), read_paths.into_inner())
}

fn paths(memory: &mut Memory, texts: Texts<'_>, terms: &str) -> Vec<String> {
    query(memory, texts, terms).0.into_iter().map(|hit| hit.path).collect()
}

const TEXTS: Texts<'_> = &[
    ("MEMORY.md", "# Facts\nThe staging database runs on port 5433.\n"),
    ("memory/a.md", "Deployed the gateway. Ça marche, sagte Jürgen.\n"),
    ("memory/b.md", "東京で友達に会った。서울에서 만났다.\nThe cat sat.\n"),
];

#[test]
fn a_hit_has_its_path_and_lines() {
    let hit = MemoryHit {
        path: "MEMORY.md".to_owned(),
        start: 1,
        end: 2,
        score: 1.0,
        snippet: "# Facts\nThe staging database runs on port 5433.".to_owned(),
    };
    assert_eq!(query(&mut Memory::in_ram(), TEXTS, "STAGING port").0, [hit]);
}

#[test]
fn words_are_found_in_other_forms_and_scripts() {
    let mut memory = Memory::in_ram();
    for (terms, expected) in [
        ("deploys", "memory/a.md"),
        ("jurgen", "memory/a.md"),
        ("ca", "memory/a.md"),
        ("東京", "memory/b.md"),
        ("友", "memory/b.md"),
        ("東京で会った友達は誰", "memory/b.md"),
        ("서울", "memory/b.md"),
        ("5433", "MEMORY.md"),
    ] {
        assert_eq!(paths(&mut memory, TEXTS, terms), [expected], "{terms}");
    }
    assert_eq!(paths(&mut memory, TEXTS, "京東"), Vec::<String>::new());
}

#[test]
fn hits_with_more_matching_words_come_first() {
    let mut memory = Memory::in_ram();
    assert_eq!(paths(&mut memory, TEXTS, "the cat"), ["memory/b.md", "memory/a.md", "MEMORY.md"]);
    let scores: Vec<bool> =
        query(&mut memory, TEXTS, "the cat unicorn").0.iter().map(|hit| 0.0 < hit.score && hit.score < 1.0).collect();
    assert_eq!(scores, [true, true, true]);
}

#[test]
fn operators_and_quotes_are_only_words() {
    let mut memory = Memory::in_ram();
    for terms in
        ["\"", "cat\" OR \"x", "text:cat", "cat*", "NOT cat", "NEAR(cat sat)", "^cat", "", "-", "'; DROP TABLE chunk"]
    {
        let found = paths(&mut memory, TEXTS, terms);
        let expected: &[&str] = if terms.contains("cat") { &["memory/b.md"] } else { &[] };
        assert_eq!(found, expected, "{terms}");
    }
}

#[test]
fn only_changed_texts_are_read_again() {
    let mut memory = Memory::in_ram();
    assert_eq!(query(&mut memory, TEXTS, "cat").1.len(), 3);
    assert_eq!(query(&mut memory, TEXTS, "cat").1, Vec::<String>::new());
    let changed = &[TEXTS[0], ("memory/b.md", "The dog sat.\n")];
    assert_eq!(query(&mut memory, changed, "dog").1, ["memory/b.md"]);
    assert_eq!(paths(&mut memory, changed, "gateway cat"), Vec::<String>::new());
    assert_eq!(paths(&mut memory, changed, "dog"), ["memory/b.md"]);
}

fn file(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("memory/main.homard.sqlite")
}

#[test]
fn an_index_on_disk_is_reused_and_private() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(query(&mut Memory::on_disk(file(&folder)), TEXTS, "cat").1.len(), 3);
    let (found, read) = query(&mut Memory::on_disk(file(&folder)), TEXTS, "cat");
    assert_eq!((found.len(), read), (1, Vec::new()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file(&folder)), mode(file(&folder).parent().unwrap())), (0o600, 0o700));
}

#[test]
fn a_broken_index_is_rebuilt() {
    for damage in
        [&b"this is no database, but it is long enough to look like one to a careless reader of files"[..], b""]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, damage.repeat(100)).unwrap();
        assert_eq!(paths(&mut Memory::on_disk(path.clone()), TEXTS, "cat"), ["memory/b.md"]);
        assert_eq!(query(&mut Memory::on_disk(path), TEXTS, "cat").1, Vec::<String>::new(), "it is kept");
    }
}

#[test]
fn an_index_of_another_version_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    fs::create_dir(path.parent().unwrap()).unwrap();
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
    assert_eq!(paths(&mut Memory::on_disk(path), TEXTS, "cat"), ["memory/b.md"]);
}

#[test]
fn an_index_damaged_or_removed_while_open_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    let mut memory = Memory::on_disk(path.clone());
    assert_eq!(paths(&mut memory, TEXTS, "cat"), ["memory/b.md"]);
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE chunk").unwrap();
    assert_eq!(paths(&mut memory, TEXTS, "cat"), ["memory/b.md"]);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert_eq!(paths(&mut memory, TEXTS, "cat"), ["memory/b.md"]);
    assert!(path.exists());
}

#[test]
fn an_index_that_cannot_be_stored_is_kept_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("memory"), "a file where the folder should be").unwrap();
    assert_eq!(paths(&mut Memory::on_disk(file(&folder)), TEXTS, "cat"), ["memory/b.md"]);
}

#[test]
fn an_unreadable_text_is_retried() {
    let mut memory = Memory::in_ram();
    let sources = [MemorySource { path: "a.md".to_owned(), version: "1".to_owned() }];
    let query = MemoryQuery { text: "cat".to_owned(), max_results: 6, min_score: 0.0 };
    assert_eq!(memory.search(&sources, |_| None, &query).unwrap(), []);
    assert_eq!(memory.search(&sources, |_| Some("a cat".to_owned()), &query).unwrap().len(), 1);
}
