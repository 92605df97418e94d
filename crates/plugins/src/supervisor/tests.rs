//! Processes that hang, exit, flood, send invalid data, use too much memory or ignore signals, and the effect on
//! callers.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use crate::{host::NoHost, host_api::UncaughtErrors, process::environment, rpc};

/// A plugin written in shell.
struct Shell {
    /// Shell code that runs before the first request.
    startup_script: &'static str,
    /// Shell code that answers the request `go`.
    go_script: &'static str,
    dir: std::path::PathBuf,
}

/// Responds to every request but `go` with an empty object; `GO_SCRIPT` is replaced by the code for `go`.
const REQUEST_LOOP: &str = r#"
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"method":"go"'*) GO_SCRIPT ;;
    *'"method":"$/cancel"'*) ;;
    *'"method":"service.start"'*)
      ctx=${line#*\"ctx\":}; printf '%s\n' "${ctx%\}\}}" >> services; printf '{"id":%s,"result":{}}\n' "$id" ;;
    *) printf '{"id":%s,"result":{}}\n' "$id" ;;
  esac
done
"#;

#[async_trait]
impl Launcher for Shell {
    fn process_info(&self) -> ProcessInfo {
        ProcessInfo {
            name: "shell".to_owned(),
            is_shared: false,
            allowed_methods: Some(Vec::new()),
            host: Arc::new(NoHost),
            uncaught: UncaughtErrors::default(),
        }
    }

    async fn process_spec(&self) -> Result<ProcessSpec, String> {
        let script = format!("{}\n{}", self.startup_script, REQUEST_LOOP.replace("GO_SCRIPT", self.go_script));
        let path = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let (env, run) = (environment(&path, std::iter::empty()), ["sh", "-c", script.as_str()].map(str::to_owned));
        Ok(ProcessSpec { name: "shell".to_owned(), run: run.into(), dir: self.dir.clone(), env, memory_mb: Some(256) })
    }

    async fn initialise(&self, session: &RpcSession, timeout: Duration) -> Result<LoadedPlugins, InitError> {
        let call = CallParams::plain(&json!({})).map_err(|error| InitError::Retry(error.to_string()))?;
        let answer = session.call("initialize", &call.params, timeout, None).await;
        answer.map_err(|error| InitError::Retry(error.to_string()))?;
        let services = vec!["s".to_owned().into()];
        Ok(vec![("shell".to_owned(), Ok(Registrations { services, ..Registrations::default() }))])
    }

    fn initialised(&self, _: &LoadedPlugins) {}
}

struct SupervisorFixture {
    worker: Arc<ProcessSupervisor>,
    stop: CancellationToken,
    tasks: TaskTracker,
    folder: tempfile::TempDir,
}

/// Short timeouts and delays, so that tests are quick.
fn quick() -> ProcessTiming {
    let ms = Duration::from_millis;
    ProcessTiming {
        ping_within: ms(300),
        backoff: ms(1),
        longest_backoff: ms(2),
        grace: ms(300),
        ..ProcessTiming::default()
    }
}

fn shell_fixture(startup_script: &'static str, go_script: &'static str) -> SupervisorFixture {
    shell_fixture_with(quick(), startup_script, go_script)
}

fn shell_fixture_with(
    timing: ProcessTiming,
    startup_script: &'static str,
    go_script: &'static str,
) -> SupervisorFixture {
    let folder = tempfile::tempdir().unwrap();
    let launch = Shell { startup_script, go_script, dir: folder.path().to_owned() };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let worker = ProcessSupervisor::new(Box::new(launch), timing, stop.clone(), &tasks);
    SupervisorFixture { worker, stop, tasks, folder }
}

impl SupervisorFixture {
    async fn go(&self, timeout: Duration) -> Result<Value, Error> {
        self.ask("go", timeout).await
    }

    async fn ask(&self, method: &str, timeout: Duration) -> Result<Value, Error> {
        self.send(method, timeout, Delivery::AtMostOnce).await
    }

    async fn send(&self, method: &str, timeout: Duration, delivery: Delivery) -> Result<Value, Error> {
        let call = PluginCall { plugin: "shell", method, timeout, delivery, on_progress: None };
        self.worker.call(call, |_| CallParams::plain(&json!({}))).await
    }

    /// How often `go` was read, by all processes.
    fn count(&self) -> usize {
        fs::read_to_string(self.folder.path().join("read")).unwrap_or_default().lines().count()
    }

    async fn pid(&self) -> Pid {
        let pid = self.worker.up().await.unwrap().session.pid().unwrap();
        Pid::from_raw(pid.cast_signed()).unwrap()
    }

    async fn is(&self, wanted: impl FnMut(&ProcessLife) -> bool) {
        self.worker.state().wait_for(wanted).await.unwrap();
    }

