//! Tests that every known config key has an effect.
//!
//! The keys are the fields of the sections. The tests here read the sources of the crates that interpret them:
//!
//! - Every field is read outside its definition: as `.field`, or by a pattern that names it.
//! - Only the fields in [`NOTES`] may stay unread: they are for people and for OpenClaw. They are private, so that no
//!   other crate can read them.
//! - No section derives a trait that reads all fields (`PartialEq`, `Hash`, `Serialize`).
//! - Every section has its row in the table of `effect.rs`.
//! - Every key is named by a test.
//!
//! Keys of OpenClaw that Homard does not know are warnings of `homard config validate` and at the start; that is tested
//! in `homard-config` (`known.rs`), and for a running gateway in `tests/it/parameters.rs`.
//!
//! Not covered: whether a field that is read has the documented effect, and fields that only a config check reads. That
//! is for the tests of the crates that interpret the config.

use std::{collections::BTreeSet, fs, path::Path};

use crate::effect::Effect;

/// Fields without an effect, by file: notes by the writer of the config, and fields used only while the file is read.
const NOTES: [(&str, &str); 15] = [
    ("auth.rs", "profiles"),
    ("internal_hooks.rs", "installed_at"),
    ("internal_hooks.rs", "source"),
    ("internal_hooks.rs", "source_path"),
    ("internal_hooks.rs", "spec"),
    ("internal_hooks.rs", "version"),
    ("mod.rs", "env"),
    ("mod.rs", "meta"),
    ("mod.rs", "wizard"),
    ("models.rs", "name"),
    ("plugins.rs", "install_path"),
    ("plugins.rs", "installed_at"),
    ("plugins.rs", "source"),
    ("plugins.rs", "spec"),
    ("plugins.rs", "version"),
];

/// Sections whose changes have no effect.
const WITHOUT_EFFECT: [&str; 2] = ["meta", "wizard"];

fn sections() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sections");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|file| (file.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(file).unwrap()))
        .collect()
}

#[test]
fn only_listed_fields_may_stay_unread() {
    let mut found = BTreeSet::new();
    for (file, text) in sections() {
        for (at, _) in text.match_indices("(dead_code") {
            let field =
                text[at..].lines().skip(1).find(|line| !line.trim().starts_with(['#', '/'])).unwrap_or_default();
            let name = field.trim().trim_start_matches("pub ").split(':').next().unwrap_or_default();
            found.insert((file.clone(), name.to_owned()));
        }
        assert!(!text.contains("(unused"), "{file} hides what is not read");
    }
    let notes = NOTES.iter();
    assert_eq!(found, notes.map(|(file, name)| ((*file).to_owned(), (*name).to_owned())).collect());
}

/// The crates that interpret the config.
const READERS: [&str; 11] = [
    "app",
    "channel-runtime",
    "client",
    "credentials",
    "doctor",
    "homard",
    "import",
    "logging",
    "render",
    "settings",
    "setup",
];

/// Text of all files of the crates that interpret the config, without comments.
fn code() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut code = String::new();
    let mut waiting: Vec<_> = READERS.iter().map(|name| crates.join(name).join("src")).collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.for_each(|line| code.extend([line, "\n"]));
        }
    }
    code
}

/// Returns true if the code reads a field: as `.field`, or by a pattern that names it.
fn is_read(code: &str, field: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(field).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + field.len()..]);
        if before.ends_with(is_word) || after.starts_with(is_word) {
            return false;
        }
        let is_access = before.ends_with('.') && !after.starts_with('(');
        let is_listed = before.trim_end().ends_with(['{', ',']) && after.trim_start().starts_with([',', '}', ':']);
        is_access || is_listed && !before.trim_end().ends_with("pub")
    })
}

#[test]
fn every_field_is_read_outside_its_definition() {
    let code = code();
    let unread = sections().into_iter().flat_map(|(file, text)| {
        let fields = text.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "));
        let fields = fields.filter(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<String> = fields.map(|(name, _)| name.to_owned()).collect();
        names.into_iter().map(move |name| (file.clone(), name))
    });
    let unread: BTreeSet<_> = unread
        .filter(|(file, name)| !NOTES.contains(&(file.as_str(), name.as_str())))
        .filter(|(_, name)| !is_read(&code, name))
        .collect();
    assert_eq!(unread, BTreeSet::new(), "these fields are in the schema, but nothing reads them");
}

#[test]
fn nothing_reads_all_fields_of_a_section() {
    for (file, text) in sections() {
        for (at, _) in text.match_indices("#[derive(") {
            let item_text = &text[at..];
            let derived = item_text.split(")]").next().unwrap_or_default();
            let item =
                item_text.lines().find(|line| line.contains("struct ") || line.contains("enum ")).unwrap_or_default();
            let is_section = derived.contains("Deserialize") && item.contains("struct ") && item.ends_with('{');
            let derive = ["PartialEq", "Hash", "Serialize,", "Ord"].into_iter().find(|name| derived.contains(name));
            assert!(!is_section || derive.is_none(), "{file}: {item} derives {derive:?}, which reads every field");
        }
    }
}

#[test]
fn a_change_of_every_section_has_an_effect() {
    let keys = include_str!("../data/config-keys.txt");
    let sections: BTreeSet<&str> = keys.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).collect();
    assert!(sections.len() > 15, "{sections:?}");
    for section in sections {
        let has_no_effect = WITHOUT_EFFECT.contains(&section);
        let path = format!("{section}.x");
        assert_eq!(
            Effect::of(&path) == Effect::None,
            has_no_effect,
            "{section} has no row in effect.rs, or needs none"
        );
    }
}

/// All words of the tests and traces of the workspace.
fn words_of_tests() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()];
    while let Some(path) = waiting.pop() {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.to_string_lossy();
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
        let text = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs" | "trace") if !name.ends_with("/unread.rs") => fs::read_to_string(&path).unwrap(),
            _ => continue,
        };
        let tests =
            if is_test { text.as_str() } else { text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests) };
        words.extend(tests.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c)).map(str::to_owned));
    }
    words
}

#[test]
fn every_key_is_named_by_a_test() {
    let words = words_of_tests();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = include_str!("../data/config-keys.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let mut untested = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        let (key, is_leaf) = (line.trim(), lines.get(at + 1).is_none_or(|next| depth(next) <= depth(line)));
        let snake = key.chars().flat_map(|c| {
            let separator = c.is_ascii_uppercase().then_some('_');
            separator.into_iter().chain([c.to_ascii_lowercase()])
        });
        let is_named = words.contains(key) || words.contains(&snake.collect::<String>());
        if is_leaf && !["", "*", "[]"].contains(&key) && !is_named {
            untested.insert(key);
        }
    }
    assert_eq!(untested, BTreeSet::new(), "a new key needs a test that names it");
}
