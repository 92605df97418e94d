//! Unset variables in the config: what needs one is disabled and reported, the rest runs.

use std::{fs, io::ErrorKind, net::TcpListener};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home::{Home, RunningGateway, run_command, until};

/// A local provider whose key is in a variable. It never answers, and must not receive a request.
struct Fake {
    listener: TcpListener,
}

impl Fake {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    fn config(&self) -> Value {
        json!({
            "agents": {"defaults": {"model": "fake/fake-1"}},
            "models": {"providers": {"fake": {
                "baseUrl": format!("http://{}/v1", self.listener.local_addr().unwrap()), "apiKey": "${FAKE_KEY}",
                "api": "openai-completions", "models": [{"id": "fake-1", "contextWindow": 40_000, "maxTokens": 4_096}],
            }}},
        })
    }

    fn was_asked(&self) -> bool {
        !self.listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Returns the stdout of a gateway until it is stopped.
fn table(gateway: RunningGateway<'_>) -> String {
    gateway.process.signal(Signal::TERM);
    gateway.end().1
}

#[test]
fn a_provider_with_an_unset_key_is_not_called_and_reports_name_the_variable() {
    let (home, fake) = (Home::new(), Fake::new());
    home.configure(&fake.config().to_string());
    let expected = "models.providers.fake.apiKey needs the environment variable FAKE_KEY, which is not set";
    let turn = home.run(&["agent", "-m", "hi"]);
    assert!(turn.code == Some(1) && turn.stderr.contains(expected), "{turn:?}");
    for (args, code) in [
        (&["config", "validate"][..], 1),
        (&["doctor"], 1),
        (&["status"], 0),
        (&["models", "status"], 0),
        (&["models", "status", "--json"], 0),
    ] {
        let output = home.run(args);
        assert!(output.code == Some(code) && output.stdout.contains(expected), "{args:?}: {output:?}");
    }
    let status = home.run(&["models", "status", "--json"]).json();
    assert_eq!(status["candidates"][0]["state"], "missing");
    let log = home.work().join("log");
    let gateway = home.gateway_with_log(fs::File::create(&log).unwrap(), "warn");
    let turn = gateway.run(&["agent", "-m", "hi"]);
    assert!(turn.code == Some(1) && turn.stderr.contains(expected), "{turn:?}");
    assert!(gateway.run(&["status"]).stdout.contains(expected));
    let table = table(gateway);
    assert!(table.contains("models.providers.fake is down: line 1, column ") && table.contains(expected), "{table}");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(expected), "{log}");
    assert!(!fake.was_asked());
}

#[test]
fn the_demo_model_does_not_replace_a_model_with_an_unset_key() {
    let home = Home::new();
    home.configure("{models: {providers: {anthropic: {apiKey: '${NOT_SET}'}}}}");
    let turn = home.run(&["agent", "-m", "hi"]);
    let expected = "models.providers.anthropic.apiKey needs the environment variable NOT_SET, which is not set";
    assert!(turn.code == Some(1) && turn.stdout.is_empty() && turn.stderr.contains(expected), "{turn:?}");
}

#[test]
fn a_channel_whose_token_is_not_set_is_down_and_the_gateway_runs() {
    let home = Home::new();
    let config = json!({"channels": {
        "telegram": {"botToken": "${TG_TOKEN}", "apiRoot": "http://127.0.0.1:9"},
        "webhook": {"secret": "a-secret-of-16-characters"},
    }});
    home.configure(&config.to_string());
    let expected = "channels.telegram.botToken needs the environment variable TG_TOKEN, which is not set";
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    // Another token must not replace the one that the config names.
    command.env("TELEGRAM_BOT_TOKEN", "123456:another");
    let gateway = home.listening(command);
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let channels = gateway.run(&["channels", "status", "--json"]).json();
    let telegram = &channels["channelAccounts"]["telegram"][0];
    assert_eq!((&telegram["accountId"], &telegram["running"]), (&json!("default"), &json!(false)), "{channels}");
    assert!(telegram["lastError"].as_str().unwrap().contains(expected), "{channels}");
    assert_eq!(channels["channelAccounts"]["webhook"][0]["configured"], true, "{channels}");
    assert!(gateway.run(&["status"]).stdout.contains(expected));
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains("channel telegram:default: "), "{health:?}");
    let listed = home.run(&["channels", "list"]);
    assert!(listed.stdout.contains("TG_TOKEN"), "{listed:?}");
    let doctor = gateway.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains(expected), "{doctor:?}");
    let table = table(gateway);
    assert!(table.contains("channels.telegram is down: ") && table.contains(expected), "{table}");
}

