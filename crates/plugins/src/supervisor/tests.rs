//! Processes that hang, exit, flood, send invalid data, use too much memory or ignore signals, and the effect on
//! callers.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use crate::{host::NoHost, host_api::UncaughtErrors, process::environment, rpc};

/// A plugin in shell: what it does on `go`, and before the first request.
struct Shell {
    before: &'static str,
    go: &'static str,
    dir: std::path::PathBuf,
}

/// Responds to everything but `go` with an empty object.
const LOOP: &str = r#"
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"method":"go"'*) GO ;;
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
        let script = format!("{}\n{}", self.before, LOOP.replace("GO", self.go));
        let path = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let (env, run) = (environment(&path, std::iter::empty()), ["sh", "-c", script.as_str()].map(str::to_owned));
        Ok(ProcessSpec { name: "shell".to_owned(), run: run.into(), dir: self.dir.clone(), env, memory_mb: Some(256) })
    }

    async fn initialise(&self, link: &RpcSession, within: Duration) -> Result<LoadedPlugins, InitError> {
        let paper = CallParams::plain(&json!({})).map_err(|error| InitError::Retry(error.to_string()))?;
        let answer = link.call("initialize", &paper.params, within, None).await;
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

fn house(before: &'static str, go: &'static str) -> SupervisorFixture {
    house_with(quick(), before, go)
}

fn house_with(timing: ProcessTiming, before: &'static str, go: &'static str) -> SupervisorFixture {
    let folder = tempfile::tempdir().unwrap();
    let launch = Shell { before, go, dir: folder.path().to_owned() };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let worker = ProcessSupervisor::new(Box::new(launch), timing, stop.clone(), &tasks);
    SupervisorFixture { worker, stop, tasks, folder }
}

impl SupervisorFixture {
    async fn go(&self, within: Duration) -> Result<Value, Error> {
        self.ask("go", within).await
    }

    async fn ask(&self, method: &str, within: Duration) -> Result<Value, Error> {
        self.send(method, within, Delivery::AtMostOnce).await
    }

    async fn send(&self, method: &str, within: Duration, delivery: Delivery) -> Result<Value, Error> {
        let question = PluginCall { plugin: "shell", method, timeout: within, delivery, on_progress: None };
        self.worker.call(question, |_| CallParams::plain(&json!({}))).await
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

fn is_down(life: &ProcessLife) -> bool {
    matches!(life, ProcessLife::Down { .. })
}

/// Up, with another process id.
fn is_other(before: Pid) -> impl FnMut(&ProcessLife) -> bool {
    let before = before.as_raw_nonzero().get().cast_unsigned();
    move |life| matches!(life, ProcessLife::Up(up) if up.session.pid() != Some(before))
}

fn is_running(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

fn pid_in(file: &Path) -> Pid {
    Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn a_process_is_started_when_it_is_first_asked_and_ends_with_the_house() {
    let house = house("", "printf '{\"id\":%s,\"result\":7}\\n' \"$id\"");
    assert!(matches!(*house.worker.state().borrow(), ProcessLife::Off));
    assert_eq!(house.go(LONG).await, Ok(json!(7)));
    let pid = house.pid().await;
    assert!(is_running(pid));
    house.close().await;
    assert!(!is_running(pid));
}

#[tokio::test]
async fn one_that_hangs_is_late_then_missed_by_its_ping_and_started_again() {
    let house = house("", "while :; do sleep 1000; done");
    house.ask("warm", LONG).await.unwrap();
    let pid = house.pid().await;
    let begun = Instant::now();
    assert_eq!(house.go(SHORT).await, Err(Error::Timeout(SHORT)));
    assert!(begun.elapsed() < SHORT * 5, "{:?}", begun.elapsed());
    house.is(is_other(pid)).await;
    assert!(!is_running(pid));
    assert_eq!(house.ask("more", LONG).await, Ok(json!({})));
    house.close().await;
}

#[tokio::test]
async fn one_that_fails_three_times_within_a_minute_is_left_alone() {
    let house = house("", "while :; do sleep 1000; done");
    house.ask("warm", LONG).await.unwrap();
    let mut failures = 0;
    while house.worker.breaker_open_for("shell").is_none() {
        house.go(SHORT).await.unwrap_err();
        failures += 1;
    }
    assert!(failures >= 3, "{failures}");
    let refused = house.ask("more", LONG).await.unwrap_err();
    assert!(refused.to_string().starts_with("the plugin failed too often and is suspended for"), "{refused}");
    house.close().await;
}

#[tokio::test]
async fn one_that_ends_takes_its_calls_with_it_and_nobody_elses() {
    let (ends, stays) =
        (house("", "echo broken >&2; exit 3"), house("", "printf '{\"id\":%s,\"result\":1}\\n' \"$id\""));
    let first = ends.pid().await;
    let (ended, stayed) = tokio::join!(ends.go(LONG), stays.go(LONG));
    let why = "the plugin process exited with status 3; its last line on stderr: broken";
    assert_eq!((ended, stayed), (Err(Error::Unavailable(why.to_owned())), Ok(json!(1))));
    ends.is(is_other(first)).await;
    assert_eq!(ends.ask("more", LONG).await, Ok(json!({})));
    ends.close().await;
    stays.close().await;
}

#[tokio::test]
async fn a_flood_ends_the_process_and_not_the_house() {
    let floods = house("", "while :; do echo nonsense; done");
    let why = "the plugin wrote more than 1000 lines to stdout that are not protocol messages";
    assert_eq!(floods.go(LONG).await, Err(Error::Unavailable(why.to_owned())));
    floods.close().await;
    let floods = house("", "while :; do echo '{\"method\":\"log\",\"params\":{}}'; done");
    let why = "the plugin sent more than 20000 unsolicited messages";
    assert_eq!(floods.go(LONG).await, Err(Error::Unavailable(why.to_owned())));
    floods.close().await;
    // Part of a line is not a response. Oversized lines are tested below.
    let floods = house("", "head -c 4000000 /dev/zero; while :; do sleep 1; done");
    assert_eq!(floods.go(SHORT).await, Err(Error::Timeout(SHORT)));
    floods.is(is_down).await;
    floods.close().await;
}

#[tokio::test]
async fn one_that_asks_and_asks_and_does_not_read_is_not_read_either_and_missed_by_its_ping() {
    let asks = house("", "while :; do echo '{\"id\":1,\"method\":\"no.such\"}'; done");
    asks.ask("warm", LONG).await.unwrap();
    assert_eq!(asks.go(SHORT).await, Err(Error::Timeout(SHORT)));
    asks.is(is_down).await;
    let ProcessLife::Down { why, .. } = asks.worker.state().borrow().clone() else { panic!("it is up again") };
    // If it had been read continuously, it would have been ended for what it sent.
    assert_eq!(why, "the plugin process did not answer a ping within 300 ms");
    asks.close().await;
}

#[tokio::test]
async fn whoever_asks_too_much_is_refused_in_order_and_can_go_on() {
    let go = "for i in 1 2 3; do echo '{\"id\":\"q'$i'\",\"method\":\"no.such\"}'; IFS= read -r said; \
              printf '%s\\n' \"$said\" >> said; done; printf '{\"id\":%s,\"result\":1}\\n' \"$id\"";
    let house = house("", go);
    assert_eq!(house.go(LONG).await, Ok(json!(1)));
    let refusal = |number: u8| {
        rpc::error_response(&json!(format!("q{number}")), rpc::UNKNOWN_METHOD, "unknown method \"no.such\"")
    };
    let said = fs::read_to_string(house.folder.path().join("said")).unwrap();
    assert_eq!(said, [1, 2, 3].map(refusal).concat());
    house.close().await;
}

#[tokio::test]
async fn who_waits_for_an_answer_that_is_too_long_is_told_at_once() {
    let go = "printf '{\"id\":%s,\"result\":\"' \"$id\"; head -c 9000000 /dev/zero | tr '\\0' x; printf '\"}\\n'";
    let house = house("", go);
    let pid = house.pid().await;
    let why =
        "the plugin wrote a line of more than 8 MiB, which was discarded; if it was a response, it must be shorter";
    assert_eq!(house.go(LONG).await, Err(Error::Failed(why.to_owned())));
    assert_eq!(house.ask("more", LONG).await, Ok(json!({})));
    assert_eq!(house.pid().await, pid, "it is still the same");
    house.close().await;
}

#[tokio::test]
async fn some_garbage_is_borne() {
    let go =
        "for i in 1 2 3; do echo hello; done; printf '[]\\n\\377\\n'; printf '{\"id\":%s,\"result\":1}\\n' \"$id\"";
    let house = house("echo starting", go);
    assert_eq!(house.go(LONG).await, Ok(json!(1)));
    house.close().await;
}

#[tokio::test]
async fn a_process_has_only_so_much_memory() {
    let go = "awk 'BEGIN { s = \"x\"; while (length(s) < 2^30) s = s s; print length(s) > \"/dev/null\" }' 2>/dev/null \
              && r=all || r=limited; printf '{\"id\":%s,\"result\":\"%s\"}\\n' \"$id\" $r";
    let house = house("", go);
    assert_eq!(house.go(LONG).await, Ok(json!("limited")));
    house.close().await;
}

#[tokio::test]
async fn one_that_does_not_want_to_go_goes_with_all_that_it_has_started() {
    let before = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1000; done' & \
                  until [ -s child ]; do sleep 0.01; done";
    let house = house(before, "");
    house.ask("warm", LONG).await.unwrap();
    let (pid, child) = (house.pid().await, pid_in(&house.folder.path().join("child")));
    assert!(is_running(pid) && is_running(child));
    house.close().await;
    assert!(!is_running(pid) && !is_alive(child));
}

/// True if it runs: a killed orphan may stay a zombie for a while.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_hundred_times_killed_and_started_again_leave_no_process() {
    let house = house("sleep 1000 & setsid sleep 1000 & echo $! > child", "");
    let mut seen = Vec::new();
    for _ in 0..100 {
        let pid = house.pid().await;
        seen.extend([pid, pid_in(&house.folder.path().join("child"))]);
        kill_process(pid, Signal::KILL).unwrap();
        house.is(is_other(pid)).await;
    }
    house.close().await;
    assert_eq!(seen.iter().filter(|pid| is_alive(**pid)).count(), 0);
    let ours = seen.iter().step_by(2).collect::<std::collections::HashSet<_>>().len();
    assert!(ours > 90, "{ours} processes of a hundred");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_is_taken_back() {
    let go = "IFS= read -r line; printf '%s' \"$line\" > taken.new; mv taken.new taken; printf '{\"id\":99,\"result\":1}\\n'";
    let house = house("", go);
    assert_eq!(house.go(Duration::from_millis(500)).await, Err(Error::Timeout(Duration::from_millis(500))));
    // The next response comes after that.
    house.ask("more", LONG).await.unwrap();
    let taken = fs::read_to_string(house.folder.path().join("taken")).unwrap();
    assert_eq!(taken, r#"{"jsonrpc":"2.0","method":"$/cancel","params":{"id":2}}"#);
    house.close().await;
}

#[tokio::test]
async fn what_cannot_be_started_says_so_and_is_tried_again_when_somebody_asks() {
    let house = house("exit 5", "");
    let why = house.go(LONG).await.unwrap_err();
    assert!(why.to_string().starts_with("the plugin process exited with status 5"), "{why}");
    house.is(|life| matches!(life, ProcessLife::Off)).await;
    assert!(house.go(LONG).await.is_err());
    house.close().await;
}

#[tokio::test]
async fn a_service_is_started_again_with_its_process() {
    let house = house("", "");
    let service = RegistrationAddress {
        plugin: "shell".to_owned(),
        kind: RegistrationKind::Service,
        name: "s".to_owned(),
        nth: 0,
    };
    house.worker.start_service(&service, json!({"stateDir": "x"})).await.unwrap();
    let (log, begun) = (house.folder.path().join("services"), house.pid().await);
    let line = "{\"stateDir\":\"x\"}\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), line);
    kill_process(begun, Signal::KILL).unwrap();
    house.is(is_other(begun)).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), line.repeat(2));
    house.worker.stop_service(&service).await;
    house.close().await;
}

#[tokio::test]
async fn who_asks_while_the_process_is_started_again_waits_for_it() {
    let waits = Duration::from_millis(200);
    let house = house_with(ProcessTiming { backoff: waits, longest_backoff: waits, ..quick() }, "", "");
    house.ask("warm", LONG).await.unwrap();
    kill_process(house.pid().await, Signal::KILL).unwrap();
    house.is(is_down).await;
    // Acceptance D9: a request made now is not lost.
    assert_eq!(house.ask("more", LONG).await, Ok(json!({})));
    // A call with less time than the restart takes fails at once, and its plugin is not blamed.
    kill_process(house.pid().await, Signal::KILL).unwrap();
    house.is(is_down).await;
    for _ in 0..4 {
        let refused = house.ask("more", Duration::from_millis(1)).await.unwrap_err();
        assert!(matches!(&refused, Error::Unavailable(why) if why.contains("next start in")), "{refused}");
    }
    assert_eq!(house.worker.breaker_open_for("shell"), None);
    assert_eq!(house.ask("more", LONG).await, Ok(json!({})));
    house.close().await;
}

#[tokio::test]
async fn a_question_that_a_dead_process_could_not_read_is_asked_of_the_next_one() {
    let house = house("", "");
    house.ask("warm", LONG).await.unwrap();
    for _ in 0..20 {
        let pid = house.pid().await;
        kill_process(pid, Signal::KILL).unwrap();
        // It is dead, and the supervisor may not know it yet.
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
        assert_eq!(house.ask("more", LONG).await, Ok(json!({})));
    }
    house.close().await;
}

#[tokio::test]
async fn an_event_that_a_process_read_and_did_not_answer_is_sent_to_the_next_one() {
    let go = "echo x >> read; [ -e died ] || { : > died; kill -9 $$; }; printf '{\"id\":%s,\"result\":7}\\n' \"$id\"";
    // Acceptance D9: it counts as delivered when it was answered, not when it was written.
    let house = house("", go);
    house.ask("warm", LONG).await.unwrap();
    assert_eq!(house.send("go", LONG, Delivery::AtLeastOnce).await, Ok(json!(7)));
    assert_eq!((house.count(), house.worker.breaker_open_for("shell")), (2, None));
    house.close().await;
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_sent_once() {
    let house = house("", "echo x >> read; kill -9 $$");
    house.ask("warm", LONG).await.unwrap();
    assert!(matches!(house.go(LONG).await, Err(Error::Unavailable(_))));
    assert_eq!(house.count(), 1);
    house.close().await;
}

#[tokio::test]
async fn an_event_that_ends_every_process_is_given_up_and_its_plugin_left_alone() {
    let house = house("", "echo x >> read; kill -9 $$");
    house.ask("warm", LONG).await.unwrap();
    let refused = house.send("go", LONG, Delivery::AtLeastOnce).await.unwrap_err();
    assert!(refused.to_string().starts_with("the plugin failed too often and is suspended for"), "{refused}");
    assert_eq!(house.count(), 3);
    house.close().await;
}

#[tokio::test]
async fn an_event_is_not_sent_again_when_its_time_is_over() {
    let waits = Duration::from_secs(30);
    let house = house_with(
        ProcessTiming { backoff: waits, longest_backoff: waits, ..quick() },
        "",
        "echo x >> read; kill -9 $$",
    );
    house.ask("warm", LONG).await.unwrap();
    let begun = Instant::now();
    let refused = house.send("go", LONG, Delivery::AtLeastOnce).await.unwrap_err();
    assert!(refused.to_string().contains("next start in 30 s"), "{refused}");
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_eq!(house.count(), 1);
    house.close().await;
}
