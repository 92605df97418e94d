//! Tests of the workspace files in a prompt.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
};

use homard_workspace::{AgentPersona, Audience, BootstrapLimits, BootstrapReader, PageBody, PromptPage};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::{is_plain_user, mkfifo, workspace};

const ALL: [(&str, &str); 6] = [
    ("AGENTS.md", "agents"),
    ("SOUL.md", "soul"),
    ("TOOLS.md", "tools"),
    ("IDENTITY.md", "identity"),
    ("USER.md", "user"),
    ("HEARTBEAT.md", "heartbeat"),
];

fn read(dir: &Path, audience: Audience, limits: BootstrapLimits) -> Vec<PromptPage> {
    BootstrapReader::default().pages(dir, audience, &limits)
}

/// Returns the pages of a workspace, by name.
fn bodies(dir: &Path, limits: BootstrapLimits) -> Vec<(&'static str, PageBody)> {
    let named = |page: PromptPage| match page.name {
        Cow::Borrowed(name) => (name, page.body),
        Cow::Owned(name) => panic!("{name} is not one of the files that a prompt has"),
    };
    read(dir, Audience::Main, limits).into_iter().map(named).collect()
}

/// Returns the page of a file, without limits.
fn page_of(dir: &Path, name: &str) -> Option<(PageBody, usize)> {
    let pages = read(dir, Audience::Main, BootstrapLimits::default());
    pages.into_iter().find(|page| page.name == name).map(|page| (page.body, page.chars))
}

fn whole(text: &str) -> PageBody {
    PageBody::Whole(text.to_owned())
}

fn read_error(error: Errno) -> String {
    format!("cannot be read: {}", io::Error::from(error))
}

fn unusable(why: &str) -> Option<(PageBody, usize)> {
    Some((PageBody::Unusable(why.to_owned()), 0))
}

#[test]
fn files_are_in_order_with_memory_last() {
    let more = [("memory.md", "small"), ("MEMORY.md", "large"), ("BOOTSTRAP.md", "begin"), ("NOTES.md", "no")];
    let dir = workspace(&[&more[..], &ALL[..]].concat());
    let expected: Vec<_> = [&ALL[..], &[("BOOTSTRAP.md", "begin"), ("MEMORY.md", "large"), ("memory.md", "small")]]
        .concat()
        .into_iter()
        .map(|(name, text)| PromptPage {
            name: name.into(),
            path: dir.path().join(name),
            body: whole(text),
            chars: text.len(),
        })
        .collect();
    assert_eq!(read(dir.path(), Audience::Main, BootstrapLimits::default()), expected);
}

#[test]
fn a_sub_agent_reads_only_agents_and_tools() {
    let dir = workspace(&[("AGENTS.md", "agents"), ("SOUL.md", "soul"), ("MEMORY.md", "memory")]);
    let page =
        |name: &'static str, body, chars| PromptPage { name: name.into(), path: dir.path().join(name), body, chars };
    let expected = [page("AGENTS.md", whole("agents"), 6), page("TOOLS.md", PageBody::Missing, 0)];
    assert_eq!(read(dir.path(), Audience::Subagent, BootstrapLimits::default()), expected);
}

// Case 99.
#[test]
fn only_standard_files_are_reported_missing() {
    let dir = workspace(&[("AGENTS.md", "agents")]);
    let missing =
        ["SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"].map(|name| (name, PageBody::Missing));
    let expected = [vec![("AGENTS.md", whole("agents"))], missing.to_vec()].concat();
    assert_eq!(bodies(dir.path(), BootstrapLimits::default()), expected);
    // A workspace that does not exist is like one without files.
    let missing_dir = bodies(&dir.path().join("nowhere"), BootstrapLimits::default());
    assert_eq!(missing_dir, ALL.map(|(name, _)| (name, PageBody::Missing)));
}

#[test]
fn trailing_whitespace_is_trimmed_and_blank_files_are_omitted() {
    let dir = workspace(&[
        ("AGENTS.md", "  agents \n\t\n"),
        ("SOUL.md", " \n\n"),
        ("TOOLS.md", ""),
        ("USER.md", "\u{feff}u"),
    ]);
    let expected = [
        ("AGENTS.md", whole("  agents")),
        ("IDENTITY.md", PageBody::Missing),
        ("USER.md", whole("u")),
        ("HEARTBEAT.md", PageBody::Missing),
    ];
    assert_eq!(bodies(dir.path(), BootstrapLimits::default()), expected);
}