#[test]
fn a_gateway_does_not_start_without_an_essential_value() {
    for (config, path) in [
        ("{gateway: {auth: {token: '${NOT_SET}'}}}", "gateway.auth.token"),
        ("{agents: {defaults: {model: '${NOT_SET}'}}}", "agents.defaults.model"),
        ("{tools: {deny: ['${NOT_SET}']}}", "tools.deny[0]"),
    ] {
        let home = Home::new();
        home.configure(config);
        let expected = format!("{path} needs the environment variable NOT_SET, which is not set");
        let (code, stderr) = home.refused_start();
        assert!(code == Some(78) && stderr.contains(&expected), "{stderr}");
        let turn = home.run(&["agent", "-m", "hi", "--local"]);
        assert!(turn.code == Some(78) && turn.stderr.contains(&expected), "{turn:?}");
    }
}

#[test]
fn a_variable_that_only_the_gateway_has_is_not_missed_by_its_clients() {
    let home = Home::new();
    home.configure("{gateway: {auth: {token: '${THE_TOKEN}'}}, tools: {deny: ['${ALSO}']}, env: {ALSO: 'exec'}}");
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    command.env("THE_TOKEN", "hush-hush-hush");
    let gateway = home.listening(command);
    let output = gateway.run(&["health"]);
    let expected = "gateway.auth.token needs the environment variable THE_TOKEN, which is not set";
    assert!(output.code == Some(1) && output.stderr.contains(expected), "{output:?}");
    let mut command = gateway.command(&["agent", "-m", "What time is it?"]);
    command.env("HOMARD_GATEWAY_TOKEN", "hush-hush-hush");
    let turn = run_command(command);
    assert_eq!((turn.code, turn.stderr.contains("THE_TOKEN")), (Some(0), false), "{turn:?}");
}

#[test]
fn a_running_gateway_rejects_an_edit_that_disables_a_feature() {
    let home = Home::new();
    home.configure("{skills: {entries: {old: {apiKey: '${OLD_KEY}'}}}}");
    let gateway = home.gateway();
    let status = || gateway.run(&["status", "--json"]).json();
    let notice = || status()["notice"].as_str().unwrap_or_default().to_owned();
    assert!(notice().contains("OLD_KEY"), "{}", notice());
    let name = || gateway.run(&["gateway", "call", "agents.list"]).json()["agents"][0]["name"].clone();
    home.configure("{skills: {entries: {old: {apiKey: '${OLD_KEY}'}}}, agents: {list: [{id: 'main', name: 'Ada'}]}}");
    until("what was wrong before hinders nothing", || name() == "Ada");
    home.configure(
        "{skills: {entries: {old: {apiKey: '${OLD_KEY}'}, new: {apiKey: '${NEW_KEY}'}}}, agents: {list: [{id: 'main', name: 'Bob'}]}}",
    );
    until("the new variable is missed", || notice().contains("NEW_KEY"));
    assert_eq!(name(), "Ada");
}

#[test]
fn features_with_an_unset_variable_are_disabled_and_named_by_their_commands() {
    let home = Home::new();
    let config = json!({
        "mcp": {"servers": {"sea": {"command": "true", "env": {"KEY": "${SEA_KEY}"}}}},
        "skills": {"entries": {"tides": {"apiKey": "${TIDE_KEY}"}}},
        "plugins": {"entries": {"watch": {"enabled": true, "config": {"key": "${WATCH_KEY}"}}}},
        "hooks": {
            "enabled": true, "token": "${HOOK_TOKEN}",
            "internal": {"enabled": true, "entries": {"session-memory": {"enabled": true, "env": {"K": "${MEMORY_KEY}"}}}},
        },
        "tools": {"web": {"search": {"apiKey": "${BRAVE_KEY}"}}},
    });
    home.configure(&config.to_string());
    let skill = home.state().join("skills/tides");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: tides\ndescription: Tells when the water is high.\n---\nLook.\n")
        .unwrap();
    let plugin = home.state().join("extensions/watch");
    fs::create_dir_all(&plugin).unwrap();
    let manifest = json!({"id": "watch", "run": ["true"], "configSchema": {}});
    fs::write(plugin.join("homard.plugin.json"), manifest.to_string()).unwrap();
    for (args, name) in [
        (&["mcp", "list"][..], "SEA_KEY"),
        (&["skills", "info", "tides"], "TIDE_KEY"),
        (&["plugins", "info", "watch"], "WATCH_KEY"),
        (&["hooks", "info", "session-memory"], "MEMORY_KEY"),
    ] {
        let output = home.run(args);
        assert!(output.stdout.contains(name), "{args:?}: {output:?}");
    }
    let gateway = home.gateway();
    let status = gateway.run(&["status"]).stdout;
    for name in ["SEA_KEY", "TIDE_KEY", "WATCH_KEY", "MEMORY_KEY", "HOOK_TOKEN", "BRAVE_KEY"] {
        assert!(status.contains(name), "{name}: {status}");
    }
}
