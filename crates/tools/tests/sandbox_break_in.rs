//! Known attempts to escape from a sandbox, with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    process::{Command, Stdio},
};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_tools::{ExecSettings, sandbox::Tier};
use serde_json::json;
use tempfile::TempDir;

/// Both sandboxes, in a directory that commands can see.
fn ways(change: impl Fn(&mut ExecSettings)) -> [(&'static str, ToolFixture); 2] {
    let make = |tier: Option<Tier>| {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        ToolFixture::below(folder, &[("PATH", "/usr/local/bin:/usr/bin:/bin")], |settings| {
            settings.tier = tier;
            change(settings);
        })
    };
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    [("tier A", make(None)), ("tier B", make(Some(limited)))]
}

async fn run(bench: &ToolFixture, command: &str) -> String {
    only_text(&bench.call("exec", json!({"command": command})).await).0.to_owned()
}

// R52: a Unix socket with a path leads to the process that listens there, such as a container engine.
#[tokio::test]
async fn programs_that_listen_at_a_path_cannot_be_reached() {
    for network in [false, true] {
        for (way, bench) in ways(|settings| settings.sandbox.network = network) {
            for folder in [bench.outside(), bench.workdir()] {
                let path = folder.join("a socket");
                let listener = UnixListener::bind(&path).unwrap();
                listener.set_nonblocking(true).unwrap();
                let connect = "perl -MSocket -e 'socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; \
                               connect($s, pack_sockaddr_un($ARGV[0])) or exit 1; print \"out\"'";
                let said = run(&bench, &format!("{connect} '{}'", path.display())).await;
                assert!(!said.contains("out\n") && !said.starts_with("out"), "{way} {network}: {said}");
                assert!(listener.accept().is_err(), "{way} {network}");
            }
        }
    }
}

#[tokio::test]
async fn a_hidden_socket_that_disappears_meanwhile_fails_no_command() {
    let Tier::A { bwrap, has_sizes } = Tier::detect(None, "/usr/local/bin:/usr/bin:/bin") else {
        return assert!(!has_namespaces("a_hidden_socket_that_disappears_meanwhile_fails_no_command"));
    };
    let [(_, bench), _] = ways(|settings| {
        let folder = settings.sandbox.state_dir.clone().unwrap();
        let (socket, bwrap_then) = (folder.with_extension("socket"), folder.join("bwrap"));
        let script = format!("#!/bin/sh\nrm -f '{}'\nexec '{}' \"$@\"\n", socket.display(), bwrap.display());
        fs::write(&bwrap_then, script).unwrap();
        fs::set_permissions(&bwrap_then, fs::Permissions::from_mode(0o700)).unwrap();
        settings.tier = settings.tier.clone().or(Some(Tier::A { bwrap: bwrap_then, has_sizes }));
    });
    let listener = UnixListener::bind(bench.state().with_extension("socket")).unwrap();
    assert_eq!(run(&bench, "echo ran >> runs; cat runs").await, "ran");
    drop(listener);
    // If building the sandbox always fails, retries are limited.
    let [(_, bench), _] = ways(|settings| {
        let tier = Tier::A { bwrap: "/bin/false".into(), has_sizes };
        settings.tier = settings.tier.clone().or(Some(tier));
    });
    assert_eq!(run(&bench, "true").await, "(no output)\n\nCommand exited with code 1");
}

#[tokio::test]
async fn a_socket_of_its_own_is_a_commands_to_use() {
    if !has_namespaces("a_socket_of_its_own_is_a_commands_to_use") {
        return;
    }
    let [(_, bench), _] = ways(|_| {});
    let script = "perl -MSocket -e 'socket($l, PF_UNIX, SOCK_STREAM, 0); bind($l, pack_sockaddr_un(\"s\")); listen($l, 1); \
                  socket($s, PF_UNIX, SOCK_STREAM, 0); connect($s, pack_sockaddr_un(\"s\")) or exit 1; print \"met\"'";
    assert_eq!(run(&bench, script).await, "met");
}

#[tokio::test]
async fn calls_that_nobody_has_looked_at_do_not_exist() {
    for (way, bench) in ways(|_| {}) {
        for number in [467, 470, 1_000, 0x4000_0000 + 39] {
            let command = format!("perl -e 'syscall({number}, 0, 0); print $!+0'");
            assert_eq!(run(&bench, &command).await, "38", "{way} {number}");
        }
    }
}

// R54: a command's environment is an allowlist, whatever is in the gateway's.
#[tokio::test]
async fn two_hundred_variables_of_ours_are_not_seen_by_a_command() {
    let words = ["TOKEN", "KEY", "SECRET", "URL", "LD_PRELOAD", "PYTHONPATH", "GIT_SSH", "x", "HOME_", "PATH_"];
    let names: Vec<String> = (0..200).map(|n| format!("{}_{n}", words[n % words.len()])).collect();
    let canaries = names.iter().map(|name| (name.as_str(), "canary"));
    let known = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("LD_PRELOAD", "canary"), ("BASH_ENV", "canary")];
    let env: Vec<_> = canaries.chain(known).collect();
    for tier in [None, Some(Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned()))] {
        let bench = ToolFixture::with(&env, |settings| settings.tier = tier.clone());
        let seen = run(&bench, "env | grep -v '^_=' | cut -d= -f1 | sort | tr '\\n' ' '; env | grep canary").await;
        let temporary = if tier.is_some() { " TMPDIR" } else { "" };
        assert!(seen.starts_with(&format!("HOMARD_EXEC LANG PATH PWD SHLVL TERM{temporary}")), "{seen}");
        assert!(!seen.contains("canary") && !seen.contains("TOKEN"), "{seen}");
    }
}

