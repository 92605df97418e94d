//! Rules for the content of files.

use super::SourceFile;

/// Text that is banned in Rust files, and why. Written in two halves, so that this file does not contain it either.
const BANNED_IN_RUST: &[(&str, &str)] = &[
    (concat!("#[ig", "nore"), "assert today's behaviour with a FIXME, or delete the test"),
    (concat!("todo", "!("), "finish it, or return an error that says so"),
    (concat!("unimplem", "ented!("), "finish it, or return an error that says so"),
];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[concat!("/wor", "k/main"), concat!("/wor", "k/shared")];

/// Reports violations in a file.
pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let path = file.path.display();
    let mut problems = Vec::new();
    if file.is_rust() && !file.text.starts_with("//!") {
        problems.push(format!("{path}:1: no `//!` header; describe the file in a sentence"));
    }
    for (at, line) in file.text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        for (word, advice) in BANNED_IN_RUST.iter().filter(|(word, _)| file.is_rust() && line.contains(word)) {
            problems.push(format!("{path}:{at}: `{word}`; {advice}"));
        }
        for machine_path in MACHINE_PATHS.iter().filter(|machine_path| line.contains(**machine_path)) {
            problems.push(format!("{path}:{at}: names `{machine_path}`, which exists on one machine only"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile { path: path.into(), text: text.to_owned() })
    }

    #[test]
    fn a_rust_file_needs_a_header() {
        assert_eq!(problems_of("a.rs", "//! A file.\nfn a() {}\n"), Vec::<String>::new());
        assert_eq!(problems_of("a.rs", "fn a() {}\n"), ["a.rs:1: no `//!` header; describe the file in a sentence"]);
        assert_eq!(problems_of("a.md", "no header\n"), Vec::<String>::new());
    }

    #[test]
    fn banned_text_is_reported_with_its_line() {
        for (word, advice) in BANNED_IN_RUST {
            assert_eq!(problems_of("a.rs", &format!("//! A file.\n{word}")), [format!("a.rs:2: `{word}`; {advice}")]);
            assert_eq!(problems_of("a.md", &format!("\n{word}")), Vec::<String>::new());
        }
    }

    #[test]
    fn machine_paths_are_reported_in_any_file() {
        for path in MACHINE_PATHS {
            let complaint = format!("a.md:1: names `{path}`, which exists on one machine only");
            assert_eq!(problems_of("a.md", &format!("see {path}/x")), [complaint]);
        }
    }
}