// Case 98.
#[test]
fn a_long_file_is_truncated_in_the_middle() {
    for filler in ["x", "漢"] {
        let text = format!("{}{}{}", "a".repeat(14_000), filler.repeat(7_000), "z".repeat(4_000));
        let dir = workspace(&[("AGENTS.md", &format!("{text}\n"))]);
        let expected = format!(
            "{}\n\n[… the middle of AGENTS.md is left out: here are 14000 + 4000 of 25000 characters; read the file \
             for the rest …]\n\n{}",
            "a".repeat(14_000),
            "z".repeat(4_000)
        );
        assert_eq!(page_of(dir.path(), "AGENTS.md"), Some((PageBody::Cut(expected), 25_000)));
    }
}

#[test]
fn a_file_at_its_limit_is_whole() {
    let text = "ä".repeat(20_000);
    let dir = workspace(&[("AGENTS.md", &text)]);
    assert_eq!(page_of(dir.path(), "AGENTS.md"), Some((whole(&text), 20_000)));
}

#[test]
fn later_files_get_the_remaining_space() {
    let text = "x".repeat(1_000);
    let dir = workspace(&ALL.map(|(name, _)| (name, text.as_str())));
    fs::write(dir.path().join("HEARTBEAT.md"), "# short").unwrap();
    let limits = BootstrapLimits { per_file: 800, total: 1_000 };
    let cut = |name: &str, head: usize, tail: usize| {
        let notice = format!(
            "[… the middle of {name} is left out: here are {head} + {tail} of 1000 characters; read the file for the \
             rest …]"
        );
        PageBody::Cut(format!("{}\n\n{notice}\n\n{}", "x".repeat(head), "x".repeat(tail)))
    };
    let note = |name: &str| {
        let text = "is left out, earlier files used up the space: 1000 characters; read the file …]";
        PageBody::Cut(format!("[… {name} {text}"))
    };
    let expected = [
        // 720 of the 1000, then 252 of the remaining 280, then 28 are left.
        ("AGENTS.md", cut("AGENTS.md", 560, 160)),
        ("SOUL.md", cut("SOUL.md", 196, 56)),
        ("TOOLS.md", note("TOOLS.md")),
        ("IDENTITY.md", note("IDENTITY.md")),
        ("USER.md", note("USER.md")),
        ("HEARTBEAT.md", whole("# short")),
    ];
    assert_eq!(bodies(dir.path(), limits), expected);
}

#[test]
fn two_names_of_one_memory_file_give_one_page() {
    let symlinked = workspace(&[("MEMORY.md", "memory")]);
    symlink("MEMORY.md", symlinked.path().join("memory.md")).unwrap();
    let hard_linked = workspace(&[("MEMORY.md", "memory")]);
    fs::hard_link(hard_linked.path().join("MEMORY.md"), hard_linked.path().join("memory.md")).unwrap();
    for dir in [symlinked.path(), hard_linked.path()] {
        assert_eq!(page_of(dir, "MEMORY.md"), Some((whole("memory"), 6)));
        assert_eq!(page_of(dir, "memory.md"), None);
    }
}

#[test]
fn of_a_huge_file_only_the_ends_are_read() {
    const SIZE: u64 = 50 * 1024 * 1024;
    // The ends are a little longer than what may be read of them, and the part read starts within a character. Between
    // them is nothing but NUL: if it were read, the file would not be text. Trailing whitespace counts as read.
    for (blanks, tail_chars) in [("\n \n", 4_000), (" ".repeat(16_000).as_str(), 341)] {
        let dir = workspace(&[("AGENTS.md", &"ä".repeat(30_000))]);
        let tail = format!("{}{blanks}", "漢".repeat(6_000));
        let mut file = File::options().write(true).open(dir.path().join("AGENTS.md")).unwrap();
        file.seek(SeekFrom::Start(SIZE - tail.len() as u64)).unwrap();
        file.write_all(tail.as_bytes()).unwrap();
        let expected = format!(
            "{}\n\n[… the middle of AGENTS.md is left out: here are 14000 + {tail_chars} of about 52428800 characters; read \
             the file for the rest …]\n\n{}",
            "ä".repeat(14_000),
            "漢".repeat(tail_chars)
        );
        assert_eq!(page_of(dir.path(), "AGENTS.md"), Some((PageBody::Cut(expected), 52_428_800)));
    }
}

