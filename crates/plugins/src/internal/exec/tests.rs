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
        let status = std::process::Command::new("install").args(["-m", "755"]).args([&source, &path]).status().unwrap();
        assert!(status.success());
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

fn command_event(context: &Value) -> InternalEvent {
    InternalEvent {
        kind: "command".to_owned(),
        action: "new".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: context.as_object().unwrap().clone(),
        timestamp: 7,
        messages: Vec::new(),
    }
}

async fn run(program: &ProgramListener) -> Result<ListenerResult, String> {
    program.handle(&command_event(&json!({}))).await.map_err(|error| error.to_string())
}

/// Number of processes with this environment variable.
fn processes_with(variable: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
    all.filter(|environment| environment.split(|&byte| byte == 0).any(|assignment| assignment == variable.as_bytes()))
        .count()
}

#[tokio::test]
async fn a_program_gets_the_event_without_the_config_and_its_output_is_used() {
    let folder = Folder::new();
    let answer =
        r#"{"messages": ["aye"], "bootstrapFiles": [{"name": "A.md", "path": "/a/A.md", "content": "x"}], "more": 1}"#;
    let program = folder.program(&format!("cat > stdin.json; pwd > where.txt; echo '{answer}'"));
    let result = program.handle(&command_event(&json!({"cfg": {"token": "secret"}, "senderId": "me"}))).await.unwrap();
    let file = BootstrapFile {
        name: "A.md".to_owned(),
        path: "/a/A.md".into(),
        content: Some("x".to_owned()),
        missing: false,
    };
    assert_eq!(result, ListenerResult { messages: vec!["aye".to_owned()], bootstrap_files: Some(vec![file]) });
    let stdin: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("stdin.json")).unwrap()).unwrap();
    let expected = json!({
        "type": "command", "action": "new", "sessionKey": "agent:main:main", "context": {"senderId": "me"},
        "timestamp": 7, "messages": [],
    });
    assert_eq!(stdin, expected);
    let working_dir = fs::read_to_string(folder.path().join("where.txt")).unwrap();
    assert_eq!(fs::canonicalize(working_dir.trim()).unwrap(), fs::canonicalize(folder.path()).unwrap());
}

#[tokio::test]
async fn a_program_gets_a_clean_environment_and_configured_variables() {
    let folder = Folder::new();
    let entry = HookEntry {
        env: [("TIDE".to_owned(), "high".to_owned()), ("A=B".to_owned(), "x".to_owned())].into(),
        ..HookEntry::default()
    };
    let env = [("HOME", "/home/me"), ("SECRET", "no")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let host = HostEnvironment { env: env.into(), ..HostEnvironment::default() };
    let program = folder.with("cat > /dev/null; env > env.txt", &entry, &host, Duration::from_secs(30));
    assert_eq!(run(&program).await, Ok(ListenerResult::default()));
    let seen = fs::read_to_string(folder.path().join("env.txt")).unwrap();
    let mut seen: Vec<_> = seen
        .lines()
        .filter(|line| {
            !["PWD=", "_=", "OLDPWD=", "SHLVL=", "HOMARD_PLUGIN="].iter().any(|prefix| line.starts_with(prefix))
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["HOME=/home/me", "PATH=/usr/local/bin:/usr/bin:/bin", "TIDE=high"]);
}

#[tokio::test]
async fn a_failing_program_is_reported_without_its_secrets() {
    let folder = Folder::new();
    let entry = HookEntry { env: [("KEY".to_owned(), "hush-hush".to_owned())].into(), ..HookEntry::default() };
    let program =
        folder.with("echo \"no: $KEY\" >&2; exit 3", &entry, &HostEnvironment::default(), Duration::from_secs(30));
    assert_eq!(run(&program).await, Err("the program ended with exit status: 3: no: [secret]".to_owned()));
    let text_output = run(&folder.program("echo done")).await.unwrap_err();
    assert!(text_output.starts_with("the output on stdout is not {"), "{text_output}");
    let invalid = run(&folder.program("echo '{\"messages\": [1]}'")).await.unwrap_err();
    assert!(invalid.contains("invalid type: integer"), "{invalid}");
    let program = folder.program("true");
    fs::remove_file(&program.path).unwrap();
    let missing = run(&program).await.unwrap_err();
    assert!(missing.ends_with("handler.sh cannot be run: No such file or directory (os error 2)"), "{missing}");
}

#[tokio::test]
async fn a_program_may_ignore_stdin_or_close_stdout() {
    let folder = Folder::new();
    let program = folder.program("exec <&-; exit 0");
    let large = "x".repeat(1_000_000);
    assert_eq!(program.handle(&command_event(&json!({"text": large}))).await, Ok(ListenerResult::default()));
}

#[tokio::test]
async fn a_flood_ends_the_program() {
    let folder = Folder::new();
    let tag = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), tag.clone())].into(), ..HookEntry::default() };
    let script = "trap '' PIPE; while :; do head -c 100000 /dev/zero 2>/dev/null; done";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_secs(30));
    let error = run(&program).await.unwrap_err();
    assert!(error.ends_with("it wrote more than 1048576 bytes to stdout"), "{error}");
    assert_eq!(processes_with(&format!("WHOSE={tag}")), 0);
    let noisy = folder.program("head -c 3000000 /dev/zero | tr '\\0' x >&2");
    assert_eq!(noisy.handle(&command_event(&json!({}))).await, Ok(ListenerResult::default()));
}

#[tokio::test]
async fn descendants_of_a_program_are_killed_and_not_awaited() {
    let folder = Folder::new();
    let tag = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), tag.clone())].into(), ..HookEntry::default() };
    let script = "sleep 1000 & setsid sleep 1000 & echo '{\"messages\": [\"left\"]}'";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_secs(30));
    assert_eq!(run(&program).await.unwrap().messages, ["left"]);
    assert_eq!(processes_with(&format!("WHOSE={tag}")), 0);
}

#[tokio::test]
async fn a_hanging_program_times_out_and_is_killed_with_its_descendants() {
    let folder = Folder::new();
    let tag = folder.path().display().to_string();
    let entry = HookEntry { env: [("WHOSE".to_owned(), tag.clone())].into(), ..HookEntry::default() };
    let script = "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000 & wait; wait";
    let program = folder.with(script, &entry, &HostEnvironment::default(), Duration::from_millis(300));
    let hooks = Hooks::new(Vec::new(), vec![Arc::new(program)]);
    let before = command_event(&json!({"a": 1}));
    assert_eq!(hooks.emit(before.clone()).await, before);
    assert_eq!(processes_with(&format!("WHOSE={tag}")), 0);
}
