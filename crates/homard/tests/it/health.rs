//! `homard health` and `homard doctor` while a configured channel or the configured model is down.

use std::{fs, os::unix::fs::PermissionsExt as _};

use homard_testkit::{FakeTelegram, fake_telegram::TOKEN};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home::{Home, RunningGateway, run_command, until};

/// Returns the outages that the gateway reports.
fn degraded(gateway: &RunningGateway<'_>) -> Vec<Value> {
    let health = gateway.run(&["health", "--json"]).json();
    assert_eq!(health["ok"], true, "clients of OpenClaw read it: {health}");
    health["degraded"].as_array().unwrap_or_else(|| panic!("{health}")).clone()
}

/// Writes the config with the permissions that doctor expects.
fn configure(home: &Home, config: &Value) {
    home.configure(&config.to_string());
    for (path, mode) in [(home.state(), 0o700), (home.state().join("homard.json"), 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_gateway_without_outages_is_healthy() {
    let home = Home::new();
    let gateway = home.gateway();
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(0) && health.stdout.contains(" healthy "), "{health:?}");
    assert_eq!(degraded(&gateway), Vec::<Value>::new());
    assert_eq!(gateway.run(&["doctor"]).code, Some(0));
}

#[test]
fn a_model_without_a_key_is_down() {
    let home = Home::new();
    configure(&home, &json!({"agents": {"defaults": {"model": "anthropic/claude-opus-5-5"}}}));
    let gateway = home.gateway();
    let expected = "no API key for anthropic; set ANTHROPIC_API_KEY";
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains("unhealthy"), "{health:?}");
    assert!(
        health.stdout.contains("model of agent main: anthropic/claude-opus-5-5: ") && health.stdout.contains(expected)
    );
    let json = gateway.run(&["health", "--json"]);
    assert_eq!((json.code, json.stderr.as_str()), (Some(1), ""), "{json:?}");
    let [down] = &degraded(&gateway)[..] else { panic!("{json:?}") };
    assert_eq!((&down["part"], &down["id"]), (&json!("model"), &json!("main")));
    assert!(down["why"].as_str().unwrap().contains(expected), "{down}");
    let status = gateway.run(&["status"]);
    assert!(status.stdout.contains("model of agent main: ") && status.stdout.contains(expected), "{status:?}");
    let doctor = gateway.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains(expected), "{doctor:?}");
    let rpc = gateway.run(&["gateway", "call", "doctor.run"]);
    // The check of models and the gateway know it; it is reported once.
    assert!(rpc.code == Some(0) && rpc.stdout.matches(expected).count() == 1, "{rpc:?}");
    assert_eq!(rpc.json()["needsAHand"], 1, "{rpc:?}");
}

#[test]
fn a_model_that_does_not_exist_is_down() {
    let home = Home::new();
    configure(&home, &json!({"agents": {"defaults": {"model": "nobody/x"}}}));
    let gateway = home.gateway();
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains("unknown provider \"nobody\""), "{health:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_is_down_until_its_platform_answers() {
    let home = Home::new();
    let channels = |root: &str| json!({"channels": {"telegram": {"botToken": TOKEN, "apiRoot": root}}});
    configure(&home, &channels(&format!("http://127.0.0.1:{}", home.port)));
    let gateway = home.gateway();
    until("the channel is down", || !degraded(&gateway).is_empty());
    let [down] = &degraded(&gateway)[..] else { panic!("one thing is down") };
    assert_eq!((&down["part"], &down["id"]), (&json!("channel"), &json!("telegram:default")));
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains("channel telegram:default: "), "{health:?}");
    let doctor = gateway.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains("channel telegram:default is down: "), "{doctor:?}");
    let telegram = FakeTelegram::start().await.unwrap();
    configure(&home, &channels(&telegram.root()));
    until("the channel is up", || degraded(&gateway).is_empty());
    let health = gateway.run(&["health"]);
    assert_eq!(health.code, Some(0), "{health:?}");
}

#[test]
fn a_channel_that_cannot_be_set_up_is_down_and_doctor_reports_it_without_a_gateway() {
    let home = Home::new();
    configure(&home, &json!({"channels": {"telegram": {"enabled": true}, "webhook": {"enabled": false}}}));
    let expected = "the bot token is missing";
    let doctor = home.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains(expected), "{doctor:?}");
    let gateway = home.gateway();
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains(expected), "{health:?}");
    let doctor = gateway.run(&["doctor", "--json"]);
    assert_eq!(doctor.json()["needsAHand"], 1, "it is told once: {doctor:?}");
}

#[test]
fn a_gateway_that_does_not_run_the_config_file_is_unhealthy() {
    let home = Home::new();
    configure(&home, &json!({"gateway": {"auth": {"token": "hush-hush-hush"}}}));
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    fs::write(home.state().join("homard.json"), "{").unwrap();
    let gateway = home.gateway();
    let health = gateway.run(&["health"]);
    assert!(health.code == Some(1) && health.stdout.contains("the last valid config is used instead"), "{health:?}");
    assert_eq!(degraded(&gateway)[0]["part"], "config");
}

#[test]
fn commands_find_a_gateway_that_listens_on_another_port_than_the_config_names() {
    let home = Home::new();
    let gateway = home.gateway();
    home.configure("{gateway: {port: 9}}");
    let health = || {
        let mut command = home.command(&["health"]);
        command.env_remove("HOMARD_GATEWAY_PORT");
        run_command(command)
    };
    let found = health();
    assert!(found.code == Some(0) && found.stdout.contains(" healthy "), "{found:?}");
    drop(gateway);
    let without_gateway = health();
    assert!(without_gateway.code == Some(1) && without_gateway.stderr.contains("127.0.0.1:9\n"), "{without_gateway:?}");
}
