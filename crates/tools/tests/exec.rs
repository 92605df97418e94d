//! How `exec` kills what it has started, in every kind of sandbox.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{fs, process::Command, time::Duration};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_proto::{AgentId, SessionKey};
use homard_sandbox::{AccessMode, Tier};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, timeout};

/// A process tree that is hard to kill. Every member signals that it runs and stays, but only for a limited
/// time, so that a failing test does not leave it behind.
const FAMILY: &str = "
    echo started
    (trap '' TERM; touch stubborn; for i in {1..600}; do sleep 0.1; done) &
    setsid bash -c 'touch session; exec sleep 60' &
    (setsid bash -c 'trap \"\" TERM; touch daemon; for i in {1..600}; do sleep 0.1; done' > /dev/null 2>&1 &)
    (env -i bash -c 'touch bare; exec /bin/sleep 60' &)
    for i in {1..50}; do sleep 60 & done
    touch leader
    wait
";
const MEMBERS: [&str; 5] = ["stubborn", "session", "daemon", "bare", "leader"];

/// Longer than any test takes, shorter than a day.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for killing a whole process tree.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// A bench for every kind of sandbox that works here, and one without.
fn sandboxes() -> Vec<(&'static str, ToolFixture)> {
    let bare = ToolFixture::with(&ENV, |settings| settings.sandbox.mode = AccessMode::Full);
    let limited = ToolFixture::with(&ENV, |settings| {
        settings.tier = Some(Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned()));
    });
    let mut variants = vec![("bare", bare), ("landlock", limited)];
    if has_namespaces("exec in namespaces") {
        variants.push(("namespace", ToolFixture::with_env(&ENV)));
    }
    variants
}

/// Waits until a condition holds.
async fn until(is_so: impl Fn() -> bool) {
    let mut tick = interval(Duration::from_millis(5));
    let waited = timeout(TEST_TIMEOUT, async {
        while !is_so() {
            tick.tick().await;
        }
    });
    waited.await.expect("it should have come to that by now");
}

/// Returns the processes with the workspace as working directory, in any namespace, except zombies.
fn live_processes(fixture: &ToolFixture) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let is_there = |pid: &String| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == fixture.workdir());
    pids.filter(|pid| pid.parse::<u32>().is_ok()).filter(is_there).collect()
}

fn is_complete(fixture: &ToolFixture) -> bool {
    MEMBERS.iter().all(|name| fixture.workdir().join(name).exists())
}

fn without_duration(mut details: Value) -> Value {
    details.as_object_mut().unwrap().remove("durationMs").unwrap();
    details
}

/// Returns the resident memory of this process in KiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

// Pitfall 42: the result, and so what is stored, is bounded.
#[tokio::test]
async fn long_output_keeps_its_beginning_and_end() {
    for (sandbox, fixture) in sandboxes() {
        let result = fixture.call("exec", json!({"command": "head -c 5000000 /dev/zero | tr '\\0' x; echo end"})).await;
        let (first, last) = ("x".repeat(100_000), "x".repeat(99_996));
        let expected = format!("{first}\n\n[4800004 bytes of output are left out here]\n\n{last}end");
        assert_eq!(only_text(&result), (expected.as_str(), false), "{sandbox}");
    }
}

/// Runs a test again in a process of its own, because other tests of this process allocate memory at the same time.
/// Returns true in that process.
fn is_alone(test: &str) -> bool {
    if std::env::args().any(|argument| argument == "--exact") {
        return true;
    }
    let status = Command::new(std::env::current_exe().unwrap()).args(["--exact", test]).status().unwrap();
    assert!(status.success(), "{test}: {status}");
    false
}

#[tokio::test]
async fn a_gibibyte_of_output_takes_bounded_memory() {
    if !is_alone("a_gibibyte_of_output_takes_bounded_memory") {
        return;
    }
    for (sandbox, fixture) in sandboxes() {
        let before = memory();
        let result = fixture.call("exec", json!({"command": "head -c 1073741824 /dev/zero", "yieldMs": 120_000})).await;
        assert!(!result.is_error, "{sandbox}: {result:?}");
        let grown = memory().saturating_sub(before);
        assert!(grown < 50_000, "{sandbox}: {grown} KiB");
    }
}

