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
    let named = std::env::vars().find(|(name, _)| name == "HOMARD_NODE").map(|(_, path)| PathBuf::from(path));
    let configured = named.or_else(|| installed.exists().then_some(installed));
    let path = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, path)| path).unwrap_or_default();
    which_node(configured.as_deref(), &path).await
}

fn install(house: &mut PluginTestSetup, id: &str, source: &str) {
    let manifest = json!({"id": id, "configSchema": {}});
    house.write(&format!("state/extensions/{id}/openclaw.plugin.json"), &manifest.to_string());
    house.write(&format!("state/extensions/{id}/index.mjs"), source);
    house.enable(id);
}

#[tokio::test]
async fn plugins_of_openclaw_take_part_and_one_that_hangs_while_it_loads_is_left_out() {
    let mut house = PluginTestSetup::new();
    install(&mut house, "good", PLUGIN);
    install(&mut house, "channel", "export default (api) => api.registerChannel({});");
    match node().await {
        Ok(node) => {
            house.settings["node"] = json!(node);
            install(&mut house, "hangs", "for (;;) {}");
        }
        Err(_) => house.settings["node"] = json!("/nowhere/node"),
    }
    let plugins = house.open();
    plugins.discover_registrations().await;
    let status = plugins.status();
    let error = |id: &str| status.iter().find(|status| status.id == id).unwrap().error.clone();
    if house.settings["node"] == json!("/nowhere/node") {
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
    let mut said = Vec::new();
    for tool in &all.tools {
        let context = json!({"sessionKey": "agent:main:main"});
        let call = PluginToolCall { id: "c".to_owned(), params: json!({"x": "y"}), context, on_progress: None };
        let told = tool.execute(call).await.unwrap();
        said.push((tool.name().to_owned(), serde_json::to_value(&told.content).unwrap()[0]["text"].clone()));
    }
    assert_eq!(said, [("echo".to_owned(), json!("c y")), ("whose".to_owned(), json!("agent:main:main"))]);
    scripts(&house, &plugins).await;
    plugins.close().await;
}

const SPINS: &str = r#"
export default (api) => api.on("before_agent_start", (event) => { if (event.prompt === "spin") for (;;) {} });
"#;

#[tokio::test]
async fn one_that_spins_takes_the_process_down_and_everybody_else_is_back() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that spins: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut house = PluginTestSetup::new();
    house.settings["node"] = json!(node);
    install(&mut house, "good", PLUGIN);
    install(&mut house, "spins", SPINS);
    house.settings["entries"]["spins"]["hooks"] = json!({"timeoutMs": 1000});
    let plugins = house.open();
    plugins.discover_registrations().await;
    let hooks = plugins.extensions().hooks;
    let turn = |prompt: &str| HookEvent::BeforeAgentStart(RunStart { prompt: prompt.to_owned(), messages: Vec::new() });
    let spun = hooks[1].call(turn("spin"), HookContext::default()).await.unwrap_err();
    assert_eq!(spun.to_string(), "no answer within 1000 ms");
    // It fails a ping, is killed and restarted; until then its neighbour is unavailable, too.
    let back = async {
        loop {
            if let Ok(answer) = hooks[0].call(turn("hi"), HookContext::default()).await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::time::timeout(std::time::Duration::from_secs(60), back).await.unwrap();
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
async fn an_event_whose_process_dies_before_it_answers_is_handled_by_the_next_one() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that dies: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut house = PluginTestSetup::new();
    house.settings["node"] = json!(node);
    install(&mut house, "dies", DIES);
    house.settings["entries"]["dies"]["hooks"] = json!({"timeoutMs": 20000});
    let plugins = house.open();
    plugins.discover_registrations().await;
    let hooks = plugins.extensions().hooks;
    let turn = HookEvent::BeforeAgentStart(RunStart { prompt: "die".to_owned(), messages: Vec::new() });
    let answer = hooks[0].call(turn, HookContext::default()).await.unwrap();
    assert_eq!(answer.prepend_context.unwrap(), "handled");

    // The same for a handler, which the next process has to load first.
    let died = house.path("hook/died");
    let handler = format!(
        r#"import {{ existsSync, writeFileSync }} from "node:fs";
        export default (event) => {{
          if (!existsSync({died:?})) {{ writeFileSync({died:?}, ""); process.kill(process.pid, "SIGKILL"); }}
          event.messages.push("handled");
        }};"#
    );
    house.write(
        "hook/HOOK.md",
        "---\nname: dies\ndescription: d\nmetadata: {\"openclaw\": {\"events\": [\"command\"]}}\n---\n",
    );
    house.write("hook/handler.js", &handler);
    house.write("hook/package.json", r#"{"type": "module"}"#);
    let mut settings = homard_plugins::internal::Settings::default();
    settings.roots.extra = vec![house.path("hook")];
    settings
        .rules
        .entries
        .insert("dies".to_owned(), homard_plugins::internal::HookEntry { enabled: Some(true), ..Default::default() });
    let scripts: std::sync::Arc<dyn homard_plugins::internal::ScriptRunner> = std::sync::Arc::new(plugins.node());
    let (listeners, problems) = homard_plugins::internal::listeners(&settings, Some(&scripts), &Default::default());
    assert_eq!(problems, []);
    let signal = json!({"type": "command", "action": "new", "sessionKey": "s", "context": {}, "timestamp": 1});
    let heard = listeners[0].handle(&serde_json::from_value(signal).unwrap()).await.unwrap();
    assert_eq!(heard.messages, ["handled"]);
    plugins.close().await;
}

const THROWS: &str = r#"
export default () => setInterval(() => { throw new Error("boom"); }, 10);
"#;

#[tokio::test]
async fn one_that_throws_all_the_time_is_named() {
    let Ok(node) = node().await else {
        let line = "skipped: a plugin that throws: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    };
    let mut house = PluginTestSetup::new();
    house.settings["node"] = json!(node);
    install(&mut house, "good", PLUGIN);
    install(&mut house, "throws", THROWS);
    let plugins = house.open();
    plugins.discover_registrations().await;
    let named = async {
        while plugins.frequent_errors().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), named).await.unwrap();
    let throwing = plugins.frequent_errors();
    assert_eq!(throwing.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["throws"]);
    assert!(throwing[0].last.contains("boom"), "{throwing:?}");
    plugins.close().await;
}

async fn scripts(house: &PluginTestSetup, plugins: &homard_plugins::Plugins) {
    let handler = "export default async (event) => { event.messages.push(`heard ${event.type}:${event.action}`); };";
    house.write("hook/handler.mjs", handler);
    house.write("hook/transform.mjs", "export default ({ payload }) => ({ text: payload.x });");
    let node = plugins.node();
    let script = Script {
        name: "mine".to_owned(),
        path: house.path("hook/handler.mjs"),
        export: "default".to_owned(),
        events: vec!["command".to_owned()],
        env: std::collections::BTreeMap::new(),
    };
    let missing = Script { path: house.path("hook/none.mjs"), name: "none".to_owned(), ..script.clone() };
    let within = std::time::Duration::from_secs(10);
    let loaded = node.load(&[script.clone(), missing], within).await.unwrap();
    assert!(loaded[1].is_err());
    let signal = json!({"type": "command", "action": "new", "sessionKey": "s", "context": {}, "timestamp": 1});
    let signal = serde_json::from_value(signal).unwrap();
    let first = loaded[0].as_ref().unwrap();
    let heard = node.emit(first, &signal, within).await.unwrap().unwrap();
    assert_eq!(heard.messages, ["heard command:new"]);
    let earlier = homard_hooks::InternalEvent { messages: vec!["said before".to_owned()], ..signal };
    let heard = node.emit(first, &earlier, within).await.unwrap().unwrap();
    assert_eq!(heard.messages, ["heard command:new"], "what was said before is not said again");
    let module = house.path("hook/transform.mjs").display().to_string();
    let changed = node.transform(&module, None, json!({"payload": {"x": "y"}}), within).await.unwrap();
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
    assert_eq!(node.emit(first, &earlier, within).await.unwrap(), None);
    let again = node.load(&[script], within).await.unwrap();
    let heard = node.emit(again[0].as_ref().unwrap(), &earlier, within).await.unwrap().unwrap();
    assert_eq!(heard.messages, ["heard command:new"]);
}
