//! Observability of a gateway: the audit log, the metrics, the log; and what they must not show.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Home, Process, RunningGateway, run_command, until},
    scripted_model::{ScriptedHome, call},
    socket::{Socket, connect_as, next_frame, send_frame},
};

/// Sends an HTTP request; returns the status and the body.
fn get(port: u16, path: &str, token: Option<&str>) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let auth_header = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{auth_header}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

async fn ask(socket: &mut Socket, method: &str, params: Value) -> Value {
    send_frame(socket, &json!({"type": "req", "id": method, "method": method, "params": params})).await;
    loop {
        let frame = next_frame(socket).await.unwrap();
        if frame["id"] == method {
            return frame;
        }
    }
}

/// Returns the content of the audit log's files.
fn audited(home: &Home) -> String {
    let mut files: Vec<_> = fs::read_dir(home.state().join("audit")).into_iter().flatten().flatten().collect();
    files.sort_by_key(fs::DirEntry::path);
    let is_log = |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "jsonl");
    files.iter().filter(|file| is_log(file)).map(|file| fs::read_to_string(file.path()).unwrap()).collect()
}

/// Returns the number of rows by kind.
fn counted(home: &Home) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in audited(home).lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        *counts.entry(row["what"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Triggers security-relevant events by the owner, by agents, by unauthenticated clients and by the system.
async fn script(fixture: &ScriptedHome, gateway: &RunningGateway<'_>) {
    for args in
        [&["config", "set", "tools.web.fetch.maxChars", "5000"][..], &["config", "unset", "tools.web.fetch.maxChars"]]
    {
        assert_eq!(gateway.run(args).code, Some(0));
    }
    let mut owner = connect_as(gateway.port, &gateway.token(), 4, &["operator.admin"], &[]).await;
    let config = ask(&mut owner, "config.get", json!({})).await["payload"]["hash"].take();
    let patch = json!({"raw": "{messages: {queue: {debounceMs: 1}}}", "baseHash": config});
    assert_eq!(ask(&mut owner, "config.patch", patch).await["ok"], true);
    call(gateway, "exec", &json!({"command": "echo canary-content"}));
    call(gateway, "exec", &json!({"command": "echo canary-content; false"}));
    call(gateway, "write", &json!({"path": "canary.txt", "content": "canary-content"}));
    call(gateway, "web_fetch", &json!({"url": "http://127.0.0.1:9/canary-content"}));
    call(gateway, "web_fetch", &json!({"url": "http://169.254.169.254/canary-content"}));
    for (id, decision) in [("one", "deny"), ("two", "allow-once")] {
        let request = json!({"id": id, "command": "rm canary-content", "twoPhase": true});
        assert_eq!(ask(&mut owner, "exec.approval.request", request).await["ok"], true);
        let decided = ask(&mut owner, "exec.approval.resolve", json!({"id": id, "decision": decision})).await;
        assert_eq!(decided["ok"], true, "{decided}");
    }
    assert_eq!(ask(&mut owner, "exec.approvals.set", json!({"file": {"version": 1}})).await["ok"], true);
    let mut reader = connect_as(gateway.port, &gateway.token(), 4, &["operator.read"], &[]).await;
    assert_eq!(ask(&mut reader, "config.patch", json!({"raw": "{}"})).await["ok"], false);
    assert_eq!(get(gateway.port, "/metrics", Some("canary-wrong-token")).0, "401");
    // A command that a crash interrupts.
    let order = format!("CALL exec {}", json!({"command": "sleep 600 # canary-content"}));
    let mut cut_off = gateway.command(&["agent", "-m", &order]);
    let mut cut_off = cut_off.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the last command was started", || counted(&fixture.home).get("exec.started") == Some(&3));
    gateway.process.signal(Signal::KILL);
    cut_off.wait().unwrap();
}

// R76, R89.
#[tokio::test(flavor = "multi_thread")]
async fn r76_security_events_are_in_the_audit_log_without_content() {
    let fixture =
        ScriptedHome::with(json!({"tools": {"deny": ["write"], "exec": {"sandbox": {"mode": "full"}}}})).await;
    let gateway = fixture.home.gateway();
    script(&fixture, &gateway).await;
    gateway.end();
    let sessions = fixture.home.state().join("agents/main/sessions");
    let is_transcript = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    let transcript = fs::read_dir(sessions).unwrap().map(|file| file.unwrap().path()).find(is_transcript).unwrap();
    let torn = [fs::read(&transcript).unwrap(), b"{\"type\":\"canary-content".to_vec()].concat();
    fs::write(&transcript, torn).unwrap();
    let gateway = fixture.home.gateway();
    until("the torn line was cut off", || counted(&fixture.home).contains_key("repair"));
    let repairs = |page: &str| page.lines().filter(|line| line.starts_with("homard_repairs_total{")).count();
    let (status, page) = get(gateway.port, "/metrics", Some(&gateway.token()));
    assert_eq!((status.as_str(), repairs(&page) > 0), ("200", true), "{page}");
    assert!(page.contains("homard_audit_facts_total{what=\"repair\"}"), "{page}");
    for _ in 0..10 {
        get(gateway.port, "/metrics", Some("canary-wrong-token"));
    }
    assert_eq!(get(gateway.port, "/metrics", Some("canary-wrong-token")).0, "429", "locked out");
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    let mut counts = counted(&fixture.home);
    // The number of repairs is unspecified; but they must be recorded.
    assert!(counts.remove("repair") > Some(0));
    let expected = [
        ("approval.asked", 2),
        ("approval.decided", 2),
        ("approval.rules", 1),
        ("audit.anchored", 1),
        ("auth.failed", 11),
        ("auth.locked_out", 1),
        ("config.written", 3),
        ("egress", 2),
        ("exec.ended", 2),
        ("exec.started", 3),
        ("policy.denied", 1),
        ("recovery", 1),
        ("scope.denied", 1),
    ];
    assert_eq!(counts, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    assert!(!audited(&fixture.home).contains("canary"), "{}", audited(&fixture.home));
    let verified = fixture.home.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

// R75, through the binary.
#[test]
fn r75_a_modified_audit_log_is_reported_with_and_without_a_gateway() {
    let home = Home::new();
    home.configure("{}");
    let gateway = home.gateway();
    for number in 0..3 {
        assert_eq!(get(gateway.port, "/metrics", Some(&format!("wrong-{number}"))).0, "401");
    }
    until("it is in the log", || audited(&home).lines().count() == 4);
    let verify = || {
        let output = gateway.run(&["audit", "verify", "--json"]);
        (output.code, output.json())
    };
    until("the journal knows of all", || verify().1["kept"] == verify().1["end"]);
    let (code, intact) = verify();
    assert_eq!((code, &intact["ok"], &intact["rows"]), (Some(0), &json!(true), &json!(4)), "{intact}");
    let file = fs::read_dir(home.state().join("audit")).unwrap().map(|file| file.unwrap().path());
    let file = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let lines: Vec<_> = text.lines().collect();
    let changed = text.replacen("wrong token", "right token", 1);
    let truncated = format!("{}\n{}\n", lines[0], lines[1]);
    let moved = format!("{}\n{}\n{}\n{}\n", lines[0], lines[2], lines[1], lines[3]);
    fs::write(&file, &changed).unwrap();
    assert_eq!(
        verify().1["problems"],
        json!([
            format!("{name} line 2: rows 2 to 2 are not signed with the key of this log: they were changed or forged"),
            format!("{name} line 3: the row before row 3 was changed after it was written"),
        ])
    );
    fs::write(&file, &truncated).unwrap();
    assert_eq!(
        verify(),
        (
            Some(1),
            json!({
                "ok": false, "rows": 2, "end": verify().1["end"], "kept": intact["kept"], "unkept": 0, "folder": home.state().join("audit"),
                "problems": ["the log was truncated: it has 2 rows, but the journal recorded 4"], "acknowledged": [],
            })
        )
    );
    fs::write(&file, &text).unwrap();
    gateway.process.signal(Signal::TERM);
    gateway.end();
    let code = |text: &str| {
        fs::write(&file, text).unwrap();
        home.run(&["audit", "verify"]).code
    };
    assert_eq!([&text, &changed, &truncated, &moved, ""].map(code), [Some(0), Some(1), Some(1), Some(1), Some(1)]);
    fs::write(&file, &text).unwrap();
    let listed = home.run(&["audit", "list", "--what", "auth", "-n", "2"]).stdout;
    assert_eq!(listed.lines().filter(|line| line.contains("auth.failed")).count(), 2, "{listed}");
}

/// Returns the newest file of the audit log.
fn audit_file(home: &Home) -> PathBuf {
    let files = fs::read_dir(home.state().join("audit")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).max().unwrap()
}

/// Removes the last rows of the audit log.
fn cut_off(home: &Home, count: usize) {
    let file = audit_file(home);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    fs::write(&file, lines[..lines.len() - count].iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// Sends wrong tokens to a gateway, each of which becomes a row.
fn guess(gateway: &RunningGateway<'_>, home: &Home, count: usize) {
    let rows = || counted(home).get("auth.failed").copied().unwrap_or_default();
    let before = rows();
    for _ in 0..count {
        assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    }
    until("they are in the log", || rows() == before + count);
}

fn stop(gateway: RunningGateway<'_>) {
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
}

#[test]
fn removed_rows_are_reported_until_acknowledged() {
    let home = Home::new();
    home.configure("{}");
    let gateway = home.gateway();
    guess(&gateway, &home, 5);
    stop(gateway);
    let verify = || home.run(&["audit", "verify"]);
    assert_eq!(verify().code, Some(0));
    assert_eq!(fs::metadata(home.state().join("audit.key")).unwrap().permissions().mode() & 0o777, 0o600);
    cut_off(&home, 3);
    // More rows, and more starts, do not change that.
    for _ in 0..2 {
        let gateway = home.gateway();
        guess(&gateway, &home, 1);
        assert_eq!(gateway.run(&["audit", "verify"]).code, Some(1));
        stop(gateway);
        let report = verify();
        assert_eq!(report.code, Some(1), "{report:?}");
        assert!(report.stdout.contains("the log ended with row 3, not with row 6: rows were removed"), "{report:?}");
    }
    assert_eq!(home.run(&["audit", "acknowledge", "--reason", " "]).code, Some(2));
    let done = home.run(&["audit", "acknowledge", "--reason", "the disk was restored"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = verify();
    assert!(report.code == Some(0) && report.stdout.contains("the disk was restored"), "{report:?}");
    // While a gateway runs: rows removed, and the whole directory removed.
    for is_whole in [false, true] {
        let gateway = home.gateway();
        guess(&gateway, &home, 3);
        if is_whole {
            fs::remove_dir_all(home.state().join("audit")).unwrap()
        } else {
            cut_off(&home, 2)
        }
        assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
        until("it is recorded", || audited(&home).contains("audit.broken"));
        let report = gateway.run(&["audit", "verify", "--json"]);
        assert_eq!((report.code, &report.json()["ok"]), (Some(1), &json!(false)));
        let done = gateway.run(&["audit", "acknowledge", "--reason", "seen", "--json"]);
        assert_eq!((done.code, done.json()["acknowledged"].as_array().unwrap().len()), (Some(0), 2), "{done:?}");
        assert_eq!(gateway.run(&["audit", "verify"]).code, Some(0));
        stop(gateway);
        assert_eq!(verify().code, Some(0));
    }
    let nothing = home.run(&["audit", "acknowledge", "--reason", "again"]);
    assert!(nothing.code == Some(0) && nothing.stdout.contains("nothing to acknowledge"), "{nothing:?}");
}

#[test]
fn a_killed_gateway_causes_no_break() {
    let home = Home::new();
    home.configure("{}");
    for _ in 0..4 {
        let gateway = home.gateway();
        guess(&gateway, &home, 2);
        // Before the journal stores the head, which takes a second.
        gateway.process.signal(Signal::KILL);
        gateway.end();
    }
    let output = home.run(&["audit", "verify"]);
    assert!(output.code == Some(0) && !audited(&home).contains("audit.broken"), "{output:?}");
}

#[test]
fn restored_older_copies_are_detected_by_a_checkpoint() {
    let home = Home::new();
    let checkpoints = home.state().with_file_name("checkpoints.jsonl");
    home.configure(&json!({"audit": {"checkpoints": {"file": checkpoints}}}).to_string());
    let gateway = home.gateway();
    guess(&gateway, &home, 2);
    stop(gateway);
    let copy = |from: &str, to: &str| {
        let (from, to) = (home.state().join(from), home.state().join(to));
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    let folders = ["audit", "journal"];
    folders.iter().for_each(|folder| copy(folder, &format!("{folder}.old")));
    let gateway = home.gateway();
    guess(&gateway, &home, 2);
    stop(gateway);
    let shipped = checkpoints.to_str().unwrap().to_owned();
    let verify = || home.run(&["audit", "verify", "--checkpoints", &shipped]);
    assert_eq!(verify().code, Some(0), "{:?}", verify());
    for folder in folders {
        fs::remove_dir_all(home.state().join(folder)).unwrap();
        copy(&format!("{folder}.old"), folder);
    }
    assert_eq!(home.run(&["audit", "verify"]).code, Some(0), "without it, nobody can tell");
    let report = verify();
    assert!(report.code == Some(1) && report.stdout.contains("an older copy was restored"), "{report:?}");
    fs::write(&checkpoints, "nothing\n").unwrap();
    assert_eq!(verify().code, Some(2));
}

#[test]
fn a_failing_checkpoint_target_stops_nothing() {
    let home = Home::new();
    let folder = home.state().join("missing/checkpoints.jsonl");
    home.configure(&json!({"audit": {"checkpoints": {"file": folder, "syslog": "/nonexistent/log"}}}).to_string());
    let log = home.state().join("stderr");
    let gateway = home.gateway_with_log(fs::File::create(&log).unwrap(), "warn");
    guess(&gateway, &home, 1);
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).code, Some(0));
    let log_text = || fs::read_to_string(&log).unwrap();
    for name in ["file", "syslog"] {
        let told_of = format!("failed to send an audit log checkpoint to audit.checkpoints.{name}: ");
        until("it is told", || log_text().contains(&told_of));
    }
    stop(gateway);
}

#[test]
fn a_state_directory_and_config_readable_by_others_are_made_private_at_start() {
    let home = Home::new();
    home.configure("{}");
    let config = home.state().join("homard.json");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&home.state(), 0o755);
    set(&config, 0o644);
    let log = home.state().join("stderr");
    let gateway = home.gateway_with_log(fs::File::create(&log).unwrap(), "warn");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home.state()), mode(&config)), (0o700, 0o600));
    let log_text = fs::read_to_string(&log).unwrap();
    for (path, modes) in [(home.state(), "(mode 0755); its mode is 0700"), (config, "(mode 0644); its mode is 0600")] {
        assert!(log_text.contains(&format!("other users could read {} {modes} now", path.display())), "{log_text}");
    }
    stop(gateway);
}

#[test]
fn an_unreadable_device_list_prevents_the_start_and_is_not_changed() {
    let home = Home::new();
    home.configure("{}");
    let file = home.state().join("devices/paired.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "{\"d1\":").unwrap();
    let (code, stderr) = home.refused_start();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("paired.json cannot be read") && stderr.contains("rename it"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"d1\":");
}

#[test]
fn an_unwritable_audit_log_affects_nothing_else() {
    let home = Home::new();
    home.configure("{}");
    // A file in place of the directory, so that not even root can write there.
    fs::write(home.state().join("audit"), "in the way").unwrap();
    let log = home.state().join("stderr");
    let gateway = home.gateway_with_log(fs::File::create(&log).unwrap(), "warn");
    assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).code, Some(0));
    let page = || get(gateway.port, "/metrics", Some(&gateway.token())).1;
    until("it is counted", || page().contains("homard_audit_rows_total{outcome=\"lost\"} 1"));
    let log_text = fs::read_to_string(log).unwrap();
    assert!(
        log_text.contains("cannot write the audit log") && log_text.contains("not audited until this is resolved"),
        "{log_text}"
    );
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    assert_eq!(home.run(&["config", "set", "logging.level", "info"]).code, Some(0));
}

#[test]
fn metrics_require_the_token_and_count_events() {
    let home = Home::new();
    home.configure("{}");
    let gateway = home.gateway();
    assert_eq!(get(gateway.port, "/metrics", None).0, "401");
    assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).code, Some(0));
    let page = || get(gateway.port, "/metrics", Some(&gateway.token())).1;
    until("the run is counted", || page().contains("homard_runs_total{outcome=\"ok\"} 1\n"));
    let page = page();
    for name in [
        "homard_build_info{version=",
        "homard_model_calls_total{provider=\"homard\",outcome=\"ok\"} 1",
        "homard_journal_commits_total ",
        "homard_outbox_messages{state=\"queued\"} 0",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "homard_run_seconds_count 1",
    ] {
        assert!(page.contains(name), "{name}: {page}");
    }
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &samples {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(number.parse::<f64>().is_ok() && name.starts_with(char::is_alphabetic), "{line}");
    }
    assert!(!page.contains("agent:main"), "no session: {page}");
}

