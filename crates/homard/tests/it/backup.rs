//! `homard backup` and `homard restore`, with and without a gateway that uses the state directory.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use crate::home::{CommandOutput, Home};

#[test]
fn a_backup_of_a_running_gateway_can_be_restored() {
    let home = Home::new();
    home.configure("{/* mine */ agents: {defaults: {}}}");
    for is_gateway in [true, false] {
        let gateway = is_gateway.then(|| home.gateway());
        let run = |args: &[&str]| gateway.as_ref().map_or_else(|| home.run(args), |gateway| gateway.run(args));
        assert_eq!(run(&["agent", "-m", "What time is it?", "--session-key", "garden"]).code, Some(0));
        let (name, later) = (format!("copy-{is_gateway}"), format!("later-{is_gateway}"));
        let output = run(&["backup", &name, "--json"]);
        assert_eq!((output.code, &output.json()["ok"]), (Some(0), &json!(true)), "{output:?}");
        let copy = home.work().join(&name);
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700);
        let journal: Vec<_> =
            fs::read_dir(home.state().join("journal")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!journal.iter().any(|name| name.to_string_lossy().starts_with("backup-")), "{journal:?}");
        let again = run(&["backup", &name]);
        assert!(again.code == Some(1) && again.stderr.contains("already exists"), "{again:?}");
        let shown = run(&["sessions", "show", "garden", "--json"]).json();
        // The gateway continues to work, and what comes later is not in the copy.
        assert_eq!(run(&["agent", "-m", "What time is it?", "--session-key", &later]).code, Some(0));

        let other = Home::new();
        let restore = |home: &Home, args: &[&str]| -> CommandOutput {
            home.run(&[&["restore", copy.to_str().unwrap()], args].concat())
        };
        let output = restore(&other, &["--json"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(other.run(&["sessions", "show", "garden", "--json"]).json(), shown);
        assert_eq!(other.run(&["sessions", "show", &later]).code, Some(1));
        assert!(fs::read_to_string(other.state().join("homard.json")).unwrap().contains("/* mine */"));
        assert_eq!(other.run(&["trace", "last"]).code, Some(0));
        // A restored directory works.
        assert_eq!(other.run(&["agent", "-m", "What time is it?", "--session-key", "garden"]).code, Some(0));
        let output = restore(&other, &[]);
        assert!(output.code == Some(1) && output.stderr.contains("is not empty; --force"), "{output:?}");
        let output = restore(&other, &["--force", "--json"]).json();
        let previous = output["previous"].as_str().unwrap();
        assert!(fs::metadata(previous).unwrap().is_dir(), "{output}");
        assert_eq!(other.run(&["sessions", "show", "garden", "--json"]).json(), shown);
    }
}

#[test]
fn a_directory_in_use_is_not_replaced() {
    let home = Home::new();
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["backup", "copy"]).code, Some(0));
    let before = fs::read_dir(home.state()).unwrap().count();
    let output = gateway.run(&["restore", "copy", "--force"]);
    assert!(output.code == Some(1) && output.stderr.contains("is in use; stop the gateway first"), "{output:?}");
    assert_eq!(fs::read_dir(home.state()).unwrap().count(), before);
}

#[test]
fn an_incomplete_or_damaged_backup_is_rejected() {
    let home = Home::new();
    let output = home.run(&["backup", "copy"]);
    assert!(output.code == Some(1) && output.stderr.contains("there is no state directory"), "{output:?}");
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let inside = home.state().join("copy");
    assert_eq!(home.run(&["backup", inside.to_str().unwrap()]).code, Some(2));
    assert_eq!(home.run(&["backup", "copy"]).code, Some(0));
    let other = Home::new();
    let copy = home.work().join("copy");
    let restore = || other.run(&["restore", copy.to_str().unwrap()]);
    let database = copy.join("journal/journal.db");
    let intact = fs::read(&database).unwrap();
    fs::write(&database, [&intact[..100], &[0x5a; 8_000], &intact[8_100..]].concat()).unwrap();
    let output = restore();
    assert!(output.code == Some(1) && output.stderr.contains("journal.db was changed"), "{output:?}");
    // A backup without digests, as early versions wrote it, is still checked by opening its database.
    let manifest_file = copy.join("homard-backup.json");
    let with_digests = fs::read(&manifest_file).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&with_digests).unwrap();
    manifest.as_object_mut().unwrap().remove("sha256");
    fs::write(&manifest_file, manifest.to_string()).unwrap();
    let output = restore();
    assert!(output.code == Some(1) && output.stderr.contains("cannot be used"), "{output:?}");
    fs::write(&manifest_file, with_digests).unwrap();
    fs::write(&database, &intact).unwrap();
    let manifest = fs::read(copy.join("homard-backup.json")).unwrap();
    fs::remove_file(copy.join("homard-backup.json")).unwrap();
    let output = restore();
    assert!(output.code == Some(2) && output.stderr.contains("is not a complete backup"), "{output:?}");
    assert!(!other.state().exists());
    fs::write(copy.join("homard-backup.json"), manifest).unwrap();
    assert_eq!(restore().code, Some(0));
}