    async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

fn is_down(state: &ProcessLife) -> bool {
    matches!(state, ProcessLife::Down { .. })
}

/// Up, with another process id.
fn is_other(before: Pid) -> impl FnMut(&ProcessLife) -> bool {
    let before = before.as_raw_nonzero().get().cast_unsigned();
    move |state| matches!(state, ProcessLife::Up(process) if process.session.pid() != Some(before))
}

fn is_running(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

fn pid_in(file: &Path) -> Pid {
    Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn a_process_starts_on_first_use_and_ends_at_shutdown() {
    let fixture = shell_fixture("", "printf '{\"id\":%s,\"result\":7}\\n' \"$id\"");
    assert!(matches!(*fixture.worker.state().borrow(), ProcessLife::Off));
    assert_eq!(fixture.go(LONG).await, Ok(json!(7)));
    let pid = fixture.pid().await;
    assert!(is_running(pid));
    fixture.close().await;
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_hanging_process_times_out_fails_its_ping_and_is_restarted() {
    let fixture = shell_fixture("", "while :; do sleep 1000; done");
    fixture.ask("warm", LONG).await.unwrap();
    let pid = fixture.pid().await;
    let start = Instant::now();
    assert_eq!(fixture.go(SHORT).await, Err(Error::Timeout(SHORT)));
    assert!(start.elapsed() < SHORT * 5, "{:?}", start.elapsed());
    fixture.is(is_other(pid)).await;
    assert!(!is_running(pid));
    assert_eq!(fixture.ask("more", LONG).await, Ok(json!({})));
    fixture.close().await;
}

#[tokio::test]
async fn a_plugin_that_fails_three_times_within_a_minute_is_suspended() {
    let fixture = shell_fixture("", "while :; do sleep 1000; done");
    fixture.ask("warm", LONG).await.unwrap();
    let mut failures = 0;
    while fixture.worker.breaker_open_for("shell").is_none() {
        fixture.go(SHORT).await.unwrap_err();
        failures += 1;
    }
    assert!(failures >= 3, "{failures}");
    let refused = fixture.ask("more", LONG).await.unwrap_err();
    assert!(refused.to_string().starts_with("the plugin failed too often and is suspended for"), "{refused}");
    fixture.close().await;
}

#[tokio::test]
async fn the_exit_of_a_process_fails_only_its_own_calls() {
    let (exiting, surviving) = (
        shell_fixture("", "echo broken >&2; exit 3"),
        shell_fixture("", "printf '{\"id\":%s,\"result\":1}\\n' \"$id\""),
    );
    let first = exiting.pid().await;
    let (exit_result, survivor_result) = tokio::join!(exiting.go(LONG), surviving.go(LONG));
    let expected = "the plugin process exited with status 3; its last line on stderr: broken";
    assert_eq!((exit_result, survivor_result), (Err(Error::Unavailable(expected.to_owned())), Ok(json!(1))));
    exiting.is(is_other(first)).await;
    assert_eq!(exiting.ask("more", LONG).await, Ok(json!({})));
    exiting.close().await;
    surviving.close().await;
}

// R68.
#[tokio::test]
async fn a_flood_of_output_ends_only_that_process() {
    let flooding = shell_fixture("", "while :; do echo nonsense; done");
    let expected = "the plugin wrote more than 1000 lines to stdout that are not protocol messages";
    assert_eq!(flooding.go(LONG).await, Err(Error::Unavailable(expected.to_owned())));
    flooding.close().await;
    let flooding = shell_fixture("", "while :; do echo '{\"method\":\"log\",\"params\":{}}'; done");
    let expected = "the plugin sent more than 20000 unsolicited messages";
    assert_eq!(flooding.go(LONG).await, Err(Error::Unavailable(expected.to_owned())));
    flooding.close().await;
    // Part of a line is not a response. Oversized lines are tested below.
    let flooding = shell_fixture("", "head -c 4000000 /dev/zero; while :; do sleep 1; done");
    assert_eq!(flooding.go(SHORT).await, Err(Error::Timeout(SHORT)));
    flooding.is(is_down).await;
    flooding.close().await;
}

#[tokio::test]
async fn a_process_that_floods_requests_without_reading_fails_its_ping() {
    let requesting = shell_fixture("", "while :; do echo '{\"id\":1,\"method\":\"no.such\"}'; done");
    requesting.ask("warm", LONG).await.unwrap();
    assert_eq!(requesting.go(SHORT).await, Err(Error::Timeout(SHORT)));
    requesting.is(is_down).await;
    let ProcessLife::Down { why, .. } = requesting.worker.state().borrow().clone() else { panic!("it is up again") };
    // If it had been read continuously, it would have been ended for what it sent.
    assert_eq!(why, "the plugin process did not answer a ping within 300 ms");
    requesting.close().await;
}

#[tokio::test]
async fn excess_requests_are_rejected_in_order_and_the_process_continues() {
    let script = "for i in 1 2 3; do echo '{\"id\":\"q'$i'\",\"method\":\"no.such\"}'; IFS= read -r said; \
              printf '%s\\n' \"$said\" >> said; done; printf '{\"id\":%s,\"result\":1}\\n' \"$id\"";
    let fixture = shell_fixture("", script);
    assert_eq!(fixture.go(LONG).await, Ok(json!(1)));
    let refusal = |number: u8| {
        rpc::error_response(&json!(format!("q{number}")), rpc::UNKNOWN_METHOD, "unknown method \"no.such\"")
    };
    let responses = fs::read_to_string(fixture.folder.path().join("said")).unwrap();
    assert_eq!(responses, [1, 2, 3].map(refusal).concat());
    fixture.close().await;
}

#[tokio::test]
async fn an_oversized_response_fails_its_call_at_once() {
    let script = "printf '{\"id\":%s,\"result\":\"' \"$id\"; head -c 9000000 /dev/zero | tr '\\0' x; printf '\"}\\n'";
    let fixture = shell_fixture("", script);
    let pid = fixture.pid().await;
    let expected =
        "the plugin wrote a line of more than 8 MiB, which was discarded; if it was a response, it must be shorter";
    assert_eq!(fixture.go(LONG).await, Err(Error::Failed(expected.to_owned())));
    assert_eq!(fixture.ask("more", LONG).await, Ok(json!({})));
    assert_eq!(fixture.pid().await, pid, "it is still the same");
    fixture.close().await;
}

#[tokio::test]
async fn some_malformed_output_is_tolerated() {
    let script =
        "for i in 1 2 3; do echo hello; done; printf '[]\\n\\377\\n'; printf '{\"id\":%s,\"result\":1}\\n' \"$id\"";
    let fixture = shell_fixture("echo starting", script);
    assert_eq!(fixture.go(LONG).await, Ok(json!(1)));
    fixture.close().await;
}

// R68.
#[tokio::test]
async fn the_memory_of_a_process_is_limited() {
    let script = "awk 'BEGIN { s = \"x\"; while (length(s) < 2^30) s = s s; print length(s) > \"/dev/null\" }' 2>/dev/null \
              && r=all || r=limited; printf '{\"id\":%s,\"result\":\"%s\"}\\n' \"$id\" $r";
    let fixture = shell_fixture("", script);
    assert_eq!(fixture.go(LONG).await, Ok(json!("limited")));
    fixture.close().await;
}

#[tokio::test]
async fn a_process_that_ignores_shutdown_is_killed_with_its_descendants() {
    let before = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1000; done' & \
                  until [ -s child ]; do sleep 0.01; done";
    let fixture = shell_fixture(before, "");
    fixture.ask("warm", LONG).await.unwrap();
    let (pid, child) = (fixture.pid().await, pid_in(&fixture.folder.path().join("child")));
    assert!(is_running(pid) && is_running(child));
    fixture.close().await;
    assert!(!is_running(pid) && !is_alive(child));
}

/// True if a process runs and is not a zombie. A killed orphan may stay a zombie for a while.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_hundred_restarts_leave_no_process() {
    let fixture = shell_fixture("sleep 1000 & setsid sleep 1000 & echo $! > child", "");
    let mut seen = Vec::new();
    for _ in 0..100 {
        let pid = fixture.pid().await;
        seen.extend([pid, pid_in(&fixture.folder.path().join("child"))]);
        kill_process(pid, Signal::KILL).unwrap();
        fixture.is(is_other(pid)).await;
    }
    fixture.close().await;
    assert_eq!(seen.iter().filter(|pid| is_alive(**pid)).count(), 0);
    let own_pids = seen.iter().step_by(2).collect::<std::collections::HashSet<_>>().len();
    assert!(own_pids > 90, "{own_pids} processes of a hundred");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let script = "IFS= read -r line; printf '%s' \"$line\" > taken.new; mv taken.new taken; printf '{\"id\":99,\"result\":1}\\n'";
    let fixture = shell_fixture("", script);
    assert_eq!(fixture.go(Duration::from_millis(500)).await, Err(Error::Timeout(Duration::from_millis(500))));
    // The next response comes after that.
    fixture.ask("more", LONG).await.unwrap();
    let cancellation = fs::read_to_string(fixture.folder.path().join("taken")).unwrap();
    assert_eq!(cancellation, r#"{"jsonrpc":"2.0","method":"$/cancel","params":{"id":2}}"#);
    fixture.close().await;
}

#[tokio::test]
async fn a_process_that_cannot_start_reports_why_and_is_retried_on_the_next_call() {
    let fixture = shell_fixture("exit 5", "");
    let error = fixture.go(LONG).await.unwrap_err();
    assert!(error.to_string().starts_with("the plugin process exited with status 5"), "{error}");
    fixture.is(|state| matches!(state, ProcessLife::Off)).await;
    assert!(fixture.go(LONG).await.is_err());
    fixture.close().await;
}

#[tokio::test]
async fn a_service_is_restarted_with_its_process() {
    let fixture = shell_fixture("", "");
    let service = RegistrationAddress {
        plugin: "shell".to_owned(),
        kind: RegistrationKind::Service,
        name: "s".to_owned(),
        nth: 0,
    };
    fixture.worker.start_service(&service, json!({"stateDir": "x"})).await.unwrap();
    let (log, first_pid) = (fixture.folder.path().join("services"), fixture.pid().await);
    let line = "{\"stateDir\":\"x\"}\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), line);
    kill_process(first_pid, Signal::KILL).unwrap();
    fixture.is(is_other(first_pid)).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), line.repeat(2));
    fixture.worker.stop_service(&service).await;
    fixture.close().await;
}

#[tokio::test]
async fn calls_wait_while_the_process_restarts() {
    let backoff = Duration::from_millis(200);
    let fixture = shell_fixture_with(ProcessTiming { backoff, longest_backoff: backoff, ..quick() }, "", "");
    fixture.ask("warm", LONG).await.unwrap();
    kill_process(fixture.pid().await, Signal::KILL).unwrap();
    fixture.is(is_down).await;
    // Acceptance D9: a request made now is not lost.
    assert_eq!(fixture.ask("more", LONG).await, Ok(json!({})));
    // A call with less time than the restart takes fails at once, and its plugin is not blamed.
    kill_process(fixture.pid().await, Signal::KILL).unwrap();
    fixture.is(is_down).await;
    for _ in 0..4 {
        let error = fixture.ask("more", Duration::from_millis(1)).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable(reason) if reason.contains("is started again in")), "{error}");
    }
    assert_eq!(fixture.worker.breaker_open_for("shell"), None);
    assert_eq!(fixture.ask("more", LONG).await, Ok(json!({})));
    fixture.close().await;
}

