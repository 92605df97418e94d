//! Fuzz tests of what commands, repositories and other processes can write. `cargo xtask fuzz` runs them for longer.
//!
//! Nothing may panic, and what is accepted must also be accepted by a second, deliberately simple parser.

use std::path::Path;

use homard_stdx::fuzz::{mutated_text, seeds};

use crate::{
    enter::Confinement,
    protected::{ChangeKind, needs_approval},
    relative_sockets::relative,
    repository::is_plain,
};

/// Number of mutated inputs, unless `FUZZ_ROUNDS` overrides it.
const ROUNDS: u64 = 20_000;

/// Settings by which git runs programs, or finds other settings.
const PROGRAMS: [&str; 16] = [
    "fsmonitor",
    "hookspath",
    "sshcommand",
    "pager",
    "editor",
    "helper",
    "command",
    "textconv",
    "clean",
    "smudge",
    "process",
    "driver",
    "uploadpack",
    "vcs",
    "update",
    "path",
];

#[test]
fn fuzz_git_config() {
    let inputs = [
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
        "[user]\n\tname = A B\n[remote \"origin\"]\n\turl = https://example.com/a.git\n[branch \"a/b\"]\n\tmerge = x\n",
        "[core]\n\tfsmonitor = ./evil\n[include]\n\tpath = evil\n",
        "[filter \"a\"]\n\tclean = evil\n[submodule \"a\"]\n\tupdate = !evil\n",
    ];
    let fragments = [
        "[",
        "]",
        "\"",
        "=",
        "\\\n",
        "\n",
        "\r",
        " ",
        "fsmonitor",
        "hooksPath = x",
        "[core] ",
        "include",
        ";",
        "#",
        "!",
    ];
    for seed in seeds(ROUNDS) {
        let text = mutated_text(seed, &inputs, &fragments);
        if !is_plain(&text) {
            continue;
        }
        for line in text.lines().map(|line| line.trim().to_ascii_lowercase()) {
            assert!(!line.ends_with('\\'), "seed {seed}: {text}");
            let after_header = line.rsplit(']').next().unwrap_or_default();
            let key = after_header.split('=').next().unwrap_or_default().trim();
            assert!(!PROGRAMS.contains(&key), "seed {seed}: {text}");
            let section = line.strip_prefix('[').unwrap_or_default();
            assert!(
                !["include", "alias", "filter"].iter().any(|name| section.starts_with(name)),
                "seed {seed}: {text}"
            );
        }
    }
}

#[test]
fn fuzz_socket_table() {
    let inputs = [
        "0000000000000000: 00000002 00000000 00010000 0001 01 25427 rel.sock",
        "0000000000000000: 00000002 00000000 00010000 0001 01   427 run/a b.sock",
        "0000000000000000: 00000002 00000000 00010000 0001 01 25427 /run/a.sock",
        "0000000000000000: 00000002 00000000 00010000 0001 01 25427 @abstract",
    ];
    for seed in seeds(ROUNDS) {
        let line = mutated_text(seed, &inputs, &[" ", "  ", "/", "@", "..", "\u{fffd}", "\t", "00"]);
        let Some(path) = relative(&line).and_then(Path::to_str) else { continue };
        assert!(line.ends_with(path) && !path.starts_with(['/', '@']) && !path.is_empty(), "seed {seed}: {line}");
    }
}

/// A path with a protected component is protected however it is written.
#[test]
fn fuzz_protected_path() {
    let inputs =
        ["a/.git/config", "AGENTS.md", "src/.cursor/rules", "sub/CLAUDE.md", "notes/a.md", ".github/x.prompt.md"];
    let fragments = ["/", "//", "./", "../", ".git", ".GIT", "AGENTS.md", "\u{fffd}", " ", "HEAD"];
    for seed in seeds(ROUNDS) {
        let text = mutated_text(seed, &inputs, &fragments);
        let needs = [ChangeKind::Write, ChangeKind::Remove].map(|kind| needs_approval(Path::new(&text), kind, true));
        let is_listed = |part: &str| [".git", "AGENTS.md", "CLAUDE.md", ".cursor"].contains(&part);
        if text.split('/').any(is_listed) {
            assert_eq!(needs, [true; 2], "seed {seed}: {text}");
        }
    }
}

/// The argument of the last step into a sandbox is read completely or not at all.
#[test]
fn fuzz_confinement() {
    let trial = Confinement::trial().to_argument().unwrap();
    let fragments = ["\"", "{", "}", "[", "]", ",", "null", "-1", "1e99", "/", "\\u0000", "\"hidden\":[],"];
    for seed in seeds(ROUNDS) {
        let text = mutated_text(seed, &[&trial], &fragments);
        let Ok(confinement) = serde_json::from_str::<Confinement>(&text) else { continue };
        let again = serde_json::from_str::<Confinement>(&confinement.to_argument().unwrap());
        assert_eq!(again.ok(), Some(confinement), "seed {seed}: {text}");
    }
}
