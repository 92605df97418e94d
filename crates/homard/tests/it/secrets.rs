//! Secrets do not leak: not into prompts, replies, transcripts, logs, and not to other processes.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
};

use homard_testkit::fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest};
use serde_json::json;

use crate::{
    home::{Home, RunningGateway, until},
    scripted_model::{ScriptedHome, call, reply},
};

const SECRET: &str = "sk-other-canary-99887766";

/// Returns the files below a directory that contain a text.
fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

fn last_request_body(fixture: &ScriptedHome) -> String {
    fixture.provider.requests().pop().unwrap().json().to_string()
}

fn say(gateway: &RunningGateway<'_>, session: &str, text: &str) -> String {
    let output = gateway.run(&["agent", "--session-id", session, "-m", text]);
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_adds_no_include_and_no_variable_to_the_config() {
    let fixture = ScriptedHome::with(json!({
        "env": {"vars": {"OTHER_SECRET_VALUE": SECRET}}, "agents": {"list": [{"id": "main"}]},
    }))
    .await;
    let gateway = fixture.home.gateway();
    let file = fixture.home.state().join("homard.json");
    let before = fs::read_to_string(&file).unwrap();
    let leak = r#""leak ${OTHER_SECRET_VALUE}""#;
    call(&gateway, "write", &json!({"path": "n.json", "content": leak}));
    call(&gateway, "write", &json!({"path": "h.json", "content": format!("{{\"prompt\": {leak}}}")}));
    call(&gateway, "write", &json!({"path": "m.json", "content": format!("{{\"responsePrefix\": {leak}}}")}));
    let identity = |name: &str| format!("{{agents: {{list: [{{id: 'main', identity: {{name: {name}}}}}]}}}}");
    for raw in [
        identity("'${OTHER_SECRET_VALUE}'"),
        identity("{$include: './workspace/n.json'}"),
        identity("{'\\u0024include': ['./workspace/n.json']}"),
        "{agents: {defaults: {heartbeat: {$include: './workspace/h.json'}}}}".to_owned(),
        "{messages: {$include: './workspace/m.json'}}".to_owned(),
        "{messages: {responsePrefix: {$include: './workspace/n.json'}}}".to_owned(),
        "{$include: './workspace/m.json'}".to_owned(),
    ] {
        for action in ["config.patch", "config.apply"] {
            let output = call(&gateway, "gateway", &json!({"action": action, "raw": raw}));
            assert!(output.starts_with("nothing was changed"), "{action} {raw}: {output}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    say(&gateway, "fresh", "hello");
    assert!(!last_request_body(&fixture).contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_workspace_is_not_included() {
    let fixture = ScriptedHome::with(json!({"messages": {"$include": "./workspace/m.json"}})).await;
    fs::create_dir_all(fixture.home.state().join("workspace")).unwrap();
    fs::write(fixture.home.state().join("workspace/m.json"), "{}").unwrap();
    let (code, stderr) = fixture.home.refused_start();
    assert_ne!(code, Some(0));
    assert!(stderr.contains("messages.$include") && stderr.contains("an agent can change it"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_replies_are_masked() {
    let fixture = ScriptedHome::with(json!({
        "env": {"vars": {"OTHER_SECRET_VALUE": SECRET}}, "messages": {"responsePrefix": "<{identityName} ${OTHER_SECRET_VALUE}>"},
        "agents": {"list": [{"id": "main", "identity": {"name": "Robo ${OTHER_SECRET_VALUE}", "theme": "${OTHER_SECRET_VALUE}"}}]},
    }))
    .await;
    let gateway = fixture.home.gateway();
    let output = say(&gateway, "fresh", "hello");
    assert!(output.starts_with("<Robo [secret] [secret]> ") && output.contains("hello"), "{output}");
    let prompt = last_request_body(&fixture);
    assert!(prompt.contains("Robo [secret]") && !prompt.contains(SECRET), "{prompt}");
    // The model repeats its input: the user's entry stays as it was typed, the reply is masked.
    let output = say(&gateway, "other", &format!("It is {SECRET}!"));
    assert!(output.contains("It is [secret]!") && !output.contains(SECRET), "{output}");
    let masked_files = files_with(&fixture.home.state().join("agents"), "It is [secret]!");
    assert!(!masked_files.is_empty());
}

/// Writes a file with a secret in it, once.
fn writer(request: &ReceivedRequest) -> ProviderReply {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    if messages.last().is_some_and(|last| last["role"] == "user") {
        let arguments = json!({"path": "note.txt", "content": format!("key={SECRET}\n")});
        let calls = vec![FakeToolCall { id: "call_1".to_owned(), name: "write".to_owned(), arguments }];
        return ProviderReply { answer: FakeAnswer { calls, ..FakeAnswer::default() }, ..ProviderReply::default() };
    }
    reply(request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_arguments_reaches_the_tool_and_no_record() {
    let vars = json!({"vars": {"OTHER_SECRET_VALUE": SECRET}});
    let fixture = ScriptedHome::answering(json!({"env": vars}), writer).await;
    let gateway = fixture.home.gateway();
    say(&gateway, "fresh", "write it");
    let state = fixture.home.state();
    assert_eq!(fs::read_to_string(state.join("workspace/note.txt")).unwrap(), format!("key={SECRET}\n"));
    let messages = fixture.provider.requests().pop().unwrap().json()["messages"].clone();
    assert!(messages.to_string().contains("key=[secret]") && !messages.to_string().contains(SECRET), "{messages}");
    drop(gateway);
    let is_config = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(".json") && path.parent() == Some(&state))
    };
    let found: Vec<_> = files_with(&state, SECRET).into_iter().filter(|path| !is_config(path)).collect();
    assert_eq!(found, [state.join("workspace/note.txt")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_mcp_servers_are_in_no_log_and_no_answer() {
    let fixture = ScriptedHome::with(json!({"logging": {"level": "debug"}, "mcp": {"servers": {
        "a": {"command": "false", "args": ["--token", "argsecretcanary123", "--api-key=argsecretcanary456"]},
        "b": {"url": "http://user:urlpasscanary@127.0.0.1:1/mcp?key=querycanary123"},
    }}}))
    .await;
    let log = fixture.home.state().join("stderr.log");
    let gateway = fixture.home.gateway_with_log(fs::File::create(&log).unwrap(), "debug,rmcp=trace");
    let output = call(&gateway, "gateway", &json!({"action": "config.get"}));
    let wire = gateway.run(&["gateway", "call", "config.get", "--json"]);
    assert!(output.contains("--token") && wire.stdout.contains("--token"), "{output} {wire:?}");
    until("both servers were tried", || {
        let text = fs::read_to_string(&log).unwrap();
        text.contains("server=\"a\"") && text.contains("server=\"b\"")
    });
    drop(gateway);
    let texts = [output, wire.stdout, wire.stderr, fs::read_to_string(&log).unwrap()];
    assert!(texts.iter().all(|text| !text.contains("canary")), "{texts:?}");
    let logs = fixture.home.state().join("logs");
    assert_eq!(files_with(&logs, "canary"), Vec::<PathBuf>::new());
    assert!(!files_with(&logs, "MCP server").is_empty());
}

/// Files in `/proc` of a process that is not dumpable belong to root, and only root can read its environment.
#[cfg(target_os = "linux")]
#[test]
fn other_processes_of_the_user_cannot_read_the_environment() {
    const GROUP: u32 = 12_345;
    let home = Home::new();
    let is_root = rustix::process::geteuid().is_root();
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    if is_root {
        // As root, the file's owner proves nothing, but its group does.
        command.gid(GROUP);
    }
    let gateway = home.listening(command);
    let environ = PathBuf::from(format!("/proc/{}/environ", gateway.process.0.id()));
    let found = fs::metadata(&environ).unwrap();
    assert_eq!((found.uid(), found.gid()), (0, 0));
    if !is_root {
        assert_eq!(fs::read(environ).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    assert_eq!(gateway.run(&["status"]).code, Some(0));
}