#[tokio::test]
async fn a_call_that_a_dead_process_could_not_read_is_sent_to_the_next_one() {
    let fixture = shell_fixture("", "");
    fixture.ask("warm", LONG).await.unwrap();
    for _ in 0..20 {
        let pid = fixture.pid().await;
        kill_process(pid, Signal::KILL).unwrap();
        // It is dead, and the supervisor may not know it yet.
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.ask("more", LONG).await, Ok(json!({})));
    }
    fixture.close().await;
}

#[tokio::test]
async fn an_unanswered_event_is_sent_to_the_next_process() {
    let script =
        "echo x >> read; [ -e died ] || { : > died; kill -9 $$; }; printf '{\"id\":%s,\"result\":7}\\n' \"$id\"";
    // Acceptance D9: it counts as delivered when it was answered, not when it was written.
    let fixture = shell_fixture("", script);
    fixture.ask("warm", LONG).await.unwrap();
    assert_eq!(fixture.send("go", LONG, Delivery::AtLeastOnce).await, Ok(json!(7)));
    assert_eq!((fixture.count(), fixture.worker.breaker_open_for("shell")), (2, None));
    fixture.close().await;
}

#[tokio::test]
async fn an_at_most_once_call_is_sent_once() {
    let fixture = shell_fixture("", "echo x >> read; kill -9 $$");
    fixture.ask("warm", LONG).await.unwrap();
    assert!(matches!(fixture.go(LONG).await, Err(Error::Unavailable(_))));
    assert_eq!(fixture.count(), 1);
    fixture.close().await;
}

#[tokio::test]
async fn an_event_that_crashes_every_process_is_dropped_and_its_plugin_suspended() {
    let fixture = shell_fixture("", "echo x >> read; kill -9 $$");
    fixture.ask("warm", LONG).await.unwrap();
    let refused = fixture.send("go", LONG, Delivery::AtLeastOnce).await.unwrap_err();
    assert!(refused.to_string().starts_with("the plugin failed too often and is suspended for"), "{refused}");
    assert_eq!(fixture.count(), 3);
    fixture.close().await;
}

#[tokio::test]
async fn an_event_is_not_resent_after_its_deadline() {
    let backoff = Duration::from_secs(30);
    let fixture = shell_fixture_with(
        ProcessTiming { backoff, longest_backoff: backoff, ..quick() },
        "",
        "echo x >> read; kill -9 $$",
    );
    fixture.ask("warm", LONG).await.unwrap();
    let start = Instant::now();
    let refused = fixture.send("go", LONG, Delivery::AtLeastOnce).await.unwrap_err();
    assert!(refused.to_string().contains("is started again in 30 s at the earliest"), "{refused}");
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert_eq!(fixture.count(), 1);
    fixture.close().await;
}
