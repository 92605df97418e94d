//! What a plugin adds to the gateway, and the order of its events.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Probe, fixtures, get, keys, lines, node, samples};
use crate::{
    home::{RunningGateway, until},
    socket::{Socket, connect_as, next_frame, send_frame},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_uses_every_extension_point_and_receives_every_event() {
    let Some(node) = node("probe in every room") else { return };
    let probe = Probe::ours(&node).await;
    visit(&probe).await;
    keys::compare(&probe);
    let services = |kind: &str| probe.of(kind).iter().map(|line| line["id"].clone()).collect::<Vec<_>>();
    assert_eq!(services("service-start"), ["probe-svc", "probe-svc-2"]);
    assert_eq!(services("service-stop"), ["probe-svc-2", "probe-svc"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_and_hook_recorded_with_openclaw_run_unmodified() {
    let test = "the probe of OpenClaw";
    let (Some(node), Some(samples)) = (node(test), samples(test)) else { return };
    let probe = Probe::new(&node, &samples.join("probe-plugin"), &samples.join("probe-hook")).await;
    visit(&probe).await;
    keys::compare(&probe);
}

/// Exercises everything that the plugin registers, from the gateway's start to its end.
async fn visit(probe: &Probe) {
    let gateway = probe.scripted.home.gateway();
    until("the gateway's start was told", || probe.count("gateway_start") == 1);
    tool(probe, &gateway).await;
    let request_count = probe.scripted.provider.requests().len();
    let output = gateway.run(&["agent", "-m", "/probecmd hello there"]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "probe command ran: hello there\n"),
        "{}",
        output.stderr
    );
    assert_eq!(probe.of("command")[0]["ctx"]["args"], "hello there");
    assert_eq!(probe.scripted.provider.requests().len(), request_count, "no model is asked for that");
    let answer = gateway.run(&["gateway", "call", "probe.ping", "--params", "{\"a\": 1}"]).json();
    assert_eq!(answer, json!({"pong": true, "params": {"a": 1}}));
    let page = get(gateway.port, "/probe?x=1", "");
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("probe ok"), "{page}");
    assert_eq!(probe.of("http")[0]["url"], "/probe?x=1");
    let failed = gateway.run(&["agent", "-m", "CALL read {\"path\": \"not-there.txt\"}"]);
    assert_eq!(failed.code, Some(0), "{failed:?}");
    for _ in 0..2 {
        let long = format!("Keep this: {}", "all about the sea. ".repeat(200));
        assert_eq!(gateway.run(&["agent", "-m", &long]).code, Some(0));
    }
    let compacted = gateway.run(&["agent", "-m", "/compact"]);
    assert_eq!(compacted.code, Some(0), "{compacted:?}");
    for command in ["/reset", "/new"] {
        assert_eq!(gateway.run(&["agent", "-m", command]).code, Some(0));
    }
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    order(probe);
}

/// Checks that the model can call the plugin's tool, and that a subscriber sees it run.
async fn tool(probe: &Probe, gateway: &RunningGateway<'_>) {
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, &["operator.admin"], &["tool-events"]).await;
    let message = "CALL probe_tool {\"x\": \"y\"}";
    let params = json!({"message": message, "idempotencyKey": "watched", "sessionKey": "agent:main:main"});
    send_frame(&mut socket, &json!({"type": "req", "id": "run", "method": "agent", "params": params})).await;
    let (events, end) = to_the_end(&mut socket).await;
    assert_eq!(end["payload"]["result"]["payloads"][0]["text"], "probe:{\"x\":\"y\"}", "{end}");
    let of_tools = events.iter().filter(|event| event["payload"]["stream"] == "tool");
    let tool_events: Vec<_> = of_tools.map(|event| &event["payload"]["data"]).collect();
    let phases: Vec<_> = tool_events.iter().map(|card| (&card["phase"], &card["name"])).collect();
    let name = json!("probe_tool");
    assert_eq!(phases, [(&json!("start"), &name), (&json!("result"), &name)], "{tool_events:#?}");
    assert_eq!((&tool_events[0]["args"], &tool_events[1]["isError"]), (&json!({"x": "y"}), &json!(false)));
    assert_eq!(probe.of("tool-exec")[0]["params"], json!({"x": "y"}));
    // The effect of a plugin's method is unknown, so it needs the admin scope.
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, &["operator.read"], &[]).await;
    send_frame(&mut socket, &json!({"type": "req", "id": "run", "method": "probe.ping", "params": {}})).await;
    let (_, refused) = to_the_end(&mut socket).await;
    assert_eq!(refused["ok"], false, "{refused}");
}

