//! `homard import openclaw`: the source does not change, and its sessions continue here.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::home::Home;

const MAIN: &str = "a7a63d5a-7be5-4927-994f-63078f74bac3";
const KID: &str = "194b5e66-598b-4678-bb05-b7f47e0426af";
const TOPIC: &str = "5d1c0f6e-0000-4000-8000-00000000c0de";
pub(crate) const SECRET: &str = "golden-key-that-must-not-be-shown";

/// A copy of a recorded state directory that a test may change.
pub(crate) struct Openclaw(pub(crate) TempDir);

impl Openclaw {
    fn new() -> Self {
        Self::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openclaw-state"))
    }

    fn of(recorded: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, (_, bytes)) in files(recorded) {
            let to = folder.path().join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, bytes).unwrap();
        }
        Self(folder)
    }

    /// Sets the model that needs no network.
    fn with_demo(self) -> Self {
        let path = self.0.path().join("openclaw.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("maxConcurrent: 4", "maxConcurrent: 4, model: 'homard/demo'")).unwrap();
        self
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn sessions(&self) -> PathBuf {
        self.0.path().join("agents/main/sessions")
    }

    /// Appends a line to a transcript, as OpenClaw does.
    fn goes_on(&self, session: &str, line: &str) {
        let path = self.sessions().join(format!("{session}.jsonl"));
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn set_updated(&self, key: &str, at: u64) {
        let path = self.sessions().join("sessions.json");
        let mut records: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        records[key]["updatedAt"] = at.into();
        fs::write(path, records.to_string()).unwrap();
    }
}

/// Returns every file below a directory with its mode and content; empty if there is no such directory.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).into_iter().flatten().map(|item| item.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), (mode, fs::read(&path).unwrap()));
            }
        }
    }
    found
}

fn session_counts(new: usize, updated: usize, same: usize, kept: usize, broken: usize) -> Value {
    json!({"new": new, "updated": updated, "same": same, "kept": kept, "broken": broken})
}

/// Returns the counts of a report: config, sessions, transcripts, auth profiles.
fn counts(document: &Value) -> [&Value; 4] {
    ["config", "sessions", "transcripts", "authProfiles"].map(|name| &document[name])
}

/// Returns the counts of skills and cron jobs.
fn extras(document: &Value) -> [&Value; 2] {
    ["skills", "cronJobs"].map(|name| &document[name])
}

pub(crate) fn import(home: &Home, from: &Openclaw, flags: &[&str]) -> Value {
    let output = home.run(&[&["import", "openclaw", from.path(), "--json"], flags].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET), "{output:?}");
    output.json()
}

