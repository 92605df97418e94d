//! OpenClaw's plugins in the Node process. Skipped with a message if there is no suitable Node.

use std::path::{Path, PathBuf};

use homard_hooks::{HookContext, HookEvent, Hooks, RunStart};
use homard_plugins::{PluginToolCall, ProcessState, internal::Script, internal::ScriptRunner as _, which_node};
use serde_json::json;

use crate::support::PluginTestSetup;

const PLUGIN: &str = r#"
export default {
  register(api) {
    api.on("before_agent_start", (event, ctx) => ({ prependContext: `${event.prompt} ${ctx.sessionKey}` }), { priority: 3 });
    api.registerTool({
      name: "echo", description: "echoes", parameters: { type: "object", properties: { x: { type: "string" } } },
      async execute(id, params) { return { content: [{ type: "text", text: `${id} ${params.x}` }] }; },
    });
    api.registerTool((ctx) => ({
      name: "whose", description: "says whose", parameters: { type: "object", properties: {} },
      async execute() { return { content: [{ type: "text", text: ctx.sessionKey ?? "nobody" }] }; },
    }), { names: ["whose"] });
  },
};
"#;

/// Node of the machine, or the one installed for the tests.
async fn node() -> Result<PathBuf, String> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node22/node_modules/node/bin/node");
    let from_env = std::env::vars().find(|(name, _)| name == "HOMARD_NODE").map(|(_, path)| PathBuf::from(path));
    let configured = from_env.or_else(|| installed.exists().then_some(installed));
    let path = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, path)| path).unwrap_or_default();
    which_node(configured.as_deref(), &path).await
}

fn install(setup: &mut PluginTestSetup, id: &str, source: &str) {
    let manifest = json!({"id": id, "configSchema": {}});
    setup.write(&format!("state/extensions/{id}/openclaw.plugin.json"), &manifest.to_string());
    setup.write(&format!("state/extensions/{id}/index.mjs"), source);
    setup.enable(id);
}

#[tokio::test]
async fn openclaw_plugins_run_and_one_that_hangs_while_loading_is_skipped() {
    let mut setup = PluginTestSetup::new();
    install(&mut setup, "good", PLUGIN);
    install(&mut setup, "channel", "export default (api) => api.registerChannel({});");
    match node().await {
        Ok(node) => {
            setup.settings["node"] = json!(node);
            install(&mut setup, "hangs", "for (;;) {}");
        }
        Err(_) => setup.settings["node"] = json!("/nowhere/node"),
    }
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let status = plugins.status();
    let error = |id: &str| status.iter().find(|status| status.id == id).unwrap().error.clone();
    if setup.settings["node"] == json!("/nowhere/node") {
        assert!(error("good").unwrap().contains("install Node 22 or newer"), "{:?}", error("good"));
        plugins.close().await;
        return;
    }
    assert_eq!(error("good"), None);
    assert!(error("channel").unwrap().contains("registerChannel"));
    assert!(error("hangs").unwrap().starts_with("failed to load: no answer within"));
    let all = plugins.extensions();
    let event = HookEvent::BeforeAgentStart(RunStart { prompt: "hi".to_owned(), messages: Vec::new() });
    let context = HookContext { session_key: Some("agent:main:main".to_owned()), ..HookContext::default() };
    let answer = Hooks::new(all.hooks, Vec::new()).call(event, &context).await.answer;
    assert_eq!(answer.prepend_context.unwrap(), "hi agent:main:main");
    let mut outputs = Vec::new();
    for tool in &all.tools {
        let context = json!({"sessionKey": "agent:main:main"});
        let call = PluginToolCall { id: "c".to_owned(), params: json!({"x": "y"}), context, on_progress: None };
        let result = tool.execute(call).await.unwrap();
        outputs.push((tool.name().to_owned(), serde_json::to_value(&result.content).unwrap()[0]["text"].clone()));
    }
    assert_eq!(outputs, [("echo".to_owned(), json!("c y")), ("whose".to_owned(), json!("agent:main:main"))]);
    scripts(&setup, &plugins).await;
    plugins.close().await;
}

const SPINS: &str = r#"
export default (api) => api.on("before_agent_start", (event) => { if (event.prompt === "spin") for (;;) {} });
"#;