#[tokio::test]
async fn endless_output_ends_at_the_timeout() {
    if !is_alone("endless_output_ends_at_the_timeout") {
        return;
    }
    for (sandbox, fixture) in sandboxes() {
        let (before, started) = (memory(), Instant::now());
        let result = fixture.call("exec", json!({"command": "trap '' TERM PIPE; yes & yes", "timeout": 1})).await;
        assert!(started.elapsed() < Duration::from_secs(1) + KILL_TIMEOUT, "{sandbox}: {:?}", started.elapsed());
        assert_eq!(result.details.unwrap()["stopped"], "timeout", "{sandbox}");
        assert!(memory().saturating_sub(before) < 50_000, "{sandbox}");
        assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox}");
    }
}

// R56.
#[tokio::test]
async fn a_timeout_ends_the_whole_process_tree() {
    for (sandbox, fixture) in sandboxes() {
        let started = Instant::now();
        let result = fixture.call("exec", json!({"command": FAMILY, "timeout": 3})).await;
        assert!(started.elapsed() < Duration::from_secs(3) + KILL_TIMEOUT, "{sandbox}: {:?}", started.elapsed());
        assert!(is_complete(&fixture), "{sandbox}");
        assert_eq!(
            only_text(&result),
            ("started\n\nCommand timed out after 3 seconds and was stopped", true),
            "{sandbox}"
        );
        let expected = json!({
            "status": "failed", "exitCode": null, "aggregated": "started", "cwd": fixture.workdir(), "stopped": "timeout",
        });
        assert_eq!(without_duration(result.details.unwrap()), expected, "{sandbox}");
        assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox}");
    }
}

// R56, R86.
#[tokio::test]
async fn a_cancel_ends_the_whole_process_tree_soon() {
    for (sandbox, fixture) in sandboxes() {
        let (result, cancelled) = tokio::join!(fixture.call("exec", json!({"command": FAMILY})), async {
            until(|| is_complete(&fixture)).await;
            fixture.cancel.cancel();
            Instant::now()
        });
        assert!(cancelled.elapsed() < KILL_TIMEOUT, "{sandbox}: took {:?}", cancelled.elapsed());
        assert_eq!(
            only_text(&result),
            ("started\n\nCommand was stopped, because the run was stopped", true),
            "{sandbox}"
        );
        assert_eq!(result.details.unwrap()["stopped"], "cancel", "{sandbox}");
        assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox}");
    }
}

#[tokio::test]
async fn a_dropped_call_ends_the_whole_process_tree() {
    for (_, fixture) in sandboxes() {
        tokio::select! {
            result = fixture.call("exec", json!({"command": FAMILY})) => panic!("ended: {result:?}"),
            () = until(|| is_complete(&fixture)) => {}
        }
        until(|| live_processes(&fixture).is_empty()).await;
    }
}

// R56.
#[tokio::test]
async fn leftover_processes_are_ended_with_their_command() {
    let command = FAMILY.replace("wait", "until [ -e daemon -a -e session -a -e stubborn ]; do sleep 0.01; done");
    for (sandbox, fixture) in sandboxes() {
        let result = timeout(TEST_TIMEOUT, fixture.call("exec", json!({"command": command}))).await.unwrap();
        let note =
            "\n\n[The command left processes running, which were killed. Use background for long-running processes.]";
        // Killing a sandbox's first process kills the rest, which is not counted.
        let text = format!("started{}", if ["namespace", "landlock"].contains(&sandbox) { "" } else { note });
        assert_eq!(only_text(&result), (text.as_str(), false), "{sandbox}");
        assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox}");
    }
}

#[tokio::test]
async fn processes_get_a_grace_period() {
    for (sandbox, fixture) in sandboxes() {
        let command = "exec 2> /dev/null; trap 'echo bye; exit 0' TERM; touch leader; while :; do sleep 0.01; done";
        let (result, ()) = tokio::join!(fixture.call("exec", json!({"command": command})), async {
            until(|| fixture.workdir().join("leader").exists()).await;
            fixture.cancel.cancel();
        });
        assert_eq!(only_text(&result), ("bye\n\nCommand was stopped, because the run was stopped", true), "{sandbox}");
    }
}