fn keys(home: &Home) -> Vec<String> {
    let listed = home.run(&["sessions", "--json"]).json();
    let rows = listed["sessions"].as_array().unwrap();
    rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_state_directory_is_imported_and_not_changed() {
    let (home, from) = (Home::new(), Openclaw::new());
    let before = files(from.0.path());
    let report = import(&home, &from, &[]);
    assert_eq!(
        counts(&report),
        [
            &session_counts(1, 0, 0, 0, 0),
            &session_counts(3, 0, 0, 0, 0),
            &session_counts(4, 0, 0, 0, 0),
            &session_counts(1, 0, 0, 0, 0)
        ]
    );
    assert_eq!(report["warnings"], json!([]));
    assert_eq!(files(from.0.path()), before);
    let imported = files(&home.state());
    let names = before.keys().filter(|path| path.starts_with("agents") && !path.ends_with("sessions.json"));
    for name in names {
        assert_eq!(imported.get(name), Some(&(0o600, before[name].1.clone())), "{}", name.display());
    }
    assert_eq!(imported[Path::new("homard.json")], (0o600, before[Path::new("openclaw.json")].1.clone()));
    let subagent = "agent:main:subagent:b30e5738-b3f7-49b0-98c9-e14f65ab695d";
    assert_eq!(keys(&home), ["agent:main:main", subagent, "agent:ops:telegram:group:-1:topic:5"]);
}

#[test]
fn records_keep_their_fields_and_point_to_imported_files() {
    let (home, from) = (Home::new(), Openclaw::new());
    import(&home, &from, &[]);
    let record = |agent: &str, key: &str| {
        let path = home.state().join("agents").join(agent).join("sessions/sessions.json");
        let records: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        records[key].clone()
    };
    let source_records: Value =
        serde_json::from_slice(&fs::read(from.sessions().join("sessions.json")).unwrap()).unwrap();
    let mut expected = source_records["agent:main:main"].clone();
    expected["sessionFile"] = json!(home.state().join(format!("agents/main/sessions/{MAIN}.jsonl")));
    assert_eq!(record("main", "agent:main:main"), expected);
    let path = home.state().join(format!("agents/ops/sessions/{TOPIC}-topic-5.jsonl"));
    let topic =
        json!({"sessionId": TOPIC, "updatedAt": 1_794_709_000_000_u64, "groupChannel": "ops", "sessionFile": path});
    assert_eq!(record("ops", "agent:ops:telegram:group:-1:topic:5"), topic);
}

#[test]
fn an_imported_session_continues() {
    let (home, from) = (Home::new(), Openclaw::new().with_demo());
    import(&home, &from, &[]);
    for (key, session, path) in [
        ("main", MAIN, format!("agents/main/sessions/{MAIN}.jsonl")),
        ("agent:ops:telegram:group:-1:topic:5", TOPIC, format!("agents/ops/sessions/{TOPIC}-topic-5.jsonl")),
    ] {
        let output = home.run(&["agent", "-m", "What time is it?", "--session-key", key, "--json"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.json()["meta"]["agentMeta"]["sessionId"], session);
        let (source, imported) =
            (fs::read(from.0.path().join(&path)).unwrap(), fs::read(home.state().join(&path)).unwrap());
        assert!(imported.starts_with(&source) && imported.len() > source.len(), "{key}");
    }
}

#[test]
fn a_dry_run_reports_the_same_and_changes_nothing() {
    let (home, from) = (Home::new(), Openclaw::new());
    let report = import(&home, &from, &["--dry-run"]);
    assert!(!home.state().exists());
    let done = import(&home, &from, &[]);
    assert_eq!((counts(&report), &report["defaults"]), (counts(&done), &done["defaults"]));
    from.goes_on(KID, "{\"type\":\"custom\",\"id\":\"b0\",\"parentId\":\"a2\",\"timestamp\":\"t\"}\n");
    let before = files(&home.state());
    let report = import(&home, &from, &["--dry-run", "--force", "--write-defaults"]);
    assert_eq!(counts(&report)[2], &session_counts(0, 1, 3, 0, 0));
    assert_eq!(files(&home.state()), before);
}

#[test]
fn a_second_import_copies_only_new_data() {
    let (home, from) = (Home::new(), Openclaw::new());
    import(&home, &from, &[]);
    let again = import(&home, &from, &[]);
    assert_eq!(
        counts(&again),
        [
            &session_counts(0, 0, 1, 0, 0),
            &session_counts(0, 0, 3, 0, 0),
            &session_counts(0, 0, 4, 0, 0),
            &session_counts(0, 0, 1, 0, 0)
        ]
    );
    let subagent = "agent:main:subagent:b30e5738-b3f7-49b0-98c9-e14f65ab695d";
    from.goes_on(KID, "{\"type\":\"custom\",\"id\":\"b0\",\"parentId\":\"a2\",\"timestamp\":\"t\"}\n");
    from.set_updated(subagent, 1_794_709_853_073);
    let report = import(&home, &from, &[]);
    assert_eq!(counts(&report)[1..3], [&session_counts(0, 1, 2, 0, 0), &session_counts(0, 1, 3, 0, 0)]);
    assert_eq!(
        fs::read(home.state().join(format!("agents/main/sessions/{KID}.jsonl"))).unwrap(),
        fs::read(from.sessions().join(format!("{KID}.jsonl"))).unwrap()
    );
}

#[test]
fn a_session_continued_locally_is_not_overwritten() {
    let (home, from) = (Home::new(), Openclaw::new().with_demo());
    import(&home, &from, &[]);
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let path = home.state().join(format!("agents/main/sessions/{MAIN}.jsonl"));
    let local = fs::read(&path).unwrap();
    let same = import(&home, &from, &[]);
    assert_eq!(counts(&same)[1..3], [&session_counts(0, 0, 2, 1, 0), &session_counts(0, 0, 3, 1, 0)]);
    assert_eq!(same["warnings"], json!([]));
    // Now both continued, and the other one is newer.
    from.goes_on(MAIN, "{\"type\":\"custom\",\"id\":\"b0\",\"parentId\":\"a5\",\"timestamp\":\"t\"}\n");
    from.set_updated("agent:main:main", 9_000_000_000_000);
    let both = import(&home, &from, &[]);
    let source = from.sessions().join(format!("{MAIN}.jsonl"));
    let warning = format!(
        "{}: not imported: the session continued in both places; the existing transcript is kept",
        source.display()
    );
    assert_eq!((counts(&both)[1], &both["warnings"]), (&session_counts(0, 0, 2, 1, 0), &json!([warning])));
    assert_eq!(fs::read(&path).unwrap(), local);
}

#[test]
fn an_existing_config_is_kept_unless_forced() {
    let (home, from) = (Home::new(), Openclaw::new());
    home.configure("{/* mine */}");
    let config = home.state().join("homard.json");
    let report = import(&home, &from, &[]);
    let warning = format!("{}: already exists and is kept; replace it with --force", config.display());
    assert_eq!(
        (counts(&report)[0], &report["warnings"], &report["defaults"]),
        (&session_counts(0, 0, 0, 1, 0), &json!([warning]), &json!([]))
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), "{/* mine */}");
    let replaced = import(&home, &from, &["--force"]);
    assert_eq!(counts(&replaced)[0], &session_counts(0, 1, 0, 0, 0));
    assert_eq!(fs::read_to_string(home.state().join("homard.json.bak")).unwrap(), "{/* mine */}");
    assert_eq!(fs::read(&config).unwrap(), fs::read(from.0.path().join("openclaw.json")).unwrap());
}

#[test]
fn differing_defaults_are_reported_and_can_be_written() {
    let (home, from) = (Home::new(), Openclaw::new());
    let report = import(&home, &from, &["--dry-run"]);
    let source_workspace = from.0.path().join("workspace");
    let expected = json!([
        {"key": "messages.queue.mode", "openclaw": "collect", "homard": "steer"},
        {"key": "messages.queue.debounceMs", "openclaw": 1000, "homard": "500"},
        {"key": "session.reset", "openclaw": {"mode": "daily", "atHour": 4}, "homard": "no automatic reset"},
        {"key": "session.dmScope", "openclaw": "main", "homard": "main for the owner, per-channel-peer for other senders"},
        {"key": "agents.defaults.workspace", "openclaw": source_workspace, "homard": home.state().join("workspace")},
    ]);
    assert_eq!((&report["defaults"], &report["defaultsWritten"]), (&expected, &json!(false)));
    let output = home.run(&["import", "openclaw", from.path(), "--write-defaults"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("Defaults of OpenClaw that were written to the config"), "{}", output.stdout);
    let text = fs::read_to_string(home.state().join("homard.json")).unwrap();
    for word in ["// four at a time", "\"debounceMs\":1000", "\"atHour\":4", "golden-token"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(keys(&home).len(), 3);
}

#[test]
fn the_text_report_lists_imported_and_skipped_data() {
    let (home, from) = (Home::new(), Openclaw::new());
    let output = home.run(&["import", "openclaw", from.path(), "--dry-run"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let expected = format!(
        "An import from {} to {} would have the following result; nothing was changed.

               NEW  UPDATED  SAME  KEPT  BROKEN
config         1    0        0     0     0
sessions       3    0        0     0     0
transcripts    4    0        0     0     0
auth profiles  1    0        0     0     0
skills         2    0        0     0     0
cron jobs      2    0        0     0     0
",
        from.path(),
        home.state().display()
    );
    assert!(output.stdout.starts_with(&expected), "{}", output.stdout);
    let expected_rest = "Not imported:
- workspace: workspaces are not copied, except for skills; agents.defaults.workspace points to them

While OpenClaw's gateway is running too, the imported jobs run twice; stop it, or run: openclaw cron disable ID
";
    assert!(output.stdout.ends_with(expected_rest), "{}", output.stdout);
}

#[test]
fn a_directory_that_is_not_openclaws_is_rejected() {
    let (home, from) = (Home::new(), Openclaw::new());
    let stderr_of = |dir: &str| {
        let result = home.run(&["import", "openclaw", dir]);
        assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""), "{result:?}");
        result.stderr
    };
    let (root, file) = (from.path(), from.0.path().join("openclaw.json"));
    assert_eq!(
        stderr_of(&format!("{root}/gone")),
        format!("error: {root}/gone does not exist; pass OpenClaw's state directory, such as ~/.openclaw\n")
    );
    let expected =
        format!("error: {} is not a directory; pass OpenClaw's state directory, such as ~/.openclaw\n", file.display());
    assert_eq!(stderr_of(file.to_str().unwrap()), expected);
    let expected = format!(
        "error: {root}/skills is not a state directory of OpenClaw: it contains neither openclaw.json nor agents/\n"
    );
    assert_eq!(stderr_of(&format!("{root}/skills")), expected);
    let result = home.run(&["import", "openclaw"]);
    let advice = "pass OpenClaw's state directory: homard import openclaw DIR\n";
    assert!(result.code == Some(2) && result.stderr.ends_with(advice), "{result:?}");
    assert!(!home.state().exists());
}

#[test]
fn damaged_files_affect_only_themselves() {
    let (home, from) = (Home::new(), Openclaw::new());
    fs::write(from.sessions().join(format!("{KID}.jsonl")), "no header\n").unwrap();
    from.goes_on(MAIN, "garbage\n{\"type\":\"message\",\"id\":\"to");
    fs::write(from.0.path().join("agents/ops/sessions/sessions.json"), "{\"agent:ops:main\": {").unwrap();
    fs::write(from.0.path().join("agents/main/agent/auth-profiles.json"), format!("[\"{SECRET}\"]")).unwrap();
    let report = import(&home, &from, &[]);
    assert_eq!(
        counts(&report),
        [
            &session_counts(1, 0, 0, 0, 0),
            &session_counts(1, 0, 0, 0, 1),
            &session_counts(3, 0, 0, 0, 1),
            &session_counts(0, 0, 0, 0, 1)
        ]
    );
    let root = from.path();
    let warnings = json!([
        format!("{root}/agents/main/agent/auth-profiles.json: not imported: not a JSON object"),
        format!("{root}/agents/main/sessions/{KID}.jsonl: not imported: the first line is not a session header"),
        format!("{root}/agents/main/sessions/{MAIN}.jsonl: ignoring invalid lines (1) and the incomplete last line"),
        "session agent:main:subagent:b30e5738-b3f7-49b0-98c9-e14f65ab695d: not imported: its transcript cannot be used",
        format!(
            "{root}/agents/ops/sessions/sessions.json: cannot be read, so the transcripts of this agent are not linked to \
             sessions: line 1, column 21: unterminated object"
        ),
    ]);
    assert_eq!(report["warnings"], warnings);
    assert_eq!(keys(&home), ["agent:main:main"]);
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
}

#[test]
fn a_corrupt_config_is_not_imported_and_an_unusable_one_is_reported() {
    let (home, from) = (Home::new(), Openclaw::new());
    let config = from.0.path().join("openclaw.json");
    fs::write(&config, "{gateway: {port: 1").unwrap();
    let report = import(&home, &from, &["--dry-run"]);
    let warning = format!("{}: not imported: line 1, column 19: unterminated object", config.display());
    assert_eq!((counts(&report)[0], &report["warnings"]), (&session_counts(0, 0, 0, 0, 1), &json!([warning])));
    fs::write(&config, "{gateway: {port: 'x'}, agents: {$include: './agents.json'}}").unwrap();
    let report = import(&home, &from, &["--dry-run"]);
    let config_path = home.state().join("homard.json");
    let warnings = json!([
        format!("{}: includes other files with $include; they are not imported", config.display()),
        format!(
            "{}: not valid after the import: line 1, column 18: gateway.port must be a whole number from 0 to 65535",
            config_path.display()
        ),
        format!(
            "{}: not valid after the import: line 1, column 43: agents.$include of homard.json names agents.json, which does \
             not exist",
            config_path.display()
        ),
    ]);
    assert_eq!((counts(&report)[0], &report["warnings"]), (&session_counts(1, 0, 0, 0, 0), &warnings));
}

#[test]
fn a_running_gateway_keeps_its_directory() {
    let (home, from) = (Home::new(), Openclaw::new());
    let gateway = home.gateway();
    let output = gateway.run(&["import", "openclaw", from.path()]);
    let expected = format!("error: state directory {} is in use by process", home.state().display());
    assert!(output.code == Some(1) && output.stderr.starts_with(&expected), "{output:?}");
    let result = gateway.run(&["import", "openclaw", from.path(), "--dry-run", "--json"]);
    assert_eq!(counts(&result.json())[1], &session_counts(3, 0, 0, 0, 0));
}

#[test]
fn the_own_directory_is_not_imported_into_itself() {
    let home = Home::new();
    home.configure("{}");
    fs::create_dir(home.state().join("agents")).unwrap();
    let output = home.run(&["import", "openclaw", home.state().to_str().unwrap()]);
    let expected = format!("error: {} is Homard's own state directory; nothing to import\n", home.state().display());
    assert_eq!((output.code, output.stderr), (Some(2), expected));
}

// R17.
#[test]
fn every_recorded_session_is_imported_and_takes_another_turn() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples/state");
    if !samples.is_dir() {
        // Written past the test harness, which hides the output of passing tests.
        let line = "skipped: every recorded session is imported: ../shared/samples is not here\n";
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    for (name, sessions) in [("2026.2.9", 3), ("2026.2.9-onboarded", 0)] {
        let (home, from) = (Home::new(), Openclaw::of(&samples.join(name)));
        // The recorded models are not available; without a model the config means the demo model.
        home.configure("{}");
        assert_eq!(counts(&import(&home, &from, &[]))[1], &session_counts(sessions, 0, 0, 0, 0), "{name}");
        let keys = keys(&home);
        assert_eq!(keys.len(), sessions);
        for key in keys {
            let output = home.run(&["agent", "-m", "What time is it?", "--session-key", &key]);
            assert_eq!(output.code, Some(0), "{name} {key}: {output:?}");
        }
    }
}

#[test]
fn approval_rules_are_imported_and_apply() {
    let (home, from) = (Home::new(), Openclaw::new().with_demo());
    let rules = r#"{"version": 1, "socket": {"path": "/s", "token": "golden-key-that-must-not-be-shown"},
        "defaults": {"security": "deny"}, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/git"}]}}}"#;
    fs::write(from.0.path().join("exec-approvals.json"), rules).unwrap();
    let report = import(&home, &from, &[]);
    let expected = "exec-approvals.json: copied; the stricter of this file and tools.exec in the config applies";
    assert_eq!(report["warnings"], json!([expected]));
    let file = home.state().join("exec-approvals.json");
    assert_eq!(fs::read_to_string(&file).unwrap(), rules);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let output = home.run(&["agent", "-m", "Run `echo hello`"]);
    assert!(output.stdout.contains("commands are denied"), "{output:?}");
    // A second import has nothing to do; changes made here are kept without `--force`.
    assert_eq!(import(&home, &from, &[])["warnings"], json!([]));
    fs::write(&file, r#"{"version": 1}"#).unwrap();
    let expected_warning = format!("{}: already exists and is kept; replace it with --force", file.display());
    assert_eq!(import(&home, &from, &[])["warnings"], json!([expected_warning]));
    import(&home, &from, &["--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), rules);
}

#[test]
fn unreadable_approval_rules_are_reported_and_skipped() {
    let (home, from) = (Home::new(), Openclaw::new());
    let file = from.0.path().join("exec-approvals.json");
    fs::write(&file, r#"{"version": 99}"#).unwrap();
    let report = import(&home, &from, &[]);
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with(&format!("{}: not imported: ", file.display())), "{warning}");
    assert!(!home.state().join("exec-approvals.json").exists());
}

#[test]
fn skills_and_jobs_are_imported_once() {
    let (home, from) = (Home::new(), Openclaw::new());
    let script = from.0.path().join("skills/notes/scripts/add.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        extras(&import(&home, &from, &["--dry-run"])),
        [&session_counts(2, 0, 0, 0, 0), &session_counts(2, 0, 0, 0, 0)]
    );
    assert!(!home.state().join("skills").exists() && !home.state().join("cron").exists());
    assert_eq!(extras(&import(&home, &from, &[])), [&session_counts(2, 0, 0, 0, 0), &session_counts(2, 0, 0, 0, 0)]);
    let (source_files, imported_files) = (files(from.0.path()), files(&home.state()));
    assert_eq!(imported_files[Path::new("skills/notes/scripts/add.sh")].0, 0o700, "a program stays one");
    for name in ["skills/notes/SKILL.md", "workspace/skills/tide/SKILL.md", "cron/runs/daily.jsonl"] {
        assert_eq!(
            imported_files.get(Path::new(name)),
            Some(&(0o600, source_files[Path::new(name)].1.clone())),
            "{name}"
        );
    }
    let jobs = |files: &BTreeMap<PathBuf, (u32, Vec<u8>)>| -> Value {
        serde_json::from_slice::<Value>(&files[Path::new("cron/jobs.json")].1).unwrap()["jobs"].clone()
    };
    assert_eq!(jobs(&imported_files), jobs(&source_files));
    let listed = home.run(&["skills", "list", "--json"]).json().to_string();
    assert!(listed.contains("\"notes\"") && listed.contains("\"tide\""), "{listed}");
    // A second import finds nothing new.
    let again = import(&home, &from, &[]);
    assert_eq!(
        (extras(&again), &again["warnings"][0]),
        ([&session_counts(0, 0, 2, 0, 0), &session_counts(0, 0, 2, 0, 0)], &Value::Null)
    );
}

#[test]
fn unusable_or_conflicting_skills_and_jobs_are_reported() {
    let (home, from) = (Home::new(), Openclaw::new());
    import(&home, &from, &[]);
    let root = from.0.path();
    fs::write(root.join("skills/notes/SKILL.md"), "---\nname: notes\ndescription: Another.\n---\n").unwrap();
    fs::create_dir_all(root.join("skills/empty")).unwrap();
    let path = root.join("cron/jobs.json");
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut job = file["jobs"][0].clone();
    (job["id"], job["name"], job["delivery"]["channel"]) = (json!("chat"), json!("Chat"), json!("imessage"));
    file["jobs"][1]["name"] = json!("Renamed");
    file["jobs"].as_array_mut().unwrap().extend([job, json!({"id": "odd", "name": "Odd"})]);
    fs::write(&path, file.to_string()).unwrap();
    let report = import(&home, &from, &[]);
    assert_eq!(extras(&report), [&session_counts(0, 0, 1, 1, 1), &session_counts(1, 0, 1, 1, 1)]);
    let warnings = report["warnings"].to_string();
    for part in [
        "skill empty: not imported: no usable SKILL.md",
        "skill notes: a different skill of this name already exists; replace it with --force",
        "job Chat: imported as disabled: its replies go to the channel imessage, which is not supported",
        "job Odd: not imported: ",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let jobs = || -> Value { serde_json::from_slice(&fs::read(home.state().join("cron/jobs.json")).unwrap()).unwrap() };
    assert_eq!(
        (&jobs()["jobs"][1]["name"], &jobs()["jobs"][2]["enabled"]),
        (&json!("Water the plants"), &json!(false))
    );
    let forced = import(&home, &from, &["--force"]);
    assert_eq!(extras(&forced), [&session_counts(0, 1, 1, 0, 1), &session_counts(0, 1, 2, 0, 1)]);
    assert_eq!(jobs()["jobs"][1]["name"], "Renamed");
}