#[test]
fn a_path_that_is_not_a_text_file_is_reported() {
    let dir = workspace(&[("AGENTS.md", "a\0b")]);
    fs::create_dir(dir.path().join("SOUL.md")).unwrap();
    mkfifo(&dir.path().join("TOOLS.md"));
    let _socket = UnixListener::bind(dir.path().join("USER.md")).unwrap();
    let page = |name: &str| page_of(dir.path(), name);
    assert_eq!(page("AGENTS.md"), unusable("not text; save it as UTF-8 text"));
    assert_eq!(page("SOUL.md"), unusable("a directory, not a file; replace it with a text file"));
    assert_eq!(page("TOOLS.md"), unusable("a pipe, not a file; replace it with a text file"));
    assert_eq!(page("USER.md"), unusable("a socket, not a file; replace it with a text file"));
}

#[test]
fn a_symlink_may_not_lead_outside_the_workspace() {
    let (dir, other) = (workspace(&[]), workspace(&[("secret", "s")]));
    fs::create_dir(dir.path().join("docs")).unwrap();
    fs::write(dir.path().join("docs/a.md"), "inside").unwrap();
    let secret = other.path().canonicalize().unwrap().join("secret");
    symlink("docs/a.md", dir.path().join("AGENTS.md")).unwrap();
    symlink(dir.path().join("docs/a.md"), dir.path().join("SOUL.md")).unwrap();
    symlink(&secret, dir.path().join("TOOLS.md")).unwrap();
    symlink("/dev/zero", dir.path().join("IDENTITY.md")).unwrap();
    symlink("nothing", dir.path().join("USER.md")).unwrap();
    symlink("HEARTBEAT.md", dir.path().join("HEARTBEAT.md")).unwrap();
    symlink("docs", dir.path().join("BOOTSTRAP.md")).unwrap();
    symlink(".", dir.path().join("MEMORY.md")).unwrap();
    let outside =
        |path: &str| unusable(&format!("symbolic link to {path}, outside the workspace; replace it with a copy"));
    let folder = "a directory, not a file; replace it with a text file";
    let page = |name: &str| page_of(dir.path(), name);
    assert_eq!(page("AGENTS.md"), Some((whole("inside"), 6)));
    assert_eq!(page("SOUL.md"), Some((whole("inside"), 6)));
    assert_eq!(page("TOOLS.md"), outside(secret.to_str().unwrap()));
    assert_eq!(page("IDENTITY.md"), outside("/dev/zero"));
    assert_eq!(page("USER.md"), unusable("broken symbolic link; remove it or replace it with a file"));
    assert_eq!(page("HEARTBEAT.md"), unusable(&read_error(Errno::LOOP)));
    assert_eq!(page("BOOTSTRAP.md"), unusable(folder));
    assert_eq!(page("MEMORY.md"), unusable(folder));
}

#[test]
fn a_workspace_may_be_a_symlink() {
    let (dir, other) = (workspace(&ALL), workspace(&[]));
    let link = other.path().join("workspace");
    symlink(dir.path(), &link).unwrap();
    assert_eq!(bodies(&link, BootstrapLimits::default()), ALL.map(|(name, text)| (name, whole(text))));
}

#[test]
fn a_workspace_that_is_a_file_is_reported_on_each_page() {
    let dir = workspace(&[("file", "text")]);
    let expected = PageBody::Unusable(read_error(Errno::NOTDIR));
    let pages = bodies(&dir.path().join("file"), BootstrapLimits::default());
    assert!(pages.len() >= 6 && pages.iter().all(|(_, body)| *body == expected), "{pages:?}");
}

#[test]
fn invalid_utf8_is_replaced() {
    let dir = workspace(&[]);
    fs::write(dir.path().join("AGENTS.md"), b"caf\xe9 \xf0\x9f\xa6\x9e").unwrap();
    assert_eq!(page_of(dir.path(), "AGENTS.md"), Some((whole("caf\u{fffd} 🦞"), 6)));
}

#[test]
fn an_unreadable_file_is_reported_even_if_it_is_cached() {
    if !is_plain_user("bootstrap::an_unreadable_file_is_reported_even_if_it_is_cached") {
        return;
    }
    let dir = workspace(&ALL);
    let reader = BootstrapReader::default();
    let agents = || reader.pages(dir.path(), Audience::Subagent, &BootstrapLimits::default()).remove(0).body;
    assert_eq!(agents(), whole("agents"));
    fs::set_permissions(dir.path().join("AGENTS.md"), fs::Permissions::from_mode(0o000)).unwrap();
    let why = "permission denied; give the user that Homard runs as read permission";
    assert_eq!(agents(), PageBody::Unusable(why.to_owned()));
}

