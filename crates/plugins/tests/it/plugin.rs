//! What a plugin may register and request, and how it is called.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use homard_hooks::{BootstrapFile, HookContext, HookEvent, Hooks, InternalEvent, RunStart};
use homard_plugins::{
    CommandInvocation, Host, HostMethod, MethodResponse, PluginHttpCall, PluginHttpReply, PluginToolCall, ProcessState,
    fingerprint,
};
use homard_proto::message::Block;
use serde_json::{Value, json};

use crate::support::{PluginTestSetup, state};

fn every(rights: &Value) -> PluginTestSetup {
    let mut setup = PluginTestSetup::new();
    let manifest = json!({"id": "every", "configSchema": {}, "run": ["python3", "plugin.py"], "rights": rights});
    setup.write("state/extensions/every/homard.plugin.json", &manifest.to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/every.py");
    setup.write("state/extensions/every/plugin.py", &std::fs::read_to_string(script).unwrap());
    setup.enable("every");
    setup
}

fn all_rights() -> Value {
    json!({
        "hooks": ["before_agent_start", "agent_end"], "tools": ["tell"], "events": ["agent:bootstrap"], "commands": ["every"],
        "methods": ["every.method"], "routes": ["/every"], "services": ["tick"], "host": ["memory.search", "config.get"],
    })
}

/// A host that supports one request.
struct SingleMethodHost;

#[async_trait]
impl Host for SingleMethodHost {
    async fn handle(&self, plugin: &str, method: HostMethod, _: Value) -> Result<Value, String> {
        if method == HostMethod::MemorySearch {
            return Ok(json!(format!("found for {plugin}")));
        }
        Err(format!("{} is not available here", method.name()))
    }
}

#[tokio::test]
async fn all_registrations_of_a_plugin_are_called() {
    let mut setup = every(&all_rights());
    setup.host = Arc::new(SingleMethodHost);
    let plugins = setup.open();
    // Its tool is declared by name only, so it has to run once before its registrations are known.
    assert!(plugins.extensions().hooks.is_empty());
    let mut changes = plugins.watch();
    plugins.discover_registrations().await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let all = plugins.extensions();
    let hooks = Hooks::new(all.hooks, all.listeners);
    let context = HookContext { session_key: Some("agent:main:main".to_owned()), ..HookContext::default() };
    let turn = |messages| HookEvent::BeforeAgentStart(RunStart { prompt: "hi".to_owned(), messages });
    let answer = hooks.call(turn(Vec::new()), &context).await.answer;
    assert_eq!(answer.prepend_context.unwrap(), "h1 2 agent:main:main\n\nh2 2 agent:main:main");
    let mut event = InternalEvent {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: "s".to_owned(),
        context: serde_json::Map::new(),
        timestamp: 1,
        messages: Vec::new(),
    };
    let file = |name: &str| BootstrapFile { name: name.to_owned(), path: name.into(), content: None, missing: true };
    event.set_files(&[file("SOUL.md"), file("USER.md")]);
    let after = hooks.emit(event).await;
    assert_eq!((after.files().unwrap(), after.messages), (vec![file("USER.md")], vec!["one is gone".to_owned()]));
    let cx = CommandInvocation { args: Some("a\u{7}b".to_owned()), ..CommandInvocation::default() };
    assert_eq!(all.commands[0].run(cx).await.unwrap(), json!({"text": "args: 'ab'"}));
    let answer = all.methods[0].call(json!({"x": 1}), json!({})).await.unwrap();
    assert_eq!(answer, MethodResponse { ok: true, payload: json!({"x": 1}), error: Value::Null });
    let call = PluginHttpCall {
        method: "POST".to_owned(),
        url: "/every?x".to_owned(),
        body: b"hello".to_vec(),
        ..PluginHttpCall::default()
    };
    let headers = vec![("x-method".to_owned(), "POST".to_owned())];
    let expected = PluginHttpReply { is_handled: true, status: 201, headers, body: b"HELLO".to_vec() };
    assert_eq!(all.routes[0].handle(call).await.unwrap(), expected);
    all.services[0].start().await.unwrap();
    all.services[0].stop().await;
    assert!(!changes.has_changed().unwrap());
    plugins.close().await;
}

#[tokio::test]
async fn undeclared_registrations_and_requests_are_rejected() {
    let mut setup = every(&json!({"tools": ["tell"], "host": ["memory.search"]}));
    setup.host = Arc::new(SingleMethodHost);
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let status = plugins.status().remove(0);
    assert_eq!(status.registered, Some(vec!["tool tell".to_owned()]));
    let denied: Vec<&str> = status.denied.iter().map(|denied| denied.split(':').next().unwrap()).collect();
    let expected = [
        "tool secret",
        "hook before_agent_start",
        "hook before_agent_start",
        "hook agent_end",
        "listener agent",
        "command every",
        "service tick",
        "method every.method",
        "route /every",
    ];
    assert_eq!(denied, expected);
    let progress = Arc::new(Mutex::new(Vec::new()));
    let recorder = progress.clone();
    let call = PluginToolCall {
        id: "c7".to_owned(),
        params: json!({"ask": ["memory.search", "gateway.request", "no.such", "ref.get"]}),
        context: Value::Null,
        on_progress: Some(Box::new(move |value| recorder.lock().unwrap().push(value))),
    };
    let result = plugins.extensions().tools[0].execute(call).await.unwrap();
    let answers = json!([
        "found for every",
        {"code": -32001, "message": "the manifest does not declare gateway.request under \"rights.host\""},
        {"code": -32601, "message": "unknown method \"no.such\""},
        {"code": -32000, "message": "unknown reference \"\"; its call may have ended"},
    ]);
    let Block::Text(text) = &result.content[0] else { panic!("{result:?}") };
    assert_eq!(serde_json::from_str::<Value>(&text.text).unwrap(), answers);
    assert_eq!(result.details, Some(json!({"call": "c7"})));
    assert_eq!(*progress.lock().unwrap(), [json!({"content": [{"type": "text", "text": "half"}]})]);
    plugins.close().await;
}

#[tokio::test]
async fn a_large_conversation_is_fetched_by_reference() {
    let setup = every(&all_rights());
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let all = plugins.extensions();
    let message = json!({"role": "user", "content": "x".repeat(300_000), "timestamp": 1});
    let message = Arc::new(serde_json::from_value(message).unwrap());
    let event = HookEvent::BeforeAgentStart(RunStart { prompt: "hi".to_owned(), messages: vec![message] });
    let answer = Hooks::new(all.hooks, Vec::new()).call(event, &HookContext::default()).await.answer;
    let size: usize = answer.prepend_context.unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(size > 300_000, "{size}");
    plugins.close().await;
}

#[tokio::test]
async fn registrations_are_cached_until_the_manifest_changes() {
    let setup = every(&all_rights());
    let first = setup.open();
    first.discover_registrations().await;
    first.close().await;
    let second = setup.open();
    assert_eq!(second.extensions().tools.len(), 1);
    second.discover_registrations().await;
    assert_eq!(state(&second, "every"), ProcessState::Off, "there was nothing to learn");
    second.close().await;
    let mut rights = all_rights();
    rights["env"] = json!(["USER"]);
    let manifest = json!({"id": "every", "configSchema": {}, "run": ["python3", "plugin.py"], "rights": rights});
    setup.write("state/extensions/every/homard.plugin.json", &manifest.to_string());
    let third = setup.open();
    assert_eq!(third.extensions().tools.len(), 0);
    third.close().await;
}

#[tokio::test]
async fn a_plugin_modified_after_installation_does_not_run() {
    let mut setup = PluginTestSetup::new();
    setup.shell("mine", &json!({"rights": {"hooks": ["agent_end"]}}), r#"printf '{"id":%s,"result":{}}\n' "$id""#);
    let root = setup.path("state/extensions/mine");
    setup.settings["installs"]["mine"]["hash"] = json!(fingerprint(&root).unwrap());
    let event = || HookEvent::GatewayStop { reason: "end".to_owned() };
    let plugins = setup.open();
    assert!(plugins.extensions().hooks[0].call(event(), HookContext::default()).await.is_ok());
    plugins.close().await;
    setup.write("state/extensions/mine/more.sh", "echo more");
    let plugins = setup.open();
    let error = plugins.extensions().hooks[0].call(event(), HookContext::default()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the plugin's files have changed since it was installed; inspect "),
        "{error}"
    );
    plugins.close().await;
}

#[tokio::test]
async fn a_process_gets_only_declared_variables() {
    let mut setup = PluginTestSetup::new();
    let hook = r#"env | cut -d= -f1 | sort > seen; printf '{"id":%s,"result":{}}\n' "$id""#;
    setup.shell("mine", &json!({"rights": {"hooks": ["agent_end"], "env": ["TOKEN"]}}), hook);
    setup.settings["entries"]["mine"]["env"] = json!({"TOKEN": "t", "OTHER": "o"});
    let plugins = setup.open();
    let event = HookEvent::GatewayStop { reason: "end".to_owned() };
    plugins.extensions().hooks[0].call(event, HookContext::default()).await.unwrap();
    let seen = std::fs::read_to_string(setup.path("state/extensions/mine/seen")).unwrap();
    let variables: Vec<&str> =
        seen.lines().filter(|name| !matches!(*name, "_" | "PWD" | "SHLVL" | "LANG" | "OLDPWD")).collect();
    assert_eq!(variables, ["HOMARD_PLUGIN", "HOME", "PATH", "PYTHONDONTWRITEBYTECODE", "TOKEN"]);
    plugins.close().await;
}

#[tokio::test]
async fn an_invalid_config_prevents_a_plugin_from_starting_and_its_guard_blocks() {
    let mut setup = PluginTestSetup::new();
    let manifest = json!({"configSchema": {"type": "object", "required": ["key"]}, "guard": ["before_tool_call"]});
    setup.shell("mine", &manifest, "");
    setup.enable("gone");
    let plugins = setup.open();
    let status = plugins.status().remove(0);
    let expected =
        "plugins.entries.mine.config does not match the plugin's configSchema: must have required property 'key'";
    assert_eq!((status.verdict.is_enabled, status.error.as_deref()), (true, Some(expected)));
    assert_eq!(
        plugins.problems(),
        ["the plugin gone is enabled in the config but was not found or cannot be used; its guards, if any, are \
             not active"]
    );
    let hooks = Hooks::new(plugins.extensions().hooks, Vec::new());
    let call = homard_hooks::ToolCallStart {
        tool_name: "exec".to_owned(),
        params: serde_json::Map::new(),
        run_id: "r".to_owned(),
        tool_call_id: "c".to_owned(),
    };
    let outcome = hooks.call(HookEvent::BeforeToolCall(call), &HookContext::default()).await;
    assert!(outcome.block_reason().unwrap().starts_with(&format!("the guard mine failed: {expected}")), "{outcome:?}");
    plugins.close().await;
}

#[tokio::test]
async fn fifty_plugins_are_known_without_starting_one() {
    let mut setup = PluginTestSetup::new();
    for number in 0..50 {
        setup.shell(&format!("p{number}"), &json!({"rights": {"hooks": ["agent_end"]}}), "");
    }
    let plugins = setup.open();
    assert_eq!(plugins.extensions().hooks.len(), 50);
    plugins.discover_registrations().await;
    assert!(plugins.status().iter().all(|status| status.state == ProcessState::Off));
    plugins.close().await;
}
