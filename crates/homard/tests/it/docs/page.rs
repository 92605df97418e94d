//! A page of docs/ as the test reads it: its command blocks, and the hidden comments about them.
//!
//! A comment on the lines before a block is for the test, and not shown to readers: `<!-- test: skip: WHY -->` skips
//! it, `<!-- test: parse: WHY -->` parses its commands without running them, `<!-- test: first`, shell lines, `-->`
//! runs preparations, and `<!-- test: gateway -->` starts a gateway.

use std::{fs, path::PathBuf};

/// Returns the directory of the pages.
pub(super) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))
}

/// A step of a page, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The line of the page.
    pub(super) line: usize,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// Commands that the reader runs.
    Block(String),
    /// Commands that are only parsed.
    Parsed { block: String, why: String },
    /// Commands that cannot be run here.
    Skipped(String),
    /// Commands that readers do not see.
    First(String),
    /// Starts a gateway that readers started elsewhere.
    Gateway,
    /// A config that is shown.
    Config(String),
}

/// Reads a page.
pub(super) fn steps(page: &str) -> Vec<Step> {
    let text = fs::read_to_string(folder().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    parse(&text)
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut directive: Option<String> = None;
    while let Some((at, line)) = lines.next() {
        let line_number = at + 1;
        let mut step = |what| steps.push(Step { line: line_number, what });
        if let Some(comment) = line.trim_start().strip_prefix("<!-- test: ") {
            match comment.strip_suffix(" -->") {
                Some("gateway") => step(What::Gateway),
                Some(comment) => directive = Some(comment.to_owned()),
                None if comment == "first" => {
                    let hidden: Vec<&str> =
                        lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "-->").collect();
                    step(What::First(hidden.join("\n")));
                }
                None => panic!("line {line_number}: a remark for the test that it does not know: {line}"),
            }
        } else if let Some(kind) = line.trim_start().strip_prefix("```") {
            let block: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```").collect();
            let block = block.join("\n");
            let directive = directive.take();
            let split = directive.as_deref().map(|directive| directive.split_once(": ").unwrap_or((directive, "")));
            match (kind, split) {
                ("sh", None) => step(What::Block(block)),
                ("sh", Some(("parse", reason))) if !reason.is_empty() => {
                    step(What::Parsed { block, why: reason.to_owned() })
                }
                ("sh" | "json5", Some(("skip", reason))) if !reason.is_empty() => {
                    step(What::Skipped(reason.to_owned()))
                }
                ("json5", None) => step(What::Config(block)),
                (_, None) => {}
                (_, Some(_)) => {
                    panic!("line {line_number}: a remark for the test that it does not know: {directive:?}")
                }
            }
        }
    }
    steps
}

#[test]
fn blocks_are_parsed_with_their_directives() {
    let page = "# T\n<!-- test: first\nmkdir a\ncd a\n-->\n```sh\nhomard a\nhomard b\n```\n```text\nx\n```\n\
                <!-- test: skip: needs a key -->\n```sh\nhomard c\n```\n<!-- test: gateway -->\n\
                <!-- test: parse: no such id -->\n```sh\nhomard d\n```\n```json5\n{}\n```\n";
    let found: Vec<(usize, What)> = parse(page).into_iter().map(|step| (step.line, step.what)).collect();
    assert_eq!(
        found,
        [
            (2, What::First("mkdir a\ncd a".to_owned())),
            (6, What::Block("homard a\nhomard b".to_owned())),
            (14, What::Skipped("needs a key".to_owned())),
            (17, What::Gateway),
            (19, What::Parsed { block: "homard d".to_owned(), why: "no such id".to_owned() }),
            (22, What::Config("{}".to_owned())),
        ]
    );
}
