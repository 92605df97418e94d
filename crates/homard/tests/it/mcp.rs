//! MCP servers: listed, tested, used by an agent, and available as soon as the config has them.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::{Home, has_node, until},
    scripted_model::{ScriptedHome, call},
};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/tests/mcp/server.mjs");

/// Servers: one that works, one that ends immediately, one that is disabled, one that is invalid.
fn servers() -> Value {
    json!({"mcp": {"servers": {
        "fake": {"command": "node", "args": [SERVER], "toolFilter": {"include": ["echo", "environment"]},
                 "env": {"FAKE_TOKEN": "an-mcp-secret"}},
        "broken": {"command": "node", "args": [SERVER, "broken"], "connectionTimeoutMs": 20_000},
        "idle": {"command": "node", "enabled": false},
        "old": {"url": "https://me:hush@x.example/sse?key=hush", "transport": "sse"},
    }}})
}

#[test]
fn servers_are_listed_and_tested_without_a_gateway() {
    if !has_node("servers are listed and tried without a gateway") {
        return;
    }
    let home = Home::new();
    let empty = home.run(&["mcp", "list"]);
    assert!(empty.stdout.starts_with("no MCP servers; add one to mcp.servers in "), "{empty:?}");
    home.configure(&servers().to_string());
    let listed = home.run(&["mcp", "list"]);
    let states: Vec<_> =
        listed.stdout.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert_eq!(states, [["SERVER", "STATE"], ["broken", "on"], ["fake", "on"], ["idle", "off"], ["old", "ignored:"]]);
    let listed = home.run(&["mcp", "list", "--json"]);
    assert!(!listed.stdout.contains("hush") && !listed.stdout.contains("secret"), "{listed:?}");
    let tested = home.run(&["mcp", "test", "fake"]);
    assert_eq!(tested.stdout, "fake (fake 1) works: 2 tools\n  fake__echo\n  fake__environment\n", "{tested:?}");
    let tested = home.run(&["mcp", "test", "fake", "--json"]).json();
    assert_eq!(tested["tools"][0], json!({"tool": "echo", "name": "fake__echo"}));
    let tested = home.run(&["mcp", "test", "broken"]);
    assert!(tested.code == Some(1) && tested.stderr.contains("no config file"), "{tested:?}");
    let tested = home.run(&["mcp", "test", "old"]);
    assert!(tested.code == Some(1) && tested.stderr.contains("sse, which is not supported"), "{tested:?}");
    let tested = home.run(&["mcp", "test", "nobody"]);
    assert!(tested.code == Some(1) && tested.stderr.contains("homard mcp list"), "{tested:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_uses_the_tools_of_a_server_and_does_not_see_its_secrets() {
    if !has_node("an agent uses the tools of a server and does not see its secrets") {
        return;
    }
    let fixture = ScriptedHome::with(servers()).await;
    // Without a gateway the command waits for the servers.
    let output = fixture.home.run(&["agent", "-m", "CALL fake__echo {\"text\": \"over here\"}"]);
    assert!(output.stdout.contains("over here"), "{output:?}");
    let gateway = fixture.home.gateway();
    until("the tools are there", || call(&gateway, "fake__echo", &json!({"text": "hello"})).contains("hello"));
    let result = call(&gateway, "fake__environment", &json!({}));
    assert!(
        result.contains("FAKE_TOKEN") && result.contains("PATH") && !result.contains("HOMARD_STATE_DIR"),
        "{result}"
    );
    let result = call(&gateway, "fake__echo", &json!({"text": "it is an-mcp-secret"}));
    assert!(!result.contains("an-mcp-secret"), "{result}");
    let health = gateway.run(&["health", "--json"]).stdout;
    assert!(health.contains("the MCP server old is disabled"), "{health}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adding_and_removing_a_server_adds_and_removes_its_tools() {
    if !has_node("a server that the config gets brings its tools and takes them along") {
        return;
    }
    let fixture = ScriptedHome::with(json!({})).await;
    let gateway = fixture.home.gateway();
    let has_it = || {
        gateway.run(&["agent", "-m", "hello"]);
        fixture.offered().contains(&"later__echo".to_owned())
    };
    assert!(!has_it());
    let file = fixture.home.state().join("homard.json");
    let before = fs::read_to_string(&file).unwrap();
    let mut config: Value = serde_json::from_str(&before).unwrap();
    config["mcp"] = json!({"servers": {"later": {"command": "node", "args": [SERVER]}}});
    fs::write(&file, config.to_string()).unwrap();
    until("the tools come", has_it);
    fs::write(&file, before).unwrap();
    until("the tools go", || !has_it());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_server_is_reported() {
    if !has_node("a server that is not there is told") {
        return;
    }
    let down = "the MCP server broken is down, so its tools fail; to see why: homard mcp test broken";
    let fixture = ScriptedHome::with(servers()).await;
    let output = fixture.home.run(&["agent", "-m", "hello"]);
    assert!(output.code == Some(0) && output.stderr.contains(down), "{output:?}");
    let gateway = fixture.home.gateway();
    until("it is told", || gateway.run(&["health", "--json"]).stdout.contains(down));
}