#[test]
fn logs_are_shown_with_and_without_a_gateway() {
    let home = Home::new();
    home.configure("{}");
    let gateway = home.gateway_with_log(Stdio::null(), "info");
    assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    let count_rejections = |text: &str| text.lines().filter(|line| line.contains("rejected a metrics request")).count();
    let output = gateway.run(&["logs", "--level", "warn"]);
    assert_eq!((output.code, count_rejections(&output.stdout)), (Some(0), 1), "{output:?}");
    // Without bubblewrap, the start logs a warning, too.
    assert!(output.stdout.lines().all(|line| line.contains(" warn ")), "{output:?}");
    let document: Value = serde_json::from_str(gateway.run(&["logs", "--json", "-n", "1"]).stdout.trim()).unwrap();
    assert_eq!((&document["level"], &document["subsystem"]), (&json!("warn"), &json!("homard_gateway::metrics")));
    gateway.process.signal(Signal::TERM);
    gateway.end();
    let output = home.run(&["logs"]);
    assert_eq!((output.code, count_rejections(&output.stdout)), (Some(0), 1), "{output:?}");
    assert!(output.stdout.contains("stopping"), "{output:?}");
    assert_eq!(home.run(&["logs", "--level", "loud"]).code, Some(2));
    let nothing = Home::new().run(&["logs"]);
    assert!(nothing.stderr.starts_with("no log lines in "), "{nothing:?}");
}