#[tokio::test]
async fn a_busy_loop_restarts_the_process_and_other_plugins_recover() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that spins: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut setup = PluginTestSetup::new();
    setup.settings["node"] = json!(node);
    install(&mut setup, "good", PLUGIN);
    install(&mut setup, "spins", SPINS);
    setup.settings["entries"]["spins"]["hooks"] = json!({"timeoutMs": 1000});
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let hooks = plugins.extensions().hooks;
    let turn = |prompt: &str| HookEvent::BeforeAgentStart(RunStart { prompt: prompt.to_owned(), messages: Vec::new() });
    let error = hooks[1].call(turn("spin"), HookContext::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 1000 ms");
    // It fails a ping, is killed and restarted; until then its neighbour is unavailable, too.
    let recovered = async {
        loop {
            if let Ok(answer) = hooks[0].call(turn("hi"), HookContext::default()).await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::time::timeout(std::time::Duration::from_secs(60), recovered).await.unwrap();
    assert_eq!(answer.prepend_context.unwrap(), "hi undefined");
    plugins.close().await;
}

/// Kills its process when it is asked for the first time to die, and says so when it is asked again.
const DIES: &str = r#"
import { existsSync, writeFileSync } from "node:fs";
const died = new URL("./died", import.meta.url);
export default (api) => api.on("before_agent_start", (event) => {
  if (event.prompt === "die" && !existsSync(died)) { writeFileSync(died, ""); process.kill(process.pid, "SIGKILL"); }
  return { prependContext: "handled" };
});
"#;

#[tokio::test]
async fn an_event_whose_process_dies_before_answering_is_handled_by_the_next_one() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that dies: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut setup = PluginTestSetup::new();
    setup.settings["node"] = json!(node);
    install(&mut setup, "dies", DIES);
    setup.settings["entries"]["dies"]["hooks"] = json!({"timeoutMs": 20000});
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let hooks = plugins.extensions().hooks;
    let turn = HookEvent::BeforeAgentStart(RunStart { prompt: "die".to_owned(), messages: Vec::new() });
    let answer = hooks[0].call(turn, HookContext::default()).await.unwrap();
    assert_eq!(answer.prepend_context.unwrap(), "handled");

    // The same for a handler, which the next process has to load first.
    let died = setup.path("hook/died");
    let handler = format!(
        r#"import {{ existsSync, writeFileSync }} from "node:fs";
        export default (event) => {{
          if (!existsSync({died:?})) {{ writeFileSync({died:?}, ""); process.kill(process.pid, "SIGKILL"); }}
          event.messages.push("handled");
        }};"#
    );
    setup.write(
        "hook/HOOK.md",
        "---\nname: dies\ndescription: d\nmetadata: {\"openclaw\": {\"events\": [\"command\"]}}\n---\n",
    );
    setup.write("hook/handler.js", &handler);
    setup.write("hook/package.json", r#"{"type": "module"}"#);
    let mut settings = homard_plugins::internal::Settings::default();
    settings.roots.extra = vec![setup.path("hook")];
    settings
        .rules
        .entries
        .insert("dies".to_owned(), homard_plugins::internal::HookEntry { enabled: Some(true), ..Default::default() });
    let scripts: std::sync::Arc<dyn homard_plugins::internal::ScriptRunner> = std::sync::Arc::new(plugins.node());
    let (listeners, problems) = homard_plugins::internal::listeners(&settings, Some(&scripts), &Default::default());
    assert_eq!(problems, []);
    let event = json!({"type": "command", "action": "new", "sessionKey": "s", "context": {}, "timestamp": 1});
    let result = listeners[0].handle(&serde_json::from_value(event).unwrap()).await.unwrap();
    assert_eq!(result.messages, ["handled"]);
    plugins.close().await;
}

const THROWS: &str = r#"
export default () => setInterval(() => { throw new Error("boom"); }, 10);
"#;

#[tokio::test]
async fn a_plugin_that_throws_repeatedly_is_reported() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that throws: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut setup = PluginTestSetup::new();
    setup.settings["node"] = json!(node);
    install(&mut setup, "good", PLUGIN);
    install(&mut setup, "throws", THROWS);
    let plugins = setup.open();
    plugins.discover_registrations().await;
    let reported = async {
        while plugins.frequent_errors().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), reported).await.unwrap();
    let throwing = plugins.frequent_errors();
    assert_eq!(throwing.iter().map(|failing| failing.name.as_str()).collect::<Vec<_>>(), ["throws"]);
    assert!(throwing[0].last.contains("boom"), "{throwing:?}");
    plugins.close().await;
}

async fn scripts(setup: &PluginTestSetup, plugins: &homard_plugins::Plugins) {
    let handler = "export default async (event) => { event.messages.push(`heard ${event.type}:${event.action}`); };";
    setup.write("hook/handler.mjs", handler);
    setup.write("hook/transform.mjs", "export default ({ payload }) => ({ text: payload.x });");
    let node = plugins.node();
    let script = Script {
        name: "mine".to_owned(),
        path: setup.path("hook/handler.mjs"),
        export: "default".to_owned(),
        events: vec!["command".to_owned()],
        env: std::collections::BTreeMap::new(),
    };
    let missing = Script { path: setup.path("hook/none.mjs"), name: "none".to_owned(), ..script.clone() };
    let timeout = std::time::Duration::from_secs(10);
    let loaded = node.load(&[script.clone(), missing], timeout).await.unwrap();
    assert!(loaded[1].is_err());
    let event = json!({"type": "command", "action": "new", "sessionKey": "s", "context": {}, "timestamp": 1});
    let event = serde_json::from_value(event).unwrap();
    let first = loaded[0].as_ref().unwrap();
    let result = node.emit(first, &event, timeout).await.unwrap().unwrap();
    assert_eq!(result.messages, ["heard command:new"]);
    let earlier = homard_hooks::InternalEvent { messages: vec!["said before".to_owned()], ..event };
    let result = node.emit(first, &earlier, timeout).await.unwrap().unwrap();
    assert_eq!(result.messages, ["heard command:new"], "what was said before is not said again");
    let module = setup.path("hook/transform.mjs").display().to_string();
    let changed = node.transform(&module, None, json!({"payload": {"x": "y"}}), timeout).await.unwrap();
    assert_eq!(changed, json!({"text": "y"}));

    // The process is restarted after a kill. Concurrent callers wait for it, and nothing is sent to a handle of the old
    // process: the handler is loaded again and then receives the event.
    let status = plugins.status();
    let pid = status.iter().find_map(|status| match &status.state {
        ProcessState::Up { pid } => *pid,
        ProcessState::Off | ProcessState::Starting | ProcessState::Down { .. } | ProcessState::CircuitOpen { .. } => {
            None
        }
    });
    let pid = rustix::process::Pid::from_raw(pid.unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let is_up = || plugins.status().iter().any(|status| matches!(status.state, ProcessState::Up { .. }));
    while is_up() {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.emit(first, &earlier, timeout).await.unwrap(), None);
    let again = node.load(&[script], timeout).await.unwrap();
    let result = node.emit(again[0].as_ref().unwrap(), &earlier, timeout).await.unwrap().unwrap();
    assert_eq!(result.messages, ["heard command:new"]);
}
