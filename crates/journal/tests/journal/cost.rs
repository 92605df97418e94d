//! Disk cost of a plain run: few pages, because every page of the log is written twice.

use std::{fs, path::Path, time::Duration};

use homard_proto::message::{Message, User};
use homard_store::{Outcome, Rec};

use crate::words::*;

/// Number of plain runs in one session: some seconds of steady load, in which runs are summarized once.
const RUNS: u64 = 300;

/// Size of a page in the write-ahead log, with its header.
const PAGE: u64 = 4096 + 24;

const SESSION: &str = "ef1b2ae6-dcdc-4790-bb70-9f5c2d629c03";

fn begin(at: u64) -> Vec<Rec> {
    let (name, line) = (format!("run-{at}"), format!("u{at}"));
    let fingerprint = "7ac799dc69d9231c06139674c0133c21925bb747213679608f06d597ec5730c1";
    vec![accept(&name, fingerprint), start(&name, "main", SESSION), input(&name, ["main", SESSION], &[], &[&line])]
}

fn end(at: u64) -> Vec<Rec> {
    let name = format!("run-{at}");
    let answer = line(&format!("a{at}"), Message::User(User::text("word ".repeat(70), NOW)));
    let mut record = record(SESSION);
    record.updated_at = NOW + at;
    record.label = Some("what a record holds beside its ids and its time ".repeat(3));
    vec![
        Rec::Entry { run: Some(run(&name)), key: key("main"), session: session(SESSION), entry: Box::new(answer) },
        terminal(&name, Outcome::Done),
        patch("main", Some(SESSION), record),
    ]
}

// D31
#[tokio::test(start_paused = true)]
async fn a_plain_run_writes_few_pages() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let log = |state: &Path| fs::metadata(state.join("journal/journal.db-wal")).unwrap().len();
    commit_all(&journal, vec![patch("main", None, record(SESSION))]).await;
    let before = log(state.path());
    let workload = async {
        for at in 0..RUNS {
            commit_all(&journal, begin(at)).await;
            commit_all(&journal, end(at)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    tokio::select! {
        () = workload => {}
        () = journal.maintain() => unreachable!("it has no end"),
    }
    // Accept: the run, its index entry, its line. End: the run, and a page with its line and the record. The remainder
    // is table growth and the checkpoint.
    let pages = (log(state.path()) - before) / PAGE;
    assert!(pages <= 5 * RUNS + RUNS * 11 / 10, "{pages} pages for {RUNS} runs");
}
