//! The description of the sandbox.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::json;

use crate::home::{Home, skip};

#[test]
fn the_sandbox_is_explained() {
    let home = Home::new();
    let output = home.run(&["sandbox", "explain", "--json"]);
    let report = output.json();
    assert_eq!(
        (&report["agent"], &report["mode"], &report["network"]),
        (&"main".into(), &"workspace".into(), &false.into())
    );
    assert!(!home.state().exists(), "looking makes nothing");
    let text_output = home.run(&["sandbox", "explain"]).stdout;
    let workspace = home.state().join("workspace").display().to_string();
    assert!(text_output.starts_with(&format!("Tier {}", report["tier"].as_str().unwrap())), "{text_output}");
    assert!(report["tier"] == "C" || text_output.contains(&format!("Can be changed: {workspace}")), "{text_output}");
    home.configure("{tools: {exec: {sandbox: {mode: 'full'}}}, agents: {list: [{id: 'ops'}]}}");
    let text_output = home.run(&["sandbox", "explain", "--agent", "ops"]).stdout;
    assert!(text_output.starts_with("No sandbox"), "{text_output}");
    assert_eq!(home.run(&["sandbox", "explain", "--agent", "nobody"]).code, Some(2));
}

#[test]
fn a_gateway_prints_its_sandbox_and_moves_aside_unwatched_files() {
    let home = Home::new();
    let workspace = home.state().join("workspace");
    fs::create_dir_all(&workspace).unwrap();
    fs::create_dir_all(home.state().join("sandbox")).unwrap();
    // The record that is written before a command starts, and a file that it created before Homard was killed.
    let record = json!({"workspace": workspace.canonicalize().unwrap(), "names": {".mcp.json": null}});
    fs::write(home.state().join("sandbox/one"), record.to_string()).unwrap();
    fs::write(workspace.join(".mcp.json"), "{}").unwrap();
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    let (code, output) = gateway.end();
    assert_eq!(code, Some(0));
    let line = output.lines().find(|line| line.starts_with("exec")).unwrap();
    assert!(line.contains("homard sandbox explain"), "{line}");
    assert!(!workspace.join(".mcp.json").exists() && !home.state().join("sandbox/one").exists());
}

#[test]
fn a_sandboxed_session_works_in_a_separate_workspace() {
    let home = Home::new();
    if home.run(&["sandbox", "explain", "--json"]).json()["tier"] == "C" {
        return skip("sandboxed sessions", "nothing holds commands on this machine");
    }
    let (workspace, boxes) = (home.work().join("ws"), home.work().join("boxes"));
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("plan.txt"), "the plan").unwrap();
    fs::write(workspace.join("SOUL.md"), "Be brief.").unwrap();
    let configure = |access: &str| {
        let sandbox = json!({"mode": "all", "workspaceAccess": access, "workspaceRoot": boxes});
        home.configure(&json!({"agents": {"defaults": {"workspace": workspace, "sandbox": sandbox}}}).to_string());
    };
    let read = format!("Run `cat {}/plan.txt`", workspace.display());
    configure("none");
    let gateway = home.gateway();
    gateway.run(&["agent", "-m", "Run `touch made; pwd`"]);
    let created: Vec<_> = fs::read_dir(&boxes).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(created.len() == 1 && created[0].join("made").exists() && !workspace.join("made").exists(), "{created:?}");
    assert_eq!(
        fs::read_to_string(created[0].join("SOUL.md")).unwrap(),
        "Be brief.",
        "it begins with the agent's files"
    );
    let output = gateway.run(&["agent", "-m", &read]);
    assert!(!output.stdout.contains("the plan"), "{output:?}");
    let context = gateway.run(&["agent", "-m", "/context json"]).json();
    assert_eq!(context["sandbox"], json!({"mode": "all", "sandboxed": true, "workspace": true}));
    assert_eq!(context["workspaceDir"], json!(created[0]));
    gateway.process.signal(Signal::TERM);
    gateway.end();

    configure("ro");
    let gateway = home.gateway();
    let output = gateway.run(&["agent", "-m", &read]);
    assert!(output.stdout.contains("the plan"), "{output:?}");
    gateway.run(&["agent", "-m", &format!("Run `touch {}/changed`", workspace.display())]);
    assert!(!workspace.join("changed").exists());
    gateway.process.signal(Signal::TERM);
    gateway.end();

    configure("rw");
    let gateway = home.gateway();
    gateway.run(&["agent", "-m", "Run `touch changed`"]);
    assert!(workspace.join("changed").exists());
    gateway.process.signal(Signal::TERM);
    gateway.end();
}

#[test]
fn sandboxed_sessions_share_workspaces_by_scope_and_main_can_be_excluded() {
    let home = Home::new();
    if home.run(&["sandbox", "explain", "--json"]).json()["tier"] == "C" {
        return skip("scopes of sandboxes", "nothing holds commands on this machine");
    }
    let sessions = ["agent:main:main", "agent:main:side", "agent:other:main"];
    for (sandbox, expected) in [
        (json!({"mode": "all", "scope": "session"}), ["0", "1", "2"].as_slice()),
        (json!({"mode": "all", "scope": "agent"}), &["0 1", "2"]),
        (json!({"mode": "all"}), &["0 1", "2"]),
        (json!({"mode": "all", "scope": "shared"}), &["0 1 2"]),
        (json!({"mode": "non-main", "scope": "session"}), &["1"]),
        (json!({"mode": "off"}), &[]),
    ] {
        let root = tempfile::tempdir_in(home.work()).unwrap();
        let (workspace, boxes) = (root.path().join("ws"), root.path().join("boxes"));
        let mut defaults = json!({"workspace": workspace, "sandbox": sandbox});
        defaults["sandbox"]["workspaceRoot"] = json!(boxes);
        let list = json!([{"id": "main", "default": true, "workspace": workspace}, {"id": "other"}]);
        home.configure(&json!({"agents": {"defaults": defaults, "list": list}}).to_string());
        let gateway = home.gateway();
        for (number, key) in sessions.iter().enumerate() {
            let output = gateway.run(&["agent", "--session-key", key, "-m", &format!("Run `touch made-{number}`")]);
            assert_eq!(output.stdout.trim(), "(no output)", "{output:?}");
        }
        let created = |folder: &Path| {
            let is_made = |number: &usize| folder.join(format!("made-{number}")).exists();
            (0..3).filter(is_made).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
        };
        let folders = fs::read_dir(&boxes).into_iter().flatten().map(|entry| created(&entry.unwrap().path()));
        let mut shared: Vec<_> = folders.filter(|created| !created.is_empty()).collect();
        shared.sort();
        assert_eq!(shared, expected, "{sandbox}");
        // Without a sandbox, the command works in the directory of `homard agent`.
        let work_file = home.work().join("made-0");
        assert_eq!(work_file.exists(), sandbox["mode"] != "all", "{sandbox}");
        fs::remove_file(work_file).ok();
        gateway.process.signal(Signal::TERM);
        gateway.end();
    }
}
