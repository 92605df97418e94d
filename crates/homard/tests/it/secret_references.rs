//! Secrets that the config names: in files, in credentials of the service manager, and from commands.

use std::fs;

use crate::home::Home;

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
