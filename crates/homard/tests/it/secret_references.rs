//! Secrets that the config names: in files, in credentials of the service manager, and from commands.

use std::{fs, os::unix::fs::DirBuilderExt as _, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    home::{Home, run_command, until},
    plugins::{PROGRAM, plugin},
    scripted_model::ScriptedHome,
};

#[test]
fn a_token_is_read_from_a_credential_and_named_in_the_config_as_it_was_written() {
    let home = Home::new();
    let credentials = home.work().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("token"), "a token of the tests\n").unwrap();
    home.configure("{gateway: {auth: {token: '${credential:token}'}}}");
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    command.env("CREDENTIALS_DIRECTORY", &credentials).stderr(std::process::Stdio::null());
    let gateway = home.listening(command);
    let with_credentials = |args: &[&str]| {
        let mut command = gateway.command(args);
        command.env("CREDENTIALS_DIRECTORY", &credentials);
        crate::home::run_command(command)
    };
    let health = with_credentials(&["health", "--json"]);
    assert_eq!(health.code, Some(0), "{health:?}");
    let shown = with_credentials(&["config", "get", "gateway.auth.token"]);
    assert!(shown.stdout.contains("${credential:token}") && !shown.stdout.contains("a token"), "{shown:?}");
}

#[test]
fn a_secret_that_is_missing_stops_the_gateway_with_its_reason() {
    let home = Home::new();
    for (text, why) in [
        ("${file:/no/such/file}", "gateway.auth.token names the file /no/such/file, which cannot be read"),
        ("${credential:token}", "gateway.auth.token needs the credential token, and no service manager passed any"),
        ("${cmd:echo token}", "gateway.auth.token runs a command for a secret, which is off"),
    ] {
        home.configure(&format!("{{gateway: {{auth: {{token: '{text}'}}}}}}"));
        let (code, stderr) = home.refused_start();
        assert!(code == Some(78) && stderr.contains(why), "{stderr}");
    }
}

#[test]
fn a_command_gives_the_secret_if_the_environment_allows_it() {
    let home = Home::new();
    home.configure("{gateway: {auth: {token: '${cmd:printf a-token-of-the-tests}'}}}");
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    command.env("HOMARD_SECRET_COMMANDS", "1").stderr(std::process::Stdio::null());
    let gateway = home.listening(command);
    let mut command = gateway.command(&["health"]);
    command.env("HOMARD_SECRET_COMMANDS", "1");
    assert_eq!(crate::home::run_command(command).code, Some(0));
}

/// Adds secrets in every place from which Homard reads them, and children that write their environment into `work`.
fn add_secrets_and_children(home: &Home, work: &Path) {
    plugin(work.join("tides"), "tides");
    let dump = format!("import os\nopen({:?}, 'w').write(str(dict(os.environ)))\n{PROGRAM}", work.join("plugin.env"));
    fs::write(work.join("tides/plugin.py"), dump).unwrap();
    for args in [
        &["plugins", "install", "tides"][..],
        &["plugins", "enable", "tides"],
        &["config", "set", "plugins.entries.tides.config.tools", "[\"tide\"]"],
    ] {
        assert_eq!(home.run(args).code, Some(0), "{args:?}");
    }
    fs::write(work.join("key"), "canary-of-a-file").unwrap();
    fs::create_dir(work.join("credentials")).unwrap();
    fs::write(work.join("credentials/key"), "canary-of-a-credential").unwrap();
    let agent = home.state().join("agents/main/agent");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&agent).unwrap();
    let profiles = json!({
        "mine:oauth": {"type": "oauth", "provider": "mine", "access": "canary-access", "refresh": "canary-refresh",
            "expires": 4_102_444_800_000_u64},
        "mine:key": {"type": "api_key", "provider": "mine", "key": "canary-of-a-profile"},
    });
    fs::write(agent.join("auth-profiles.json"), json!({"version": 1, "profiles": profiles}).to_string()).unwrap();
    let path = home.state().join("homard.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (provider, key) in [
        ("file", format!("${{file:{}}}", work.join("key").display())),
        ("credential", "${credential:key}".to_owned()),
        ("command", format!("${{cmd:env > {}; echo canary-of-a-command}}", work.join("command.env").display())),
        ("variable", "${MOON_KEY}".to_owned()),
    ] {
        config["models"]["providers"][provider] = json!({"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": key, "models": [{"id": "m"}]});
    }
    let dump = format!("env > {}", work.join("mcp.env").display());
    config["mcp"]["servers"]["dump"] = json!({"command": "/bin/sh", "args": ["-c", dump]});
    home.configure(&config.to_string());
}

fn add_variables(command: &mut Command, work: &Path) {
    command.env("CREDENTIALS_DIRECTORY", work.join("credentials")).env("HOMARD_SECRET_COMMANDS", "1");
    command.env("OPENAI_API_KEY", "canary-of-a-variable").env("ANTHROPIC_OAUTH_TOKEN", "canary-of-a-token");
    command.env("MOON_KEY", "canary-of-the-config");
}

// R71.
#[tokio::test(flavor = "multi_thread")]
async fn child_processes_get_no_secrets() {
    let fixture = ScriptedHome::with(json!({})).await;
    let (home, work) = (&fixture.home, fixture.home.work());
    add_secrets_and_children(home, &work);
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    add_variables(&mut command, &work);
    let gateway = home.listening({
        command.stderr(std::process::Stdio::null());
        command
    });
    let call = format!("CALL exec {}", json!({"command": "env > exec.env; cat exec.env"}));
    let mut command = gateway.command(&["agent", "-m", &call]);
    add_variables(&mut command, &work);
    let output = run_command(command);
    assert_eq!(output.code, Some(0), "{output:?}");
    let folders = [work, home.state().join("workspace")];
    let read = |name: &str| {
        let text = folders.iter().find_map(|folder| fs::read_to_string(folder.join(name)).ok());
        text.filter(|text| text.contains("PATH"))
    };
    for name in ["exec.env", "mcp.env", "plugin.env", "command.env"] {
        until(name, || read(name).is_some());
        let environment = read(name).unwrap();
        for secret in ["canary", "CREDENTIALS_DIRECTORY", "_API_KEY", "_TOKEN", "MOON_KEY"] {
            assert!(!environment.contains(secret), "{name} contains {secret}: {environment}");
        }
    }
}