#[test]
fn a_backup_in_one_file_is_restored_and_verified() {
    let home = Home::new();
    home.configure("{/* mine */ agents: {defaults: {}}}");
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?", "--session-key", "garden"]).code, Some(0));
    let shown = gateway.run(&["sessions", "show", "garden", "--json"]).json();
    for name in ["copy.tar.zst", "copy.tar.gz"] {
        let output = gateway.run(&["backup", "--output", name, "--json"]);
        assert_eq!((output.code, &output.json()["ok"]), (Some(0), &json!(true)), "{output:?}");
        let file = home.work().join(name);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let left: Vec<_> = fs::read_dir(home.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("copy.")), "{left:?}");
        let again = gateway.run(&["backup", "--output", name]);
        assert!(again.code == Some(1) && again.stderr.contains("already exists"), "{again:?}");
        let restore = |home: &Home| home.run(&["restore", file.to_str().unwrap()]);
        let other = Home::new();
        assert_eq!(restore(&other).code, Some(0));
        assert_eq!(other.run(&["sessions", "show", "garden", "--json"]).json(), shown);
        assert!(fs::read_to_string(other.state().join("homard.json")).unwrap().contains("/* mine */"));
        // A torn file, and one with a changed byte.
        let intact = fs::read(&file).unwrap();
        let middle = intact.len() / 2;
        let flipped = [&intact[..middle], &[!intact[middle]], &intact[middle + 1..]].concat();
        for damaged in [&intact[..middle], &intact[..intact.len() - 1], &flipped] {
            fs::write(&file, damaged).unwrap();
            let empty = Home::new();
            let output = restore(&empty);
            assert!(output.code != Some(0) && !empty.state().exists(), "{name}: {output:?}");
            let beside = fs::read_dir(empty.state().parent().unwrap()).unwrap().count();
            assert_eq!(beside, 1, "only the working directory is left");
        }
    }
    assert_eq!(gateway.run(&["backup", "--output", "copy.zip"]).code, Some(2));
    assert_eq!(gateway.run(&["backup", "--output", "x.tar.gz", "folder"]).code, Some(2));
}

#[test]
fn a_changed_directory_is_refused() {
    let home = Home::new();
    assert_eq!(home.run(&["agent", "-m", "What time is it?", "--session-key", "garden"]).code, Some(0));
    assert_eq!(home.run(&["backup", "copy"]).code, Some(0));
    let copy = home.work().join("copy");
    let sessions = copy.join("agents/main/sessions");
    let entries = || fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().path());
    let transcript = entries().find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap();
    let intact = fs::read(&transcript).unwrap();
    let other = Home::new();
    let refused = |why: &str| {
        let output = other.run(&["restore", copy.to_str().unwrap()]);
        assert!(output.code == Some(1) && output.stderr.contains(why) && !other.state().exists(), "{output:?}");
    };
    fs::write(&transcript, String::from_utf8(intact.clone()).unwrap().replace("time", "tide")).unwrap();
    refused("was changed");
    fs::remove_file(&transcript).unwrap();
    refused("is missing");
    fs::write(&transcript, intact).unwrap();
    fs::write(sessions.join("more.jsonl"), "").unwrap();
    refused("was added");
    fs::remove_file(sessions.join("more.jsonl")).unwrap();
    assert_eq!(other.run(&["restore", copy.to_str().unwrap()]).code, Some(0));
}
