//! How `exec` ends what it has started.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod bench;

use std::{fs, time::Duration};

use bench::{Bench, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

/// A family that is hard to get rid of. Every member writes its number to a file and stays, but not for ever: a test that
/// fails must not leave it behind.
const FAMILY: &str = "
    echo started
    (trap '' TERM; echo $BASHPID > stubborn.tmp; mv stubborn.tmp stubborn; for i in {1..600}; do sleep 0.1; done) &
    setsid bash -c 'echo $$ > session.tmp; mv session.tmp session; exec sleep 60' &
    (setsid bash -c 'trap \"\" TERM; echo $$ > daemon.tmp; mv daemon.tmp daemon; for i in {1..600}; do sleep 0.1; done' > /dev/null 2>&1 &)
    echo $$ > leader.tmp; mv leader.tmp leader
    wait
";
const MEMBERS: [&str; 4] = ["stubborn", "session", "daemon", "leader"];

/// Longer than anything here takes, shorter than a day.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) {
    let mut tick = interval(Duration::from_millis(5));
    let waited = timeout(PATIENCE, async {
        while !is_so() {
            tick.tick().await;
        }
    });
    waited.await.expect("it should have come to that by now");
}

fn pids(bench: &Bench, names: &[&str]) -> Vec<i32> {
    let pid = |name: &&str| fs::read_to_string(bench.workdir().join(name)).ok()?.trim().parse().ok();
    names.iter().filter_map(pid).collect()
}

/// Those that run; one that is dead but not buried by its parent does not.
fn running(pids: &[i32]) -> Vec<i32> {
    let is_running = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
    };
    pids.iter().copied().filter(is_running).collect()
}

fn without_duration(mut details: Value) -> Value {
    details.as_object_mut().unwrap().remove("durationMs").unwrap();
    details
}

// Pitfall 42: what comes back, and so what is stored, is bounded.
#[tokio::test]
async fn a_flood_keeps_its_beginning_and_its_end() {
    let bench = Bench::new();
    let result = bench.call("exec", json!({"command": "head -c 5000000 /dev/zero | tr '\\0' x; echo end"})).await;
    let expected =
        format!("{}\n\n[4800004 bytes of output are left out here]\n\n{}end", "x".repeat(100_000), "x".repeat(99_996));
    assert_eq!(said(&result), (expected.as_str(), false));
}

#[tokio::test]
async fn a_timeout_ends_the_whole_family() {
    let bench = Bench::new();
    let result = bench.call("exec", json!({"command": FAMILY, "timeout": 1.5})).await;
    assert_eq!(said(&result), ("started\n\nCommand timed out after 1.5 seconds and was stopped", true));
    let expected = json!({
        "status": "failed", "exitCode": null, "aggregated": "started", "cwd": bench.workdir(), "stopped": "timeout",
    });
    assert_eq!(without_duration(result.details.unwrap()), expected);
    let pids = pids(&bench, &MEMBERS);
    assert_eq!(pids.len(), MEMBERS.len());
    assert_eq!(running(&pids), Vec::<i32>::new());
}

#[tokio::test]
async fn a_cancel_ends_the_whole_family_within_a_second() {
    let bench = Bench::new();
    let (result, cancelled) = tokio::join!(bench.call("exec", json!({"command": FAMILY})), async {
        until(|| pids(&bench, &MEMBERS).len() == MEMBERS.len()).await;
        bench.cancel.cancel();
        tokio::time::Instant::now()
    });
    assert!(cancelled.elapsed() < Duration::from_secs(1), "took {:?}", cancelled.elapsed());
    assert_eq!(said(&result), ("started\n\nCommand was stopped, because the run was", true));
    assert_eq!(result.details.unwrap()["stopped"], "cancel");
    assert_eq!(running(&pids(&bench, &MEMBERS)), Vec::<i32>::new());
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_the_whole_family_with_it() {
    let bench = Bench::new();
    tokio::select! {
        result = bench.call("exec", json!({"command": FAMILY})) => panic!("ended: {result:?}"),
        () = until(|| pids(&bench, &MEMBERS).len() == MEMBERS.len()) => {}
    }
    let pids = pids(&bench, &MEMBERS);
    until(|| running(&pids).is_empty()).await;
}

#[tokio::test]
async fn a_gentle_end_is_granted() {
    let bench = Bench::new();
    let command = "exec 2> /dev/null; trap 'echo bye; exit 0' TERM; echo $$ > leader; while :; do sleep 0.01; done";
    let (result, ()) = tokio::join!(bench.call("exec", json!({"command": command})), async {
        until(|| pids(&bench, &["leader"]).len() == 1).await;
        bench.cancel.cancel();
    });
    assert_eq!(said(&result), ("bye\n\nCommand was stopped, because the run was", true));
}

#[tokio::test]
async fn a_cancel_leaves_other_commands_alone() {
    let (one, other) = (Bench::new(), Bench::new());
    let command = "echo $$ > leader; until [ -e go ]; do sleep 0.01; done; echo done";
    let (ended, stayed, ()) = tokio::join!(
        one.call("exec", json!({"command": command})),
        other.call("exec", json!({"command": command})),
        async {
            until(|| pids(&one, &["leader"]).len() + pids(&other, &["leader"]).len() == 2).await;
            one.cancel.cancel();
            let stopped = pids(&one, &["leader"]);
            until(|| running(&stopped).is_empty()).await;
            fs::write(other.workdir().join("go"), "").unwrap();
        }
    );
    assert_eq!(said(&ended), ("(no output)\n\nCommand was stopped, because the run was", true));
    assert_eq!(said(&stayed), ("done", false));
}

#[tokio::test]
async fn nothing_is_started_once_the_run_is_stopped() {
    let bench = Bench::new();
    bench.cancel.cancel();
    let result = bench.call("exec", json!({"command": "echo > started"})).await;
    assert_eq!(said(&result), ("the run was stopped before the command was started", true));
    assert!(!bench.workdir().join("started").exists());
}

#[tokio::test]
async fn a_process_that_is_left_behind_does_not_hold_up_the_result() {
    let bench = Bench::new();
    let command = "sleep 60 & echo $! > left; echo done";
    let result = timeout(PATIENCE, bench.call("exec", json!({"command": command}))).await.unwrap();
    let text = "done\n\n[It left a process running, whose output from now on is lost. Send the output of such a \
                process to a file.]";
    assert_eq!(said(&result), (text, false));
    let left = pids(&bench, &["left"]);
    assert_eq!(running(&left), left, "what was left on purpose stays");
    kill_process(Pid::from_raw(left[0]).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn the_tools_have_the_names_and_parameters_of_openclaw() {
    let bench = Bench::new();
    let parameters = |tool: &str| {
        let spec = bench.tool(tool).spec();
        spec.parameters["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let exec = "command workdir env yieldMs background timeout pty elevated host security ask node";
    assert_eq!(parameters("exec"), exec);
}
