//! The examples behave as documented.

use std::{fs, process::Stdio, time::Duration};

use homard_agent::tool::{Tool as _, ToolResult};
use homard_hooks::{HookContext, HookEvent, Hooks, ToolCallStart};
use homard_plugins::{CommandInvocation, PluginToolCall, ProcessState};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

use crate::support::{PluginTestSetup, examples, state};

fn exec(command: &str) -> HookEvent {
    HookEvent::BeforeToolCall(ToolCallStart {
        tool_name: "exec".to_owned(),
        params: json!({"command": command}).as_object().unwrap().clone(),
        run_id: "r".to_owned(),
        tool_call_id: "c".to_owned(),
    })
}

fn call(params: Value) -> PluginToolCall {
    PluginToolCall { id: "c".to_owned(), params, ..PluginToolCall::default() }
}

#[test]
fn the_examples_are_short() {
    for file in ["python/plugin.py", "shell/plugin.sh"] {
        let lines = fs::read_to_string(examples().join(file)).unwrap().lines().count();
        assert!(lines < 60, "{file} has {lines} lines");
    }
}

#[tokio::test]
async fn the_examples_exit_on_shutdown() {
    for (program, folder, file) in [("python3", "python", "plugin.py"), ("sh", "shell", "plugin.sh")] {
        let mut command = Command::new(program);
        command.arg(file).current_dir(examples().join(folder)).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Stays open, so that they do not exit because of it.
        let mut stdin = child.stdin.take().unwrap();
        let request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\",\"params\":{\"graceMs\":2000}}\n";
        stdin.write_all(request.as_bytes()).await.unwrap();
        let output = timeout(Duration::from_secs(20), child.wait_with_output()).await.expect(file).unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), answer),
            (Some(0), json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
            "{file}"
        );
    }
}

#[tokio::test]
async fn the_python_example_guards_counts_and_handles_a_command() {
    let mut setup = PluginTestSetup::new();
    setup.install(&examples().join("python"), "tidy");
    setup.settings["entries"]["tidy"]["config"] = json!({"forbidden": ["mkfs"]});
    let plugins = setup.open();
    let all = plugins.extensions();
    assert_eq!(state(&plugins, "tidy"), ProcessState::Off, "nobody needed it yet");
    let hooks = Hooks::new(all.hooks, all.listeners);
    let context = HookContext::default();
    assert_eq!(hooks.call(exec("ls"), &context).await.block_reason(), None);
    let refused = hooks.call(exec("mkfs /dev/sda"), &context).await;
    assert_eq!(refused.block_reason(), Some("the plugin tidy forbids 'mkfs'"));
    let counted = all.tools[0].execute(call(json!({"text": "one two three"}))).await.unwrap();
    assert_eq!(counted, ToolResult::text("3 words").with_details(json!({"count": 3})));
    assert_eq!(all.tools[0].spec().name, "count_words");
    let failed = all.tools[0].execute(call(json!({}))).await.unwrap_err();
    assert_eq!(failed.to_string(), "KeyError: 'text'");
    let reply = all.commands[0].run(CommandInvocation::default()).await.unwrap();
    assert_eq!(reply, json!({"text": "Forbidden: rm -rf /, mkfs"}));
    plugins.close().await;
}

#[tokio::test]
async fn the_shell_example_has_a_tool_and_is_notified_of_runs() {
    let mut setup = PluginTestSetup::new();
    setup.install(&examples().join("shell"), "disk");
    let plugins = setup.open();
    let all = plugins.extensions();
    let result = all.tools[0].execute(call(json!({}))).await.unwrap();
    let text = serde_json::to_value(&result.content).unwrap()[0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("Filesystem") && text.contains('\n'), "{text}");
    let event = HookEvent::GatewayStop { reason: "end".to_owned() };
    assert!(all.hooks[0].call(event, HookContext::default()).await.unwrap().is_empty());
    plugins.close().await;
}
