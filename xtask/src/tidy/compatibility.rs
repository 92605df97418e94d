//! Checks the table of `docs/compatibility.md`: every row must name the tests that cover it, and they must exist.

use std::{fs, path::Path};

use anyhow::{Context, Result};

const PAGE: &str = "docs/compatibility.md";

/// Number of rows of the table.
const ROWS: usize = 26;

/// Reports missing rows, rows without a test, and tests that do not exist.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    Ok(problems(&text, |name| exists(root, name)))
}

fn problems(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut count = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        count += 1;
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, _, tests, differences] = cells.as_slice() else {
            problems.push(format!("{PAGE}: row {count} does not have four cells"));
            continue;
        };
        if *number != count.to_string() || differences.is_empty() {
            problems.push(format!("{PAGE}: row {count} has a wrong number or no text about differences"));
        }
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).filter(|name| name.contains('/')).collect();
        if names.is_empty() {
            problems.push(format!("{PAGE}: row {count} names no test"));
        }
        let missing = names.into_iter().filter(|name| !exists(name));
        problems.extend(missing.map(|name| format!("{PAGE}: row {count} names {name}, which does not exist")));
    }
    if count != ROWS {
        problems.push(format!("{PAGE} has {count} rows instead of {ROWS}"));
    }
    problems
}

/// Returns true if a file or a trace exists; `*` at the end matches any ending.
fn exists(root: &Path, name: &str) -> bool {
    if name.starts_with("crates/") {
        return root.join(name).is_file();
    }
    let traces = root.join("crates/testkit/tests/traces");
    let Some(start) = name.strip_suffix('*') else { return traces.join(format!("{name}.trace")).is_file() };
    let Some((folder, start)) = start.split_once('/') else { return false };
    let listing = fs::read_dir(traces.join(folder)).into_iter().flatten().flatten();
    listing.map(|item| item.file_name()).any(|file| file.to_str().is_some_and(|file| file.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_needs_a_number_an_existing_test_and_differences() {
        let row =
            |number: usize, tests: &str, differences: &str| format!("| {number} | x | {tests} | {differences} |\n");
        let good: String = (1..=ROWS).map(|number| row(number, "`a/b`, `crates/c`", "none")).collect();
        assert_eq!(problems(&good, |_| true), Vec::<String>::new());
        assert_eq!(problems(&good, |name| name != "a/b").len(), ROWS);
        let wrong = good.replacen(&row(2, "`a/b`, `crates/c`", "none"), &row(3, "all", ""), 1);
        assert_eq!(problems(&wrong, |_| true).len(), 2);
        assert_eq!(problems("", |_| true), [format!("{PAGE} has 0 rows instead of 26")]);
    }
}
