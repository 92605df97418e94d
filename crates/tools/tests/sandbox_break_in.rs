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
use homard_sandbox::Tier;
use homard_tools::ExecSettings;
use serde_json::json;
use tempfile::TempDir;

/// Both sandboxes, in a directory that commands can see.
fn sandboxes(change: impl Fn(&mut ExecSettings)) -> [(&'static str, ToolFixture); 2] {
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

async fn run(fixture: &ToolFixture, command: &str) -> String {
    only_text(&fixture.call("exec", json!({"command": command})).await).0.to_owned()
}

// R52: a Unix socket with a path leads to the process that listens there, such as a container engine.
#[tokio::test]
async fn programs_that_listen_at_a_path_cannot_be_reached() {
    for network in [false, true] {
        for (sandbox, fixture) in sandboxes(|settings| settings.sandbox.network = network) {
            for folder in [fixture.outside(), fixture.workdir()] {
                let path = folder.join("a socket");
                let listener = UnixListener::bind(&path).unwrap();
                listener.set_nonblocking(true).unwrap();
                let connect = "perl -MSocket -e 'socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; \
                               connect($s, pack_sockaddr_un($ARGV[0])) or exit 1; print \"out\"'";
                let output = run(&fixture, &format!("{connect} '{}'", path.display())).await;
                assert!(!output.contains("out\n") && !output.starts_with("out"), "{sandbox} {network}: {output}");
                assert!(listener.accept().is_err(), "{sandbox} {network}");
            }
        }
    }
}

#[tokio::test]
async fn a_hidden_socket_that_disappears_meanwhile_fails_no_command() {
    let Tier::A { bwrap, has_sizes } = Tier::detect(None, "/usr/local/bin:/usr/bin:/bin") else {
        return assert!(!has_namespaces("a_hidden_socket_that_disappears_meanwhile_fails_no_command"));
    };
    let [(_, fixture), _] = sandboxes(|settings| {
        let folder = settings.sandbox.state_dir.clone().unwrap();
        let (socket, bwrap_then) = (folder.with_extension("socket"), folder.join("bwrap"));
        let script = format!("#!/bin/sh\nrm -f '{}'\nexec '{}' \"$@\"\n", socket.display(), bwrap.display());
        fs::write(&bwrap_then, script).unwrap();
        fs::set_permissions(&bwrap_then, fs::Permissions::from_mode(0o700)).unwrap();
        settings.tier = settings.tier.clone().or(Some(Tier::A { bwrap: bwrap_then, has_sizes }));
    });
    let listener = UnixListener::bind(fixture.state().with_extension("socket")).unwrap();
    assert_eq!(run(&fixture, "echo ran >> runs; cat runs").await, "ran");
    drop(listener);
    // If building the sandbox always fails, retries are limited.
    let [(_, fixture), _] = sandboxes(|settings| {
        let tier = Tier::A { bwrap: "/bin/false".into(), has_sizes };
        settings.tier = settings.tier.clone().or(Some(tier));
    });
    assert_eq!(run(&fixture, "true").await, "(no output)\n\nCommand exited with code 1");
}

#[tokio::test]
async fn a_command_can_use_its_own_sockets() {
    if !has_namespaces("a_command_can_use_its_own_sockets") {
        return;
    }
    let [(_, fixture), _] = sandboxes(|_| {});
    let script = "perl -MSocket -e 'socket($l, PF_UNIX, SOCK_STREAM, 0); bind($l, pack_sockaddr_un(\"s\")); listen($l, 1); \
                  socket($s, PF_UNIX, SOCK_STREAM, 0); connect($s, pack_sockaddr_un(\"s\")) or exit 1; print \"met\"'";
    assert_eq!(run(&fixture, script).await, "met");
}

#[tokio::test]
async fn unreviewed_system_calls_are_unavailable() {
    for (sandbox, fixture) in sandboxes(|_| {}) {
        for number in [467, 470, 1_000, 0x4000_0000 + 39] {
            let command = format!("perl -e 'syscall({number}, 0, 0); print $!+0'");
            assert_eq!(run(&fixture, &command).await, "38", "{sandbox} {number}");
        }
    }
}

// R54: a command's environment is an allowlist, whatever is in the gateway's.
#[tokio::test]
async fn two_hundred_gateway_variables_are_not_visible_to_commands() {
    let suffixes = ["TOKEN", "KEY", "SECRET", "URL", "LD_PRELOAD", "PYTHONPATH", "GIT_SSH", "x", "HOME_", "PATH_"];
    let names: Vec<String> = (0..200).map(|n| format!("{}_{n}", suffixes[n % suffixes.len()])).collect();
    let canaries = names.iter().map(|name| (name.as_str(), "canary"));
    let base_env = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("LD_PRELOAD", "canary"), ("BASH_ENV", "canary")];
    let env: Vec<_> = canaries.chain(base_env).collect();
    for tier in [None, Some(Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned()))] {
        let fixture = ToolFixture::with(&env, |settings| settings.tier = tier.clone());
        let visible_names =
            run(&fixture, "env | grep -v '^_=' | cut -d= -f1 | sort | tr '\\n' ' '; env | grep canary").await;
        let temporary = if tier.is_some() { " TMPDIR" } else { "" };
        assert!(
            visible_names.starts_with(&format!("HOMARD_EXEC LANG PATH PWD SHLVL TERM{temporary}")),
            "{visible_names}"
        );
        assert!(!visible_names.contains("canary") && !visible_names.contains("TOKEN"), "{visible_names}");
    }
}

