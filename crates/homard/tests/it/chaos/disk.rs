//! R10 and R11: a disk that fails, and one that is full.
//!
//! `GRID=all` lets each of the first fifty syncs fail, and fills the disk twenty times.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    chaos::gateway::{GatewayUnderTest, TracedGateway, is_long, messages_of, run, run_signal_in, transcripts},
    home::{Home, Process},
};

/// Returns when a traced call began, in seconds since the epoch.
fn time(line: &str) -> f64 {
    line.split_whitespace().nth(1).and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("no time: {line}"))
}

/// Returns true if a line of a trace is a failed sync of a file with runs and messages. SQLite continues after a failed
/// sync of a directory, and a session list that could not be written is written again.
fn matters(line: &str) -> bool {
    line.contains("(INJECTED)") && [".db>", "-wal>", ".jsonl>"].iter().any(|ending| line.contains(ending))
}

/// The result of failing syncs.
#[derive(Debug, Default)]
struct FailedSync {
    accepted: usize,
    /// Gateways that ended before they listened.
    at_start: usize,
    /// Maximum time that a gateway continued after the failure.
    lived_on: Duration,
}

impl FailedSync {
    /// Lets the nth sync of each thread fail. `None` without `strace`.
    async fn at(&mut self, sync: usize) -> Option<()> {
        let home = Home::new();
        GatewayUnderTest::begin(&home, &[]).await.kill();
        let file = home.work().join("trace.txt");
        let inject = format!("inject=fdatasync,fsync:error=EIO:when={sync}");
        let calls = "trace=fdatasync,fsync,sendto";
        let strace_args = ["-ttt", "-y", "-s", "200", "-e", calls, "-e", &inject, "-o", file.to_str().unwrap()];
        let (gateway, stderr) = TracedGateway::begin(&home, &strace_args)?.listen(&home).await;
        let mut accepted = Vec::new();
        let (mut process, code) = match gateway {
            Ok(mut gateway) => {
                for number in 0..500 {
                    let key = format!("k{number}");
                    // The gateway may be gone before the next request.
                    let Some(id) = gateway.try_ask("agent", &run(&key, "s", "help")).await else { break };
                    match gateway.first_answer(&id).await {
                        Some(answer) if answer["payload"]["status"] == "accepted" => accepted.push(key),
                        Some(_) | None => break,
                    }
                }
                (gateway.process, 74)
            }
            // The message may differ if it cannot even start.
            Err(process) => (process, 1),
        };
        let stderr = stderr.join().unwrap();
        assert_eq!(process.0.wait().unwrap().code(), Some(code), "sync {sync}: {stderr}");
        assert!(
            stderr.contains("error: I/O error while writing ") || stderr.contains("error: cannot sync "),
            "{stderr}"
        );
        self.look(&fs::read_to_string(file).unwrap());
        let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
        for key in &accepted {
            assert_eq!(gateway.wait(key).await["status"], "ok", "sync {sync}, {key}");
        }
        self.accepted += accepted.len();
        self.at_start += usize::from(code == 1);
        Some(())
    }

