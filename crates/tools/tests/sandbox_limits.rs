//! Resource limits of commands, tested with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_sandbox::{ResourceLimits, Tier};
use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];
const MIB: u64 = 1024 * 1024;

/// Both sandboxes, as far as they work here.
fn sandboxes(limits: ResourceLimits) -> Vec<(&'static str, ToolFixture)> {
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    let make = |tier: Option<Tier>| {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        ToolFixture::below(folder, &ENV, |settings| {
            settings.tier = tier;
            settings.sandbox.limits = limits;
        })
    };
    let namespace = has_namespaces("limits in namespaces").then(|| ("tier A", make(None)));
    namespace.into_iter().chain([("tier B", make(Some(limited)))]).collect()
}

async fn run(fixture: &ToolFixture, command: &str) -> (String, bool) {
    let result = fixture.call("exec", json!({"command": command})).await;
    let (text, is_error) = only_text(&result);
    (text.to_owned(), is_error)
}

#[tokio::test]
async fn a_command_has_limits_by_default() {
    for (sandbox, fixture) in sandboxes(ResourceLimits::default()) {
        let (text, _) =
            run(&fixture, "for limit in -c -d -f -u -n; do ulimit -H $limit; done; cat /proc/self/oom_score_adj").await;
        let found: Vec<Option<u64>> = text.lines().map(|line| line.parse().ok()).collect();
        assert_eq!((found.len(), found[0], found[5]), (6, Some(0), Some(500)), "{sandbox}: {text}");
        assert!(found.iter().all(Option::is_some), "{sandbox}: {text}");
    }
}

#[tokio::test]
async fn one_process_gets_no_more_memory_than_the_limit() {
    let limits = ResourceLimits { memory: Some(200 * MIB), ..ResourceLimits::default() };
    for (sandbox, fixture) in sandboxes(limits) {
        let (text, is_error) = run(&fixture, "perl -e '$x = \"a\" x (300 << 20); print \"ALLOCATED\"'").await;
        assert!(is_error && !text.contains("ALLOCATED"), "{sandbox}: {text}");
        let (text, is_error) = run(&fixture, "perl -e '$x = \"a\" x (60 << 20); print length $x'").await;
        assert_eq!((text.as_str(), is_error), ("62914560", false), "{sandbox}");
    }
}

#[tokio::test]
async fn many_processes_get_no_more_memory_than_the_limit_together() {
    let limits = ResourceLimits { memory: Some(150 * MIB), ..ResourceLimits::default() };
    for (sandbox, fixture) in sandboxes(limits) {
        let script = "for i in 1 2 3 4; do perl -e '$x = \"a\" x (50 << 20); $y = $x; sleep 30' & done; wait";
        let result = fixture.call("exec", json!({"command": script, "yieldMs": 60_000})).await;
        let (text, is_error) = only_text(&result);
        let reason =
            "Command was stopped, because its processes used more than 150 MiB of memory (tools.exec.limits.memoryMb)";
        assert!(is_error && text.ends_with(reason), "{sandbox}: {text}");
        assert_eq!(result.details.unwrap()["stopped"], "limit", "{sandbox}");
    }
}

#[tokio::test]
async fn memory_that_processes_share_counts_once() {
    let limits = ResourceLimits { memory: Some(150 * MIB), ..ResourceLimits::default() };
    for (sandbox, fixture) in sandboxes(limits) {
        let script = "perl -e '$x = \"a\" x (40 << 20); for (1..5) { fork or do { sleep 3; exit } } 1 while wait > 0; print \"shared\"'";
        assert_eq!(run(&fixture, script).await, ("shared".to_owned(), false), "{sandbox}");
    }
}

#[tokio::test]
async fn a_file_does_not_get_larger_than_the_limit() {
    let limits = ResourceLimits { file: Some(2 * MIB), ..ResourceLimits::default() };
    for (sandbox, fixture) in sandboxes(limits) {
        let (text, is_error) = run(&fixture, "dd if=/dev/zero of=big bs=1M count=5").await;
        assert!(
            is_error && text.contains("[A command may write files of 2 MiB at most: tools.exec.limits.fileMb]"),
            "{sandbox}: {text}"
        );
        assert_eq!(std::fs::metadata(fixture.workdir().join("big")).unwrap().len(), 2 * MIB, "{sandbox}");
    }
}

#[tokio::test]
async fn the_number_of_processes_is_limited() {
    let limits = ResourceLimits { processes: Some(50), ..ResourceLimits::default() };
    for (sandbox, fixture) in sandboxes(limits) {
        let script = "for i in $(seq 20000); do sleep 20 & done; echo ALL";
        let result = fixture.call("exec", json!({"command": script, "yieldMs": 60_000})).await;
        let (text, _) = only_text(&result);
        // The kernel does not limit root's processes, so they are counted periodically instead.
        let note = if geteuid().is_root() {
            "Command was stopped, because it had more than 50 processes (tools.exec.limits.processes)"
        } else {
            "[A command may start 50 processes and threads at most: tools.exec.limits.processes]"
        };
        assert!(!text.contains("ALL") && text.contains(note), "{sandbox}: {text}");
    }
}

#[tokio::test]
async fn temporary_directories_hold_no_more_than_the_limit() {
    if !has_namespaces("temporary_directories_hold_no_more_than_the_limit") {
        return;
    }
    let limits = ResourceLimits { temporary: Some(2 * MIB), ..ResourceLimits::default() };
    let (_, fixture) = &sandboxes(limits)[0];
    for folder in ["/tmp", "/var/tmp", "/run", "/dev/shm"] {
        let (text, is_error) = run(fixture, &format!("dd if=/dev/zero of={folder}/big bs=1M count=5")).await;
        let note = "[A temporary directory of a command holds 2 MiB at most: tools.exec.limits.tmpMb]";
        assert!(is_error && text.contains(note), "{folder}: {text}");
    }
}

#[tokio::test]
async fn ordinary_programs_work_within_the_default_limits() {
    for (sandbox, fixture) in sandboxes(ResourceLimits::default()) {
        let script = "for i in $(seq 60); do sleep 1 & done; wait; perl -e '$x = \"a\" x (100 << 20)'; dd if=/dev/zero of=f bs=1M count=50 2> /dev/null; \
                      echo fine";
        assert_eq!(run(&fixture, script).await, ("fine".to_owned(), false), "{sandbox}");
    }
    if !fixture::has_node("ordinary_programs_work_within_the_default_limits") {
        return;
    }
    for (sandbox, fixture) in sandboxes(ResourceLimits::default()) {
        let (text, is_error) =
            run(&fixture, "node -e 'new WebAssembly.Memory({initial: 100, maximum: 65536}); console.log(\"fine\")'")
                .await;
        assert_eq!((text.as_str(), is_error), ("fine", false), "{sandbox}");
    }
}