#[tokio::test]
async fn a_cancel_leaves_other_commands_alone() {
    for ((sandbox, cancelled_fixture), (_, other)) in sandboxes().into_iter().zip(sandboxes()) {
        let command = "touch leader; until [ -e go ]; do sleep 0.01; done; echo done";
        let (ended, stayed, ()) = tokio::join!(
            cancelled_fixture.call("exec", json!({"command": command})),
            other.call("exec", json!({"command": command})),
            async {
                until(|| [&cancelled_fixture, &other].iter().all(|fixture| fixture.workdir().join("leader").exists()))
                    .await;
                cancelled_fixture.cancel.cancel();
                until(|| live_processes(&cancelled_fixture).is_empty()).await;
                fs::write(other.workdir().join("go"), "").unwrap();
            }
        );
        assert_eq!(
            only_text(&ended),
            ("(no output)\n\nCommand was stopped, because the run was stopped", true),
            "{sandbox}"
        );
        assert_eq!(only_text(&stayed), ("done", false), "{sandbox}");
    }
}

#[tokio::test]
async fn nothing_is_started_once_the_run_is_stopped() {
    let fixture = ToolFixture::new();
    fixture.cancel.cancel();
    let result = fixture.call("exec", json!({"command": "echo > started"})).await;
    assert_eq!(only_text(&result), ("the run was stopped before the command was started", true));
    assert!(!fixture.workdir().join("started").exists());
}

#[tokio::test]
async fn a_command_that_never_reads_does_not_block_writers() {
    for (sandbox, fixture) in sandboxes() {
        for pty in [false, true] {
            let ready = fixture.workdir().join("ready");
            let command = "stty raw 2> /dev/null; touch ready; sleep 60";
            let started = fixture.call("exec", json!({"command": command, "background": true, "pty": pty})).await;
            // A terminal that is not raw yet discards what exceeds one line.
            until(|| ready.exists()).await;
            fs::remove_file(&ready).unwrap();
            let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
            let data = "x".repeat(1_000_000);
            let write = fixture.call("process", json!({"action": "write", "sessionId": id, "data": data}));
            let (text, is_error) = {
                let result = timeout(TEST_TIMEOUT, write).await.unwrap();
                (only_text(&result).0.to_owned(), result.is_error)
            };
            assert!(is_error && text.contains("the command does not read its input"), "{sandbox} {pty}: {text}");
            fixture.call("process", json!({"action": "kill", "sessionId": id})).await;
            assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox} {pty}");
        }
    }
}

#[tokio::test]
async fn a_killed_background_process_tree_has_ended_when_kill_returns() {
    for (sandbox, fixture) in sandboxes() {
        for pty in [false, true] {
            for name in MEMBERS {
                fs::remove_file(fixture.workdir().join(name)).ok();
            }
            let started = fixture.call("exec", json!({"command": FAMILY, "background": true, "pty": pty})).await;
            let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
            until(|| is_complete(&fixture)).await;
            let killed = fixture.call("process", json!({"action": "kill", "sessionId": id})).await;
            assert_eq!(only_text(&killed), (format!("Killed session {id}.").as_str(), false), "{sandbox} {pty}");
            assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox} {pty}");
        }
    }
}

#[tokio::test]
async fn a_command_in_the_background_outlives_the_run_but_not_its_timeout() {
    for (sandbox, fixture) in sandboxes() {
        let command = json!({"command": "trap '' TERM; sleep 60", "background": true, "timeout": 1});
        let started = fixture.call("exec", command).await;
        fixture.cancel.cancel();
        assert_eq!(started.details.unwrap()["status"], "running", "{sandbox}");
        until(|| !live_processes(&fixture).is_empty()).await;
        until(|| live_processes(&fixture).is_empty()).await;
    }
}