/// Returns the lines of a command as they are printed.
fn following(mut command: Command) -> (Process, std::io::Lines<BufReader<ChildStdout>>) {
    let mut process = Process(command.spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    (process, lines)
}

#[test]
fn logs_are_followed_with_and_without_a_gateway() {
    let home = Home::new();
    home.configure("{}");
    let gateway = home.gateway_with_log(Stdio::null(), "info");
    let refuse = || assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    refuse();
    let (_follower, mut lines) = following(gateway.command(&["logs", "--follow", "--level", "warn"]));
    let is_refusal = |line: std::io::Result<String>| line.unwrap().contains("rejected a metrics request");
    // Without bubblewrap, the start logs a warning, too.
    let mut warnings = lines.by_ref().filter(|line| !line.as_ref().unwrap().contains("limited sandbox"));
    assert!(is_refusal(warnings.next().unwrap()), "what was said before comes first");
    refuse();
    assert!(is_refusal(warnings.next().unwrap()), "and then what is said since");
    gateway.process.signal(Signal::TERM);
    gateway.end();

    let (_follower, mut lines) = following(home.command(&["logs", "--follow", "-n", "1"]));
    assert!(lines.next().is_some(), "the last line of the gateway that is gone");
    let again = home.gateway_with_log(Stdio::null(), "info");
    assert_eq!(get(again.port, "/metrics", Some("wrong")).0, "401");
    assert!(lines.any(is_refusal));
}

/// Returns files and directories that are accessible to others.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        if about.permissions().mode() & 0o077 != 0 && !about.is_symlink() {
            found.push(format!("{:o} {}", about.permissions().mode() & 0o777, path.display()));
        }
        if about.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

// R78.
#[test]
fn r78_the_state_directory_is_private_regardless_of_the_umask() {
    let home = Home::new();
    let lax = |command: std::process::Command| {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        shell.current_dir(command.get_current_dir().unwrap()).env_clear();
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    };
    assert_eq!(run_command(lax(home.command(&["config", "set", "logging.level", "info"]))).code, Some(0));
    assert_eq!(run_command(lax(home.command(&["agent", "-m", "hello"]))).code, Some(0));
    let gateway = home.listening(lax(home.command(&["gateway", "run", "--port", "0"])));
    assert_eq!(run_command(lax(gateway.command(&["agent", "-m", "Run `echo hi`"]))).code, Some(0));
    assert_eq!(get(gateway.port, "/metrics", Some("wrong")).0, "401");
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    assert_eq!(open_to_others(&home.state()), Vec::<String>::new());
    assert_eq!(fs::metadata(home.state()).unwrap().permissions().mode() & 0o777, 0o700);
}

// R79.
#[test]
fn r79_a_gateway_that_crashes_leaves_no_core() {
    let home = Home::new();
    let gateway = home.gateway();
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.process.0.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_ascii_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
}
