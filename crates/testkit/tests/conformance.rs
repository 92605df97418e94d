//! Checks `conformance.md`, which says where every case of the specification is tested: that it names each once, and
//! that the tests that it names exist and mention the case.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{fs, path::Path};

/// A row of the table in `conformance.md`.
struct ConformanceRow<'a> {
    /// For example `case 74`, `pitfall 32`, `R1` or `A13`.
    name: &'a str,
    /// For example `store/src/ledger.rs::a_test` or `testkit/tests/traces/turn/plain_answer.trace`, below `crates/`, or
    /// `xtask/src/bench/acks.rs::measure`, below the repository.
    tests: Vec<&'a str>,
    remark: &'a str,
}

fn row(line: &str) -> Option<ConformanceRow<'_>> {
    let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let &[name, tests, remark, ""] = &cells[..] else { return None };
    let tests = tests.split('`').skip(1).step_by(2).collect();
    name.ends_with(|last: char| last.is_ascii_digit()).then_some(ConformanceRow { name, tests, remark })
}

fn rows() -> impl Iterator<Item = ConformanceRow<'static>> {
    include_str!("conformance.md").lines().filter_map(row)
}

/// How the names of a list begin, and how many entries the list has in the specification: all of them have a row.
const LISTS: [(&str, u32); 4] = [("case ", 225), ("pitfall ", 110), ("R", 101), ("A", 32)];

/// Returns the names that the table must have, in order.
fn expected_names() -> Vec<String> {
    LISTS.iter().flat_map(|(prefix, count)| (1..=*count).map(move |number| format!("{prefix}{number}"))).collect()
}

/// Returns what is wrong with a test listed for a case.
fn complaint(about: &str, test: &str) -> Option<String> {
    let (path, function) = test.split_once("::").unwrap_or((test, ""));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let parent = if path.starts_with("xtask/") { crates.parent().unwrap() } else { crates };
    let Ok(text) = fs::read_to_string(parent.join(path)) else { return Some(format!("{about}: there is no {path}")) };
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let descriptions = if path.ends_with(".trace") {
        lines.into_iter().filter(|line| line.starts_with('#')).collect()
    } else {
        let signature = format!("fn {function}(");
        let Some(at) = lines.iter().position(|line| line.contains(&signature)) else {
            return Some(format!("{about}: there is no {test}"));
        };
        let header = lines.iter().take_while(|line| line.starts_with("//!"));
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("//") || line.starts_with("#["));
        header.chain(above).copied().chain([function]).collect::<Vec<_>>()
    };
    (!descriptions.iter().any(|text| is_named(about, text)))
        .then(|| format!("{test} does not say that it is about {about}"))
}

/// Returns whether a remark is a reason for having no test: one is planned, a decision replaced the case, or the tests of
/// other rows cover it.
fn is_reason(remark: &str, tested: &[&str]) -> bool {
    let is_deferred = ["later: ", "superseded by "].iter().any(|prefix| remark.starts_with(prefix));
    let covering = remark.strip_prefix("covered by ").map(|names| names.replace(" and ", ", "));
    is_deferred || covering.is_some_and(|names| names.split(", ").all(|name| tested.contains(&name)))
}

/// True if a text contains the name as whole words, or in a list: `cases 7 and 8`; `_` separates words, too.
fn is_named(name: &str, text: &str) -> bool {
    let (name, text) = (name.to_lowercase(), text.to_lowercase().replace('_', " "));
    let mut positions = text.match_indices(&name).map(|(at, _)| (at, at + name.len()));
    let is_whole_word = positions.any(|(from, to)| {
        let (before, after) = (text[..from].chars().next_back(), text[to..].chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    });
    is_whole_word || name.split_once(' ').is_some_and(|(kind, number)| is_listed(kind, number, &text))
}

/// True if a number is in a list such as `cases 7, 8 and 9`.
fn is_listed(kind: &str, number: &str, text: &str) -> bool {
    let prefix = format!("{kind}s ");
    text.split(&prefix).skip(1).any(|list| {
        let words = list.split_whitespace().map(|word| word.trim_end_matches([',', '.', ':']));
        let mut words = words.take_while(|word| *word == "and" || word.chars().all(|c| c.is_ascii_digit()));
        words.any(|word| word == number)
    })
}

#[test]
fn every_case_is_in_the_table_once() {
    assert_eq!(rows().map(|row| row.name.to_owned()).collect::<Vec<_>>(), expected_names());
}

#[test]
fn every_listed_test_exists_and_names_its_case() {
    let mut problems = Vec::new();
    let tested: Vec<_> = rows().filter(|row| !row.tests.is_empty()).map(|row| row.name).collect();
    for ConformanceRow { name, tests, remark } in rows() {
        problems.extend(tests.iter().filter_map(|test| complaint(name, test)));
        if tests.is_empty() && !is_reason(remark, &tested) {
            problems.push(format!("{name} has neither a test nor a reason why not"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_row_without_a_test_has_a_reason() {
    let reasons = ["later: there is no proxy", "superseded by D12", "covered by R1", "covered by R1, R2 and R3"];
    assert!(reasons.iter().all(|remark| is_reason(remark, &["R1", "R2", "R3"])));
    assert!(["", "done elsewhere", "covered by R1 and R4"].iter().all(|remark| !is_reason(remark, &["R1"])));
}

#[test]
fn a_name_matches_whole_words_only() {
    assert!(is_named("case 7", "// Case 7, D9.") && is_named("case 74", "case_74_a_day") && is_named("R1", "r1_a_run"));
    assert!(is_named("case 7", "Cases 6, 7 and 8: x") && is_named("case 8", "Cases 6, 7 and 8: x"));
    assert!(!is_named("case 8", "cases 6 and 7 of 8") && !is_named("pitfall 7", "cases 6 and 7"));
    assert!(!is_named("case 7", "case 74") && !is_named("R1", "R10") && !is_named("R1", "for1"));
}