#[tokio::test]
async fn a_session_does_not_see_the_commands_of_another() {
    let fixture = ToolFixture::new();
    let started = fixture.call("exec", json!({"command": "sleep 60", "background": true})).await;
    assert_eq!(started.details.unwrap()["sessionId"], "amber-reef");
    let other = SessionKey::parse("agent:main:other", &AgentId::main()).unwrap();
    let list = fixture.call_from(other.clone(), "process", json!({"action": "list"})).await;
    assert_eq!(only_text(&list), ("No commands in the background.", false));
    for action in ["poll", "log", "write", "submit", "kill", "clear", "remove"] {
        let arguments = json!({"action": action, "sessionId": "amber-reef"});
        let result = fixture.call_from(other.clone(), "process", arguments).await;
        let expected = "session amber-reef not found: use the action `list` to see the sessions";
        assert_eq!(only_text(&result), (expected, true), "{action}");
    }
}

#[tokio::test]
async fn background_commands_end_with_the_process() {
    let mut background = None;
    let fixture = ToolFixture::with(&ENV, |settings| background = Some(settings.background.clone()));
    let background = background.unwrap();
    fixture.call("exec", json!({"command": FAMILY, "background": true})).await;
    until(|| is_complete(&fixture)).await;
    let session = AgentId::main().main_session();
    assert_eq!(background.count(&session), 1);
    background.kill_all().await;
    assert_eq!((live_processes(&fixture), background.count(&session)), (Vec::new(), 0));
}

#[tokio::test]
async fn finished_commands_are_evicted() {
    let fixture = ToolFixture::with(&ENV, |settings| settings.keep_finished = Duration::from_millis(1));
    fixture.call("exec", json!({"command": "true", "background": true})).await;
    fixture.call("process", json!({"action": "poll", "sessionId": "amber-reef", "timeout": 20_000})).await;
    let started = Instant::now();
    until(|| started.elapsed() > Duration::from_millis(2)).await;
    let list = fixture.call("process", json!({"action": "list"})).await;
    assert_eq!(only_text(&list), ("No commands in the background.", false));
}

#[tokio::test]
async fn a_session_has_a_limit_of_running_commands() {
    let fixture = ToolFixture::with(&ENV, |settings| settings.sandbox.mode = AccessMode::Full);
    for _ in 0..32 {
        let started = fixture.call("exec", json!({"command": "sleep 60", "background": true})).await;
        assert!(!started.is_error, "{started:?}");
    }
    let refused = fixture.call("exec", json!({"command": "true"})).await;
    let expected = "32 commands of this session are already running: use the tool process to stop some";
    assert_eq!(only_text(&refused), (expected, true));
}

#[test]
fn the_tools_have_the_supported_parameters_of_openclaw() {
    let fixture = ToolFixture::new();
    let parameters = |tool: &str| {
        let spec = fixture.tool(tool).spec();
        spec.parameters["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    // Without approvals: `elevated`, `host`, `security`, `ask` and `node` are accepted, but have no effect.
    assert_eq!(parameters("exec"), "command workdir env yieldMs background timeout pty");
    let process = "action sessionId data keys hex literal text bracketed eof offset limit timeout";
    assert_eq!(parameters("process"), process);
}

#[tokio::test]
async fn without_background_commands_every_call_waits_for_the_end() {
    let fixture = ToolFixture::with(&ENV, |settings| settings.background_after = None);
    let note = "[The command ran to completion: background commands are not available here.]";
    // It would wait forever for input that never comes.
    for (extra, has_note) in [(json!({"background": true}), true), (json!({"yieldMs": 10}), true), (json!({}), false)] {
        let mut arguments = json!({"command": "cat; sleep 0.1; echo done"});
        arguments.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let result = timeout(TEST_TIMEOUT, fixture.call("exec", arguments)).await.unwrap();
        let expected = if has_note { format!("done\n\n{note}") } else { "done".to_owned() };
        assert_eq!(only_text(&result), (expected.as_str(), false), "{extra}");
    }
    let timed_out = fixture.call("exec", json!({"command": "sleep 60", "timeout": 0.2, "background": true})).await;
    assert!(timed_out.is_error && only_text(&timed_out).0.contains("timed out"), "{timed_out:?}");
    let list = fixture.call("process", json!({"action": "list"})).await;
    assert_eq!(only_text(&list), ("No commands in the background.", false));
}
