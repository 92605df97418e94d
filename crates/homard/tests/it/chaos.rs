//! Kills: the gateway dies at the worst moments, and every accepted run has one end and one effect.
//!
//! R1 and the others are the requirements that docs/durability.md lists.

mod disk;
mod effects;
mod export;
pub(crate) mod gateway;
mod power;
mod soak;
mod storm;

use std::{collections::BTreeMap, fs};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    chaos::gateway::{GatewayUnderTest, TracedGateway, is_long, messages_of, run, run_signal, transcripts},
    home::Home,
};

#[test]
fn a_seeded_chaos_run_loses_and_duplicates_nothing() {
    let home = Home::new();
    let output = home.run(&["chaos", "--kills", "8", "--seed", "1", "--json"]);
    assert_eq!(output.code, Some(0), "{}\n{}", output.stdout, output.stderr);
    let report = output.json();
    let summary =
        [&report["ok"], &report["kills"], &report["lost"], &report["doubledEffects"], &report["doubledInputs"]];
    assert_eq!(summary, [&json!(true), &json!(8), &json!([]), &json!([]), &json!([])], "{report}");
    let ended = report["finished"].as_u64().unwrap() + report["interrupted"].as_u64().unwrap();
    assert_eq!(report["accepted"], ended, "{report}");
    assert!(ended > 0, "{report}");
    assert!(!home.state().exists(), "chaos must not touch the state of its user");
}

#[tokio::test]
async fn r1_a_run_accepted_just_before_a_kill_ends() {
    let home = Home::new();
    for round in 0..5 {
        let key = format!("k{round}");
        let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
        gateway.accept(&run(&key, "s", "What time is it?")).await;
        gateway.kill();
        let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
        assert_eq!(gateway.wait(&key).await["status"], "ok");
        gateway.kill();
    }
    let messages = transcripts(&home);
    assert_eq!(messages.len(), 1);
    let keys: Vec<_> =
        messages_of("user", &messages[0]).iter().map(|message| message["idempotencyKey"].clone()).collect();
    assert_eq!(keys, (0..5).map(|round| json!(format!("k{round}:user"))).collect::<Vec<_>>());
}

#[tokio::test]
async fn r2_an_acknowledgement_is_sent_after_its_sync() {
    let home = Home::new();
    let file = home.work().join("trace.txt");
    let calls = "trace=fdatasync,fsync,write,writev,sendto,sendmsg";
    let Some(traced) = TracedGateway::begin(&home, &["-s", "200", "-e", calls, "-o", file.to_str().unwrap()]) else {
        crate::home::skip("r2", "strace is not installed, or this is not root");
        return;
    };
    let mut gateway = traced.listen(&home).await.0.ok().expect("it ended before it listened");
    for number in 0..5 {
        let before = fs::read_to_string(&file).unwrap().len();
        let id = gateway.accept(&run(&format!("k{number}"), "s", "help")).await;
        // By then the call that sent the acknowledgement is certainly in the trace.
        assert_eq!(gateway.answer(&id).await["payload"]["status"], "ok");
        let trace = fs::read_to_string(&file).unwrap();
        let (first, _) = trace[before..].split_once(r#"\"status\":\"accepted\""#).expect("an acknowledgement");
        let synced = first.lines().filter(|line| line.contains("sync") && line.ends_with("= 0"));
        assert!(synced.count() > 0, "acknowledged without a sync:\n{first}");
    }
}

#[tokio::test]
async fn r4_the_result_of_a_run_is_the_same_after_a_kill() {
    let home = Home::new();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    let keys: Vec<_> = (0..if is_long() { 1_000 } else { 50 }).map(|number| format!("k{number}")).collect();
    let sessions: Vec<_> = (0..keys.len()).map(|number| format!("s{}", number % 10)).collect();
    let mut before = BTreeMap::new();
    for (key, session) in keys.iter().zip(&sessions) {
        let id = gateway.accept(&run(key, session, "help")).await;
        let end = gateway.answer(&id).await;
        assert_eq!(end["payload"]["status"], "ok");
        before.insert(key.clone(), (gateway.wait(key).await, end["payload"]["result"]["payloads"].clone()));
    }
    gateway.kill();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    let mut times = Vec::new();
    for (key, session) in keys.iter().zip(&sessions) {
        let start = Instant::now();
        let waited = gateway.wait(key).await;
        times.push(start.elapsed());
        let id = gateway.ask("agent", &run(key, session, "help")).await;
        let again = gateway.answer(&id).await["payload"]["result"]["payloads"].clone();
        assert_eq!((waited, again), before[key]);
    }
    times.sort_unstable();
    println!("{} runs waited for after a kill: p99 {:?}", keys.len(), times[times.len() * 99 / 100]);
}

#[tokio::test]
async fn r5_two_hundred_queued_runs_keep_their_order_after_a_kill() {
    let home = Home::new();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    // These occupy all slots, so that everything behind them is queued.
    for number in 0..4 {
        let message = "run `until [ -e go ]; do sleep 0.01; done`";
        gateway.accept(&run(&format!("slow-{number}"), &format!("slow-{number}"), message)).await;
    }
    let session = |number: usize| format!("line-{}", number % 20);
    for number in 0..200 {
        gateway.accept(&run(&format!("k{number}"), &session(number), "help")).await;
    }
    gateway.kill();
    fs::write(home.state().join("workspace/go"), "").unwrap();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    for number in 0..200 {
        assert_eq!(gateway.wait(&format!("k{number}")).await["status"], "ok");
    }
    let lines: BTreeMap<u64, Vec<u64>> = transcripts(&home)
        .iter()
        .filter_map(|transcript| {
            let keys: Vec<u64> = messages_of("user", transcript).iter().filter_map(number_of).collect();
            Some((*keys.first()?, keys))
        })
        .collect();
    let expected = (0..20).map(|first| (first, (first..200).step_by(20).collect())).collect();
    assert_eq!(lines, expected);
}

/// Returns the number in a message's key, such as `k7:user`.
fn number_of(message: &Value) -> Option<u64> {
    message["idempotencyKey"].as_str()?.strip_prefix('k')?.strip_suffix(":user")?.parse().ok()
}

#[tokio::test]
async fn r6_a_key_means_the_same_run_before_and_after_a_kill() {
    let home = Home::new();
    let wait_for_signal = run_signal(&home);
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    let slow = run("slow", "s", "run `echo ready > doorbell; until [ -e go ]; do sleep 0.01; done`");
    let quick = run("quick", "other", "help");
    gateway.accept(&slow).await;
    assert_eq!(wait_for_signal(), "ready\n");
    let id = gateway.accept(&quick).await;
    let end = gateway.answer(&id).await["payload"].clone();
    gateway.kill();
    fs::write(home.state().join("workspace/go"), "").unwrap();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    for (key, session) in [("slow", "s"), ("quick", "other")] {
        let id = gateway.ask("agent", &run(key, session, "something else")).await;
        let refused = gateway.answer(&id).await["error"]["message"].as_str().unwrap().to_owned();
        assert!(refused.starts_with("idempotency_conflict"), "{refused}");
    }
    let id = gateway.ask("agent", &quick).await;
    assert_eq!(gateway.answer(&id).await["payload"], end);
    let ended = gateway.wait("slow").await;
    let id = gateway.ask("agent", &slow).await;
    assert_eq!((&ended["status"], &gateway.answer(&id).await["payload"]["status"]), (&json!("ok"), &json!("ok")));
    let messages = transcripts(&home).concat();
    assert_eq!(messages_of("user", &messages).len(), 2);
}

#[tokio::test]
async fn r7_an_effect_in_progress_during_a_kill_is_not_repeated() {
    let home = Home::new();
    let wait_for_signal = run_signal(&home);
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    let command = "echo once >> count.txt; echo ready > doorbell; until [ -e go ]; do sleep 0.01; done";
    gateway.accept(&run("k", "s", &format!("run `{command}`"))).await;
    assert_eq!(wait_for_signal(), "ready\n");
    gateway.kill();
    let workspace = home.state().join("workspace");
    fs::write(workspace.join("go"), "").unwrap();
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    assert_eq!(gateway.wait("k").await["status"], "ok");
    assert_eq!(fs::read_to_string(workspace.join("count.txt")).unwrap(), "once\n");
    let results = messages_of("toolResult", &transcripts(&home).concat());
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["isError"], json!(true));
    let text = results[0]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("not known"), "{text}");
}

