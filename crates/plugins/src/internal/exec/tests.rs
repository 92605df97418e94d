//! Tests of programs as handlers: input, output, and containment.

use std::{fs, sync::Arc};

use homard_hooks::Hooks;
use serde_json::{Value, json};

use super::*;
use crate::internal::{bundled::BundledHook, hook_md::HookHandler};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A hook with this shell script.
    fn program(&self, script: &str) -> ProgramListener {
        self.with(script, &HookEntry::default(), &HostEnvironment::default(), Duration::from_secs(30))
    }

    fn with(&self, script: &str, entry: &HookEntry, host: &HostEnvironment, deadline: Duration) -> ProgramListener {
        let path = self.path().join("handler.sh");
        let source = self.path().join("source.txt");
        fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Written by another process: if this one had the file open, a program started concurrently by another test
        // could inherit the descriptor, and executing the file would fail as busy.
        let made = std::process::Command::new("install").args(["-m", "755"]).args([&source, &path]).status().unwrap();
        assert!(made.success());
        let hook = InternalHook {
            name: "tide".to_owned(),
            events: vec!["command:new".to_owned()],
            deadline: Some(deadline),
            dir: self.path().to_owned(),
            handler: HookHandler::Program(path.clone()),
            ..BundledHook::CommandLogger.hook()
        };
        ProgramListener::new(&hook, &path, entry, host)
    }
}

fn signal(context: &Value) -> InternalEvent {
    InternalEvent {
        kind: "command".to_owned(),
        action: "new".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: context.as_object().unwrap().clone(),
        timestamp: 7,
        messages: Vec::new(),
    }
}

async fn told(program: &ProgramListener) -> Result<ListenerResult, String> {
    program.handle(&signal(&json!({}))).await.map_err(|error| error.to_string())
}

/// Number of processes with this environment variable.
fn carrying(variable: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
    all.filter(|environment| environment.split(|&byte| byte == 0).any(|one| one == variable.as_bytes())).count()
}

#[tokio::test]
async fn a_program_is_told_the_signal_without_the_config_and_says_what_it_wants() {
    let folder = Folder::new();
    let answer =
        r#"{"messages": ["aye"], "bootstrapFiles": [{"name": "A.md", "path": "/a/A.md", "content": "x"}], "more": 1}"#;
    let program = folder.program(&format!("cat > told.json; pwd > where.txt; echo '{answer}'"));
    let heard = program.handle(&signal(&json!({"cfg": {"token": "secret"}, "senderId": "me"}))).await.unwrap();
    let file = BootstrapFile {
        name: "A.md".to_owned(),
        path: "/a/A.md".into(),
        content: Some("x".to_owned()),
        missing: false,
    };
    assert_eq!(heard, ListenerResult { messages: vec!["aye".to_owned()], bootstrap_files: Some(vec![file]) });
    let seen: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("told.json")).unwrap()).unwrap();
    let expected = json!({
        "type": "command", "action": "new", "sessionKey": "agent:main:main", "context": {"senderId": "me"},
        "timestamp": 7, "messages": [],
    });
    assert_eq!(seen, expected);
    let place = fs::read_to_string(folder.path().join("where.txt")).unwrap();
    assert_eq!(fs::canonicalize(place.trim()).unwrap(), fs::canonicalize(folder.path()).unwrap());
}

#[tokio::test]
async fn a_program_has_a_clean_environment_and_what_it_was_given() {
    let folder = Folder::new();
    let entry = HookEntry {
        env: [("TIDE".to_owned(), "high".to_owned()), ("A=B".to_owned(), "x".to_owned())].into(),
        ..HookEntry::default()
    };
    let env = [("HOME", "/home/me"), ("SECRET", "no")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let host = HostEnvironment { env: env.into(), ..HostEnvironment::default() };
    let program = folder.with("cat > /dev/null; env > env.txt", &entry, &host, Duration::from_secs(30));
    assert_eq!(told(&program).await, Ok(ListenerResult::default()));
    let seen = fs::read_to_string(folder.path().join("env.txt")).unwrap();
    let mut seen: Vec<_> = seen
        .lines()
        .filter(|line| !["PWD=", "_=", "OLDPWD=", "SHLVL=", "HOMARD_PLUGIN="].iter().any(|own| line.starts_with(own)))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["HOME=/home/me", "PATH=/usr/local/bin:/usr/bin:/bin", "TIDE=high"]);
}

#[tokio::test]
async fn a_program_that_fails_says_so_without_its_secrets() {
    let folder = Folder::new();
    let entry = HookEntry { env: [("KEY".to_owned(), "hush-hush".to_owned())].into(), ..HookEntry::default() };
    let program =
        folder.with("echo \"no: $KEY\" >&2; exit 3", &entry, &HostEnvironment::default(), Duration::from_secs(30));
    assert_eq!(told(&program).await, Err("the program ended with exit status: 3: no: [secret]".to_owned()));
    let chatty = told(&folder.program("echo done")).await.unwrap_err();
    assert!(chatty.starts_with("the output on stdout is not {"), "{chatty}");
    let wrong = told(&folder.program("echo '{\"messages\": [1]}'")).await.unwrap_err();
    assert!(wrong.contains("invalid type: integer"), "{wrong}");
    let program = folder.program("true");
    fs::remove_file(&program.path).unwrap();
    let missing = told(&program).await.unwrap_err();
    assert!(missing.ends_with("handler.sh cannot be run: No such file or directory (os error 2)"), "{missing}");
}

#[tokio::test]
async fn a_program_that_does_not_listen_or_closes_its_mouth_is_fine() {
    let folder = Folder::new();
    let program = folder.program("exec <&-; exit 0");
    let large = "x".repeat(1_000_000);
    assert_eq!(program.handle(&signal(&json!({"text": large}))).await, Ok(ListenerResult::default()));
}

#[tokio::test]
async fn a_flood_ends_the_program() {
    let folder = Folder::new();
    let mark = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), mark.clone())].into(), ..HookEntry::default() };
    let script = "trap '' PIPE; while :; do head -c 100000 /dev/zero 2>/dev/null; done";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_secs(30));
    let told = told(&program).await.unwrap_err();
    assert!(told.ends_with("it wrote more than 1048576 bytes to stdout"), "{told}");
    assert_eq!(carrying(&format!("WHOSE={mark}")), 0);
    let noisy = folder.program("head -c 3000000 /dev/zero | tr '\\0' x >&2");
    assert_eq!(noisy.handle(&signal(&json!({}))).await, Ok(ListenerResult::default()));
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it_and_is_not_waited_for() {
    let folder = Folder::new();
    let mark = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), mark.clone())].into(), ..HookEntry::default() };
    let script = "sleep 1000 & setsid sleep 1000 & echo '{\"messages\": [\"left\"]}'";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_secs(30));
    assert_eq!(told(&program).await.unwrap().messages, ["left"]);
    assert_eq!(carrying(&format!("WHOSE={mark}")), 0);
}

#[tokio::test]
async fn a_program_that_hangs_is_passed_over_and_all_of_it_is_gone() {
    let folder = Folder::new();
    let mark = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), mark.clone())].into(), ..HookEntry::default() };
    let script = "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000 & wait; wait";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_millis(300));
    let hooks = Hooks::new(Vec::new(), vec![Arc::new(program)]);
    let before = signal(&json!({"a": 1}));
    assert_eq!(hooks.emit(before.clone()).await, before);
    assert_eq!(carrying(&format!("WHOSE={mark}")), 0);
}
