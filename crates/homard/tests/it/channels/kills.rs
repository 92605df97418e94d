//! Kills at any point: what came in is answered, and nothing twice.
//!
//! `GRID=all` has a thousand replies instead of two hundred.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
};

use homard_testkit::{
    chance::Dice,
    fake_provider::{Asked, Reply, fault::Fault as Broken},
    fake_telegram::Fault,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::stage::{SECRET, Stage, heard, knock, said, soon};
use crate::{
    chaos::life::is_long,
    home::{Gateway, until},
};

/// How many replies there are, and how many of them at once.
fn grid() -> (u64, u64) {
    (if is_long() { 1000 } else { 200 }, 10)
}

fn kill(gateway: Gateway<'_>) {
    gateway.process.signal(Signal::KILL);
    gateway.end();
}

/// Nothing comes of it the first few times, so that each kill finds a run at work.
fn hesitant(kills: usize) -> impl FnMut(&Asked) -> Reply + Send {
    move |asked| match asked.number < kills {
        true => Reply { fault: Some(Broken::Stall(0)), ..Reply::text("never said") },
        false => Reply::text(format!("echo {}", heard(asked))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_update_a_hundred_times_over_five_kills_is_one_run_and_one_answer() {
    // A run that was at work three times when the process went down would not be tried again.
    let stage = Stage::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), hesitant(2)).await;
    stage.telegram.writes(7, "hello");
    let mut gateway = stage.gateway();
    for killed in 1..=5 {
        until("the model is asked", || stage.asked() >= killed.min(3));
        let before = stage.telegram.calls_of("getUpdates").len();
        (0..20).for_each(|_| stage.telegram.spoil("getUpdates", Fault::Again));
        soon("it comes again", stage.telegram.until(|telegram| telegram.calls_of("getUpdates").len() > before + 20))
            .await;
        kill(gateway);
        gateway = stage.gateway();
    }
    soon("an answer", stage.telegram.until(|telegram| !telegram.seen().is_empty())).await;
    stage.telegram.writes(7, "next");
    soon("the next answer", stage.telegram.until(|telegram| telegram.seen().len() > 1)).await;
    assert_eq!(stage.answers(), [(7, "echo hello".to_owned()), (7, "echo next".to_owned())]);
    let last = stage.puppet.provider.asked().pop().unwrap().body;
    assert_eq!(last.matches("] hello").count(), 1, "{last}");
}

/// The texts of the messages that a peer took.
fn taken(stage: &Stage) -> Vec<String> {
    let messages = stage.peer.seen().into_iter().filter(|seen| seen["type"] == "message");
    messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_is_lost_or_doubled_by_kills_where_the_peer_knows_what_it_has() {
    let (replies, at_once) = grid();
    let stage = Stage::with(json!({"webhook": {"allowFrom": ["*"], "dmPolicy": "open"}}), json!({})).await;
    let mut dice = Dice::new(12);
    let mut gateway = stage.gateway();
    for round in 0..replies / at_once {
        let mut open: Vec<u64> = (0..at_once).map(|n| round * at_once + n).collect();
        let (calls, goal) = (stage.peer.came().len() as u64, dice.below(3 * at_once));
        let mut is_killed = false;
        // What was not taken is brought again, as a peer does.
        while !open.is_empty() || !is_killed {
            open.retain(|n| {
                let message = said(&format!("m{n}"), &format!("user{n}"), &format!("n{n}."));
                knock(gateway.port, "/channels/webhook", &message, SECRET).is_none_or(|(status, _)| status != 200)
            });
            let is_done = taken(&stage).len() as u64 >= (round + 1) * at_once;
            if !is_killed && (is_done || stage.peer.came().len() as u64 >= calls + goal) {
                kill(gateway);
                gateway = stage.gateway();
                is_killed = true;
            }
        }
        // Or a run would be at work in three lives, and then it is given up.
        until("all replies", || taken(&stage).len() as u64 >= (round + 1) * at_once);
    }
    drop(gateway);
    let mut texts = taken(&stage);
    texts.sort();
    let mut expected: Vec<_> = (0..replies).map(|n| format!("echo n{n}.")).collect();
    expected.sort();
    assert_eq!(texts, expected);
}

/// The deliveries that logs say nobody knows about.
fn unknown(folder: &std::path::Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains("it is not known whether a message was delivered")) {
            let id = line.split("id=").nth(1).unwrap_or_else(|| panic!("{line}"));
            found.insert(id.split_whitespace().next().unwrap().trim_matches('"').to_owned());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn on_telegram_nothing_is_said_twice_and_what_may_not_have_been_said_is_reported() {
    if !is_long() {
        // It is not known yet whether every reply that may not have been said is reported: a kill may take the report along.
        eprintln!("skipped: replies on Telegram under kills: it is a part of the long grid (GRID=all)");
        return;
    }
    let (replies, at_once) = grid();
    let stage = Stage::with(json!({"telegram": {"allowFrom": ["*"], "dmPolicy": "open"}}), json!({})).await;
    let logs = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(47);
    let mut lives = 0;
    let mut start = || {
        lives += 1;
        let log = File::create(logs.path().join(lives.to_string())).unwrap();
        let mut command = stage.home().command(&["gateway", "run", "--port", "0", "--recover"]);
        command.stderr(log).env("HOMARD_LOG", "warn").env("NO_COLOR", "1");
        stage.home().listening(command)
    };
    let mut gateway = start();
    let answered = |stage: &Stage, from: u64| {
        let seen: Vec<Value> = stage.telegram.seen().into_iter().map(|seen| seen.text.into()).collect();
        (from..from + at_once).filter(|n| seen.contains(&json!(format!("echo n{n}.")))).count() as u64
    };
    for round in 0..replies / at_once {
        let from = round * at_once;
        for n in from..from + at_once {
            stage.telegram.writes(i64::try_from(n % at_once).unwrap() + 1, &format!("n{n}."));
        }
        let calls = stage.telegram.calls_of("sendMessage").len() as u64;
        let goal = calls + dice.below(at_once + 1);
        soon("some are sent", stage.telegram.until(|telegram| telegram.calls_of("sendMessage").len() as u64 >= goal))
            .await;
        kill(gateway);
        gateway = start();
        until("the others are", || answered(&stage, from) + unknown(logs.path()).len() as u64 >= at_once);
    }
    // Everybody once more: what waited before them in line is gone by then.
    for person in 1..=at_once {
        stage.telegram.writes(i64::try_from(person).unwrap(), &format!("last {person}."));
    }
    until("the last answers", || {
        stage.answers().iter().filter(|(_, text)| text.contains("last")).count() as u64 == at_once
    });
    drop(gateway);
    let texts: Vec<_> =
        stage.answers().into_iter().map(|(_, text)| text).filter(|text| text.starts_with("echo n")).collect();
    let distinct: BTreeSet<_> = texts.iter().cloned().collect();
    assert_eq!(distinct.len(), texts.len(), "nothing is said twice");
    let reported = unknown(logs.path());
    let runs = runs(&stage);
    for n in (0..replies).filter(|n| !distinct.contains(&format!("echo n{n}."))) {
        let run = &runs[&format!("n{n}.")];
        assert!(
            reported.iter().any(|id| id.starts_with(&format!("{run}/"))),
            "n{n} is lost: {run} is not in {reported:?}"
        );
    }
}

/// The runs of messages, by what these say.
fn runs(stage: &Stage) -> BTreeMap<String, String> {
    let mut runs = BTreeMap::new();
    for entry in fs::read_dir(stage.home().state().join("agents/main/sessions")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "jsonl") {
            let text = fs::read_to_string(path).unwrap();
            for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let message = &line["message"];
                let Some(key) = message["idempotencyKey"].as_str() else { continue };
                let words = message["content"].as_str().or_else(|| message["content"][0]["text"].as_str());
                let said = words.and_then(|words| words.rsplit_once("] ")).map(|(_, said)| said.to_owned());
                runs.insert(said.unwrap(), key.trim_end_matches(":user").to_owned());
            }
        }
    }
    runs
}
