//! The pages of docs/: every command block is run as a reader runs it, in an empty home, and every config is valid.

mod page;
mod setup;

use std::{collections::BTreeSet, fs, path::Path, process::Command, sync::Mutex, thread};

use self::{
    page::{What, folder, steps},
    setup::DocsFixture,
};
use crate::home::skip;

/// Number of pages tested concurrently.
const READERS: usize = 4;

/// Runs a page from beginning to end, and returns what does not work.
fn follow(page: &str) -> Vec<String> {
    let mut fixture = DocsFixture::new();
    let mut problems = Vec::new();
    for step in steps(page) {
        let done = match &step.what {
            What::Block(block) | What::First(block) => fixture.run(block),
            What::Parsed { block, .. } => fixture.parse(block),
            What::Skipped(_) => Ok(()),
            What::Gateway => fixture.gateway(),
            What::Config(config) => DocsFixture::validate(config),
        };
        problems.extend(done.err().map(|reason| format!("docs/{page}, line {}:\n{reason}", step.line)));
    }
    problems
}

/// Returns all pages, by their path from docs/.
fn pages() -> Vec<String> {
    let mut pages = vec!["../README.md".to_owned()];
    for (folder, prefix) in [(folder(), ""), (folder().join("channels"), "channels/")] {
        let names = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{prefix}{name}")));
    }
    pages.sort();
    pages
}

#[test]
fn every_page_works_as_written() {
    let pages = Mutex::new(pages());
    let next = || pages.lock().unwrap().pop();
    let problems: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut problems = Vec::new();
            while let Some(page) = next() {
                problems.extend(follow(&page));
            }
            problems
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Blocks that are not run, and why. All others are run.
const NOT_RUN: &[(&str, &str)] = &[
    ("../README.md", "it would run itself"),
    ("agents.md", "belongs to the agents above"),
    ("agents.md", "belongs to a Telegram bot"),
    ("approvals.md", "nothing waits for an approval"),
    ("benchmarks.md", "half an hour of work, and for developers"),
    ("channels/discord.md", "no pairing request is pending"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/hosted.md", "downloads the packages"),
    ("channels/telegram.md", "no pairing request is pending"),
    ("channels/telegram.md", "no pairing request is pending"),
    ("channels/telegram.md", "there is no bot"),
    ("chat.md", "the chat needs a terminal"),
    ("clients.md", "downloads OpenClaw and a browser"),
    ("clients.md", "downloads OpenClaw and a browser"),
    ("compaction.md", "there is no compaction"),
    ("configuration.md", "needs other files"),
    ("durability.md", "takes hours, and is for developers"),
    ("gateway.md", "needs another machine"),
    ("gateway.md", "downloads OpenClaw"),
    ("gateway.md", "no pairing request is pending"),
    ("gateway.md", "needs OpenClaw"),
    ("gateway.md", "needs OpenClaw"),
    ("getting-started.md", "asks questions"),
    ("getting-started.md", "needs a real key"),
    ("install.md", "takes long, and is for developers"),
    ("install.md", "changes the machine"),
    ("install.md", "changes the machine"),
    ("install.md", "changes the machine"),
    ("install.md", "starts a process in the background"),
    ("install.md", "needs a container runtime"),
    ("mcp.md", "downloads a server"),
    ("models.md", "needs a real key"),
    ("models.md", "needs a real model"),
    ("models.md", "needs an issuer"),
    ("models.md", "needs a server"),
    ("operations.md", "there are no checkpoints"),
    ("page.md", "needs a gateway"),
    ("page.md", "needs Node and a browser"),
    ("schedule.md", "job ids differ each time"),
    ("upgrade.md", "needs a new version"),
];

#[test]
fn skipped_blocks_are_listed() {
    let mut found = Vec::new();
    for page in pages() {
        for step in steps(&page) {
            match step.what {
                What::Skipped(reason) | What::Parsed { why: reason, .. } => found.push((page.clone(), reason)),
                What::Block(_) | What::First(_) | What::Gateway | What::Config(_) => {}
            }
        }
    }
    let found: Vec<(&str, &str)> = found.iter().map(|(page, reason)| (page.as_str(), reason.as_str())).collect();
    assert_eq!(found, NOT_RUN);
}

#[test]
fn links_between_pages_are_valid() {
    let mut broken = Vec::new();
    for page in pages() {
        let path = folder().join(&page);
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.is_empty() {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            if !target.exists() || !has_heading(&target, anchor) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

/// Returns true if a page has the heading that an anchor names, by GitHub's rules.
fn has_heading(page: &Path, anchor: &str) -> bool {
    let name = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let slug_chars = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        slug_chars.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    anchor.is_empty()
        || fs::read_to_string(page).unwrap().lines().any(|line| line.starts_with('#') && name(line) == anchor)
}

/// The first command of the README shows the files of a checkout.
#[test]
fn the_readme_lists_the_files_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tracked = Command::new("git").arg("-C").arg(&root).args(["ls-tree", "--name-only", "HEAD"]).output();
    let Some(tracked) = tracked.ok().filter(|output| output.status.success()) else {
        return skip("the listing in the README", "this is no checkout");
    };
    let mut expected = BTreeSet::from([".git/".to_owned(), "target/".to_owned()]);
    for name in String::from_utf8(tracked.stdout).unwrap().lines() {
        expected.insert(if root.join(name).is_dir() { format!("{name}/") } else { name.to_owned() });
    }
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let block = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let listed: BTreeSet<_> = block.lines().filter(|line| !line.starts_with('(')).map(str::to_owned).collect();
    assert_eq!(listed, expected);
    assert!(block.ends_with("homard setup)\n"), "{block}");
}

/// Returns the source of all crates, and the texts that a format string splits over lines, joined.
fn sources() -> String {
    fn collect(folder: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir()
                && !["tests", "target", "node_modules"].contains(&path.file_name().unwrap().to_str().unwrap())
            {
                collect(&path, text);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut text = String::new();
    collect(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut text);
    // A backslash at the end of a line joins it with the next one.
    let mut joined = String::new();
    for part in text.split("\\\n") {
        joined.push_str(if joined.is_empty() { part } else { part.trim_start() });
    }
    joined
}

#[test]
fn each_message_on_the_troubleshooting_page_exists() {
    let page = std::fs::read_to_string(page::folder().join("troubleshooting.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(message, _)| message);
    let (sources, messages) = (sources(), rows.collect::<Vec<_>>());
    assert!(messages.len() > 15, "{messages:?}");
    let missing: Vec<_> = messages.iter().filter(|message| !sources.contains(**message)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