// R82.
#[tokio::test]
async fn a_takeover_ends_a_hanging_gateway_and_continues_its_runs() {
    let home = Home::new();
    let wait_for_signal = run_signal(&home);
    let mut first = GatewayUnderTest::begin(&home, &[]).await;
    first.accept(&run("k", "s", "run `echo ready > doorbell; until [ -e go ]; do sleep 0.01; done`")).await;
    assert_eq!(wait_for_signal(), "ready\n");
    first.process.signal(Signal::STOP);
    let refused = home.run(&["gateway", "run", "--port", "0"]);
    let expected = format!("is in use by process {}", first.process.0.id());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    let mut second = GatewayUnderTest::begin(&home, &["--takeover"]).await;
    fs::write(home.state().join("workspace/go"), "").unwrap();
    assert_eq!(second.wait("k").await["status"], "ok");
    let status = first.process.0.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

/// Kills a gateway three times, the last time with an active run, whose command then ends.
async fn crash_three_times(home: &Home) {
    for _ in 0..2 {
        GatewayUnderTest::begin(home, &[]).await.kill();
    }
    let wait_for_signal = run_signal(home);
    let mut gateway = GatewayUnderTest::begin(home, &[]).await;
    gateway.accept(&run("k", "s", "run `echo ready > doorbell; until [ -e go ]; do sleep 0.01; done`")).await;
    assert_eq!(wait_for_signal(), "ready\n");
    gateway.kill();
    fs::write(home.state().join("workspace/go"), "").unwrap();
}

// D72: repeated power failures do not make a run bad.
#[tokio::test]
async fn after_three_crashes_a_run_active_at_only_one_of_them_continues() {
    let home = Home::new();
    crash_three_times(&home).await;
    let gateway = home.gateway();
    let params = r#"{"runId": "k", "timeoutMs": 60000}"#;
    let waited = gateway.run(&["gateway", "call", "agent.wait", "--params", params]).json();
    assert_eq!(waited["status"], "ok");
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    assert_eq!(gateway.run(&["runs", "held"]).stdout, "no run is held\n");
    assert_eq!(gateway.run(&["health", "--json"]).json()["notice"], json!(null));
}

#[tokio::test]
async fn a_local_turn_reports_unfinished_runs_of_other_sessions() {
    let home = Home::new();
    crash_three_times(&home).await;
    let output = home.run(&["agent", "--local", "--session-key", "other", "-m", "What files are here?"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let expected = "(1 unfinished run in other sessions; start the gateway to continue: homard gateway)\n";
    assert!(output.stderr.starts_with(expected), "{}", output.stderr);
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    assert_eq!(gateway.wait("k").await["status"], "ok");
}

#[tokio::test]
async fn read_only_commands_do_not_count_as_crashes() {
    let home = Home::new();
    home.run(&["agent", "-m", "What time is it?"]);
    for _ in 0..5 {
        assert_eq!(home.run(&["sessions"]).code, Some(0));
    }
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["health", "--json"]).json().get("notice"), None);
}