    /// Checks that nothing was accepted after the failure, and how long the gateway continued.
    fn look(&mut self, trace: &str) {
        let lines: Vec<_> = trace.lines().collect();
        let failed = lines.iter().position(|line| matters(line));
        let failed = failed.or_else(|| lines.iter().rposition(|line| line.contains("(INJECTED)")));
        let after = &lines[failed.unwrap_or_else(|| panic!("it ended, and no sync had failed:\n{trace}"))..];
        // The client sends one run after the other. The response to one that was already stored may still be sent.
        let late = after.iter().filter(|line| line.contains(r#"\"status\":\"accepted\""#)).count();
        assert!(late <= 1, "accepted after a failure:\n{trace}");
        let lived_on = time(after[after.len() - 1]) - time(after[0]);
        self.lived_on = self.lived_on.max(Duration::from_secs_f64(lived_on));
    }
}

#[tokio::test]
async fn r10_a_failed_sync_ends_the_gateway_and_no_accepted_run_is_lost() {
    let syncs = if is_long() { (1..=50).collect() } else { vec![12, 17, 24] };
    let mut failed = FailedSync::default();
    for sync in &syncs {
        if failed.at(*sync).await.is_none() {
            crate::home::skip("r10", "strace is not installed, or this is not root");
            return;
        }
    }
    println!("{} syncs failed: {failed:?}", syncs.len());
    assert!(failed.accepted > 0);
    assert!(!is_long() || failed.lived_on < Duration::from_secs(1), "{failed:?}");
}

/// Size of the small disk: space for what is kept free for active runs (5 %), for the reserve, and for some runs.
const SIZE: u64 = 128 * 1024 * 1024;

/// Starts a gateway with its own private disk, and returns its path. `None` if that is impossible here.
async fn on_a_small_disk(home: &Home) -> Option<(GatewayUnderTest, PathBuf)> {
    fs::create_dir(home.state()).unwrap();
    let mount = format!("mount -t tmpfs -o size={SIZE} homard \"$HOMARD_STATE_DIR\"");
    let plain = home.command(&["gateway", "run", "--port", "0", "--recover"]);
    let unshared = |script: &str, rights: &str| {
        let mut command = Command::new("unshare");
        command.args([rights, "sh", "-c", script, "sh"]).arg(plain.get_program()).args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(home.work());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let can_mount = |rights: &&str| unshared(&mount, rights).status().is_ok_and(|status| status.success());
    let rights = ["-rm", "-m"].into_iter().find(can_mount)?;
    let process = Process(unshared(&format!("{mount} && exec \"$@\""), rights).spawn().unwrap());
    let root = Path::new("/proc").join(process.0.id().to_string()).join("root");
    let state = root.join(home.state().strip_prefix("/").unwrap());
    Some((GatewayUnderTest::of(home, process).await.ok().expect("it ended before it listened"), state))
}

/// Fills a disk except for this many bytes.
fn fill(path: &Path, reserve: u64) {
    let stats = rustix::fs::statvfs(path.parent().unwrap()).unwrap();
    let mut remaining = (stats.f_bavail * stats.f_frsize).saturating_sub(reserve);
    let mut file = fs::File::create(path).unwrap();
    let block = [b'x'; 64 * 1024];
    while remaining > 0 {
        let next = remaining.min(block.len() as u64);
        // The gateway writes meanwhile, so the disk may be full earlier than computed.
        if file.write_all(&block[..next as usize]).is_err() {
            return;
        }
        remaining -= next;
    }
}

/// The runs of a gateway on a small disk.
struct Sender {
    gateway: GatewayUnderTest,
    accepted: Vec<String>,
    refused: usize,
}

impl Sender {
    /// Sends a run; false if it is rejected for lack of space.
    async fn send(&mut self, message: &str) -> bool {
        let key = format!("k{}", self.accepted.len() + self.refused);
        // Several sessions, so that no queue limit is reached.
        let session = (self.accepted.len() / 500 + self.refused) % 5;
        let id = self.gateway.ask("agent", &run(&key, &format!("s{session}"), message)).await;
        let answer = self.gateway.answer(&id).await;
        if answer["payload"]["status"] == "accepted" {
            self.accepted.push(key);
            return true;
        }
        let message_text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message_text.contains("disk_full: ") && message_text.contains("free some space"), "{answer}");
        assert_eq!(answer["error"]["code"], "UNAVAILABLE", "{answer}");
        self.refused += 1;
        false
    }

    /// Fills the disk and frees it again; returns how long it then took until a run was accepted.
    async fn cycle(&mut self, state: &Path, reserve: u64, wait_for_signal: &impl Fn() -> String) -> Duration {
        let before = self.accepted.len();
        let go_file = format!("go-{before}");
        let (filler, command) = (state.join("filler"), format!("until [ -e {go_file} ]; do sleep 0.01; done"));
        assert!(self.send(&format!("run `echo ready > doorbell; {command}`")).await);
        assert_eq!(wait_for_signal(), "ready\n");
        let active_run = self.accepted.last().unwrap().clone();
        fill(&filler, reserve);
        while self.send("help").await {}
        fs::write(state.join("workspace").join(go_file), "").unwrap();
        if reserve > 0 {
            // There is space for active runs.
            assert_eq!(self.gateway.wait(&active_run).await["status"], "ok");
        }
        fs::remove_file(&filler).unwrap();
        let freed_at = Instant::now();
        assert!(self.send("help").await, "there is room again, and a message was refused");
        let recovery_time = freed_at.elapsed();
        for key in &self.accepted[before..] {
            let end = self.gateway.wait(key).await;
            assert!(matches!(end["status"].as_str(), Some("ok" | "error")), "{key}: {end}");
        }
        recovery_time
    }
}

/// Copies a state directory, as a crash would leave it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (kind, to) = (item.file_type().unwrap(), to.join(item.file_name()));
        if kind.is_dir() {
            copy(&item.path(), &to);
        } else if kind.is_file() {
            fs::copy(item.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn r11_a_full_disk_rejects_runs_corrupts_nothing_and_recovers() {
    let home = Home::new();
    let Some((gateway, state)) = on_a_small_disk(&home).await else {
        crate::home::skip("r11", "a file system cannot be mounted here");
        return;
    };
    let wait_for_signal = run_signal_in(&state.join("workspace"));
    let mut sender = Sender { gateway, accepted: Vec::new(), refused: 0 };
    let mut slowest = Duration::ZERO;
    let cycles = if is_long() { 20 } else { 2 };
    for cycle in 0..cycles {
        // Space for active runs only, or none at all.
        let reserve = if cycle % 2 == 0 { SIZE / 25 } else { 0 };
        slowest = slowest.max(sender.cycle(&state, reserve, &wait_for_signal).await);
    }
    let Sender { mut gateway, accepted, refused } = sender;
    let mut before = Vec::<Value>::new();
    for key in &accepted {
        before.push(gateway.wait(key).await);
    }
    let failed = before.iter().filter(|end| end["status"] != "ok").count();
    println!(
        "{cycles} times full: {} accepted, {failed} of them failed, {refused} refused; healed in {slowest:?}",
        accepted.len()
    );
    gateway.process.signal(Signal::STOP);
    copy(&state, &home.state());
    gateway.kill();

    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    for (key, before) in accepted.iter().zip(&before) {
        assert_eq!(gateway.wait(key).await, *before);
    }
    let mut stored_keys: Vec<_> = messages_of("user", &transcripts(&home).concat())
        .iter()
        .map(|message| message["idempotencyKey"].as_str().unwrap().strip_suffix(":user").unwrap().to_owned())
        .collect();
    let mut expected = accepted;
    stored_keys.sort();
    expected.sort();
    assert_eq!(json!(stored_keys), json!(expected));
    assert!(!is_long() || slowest < Duration::from_secs(2), "it took {slowest:?} to heal");
}
