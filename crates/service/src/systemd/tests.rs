//! Tests of the units: their text, and what systemd says about them.

use std::{fs, io::Write as _, path::PathBuf, process::Command};

use super::*;
use crate::spec::Credential;

/// Upper limit of the exposure that `systemd-analyze security` computes for the system unit.
const MAX_EXPOSURE: f32 = 3.0;

pub(crate) fn spec(scope: Scope) -> ServiceSpec {
    let state_dir = match &scope {
        Scope::User => "/home/ada/.homard",
        Scope::System(_) => "/var/lib/homard",
    };
    ServiceSpec {
        program: "/usr/bin/homard".into(),
        state_dir: state_dir.into(),
        config: None,
        addresses: vec!["127.0.0.1:18789".parse().unwrap(), "[::1]:18789".parse().unwrap()],
        scope,
        credentials: Vec::new(),
        environment_file: None,
        search_path: String::new(),
    }
}

fn system() -> ServiceSpec {
    let credentials = vec![Credential::parse("openai-key=/etc/homard/openai key").unwrap()];
    let environment_file = Some(PathBuf::from("/etc/homard/environment"));
    ServiceSpec { credentials, environment_file, ..spec(Scope::System("homard".to_owned())) }
}

#[test]
fn the_units_of_a_user() {
    insta::assert_snapshot!("user.service", service(&spec(Scope::User)).unwrap());
    insta::assert_snapshot!("homard.socket", socket(&spec(Scope::User)).unwrap());
}

#[test]
fn the_units_of_a_machine() {
    insta::assert_snapshot!("system.service", service(&system()).unwrap());
    assert_eq!(socket(&system()), socket(&spec(Scope::User)));
}

#[test]
fn without_addresses_the_gateway_opens_its_own_sockets() {
    let spec = ServiceSpec { addresses: Vec::new(), ..spec(Scope::User) };
    assert!(socket(&spec).is_none() && !service(&spec).unwrap().contains("socket"));
}

#[test]
fn unusual_paths_are_escaped() {
    let program = "/opt/a \"b\" 50%$X/homard".into();
    let spec = ServiceSpec { program, state_dir: "/srv/a b%".into(), ..system() };
    let unit = service(&spec).unwrap();
    assert!(unit.contains("ExecStart=\"/opt/a \\\"b\\\" 50%%$$X/homard\" gateway run\n"), "{unit}");
    assert!(unit.contains("Environment=\"HOMARD_STATE_DIR=/srv/a b%%\"\n"), "{unit}");
    assert!(unit.contains("ReadWritePaths=\"/srv/a b%%\"\n"), "{unit}");
}

#[test]
fn a_line_break_adds_no_directive() {
    let error = service(&ServiceSpec { state_dir: "/a\nExecStart=/bin/sh".into(), ..system() }).unwrap_err();
    assert_eq!(error.to_string(), "\"/a\\nExecStart=/bin/sh\" contains a control character");
}

#[test]
fn a_state_directory_in_a_home_is_the_only_part_of_it_that_the_service_sees() {
    let unit = service(&ServiceSpec { state_dir: "/home/ada/.homard".into(), ..system() }).unwrap();
    assert!(unit.contains("ProtectHome=tmpfs\nBindPaths=/home/ada/.homard\n"), "{unit}");
}

/// Writes the units into a directory, with a program that exists, and returns the path of the service unit. `None`
/// without systemd-analyze: the test is listed as skipped.
fn written(test: &str, spec: ServiceSpec, folder: &Path) -> Option<PathBuf> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        std::io::stderr().write_all(format!("skipped: {test}: there is no systemd-analyze\n").as_bytes()).unwrap();
        return None;
    }
    let spec = ServiceSpec { program: "/bin/true".into(), ..spec };
    let path = folder.join("homard.service");
    fs::write(&path, service(&spec).unwrap()).unwrap();
    fs::write(folder.join("homard.socket"), socket(&spec).unwrap()).unwrap();
    Some(path)
}

#[test]
fn systemd_accepts_the_units() {
    for (scope, spec) in [("--user", spec(Scope::User)), ("--system", system())] {
        let folder = tempfile::tempdir().unwrap();
        let Some(unit) = written("systemd_accepts_the_units", spec, folder.path()) else { return };
        let mut command = Command::new("systemd-analyze");
        command.args([scope, "verify", "--man=no", "--recursive-errors=no"]).arg(&unit);
        let output =
            command.arg(folder.path().join("homard.socket")).env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !text.contains("homard."), "{scope}: {text}");
    }
}

#[test]
fn systemd_rates_the_system_unit_as_safe() {
    let folder = tempfile::tempdir().unwrap();
    let Some(unit) = written("systemd_rates_the_system_unit_as_safe", system(), folder.path()) else { return };
    let mut command = Command::new("systemd-analyze");
    let output = command.args(["security", "--offline=true", "--no-pager"]).arg(&unit).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rating = text.lines().last().and_then(|line| line.split_once(": ")?.1.split(' ').next()?.parse::<f32>().ok());
    assert!(rating.is_some_and(|rating| rating <= MAX_EXPOSURE), "{text}");
}