/// Returns the events until the final response to `run`, and that response.
async fn to_the_end(socket: &mut Socket) -> (Vec<Value>, Value) {
    let mut events = Vec::new();
    loop {
        let frame = next_frame(socket).await.unwrap();
        if frame["type"] == "event" {
            events.push(frame);
        } else if frame["id"] == "run" && frame["payload"]["status"] != "accepted" {
            return (events, frame);
        }
    }
}

/// Checks the order of events.
fn order(probe: &Probe) {
    let name = |line: &Value| match line["kind"].as_str().unwrap() {
        "hook" => line["hook"].as_str().unwrap().to_owned(),
        "internal-via-plugin" => {
            format!("{}:{}", line["event"]["type"].as_str().unwrap(), line["event"]["action"].as_str().unwrap())
        }
        kind => kind.to_owned(),
    };
    let received: Vec<String> = probe.heard().iter().map(name).collect();
    let at = |name: &str| {
        received.iter().position(|item| item == name).unwrap_or_else(|| panic!("no {name} in {received:#?}"))
    };
    let in_order = |names: &[&str]| {
        let positions: Vec<_> = names.iter().map(|name| at(name)).collect();
        assert!(positions.is_sorted(), "{names:?} were heard at {positions:?}: {received:#?}");
    };
    in_order(&["register", "service-start", "gateway:startup", "gateway_start"]);
    in_order(&["before_agent_reply", "before_model_resolve", "before_prompt_build", "before_agent_start", "llm_input"]);
    in_order(&["before_tool_call", "tool-exec", "after_tool_call", "tool_result_persist", "message_sending"]);
    in_order(&["message_sending", "agent_end", "before_compaction", "after_compaction", "before_reset"]);
    in_order(&["before_reset", "gateway:shutdown", "service-stop"]);
    in_order(&["before_reset", "gateway_stop", "service-stop"]);
    let internal_events: Vec<String> = probe
        .internal_events()
        .iter()
        .map(|event| format!("{}:{}", text(event, "type"), text(event, "action")))
        .collect();
    for name in ["gateway:startup", "agent:bootstrap", "message:received", "command:new", "gateway:shutdown"] {
        assert!(internal_events.iter().any(|item| item == name), "no {name} in {internal_events:?}");
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_turn_has_hooks_and_tools() {
    let Some(node) = node("probe without a gateway") else { return };
    let probe = Probe::ours(&node).await;
    // The second time the registrations are cached, and the plugin is started on demand.
    for round in 1..=2 {
        let output = probe.scripted.home.run(&["agent", "--local", "-m", "CALL probe_tool {\"x\": \"y\"}"]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "probe:{\"x\":\"y\"}\n"), "{}", output.stderr);
        for hook in ["before_agent_start", "before_tool_call", "after_tool_call", "agent_end", "message_sent"] {
            assert_eq!(probe.count(hook), round, "{hook}");
        }
    }
    assert_eq!(probe.of("service-start"), Vec::<Value>::new(), "services are the gateway's");
    let output = probe.scripted.home.run(&["agent", "--local", "-m", "/probecmd hi"]);
    assert_eq!(output.stdout, "probe command ran: hi\n", "{}", output.stderr);
}

const CHANGES: &str = r#"
export default async function handler(event) {
  if (event.type !== "agent" || event.action !== "bootstrap") return;
  const files = event.context.bootstrapFiles.filter((file) => file.name !== "SOUL.md");
  files.push({ name: "TIDES.md", path: event.context.workspaceDir + "/TIDES.md", content: "High water is at noon.", missing: false });
  event.context.bootstrapFiles = files;
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_replaces_a_file_in_the_prompt() {
    let Some(node) = node("a hook changes the files of a prompt") else { return };
    let probe = Probe::ours(&node).await;
    let output = probe.scripted.home.run(&["agent", "--local", "-m", "Hi"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let soul = "We live by the water.";
    fs::write(probe.scripted.home.state().join("workspace/SOUL.md"), soul).unwrap();
    let prompt = || {
        let output = probe.scripted.home.run(&["agent", "--local", "-m", "Hi"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        probe.scripted.provider.requests().pop().unwrap().body
    };
    let before = prompt();
    assert!(before.contains(soul) && !before.contains("High water is at noon."));
    let folder = probe.scripted.home.state().join("hooks/tides");
    super::copy(&fixtures().join("probe-hook"), &folder);
    let front_matter = fs::read_to_string(folder.join("HOOK.md")).unwrap().replace("name: probe-hook", "name: tides");
    fs::write(folder.join("HOOK.md"), front_matter).unwrap();
    fs::write(folder.join("handler.js"), CHANGES).unwrap();
    let after = prompt();
    assert!(!after.contains(soul) && after.contains("High water is at noon."), "{after}");
    let events = lines(Path::new(&probe.out.path().join("internal.jsonl")));
    assert!(events.iter().any(|event| event["action"] == "bootstrap"), "{events:?}");
}