// R53: all files that are loaded into a prompt automatically.
#[tokio::test]
async fn prompt_files_are_neither_changed_nor_created() {
    let pages =
        "AGENTS.md SOUL.md TOOLS.md IDENTITY.md USER.md HEARTBEAT.md MEMORY.md memory.md BOOTSTRAP.md GEMINI.md";
    let [(_, fixture), (_, limited)] = sandboxes(|_| {});
    for fixture in [&fixture, &limited] {
        run(fixture, &format!("for page in {pages}; do echo evil > $page; done")).await;
        assert_eq!(fs::read_dir(fixture.workdir()).unwrap().count(), 0);
    }
    // Without namespaces, a command can change an existing file before it is restored.
    if !has_namespaces("prompt_files_are_neither_changed_nor_created") {
        return;
    }
    for page in pages.split(' ').filter(|page| *page != "BOOTSTRAP.md") {
        fs::write(fixture.workdir().join(page), "good").unwrap();
        run(&fixture, &format!("echo evil > {page}; rm {page}; mv {page} x; echo evil > {page}")).await;
        assert_eq!(fs::read_to_string(fixture.workdir().join(page)).unwrap(), "good", "{page}");
    }
    fs::write(fixture.workdir().join("BOOTSTRAP.md"), "good").unwrap();
    run(&fixture, "rm BOOTSTRAP.md").await;
    assert!(!fixture.workdir().join("BOOTSTRAP.md").exists());
}

#[tokio::test]
async fn settings_of_a_new_repository_that_are_huge_or_a_pipe_are_not_read() {
    let [(_, fixture), _] = sandboxes(|settings| settings.sandbox.limits.file = None);
    for evil in ["truncate -s 1T .git/config", "rm .git/config; mkfifo .git/config"] {
        let output = run(&fixture, &format!("git init -q; {evil}")).await;
        assert!(output.contains(": .git/config."), "{output}");
        fs::remove_dir_all(fixture.workdir().join(".git")).unwrap();
    }
}

/// Listens at a relative path, then optionally changes its working directory.
const LISTEN: &str = "socket($s, PF_UNIX, SOCK_STREAM, 0) or die; bind($s, pack_sockaddr_un(\"rel.sock\")) or die; \
                      listen($s, 5) or die; chdir $ARGV[0] or die; $| = 1; print \"ready\\n\"; \
                      while (accept($c, $s)) { print \"connected\\n\"; print $c \"out\\n\"; close $c }";

// R52.
#[tokio::test]
async fn a_socket_that_was_bound_by_a_relative_path_cannot_be_reached() {
    for network in [false, true] {
        for (sandbox, fixture) in sandboxes(|settings| settings.sandbox.network = network) {
            let deep = fixture.workdir().join("deep");
            fs::create_dir(&deep).unwrap();
            // A listener that has left the directory is only found in the workspace.
            for (folder, then) in [(fixture.outside(), "."), (fixture.workdir(), "."), (&deep, "/")] {
                let mut listener = Command::new("perl");
                listener.args(["-MSocket", "-e", LISTEN, then]).current_dir(folder).stdout(Stdio::piped());
                let mut listener = listener.spawn().unwrap();
                let mut listener_output = BufReader::new(listener.stdout.take().unwrap());
                let mut line = String::new();
                listener_output.read_line(&mut line).unwrap();
                assert_eq!(line, "ready\n");
                let connect = "perl -MSocket -e 'socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; \
                               connect($s, pack_sockaddr_un($ARGV[0])) or exit 1; print <$s>'";
                let path = folder.join("rel.sock");
                let text = run(&fixture, &format!("{connect} '{}'", path.display())).await;
                listener.kill().unwrap();
                listener.wait().unwrap();
                let mut rest = String::new();
                listener_output.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, "", "{sandbox} {network} {}: {text}", path.display());
                fs::remove_file(&path).unwrap();
            }
        }
    }
}
