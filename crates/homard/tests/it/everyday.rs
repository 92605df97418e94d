//! The everyday commands that change a setup: MCP servers, jobs, skills, hooks, plugins, devices; and what ran.

use std::fs;

use homard_testkit::fake_provider::{FakeAnswer, FakeToolCall, ProviderReply};
use serde_json::json;

use crate::{home::Home, scripted_model::ScriptedHome};

#[test]
fn an_mcp_server_is_added_shown_and_removed_and_comments_are_kept() {
    let home = Home::new();
    home.configure("{\n  // mine\n  mcp: {servers: {old: {command: 'old'}}},\n}\n");
    let config = || fs::read_to_string(home.state().join("homard.json")).unwrap();
    let output = home.run(&["mcp", "add", "files", "--env", "API_KEY=secret-value", "--", "npx", "-y", "server", "."]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let output =
        home.run(&["mcp", "add", "web", "--url", "https://x.example/mcp", "--header", "X-Key=secret-value", "--json"]);
    assert_eq!((output.code, &output.json()["ok"]), (Some(0), &json!(true)), "{output:?}");
    let listed = home.run(&["mcp", "--json"]).json();
    let names: Vec<_> = listed["servers"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["files", "old", "web"]);
    let shown = home.run(&["mcp", "show", "files", "--json"]);
    let document = shown.json();
    assert_eq!((&document["state"], &document["config"]["command"]), (&json!("on"), &json!("npx")), "{shown:?}");
    for args in [["mcp", "show", "files"], ["mcp", "show", "web"]] {
        let output = home.run(&args);
        assert!(output.code == Some(0) && !output.stdout.contains("secret-value"), "{output:?}");
    }
    let output = home.run(&["mcp", "add", "files", "--", "other"]);
    assert!(output.code == Some(1) && output.stderr.contains("exists; replace it with --force"), "{output:?}");
    assert_eq!(home.run(&["mcp", "add", "files", "--force", "--", "other"]).code, Some(0));
    assert_eq!(home.run(&["mcp", "add", "nothing"]).code, Some(2));
    assert_eq!(home.run(&["mcp", "remove", "files"]).code, Some(0));
    assert_eq!(home.run(&["mcp", "remove", "web"]).code, Some(0));
    let output = home.run(&["mcp", "remove", "files"]);
    assert!(output.code == Some(1) && output.stderr.contains("no server \"files\""), "{output:?}");
    assert!(config().contains("// mine") && config().contains("old: {command: 'old'}"), "{}", config());
}

#[test]
fn a_job_is_changed_disabled_and_enabled() {
    let home = Home::new();
    let gateway = home.gateway();
    let run = |args: &[&str]| {
        let output = gateway.run(&[&["cron"], args].concat());
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output
    };
    run(&["add", "--name", "Weather", "--every", "1h", "-m", "How is the weather?", "--timeout", "90s"]);
    run(&["edit", "Weather", "--cron", "0 8 * * *", "--tz", "Europe/Berlin", "-m", "Will it rain?"]);
    let job = run(&["show", "Weather", "--json"]).json();
    assert_eq!(job["schedule"], json!({"kind": "cron", "expr": "0 8 * * *", "tz": "Europe/Berlin"}), "{job}");
    let payload = &job["payload"];
    assert_eq!(
        (&payload["message"], payload["timeoutSeconds"].as_f64()),
        (&json!("Will it rain?"), Some(90.0)),
        "{job}"
    );
    run(&["edit", "Weather", "--name", "Rain"]);
    run(&["disable", "Rain"]);
    assert_eq!(run(&["show", "Rain", "--json"]).json()["enabled"], false);
    let shown = run(&["show", "Rain"]).stdout;
    assert!(shown.contains("enabled  no\n") && shown.contains("text     Will it rain?"), "{shown}");
    run(&["enable", "Rain"]);
    assert_eq!(run(&["show", "Rain", "--json"]).json()["enabled"], true);
    let output = gateway.run(&["cron", "edit", "Rain"]);
    assert!(output.code == Some(2) && output.stderr.contains("nothing to change"), "{output:?}");
    let output = gateway.run(&["cron", "edit", "Rain", "--every", "often"]);
    assert!(output.code == Some(2) && output.stderr.contains("--every often"), "{output:?}");
    let output = gateway.run(&["cron", "disable", "nothing"]);
    assert!(output.code == Some(1) && output.stderr.contains("job nothing not found"), "{output:?}");
}

#[test]
fn a_skill_is_created_installed_and_switched() {
    let home = Home::new();
    let run = |args: &[&str]| {
        let output = home.run(&[&["skills"], args].concat());
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output
    };
    run(&["new", "tides"]);
    fs::write(home.work().join("tides/tide.sh"), "#!/bin/sh\n").unwrap();
    let installed = run(&["install", "./tides", "--json"]).json();
    assert_eq!((&installed["name"], &installed["skillKey"]), (&json!("tides"), &json!("tides")));
    assert!(home.state().join("skills/tides/tide.sh").is_file());
    let is_disabled = || run(&["info", "tides", "--json"]).json()["disabled"].clone();
    assert_eq!(is_disabled(), false);
    run(&["disable", "tides"]);
    assert_eq!(is_disabled(), true);
    run(&["enable", "tides"]);
    assert_eq!(is_disabled(), false);
    let again = home.run(&["skills", "install", "./tides"]);
    assert!(again.code == Some(1) && again.stderr.contains("already exists; replace it with --force"), "{again:?}");
    run(&["install", "./tides", "--force"]);
    let left: Vec<_> =
        fs::read_dir(home.state().join("skills")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tides"]);
    fs::create_dir(home.work().join("empty")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.work().join("tides/link")).unwrap();
    for (source, why) in [("empty", "has no SKILL.md"), ("missing", "is not a directory"), ("tides", "is a link")] {
        let output = home.run(&["skills", "install", source, "--force"]);
        assert!(output.code == Some(2) && output.stderr.contains(why), "{source}: {output:?}");
    }
    assert!(home.state().join("skills/tides/SKILL.md").is_file());
    for name in ["Tides", "../x", "", "1x"] {
        assert_eq!(home.run(&["skills", "new", name]).code, Some(2), "{name}");
    }
    assert_eq!(home.run(&["skills", "new", "tides"]).code, Some(1));
}

#[test]
fn a_new_hook_and_a_new_plugin_can_be_installed() {
    let home = Home::new();
    let run = |args: &[&str]| {
        let output = home.run(args);
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output
    };
    run(&["hooks", "new", "greet"]);
    run(&["hooks", "install", "./greet"]);
    run(&["hooks", "enable", "greet"]);
    assert_eq!(run(&["hooks", "info", "greet", "--json"]).json()["eligible"], true);
    run(&["plugins", "new", "echo-text"]);
    run(&["plugins", "install", "./echo-text"]);
    run(&["plugins", "enable", "echo-text"]);
    let has_python = std::process::Command::new("python3").arg("--version").output().is_ok();
    if has_python {
        run(&["plugins", "doctor"]);
    } else {
        crate::home::skip("everyday::a_new_hook_and_a_new_plugin_can_be_installed", "there is no Python");
    }
}

#[test]
fn devices_are_listed_by_the_gateway() {
    let home = Home::new();
    let output = home.run(&["devices"]);
    assert!(output.code == Some(1) && output.stderr.contains("no gateway answers"), "{output:?}");
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["devices", "list", "--json"]).json(), json!({"pending": [], "paired": []}));
    assert!(gateway.run(&["devices"]).stdout.starts_with("no devices"));
    for args in [["devices", "approve", "nothing"], ["devices", "reject", "nothing"], ["devices", "revoke", "nothing"]]
    {
        let output = gateway.run(&args);
        assert!(output.code == Some(1) && output.stderr.contains("nothing not found"), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_ran_is_shown_without_secrets() {
    const COMMAND: &str = "echo one; PASSWORD=hunter2 true";
    let scripted = ScriptedHome::answering(json!({}), |request| {
        let is_first = request.number == 0;
        let call =
            FakeToolCall { id: "call_1".to_owned(), name: "exec".to_owned(), arguments: json!({"command": COMMAND}) };
        match is_first {
            true => ProviderReply {
                answer: FakeAnswer { calls: vec![call], ..FakeAnswer::default() },
                ..ProviderReply::default()
            },
            false => ProviderReply::text("done"),
        }
    })
    .await;
    let home = &scripted.home;
    assert_eq!(home.run(&["agent", "-m", "go"]).code, Some(0));
    let check = |run: &dyn Fn(&[&str]) -> crate::home::CommandOutput| {
        let plain = run(&["trace", "last"]);
        assert!(plain.stdout.contains("tool exec (arguments ") && !plain.stdout.contains("echo one"), "{plain:?}");
        let shown = run(&["trace", "last", "--show-args"]);
        assert!(shown.stdout.contains("tool exec echo one; PASSWORD=***"), "{shown:?}");
        let steps = run(&["trace", "last", "--show-args", "--json"]).json()["steps"].clone();
        let commands: Vec<_> =
            steps.as_array().unwrap().iter().filter_map(|step| step["arguments"]["command"].as_str()).collect();
        assert_eq!(commands, ["echo one; PASSWORD=*** true"]);
        let rows = run(&["audit", "list", "--what", "exec", "--show-args"]);
        assert!(rows.stdout.contains("$ echo one; PASSWORD=*** true"), "{rows:?}");
        let rows = run(&["audit", "list", "--what", "exec", "--show-args", "--json"]).json();
        assert!(
            rows["rows"].as_array().unwrap().iter().all(|row| row["command"] == "echo one; PASSWORD=*** true"),
            "{rows}"
        );
        assert!(!run(&["audit", "list"]).stdout.contains("echo one"));
    };
    check(&|args| home.run(args));
    let gateway = home.gateway();
    check(&|args| gateway.run(args));
}
