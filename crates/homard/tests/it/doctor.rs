//! `homard doctor`: broken state directories, what it reports about them, and what `--fix` does.

use std::{
    fs::{self, File, Permissions},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home},
    socket::{connect_as, next_frame, send_frame},
};

/// Returns the findings of one check that need action, as texts.
fn errors(output: &CommandOutput, check: &str) -> Vec<String> {
    findings_of(output, check, "wrong")
}

fn findings_of(output: &CommandOutput, check: &str, level: &str) -> Vec<String> {
    let document = output.json();
    let checks = document["checks"].as_array().unwrap();
    let report = checks.iter().find(|report| report["check"] == check).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] == level)
        .map(|finding| {
            assert!(!finding["toDo"].as_str().unwrap().is_empty(), "{finding}");
            finding["message"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// Creates a home with a session.
fn lived_in() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    home
}

fn doctor(home: &Home) -> CommandOutput {
    home.run(&["doctor", "--json"])
}

/// Checks that `--fix` resolves all findings of a check; returns the findings and what was fixed.
fn is_mended(home: &Home, check: &str) -> (Vec<String>, Vec<Value>) {
    let before = doctor(home);
    assert_eq!(before.code, Some(1), "{before:?}");
    assert_eq!(errors(&doctor(home), check), errors(&before, check), "looking changes nothing");
    let fixing = home.run(&["doctor", "--fix", "--json"]);
    assert_eq!(fixing.code, Some(0), "{fixing:?}");
    let document = fixing.json();
    let fixed = document["checks"].as_array().unwrap().iter().flat_map(|report| report["findings"].as_array().unwrap());
    let fixed = fixed.filter(|finding| finding["level"] == "wrong").map(|finding| finding["fixed"].clone()).collect();
    let after = doctor(home);
    assert_eq!((after.code, errors(&after, check)), (Some(0), vec![]), "{after:?}");
    (errors(&before, check), fixed)
}

fn transcript(home: &Home) -> PathBuf {
    let folder = home.state().join("agents/main/sessions");
    let mut names = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    names.find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_time(path: &Path, at: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

fn changed(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn an_empty_home_is_healthy_and_stays_empty() {
    let home = Home::new();
    let output = home.run(&["doctor"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.ends_with("\neverything looks good\n"), "{output:?}");
    assert!(!home.state().exists());
    for check in
        ["config", "permissions", "disk", "clock", "sessions", "leftovers", "models", "sandbox", "gateway", "plugins"]
    {
        assert!(output.stdout.lines().any(|line| line.starts_with(check)), "{check}: {output:?}");
    }
}

#[test]
fn a_used_home_is_healthy_with_and_without_a_gateway() {
    let home = lived_in();
    let output = doctor(&home);
    assert_eq!((output.code, output.json()["ok"].clone()), (Some(0), json!(true)), "{output:?}");
    let gateway = home.gateway();
    let output = gateway.run(&["doctor"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let url = format!("responding at ws://127.0.0.1:{}", gateway.port);
    assert!(output.stdout.contains(&url) && output.stdout.contains("the journal is in use"), "{output:?}");
}

#[test]
fn an_invalid_config_is_reported_with_its_position() {
    let home = Home::new();
    home.configure("{\n  gateway: { port: \"many\" },\n  session: { mainKey: 'work' },\n}");
    set_mode(&home.state(), 0o700);
    set_mode(&home.state().join("homard.json"), 0o600);
    let output = doctor(&home);
    assert_eq!(output.code, Some(1), "{output:?}");
    let [problem] = &errors(&output, "config")[..] else { panic!("{output:?}") };
    assert!(problem.contains("line 2") && problem.contains("gateway.port"), "{problem}");
    let [warning] = &findings_of(&output, "config", "note")[..] else { panic!("{output:?}") };
    assert!(warning.contains("session.mainKey"), "{warning}");
    let text = home.run(&["doctor"]);
    assert!(text.stdout.contains("to do    correct the file"), "{text:?}");
    assert_eq!(text.stderr, "error: 1 problem found\n");
}

#[test]
fn files_readable_by_others_are_made_private() {
    let home = lived_in();
    home.configure("{}");
    let (state, config) = (home.state(), home.state().join("homard.json"));
    set_mode(&state, 0o755);
    set_mode(&config, 0o644);
    let at = |path: &Path, mode: &str| format!("{} is accessible by other users (mode {mode})", path.display());
    let (found, fixed) = is_mended(&home, "permissions");
    assert_eq!(found, [at(&state, "755"), at(&config, "644")]);
    let now = |path: &Path, mode: &str| json!(format!("set the mode of {} to {mode}", path.display()));
    assert_eq!(fixed, [now(&state, "700"), now(&config, "600")]);
    assert_eq!((mode(&state), mode(&config)), (0o700, 0o600));
}

#[test]
fn a_torn_transcript_is_repaired_without_loss() {
    let home = lived_in();
    let path = transcript(&home);
    let original = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{original}{{\"type\":\"mess")).unwrap();
    let (found, _) = is_mended(&home, "sessions");
    assert_eq!(found, [format!("{} ends with an incomplete line, as after a crash", path.display())]);
    assert_eq!(fs::read_to_string(&path).unwrap(), original);
    let notes = findings_of(&doctor(&home), "leftovers", "note");
    assert!(notes.len() == 1 && notes[0].contains(".jsonl.torn-"), "{notes:?}");
}

#[test]
fn corrupt_records_and_journals_are_moved_aside() {
    let home = lived_in();
    let records = home.state().join("agents/main/sessions/sessions.json");
    fs::write(&records, "{\"agent:main:main\": ").unwrap();
    let (found, _) = is_mended(&home, "sessions");
    assert!(found.len() == 1 && found[0].contains("sessions.json is not a valid session list"), "{found:?}");
    let sessions = home.run(&["sessions", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["key"], "agent:main:main", "{sessions}");

    let database = home.state().join("journal/journal.db");
    fs::write(&database, "this is no database, but it is long enough to look like one").unwrap();
    let found = errors(&doctor(&home), "sessions");
    assert!(found.len() == 1 && found[0].starts_with("the journal is damaged"), "{found:?}");
    home.run(&["doctor", "--fix"]);
    // The journal stored the head of the audit log. The owner has to acknowledge that it is gone.
    let found = errors(&doctor(&home), "audit");
    assert!(found.len() == 1 && found[0].contains("has no record of this log"), "{found:?}");
    let done = home.run(&["audit", "acknowledge", "--reason", "the journal was damaged"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let after = doctor(&home);
    assert_eq!(after.code, Some(0), "{after:?}");
    let sessions = home.run(&["sessions", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["key"], "agent:main:main", "{sessions}");
}

#[test]
fn leftovers_of_dead_processes_are_removed_and_recent_or_live_ones_stay() {
    let home = lived_in();
    let sessions = home.state().join("agents/main/sessions");
    let [draft, recent, stale_lock, live_lock] =
        ["sessions.json.tmp", "new.json.tmp", "s1.jsonl.lock", "s2.jsonl.lock"].map(|name| sessions.join(name));
    for (path, text) in [
        (&draft, "{"),
        (&recent, "{"),
        (&stale_lock, &*json!({"pid": u32::MAX - 1}).to_string()),
        (&live_lock, &*json!({"pid": std::process::id()}).to_string()),
    ] {
        fs::write(path, text).unwrap();
    }
    let old = changed(&draft) - Duration::from_secs(3600);
    set_time(&draft, old);
    let install = home.state().join("extensions/.install-abc");
    fs::create_dir_all(&install).unwrap();
    File::open(&install).unwrap().set_modified(old).unwrap();
    let (found, fixed) = is_mended(&home, "leftovers");
    let stopped = |path: &Path| format!("{} was left by a process that was stopped while writing", path.display());
    let expected = format!("{} is the lock of a process that no longer exists", stale_lock.display());
    assert_eq!(found, [stopped(&draft), stopped(&install), expected]);
    assert_eq!(fixed.len(), 3);
    let existing = [&draft, &recent, &stale_lock, &live_lock, &install].map(|path| path.exists());
    assert_eq!(existing, [false, true, false, true, false]);
}

// R83.
#[test]
fn a_clock_that_went_back_is_reported() {
    let home = lived_in();
    let path = transcript(&home);
    set_time(&path, changed(&path) + Duration::from_secs(86_400));
    let output = doctor(&home);
    let [problem] = &errors(&output, "clock")[..] else { panic!("{output:?}") };
    assert!(problem.starts_with(&format!("{} was modified at ", path.display())), "{problem}");
    assert_eq!(output.code, Some(1));
}

#[test]
fn a_port_used_by_another_program_is_reported() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = home.command(&["doctor", "--json"]);
    command.env("HOMARD_GATEWAY_PORT", port.to_string());
    let output = crate::home::run_command(command);
    let expected = format!("port {port} is used by a program that is not the gateway of this state directory");
    assert_eq!((output.code, errors(&output, "gateway")), (Some(1), vec![expected]));
}

#[test]
fn a_model_without_a_key_and_a_missing_plugin_are_reported() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'openai/gpt-5.2'}}, plugins: {entries: {tidy: {enabled: true}}}}");
    set_mode(&home.state(), 0o700);
    set_mode(&home.state().join("homard.json"), 0o600);
    let output = doctor(&home);
    assert_eq!(output.code, Some(1), "{output:?}");
    let models = errors(&output, "models");
    assert!(models.len() == 1 && models[0].contains("OPENAI_API_KEY"), "{models:?}");
    assert_eq!(errors(&output, "plugins"), ["tidy is enabled in the config, but the plugin was not found"]);
}

#[test]
fn transcripts_are_not_repaired_while_a_gateway_owns_them() {
    let home = lived_in();
    let path = transcript(&home);
    let gateway = home.gateway();
    let damaged = format!("{}nonsense\n", fs::read_to_string(&path).unwrap());
    fs::write(&path, &damaged).unwrap();
    let output = gateway.run(&["doctor", "--fix", "--json"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(errors(&output, "sessions").len(), 1, "{output:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
}

/// Makes the checks of a running gateway with this scope.
async fn ask(port: u16, token: &str, scope: &str) -> Value {
    let mut socket = connect_as(port, token, 4, &[scope], &[]).await;
    send_frame(&mut socket, &json!({"type": "req", "id": "checks", "method": "doctor.run", "params": {}})).await;
    loop {
        let frame = next_frame(&mut socket).await.unwrap();
        if frame["id"] == "checks" {
            return frame;
        }
    }
}

#[tokio::test]
async fn a_running_gateway_makes_the_same_checks_and_changes_nothing() {
    let home = lived_in();
    home.configure("{plugins: {entries: {tidy: {enabled: true}}}}");
    set_mode(&home.state().join("homard.json"), 0o600);
    let gateway = home.gateway();
    let (path, secret) = (transcript(&home), home.state().join("gateway-token"));
    let damaged = format!("{}nonsense\n", fs::read_to_string(&path).unwrap());
    fs::write(&path, &damaged).unwrap();
    set_mode(&secret, 0o644);
    let answer = ask(gateway.port, &gateway.token(), "operator.read").await;
    assert_eq!(answer["ok"], true, "{answer}");
    let found = CommandOutput { code: None, stdout: answer["payload"].to_string(), stderr: String::new() };
    let command = gateway.run(&["doctor", "--json"]);
    let names = |output: &CommandOutput| -> Vec<Value> {
        output.json()["checks"].as_array().unwrap().iter().map(|report| report["check"].clone()).collect()
    };
    assert_eq!(names(&found), names(&command));
    for check in ["config", "permissions", "sessions", "leftovers", "audit", "plugins"] {
        for level in ["wrong", "note"] {
            assert_eq!(findings_of(&found, check, level), findings_of(&command, check, level), "{check}");
        }
    }
    let open = format!("{} is accessible by other users (mode 644)", secret.display());
    assert_eq!(errors(&found, "permissions"), [open]);
    assert_eq!(errors(&found, "sessions").len(), 1, "{answer}");
    assert_eq!(errors(&found, "plugins"), ["tidy is enabled in the config, but the plugin was not found"]);
    assert_eq!(errors(&found, "gateway"), [""; 0]);
    let document = found.json();
    assert_eq!((&document["ok"], &document["needsAHand"], &document["fixable"]), (&json!(false), &json!(3), &json!(1)));
    assert_eq!((mode(&secret), fs::read_to_string(&path).unwrap()), (0o644, damaged));
}

#[tokio::test]
async fn the_checks_of_a_gateway_need_permission_to_read() {
    let home = Home::new();
    let gateway = home.gateway();
    let answer = ask(gateway.port, &gateway.token(), "operator.pairing").await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("operator.read"), "{answer}");
}
