//! `homard gateway install`, `start`, `stop` and `status`, with a double of systemctl and without a service manager.

use std::{fs, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::home::{CommandOutput, Home, run_command, until};

/// A `systemctl` that writes its arguments to a file and reports what a file says.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> "$HOME/calls"
case "$*" in
  *is-system-running*) echo running ;;
  *show*) cat "$HOME/properties" 2>/dev/null || echo LoadState=not-found ;;
esac
"#;

/// Runs a command in a home whose service manager is the double.
fn with_systemd(home: &Home, args: &[&str]) -> CommandOutput {
    run_command(systemd_command(home, args))
}

/// Returns a command in a home whose service manager is the double.
pub(crate) fn systemd_command(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(args);
    let folder = home.work().join("bin");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("HOME", home.work());
    command
}

pub(crate) fn systemd_home() -> Home {
    let home = Home::new();
    let folder = home.work().join("bin");
    fs::create_dir(&folder).unwrap();
    for name in ["systemctl", "loginctl"] {
        // Written by another process: a file that is open for writing in a child of another test cannot be executed.
        let script = r#"cat > "$0"; chmod 755 "$0""#;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(script).arg(folder.join(name)).stdin(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), SYSTEMCTL.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }
    home
}

pub(crate) fn calls(home: &Home) -> Vec<String> {
    let text = fs::read_to_string(home.work().join("calls")).unwrap_or_default();
    fs::remove_file(home.work().join("calls")).ok();
    let is_change = |line: &&str| !line.contains("is-system-running") && !line.contains("show");
    text.lines().filter(is_change).map(str::to_owned).collect()
}

#[test]
fn a_service_of_the_user_is_installed_shown_and_removed() {
    let home = systemd_home();
    let installed = with_systemd(&home, &["gateway", "install"]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert_eq!(
        calls(&home),
        ["--user daemon-reload", "--user enable homard.service", "enable-linger", "--user start homard.service"]
    );
    let folder = home.work().join(".config/systemd/user");
    let unit = fs::read_to_string(folder.join("homard.service")).unwrap();
    assert!(unit.contains(&format!("HOMARD_STATE_DIR={}\"", home.state().display())), "{unit}");
    let socket = fs::read_to_string(folder.join("homard.socket")).unwrap();
    assert!(socket.contains(&format!("ListenStream=127.0.0.1:{}\n", home.port)), "{socket}");
    let properties =
        "LoadState=loaded\nUnitFileState=enabled\nActiveState=failed\nNRestarts=3\nExecMainCode=1\nExecMainStatus=78\n";
    fs::write(home.work().join("properties"), properties).unwrap();
    let shown = with_systemd(&home, &["gateway", "status", "--json"]);
    assert_eq!(shown.code, Some(1), "no gateway runs: {shown:?}");
    let expected = json!({
        "manager": "systemd (user)", "isInstalled": true, "isEnabled": true, "activity": "failed", "pid": null,
        "restarts": 3, "lastExit": "exit code 78",
    });
    assert_eq!(shown.json()["service"], expected);
    with_systemd(&home, &["gateway", "stop"]);
    assert_eq!(calls(&home), ["--user stop homard.socket homard.service"]);
    let removed = with_systemd(&home, &["gateway", "uninstall"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(calls(&home), ["--user disable --now homard.service homard.socket", "--user daemon-reload"]);
    assert!(!folder.join("homard.service").exists() && !folder.join("homard.socket").exists());
    let again = with_systemd(&home, &["gateway", "uninstall"]);
    assert!(again.stderr.contains("the service is not installed"), "{again:?}");
}

#[test]
fn the_units_can_be_printed_for_the_machine() {
    let home = systemd_home();
    let args = ["gateway", "install", "--print", "--system", "--user", "bot", "--credential", "key=/etc/homard/key"];
    let printed = with_systemd(&home, &args).stdout;
    for line in ["User=bot", "LoadCredential=key:/etc/homard/key", "Type=notify", "[Socket]"] {
        assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
    }
    assert_eq!(calls(&home), [""; 0]);
}

#[test]
fn without_a_service_manager_the_way_out_is_named() {
    let home = Home::new();
    let refused = run_command(without_systemd(&home, &["gateway", "install"]));
    assert_eq!(refused.code, Some(1));
    let expected = "error: no service manager runs for this user\n\
                    run the gateway in the background, restarted after failures, with: homard gateway start\n\
                    or let the init system of the machine or container run: homard gateway run\n";
    assert_eq!(refused.stderr, expected);
}

/// Returns a command for which there is no service manager.
fn without_systemd(home: &Home, args: &[&str]) -> Command {
    let folder = home.work().join("no-bin");
    fs::create_dir_all(&folder).unwrap();
    let mut command = home.command(args);
    // The port is that of the config: the environment would hold for every gateway.
    command.env("PATH", folder).env_remove("HOMARD_GATEWAY_PORT");
    command
}

/// Stops the background gateway of a test that fails.
struct Background<'a>(&'a Home);

impl Background<'_> {
    fn run(&self, args: &[&str]) -> CommandOutput {
        run_command(without_systemd(self.0, args))
    }

    fn status(&self) -> Value {
        self.run(&["gateway", "status", "--json"]).json()
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.run(&["gateway", "stop"]);
    }
}

#[test]
fn a_gateway_in_the_background_is_restarted_after_a_crash_and_stopped_on_request() {
    let home = Home::new();
    home.configure("{gateway: {port: 0}}");
    let background = Background(&home);
    let started = background.run(&["gateway", "start"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    assert!(started.stdout.contains("it does not start with the machine"), "{started:?}");
    let again = background.run(&["gateway", "start"]);
    assert!(again.stderr.contains("a gateway already runs: process"), "{again:?}");
    let status = background.status();
    let pid = status["gateway"]["pid"].as_i64().unwrap();
    assert_eq!((&status["service"]["manager"], &status["service"]["pid"]), (&json!("supervisor"), &json!(pid)));
    assert!(status["gateway"]["listeners"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{status}");
    let restarted = background.run(&["gateway", "restart", "--json"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    let restarted = restarted.json();
    assert_eq!(restarted["before"]["pid"], restarted["after"]["pid"]);
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    until("it runs again", || {
        let status = background.status();
        status["gateway"]["pid"].as_i64().is_some_and(|now| now != pid)
    });
    let status = background.status();
    assert_eq!(
        (&status["service"]["restarts"], status["service"]["lastExit"].as_str().unwrap()),
        (&json!(1), "signal: 9 (SIGKILL)")
    );
    let stopped = background.run(&["gateway", "stop"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), "the gateway is stopped\n"));
    assert_eq!(background.status()["running"], false);
    let nothing = background.run(&["gateway", "stop"]);
    assert!(nothing.stderr.contains("no gateway runs"), "{nothing:?}");
}
