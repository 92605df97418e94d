//! What holds commands, in words.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::home::Home;

#[test]
fn what_holds_commands_is_explained() {
    let home = Home::new();
    let said = home.run(&["sandbox", "explain", "--json"]);
    let told = said.json();
    assert_eq!((&told["agent"], &told["mode"], &told["network"]), (&"main".into(), &"workspace".into(), &false.into()));
    assert!(!home.state().exists(), "looking makes nothing");
    let words = home.run(&["sandbox", "explain"]).stdout;
    let workspace = home.state().join("workspace").display().to_string();
    assert!(words.starts_with(&format!("Tier {}", told["tier"].as_str().unwrap())), "{words}");
    assert!(told["tier"] == "C" || words.contains(&format!("Can be changed: {workspace}")), "{words}");
    home.configure("{tools: {exec: {sandbox: {mode: 'full'}}}, agents: {list: [{id: 'ops'}]}}");
    let words = home.run(&["sandbox", "explain", "--agent", "ops"]).stdout;
    assert!(words.starts_with("There is no sandbox"), "{words}");
    assert_eq!(home.run(&["sandbox", "explain", "--agent", "nobody"]).code, Some(2));
}

#[test]
fn a_gateway_says_at_its_start_what_holds_commands_and_takes_aside_what_nobody_watched() {
    let home = Home::new();
    let workspace = home.state().join("workspace");
    fs::create_dir_all(&workspace).unwrap();
    fs::create_dir_all(home.state().join("sandbox")).unwrap();
    // What is written down before a command starts, and what it made before Homard was killed.
    let record = json!({"workspace": workspace.canonicalize().unwrap(), "names": {".mcp.json": null}});
    fs::write(home.state().join("sandbox/one"), record.to_string()).unwrap();
    fs::write(workspace.join(".mcp.json"), "{}").unwrap();
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    let (code, said) = gateway.end();
    assert_eq!(code, Some(0));
    let line = said.lines().find(|line| line.starts_with("exec")).unwrap();
    assert!(line.contains("homard sandbox explain"), "{line}");
    assert!(!workspace.join(".mcp.json").exists() && !home.state().join("sandbox/one").exists());
}