// R53: all files that are loaded into a prompt automatically.
#[tokio::test]
async fn what_a_prompt_is_made_of_is_not_changed_nor_made() {
    let pages =
        "AGENTS.md SOUL.md TOOLS.md IDENTITY.md USER.md HEARTBEAT.md MEMORY.md memory.md BOOTSTRAP.md GEMINI.md";
    let [(_, bench), (_, limited)] = ways(|_| {});
    for bench in [&bench, &limited] {
        run(bench, &format!("for page in {pages}; do echo evil > $page; done")).await;
        assert_eq!(fs::read_dir(bench.workdir()).unwrap().count(), 0);
    }
    // Without namespaces, a command can change an existing file before it is restored.
    if !has_namespaces("what_a_prompt_is_made_of_is_not_changed_nor_made") {
        return;
    }
    for page in pages.split(' ').filter(|page| *page != "BOOTSTRAP.md") {
        fs::write(bench.workdir().join(page), "good").unwrap();
        run(&bench, &format!("echo evil > {page}; rm {page}; mv {page} x; echo evil > {page}")).await;
        assert_eq!(fs::read_to_string(bench.workdir().join(page)).unwrap(), "good", "{page}");
    }
    fs::write(bench.workdir().join("BOOTSTRAP.md"), "good").unwrap();
    run(&bench, "rm BOOTSTRAP.md").await;
    assert!(!bench.workdir().join("BOOTSTRAP.md").exists());
}

#[tokio::test]
async fn settings_of_a_new_repository_that_are_huge_or_a_pipe_are_not_read() {
    let [(_, bench), _] = ways(|settings| settings.sandbox.limits.file = None);
    for evil in ["truncate -s 1T .git/config", "rm .git/config; mkfifo .git/config"] {
        let said = run(&bench, &format!("git init -q; {evil}")).await;
        assert!(said.contains(": .git/config."), "{said}");
        fs::remove_dir_all(bench.workdir().join(".git")).unwrap();
    }
}

/// Listens at a relative path, then optionally changes its working directory.
const LISTEN: &str = "socket($s, PF_UNIX, SOCK_STREAM, 0) or die; bind($s, pack_sockaddr_un(\"rel.sock\")) or die; \
                      listen($s, 5) or die; chdir $ARGV[0] or die; $| = 1; print \"ready\\n\"; \
                      while (accept($c, $s)) { print \"connected\\n\"; print $c \"out\\n\"; close $c }";

// R52.
#[tokio::test]
async fn l1_a_socket_that_was_bound_by_a_relative_path_cannot_be_reached() {
    for network in [false, true] {
        for (way, bench) in ways(|settings| settings.sandbox.network = network) {
            let deep = bench.workdir().join("deep");
            fs::create_dir(&deep).unwrap();
            // A listener that has left the directory is only found in the workspace.
            for (folder, then) in [(bench.outside(), "."), (bench.workdir(), "."), (&deep, "/")] {
                let mut listener = Command::new("perl");
                listener.args(["-MSocket", "-e", LISTEN, then]).current_dir(folder).stdout(Stdio::piped());
                let mut listener = listener.spawn().unwrap();
                let mut said = BufReader::new(listener.stdout.take().unwrap());
                let mut line = String::new();
                said.read_line(&mut line).unwrap();
                assert_eq!(line, "ready\n");
                let connect = "perl -MSocket -e 'socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; \
                               connect($s, pack_sockaddr_un($ARGV[0])) or exit 1; print <$s>'";
                let path = folder.join("rel.sock");
                let text = run(&bench, &format!("{connect} '{}'", path.display())).await;
                listener.kill().unwrap();
                listener.wait().unwrap();
                let mut rest = String::new();
                said.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, "", "{way} {network} {}: {text}", path.display());
                fs::remove_file(&path).unwrap();
            }
        }
    }
}
