//! Cron jobs, through the binary and across its restarts.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::home::Home;

#[test]
fn a_job_is_created_run_listed_and_removed() {
    let home = Home::new();
    let gateway = home.gateway();
    let empty = gateway.run(&["cron", "list"]);
    assert!(empty.stdout.starts_with("no jobs; create one with: homard cron add "), "{empty:?}");
    let created = gateway
        .run(&["cron", "add", "--name", "Files", "--every", "1h", "-m", "What files are here?", "--json"])
        .json();
    let id = created["id"].as_str().unwrap();
    assert_eq!((&created["sessionTarget"], &created["schedule"]["everyMs"]), (&json!("isolated"), &json!(3_600_000)));
    let started = gateway.run(&["cron", "run", id, "--json"]).json();
    assert!(started["runId"].as_str().unwrap().starts_with(&format!("cron-{id}-")), "{started}");
    let runs = loop {
        let runs = gateway.run(&["cron", "runs", id, "--json"]).json();
        if runs["total"] != 0 {
            break runs;
        }
    };
    let recorded = (&runs["entries"][0]["status"], &runs["entries"][0]["runId"]);
    assert_eq!(recorded, (&json!("ok"), &started["runId"]));
    let listed = gateway.run(&["cron", "list"]).stdout;
    assert!(listed.contains("Files") && listed.contains("every 1h") && listed.contains("ok 0s ago"), "{listed}");
    assert_eq!(gateway.run(&["cron", "rm", id]).stdout, format!("removed job {id}\n"));
    let removed = gateway.run(&["cron", "rm", id]);
    assert_eq!(
        (removed.code, removed.stderr.trim()),
        (Some(1), format!("error: job {id} not found; list jobs with: homard cron").as_str())
    );
    let kept = gateway.run(&["cron", "runs", id]);
    assert_eq!((kept.code, kept.stdout.is_empty()), (Some(0), false), "{kept:?}");
}

#[test]
fn runs_of_a_job_that_never_existed_are_an_error() {
    let home = Home::new();
    let gateway = home.gateway();
    let unknown = gateway.run(&["cron", "runs", "nope"]);
    let expected = "error: job nope not found; list jobs with: homard cron\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), expected));
    let unknown = gateway.run(&["cron", "runs", "nope", "--json"]);
    assert_eq!((unknown.code, unknown.json()["error"]["type"].as_str()), (Some(1), Some("not_found")));
    let add = ["cron", "add", "--name", "Tea", "--at", "2h", "--event", "The tea is ready."];
    assert_eq!(gateway.run(&add).code, Some(0));
    assert_eq!(gateway.run(&["cron", "runs", "Tea"]).stdout, "no runs yet\n");
}

#[test]
fn jobs_survive_a_restart() {
    let home = Home::new();
    let gateway = home.gateway();
    let add = ["cron", "add", "--name", "Tea", "--at", "2h", "--event", "The tea is ready.", "--json"];
    let created = gateway.run(&add).json();
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let stored: serde_json::Value =
        serde_json::from_slice(&fs::read(home.state().join("cron/jobs.json")).unwrap()).unwrap();
    assert_eq!(stored, json!({"version": 1, "jobs": [created]}));
    let listed = home.gateway().run(&["cron", "list", "--json"]).json();
    assert_eq!(listed["jobs"], json!([created]));
}

#[test]
fn unreadable_jobs_are_not_changed() {
    let home = Home::new();
    fs::create_dir_all(home.state().join("cron")).unwrap();
    fs::write(home.state().join("cron/jobs.json"), "{\"jobs\": [").unwrap();
    let gateway = home.gateway();
    let refused = gateway.run(&["cron", "list"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cron/jobs.json cannot be read: EOF while parsing"), "{refused:?}");
    assert_eq!(gateway.run(&["cron", "add", "--name", "x", "--every", "1h", "-m", "x"]).code, Some(1));
    assert_eq!(gateway.run(&["agent", "-m", "What files are here?"]).code, Some(0));
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    assert_eq!(fs::read_to_string(home.state().join("cron/jobs.json")).unwrap(), "{\"jobs\": [");
}

#[test]
fn without_a_gateway_the_error_names_the_remedy() {
    let output = Home::new().run(&["cron", "list"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("start one with: homard gateway"), "{output:?}");
}
