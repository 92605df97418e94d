//! Cron jobs, through the binary and across its restarts.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::home::Home;

#[test]
fn a_job_is_made_run_told_and_removed() {
    let home = Home::new();
    let gateway = home.gateway();
    let empty = gateway.run(&["cron", "list"]);
    assert!(empty.stdout.starts_with("no jobs; create one with: homard cron add "), "{empty:?}");
    let made = gateway
        .run(&["cron", "add", "--name", "Files", "--every", "1h", "-m", "What files are here?", "--json"])
        .json();
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["sessionTarget"], &made["schedule"]["everyMs"]), (&json!("isolated"), &json!(3_600_000)));
    let ran = gateway.run(&["cron", "run", id, "--json"]).json();
    assert!(ran["runId"].as_str().unwrap().starts_with(&format!("cron-{id}-")), "{ran}");
    let runs = loop {
        let runs = gateway.run(&["cron", "runs", id, "--json"]).json();
        if runs["total"] != 0 {
            break runs;
        }
    };
    let told = (&runs["entries"][0]["status"], &runs["entries"][0]["runId"]);
    assert_eq!(told, (&json!("ok"), &ran["runId"]));
    let listed = gateway.run(&["cron", "list"]).stdout;
    assert!(listed.contains("Files") && listed.contains("every 1h") && listed.contains("ok 0s ago"), "{listed}");
    assert_eq!(gateway.run(&["cron", "rm", id]).stdout, format!("removed job {id}\n"));
    let gone = gateway.run(&["cron", "rm", id]);
    assert_eq!(
        (gone.code, gone.stderr.trim()),
        (Some(1), format!("error: no job {id}; list jobs with: homard cron").as_str())
    );
}

#[test]
fn jobs_outlive_the_gateway() {
    let home = Home::new();
    let gateway = home.gateway();
    let add = ["cron", "add", "--name", "Tea", "--at", "2h", "--event", "The tea is ready.", "--json"];
    let made = gateway.run(&add).json();
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(home.state().join("cron/jobs.json")).unwrap()).unwrap();
    assert_eq!(kept, json!({"version": 1, "jobs": [made]}));
    let listed = home.gateway().run(&["cron", "list", "--json"]).json();
    assert_eq!(listed["jobs"], json!([made]));
}

#[test]
fn jobs_that_cannot_be_read_are_left_alone() {
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
fn without_a_gateway_the_way_out_is_named() {
    let said = Home::new().run(&["cron", "list"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("start one with: homard gateway"), "{said:?}");
}