#[test]
fn a_changed_file_is_read_again() {
    let dir = workspace(&[("AGENTS.md", "one")]);
    let reader = BootstrapReader::default();
    let agents = |limits: &BootstrapLimits| reader.pages(dir.path(), Audience::Subagent, limits).remove(0).body;
    assert_eq!(agents(&BootstrapLimits::default()), whole("one"));
    fs::write(dir.path().join("AGENTS.md"), "another").unwrap();
    assert_eq!(agents(&BootstrapLimits::default()), whole("another"));
    // Replaced as editors do it, with the same length and time.
    let time = fs::metadata(dir.path().join("AGENTS.md")).unwrap().modified().unwrap();
    fs::write(dir.path().join("new"), "changed").unwrap();
    File::options().write(true).open(dir.path().join("new")).unwrap().set_modified(time).unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("AGENTS.md")).unwrap();
    assert_eq!(agents(&BootstrapLimits::default()), whole("changed"));
    // Other limits bypass the cache.
    assert!(matches!(agents(&BootstrapLimits { per_file: 5, total: 60_000 }), PageBody::Cut(_)));
    assert_eq!(agents(&BootstrapLimits::default()), whole("changed"));
    fs::remove_file(dir.path().join("AGENTS.md")).unwrap();
    assert_eq!(agents(&BootstrapLimits::default()), PageBody::Missing);
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    if !is_plain_user("bootstrap::an_unchanged_file_is_not_read_again") {
        return;
    }
    let dir = workspace(&[("AGENTS.md", "one")]);
    let reader = BootstrapReader::default();
    let agents = |reader: &BootstrapReader| {
        reader.pages(dir.path(), Audience::Subagent, &BootstrapLimits::default()).remove(0).body
    };
    assert_eq!(agents(&reader), whole("one"));
    // Files of such a folder can be examined, but not opened through it.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o300)).unwrap();
    let (cached, uncached) = (agents(&reader), agents(&BootstrapReader::default()));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((cached, matches!(uncached, PageBody::Unusable(_))), (whole("one"), true));
}

#[test]
fn more_workspaces_than_the_cache_holds_can_be_read() {
    let dir = workspace(&[]);
    let reader = BootstrapReader::default();
    for number in 0..300 {
        let agent_dir = dir.path().join(number.to_string());
        fs::create_dir(&agent_dir).unwrap();
        fs::write(agent_dir.join("AGENTS.md"), format!("agent {number}")).unwrap();
        let page = reader.pages(&agent_dir, Audience::Subagent, &BootstrapLimits::default()).remove(0);
        assert_eq!(page.body, whole(&format!("agent {number}")));
    }
}

#[test]
fn an_identity_is_found_in_the_pages() {
    let dir = workspace(&[("IDENTITY.md", "- **Name:** Ada\n- **Emoji:** 🦞\n")]);
    let identity = AgentPersona::of(&read(dir.path(), Audience::Main, BootstrapLimits::default()));
    let expected =
        AgentPersona { name: Some("Ada".to_owned()), emoji: Some("🦞".to_owned()), ..AgentPersona::default() };
    assert_eq!(identity, expected);
    assert_eq!(
        AgentPersona::of(&read(dir.path(), Audience::Subagent, BootstrapLimits::default())),
        AgentPersona::default()
    );
}

/// Returns how many characters of a file a body shows, without truncation notes.
fn shown_chars(body: &PageBody) -> usize {
    let without_mark = |text: &str| match (text.find("\n\n[… "), text.find(" …]\n\n")) {
        (Some(start), Some(end)) => text[..start].chars().count() + text[end + " …]\n\n".len()..].chars().count(),
        _ => 0,
    };
    match body {
        PageBody::Whole(text) => text.chars().count(),
        PageBody::Cut(text) => without_mark(text),
        PageBody::Missing | PageBody::Unusable(_) => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_read_within_the_limits(
        files in proptest::collection::vec(proptest::collection::vec(prop_oneof![4 => 1_u8.., 1 => Just(b'a')], 0..900), 6),
        per_file in 0_usize..700,
        total in 0_usize..1_500,
    ) {
        let dir = workspace(&[]);
        for ((name, _), bytes) in ALL.iter().zip(&files) {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let pages = read(dir.path(), Audience::Main, BootstrapLimits { per_file, total });
        let sizes: Vec<_> = pages.iter().map(|page| shown_chars(&page.body)).collect();
        prop_assert!(sizes.iter().all(|size| *size <= per_file), "{:?}", sizes);
        prop_assert!(sizes.iter().sum::<usize>() <= total, "{:?}", sizes);
    }
}
